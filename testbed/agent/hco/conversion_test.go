// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

package hco

import (
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
)

func versioned(version string, spec fields) fields {
	return fields{
		"apiVersion": Resource.Group + "/" + version, "kind": "HyperConverged",
		"metadata": fields{"name": Name, "annotations": fields{Annotation: "[]"}}, "spec": spec,
	}
}

func TestConversion(t *testing.T) {
	placement, strategy := fields{"nodeSelector": fields{"a": "b"}}, fields{"workloadUpdateMethods": []any{}}
	usual := gatesToBeta1(nil)
	changed := gatesToBeta1([]any{fields{"name": "downwardMetrics"}, fields{"name": "template", "state": "Disabled"}})
	for name, test := range map[string]struct{ v1, v1beta1 fields }{
		"nothing set": {fields{}, fields{"infra": fields{}, "workloads": fields{}, "featureGates": usual}},
		"placements": {
			fields{"deployment": fields{"nodePlacements": fields{"workload": placement, "infra": placement}}},
			fields{"workloads": fields{"nodePlacement": placement}, "infra": fields{"nodePlacement": placement}, "featureGates": usual},
		},
		"beside other fields": {
			fields{
				"deployment":     fields{"deployVmConsoleProxy": false, "uninstallStrategy": "RemoveWorkloads"},
				"virtualization": fields{"vmiCPUAllocationRatio": int64(10), "evictionStrategy": "None", "workloadUpdateStrategy": strategy},
				"security":       fields{"certConfig": fields{}},
			},
			fields{
				"deployment": fields{"deployVmConsoleProxy": false}, "uninstallStrategy": "RemoveWorkloads",
				"virtualization": fields{"vmiCPUAllocationRatio": int64(10)}, "evictionStrategy": "None", "workloadUpdateStrategy": strategy,
				"security": fields{"certConfig": fields{}},
				"infra":    fields{}, "workloads": fields{}, "featureGates": usual,
			},
		},
		"devices and models": {
			fields{"virtualization": fields{"permittedHostDevices": fields{"pciHostDevices": []any{}}, "obsoleteCPUModels": []any{"a"}}},
			fields{
				"permittedHostDevices": fields{"pciHostDevices": []any{}}, "obsoleteCPUs": fields{"cpuModels": []any{"a"}},
				"infra": fields{}, "workloads": fields{}, "featureGates": usual,
			},
		},
		"gates": {
			fields{"featureGates": []any{fields{"name": "downwardMetrics"}, fields{"name": "template", "state": "Disabled"}}},
			fields{"infra": fields{}, "workloads": fields{}, "featureGates": changed},
		},
	} {
		v1, v1beta1 := versioned("v1", test.v1), versioned("v1beta1", test.v1beta1)
		for _, way := range []struct{ from, to fields }{{v1, v1beta1}, {v1beta1, v1}, {v1, v1}} {
			got := runtime.DeepCopyJSON(way.from)
			if err := Convert(got, way.to["apiVersion"].(string)); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, way.to) {
				t.Errorf("%s, to %v:\n%v, want\n%v", name, way.to["apiVersion"], got, way.to)
			}
		}
	}
}

func TestConversionToAnother(t *testing.T) {
	if err := Convert(versioned("v1", fields{}), Resource.Group+"/v2"); err == nil || !strings.Contains(err.Error(), "v2") {
		t.Errorf("error %v", err)
	}
}
