// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

package process

import (
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"virtpools.io/controlplane/agent/kubelet"
)

// newRuntime has a version v1 of virt-operator, which is the given shell script.
func newRuntime(t *testing.T, script string) *Runtime {
	t.Helper()
	dir := t.TempDir()
	for _, folder := range []string{"logs", "programs/v1"} {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	program := filepath.Join(dir, "programs/v1/virt-operator")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	client := fake.NewClientset()
	client.PrependReactor("create", "serviceaccounts", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &authenticationv1.TokenRequest{}, nil
	})
	return New(slog.New(slog.DiscardHandler), client, Cluster{}, Options{
		Programs: filepath.Join(dir, "programs"), Dir: dir, Network: "127.99.1",
	})
}

func operatorPod(name string, policy corev1.RestartPolicy) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "kubevirt", UID: types.UID(name)},
		Spec: corev1.PodSpec{RestartPolicy: policy, ServiceAccountName: "kubevirt-operator", Containers: []corev1.Container{{
			Image: "h/virt-operator:v1@sha256:0", Command: []string{"virt-operator"}, Args: []string{"--port", "8443"},
			Env: []corev1.EnvVar{{Name: "WHO", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}}},
		}}},
	}
}

func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("in vain: " + what)
		}
	}
}

func TestAJobEndsWithItsProgramsCode(t *testing.T) {
	r := newRuntime(t, "exit 3")
	pod := operatorPod("job", corev1.RestartPolicyNever)
	var last kubelet.Process
	until(t, "the end", func() bool { last, _ = r.Sync(pod); return last.Exited })
	if last.Code != 3 || last.Ready {
		t.Errorf("%+v", last)
	}
}

func TestOtherPodsHaveNoProcess(t *testing.T) {
	r := newRuntime(t, "exit 0")
	pod := operatorPod("handler", corev1.RestartPolicyAlways)
	pod.Spec.Containers[0].Command = []string{"virt-handler"}
	if _, ok := r.Sync(pod); ok || !r.Stop(pod) || r.Address(pod) != "" {
		t.Error("virt-handler has a process")
	}
}

func TestPodsOfADeploymentShareAProcessThatTheNextOneTakesOver(t *testing.T) {
	r := newRuntime(t, `echo "$WHO" "$@" >> "$HOME/said"; exec sleep 60`)
	first, second := operatorPod("first", corev1.RestartPolicyAlways), operatorPod("second", corev1.RestartPolicyAlways)
	second.Labels = map[string]string{appsv1.DefaultDeploymentUniqueLabelKey: "another template"}
	said := func() string { text, _ := os.ReadFile(filepath.Join(r.options.Dir, "said")); return string(text) }
	for _, pod := range []*corev1.Pod{first, second} {
		if _, ok := r.Sync(pod); !ok {
			t.Fatal("no process")
		}
	}
	until(t, "the first", func() bool { return strings.Count(said(), "\n") == 1 })
	if process, _ := r.Sync(second); process.Ready {
		t.Error("ready although nothing listens")
	}
	listener, err := net.Listen("tcp", r.Address(first)+":8443") // the script cannot
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	for _, pod := range []*corev1.Pod{first, second} {
		until(t, "readiness", func() bool { process, _ := r.Sync(pod); return process.Ready })
	}
	until(t, "the first to stop", func() bool { return r.Stop(first) })
	r.Sync(second)
	until(t, "the second", func() bool { return strings.Count(said(), "\n") == 2 })
	until(t, "the second to stop", func() bool { return r.Stop(second) })
	for i, line := range strings.Split(strings.TrimSpace(said()), "\n") {
		if who := []string{"first ", "second "}[i]; !strings.HasPrefix(line, who+"--port 8443 --kubeconfig ") || !strings.HasSuffix(line, "--listen 127.99.1.2") {
			t.Errorf("%s", line)
		}
	}
}

func TestAReplicaServesOnWhileAnotherEnds(t *testing.T) {
	r := newRuntime(t, `echo "$WHO" >> "$HOME/said"; exec sleep 60`)
	first, second := operatorPod("first", corev1.RestartPolicyAlways), operatorPod("second", corev1.RestartPolicyAlways)
	said := func() string { text, _ := os.ReadFile(filepath.Join(r.options.Dir, "said")); return string(text) }
	r.Sync(first)
	listener, err := net.Listen("tcp", r.Address(first)+":8443")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	until(t, "readiness", func() bool { process, _ := r.Sync(second); return process.Ready })
	until(t, "its program", func() bool { return said() == "first\n" }) // we listen in its place, so readiness tells nothing
	if !r.Stop(first) {
		t.Error("it does not end at once")
	}
	if process, _ := r.Sync(second); !process.Ready {
		t.Error("the other replica does not serve")
	}
	until(t, "its end", func() bool { return r.Stop(second) })
	if said() != "first\n" {
		t.Error(said())
	}
}

func TestAProgramThatEndsIsStartedAgain(t *testing.T) {
	r := newRuntime(t, `echo x >> "$HOME/said"`)
	pod := operatorPod("pod", corev1.RestartPolicyAlways)
	r.Sync(pod)
	until(t, "a second start", func() bool {
		text, _ := os.ReadFile(filepath.Join(r.options.Dir, "said"))
		return len(text) >= len("x\nx\n")
	})
	until(t, "its end", func() bool { return r.Stop(pod) })
}
