// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

package hco

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	// ConversionPath is where the API server has HyperConverged objects converted.
	ConversionPath = "/convert-hco"

	beta1 = "v1beta1"
)

// places are the fields that matter here and have another place in v1beta1. All others keep theirs.
var places = []struct{ v1, beta1 []string }{
	{[]string{"deployment", "nodePlacements", "infra"}, []string{"infra", "nodePlacement"}},
	{[]string{"deployment", "nodePlacements", "workload"}, []string{"workloads", "nodePlacement"}},
	{[]string{"deployment", "uninstallStrategy"}, []string{"uninstallStrategy"}},
	{[]string{"virtualization", "evictionStrategy"}, []string{"evictionStrategy"}},
	{[]string{"virtualization", "obsoleteCPUModels"}, []string{"obsoleteCPUs", "cpuModels"}},
	{[]string{"virtualization", "permittedHostDevices"}, []string{"permittedHostDevices"}},
	{[]string{"virtualization", "workloadUpdateStrategy"}, []string{"workloadUpdateStrategy"}},
}

// Convert brings a HyperConverged to the other API version, in place.
func Convert(object map[string]any, apiVersion string) error {
	own := unstructured.Unstructured{Object: object}
	if own.GetAPIVersion() == apiVersion {
		return nil
	}
	own.SetAPIVersion(apiVersion)
	spec, ok := object["spec"].(fields)
	if !ok {
		return nil
	}
	switch apiVersion {
	case Resource.GroupVersion().String():
		toV1(spec)
	case Resource.Group + "/" + beta1:
		toBeta1(spec)
	default:
		return fmt.Errorf("no conversion to %s", apiVersion)
	}
	return nil
}

func toBeta1(spec fields) {
	for _, place := range places {
		move(spec, place.v1, place.beta1)
	}
	for _, component := range []string{"infra", "workloads"} {
		if spec[component] == nil {
			spec[component] = fields{}
		}
	}
	spec["featureGates"] = gatesToBeta1(spec["featureGates"])
}

func toV1(spec fields) {
	for _, place := range places {
		move(spec, place.beta1, place.v1)
	}
	for _, component := range []string{"infra", "workloads"} {
		delete(spec, component)
	}
	shown, _ := spec["featureGates"].(fields)
	if list := gatesToV1(shown); len(list) > 0 {
		spec["featureGates"] = list
	} else {
		delete(spec, "featureGates")
	}
}

// move takes a field, and the objects that are empty without it, to its other place.
func move(spec fields, from, to []string) {
	value, found, err := unstructured.NestedFieldNoCopy(spec, from...)
	if !found || err != nil {
		return
	}
	for depth := len(from); depth > 0; depth-- {
		unstructured.RemoveNestedField(spec, from[:depth]...)
		if rest, _ := nested(spec, from[:depth-1]...).(fields); len(rest) > 0 {
			break
		}
	}
	target := spec
	for _, part := range to[:len(to)-1] {
		inner, ok := target[part].(fields)
		if !ok {
			inner = fields{}
			target[part] = inner
		}
		target = inner
	}
	target[to[len(to)-1]] = value
}
