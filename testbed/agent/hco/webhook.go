// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

package hco

import (
	"context"

	admissionv1 "k8s.io/api/admission/v1"
	registration "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"

	"virtpools.io/controlplane/agent/kubevirt"
	"virtpools.io/controlplane/agent/webhook"
)

// Rule covers new and changed HyperConverged objects.
func (h *HCO) Rule() webhook.Rule {
	return webhook.Rule{
		Configuration: "validate-hco.kubevirt.io", Name: "validate-hco.kubevirt.io", Path: "/validate-hco",
		Group: Resource.Group, Versions: []string{Resource.Version, beta1}, Resource: Resource.Resource,
		Operations: []registration.OperationType{registration.Create, registration.Update},
		Check:      h.check,
	}
}

// check renders the object and asks KubeVirt's webhook by a dry run. It does not try the object's component patches.
func (h *HCO) check(ctx context.Context, request *admissionv1.AdmissionRequest) ([]string, error) {
	own := &unstructured.Unstructured{}
	if err := json.Unmarshal(request.Object.Raw, &own.Object); err != nil {
		return nil, err
	}
	if own.GetDeletionTimestamp() != nil {
		return nil, nil
	}
	if err := Convert(own.Object, Resource.GroupVersion().String()); err != nil {
		return nil, err
	}
	own.SetNamespace(request.Namespace)
	wanted, err := h.Wanted(own)
	if err != nil {
		return nil, err
	}
	return gateWarnings(nested(own.Object, "spec", "featureGates")), h.try(ctx, wanted)
}

// try asks KubeVirt's webhook.
func (h *HCO) try(ctx context.Context, wanted *unstructured.Unstructured) error {
	api := h.client.Resource(kubevirt.Resource).Namespace(wanted.GetNamespace())
	dry := []string{metav1.DryRunAll}
	live, err := api.Get(ctx, KubeVirtName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = api.Create(ctx, wanted, metav1.CreateOptions{DryRun: dry})
		return err
	}
	if err != nil {
		return err
	}
	live.Object["spec"] = wanted.Object["spec"]
	_, err = api.Update(ctx, live, metav1.UpdateOptions{DryRun: dry})
	return err
}
