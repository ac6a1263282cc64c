// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

// Package guest plays what virt-handler, virt-launcher and guests do to virtual machine instances. virt-controller is
// the real one.
package guest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"virtpools.io/controlplane/agent/kubelet"
	"virtpools.io/controlplane/agent/kubevirt"
	"virtpools.io/controlplane/agent/loop"
)

const (
	instanceIndex = "instance"
	// again is how long to wait for a handler or a pod that is not there.
	again = 2 * time.Second
)

// Indexers are what the pod informer must have.
func Indexers() cache.Indexers {
	return cache.Indexers{instanceIndex: func(object any) ([]string, error) {
		if pod, ok := object.(*corev1.Pod); ok {
			if key := instanceOf(pod); key != "" {
				return []string{key}, nil
			}
		}
		return nil, nil
	}}
}

// instanceOf is the namespace/name of a launcher pod's instance.
func instanceOf(pod *corev1.Pod) string {
	if owner := metav1.GetControllerOf(pod); owner != nil && owner.Kind == "VirtualMachineInstance" {
		return pod.Namespace + "/" + owner.Name
	}
	return ""
}

// Options say in which namespace handlers run, and how long a migration takes.
type Options struct {
	Namespace string
	Migration time.Duration
}

// Guests follows all instances.
type Guests struct {
	log     *slog.Logger
	options Options
	config  *rest.Config
	client  kubernetes.Interface
	queue   loop.Queue
	vmis    cache.Store
	pods    cache.Indexer
	nodes   corelisters.NodeLister
	clients sync.Map // of node name: dynamic.Interface
}

// New makes Guests that are woken by the informers.
func New(log *slog.Logger, config *rest.Config, client kubernetes.Interface, options Options,
	vmis, pods, nodes cache.SharedIndexInformer,
) (*Guests, error) {
	g := &Guests{
		log: log, options: options, config: config, client: client,
		queue: loop.NewQueue(100*time.Millisecond, 5*time.Second),
		vmis:  vmis.GetStore(), pods: pods.GetIndexer(), nodes: corelisters.NewNodeLister(nodes.GetIndexer()),
	}
	_, err1 := vmis.AddEventHandler(onEvent(func(object any) {
		if vmi, ok := object.(*unstructured.Unstructured); ok {
			g.queue.Add(cache.MetaObjectToName(vmi).String())
		}
	}))
	_, err2 := pods.AddEventHandler(onEvent(func(object any) {
		if pod, ok := object.(*corev1.Pod); ok {
			g.podChanged(pod)
		}
	}))
	return g, errors.Join(err1, err2)
}

func onEvent(wake func(any)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{AddFunc: wake, UpdateFunc: func(_, after any) { wake(after) }}
}

// podChanged wakes a launcher pod's instance, or those of a handler's node.
func (g *Guests) podChanged(pod *corev1.Pod) {
	if key := instanceOf(pod); key != "" {
		g.queue.Add(key)
		return
	}
	if !g.isHandler(pod) {
		return
	}
	for _, other := range g.podsOn(pod.Spec.NodeName) {
		if key := instanceOf(other); key != "" {
			g.queue.Add(key)
		}
	}
}

func (g *Guests) isHandler(pod *corev1.Pod) bool {
	return pod.Namespace == g.options.Namespace && pod.Labels[kubevirt.ComponentLabel] == kubevirt.HandlerComponent
}

func (g *Guests) podsOn(node string) []*corev1.Pod { return g.indexed(kubelet.NodeIndex, node) }

func (g *Guests) indexed(index, value string) []*corev1.Pod {
	objects, err := g.pods.ByIndex(index, value)
	if err != nil {
		g.log.Error("no such index of pods", "index", index, "error", err)
	}
	var pods []*corev1.Pod
	for _, object := range objects {
		pods = append(pods, object.(*corev1.Pod))
	}
	return pods
}

// handled tells whether the node's kubelet works, and exactly one virt-handler, a ready one, is on the node.
func (g *Guests) handled(name string) bool {
	node, err := g.nodes.Get(name)
	if err != nil || kubelet.Down(node) {
		return false
	}
	handlers, ready := 0, false
	for _, pod := range g.podsOn(name) {
		if g.isHandler(pod) {
			handlers++
			ready = pod.DeletionTimestamp == nil && kubelet.Holds(pod, corev1.PodReady)
		}
	}
	return handlers == 1 && ready
}

// lasts tells whether a virt-handler that ran on the node at that time, in whole seconds, still does.
func (g *Guests) lasts(node string, then time.Time) bool {
	for _, pod := range g.podsOn(node) {
		if !g.isHandler(pod) {
			continue
		}
		if running := kubelet.Running(pod, kubevirt.HandlerComponent); running != nil && !running.StartedAt.After(then) {
			return true
		}
	}
	return false
}

// Run works until the context ends.
func (g *Guests) Run(ctx context.Context) { loop.Run(ctx, g.log, g.queue, 8, g.sync) }

func (g *Guests) sync(ctx context.Context, key string) error {
	object, exists, err := g.vmis.GetByKey(key)
	if err != nil || !exists {
		return err
	}
	raw := object.(*unstructured.Unstructured)
	if _, ok := raw.GetAnnotations()[kubevirt.HandsOffKnob]; ok {
		return nil
	}
	vmi, err := kubevirt.Read[kubevirt.VMI](raw)
	if err != nil || vmi.Status.Phase != kubevirt.Scheduled && vmi.Status.Phase != kubevirt.Running {
		return err
	}
	step, node := g.next(vmi)
	if step == nil {
		return nil
	}
	if node == "" || !g.handled(node) {
		g.queue.AddAfter(key, again) // nothing on the node does it
		return nil
	}
	return g.write(ctx, node, raw, vmi, step)
}

// step changes an instance; the time is when to look again without an event.
type step func(ctx context.Context, vmi *kubevirt.VMI, to *unstructured.Unstructured) time.Duration

// next is what is to be done, and by which node's virt-handler.
func (g *Guests) next(vmi *kubevirt.VMI) (step, string) {
	node, pod := vmi.Status.NodeName, g.podOf(vmi)
	moving := vmi.Status.MigrationState
	switch {
	case vmi.DeletionTimestamp != nil:
		return ended(kubevirt.Succeeded), node
	case pod == nil && !vmi.Migrating(), pod != nil && pod.Status.Phase == corev1.PodFailed:
		return ended(kubevirt.Failed), node
	case pod != nil && vmi.Status.Phase == kubevirt.Running && !vmi.Migrating() && shutDown(pod):
		return ended(kubevirt.Succeeded), node
	case pod != nil && pod.Status.Phase == corev1.PodSucceeded && (moving == nil || moving.TargetNode == "" || moving.EndTimestamp == nil):
		return ended(kubevirt.Succeeded), node
	case vmi.Status.Phase == kubevirt.Scheduled:
		if pod == nil || !kubelet.Holds(pod, corev1.ContainersReady) {
			return nil, ""
		}
		return g.started, node
	case moving != nil && moving.TargetPod != "":
		return g.migration(vmi, moving)
	}
	return nil, ""
}

// shutDown tells whether a launcher is being deleted, and its guest has shut down.
func shutDown(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil && kubelet.Running(pod, kubevirt.ComputeContainer) == nil
}

// podOf is the pod in which the instance runs.
func (g *Guests) podOf(vmi *kubevirt.VMI) *corev1.Pod {
	var found *corev1.Pod
	for _, pod := range g.indexed(instanceIndex, vmi.Namespace+"/"+vmi.Name) {
		if pod.Spec.NodeName == vmi.Status.NodeName && metav1.IsControlledBy(pod, vmi) && (found == nil || !kubelet.Finished(pod)) {
			found = pod
		}
	}
	return found
}

// write updates the instance as the node's virt-handler, whose role may update instances but not patch them.
func (g *Guests) write(ctx context.Context, node string, raw *unstructured.Unstructured, vmi *kubevirt.VMI, change step) error {
	client, err := g.handlerOf(node)
	if err != nil {
		return err
	}
	changed := raw.DeepCopy()
	if after := change(ctx, vmi, changed); after > 0 {
		g.queue.AddAfter(cache.MetaObjectToName(raw).String(), after)
		return nil
	}
	_, err = client.Resource(kubevirt.VMIResource).Namespace(raw.GetNamespace()).Update(ctx, changed, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // the newer one wakes us
	}
	return err
}

// handlerOf is a client with the rights, and the node, of the node's virt-handler.
func (g *Guests) handlerOf(node string) (dynamic.Interface, error) {
	if known, ok := g.clients.Load(node); ok {
		return known.(dynamic.Interface), nil
	}
	config := rest.CopyConfig(g.config)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: fmt.Sprintf("system:serviceaccount:%s:kubevirt-handler", g.options.Namespace),
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + g.options.Namespace, "system:authenticated"},
		Extra:    map[string][]string{"authentication.kubernetes.io/node-name": {node}},
	}
	client, err := dynamic.NewForConfig(config)
	if err == nil {
		g.clients.Store(node, client)
	}
	return client, err
}

// ended is what virt-handler writes of a guest that has ended.
func ended(phase string) step {
	return func(_ context.Context, _ *kubevirt.VMI, to *unstructured.Unstructured) time.Duration {
		setPhase(to, phase)
		return 0
	}
}

func setPhase(to *unstructured.Unstructured, phase string) {
	set(to, phase, "phase")
	times, _, _ := unstructured.NestedSlice(to.Object, "status", "phaseTransitionTimestamps")
	set(to, append(times, map[string]any{"phase": phase, "phaseTransitionTimestamp": now()}), "phaseTransitionTimestamps")
}

func set(to *unstructured.Unstructured, value any, path ...string) {
	if err := unstructured.SetNestedField(to.Object, value, append([]string{"status"}, path...)...); err != nil {
		panic(err) // a status that is not a map: the schema refuses it
	}
}

func now() string { return time.Now().UTC().Format(time.RFC3339) }

// started is what virt-handler writes once the guest runs.
func (g *Guests) started(ctx context.Context, vmi *kubevirt.VMI, to *unstructured.Unstructured) time.Duration {
	setPhase(to, kubevirt.Running)
	set(to, "BlockMigration", "migrationMethod")
	set(to, "Unix", "migrationTransport")
	set(to, "none", "selinuxContext") // migrations wait for it
	condition := g.migratable(ctx, vmi)
	conditions, _, _ := unstructured.NestedSlice(to.Object, "status", "conditions")
	conditions = slices.DeleteFunc(conditions, func(each any) bool {
		return each.(map[string]any)["type"] == condition["type"]
	})
	set(to, append(conditions, condition), "conditions")
	return 0
}

// migratable is virt-handler's judgement, from the instance and its claims.
func (g *Guests) migratable(ctx context.Context, vmi *kubevirt.VMI) map[string]any {
	condition := map[string]any{"type": "LiveMigratable", "status": "True", "lastProbeTime": nil, "lastTransitionTime": now()}
	because := func(reason, message string) map[string]any {
		condition["status"], condition["reason"], condition["message"] = "False", reason, message
		return condition
	}
	devices := vmi.Spec.Domain.Devices
	if len(devices.GPUs)+len(devices.HostDevices) > 0 {
		return because("HostDeviceNotLiveMigratable", "VMI uses a PCI host devices")
	}
	for _, volume := range vmi.Spec.Volumes {
		if volume.Claim() == "" {
			continue
		}
		claim, err := g.client.CoreV1().PersistentVolumeClaims(vmi.Namespace).Get(ctx, volume.Claim(), metav1.GetOptions{})
		if err != nil || !slices.Contains(claim.Spec.AccessModes, corev1.ReadWriteMany) {
			return because("DisksNotLiveMigratable", fmt.Sprintf(
				"cannot migrate VMI: PVC %s is not shared, live migration requires that all PVCs must be shared (using ReadWriteMany access mode)",
				volume.Claim()))
		}
	}
	return condition
}
