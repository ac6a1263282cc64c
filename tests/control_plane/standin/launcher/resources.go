// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

package launcher

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"virtpools.io/controlplane/standin/kubevirt"
)

// resources are compute's: KubeVirt's devices, the instance's by the number of times they are named, CPU and memory
// with what the launcher itself needs, and whatever the instance asks for by hand.
func (r render) resources() corev1.ResourceRequirements {
	limits, requests := corev1.ResourceList{}, list("ephemeral-storage", "50M")
	maps.Copy(limits, r.vmi.Spec.Domain.Resources.Limits)
	maps.Copy(requests, r.vmi.Spec.Domain.Resources.Requests)
	for name, count := range r.devices() {
		limits[name] = *resource.NewQuantity(count, resource.DecimalSI)
		requests[name] = limits[name]
	}
	overhead := r.overhead()
	memory := r.guestMemory()
	memory.Add(overhead)
	requests[corev1.ResourceMemory] = memory
	if limit, ok := limits[corev1.ResourceMemory]; ok {
		limit.Add(overhead)
		limits[corev1.ResourceMemory] = limit
	}
	vcpus := r.vcpus()
	_, asked := requests[corev1.ResourceCPU]
	if cpu := r.vmi.Spec.Domain.CPU; cpu != nil && cpu.DedicatedCPUPlacement {
		limits[corev1.ResourceCPU] = *resource.NewQuantity(vcpus, resource.DecimalSI)
		requests[corev1.ResourceCPU] = limits[corev1.ResourceCPU]
		limits[corev1.ResourceMemory] = memory
	} else if _, limited := limits[corev1.ResourceCPU]; !asked && !limited {
		requests[corev1.ResourceCPU] = *resource.NewMilliQuantity(100*vcpus, resource.DecimalSI)
	}
	return corev1.ResourceRequirements{Limits: limits, Requests: requests, Claims: r.claims()}
}

func (r render) devices() map[corev1.ResourceName]int64 {
	devices := r.vmi.Spec.Domain.Devices
	counts := map[corev1.ResourceName]int64{}
	if !r.Emulation {
		counts["devices.kubevirt.io/kvm"] = 1
	}
	if attach := devices.AutoattachPodNet; len(devices.Interfaces) > 0 || attach == nil || *attach {
		counts["devices.kubevirt.io/tun"] = 1
		virtio := func(each kubevirt.Interface) bool { return each.Model == "" || each.Model == "virtio" }
		if !r.Emulation && (len(devices.Interfaces) == 0 || slices.ContainsFunc(devices.Interfaces, virtio)) {
			counts["devices.kubevirt.io/vhost-net"] = 1
		}
	}
	if vsock := devices.AutoattachVSOCK; vsock != nil && *vsock {
		counts["devices.kubevirt.io/vhost-vsock"] = 1
	}
	for _, device := range slices.Concat(devices.GPUs, devices.HostDevices) {
		if device.DeviceName != "" && device.RequestName == "" {
			counts[corev1.ResourceName(device.DeviceName)]++
		}
	}
	return counts
}

// claims are the devices that come by resource claims. Nothing in the pod says what device that is.
func (r render) claims() []corev1.ResourceClaim {
	var claims []corev1.ResourceClaim
	devices := r.vmi.Spec.Domain.Devices
	for _, device := range slices.Concat(devices.GPUs, devices.HostDevices) {
		if device.RequestName != "" {
			claims = append(claims, corev1.ResourceClaim{Name: device.ClaimName, Request: device.RequestName})
		}
	}
	return claims
}

func (r render) vcpus() int64 {
	cpu := r.vmi.Spec.Domain.CPU
	if cpu == nil {
		return 1
	}
	return int64(max(cpu.Cores, 1)) * int64(max(cpu.Sockets, 1)) * int64(max(cpu.Threads, 1))
}

func (r render) guestMemory() resource.Quantity {
	domain := r.vmi.Spec.Domain
	if domain.Memory != nil && domain.Memory.Guest != nil {
		return domain.Memory.Guest.DeepCopy()
	}
	if asked, ok := domain.Resources.Requests[corev1.ResourceMemory]; ok {
		return asked.DeepCopy()
	}
	return domain.Resources.Limits[corev1.ResourceMemory].DeepCopy()
}

// overhead is the memory of what runs beside the guest; a device handed through maps a gigabyte more.
func (r render) overhead() resource.Quantity {
	mebibytes := 260 + 8*r.vcpus()
	devices := r.vmi.Spec.Domain.Devices
	if len(devices.GPUs)+len(devices.HostDevices) > 0 {
		mebibytes += 1024
	}
	if r.vmi.Spec.Architecture == "arm64" {
		mebibytes += 128
	}
	return *resource.NewQuantity(mebibytes<<20, resource.BinarySI)
}
