// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

// Package operator plays virt-operator: it keeps KubeVirt's components as the KubeVirt object says, in the order, with
// the conditions and with the traps of the real one.
package operator

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	appslisters "k8s.io/client-go/listers/apps/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"virtpools.io/controlplane/standin/kubevirt"
	"virtpools.io/controlplane/standin/loop"
)

// Name of virt-operator's own Deployment, whose image tag is the version it installs.
const Name = "virt-operator"

// Options say where and how slowly virt-operator works.
type Options struct {
	Namespace string
	// Settle is about how long a change of the KubeVirt object takes to settle on an idle cluster: three syncs.
	Settle time.Duration
}

// Clients is what virt-operator needs of the outside.
type Clients struct {
	Kubernetes kubernetes.Interface
	Dynamic    dynamic.Interface
	Recorder   record.EventRecorder
	KubeVirts  cache.SharedIndexInformer
	Pods       cache.SharedIndexInformer
	Daemons    cache.SharedIndexInformer
	Deploys    cache.SharedIndexInformer
}

// Operator is virt-operator.
type Operator struct {
	options     Options
	clients     Clients
	log         *slog.Logger
	queue       loop.Queue
	pods        corelisters.PodLister
	daemonSets  appslisters.DaemonSetLister
	deployments appslisters.DeploymentLister
	managed     labels.Selector

	// One worker, so the cache needs no lock. It holds the strategy of one deployment id and generation.
	cachedFor string
	cached    *strategy
}

// New makes an Operator that is woken by the informers.
func New(log *slog.Logger, options Options, clients Clients) (*Operator, error) {
	managed, err := labels.Parse(kubevirt.OperatorSelector)
	if err != nil {
		return nil, err
	}
	o := &Operator{
		options: options, clients: clients, log: log, managed: managed,
		queue:       loop.NewQueue(options.Settle/3, 30*time.Second),
		pods:        corelisters.NewPodLister(clients.Pods.GetIndexer()),
		daemonSets:  appslisters.NewDaemonSetLister(clients.Daemons.GetIndexer()),
		deployments: appslisters.NewDeploymentLister(clients.Deploys.GetIndexer()),
	}
	for _, informer := range []cache.SharedIndexInformer{clients.KubeVirts, clients.Pods, clients.Daemons, clients.Deploys} {
		if _, err := informer.AddEventHandler(o.waker()); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// waker syncs every KubeVirt object a moment after anything relevant happened: the delay lets events gather, and makes
// the status lag behind as the real one's does.
func (o *Operator) waker() cache.ResourceEventHandler {
	wake := func(object any) {
		if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = gone.Obj
		}
		meta, ok := object.(metav1.Object)
		if !ok || !o.concerns(meta) {
			return
		}
		for _, key := range o.clients.KubeVirts.GetStore().ListKeys() {
			o.queue.AddAfter(key, o.options.Settle/3)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: wake, DeleteFunc: wake,
		UpdateFunc: func(before, after any) {
			if !sameVersion(before, after) {
				wake(after)
			}
		},
	}
}

func sameVersion(before, after any) bool {
	old, ok1 := before.(metav1.Object)
	current, ok2 := after.(metav1.Object)
	return ok1 && ok2 && old.GetResourceVersion() == current.GetResourceVersion()
}

func (o *Operator) concerns(object metav1.Object) bool {
	if _, ok := object.(*unstructured.Unstructured); ok {
		return true
	}
	return o.managed.Matches(labels.Set(object.GetLabels())) ||
		object.GetNamespace() == o.options.Namespace && object.GetName() == Name
}

// Run works until the context ends.
func (o *Operator) Run(ctx context.Context) { loop.Run(ctx, o.log, o.queue, 1, o.sync) }

func (o *Operator) sync(ctx context.Context, key string) error {
	object, exists, err := o.clients.KubeVirts.GetStore().GetByKey(key)
	if err != nil || !exists {
		return err
	}
	kv, err := kubevirt.FromUnstructured(object.(*unstructured.Unstructured))
	if err != nil {
		return err
	}
	if marked, err := o.markObserved(ctx, kv); err != nil || !marked {
		return err
	}
	before, err := kubevirt.FromUnstructured(object.(*unstructured.Unstructured))
	if err != nil {
		return err
	}
	var syncErr error
	if kv.DeletionTimestamp != nil {
		syncErr = o.syncDeletion(ctx, kv)
	} else {
		syncErr = o.syncInstallation(ctx, kv)
	}
	stamp(before.Status.Conditions, kv.Status.Conditions, metav1.NewTime(time.Now().Truncate(time.Second)))
	if !reflect.DeepEqual(before.Status, kv.Status) {
		if err := o.writeStatus(ctx, kv); err != nil {
			return err
		}
	}
	if !slices.Equal(before.Finalizers, kv.Finalizers) {
		if err := o.writeFinalizers(ctx, kv); err != nil {
			return err
		}
	}
	return syncErr
}

// markObserved writes the annotations by which KubeVirt tracks the stored API version; the sync follows their event.
func (o *Operator) markObserved(ctx context.Context, kv *kubevirt.KubeVirt) (bool, error) {
	const latest, storage = "kubevirt.io/latest-observed-api-version", "kubevirt.io/storage-observed-api-version"
	if kv.Annotations[latest] == "v1" && kv.Annotations[storage] == "v1" || kv.DeletionTimestamp != nil {
		return true, nil
	}
	return false, o.patch(ctx, kv, map[string]any{
		"metadata": map[string]any{"annotations": map[string]string{latest: "v1", storage: "v1"}},
	})
}

func (o *Operator) writeStatus(ctx context.Context, kv *kubevirt.KubeVirt) error {
	return o.patch(ctx, kv, map[string]any{
		"metadata": map[string]any{"resourceVersion": kv.ResourceVersion},
		"status":   kv.Status,
	}, "status")
}

func (o *Operator) writeFinalizers(ctx context.Context, kv *kubevirt.KubeVirt) error {
	return o.patch(ctx, kv, map[string]any{"metadata": map[string]any{"finalizers": kv.Finalizers}})
}

func (o *Operator) patch(ctx context.Context, kv *kubevirt.KubeVirt, change map[string]any, subresources ...string) error {
	body, err := json.Marshal(change)
	if err != nil {
		return err
	}
	_, err = o.clients.Dynamic.Resource(kubevirt.Resource).Namespace(kv.Namespace).Patch(
		ctx, kv.Name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: Name}, subresources...)
	return err
}

func (o *Operator) syncInstallation(ctx context.Context, kv *kubevirt.KubeVirt) error {
	if len(o.clients.KubeVirts.GetStore().ListKeys()) > 1 {
		reportSecond(&kv.Status)
		return nil
	}
	t, err := o.target(kv)
	if err != nil {
		return err
	}
	status := &kv.Status
	status.OperatorVersion = t.Version
	status.DefaultArchitecture = "amd64"
	status.TargetDeploymentID, status.TargetKubeVirtVersion, status.TargetKubeVirtRegistry = t.id(), t.Version, t.Registry
	if status.Phase == "" {
		status.Phase = phaseDeploying
	}
	if status.ObservedDeploymentID != "" && status.ObservedDeploymentID != t.id() {
		reportUpdating(status)
	} else {
		reportDeploying(status)
	}
	if !slices.Contains(kv.Finalizers, kubevirt.Finalizer) {
		kv.Finalizers = append(kv.Finalizers, kubevirt.Finalizer)
	}
	synced, err := o.newRun(kv, t).components(ctx)
	if err != nil {
		reportFailed(status, err)
		return err
	}
	if !synced {
		return nil
	}
	reportCreated(status)
	status.ObservedDeploymentID, status.ObservedKubeVirtVersion, status.ObservedKubeVirtRegistry = t.id(), t.Version, t.Registry
	if o.allReady(t) {
		status.Phase = phaseDeployed
		reportAvailable(status)
		status.ObservedGeneration = kv.Generation
	}
	return nil
}

func (o *Operator) target(kv *kubevirt.KubeVirt) (target, error) {
	own, err := o.deployments.Deployments(o.options.Namespace).Get(Name)
	if err != nil {
		return target{}, err
	}
	for _, container := range own.Spec.Template.Spec.Containers {
		if container.Name == Name {
			return targetOf(kv, container.Image), nil
		}
	}
	return target{}, fmt.Errorf("deployment %s has no container %s", Name, Name)
}

// allReady looks at everything that carries virt-operator's label, also at what it did not make.
func (o *Operator) allReady(t target) bool {
	pods := o.managedPods()
	for _, deployment := range o.managedDeployments() {
		if !deploymentReady(deployment, pods, t) {
			return false
		}
	}
	for _, daemonSet := range o.managedDaemonSets() {
		if !daemonSetReady(daemonSet, pods, t) {
			return false
		}
	}
	return true
}

// The listers only fail on a broken selector.

func (o *Operator) managedPods() []*corev1.Pod {
	pods, _ := o.pods.List(o.managed)
	return pods
}

func (o *Operator) managedDaemonSets() []*appsv1.DaemonSet {
	daemonSets, _ := o.daemonSets.List(o.managed)
	return daemonSets
}

func (o *Operator) managedDeployments() []*appsv1.Deployment {
	deployments, _ := o.deployments.List(o.managed)
	return deployments
}

// strategyFor keeps the strategy until the KubeVirt object's generation or the target changes.
func (o *Operator) strategyFor(kv *kubevirt.KubeVirt, t target) *strategy {
	key := fmt.Sprintf("%s-%d", t.id(), kv.Generation)
	if o.cachedFor != key {
		o.cachedFor, o.cached = key, newStrategy(t, kv.Spec.Configuration)
	}
	return o.cached
}

// accounts are the ServiceAccounts that come and go with the KubeVirt object.
func accounts() []string {
	return []string{"kubevirt-handler", "kubevirt-controller", "kubevirt-apiserver"}
}

func (o *Operator) syncDeletion(ctx context.Context, kv *kubevirt.KubeVirt) error {
	kv.Status.Phase = phaseDeleting
	reportDeleting(&kv.Status)
	left := 0
	for _, daemonSet := range o.managedDaemonSets() {
		left++
		if err := o.deleteDaemonSet(ctx, daemonSet); err != nil {
			return err
		}
	}
	for _, deployment := range o.managedDeployments() {
		left++
		if err := o.deleteDeployment(ctx, deployment); err != nil {
			return err
		}
	}
	if left > 0 {
		return nil // their deletion wakes us
	}
	for _, name := range accounts() {
		err := o.clients.Kubernetes.CoreV1().ServiceAccounts(kv.Namespace).Delete(ctx, name, metav1.DeleteOptions{})
		if err := ignoreNotFound(err); err != nil {
			return err
		}
	}
	kv.Status.Phase = phaseDeleted
	kv.Finalizers = []string{}
	o.cachedFor = ""
	return nil
}
