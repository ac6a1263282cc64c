// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

package operator

import (
	"maps"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"virtpools.io/controlplane/standin/kubevirt"
)

// mark puts virt-operator's labels and annotations on an object or a pod template. Only objects get the generation:
// a new generation of the KubeVirt object must not roll pods.
func mark(meta *metav1.ObjectMeta, kv *kubevirt.KubeVirt, t target, object bool) {
	if meta.Labels == nil {
		meta.Labels = map[string]string{}
	}
	if meta.Annotations == nil {
		meta.Annotations = map[string]string{}
	}
	meta.Labels[kubevirt.ManagedByLabel] = kubevirt.ManagedBy
	meta.Labels[kubevirt.AppComponentLabel] = either(kv.Spec.ProductComponent, "kubevirt")
	meta.Labels[kubevirt.VersionLabel] = either(kv.Spec.ProductVersion, t.Version)
	if kv.Spec.ProductName != "" {
		meta.Labels[kubevirt.PartOfLabel] = kv.Spec.ProductName
	}
	maps.Copy(meta.Annotations, map[string]string{
		kubevirt.StrategyVersionAnnotation:    t.Version,
		kubevirt.StrategyRegistryAnnotation:   t.Registry,
		kubevirt.StrategyIdentifierAnnotation: t.id(),
	})
	if object {
		meta.Annotations[kubevirt.GenerationAnnotation] = strconv.FormatInt(kv.Generation, 10)
	}
}

func either(value, otherwise string) string {
	if value != "" {
		return value
	}
	return otherwise
}

// lacks tells whether the live object misses anything required; what others added does not count.
func lacks(live, required metav1.ObjectMeta) bool {
	return !contains(live.Labels, required.Labels) || !contains(live.Annotations, required.Annotations)
}

func contains(all, some map[string]string) bool {
	for key, value := range some {
		if found, ok := all[key]; !ok || found != value {
			return false
		}
	}
	return true
}

// generations: which generation of a component was ours.

func rememberGeneration(status *kubevirt.Status, resource, namespace, name string, generation int64) {
	for i := range status.Generations {
		known := &status.Generations[i]
		if known.Resource == resource && known.Namespace == namespace && known.Name == name {
			known.LastGeneration = generation
			return
		}
	}
	status.Generations = append(status.Generations, kubevirt.Generation{
		Group: "apps", Resource: resource, Namespace: namespace, Name: name, LastGeneration: generation,
	})
}

func knownGeneration(status kubevirt.Status, resource, namespace, name string) int64 {
	for _, known := range status.Generations {
		if known.Resource == resource && known.Namespace == namespace && known.Name == name {
			return known.LastGeneration
		}
	}
	return -1
}
