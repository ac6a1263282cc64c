// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

package builds

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"virtpools.io/controlplane/agent/kubevirt"
)

// machine is the part of a VirtualMachineInstance by which pools take it.
type machine struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		NodeSelector map[string]string `json:"nodeSelector,omitempty"`
		Domain       struct {
			Devices struct {
				GPUs        []device `json:"gpus,omitempty"`
				HostDevices []device `json:"hostDevices,omitempty"`
			} `json:"devices"`
		} `json:"domain"`
	} `json:"spec"`
}

type device struct {
	DeviceName string `json:"deviceName,omitempty"`
}

// match is the first pool that takes the machine; nil if none does.
func (b Build) match(pools []Pool, vm *machine) *Pool {
	for i := range pools {
		if b.takes(pools[i], vm) {
			return &pools[i]
		}
	}
	return nil
}

func (b Build) takes(pool Pool, vm *machine) bool {
	if b.matchesNodeSelector {
		return len(pool.NodeSelector) > 0 && contains(vm.Spec.NodeSelector, pool.NodeSelector)
	}
	if pool.Selector == nil {
		return false
	}
	for _, each := range slices.Concat(vm.Spec.Domain.Devices.GPUs, vm.Spec.Domain.Devices.HostDevices) {
		if slices.Contains(pool.Selector.DeviceNames, each.DeviceName) {
			return true
		}
	}
	labels := pool.Selector.labels()
	return labels != nil && contains(vm.Labels, labels)
}

// render changes a machine's launcher pod as virt-controller of the build would have made it.
func (b Build) render(pod *corev1.Pod, pool *Pool) {
	pod.Annotations = with(pod.Annotations, map[string]string{b.Label: pool.Name})
	b.setLauncherImage(&pod.Spec, pool.LauncherImage)
	if !b.leads {
		return
	}
	var on []corev1.NodeSelectorRequirement
	for _, key := range slices.Sorted(maps.Keys(pool.NodeSelector)) {
		on = append(on, corev1.NodeSelectorRequirement{
			Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{pool.NodeSelector[key]},
		})
	}
	require(requiredAffinity(&pod.Spec), on)
}

// setLauncherImage replaces the stock image: that of a launcher pod's compute container, and of a hotplug pod's only one.
func (b Build) setLauncherImage(pod *corev1.PodSpec, image string) {
	if image == "" {
		return
	}
	stock := pod.Containers[0].Image
	if i := slices.IndexFunc(pod.Containers, func(c corev1.Container) bool { return c.Name == kubevirt.ComputeContainer }); i >= 0 {
		stock = pod.Containers[i].Image
	}
	for _, containers := range [][]corev1.Container{pod.InitContainers, pod.Containers} {
		for i := range containers {
			if containers[i].Image == stock {
				containers[i].Image = image
			}
		}
	}
	if !b.everyPlace {
		return
	}
	for i := range pod.Volumes {
		if volume := pod.Volumes[i].Image; volume != nil && volume.Reference == stock {
			volume.Reference = image
		}
	}
}
