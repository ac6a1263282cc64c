// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

package kubevirt

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// Labels of virtual machine instances and launcher pods.
const (
	NodeNameLabel   = "kubevirt.io/nodeName"
	TargetNodeLabel = "kubevirt.io/migrationTargetNodeName"
	OutdatedLabel   = "kubevirt.io/outdatedLauncherImage"
	UnpausedGate    = "kubevirt.io/virtual-machine-unpaused"
)

// Phases of virtual machine instances.
const (
	Scheduled = "Scheduled"
	Running   = "Running"
	Succeeded = "Succeeded"
	Failed    = "Failed"
)

// VMIResource addresses virtual machine instances.
var VMIResource = Resource.GroupVersion().WithResource("virtualmachineinstances")

// VMI is the part of a VirtualMachineInstance that virt-handler's part needs.
type VMI struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Domain struct {
			Devices struct {
				GPUs        []Device `json:"gpus,omitempty"`
				HostDevices []Device `json:"hostDevices,omitempty"`
			} `json:"devices,omitempty"`
		} `json:"domain"`
		Volumes []Volume `json:"volumes,omitempty"`
	} `json:"spec"`
	Status VMIStatus `json:"status,omitempty"`
}

// Device is passed through from the node.
type Device struct {
	Name string `json:"name"`
}

// Volume is where a disk comes from.
type Volume struct {
	PersistentVolumeClaim *corev1.PersistentVolumeClaimVolumeSource `json:"persistentVolumeClaim,omitempty"`
	DataVolume            *Device                                   `json:"dataVolume,omitempty"`
}

// Claim is the name of the volume's claim, if it has one.
func (v Volume) Claim() string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.DataVolume != nil:
		return v.DataVolume.Name
	}
	return ""
}

// VMIStatus is what KubeVirt says of the instance.
type VMIStatus struct {
	Phase          string          `json:"phase,omitempty"`
	NodeName       string          `json:"nodeName,omitempty"`
	MigrationState *MigrationState `json:"migrationState,omitempty"`
}

// MigrationState is a migration as the instance shows it.
type MigrationState struct {
	SourceNode     string       `json:"sourceNode,omitempty"`
	SourcePod      string       `json:"sourcePod,omitempty"`
	TargetNode     string       `json:"targetNode,omitempty"`
	TargetPod      string       `json:"targetPod,omitempty"`
	Completed      bool         `json:"completed,omitempty"`
	Failed         bool         `json:"failed,omitempty"`
	AbortRequested bool         `json:"abortRequested,omitempty"`
	StartTimestamp *metav1.Time `json:"startTimestamp,omitempty"`
	EndTimestamp   *metav1.Time `json:"endTimestamp,omitempty"`
	// TargetNodeAddress is set once the target's handler is prepared.
	TargetNodeAddress string `json:"targetNodeAddress,omitempty"`
}

// Migrating tells whether a migration of the instance has begun and not ended.
func (v *VMI) Migrating() bool {
	state := v.Status.MigrationState
	return state != nil && state.EndTimestamp == nil
}

// Read turns an object into one of this package's types; the result shares nothing with it.
func Read[T any](object *unstructured.Unstructured) (*T, error) {
	into := new(T)
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.DeepCopy().Object, into)
	return into, err
}
