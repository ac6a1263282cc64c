// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

package instancetype

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"virtpools.io/controlplane/standin/kubevirt"
)

// Resolver finds what machines refer to.
type Resolver struct {
	Kubernetes kubernetes.Interface
	Dynamic    dynamic.Interface
}

// Resolved is an instancetype or a preference, and where it was found.
type Resolved struct {
	Object *unstructured.Unstructured
	// Revision is the ControllerRevision that holds it; empty when it is the live object.
	Revision string
	Kind     string
}

// Spec is the object's spec, or nothing of nothing.
func (r *Resolved) Spec() map[string]any {
	if r == nil {
		return nil
	}
	spec, _, _ := unstructured.NestedMap(r.Object.Object, "spec")
	return spec
}

// Both finds a machine's instancetype and preference; nil for what it has none of.
func (r Resolver) Both(ctx context.Context, vm *kubevirt.VM) (instancetype, preference *Resolved, err error) {
	instancetype, err = r.find(ctx, vm.Namespace, vm.Spec.Instancetype, vm.Status.InstancetypeRef, "instancetype")
	if err != nil {
		return nil, nil, err
	}
	preference, err = r.find(ctx, vm.Namespace, vm.Spec.Preference, vm.Status.PreferenceRef, "preference")
	return instancetype, preference, err
}

// find takes the revision in the spec before the one in the status, and that before the live object.
func (r Resolver) find(ctx context.Context, namespace string, wanted *kubevirt.Matcher, ref *kubevirt.StatusRef, what string) (*Resolved, error) {
	if wanted == nil {
		return nil, nil
	}
	kind, cluster := "VirtualMachineCluster", true
	if wanted.Kind != "" && !strings.Contains(strings.ToLower(wanted.Kind), "cluster") {
		kind, cluster = "VirtualMachine", false
	}
	kind += strings.ToUpper(what[:1]) + what[1:]
	revision := wanted.RevisionName
	if revision == "" && ref != nil && ref.Name == wanted.Name && ref.ControllerRevisionRef != nil {
		revision = ref.ControllerRevisionRef.Name
	}
	if revision != "" {
		object, err := r.revision(ctx, namespace, revision)
		return &Resolved{Object: object, Revision: revision, Kind: kind}, err
	}
	resource := kubevirt.Instancetypes.WithResource(strings.ToLower(kind) + "s")
	var client dynamic.ResourceInterface = r.Dynamic.Resource(resource)
	if !cluster {
		client = r.Dynamic.Resource(resource).Namespace(namespace)
	}
	object, err := client.Get(ctx, wanted.Name, metav1.GetOptions{})
	return &Resolved{Object: object, Kind: kind}, err
}

func (r Resolver) revision(ctx context.Context, namespace, name string) (*unstructured.Unstructured, error) {
	stored, err := r.Kubernetes.AppsV1().ControllerRevisions(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal(stored.Data.Raw, &object.Object); err != nil {
		return nil, fmt.Errorf("ControllerRevision %s/%s: %w", namespace, name, err)
	}
	return object, nil
}

// Pin keeps the live object in a ControllerRevision of the machine's, and says where.
func (r Resolver) Pin(ctx context.Context, vm *kubevirt.VM, found *Resolved) (*kubevirt.StatusRef, error) {
	object := found.Object
	ref := &kubevirt.StatusRef{
		Name: object.GetName(), Kind: found.Kind, ControllerRevisionRef: &kubevirt.NamedSource{Name: found.Revision},
	}
	if found.Revision != "" {
		return ref, nil
	}
	name := fmt.Sprintf("%s-%s-%s-%s-%d", vm.Name, object.GetName(), kubevirt.Instancetypes.Version, object.GetUID(), object.GetGeneration())
	ref.ControllerRevisionRef.Name = name
	kept := object.DeepCopy()
	kept.SetManagedFields(nil)
	data, err := kept.MarshalJSON()
	if err != nil {
		return nil, err
	}
	prefix := kubevirt.Instancetypes.Group + "/object-"
	_, err = r.Kubernetes.AppsV1().ControllerRevisions(vm.Namespace).Create(ctx, &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: vm.Namespace,
			Labels: map[string]string{
				prefix + "generation": fmt.Sprint(object.GetGeneration()), prefix + "kind": found.Kind, prefix + "name": object.GetName(),
				prefix + "uid": string(object.GetUID()), prefix + "version": kubevirt.Instancetypes.Version,
			},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(vm, kubevirt.VMKind)},
		},
		Data: runtime.RawExtension{Raw: data},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		err = nil
	}
	return ref, err
}

// Expand is the machine with everything that its instancetype and preference stand for, and without them. The second
// value are the annotations that an instance made of it gets on top.
func (r Resolver) Expand(ctx context.Context, raw *unstructured.Unstructured) (*unstructured.Unstructured, map[string]string, error) {
	vm, err := kubevirt.Read[kubevirt.VM](raw)
	if err != nil {
		return nil, nil, err
	}
	instancetype, preference, err := r.Both(ctx, vm)
	if err != nil {
		return nil, nil, err
	}
	expanded := raw.DeepCopy()
	template, _, _ := unstructured.NestedMap(expanded.Object, "spec", "template", "spec")
	if template == nil {
		template = map[string]any{}
	}
	if err := Apply(template, instancetype.Spec(), preference.Spec()); err != nil {
		return nil, nil, err
	}
	if err := unstructured.SetNestedMap(expanded.Object, template, "spec", "template", "spec"); err != nil {
		return nil, nil, err
	}
	unstructured.RemoveNestedField(expanded.Object, "spec", "instancetype")
	unstructured.RemoveNestedField(expanded.Object, "spec", "preference")
	annotations := map[string]string{}
	for _, found := range []*Resolved{preference, instancetype} {
		if found == nil {
			continue
		}
		own, _, _ := unstructured.NestedStringMap(found.Object.Object, "spec", "annotations")
		maps.Copy(annotations, own)
		annotations[nameAnnotation(found.Kind)] = found.Object.GetName()
	}
	return expanded, annotations, nil
}

// nameAnnotation is as in kubevirt.io/cluster-preference-name.
func nameAnnotation(kind string) string {
	short := strings.ToLower(strings.TrimPrefix(kind, "VirtualMachine"))
	if rest, ok := strings.CutPrefix(short, "cluster"); ok {
		short = "cluster-" + rest
	}
	return "kubevirt.io/" + short + "-name"
}
