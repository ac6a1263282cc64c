// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

package guest

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"virtpools.io/controlplane/agent/kubelet"
	"virtpools.io/controlplane/agent/kubevirt"
)

// migration is the next step of a migration whose target pod virt-controller has handed over, and the node whose handler
// takes it: target prepares, source starts, target reports the guest, completes and cleans up.
func (g *Guests) migration(vmi *kubevirt.VMI, state *kubevirt.MigrationState) (step, string) {
	switch {
	case state.EndTimestamp != nil && !state.Completed:
		return g.completed, vmi.Status.NodeName
	case state.EndTimestamp != nil && state.Failed && g.alive(vmi.Namespace, state.TargetPod):
		return g.abandoned, state.TargetNode
	case state.EndTimestamp != nil && vmi.Labels[kubevirt.TargetNodeLabel] != "":
		return cleanedUp, state.TargetNode
	case state.EndTimestamp != nil:
		return nil, ""
	case state.AbortRequested:
		return aborted, state.SourceNode
	case vmi.Annotations[kubevirt.MigrationKnob] == "fail" && state.StartTimestamp != nil:
		return failed("the test wants it to fail"), state.SourceNode
	case state.StartTimestamp != nil && g.interrupted(state):
		return failed("a virt-handler has ended through which the guest moves"), state.SourceNode
	case !g.handled(state.SourceNode) && state.StartTimestamp != nil:
		return nil, ""
	case state.TargetNodeAddress == "":
		return prepared, state.TargetNode
	case state.StartTimestamp == nil:
		return begun, state.SourceNode
	}
	return g.arrived, state.TargetNode
}

// interrupted tells whether the virt-handler of one end has ended, perhaps for another one, since the migration began. Both
// forward its connections, and do not wait for it when they end.
func (g *Guests) interrupted(state *kubevirt.MigrationState) bool {
	began := state.StartTimestamp.Time
	return !g.lasts(state.SourceNode, began) || !g.lasts(state.TargetNode, began)
}

func setState(to *unstructured.Unstructured, values map[string]any) {
	for name, value := range values {
		set(to, value, "migrationState", name)
	}
}

func prepared(_ context.Context, _ *kubevirt.VMI, to *unstructured.Unstructured) time.Duration {
	setState(to, map[string]any{
		"targetNodeAddress":              "10.0.0.1",
		"targetDirectMigrationNodePorts": map[string]any{"49152": int64(0)},
	})
	return 0
}

func begun(_ context.Context, _ *kubevirt.VMI, to *unstructured.Unstructured) time.Duration {
	setState(to, map[string]any{"startTimestamp": now(), "mode": "PreCopy"})
	return 0
}

// arrived is what the target's handler writes once the guest runs there.
func (g *Guests) arrived(_ context.Context, vmi *kubevirt.VMI, to *unstructured.Unstructured) time.Duration {
	state := vmi.Status.MigrationState
	if vmi.Annotations[kubevirt.MigrationKnob] == "hang" {
		return again
	}
	if left := g.options.Migration - time.Since(state.StartTimestamp.Time); left > 0 {
		return left
	}
	setState(to, map[string]any{
		"endTimestamp": now(), "targetNodeDomainDetected": true, "targetNodeDomainReadyTimestamp": now(),
	})
	labels := to.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[kubevirt.NodeNameLabel] = state.TargetNode
	delete(labels, kubevirt.OutdatedLabel)
	to.SetLabels(labels)
	set(to, state.TargetNode, "nodeName")
	set(to, "Unix", "migrationTransport")
	for _, field := range []string{"launcherContainerImageVersion", "evacuationNodeName"} {
		unstructured.RemoveNestedField(to.Object, "status", field)
	}
	return 0
}

// completed also ends the source's launcher, which has no guest any more.
func (g *Guests) completed(ctx context.Context, vmi *kubevirt.VMI, to *unstructured.Unstructured) time.Duration {
	setState(to, map[string]any{"completed": true})
	return g.exit(ctx, vmi, vmi.Status.MigrationState.SourcePod)
}

// cleanedUp is the last thing that the target's handler does for a migration, well or not.
func cleanedUp(_ context.Context, _ *kubevirt.VMI, to *unstructured.Unstructured) time.Duration {
	labels := to.GetLabels()
	delete(labels, kubevirt.TargetNodeLabel)
	to.SetLabels(labels)
	return 0
}

func aborted(ctx context.Context, vmi *kubevirt.VMI, to *unstructured.Unstructured) time.Duration {
	setState(to, map[string]any{"abortStatus": "Succeeded"})
	return failed("Live migration has been aborted")(ctx, vmi, to)
}

// failed says why before the target's launcher ends: virt-controller would write a reason of its own.
func failed(reason string) step {
	return func(_ context.Context, _ *kubevirt.VMI, to *unstructured.Unstructured) time.Duration {
		setState(to, map[string]any{"failed": true, "completed": true, "failureReason": reason, "endTimestamp": now()})
		return 0
	}
}

// alive tells whether a launcher's pod is there and runs.
func (g *Guests) alive(namespace, name string) bool {
	object, exists, err := g.pods.GetByKey(namespace + "/" + name)
	return err == nil && exists && !kubelet.Finished(object.(*corev1.Pod))
}

// abandoned ends the target's launcher, which gets no guest.
func (g *Guests) abandoned(ctx context.Context, vmi *kubevirt.VMI, _ *unstructured.Unstructured) time.Duration {
	return max(again, g.exit(ctx, vmi, vmi.Status.MigrationState.TargetPod))
}

// exit makes a launcher end; the time is when to try again.
func (g *Guests) exit(ctx context.Context, vmi *kubevirt.VMI, pod string) time.Duration {
	patch := fmt.Appendf(nil, `{"metadata": {"annotations": {%q: "succeeded"}}}`, kubevirt.ExitKnob)
	_, err := g.client.CoreV1().Pods(vmi.Namespace).Patch(ctx, pod, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		g.log.Error("launcher not ended", "pod", pod, "error", err)
		return again
	}
	return 0
}
