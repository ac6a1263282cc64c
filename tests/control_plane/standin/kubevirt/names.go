// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

// Package kubevirt holds the names and the few fields of KubeVirt's API that the stand-in reads and writes.
package kubevirt

import "k8s.io/apimachinery/pkg/runtime/schema"

// Labels and annotations that KubeVirt's programs exchange through objects.
const (
	ComponentLabel   = "kubevirt.io"
	HandlerComponent = "virt-handler"

	ManagedByLabel    = "app.kubernetes.io/managed-by"
	ManagedBy         = "virt-operator"
	ManagedByOldValue = "kubevirt-operator"
	VersionLabel      = "app.kubernetes.io/version"
	AppComponentLabel = "app.kubernetes.io/component"
	PartOfLabel       = "app.kubernetes.io/part-of"

	GenerationAnnotation         = "kubevirt.io/generation"
	CustomizerAnnotation         = "kubevirt.io/customizer-identifier"
	StrategyVersionAnnotation    = "kubevirt.io/install-strategy-version"
	StrategyRegistryAnnotation   = "kubevirt.io/install-strategy-registry"
	StrategyIdentifierAnnotation = "kubevirt.io/install-strategy-identifier"

	SchedulableLabel    = "kubevirt.io/schedulable"
	HeartbeatAnnotation = "kubevirt.io/heartbeat"

	Finalizer = "kubevirt.io/foregroundDeleteKubeVirt"
)

// Knobs: annotations by which tests steer the stand-in. The README explains them.
const (
	// On nodes.
	KubeletKnob      = "standin.virtpools.io/kubelet"
	StartSecondsKnob = "standin.virtpools.io/start-seconds"
	StopSecondsKnob  = "standin.virtpools.io/stop-seconds"
	HandlerKnob      = "standin.virtpools.io/handler"
	// On launcher pods.
	ExitKnob = "standin.virtpools.io/exit"
	// On virtual machine instances, migrations and virtual machines.
	HandsOffKnob = "standin.virtpools.io/hands-off"
	// On the KubeVirt object.
	HoldUpgradeKnob = "standin.virtpools.io/hold-upgrade"

	// Written by the stand-in for tests to read.
	TwoHandlersReport    = "standin.virtpools.io/two-handlers"
	NodeControllerReport = "standin.virtpools.io/node-controller-error"
)

// OperatorSelector selects what virt-operator looks after, in every namespace.
const OperatorSelector = ManagedByLabel + " in (" + ManagedBy + "," + ManagedByOldValue + ")"

// Resource addresses KubeVirt objects.
var Resource = schema.GroupVersionResource{Group: "kubevirt.io", Version: "v1", Resource: "kubevirts"}

// Kind is the kind of KubeVirt objects.
var Kind = schema.GroupVersionKind{Group: "kubevirt.io", Version: "v1", Kind: "KubeVirt"}
