// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

package install

import (
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

type (
	schema = apiextensions.JSONSchemaProps
	fields = map[string]schema
)

// Shorthands for structural schemas. What a schema does not name is pruned.

func text() schema    { return schema{Type: "string"} }
func integer() schema { return schema{Type: "integer"} }
func boolean() schema { return schema{Type: "boolean"} }

func object(properties fields, required ...string) schema {
	return schema{Type: "object", Properties: properties, Required: required}
}

func anything() schema { return schema{Type: "object", XPreserveUnknownFields: new(true)} }

func intOrText() schema { return schema{XIntOrString: true} }

// list is atomic for server-side apply: whoever applies it owns all of it.
func list(item schema) schema {
	return schema{
		Type: "array", XListType: new("atomic"),
		Items: &apiextensions.JSONSchemaPropsOrArray{Schema: &item},
	}
}

func mapOf(value schema) schema {
	return schema{Type: "object", AdditionalProperties: &apiextensions.JSONSchemaPropsOrBool{Allows: true, Schema: &value}}
}

func oneOf(values ...string) schema {
	item := text()
	for _, value := range values {
		item.Enum = append(item.Enum, apiextensions.JSON{Raw: []byte(`"` + value + `"`)})
	}
	return item
}

func nodePlacement() schema {
	requirement := object(fields{"key": text(), "operator": text(), "values": list(text())}, "key", "operator")
	term := object(fields{"matchExpressions": list(requirement), "matchFields": list(requirement)})
	return object(fields{
		"nodeSelector": mapOf(text()),
		"tolerations": list(object(fields{
			"key": text(), "operator": text(), "value": text(), "effect": text(), "tolerationSeconds": integer(),
		})),
		"affinity": object(fields{
			"nodeAffinity": object(fields{
				"requiredDuringSchedulingIgnoredDuringExecution": object(
					fields{"nodeSelectorTerms": list(term)}, "nodeSelectorTerms"),
				"preferredDuringSchedulingIgnoredDuringExecution": list(object(
					fields{"weight": integer(), "preference": term}, "weight", "preference")),
			}),
			"podAffinity":     anything(),
			"podAntiAffinity": anything(),
		}),
	})
}

func componentConfig() schema {
	return object(fields{"nodePlacement": nodePlacement(), "replicas": integer()})
}

func kubeVirtSpec(nativeFields []string) schema {
	spec := object(fields{
		"certificateRotateStrategy": object(fields{"selfSigned": object(fields{
			"ca": duration2(), "server": duration2(),
			"caOverlapInterval": text(), "caRotateInterval": text(), "certRotateInterval": text(),
		})}),
		"configuration": configuration(),
		"customizeComponents": object(fields{
			"patches": list(object(fields{
				"resourceName": nonEmpty(), "resourceType": nonEmpty(), "patch": text(), "type": text(),
			}, "patch", "resourceName", "resourceType", "type")),
			"flags": object(fields{"api": mapOf(text()), "controller": mapOf(text()), "handler": mapOf(text())}),
		}),
		"imagePullPolicy":         text(),
		"imagePullSecrets":        list(object(fields{"name": text()})),
		"imageRegistry":           text(),
		"imageTag":                text(),
		"infra":                   componentConfig(),
		"workloads":               componentConfig(),
		"monitorAccount":          text(),
		"monitorNamespace":        text(),
		"productComponent":        text(),
		"productName":             text(),
		"productVersion":          text(),
		"serviceMonitorNamespace": text(),
		"synchronizationPort":     text(),
		"uninstallStrategy":       text(),
		"workloadUpdateStrategy":  workloadUpdateStrategy(),
	})
	for _, name := range nativeFields {
		spec.Properties[name] = list(anything())
	}
	return spec
}

func nonEmpty() schema {
	value := text()
	value.MinLength = new(int64(1))
	return value
}

func duration2() schema { return object(fields{"duration": text(), "renewBefore": text()}) }

func workloadUpdateStrategy() schema {
	return object(fields{
		"workloadUpdateMethods": list(text()),
		"batchEvictionSize":     integer(),
		"batchEvictionInterval": text(),
	})
}

func configuration() schema {
	device := func(selector string) schema {
		return object(fields{
			selector: text(), "resourceName": text(), "externalResourceProvider": boolean(),
		}, selector, "resourceName")
	}
	return object(fields{
		"developerConfiguration": object(fields{
			"featureGates":                    list(text()),
			"disabledFeatureGates":            list(text()),
			"logVerbosity":                    object(verbosities()),
			"useEmulation":                    boolean(),
			"cpuAllocationRatio":              integer(),
			"memoryOvercommit":                integer(),
			"minimumReservePVCBytes":          integer(),
			"nodeSelectors":                   mapOf(text()),
			"pvcTolerateLessSpaceUpToPercent": integer(),
			"diskVerification":                object(fields{"memoryLimit": intOrText()}, "memoryLimit"),
			"clusterProfiler":                 boolean(),
		}),
		"imagePullPolicy":                text(),
		"evictionStrategy":               text(),
		"defaultRuntimeClass":            text(),
		"emulatedMachines":               list(text()),
		"machineType":                    text(),
		"cpuModel":                       text(),
		"minCPUModel":                    text(),
		"obsoleteCPUModels":              mapOf(boolean()),
		"vmRolloutStrategy":              oneOf("Stage", "LiveUpdate"),
		"virtualMachineInstancesPerNode": integer(),
		"vmStateStorageClass":            text(),
		"hypervisors":                    list(object(fields{"name": text()})),
		"ksmConfiguration":               anything(),
		"architectureConfiguration":      anything(),
		"seccompConfiguration":           anything(),
		"tlsConfiguration":               object(fields{"ciphers": list(text()), "minTLSVersion": text()}),
		"migrations": object(fields{
			"allowAutoConverge": boolean(), "allowPostCopy": boolean(), "allowWorkloadDisruption": boolean(),
			"bandwidthPerMigration": intOrText(), "completionTimeoutPerGiB": integer(), "disableTLS": boolean(),
			"matchSELinuxLevelOnMigration": boolean(), "network": text(), "nodeDrainTaintKey": text(),
			"parallelMigrationsPerCluster": integer(), "parallelOutboundMigrationsPerNode": integer(),
			"progressTimeout": integer(), "unsafeMigrationOverride": boolean(), "utilityVolumesTimeout": integer(),
		}),
		"network": object(fields{
			"defaultNetworkInterface": text(), "permitBridgeInterfaceOnPodNetwork": boolean(),
			"permitSlirpInterface": boolean(), "binding": mapOf(anything()),
		}),
		"permittedHostDevices": object(fields{
			"pciHostDevices":  list(device("pciVendorSelector")),
			"mediatedDevices": list(device("mdevNameSelector")),
			"usb":             list(anything()),
		}),
		"virtualMachineOptions": object(fields{
			"disableFreePageReporting": anything(), "disableSerialConsoleLog": anything(),
		}),
		"smbios": object(fields{
			"family": text(), "manufacturer": text(), "product": text(), "sku": text(), "version": text(),
		}),
	})
}

func verbosities() fields {
	levels := fields{"nodeVerbosity": mapOf(integer())}
	for _, component := range []string{
		"virtAPI", "virtController", "virtHandler", "virtLauncher", "virtOperator", "virtSynchronizationController",
		"virtTemplateApiserver", "virtTemplateController",
	} {
		levels[component] = integer()
	}
	return levels
}
