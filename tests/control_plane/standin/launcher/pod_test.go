// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

package launcher

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"virtpools.io/controlplane/standin/kubevirt"
)

const stock = "registry.example/kubevirt/virt-launcher:v1"

func settings() Settings {
	return Settings{
		Image: stock, SidecarShim: Sibling(stock, "sidecar-shim"), PullPolicy: corev1.PullIfNotPresent,
		ImageVolumes: true, SerialLog: true, Verbosity: "2",
	}
}

func machine(change ...func(*kubevirt.VMI)) *kubevirt.VMI {
	vmi := &kubevirt.VMI{ObjectMeta: metav1.ObjectMeta{Name: "vm", Namespace: "default", UID: types.UID("1-2-3")}}
	for _, each := range change {
		each(vmi)
	}
	return vmi
}

func disk(vmi *kubevirt.VMI) {
	vmi.Spec.Volumes = append(vmi.Spec.Volumes, kubevirt.Volume{Name: "root", ContainerDisk: &kubevirt.ImageSource{Image: "disks.example/os:1"}})
}

func claim(vmi *kubevirt.VMI) {
	vmi.Spec.Volumes = append(vmi.Spec.Volumes, kubevirt.Volume{
		Name: "data", PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
	})
}

func kernel(vmi *kubevirt.VMI) {
	vmi.Spec.Domain.Firmware = &kubevirt.Firmware{KernelBoot: &kubevirt.KernelBoot{Container: &kubevirt.ImageSource{Image: "disks.example/kernel:1"}}}
}

func virtiofs(vmi *kubevirt.VMI) {
	claim(vmi)
	vmi.Spec.Domain.Devices.Filesystems = []kubevirt.Filesystem{{Name: "data"}}
}

func hooks(vmi *kubevirt.VMI) {
	vmi.Annotations = map[string]string{hooksAnnotation: `[{"image":"hooks.example/a:1"},{"configMap":{"name":"c","key":"k","hookPath":"/h"}}]`}
}

// references are all places in a pod that name an image.
func references(pod *corev1.Pod) map[string]string {
	found := map[string]string{}
	for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		found[container.Name] = container.Image
	}
	for _, volume := range pod.Spec.Volumes {
		if volume.Image != nil {
			found["volumes/"+volume.Name] = volume.Image.Reference
		}
	}
	return found
}

// Which kind of instance has which references to the launcher image, as measured with KubeVirt 1.9.
func TestLauncherReferences(t *testing.T) {
	quiet := func(vmi *kubevirt.VMI) { vmi.Spec.Domain.Devices.LogSerialConsole = new(false) }
	for name, test := range map[string]struct {
		vmi  *kubevirt.VMI
		off  bool // image volumes
		want []string
	}{
		"claim":                    {vmi: machine(claim), want: []string{"guest-console-log"}},
		"hooks":                    {vmi: machine(claim, hooks), want: []string{"guest-console-log"}},
		"disk":                     {vmi: machine(disk), want: []string{"guest-console-log", "volumes/launcher-volume"}},
		"kernel":                   {vmi: machine(claim, kernel), want: []string{"guest-console-log", "volumes/launcher-volume"}},
		"disk, no log":             {vmi: machine(disk, quiet), want: []string{"volumes/launcher-volume"}},
		"virtiofs":                 {vmi: machine(disk, virtiofs), want: []string{"guest-console-log", "virtiofs-data", "volumes/launcher-volume"}},
		"image volumes off":        {vmi: machine(disk), off: true, want: []string{"container-disk-binary", "guest-console-log"}},
		"image volumes off kernel": {vmi: machine(claim, kernel), off: true, want: []string{"container-disk-binary", "guest-console-log"}},
		"image volumes off virtiofs": {
			vmi: machine(disk, virtiofs), off: true, want: []string{"container-disk-binary", "guest-console-log", "virtiofs-data"},
		},
		"image volumes off claim": {vmi: machine(claim), off: true, want: []string{"guest-console-log"}},
	} {
		s := settings()
		s.ImageVolumes = !test.off
		var got []string
		for reference, image := range references(Pod(test.vmi, s)) {
			if image == stock {
				got = append(got, reference)
			} else if strings.Contains(image, "virt-launcher") {
				t.Errorf("%s: %s has %s", name, reference, image)
			}
		}
		slices.Sort(got)
		if want := append([]string{ComputeContainer}, test.want...); !slices.Equal(got, sorted(want)) {
			t.Errorf("%s: launcher image in %v, want %v", name, got, want)
		}
	}
}

func sorted(list []string) []string { slices.Sort(list); return list }

func TestDevicesAreCounted(t *testing.T) {
	vmi := machine(func(vmi *kubevirt.VMI) {
		vmi.Spec.Domain.Devices.GPUs = []kubevirt.Device{{Name: "a", DeviceName: "example.com/gpu"}, {Name: "b", DeviceName: "example.com/gpu"}}
		vmi.Spec.Domain.Devices.HostDevices = []kubevirt.Device{{Name: "c", DeviceName: "example.com/nic"}, {Name: "d", ClaimName: "claim", RequestName: "r"}}
		vmi.Spec.Domain.Resources.Limits = list("example.com/byhand", "1")
	})
	resources := Pod(vmi, settings()).Spec.Containers[0].Resources
	for name, want := range map[corev1.ResourceName]int64{
		"example.com/gpu": 2, "example.com/nic": 1, "example.com/byhand": 1,
		"devices.kubevirt.io/kvm": 1, "devices.kubevirt.io/tun": 1, "devices.kubevirt.io/vhost-net": 1,
	} {
		if got := resources.Limits[name]; got.Value() != want {
			t.Errorf("limit %s is %d, want %d", name, got.Value(), want)
		}
	}
	if len(resources.Limits) != 6 {
		t.Errorf("limits are %v", resources.Limits)
	}
	if len(resources.Claims) != 1 || resources.Claims[0].Name != "claim" {
		t.Errorf("claims are %v", resources.Claims)
	}
}

func TestHostModelNeedsCurrentNodes(t *testing.T) {
	terms := func(pod *corev1.Pod) []corev1.NodeSelectorTerm {
		if pod.Spec.Affinity == nil {
			return nil
		}
		return pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	}
	explicit := func(vmi *kubevirt.VMI) { vmi.Spec.Domain.CPU = &kubevirt.CPU{Model: "Skylake"} }
	two := func(vmi *kubevirt.VMI) {
		vmi.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
				{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "a", Operator: corev1.NodeSelectorOpExists}}},
				{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"n"}}}},
			}},
		}}
	}
	if got := terms(Pod(machine(explicit), settings())); got != nil {
		t.Errorf("explicit CPU model: %v", got)
	}
	if got := Pod(machine(explicit), settings()).Spec.NodeSelector["cpu-model.node.kubevirt.io/Skylake"]; got != "true" {
		t.Errorf("explicit CPU model: node label %q", got)
	}
	vmi := machine(two)
	got := terms(Pod(vmi, settings()))
	if len(got) != 2 || len(got[0].MatchExpressions) != 2 || len(got[1].MatchExpressions) != 1 {
		t.Errorf("every term needs the requirement: %v", got)
	}
	if len(vmi.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchExpressions) != 1 {
		t.Error("the instance's own affinity has changed")
	}
}

func TestLabelsAndAnnotationsOfTheInstanceAreCopied(t *testing.T) {
	pod := Pod(machine(func(vmi *kubevirt.VMI) {
		vmi.Labels = map[string]string{"tier": "web", kubevirt.ComponentLabel: "spoofed"}
		vmi.Annotations = map[string]string{"any": "thing", "kubectl.kubernetes.io/x": "y", "kubevirt.io/latest-observed-api-version": "v1"}
	}), settings())
	if pod.Labels["tier"] != "web" || pod.Labels[kubevirt.ComponentLabel] != kubevirt.LauncherComponent || pod.Labels[kubevirt.CreatedByLabel] != "1-2-3" {
		t.Errorf("labels are %v", pod.Labels)
	}
	for key, want := range map[string]string{"any": "thing", "kubectl.kubernetes.io/x": "", "kubevirt.io/latest-observed-api-version": "", "kubevirt.io/domain": "vm"} {
		if got := pod.Annotations[key]; got != want {
			t.Errorf("annotation %s is %q, want %q", key, got, want)
		}
	}
}

func TestTargetTakesTheImageOfNowAndTheDisksOfTheSource(t *testing.T) {
	vmi, digest := machine(disk), "disks.example/os@sha256:abc"
	source := Pod(vmi, settings())
	source.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "volumeroot", ImageID: digest}}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{kubevirt.HostModelLabel + "Skylake": "true"}}}
	now := settings()
	now.Image = "registry.example/kubevirt/virt-launcher:v2"
	migration := &metav1.ObjectMeta{Name: "m", UID: "4-5-6"}
	target := Target(vmi, now, migration, source, node)
	found := references(target)
	if found[ComputeContainer] != now.Image || found["volumes/root"] != digest || found["volumes/launcher-volume"] != "" || found["volumeroot"] != "" {
		t.Errorf("images are %v", found)
	}
	if target.Labels[kubevirt.MigrationUIDLabel] != "4-5-6" || target.Spec.NodeSelector[kubevirt.MigrationModelLabel+"Skylake"] != "true" {
		t.Errorf("labels %v, node selector %v", target.Labels, target.Spec.NodeSelector)
	}
	if away := target.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution; len(away) != 1 ||
		away[0].LabelSelector.MatchLabels[kubevirt.CreatedByLabel] != "1-2-3" {
		t.Errorf("anti-affinity is %v", away)
	}
	again := Target(vmi, now, migration, target, node)
	if references(again)["volumes/root"] != digest {
		t.Errorf("a second migration forgets the digest: %v", references(again))
	}
}
