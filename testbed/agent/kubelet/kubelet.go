// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

// Package kubelet plays the kubelets of all nodes, for pods. kwok keeps the nodes themselves alive.
package kubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"virtpools.io/controlplane/agent/loop"
)

// processInterval is how often to look whether a stopped process has ended.
const processInterval = 200 * time.Millisecond

// NodeIndex finds the pods of a node in the shared informer.
const NodeIndex = "node"

// Indexers are what the pod informer must have.
func Indexers() cache.Indexers {
	return cache.Indexers{NodeIndex: func(object any) ([]string, error) {
		pod, ok := object.(*corev1.Pod)
		if !ok || pod.Spec.NodeName == "" {
			return nil, nil
		}
		return []string{pod.Spec.NodeName}, nil
	}}
}

// Processes run the containers of some pods as processes of this machine.
type Processes interface {
	// Sync starts the pod's process if it should run and does not, and says how it is; false: the pod has none.
	Sync(pod *corev1.Pod) (Process, bool)
	// Stop ends the pod's process and returns true once it has ended, or if the pod has none.
	Stop(pod *corev1.Pod) bool
	// OnChange sets who is told the namespace/name of a pod whose process has changed.
	OnChange(wake func(pod string))
}

// Process is the state of a pod's process.
type Process struct {
	Ready, Exited bool
	// Code is the exit code.
	Code int
}

// Kubelet runs the pods of every node.
type Kubelet struct {
	log       *slog.Logger
	client    kubernetes.Interface
	delays    Delays
	queue     loop.Queue
	pods      cache.Indexer
	nodes     corelisters.NodeLister
	processes Processes
	images    images
	lives     sync.Map // of types.UID: *life
	addresses *addresses
}

// life is what the kubelet remembers of a pod. Statuses only know whole seconds.
type life struct {
	since, stopping, restarted time.Time
	podIP                      string
}

// New makes a Kubelet that is woken by the informers.
func New(log *slog.Logger, client kubernetes.Interface, delays Delays, processes Processes,
	pods, nodes cache.SharedIndexInformer,
) (*Kubelet, error) {
	k := &Kubelet{
		log: log, client: client, delays: delays, processes: processes,
		queue: loop.NewQueue(100*time.Millisecond, 10*time.Second),
		pods:  pods.GetIndexer(), nodes: corelisters.NewNodeLister(nodes.GetIndexer()), addresses: newAddresses(),
	}
	processes.OnChange(func(pod string) { k.queue.Add(pod) })
	if _, err := pods.AddEventHandler(k.podEvents()); err != nil {
		return nil, err
	}
	_, err := nodes.AddEventHandler(k.nodeEvents())
	return k, err
}

func (k *Kubelet) podEvents() cache.ResourceEventHandler {
	wake := func(object any) {
		if pod, ok := object.(*corev1.Pod); ok && pod.Spec.NodeName != "" {
			k.addresses.take(pod.Status.PodIP)
			k.queue.Add(cache.MetaObjectToName(pod).String())
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    wake,
		UpdateFunc: func(_, after any) { wake(after) },
		DeleteFunc: func(object any) {
			if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = gone.Obj
			}
			if pod, ok := object.(*corev1.Pod); ok {
				k.lives.Delete(pod.UID)
				k.processes.Stop(pod) // it was deleted by force
			}
		},
	}
}

func (k *Kubelet) nodeEvents() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) {
			if node, ok := object.(*corev1.Node); ok {
				k.wakePodsOf(node.Name)
			}
		},
		UpdateFunc: func(before, after any) {
			old, node := before.(*corev1.Node), after.(*corev1.Node)
			if !sameKnobs(old, node) || lost(old) != lost(node) {
				k.wakePodsOf(node.Name)
			}
		},
		DeleteFunc: func(object any) {
			if node, ok := object.(*corev1.Node); ok {
				k.images.forget(node.Name)
			}
		},
	}
}

func (k *Kubelet) wakePodsOf(node string) {
	objects, err := k.pods.ByIndex(NodeIndex, node)
	if err != nil {
		k.log.Error("no index of pods by node", "error", err)
		return
	}
	for _, object := range objects {
		k.queue.Add(cache.MetaObjectToName(object.(*corev1.Pod)).String())
	}
}

// Run works until the context ends.
func (k *Kubelet) Run(ctx context.Context) { loop.Run(ctx, k.log, k.queue, 8, k.sync) }

func (k *Kubelet) sync(ctx context.Context, key string) error {
	object, exists, err := k.pods.GetByKey(key)
	if err != nil || !exists {
		return err
	}
	pod := object.(*corev1.Pod)
	node, err := k.nodes.Get(pod.Spec.NodeName)
	if err != nil {
		return nil // no such node: the garbage collector deletes its pods
	}
	if Down(node) {
		return k.neglect(ctx, pod, node)
	}
	delays := delaysOf(node, k.delays)
	mine := k.life(pod)
	if pod.DeletionTimestamp != nil {
		return k.stop(ctx, key, pod, mine, delays.Stop)
	}
	if Finished(pod) {
		return nil
	}
	return k.advance(ctx, key, pod, node, mine, delays)
}

// neglect leaves the pod alone until the node returns. It only does what the node lifecycle controller does to the pods
// of a lost node: here that controller does not see the loss, because kwok declares it.
func (k *Kubelet) neglect(ctx context.Context, pod *corev1.Pod, node *corev1.Node) error {
	if !lost(node) || !conditionTrue(pod.Status.Conditions, corev1.PodReady) {
		return nil
	}
	return k.publish(ctx, pod, unready(pod.Status, time.Now(), corev1.PodReady))
}

func conditionTrue(conditions []corev1.PodCondition, kind corev1.PodConditionType) bool {
	for _, condition := range conditions {
		if condition.Type == kind {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// Holds tells whether a condition of a pod is true.
func Holds(pod *corev1.Pod, kind corev1.PodConditionType) bool {
	return conditionTrue(pod.Status.Conditions, kind)
}

// Finished tells whether a pod has ended.
func Finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// Running is the state of a pod's container that runs, or nil.
func Running(pod *corev1.Pod, container string) *corev1.ContainerStateRunning {
	for _, status := range pod.Status.ContainerStatuses {
		if status.Name == container {
			return status.State.Running
		}
	}
	return nil
}

// life is used only by the worker that has the pod's key.
func (k *Kubelet) life(pod *corev1.Pod) *life {
	found, ok := k.lives.Load(pod.UID)
	if !ok {
		fresh := &life{since: time.Now(), podIP: pod.Status.PodIP}
		if pod.Status.StartTime != nil {
			fresh.since = pod.Status.StartTime.Time // we were restarted
		}
		found, _ = k.lives.LoadOrStore(pod.UID, fresh)
	}
	return found.(*life)
}

func (k *Kubelet) stop(ctx context.Context, key string, pod *corev1.Pod, mine *life, delay time.Duration) error {
	if mine.stopping.IsZero() {
		mine.stopping = time.Now()
	}
	left := delay - time.Since(mine.stopping)
	if !k.processes.Stop(pod) {
		left = max(left, processInterval)
	}
	if left > 0 && !Finished(pod) {
		k.queue.AddAfter(key, left)
		return k.publish(ctx, pod, terminated(pod.Status, time.Now()))
	}
	// An API server that is killed between its two writes for this deletion leaves a pod without finalizers: delete that again.
	done := pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0
	if done && len(pod.Finalizers) > 0 {
		return nil
	}
	err := k.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64(0)), Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

func (k *Kubelet) advance(ctx context.Context, key string, pod *corev1.Pod, node *corev1.Node, mine *life, delays Delays) error {
	if mine.podIP == "" {
		mine.podIP = k.newAddress(pod, node)
	}
	probe := time.Duration(0)
	if isHandler(pod) {
		probe = delays.HandlerReady
	}
	next := situation{
		pod: pod, since: mine.since, restarted: mine.restarted, now: time.Now(), start: delays.Start, probe: probe,
		podIP: mine.podIP, nodeIP: internalIP(node), broken: handlerBroken(node, pod),
		onNode:     func(image string) bool { return k.images.has(node, image) },
		authorized: func() bool { return trusted(node) || k.hasPullSecret(ctx, pod) },
		process:    func() (Process, bool) { return k.processes.Sync(pod) },
	}.decide()
	if err := k.publishImages(ctx, node, next.pulled); err != nil {
		return err
	}
	if err := k.publish(ctx, pod, next.status); err != nil {
		return err
	}
	if next.crashed {
		mine.restarted = time.Now()
	}
	if next.again > 0 {
		k.queue.AddAfter(key, next.again)
	}
	return nil
}

// hasPullSecret tells whether a pull secret of the pod is there; as with a real kubelet, one that is missing does no harm.
func (k *Kubelet) hasPullSecret(ctx context.Context, pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.ImagePullSecrets, func(secret corev1.LocalObjectReference) bool {
		_, err := k.client.CoreV1().Secrets(pod.Namespace).Get(ctx, secret.Name, metav1.GetOptions{})
		return err == nil
	})
}

func (k *Kubelet) newAddress(pod *corev1.Pod, node *corev1.Node) string {
	if ip := internalIP(node); pod.Spec.HostNetwork && ip != "" {
		return ip
	}
	return k.addresses.next()
}

// addresses are those that pods have had. None is used twice, also not after we were started again.
type addresses struct {
	mutex  sync.Mutex
	taken  map[string]bool
	number uint32
}

func newAddresses() *addresses { return &addresses{taken: map[string]bool{}} }

func (a *addresses) take(address string) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	a.taken[address] = true
}

func (a *addresses) next() string {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	for {
		a.number++
		address := fmt.Sprintf("10.%d.%d.%d", 128+a.number>>16&63, a.number>>8&255, a.number&255)
		if !a.taken[address] {
			a.taken[address] = true
			return address
		}
	}
}

func internalIP(node *corev1.Node) string {
	for _, address := range node.Status.Addresses {
		if address.Type == corev1.NodeInternalIP {
			return address.Address
		}
	}
	return ""
}

func (k *Kubelet) publish(ctx context.Context, pod *corev1.Pod, status corev1.PodStatus) error {
	if !differs(pod.Status, status) {
		return nil
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status})
	if err != nil {
		return err
	}
	_, err = k.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, body, metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // deleted, or another pod of that name
	}
	return err
}

// differs compares only what a kubelet writes, not the fields of others (such as the quality of service).
func differs(have, want corev1.PodStatus) bool {
	return have.Phase != want.Phase || have.PodIP != want.PodIP || have.HostIP != want.HostIP ||
		!equality.Semantic.DeepEqual(have.Conditions, want.Conditions) ||
		!equality.Semantic.DeepEqual(have.InitContainerStatuses, want.InitContainerStatuses) ||
		!equality.Semantic.DeepEqual(have.ContainerStatuses, want.ContainerStatuses)
}

func (k *Kubelet) publishImages(ctx context.Context, node *corev1.Node, pulled []string) error {
	return k.images.add(node, pulled, func(list []corev1.ContainerImage) error {
		body, err := json.Marshal(map[string]any{"status": map[string]any{"images": list}})
		if err != nil {
			return err
		}
		_, err = k.client.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, body, metav1.PatchOptions{}, "status")
		return err
	})
}
