// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

package kubelet

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// noProcesses is for pods without processes.
type noProcesses struct{}

func (noProcesses) Sync(*corev1.Pod) (Process, bool) { return Process{}, false }
func (noProcesses) Stop(*corev1.Pod) bool            { return true }
func (noProcesses) OnChange(func(string))            {}

// A pod has no grace period left once its deletion was written, also when the API server was killed before it carried that out.
func TestPodIsDeletedUnlessAFinalizerHoldsIt(t *testing.T) {
	for name, finalizers := range map[string][]string{"killed": nil, "held": {"example.io/held"}} {
		now := metav1.Now()
		pod := testPod("", "image")
		pod.ObjectMeta = metav1.ObjectMeta{
			Namespace: "kubevirt", Name: name, Finalizers: finalizers, DeletionTimestamp: &now, DeletionGracePeriodSeconds: new(int64(0)),
		}
		client := fake.NewClientset(pod)
		k := &Kubelet{client: client, processes: noProcesses{}}
		if err := k.stop(t.Context(), "kubevirt/"+name, pod, &life{stopping: time.Now().Add(-time.Minute)}, time.Second); err != nil {
			t.Fatal(err)
		}
		deleted := len(client.Actions()) == 1 && client.Actions()[0].Matches("delete", "pods")
		if deleted != (finalizers == nil) {
			t.Errorf("%s: requests %v", name, client.Actions())
		}
	}
}
