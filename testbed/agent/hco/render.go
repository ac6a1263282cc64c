// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

package hco

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "k8s.io/apimachinery/pkg/util/json"
)

type fields = map[string]any

// render makes the KubeVirt object's spec from a HyperConverged, annotation included.
func render(hyperConverged *unstructured.Unstructured) (fields, error) {
	spec := defaults(hyperConverged.GetNamespace())
	own, _, err := unstructured.NestedMap(hyperConverged.Object, "spec")
	if err != nil {
		return nil, err
	}
	applyOperatorFields(spec, own)
	return applyAnnotation(spec, hyperConverged.GetAnnotations()[Annotation])
}

// defaults is what HCO renders from an unchanged HyperConverged: what matters here.
func defaults(namespace string) fields {
	rotation := func(duration, renewBefore string) fields {
		return fields{"duration": duration, "renewBefore": renewBefore}
	}
	return fields{
		"certificateRotateStrategy": fields{"selfSigned": fields{
			"ca": rotation("48h0m0s", "24h0m0s"), "server": rotation("24h0m0s", "12h0m0s"),
		}},
		"configuration": fields{
			"developerConfiguration": fields{
				"cpuAllocationRatio": int64(10),
				"diskVerification":   fields{"memoryLimit": "2G"},
				"memoryOvercommit":   int64(100),
				"featureGates": []any{
					"CPUManager", "DecentralizedLiveMigration", "DeclarativeHotplugVolumes", "ExternalNetResourceInjection",
					"HostDevices", "HypervStrictCheck", "KubevirtSeccompProfile", "Snapshot", "Template",
				},
				"disabledFeatureGates": []any{
					"GPUsWithDRA", "HostDevicesWithDRA", "ImageVolume", "LibvirtHooksServerAndClient", "NodeRestriction",
					"OptOutRoleAggregation", "PasstBinding", "PodSecondaryInterfaceNamingUpgrade", "RebootPolicy",
					"VmiMemoryOverheadReport", "WorkloadEncryptionSEV",
				},
			},
			"evictionStrategy": "LiveMigrate",
			"ksmConfiguration": fields{},
			"migrations": fields{
				"allowAutoConverge": false, "allowPostCopy": false, "allowWorkloadDisruption": false,
				"completionTimeoutPerGiB": int64(20), "parallelMigrationsPerCluster": int64(5),
				"parallelOutboundMigrationsPerNode": int64(1), "progressTimeout": int64(150),
			},
			"network":           fields{"defaultNetworkInterface": "masquerade"},
			"smbios":            fields{"family": "KubeVirt", "manufacturer": "KubeVirt", "product": "None"},
			"vmRolloutStrategy": "LiveUpdate",
		},
		"customizeComponents":     fields{},
		"productComponent":        "compute",
		"productName":             "hyperconverged-cluster",
		"productVersion":          Version,
		"serviceMonitorNamespace": namespace,
		"uninstallStrategy":       "BlockUninstallIfWorkloadsExist",
		"workloadUpdateStrategy": fields{
			"batchEvictionInterval": "1m0s", "batchEvictionSize": int64(10),
			"workloadUpdateMethods": []any{"LiveMigrate"},
		},
	}
}

// applyOperatorFields reads the fields of both API versions; where both are set, those of v1beta1 win.
func applyOperatorFields(spec, own fields) {
	for _, path := range [][]string{{"virtualization", "workloadUpdateStrategy"}, {"workloadUpdateStrategy"}} {
		if given, ok := nested(own, path...).(fields); ok {
			maps.Copy(spec["workloadUpdateStrategy"].(fields), withoutNulls(given))
		}
	}
	for component, paths := range map[string][][]string{
		"workloads": {{"deployment", "nodePlacements", "workload"}, {"workloads", "nodePlacement"}},
		"infra":     {{"deployment", "nodePlacements", "infra"}, {"infra", "nodePlacement"}},
	} {
		for _, path := range paths {
			if given, ok := nested(own, path...).(fields); ok && len(given) > 0 {
				spec[component] = fields{"nodePlacement": given}
			}
		}
	}
	for _, path := range [][]string{{"virtualization", "evictionStrategy"}, {"evictionStrategy"}} {
		if given, ok := nested(own, path...).(string); ok {
			spec["configuration"].(fields)["evictionStrategy"] = given
		}
	}
	applyGates(spec["configuration"].(fields)["developerConfiguration"].(fields), own["featureGates"])
}

func nested(from fields, path ...string) any {
	value, _, err := unstructured.NestedFieldNoCopy(from, path...)
	if err != nil {
		return nil
	}
	return value
}

func withoutNulls(given fields) fields {
	kept := fields{}
	for key, value := range given {
		if value != nil {
			kept[key] = value
		}
	}
	return kept
}

// gates are HCO's own names of KubeVirt's gates (read). HCO ignores all others, with a warning (seen on the real one); it has
// some that are no gates of KubeVirt.
var gates = map[string]string{
	"alignCPUs":                  "AlignCPUs",
	"containerPathVolumes":       "ContainerPathVolumes",
	"decentralizedLiveMigration": "DecentralizedLiveMigration",
	"declarativeHotplugVolumes":  "DeclarativeHotplugVolumes",
	"disableMDevConfiguration":   "DisableMDEVConfiguration",
	"downwardMetrics":            "DownwardMetrics",
	"incrementalBackup":          "IncrementalBackup",
	"objectGraph":                "ObjectGraph",
	"persistentReservation":      "PersistentReservation",
	"videoConfig":                "VideoConfig",
}

// applyGates reads v1's list of names and states, or v1beta1's map.
func applyGates(developer fields, given any) {
	switch given := given.(type) {
	case []any:
		for _, item := range given {
			if gate, ok := item.(fields); ok {
				name, _ := gate["name"].(string)
				setGate(developer, name, gate["state"] != "Disabled")
			}
		}
	case fields:
		for name, state := range given {
			setGate(developer, name, state == true)
		}
	}
}

func setGate(developer fields, name string, on bool) {
	gate, known := gates[name]
	if !known {
		return
	}
	enabled := slices.DeleteFunc(developer["featureGates"].([]any), func(found any) bool { return found == gate })
	if on {
		enabled = append(enabled, gate)
		slices.SortFunc(enabled, func(a, b any) int { return strings.Compare(a.(string), b.(string)) })
	}
	developer["featureGates"] = enabled
}

// applyAnnotation applies the JSON patch to a fresh render, so that it never piles up.
func applyAnnotation(spec fields, annotation string) (fields, error) {
	if annotation == "" {
		return spec, nil
	}
	operations, err := jsonpatch.DecodePatch([]byte(annotation))
	if err != nil {
		return nil, fmt.Errorf("invalid jsonPatch in the %s annotation: %w", Annotation, err)
	}
	for _, operation := range operations {
		if path, err := operation.Path(); err != nil || !strings.HasPrefix(path, "/spec/") {
			return nil, fmt.Errorf("invalid jsonPatch in the %s annotation: can only modify spec fields, not %q", Annotation, path)
		}
	}
	before, err := json.Marshal(fields{"spec": spec})
	if err != nil {
		return nil, err
	}
	after, err := operations.Apply(before)
	if err != nil {
		return nil, fmt.Errorf("invalid jsonPatch in the %s annotation: %w", Annotation, err)
	}
	patched := fields{}
	if err := kjson.Unmarshal(after, &patched); err != nil { // whole numbers as the caches have them
		return nil, err
	}
	result, ok := patched["spec"].(fields)
	if !ok {
		return nil, fmt.Errorf("invalid jsonPatch in the %s annotation: spec is not an object", Annotation)
	}
	merged := overlay(spec, result)
	if workloads, ok := merged["workloads"]; ok {
		merged["workloads"] = withoutEmptyLists(workloads)
	}
	return merged, nil
}

// overlay has the effect of decoding the patched JSON into the rendered Go struct: a field that the patch removed
// stays, also in an item of a list, which is decoded into the item at its position.
func overlay(base, top fields) fields {
	result := runtime.DeepCopyJSON(base)
	for key, value := range top {
		if value == nil {
			delete(result, key)
		} else {
			result[key] = decoded(result[key], value)
		}
	}
	return result
}

func decoded(base, top any) any {
	switch top := top.(type) {
	case fields:
		if base, ok := base.(fields); ok {
			return overlay(base, top)
		}
	case []any:
		if base, ok := base.([]any); ok {
			result := slices.Clone(top)
			for i := range min(len(base), len(top)) {
				result[i] = decoded(base[i], top[i])
			}
			return result
		}
	}
	return top
}

// withoutEmptyLists leaves out what Go does when it writes a node placement (omitempty).
func withoutEmptyLists(value any) any {
	switch value := value.(type) {
	case fields:
		kept := fields{}
		for key, item := range value {
			if list, ok := item.([]any); !ok || len(list) > 0 {
				kept[key] = withoutEmptyLists(item)
			}
		}
		return kept
	case []any:
		kept := make([]any, len(value))
		for i, item := range value {
			kept[i] = withoutEmptyLists(item)
		}
		return kept
	}
	return value
}
