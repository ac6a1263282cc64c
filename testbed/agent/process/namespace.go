// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

package process

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
)

const (
	// defaultNamespace is what KubeVirt's programs take where no file tells them their namespace.
	defaultNamespace = "kubevirt"
	// InNamespace is the first argument with which this program starts another one that finds a namespace's name where a
	// pod has it. No flag of KubeVirt's programs sets it.
	InNamespace = "in-namespace"
	// run is hidden from the program: the file is mounted in it, at /var/run/secrets/kubernetes.io/serviceaccount.
	run = "/run"
)

// inNamespace changes the command so that it runs in a mount namespace of its own, which needs root or user namespaces.
func inNamespace(command *exec.Cmd, namespace string) {
	own, err := os.Executable()
	if err != nil {
		command.Err = err
		return
	}
	command.Args = append([]string{own, InNamespace, namespace, command.Path}, command.Args[1:]...)
	command.Path = own
	command.SysProcAttr.Cloneflags = syscall.CLONE_NEWNS
	if uid := os.Getuid(); uid != 0 {
		command.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		command.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
		command.SysProcAttr.AmbientCaps = []uintptr{21} // CAP_SYS_ADMIN, to mount
	}
}

// A thread asks for its own end with its parent's: whichever thread becomes the program must be the one that was started.
func init() {
	if len(os.Args) > 1 && os.Args[1] == InNamespace {
		runtime.LockOSThread()
	}
}

// Become mounts the file with the namespace's name and then runs the program in place of this one. Only main may call it.
func Become(namespace, program string, arguments []string) error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("mounts made private: %w", err)
	}
	if err := syscall.Mount("tmpfs", run, "tmpfs", 0, ""); err != nil {
		return fmt.Errorf("a file system at %s: %w", run, err)
	}
	folder := filepath.Join(run, "secrets/kubernetes.io/serviceaccount")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, "namespace"), []byte(namespace), 0o644); err != nil {
		return err
	}
	return syscall.Exec(program, append([]string{program}, arguments...), os.Environ())
}
