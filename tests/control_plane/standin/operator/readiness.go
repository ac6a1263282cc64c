// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

package operator

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// daemonSetReady is KubeVirt's rule. Every pod that virt-operator looks after and whose name contains the DaemonSet's
// counts, also those of somebody's clone.
func daemonSetReady(daemonSet *appsv1.DaemonSet, pods []*corev1.Pod, t target) bool {
	status := daemonSet.Status
	if !t.upToDate(daemonSet) || status.DesiredNumberScheduled == 0 || status.DesiredNumberScheduled != status.NumberReady {
		return false
	}
	return runningUpToDate(daemonSet.Name, pods, t)
}

func deploymentReady(deployment *appsv1.Deployment, pods []*corev1.Pod, t target) bool {
	status := deployment.Status
	if !t.upToDate(deployment) || status.Replicas == 0 || status.ReadyReplicas == 0 {
		return false
	}
	return runningUpToDate(deployment.Name, pods, t)
}

func runningUpToDate(name string, pods []*corev1.Pod, t target) bool {
	ready := 0
	for _, pod := range pods {
		if !strings.Contains(pod.Name, name) || pod.Status.Phase != corev1.PodRunning {
			continue
		}
		if !t.upToDate(pod) {
			return false
		}
		if podReady(pod) {
			ready++
		}
	}
	return ready > 0
}

func podReady(pod *corev1.Pod) bool {
	if pod.Status.Phase != corev1.PodRunning {
		return false
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

func crashLooping(pod *corev1.Pod) bool {
	for _, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for _, status := range list {
			if waiting := status.State.Waiting; waiting != nil && waiting.Reason == "CrashLoopBackOff" {
				return true
			}
		}
	}
	return false
}

// ofDaemonSet are the pods of the DaemonSet that carry the target's marks.
func ofDaemonSet(name string, pods []*corev1.Pod, t target) []*corev1.Pod {
	var own []*corev1.Pod
	for _, pod := range pods {
		if owner := metav1.GetControllerOf(pod); owner != nil && owner.Name == name && t.upToDate(pod) {
			own = append(own, pod)
		}
	}
	return own
}

func countReady(pods []*corev1.Pod) int32 {
	var ready int32
	for _, pod := range pods {
		if podReady(pod) {
			ready++
		}
	}
	return ready
}
