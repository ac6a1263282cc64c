// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

package api

import (
	"slices"
	"strings"

	registration "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/uuid"

	"virtpools.io/controlplane/standin/kubevirt"
	"virtpools.io/controlplane/standin/webhook"
)

// machines are the machine types that instances get, by architecture.
var machines = map[string]string{"amd64": "q35", "arm64": "virt", "s390x": "s390-ccw-virtio"}

// Mutations are virt-api's webhooks for new machines and instances, as far as launcher pods or readers of objects
// notice. The model is the CPU model that the KubeVirt object names, if any.
func Mutations(model func() string) webhook.Mutations {
	rule := func(resource string, mutate webhook.Mutate) webhook.Mutation {
		return webhook.Mutation{
			Name: resource + "-create-mutator.kubevirt.io", Path: "/" + resource + "-mutate-create",
			Group: kubevirt.Resource.Group, Versions: []string{"v1"}, Resource: resource,
			Operations: []registration.OperationType{registration.Create}, Mutate: mutate,
		}
	}
	return webhook.Mutations{
		Configuration: "virt-api-mutator",
		Mutations: []webhook.Mutation{
			rule(kubevirt.VMResource.Resource, vmDefaults),
			rule(kubevirt.VMIResource.Resource, func(vmi map[string]any) { vmiDefaults(vmi, model()) }),
		},
	}
}

func vmDefaults(vm map[string]any) {
	fill(vm, "amd64", "spec", "template", "spec", "architecture")
	for field, kind := range map[string]string{"instancetype": "virtualmachineclusterinstancetype", "preference": "virtualmachineclusterpreference"} {
		if _, ok, _ := unstructured.NestedMap(vm, "spec", field); ok {
			fill(vm, kind, "spec", field, "kind")
		}
	}
}

func vmiDefaults(vmi map[string]any, model string) {
	object := &unstructured.Unstructured{Object: vmi}
	if _, off := object.GetAnnotations()[kubevirt.HandsOffKnob]; off {
		return
	}
	if finalizers := object.GetFinalizers(); !slices.Contains(finalizers, kubevirt.VMIFinalizer) {
		object.SetFinalizers(append(finalizers, kubevirt.VMIFinalizer))
	}
	fill(vmi, "amd64", "spec", "architecture")
	architecture, _, _ := unstructured.NestedString(vmi, "spec", "architecture")
	fill(vmi, machines[architecture], "spec", "domain", "machine", "type")
	switch {
	case architecture == "arm64":
		model = "host-passthrough"
	case model == "":
		model = "host-model"
	}
	fill(vmi, model, "spec", "domain", "cpu", "model")
	fill(vmi, string(uuid.NewUUID()), "spec", "domain", "firmware", "uuid")
	fill(vmi, "None", "spec", "evictionStrategy")
	fill(vmi, map[string]any{}, "spec", "domain", "devices")
	if attach, set, _ := unstructured.NestedBool(vmi, "spec", "domain", "devices", "autoattachPodInterface"); attach || !set {
		if _, ok, _ := unstructured.NestedSlice(vmi, "spec", "networks"); !ok {
			fill(vmi, []any{map[string]any{"name": "default", "pod": map[string]any{}}}, "spec", "networks")
			fill(vmi, []any{map[string]any{"name": "default", "bridge": map[string]any{}}}, "spec", "domain", "devices", "interfaces")
		}
	}
	volumes, _, _ := unstructured.NestedSlice(vmi, "spec", "volumes")
	for _, each := range volumes {
		volume, _ := each.(map[string]any)
		if image, ok, _ := unstructured.NestedString(volume, "containerDisk", "image"); ok {
			fill(volume, pullPolicy(image), "containerDisk", "imagePullPolicy")
		}
	}
	if volumes != nil {
		_ = unstructured.SetNestedSlice(vmi, volumes, "spec", "volumes")
	}
}

// pullPolicy is Kubernetes' default for an image.
func pullPolicy(image string) string {
	name := image[strings.LastIndex(image, "/")+1:]
	if strings.HasSuffix(name, ":latest") || !strings.ContainsAny(name, ":@") {
		return "Always"
	}
	return "IfNotPresent"
}

// fill sets what is not set. Where the path leads through something else than maps, it is left alone.
func fill(object map[string]any, value any, path ...string) {
	if have, ok, err := unstructured.NestedFieldNoCopy(object, path...); err == nil && (!ok || have == nil || have == "") {
		_ = unstructured.SetNestedField(object, value, path...)
	}
}
