// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"virtpools.io/controlplane/standin/kubevirt"
	"virtpools.io/controlplane/standin/loop"
)

const (
	throttle         = 5 * time.Second // from an event to the updater's look
	outdatedInterval = 30 * time.Second
	evictionBatch    = 10
	evictionInterval = time.Minute
)

// Updater is the workload updater: it moves or evicts instances whose launcher image is not virt-controller's own. It
// looks at what instances say, never back at what it has done, so that it goes on for ever where that changes nothing.
type Updater struct {
	*Platform
	queue     loop.Queue
	lastBatch time.Time // of evictions; one worker
}

// NewUpdater makes the updater. KubeVirt objects and migrations wake it; instances do not.
func NewUpdater(platform *Platform) (*Updater, error) {
	u := &Updater{Platform: platform, queue: loop.NewQueue(throttle, longestRetry)}
	wake := func(metav1.Object) {
		for _, key := range platform.KubeVirts.GetStore().ListKeys() {
			u.queue.AddAfter(key, throttle)
		}
	}
	_, err1 := platform.KubeVirts.AddEventHandler(onEvent(wake))
	_, err2 := platform.Migrations.AddEventHandler(onEvent(wake))
	return u, errors.Join(err1, err2)
}

// Run works until the context ends.
func (u *Updater) Run(ctx context.Context) { loop.Run(ctx, u.Log, u.queue, 1, u.sync) }

func (u *Updater) sync(ctx context.Context, key string) error {
	kv, settings := u.deployed()
	if kv == nil || kv.Namespace+"/"+kv.Name != key || kv.Status.Phase != "Deployed" ||
		kv.Status.ObservedKubeVirtVersion != kv.Status.TargetKubeVirtVersion {
		return nil
	}
	outdated := u.outdated(settings.Image)
	if err := u.report(ctx, key, len(outdated)); err != nil || len(outdated) == 0 {
		return err
	}
	u.queue.AddAfter(key, outdatedInterval)
	migrate, evict := sortOut(outdated, kv.Spec.WorkloadUpdateStrategy.Methods)
	if err := u.migrate(ctx, kv, migrate); err != nil {
		return err
	}
	return u.evict(ctx, kv.Spec.WorkloadUpdateStrategy, evict)
}

// outdated are the running instances that say that their launcher image is another one.
func (u *Updater) outdated(stock string) []*kubevirt.VMI {
	var found []*kubevirt.VMI
	for _, object := range u.VMIs.GetStore().List() {
		raw := object.(*unstructured.Unstructured)
		vmi, err := kubevirt.Read[kubevirt.VMI](raw)
		if err != nil || handsOff(raw) {
			continue
		}
		image := vmi.Status.LauncherContainerImageVersion
		if vmi.Status.Phase == kubevirt.Running && vmi.DeletionTimestamp == nil && image != "" && image != stock {
			found = append(found, vmi)
		}
	}
	slices.SortFunc(found, func(a, b *kubevirt.VMI) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	return found
}

// sortOut: what can migrate does if that is a method; the rest is evicted if that is one.
func sortOut(outdated []*kubevirt.VMI, methods []string) (migrate, evict []*kubevirt.VMI) {
	for _, vmi := range outdated {
		condition := vmi.Condition("LiveMigratable")
		switch {
		case slices.Contains(methods, "LiveMigrate") && condition != nil && condition.Status == "True":
			migrate = append(migrate, vmi)
		case slices.Contains(methods, "Evict"):
			evict = append(evict, vmi)
		}
	}
	return migrate, evict
}

func (u *Updater) migrate(ctx context.Context, kv *kubevirt.KubeVirt, vmis []*kubevirt.VMI) error {
	free, moving := perCluster, map[string]bool{}
	if limit := kv.Spec.Configuration.Migrations.ParallelPerCluster; limit != nil {
		free = *limit
	}
	for _, migration := range u.all() {
		if !kubevirt.Final(migration.Status.Phase) {
			free--
			moving[migration.Namespace+"/"+migration.Spec.VMIName] = true
		}
	}
	for _, vmi := range vmis {
		if free <= 0 || moving[vmi.Namespace+"/"+vmi.Name] {
			continue
		}
		free--
		migration := &unstructured.Unstructured{Object: map[string]any{
			"spec": map[string]any{"vmiName": vmi.Name, "priority": "system-critical"},
		}}
		migration.SetGroupVersionKind(kubevirt.MigrationKind)
		migration.SetNamespace(vmi.Namespace)
		migration.SetGenerateName("kubevirt-workload-update-")
		migration.SetAnnotations(map[string]string{kubevirt.UpdateMigrationMark: ""})
		_, err := u.Dynamic.Resource(kubevirt.MigrationResource).Namespace(vmi.Namespace).Create(ctx, migration, metav1.CreateOptions{})
		if err != nil {
			return err
		}
	}
	return nil
}

// evict ends a batch of instances, no sooner than an interval after the last batch.
func (u *Updater) evict(ctx context.Context, strategy kubevirt.WorkloadUpdateStrategy, vmis []*kubevirt.VMI) error {
	size, interval := evictionBatch, evictionInterval
	if strategy.BatchSize != nil {
		size = *strategy.BatchSize
	}
	if asked, err := time.ParseDuration(strategy.BatchInterval); err == nil {
		interval = asked
	}
	if len(vmis) == 0 || time.Since(u.lastBatch) < interval {
		return nil
	}
	u.lastBatch = time.Now()
	for _, vmi := range vmis[:min(size, len(vmis))] {
		pod := current(vmi, u.podsOf(vmi))
		if pod == nil || pod.DeletionTimestamp != nil {
			continue
		}
		err := u.Kubernetes.CoreV1().Pods(pod.Namespace).EvictV1(ctx, &policyv1.Eviction{
			ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// report writes how many are outdated into the KubeVirt object.
func (u *Updater) report(ctx context.Context, key string, count int) error {
	object, exists, err := u.KubeVirts.GetStore().GetByKey(key)
	if err != nil || !exists {
		return err
	}
	kv := object.(*unstructured.Unstructured)
	have, ok, _ := unstructured.NestedInt64(kv.Object, "status", "outdatedVirtualMachineInstanceWorkloads")
	if ok && have == int64(count) || !ok && count == 0 {
		return nil
	}
	name, err := cache.ParseObjectName(key)
	if err != nil {
		return err
	}
	body := fmt.Sprintf(`{"status":{"outdatedVirtualMachineInstanceWorkloads":%d}}`, count)
	_, err = u.Dynamic.Resource(kubevirt.Resource).Namespace(name.Namespace).Patch(
		ctx, name.Name, types.MergePatchType, []byte(body), metav1.PatchOptions{FieldManager: kubevirt.ControllerDeployment}, "status")
	return err
}
