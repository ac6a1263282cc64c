// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

// Package instancetype puts into virtual machines what their instancetypes and preferences stand for.
package instancetype

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// fields of an instancetype's spec that are copied as they are, by their place in the machine's template.
var copied = map[string][]string{
	"gpus":            {"domain", "devices", "gpus"},
	"hostDevices":     {"domain", "devices", "hostDevices"},
	"nodeSelector":    {"nodeSelector"},
	"schedulerName":   {"schedulerName"},
	"ioThreadsPolicy": {"domain", "ioThreadsPolicy"},
	"launchSecurity":  {"domain", "launchSecurity"},
}

// Apply changes a machine's template spec by the specs of its instancetype and its preference; either may be nil. What
// the instancetype decides must not be decided by the machine as well.
func Apply(template, instancetype, preference map[string]any) error {
	if conflicts := conflicts(template, instancetype); len(conflicts) > 0 {
		return fmt.Errorf("VM field(s) %s conflicts with selected instance type", strings.Join(conflicts, ", "))
	}
	for _, field := range sorted(copied) {
		if value, ok := instancetype[field]; ok {
			put(template, value, copied[field]...)
		}
	}
	if memory := get(instancetype, "memory", "guest"); memory != nil {
		put(template, memory, "domain", "memory", "guest")
	}
	if count := get(instancetype, "cpu", "guest"); count != nil {
		applyCPU(template, instancetype, count, text(preference, "cpu", "preferredCPUTopology"))
	}
	applyPreference(template, preference)
	return nil
}

func conflicts(template, instancetype map[string]any) []string {
	var found []string
	decided := func(chosen bool, path ...string) {
		if chosen && get(template, path...) != nil {
			found = append(found, "spec.template.spec."+strings.Join(path, "."))
		}
	}
	for _, field := range []string{"sockets", "cores", "threads", "model"} {
		decided(instancetype["cpu"] != nil, "domain", "cpu", field)
	}
	decided(instancetype["memory"] != nil, "domain", "memory")
	for _, field := range sorted(copied) {
		decided(instancetype[field] != nil, copied[field]...)
	}
	return found
}

func applyCPU(template, instancetype map[string]any, count any, topology string) {
	counts := map[string]any{"sockets": int64(1), "cores": int64(1), "threads": int64(1)}
	field := strings.ToLower(strings.TrimPrefix(topology, "prefer"))
	if _, ok := counts[field]; !ok {
		field = "sockets"
	}
	counts[field] = count
	for field, value := range counts {
		put(template, value, "domain", "cpu", field)
	}
	if model := get(instancetype, "cpu", "model"); model != nil {
		put(template, model, "domain", "cpu", "model")
	}
	if dedicated := get(instancetype, "cpu", "dedicatedCPUPlacement"); dedicated != nil {
		put(template, dedicated, "domain", "cpu", "dedicatedCpuPlacement")
	}
}

// applyPreference fills what the machine leaves open.
func applyPreference(template, preference map[string]any) {
	fill := func(value any, path ...string) {
		if value != nil && get(template, path...) == nil {
			put(template, value, path...)
		}
	}
	fill(get(preference, "preferredArchitecture"), "architecture")
	fill(get(preference, "machine", "preferredMachineType"), "domain", "machine", "type")
	fill(get(preference, "preferredTerminationGracePeriodSeconds"), "terminationGracePeriodSeconds")
	model := get(preference, "devices", "preferredInterfaceModel")
	interfaces, _ := get(template, "domain", "devices", "interfaces").([]any)
	for _, each := range interfaces {
		if card, ok := each.(map[string]any); ok && model != nil && card["model"] == nil {
			card["model"] = model
		}
	}
}

// get is the value at a path, or nil.
func get(object map[string]any, path ...string) any {
	value, _, _ := unstructured.NestedFieldNoCopy(object, path...)
	return value
}

func text(object map[string]any, path ...string) string {
	found, _ := get(object, path...).(string)
	return found
}

// put sets a value; a part of the path that is no map is none of a machine's, and stays.
func put(object map[string]any, value any, path ...string) {
	_ = unstructured.SetNestedField(object, value, path...)
}

func sorted(fields map[string][]string) []string {
	var names []string
	for name := range fields {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
