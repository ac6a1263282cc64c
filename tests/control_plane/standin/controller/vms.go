// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"virtpools.io/controlplane/standin/instancetype"
	"virtpools.io/controlplane/standin/kubevirt"
	"virtpools.io/controlplane/standin/loop"
)

// VMs keeps an instance for every virtual machine that should run.
type VMs struct {
	*Platform
	queue    loop.Queue
	resolver instancetype.Resolver
}

// NewVMs makes the controller, woken by the informers.
func NewVMs(platform *Platform) (*VMs, error) {
	v := &VMs{
		Platform: platform, queue: loop.NewQueue(firstRetry, longestRetry),
		resolver: instancetype.Resolver{Kubernetes: platform.Kubernetes, Dynamic: platform.Dynamic},
	}
	_, err1 := platform.VMs.AddEventHandler(onEvent(func(vm metav1.Object) {
		v.queue.Add(cache.MetaObjectToName(vm).String())
	}))
	_, err2 := platform.VMIs.AddEventHandler(onEvent(func(vmi metav1.Object) {
		if key := ownerKey(vmi, kubevirt.VMKind.Kind); key != "" {
			v.queue.Add(key)
		}
	}))
	return v, errors.Join(err1, err2)
}

// Run works until the context ends.
func (v *VMs) Run(ctx context.Context) { loop.Run(ctx, v.Log, v.queue, 4, v.sync) }

func (v *VMs) sync(ctx context.Context, key string) error {
	object, exists, err := v.Platform.VMs.GetStore().GetByKey(key)
	if err != nil || !exists || handsOff(object.(metav1.Object)) {
		return err
	}
	raw := object.(*unstructured.Unstructured)
	vm, err := kubevirt.Read[kubevirt.VM](raw)
	if err != nil {
		return err
	}
	if _, settings := v.deployed(); settings == nil {
		v.queue.AddAfter(key, patience) // no virt-controller
		return nil
	}
	vmi, err := v.instanceOf(vm)
	if err != nil {
		return err
	}
	if vm.DeletionTimestamp != nil {
		return v.remove(ctx, raw, vmi)
	}
	e := change(raw)
	e.withFinalizer(kubevirt.VMFinalizer)
	if written, err := e.write(ctx, v.Dynamic, kubevirt.VMResource); err != nil || written {
		return err // the event brings the next step
	}
	syncErr := v.pinAndRun(ctx, raw, vm, vmi, e)
	if apierrors.IsConflict(syncErr) {
		return syncErr
	}
	v.report(vm, vmi, syncErr, e)
	if _, err := e.write(ctx, v.Dynamic, kubevirt.VMResource, "status"); err != nil {
		return err
	}
	return syncErr
}

// instanceOf is the machine's instance; one of that name that belongs to nobody, or somebody else, is an error.
func (v *VMs) instanceOf(vm *kubevirt.VM) (*kubevirt.VMI, error) {
	object, exists, err := v.Platform.VMIs.GetStore().GetByKey(vm.Namespace + "/" + vm.Name)
	if err != nil || !exists {
		return nil, err
	}
	vmi, err := kubevirt.Read[kubevirt.VMI](object.(*unstructured.Unstructured))
	if err == nil && !metav1.IsControlledBy(vmi, vm) {
		return nil, fmt.Errorf("VirtualMachineInstance %s/%s is not the VirtualMachine's", vmi.Namespace, vmi.Name)
	}
	return vmi, err
}

// pinAndRun pins instancetype and preference, and has the instance that the run strategy wants.
func (v *VMs) pinAndRun(ctx context.Context, raw *unstructured.Unstructured, vm *kubevirt.VM, vmi *kubevirt.VMI, e *edit) error {
	found, preference, err := v.resolver.Both(ctx, vm)
	if err != nil {
		return err
	}
	for field, each := range map[string]*instancetype.Resolved{"instancetypeRef": found, "preferenceRef": preference} {
		if each == nil {
			e.set(field, nil)
			continue
		}
		ref, err := v.resolver.Pin(ctx, vm, each)
		if err != nil {
			return err
		}
		e.set(field, ref)
	}
	started := raw.Object["status"] != nil && text(raw.Object["status"].(map[string]any)["printableStatus"]) != ""
	switch decide(vm.RunStrategy(), vmi, started) {
	case create:
		return v.create(ctx, e.after, vm)
	case remove:
		return v.deleteInstance(ctx, vmi)
	}
	return nil
}

type action int

const (
	leave action = iota
	create
	remove
)

// decide is the run strategy: what to do about an instance, or its absence. Of the strategy Manual nothing is played
// but that it leaves everything alone.
func decide(strategy string, vmi *kubevirt.VMI, started bool) action {
	if vmi == nil {
		if strategy == "Always" || strategy == "RerunOnFailure" || strategy == "Once" && !started {
			return create
		}
		return leave
	}
	phase := vmi.Status.Phase
	switch {
	case vmi.DeletionTimestamp != nil || strategy == "Manual" || strategy == "Once":
		return leave
	case strategy == "Halted", strategy == "Always" && kubevirt.Final(phase), strategy == "RerunOnFailure" && phase == kubevirt.Failed:
		return remove
	}
	return leave
}

// create makes the instance of a machine, whose status says already which revisions count.
func (v *VMs) create(ctx context.Context, raw *unstructured.Unstructured, vm *kubevirt.VM) error {
	expanded, annotations, err := v.resolver.Expand(ctx, raw)
	if err != nil {
		return err
	}
	own, _, _ := unstructured.NestedStringMap(expanded.Object, "spec", "template", "metadata", "annotations")
	maps.Copy(annotations, own)
	annotations["kubevirt.io/vm-generation"] = fmt.Sprint(vm.Generation)
	labels, _, _ := unstructured.NestedStringMap(expanded.Object, "spec", "template", "metadata", "labels")
	spec, _, _ := unstructured.NestedMap(expanded.Object, "spec", "template", "spec")
	vmi := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	vmi.SetGroupVersionKind(kubevirt.VMIKind)
	vmi.SetNamespace(vm.Namespace)
	vmi.SetName(vm.Name)
	vmi.SetLabels(labels)
	vmi.SetAnnotations(annotations)
	vmi.SetFinalizers([]string{kubevirt.VMFinalizer})
	vmi.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(vm, kubevirt.VMKind)})
	_, err = v.Dynamic.Resource(kubevirt.VMIResource).Namespace(vm.Namespace).Create(ctx, vmi, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		v.queue.AddAfter(vm.Namespace+"/"+vm.Name, patience) // the cache will know it
		return nil
	}
	return err
}

func (v *VMs) deleteInstance(ctx context.Context, vmi *kubevirt.VMI) error {
	err := v.Dynamic.Resource(kubevirt.VMIResource).Namespace(vmi.Namespace).Delete(ctx, vmi.Name, metav1.DeleteOptions{
		Preconditions: metav1.NewUIDPreconditions(string(vmi.UID)),
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// remove lets a deleted machine go once its instance is gone.
func (v *VMs) remove(ctx context.Context, raw *unstructured.Unstructured, vmi *kubevirt.VMI) error {
	if vmi != nil {
		if vmi.DeletionTimestamp != nil {
			return nil
		}
		return v.deleteInstance(ctx, vmi)
	}
	e := change(raw)
	e.withoutFinalizer(kubevirt.VMFinalizer)
	_, err := e.write(ctx, v.Dynamic, kubevirt.VMResource)
	return err
}

// report writes the machine's status.
func (v *VMs) report(vm *kubevirt.VM, vmi *kubevirt.VMI, failure error, e *edit) {
	e.set("runStrategy", vm.RunStrategy())
	e.set("desiredGeneration", vm.Generation)
	e.set("created", vmi != nil)
	ready := vmi != nil && vmi.Status.Phase == kubevirt.Running
	e.set("ready", ready)
	e.set("printableStatus", printable(vm, vmi, failure))
	if ready {
		e.condition("Ready", "True", "", "")
	} else {
		e.condition("Ready", "False", "VMINotExists", "VMI does not exist or is not running")
	}
	if failure != nil {
		e.condition("Failure", "True", "FailedCreate", failure.Error())
	} else {
		e.condition("Failure", "", "", "")
	}
}

func printable(vm *kubevirt.VM, vmi *kubevirt.VMI, failure error) string {
	switch {
	case failure != nil && vmi == nil:
		return "Unknown"
	case vmi == nil && (vm.RunStrategy() == "Halted" || vm.RunStrategy() == "Manual"):
		return "Stopped"
	case vmi == nil:
		return "Starting"
	case vmi.DeletionTimestamp != nil:
		return "Stopping"
	case vmi.Migrating():
		return "Migrating"
	case vmi.Status.Phase == kubevirt.Running:
		return "Running"
	case kubevirt.Final(vmi.Status.Phase):
		return "Stopped"
	}
	if condition := vmi.Condition("PodScheduled"); condition != nil && condition.Reason == "Unschedulable" {
		return "ErrorUnschedulable"
	}
	return "Starting"
}
