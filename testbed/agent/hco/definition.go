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
	crdv1 "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"virtpools.io/controlplane/agent/kubevirt"
)

// Define creates the definition of HyperConverged objects, with permissive schemas, and waits until the API server serves it.
func Define(ctx context.Context, client crdclient.Interface, conversion *v1.CustomResourceConversion) error {
	definition := definition(conversion)
	api := client.ApiextensionsV1().CustomResourceDefinitions()
	_, err := api.Create(ctx, definition, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		err = redefine(ctx, api, definition)
	}
	if err != nil {
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

// redefine overwrites the definition of an earlier start: each start converts at another port, with another certificate.
func redefine(ctx context.Context, api crdv1.CustomResourceDefinitionInterface, wanted *v1.CustomResourceDefinition) error {
	live, err := api.Get(ctx, wanted.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	live.Spec = wanted.Spec
	_, err = api.Update(ctx, live, metav1.UpdateOptions{})
	return err
}

func definition(conversion *v1.CustomResourceConversion) *v1.CustomResourceDefinition {
	version := func(name string, storage bool, schema v1.JSONSchemaProps) v1.CustomResourceDefinitionVersion {
		return v1.CustomResourceDefinitionVersion{
			Name: name, Served: true, Storage: storage, Schema: &v1.CustomResourceValidation{OpenAPIV3Schema: &schema},
			Subresources: &v1.CustomResourceSubresources{Status: &v1.CustomResourceSubresourceStatus{}},
		}
	}
	strategy := object(`{}`, map[string]v1.JSONSchemaProps{
		"batchEvictionInterval": withDefault("string", `"1m0s"`),
		"batchEvictionSize":     withDefault("integer", `10`),
		"workloadUpdateMethods": methods(),
	})
	inVirtualization := object(`{}`, map[string]v1.JSONSchemaProps{"workloadUpdateStrategy": strategy})
	return &v1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: Resource.Resource + "." + Resource.Group},
		Spec: v1.CustomResourceDefinitionSpec{
			Group: Resource.Group, Scope: v1.NamespaceScoped, Conversion: conversion,
			Names: v1.CustomResourceDefinitionNames{
				Kind: "HyperConverged", ListKind: "HyperConvergedList", Singular: "hyperconverged", Plural: Resource.Resource,
				ShortNames: []string{"hco", "hcos"},
			},
			Versions: []v1.CustomResourceDefinitionVersion{
				version(Resource.Version, true, withSpec(map[string]v1.JSONSchemaProps{"virtualization": inVirtualization})),
				version(beta1, false, withSpec(map[string]v1.JSONSchemaProps{"workloadUpdateStrategy": strategy})),
			},
		},
	}
}

// withSpec is the schema of a version with these fields of the spec, and any others.
func withSpec(properties map[string]v1.JSONSchemaProps) v1.JSONSchemaProps {
	return v1.JSONSchemaProps{
		Type: "object", XPreserveUnknownFields: new(true),
		Properties: map[string]v1.JSONSchemaProps{"spec": object(`{}`, properties)},
	}
}

func object(missing string, properties map[string]v1.JSONSchemaProps) v1.JSONSchemaProps {
	schema := withDefault("object", missing)
	schema.Properties, schema.XPreserveUnknownFields = properties, new(true)
	return schema
}

func methods() v1.JSONSchemaProps {
	schema := withDefault("array", `["LiveMigrate"]`)
	schema.Items = &v1.JSONSchemaPropsOrArray{Schema: &v1.JSONSchemaProps{Type: "string"}}
	return schema
}

func withDefault(kind, missing string) v1.JSONSchemaProps {
	return v1.JSONSchemaProps{Type: kind, Default: &v1.JSON{Raw: []byte(missing)}}
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
