// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

package kubevirt

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// KubeVirt is the part of the KubeVirt object that the stand-in understands.
type KubeVirt struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              Spec   `json:"spec"`
	Status            Status `json:"status,omitempty"`
}

// Spec is the user's side.
type Spec struct {
	ImageTag            string              `json:"imageTag,omitempty"`
	ImageRegistry       string              `json:"imageRegistry,omitempty"`
	ImagePullPolicy     corev1.PullPolicy   `json:"imagePullPolicy,omitempty"`
	ProductVersion      string              `json:"productVersion,omitempty"`
	ProductName         string              `json:"productName,omitempty"`
	ProductComponent    string              `json:"productComponent,omitempty"`
	Configuration       Configuration       `json:"configuration,omitempty"`
	CustomizeComponents CustomizeComponents `json:"customizeComponents,omitempty"`
	Infra               *ComponentConfig    `json:"infra,omitempty"`
	Workloads           *ComponentConfig    `json:"workloads,omitempty"`

	WorkloadUpdateStrategy WorkloadUpdateStrategy `json:"workloadUpdateStrategy,omitempty"`
}

// WorkloadUpdateStrategy says what happens to virtual machines whose launcher is outdated.
type WorkloadUpdateStrategy struct {
	Methods       []string `json:"workloadUpdateMethods,omitempty"`
	BatchSize     *int     `json:"batchEvictionSize,omitempty"`
	BatchInterval string   `json:"batchEvictionInterval,omitempty"`
}

// Configuration holds the settings that reach the handler's command line, the webhook or launcher pods.
type Configuration struct {
	DeveloperConfiguration         DeveloperConfiguration `json:"developerConfiguration,omitempty"`
	VirtualMachineInstancesPerNode *int                   `json:"virtualMachineInstancesPerNode,omitempty"`
	CPUModel                       string                 `json:"cpuModel,omitempty"`
	Migrations                     Migrations             `json:"migrations,omitempty"`
	VirtualMachineOptions          struct {
		DisableSerialConsoleLog *struct{} `json:"disableSerialConsoleLog,omitempty"`
	} `json:"virtualMachineOptions,omitempty"`
}

// Migrations limits how many run at a time.
type Migrations struct {
	ParallelPerCluster      *int `json:"parallelMigrationsPerCluster,omitempty"`
	ParallelOutboundPerNode *int `json:"parallelOutboundMigrationsPerNode,omitempty"`
}

// DeveloperConfiguration holds the feature gates.
type DeveloperConfiguration struct {
	FeatureGates         []string       `json:"featureGates,omitempty"`
	DisabledFeatureGates []string       `json:"disabledFeatureGates,omitempty"`
	LogVerbosity         map[string]any `json:"logVerbosity,omitempty"`
	UseEmulation         bool           `json:"useEmulation,omitempty"`

	NodeSelectors map[string]string `json:"nodeSelectors,omitempty"`
}

// CustomizeComponents keeps KubeVirt's field order: a digest of its JSON is written to the components.
type CustomizeComponents struct {
	Patches []Patch `json:"patches,omitempty"`
	Flags   *Flags  `json:"flags,omitempty"`
}

// Patch is one component patch.
type Patch struct {
	ResourceName string `json:"resourceName"`
	ResourceType string `json:"resourceType"`
	Patch        string `json:"patch"`
	Type         string `json:"type"`
}

// Flags replace a component's command line.
type Flags struct {
	API        map[string]string `json:"api,omitempty"`
	Controller map[string]string `json:"controller,omitempty"`
	Handler    map[string]string `json:"handler,omitempty"`
}

// ComponentConfig places components.
type ComponentConfig struct {
	NodePlacement *NodePlacement `json:"nodePlacement,omitempty"`
	Replicas      *int32         `json:"replicas,omitempty"`
}

// NodePlacement says on which nodes components run.
type NodePlacement struct {
	NodeSelector map[string]string   `json:"nodeSelector,omitempty"`
	Affinity     *corev1.Affinity    `json:"affinity,omitempty"`
	Tolerations  []corev1.Toleration `json:"tolerations,omitempty"`
}

// Status is what virt-operator reports.
type Status struct {
	Phase                    string       `json:"phase,omitempty"`
	Conditions               []Condition  `json:"conditions,omitempty"`
	DefaultArchitecture      string       `json:"defaultArchitecture,omitempty"`
	Generations              []Generation `json:"generations,omitempty"`
	ObservedDeploymentID     string       `json:"observedDeploymentID,omitempty"`
	ObservedGeneration       int64        `json:"observedGeneration,omitempty"`
	ObservedKubeVirtRegistry string       `json:"observedKubeVirtRegistry,omitempty"`
	ObservedKubeVirtVersion  string       `json:"observedKubeVirtVersion,omitempty"`
	OperatorVersion          string       `json:"operatorVersion,omitempty"`
	TargetDeploymentID       string       `json:"targetDeploymentID,omitempty"`
	TargetKubeVirtRegistry   string       `json:"targetKubeVirtRegistry,omitempty"`
	TargetKubeVirtVersion    string       `json:"targetKubeVirtVersion,omitempty"`
}

// Condition is KubeVirt's own form, with a probe time.
type Condition struct {
	Type               string      `json:"type"`
	Status             string      `json:"status"`
	Reason             string      `json:"reason,omitempty"`
	Message            string      `json:"message,omitempty"`
	LastProbeTime      metav1.Time `json:"lastProbeTime"`
	LastTransitionTime metav1.Time `json:"lastTransitionTime"`
}

// Generation remembers the generation of a component as virt-operator last wrote it, to notice other writers.
type Generation struct {
	Group          string `json:"group"`
	Resource       string `json:"resource"`
	Namespace      string `json:"namespace,omitempty"`
	Name           string `json:"name"`
	LastGeneration int64  `json:"lastGeneration"`
}

// FromUnstructured reads a KubeVirt object; the result shares nothing with it.
func FromUnstructured(object *unstructured.Unstructured) (*KubeVirt, error) {
	kv := &KubeVirt{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.DeepCopy().Object, kv); err != nil {
		return nil, err
	}
	return kv, nil
}

// Reference points events at the object.
func (kv *KubeVirt) Reference() *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: Kind.GroupVersion().String(), Kind: Kind.Kind,
		Namespace: kv.Namespace, Name: kv.Name, UID: kv.UID,
	}
}
