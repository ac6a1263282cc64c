// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

package controller

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"virtpools.io/controlplane/standin/kubevirt"
)

// edit is a change of an object in the making: it is written as a patch, if there is anything to write.
type edit struct {
	before, after *unstructured.Unstructured
}

func change(object *unstructured.Unstructured) *edit {
	return &edit{before: object, after: object.DeepCopy()}
}

// set writes a field of the status; nil removes it.
func (e *edit) set(field string, value any) {
	if value == nil {
		unstructured.RemoveNestedField(e.after.Object, "status", field)
		return
	}
	if err := unstructured.SetNestedField(e.after.Object, plain(value), "status", field); err != nil {
		panic(err) // a status that is no map: the schema does not let it in
	}
}

// plain is the value as JSON has it.
func plain(value any) any {
	switch value.(type) {
	case string, bool, int64:
		return value
	}
	holder, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&struct {
		Value any `json:"value"`
	}{value})
	if err != nil {
		panic(err) // types of our own
	}
	return holder["value"]
}

func (e *edit) label(key string, value *string) {
	labels := e.after.GetLabels()
	if value == nil {
		delete(labels, key)
	} else {
		if labels == nil {
			labels = map[string]string{}
		}
		labels[key] = *value
	}
	e.after.SetLabels(labels)
}

// phase moves the object on, and notes when.
func (e *edit) phase(phase string) {
	if have, _, _ := unstructured.NestedString(e.after.Object, "status", "phase"); have == phase {
		return
	}
	transitions, _, _ := unstructured.NestedSlice(e.after.Object, "status", "phaseTransitionTimestamps")
	e.set("phase", phase)
	e.set("phaseTransitionTimestamps", append(transitions, map[string]any{
		"phase": phase, "phaseTransitionTimestamp": now().UTC().Format(time.RFC3339),
	}))
}

func now() metav1.Time { return metav1.NewTime(time.Now().Truncate(time.Second)) }

// condition sets a condition of the status; an empty status removes it.
func (e *edit) condition(kind, status, reason, message string) {
	conditions, _, _ := unstructured.NestedSlice(e.after.Object, "status", "conditions")
	at := slices.IndexFunc(conditions, func(each any) bool { return each.(map[string]any)["type"] == kind })
	if status == "" {
		if at >= 0 {
			e.set("conditions", slices.Delete(conditions, at, at+1))
		}
		return
	}
	stamp := now().UTC().Format(time.RFC3339)
	wanted := map[string]any{"type": kind, "status": status, "lastProbeTime": stamp, "lastTransitionTime": stamp}
	if reason != "" {
		wanted["reason"] = reason
	}
	if message != "" {
		wanted["message"] = message
	}
	if at < 0 {
		e.set("conditions", append(conditions, wanted))
		return
	}
	have := conditions[at].(map[string]any)
	if have["status"] == status && text(have["reason"]) == reason && text(have["message"]) == message {
		return
	}
	if have["status"] == status {
		wanted["lastTransitionTime"] = have["lastTransitionTime"]
	}
	conditions[at] = wanted
	e.set("conditions", conditions)
}

func text(value any) string {
	found, _ := value.(string)
	return found
}

func (e *edit) withoutFinalizer(names ...string) {
	left := slices.DeleteFunc(e.after.GetFinalizers(), func(each string) bool { return slices.Contains(names, each) })
	e.after.SetFinalizers(left)
}

func (e *edit) withFinalizer(name string) {
	if have := e.after.GetFinalizers(); !slices.Contains(have, name) {
		e.after.SetFinalizers(append(have, name))
	}
}

// write sends the change, as long as nobody else has changed the object. It tells whether there was anything to send.
func (e *edit) write(ctx context.Context, client dynamic.Interface, resource schema.GroupVersionResource, subresources ...string) (bool, error) {
	before, err := json.Marshal(e.before.Object)
	if err != nil {
		return false, err
	}
	after, err := json.Marshal(e.after.Object)
	if err != nil {
		return false, err
	}
	body, err := jsonpatch.CreateMergePatch(before, after)
	if err != nil || string(body) == "{}" {
		return false, err
	}
	body, err = jsonpatch.MergeMergePatches(body, []byte(`{"metadata":{"resourceVersion":"`+e.before.GetResourceVersion()+`"}}`))
	if err != nil {
		return false, err
	}
	_, err = client.Resource(resource).Namespace(e.before.GetNamespace()).Patch(
		ctx, e.before.GetName(), types.MergePatchType, body, metav1.PatchOptions{FieldManager: kubevirt.ControllerDeployment}, subresources...)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}
