// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

package builds

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	v1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

type object = map[string]any

var (
	a = Builds["additionalVirtHandlers"]
	b = Builds["virtHandlerPools"]
	c = Builds["WorkerPool"]
)

func gpu() Pool {
	return Pool{
		Name: "gpu", NodeSelector: map[string]string{"hw": "gpu"}, HandlerImage: "handler:gpu", LauncherImage: "launcher:gpu",
		Selector: &Selector{DeviceNames: []string{"nvidia.com/A100"}},
	}
}

func in(key, value string) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{value}}
}

func notIn(key, value string) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpNotIn, Values: []string{value}}
}

func term(requirements ...corev1.NodeSelectorRequirement) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchExpressions: requirements}
}

func required(terms ...corev1.NodeSelectorTerm) *corev1.Affinity {
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms},
	}}
}

func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func TestExclusion(t *testing.T) {
	pools := []Pool{gpu(), {Name: "two", NodeSelector: map[string]string{"z": "1", "a": "2"}}}
	off := []corev1.NodeSelectorRequirement{notIn("hw", "gpu"), notIn("a", "2"), notIn("z", "1")}
	for name, test := range map[string]struct {
		build  Build
		before *corev1.Affinity
		want   *corev1.Affinity
	}{
		"A, without terms":                 {a, nil, required(term(off...))},
		"A, in every term":                 {a, required(term(in("x", "1")), term(in("y", "1"))), required(term(append([]corev1.NodeSelectorRequirement{in("x", "1")}, off...)...), term(append([]corev1.NodeSelectorRequirement{in("y", "1")}, off...)...))},
		"B, without terms":                 {b, nil, required(term(off...))},
		"B, defeated by the user's term":   {b, required(term(in("x", "1"))), required(term(off...), term(in("x", "1")))},
		"C, as in B, one more term at all": {c, required(term(in("x", "1"))), required(term(off...), term(in("x", "1")))},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.PodSpec{Affinity: test.before}
			test.build.exclude(pod, pools)
			equal(t, "affinity", pod.Affinity, test.want)
		})
	}
	pod := &corev1.PodSpec{}
	a.exclude(pod, nil)
	equal(t, "without pools", pod, &corev1.PodSpec{})
}

// primary is one with everything that builds treat in different ways.
func primary() *appsv1.DaemonSet {
	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{
			Name: "virt-handler", Namespace: "kubevirt", Labels: map[string]string{"kubevirt.io": "virt-handler", "app.kubernetes.io/managed-by": "virt-operator"},
			Annotations: map[string]string{generationAnnotation: "3", templateGeneration: "7"},
		},
		Spec: appsv1.DaemonSetSpec{Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"kubevirt.io": "virt-handler"}},
			Spec: corev1.PodSpec{
				ServiceAccountName: "kubevirt-handler",
				NodeSelector:       map[string]string{osLabel: "linux", "site": "north"},
				Affinity:           required(term(notIn("hw", "gpu")), term(in("x", "1"))),
				Tolerations:        []corev1.Toleration{{Key: "CriticalAddonsOnly", Operator: "Exists"}, {Key: "dedicated", Operator: "Exists"}},
				InitContainers:     []corev1.Container{{Name: "virt-launcher", Image: "launcher:stock"}},
				Containers: []corev1.Container{
					{Name: "virt-handler", Image: "handler:stock", Command: []string{"virt-handler", "--port", "8443", "--max-devices", "50"}},
					{Name: "virt-launcher-image-holder", Image: "launcher:stock"},
				},
			},
		}},
	}
}

func placed() *kubeVirt {
	kv := &kubeVirt{}
	placement := &kv.Spec.Workloads.NodePlacement
	placement.NodeSelector = map[string]string{"site": "north"}
	placement.Tolerations = []corev1.Toleration{{Key: "dedicated", Operator: "Exists"}}
	placement.Affinity = required(term(in("x", "1")))
	return kv
}

func images(pod corev1.PodSpec) []string {
	return []string{pod.Containers[0].Image, pod.InitContainers[0].Image, pod.Containers[1].Image}
}

func TestDaemonSetOfAPool(t *testing.T) {
	all := []string{"handler:gpu", "launcher:gpu", "launcher:gpu"}
	for name, test := range map[string]struct {
		build        Build
		label        string
		images       []string
		nodeSelector map[string]string
		affinity     *corev1.Affinity
		tolerations  int
		maxDevices   bool
	}{
		"A": {a, "kubevirt.io/handler-pool", all, map[string]string{osLabel: "linux", "hw": "gpu"}, nil, 1, true},
		"B": {b, "kubevirt.io/handler-pool", all, map[string]string{osLabel: "linux", "site": "north", "hw": "gpu"}, required(term(in("x", "1"))), 2, false},
		"C": {
			c, "kubevirt.io/worker-pool", []string{"handler:gpu", "launcher:stock", "launcher:stock"},
			map[string]string{osLabel: "linux", "hw": "gpu"}, required(term(in("x", "1"))), 2, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			made := test.build.daemonSet(primary(), placed(), gpu(), test.build.identity(true, []Pool{gpu()}))
			pod := made.Spec.Template.Spec
			marks := map[string]string{"kubevirt.io": "virt-handler", test.label: "gpu"}
			equal(t, "name", made.Name, "virt-handler-gpu")
			equal(t, "selector", made.Spec.Selector.MatchLabels, marks)
			equal(t, "pod labels", made.Spec.Template.Labels, marks)
			equal(t, "labels", made.Labels, with(marks, map[string]string{"app.kubernetes.io/managed-by": "virt-operator"}))
			equal(t, "annotations", made.Annotations, map[string]string{generationAnnotation: "3"})
			equal(t, "service account", pod.ServiceAccountName, "kubevirt-handler")
			equal(t, "images", images(pod), test.images)
			equal(t, "nodeSelector", pod.NodeSelector, test.nodeSelector)
			equal(t, "affinity", pod.Affinity, test.affinity)
			equal(t, "tolerations", len(pod.Tolerations), test.tolerations)
			equal(t, "max-devices", strings.Contains(strings.Join(pod.Containers[0].Command, " "), "--max-devices 50"), test.maxDevices)
		})
	}
}

func TestPoolWithoutImagesHasTheStockOnes(t *testing.T) {
	made := a.daemonSet(primary(), placed(), Pool{Name: "bare", NodeSelector: map[string]string{"hw": "x"}}, "")
	equal(t, "images", images(made.Spec.Template.Spec), []string{"handler:stock", "launcher:stock", "launcher:stock"})
}

func TestOnlyInAThePoolsAreInTheDeploymentID(t *testing.T) {
	other := gpu()
	other.LauncherImage = "launcher:other"
	one, two, none := a.identity(true, []Pool{gpu()}), a.identity(true, []Pool{other}), a.identity(true, nil)
	if one == two || one == none || none == "" {
		t.Errorf("an edit, and the gate alone, must change it: %q, %q, %q", one, two, none)
	}
	equal(t, "without the gate", a.identity(false, []Pool{gpu()}), "")
	equal(t, "B", b.identity(true, []Pool{gpu()}), "")
	equal(t, "C", c.identity(true, []Pool{gpu()}), "")
}

func vm(labels, nodeSelector map[string]string, gpus, host []string) *machine {
	made := &machine{ObjectMeta: metav1.ObjectMeta{Labels: labels}}
	made.Spec.NodeSelector = nodeSelector
	for _, name := range gpus {
		made.Spec.Domain.Devices.GPUs = append(made.Spec.Domain.Devices.GPUs, device{name})
	}
	for _, name := range host {
		made.Spec.Domain.Devices.HostDevices = append(made.Spec.Domain.Devices.HostDevices, device{name})
	}
	return made
}

func TestMatch(t *testing.T) {
	edge := Pool{Name: "edge", NodeSelector: map[string]string{"site": "edge", "hw": "arm"}, Selector: &Selector{
		VMLabels: &LabelSelector{MatchLabels: map[string]string{"x": "1", "y": "2"}},
	}}
	pools := []Pool{gpu(), edge}
	for name, test := range map[string]struct {
		build Build
		vm    *machine
		want  string
	}{
		"A: the whole nodeSelector":       {a, vm(nil, map[string]string{"site": "edge", "hw": "arm", "more": "1"}, nil, nil), "edge"},
		"A: a part of it":                 {a, vm(nil, map[string]string{"site": "edge"}, nil, nil), ""},
		"A: no device":                    {a, vm(nil, nil, []string{"nvidia.com/A100"}, nil), ""},
		"B: a GPU":                        {b, vm(nil, nil, []string{"nvidia.com/A100"}, nil), "gpu"},
		"B: a host device":                {b, vm(nil, nil, nil, []string{"nvidia.com/A100"}), "gpu"},
		"B: all labels":                   {b, vm(map[string]string{"x": "1", "y": "2", "z": "3"}, nil, nil, nil), "edge"},
		"B: one label":                    {b, vm(map[string]string{"x": "1"}, nil, nil, nil), ""},
		"B: both, the first in the list":  {b, vm(map[string]string{"x": "1", "y": "2"}, nil, []string{"nvidia.com/A100"}, nil), "gpu"},
		"C: no nodeSelector":              {c, vm(nil, map[string]string{"hw": "gpu"}, nil, nil), ""},
		"C: a GPU":                        {c, vm(nil, nil, []string{"nvidia.com/A100"}, nil), "gpu"},
		"C: nothing that a pool asks for": {c, vm(nil, nil, []string{"nvidia.com/L40S"}, nil), ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if pool := test.build.match(pools, test.vm); pool != nil {
				got = pool.Name
			}
			equal(t, "pool", got, test.want)
		})
	}
}

func launcher() *corev1.Pod {
	return &corev1.Pod{Spec: corev1.PodSpec{
		Affinity:       required(term(in("x", "1")), term(in("y", "1"))),
		InitContainers: []corev1.Container{{Name: "container-disk-binary", Image: "launcher:stock"}},
		Containers:     []corev1.Container{{Name: "sidecar", Image: "hook:1"}, {Name: "compute", Image: "launcher:stock"}},
		Volumes: []corev1.Volume{
			{Name: "binary", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "launcher:stock"}}},
			{Name: "disk", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "fedora:42"}}},
		},
	}}
}

func TestLauncherPod(t *testing.T) {
	for name, test := range map[string]struct {
		build  Build
		label  string
		volume string
		leads  bool
	}{
		"A": {a, "kubevirt.io/handler-pool", "launcher:gpu", false},
		"B": {b, "kubevirt.io/handler-pool", "launcher:stock", true},
		"C": {c, "kubevirt.io/worker-pool", "launcher:stock", true},
	} {
		t.Run(name, func(t *testing.T) {
			pod, pool := launcher(), gpu()
			test.build.render(pod, &pool)
			equal(t, "annotations", pod.Annotations, map[string]string{test.label: "gpu"})
			equal(t, "init", pod.Spec.InitContainers[0].Image, "launcher:gpu")
			equal(t, "sidecar", pod.Spec.Containers[0].Image, "hook:1")
			equal(t, "compute", pod.Spec.Containers[1].Image, "launcher:gpu")
			equal(t, "image volume", pod.Spec.Volumes[0].Image.Reference, test.volume)
			equal(t, "disk", pod.Spec.Volumes[1].Image.Reference, "fedora:42")
			want := launcher().Spec.Affinity
			if test.leads {
				want = required(term(in("x", "1"), in("hw", "gpu")), term(in("y", "1"), in("hw", "gpu")))
			}
			equal(t, "affinity", pod.Spec.Affinity, want)
		})
	}
}

func TestHandlerImageAloneLeavesTheLauncher(t *testing.T) {
	pod, pool := launcher(), gpu()
	pool.LauncherImage = ""
	b.render(pod, &pool)
	equal(t, "compute", pod.Spec.Containers[1].Image, "launcher:stock")
	equal(t, "annotations", pod.Annotations, map[string]string{b.Label: "gpu"})
}

func kv(gates []any, field string, list ...any) *unstructured.Unstructured {
	spec := object{"configuration": object{"developerConfiguration": object{"featureGates": gates}}}
	if len(list) > 0 {
		spec[field] = list
	}
	return &unstructured.Unstructured{Object: object{"metadata": object{"name": "kubevirt"}, "spec": spec}}
}

func entry(change func(object)) object {
	made := object{
		"name": "gpu", "nodeSelector": object{"hw": "gpu"}, "virtHandlerImage": "h:1",
		"selector": object{"deviceNames": []any{"nvidia.com/A100"}},
	}
	change(made)
	return made
}

func TestRefusals(t *testing.T) {
	on, same := []any{b.Gate}, func(object) {}
	for name, test := range map[string]struct {
		build  Build
		object *unstructured.Unstructured
		want   string
	}{
		"B: as it should be": {b, kv(on, b.Field, entry(same)), ""},
		"B: without gate":    {b, kv(nil, b.Field, entry(same)), "requires the VirtHandlerPools feature gate"},
		"B: twice":           {b, kv(on, b.Field, entry(same), entry(same)), `duplicate pool name "gpu"`},
		"B: no image":        {b, kv(on, b.Field, entry(func(o object) { delete(o, "virtHandlerImage") })), "at least one of virtHandlerImage"},
		"B: no nodes":        {b, kv(on, b.Field, entry(func(o object) { o["nodeSelector"] = object{} })), "nodeSelector must not be empty"},
		"B: no criterion":    {b, kv(on, b.Field, entry(func(o object) { o["selector"] = object{} })), "at least one of deviceNames or vmLabels"},
		"B: an empty device": {b, kv(on, b.Field, entry(func(o object) { o["selector"] = object{"deviceNames": []any{""}} })), "empty entries"},
		"B: no labels": {b, kv(on, b.Field, entry(func(o object) {
			o["selector"] = object{"deviceNames": []any{"x"}, "vmLabels": object{"matchLabels": object{}}}
		})), "matchLabels must not be empty"},
		"A: anything goes":                {a, kv(nil, a.Field, object{"name": "gpu"}, object{"name": "gpu"}), ""},
		"C: nothing about the KubeVirt's": {c, kv(nil, ""), ""},
	} {
		t.Run(name, func(t *testing.T) {
			said := ""
			if err := test.build.refuseKubeVirt(test.object); err != nil {
				said = err.Error()
			}
			if (test.want == "") != (said == "") || !strings.Contains(said, test.want) {
				t.Errorf("said %q, want %q", said, test.want)
			}
		})
	}
}

func TestRefusalsOfObjects(t *testing.T) {
	for want, spec := range map[string]object{
		"":                               {"nodeSelector": object{"hw": "gpu"}, "virtLauncherImage": "l:1", "selector": object{"deviceNames": []any{""}}},
		"at least one of virtHandler":    {"nodeSelector": object{"hw": "gpu"}, "selector": object{"deviceNames": []any{"x"}}},
		"nodeSelector must not be empty": {"nodeSelector": object{}, "virtLauncherImage": "l:1", "selector": object{"deviceNames": []any{"x"}}},
		"at least one of deviceNames":    {"nodeSelector": object{"hw": "gpu"}, "virtLauncherImage": "l:1", "selector": object{}},
	} {
		raw, _ := json.Marshal(object{"spec": spec})
		err := refuseObject(&admissionv1.AdmissionRequest{Object: runtime.RawExtension{Raw: raw}})
		if (want == "") != (err == nil) || (err != nil && !strings.Contains(err.Error(), want)) {
			t.Errorf("said %v, want %q", err, want)
		}
	}
}

func TestReading(t *testing.T) {
	read, err := b.read(kv([]any{b.Gate}, b.Field, entry(func(object) {})))
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "gate", b.on(read), true)
	equal(t, "list", read.list, []Pool{{
		Name: "gpu", NodeSelector: map[string]string{"hw": "gpu"}, HandlerImage: "h:1", Selector: &Selector{DeviceNames: []string{"nvidia.com/A100"}},
	}})
	read.Spec.Configuration.DeveloperConfiguration.DisabledFeatureGates = []string{b.Gate}
	equal(t, "a disabled gate", b.on(read), false)
}

func TestPoolObjectsAreAskedByName(t *testing.T) {
	var objects []unstructured.Unstructured
	for _, name := range []string{"z", "a"} {
		objects = append(objects, unstructured.Unstructured{Object: object{"metadata": object{"name": name}, "spec": object{"virtHandlerImage": name}}})
	}
	pools, err := readPools(objects)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "pools", pools, []Pool{{Name: "a", HandlerImage: "a"}, {Name: "z", HandlerImage: "z"}})
}

func TestDefinitionGetsTheFieldOnce(t *testing.T) {
	spec := v1.JSONSchemaProps{Type: "object", Properties: map[string]v1.JSONSchemaProps{"infra": {Type: "object"}}}
	schema := &v1.JSONSchemaProps{Type: "object", Properties: map[string]v1.JSONSchemaProps{"spec": spec}}
	definition := &v1.CustomResourceDefinition{Spec: v1.CustomResourceDefinitionSpec{Versions: []v1.CustomResourceDefinitionVersion{
		{Name: "v1", Schema: &v1.CustomResourceValidation{OpenAPIV3Schema: schema}},
	}}}
	equal(t, "first", a.extend(definition), true)
	equal(t, "again", a.extend(definition), false)
	list := schema.Properties["spec"].Properties["additionalVirtHandlers"]
	equal(t, "keys of the list map", list.XListMapKeys, []string{"name"})
}

func TestUpgradesAreThoseOfVirtOperator(t *testing.T) {
	for _, test := range []struct {
		observed, target string
		want             bool
	}{{"", "v1.9.0", false}, {"v1.9.0", "v1.9.0", false}, {"v1.8.2", "v1.9.0", true}, {"v1.9.0", "v1.8.2", false}, {"devel", "devel", true}} {
		kv := &kubeVirt{}
		kv.Status.ObservedVersion, kv.Status.TargetVersion = test.observed, test.target
		equal(t, test.observed+" to "+test.target, upgrades(kv), test.want)
	}
}
