// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

package launcher

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"virtpools.io/controlplane/standin/kubevirt"
)

func emptyDir(name string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}
}

func imageVolume(name, image string, pull corev1.PullPolicy) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		Image: &corev1.ImageVolumeSource{Reference: image, PullPolicy: pull},
	}}
}

func (r render) volumes(disks []imageDisk) []corev1.Volume {
	var volumes []corev1.Volume
	for _, name := range []string{"private", "public", "sockets", binaryVolume, "libvirt-runtime", "ephemeral-disks"} {
		volumes = append(volumes, emptyDir(name))
	}
	if !r.ImageVolumes && len(disks) > 0 {
		volumes = append(volumes, emptyDir("container-disks"))
	}
	for _, volume := range r.vmi.Spec.Volumes {
		if path, source := configSource(volume); path != "" {
			volumes = append(volumes, corev1.Volume{Name: volume.Name, VolumeSource: source})
		}
	}
	for _, volume := range r.vmi.Spec.Volumes {
		if claim := volume.Claim(); claim != "" {
			volumes = append(volumes, corev1.Volume{Name: volume.Name, VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
			}})
		}
	}
	if r.ImageVolumes {
		for _, disk := range disks {
			volumes = append(volumes, imageVolume(disk.volume, disk.image, disk.pull))
		}
		if !r.resolved(disks) {
			volumes = append(volumes, imageVolume(launcherVolume, r.Image, r.PullPolicy))
		}
	}
	hooks := r.hooks()
	if len(hooks) > 0 {
		volumes = append(volumes, emptyDir("hook-sidecar-sockets"))
	}
	volumes = append(volumes, emptyDir("hotplug-disks"))
	for _, each := range hooks {
		if script := each.ConfigMap; script != nil && !hasVolume(volumes, script.Name) {
			volumes = append(volumes, corev1.Volume{Name: script.Name, VolumeSource: corev1.VolumeSource{
				ConfigMap: &corev1.ConfigMapVolumeSource{
					LocalObjectReference: corev1.LocalObjectReference{Name: script.Name}, DefaultMode: new(int32(0o755)),
				},
			}})
		}
	}
	if len(r.vmi.Spec.Domain.Devices.Filesystems) > 0 {
		volumes = append(volumes, emptyDir("virtiofs-containers"))
	}
	return volumes
}

func hasVolume(volumes []corev1.Volume, name string) bool {
	return slices.ContainsFunc(volumes, func(volume corev1.Volume) bool { return volume.Name == name })
}

func claimPath(volume kubevirt.Volume) string { return privateDir + "/vmi-disks/" + volume.Name }

// sharedPaths are where claims are mounted; all are taken for file systems.
func (r render) sharedPaths() []string {
	var paths []string
	for _, volume := range r.vmi.Spec.Volumes {
		if volume.Claim() != "" {
			paths = append(paths, claimPath(volume))
		}
	}
	return paths
}

func (r render) computeMounts(disks []imageDisk) []corev1.VolumeMount {
	fromHost := new(corev1.MountPropagationHostToContainer)
	mounts := []corev1.VolumeMount{
		{Name: "private", MountPath: privateDir},
		{Name: "public", MountPath: shareDir},
		{Name: "ephemeral-disks", MountPath: ephemeralDir},
		{Name: "libvirt-runtime", MountPath: "/var/run/libvirt"},
		{Name: "sockets", MountPath: shareDir + "/sockets"},
	}
	if !r.ImageVolumes && len(disks) > 0 {
		mounts = append(mounts, corev1.VolumeMount{
			Name: "container-disks", MountPath: shareDir + "/container-disks", MountPropagation: fromHost,
		})
	}
	for _, volume := range r.vmi.Spec.Volumes {
		if path, _ := configSource(volume); path != "" && !r.filesystem(volume.Name) {
			mounts = append(mounts, corev1.VolumeMount{Name: volume.Name, MountPath: path, ReadOnly: true})
		}
		if volume.Claim() != "" {
			mounts = append(mounts, corev1.VolumeMount{Name: volume.Name, MountPath: claimPath(volume)})
		}
	}
	if r.ImageVolumes {
		for _, disk := range disks {
			path := shareDir + "-image-volume/" + disk.file
			if disk.volume == kernelBootVolume {
				path = shareDir + "-kernel-boot"
			}
			mounts = append(mounts, corev1.VolumeMount{Name: disk.volume, MountPath: path, ReadOnly: true})
		}
	}
	if len(r.hooks()) > 0 {
		mounts = append(mounts, corev1.VolumeMount{Name: "hook-sidecar-sockets", MountPath: "/var/run/kubevirt-hooks"})
	}
	mounts = append(mounts, corev1.VolumeMount{
		Name: "hotplug-disks", MountPath: shareDir + "/hotplug-disks", MountPropagation: fromHost,
	})
	if len(r.vmi.Spec.Domain.Devices.Filesystems) > 0 {
		mounts = append(mounts, corev1.VolumeMount{Name: "virtiofs-containers", MountPath: virtiofsDir})
	}
	return mounts
}

func (r render) filesystem(name string) bool {
	return slices.ContainsFunc(r.vmi.Spec.Domain.Devices.Filesystems, func(each kubevirt.Filesystem) bool { return each.Name == name })
}
