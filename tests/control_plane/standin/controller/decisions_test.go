// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

package controller

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"virtpools.io/controlplane/standin/kubevirt"
)

func instance(phase, migratable string) *kubevirt.VMI {
	vmi := &kubevirt.VMI{ObjectMeta: metav1.ObjectMeta{Name: phase + migratable}}
	vmi.Status.Phase = phase
	if migratable != "" {
		vmi.Status.Conditions = []kubevirt.Condition{{Type: "LiveMigratable", Status: migratable}}
	}
	return vmi
}

func TestRunStrategies(t *testing.T) {
	deleted := instance(kubevirt.Running, "")
	deleted.DeletionTimestamp = new(now())
	for _, test := range []struct {
		strategy string
		vmi      *kubevirt.VMI
		started  bool
		want     action
	}{
		{"Always", nil, true, create},
		{"Always", instance(kubevirt.Running, ""), true, leave},
		{"Always", instance(kubevirt.Succeeded, ""), true, remove},
		{"Always", deleted, true, leave},
		{"RerunOnFailure", nil, true, create},
		{"RerunOnFailure", instance(kubevirt.Succeeded, ""), true, leave},
		{"RerunOnFailure", instance(kubevirt.Failed, ""), true, remove},
		{"Once", nil, false, create},
		{"Once", nil, true, leave},
		{"Manual", nil, false, leave},
		{"Manual", instance(kubevirt.Failed, ""), true, leave},
		{"Halted", nil, false, leave},
		{"Halted", instance(kubevirt.Running, ""), true, remove},
	} {
		if got := decide(test.strategy, test.vmi, test.started); got != test.want {
			t.Errorf("%s, %+v: %v, want %v", test.strategy, test.vmi, got, test.want)
		}
	}
}

func TestWorkloadUpdateMethods(t *testing.T) {
	outdated := []*kubevirt.VMI{instance(kubevirt.Running, "True"), instance(kubevirt.Running, "False")}
	for _, test := range []struct {
		methods         []string
		migrate, evicts int
	}{
		{nil, 0, 0}, {[]string{"LiveMigrate"}, 1, 0}, {[]string{"Evict"}, 0, 2}, {[]string{"LiveMigrate", "Evict"}, 1, 1},
	} {
		migrate, evict := sortOut(outdated, test.methods)
		if len(migrate) != test.migrate || len(evict) != test.evicts {
			t.Errorf("%v: migrates %d and evicts %d, want %d and %d", test.methods, len(migrate), len(evict), test.migrate, test.evicts)
		}
	}
}

// A migration's target is not the instance's pod before the switch, and the source is not after it.
func TestCurrentPod(t *testing.T) {
	pod := func(name, node, migration string, phase corev1.PodPhase) *corev1.Pod {
		made := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: phase}}
		if migration != "" {
			made.Labels = map[string]string{kubevirt.MigrationUIDLabel: migration}
		}
		return made
	}
	vmi := instance(kubevirt.Scheduling, "")
	first, target, back := pod("first", "a", "", corev1.PodRunning), pod("target", "b", "1", corev1.PodRunning), pod("back", "a", "2", corev1.PodRunning)
	if got := current(vmi, []*corev1.Pod{target, first}); got != first {
		t.Errorf("not placed yet: %v", got)
	}
	vmi.Status.NodeName = "b"
	if got := current(vmi, []*corev1.Pod{first, target}); got != target {
		t.Errorf("after the switch: %v", got)
	}
	first.Status.Phase, vmi.Status.NodeName = corev1.PodSucceeded, "a"
	if got := current(vmi, []*corev1.Pod{first, target, back}); got != back {
		t.Errorf("back on the first node: %v", got)
	}
}
