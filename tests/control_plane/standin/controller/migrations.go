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

	admissionv1 "k8s.io/api/admission/v1"
	registration "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"virtpools.io/controlplane/standin/kubevirt"
	"virtpools.io/controlplane/standin/launcher"
	"virtpools.io/controlplane/standin/loop"
	"virtpools.io/controlplane/standin/webhook"
)

const (
	perCluster = 5 // migrations at a time, unless the KubeVirt object says otherwise
	perNode    = 2 // those leaving one node
	kept       = 5 // finished migrations of an instance; older ones are deleted
	// firstBackOff is the pause of the workload updater's next migration after a failed one; doubles.
	firstBackOff   = 20 * time.Second
	longestBackOff = 5 * time.Minute
)

// MigrationOptions are how long migrations take.
type MigrationOptions struct {
	// Duration is from the target's readiness to the switch.
	Duration time.Duration
	// TargetTimeout is how long the target may take to start.
	TargetTimeout time.Duration
}

// Migrations moves instances to other nodes.
type Migrations struct {
	*Platform
	options MigrationOptions
	queue   loop.Queue
	// targets are pods that the cache may not know yet, by their migration.
	targets sync.Map // of types.UID: string
}

// NewMigrations makes the controller, woken by the informers.
func NewMigrations(platform *Platform, options MigrationOptions) (*Migrations, error) {
	m := &Migrations{Platform: platform, options: options, queue: loop.NewQueue(firstRetry, longestRetry)}
	_, err1 := platform.Migrations.AddEventHandler(onEvent(func(migration metav1.Object) {
		m.queue.Add(cache.MetaObjectToName(migration).String())
	}))
	_, err2 := platform.Pods.AddEventHandler(onEvent(func(pod metav1.Object) {
		if name := pod.GetAnnotations()[kubevirt.MigrationNameMark]; name != "" {
			m.queue.Add(pod.GetNamespace() + "/" + name)
		}
	}))
	return m, errors.Join(err1, err2)
}

// Run works until the context ends.
func (m *Migrations) Run(ctx context.Context) { loop.Run(ctx, m.Log, m.queue, 4, m.sync) }

// Rule is virt-api's webhook for new migrations.
func (m *Migrations) Rule() webhook.Rule {
	return webhook.Rule{
		Configuration: "virt-api-validator", Name: "migration-create-validator.kubevirt.io", Path: "/migration-validate-create",
		Group: kubevirt.MigrationResource.Group, Versions: []string{"v1"}, Resource: kubevirt.MigrationResource.Resource,
		Operations: []registration.OperationType{registration.Create}, Check: m.admit,
	}
}

func (m *Migrations) admit(_ context.Context, request *admissionv1.AdmissionRequest) error {
	var migration kubevirt.Migration
	if err := json.Unmarshal(request.Object.Raw, &migration); err != nil {
		return err
	}
	if handsOff(&migration) {
		return nil
	}
	_, vmi, err := m.vmi(request.Namespace + "/" + migration.Spec.VMIName)
	switch {
	case err != nil:
		return err
	case vmi == nil:
		return fmt.Errorf("the VMI \"%s/%s\" does not exist", request.Namespace, migration.Spec.VMIName)
	case kubevirt.Final(vmi.Status.Phase):
		return errors.New("Cannot migrate VMI in finalized state.") // KubeVirt's words
	}
	if condition := vmi.Condition("LiveMigratable"); condition != nil && condition.Status == "False" {
		return fmt.Errorf("Cannot migrate VMI, Reason: %s, Message: %s", condition.Reason, condition.Message)
	}
	for _, other := range m.all() {
		if other.Namespace == request.Namespace && other.Spec.VMIName == vmi.Name && !kubevirt.Final(other.Status.Phase) {
			return fmt.Errorf("in-flight migration detected. Active migration job (%s) is currently already in progress for VMI %s.",
				other.UID, vmi.Name)
		}
	}
	return nil
}

// all are the migrations of the cluster that are ours, the oldest first.
func (p *Platform) all() []*kubevirt.Migration {
	var found []*kubevirt.Migration
	for _, object := range p.Migrations.GetStore().List() {
		raw := object.(*unstructured.Unstructured)
		if migration, err := kubevirt.Read[kubevirt.Migration](raw); err == nil && !handsOff(raw) {
			found = append(found, migration)
		}
	}
	slices.SortFunc(found, func(a, b *kubevirt.Migration) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	return found
}

// moving is one migration in one sync.
type moving struct {
	*Migrations
	migration *kubevirt.Migration
	e         *edit
	vmi       *kubevirt.VMI
	rawVMI    *unstructured.Unstructured
	source    *corev1.Pod
	target    *corev1.Pod
}

func (m *Migrations) sync(ctx context.Context, key string) error {
	object, exists, err := m.Platform.Migrations.GetStore().GetByKey(key)
	if err != nil || !exists || handsOff(object.(metav1.Object)) {
		return err
	}
	raw := object.(*unstructured.Unstructured)
	migration, err := kubevirt.Read[kubevirt.Migration](raw)
	if err != nil {
		return err
	}
	_, settings := m.deployed()
	if settings == nil {
		m.queue.AddAfter(key, patience)
		return nil
	}
	s := &moving{Migrations: m, migration: migration, e: change(raw)}
	if s.rawVMI, s.vmi, err = m.vmi(migration.Namespace + "/" + migration.Spec.VMIName); err != nil {
		return err
	}
	s.findPods()
	after, err := s.advance(ctx, settings)
	if err != nil {
		return err
	}
	if _, err := s.e.write(ctx, m.Dynamic, kubevirt.MigrationResource, "status"); err != nil {
		return err
	}
	if after > 0 {
		m.queue.AddAfter(key, after)
	}
	return nil
}

func (s *moving) findPods() {
	if s.vmi == nil {
		return
	}
	pods := s.podsOf(s.vmi)
	for _, pod := range pods {
		if pod.Labels[kubevirt.MigrationUIDLabel] == string(s.migration.UID) {
			s.target = pod
		}
	}
	if state := s.migration.Status.MigrationState; state != nil && state.SourcePod != "" {
		for _, pod := range pods {
			if pod.Name == state.SourcePod {
				s.source = pod
			}
		}
		return
	}
	s.source = current(s.vmi, pods)
}

// advance takes one step. The time is when to look again without an event.
func (s *moving) advance(ctx context.Context, settings *launcher.Settings) (time.Duration, error) {
	phase := s.migration.Status.Phase
	switch {
	case kubevirt.Final(phase):
		return 0, s.finish(ctx)
	case s.vmi == nil || kubevirt.Final(s.vmi.Status.Phase) || s.vmi.DeletionTimestamp != nil:
		return s.fail(ctx, "the instance is gone")
	case s.migration.DeletionTimestamp != nil:
		return s.fail(ctx, "cancelled")
	}
	switch phase {
	case "":
		s.e.phase(kubevirt.Pending)
		return 0, nil
	case kubevirt.Pending:
		return s.begin(ctx, settings)
	case kubevirt.Scheduling:
		return s.awaitTarget(ctx)
	}
	return s.run(ctx, settings)
}

// begin creates the target, as soon as the limits let it.
func (s *moving) begin(ctx context.Context, settings *launcher.Settings) (time.Duration, error) {
	if condition := s.vmi.Condition("LiveMigratable"); condition == nil || condition.Status != "True" {
		if s.vmi.Status.Phase == kubevirt.Running {
			return s.fail(ctx, "the instance is not migratable")
		}
	}
	if s.vmi.Status.Phase != kubevirt.Running || s.source == nil || !alive(s.source) {
		return time.Second, nil
	}
	if wait := s.held(); wait > 0 {
		return wait, nil
	}
	if name, ok := s.targets.Load(s.migration.UID); ok && s.target == nil {
		return patience, s.confirm(ctx, name.(string))
	}
	if s.target == nil {
		node, err := corelisters.NewNodeLister(s.Nodes.GetIndexer()).Get(s.source.Spec.NodeName)
		if err != nil {
			return 0, err
		}
		pod, err := s.Kubernetes.CoreV1().Pods(s.vmi.Namespace).Create(
			ctx, launcher.Target(s.vmi, *settings, s.migration, s.source, node), metav1.CreateOptions{})
		if err != nil {
			s.Recorder.Eventf(reference(s.vmi), corev1.EventTypeWarning, "FailedCreate", "Error creating pod: %v", err)
			return 0, err
		}
		s.targets.Store(s.migration.UID, pod.Name)
	}
	s.e.phase(kubevirt.Scheduling)
	s.e.set("migrationState", kubevirt.MigrationState{
		MigrationUID: string(s.migration.UID), SourceNode: s.source.Spec.NodeName, SourcePod: s.source.Name, Mode: "PreCopy",
	})
	return 0, nil
}

// confirm forgets a target that is gone although the cache never saw it.
func (s *moving) confirm(ctx context.Context, name string) error {
	_, err := s.Kubernetes.CoreV1().Pods(s.vmi.Namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		s.targets.Delete(s.migration.UID)
		return nil
	}
	return err
}

// held is how long to wait for other migrations to end, or after ones that failed.
func (s *moving) held() time.Duration {
	limit, outbound := perCluster, perNode
	if kv, _ := s.deployed(); kv != nil {
		limits := kv.Spec.Configuration.Migrations
		if limits.ParallelPerCluster != nil {
			limit = *limits.ParallelPerCluster
		}
		if limits.ParallelOutboundPerNode != nil {
			outbound = *limits.ParallelOutboundPerNode
		}
	}
	failures, last := 0, time.Time{}
	for _, other := range s.all() {
		if other.UID == s.migration.UID {
			continue
		}
		if other.Status.Phase != "" && other.Status.Phase != kubevirt.Pending && !kubevirt.Final(other.Status.Phase) {
			limit--
			if state := other.Status.MigrationState; state != nil && state.SourceNode == s.source.Spec.NodeName {
				outbound--
			}
		}
		if other.Namespace == s.migration.Namespace && other.Spec.VMIName == s.migration.Spec.VMIName {
			switch other.Status.Phase {
			case kubevirt.Succeeded:
				failures = 0
			case kubevirt.Failed:
				failures, last = failures+1, other.Since().Time
			}
		}
	}
	if limit <= 0 || outbound <= 0 {
		return time.Second
	}
	if _, updates := s.migration.Annotations[kubevirt.UpdateMigrationMark]; updates && failures > 0 {
		return max(0, min(firstBackOff<<min(failures-1, 10), longestBackOff)-time.Since(last))
	}
	return 0
}

// awaitTarget waits for the target to run on a node that has its handler.
func (s *moving) awaitTarget(ctx context.Context) (time.Duration, error) {
	left := s.options.TargetTimeout - time.Since(s.migration.Since().Time)
	switch {
	case left <= 0:
		return s.fail(ctx, "the target pod has not started in time")
	case s.target == nil:
		if name, ok := s.targets.Load(s.migration.UID); ok {
			if err := s.confirm(ctx, name.(string)); err != nil {
				return 0, err
			}
			if _, there := s.targets.Load(s.migration.UID); there {
				return time.Second, nil // the cache will know it
			}
		}
		return s.fail(ctx, "the target pod is gone")
	case !alive(s.target) || s.target.DeletionTimestamp != nil:
		return s.fail(ctx, "the target pod has ended")
	case s.source == nil || !alive(s.source):
		return s.fail(ctx, "the source pod has ended")
	case !podCondition(s.target, corev1.ContainersReady) || !s.handled(s.target.Spec.NodeName):
		return min(left, time.Second), nil
	}
	state := s.state()
	state.TargetNode, state.TargetPod, state.StartTimestamp = s.target.Spec.NodeName, s.target.Name, new(now())
	for _, phase := range []string{kubevirt.Scheduled, "PreparingTarget", "TargetReady", kubevirt.Running} {
		s.e.phase(phase)
	}
	s.e.set("migrationState", state)
	mine := change(s.rawVMI)
	mine.set("migrationState", state)
	_, err := mine.write(ctx, s.Dynamic, kubevirt.VMIResource)
	return s.options.Duration, err
}

func (s *moving) state() kubevirt.MigrationState {
	if state := s.migration.Status.MigrationState; state != nil {
		return *state
	}
	return kubevirt.MigrationState{MigrationUID: string(s.migration.UID)}
}

// run lets the migration take its time, then switches the instance over. Both handlers must last that long.
func (s *moving) run(ctx context.Context, settings *launcher.Settings) (time.Duration, error) {
	state := s.state()
	seen := s.vmi.Status.MigrationState
	if seen == nil || seen.MigrationUID != state.MigrationUID {
		return time.Second, nil // the cache will know it
	}
	if !seen.Completed {
		switch {
		case s.target == nil || !alive(s.target) || s.source == nil || !alive(s.source):
			return s.fail(ctx, "a pod has ended")
		case !s.handled(state.SourceNode) || !s.handled(state.TargetNode):
			return s.fail(ctx, "a virt-handler has gone")
		}
		if left := s.options.Duration - time.Since(s.migration.Since().Time); left > 0 {
			return left, nil
		}
		state.Completed, state.EndTimestamp = true, new(now())
		if err := s.switchOver(ctx, state, settings); err != nil {
			return 0, err
		}
	} else {
		state = *seen
	}
	if s.source != nil && alive(s.source) {
		if err := s.end(ctx, s.source); err != nil {
			return 0, err
		}
	}
	s.e.set("migrationState", state)
	s.e.phase(kubevirt.Succeeded)
	return 0, nil
}

func (s *moving) switchOver(ctx context.Context, state kubevirt.MigrationState, settings *launcher.Settings) error {
	mine := change(s.rawVMI)
	placed(mine, s.vmi, s.target)
	markImage(mine, s.target, settings.Image)
	mine.set("migrationState", state)
	_, err := mine.write(ctx, s.Dynamic, kubevirt.VMIResource)
	return err
}

// end makes the pod's launcher exit, as it does when its guest has left.
func (s *moving) end(ctx context.Context, pod *corev1.Pod) error {
	return s.patchPod(ctx, pod, map[string]any{
		"metadata": map[string]any{"annotations": map[string]string{kubevirt.ExitKnob: "succeeded"}},
	})
}

// fail ends the migration; the instance stays where it is.
func (s *moving) fail(ctx context.Context, reason string) (time.Duration, error) {
	state := s.state()
	state.Failed, state.Completed, state.FailureReason, state.EndTimestamp = true, true, reason, new(now())
	if s.vmi != nil {
		if seen := s.vmi.Status.MigrationState; seen != nil && seen.MigrationUID == state.MigrationUID && seen.EndTimestamp == nil {
			mine := change(s.rawVMI)
			mine.set("migrationState", state)
			if _, err := mine.write(ctx, s.Dynamic, kubevirt.VMIResource); err != nil {
				return 0, err
			}
		}
	}
	if s.target != nil {
		if err := s.deletePods(ctx, []*corev1.Pod{s.target}); err != nil {
			return 0, err
		}
	}
	s.Log.Warn("migration failed", "migration", s.migration.Namespace+"/"+s.migration.Name, "reason", reason)
	s.e.set("migrationState", state)
	s.e.phase(kubevirt.Failed)
	return 0, nil
}

// finish wakes those that wait for a place, and deletes the instance's oldest migrations.
func (s *moving) finish(ctx context.Context) error {
	s.targets.Delete(types.UID(s.migration.UID))
	var old []*kubevirt.Migration
	for _, other := range s.all() {
		if other.Status.Phase == kubevirt.Pending {
			s.queue.Add(other.Namespace + "/" + other.Name)
		}
		if other.Namespace == s.migration.Namespace && other.Spec.VMIName == s.migration.Spec.VMIName && kubevirt.Final(other.Status.Phase) {
			old = append(old, other)
		}
	}
	for _, other := range old[:max(0, len(old)-kept)] {
		err := s.Dynamic.Resource(kubevirt.MigrationResource).Namespace(other.Namespace).Delete(ctx, other.Name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}
