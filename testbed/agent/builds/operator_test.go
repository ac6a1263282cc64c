// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

package builds

import (
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"virtpools.io/controlplane/agent/kubevirt"
)

// world is a cluster whose virt-operator has just finished the primary at the KubeVirt object's generation 3.
type world struct {
	t          *testing.T
	build      Build
	client     *fake.Clientset
	dynamic    *dynamicfake.FakeDynamicClient
	operator   *Operator
	generation int64
}

var versions = map[string]string{
	"kubevirt.io/install-strategy-version": "v1.9.0", "kubevirt.io/install-strategy-registry": "stock.example", "kubevirt.io/install-strategy-identifier": "id",
}

func newWorld(t *testing.T, build Build, gates []any, pools ...object) *world {
	t.Helper()
	kinds := map[schema.GroupVersionResource]string{kubevirt.Resource: "KubeVirtList", PoolResource: "WorkerPoolList"}
	w := &world{
		t: t, build: build, client: fake.NewClientset(), generation: 3,
		dynamic: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds),
	}
	// The API server counts changes; here, every write of a spec is one.
	w.client.PrependReactor("*", "daemonsets", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if write, ok := action.(clienttesting.UpdateAction); ok && action.GetSubresource() == "" {
			if set := write.GetObject().(*appsv1.DaemonSet); set.Name != primaryName {
				set.Generation++
			}
		}
		return false, nil, nil
	})
	w.operator = NewOperator(slog.New(slog.DiscardHandler), build, "kubevirt", w.client, w.dynamic)
	set := primary()
	maps.Copy(set.Annotations, versions)
	set.Generation, set.Status = 5, appsv1.DaemonSetStatus{ObservedGeneration: 5, DesiredNumberScheduled: 2, UpdatedNumberScheduled: 2, NumberReady: 2}
	w.must(w.client.Tracker().Add(set))
	w.write(gates, pools...)
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// write writes the KubeVirt object and the pools, and lets virt-operator follow.
func (w *world) write(gates []any, pools ...object) {
	w.t.Helper()
	var list []any
	for _, pool := range pools {
		list = append(list, pool)
	}
	if w.build.Field == "" {
		list = nil
	}
	kv := kv(gates, w.build.Field, list...)
	kv.SetGroupVersionKind(kubevirt.Kind)
	kv.SetNamespace("kubevirt")
	kv.SetGeneration(w.generation)
	kv.Object["status"] = object{
		"targetKubeVirtVersion": "v1.9.0", "observedKubeVirtVersion": "v1.9.0", "targetKubeVirtRegistry": "stock.example", "targetDeploymentID": "id",
		"generations": []any{object{"resource": "daemonsets", "name": "virt-handler", "lastGeneration": int64(5)}},
	}
	w.replace(kubevirt.Resource, kv)
	if w.build.Field != "" {
		return
	}
	for _, pool := range pools {
		made := &unstructured.Unstructured{Object: object{"spec": object{
			"nodeSelector": pool["nodeSelector"], "virtHandlerImage": pool["virtHandlerImage"], "selector": pool["selector"],
		}}}
		made.SetGroupVersionKind(PoolResource.GroupVersion().WithKind("WorkerPool"))
		made.SetName(pool["name"].(string))
		w.replace(PoolResource, made)
	}
}

func (w *world) replace(resource schema.GroupVersionResource, object *unstructured.Unstructured) {
	w.t.Helper()
	_ = w.dynamic.Tracker().Delete(resource, object.GetNamespace(), object.GetName())
	w.must(w.dynamic.Tracker().Create(resource, object, object.GetNamespace()))
}

func (w *world) set(name string) *appsv1.DaemonSet {
	w.t.Helper()
	set, err := w.client.AppsV1().DaemonSets("kubevirt").Get(w.t.Context(), name, metav1.GetOptions{})
	w.must(err)
	return set
}

// sets are the images of all DaemonSets by name.
func (w *world) sets() map[string]string {
	w.t.Helper()
	all, err := w.client.AppsV1().DaemonSets("kubevirt").List(w.t.Context(), metav1.ListOptions{})
	w.must(err)
	found := map[string]string{}
	for _, set := range all.Items {
		found[set.Name] = set.Spec.Template.Spec.Containers[0].Image
	}
	return found
}

// edit is an edit of the KubeVirt object's spec that virt-operator has followed for the primary.
func (w *world) edit(gates []any, pools ...object) {
	w.t.Helper()
	w.generation++
	w.write(gates, pools...)
	set := w.set("virt-handler")
	set.Annotations[generationAnnotation] = "4"
	_, err := w.client.AppsV1().DaemonSets("kubevirt").Update(w.t.Context(), set, metav1.UpdateOptions{})
	w.must(err)
}

// pass does one pass and tells whether it came to its end.
func (w *world) pass() bool {
	w.t.Helper()
	now, err := w.operator.observe(w.t.Context())
	w.must(err)
	finished, err := w.operator.pass(w.t.Context(), now)
	w.must(err)
	return finished
}

// run gives a DaemonSet this many Ready handlers of all that it wants.
func (w *world) run(name string, ready, desired int32) {
	w.t.Helper()
	set := w.set(name)
	set.Status = appsv1.DaemonSetStatus{ObservedGeneration: set.Generation, DesiredNumberScheduled: desired, NumberReady: ready}
	_, err := w.client.AppsV1().DaemonSets("kubevirt").UpdateStatus(w.t.Context(), set, metav1.UpdateOptions{})
	w.must(err)
	for i := range ready {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: name + "-" + string('a'+i), Namespace: "kubevirt", Annotations: maps.Clone(versions),
				Labels:          map[string]string{kubevirt.ComponentLabel: kubevirt.HandlerComponent},
				OwnerReferences: []metav1.OwnerReference{{Kind: "DaemonSet", Name: name, Controller: new(true)}},
			},
			Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
		}
		_ = w.client.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), "kubevirt", pod.Name)
		w.must(w.client.Tracker().Add(pod))
	}
}

func named(name, image string) object {
	return entry(func(o object) { o["name"], o["virtHandlerImage"] = name, image })
}

func TestPoolsComeAfterThePrimary(t *testing.T) {
	for _, build := range []Build{a, b, c} {
		w := newWorld(t, build, []any{build.Gate}, named("gpu", "h:1"))
		set := w.set("virt-handler")
		set.Annotations[generationAnnotation] = "2"
		_, err := w.client.AppsV1().DaemonSets("kubevirt").Update(t.Context(), set, metav1.UpdateOptions{})
		w.must(err)
		equal(t, build.Name+": the primary is behind", w.pass(), false)
		equal(t, build.Name+": DaemonSets", len(w.sets()), 1)
		set.Annotations[generationAnnotation] = "3"
		_, err = w.client.AppsV1().DaemonSets("kubevirt").Update(t.Context(), set, metav1.UpdateOptions{})
		w.must(err)
		equal(t, build.Name+": the primary is done", w.pass(), true)
		equal(t, build.Name+": image", w.sets()["virt-handler-gpu"], "h:1")
	}
}

func TestOnlyWithTheGate(t *testing.T) {
	for _, build := range []Build{a, b, c} {
		w := newWorld(t, build, nil, named("gpu", "h:1"))
		equal(t, build.Name+": pass", w.pass(), true)
		equal(t, build.Name+": DaemonSets", len(w.sets()), 1)
	}
}

func TestOnlyANewGenerationOfTheKubeVirtObjectChangesADaemonSet(t *testing.T) {
	w := newWorld(t, c, []any{c.Gate}, named("gpu", "h:1"))
	w.pass()
	w.write([]any{c.Gate}, named("gpu", "h:2"))
	w.pass()
	equal(t, "an edit of the WorkerPool alone", w.sets()["virt-handler-gpu"], "h:1")
	w.edit([]any{c.Gate}, named("gpu", "h:2"))
	w.pass()
	equal(t, "after an edit of the KubeVirt object", w.sets()["virt-handler-gpu"], "h:2")
}

func TestCanary(t *testing.T) {
	w := newWorld(t, b, []any{b.Gate}, named("gpu", "h:1"), named("two", "h:1"))
	w.pass()
	w.edit([]any{b.Gate}, named("gpu", "h:2"), named("two", "h:2"))
	pace := func() intstr.IntOrString {
		return *w.set("virt-handler-gpu").Spec.UpdateStrategy.RollingUpdate.MaxUnavailable
	}
	equal(t, "first pass ends", w.pass(), false)
	equal(t, "one at first", pace(), intstr.FromInt32(1))
	equal(t, "no handler is Ready: waits", w.pass(), false)
	equal(t, "the second pool waits", w.sets()["virt-handler-two"], "h:1")
	w.run("virt-handler-gpu", 1, 3)
	equal(t, "the canary is Ready", w.pass(), false)
	equal(t, "a tenth at a time", pace(), intstr.FromString("10%"))
	w.run("virt-handler-gpu", 3, 3)
	w.pass()
	equal(t, "back to one", pace(), intstr.FromInt32(1))
	equal(t, "then the second pool", w.sets()["virt-handler-two"], "h:2")
}

func TestEmptyPoolBlocksReadinessAndAfterAnEditTheNextPools(t *testing.T) {
	w := newWorld(t, b, []any{b.Gate}, named("empty", "h:1"), named("gpu", "h:1"))
	equal(t, "new pools do not wait for each other", w.pass(), true)
	w.run("virt-handler-empty", 0, 0)
	w.run("virt-handler-gpu", 2, 2)
	now, err := w.operator.observe(t.Context())
	w.must(err)
	w.operator.passed = target{3, "id"}
	equal(t, "ready", w.operator.ready(now), false)
	w.edit([]any{b.Gate}, named("empty", "h:2"), named("gpu", "h:2"))
	for range 3 {
		equal(t, "pass", w.pass(), false)
	}
	equal(t, "the next pool", w.sets()["virt-handler-gpu"], "h:1")
}

func TestWhoIsDeletedWhenThePoolsGo(t *testing.T) {
	for _, test := range []struct {
		build Build
		left  []string
	}{{a, []string{"virt-handler"}}, {b, []string{"virt-handler"}}, {c, []string{"virt-handler", "virt-handler-gpu"}}} {
		w := newWorld(t, test.build, []any{test.build.Gate}, named("gpu", "h:1"))
		w.pass()
		w.edit(nil, named("gpu", "h:1"))
		w.pass()
		equal(t, test.build.Name+", the gate turned off", slices.Sorted(maps.Keys(w.sets())), test.left)
	}
	w := newWorld(t, c, []any{c.Gate}, named("gpu", "h:1"))
	w.pass()
	w.must(w.dynamic.Tracker().Delete(PoolResource, "", "gpu"))
	w.pass()
	equal(t, "C, the object deleted", slices.Sorted(maps.Keys(w.sets())), []string{"virt-handler"})
}

// upgrade lets a newer virt-operator begin: it has written its target, and nothing else.
func (w *world) upgrade() {
	w.t.Helper()
	w.setStatus("targetKubeVirtVersion", "v1.9.1")
	w.setStatus("targetDeploymentID", "newer")
}

func (w *world) setStatus(field, value string) {
	w.t.Helper()
	object := w.kubeVirt()
	w.must(unstructured.SetNestedField(object.Object, value, "status", field))
	w.replace(kubevirt.Resource, object)
}

func (w *world) kubeVirt() *unstructured.Unstructured {
	w.t.Helper()
	object, err := w.operator.kubeVirt(w.t.Context())
	w.must(err)
	return object
}

// written is what becomes of the primary that virt-operator writes now.
func (w *world) written() *corev1.Affinity {
	w.t.Helper()
	set := primary()
	set.Spec.Template.Spec.Affinity = nil
	raw, err := json.Marshal(set)
	w.must(err)
	operations, err := w.operator.changePrimary(w.t.Context(), &admissionv1.AdmissionRequest{Object: runtime.RawExtension{Raw: raw}})
	w.must(err)
	if len(operations) == 0 {
		return nil
	}
	return operations[0].Value.(appsv1.DaemonSetSpec).Template.Spec.Affinity
}

// renew lets virt-operator finish the primary of the newer version.
func (w *world) renew() {
	w.t.Helper()
	set := w.set("virt-handler")
	maps.Copy(set.Annotations, newer)
	_, err := w.client.AppsV1().DaemonSets("kubevirt").Update(w.t.Context(), set, metav1.UpdateOptions{})
	w.must(err)
}

var newer = map[string]string{"kubevirt.io/install-strategy-version": "v1.9.1", "kubevirt.io/install-strategy-identifier": "newer"}

func TestAnUpgradeForgetsThePoolsInBOnly(t *testing.T) {
	for _, build := range []Build{a, b, c} {
		w := newWorld(t, build, []any{build.Gate}, named("gpu", "h:1"))
		w.pass()
		excluding := required(term(notIn("hw", "gpu")))
		equal(t, build.Name+": the primary before the upgrade", w.written(), excluding)
		w.upgrade()
		during := excluding
		if build.upgradeForgets {
			during = nil
		}
		equal(t, build.Name+": the primary that the upgrade writes", w.written(), during)
		equal(t, build.Name+": the primary is not of the new version yet", w.pass(), false)
		w.renew()
		equal(t, build.Name+": the pass of the upgrade ends", w.pass() || !build.upgradeForgets, true)
		old := w.set("virt-handler-gpu").Annotations["kubevirt.io/install-strategy-version"]
		equal(t, build.Name+": the pool's version in the upgrade", old == "v1.9.0", build.upgradeForgets)
		w.setStatus("observedKubeVirtVersion", "v1.9.1")
		w.pass()
		equal(t, build.Name+": the pool's version after it", w.set("virt-handler-gpu").Annotations["kubevirt.io/install-strategy-version"], "v1.9.1")
		equal(t, build.Name+": the primary that the next change writes", w.written(), excluding)
	}
}

// status is what becomes of a status that virt-operator writes.
func (w *world) status(change func(object)) object {
	w.t.Helper()
	before := w.kubeVirt()
	after := before.DeepCopy()
	change(after.Object["status"].(object))
	raw, err1 := json.Marshal(after.Object)
	old, err2 := json.Marshal(before.Object)
	operations, err3 := w.operator.holdStatus(w.t.Context(), &admissionv1.AdmissionRequest{
		Object: runtime.RawExtension{Raw: raw}, OldObject: runtime.RawExtension{Raw: old},
	})
	w.must(errors.Join(err1, err2, err3))
	if len(operations) == 0 {
		return after.Object["status"].(object)
	}
	return operations[0].Value.(object)
}

func conditions(available, progressing string) []any {
	return []any{object{"type": "Available", "status": available}, object{"type": "Progressing", "status": progressing}}
}

func (w *world) finished(status object) {
	status["conditions"], status["observedKubeVirtVersion"] = conditions("True", "False"), "v1.9.1"
}

func TestAnUpgradeIsNotOverWhileAPoolHasHandlersOfTheFormerVersion(t *testing.T) {
	w := newWorld(t, b, []any{b.Gate}, named("gpu", "h:1"))
	w.pass()
	w.run("virt-handler-gpu", 1, 1)
	w.must(w.operator.sync(t.Context(), ""))
	w.upgrade()
	during := w.status(func(status object) { status["conditions"] = conditions("True", "True") })
	equal(t, "conditions in the upgrade are virt-operator's own", during["conditions"], any(conditions("True", "True")))
	w.renew()
	w.must(w.operator.sync(t.Context(), ""))
	held := w.status(w.finished)
	equal(t, "version", held["observedKubeVirtVersion"], "v1.9.0")
	equal(t, "available", conditionStatus(&unstructured.Unstructured{Object: object{"status": held}}, "Available"), "False")
	w.must(w.client.AppsV1().DaemonSets("kubevirt").Delete(t.Context(), "virt-handler-gpu", metav1.DeleteOptions{}))
	w.must(w.operator.sync(t.Context(), ""))
	equal(t, "nothing makes it again in the upgrade", len(w.sets()), 1)
	equal(t, "version once it is deleted", w.status(w.finished)["observedKubeVirtVersion"], "v1.9.1")
	w.setStatus("observedKubeVirtVersion", "v1.9.1")
	w.pass()
	equal(t, "it is recreated after the upgrade", w.set("virt-handler-gpu").Annotations["kubevirt.io/install-strategy-version"], "v1.9.1")
}

func TestBAndCAreAvailableBeforeTheirPoolsAre(t *testing.T) {
	for _, build := range []Build{a, b, c} {
		w := newWorld(t, build, []any{build.Gate}, named("gpu", "h:1"))
		early := w.status(w.finished)
		equal(t, build.Name+": version without the DaemonSet", early["observedKubeVirtVersion"] == "v1.9.1", build.claimsEarly)
		w.pass()
		w.run("virt-handler-gpu", 0, 2)
		early = w.status(w.finished)
		equal(t, build.Name+": version with an unfinished one", early["observedKubeVirtVersion"] == "v1.9.1", build.claimsEarly)
	}
}

func statusOf(status object, kind string) string {
	return conditionStatus(&unstructured.Unstructured{Object: object{"status": status}}, kind)
}

func TestAnotherListIsAnUpdateInA(t *testing.T) {
	all := append(conditions("False", "True"), object{"type": "Degraded", "status": "False"})
	rolling := func(status object) { status["conditions"] = all }
	w := newWorld(t, a, []any{a.Gate}, named("gpu", "h:1"))
	during := w.status(rolling)
	for _, kind := range []string{"Available", "Progressing", "Degraded"} {
		equal(t, kind+" while it is rolled out", statusOf(during, kind), "True")
	}
	if during["targetDeploymentID"] == "id" {
		t.Error("the list must be in the target's ID")
	}
	w.pass()
	w.run("virt-handler-gpu", 1, 1)
	set := w.set("virt-handler-gpu")
	pods, err := w.client.CoreV1().Pods("kubevirt").List(t.Context(), metav1.ListOptions{})
	w.must(err)
	for _, pod := range pods.Items {
		pod.Annotations[listAnnotation] = set.Spec.Template.Annotations[listAnnotation]
		_, err := w.client.CoreV1().Pods("kubevirt").Update(t.Context(), &pod, metav1.UpdateOptions{})
		w.must(err)
	}
	w.must(w.operator.sync(t.Context(), ""))
	done := w.status(func(status object) { status["conditions"] = conditions("True", "False") })
	equal(t, "Progressing after it", statusOf(done, "Progressing"), "False")
	equal(t, "the target's ID after it", done["targetDeploymentID"], any("id"))
	w.edit([]any{a.Gate})
	equal(t, "Degraded while an empty list is rolled out", statusOf(w.status(rolling), "Degraded"), "True")
	w.must(w.operator.sync(t.Context(), ""))
	w.must(w.operator.sync(t.Context(), ""))
	w.status(func(status object) { status["conditions"] = conditions("True", "False") })
	w.generation = 4
	w.edit(nil)
	equal(t, "Degraded while the gate is turned off", statusOf(w.status(rolling), "Degraded"), "True")
}

func TestAListLeavesItsInstallStrategy(t *testing.T) {
	w := newWorld(t, a, []any{a.Gate}, named("gpu", "h:1"))
	w.must(w.operator.sync(t.Context(), ""))
	w.edit([]any{a.Gate})
	w.must(w.operator.sync(t.Context(), ""))
	kept, err := w.client.CoreV1().ConfigMaps("kubevirt").List(t.Context(), metav1.ListOptions{LabelSelector: "kubevirt.io/install-strategy"})
	w.must(err)
	equal(t, "ConfigMaps", len(kept.Items), 2)
}
