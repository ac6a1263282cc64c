// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

package operator

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"virtpools.io/controlplane/standin/kubevirt"
)

func nodeTerms(keys ...string) *corev1.Affinity {
	var terms []corev1.NodeSelectorTerm
	for _, key := range keys {
		terms = append(terms, corev1.NodeSelectorTerm{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpExists}},
		})
	}
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms},
	}}
}

func workloads(placement kubevirt.NodePlacement) *kubevirt.ComponentConfig {
	return &kubevirt.ComponentConfig{NodePlacement: &placement}
}

func TestPatchWinsInNodeSelector(t *testing.T) {
	pod := &corev1.PodSpec{NodeSelector: map[string]string{"a": "patch"}}
	place(pod, workloads(kubevirt.NodePlacement{NodeSelector: map[string]string{"a": "user", "b": "user"}}))
	want := map[string]string{"a": "patch", "b": "user", "kubernetes.io/os": "linux"}
	if !reflect.DeepEqual(pod.NodeSelector, want) {
		t.Errorf("nodeSelector %v, want %v", pod.NodeSelector, want)
	}
}

func TestTermsAreAppended(t *testing.T) {
	for name, test := range map[string]struct{ patch, user, want *corev1.Affinity }{
		"only the user's": {nil, nodeTerms("user"), nodeTerms("user")},
		"only the patch":  {nodeTerms("patch"), nil, nodeTerms("patch")},
		"ORed":            {nodeTerms("patch"), nodeTerms("user"), nodeTerms("patch", "user")},
		"no terms yet":    {&corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}}, nodeTerms("user"), nodeTerms("user")},
	} {
		pod := &corev1.PodSpec{Affinity: test.patch}
		place(pod, workloads(kubevirt.NodePlacement{Affinity: test.user}))
		if !reflect.DeepEqual(pod.Affinity, test.want) {
			t.Errorf("%s: %+v", name, pod.Affinity)
		}
	}
}

func TestPlacementDoesNotShareTheUsersObject(t *testing.T) {
	user := nodeTerms("user")
	place(&corev1.PodSpec{Affinity: nodeTerms("patch")}, workloads(kubevirt.NodePlacement{Affinity: user}))
	if !reflect.DeepEqual(user, nodeTerms("user")) {
		t.Error("the KubeVirt object's affinity was changed")
	}
}

func TestTolerationsAreAppended(t *testing.T) {
	own, users := corev1.Toleration{Key: "own"}, corev1.Toleration{Key: "user"}
	pod := &corev1.PodSpec{Tolerations: []corev1.Toleration{own}}
	place(pod, workloads(kubevirt.NodePlacement{Tolerations: []corev1.Toleration{users}}))
	if want := []corev1.Toleration{own, users}; !reflect.DeepEqual(pod.Tolerations, want) {
		t.Errorf("tolerations %v", pod.Tolerations)
	}
}
