// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

// Package launcher renders the pods that virtual machine instances run in, as virt-controller does.
package launcher

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"virtpools.io/controlplane/standin/kubevirt"
)

// Settings are what a launcher pod depends on besides its instance.
type Settings struct {
	// Image is the stock launcher image.
	Image       string
	SidecarShim string
	PullPolicy  corev1.PullPolicy
	// ImageVolumes: are disks in images mounted by the kubelet? Else containers hand them over.
	ImageVolumes  bool
	SerialLog     bool
	Emulation     bool
	Verbosity     string
	NodeSelectors map[string]string
}

// ComputeContainer is the container that runs the guest.
const ComputeContainer = "compute"

// render is one rendering: the instance, the settings, and what a migration's source has already pulled.
type render struct {
	Settings
	vmi *kubevirt.VMI
	// digests are the disk images of a migration's source by volume; a target does not resolve their tags again.
	digests map[string]string
}

// Pod renders the pod of an instance.
func Pod(vmi *kubevirt.VMI, settings Settings) *corev1.Pod {
	return render{Settings: settings, vmi: vmi}.pod()
}

func (r render) pod() *corev1.Pod {
	disks := r.imageDisks()
	spec := corev1.PodSpec{
		RestartPolicy:                 corev1.RestartPolicyNever,
		Hostname:                      r.hostname(),
		Subdomain:                     r.vmi.Spec.Subdomain,
		SchedulerName:                 r.vmi.Spec.SchedulerName,
		PriorityClassName:             r.vmi.Spec.PriorityClassName,
		AutomountServiceAccountToken:  new(false),
		EnableServiceLinks:            new(false),
		TerminationGracePeriodSeconds: new(r.grace() + 30),
		SecurityContext: &corev1.PodSecurityContext{
			RunAsUser: new(nonRoot), RunAsGroup: new(nonRoot), RunAsNonRoot: new(true), FSGroup: new(nonRoot),
		},
		ReadinessGates:            []corev1.PodReadinessGate{{ConditionType: kubevirt.UnpausedGate}},
		NodeSelector:              r.nodeSelector(),
		Affinity:                  r.affinity(),
		Tolerations:               r.vmi.Spec.Tolerations,
		TopologySpreadConstraints: r.vmi.Spec.TopologySpreadConstraints,
		ResourceClaims:            r.vmi.Spec.ResourceClaims,
	}
	compute := r.compute(disks)
	spec.Containers = append(spec.Containers, compute)
	if !r.ImageVolumes {
		for _, disk := range disks {
			spec.Containers = append(spec.Containers, r.diskContainer(disk))
		}
	}
	spec.Containers = append(spec.Containers, r.virtiofsContainers()...)
	spec.Containers = append(spec.Containers, r.hookContainers()...)
	spec.InitContainers = r.initContainers(disks)
	spec.Volumes = r.volumes(disks)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: r.vmi.Namespace, GenerateName: "virt-launcher-" + r.vmi.Name + "-",
			Labels: r.labels(), Annotations: r.annotations(),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(r.vmi, kubevirt.VMIKind)},
		},
		Spec: spec,
	}
}

func (r render) labels() map[string]string {
	labels := map[string]string{}
	maps.Copy(labels, r.vmi.Labels)
	labels[kubevirt.ComponentLabel] = kubevirt.LauncherComponent
	labels[kubevirt.CreatedByLabel] = string(r.vmi.UID)
	labels["vm.kubevirt.io/name"] = r.hostLabel()
	labels["vmi.kubevirt.io/id"] = r.hostLabel()
	return labels
}

// hostLabel is the instance's name, cut to what a label may hold.
func (r render) hostLabel() string { return r.vmi.Name[:min(len(r.vmi.Name), 63)] }

// annotations are all of the instance's, with three exceptions, and what tools for backup and eviction ask for.
func (r render) annotations() map[string]string {
	annotations := map[string]string{}
	for key, value := range r.vmi.Annotations {
		if !strings.HasPrefix(key, "kubectl.kubernetes.io") &&
			key != "kubevirt.io/latest-observed-api-version" && key != "kubevirt.io/storage-observed-api-version" {
			annotations[key] = value
		}
	}
	freezer := func(what string) string {
		return fmt.Sprintf(`["/usr/bin/virt-freezer", "--%s", "--name", %q, "--namespace", %q]`, what, r.vmi.Name, r.vmi.Namespace)
	}
	overhead := r.overhead()
	maps.Copy(annotations, map[string]string{
		"descheduler.alpha.kubernetes.io/request-evict-only": "",
		"kubectl.kubernetes.io/default-container":            ComputeContainer,
		"kubevirt.io/domain":                                 r.vmi.Name,
		"kubevirt.io/memory-overhead-bytes":                  strconv.FormatInt(overhead.Value(), 10),
		"kubevirt.io/migrationTransportUnix":                 "true",
		"pre.hook.backup.velero.io/command":                  freezer("freeze"),
		"pre.hook.backup.velero.io/container":                ComputeContainer,
		"pre.hook.backup.velero.io/timeout":                  "60s",
		"post.hook.backup.velero.io/command":                 freezer("unfreeze"),
		"post.hook.backup.velero.io/container":               ComputeContainer,
	})
	return annotations
}

func (r render) hostname() string {
	name := r.vmi.Spec.Hostname
	if name == "" {
		name, _, _ = strings.Cut(r.vmi.Name, ".")
	}
	return name[:min(len(name), 63)]
}

// grace is how long the guest may take to shut down.
func (r render) grace() int64 {
	if seconds := r.vmi.Spec.TerminationGracePeriodSeconds; seconds != nil {
		return *seconds
	}
	return 30
}

func (r render) nodeSelector() map[string]string {
	selector := map[string]string{kubevirt.SchedulableLabel: "true"}
	if arch := r.vmi.Spec.Architecture; arch != "" {
		selector[corev1.LabelArchStable] = arch
	}
	maps.Copy(selector, r.NodeSelectors)
	maps.Copy(selector, r.vmi.Spec.NodeSelector)
	if machine := r.vmi.Spec.Domain.Machine; machine != nil && machine.Type != "" {
		selector["machine-type.node.kubevirt.io/"+machine.Type] = "true"
	}
	if cpu := r.vmi.Spec.Domain.CPU; cpu != nil {
		if model := cpu.Model; model != "" && model != "host-model" && model != "host-passthrough" {
			selector["cpu-model.node.kubevirt.io/"+model] = "true"
		}
		for _, feature := range cpu.Features {
			if feature.Policy == "" || feature.Policy == "require" {
				selector["cpu-feature.node.kubevirt.io/"+feature.Name] = "true"
			}
		}
		if cpu.DedicatedCPUPlacement {
			selector["cpumanager"] = "true"
		}
	}
	return selector
}

// hostModel tells whether the guest gets its node's CPU model, which keeps it off nodes whose model is obsolete.
func (r render) hostModel() bool {
	cpu := r.vmi.Spec.Domain.CPU
	return cpu == nil || cpu.Model == "" || cpu.Model == "host-model"
}

func (r render) affinity() *corev1.Affinity {
	affinity := r.vmi.Spec.Affinity.DeepCopy()
	if !r.hostModel() {
		return affinity
	}
	current := corev1.NodeSelectorRequirement{
		Key: "node-labeller.kubevirt.io/obsolete-host-model", Operator: corev1.NodeSelectorOpDoesNotExist,
	}
	if affinity == nil {
		affinity = &corev1.Affinity{}
	}
	if affinity.NodeAffinity == nil {
		affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	required := affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if required == nil || len(required.NodeSelectorTerms) == 0 {
		required = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{}}}
		affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = required
	}
	for i := range required.NodeSelectorTerms {
		term := &required.NodeSelectorTerms[i]
		term.MatchExpressions = append(term.MatchExpressions, current)
	}
	return affinity
}

func (r render) compute(disks []imageDisk) corev1.Container {
	command := []string{
		"/usr/bin/virt-launcher-monitor", "--qemu-timeout", fmt.Sprintf("%ds", 240+rand.N(120)),
		"--name", r.vmi.Name, "--uid", string(r.vmi.UID), "--namespace", r.vmi.Namespace,
		"--kubevirt-share-dir", shareDir, "--ephemeral-disk-dir", ephemeralDir,
		"--container-disk-dir", shareDir + "/container-disks",
		"--grace-period-seconds", strconv.FormatInt(r.grace()+15, 10),
		"--hook-sidecars", strconv.Itoa(len(r.hooks())), "--ovmf-path", "/usr/share/edk2/ovmf",
		"--disk-memory-limit", "2097152000", "--hypervisor", "kvm", "--run-as-nonroot",
	}
	if r.ImageVolumes {
		command = append(command, "--image-volume")
	}
	command = append(command, "--libvirt-hook-server-and-client", "--upgrade-ordinal-ifaces")
	if r.Emulation {
		command = append(command, "--allow-emulation")
	}
	environment := xdg()
	if paths := r.sharedPaths(); len(paths) > 0 {
		environment = append(environment, corev1.EnvVar{Name: "SHARED_FILESYSTEM_PATHS", Value: strings.Join(paths, ":")})
	}
	environment = append(environment, corev1.EnvVar{Name: "POD_NAME", ValueFrom: &corev1.EnvVarSource{
		FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"},
	}})
	security := restricted(true)
	security.Capabilities.Add = []corev1.Capability{"NET_BIND_SERVICE"}
	return corev1.Container{
		Name: ComputeContainer, Image: r.Image, ImagePullPolicy: r.PullPolicy, Command: command, Env: environment,
		Resources: r.resources(), SecurityContext: security, VolumeMounts: r.computeMounts(disks),
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
	}
}

func (r render) initContainers(disks []imageDisk) []corev1.Container {
	var containers []corev1.Container
	if r.serialLog() {
		containers = append(containers, r.consoleLog())
	}
	if !r.ImageVolumes && len(disks) > 0 {
		containers = append(containers, r.diskBinary())
	}
	for _, disk := range disks {
		if container := r.diskInitContainer(disk); container != nil {
			containers = append(containers, *container)
		}
	}
	return containers
}

// serialLog: the guest's console is logged unless the instance or the cluster says otherwise.
func (r render) serialLog() bool {
	devices := r.vmi.Spec.Domain.Devices
	if console := devices.AutoattachConsole; console != nil && !*console {
		return false
	}
	if devices.LogSerialConsole != nil {
		return *devices.LogSerialConsole
	}
	return r.SerialLog
}

// Sibling is another of KubeVirt's images, from the same registry and of the same version.
func Sibling(image, name string) string {
	slash := strings.LastIndex(image, "/")
	version := ""
	if colon := strings.LastIndex(image, ":"); colon > slash {
		version = image[colon:]
	}
	return image[:slash+1] + name + version
}
