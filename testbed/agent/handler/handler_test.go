// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

package handler

import (
	"log/slog"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"virtpools.io/controlplane/agent/kubevirt"
	"virtpools.io/controlplane/agent/loop"
)

const (
	kvm     = "devices.kubevirt.io/kvm"
	longAgo = "2026-01-02T03:04:05Z"
)

// TestMarks follows a handler from its start to its end, on a node with the heartbeat of an earlier one.
func TestMarks(t *testing.T) {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: "n", Annotations: map[string]string{kubevirt.HeartbeatAnnotation: longAgo},
			Labels: map[string]string{kubevirt.SchedulableLabel: "true"},
		},
		Status: corev1.NodeStatus{Capacity: corev1.ResourceList{kvm: resource.MustParse("1k")}},
	}
	client := fake.NewClientset(node)
	h := &Handler{
		log: slog.Default(), client: client, queue: loop.NewQueue(time.Second, time.Second), started: time.Now(),
		options: Options{HeartbeatDelay: time.Hour},
	}
	known := &memory{running: map[types.UID]*process{}}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "p"},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{
			Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now(),
		}}},
	}
	marks := func() (schedulable, heartbeat, devices string) {
		t.Helper()
		if err := h.actPod(t.Context(), node, known, pod); err != nil {
			t.Fatal(err)
		}
		now, err := client.CoreV1().Nodes().Get(t.Context(), "n", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		left := now.Status.Allocatable[kvm]
		return now.Labels[kubevirt.SchedulableLabel], now.Annotations[kubevirt.HeartbeatAnnotation], left.String()
	}

	if schedulable, heartbeat, devices := marks(); schedulable != "false" || heartbeat != longAgo || devices != "0" {
		t.Errorf("started: schedulable %s, heartbeat %s, %s devices", schedulable, heartbeat, devices)
	}
	known.running["p"].nextBeat = time.Now()
	schedulable, first, devices := marks()
	if schedulable != "true" || first == longAgo || devices != "1k" {
		t.Errorf("first heartbeat: schedulable %s, heartbeat %s, %s devices", schedulable, first, devices)
	}
	time.Sleep(time.Second) // a heartbeat is in whole seconds
	pod.DeletionTimestamp = new(metav1.Now())
	if schedulable, last, devices := marks(); schedulable != "false" || last != first || devices != "0" {
		t.Errorf("ended: schedulable %s, heartbeat %s, %s devices", schedulable, last, devices)
	}
}
