// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

package hco

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func hyperConverged(spec fields, annotation string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: fields{"metadata": fields{"namespace": "kubevirt"}, "spec": spec}}
	if annotation != "" {
		object.SetAnnotations(map[string]string{Annotation: annotation})
	}
	return object
}

// rendered is the spec that HCO makes of a HyperConverged on a cluster with three control-plane nodes.
func rendered(t *testing.T, spec fields, annotation string) fields {
	t.Helper()
	result, err := render(hyperConverged(spec, annotation), 3)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func TestAnnotation(t *testing.T) {
	const one = `{"patch":"{}"}`
	item := fields{"patch": "{}"}
	for name, test := range map[string]struct {
		annotation string
		path       []string
		want       any
	}{
		"add list": {`[{"op":"add","path":"/spec/customizeComponents/patches","value":[` + one + `]}]`,
			[]string{"customizeComponents", "patches"}, []any{item}},
		"seed, then append": {`[{"op":"add","path":"/spec/customizeComponents/patches","value":[]},` +
			`{"op":"add","path":"/spec/customizeComponents/patches/-","value":` + one + `}]`,
			[]string{"customizeComponents", "patches"}, []any{item}},
		"second seed replaces": {`[{"op":"add","path":"/spec/customizeComponents/patches","value":[1,2]},` +
			`{"op":"add","path":"/spec/customizeComponents/patches","value":[` + one + `]}]`,
			[]string{"customizeComponents", "patches"}, []any{item}},
		"empty a list": {`[{"op":"replace","path":"/spec/workloadUpdateStrategy/workloadUpdateMethods","value":[]}]`,
			[]string{"workloadUpdateStrategy", "workloadUpdateMethods"}, nil},
		"removing a field does nothing": {`[{"op":"remove","path":"/spec/workloadUpdateStrategy/workloadUpdateMethods"}]`,
			[]string{"workloadUpdateStrategy", "workloadUpdateMethods"}, []any{"LiveMigrate"}},
		"build on an earlier one (seen)": {`[{"op":"add","path":"/spec/workloads","value":{"nodePlacement":{}}},` +
			`{"op":"add","path":"/spec/workloads/nodePlacement/nodeSelector","value":{"a":"b"}}]`,
			[]string{"workloads", "nodePlacement", "nodeSelector"}, fields{"a": "b"}},
		"add workloads": {`[{"op":"add","path":"/spec/workloads","value":{"replicas":1}}]`,
			[]string{"workloads", "replicas"}, int64(1)},
	} {
		if got := nested(rendered(t, fields{}, test.annotation), test.path...); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// TestDecoding compares with Go's own decoding, which is what HCO does.
func TestDecoding(t *testing.T) {
	const placement = `{"nodeSelector":{"a":"1","b":"2"},"tolerations":[{"key":"x","operator":"Exists"},{"key":"y"}],"affinity":` +
		`{"podAffinity":{},"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchFields":` +
		`[{"key":"f","operator":"In","values":["n"]}],"matchExpressions":[{"key":"zone","operator":"In","values":["a","b"]}]},{}]}}}}`
	for _, top := range []string{
		`{}`, `{"nodeSelector":{"a":"3"}}`, `{"nodeSelector":{}}`, `{"tolerations":[]}`, `{"tolerations":[{"key":"z"}]}`, `{"affinity":null}`,
		`{"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":` +
			`[{"key":"pool","operator":"DoesNotExist"},{"key":"gpu","operator":"Exists"}]}]}}}}`,
		`{"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":` +
			`[{"key":"pool","operator":"DoesNotExist","values":[]}],"matchFields":[]}]}}}}`,
	} {
		var ours, patch, theirs fields
		var decoded struct {
			NodeSelector map[string]string   `json:"nodeSelector,omitempty"`
			Affinity     *corev1.Affinity    `json:"affinity,omitempty"`
			Tolerations  []corev1.Toleration `json:"tolerations,omitempty"`
		}
		for text, into := range map[string]any{placement: &ours, top: &patch} {
			if err := json.Unmarshal([]byte(text), into); err != nil {
				t.Fatal(err)
			}
		}
		for _, text := range []string{placement, top} {
			if err := json.Unmarshal([]byte(text), &decoded); err != nil {
				t.Fatal(err)
			}
		}
		written, err := json.Marshal(decoded)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(written, &theirs); err != nil {
			t.Fatal(err)
		}
		if got := withoutEmptyLists(overlay(ours, patch)); !reflect.DeepEqual(got, any(theirs)) {
			t.Errorf("%s:\n%v, want\n%v", top, got, theirs)
		}
	}
}

// TestDegraded: seen on the real one.
func TestDegraded(t *testing.T) {
	for _, status := range []string{"True", "False"} {
		live := &unstructured.Unstructured{Object: fields{"status": fields{"conditions": []any{
			fields{"type": "Degraded", "status": status, "message": "refused"},
		}}}}
		found := map[string]any{}
		for _, item := range conditions(hyperConverged(fields{}, "[]"), live, nil, time.Now()) {
			found[item.(fields)["type"].(string)] = item.(fields)["status"]
		}
		upgradeable := map[string]string{"True": "False", "False": "True"}[status]
		if found["Degraded"] != status || found["Upgradeable"] != upgradeable || found["TaintedConfiguration"] != "True" {
			t.Errorf("KubeVirt is degraded %s: HCO %v", status, found)
		}
	}
}

func TestBadAnnotation(t *testing.T) {
	for annotation, want := range map[string]string{
		`[{`: "unexpected end",
		`[{"op":"add","path":"/metadata/labels/a","value":"b"}]`:                 "can only modify spec fields",
		`[{"op":"test","path":"/spec/productName","value":"b"}]`:                 "failed",
		`[{"op":"add","path":"/spec/workloads/nodePlacement","value":{}}]`:       "missing path",
		`[{"op":"add","path":"/spec/customizeComponents/patches/-","value":{}}]`: "missing path",
	} {
		if _, err := render(hyperConverged(fields{}, annotation), 3); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", annotation, err, want)
		}
	}
}

func TestWhatUsersSet(t *testing.T) {
	placement := fields{"nodeSelector": fields{"a": "b"}}
	virtualization := func(field string, value any) fields { return fields{"virtualization": fields{field: value}} }
	placed := func(component string) fields {
		return fields{"deployment": fields{"nodePlacements": fields{component: placement}}}
	}
	for name, test := range map[string]struct {
		spec fields
		path []string
		want any
	}{
		"workloads": {placed("workload"), []string{"workloads"}, fields{"nodePlacement": placement}},
		"infra":     {placed("infra"), []string{"infra"}, fields{"nodePlacement": placement}},
		"eviction":  {virtualization("evictionStrategy", "None"), []string{"configuration", "evictionStrategy"}, "None"},
		"no update methods": {virtualization("workloadUpdateStrategy", fields{"workloadUpdateMethods": []any{}}),
			[]string{"workloadUpdateStrategy", "workloadUpdateMethods"}, nil},
		"obsolete model": {virtualization("obsoleteCPUModels", []any{"Nehalem"}),
			[]string{"configuration", "obsoleteCPUModels", "Nehalem"}, true},
		"devices (seen)": {virtualization("permittedHostDevices", fields{
			"pciHostDevices": []any{
				fields{"pciDeviceSelector": "10DE:0001", "resourceName": "nvidia.com/a", "externalResourceProvider": true},
				fields{"pciDeviceSelector": "10DE:0002", "resourceName": "nvidia.com/b", "disabled": true},
			},
			"usbHostDevices": []any{fields{"resourceName": "usb.com/c"}},
		}), []string{"configuration", "permittedHostDevices"}, fields{
			"pciHostDevices": []any{
				fields{"pciVendorSelector": "10DE:0001", "resourceName": "nvidia.com/a", "externalResourceProvider": true},
			},
			"usb": []any{fields{"resourceName": "usb.com/c"}},
		}},
	} {
		if got := nested(rendered(t, test.spec, ""), test.path...); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// TestReplicas: seen on the real one.
func TestReplicas(t *testing.T) {
	placement := fields{"nodeSelector": fields{"a": "b"}}
	placed := fields{"deployment": fields{"nodePlacements": fields{"infra": placement}}}
	for _, test := range []struct {
		spec          fields
		controlPlanes int
		want          any
	}{
		{fields{}, 1, fields{"replicas": int64(1)}},
		{fields{}, 2, nil},
		{placed, 1, fields{"nodePlacement": placement, "replicas": int64(1)}},
		{placed, 2, fields{"nodePlacement": placement}},
	} {
		got, err := render(hyperConverged(test.spec, ""), test.controlPlanes)
		if err != nil || !reflect.DeepEqual(got["infra"], test.want) {
			t.Errorf("%d nodes, %v: %v (%v), want %v", test.controlPlanes, test.spec, got["infra"], err, test.want)
		}
	}
}

// TestDefaultRender: seen on the real one.
func TestDefaultRender(t *testing.T) {
	configuration := rendered(t, fields{}, "")["configuration"].(fields)
	for _, test := range []struct {
		path []string
		want any
	}{
		{[]string{"architectureConfiguration", "amd64"}, fields{"machineType": "q35", "emulatedMachines": []any{"q35*", "pc-q35*"}}},
		{[]string{"architectureConfiguration", "defaultArchitecture"}, "amd64"},
		{[]string{"network", "binding", "l2bridge"}, fields{"domainAttachmentType": "managedTap", "migration": fields{}}},
		{[]string{"obsoleteCPUModels", "486-v1"}, true},
		{[]string{"seccompConfiguration", "virtualMachineInstanceProfile", "customProfile", "localhostProfile"}, "kubevirt/kubevirt.json"},
		{[]string{"tlsConfiguration", "minTLSVersion"}, "VersionTLS12"},
		{[]string{"permittedHostDevices"}, nil},
	} {
		if got := nested(configuration, test.path...); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%v: %v, want %v", test.path, got, test.want)
		}
	}
	if models, ciphers := configuration["obsoleteCPUModels"], nested(configuration, "tlsConfiguration", "ciphers"); len(models.(fields)) != 34 ||
		len(ciphers.([]any)) != 9 {
		t.Errorf("obsolete models %v, ciphers %v", models, ciphers)
	}
}
