// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

// Package controller plays virt-controller, and what virt-handler writes of virtual machines.
package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	appslisters "k8s.io/client-go/listers/apps/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"virtpools.io/controlplane/standin/kubevirt"
	"virtpools.io/controlplane/standin/loop"
)

// Nodes is the node controller. It takes a node whose handler is silent for too long out of scheduling, and fails
// altogether while it does not find exactly one DaemonSet of handlers.
type Nodes struct {
	*Platform
	silence  time.Duration
	queue    loop.Queue
	nodes    corelisters.NodeLister
	daemons  appslisters.DaemonSetLister
	selector labels.Selector
}

// checkDaemonSets is the queue's key for the DaemonSets; no node can be called so.
const checkDaemonSets = "/daemonsets"

// failOverInterval is how often a silent node with instances is looked at.
const failOverInterval = 2 * time.Second

// NewNodes makes the node controller; silence is how long a heartbeat may be missing.
func NewNodes(platform *Platform, silence time.Duration, daemons cache.SharedIndexInformer) (*Nodes, error) {
	n := &Nodes{
		Platform: platform, silence: silence,
		queue:    loop.NewQueue(time.Second, 30*time.Second),
		nodes:    corelisters.NewNodeLister(platform.Nodes.GetIndexer()),
		daemons:  appslisters.NewDaemonSetLister(daemons.GetIndexer()),
		selector: labels.SelectorFromSet(labels.Set{kubevirt.ComponentLabel: kubevirt.HandlerComponent}),
	}
	wakeNode := func(object any) {
		if node, ok := object.(*corev1.Node); ok {
			n.queue.Add(node.Name)
		}
	}
	_, err := platform.Nodes.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: wakeNode,
		UpdateFunc: func(before, after any) {
			old, node := before.(*corev1.Node), after.(*corev1.Node)
			if old.Labels[kubevirt.SchedulableLabel] != node.Labels[kubevirt.SchedulableLabel] {
				wakeNode(node)
			}
		},
	})
	if err != nil {
		return nil, err
	}
	wake := func(any) { n.queue.AddAfter(checkDaemonSets, time.Second) }
	_, err = daemons.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: wake, DeleteFunc: wake,
		UpdateFunc: func(before, after any) {
			if before.(metav1.Object).GetGeneration() != after.(metav1.Object).GetGeneration() ||
				!labels.Equals(before.(metav1.Object).GetLabels(), after.(metav1.Object).GetLabels()) {
				wake(nil)
			}
		},
	})
	return n, err
}

// Run works until the context ends.
func (n *Nodes) Run(ctx context.Context) { loop.Run(ctx, n.Log, n.queue, 2, n.sync) }

func (n *Nodes) sync(ctx context.Context, key string) error {
	if key == checkDaemonSets {
		return n.reportDaemonSets(ctx)
	}
	node, err := n.nodes.Get(key)
	if err != nil || node.Annotations[kubevirt.HeartbeatAnnotation] == "" && node.Labels[kubevirt.SchedulableLabel] != "true" {
		return nil // gone, or no handler has ever been there
	}
	if left := n.silence - time.Since(lastBeat(node)); left > 0 {
		n.queue.AddAfter(key, left+time.Second)
		return nil
	}
	if node.Labels[kubevirt.SchedulableLabel] == "true" {
		n.Log.Warn("no heartbeat: unschedulable", "node", node.Name)
		body := fmt.Sprintf(`{"metadata":{"labels":{%q:"false"}}}`, kubevirt.SchedulableLabel)
		_, err = n.Kubernetes.CoreV1().Nodes().Patch(
			ctx, node.Name, types.MergePatchType, []byte(body), metav1.PatchOptions{FieldManager: kubevirt.ControllerDeployment})
		if err != nil {
			return err
		}
	}
	return n.failOver(ctx, node)
}

// failOver fails the instances of a silent node whose pods have ended, unless there is a doubt about handlers.
func (n *Nodes) failOver(ctx context.Context, node *corev1.Node) error {
	left := 0
	for _, object := range n.VMIs.GetStore().List() {
		raw := object.(*unstructured.Unstructured)
		vmi, err := kubevirt.Read[kubevirt.VMI](raw)
		if err != nil || handsOff(raw) || vmi.Status.NodeName != node.Name || kubevirt.Final(vmi.Status.Phase) {
			continue
		}
		left++
		found, err := n.daemons.List(n.selector)
		if err != nil {
			return err
		}
		if complaint := problem(len(found)); complaint != "" {
			return errors.New(complaint)
		}
		if pod := current(vmi, n.podsOf(vmi)); pod != nil && alive(pod) {
			continue
		}
		n.Log.Warn("node is unresponsive: failed", "instance", vmi.Namespace+"/"+vmi.Name, "node", node.Name)
		e := change(raw)
		e.phase(kubevirt.Failed)
		e.set("reason", "NodeUnresponsive")
		if _, err := e.write(ctx, n.Dynamic, kubevirt.VMIResource); err != nil {
			return err
		}
	}
	if left > 0 {
		n.queue.AddAfter(node.Name, failOverInterval)
	}
	return nil
}

// lastBeat of a node that never had one is long ago.
func lastBeat(node *corev1.Node) time.Time {
	var text string
	if json.Unmarshal([]byte(node.Annotations[kubevirt.HeartbeatAnnotation]), &text) != nil {
		return time.Time{}
	}
	beat, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}
	}
	return beat
}

// problem is virt-controller's complaint, or nothing.
func problem(daemonSets int) string {
	if daemonSets == 1 {
		return ""
	}
	return fmt.Sprintf("shouuld only be running one virt-handler DaemonSet, found %d", daemonSets)
}

// reportDaemonSets shows in the KubeVirt object what the real one only logs. VMs on dead nodes are not failed over
// while it says anything.
func (n *Nodes) reportDaemonSets(ctx context.Context) error {
	found, err := n.daemons.List(n.selector)
	if err != nil {
		return err
	}
	complaint := problem(len(found))
	for _, object := range n.KubeVirts.GetStore().List() {
		if err := n.report(ctx, object.(*unstructured.Unstructured), complaint); err != nil {
			return err
		}
	}
	return nil
}

func (n *Nodes) report(ctx context.Context, kv *unstructured.Unstructured, complaint string) error {
	if kv.GetAnnotations()[kubevirt.NodeControllerReport] == complaint {
		return nil
	}
	var value any // null removes it
	if complaint != "" {
		value = complaint
		n.Log.Error(complaint)
		n.Recorder.Event(kv, corev1.EventTypeWarning, "NodeControllerFailed", complaint)
	}
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{kubevirt.NodeControllerReport: value}},
	})
	if err != nil {
		return err
	}
	_, err = n.Dynamic.Resource(kubevirt.Resource).Namespace(kv.GetNamespace()).Patch(
		ctx, kv.GetName(), types.MergePatchType, body, metav1.PatchOptions{FieldManager: kubevirt.ControllerDeployment})
	return err
}
