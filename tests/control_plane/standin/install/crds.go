// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

package install

import (
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"virtpools.io/controlplane/standin/kubevirt"
)

// definition is what a CRD of ours varies in.
type definition struct {
	group, kind, singular, plural string
	shortNames                    []string
	cluster                       bool
	versions                      []version
}

type version struct {
	name    string
	storage bool
	// status: is there a status subresource? VirtualMachineInstances have none.
	status  bool
	schema  schema
	columns []apiextensions.CustomResourceColumnDefinition
}

// columns are what kubectl shows: pairs of a heading and a path.
func columns(pairs ...string) []apiextensions.CustomResourceColumnDefinition {
	list := []apiextensions.CustomResourceColumnDefinition{{Name: "Age", Type: "date", JSONPath: ".metadata.creationTimestamp"}}
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, apiextensions.CustomResourceColumnDefinition{Name: pairs[i], Type: "string", JSONPath: pairs[i+1]})
	}
	return list
}

const readyPath = ".status.conditions[?(@.type=='Ready')].status"

// definitions are the CRDs. nativeFields are added to KubeVirt's spec, as some builds of KubeVirt have them.
func definitions(nativeFields []string, hco bool) []*apiextensions.CustomResourceDefinition {
	loose := object(fields{"spec": anything(), "status": anything()})
	kubeVirt := object(fields{"spec": kubeVirtSpec(nativeFields), "status": anything()}, "spec")
	list := []definition{
		{
			group: "kubevirt.io", kind: "KubeVirt", singular: "kubevirt", plural: "kubevirts", shortNames: []string{"kv", "kvs"},
			versions: []version{{name: "v1", storage: true, status: true, schema: kubeVirt}},
		},
		{
			group: "kubevirt.io", kind: "VirtualMachine", singular: "virtualmachine", plural: "virtualmachines",
			shortNames: []string{"vm", "vms"},
			versions: []version{{
				name: "v1", storage: true, status: true, schema: loose, columns: columns("Status", ".status.printableStatus", "Ready", readyPath),
			}},
		},
		{
			group: "kubevirt.io", kind: "VirtualMachineInstance", singular: "virtualmachineinstance",
			plural: "virtualmachineinstances", shortNames: []string{"vmi", "vmis"},
			versions: []version{{
				name: "v1", storage: true, schema: loose,
				columns: columns("Phase", ".status.phase", "NodeName", ".status.nodeName", "Ready", readyPath),
			}},
		},
		{
			group: "kubevirt.io", kind: "VirtualMachineInstanceMigration", singular: "virtualmachineinstancemigration",
			plural: "virtualmachineinstancemigrations", shortNames: []string{"vmim", "vmims"},
			versions: []version{{
				name: "v1", storage: true, status: true, schema: loose, columns: columns("Phase", ".status.phase", "VMI", ".spec.vmiName"),
			}},
		},
	}
	for _, each := range []struct {
		kind, short string
		cluster     bool
	}{
		{"VirtualMachineInstancetype", "vminstancetype", false}, {"VirtualMachineClusterInstancetype", "vmclusterinstancetype", true},
		{"VirtualMachinePreference", "vmpref", false}, {"VirtualMachineClusterPreference", "vmcp", true},
	} {
		list = append(list, definition{
			group: kubevirt.Instancetypes.Group, kind: each.kind, singular: strings.ToLower(each.kind),
			plural: strings.ToLower(each.kind) + "s", shortNames: []string{each.short}, cluster: each.cluster,
			versions: []version{{name: kubevirt.Instancetypes.Version, storage: true, schema: object(fields{"spec": anything()})}},
		})
	}
	if hco {
		list = append(list, definition{
			group: "hco.kubevirt.io", kind: "HyperConverged", singular: "hyperconverged", plural: "hyperconvergeds",
			shortNames: []string{"hco", "hcos"},
			versions: []version{
				{name: "v1", storage: true, status: true, schema: loose},
				{name: "v1beta1", status: true, schema: loose},
			},
		})
	}
	var crds []*apiextensions.CustomResourceDefinition
	for _, d := range list {
		crds = append(crds, d.crd())
	}
	return crds
}

func (d definition) crd() *apiextensions.CustomResourceDefinition {
	crd := &apiextensions.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: d.plural + "." + d.group},
		Spec: apiextensions.CustomResourceDefinitionSpec{
			Group: d.group, Scope: apiextensions.NamespaceScoped,
			Names: apiextensions.CustomResourceDefinitionNames{
				Kind: d.kind, ListKind: d.kind + "List", Singular: d.singular, Plural: d.plural,
				ShortNames: d.shortNames, Categories: categories(d.group),
			},
		},
	}
	if d.cluster {
		crd.Spec.Scope = apiextensions.ClusterScoped
	}
	for _, v := range d.versions {
		served := apiextensions.CustomResourceDefinitionVersion{
			Name: v.name, Served: true, Storage: v.storage,
			Schema:                   &apiextensions.CustomResourceValidation{OpenAPIV3Schema: &v.schema},
			AdditionalPrinterColumns: v.columns,
		}
		if v.status {
			served.Subresources = &apiextensions.CustomResourceSubresources{Status: &apiextensions.CustomResourceSubresourceStatus{}}
		}
		crd.Spec.Versions = append(crd.Spec.Versions, served)
	}
	return crd
}

func categories(group string) []string {
	if strings.HasPrefix(group, "kubevirt") {
		return []string{"all"}
	}
	return nil
}
