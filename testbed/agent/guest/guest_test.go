// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

package guest

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"virtpools.io/controlplane/agent/kubevirt"
)

// launcher is the pod in which an instance runs.
func launcher(vmi *kubevirt.VMI, state corev1.ContainerState) *corev1.Pod {
	owner := metav1.OwnerReference{Kind: "VirtualMachineInstance", Name: vmi.Name, UID: vmi.UID, Controller: new(true)}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "launcher", OwnerReferences: []metav1.OwnerReference{owner}},
		Spec:       corev1.PodSpec{NodeName: vmi.Status.NodeName},
		Status: corev1.PodStatus{
			Phase:             corev1.PodRunning,
			ContainerStatuses: []corev1.ContainerStatus{{Name: kubevirt.ComputeContainer, State: state}},
		},
	}
}

func TestGuestEndsWithItsLauncher(t *testing.T) {
	vmi := &kubevirt.VMI{ObjectMeta: metav1.ObjectMeta{Name: "vm", UID: "vm"}}
	vmi.Status.Phase, vmi.Status.NodeName = kubevirt.Running, "source"
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	terminated := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
	deleted := func(state corev1.ContainerState) *corev1.Pod {
		pod := launcher(vmi, state)
		pod.DeletionTimestamp = new(metav1.Now())
		return pod
	}
	for name, test := range map[string]struct {
		pods []*corev1.Pod
		want string
	}{
		"runs":                    {[]*corev1.Pod{launcher(vmi, running)}, ""},
		"deleted, still running":  {[]*corev1.Pod{deleted(running)}, ""},
		"deleted, has ended":      {[]*corev1.Pod{deleted(terminated)}, kubevirt.Succeeded},
		"deleted without its end": {nil, kubevirt.Failed},
		"ended, but not deleted":  {[]*corev1.Pod{launcher(vmi, terminated)}, ""},
	} {
		step, _ := guestsWith(t, test.pods...).next(vmi)
		written := &unstructured.Unstructured{Object: map[string]any{}}
		if step != nil {
			step(t.Context(), vmi, written)
		}
		if phase, _, _ := unstructured.NestedString(written.Object, "status", "phase"); phase != test.want {
			t.Errorf("%s: phase %q", name, phase)
		}
	}
}
