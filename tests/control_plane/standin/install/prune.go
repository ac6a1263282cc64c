// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

package install

import (
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	v1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
)

// Pruner drops from a KubeVirt object what its schema does not know, as the API server does.
func Pruner(nativeFields []string) (func(object map[string]any), error) {
	kubeVirt := object(fields{"spec": kubeVirtSpec(nativeFields), "status": anything()})
	internal := &apiextensions.JSONSchemaProps{}
	if err := v1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(&kubeVirt, internal, nil); err != nil {
		return nil, err
	}
	schema, err := structural.NewStructural(internal)
	if err != nil {
		return nil, err
	}
	return func(object map[string]any) { pruning.Prune(object, schema, true) }, nil
}
