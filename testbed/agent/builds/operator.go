// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

package builds

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"virtpools.io/controlplane/agent/kubevirt"
	"virtpools.io/controlplane/agent/loop"
)

const (
	operatorManager = "virt-operator"
	// again is when an unfinished pass is taken up although nothing was seen to happen.
	again = time.Second
)

// Operator is what the build's virt-operator does for pools. It reads from the API server each time: what it decides on must not
// be older than what virt-operator, which it stands beside, decides on.
type Operator struct {
	log       *slog.Logger
	build     Build
	namespace string
	client    kubernetes.Interface
	dynamic   dynamic.Interface
	queue     loop.Queue
	// generations are those of the DaemonSets as it wrote them last. One worker, so no lock.
	generations map[string]int64

	mutex sync.Mutex
	// passed is what the last pass that came to its end was for.
	passed target
	// held is the status that virt-operator wanted and must not have before pools are ready.
	held *unstructured.Unstructured
	// deployed is the identity of the list that was rolled out last.
	deployed string
}

// target is what virt-operator works towards: a KubeVirt object as it is now, and the deployment that it makes of it.
type target struct {
	generation int64
	deployment string
}

func targetOf(kv *kubeVirt) target { return target{kv.Generation, deploymentID(kv)} }

// listSuffix separates the deployment ID of virt-operator, which does not know of the list, from the list's part in it.
const listSuffix = "-list-"

// deploymentID is that which virt-operator itself works towards.
func deploymentID(kv *kubeVirt) string {
	id, _, _ := strings.Cut(kv.Status.TargetDeploymentID, listSuffix)
	return id
}

// NewOperator makes one.
func NewOperator(log *slog.Logger, build Build, namespace string, client kubernetes.Interface, dynamic dynamic.Interface) *Operator {
	return &Operator{
		log: log, build: build, namespace: namespace, client: client, dynamic: dynamic,
		queue: loop.NewQueue(200*time.Millisecond, 5*time.Second), generations: map[string]int64{},
	}
}

// Watch lets it be woken by these objects.
func (o *Operator) Watch(informers ...cache.SharedIndexInformer) error {
	wake := func(object any) {
		if pod, ok := object.(*corev1.Pod); ok && pod.Labels[kubevirt.ComponentLabel] != kubevirt.HandlerComponent {
			return
		}
		o.queue.AddAfter(o.namespace, 50*time.Millisecond)
	}
	for _, informer := range informers {
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: wake, UpdateFunc: func(_, after any) { wake(after) }, DeleteFunc: wake,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Run works until the context ends.
func (o *Operator) Run(ctx context.Context) { loop.Run(ctx, o.log, o.queue, 1, o.sync) }

// state is what one pass works on.
type state struct {
	object  *unstructured.Unstructured
	kv      *kubeVirt
	pools   []Pool
	on      bool
	sets    map[string]*appsv1.DaemonSet
	pods    []corev1.Pod
	primary *appsv1.DaemonSet
	// identity is what the list adds to the deployment ID.
	identity string
	// deploymentsDone: virt-operator's Deployments are rolled out.
	deploymentsDone bool
}

func (o *Operator) sync(ctx context.Context, _ string) error {
	now, err := o.observe(ctx)
	if err != nil || now == nil {
		return err
	}
	finished, err := o.pass(ctx, now)
	if err != nil {
		return err
	}
	if err := o.keepStrategy(ctx, now); err != nil {
		return err
	}
	if !finished {
		o.queue.AddAfter(o.namespace, again)
		return nil
	}
	o.mutex.Lock()
	o.passed = targetOf(now.kv)
	o.mutex.Unlock()
	return o.release(ctx)
}

// observe reads everything; nil while KubeVirt is not there.
func (o *Operator) observe(ctx context.Context) (*state, error) {
	object, err := o.kubeVirt(ctx)
	if err != nil || object == nil {
		return nil, err
	}
	now := &state{object: object, sets: map[string]*appsv1.DaemonSet{}}
	if now.kv, err = o.build.read(object); err != nil {
		return nil, err
	}
	now.on = o.build.on(now.kv)
	if now.on {
		if now.pools, err = o.pools(ctx, now.kv); err != nil {
			return nil, err
		}
	}
	now.identity = o.build.identity(now.on, now.pools)
	sets, err := o.client.AppsV1().DaemonSets(o.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for i := range sets.Items {
		now.sets[sets.Items[i].Name] = &sets.Items[i]
	}
	now.primary = now.sets[primaryName]
	pods, err := o.client.CoreV1().Pods(o.namespace).List(ctx, metav1.ListOptions{
		LabelSelector: kubevirt.ComponentLabel + "=" + kubevirt.HandlerComponent,
	})
	if err != nil {
		return nil, err
	}
	now.pods = pods.Items
	now.deploymentsDone, err = o.deploymentsDone(ctx)
	return now, err
}

func (o *Operator) deploymentsDone(ctx context.Context) (bool, error) {
	deployments, err := o.client.AppsV1().Deployments(o.namespace).List(ctx, metav1.ListOptions{
		LabelSelector: kubevirt.ManagedByLabel + "=" + operatorManager,
	})
	if err != nil {
		return false, err
	}
	return !slices.ContainsFunc(deployments.Items, func(each appsv1.Deployment) bool {
		wanted, status := *each.Spec.Replicas, each.Status
		return status.ObservedGeneration != each.Generation || status.Replicas != wanted ||
			status.UpdatedReplicas != wanted || status.ReadyReplicas != wanted
	}), nil
}

func (o *Operator) kubeVirt(ctx context.Context) (*unstructured.Unstructured, error) {
	found, err := o.dynamic.Resource(kubevirt.Resource).Namespace(o.namespace).List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) || (err == nil && len(found.Items) == 0) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &found.Items[0], nil
}

// pools are all pools, whether or not the gate is on.
func (o *Operator) pools(ctx context.Context, kv *kubeVirt) ([]Pool, error) {
	if o.build.Field != "" {
		return kv.list, nil
	}
	objects, err := o.dynamic.Resource(PoolResource).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return readPools(objects.Items)
}

// effective are the pools that the operator knows of now, for the primary and for templates, and what they add to the deployment ID.
func (o *Operator) effective(ctx context.Context) (string, []Pool, error) {
	object, err := o.kubeVirt(ctx)
	if err != nil || object == nil {
		return "", nil, err
	}
	kv, err := o.build.read(object)
	if err != nil || !o.build.on(kv) || o.build.forgets(kv) {
		return "", nil, err
	}
	pools, err := o.pools(ctx, kv)
	return o.build.identity(true, pools), pools, err
}

// forgets tells whether virt-operator is on a way that knows no pools.
func (b Build) forgets(kv *kubeVirt) bool { return b.upgradeForgets && upgrades(kv) }

// upgrades tells whether virt-operator takes its way of upgrades: that of a newer version, and of one that it cannot compare.
func upgrades(kv *kubeVirt) bool {
	if kv.Status.ObservedVersion == "" {
		return false
	}
	target, err1 := version.ParseSemantic(kv.Status.TargetVersion)
	observed, err2 := version.ParseSemantic(kv.Status.ObservedVersion)
	return err1 != nil || err2 != nil || target.GreaterThan(observed)
}

// The pass ------------------------------------------------------------------------------------------------------------

// pass goes through the DaemonSets in order, and stops at the first that is not finished. What is too much goes last.
func (o *Operator) pass(ctx context.Context, now *state) (bool, error) {
	if now.kv.DeletionTimestamp != nil {
		return true, nil
	}
	if now.primary == nil || !o.primaryFinished(now) {
		return false, nil
	}
	if o.build.forgets(now.kv) {
		return true, nil
	}
	for _, pool := range now.pools {
		if finished, err := o.syncPool(ctx, now, pool); err != nil || !finished {
			return false, err
		}
	}
	if o.build.orphans && !now.on {
		return true, nil
	}
	return true, o.cleanUp(ctx, now)
}

// primaryFinished tells whether virt-operator has brought the primary to the KubeVirt object's generation. It judges pods by
// annotations that an edit of the object does not change, so it may be early - but for a build where the list changes them.
func (o *Operator) primaryFinished(now *state) bool {
	primary := now.primary
	current := primary.Annotations[generationAnnotation] == strconv.FormatInt(now.kv.Generation, 10) && ofTarget(now, primary.Annotations)
	if !current || maxUnavailable(primary) != 1 {
		return false
	}
	if o.build.listIdentifies && !(rolledOut(primary) && now.deploymentsDone) {
		return false
	}
	for _, each := range now.kv.Status.Generations {
		if each.Resource == "daemonsets" && each.Name == primaryName {
			return each.LastGeneration == primary.Generation
		}
	}
	return false
}

func rolledOut(set *appsv1.DaemonSet) bool {
	desired := set.Status.DesiredNumberScheduled
	return set.Status.ObservedGeneration == set.Generation && desired > 0 &&
		set.Status.UpdatedNumberScheduled == desired && set.Status.NumberReady == desired
}

func maxUnavailable(set *appsv1.DaemonSet) int {
	if rolling := set.Spec.UpdateStrategy.RollingUpdate; rolling != nil && rolling.MaxUnavailable != nil {
		return rolling.MaxUnavailable.IntValue() // 0 for a percentage
	}
	return 1
}

// syncPool is virt-operator's own way with a DaemonSet. It compares metadata and the generation, and never the spec: whether it
// sees a changed pool depends on whether that changed the KubeVirt object's generation.
func (o *Operator) syncPool(ctx context.Context, now *state, pool Pool) (bool, error) {
	wanted := o.build.daemonSet(now.primary, now.kv, pool, now.identity)
	live := now.sets[wanted.Name]
	if live == nil {
		made, err := o.client.AppsV1().DaemonSets(o.namespace).Create(ctx, wanted, metav1.CreateOptions{FieldManager: operatorManager})
		if apierrors.IsAlreadyExists(err) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		o.generations[made.Name] = made.Generation
		return true, nil
	}
	changed := !contains(live.Labels, wanted.Labels) || !contains(live.Annotations, wanted.Annotations)
	if !changed && maxUnavailable(live) == 1 && o.generations[live.Name] == live.Generation {
		return true, nil
	}
	return o.canary(ctx, now, live, wanted, changed)
}

// canary changes a DaemonSet as virt-operator does: one handler at first, when it is Ready a tenth of all at a time, and back to
// one at the end.
func (o *Operator) canary(ctx context.Context, now *state, live, wanted *appsv1.DaemonSet, changed bool) (bool, error) {
	if changed {
		delete(o.generations, live.Name) // the next pass goes on with the canary
		_, err := o.patch(ctx, live, wanted, intstr.FromInt32(1))
		return false, err
	}
	ready, desired := o.updatedAndReady(now, live), live.Status.DesiredNumberScheduled
	switch {
	case ready == 0:
		return false, nil
	case ready < desired && maxUnavailable(live) == 1:
		patched, err := o.patch(ctx, live, wanted, intstr.FromString("10%"))
		if err == nil {
			o.generations[live.Name] = patched.Generation
		}
		return false, err
	case ready < desired:
		return false, nil
	}
	patched, err := o.patch(ctx, live, wanted, intstr.FromInt32(1))
	if err == nil {
		o.generations[live.Name] = patched.Generation
	}
	return err == nil, err
}

func (o *Operator) patch(ctx context.Context, live, wanted *appsv1.DaemonSet, pace intstr.IntOrString) (*appsv1.DaemonSet, error) {
	next := live.DeepCopy()
	next.Labels = wanted.Labels
	next.Annotations = with(wanted.Annotations, map[string]string{templateGeneration: live.Annotations[templateGeneration]})
	next.Spec = *wanted.Spec.DeepCopy()
	next.Spec.Selector = live.Spec.Selector
	next.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateDaemonSet{MaxUnavailable: &pace}
	return o.client.AppsV1().DaemonSets(o.namespace).Update(ctx, next, metav1.UpdateOptions{FieldManager: operatorManager})
}

// updatedAndReady counts a DaemonSet's Ready pods with the annotations of the version that is wanted. Where only the list has
// changed, old pods have them too.
func (o *Operator) updatedAndReady(now *state, set *appsv1.DaemonSet) int32 {
	var count int32
	for i := range now.pods {
		pod := &now.pods[i]
		owner := metav1.GetControllerOf(pod)
		if owner != nil && owner.Name == set.Name && o.upToDate(now, pod) && podReady(pod) {
			count++
		}
	}
	return count
}

func (o *Operator) upToDate(now *state, pod *corev1.Pod) bool {
	return ofTarget(now, pod.Annotations) && pod.Annotations[listAnnotation] == now.identity
}

// ofTarget tells whether virt-operator has made an object for the deployment that it works towards.
func ofTarget(now *state, annotations map[string]string) bool {
	status := now.kv.Status
	return annotations["kubevirt.io/install-strategy-version"] == status.TargetVersion &&
		annotations["kubevirt.io/install-strategy-registry"] == status.TargetRegistry &&
		annotations["kubevirt.io/install-strategy-identifier"] == deploymentID(now.kv)
}

func podReady(pod *corev1.Pod) bool {
	if pod.Status.Phase != corev1.PodRunning {
		return false
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// cleanUp deletes the DaemonSets of pools that no longer exist.
func (o *Operator) cleanUp(ctx context.Context, now *state) error {
	wanted := map[string]bool{}
	for _, pool := range now.pools {
		wanted[primaryName+"-"+pool.Name] = true
	}
	for name, set := range now.sets {
		if set.Labels[o.build.Label] == "" || wanted[name] || set.DeletionTimestamp != nil {
			continue
		}
		err := o.client.AppsV1().DaemonSets(o.namespace).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		delete(o.generations, name)
		o.log.Info("deleted", "daemonset", name)
	}
	return nil
}

// Readiness -----------------------------------------------------------------------------------------------------------

// ready tells whether nothing about pools keeps KubeVirt from being available.
func (o *Operator) ready(now *state) bool {
	if !o.build.claimsEarly && !o.passedThrough(now) {
		return false
	}
	for _, set := range now.sets {
		if set.Labels[o.build.Label] != "" && !o.setReady(now, set) {
			return false
		}
	}
	return true
}

// setReady tells whether a DaemonSet of a pool, wanted or not, is as virt-operator wants it to be. With claimsEarly, all that matters is
// that it has a node, and no pod of another version.
func (o *Operator) setReady(now *state, set *appsv1.DaemonSet) bool {
	desired := set.Status.DesiredNumberScheduled
	if o.build.claimsEarly {
		return (desired > 0 || set.Status.ObservedGeneration == 0) && !o.hasFormerPods(now, set)
	}
	return desired > 0 && desired == set.Status.NumberReady && o.updatedAndReady(now, set) >= desired
}

func (o *Operator) hasFormerPods(now *state, set *appsv1.DaemonSet) bool {
	return slices.ContainsFunc(now.pods, func(pod corev1.Pod) bool {
		owner := metav1.GetControllerOf(&pod)
		return owner != nil && owner.Name == set.Name && !ofTarget(now, pod.Annotations)
	})
}

// updates tells whether another list, or the gate, is being rolled out, which is an update of KubeVirt to virt-operator.
func (o *Operator) updates(now *state) bool {
	ready := o.ready(now)
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if ready {
		o.deployed = now.identity
	}
	return now.identity != o.deployed
}

// keepStrategy leaves the ConfigMap that virt-operator has for each deployment ID. It deletes none while KubeVirt is installed.
func (o *Operator) keepStrategy(ctx context.Context, now *state) error {
	if now.identity == "" {
		return nil
	}
	status := now.kv.Status
	_, err := o.client.CoreV1().ConfigMaps(o.namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name:   "kubevirt-install-strategy-" + now.identity[:8],
		Labels: map[string]string{kubevirt.ManagedByLabel: operatorManager, "kubevirt.io/install-strategy": ""},
		Annotations: map[string]string{
			"kubevirt.io/install-strategy-version": status.TargetVersion, "kubevirt.io/install-strategy-registry": status.TargetRegistry,
			"kubevirt.io/install-strategy-identifier": deploymentID(now.kv) + listSuffix + now.identity,
		},
	}}, metav1.CreateOptions{FieldManager: operatorManager})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// passedThrough tells whether a pass for the present target has come to its end.
func (o *Operator) passedThrough(now *state) bool {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	return o.passed == targetOf(now.kv)
}

// release writes the status that was held back, once nothing stands against it.
func (o *Operator) release(ctx context.Context) error {
	o.mutex.Lock()
	held := o.held
	o.mutex.Unlock()
	if held == nil {
		return nil
	}
	now, err := o.observe(ctx)
	if err != nil || now == nil {
		return err
	}
	if held.GetGeneration() != now.kv.Generation || !o.ready(now) {
		o.queue.AddAfter(o.namespace, again)
		return nil
	}
	status, _, err := unstructured.NestedMap(held.Object, "status")
	if err != nil {
		return err
	}
	change := map[string]any{"metadata": map[string]any{"resourceVersion": now.object.GetResourceVersion()}, "status": map[string]any{
		"observedGeneration": status["observedGeneration"], "conditions": status["conditions"], "phase": status["phase"],
		"targetDeploymentID": status["targetDeploymentID"], "observedKubeVirtVersion": status["observedKubeVirtVersion"], "observedKubeVirtRegistry": status["observedKubeVirtRegistry"],
		"observedDeploymentID": status["observedDeploymentID"], "observedDeploymentConfig": status["observedDeploymentConfig"],
	}}
	body, err := json.Marshal(change)
	if err != nil {
		return err
	}
	_, err = o.dynamic.Resource(kubevirt.Resource).Namespace(o.namespace).Patch(
		ctx, now.object.GetName(), types.MergePatchType, body, metav1.PatchOptions{FieldManager: operatorManager}, "status")
	if err != nil {
		return err
	}
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if o.held == held {
		o.held = nil
	}
	return nil
}
