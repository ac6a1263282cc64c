// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

package builds

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	registration "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"virtpools.io/controlplane/agent/kubevirt"
	"virtpools.io/controlplane/agent/webhook"
)

const (
	operatorAccount   = "kubevirt-operator"
	controllerAccount = "kubevirt-controller"
	hotplugComponent  = "hotplug-disk"
	launcherComponent = "virt-launcher"
)

// mutations are what the build's own programs would have written themselves.
func (o *Operator) mutations() []webhook.Mutation {
	by := func(account string) string {
		return fmt.Sprintf("request.userInfo.username == 'system:serviceaccount:%s:%s'", o.namespace, account)
	}
	both := []registration.OperationType{registration.Create, registration.Update}
	all := []webhook.Mutation{
		{
			Name: "primary.builds.virtpools.io", Path: "/builds/primary", Group: "apps", Version: "v1", Resource: "daemonsets",
			Operations: both, Condition: by(operatorAccount) + " && request.name == '" + primaryName + "'", Change: o.changePrimary,
		},
		{
			Name: "status.builds.virtpools.io", Path: "/builds/status", Group: kubevirt.Resource.Group, Version: kubevirt.Resource.Version,
			Resource: "kubevirts/status", Operations: both[1:], Condition: by(operatorAccount), Change: o.holdStatus,
		},
		{
			Name: "launcher.builds.virtpools.io", Path: "/builds/launcher", Version: "v1", Resource: "pods",
			Operations: both[:1], Condition: by(controllerAccount), Change: o.changeLauncher,
		},
	}
	if o.build.listIdentifies {
		all = append(all, webhook.Mutation{
			Name: "deployments.builds.virtpools.io", Path: "/builds/deployments", Group: "apps", Version: "v1", Resource: "deployments",
			Operations: both, Condition: by(operatorAccount), Change: o.changeDeployment,
		})
	}
	if o.build.Field != "" {
		all = append(all, webhook.Mutation{
			Name: "definition.builds.virtpools.io", Path: "/builds/definition", Group: "apiextensions.k8s.io", Version: "v1",
			Resource: "customresourcedefinitions", Operations: both,
			Condition: "object.metadata.name == '" + kubeVirtDefinition + "'", Change: o.build.addField,
		})
	}
	return all
}

// changePrimary adds the exclusion to what virt-operator writes. It takes the generation of what it gets back for its own.
func (o *Operator) changePrimary(ctx context.Context, request *admissionv1.AdmissionRequest) ([]webhook.Operation, error) {
	var set appsv1.DaemonSet
	if err := json.Unmarshal(request.Object.Raw, &set); err != nil {
		return nil, err
	}
	id, pools, err := o.effective(ctx)
	if err != nil || (id == "" && len(pools) == 0) {
		return nil, err
	}
	o.build.exclude(&set.Spec.Template.Spec, pools)
	o.build.identify(&set.Spec.Template.ObjectMeta, id)
	return []webhook.Operation{{Op: "replace", Path: "/spec", Value: set.Spec}}, nil
}

// changeDeployment makes virt-operator roll out its Deployments when the list changes.
func (o *Operator) changeDeployment(ctx context.Context, request *admissionv1.AdmissionRequest) ([]webhook.Operation, error) {
	var deployment appsv1.Deployment
	if err := json.Unmarshal(request.Object.Raw, &deployment); err != nil {
		return nil, err
	}
	id, _, err := o.effective(ctx)
	if err != nil || id == "" {
		return nil, err
	}
	o.build.identify(&deployment.Spec.Template.ObjectMeta, id)
	return []webhook.Operation{{Op: "replace", Path: "/spec", Value: deployment.Spec}}, nil
}

// changeLauncher makes of a launcher pod what the build's virt-controller makes; targets of migrations are launcher pods, too.
func (o *Operator) changeLauncher(ctx context.Context, request *admissionv1.AdmissionRequest) ([]webhook.Operation, error) {
	var pod corev1.Pod
	if err := json.Unmarshal(request.Object.Raw, &pod); err != nil {
		return nil, err
	}
	owner := metav1.GetControllerOf(&pod)
	component := pod.Labels[kubevirt.ComponentLabel]
	if owner == nil || (component != launcherComponent && !(component == hotplugComponent && o.build.everyPlace)) {
		return nil, nil
	}
	pools, err := o.mapped(ctx)
	if err != nil || len(pools) == 0 {
		return nil, err
	}
	name := owner.Name
	if component == hotplugComponent {
		launcher, err := o.client.CoreV1().Pods(request.Namespace).Get(ctx, owner.Name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		of := metav1.GetControllerOf(launcher)
		if of == nil {
			return nil, nil
		}
		name = of.Name
	}
	object, err := o.dynamic.Resource(kubevirt.VMIResource).Namespace(request.Namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	vm, err := kubevirt.Read[machine](object)
	if err != nil {
		return nil, err
	}
	pool := o.build.match(pools, vm)
	if pool == nil {
		return nil, nil
	}
	if component == hotplugComponent {
		o.build.setLauncherImage(&pod.Spec, pool.LauncherImage)
	} else {
		o.build.render(&pod, pool)
	}
	operations := []webhook.Operation{{Op: "replace", Path: "/spec", Value: pod.Spec}}
	if len(pod.Annotations) > 0 {
		operations = append(operations, webhook.Operation{Op: "add", Path: "/metadata/annotations", Value: pod.Annotations})
	}
	return operations, nil
}

// mapped are the pools that virt-controller knows of.
func (o *Operator) mapped(ctx context.Context) ([]Pool, error) {
	object, err := o.kubeVirt(ctx)
	if err != nil || object == nil {
		return nil, err
	}
	kv, err := o.build.read(object)
	if err != nil || !(o.build.mapsWithoutGate || o.build.on(kv)) {
		return nil, err
	}
	return o.pools(ctx, kv)
}

// holdStatus keeps KubeVirt from being ready while a DaemonSet of a pool is not, since virt-operator does not see these; and while another
// list is rolled out, it makes of the status what virt-operator writes in an update.
func (o *Operator) holdStatus(ctx context.Context, request *admissionv1.AdmissionRequest) ([]webhook.Operation, error) {
	object, before := &unstructured.Unstructured{}, &unstructured.Unstructured{}
	if err := json.Unmarshal(request.Object.Raw, &object.Object); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(request.OldObject.Raw, &before.Object); err != nil {
		return nil, err
	}
	ready := saysReady(object)
	if !ready && !o.build.listIdentifies {
		o.keep(nil)
		return nil, nil
	}
	now, err := o.observe(ctx)
	if err != nil || now == nil {
		o.keep(nil)
		return nil, err
	}
	change := unready
	if !upgrades(now.kv) && o.updates(now) {
		change = updating(now.identity)
	} else if !ready || o.ready(now) {
		o.keep(nil)
		return nil, nil
	}
	if ready {
		o.keep(object.DeepCopy())
	} else {
		o.keep(nil)
	}
	o.queue.Add(o.namespace)
	if err := change(object, before); err != nil {
		return nil, err
	}
	return []webhook.Operation{{Op: "replace", Path: "/status", Value: object.Object["status"]}}, nil
}

func (o *Operator) keep(status *unstructured.Unstructured) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.held = status
}

// saysReady tells whether a status says that all components are ready. During an upgrade KubeVirt is available, too, but progresses.
func saysReady(object *unstructured.Unstructured) bool {
	return conditionStatus(object, "Available") == "True" && conditionStatus(object, "Progressing") == "False"
}

func conditionStatus(object *unstructured.Unstructured, kind string) string {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, item := range conditions {
		if condition, ok := item.(map[string]any); ok && condition["type"] == kind {
			status, _ := condition["status"].(string)
			return status
		}
	}
	return ""
}

// observed are the parts of the status that virt-operator writes only once everything is ready.
var observed = []string{
	"observedGeneration", "observedKubeVirtVersion", "observedKubeVirtRegistry", "observedDeploymentID", "observedDeploymentConfig", "phase",
}

// unready makes of a status what virt-operator writes while something is not ready.
func unready(object, before *unstructured.Unstructured) error {
	if err := keepObserved(object, before); err != nil {
		return err
	}
	message := "Deploying version " + statusText(object, "targetKubeVirtVersion") + " with registry " + statusText(object, "targetKubeVirtRegistry")
	return report(object, map[string]string{"Available": "False", "Progressing": "True"}, "DeploymentInProgress", message)
}

// keepObserved keeps those parts of a status as they were.
func keepObserved(object, before *unstructured.Unstructured) error {
	for _, field := range observed {
		value, found, err := unstructured.NestedFieldCopy(before.Object, "status", field)
		if err != nil {
			return err
		}
		if !found {
			unstructured.RemoveNestedField(object.Object, "status", field)
			continue
		}
		if err := unstructured.SetNestedField(object.Object, value, "status", field); err != nil {
			return err
		}
	}
	return nil
}

// updating makes of a status what virt-operator writes while it rolls out another list: that of an update to the same version.
func updating(identity string) func(object, before *unstructured.Unstructured) error {
	return func(object, before *unstructured.Unstructured) error {
		if err := keepObserved(object, before); err != nil {
			return err
		}
		id, _, _ := strings.Cut(statusText(object, "targetDeploymentID"), listSuffix)
		if err := unstructured.SetNestedField(object.Object, id+listSuffix+identity, "status", "targetDeploymentID"); err != nil {
			return err
		}
		from := statusText(object, "observedKubeVirtVersion") + " with registry " + statusText(object, "observedKubeVirtRegistry")
		to := statusText(object, "targetKubeVirtVersion") + " using registry " + statusText(object, "targetKubeVirtRegistry")
		message := "Transitioning from previous version " + from + " to target version " + to
		return report(object, map[string]string{"Available": "True", "Progressing": "True", "Degraded": "True"}, "UpdateInProgress", message)
	}
}

// report writes these conditions, with one reason and message.
func report(object *unstructured.Unstructured, statuses map[string]string, reason, message string) error {
	conditions, _, err := unstructured.NestedSlice(object.Object, "status", "conditions")
	if err != nil {
		return err
	}
	for _, item := range conditions {
		condition, ok := item.(map[string]any)
		if !ok {
			continue
		}
		if status, ok := statuses[fmt.Sprint(condition["type"])]; ok {
			condition["status"], condition["reason"], condition["message"] = status, reason, message
		}
	}
	return unstructured.SetNestedSlice(object.Object, conditions, "status", "conditions")
}

func statusText(object *unstructured.Unstructured, field string) string {
	value, _, _ := unstructured.NestedString(object.Object, "status", field)
	return value
}
