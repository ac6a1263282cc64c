// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

package kubelet

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"virtpools.io/controlplane/agent/kubevirt"
)

var epoch = time.Unix(1_800_000_000, 0)

// after is a pod's situation some time after the kubelet first saw it; starting takes a second.
func after(elapsed time.Duration, pod *corev1.Pod) situation {
	return situation{
		pod: pod, since: epoch, now: epoch.Add(elapsed), start: time.Second, podIP: "10.128.0.1", nodeIP: "10.0.0.1",
		onNode:     func(string) bool { return false },
		authorized: func() bool { return false },
		process:    func() (Process, bool) { return Process{}, false },
	}
}

func testPod(init, image string) *corev1.Pod {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: image}}}}
	if init != "" {
		pod.Spec.InitContainers = []corev1.Container{{Name: "init", Image: init}}
	}
	return pod
}

func isReady(status corev1.PodStatus) bool {
	for _, condition := range status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

func waitingReason(list []corev1.ContainerStatus) string {
	if len(list) == 0 || list[0].State.Waiting == nil {
		return ""
	}
	return list[0].State.Waiting.Reason
}

func TestStart(t *testing.T) {
	early := after(400*time.Millisecond, testPod("h/i:1", "h/m:1")).decide()
	if early.status.Phase != corev1.PodPending || early.again != 600*time.Millisecond {
		t.Errorf("early: %s, again in %s", early.status.Phase, early.again)
	}
	late := after(time.Second, testPod("h/i:1", "h/m:1")).decide()
	if late.status.Phase != corev1.PodRunning || !isReady(late.status) || late.status.PodIP == "" || late.again != 0 {
		t.Errorf("late: %+v", late)
	}
	if len(late.pulled) != 2 {
		t.Errorf("pulled %v", late.pulled)
	}
}

func TestProbe(t *testing.T) {
	now := after(3*time.Second, testPod("", "h/m:1"))
	now.probe = 5 * time.Second
	early := now.decide()
	if early.status.Phase != corev1.PodRunning || isReady(early.status) || early.again != 3*time.Second {
		t.Errorf("early: %s, ready %t, again in %s", early.status.Phase, isReady(early.status), early.again)
	}
	now.now = epoch.Add(6 * time.Second)
	if late := now.decide(); !isReady(late.status) || late.again != 0 {
		t.Errorf("late: ready %t, again in %s", isReady(late.status), late.again)
	}
}

func TestPrivateImage(t *testing.T) {
	now := after(4*time.Second, testPod("", "private.example/m:1"))
	now.onNode = func(string) bool { return true }
	if got := waitingReason(now.decide().status.ContainerStatuses); got != "ImagePullBackOff" {
		t.Errorf("without credentials: %q", got)
	}
	now.authorized = func() bool { return true }
	if got := now.decide().status.Phase; got != corev1.PodRunning {
		t.Errorf("with credentials: %s", got)
	}
}

func TestStartedPodIgnoresNewDelay(t *testing.T) {
	pod := testPod("", "h/m:1")
	pod.Status.PodIP = "10.128.0.1"
	now := after(2*time.Second, pod)
	now.start = time.Minute
	if got := now.decide().status.Phase; got != corev1.PodRunning {
		t.Errorf("phase %s", got)
	}
}

func TestUnpullable(t *testing.T) {
	bad := UnpullableHost + "/x:1"
	for name, test := range map[string]struct {
		pod     *corev1.Pod
		elapsed time.Duration
		of      func(corev1.PodStatus) []corev1.ContainerStatus
		want    string
	}{
		"at first": {testPod("", bad), time.Second, containers, "ErrImagePull"},
		"later":    {testPod("", bad), time.Minute, containers, "ImagePullBackOff"},
		"init":     {testPod(bad, "h/m:1"), time.Minute, initContainers, "ImagePullBackOff"},
		"behind":   {testPod(bad, "h/m:1"), time.Minute, containers, "PodInitializing"},
	} {
		got := after(test.elapsed, test.pod).decide()
		if got.status.Phase != corev1.PodPending || waitingReason(test.of(got.status)) != test.want {
			t.Errorf("%s: %s %s", name, got.status.Phase, waitingReason(test.of(got.status)))
		}
	}
	have := after(time.Minute, testPod("", bad))
	have.onNode = func(string) bool { return true }
	if got := have.decide().status.Phase; got != corev1.PodRunning {
		t.Errorf("an image that is there need not be pulled: %s", got)
	}
}

func containers(status corev1.PodStatus) []corev1.ContainerStatus { return status.ContainerStatuses }

func initContainers(status corev1.PodStatus) []corev1.ContainerStatus {
	return status.InitContainerStatuses
}

func TestNeverReady(t *testing.T) {
	if got := after(time.Hour, testPod("", "h/m:v1-never-ready")).decide(); got.status.Phase != corev1.PodRunning || isReady(got.status) {
		t.Errorf("%s ready=%v", got.status.Phase, isReady(got.status))
	}
	broken := after(time.Hour, testPod("", "h/m:1"))
	broken.broken = true
	if isReady(broken.decide().status) {
		t.Error("ready in spite of the node")
	}
}

func TestCrash(t *testing.T) {
	pod := testPod("", "h/m:crash")
	now := after(time.Second, pod)
	first := now.decide()
	if waitingReason(first.status.ContainerStatuses) != "CrashLoopBackOff" || !first.crashed || first.again != firstBackOff {
		t.Fatalf("first: %+v", first)
	}
	pod.Status, now.restarted = first.status, now.now
	if again := now.decide(); again.crashed || again.status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("too early: %+v", again)
	}
	now.now = now.now.Add(firstBackOff)
	second := now.decide()
	if !second.crashed || second.status.ContainerStatuses[0].RestartCount != 1 || second.again != 2*firstBackOff {
		t.Errorf("second: %+v", second)
	}
}

func TestPullPodSucceeds(t *testing.T) {
	pod := testPod("", "h/m:crash")
	pod.Labels = map[string]string{PullLabel: ""}
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	got := after(time.Second, pod).decide().status
	if got.Phase != corev1.PodSucceeded || got.ContainerStatuses[0].State.Terminated.ExitCode != 0 {
		t.Errorf("%+v", got)
	}
}

func TestPullPodLooksIntoImages(t *testing.T) {
	pod := testPod("", "h/m:1")
	pod.Labels = map[string]string{PullLabel: ""}
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	pod.Spec.Containers[0].Command = []string{"/bin/sh", "-c", "…"}
	for tag, want := range map[string]struct {
		phase   corev1.PodPhase
		message string
	}{
		"1":            {corev1.PodSucceeded, "qemu QEMU emulator version"},
		"1-incomplete": {corev1.PodSucceeded, "missing /usr/bin/virt-tail\nlooked"},
		"1-no-shell":   {corev1.PodFailed, "no such file or directory"},
	} {
		pod.Spec.Containers[0].Image = "h/m:" + tag
		got := after(time.Second, pod).decide().status
		message := got.ContainerStatuses[0].State.Terminated.Message
		if got.Phase != want.phase || !strings.Contains(message, want.message) {
			t.Errorf("%s: %s, %q", tag, got.Phase, message)
		}
	}
}

func TestStatusIsStable(t *testing.T) {
	pod := testPod("h/i:1", "h/m:1")
	pod.Status = after(time.Second, pod).decide().status
	if next := after(time.Minute, pod).decide().status; differs(pod.Status, next) {
		t.Errorf("a running pod's status changed by itself:\n%+v\n%+v", pod.Status, next)
	}
}

func TestImageNames(t *testing.T) {
	for image, want := range map[string]struct{ unpullable, never, crash bool }{
		"unpullable.example/a/b:1":       {unpullable: true},
		"h/unpullable.example:1":         {},
		"h:5000/crash/never-ready":       {},
		"h/a:1-never-ready":              {never: true},
		"h/a:crash@sha256:0":             {crash: true},
		"h/a@sha256:crash-never-ready-0": {},
	} {
		if unpullable(image) != want.unpullable || neverReady(image) != want.never || crashes(image) != want.crash {
			t.Errorf("%s: unpullable %v, never ready %v, crash %v", image, unpullable(image), neverReady(image), crashes(image))
		}
	}
}

func TestHandlerKnob(t *testing.T) {
	pod := testPod("", "h/m:1")
	pod.Labels = map[string]string{kubevirt.ComponentLabel: kubevirt.HandlerComponent}
	pod.OwnerReferences = []metav1.OwnerReference{{Name: "virt-handler-a", Controller: new(true)}}
	for value, want := range map[string]bool{
		"": false, "never-ready": true, "never-ready/virt-handler-a": true, "never-ready/virt-handler": false,
	} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{kubevirt.HandlerKnob: value}}}
		if got := handlerBroken(node, pod); got != want {
			t.Errorf("%q: %v", value, got)
		}
	}
}

func TestStoppingPodIsNotReady(t *testing.T) {
	status := after(time.Second, testPod("", "h/m:1")).decide().status
	stopped := terminated(status, epoch.Add(time.Minute))
	if isReady(stopped) || stopped.Phase != corev1.PodRunning || stopped.ContainerStatuses[0].State.Terminated == nil {
		t.Errorf("%+v", stopped)
	}
	if !isReady(status) || status.ContainerStatuses[0].State.Running == nil {
		t.Error("the given status was changed")
	}
	if differs(stopped, terminated(stopped, epoch.Add(time.Hour))) {
		t.Error("a stopped pod's status changes by itself")
	}
}

func TestExit(t *testing.T) {
	for how, want := range map[string]corev1.PodPhase{"succeeded": corev1.PodSucceeded, "failed": corev1.PodFailed} {
		pod := testPod("", "h/m:1")
		pod.Annotations = map[string]string{kubevirt.ExitKnob: how}
		status := after(time.Second, pod).decide().status
		if status.Phase != want || status.ContainerStatuses[0].State.Terminated == nil || isReady(status) {
			t.Errorf("%s: %+v", how, status)
		}
	}
}

func TestReadinessGate(t *testing.T) {
	pod := testPod("", "h/m:1")
	pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: kubevirt.UnpausedGate}}
	if status := after(time.Second, pod).decide().status; isReady(status) || !conditionTrue(status.Conditions, corev1.ContainersReady) {
		t.Errorf("gate closed: %+v", status.Conditions)
	}
	pod.Status.Conditions = []corev1.PodCondition{{Type: kubevirt.UnpausedGate, Status: corev1.ConditionTrue}}
	if status := after(time.Second, pod).decide().status; !isReady(status) {
		t.Errorf("gate open: %+v", status.Conditions)
	}
}

func TestImageVolumesArePulled(t *testing.T) {
	pod := testPod("", "h/m:1")
	pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "h/v:1"}}}}
	if got := after(time.Second, pod).decide(); len(got.pulled) != 2 || got.status.Phase != corev1.PodRunning {
		t.Errorf("pulled %v, %s", got.pulled, got.status.Phase)
	}
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}
	pod.Spec.Volumes[0].Image.Reference = UnpullableHost + "/v:1"
	if got := after(time.Second, pod).decide().status; got.Phase != corev1.PodPending {
		t.Errorf("without its volume: %s", got.Phase)
	}
}

func TestContainerWaitsForImageOfVolume(t *testing.T) {
	for host, want := range map[string]string{UnpullableHost: "no such host", PrivateHost: "no basic auth credentials"} {
		pod := testPod("h/i:1", "h/m:1")
		pod.Spec.InitContainers[0].RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}
		volume := corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: host + "/v:1"}}
		pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: volume}}
		first := after(time.Second, pod).decide()
		waits := first.status.ContainerStatuses[0].State.Waiting
		if waits == nil || waits.Reason != "ErrImagePull" || !strings.Contains(waits.Message, want) {
			t.Errorf("%s: %+v", host, waits)
		}
		if first.status.InitContainerStatuses[0].State.Running == nil || first.status.PodIP == "" {
			t.Errorf("%s: the sidecar does not run: %+v", host, first.status)
		}
		later := after(time.Minute, pod).decide()
		if got := waitingReason(later.status.ContainerStatuses); got != "ImagePullBackOff" || later.again != nextPull {
			t.Errorf("%s: %q, again in %s", host, got, later.again)
		}
	}
}
