// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

package operator

import (
	"crypto/sha1"
	"encoding/hex"
	"encoding/json"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"virtpools.io/controlplane/standin/kubevirt"
)

// target is what a sync installs: a version from a registry, and the settings that are part of its identity.
type target struct {
	Namespace       string            `json:"namespace"`
	Registry        string            `json:"registry"`
	Version         string            `json:"kubeVirtVersion"`
	ImagePullPolicy corev1.PullPolicy `json:"imagePullPolicy"`
	ProductName     string            `json:"productName"`
	ProductVersion  string            `json:"productVersion"`
}

// targetOf takes the version from virt-operator's own image, unless the KubeVirt object names another.
func targetOf(kv *kubevirt.KubeVirt, operatorImage string) target {
	registry, version := splitImage(operatorImage)
	if kv.Spec.ImageTag != "" {
		version = kv.Spec.ImageTag
	}
	if kv.Spec.ImageRegistry != "" {
		registry = kv.Spec.ImageRegistry
	}
	return target{
		Namespace: kv.Namespace, Registry: registry, Version: version,
		ImagePullPolicy: kv.Spec.ImagePullPolicy,
		ProductName:     kv.Spec.ProductName, ProductVersion: kv.Spec.ProductVersion,
	}
}

func splitImage(image string) (registry, version string) {
	registry, name := "", image
	if slash := strings.LastIndex(image, "/"); slash >= 0 {
		registry, name = image[:slash], image[slash+1:]
	}
	if _, tag, ok := strings.Cut(name, ":"); ok {
		version = tag
	}
	return registry, version
}

func (t target) image(name string) string { return t.Registry + "/" + name + ":" + t.Version }

// id does not depend on patches or placement, as in KubeVirt: those only change the generation.
func (t target) id() string { return digest(t) }

// digest is what KubeVirt calls an identifier.
func digest(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // plain structs of strings and maps
	}
	sum := sha1.Sum(text)
	return hex.EncodeToString(sum[:])
}

// upToDate tells whether an object carries the marks of the target.
func (t target) upToDate(object metav1.Object) bool {
	annotations := object.GetAnnotations()
	return annotations[kubevirt.StrategyVersionAnnotation] == t.Version &&
		annotations[kubevirt.StrategyRegistryAnnotation] == t.Registry &&
		annotations[kubevirt.StrategyIdentifierAnnotation] == t.id()
}

// strategy is the set of components of a target. Component patches are applied to it in place, and it is kept between
// syncs: this is why a patch that is not idempotent piles up.
type strategy struct {
	handler    *appsv1.DaemonSet
	controller *appsv1.Deployment
	api        *appsv1.Deployment
}
