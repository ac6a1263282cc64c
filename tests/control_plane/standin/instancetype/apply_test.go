// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

package instancetype

import (
	"reflect"
	"strings"
	"testing"
)

type object = map[string]any

func TestApply(t *testing.T) {
	template := object{"domain": object{"devices": object{"interfaces": []any{object{"name": "default"}}}}}
	kind := object{
		"cpu": object{"guest": int64(4)}, "memory": object{"guest": "2Gi"}, "nodeSelector": object{"rack": "1"},
		"gpus": []any{object{"name": "g", "deviceName": "example.com/gpu"}},
	}
	preference := object{
		"cpu": object{"preferredCPUTopology": "cores"}, "machine": object{"preferredMachineType": "q35"},
		"devices": object{"preferredInterfaceModel": "e1000"},
	}
	if err := Apply(template, kind, preference); err != nil {
		t.Fatal(err)
	}
	want := object{
		"nodeSelector": object{"rack": "1"},
		"domain": object{
			"cpu":     object{"cores": int64(4), "sockets": int64(1), "threads": int64(1)},
			"memory":  object{"guest": "2Gi"},
			"machine": object{"type": "q35"},
			"devices": object{
				"gpus":       []any{object{"name": "g", "deviceName": "example.com/gpu"}},
				"interfaces": []any{object{"name": "default", "model": "e1000"}},
			},
		},
	}
	if !reflect.DeepEqual(template, want) {
		t.Errorf("got  %v\nwant %v", template, want)
	}
}

func TestConflicts(t *testing.T) {
	template := object{"domain": object{"memory": object{"guest": "1Gi"}, "devices": object{"gpus": []any{object{"name": "g"}}}}}
	err := Apply(template, object{"memory": object{"guest": "2Gi"}, "gpus": []any{object{"name": "h"}}}, nil)
	if err == nil || !strings.Contains(err.Error(), "spec.template.spec.domain.memory, spec.template.spec.domain.devices.gpus") {
		t.Errorf("got %v", err)
	}
	if err := Apply(template, object{"cpu": object{"guest": int64(1)}}, nil); err != nil {
		t.Errorf("what the instancetype leaves open is the machine's: %v", err)
	}
}
