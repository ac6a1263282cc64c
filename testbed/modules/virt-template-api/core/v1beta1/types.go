// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

// Package v1beta1 has as much of VirtualMachineTemplates as KubeVirt's programs need to compile. They use it only with
// the feature gate Template.
package v1beta1

import (
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

const ConditionReady = "Ready"

type VirtualMachineTemplate struct {
	meta.TypeMeta   `json:",inline"`
	meta.ObjectMeta `json:"metadata,omitempty"`

	Spec   VirtualMachineTemplateSpec   `json:"spec,omitempty"`
	Status VirtualMachineTemplateStatus `json:"status,omitempty"`
}

type VirtualMachineTemplateSpec struct {
	VirtualMachine *runtime.RawExtension `json:"virtualMachine,omitempty"`
	Parameters     []Parameter           `json:"parameters,omitempty"`
}

type VirtualMachineTemplateStatus struct {
	Conditions []meta.Condition `json:"conditions,omitempty"`
}

type Parameter struct {
	Name  string `json:"name"`
	Value string `json:"value,omitempty"`
}

func (in *VirtualMachineTemplate) DeepCopy() *VirtualMachineTemplate {
	out := &VirtualMachineTemplate{TypeMeta: in.TypeMeta, ObjectMeta: *in.ObjectMeta.DeepCopy()}
	out.Spec.VirtualMachine = in.Spec.VirtualMachine.DeepCopy()
	out.Spec.Parameters = append(out.Spec.Parameters, in.Spec.Parameters...)
	for _, condition := range in.Status.Conditions {
		out.Status.Conditions = append(out.Status.Conditions, *condition.DeepCopy())
	}
	return out
}

func (in *VirtualMachineTemplate) DeepCopyObject() runtime.Object { return in.DeepCopy() }
