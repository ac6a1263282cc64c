// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

package kubelet

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"virtpools.io/controlplane/agent/kubevirt"
)

// PullLabel marks pods whose only purpose is to bring an image to a node: their command ends at once.
const PullLabel = "virtpools.io/pull"

const (
	firstPullError = 2 * time.Second // until ErrImagePull becomes ImagePullBackOff
	nextPull       = 10 * time.Second
	firstBackOff   = 2 * time.Second // of a crashing container; doubles
	longestBackOff = 60 * time.Second
)

// situation is all that a pod's status depends on.
type situation struct {
	pod *corev1.Pod
	// since is when the kubelet first saw the pod, restarted when a container last crashed.
	since, restarted time.Time
	now              time.Time
	start            time.Duration
	// probe is how long the containers run before their readiness probe succeeds.
	probe  time.Duration
	podIP  string
	nodeIP string
	broken bool
	onNode func(image string) bool
	// authorized tells whether the pod, or its node, has credentials for the private registry.
	authorized func() bool
	// process starts the pod's process, if it has one, and says how it is.
	process func() (Process, bool)
}

// verdict is a pod's next status, and the time after which to look again (zero: nothing will change by itself).
type verdict struct {
	status corev1.PodStatus
	again  time.Duration
	// pulled are the images that are on the node now.
	pulled []string
	// crashed: a container has just crashed once more.
	crashed bool
}

func (s situation) decide() verdict {
	// A pod that has an address has started, even if starts take longer by now.
	if waited := s.now.Sub(s.since); waited < s.start && s.pod.Status.PodIP == "" {
		return verdict{status: s.creating(), again: s.start - waited}
	}
	init, main := s.pod.Spec.InitContainers, s.pod.Spec.Containers
	pulled := []string{}
	for _, volume := range s.pod.Spec.Volumes {
		if volume.Image != nil && s.pullable(volume.Image.Reference, volume.Image.PullPolicy) {
			pulled = append(pulled, volume.Image.Reference)
		}
	}
	for i, container := range init {
		if s.lacks(container) != "" {
			return s.stuck(i, -1, pulled)
		}
		pulled = append(pulled, container.Image)
		if crashes(container.Image) && !s.pullPod() {
			return s.crashing(i, pulled)
		}
	}
	unpulled := -1
	for i, container := range main {
		if s.lacks(container) == "" {
			pulled = append(pulled, container.Image)
		} else {
			unpulled = i
		}
	}
	if unpulled >= 0 {
		return s.stuck(-1, unpulled, pulled)
	}
	if s.pullPod() {
		return verdict{status: s.looked(), pulled: pulled}
	}
	if how := s.pod.Annotations[kubevirt.ExitKnob]; how != "" {
		return verdict{status: s.exited(how), pulled: pulled}
	}
	for _, container := range main {
		if crashes(container.Image) {
			return s.crashing(-1, pulled)
		}
	}
	if process, ok := s.process(); ok {
		s.broken = s.broken || !process.Ready
		if process.Exited {
			return verdict{status: s.exited(exitOf(process)), pulled: pulled}
		}
	}
	left := s.start + s.probe - s.now.Sub(s.since)
	s.broken = s.broken || left > 0
	return verdict{status: s.running(), again: max(left, 0), pulled: pulled}
}

func exitOf(process Process) string {
	if process.Code == 0 {
		return "succeeded"
	}
	return "failed"
}

func (s situation) pullPod() bool {
	_, ok := s.pod.Labels[PullLabel]
	return ok && s.pod.Spec.RestartPolicy == corev1.RestartPolicyNever
}

// lacks is the image that a container waits for: its own, or that of a volume which it mounts; empty for one that can start.
func (s situation) lacks(container corev1.Container) string {
	for _, mount := range container.VolumeMounts {
		for _, volume := range s.pod.Spec.Volumes {
			if volume.Name == mount.Name && volume.Image != nil && !s.pullable(volume.Image.Reference, volume.Image.PullPolicy) {
				return volume.Image.Reference
			}
		}
	}
	if !s.pullable(container.Image, container.ImagePullPolicy) {
		return container.Image
	}
	return ""
}

func (s situation) pullable(image string, policy corev1.PullPolicy) bool {
	switch {
	case registryHost(image) == PrivateHost:
		// That the image is on the node is not enough: KubeletEnsureSecretPulledImages, on since Kubernetes 1.35.
		return s.authorized()
	case unpullable(image):
		return policy != corev1.PullAlways && s.onNode(image)
	}
	return true
}

// base is the part of a status that does not depend on the containers.
func (s situation) base(phase corev1.PodPhase) corev1.PodStatus {
	status := corev1.PodStatus{
		Phase: phase, StartTime: s.pod.Status.StartTime,
		HostIP: s.nodeIP, Conditions: append([]corev1.PodCondition(nil), s.pod.Status.Conditions...),
	}
	if s.nodeIP != "" {
		status.HostIPs = []corev1.HostIP{{IP: s.nodeIP}}
	}
	if status.StartTime == nil {
		status.StartTime = &metav1.Time{Time: s.since.Truncate(time.Second)}
	}
	return status
}

func (s situation) withIP(status corev1.PodStatus) corev1.PodStatus {
	status.PodIP = s.podIP
	status.PodIPs = []corev1.PodIP{{IP: s.podIP}}
	return status
}

func (s situation) creating() corev1.PodStatus {
	status := s.base(corev1.PodPending)
	reason := "ContainerCreating"
	for _, container := range s.pod.Spec.InitContainers {
		reason = "PodInitializing"
		status.InitContainerStatuses = append(status.InitContainerStatuses, waiting(container, reason, ""))
	}
	for _, container := range s.pod.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, waiting(container, reason, ""))
	}
	s.conditions(&status, len(s.pod.Spec.InitContainers) == 0, false, "ContainersNotReady")
	return status
}

// stuck is the status of a pod that has an image which cannot be pulled, in an init container or a container.
func (s situation) stuck(init, main int, pulled []string) verdict {
	status := s.base(corev1.PodPending)
	waited := s.now.Sub(s.since.Add(s.start))
	for i, container := range s.pod.Spec.InitContainers {
		switch {
		case init < 0 || i < init:
			status.InitContainerStatuses = append(status.InitContainerStatuses, s.initialized(container))
		case i == init:
			status.InitContainerStatuses = append(status.InitContainerStatuses, pullFailure(container, s.lacks(container), waited))
		default:
			status.InitContainerStatuses = append(status.InitContainerStatuses, waiting(container, "PodInitializing", ""))
		}
	}
	for _, container := range s.pod.Spec.Containers {
		switch {
		case init >= 0:
			status.ContainerStatuses = append(status.ContainerStatuses, waiting(container, "PodInitializing", ""))
		case s.lacks(container) != "":
			status.ContainerStatuses = append(status.ContainerStatuses, pullFailure(container, s.lacks(container), waited))
		case s.pullPod():
			status.ContainerStatuses = append(status.ContainerStatuses, s.done(container, false))
		default:
			status.ContainerStatuses = append(status.ContainerStatuses, s.runs(container, true))
		}
	}
	s.conditions(&status, main >= 0, false, "ContainersNotReady")
	again := nextPull
	if waited < firstPullError {
		again = firstPullError - waited
	}
	return verdict{status: s.withIP(status), again: again, pulled: pulled}
}

func pullFailure(container corev1.Container, image string, waited time.Duration) corev1.ContainerStatus {
	if waited < firstPullError {
		reason := fmt.Sprintf("dial tcp: lookup %s: no such host", registryHost(image))
		if registryHost(image) == PrivateHost {
			reason = "authorization failed: no basic auth credentials"
		}
		return waiting(container, "ErrImagePull", fmt.Sprintf("failed to pull and unpack image %q: %s", image, reason))
	}
	return waiting(container, "ImagePullBackOff", fmt.Sprintf("Back-off pulling image %q", image))
}

// crashing is the status of a pod with containers that end as soon as they start: the init container or others.
func (s situation) crashing(init int, pulled []string) verdict {
	restarts := s.restarts()
	pause := min(firstBackOff<<min(restarts, 5), longestBackOff)
	crashed := s.restarted.IsZero()
	left := pause - s.now.Sub(s.restarted)
	switch {
	case crashed:
		left = pause
	case left <= 0:
		restarts++
		crashed, left = true, min(firstBackOff<<min(restarts, 5), longestBackOff)
	}
	status := s.base(corev1.PodRunning)
	if init >= 0 {
		status.Phase = corev1.PodPending
	}
	for i, container := range s.pod.Spec.InitContainers {
		switch {
		case init < 0 || i < init:
			status.InitContainerStatuses = append(status.InitContainerStatuses, s.initialized(container))
		case i == init:
			status.InitContainerStatuses = append(status.InitContainerStatuses, s.crashed(container, restarts))
		default:
			status.InitContainerStatuses = append(status.InitContainerStatuses, waiting(container, "PodInitializing", ""))
		}
	}
	for _, container := range s.pod.Spec.Containers {
		switch {
		case init >= 0:
			status.ContainerStatuses = append(status.ContainerStatuses, waiting(container, "PodInitializing", ""))
		case crashes(container.Image):
			status.ContainerStatuses = append(status.ContainerStatuses, s.crashed(container, restarts))
		default:
			status.ContainerStatuses = append(status.ContainerStatuses, s.runs(container, true))
		}
	}
	s.conditions(&status, init < 0, false, "ContainersNotReady")
	return verdict{status: s.withIP(status), again: left, pulled: pulled, crashed: crashed}
}

func (s situation) restarts() int32 {
	var most int32
	for _, list := range [][]corev1.ContainerStatus{s.pod.Status.InitContainerStatuses, s.pod.Status.ContainerStatuses} {
		for _, status := range list {
			most = max(most, status.RestartCount)
		}
	}
	return most
}

func (s situation) running() corev1.PodStatus {
	status := s.base(corev1.PodRunning)
	for _, container := range s.pod.Spec.InitContainers {
		status.InitContainerStatuses = append(status.InitContainerStatuses, s.initialized(container))
	}
	ready := true
	for _, container := range s.pod.Spec.Containers {
		fine := !neverReady(container.Image) && !s.broken
		ready = ready && fine
		status.ContainerStatuses = append(status.ContainerStatuses, s.runs(container, fine))
	}
	s.conditions(&status, true, ready, "ContainersNotReady")
	return s.withIP(status)
}

func (s situation) succeeded() corev1.PodStatus {
	status := s.base(corev1.PodSucceeded)
	for _, container := range s.pod.Spec.InitContainers {
		status.InitContainerStatuses = append(status.InitContainerStatuses, s.done(container, true))
	}
	for _, container := range s.pod.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, s.done(container, false))
	}
	s.conditions(&status, true, false, "PodCompleted")
	return s.withIP(status)
}

// looked is the status of a pod that has pulled its images, and looked into those for which it has a shell's command.
func (s situation) looked() corev1.PodStatus {
	status := s.succeeded()
	for i, container := range s.pod.Spec.Containers {
		if len(container.Command) == 0 || container.Command[0] != "/bin/sh" {
			continue
		}
		message, started := look(container.Image)
		if !started {
			status.Phase = corev1.PodFailed
			status.ContainerStatuses[i].State.Terminated = s.ended(128, "StartError")
		}
		status.ContainerStatuses[i].State.Terminated.Message = message
	}
	return status
}

// exited is the status of a pod whose containers have ended by themselves, with or without an error.
func (s situation) exited(how string) corev1.PodStatus {
	if how != "failed" {
		return s.succeeded()
	}
	status := s.succeeded()
	status.Phase = corev1.PodFailed
	for i := range status.ContainerStatuses {
		status.ContainerStatuses[i].State.Terminated = s.ended(1, "Error")
	}
	return status
}

func waiting(container corev1.Container, reason, message string) corev1.ContainerStatus {
	return corev1.ContainerStatus{
		Name: container.Name, Image: container.Image, Started: new(false),
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}},
	}
}

// started is when the pod's containers started, in the resolution of statuses.
func (s situation) started() metav1.Time {
	return metav1.NewTime(s.since.Add(s.start).Truncate(time.Second))
}

func (s situation) runs(container corev1.Container, ready bool) corev1.ContainerStatus {
	status := corev1.ContainerStatus{
		Name: container.Name, Image: container.Image, ImageID: imageID(container.Image),
		Ready: ready, Started: new(true),
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: s.started()}},
	}
	if before := s.before(container.Name); before != nil {
		status.RestartCount = before.RestartCount
		if before.State.Running != nil {
			status.State = before.State
		}
	}
	return status
}

// before is the container's status so far.
func (s situation) before(name string) *corev1.ContainerStatus {
	for _, list := range [][]corev1.ContainerStatus{s.pod.Status.InitContainerStatuses, s.pod.Status.ContainerStatuses} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

func (s situation) done(container corev1.Container, ready bool) corev1.ContainerStatus {
	status := corev1.ContainerStatus{
		Name: container.Name, Image: container.Image, ImageID: imageID(container.Image),
		Ready: ready, Started: new(false),
		State: corev1.ContainerState{Terminated: s.ended(0, "Completed")},
	}
	if before := s.before(container.Name); before != nil && before.State.Terminated != nil {
		status.State = before.State
	}
	return status
}

// initialized is the status of an init container that the next containers need not wait for: a sidecar runs on.
func (s situation) initialized(container corev1.Container) corev1.ContainerStatus {
	if container.RestartPolicy != nil && *container.RestartPolicy == corev1.ContainerRestartPolicyAlways {
		return s.runs(container, true)
	}
	return s.done(container, true)
}

func (s situation) crashed(container corev1.Container, restarts int32) corev1.ContainerStatus {
	return corev1.ContainerStatus{
		Name: container.Name, Image: container.Image, ImageID: imageID(container.Image),
		Started: new(false), RestartCount: restarts,
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
			Reason: "CrashLoopBackOff", Message: "back-off restarting failed container " + container.Name,
		}},
		LastTerminationState: corev1.ContainerState{Terminated: s.ended(1, "Error")},
	}
}

func (s situation) ended(code int32, reason string) *corev1.ContainerStateTerminated {
	return &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason, StartedAt: s.started(), FinishedAt: s.started()}
}

func (s situation) conditions(status *corev1.PodStatus, initialized, ready bool, reason string) {
	s.condition(status, corev1.PodScheduled, true, "")
	s.condition(status, corev1.PodInitialized, initialized, "ContainersNotInitialized")
	s.condition(status, corev1.ContainersReady, ready, reason)
	for _, gate := range s.pod.Spec.ReadinessGates {
		if ready && !conditionTrue(status.Conditions, gate.ConditionType) {
			ready, reason = false, "ReadinessGatesNotReady"
		}
	}
	s.condition(status, corev1.PodReady, ready, reason)
}

// condition leaves an unchanged condition alone, also that of another writer.
func (s situation) condition(status *corev1.PodStatus, kind corev1.PodConditionType, holds bool, reason string) {
	wanted := corev1.PodCondition{
		Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(s.now.Truncate(time.Second)),
	}
	if !holds {
		wanted.Status, wanted.Reason = corev1.ConditionFalse, reason
	}
	for i, found := range status.Conditions {
		if found.Type == kind {
			if found.Status != wanted.Status || found.Reason != wanted.Reason {
				status.Conditions[i] = wanted
			}
			return
		}
	}
	status.Conditions = append(status.Conditions, wanted)
}

// unready sets conditions to false.
func unready(status corev1.PodStatus, now time.Time, kinds ...corev1.PodConditionType) corev1.PodStatus {
	status = *status.DeepCopy()
	for i := range status.Conditions {
		condition := &status.Conditions[i]
		if slices.Contains(kinds, condition.Type) && condition.Status == corev1.ConditionTrue {
			condition.Status, condition.LastTransitionTime = corev1.ConditionFalse, metav1.NewTime(now.Truncate(time.Second))
		}
	}
	return status
}

// terminated is the status of a stopping pod. Its processes end at the first signal, as virt-handler does; the rest of
// the stop takes the time.
func terminated(status corev1.PodStatus, now time.Time) corev1.PodStatus {
	status = unready(status, now, corev1.PodReady, corev1.ContainersReady)
	for i := range status.ContainerStatuses {
		container := &status.ContainerStatuses[i]
		if running := container.State.Running; running != nil {
			container.Ready, container.Started = false, new(false)
			container.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				Reason: "Completed", StartedAt: running.StartedAt, FinishedAt: metav1.NewTime(now.Truncate(time.Second)),
			}}
		}
	}
	return status
}
