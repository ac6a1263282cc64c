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

// render makes the KubeVirt object's spec from a HyperConverged in v1, annotation included. controlPlanes is the number of the
// cluster's control-plane nodes.
func render(hyperConverged *unstructured.Unstructured, controlPlanes int) (fields, error) {
	spec := defaults(hyperConverged.GetNamespace())
	own, _, err := unstructured.NestedMap(hyperConverged.Object, "spec")
	if err != nil {
		return nil, err
	}
	applyFields(spec, own)
	applyPlacements(spec, own, controlPlanes)
	return applyAnnotation(spec, hyperConverged.GetAnnotations()[Annotation])
}

// defaults is what HCO renders from an unchanged HyperConverged, wherever it runs.
func defaults(namespace string) fields {
	rotation := func(duration, renewBefore string) fields {
		return fields{"duration": duration, "renewBefore": renewBefore}
	}
	return fields{
		"certificateRotateStrategy": fields{"selfSigned": fields{
			"ca": rotation("48h0m0s", "24h0m0s"), "server": rotation("24h0m0s", "12h0m0s"),
		}},
		"configuration": fields{
			"architectureConfiguration": fields{
				"amd64":               machines("q35", "q35*", "pc-q35*"),
				"arm64":               machines("virt", "virt*"),
				"defaultArchitecture": "amd64",
				"s390x":               machines("s390-ccw-virtio", "s390-ccw-virtio*"),
			},
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
			"network": fields{
				"binding":                 fields{"l2bridge": fields{"domainAttachmentType": "managedTap", "migration": fields{}}},
				"defaultNetworkInterface": "masquerade",
			},
			"obsoleteCPUModels": obsolete(),
			"seccompConfiguration": fields{"virtualMachineInstanceProfile": fields{
				"customProfile": fields{"localhostProfile": "kubevirt/kubevirt.json"},
			}},
			"smbios": fields{"family": "KubeVirt", "manufacturer": "KubeVirt", "product": "None"},
			"tlsConfiguration": fields{
				"ciphers": []any{
					"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256",
					"TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
					"TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
					"TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
				},
				"minTLSVersion": "VersionTLS12",
			},
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

func machines(kind string, emulated ...any) fields {
	return fields{"machineType": kind, "emulatedMachines": emulated}
}

// obsolete are the CPU models that HCO itself calls obsolete. Each has a version 1.
func obsolete() fields {
	models := fields{}
	for _, model := range strings.Fields("486 Conroe Opteron_G1 Opteron_G2 athlon core2duo coreduo kvm32 kvm64 n270 pentium pentium2 " +
		"pentium3 pentiumpro phenom qemu32 qemu64") {
		models[model], models[model+"-v1"] = true, true
	}
	return models
}

// applyFields renders what the user can set.
func applyFields(spec, own fields) {
	configuration := spec["configuration"].(fields)
	if given, ok := nested(own, "virtualization", "workloadUpdateStrategy").(fields); ok {
		maps.Copy(spec["workloadUpdateStrategy"].(fields), given)
	}
	if given, ok := nested(own, "virtualization", "evictionStrategy").(string); ok {
		configuration["evictionStrategy"] = given
	}
	if given, ok := nested(own, "virtualization", "obsoleteCPUModels").([]any); ok {
		for _, model := range given {
			configuration["obsoleteCPUModels"].(fields)[fmt.Sprint(model)] = true
		}
	}
	if given, ok := nested(own, "virtualization", "permittedHostDevices").(fields); ok {
		configuration["permittedHostDevices"] = hostDevices(given)
	}
	applyGates(configuration["developerConfiguration"].(fields), own["featureGates"])
}

// hostDevices makes KubeVirt's lists of devices, where some fields have other names. They leave disabled devices out.
func hostDevices(given fields) fields {
	devices := fields{}
	for _, kind := range []struct{ from, to string }{
		{"pciHostDevices", "pciHostDevices"}, {"mediatedDevices", "mediatedDevices"}, {"usbHostDevices", "usb"},
	} {
		list := []any{}
		items, _ := given[kind.from].([]any)
		for _, item := range items {
			device, ok := item.(fields)
			if !ok || device["disabled"] == true {
				continue
			}
			device = maps.Clone(device)
			delete(device, "disabled")
			if selector, ok := device["pciDeviceSelector"]; ok {
				delete(device, "pciDeviceSelector")
				device["pciVendorSelector"] = selector
			}
			list = append(list, device)
		}
		devices[kind.to] = list
	}
	return devices
}

// applyPlacements renders on which nodes KubeVirt runs. Its control plane has one replica if only one node can run it.
func applyPlacements(spec, own fields, controlPlanes int) {
	if workload, ok := nested(own, "deployment", "nodePlacements", "workload").(fields); ok {
		spec["workloads"] = fields{"nodePlacement": workload}
	}
	infra := fields{}
	if given, ok := nested(own, "deployment", "nodePlacements", "infra").(fields); ok {
		infra["nodePlacement"] = given
	}
	if controlPlanes == 1 {
		infra["replicas"] = int64(1)
	}
	if len(infra) > 0 {
		spec["infra"] = infra
	}
}

func nested(from fields, path ...string) any {
	value, _, err := unstructured.NestedFieldNoCopy(from, path...)
	if err != nil {
		return nil
	}
	return value
}

// applyAnnotation applies the JSON patch to a fresh render, so that it never piles up.
func applyAnnotation(spec fields, annotation string) (fields, error) {
	if annotation == "" {
		return withoutEmptyLists(spec), nil
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
	return withoutEmptyLists(overlay(spec, result)), nil
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

// withoutEmptyLists leaves out what Go does when it writes a KubeVirt object (omitempty).
func withoutEmptyLists(object fields) fields {
	kept := fields{}
	for key, value := range object {
		if list, ok := value.([]any); !ok || len(list) > 0 {
			kept[key] = emptyListsRemoved(value)
		}
	}
	return kept
}

func emptyListsRemoved(value any) any {
	switch value := value.(type) {
	case fields:
		return withoutEmptyLists(value)
	case []any:
		kept := make([]any, len(value))
		for i, item := range value {
			kept[i] = emptyListsRemoved(item)
		}
		return kept
	}
	return value
}
