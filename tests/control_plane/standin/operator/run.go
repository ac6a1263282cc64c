// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

package operator

import (
	"context"
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilversion "k8s.io/apimachinery/pkg/util/version"

	"virtpools.io/controlplane/standin/kubevirt"
)

// run is one sync of the components.
type run struct {
	*Operator
	kv     *kubevirt.KubeVirt
	target target
	pods   []*corev1.Pod
}

func (o *Operator) newRun(kv *kubevirt.KubeVirt, t target) *run {
	return &run{Operator: o, kv: kv, target: t, pods: o.managedPods()}
}

// components brings the components up to date as far as one sync gets, and tells whether nothing is left to wait for.
func (r *run) components(ctx context.Context) (bool, error) {
	s := r.strategyFor(r.kv, r.target)
	if err := newCustomizer(r.kv.Spec.CustomizeComponents).apply(s); err != nil {
		return false, err
	}
	rolledOver := r.deploymentRolledOver("virt-api") && r.deploymentRolledOver("virt-controller") && r.handlerRolledOver()
	if err := r.ensureAccounts(ctx); err != nil {
		return false, err
	}
	bring := r.installOrder
	if r.isUpgrade() {
		bring = r.upgradeOrder
	}
	if finished, err := bring(ctx, s); err != nil || !finished {
		return false, err
	}
	if !rolledOver {
		return false, nil
	}
	return true, r.deleteForeign(ctx)
}

// isUpgrade decides between KubeVirt's two orders: only a newer version takes the one that starts with the handlers.
func (r *run) isUpgrade() bool {
	if r.kv.Status.ObservedKubeVirtVersion == "" {
		return false
	}
	wanted, err := utilversion.ParseSemantic(r.target.Version)
	if err != nil {
		return true
	}
	current, err := utilversion.ParseSemantic(r.kv.Status.ObservedKubeVirtVersion)
	return err != nil || current.LessThan(wanted)
}

func (r *run) installOrder(ctx context.Context, s *strategy) (bool, error) {
	if err := r.syncDeployment(ctx, s.api); err != nil {
		return false, err
	}
	if !r.deploymentRolledOver("virt-api") {
		return false, nil
	}
	if err := r.syncDeployment(ctx, s.controller); err != nil {
		return false, err
	}
	return r.syncHandler(ctx, s.handler)
}

func (r *run) upgradeOrder(ctx context.Context, s *strategy) (bool, error) {
	if finished, err := r.syncHandler(ctx, s.handler); err != nil || !finished {
		return false, err
	}
	if r.kv.Annotations[kubevirt.HoldUpgradeKnob] == "true" {
		return false, nil
	}
	if err := r.syncDeployment(ctx, s.controller); err != nil {
		return false, err
	}
	if !r.deploymentRolledOver("virt-controller") {
		return false, nil
	}
	return true, r.syncDeployment(ctx, s.api)
}

func (r *run) deploymentRolledOver(name string) bool {
	live, err := r.deployments.Deployments(r.kv.Namespace).Get(name)
	return err == nil && deploymentReady(live, r.pods, r.target)
}

func (r *run) handlerRolledOver() bool {
	live, err := r.daemonSets.DaemonSets(r.kv.Namespace).Get(handlerName)
	return err == nil && daemonSetReady(live, r.pods, r.target)
}

func (r *run) ensureAccounts(ctx context.Context) error {
	if r.cachedAccounts() {
		return nil
	}
	for _, name := range accounts() {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: r.kv.Namespace,
			Labels: map[string]string{kubevirt.ManagedByLabel: kubevirt.ManagedBy, kubevirt.ComponentLabel: ""},
		}}
		_, err := r.clients.Kubernetes.CoreV1().ServiceAccounts(r.kv.Namespace).Create(ctx, account, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return nil
}

// cachedAccounts: once the handlers exist, the accounts do.
func (r *run) cachedAccounts() bool {
	_, err := r.daemonSets.DaemonSets(r.kv.Namespace).Get(handlerName)
	return err == nil
}

func (r *run) syncDeployment(ctx context.Context, wanted *appsv1.Deployment) error {
	wanted = wanted.DeepCopy()
	mark(&wanted.ObjectMeta, r.kv, r.target, true)
	mark(&wanted.Spec.Template.ObjectMeta, r.kv, r.target, false)
	place(&wanted.Spec.Template.Spec, r.kv.Spec.Infra)
	if infra := r.kv.Spec.Infra; infra != nil && infra.Replicas != nil {
		wanted.Spec.Replicas = infra.Replicas
	}
	api := r.clients.Kubernetes.AppsV1().Deployments(r.kv.Namespace)
	live, err := r.deployments.Deployments(wanted.Namespace).Get(wanted.Name)
	if err != nil {
		created, err := api.Create(ctx, wanted, metav1.CreateOptions{FieldManager: Name})
		if err != nil {
			return fmt.Errorf("unable to create deployment %s: %v", wanted.Name, err)
		}
		r.remember("deployments", created)
		return nil
	}
	ours := live.Generation == knownGeneration(r.kv.Status, "deployments", wanted.Namespace, wanted.Name)
	if ours && !lacks(live.ObjectMeta, wanted.ObjectMeta) {
		return nil
	}
	const revision = "deployment.kubernetes.io/revision"
	if value, ok := live.Annotations[revision]; ok {
		wanted.Annotations[revision] = value
	}
	body, err := replacement(live.Generation, wanted.ObjectMeta, wanted.Spec)
	if err != nil {
		return err
	}
	changed, err := api.Patch(ctx, wanted.Name, types.JSONPatchType, body, metav1.PatchOptions{FieldManager: Name})
	if err != nil {
		return fmt.Errorf("unable to update deployment %s: %v", wanted.Name, err)
	}
	r.remember("deployments", changed)
	return nil
}

func (r *run) remember(resource string, object metav1.Object) {
	rememberGeneration(&r.kv.Status, resource, object.GetNamespace(), object.GetName(), object.GetGeneration())
}

// syncHandler brings the handlers' DaemonSet up to date and tells whether it is through with it.
func (r *run) syncHandler(ctx context.Context, wanted *appsv1.DaemonSet) (bool, error) {
	wanted = wanted.DeepCopy()
	mark(&wanted.ObjectMeta, r.kv, r.target, true)
	mark(&wanted.Spec.Template.ObjectMeta, r.kv, r.target, false)
	place(&wanted.Spec.Template.Spec, r.kv.Spec.Workloads)
	live, err := r.daemonSets.DaemonSets(wanted.Namespace).Get(wanted.Name)
	if err != nil {
		created, err := r.clients.Kubernetes.AppsV1().DaemonSets(r.kv.Namespace).Create(
			ctx, wanted, metav1.CreateOptions{FieldManager: Name})
		if err != nil {
			return false, fmt.Errorf("unable to create daemonset %s: %v", wanted.Name, err)
		}
		r.remember("daemonsets", created)
		return true, nil
	}
	changed := !r.target.upToDate(live) || lacks(live.ObjectMeta, wanted.ObjectMeta)
	ours := live.Generation == knownGeneration(r.kv.Status, "daemonsets", wanted.Namespace, wanted.Name)
	if !changed && ours && cautious(live) {
		return true, nil
	}
	return r.rollHandlers(ctx, live, wanted, changed)
}

// cautious: at most one handler at a time is replaced. Otherwise a roll-out is under way.
func cautious(daemonSet *appsv1.DaemonSet) bool {
	update := daemonSet.Spec.UpdateStrategy.RollingUpdate
	return update != nil && (update.MaxUnavailable == nil || *update.MaxUnavailable == intstr.FromInt32(1))
}

// rollHandlers is KubeVirt's canary: one handler first, then ten percent at a time, then cautious again. What counts as
// an updated pod is its install strategy, not its template, so a roll-out that only a patch causes ends the canary at
// once and may still go on when KubeVirt says Available.
func (r *run) rollHandlers(ctx context.Context, live, wanted *appsv1.DaemonSet, changed bool) (bool, error) {
	updated := ofDaemonSet(live.Name, r.pods, r.target)
	ready, desired := countReady(updated), live.Status.DesiredNumberScheduled
	switch {
	case changed:
		// The generation is not remembered: the next syncs must come back here.
		_, err := r.patchHandler(ctx, live, wanted, intstr.FromInt32(1))
		return false, err
	case ready == 0:
		for _, pod := range updated {
			if crashLooping(pod) {
				r.clients.Recorder.Eventf(live, corev1.EventTypeWarning, "FailedUpdate", "daemonSet %v rollout failed", live.Name)
				return false, fmt.Errorf("daemonSet %s rollout failed", live.Name)
			}
		}
		return false, nil
	case ready < desired:
		if !cautious(live) {
			return false, nil
		}
		patched, err := r.patchHandler(ctx, live, wanted, intstr.FromString("10%"))
		if err != nil {
			return false, err
		}
		r.remember("daemonsets", patched)
		return false, nil
	case ready == desired:
		patched, err := r.patchHandler(ctx, live, wanted, intstr.FromInt32(1))
		if err != nil {
			return false, err
		}
		r.remember("daemonsets", patched)
		return true, nil
	}
	return false, fmt.Errorf("unexpected canary upgrade state: updatedAndReadyPods=%d, desiredReadyPods=%d", ready, desired)
}

func (r *run) patchHandler(ctx context.Context, live, wanted *appsv1.DaemonSet, atOnce intstr.IntOrString) (*appsv1.DaemonSet, error) {
	wanted.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateDaemonSet{MaxUnavailable: &atOnce}
	body, err := replacement(live.Generation, wanted.ObjectMeta, wanted.Spec)
	if err != nil {
		return nil, err
	}
	patched, err := r.clients.Kubernetes.AppsV1().DaemonSets(live.Namespace).Patch(
		ctx, live.Name, types.JSONPatchType, body, metav1.PatchOptions{FieldManager: Name})
	if err != nil {
		return nil, fmt.Errorf("unable to update daemonset %s: %w", live.Name, err)
	}
	return patched, nil
}

// replacement replaces all that virt-operator owns of an object, provided nobody changed its spec meanwhile.
func replacement(generation int64, meta metav1.ObjectMeta, spec any) ([]byte, error) {
	owners := meta.OwnerReferences
	if owners == nil {
		owners = []metav1.OwnerReference{}
	}
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	return json.Marshal([]operation{
		{"test", "/metadata/generation", generation},
		{"add", "/metadata/labels", meta.Labels},
		{"add", "/metadata/annotations", meta.Annotations},
		{"add", "/metadata/ownerReferences", owners},
		{"replace", "/spec", spec},
	})
}

// deleteForeign deletes what carries virt-operator's label but is not in its install strategy, in any namespace.
func (r *run) deleteForeign(ctx context.Context) error {
	for _, daemonSet := range r.managedDaemonSets() {
		if daemonSet.Namespace != r.kv.Namespace || daemonSet.Name != handlerName {
			if err := r.deleteDaemonSet(ctx, daemonSet); err != nil {
				return err
			}
		}
	}
	for _, deployment := range r.managedDeployments() {
		own := deployment.Name == "virt-api" || deployment.Name == "virt-controller"
		if deployment.Namespace != r.kv.Namespace || !own {
			if err := r.deleteDeployment(ctx, deployment); err != nil {
				return err
			}
		}
	}
	return nil
}

func (o *Operator) deleteDaemonSet(ctx context.Context, daemonSet *appsv1.DaemonSet) error {
	if daemonSet.DeletionTimestamp != nil {
		return nil
	}
	o.log.Info("delete", "daemonset", daemonSet.Namespace+"/"+daemonSet.Name)
	err := o.clients.Kubernetes.AppsV1().DaemonSets(daemonSet.Namespace).Delete(ctx, daemonSet.Name, background(daemonSet.UID))
	return ignoreNotFound(err)
}

func (o *Operator) deleteDeployment(ctx context.Context, deployment *appsv1.Deployment) error {
	if deployment.DeletionTimestamp != nil {
		return nil
	}
	o.log.Info("delete", "deployment", deployment.Namespace+"/"+deployment.Name)
	err := o.clients.Kubernetes.AppsV1().Deployments(deployment.Namespace).Delete(ctx, deployment.Name, background(deployment.UID))
	return ignoreNotFound(err)
}

func background(uid types.UID) metav1.DeleteOptions {
	return metav1.DeleteOptions{
		PropagationPolicy: new(metav1.DeletePropagationBackground),
		Preconditions:     metav1.NewUIDPreconditions(string(uid)),
	}
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
