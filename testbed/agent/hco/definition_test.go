// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

package hco

import (
	"reflect"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	v1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
)

// TestDefaults does what the API server does with an object that is written. Seen on the real one: an empty list stays empty.
func TestDefaults(t *testing.T) {
	paths := map[string][]string{"v1": {"virtualization", "workloadUpdateStrategy"}, "v1beta1": {"workloadUpdateStrategy"}}
	usual := []any{"LiveMigrate"}
	for _, version := range definition(nil).Spec.Versions {
		internal := &apiextensions.JSONSchemaProps{}
		if err := v1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(version.Schema.OpenAPIV3Schema, internal, nil); err != nil {
			t.Fatal(err)
		}
		schema, err := structural.NewStructural(internal)
		if err != nil {
			t.Fatal(err)
		}
		path := paths[version.Name]
		for name, test := range map[string]struct{ given, want any }{
			"missing": {nil, usual},
			"null":    {fields{"workloadUpdateMethods": nil}, usual},
			"other":   {fields{"batchEvictionSize": int64(3)}, usual},
			"empty":   {fields{"workloadUpdateMethods": []any{}}, []any{}},
		} {
			object := fields{"spec": fields{"another": "field"}}
			if test.given != nil {
				var inner any = test.given
				for i := len(path) - 1; i > 0; i-- {
					inner = fields{path[i]: inner}
				}
				object["spec"].(fields)[path[0]] = inner
			}
			defaulting.PruneNonNullableNullsWithoutDefaults(object, schema)
			defaulting.Default(object, schema)
			got := nested(object, append([]string{"spec"}, append(path, "workloadUpdateMethods")...)...)
			if !reflect.DeepEqual(got, test.want) || nested(object, "spec", "another") != "field" {
				t.Errorf("%s, %s: %v", version.Name, name, object)
			}
		}
	}
}
