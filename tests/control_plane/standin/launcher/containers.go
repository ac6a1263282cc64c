// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

package launcher

import (
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"virtpools.io/controlplane/standin/kubevirt"
)

const (
	nonRoot = int64(107)

	shareDir     = "/var/run/kubevirt"
	privateDir   = "/var/run/kubevirt-private"
	ephemeralDir = "/var/run/kubevirt-ephemeral-disks"
	diskDataDir  = ephemeralDir + "/container-disk-data/"
	virtiofsDir  = shareDir + "/virtiofs-containers"

	kernelBootVolume = "kernel-boot-volume"
	launcherVolume   = "launcher-volume"
	binaryVolume     = "virt-bin-share-dir"

	hooksAnnotation = "hooks.kubevirt.io/hookSidecars"
)

func restricted(group bool) *corev1.SecurityContext {
	context := &corev1.SecurityContext{
		RunAsUser: new(nonRoot), RunAsNonRoot: new(true), AllowPrivilegeEscalation: new(false),
		Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
	if group {
		context.RunAsGroup = new(nonRoot)
	}
	return context
}

func xdg() []corev1.EnvVar {
	return []corev1.EnvVar{
		{Name: "XDG_CACHE_HOME", Value: privateDir},
		{Name: "XDG_CONFIG_HOME", Value: privateDir},
		{Name: "XDG_RUNTIME_DIR", Value: "/var/run"},
	}
}

func list(pairs ...string) corev1.ResourceList {
	amounts := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		amounts[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return amounts
}

// imageDisk is a disk, or a kernel, that comes in an image.
type imageDisk struct {
	volume string
	// file is its name in the pod.
	file  string
	image string
	pull  corev1.PullPolicy
}

func (r render) imageDisks() []imageDisk {
	var disks []imageDisk
	add := func(volume, file string, source *kubevirt.ImageSource) {
		disk := imageDisk{volume: volume, file: file, image: source.Image, pull: source.ImagePullPolicy}
		if disk.pull == "" {
			disk.pull = corev1.PullIfNotPresent
		}
		if digest := r.digests[volume]; digest != "" {
			disk.image = digest
		}
		disks = append(disks, disk)
	}
	for i, volume := range r.vmi.Spec.Volumes {
		if volume.ContainerDisk != nil {
			add(volume.Name, fmt.Sprintf("disk_%d", i), volume.ContainerDisk)
		}
	}
	if firmware := r.vmi.Spec.Domain.Firmware; firmware != nil && firmware.KernelBoot != nil && firmware.KernelBoot.Container != nil {
		add(kernelBootVolume, "kernel-boot", firmware.KernelBoot.Container)
	}
	return disks
}

// resolved: a migration's source has told all digests, so that nothing need be pulled to learn them.
func (r render) resolved(disks []imageDisk) bool {
	return !slices.ContainsFunc(disks, func(disk imageDisk) bool { return r.digests[disk.volume] == "" })
}

func (r render) diskMounts() []corev1.VolumeMount {
	return []corev1.VolumeMount{
		{Name: "container-disks", MountPath: diskDataDir + string(r.vmi.UID)},
		{Name: binaryVolume, MountPath: "/usr/bin"},
	}
}

func diskResources() corev1.ResourceRequirements {
	return corev1.ResourceRequirements{
		Limits:   list("cpu", "10m", "memory", "40M"),
		Requests: list("cpu", "1m", "memory", "1M", "ephemeral-storage", "50M"),
	}
}

// diskContainer hands a disk over out of its image, where image volumes are off.
func (r render) diskContainer(disk imageDisk) corev1.Container {
	return corev1.Container{
		Name: "volume" + disk.volume, Image: disk.image, ImagePullPolicy: disk.pull,
		Command:   []string{"/usr/bin/container-disk"},
		Args:      []string{"--copy-path", diskDataDir + string(r.vmi.UID) + "/" + disk.file},
		Resources: diskResources(), SecurityContext: restricted(false), VolumeMounts: r.diskMounts(),
	}
}

// diskInitContainer makes the node pull the image, so that its digest is known.
func (r render) diskInitContainer(disk imageDisk) *corev1.Container {
	container := corev1.Container{
		Name: "volume" + disk.volume, Image: disk.image, ImagePullPolicy: disk.pull, Args: []string{"--no-op"},
		Resources: diskResources(), SecurityContext: restricted(false),
	}
	switch {
	case !r.ImageVolumes:
		container.Name += "-init"
		container.Command, container.VolumeMounts = []string{"/usr/bin/container-disk"}, r.diskMounts()
	case r.digests[disk.volume] != "":
		return nil
	default:
		container.Command = []string{"/container-disk-binary/usr/bin/container-disk"}
		container.VolumeMounts = []corev1.VolumeMount{{Name: launcherVolume, MountPath: "/container-disk-binary", ReadOnly: true}}
	}
	return &container
}

func (r render) diskBinary() corev1.Container {
	return corev1.Container{
		Name: "container-disk-binary", Image: r.Image, ImagePullPolicy: r.PullPolicy, Env: xdg(),
		Command: []string{"/usr/bin/cp", "--preserve=all", "/usr/bin/container-disk", "/init/usr/bin/container-disk"},
		Resources: corev1.ResourceRequirements{
			Limits: list("cpu", "100m", "memory", "40M"), Requests: list("cpu", "10m", "memory", "1M"),
		},
		SecurityContext:          restricted(true),
		VolumeMounts:             []corev1.VolumeMount{{Name: binaryVolume, MountPath: "/init/usr/bin"}},
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
	}
}

func (r render) consoleLog() corev1.Container {
	return corev1.Container{
		Name: "guest-console-log", Image: r.Image, ImagePullPolicy: r.PullPolicy,
		RestartPolicy: new(corev1.ContainerRestartPolicyAlways),
		Command:       []string{"/usr/bin/virt-tail"},
		Args:          []string{"--logfile", privateDir + "/" + string(r.vmi.UID) + "/virt-serial0-log"},
		Env:           []corev1.EnvVar{{Name: "VIRT_LAUNCHER_LOG_VERBOSITY", Value: r.Verbosity}},
		Resources: corev1.ResourceRequirements{
			Limits: list("cpu", "15m", "memory", "60M"), Requests: list("cpu", "5m", "memory", "35M"),
		},
		SecurityContext: restricted(false),
		VolumeMounts:    []corev1.VolumeMount{{Name: "private", MountPath: privateDir, ReadOnly: true}},
	}
}

// configSource is where a volume of configuration is mounted, and what it is made of; nothing for other volumes.
func configSource(volume kubevirt.Volume) (string, corev1.VolumeSource) {
	switch {
	case volume.ConfigMap != nil:
		return privateDir + "/config-map/" + volume.Name, corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: *volume.ConfigMap},
		}
	case volume.Secret != nil:
		return privateDir + "/secret/" + volume.Name, corev1.VolumeSource{
			Secret: &corev1.SecretVolumeSource{SecretName: volume.Secret.SecretName},
		}
	}
	return "", corev1.VolumeSource{}
}

func (r render) virtiofsContainers() []corev1.Container {
	var containers []corev1.Container
	for _, filesystem := range r.vmi.Spec.Domain.Devices.Filesystems {
		for _, volume := range r.vmi.Spec.Volumes {
			if volume.Name == filesystem.Name {
				containers = append(containers, r.virtiofs(volume))
			}
		}
	}
	return containers
}

func (r render) virtiofs(volume kubevirt.Volume) corev1.Container {
	path, _ := configSource(volume)
	if path == "" {
		path = "/" + volume.Name
	}
	return corev1.Container{
		Name: "virtiofs-" + volume.Name, Image: r.Image, ImagePullPolicy: r.PullPolicy,
		Command: []string{"/usr/libexec/virtiofsd"},
		Args: []string{
			"--socket-path=" + virtiofsDir + "/" + volume.Name + ".sock", "--shared-dir=" + path, "--sandbox=none",
			"--cache=auto", "--migration-on-error=guest-error", "--migration-mode=find-paths",
		},
		Resources: corev1.ResourceRequirements{
			Limits: list("cpu", "100m", "memory", "80M"), Requests: list("cpu", "10m", "memory", "1M"),
		},
		SecurityContext: restricted(true),
		VolumeMounts: []corev1.VolumeMount{
			{Name: "virtiofs-containers", MountPath: virtiofsDir}, {Name: volume.Name, MountPath: path},
		},
	}
}

// hook is a sidecar asked for by annotation; without an image it runs a script of a ConfigMap in KubeVirt's own image.
type hook struct {
	Image           string            `json:"image"`
	ImagePullPolicy corev1.PullPolicy `json:"imagePullPolicy"`
	Command         []string          `json:"command"`
	Args            []string          `json:"args"`
	ConfigMap       *struct {
		Name     string `json:"name"`
		Key      string `json:"key"`
		HookPath string `json:"hookPath"`
	} `json:"configMap"`
}

func (r render) hooks() []hook {
	var hooks []hook
	if json.Unmarshal([]byte(r.vmi.Annotations[hooksAnnotation]), &hooks) != nil {
		return nil // none, or nothing that could be read
	}
	return hooks
}

func (r render) hookContainers() []corev1.Container {
	var containers []corev1.Container
	for i, each := range r.hooks() {
		name := fmt.Sprintf("hook-sidecar-%d", i)
		container := corev1.Container{
			Name: name, Image: each.Image, ImagePullPolicy: each.ImagePullPolicy, Command: each.Command, Args: each.Args,
			Env:                      append(xdg(), corev1.EnvVar{Name: "CONTAINER_NAME", Value: name}),
			SecurityContext:          restricted(true),
			VolumeMounts:             []corev1.VolumeMount{{Name: "hook-sidecar-sockets", MountPath: "/var/run/kubevirt-hooks", SubPath: name}},
			TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		}
		if container.Image == "" {
			container.Image = r.SidecarShim
		}
		if container.ImagePullPolicy == "" {
			container.ImagePullPolicy = r.PullPolicy
		}
		if script := each.ConfigMap; script != nil {
			container.VolumeMounts = append(container.VolumeMounts,
				corev1.VolumeMount{Name: script.Name, MountPath: script.HookPath, SubPath: script.Key})
		}
		containers = append(containers, container)
	}
	return containers
}
