// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"virtpools.io/controlplane/standin/kubelet"
	"virtpools.io/controlplane/standin/kubevirt"
	"virtpools.io/controlplane/standin/launcher"
	"virtpools.io/controlplane/standin/loop"
)

const (
	firstRetry   = 200 * time.Millisecond // of a launcher pod that was refused; doubles
	longestRetry = 30 * time.Second
	// patience is how long to wait for what no event announces.
	patience = 2 * time.Second
)

// VMIs runs virtual machine instances: it creates their launcher pods and follows them.
type VMIs struct {
	*Platform
	queue loop.Queue
	// created are pods that the cache may not know yet, by their instance.
	created  sync.Map // of types.UID: string
	refusals sync.Map // of types.UID: *refusal
}

// refusal remembers attempts to create a pod. Only the worker that has the instance's key touches it.
type refusal struct {
	times int
	again time.Time
}

// NewVMIs makes the controller, woken by the informers.
func NewVMIs(platform *Platform) (*VMIs, error) {
	v := &VMIs{Platform: platform, queue: loop.NewQueue(100*time.Millisecond, longestRetry)}
	_, err1 := platform.VMIs.AddEventHandler(onEvent(func(vmi metav1.Object) {
		v.queue.Add(cache.MetaObjectToName(vmi).String())
	}))
	_, err2 := platform.Pods.AddEventHandler(onEvent(v.podChanged))
	_, err3 := platform.Deployments.AddEventHandler(onEvent(func(deployment metav1.Object) {
		if deployment.GetNamespace() == v.Namespace && deployment.GetName() == kubevirt.ControllerDeployment {
			v.wakeAll()
		}
	}))
	return v, errors.Join(err1, err2, err3)
}

// podChanged wakes a launcher pod's instance, or those of a handler's node.
func (v *VMIs) podChanged(object metav1.Object) {
	pod := object.(*corev1.Pod)
	if key := ownerKey(pod, kubevirt.VMIKind.Kind); key != "" {
		v.queue.Add(key)
		return
	}
	if !v.isHandler(pod) || pod.Spec.NodeName == "" {
		return
	}
	objects, err := v.Pods.GetIndexer().ByIndex(kubelet.NodeIndex, pod.Spec.NodeName)
	if err != nil {
		return
	}
	for _, other := range objects {
		if key := ownerKey(other.(*corev1.Pod), kubevirt.VMIKind.Kind); key != "" {
			v.queue.Add(key)
		}
	}
}

// wakeAll looks at every instance again: virt-controller may have another launcher image.
func (v *VMIs) wakeAll() {
	for _, key := range v.Platform.VMIs.GetStore().ListKeys() {
		v.queue.Add(key)
	}
}

// Run works until the context ends.
func (v *VMIs) Run(ctx context.Context) { loop.Run(ctx, v.Log, v.queue, 8, v.sync) }

func (v *VMIs) sync(ctx context.Context, key string) error {
	raw, vmi, err := v.vmi(key)
	if err != nil || vmi == nil {
		return err
	}
	_, settings := v.deployed()
	if settings == nil {
		v.queue.AddAfter(key, patience) // no virt-controller
		return nil
	}
	e := change(raw)
	after, err := v.advance(ctx, vmi, settings, e)
	if err != nil {
		return err
	}
	if _, err := e.write(ctx, v.Dynamic, kubevirt.VMIResource); err != nil {
		return err
	}
	if after > 0 {
		v.queue.AddAfter(key, after)
	}
	return nil
}

// advance takes one step; what it writes brings the next. The time is when to look again without an event.
func (v *VMIs) advance(ctx context.Context, vmi *kubevirt.VMI, settings *launcher.Settings, e *edit) (time.Duration, error) {
	pods := v.podsOf(vmi)
	pod := current(vmi, pods)
	switch {
	case vmi.DeletionTimestamp != nil:
		return v.remove(ctx, vmi, pods, e)
	case kubevirt.Final(vmi.Status.Phase):
		e.condition("Ready", "False", "PodTerminating", "")
		return 0, v.deletePods(ctx, pods)
	case vmi.Status.Phase == "":
		e.phase(kubevirt.Pending)
		e.condition("Ready", "False", "GuestNotRunning", "Guest VM is not reported as running")
		return 0, nil
	case vmi.Status.Phase == kubevirt.Pending || vmi.Status.Phase == kubevirt.Scheduling:
		return v.start(ctx, vmi, pod, settings, e)
	case vmi.Migrating() && (pod == nil || !alive(pod)):
		return patience, nil // whether it lives on is the migration's to say
	case (pod == nil || !alive(pod)) && !v.handled(vmi.Status.NodeName):
		return patience, nil // nobody on the node reports the guest's end; a dead node is the node controller's
	case pod == nil || pod.Status.Phase == corev1.PodFailed:
		e.phase(kubevirt.Failed)
		return 0, nil
	case !alive(pod):
		e.phase(kubevirt.Succeeded)
		return 0, nil
	}
	return v.follow(ctx, vmi, pod, pods, settings, e)
}

// current is the pod that the instance runs in, or would: a migration's target is that only once the migration says so.
func current(vmi *kubevirt.VMI, pods []*corev1.Pod) *corev1.Pod {
	var found *corev1.Pod
	for _, pod := range pods {
		if vmi.Status.NodeName == "" && pod.Labels[kubevirt.MigrationUIDLabel] != "" ||
			vmi.Status.NodeName != "" && pod.Spec.NodeName != vmi.Status.NodeName {
			continue
		}
		if found == nil || alive(pod) || !alive(found) {
			found = pod
		}
	}
	return found
}

// start brings an instance from nothing to Scheduled.
func (v *VMIs) start(ctx context.Context, vmi *kubevirt.VMI, pod *corev1.Pod, settings *launcher.Settings, e *edit) (time.Duration, error) {
	if pod == nil {
		return v.create(ctx, vmi, settings, e)
	}
	e.condition("Synchronized", "", "", "")
	switch {
	case podFinished(pod) || pod.DeletionTimestamp != nil:
		e.phase(kubevirt.Failed)
		return 0, nil
	case pod.Status.Phase != corev1.PodRunning || !podCondition(pod, corev1.ContainersReady) || !v.handled(pod.Spec.NodeName):
		e.phase(kubevirt.Scheduling)
		e.set("activePods", map[string]string{string(pod.UID): pod.Spec.NodeName})
		copyUnschedulable(pod, e)
		return 0, nil
	}
	e.phase(kubevirt.Scheduled)
	placed(e, vmi, pod)
	markImage(e, pod, settings.Image)
	copyUnschedulable(pod, e)
	status, reason, message := v.migratable(ctx, vmi)
	e.condition("LiveMigratable", status, reason, message)
	e.set("qosClass", string(pod.Status.QOSClass))
	e.set("migrationMethod", "BlockMigration")
	e.set("migrationTransport", "Unix")
	return 0, nil
}

// placed writes where the instance is.
func placed(e *edit, vmi *kubevirt.VMI, pod *corev1.Pod) {
	e.label(kubevirt.NodeNameLabel, &pod.Spec.NodeName)
	e.set("nodeName", pod.Spec.NodeName)
	e.set("activePods", map[string]string{string(pod.UID): pod.Spec.NodeName})
}

// markImage writes which launcher image the pod has, and whether virt-controller would give it another one.
func markImage(e *edit, pod *corev1.Pod, stock string) {
	image := computeImage(pod)
	e.set("launcherContainerImageVersion", image)
	if image == stock {
		e.label(kubevirt.OutdatedLabel, nil)
	} else {
		e.label(kubevirt.OutdatedLabel, new(""))
	}
}

// copyUnschedulable shows in the instance why its pod finds no node.
func copyUnschedulable(pod *corev1.Pod, e *edit) {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			e.condition("PodScheduled", "False", condition.Reason, condition.Message)
			return
		}
	}
	e.condition("PodScheduled", "", "", "")
}

// create makes the instance's pod. A refusal is written into the instance, and tried again later and later.
func (v *VMIs) create(ctx context.Context, vmi *kubevirt.VMI, settings *launcher.Settings, e *edit) (time.Duration, error) {
	if name, ok := v.created.Load(vmi.UID); ok {
		_, err := v.Kubernetes.CoreV1().Pods(vmi.Namespace).Get(ctx, name.(string), metav1.GetOptions{})
		if err == nil {
			return patience, nil // the cache will know it
		}
		if !apierrors.IsNotFound(err) {
			return 0, err
		}
		v.created.Delete(vmi.UID)
		e.phase(kubevirt.Failed) // it was there, and is gone
		return 0, nil
	}
	found, _ := v.refusals.LoadOrStore(vmi.UID, &refusal{})
	refused := found.(*refusal)
	if left := time.Until(refused.again); left > 0 {
		return left, nil
	}
	reason, err := "FailedPvcNotFound", v.claimsExist(ctx, vmi)
	if err == nil {
		var pod *corev1.Pod
		reason = "FailedCreate"
		if pod, err = v.Kubernetes.CoreV1().Pods(vmi.Namespace).Create(ctx, launcher.Pod(vmi, *settings), metav1.CreateOptions{}); err == nil {
			v.created.Store(vmi.UID, pod.Name)
			v.refusals.Delete(vmi.UID)
			v.Recorder.Eventf(reference(vmi), corev1.EventTypeNormal, "SuccessfulCreate", "Created virtual machine pod %s", pod.Name)
			return 0, nil
		}
	}
	pause := min(firstRetry<<min(refused.times, 10), longestRetry)
	refused.times, refused.again = refused.times+1, time.Now().Add(pause)
	v.Log.Warn("no launcher pod", "instance", vmi.Namespace+"/"+vmi.Name, "error", err)
	v.Recorder.Eventf(reference(vmi), corev1.EventTypeWarning, reason, "%v", err)
	e.condition("Synchronized", "False", reason, err.Error())
	return pause, nil
}

func reference(vmi *kubevirt.VMI) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: kubevirt.VMIKind.GroupVersion().String(), Kind: kubevirt.VMIKind.Kind,
		Namespace: vmi.Namespace, Name: vmi.Name, UID: vmi.UID,
	}
}

func (v *VMIs) claimsExist(ctx context.Context, vmi *kubevirt.VMI) error {
	for _, volume := range vmi.Spec.Volumes {
		if claim := volume.Claim(); claim != "" {
			_, err := v.Kubernetes.CoreV1().PersistentVolumeClaims(vmi.Namespace).Get(ctx, claim, metav1.GetOptions{})
			if err != nil {
				return fmt.Errorf("PVC %s/%s: %w", vmi.Namespace, claim, err)
			}
		}
	}
	return nil
}

// migratable is virt-handler's judgement, from the instance and its claims.
func (v *VMIs) migratable(ctx context.Context, vmi *kubevirt.VMI) (status, reason, message string) {
	devices := vmi.Spec.Domain.Devices
	if len(devices.GPUs)+len(devices.HostDevices) > 0 {
		return "False", "HostDeviceNotLiveMigratable", "VMI uses a PCI host devices"
	}
	for _, volume := range vmi.Spec.Volumes {
		if volume.Claim() == "" {
			continue
		}
		claim, err := v.Kubernetes.CoreV1().PersistentVolumeClaims(vmi.Namespace).Get(ctx, volume.Claim(), metav1.GetOptions{})
		if err != nil || !slices.Contains(claim.Spec.AccessModes, corev1.ReadWriteMany) {
			return "False", "DisksNotLiveMigratable", fmt.Sprintf(
				"cannot migrate VMI: PVC %s is not shared, live migration requires that all PVCs must be shared (using ReadWriteMany access mode)",
				volume.Claim())
		}
	}
	return "True", "", ""
}

// follow keeps the instance and its running pod alike.
func (v *VMIs) follow(ctx context.Context, vmi *kubevirt.VMI, pod *corev1.Pod, pods []*corev1.Pod, settings *launcher.Settings, e *edit) (time.Duration, error) {
	if vmi.Status.Phase == kubevirt.Scheduled {
		if !v.handled(pod.Spec.NodeName) {
			return 0, nil
		}
		e.phase(kubevirt.Running)
	}
	e.condition("Ready", "True", "", "")
	active := map[string]string{}
	for _, each := range pods {
		if alive(each) {
			active[string(each.UID)] = each.Spec.NodeName
		}
	}
	e.set("activePods", active)
	if !vmi.Migrating() {
		markImage(e, pod, settings.Image)
	}
	return 0, v.syncPod(ctx, pod, e.after)
}

// syncPod tells the pod what of the instance changes while it runs, and the kubelet that the guest is not paused.
func (v *VMIs) syncPod(ctx context.Context, pod *corev1.Pod, vmi *unstructured.Unstructured) error {
	labels := map[string]any{}
	for _, key := range []string{kubevirt.NodeNameLabel, kubevirt.OutdatedLabel} {
		wanted, want := vmi.GetLabels()[key]
		if have, has := pod.Labels[key]; want && have != wanted || want != has {
			labels[key] = nil
			if want {
				labels[key] = wanted
			}
		}
	}
	if len(labels) > 0 {
		if err := v.patchPod(ctx, pod, map[string]any{"metadata": map[string]any{"labels": labels}}); err != nil {
			return err
		}
	}
	if podCondition(pod, kubevirt.UnpausedGate) {
		return nil
	}
	return v.patchPod(ctx, pod, map[string]any{"status": map[string]any{"conditions": []any{map[string]any{
		"type": kubevirt.UnpausedGate, "status": "True", "reason": "NotPaused",
		"message": "the virtual machine is not paused", "lastProbeTime": now(), "lastTransitionTime": now(),
	}}}}, "status")
}

func (p *Platform) patchPod(ctx context.Context, pod *corev1.Pod, body map[string]any, subresources ...string) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	_, err = p.Kubernetes.CoreV1().Pods(pod.Namespace).Patch(
		ctx, pod.Name, types.StrategicMergePatchType, text, metav1.PatchOptions{FieldManager: kubevirt.ControllerDeployment}, subresources...)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (p *Platform) deletePods(ctx context.Context, pods []*corev1.Pod) error {
	for _, pod := range pods {
		if pod.DeletionTimestamp != nil {
			continue
		}
		err := p.Kubernetes.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
			Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
		})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return err
		}
	}
	return nil
}

// remove ends a deleted instance. One that has run is only let go by its node's handler.
func (v *VMIs) remove(ctx context.Context, vmi *kubevirt.VMI, pods []*corev1.Pod, e *edit) (time.Duration, error) {
	if err := v.deletePods(ctx, pods); err != nil {
		return 0, err
	}
	if slices.ContainsFunc(pods, alive) {
		e.condition("Ready", "False", "PodTerminating", "virt-launcher pod is terminating")
		return 0, nil
	}
	ran := vmi.Status.Phase == kubevirt.Scheduled || vmi.Status.Phase == kubevirt.Running
	if ran && !v.handled(vmi.Status.NodeName) {
		return patience, nil
	}
	if !kubevirt.Final(vmi.Status.Phase) {
		e.phase(kubevirt.Succeeded)
	}
	e.withoutFinalizer(kubevirt.VMIFinalizer, kubevirt.VMFinalizer)
	v.created.Delete(vmi.UID)
	v.refusals.Delete(vmi.UID)
	return 0, nil
}
