// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

package builds

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"virtpools.io/controlplane/agent/kubevirt"
)

const (
	primaryName = kubevirt.HandlerComponent
	osLabel     = "kubernetes.io/os"
	// listAnnotation stands for the list's part in the deployment ID, in templates of pods. KubeVirt's own annotation of the ID
	// would not do: virt-operator, which does not know of the list, compares it with the ID that it computes. It begins as that one does,
	// so that what leaves KubeVirt's own out leaves this one out.
	listAnnotation       = "kubevirt.io/install-strategy-pools"
	generationAnnotation = "kubevirt.io/generation"
	// templateGeneration is written by Kubernetes.
	templateGeneration = "deprecated.daemonset.template.generation"
)

// exclude keeps the primary off nodes with any label of any pool: NotIn for each, all in one term. A node with one label of
// several gets no handler at all.
func (b Build) exclude(pod *corev1.PodSpec, pools []Pool) {
	var off []corev1.NodeSelectorRequirement
	for _, pool := range pools {
		for _, key := range slices.Sorted(maps.Keys(pool.NodeSelector)) {
			off = append(off, corev1.NodeSelectorRequirement{
				Key: key, Operator: corev1.NodeSelectorOpNotIn, Values: []string{pool.NodeSelector[key]},
			})
		}
	}
	if len(off) == 0 {
		return
	}
	required := requiredAffinity(pod)
	switch {
	case !b.everyTerm || len(required.NodeSelectorTerms) == 0:
		term := corev1.NodeSelectorTerm{MatchExpressions: off}
		required.NodeSelectorTerms = append([]corev1.NodeSelectorTerm{term}, required.NodeSelectorTerms...)
	default:
		require(required, off)
	}
}

// requiredAffinity is the pod's required node affinity, made if there is none.
func requiredAffinity(pod *corev1.PodSpec) *corev1.NodeSelector {
	if pod.Affinity == nil {
		pod.Affinity = &corev1.Affinity{}
	}
	if pod.Affinity.NodeAffinity == nil {
		pod.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	node := pod.Affinity.NodeAffinity
	if node.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		node.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{}
	}
	return node.RequiredDuringSchedulingIgnoredDuringExecution
}

// require ANDs requirements with every term.
func require(required *corev1.NodeSelector, requirements []corev1.NodeSelectorRequirement) {
	if len(required.NodeSelectorTerms) == 0 {
		required.NodeSelectorTerms = []corev1.NodeSelectorTerm{{}}
	}
	for i := range required.NodeSelectorTerms {
		term := &required.NodeSelectorTerms[i]
		term.MatchExpressions = append(slices.Clone(term.MatchExpressions), requirements...)
	}
}

// identify marks a template with the list, where the list is part of the deployment ID.
func (b Build) identify(template *metav1.ObjectMeta, id string) {
	if id != "" {
		if template.Annotations == nil {
			template.Annotations = map[string]string{}
		}
		template.Annotations[listAnnotation] = id
	}
}

// identity is what the list, and the gate alone, add to the deployment ID; empty without the gate, and where they add nothing.
func (b Build) identity(on bool, pools []Pool) string {
	if !b.listIdentifies || !on {
		return ""
	}
	text, _ := json.Marshal(pools) // maps are sorted
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// daemonSet is that of a pool, made from the primary as it is now.
func (b Build) daemonSet(primary *appsv1.DaemonSet, kv *kubeVirt, pool Pool, id string) *appsv1.DaemonSet {
	source := primary.DeepCopy()
	marks := map[string]string{b.Label: pool.Name}
	wanted := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{
			Name: primaryName + "-" + pool.Name, Namespace: primary.Namespace,
			Labels: with(source.Labels, marks), Annotations: with(source.Annotations, nil),
		},
		Spec: source.Spec,
	}
	delete(wanted.Annotations, templateGeneration)
	wanted.Spec.Selector = &metav1.LabelSelector{MatchLabels: with(map[string]string{kubevirt.ComponentLabel: kubevirt.HandlerComponent}, marks)}
	wanted.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateDaemonSet{MaxUnavailable: new(intstr.FromInt32(1))}
	template := &wanted.Spec.Template
	template.Labels = with(template.Labels, marks)
	delete(template.Annotations, listAnnotation)
	b.identify(&template.ObjectMeta, id)
	b.place(&template.Spec, kv, pool)
	b.setImages(&template.Spec, pool)
	if b.withoutMaxDevices {
		removeMaxDevices(&template.Spec.Containers[0])
	}
	return wanted
}

func with(all, more map[string]string) map[string]string {
	result := maps.Clone(all)
	if result == nil {
		result = map[string]string{}
	}
	maps.Copy(result, more)
	return result
}

// place says on which nodes a pool's handlers run.
func (b Build) place(pod *corev1.PodSpec, kv *kubeVirt, pool Pool) {
	placement := kv.Spec.Workloads.NodePlacement
	nodeSelector := with(pod.NodeSelector, pool.NodeSelector)
	if b.replacesNodeSelector || !b.inheritsPlacement {
		nodeSelector = with(map[string]string{osLabel: "linux"}, pool.NodeSelector)
	}
	pod.NodeSelector = nodeSelector
	if b.inheritsPlacement {
		pod.Affinity = placement.Affinity.DeepCopy() // without the exclusion
		return
	}
	pod.Affinity = nil
	pod.Tolerations = slices.DeleteFunc(pod.Tolerations, func(toleration corev1.Toleration) bool {
		return slices.ContainsFunc(placement.Tolerations, func(placed corev1.Toleration) bool { return placed.MatchToleration(&toleration) })
	})
}

// setImages gives handler pods a pool's images.
func (b Build) setImages(pod *corev1.PodSpec, pool Pool) {
	set := func(container *corev1.Container, image string) {
		if image != "" {
			container.Image = image
		}
	}
	set(&pod.Containers[0], pool.HandlerImage)
	if b.firstContainer {
		return
	}
	for _, containers := range [][]corev1.Container{pod.InitContainers, pod.Containers} {
		for i := range containers {
			if name := containers[i].Name; name == "virt-launcher" || name == "virt-launcher-image-holder" {
				set(&containers[i], pool.LauncherImage)
			}
		}
	}
}

func removeMaxDevices(container *corev1.Container) {
	if i := slices.Index(container.Command, "--max-devices"); i >= 0 && i+1 < len(container.Command) {
		container.Command = slices.Delete(slices.Clone(container.Command), i, i+2)
	}
}
