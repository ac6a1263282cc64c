// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

// Package process runs KubeVirt's own programs as processes of this machine, in place of the containers of their pods.
//
// A Deployment's pods share one process: the first pod that starts has it, the others stand by, like replicas that
// lead nothing. A pod that is not to be started again, such as a Job's, has a process of its own.
package process

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"virtpools.io/controlplane/agent/kubelet"
)

const (
	probeInterval = 100 * time.Millisecond
	restartPause  = time.Second
	// adoption is how long a pod stays ready whose process we have not started yet: we were started again.
	adoption = 20 * time.Second
	patience = 5 * time.Second // from SIGTERM to SIGKILL
)

// hosts are the last numbers of the loopback addresses on which the programs listen.
var hosts = map[string]int{"virt-operator": 2, "virt-controller": 3, "virt-api": 4}

// Options say where things are.
type Options struct {
	// Programs is a folder with a folder of programs for each version of KubeVirt.
	Programs string
	// Dir is where tokens, certificates and logs go.
	Dir string
	// Network is the first part of this cluster's loopback addresses, as in 127.80.3: programs keep their own ports.
	Network string
	// Accounts are the ServiceAccounts whose programs find the API server elsewhere.
	Accounts map[string]Cluster
	// Fronts are the addresses at which the API server finds these programs, in place of their own.
	Fronts map[string]string
}

// Runtime runs the processes of pods.
type Runtime struct {
	log     *slog.Logger
	client  kubernetes.Interface
	options Options
	cluster Cluster
	wake    func(pod string)
	started time.Time

	mutex sync.Mutex
	// roles are the processes of Deployments by program, jobs those of single pods.
	roles map[string]*role
	jobs  map[types.UID]*running
}

// role is what the pods of one Deployment share.
type role struct {
	pods    map[types.UID]*corev1.Pod
	owner   types.UID
	running *running
	ready   bool
}

// running is a process from its start to its end.
type running struct {
	cancel context.CancelFunc
	ended  chan struct{}
	code   int
}

func (r *running) over() bool {
	select {
	case <-r.ended:
		return true
	default:
		return false
	}
}

// New makes a Runtime; wake is called with a pod's namespace/name whenever its process changes.
func New(log *slog.Logger, client kubernetes.Interface, cluster Cluster, options Options) *Runtime {
	return &Runtime{
		log: log, client: client, options: options, cluster: cluster, started: time.Now(), wake: func(string) {},
		roles: map[string]*role{}, jobs: map[types.UID]*running{},
	}
}

// OnChange sets who is told of a pod whose process has changed.
func (r *Runtime) OnChange(wake func(pod string)) { r.wake = wake }

// Program is the program that the pod's first container runs, if it is one of ours.
func (r *Runtime) program(pod *corev1.Pod) (name, path string) {
	container := pod.Spec.Containers[0]
	if len(container.Command) == 0 {
		return "", ""
	}
	name = filepath.Base(container.Command[0])
	if hosts[name] == 0 {
		return "", ""
	}
	image, _, _ := strings.Cut(container.Image, "@")
	version := image[strings.LastIndex(image, ":")+1:]
	return name, filepath.Join(r.options.Programs, version, name)
}

// Sync starts the pod's process if it should run and does not, and says how it is; false: the pod has none.
func (r *Runtime) Sync(pod *corev1.Pod) (kubelet.Process, bool) {
	name, path := r.program(pod)
	if name == "" {
		return kubelet.Process{}, false
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if pod.Spec.RestartPolicy != corev1.RestartPolicyAlways {
		return r.syncJob(pod, name, path), true
	}
	shared := r.roles[name]
	if shared == nil {
		shared = &role{pods: map[types.UID]*corev1.Pod{}}
		r.roles[name] = shared
	}
	shared.pods[pod.UID] = pod
	if shared.owner == "" && shared.running == nil {
		shared.owner = pod.UID
		r.runShared(shared, name, path, pod)
	}
	adopted := time.Since(r.started) < adoption && kubelet.Holds(pod, corev1.PodReady)
	return kubelet.Process{Ready: shared.ready || adopted}, true
}

func (r *Runtime) syncJob(pod *corev1.Pod, name, path string) kubelet.Process {
	job := r.jobs[pod.UID]
	if job == nil {
		job = r.run(pod, name+"-"+pod.Name, path, nil)
		r.jobs[pod.UID] = job
		go func() {
			<-job.ended
			r.wake(key(pod))
		}()
	}
	return kubelet.Process{Ready: !job.over(), Exited: job.over(), Code: job.code}
}

// runShared keeps a program running until its pod goes, starting it again when it ends, as KubeVirt's programs do to
// read their configuration again. The caller holds the lock.
func (r *Runtime) runShared(shared *role, name, path string, pod *corev1.Pod) {
	address := r.address(name)
	shared.running = r.run(pod, name, path, []string{"--listen", address})
	current := shared.running
	go r.probe(shared, current, net.JoinHostPort(address, port(pod)))
	go func() {
		<-current.ended
		r.setReady(shared, current, false)
		time.Sleep(restartPause)
		r.mutex.Lock()
		defer r.mutex.Unlock()
		if shared.running != current {
			return
		}
		shared.running = nil
		if next, ok := shared.pods[shared.owner]; ok {
			r.log.Warn("started again", "program", name, "code", current.code)
			r.runShared(shared, name, path, next)
			return
		}
		shared.handOver(r.wake) // its pod was deleted
	}()
}

// address is where a program of this cluster listens.
func (r *Runtime) address(name string) string { return Address(r.options.Network, name) }

// Address is where a program of the cluster with that network listens.
func Address(network, program string) string { return fmt.Sprintf("%s.%d", network, hosts[program]) }

// port is the port of the program's --port.
func port(pod *corev1.Pod) string {
	args := pod.Spec.Containers[0].Args
	if i := slices.Index(args, "--port"); i >= 0 && i+1 < len(args) {
		return args[i+1]
	}
	return strconv.Itoa(8443)
}

func (r *Runtime) probe(shared *role, current *running, address string) {
	for !current.over() {
		if connection, err := net.DialTimeout("tcp", address, time.Second); err == nil {
			_ = connection.Close()
			r.setReady(shared, current, true)
			return
		}
		time.Sleep(probeInterval)
	}
}

func (r *Runtime) setReady(shared *role, current *running, ready bool) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if shared.running != current {
		return
	}
	shared.ready = ready
	for pod := range maps.Values(shared.pods) {
		r.wake(key(pod))
	}
}

func key(pod *corev1.Pod) string { return cache.MetaObjectToName(pod).String() }

// Stop ends the pod's process and returns true once it has ended, or if the pod has none.
func (r *Runtime) Stop(pod *corev1.Pod) bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if job := r.jobs[pod.UID]; job != nil {
		job.cancel()
		return job.over()
	}
	name, _ := r.program(pod)
	shared := r.roles[name]
	if shared == nil {
		return true
	}
	delete(shared.pods, pod.UID)
	if shared.owner != pod.UID {
		return true
	}
	if replica := shared.replicaOf(pod); replica != nil {
		shared.owner = replica.UID // as one replica serves on while another ends
		return true
	}
	if shared.running != nil {
		shared.running.cancel()
		if !shared.running.over() {
			return false
		}
		shared.running, shared.ready = nil, false
	}
	shared.handOver(r.wake)
	return true
}

// replicaOf is another pod from the same template, if there is one.
func (s *role) replicaOf(pod *corev1.Pod) *corev1.Pod {
	for other := range maps.Values(s.pods) {
		if other.Labels[appsv1.DefaultDeploymentUniqueLabelKey] == pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey] {
			return other
		}
	}
	return nil
}

// handOver lets the pod whose Sync comes first have the process; the newest is woken first, as it is the updated one.
func (s *role) handOver(wake func(pod string)) {
	s.owner = ""
	newest := slices.SortedFunc(maps.Values(s.pods), func(a, b *corev1.Pod) int {
		return b.CreationTimestamp.Compare(a.CreationTimestamp.Time)
	})
	for _, pod := range newest {
		wake(key(pod))
	}
}

// Address is where the program behind a pod listens; empty for pods without a process.
func (r *Runtime) Address(pod *corev1.Pod) string {
	name, _ := r.program(pod)
	if front := r.options.Fronts[name]; front != "" {
		return front
	}
	if name != "" {
		return r.address(name)
	}
	return ""
}

// run starts a program with the arguments and environment of its container.
func (r *Runtime) run(pod *corev1.Pod, name, path string, more []string) *running {
	ctx, cancel := context.WithCancel(context.Background())
	process := &running{cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(process.ended)
		process.code = -1
		arguments, err := r.arguments(ctx, pod)
		if err == nil {
			process.code, err = r.execute(ctx, pod, name, path, append(arguments, more...))
		}
		if err != nil && ctx.Err() == nil {
			r.log.Error("a program has failed", "program", name, "error", err)
		}
	}()
	return process
}

func (r *Runtime) execute(ctx context.Context, pod *corev1.Pod, name, path string, arguments []string) (int, error) {
	log, err := os.OpenFile(filepath.Join(r.options.Dir, "logs", name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return -1, err
	}
	defer log.Close()
	command := r.inPod(ctx, pod, path, arguments)
	command.Env = append(environment(pod), "HOME="+r.options.Dir)
	for _, ours := range []string{"PATH", "GOGC", "GOMAXPROCS", "TMPDIR"} {
		command.Env = append(command.Env, ours+"="+os.Getenv(ours))
	}
	command.Stdout, command.Stderr = log, log
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.WaitDelay = patience
	err = command.Run()
	return command.ProcessState.ExitCode(), err
}

// inPod is the command of a program that finds what it needs of its pod: it ends with us.
func (r *Runtime) inPod(ctx context.Context, pod *corev1.Pod, path string, arguments []string) *exec.Cmd {
	command := exec.CommandContext(ctx, path, arguments...)
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if pod.Namespace != defaultNamespace {
		inNamespace(command, pod.Namespace)
	}
	return command
}

// environment is the container's: the values in the pod itself.
func environment(pod *corev1.Pod) []string {
	var variables []string
	for _, variable := range pod.Spec.Containers[0].Env {
		value := variable.Value
		if source := variable.ValueFrom; source != nil && source.FieldRef != nil {
			value = field(pod, source.FieldRef.FieldPath)
		}
		variables = append(variables, variable.Name+"="+value)
	}
	return variables
}

func field(pod *corev1.Pod, path string) string {
	switch path {
	case "metadata.name":
		return pod.Name
	case "metadata.namespace":
		return pod.Namespace
	case "spec.nodeName":
		return pod.Spec.NodeName
	case "status.podIP":
		return pod.Status.PodIP
	}
	if name, ok := strings.CutPrefix(path, "metadata.annotations['"); ok {
		return pod.Annotations[strings.TrimSuffix(name, "']")]
	}
	return ""
}
