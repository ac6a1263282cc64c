// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

package guest

import (
	"maps"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"virtpools.io/controlplane/agent/kubelet"
	"virtpools.io/controlplane/agent/kubevirt"
)

var began = time.Unix(1_800_000_000, 0)

// handlerPod is a virt-handler that runs, and is Ready, since that time.
func handlerPod(node string, since time.Time) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: node, Namespace: "kubevirt", Labels: map[string]string{kubevirt.ComponentLabel: kubevirt.HandlerComponent},
		},
		Spec: corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			ContainerStatuses: []corev1.ContainerStatus{{
				Name:  kubevirt.HandlerComponent,
				State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(since)}},
			}},
		},
	}
}

// guestsWith follow instances on the nodes "source" and "target", which have these handlers.
func guestsWith(t *testing.T, handlers ...*corev1.Pod) *Guests {
	t.Helper()
	indexers := Indexers()
	maps.Copy(indexers, kubelet.Indexers())
	pods, nodes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, indexers), cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
	for _, pod := range handlers {
		if err := pods.Add(pod); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"source", "target"} {
		if err := nodes.Add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	return &Guests{options: Options{Namespace: "kubevirt"}, pods: pods, nodes: corelisters.NewNodeLister(nodes)}
}

// moving is an instance whose migration has begun.
func moving() *kubevirt.VMI {
	vmi, start := &kubevirt.VMI{}, metav1.NewTime(began)
	vmi.Status.NodeName = "source"
	vmi.Status.MigrationState = &kubevirt.MigrationState{
		SourceNode: "source", TargetNode: "target", TargetPod: "pod", TargetNodeAddress: "10.0.0.1", StartTimestamp: &start,
	}
	return vmi
}

func TestMigrationNeedsBothHandlers(t *testing.T) {
	before, after := began.Add(-time.Hour), began.Add(time.Second)
	ended := handlerPod("target", before)
	ended.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
	unready := handlerPod("source", before)
	unready.Status.Conditions = nil
	for name, test := range map[string]struct {
		source, target *corev1.Pod
		node           string
		fails          bool
	}{
		"both last":                   {handlerPod("source", before), handlerPod("target", before), "target", false},
		"started in the same second":  {handlerPod("source", began), handlerPod("target", began), "target", false},
		"the source's has restarted":  {handlerPod("source", after), handlerPod("target", before), "source", true},
		"the target's has restarted":  {handlerPod("source", before), handlerPod("target", after), "source", true},
		"the target's is ending":      {handlerPod("source", before), ended, "source", true},
		"the source's does not react": {unready, handlerPod("target", before), "", false},
	} {
		vmi := moving()
		step, node := guestsWith(t, test.source, test.target).migration(vmi, vmi.Status.MigrationState)
		if node != test.node {
			t.Errorf("%s: node %q", name, node)
		}
		written := &unstructured.Unstructured{Object: map[string]any{}}
		if step != nil {
			step(t.Context(), vmi, written)
		}
		if failed, _, _ := unstructured.NestedBool(written.Object, "status", "migrationState", "failed"); failed != test.fails {
			t.Errorf("%s: failed is %t", name, failed)
		}
	}
}

func TestMigrationFailsWithoutItsTargetsHandler(t *testing.T) {
	vmi := moving()
	guests := guestsWith(t, handlerPod("source", began))
	if _, node := guests.migration(vmi, vmi.Status.MigrationState); node != "source" {
		t.Errorf("node %q", node)
	}
}
