// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

package kubelet

import (
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"virtpools.io/controlplane/agent/kubevirt"
)

// Delays are how long a node takes to start and to stop a pod, and how long a handler runs before it is Ready.
type Delays struct{ Start, Stop, HandlerReady time.Duration }

// Down tells whether a node's kubelet is switched off.
func Down(node *corev1.Node) bool { return node.Annotations[kubevirt.KubeletKnob] == "down" }

// lost tells whether the cluster has noticed that the node no longer reports.
func lost(node *corev1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status != corev1.ConditionTrue
		}
	}
	return false
}

// delaysOf returns the node's own delays, or else the given ones.
func delaysOf(node *corev1.Node, otherwise Delays) Delays {
	return Delays{
		Start: seconds(node.Annotations[kubevirt.StartSecondsKnob], otherwise.Start),
		Stop:  seconds(node.Annotations[kubevirt.StopSecondsKnob], otherwise.Stop),

		HandlerReady: otherwise.HandlerReady,
	}
}

func seconds(text string, otherwise time.Duration) time.Duration {
	value, err := strconv.ParseFloat(text, 64)
	if err != nil || value < 0 {
		return otherwise
	}
	return time.Duration(value * float64(time.Second))
}

// trusted tells whether the node has credentials of its own for the private registry.
func trusted(node *corev1.Node) bool { return node.Annotations[kubevirt.RegistryKnob] == "trusted" }

func isHandler(pod *corev1.Pod) bool {
	return pod.Labels[kubevirt.ComponentLabel] == kubevirt.HandlerComponent
}

// handlerBroken tells whether the node keeps this pod, a handler, from getting ready.
func handlerBroken(node *corev1.Node, pod *corev1.Pod) bool {
	value, daemonSet, one := strings.Cut(node.Annotations[kubevirt.HandlerKnob], "/")
	if value != "never-ready" || !isHandler(pod) {
		return false
	}
	owner := metav1.GetControllerOf(pod)
	return !one || owner != nil && owner.Name == daemonSet
}

func sameKnobs(a, b *corev1.Node) bool {
	for _, knob := range []string{
		kubevirt.KubeletKnob, kubevirt.StartSecondsKnob, kubevirt.StopSecondsKnob, kubevirt.HandlerKnob,
		kubevirt.RegistryKnob,
	} {
		if a.Annotations[knob] != b.Annotations[knob] {
			return false
		}
	}
	return true
}
