// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

// Package handler plays the virt-handler in every handler pod: its marks on the node.
package handler

import (
	"context"
	"encoding/json"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"virtpools.io/controlplane/agent/kubelet"
	"virtpools.io/controlplane/agent/kubevirt"
	"virtpools.io/controlplane/agent/loop"
)

// A heartbeat every 60 to 130 seconds.
const (
	shortestBeat = 60 * time.Second
	beatJitter   = 70 * time.Second
)

// Options say where handlers run, and how long one takes to its first heartbeat: from Ready, or with BeforeReady from the
// start of its container, as a real one.
type Options struct {
	Namespace      string
	HeartbeatDelay time.Duration
	BeforeReady    bool
}

// Handler plays every node's virt-handler.
type Handler struct {
	log      *slog.Logger
	options  Options
	client   kubernetes.Interface
	recorder record.EventRecorder
	queue    loop.Queue
	pods     cache.Indexer
	nodes    corelisters.NodeLister
	memories sync.Map // of node name: *memory
	started  time.Time
}

// memory is what is known of a node's handlers. Only the worker that has the node's key uses it.
type memory struct {
	crowded bool
	running map[types.UID]*process
}

// process is the virt-handler in one pod.
type process struct {
	stopped  bool
	nextBeat time.Time
}

// New makes a Handler that is woken by the informers.
func New(log *slog.Logger, client kubernetes.Interface, recorder record.EventRecorder, options Options,
	pods, nodes cache.SharedIndexInformer,
) (*Handler, error) {
	h := &Handler{
		log: log, options: options, client: client, recorder: recorder, started: time.Now(),
		queue: loop.NewQueue(100*time.Millisecond, 10*time.Second),
		pods:  pods.GetIndexer(), nodes: corelisters.NewNodeLister(nodes.GetIndexer()),
	}
	wakePod := func(object any) {
		if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = gone.Obj
		}
		if pod, ok := object.(*corev1.Pod); ok && h.isHandler(pod) {
			h.queue.Add(pod.Spec.NodeName)
		}
	}
	_, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: wakePod, DeleteFunc: wakePod, UpdateFunc: func(_, after any) { wakePod(after) },
	})
	if err != nil {
		return nil, err
	}
	_, err = nodes.AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, after any) {
			if old, node := before.(*corev1.Node), after.(*corev1.Node); kubelet.Down(old) != kubelet.Down(node) {
				h.queue.Add(node.Name)
			}
		},
	})
	return h, err
}

func (h *Handler) isHandler(pod *corev1.Pod) bool {
	return pod.Namespace == h.options.Namespace && pod.Spec.NodeName != "" &&
		pod.Labels[kubevirt.ComponentLabel] == kubevirt.HandlerComponent
}

// Run works until the context ends.
func (h *Handler) Run(ctx context.Context) { loop.Run(ctx, h.log, h.queue, 4, h.sync) }

func (h *Handler) sync(ctx context.Context, name string) error {
	node, err := h.nodes.Get(name)
	if apierrors.IsNotFound(err) {
		h.memories.Delete(name)
		return nil
	}
	if err != nil {
		return err
	}
	pods, err := h.handlersOn(name)
	if err != nil {
		return err
	}
	found, _ := h.memories.LoadOrStore(name, &memory{running: map[types.UID]*process{}})
	known := found.(*memory)
	if err := h.reportCrowd(ctx, node, known, pods); err != nil {
		return err
	}
	if kubelet.Down(node) {
		return nil // no process on the node does anything
	}
	return h.act(ctx, node, known, pods)
}

func (h *Handler) handlersOn(node string) ([]*corev1.Pod, error) {
	objects, err := h.pods.ByIndex(kubelet.NodeIndex, node)
	if err != nil {
		return nil, err
	}
	var pods []*corev1.Pod
	for _, object := range objects {
		if pod := object.(*corev1.Pod); h.isHandler(pod) {
			pods = append(pods, pod)
		}
	}
	return pods, nil
}

// reportCrowd tells tests of every time that a node came to have two handler pods. Phase and deletion do not matter:
// virt-api does not look at them either when it refuses to talk to such a node.
func (h *Handler) reportCrowd(ctx context.Context, node *corev1.Node, known *memory, pods []*corev1.Pod) error {
	crowded := len(pods) > 1
	if crowded == known.crowded || !crowded {
		known.crowded = crowded
		return nil
	}
	// After a restart of the API server, the informer adds new pods before it removes those that are gone.
	live, err := h.countNow(ctx, node.Name)
	if err != nil || live < 2 {
		return err
	}
	times, _ := strconv.Atoi(node.Annotations[kubevirt.TwoHandlersReport]) // none yet
	times++
	h.log.Error("more than one handler on a node", "node", node.Name, "pods", live, "times", times)
	h.recorder.Eventf(node, corev1.EventTypeWarning, "TwoHandlers", "Expected to find one Pod, found %d Pods", live)
	report := map[string]string{kubevirt.TwoHandlersReport: strconv.Itoa(times)}
	err = h.patch(ctx, node.Name, map[string]any{"metadata": map[string]any{"annotations": report}})
	if err == nil {
		known.crowded = true
	}
	return err
}

// countNow asks the API server how many handler pods a node has.
func (h *Handler) countNow(ctx context.Context, node string) (int, error) {
	found, err := h.client.CoreV1().Pods(h.options.Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: kubevirt.ComponentLabel + "=" + kubevirt.HandlerComponent,
		FieldSelector: "spec.nodeName=" + node,
	})
	if err != nil {
		return 0, err
	}
	return len(found.Items), nil
}

// act plays the processes: a process that starts or stops makes the node unschedulable; one that beats makes it schedulable
// with each heartbeat, whether or not another handler is there.
func (h *Handler) act(ctx context.Context, node *corev1.Node, known *memory, pods []*corev1.Pod) error {
	present := map[types.UID]bool{}
	for _, pod := range pods {
		present[pod.UID] = true
		if err := h.actPod(ctx, node, known, pod); err != nil {
			return err
		}
	}
	for uid := range known.running {
		if !present[uid] {
			delete(known.running, uid)
		}
	}
	return nil
}

func (h *Handler) actPod(ctx context.Context, node *corev1.Node, known *memory, pod *corev1.Pod) error {
	mine := known.running[pod.UID]
	if mine == nil {
		if pod.Status.Phase != corev1.PodRunning {
			return nil
		}
		mine = &process{nextBeat: h.resumed(node, pod)}
		if mine.nextBeat.IsZero() && pod.DeletionTimestamp == nil {
			if err := h.unschedulable(ctx, node); err != nil {
				return err
			}
		}
		known.running[pod.UID] = mine
	}
	if pod.DeletionTimestamp != nil {
		if mine.stopped {
			return nil
		}
		mine.stopped = true
		return h.unschedulable(ctx, node)
	}
	if !h.options.BeforeReady && !ready(pod) {
		return nil
	}
	now := time.Now()
	if mine.nextBeat.IsZero() {
		mine.nextBeat = now.Add(h.options.HeartbeatDelay)
	}
	if left := mine.nextBeat.Sub(now); left > 0 {
		h.queue.AddAfter(node.Name, left)
		return nil
	}
	if node.Annotations[kubevirt.HeartbeatKnob] != "silent" {
		if err := h.beat(ctx, node, now); err != nil {
			return err
		}
	}
	pause := shortestBeat + rand.N(beatJitter)
	mine.nextBeat = now.Add(pause)
	h.queue.AddAfter(node.Name, pause)
	return nil
}

// resumed finds a handler that had sent heartbeats before the agent itself was started.
func (h *Handler) resumed(node *corev1.Node, pod *corev1.Pod) time.Time {
	beat, err := time.Parse(time.RFC3339, node.Annotations[kubevirt.HeartbeatAnnotation])
	since := readySince(pod)
	if err != nil || since.IsZero() || since.After(h.started) || beat.Before(since) || node.Labels[kubevirt.SchedulableLabel] != "true" {
		return time.Time{}
	}
	return beat.Add(shortestBeat + rand.N(beatJitter))
}

// beat is what virt-handler writes with each heartbeat: RFC 3339 without quotes, and the labels.
func (h *Handler) beat(ctx context.Context, node *corev1.Node, now time.Time) error {
	return h.mark(ctx, node, true, map[string]any{
		"labels": map[string]string{
			kubevirt.SchedulableLabel: "true", "cpumanager": "false", "kubevirt.io/cpumanager": "false",
		},
		"annotations": map[string]string{kubevirt.HeartbeatAnnotation: now.UTC().Format(time.RFC3339)},
	})
}

// unschedulable is what virt-handler writes first of all, and when it ends: no heartbeat. It does not trust the cached label: a
// heartbeat may just have been sent.
func (h *Handler) unschedulable(ctx context.Context, node *corev1.Node) error {
	return h.mark(ctx, node, false, map[string]any{"labels": map[string]string{kubevirt.SchedulableLabel: "false"}})
}

func (h *Handler) mark(ctx context.Context, node *corev1.Node, registered bool, metadata map[string]any) error {
	if err := h.patch(ctx, node.Name, map[string]any{"metadata": metadata}); err != nil {
		return err
	}
	return h.offer(ctx, node, registered)
}

// offer is what the kubelet does with the devices of virt-handler's plugins: none is left while no handler runs.
func (h *Handler) offer(ctx context.Context, node *corev1.Node, registered bool) error {
	allocatable := map[corev1.ResourceName]string{}
	for name, amount := range node.Status.Capacity {
		if h.plugged(name) {
			allocatable[name] = "0"
			if registered {
				allocatable[name] = amount.String()
			}
		}
	}
	return h.patch(ctx, node.Name, map[string]any{"status": map[string]any{"allocatable": allocatable}}, "status")
}

// plugged tells whether a resource is offered by one of virt-handler's device plugins. The fleets' GPUs are not: their
// plugins are those of the vendors.
func (h *Handler) plugged(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), "devices.kubevirt.io/")
}

func (h *Handler) patch(ctx context.Context, node string, change map[string]any, subresources ...string) error {
	body, err := json.Marshal(change)
	if err != nil {
		return err
	}
	_, err = h.client.CoreV1().Nodes().Patch(
		ctx, node, types.MergePatchType, body, metav1.PatchOptions{FieldManager: kubevirt.HandlerComponent}, subresources...)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func ready(pod *corev1.Pod) bool { return !readySince(pod).IsZero() }

func readySince(pod *corev1.Pod) time.Time {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue {
			return condition.LastTransitionTime.Time
		}
	}
	return time.Time{}
}
