// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

package launcher

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"virtpools.io/controlplane/standin/kubevirt"
)

// Target renders the pod that an instance migrates to: the instance's pod anew, from the settings of now, elsewhere
// than the source, and where its node's CPU model is known. The digests of disk images come from the source.
func Target(vmi *kubevirt.VMI, settings Settings, migration metav1.Object, source *corev1.Pod, node *corev1.Node) *corev1.Pod {
	r := render{Settings: settings, vmi: vmi, digests: digests(source)}
	pod := r.pod()
	pod.Labels[kubevirt.MigrationUIDLabel] = string(migration.GetUID())
	pod.Annotations[kubevirt.MigrationNameMark] = migration.GetName()
	elsewhere := corev1.PodAffinityTerm{
		TopologyKey:   corev1.LabelHostname,
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{kubevirt.CreatedByLabel: string(vmi.UID)}},
	}
	if pod.Spec.Affinity == nil {
		pod.Spec.Affinity = &corev1.Affinity{}
	}
	if pod.Spec.Affinity.PodAntiAffinity == nil {
		pod.Spec.Affinity.PodAntiAffinity = &corev1.PodAntiAffinity{}
	}
	required := &pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	*required = append(*required, elsewhere)
	if r.hostModel() {
		for label := range node.Labels {
			if model, ok := strings.CutPrefix(label, kubevirt.HostModelLabel); ok {
				pod.Spec.NodeSelector[kubevirt.MigrationModelLabel+model] = "true"
			}
			if strings.HasPrefix(label, "cpu-vendor.node.kubevirt.io/") {
				pod.Spec.NodeSelector[label] = "true"
			}
		}
	}
	return pod
}

// digests are the images of disks that the source's node has resolved, by volume.
func digests(source *corev1.Pod) map[string]string {
	found := map[string]string{}
	for _, statuses := range [][]corev1.ContainerStatus{source.Status.InitContainerStatuses, source.Status.ContainerStatuses} {
		for _, status := range statuses {
			volume, ok := strings.CutPrefix(status.Name, "volume")
			if ok && strings.Contains(status.ImageID, "@sha256:") {
				found[strings.TrimSuffix(volume, "-init")] = status.ImageID
			}
		}
	}
	// Of a source that was a target itself, only its volumes tell.
	for _, volume := range source.Spec.Volumes {
		if volume.Image != nil && strings.Contains(volume.Image.Reference, "@sha256:") {
			found[volume.Name] = volume.Image.Reference
		}
	}
	return found
}
