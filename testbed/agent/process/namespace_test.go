// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

package process

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
)

// whatItGot is the first argument with which this test program is the program that Become runs.
const whatItGot = "what-it-got"

// The kernel has the signal at the parent's end for the first thread only, so the program must ask in that thread.
func init() {
	if len(os.Args) > 1 && os.Args[1] == whatItGot {
		runtime.LockOSThread()
	}
}

func TestMain(m *testing.M) {
	switch {
	case len(os.Args) > 3 && os.Args[1] == InNamespace:
		leaveFirstThread()
		fmt.Println(Become(os.Args[2], os.Args[3], os.Args[4:]))
		os.Exit(1)
	case len(os.Args) > 1 && os.Args[1] == whatItGot:
		var atParentsEnd uintptr
		_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_GET_PDEATHSIG, uintptr(unsafe.Pointer(&atParentsEnd)), 0)
		namespace, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
		fmt.Println(syscall.Signal(atParentsEnd), string(namespace), err)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// leaveFirstThread gives the scheduler every reason to go on in another thread, as it now and then does by itself.
func leaveFirstThread() {
	for range 4 {
		go func() {
			for {
				runtime.Gosched()
			}
		}()
	}
	for i := 0; i < 100_000 && syscall.Gettid() == os.Getpid(); i++ {
		runtime.Gosched()
	}
}

func TestAProgramInANamespaceFindsItsNameAndEndsWithTheAgent(t *testing.T) {
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r := newRuntime(t, "exit 0")
	pod := operatorPod("operator", corev1.RestartPolicyAlways)
	pod.Namespace = "elsewhere"
	output, err := r.inPod(t.Context(), pod, own, []string{whatItGot}).CombinedOutput()
	if got := strings.TrimSpace(string(output)); err != nil || got != "killed elsewhere <nil>" {
		t.Errorf("got %q, %v", got, err)
	}
}
