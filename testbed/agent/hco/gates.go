// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

package hco

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// gate is one of HCO's own feature gates.
type gate struct {
	// kubeVirt is the gate of KubeVirt that it switches. Some switch another operand, or nothing any more.
	kubeVirt string
	// on is its state by default.
	on bool
	// disabled says whether HCO lists KubeVirt's gate as disabled when it is off: KubeVirt has it on by default.
	disabled bool
	// beta1 says whether v1beta1 has it. Its map always shows these.
	beta1 bool
}

// gates are the 13 gates of HCO 1.20. Seen: their number, and what v1beta1 shows. Read: the other names.
var gates = map[string]gate{
	"alignCPUs":                      {kubeVirt: "AlignCPUs", beta1: true},
	"containerPathVolumes":           {kubeVirt: "ContainerPathVolumes", beta1: true},
	"decentralizedLiveMigration":     {kubeVirt: "DecentralizedLiveMigration", on: true, beta1: true},
	"declarativeHotplugVolumes":      {kubeVirt: "DeclarativeHotplugVolumes", on: true, disabled: true, beta1: true},
	"deployKubeSecondaryDNS":         {beta1: true},
	"disableMDevConfiguration":       {kubeVirt: "DisableMDEVConfiguration"},
	"downwardMetrics":                {kubeVirt: "DownwardMetrics", beta1: true},
	"enableMultiArchBootImageImport": {},
	"incrementalBackup":              {kubeVirt: "IncrementalBackup", beta1: true},
	"objectGraph":                    {kubeVirt: "ObjectGraph", beta1: true},
	"persistentReservation":          {kubeVirt: "PersistentReservation"},
	"template":                       {kubeVirt: "Template", on: true, disabled: true},
	"videoConfig":                    {kubeVirt: "VideoConfig"},
}

// states reads v1's list: the state of each gate that it names.
func states(list any) map[string]bool {
	found := map[string]bool{}
	items, _ := list.([]any)
	for _, item := range items {
		if entry, ok := item.(fields); ok {
			name, _ := entry["name"].(string)
			found[name] = entry["state"] != "Disabled"
		}
	}
	return found
}

// gateWarnings names the gates of v1's list that HCO does not know. It accepts and ignores them.
func gateWarnings(list any) []string {
	var warnings []string
	for _, name := range slices.Sorted(maps.Keys(states(list))) {
		if _, known := gates[name]; !known {
			warnings = append(warnings, fmt.Sprintf("the %s featureGate is unknown and ignored.", name))
		}
	}
	return warnings
}

// applyGates changes KubeVirt's lists of gates as v1's list says.
func applyGates(developer fields, list any) {
	for name, on := range states(list) {
		gate := gates[name]
		if gate.kubeVirt == "" {
			continue
		}
		setMember(developer, "featureGates", gate.kubeVirt, on)
		setMember(developer, "disabledFeatureGates", gate.kubeVirt, gate.disabled && !on)
	}
}

// setMember puts a gate into a sorted list, or takes it out.
func setMember(developer fields, list, gate string, member bool) {
	names := slices.DeleteFunc(developer[list].([]any), func(found any) bool { return found == gate })
	if member {
		names = append(names, gate)
		slices.SortFunc(names, func(a, b any) int { return strings.Compare(a.(string), b.(string)) })
	}
	developer[list] = names
}

// gatesToBeta1 makes v1beta1's map of v1's list: the state of every gate that v1beta1 has, and the named others.
func gatesToBeta1(list any) fields {
	shown := fields{}
	for name, gate := range gates {
		if gate.beta1 {
			shown[name] = gate.on
		}
	}
	for name, on := range states(list) {
		shown[name] = on
	}
	return shown
}

// gatesToV1 makes v1's list of v1beta1's map: the gates whose state is not the usual one.
func gatesToV1(shown fields) []any {
	list := []any{}
	for _, name := range slices.Sorted(maps.Keys(shown)) {
		on := shown[name] == true
		if on == gates[name].on {
			continue
		}
		entry := fields{"name": name}
		if !on {
			entry["state"] = "Disabled"
		}
		list = append(list, entry)
	}
	return list
}
