// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

package builds

import (
	"context"
	"encoding/json"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	v1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"virtpools.io/controlplane/agent/kubevirt"
	"virtpools.io/controlplane/agent/webhook"
)

const poolName = `^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`

var kubeVirtDefinition = kubevirt.Resource.Resource + "." + kubevirt.Resource.Group

func textSchema() v1.JSONSchemaProps { return v1.JSONSchemaProps{Type: "string"} }

func textsSchema() v1.JSONSchemaProps {
	return v1.JSONSchemaProps{
		Type: "object", AdditionalProperties: &v1.JSONSchemaPropsOrBool{Allows: true, Schema: new(textSchema())},
	}
}

// poolSchema is that of one pool, without its name.
func (b Build) poolSchema() v1.JSONSchemaProps {
	pool := v1.JSONSchemaProps{
		Type: "object", Required: []string{"nodeSelector"},
		Properties: map[string]v1.JSONSchemaProps{
			"nodeSelector": textsSchema(), "virtHandlerImage": textSchema(), "virtLauncherImage": textSchema(),
		},
	}
	if b.matchesNodeSelector {
		selector := textsSchema()
		selector.MinProperties = new(int64(1))
		pool.Properties["nodeSelector"] = selector
		return pool
	}
	pool.Required = append(pool.Required, "selector")
	pool.Properties["selector"] = v1.JSONSchemaProps{Type: "object", Properties: map[string]v1.JSONSchemaProps{
		"deviceNames": {
			Type: "array", XListType: new("atomic"), Items: &v1.JSONSchemaPropsOrArray{Schema: new(textSchema())},
		},
		"vmLabels": {Type: "object", Properties: map[string]v1.JSONSchemaProps{"matchLabels": textsSchema()}},
	}}
	return pool
}

// listSchema is that of the list of pools.
func (b Build) listSchema() v1.JSONSchemaProps {
	pool := b.poolSchema()
	pool.Properties["name"] = v1.JSONSchemaProps{Type: "string", Pattern: poolName, MaxLength: new(int64(48))}
	pool.Required = append(pool.Required, "name")
	list := v1.JSONSchemaProps{
		Type: "array", XListType: new("atomic"), Items: &v1.JSONSchemaPropsOrArray{Schema: &pool},
	}
	if b.listIdentifies {
		list.XListType, list.XListMapKeys = new("map"), []string{"name"}
	}
	return list
}

// addField gives the definition of KubeVirt objects the field of the list, in every write. virt-operator takes the generation
// that its write returns for its own, so the two do not overwrite each other.
func (b Build) addField(_ context.Context, request *admissionv1.AdmissionRequest) ([]webhook.Operation, error) {
	var definition v1.CustomResourceDefinition
	if err := json.Unmarshal(request.Object.Raw, &definition); err != nil {
		return nil, err
	}
	if !b.extend(&definition) {
		return nil, nil
	}
	return []webhook.Operation{{Op: "replace", Path: "/spec", Value: definition.Spec}}, nil
}

// extend tells whether the definition did not have the field yet.
func (b Build) extend(definition *v1.CustomResourceDefinition) bool {
	extended := false
	for _, version := range definition.Spec.Versions {
		if version.Schema == nil || version.Schema.OpenAPIV3Schema == nil {
			continue
		}
		spec, ok := version.Schema.OpenAPIV3Schema.Properties["spec"]
		if _, has := spec.Properties[b.Field]; !ok || has {
			continue
		}
		spec.Properties[b.Field] = b.listSchema()
		extended = true
	}
	return extended
}

// Define gives a cluster the field, or the definition of pool objects, and waits until the API server serves it.
func (b Build) Define(ctx context.Context, client crdclient.Interface) error {
	api := client.ApiextensionsV1().CustomResourceDefinitions()
	name := kubeVirtDefinition
	if b.Field == "" {
		name = PoolResource.Resource + "." + PoolResource.Group
		if _, err := api.Create(ctx, b.objects(name), metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		live, err := api.Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return b.Field != "", nil // it gets the field when it is made
		}
		if err != nil {
			return false, err
		}
		if b.Field != "" && b.extend(live) {
			_, err := api.Update(ctx, live, metav1.UpdateOptions{})
			if apierrors.IsConflict(err) {
				return false, nil
			}
			return false, err
		}
		return established(live), nil
	})
}

func established(definition *v1.CustomResourceDefinition) bool {
	for _, condition := range definition.Status.Conditions {
		if condition.Type == v1.Established && condition.Status == v1.ConditionTrue {
			return true
		}
	}
	return false
}

// objects is the definition of pool objects, which is there even while the gate is off.
func (b Build) objects(name string) *v1.CustomResourceDefinition {
	schema := v1.JSONSchemaProps{
		Type: "object", Required: []string{"spec"},
		Properties: map[string]v1.JSONSchemaProps{
			"apiVersion": textSchema(), "kind": textSchema(), "metadata": {Type: "object"}, "spec": b.poolSchema(), "status": {Type: "object"},
		},
	}
	return &v1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.CustomResourceDefinitionSpec{
			Group: PoolResource.Group, Scope: v1.ClusterScoped,
			Names: v1.CustomResourceDefinitionNames{
				Kind: "WorkerPool", ListKind: "WorkerPoolList", Singular: "workerpool", Plural: PoolResource.Resource,
			},
			Versions: []v1.CustomResourceDefinitionVersion{{
				Name: PoolResource.Version, Served: true, Storage: true,
				Schema:       &v1.CustomResourceValidation{OpenAPIV3Schema: &schema},
				Subresources: &v1.CustomResourceSubresources{Status: &v1.CustomResourceSubresourceStatus{}},
			}},
		},
	}
}
