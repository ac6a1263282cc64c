// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

// Package hco plays the part of the HyperConverged Cluster Operator that owns the KubeVirt object.
package hco

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"virtpools.io/controlplane/agent/kubevirt"
	"virtpools.io/controlplane/agent/loop"
)

const (
	// Name of the only HyperConverged.
	Name = "kubevirt-hyperconverged"
	// KubeVirtName of the object that HCO renders.
	KubeVirtName = "kubevirt-" + Name
	// Annotation patches the rendered object.
	Annotation = "kubevirt.kubevirt.io/jsonpatch"
	// Version of HCO.
	Version = "1.20.0"

	finalizer    = "kubevirt.io/hyperconverged"
	fieldManager = "hyperconverged-cluster-operator"
)

// Resource addresses HyperConverged objects.
var Resource = schema.GroupVersionResource{Group: "hco.kubevirt.io", Version: "v1", Resource: "hyperconvergeds"}

// Prune removes fields that KubeVirt's schema does not know from a KubeVirt object, in place.
type Prune func(object map[string]any)

// HCO is the operator.
type HCO struct {
	log             *slog.Logger
	client          dynamic.Interface
	recorder        record.EventRecorder
	prune           Prune
	queue           loop.Queue
	hyperConvergeds cache.Store
	kubeVirts       cache.Store
	nodes           cache.Store
	// applied is the spec of the last write. One worker, so no lock.
	applied fields
}

// New makes an HCO that is woken by the informers.
func New(log *slog.Logger, client dynamic.Interface, recorder record.EventRecorder, prune Prune,
	hyperConvergeds, kubeVirts, nodes cache.SharedIndexInformer,
) (*HCO, error) {
	h := &HCO{
		log: log, client: client, recorder: recorder, prune: prune,
		queue:           loop.NewQueue(200*time.Millisecond, 10*time.Second),
		hyperConvergeds: hyperConvergeds.GetStore(), kubeVirts: kubeVirts.GetStore(), nodes: nodes.GetStore(),
	}
	wake := func(any) {
		for _, key := range h.hyperConvergeds.ListKeys() {
			h.queue.AddAfter(key, 20*time.Millisecond)
		}
	}
	always := cache.ResourceEventHandlerFuncs{
		AddFunc: wake, UpdateFunc: func(_, after any) { wake(after) }, DeleteFunc: wake,
	}
	for informer, handler := range map[cache.SharedIndexInformer]cache.ResourceEventHandler{
		hyperConvergeds: always, kubeVirts: always,
		nodes: cache.FilteringResourceEventHandler{FilterFunc: isControlPlane, Handler: cache.ResourceEventHandlerFuncs{
			AddFunc: wake, DeleteFunc: wake,
		}},
	} {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// isControlPlane tells whether an object of the informer, deleted ones included, is a control-plane node.
func isControlPlane(object any) bool {
	if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = last.Obj
	}
	node, ok := object.(*corev1.Node)
	if !ok {
		return false
	}
	_, current := node.Labels["node-role.kubernetes.io/control-plane"]
	_, former := node.Labels["node-role.kubernetes.io/master"]
	return current || former
}

func (h *HCO) controlPlanes() int {
	count := 0
	for _, node := range h.nodes.List() {
		if isControlPlane(node) {
			count++
		}
	}
	return count
}

// Create makes the user's object of an installation with HCO. Some defaults that the real one fills in are written out.
func Create(ctx context.Context, client dynamic.Interface, namespace string) error {
	object := &unstructured.Unstructured{Object: fields{
		"apiVersion": Resource.GroupVersion().String(), "kind": "HyperConverged",
		"metadata": fields{"name": Name, "namespace": namespace, "labels": fields{"app": Name}},
		"spec": fields{
			"deployment":     fields{"uninstallStrategy": "BlockUninstallIfWorkloadsExist"},
			"virtualization": fields{"evictionStrategy": "LiveMigrate"},
		},
	}}
	_, err := client.Resource(Resource).Namespace(namespace).Create(ctx, object, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// Run works until the context ends.
func (h *HCO) Run(ctx context.Context) { loop.Run(ctx, h.log, h.queue, 1, h.sync) }

func (h *HCO) sync(ctx context.Context, key string) error {
	object, exists, err := h.hyperConvergeds.GetByKey(key)
	if err != nil || !exists {
		return err
	}
	own := object.(*unstructured.Unstructured).DeepCopy()
	if own.GetDeletionTimestamp() != nil {
		return h.remove(ctx, own)
	}
	if !slices.Contains(own.GetFinalizers(), finalizer) {
		return h.setFinalizers(ctx, own, append(own.GetFinalizers(), finalizer))
	}
	live := h.live(own.GetNamespace())
	reconcileErr := h.reconcile(ctx, own, live)
	if apierrors.IsConflict(reconcileErr) {
		return reconcileErr // a newer object is on its way
	}
	if err := h.writeStatus(ctx, own, live, reconcileErr); err != nil {
		return err
	}
	return reconcileErr
}

func (h *HCO) live(namespace string) *unstructured.Unstructured {
	object, exists, err := h.kubeVirts.GetByKey(namespace + "/" + KubeVirtName)
	if err != nil || !exists {
		return nil
	}
	return object.(*unstructured.Unstructured).DeepCopy()
}

// reconcile writes the KubeVirt object if it differs from the render.
func (h *HCO) reconcile(ctx context.Context, own, live *unstructured.Unstructured) error {
	wanted, err := h.Wanted(own)
	if err != nil {
		return err
	}
	api := h.client.Resource(kubevirt.Resource).Namespace(own.GetNamespace())
	if live == nil {
		_, err := api.Create(ctx, wanted, metav1.CreateOptions{FieldManager: fieldManager})
		return err
	}
	spec := wanted.Object["spec"].(fields)
	labels := live.GetLabels()
	if reflect.DeepEqual(live.Object["spec"], any(spec)) && contains(labels, wanted.GetLabels()) {
		h.applied = spec
		return nil
	}
	if reflect.DeepEqual(h.applied, spec) {
		h.log.Info("another client changed the KubeVirt object", "name", KubeVirtName)
		h.recorder.Eventf(own, corev1.EventTypeWarning, "Overwritten", "Overwritten KubeVirt %s", KubeVirtName)
	}
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, wanted.GetLabels())
	live.SetLabels(labels)
	live.Object["spec"] = spec
	if _, err = api.Update(ctx, live, metav1.UpdateOptions{FieldManager: fieldManager}); err == nil {
		h.applied = spec
	}
	return err
}

func contains(all, some map[string]string) bool {
	for key, value := range some {
		if all[key] != value {
			return false
		}
	}
	return true
}

// Wanted is the KubeVirt object of a HyperConverged.
func (h *HCO) Wanted(own *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	spec, err := render(own, h.controlPlanes())
	if err != nil {
		return nil, err
	}
	wanted := &unstructured.Unstructured{Object: fields{"spec": spec}}
	wanted.SetGroupVersionKind(kubevirt.Kind)
	wanted.SetName(KubeVirtName)
	wanted.SetNamespace(own.GetNamespace())
	wanted.SetLabels(map[string]string{
		"app": Name, kubevirt.AppComponentLabel: "compute", kubevirt.ManagedByLabel: "hco-operator",
		kubevirt.PartOfLabel: "hyperconverged-cluster", kubevirt.VersionLabel: Version,
	})
	wanted.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: Resource.GroupVersion().String(), Kind: "HyperConverged", Name: own.GetName(), UID: own.GetUID(),
		Controller: new(true), BlockOwnerDeletion: new(true),
	}})
	h.prune(wanted.Object)
	return wanted, nil
}

func (h *HCO) remove(ctx context.Context, own *unstructured.Unstructured) error {
	if live := h.live(own.GetNamespace()); live != nil {
		if live.GetDeletionTimestamp() != nil {
			return nil // its end wakes us
		}
		err := h.client.Resource(kubevirt.Resource).Namespace(own.GetNamespace()).Delete(ctx, KubeVirtName, metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
	return h.setFinalizers(ctx, own, slices.DeleteFunc(own.GetFinalizers(), func(f string) bool { return f == finalizer }))
}

func (h *HCO) setFinalizers(ctx context.Context, own *unstructured.Unstructured, finalizers []string) error {
	return h.patch(ctx, own, fields{"metadata": fields{
		"finalizers": finalizers, "resourceVersion": own.GetResourceVersion(),
	}})
}

func (h *HCO) patch(ctx context.Context, own *unstructured.Unstructured, change fields, subresources ...string) error {
	body, err := json.Marshal(change)
	if err != nil {
		return err
	}
	_, err = h.client.Resource(Resource).Namespace(own.GetNamespace()).Patch(
		ctx, own.GetName(), types.MergePatchType, body, metav1.PatchOptions{FieldManager: fieldManager}, subresources...)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (h *HCO) writeStatus(ctx context.Context, own, live *unstructured.Unstructured, failure error) error {
	before, _, err := unstructured.NestedSlice(own.Object, "status", "conditions")
	if err != nil {
		return err
	}
	after := conditions(own, live, failure, time.Now())
	keepTimes(before, after)
	observed, _, _ := unstructured.NestedInt64(own.Object, "status", "observedGeneration")
	if reflect.DeepEqual(before, after) && observed == own.GetGeneration() {
		return nil
	}
	status := fields{
		"conditions": after, "observedGeneration": own.GetGeneration(),
		"versions": []any{fields{"name": "operator", "version": Version}},
	}
	if live != nil {
		status["relatedObjects"] = []any{fields{
			"apiVersion": kubevirt.Kind.GroupVersion().String(), "kind": kubevirt.Kind.Kind, "name": live.GetName(),
			"namespace": live.GetNamespace(), "uid": string(live.GetUID()),
		}}
	}
	return h.patch(ctx, own, fields{"status": status}, "status")
}

// conditions returns the conditions; a failed reconciliation makes all others unknown. Seen on the real one: while KubeVirt is
// degraded, HCO is so and not upgradeable, and it is tainted as long as the annotation has operations.
func conditions(own, live *unstructured.Unstructured, failure error, now time.Time) []any {
	var all []any
	add := func(kind, status, reason, message string) {
		all = append(all, fields{
			"type": kind, "status": status, "reason": reason, "message": message,
			"observedGeneration": own.GetGeneration(), "lastTransitionTime": now.UTC().Format(time.RFC3339),
		})
	}
	const done, well = "ReconcileCompleted", "Reconcile completed successfully"
	switch {
	case failure != nil:
		add("ReconcileComplete", "False", "ReconcileFailed", fmt.Sprintf("Error while reconciling: %v", failure))
		for _, kind := range []string{"Available", "Progressing", "Degraded", "Upgradeable"} {
			add(kind, "Unknown", "ReconcileFailed", "Reconcile failed")
		}
	default:
		add("ReconcileComplete", "True", done, well)
		for _, kind := range []struct{ name, good, bad, reason string }{
			{"Available", "True", "False", "KubeVirtNotAvailable"},
			{"Progressing", "False", "True", "KubeVirtProgressing"},
			{"Degraded", "False", "True", "KubeVirtDegraded"},
		} {
			if status, message := componentCondition(live, kind.name); status == kind.good {
				add(kind.name, kind.good, done, well)
			} else {
				add(kind.name, kind.bad, kind.reason, "KubeVirt: "+message)
			}
		}
		if status, message := componentCondition(live, "Degraded"); status == "True" {
			add("Upgradeable", "False", "KubeVirtDegraded", "KubeVirt: "+message)
		} else {
			add("Upgradeable", "True", done, well)
		}
	}
	if own.GetAnnotations()[Annotation] != "" {
		add("TaintedConfiguration", "True", "UnsupportedFeatureAnnotation", "Unsupported feature was activated via an HCO annotation")
	}
	return all
}

func componentCondition(live *unstructured.Unstructured, kind string) (status, message string) {
	if live == nil {
		return "", "the object was not there"
	}
	list, _, _ := unstructured.NestedSlice(live.Object, "status", "conditions")
	for _, item := range list {
		if condition, ok := item.(fields); ok && condition["type"] == kind {
			status, _ = condition["status"].(string)
			message, _ = condition["message"].(string)
		}
	}
	return status, message
}

// keepTimes gives a new time only to conditions whose status changed.
func keepTimes(before, after []any) {
	for _, item := range after {
		condition := item.(fields)
		for _, other := range before {
			old, ok := other.(fields)
			if ok && old["type"] == condition["type"] && old["status"] == condition["status"] {
				condition["lastTransitionTime"] = old["lastTransitionTime"]
			}
		}
	}
}
