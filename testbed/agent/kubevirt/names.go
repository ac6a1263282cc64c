// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

// Package kubevirt holds the names and the few fields of KubeVirt's API that the agent reads and writes.
package kubevirt

import "k8s.io/apimachinery/pkg/runtime/schema"

// Labels and annotations that KubeVirt's programs exchange through objects.
const (
	ComponentLabel    = "kubevirt.io"
	HandlerComponent  = "virt-handler"
	LauncherComponent = "virt-launcher"
	// ComputeContainer is the container of a launcher in which the guest runs.
	ComputeContainer = "compute"

	ManagedByLabel    = "app.kubernetes.io/managed-by"
	VersionLabel      = "app.kubernetes.io/version"
	AppComponentLabel = "app.kubernetes.io/component"
	PartOfLabel       = "app.kubernetes.io/part-of"

	SchedulableLabel    = "kubevirt.io/schedulable"
	HeartbeatAnnotation = "kubevirt.io/heartbeat"
)

// Knobs: annotations by which tests steer the agent. The README explains them.
const (
	// On nodes.
	KubeletKnob      = "agent.virtpools.io/kubelet"
	StartSecondsKnob = "agent.virtpools.io/start-seconds"
	StopSecondsKnob  = "agent.virtpools.io/stop-seconds"
	HandlerKnob      = "agent.virtpools.io/handler"
	HeartbeatKnob    = "agent.virtpools.io/heartbeat"
	RegistryKnob     = "agent.virtpools.io/registry"
	// On launcher pods.
	ExitKnob = "agent.virtpools.io/exit"
	// On virtual machine instances.
	HandsOffKnob  = "agent.virtpools.io/hands-off"
	MigrationKnob = "agent.virtpools.io/migration"

	// On the KubeVirt object.
	RefuseKnob = "agent.virtpools.io/refuse"

	// Written by the agent for tests to read.
	TwoHandlersReport = "agent.virtpools.io/two-handlers"
	EndingVMsReport   = "agent.virtpools.io/ending-vms"
)

// Resource addresses KubeVirt objects.
var Resource = schema.GroupVersionResource{Group: "kubevirt.io", Version: "v1", Resource: "kubevirts"}

// Kind is the kind of KubeVirt objects.
var Kind = schema.GroupVersionKind{Group: "kubevirt.io", Version: "v1", Kind: "KubeVirt"}
