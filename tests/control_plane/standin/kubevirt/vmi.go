// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

package kubevirt

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Labels and annotations of virtual machines' objects and launcher pods.
const (
	LauncherComponent = "virt-launcher"

	CreatedByLabel        = "kubevirt.io/created-by"
	NodeNameLabel         = "kubevirt.io/nodeName"
	OutdatedLabel         = "kubevirt.io/outdatedLauncherImage"
	MigrationUIDLabel     = "kubevirt.io/migrationJobUID"
	MigrationNameMark     = "kubevirt.io/migrationJobName"
	MigratedVMILabel      = "kubevirt.io/vmi-name"
	UpdateMigrationMark   = "kubevirt.io/workloadUpdateMigration"
	UnpausedGate          = "kubevirt.io/virtual-machine-unpaused"
	HostModelLabel        = "host-model-cpu.node.kubevirt.io/"
	MigrationModelLabel   = "cpu-model-migration.node.kubevirt.io/"
	VMIFinalizer          = "kubevirt.io/foregroundDeleteVirtualMachine"
	VMFinalizer           = "kubevirt.io/virtualMachineControllerFinalize"
	ControllerAccount     = "kubevirt-controller"
	ControllerDeployment  = "virt-controller"
	LauncherImageArgument = "--launcher-image"
)

// Phases of virtual machine instances; migrations share some.
const (
	Pending    = "Pending"
	Scheduling = "Scheduling"
	Scheduled  = "Scheduled"
	Running    = "Running"
	Succeeded  = "Succeeded"
	Failed     = "Failed"
)

// Where the objects of virtual machines are.
var (
	VMResource        = Resource.GroupVersion().WithResource("virtualmachines")
	VMIResource       = Resource.GroupVersion().WithResource("virtualmachineinstances")
	MigrationResource = Resource.GroupVersion().WithResource("virtualmachineinstancemigrations")

	VMKind        = Kind.GroupVersion().WithKind("VirtualMachine")
	VMIKind       = Kind.GroupVersion().WithKind("VirtualMachineInstance")
	MigrationKind = Kind.GroupVersion().WithKind("VirtualMachineInstanceMigration")

	Instancetypes = schema.GroupVersion{Group: "instancetype.kubevirt.io", Version: "v1beta1"}
)

// VMI is the part of a VirtualMachineInstance that the stand-in understands.
type VMI struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              VMISpec   `json:"spec"`
	Status            VMIStatus `json:"status,omitempty"`
}

// VMISpec is what the user asks for.
type VMISpec struct {
	Architecture                  string                            `json:"architecture,omitempty"`
	Domain                        Domain                            `json:"domain"`
	NodeSelector                  map[string]string                 `json:"nodeSelector,omitempty"`
	Affinity                      *corev1.Affinity                  `json:"affinity,omitempty"`
	Tolerations                   []corev1.Toleration               `json:"tolerations,omitempty"`
	TopologySpreadConstraints     []corev1.TopologySpreadConstraint `json:"topologySpreadConstraints,omitempty"`
	SchedulerName                 string                            `json:"schedulerName,omitempty"`
	PriorityClassName             string                            `json:"priorityClassName,omitempty"`
	Hostname                      string                            `json:"hostname,omitempty"`
	Subdomain                     string                            `json:"subdomain,omitempty"`
	TerminationGracePeriodSeconds *int64                            `json:"terminationGracePeriodSeconds,omitempty"`
	Volumes                       []Volume                          `json:"volumes,omitempty"`
	ResourceClaims                []corev1.PodResourceClaim         `json:"resourceClaims,omitempty"`
}

// Domain is the virtual hardware.
type Domain struct {
	CPU       *CPU                        `json:"cpu,omitempty"`
	Memory    *Memory                     `json:"memory,omitempty"`
	Resources corev1.ResourceRequirements `json:"resources,omitempty"`
	Machine   *Machine                    `json:"machine,omitempty"`
	Firmware  *Firmware                   `json:"firmware,omitempty"`
	Devices   Devices                     `json:"devices,omitempty"`
}

// CPU is the guest's.
type CPU struct {
	Cores                 uint32       `json:"cores,omitempty"`
	Sockets               uint32       `json:"sockets,omitempty"`
	Threads               uint32       `json:"threads,omitempty"`
	Model                 string       `json:"model,omitempty"`
	Features              []CPUFeature `json:"features,omitempty"`
	DedicatedCPUPlacement bool         `json:"dedicatedCpuPlacement,omitempty"`
}

// CPUFeature is one that the guest must or may see.
type CPUFeature struct {
	Name   string `json:"name"`
	Policy string `json:"policy,omitempty"`
}

// Memory is the guest's.
type Memory struct {
	Guest *resource.Quantity `json:"guest,omitempty"`
}

// Machine is the kind of board.
type Machine struct {
	Type string `json:"type"`
}

// Firmware may come with a kernel out of an image.
type Firmware struct {
	KernelBoot *KernelBoot `json:"kernelBoot,omitempty"`
}

// KernelBoot boots a kernel without a boot loader.
type KernelBoot struct {
	Container *ImageSource `json:"container,omitempty"`
}

// Devices of the guest, as far as a launcher pod shows them.
type Devices struct {
	GPUs              []Device     `json:"gpus,omitempty"`
	HostDevices       []Device     `json:"hostDevices,omitempty"`
	Filesystems       []Filesystem `json:"filesystems,omitempty"`
	Interfaces        []Interface  `json:"interfaces,omitempty"`
	AutoattachPodNet  *bool        `json:"autoattachPodInterface,omitempty"`
	AutoattachVSOCK   *bool        `json:"autoattachVSOCK,omitempty"`
	LogSerialConsole  *bool        `json:"logSerialConsole,omitempty"`
	AutoattachConsole *bool        `json:"autoattachSerialConsole,omitempty"`
}

// Device is handed through from the node: by a device plugin's name, or by a resource claim.
type Device struct {
	Name        string `json:"name"`
	DeviceName  string `json:"deviceName,omitempty"`
	ClaimName   string `json:"claimName,omitempty"`
	RequestName string `json:"requestName,omitempty"`
}

// Filesystem is shared with the guest by virtiofs.
type Filesystem struct {
	Name string `json:"name"`
}

// Interface is a network card.
type Interface struct {
	Name  string `json:"name"`
	Model string `json:"model,omitempty"`
}

// Volume is where a disk or file system comes from.
type Volume struct {
	Name                  string                                    `json:"name"`
	ContainerDisk         *ImageSource                              `json:"containerDisk,omitempty"`
	PersistentVolumeClaim *corev1.PersistentVolumeClaimVolumeSource `json:"persistentVolumeClaim,omitempty"`
	DataVolume            *NamedSource                              `json:"dataVolume,omitempty"`
	ConfigMap             *corev1.LocalObjectReference              `json:"configMap,omitempty"`
	Secret                *SecretSource                             `json:"secret,omitempty"`
}

// Claim is the name of the volume's claim, if it has one.
func (v Volume) Claim() string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.DataVolume != nil:
		return v.DataVolume.Name
	}
	return ""
}

// ImageSource is a disk or a kernel in an image.
type ImageSource struct {
	Image           string            `json:"image"`
	ImagePullPolicy corev1.PullPolicy `json:"imagePullPolicy,omitempty"`
	ImagePullSecret string            `json:"imagePullSecret,omitempty"`
}

// NamedSource is an object named alone.
type NamedSource struct {
	Name string `json:"name"`
}

// SecretSource is a Secret as a disk.
type SecretSource struct {
	SecretName string `json:"secretName"`
}

// VMIStatus is what KubeVirt says of the instance.
type VMIStatus struct {
	Phase                         string            `json:"phase,omitempty"`
	NodeName                      string            `json:"nodeName,omitempty"`
	ActivePods                    map[string]string `json:"activePods,omitempty"`
	Conditions                    []Condition       `json:"conditions,omitempty"`
	LauncherContainerImageVersion string            `json:"launcherContainerImageVersion,omitempty"`
	MigrationState                *MigrationState   `json:"migrationState,omitempty"`
}

// MigrationState is a migration as the instance, and the migration itself, show it.
type MigrationState struct {
	MigrationUID   string       `json:"migrationUid,omitempty"`
	SourceNode     string       `json:"sourceNode,omitempty"`
	SourcePod      string       `json:"sourcePod,omitempty"`
	TargetNode     string       `json:"targetNode,omitempty"`
	TargetPod      string       `json:"targetPod,omitempty"`
	Mode           string       `json:"mode,omitempty"`
	Completed      bool         `json:"completed,omitempty"`
	Failed         bool         `json:"failed,omitempty"`
	FailureReason  string       `json:"failureReason,omitempty"`
	StartTimestamp *metav1.Time `json:"startTimestamp,omitempty"`
	EndTimestamp   *metav1.Time `json:"endTimestamp,omitempty"`
}

// Final tells whether a phase is a last one.
func Final(phase string) bool { return phase == Succeeded || phase == Failed }

// Condition finds a condition of the instance by its type.
func (v *VMI) Condition(kind string) *Condition {
	for i := range v.Status.Conditions {
		if v.Status.Conditions[i].Type == kind {
			return &v.Status.Conditions[i]
		}
	}
	return nil
}

// Migrating tells whether a migration of the instance has begun and not ended.
func (v *VMI) Migrating() bool {
	state := v.Status.MigrationState
	return state != nil && state.EndTimestamp == nil
}

// Migration is the part of a VirtualMachineInstanceMigration that the stand-in understands.
type Migration struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		VMIName string `json:"vmiName"`
	} `json:"spec"`
	Status struct {
		Phase          string            `json:"phase,omitempty"`
		MigrationState *MigrationState   `json:"migrationState,omitempty"`
		Transitions    []PhaseTransition `json:"phaseTransitionTimestamps,omitempty"`
	} `json:"status,omitempty"`
}

// PhaseTransition is when an object came into a phase.
type PhaseTransition struct {
	Phase string      `json:"phase"`
	Time  metav1.Time `json:"phaseTransitionTimestamp"`
}

// Since is when the migration came into its phase.
func (m *Migration) Since() metav1.Time {
	if count := len(m.Status.Transitions); count > 0 {
		return m.Status.Transitions[count-1].Time
	}
	return m.CreationTimestamp
}

// VM is the part of a VirtualMachine that the stand-in understands.
type VM struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Running      *bool    `json:"running,omitempty"`
		RunStrategy  string   `json:"runStrategy,omitempty"`
		Instancetype *Matcher `json:"instancetype,omitempty"`
		Preference   *Matcher `json:"preference,omitempty"`
	} `json:"spec"`
	Status struct {
		InstancetypeRef *StatusRef `json:"instancetypeRef,omitempty"`
		PreferenceRef   *StatusRef `json:"preferenceRef,omitempty"`
	} `json:"status,omitempty"`
}

// Matcher names an instancetype or a preference.
type Matcher struct {
	Name         string `json:"name,omitempty"`
	Kind         string `json:"kind,omitempty"`
	RevisionName string `json:"revisionName,omitempty"`
}

// StatusRef is the instancetype or preference that the VM is pinned to.
type StatusRef struct {
	Name                  string       `json:"name,omitempty"`
	Kind                  string       `json:"kind,omitempty"`
	ControllerRevisionRef *NamedSource `json:"controllerRevisionRef,omitempty"`
}

// RunStrategy is what the VM says in either form.
func (v *VM) RunStrategy() string {
	switch {
	case v.Spec.RunStrategy != "":
		return v.Spec.RunStrategy
	case v.Spec.Running != nil && *v.Spec.Running:
		return "Always"
	}
	return "Halted"
}

// Read turns an object into one of this package's types; the result shares nothing with it.
func Read[T any](object *unstructured.Unstructured) (*T, error) {
	into := new(T)
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.DeepCopy().Object, into)
	return into, err
}

// Beta tells whether a gate that is on by default has been left on.
func (k *KubeVirt) Beta(gate string) bool {
	return !slices.Contains(k.Spec.Configuration.DeveloperConfiguration.DisabledFeatureGates, gate)
}
