// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

// Package builds plays what builds of KubeVirt with pools of their own add to a stock KubeVirt, their unsafe sides included.
//
// KubeVirt's own programs run as always. What is added in front of them and beside them is written from what the code of three
// proposals does (KubeVirt's pull requests 16692, 17048 and 17597), not from what their texts say.
package builds

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"virtpools.io/controlplane/agent/kubevirt"
)

// Build is what one build does differently from the others.
type Build struct {
	// Name is that of the place of its pools.
	Name string
	// Field of the KubeVirt object's spec has the list of pools; empty: pools are objects.
	Field string
	Gate  string
	// Label names the pool, on its DaemonSet and handler pods; as an annotation on launcher pods.
	Label string

	// listIdentifies: the list and its gate are part of the deployment ID, so every edit of them updates all of KubeVirt.
	listIdentifies bool
	// claimsEarly: KubeVirt is available while pool DaemonSets do not exist yet, or are not rolled out.
	claimsEarly bool
	// matchesNodeSelector: a pool takes the VMs whose nodeSelector asks for all of its own labels; else its selector decides.
	matchesNodeSelector bool
	// everyPlace: launcher pods get the pool's image everywhere, and hotplug pods too; else only their containers do.
	everyPlace bool
	// leads: launcher pods get the pool's labels as required node affinity.
	leads bool
	// firstContainer: handler pods get a pool's image in their first container only.
	firstContainer bool
	// inheritsPlacement: pool DaemonSets follow spec.workloads.
	inheritsPlacement bool
	// replacesNodeSelector: they do not follow its nodeSelector.
	replacesNodeSelector bool
	// withoutMaxDevices: their handlers are not told how many VMs a node may have.
	withoutMaxDevices bool
	// everyTerm: the exclusion is ANDed with each term of the primary; else it is one more term, ORed to them.
	everyTerm bool
	// upgradeForgets: the way of upgrades knows no pools.
	upgradeForgets bool
	// orphans: without the gate, the operator leaves pool DaemonSets alone.
	orphans bool
	// mapsWithoutGate: virt-controller does not look at the gate.
	mapsWithoutGate bool
}

// Builds are all builds by name.
var Builds = map[string]Build{
	"additionalVirtHandlers": {
		Name: "additionalVirtHandlers", Field: "additionalVirtHandlers", Gate: "AdditionalVirtHandlers", Label: "kubevirt.io/handler-pool",
		listIdentifies: true, matchesNodeSelector: true, everyPlace: true, everyTerm: true,
	},
	"virtHandlerPools": {
		Name: "virtHandlerPools", Field: "virtHandlerPools", Gate: "VirtHandlerPools", Label: "kubevirt.io/handler-pool",
		leads: true, inheritsPlacement: true, withoutMaxDevices: true, upgradeForgets: true, mapsWithoutGate: true, claimsEarly: true,
	},
	"WorkerPool": {
		Name: "WorkerPool", Gate: "WorkerPools", Label: "kubevirt.io/worker-pool",
		leads: true, firstContainer: true, inheritsPlacement: true, replacesNodeSelector: true, withoutMaxDevices: true, orphans: true, claimsEarly: true,
	},
}

// Find returns the build of that name.
func Find(name string) (Build, error) {
	build, ok := Builds[name]
	if !ok {
		return Build{}, fmt.Errorf("no build is called %q", name)
	}
	return build, nil
}

// PoolResource addresses WorkerPool objects.
var PoolResource = schema.GroupVersionResource{Group: "worker.kubevirt.io", Version: "v1alpha1", Resource: "workerpools"}

// Pool is an entry of a list, or the spec of an object.
type Pool struct {
	Name          string            `json:"name,omitempty"`
	NodeSelector  map[string]string `json:"nodeSelector"`
	HandlerImage  string            `json:"virtHandlerImage,omitempty"`
	LauncherImage string            `json:"virtLauncherImage,omitempty"`
	Selector      *Selector         `json:"selector,omitempty"`
}

// Selector says which VMs a pool takes: those that any part of it takes.
type Selector struct {
	DeviceNames []string       `json:"deviceNames,omitempty"`
	VMLabels    *LabelSelector `json:"vmLabels,omitempty"`
}

// LabelSelector wants all of these labels.
type LabelSelector struct {
	MatchLabels map[string]string `json:"matchLabels,omitempty"`
}

// kubeVirt is what the additions need of a KubeVirt object.
type kubeVirt struct {
	fields
	list []Pool
}

// fields are those with the same form in all builds.
type fields struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Configuration struct {
			DeveloperConfiguration struct {
				FeatureGates         []string `json:"featureGates,omitempty"`
				DisabledFeatureGates []string `json:"disabledFeatureGates,omitempty"`
			} `json:"developerConfiguration"`
		} `json:"configuration"`
		Workloads struct {
			NodePlacement struct {
				NodeSelector map[string]string   `json:"nodeSelector,omitempty"`
				Affinity     *corev1.Affinity    `json:"affinity,omitempty"`
				Tolerations  []corev1.Toleration `json:"tolerations,omitempty"`
			} `json:"nodePlacement"`
		} `json:"workloads"`
	} `json:"spec"`
	Status struct {
		TargetVersion      string `json:"targetKubeVirtVersion,omitempty"`
		ObservedVersion    string `json:"observedKubeVirtVersion,omitempty"`
		TargetRegistry     string `json:"targetKubeVirtRegistry,omitempty"`
		TargetDeploymentID string `json:"targetDeploymentID,omitempty"`
		Generations        []struct {
			Resource       string `json:"resource"`
			Name           string `json:"name"`
			LastGeneration int64  `json:"lastGeneration"`
		} `json:"generations,omitempty"`
	} `json:"status"`
}

// read returns what the additions need of a KubeVirt object.
func (b Build) read(object *unstructured.Unstructured) (*kubeVirt, error) {
	known, err := kubevirt.Read[fields](object)
	if err != nil {
		return nil, err
	}
	kv := &kubeVirt{fields: *known}
	if b.Field == "" {
		return kv, nil
	}
	raw, _, err := unstructured.NestedSlice(object.Object, "spec", b.Field)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(raw)
	if err != nil {
		return nil, err
	}
	return kv, json.Unmarshal(text, &kv.list)
}

// readPools returns the pools of objects, by name.
func readPools(objects []unstructured.Unstructured) ([]Pool, error) {
	var pools []Pool
	for _, object := range objects {
		each, err := kubevirt.Read[struct {
			Spec Pool `json:"spec"`
		}](&object)
		if err != nil {
			return nil, err
		}
		each.Spec.Name = object.GetName()
		pools = append(pools, each.Spec)
	}
	slices.SortFunc(pools, func(a, b Pool) int { return strings.Compare(a.Name, b.Name) })
	return pools, nil
}

// on tells whether the object turns the build's gate on.
func (b Build) on(kv *kubeVirt) bool {
	developer := kv.Spec.Configuration.DeveloperConfiguration
	return slices.Contains(developer.FeatureGates, b.Gate) && !slices.Contains(developer.DisabledFeatureGates, b.Gate)
}

// contains tells whether all has every entry of some.
func contains(all, some map[string]string) bool {
	for key, value := range some {
		if all[key] != value {
			return false
		}
	}
	return true
}
