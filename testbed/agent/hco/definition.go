// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

package hco

import (
	"context"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	v1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	crdclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"virtpools.io/controlplane/agent/kubevirt"
)

// Define creates the definition of HyperConverged objects, with one permissive schema for both versions, and waits until
// the API server serves it.
func Define(ctx context.Context, client crdclient.Interface) error {
	names := v1.CustomResourceDefinitionNames{
		Kind: "HyperConverged", ListKind: "HyperConvergedList", Singular: "hyperconverged", Plural: Resource.Resource,
		ShortNames: []string{"hco", "hcos"},
	}
	loose := &v1.CustomResourceValidation{OpenAPIV3Schema: &v1.JSONSchemaProps{
		Type: "object", XPreserveUnknownFields: new(true),
	}}
	version := func(name string, storage bool) v1.CustomResourceDefinitionVersion {
		return v1.CustomResourceDefinitionVersion{
			Name: name, Served: true, Storage: storage, Schema: loose,
			Subresources: &v1.CustomResourceSubresources{Status: &v1.CustomResourceSubresourceStatus{}},
		}
	}
	definition := &v1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: Resource.Resource + "." + Resource.Group},
		Spec: v1.CustomResourceDefinitionSpec{
			Group: Resource.Group, Scope: v1.NamespaceScoped, Names: names,
			Versions: []v1.CustomResourceDefinitionVersion{version("v1", true), version("v1beta1", false)},
		},
	}
	api := client.ApiextensionsV1().CustomResourceDefinitions()
	if _, err := api.Create(ctx, definition, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	return wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		live, err := api.Get(ctx, definition.Name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		for _, condition := range live.Status.Conditions {
			if condition.Type == v1.Established && condition.Status == v1.ConditionTrue {
				return true, nil
			}
		}
		return false, nil
	})
}

// Pruner removes the fields from a KubeVirt object that the cluster's definition does not know, as the API server does.
func Pruner(ctx context.Context, client crdclient.Interface) (Prune, error) {
	name := kubevirt.Resource.Resource + "." + kubevirt.Resource.Group
	definition, err := client.ApiextensionsV1().CustomResourceDefinitions().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	internal := &apiextensions.JSONSchemaProps{}
	for _, version := range definition.Spec.Versions {
		if version.Name != kubevirt.Resource.Version {
			continue
		}
		if err := v1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(version.Schema.OpenAPIV3Schema, internal, nil); err != nil {
			return nil, err
		}
	}
	schema, err := structural.NewStructural(internal)
	if err != nil {
		return nil, err
	}
	return func(object map[string]any) { pruning.Prune(object, schema, true) }, nil
}
