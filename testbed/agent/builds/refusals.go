// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

package builds

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	registration "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"virtpools.io/controlplane/agent/kubevirt"
	"virtpools.io/controlplane/agent/webhook"
)

// refuseUpdate is what the build refuses in a change of the KubeVirt object, and what a test wants it to.
func (b Build) refuseUpdate(object, before *unstructured.Unstructured) error {
	if said := object.GetAnnotations()[kubevirt.RefuseKnob]; said != "" && !reflect.DeepEqual(object.Object["spec"], before.Object["spec"]) {
		return errors.New(said)
	}
	return b.refuseKubeVirt(object)
}

// refuseKubeVirt is what KubeVirt's own webhook refuses in addition. Only the build with the atomic list has rules.
func (b Build) refuseKubeVirt(object *unstructured.Unstructured) error {
	if b.Field == "" || b.listIdentifies {
		return nil
	}
	kv, err := b.read(object)
	if err != nil {
		return err
	}
	if len(kv.list) > 0 && !b.on(kv) {
		return fmt.Errorf("spec.%s requires the %s feature gate to be enabled", b.Field, b.Gate)
	}
	var refusals []string
	var names []string
	for i, pool := range kv.list {
		at := fmt.Sprintf("spec.%s[%d]", b.Field, i)
		if slices.Contains(names, pool.Name) {
			refusals = append(refusals, fmt.Sprintf("%s.name: duplicate pool name %q", at, pool.Name))
		}
		names = append(names, pool.Name)
		refusals = append(refusals, refusePool(at, pool)...)
		refusals = append(refusals, refuseEmptyParts(at, pool)...)
	}
	return joined(refusals)
}

func joined(refusals []string) error {
	if len(refusals) == 0 {
		return nil
	}
	return errors.New(strings.Join(refusals, ", "))
}

func refusePool(at string, pool Pool) []string {
	var refusals []string
	if pool.HandlerImage == "" && pool.LauncherImage == "" {
		refusals = append(refusals, at+": at least one of virtHandlerImage or virtLauncherImage must be specified")
	}
	if len(pool.NodeSelector) == 0 {
		refusals = append(refusals, at+".nodeSelector must not be empty")
	}
	if pool.Selector == nil || (len(pool.Selector.DeviceNames) == 0 && pool.Selector.labels() == nil) {
		refusals = append(refusals, at+".selector must specify at least one of deviceNames or vmLabels")
	}
	return refusals
}

func refuseEmptyParts(at string, pool Pool) []string {
	var refusals []string
	if pool.Selector == nil {
		return nil
	}
	if slices.Contains(pool.Selector.DeviceNames, "") {
		refusals = append(refusals, at+".selector.deviceNames must not have empty entries")
	}
	if labels := pool.Selector.VMLabels; labels != nil && len(labels.MatchLabels) == 0 {
		refusals = append(refusals, at+".selector.vmLabels.matchLabels must not be empty")
	}
	return refusals
}

func (s *Selector) labels() map[string]string {
	if s.VMLabels == nil || len(s.VMLabels.MatchLabels) == 0 {
		return nil
	}
	return s.VMLabels.MatchLabels
}

// poolRule covers new and changed pool objects. It does not ask for the gate, and deletions are not covered.
func (o *Operator) poolRule() webhook.Rule {
	return webhook.Rule{
		Configuration: "workerpool-validator.kubevirt.io", Name: "workerpool-validator.kubevirt.io", Path: "/workerpools-validate",
		Group: PoolResource.Group, Versions: []string{PoolResource.Version}, Resource: PoolResource.Resource,
		Operations: []registration.OperationType{registration.Create, registration.Update},
		Check: func(ctx context.Context, request *admissionv1.AdmissionRequest) ([]string, error) {
			kubeVirt, err := o.kubeVirt(ctx)
			if err != nil {
				return nil, err
			}
			if kubeVirt != nil && kubeVirt.GetAnnotations()[kubevirt.RefuseKnob] != "" {
				return nil, errors.New(kubeVirt.GetAnnotations()[kubevirt.RefuseKnob])
			}
			return nil, refuseObject(request)
		},
	}
}

func refuseObject(request *admissionv1.AdmissionRequest) error {
	var object struct {
		Spec Pool `json:"spec"`
	}
	if err := json.Unmarshal(request.Object.Raw, &object); err != nil {
		return err
	}
	return joined(refusePool("spec", object.Spec))
}
