// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

package operator

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"virtpools.io/controlplane/standin/kubevirt"
)

const (
	phaseDeploying = "Deploying"
	phaseDeployed  = "Deployed"
	phaseDeleting  = "Deleting"
	phaseDeleted   = "Deleted"
)

func setCondition(status *kubevirt.Status, kind, value, reason, message string) {
	condition := kubevirt.Condition{Type: kind, Status: value, Reason: reason, Message: message}
	for i := range status.Conditions {
		if status.Conditions[i].Type == kind {
			status.Conditions[i] = condition
			return
		}
	}
	status.Conditions = append(status.Conditions, condition)
}

func dropCondition(status *kubevirt.Status, kind string) {
	status.Conditions = slices.DeleteFunc(status.Conditions, func(c kubevirt.Condition) bool { return c.Type == kind })
}

func setHealth(status *kubevirt.Status, available, progressing, degraded, reason, message string) {
	setCondition(status, "Available", available, reason, message)
	setCondition(status, "Progressing", progressing, reason, message)
	setCondition(status, "Degraded", degraded, reason, message)
}

func reportDeploying(status *kubevirt.Status) {
	dropCondition(status, "Synchronized")
	setHealth(status, "False", "True", "False", "DeploymentInProgress", fmt.Sprintf(
		"Deploying version %s with registry %s", status.TargetKubeVirtVersion, status.TargetKubeVirtRegistry))
}

// reportUpdating says Available all the time: KubeVirt does, whatever happens during an upgrade.
func reportUpdating(status *kubevirt.Status) {
	dropCondition(status, "Created")
	dropCondition(status, "Synchronized")
	setHealth(status, "True", "True", "True", "UpdateInProgress", fmt.Sprintf(
		"Transitioning from previous version %s with registry %s to target version %s using registry %s",
		status.ObservedKubeVirtVersion, status.ObservedKubeVirtRegistry, status.TargetKubeVirtVersion, status.TargetKubeVirtRegistry))
}

func reportCreated(status *kubevirt.Status) {
	setCondition(status, "Created", "True", "AllResourcesCreated", "All resources were created.")
}

func reportAvailable(status *kubevirt.Status) {
	setHealth(status, "True", "False", "False", "AllComponentsReady", "All components are ready.")
}

func reportFailed(status *kubevirt.Status, failure error) {
	message := fmt.Sprintf("An error occurred during deployment: %v", failure)
	setCondition(status, "Synchronized", "False", "DeploymentFailed", message)
	setHealth(status, "False", "False", "True", "DeploymentFailed", message)
}

func reportSecond(status *kubevirt.Status) {
	message := "There is an existing KubeVirt deployment"
	setCondition(status, "Synchronized", "False", "ExistingDeployment", message)
	setHealth(status, "False", "False", "True", "ExistingDeployment", message)
}

func reportDeleting(status *kubevirt.Status) {
	dropCondition(status, "Created")
	dropCondition(status, "Synchronized")
	setHealth(status, "False", "False", "True", "DeletionInProgress", "Deletion was triggered")
}

// stamp sets the times. A condition that was not there before gets no transition time, as in KubeVirt.
func stamp(before, after []kubevirt.Condition, now metav1.Time) {
	for i := range after {
		condition := &after[i]
		at := slices.IndexFunc(before, func(c kubevirt.Condition) bool { return c.Type == condition.Type })
		if at < 0 {
			condition.LastProbeTime = now
			continue
		}
		old := before[at]
		condition.LastProbeTime, condition.LastTransitionTime = old.LastProbeTime, old.LastTransitionTime
		if *condition != old {
			condition.LastProbeTime, condition.LastTransitionTime = now, now
		}
	}
}
