// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

package operator

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"virtpools.io/controlplane/standin/kubevirt"
)

func marks(t target) map[string]string {
	return map[string]string{
		kubevirt.StrategyVersionAnnotation: t.Version, kubevirt.StrategyRegistryAnnotation: t.Registry,
		kubevirt.StrategyIdentifierAnnotation: t.id(),
	}
}

func testPod(name string, annotations map[string]string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
		Status: corev1.PodStatus{
			Phase:      corev1.PodRunning,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		},
	}
}

func TestDaemonSetReady(t *testing.T) {
	target := testTarget()
	current, stale := marks(target), map[string]string{kubevirt.StrategyVersionAnnotation: "old"}
	pending := testPod("virt-handler-c-1", stale)
	pending.Status.Phase = corev1.PodPending
	for name, test := range map[string]struct {
		desired, ready int32
		annotations    map[string]string
		pods           []*corev1.Pod
		want           bool
	}{
		"well":                {1, 1, current, []*corev1.Pod{testPod("virt-handler-1", current)}, true},
		"no nodes":            {0, 0, current, []*corev1.Pod{testPod("virt-handler-1", current)}, false},
		"not all ready":       {2, 1, current, []*corev1.Pod{testPod("virt-handler-1", current)}, false},
		"old DaemonSet":       {1, 1, stale, []*corev1.Pod{testPod("virt-handler-1", current)}, false},
		"a clone's stale pod": {1, 1, current, []*corev1.Pod{testPod("virt-handler-1", current), testPod("virt-handler-c-1", stale)}, false},
		"a pending stale pod": {1, 1, current, []*corev1.Pod{testPod("virt-handler-1", current), pending}, true},
		"another stale pod":   {1, 1, current, []*corev1.Pod{testPod("virt-handler-1", current), testPod("virt-api-1", stale)}, true},
		"no pod":              {1, 1, current, nil, false},
	} {
		daemonSet := &appsv1.DaemonSet{
			ObjectMeta: metav1.ObjectMeta{Name: "virt-handler", Annotations: test.annotations},
			Status:     appsv1.DaemonSetStatus{DesiredNumberScheduled: test.desired, NumberReady: test.ready},
		}
		if got := daemonSetReady(daemonSet, test.pods, target); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

func TestTransitionTimes(t *testing.T) {
	early, late := metav1.NewTime(time.Unix(1000, 0)), metav1.NewTime(time.Unix(2000, 0))
	status := kubevirt.Status{}
	reportAvailable(&status)
	stamp(nil, status.Conditions, early)
	before := append([]kubevirt.Condition(nil), status.Conditions...)
	if at := before[0].LastTransitionTime; !at.IsZero() {
		t.Errorf("a new condition has the transition time %v, want none", at)
	}
	reportDeploying(&status)
	reportAvailable(&status)
	stamp(before, status.Conditions, late)
	if status.Conditions[0] != before[0] {
		t.Errorf("an unchanged condition changed: %+v", status.Conditions[0])
	}
	reportDeploying(&status)
	stamp(before, status.Conditions, late)
	if at := status.Conditions[0].LastTransitionTime; at != late {
		t.Errorf("transition at %v, want %v", at, late)
	}
}

func TestSplitImage(t *testing.T) {
	for image, want := range map[string][2]string{
		"stock.example/kubevirt/virt-operator:v1.9.0": {"stock.example/kubevirt", "v1.9.0"},
		"host.example:5000/k/virt-operator:v2":        {"host.example:5000/k", "v2"},
		"host.example:5000/k/virt-operator":           {"host.example:5000/k", ""},
	} {
		if registry, version := splitImage(image); registry != want[0] || version != want[1] {
			t.Errorf("%s: %s %s", image, registry, version)
		}
	}
}
