// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	registration "k8s.io/api/admissionregistration/v1"

	"virtpools.io/controlplane/standin/kubevirt"
)

// KubeVirtRule asks about updates of KubeVirt objects, as virt-operator does.
func KubeVirtRule() Rule {
	return Rule{
		Configuration: "virt-operator-validator", Name: "kubevirt-update-validator.kubevirt.io",
		Path: "/kubevirt-validate-update", Group: "kubevirt.io", Versions: []string{"v1"}, Resource: "kubevirts",
		Operations: []registration.OperationType{registration.Update},
		Check: func(_ context.Context, request *admissionv1.AdmissionRequest) error {
			kv := &kubevirt.KubeVirt{}
			if err := json.Unmarshal(request.Object.Raw, kv); err != nil {
				return err
			}
			return CheckKubeVirt(kv.Spec)
		},
	}
}

// CheckKubeVirt refuses as little as the real one: patches need not be applicable, nor their type or a gate known.
func CheckKubeVirt(spec kubevirt.Spec) error {
	var refusals []error
	for i, patch := range spec.CustomizeComponents.Patches {
		if !json.Valid([]byte(patch.Patch)) {
			refusals = append(refusals, fmt.Errorf(
				"spec.customizeComponents.patches[%d]: patch %q is not valid JSON", i, patch.Patch))
		}
	}
	developer := spec.Configuration.DeveloperConfiguration
	for _, gate := range developer.FeatureGates {
		if slices.Contains(developer.DisabledFeatureGates, gate) {
			refusals = append(refusals, fmt.Errorf(
				"feature gate %q is in both featureGates and disabledFeatureGates", gate))
		}
	}
	return errors.Join(refusals...)
}
