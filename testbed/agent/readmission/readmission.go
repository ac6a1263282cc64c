// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

// Package readmission reports the VMs that a restart of their node's kubelet would end.
//
// A kubelet that starts admits the running pods of its node again, and ends those whose nodeSelector or required node
// affinity no longer fits (Kubernetes, pkg/kubelet/lifecycle, predicateAdmitHandler). Kubelets restart at any moment, so
// what counts is every state that a node passes through. The label kubevirt.io/schedulable is left out: KubeVirt itself
// sets it to false while a virt-handler restarts, with or without pools.
package readmission

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"virtpools.io/controlplane/agent/kubelet"
	"virtpools.io/controlplane/agent/kubevirt"
	"virtpools.io/controlplane/agent/loop"
)

// Reporter notes such VMs in an annotation of their node.
type Reporter struct {
	log    *slog.Logger
	client kubernetes.Interface
	queue  loop.Queue
	pods   cache.Indexer
	nodes  corelisters.NodeLister
}

// New makes a Reporter that is woken by the informers.
func New(log *slog.Logger, client kubernetes.Interface, pods, nodes cache.SharedIndexInformer) (*Reporter, error) {
	r := &Reporter{
		log: log, client: client, queue: loop.NewQueue(100*time.Millisecond, 10*time.Second),
		pods: pods.GetIndexer(), nodes: corelisters.NewNodeLister(nodes.GetIndexer()),
	}
	wake := func(object any) {
		if pod, ok := object.(*corev1.Pod); ok && isRunningVM(pod) {
			r.queue.Add(pod.Spec.NodeName)
		}
	}
	_, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: wake, UpdateFunc: func(_, after any) { wake(after) },
	})
	if err != nil {
		return nil, err
	}
	_, err = nodes.AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, after any) {
			if old, node := before.(*corev1.Node), after.(*corev1.Node); !maps.Equal(old.Labels, node.Labels) {
				r.queue.Add(node.Name)
			}
		},
	})
	return r, err
}

func isRunningVM(pod *corev1.Pod) bool {
	return pod.Labels[kubevirt.ComponentLabel] == kubevirt.LauncherComponent && pod.Spec.NodeName != "" &&
		pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil
}

// Run works until the context ends.
func (r *Reporter) Run(ctx context.Context) { loop.Run(ctx, r.log, r.queue, 2, r.sync) }

func (r *Reporter) sync(ctx context.Context, name string) error {
	node, err := r.nodes.Get(name)
	if err != nil {
		return nil // it is gone
	}
	objects, err := r.pods.ByIndex(kubelet.NodeIndex, name)
	if err != nil {
		return err
	}
	for _, object := range objects {
		pod := object.(*corev1.Pod)
		if !isRunningVM(pod) || Fits(pod, node) {
			continue
		}
		if ends, err := r.confirmed(ctx, pod, name); err != nil || !ends {
			if err != nil {
				return err
			}
			continue
		}
		if err := r.report(ctx, name, pod); err != nil {
			return err
		}
	}
	return nil
}

// confirmed asks the API server, since the two caches may show a node and its pods at different times.
func (r *Reporter) confirmed(ctx context.Context, pod *corev1.Pod, name string) (bool, error) {
	node, err := r.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return false, ignoreNotFound(err)
	}
	live, err := r.client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	if err != nil {
		return false, ignoreNotFound(err)
	}
	return live.UID == pod.UID && isRunningVM(live) && !Fits(live, node), nil
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// Fits tells whether a kubelet of this node that restarts lets the pod run on.
func Fits(pod *corev1.Pod, node *corev1.Node) bool {
	if _, ours := pod.Spec.NodeSelector[kubevirt.SchedulableLabel]; ours {
		pod = pod.DeepCopy()
		delete(pod.Spec.NodeSelector, kubevirt.SchedulableLabel)
	}
	match, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node)
	return err == nil && match
}

func (r *Reporter) report(ctx context.Context, name string, pod *corev1.Pod) error {
	node, err := r.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return ignoreNotFound(err)
	}
	title := pod.Namespace + "/" + pod.Name
	known := strings.Fields(node.Annotations[kubevirt.EndingVMsReport])
	for _, each := range known {
		if each == title {
			return nil
		}
	}
	r.log.Error("a restart of the kubelet would end a VM", "node", name, "pod", title, "labels", node.Labels)
	reported := map[string]string{kubevirt.EndingVMsReport: strings.Join(append(known, title), " ")}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": reported}})
	if err != nil {
		return err
	}
	_, err = r.client.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}
