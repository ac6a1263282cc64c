// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

package operator

import (
	corev1 "k8s.io/api/core/v1"

	"virtpools.io/controlplane/standin/kubevirt"
)

// place puts spec.infra or spec.workloads on a pod that is already patched: on a key of the node selector the patch
// wins, required node affinity terms are appended to the patch's (and so ORed), tolerations are appended.
func place(pod *corev1.PodSpec, config *kubevirt.ComponentConfig) {
	placement := kubevirt.NodePlacement{}
	if config != nil && config.NodePlacement != nil {
		placement = *config.NodePlacement
	}
	if pod.NodeSelector == nil {
		pod.NodeSelector = map[string]string{}
	}
	addMissing(pod.NodeSelector, placement.NodeSelector)
	addMissing(pod.NodeSelector, map[string]string{corev1.LabelOSStable: "linux"})
	placeAffinity(pod, placement.Affinity.DeepCopy())
	pod.Tolerations = append(pod.Tolerations, placement.Tolerations...)
}

func addMissing(into, from map[string]string) {
	for key, value := range from {
		if _, ok := into[key]; !ok {
			into[key] = value
		}
	}
}

func placeAffinity(pod *corev1.PodSpec, affinity *corev1.Affinity) {
	if affinity == nil {
		return
	}
	if pod.Affinity == nil {
		pod.Affinity = affinity
		return
	}
	own := pod.Affinity
	if own.NodeAffinity == nil {
		own.NodeAffinity = affinity.NodeAffinity
	} else if affinity.NodeAffinity != nil {
		appendNodeAffinity(own.NodeAffinity, affinity.NodeAffinity)
	}
	if own.PodAffinity == nil {
		own.PodAffinity = affinity.PodAffinity
	} else if from := affinity.PodAffinity; from != nil {
		own.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution = append(
			own.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution, from.RequiredDuringSchedulingIgnoredDuringExecution...)
		own.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution = append(
			own.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution, from.PreferredDuringSchedulingIgnoredDuringExecution...)
	}
	if own.PodAntiAffinity == nil {
		own.PodAntiAffinity = affinity.PodAntiAffinity
	} else if from := affinity.PodAntiAffinity; from != nil {
		own.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution = append(
			own.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution, from.RequiredDuringSchedulingIgnoredDuringExecution...)
		own.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution = append(
			own.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution, from.PreferredDuringSchedulingIgnoredDuringExecution...)
	}
}

func appendNodeAffinity(own, from *corev1.NodeAffinity) {
	required := from.RequiredDuringSchedulingIgnoredDuringExecution
	if own.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		own.RequiredDuringSchedulingIgnoredDuringExecution = required
	} else if required != nil {
		own.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms = append(
			own.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms, required.NodeSelectorTerms...)
	}
	own.PreferredDuringSchedulingIgnoredDuringExecution = append(
		own.PreferredDuringSchedulingIgnoredDuringExecution, from.PreferredDuringSchedulingIgnoredDuringExecution...)
}
