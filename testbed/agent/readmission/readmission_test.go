// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

package readmission

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"virtpools.io/controlplane/agent/kubevirt"
)

func podWith(selector map[string]string, terms ...corev1.NodeSelectorRequirement) *corev1.Pod {
	pod := &corev1.Pod{Spec: corev1.PodSpec{NodeSelector: selector}}
	required := &corev1.NodeSelector{}
	for _, requirement := range terms {
		required.NodeSelectorTerms = append(required.NodeSelectorTerms,
			corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{requirement}})
	}
	if len(terms) > 0 {
		pod.Spec.Affinity = &corev1.Affinity{
			NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: required},
		}
	}
	return pod
}

func TestFits(t *testing.T) {
	owner := corev1.NodeSelectorRequirement{Key: "virtpools.io/pool", Operator: corev1.NodeSelectorOpIn, Values: []string{"gpu"}}
	stay := corev1.NodeSelectorRequirement{Key: "until.virtpools.io/gpu", Operator: corev1.NodeSelectorOpGt, Values: []string{"6"}}
	for _, test := range []struct {
		name   string
		pod    *corev1.Pod
		labels map[string]string
		fits   bool
	}{
		{"asks for nothing", podWith(nil), nil, true},
		{"its owner has the node", podWith(nil, owner), map[string]string{"virtpools.io/pool": "gpu"}, true},
		{"its owner left the node", podWith(nil, owner), nil, false},
		{"it is from before", podWith(nil, owner, stay), map[string]string{"until.virtpools.io/gpu": "7"}, true},
		{"it is from after", podWith(nil, owner, stay), map[string]string{"until.virtpools.io/gpu": "6"}, false},
		{"a label went away", podWith(map[string]string{"disk": "ssd"}), nil, false},
		{"a handler restarts", podWith(map[string]string{kubevirt.SchedulableLabel: "true"}), nil, true},
	} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: test.labels}}
		if got := Fits(test.pod, node); got != test.fits {
			t.Errorf("%s: Fits is %t, want %t", test.name, got, test.fits)
		}
	}
}
