// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

package hco

import (
	"reflect"
	"slices"
	"testing"
)

func TestGates(t *testing.T) {
	for name, test := range map[string]struct {
		list        []any
		gate        string
		on, listOff bool
	}{
		"turned on":                   {[]any{fields{"name": "downwardMetrics"}}, "DownwardMetrics", true, false},
		"off by default":              {nil, "DownwardMetrics", false, false},
		"on by default":               {nil, "Template", true, false},
		"off, but KubeVirt's is on":   {[]any{fields{"name": "template", "state": "Disabled"}}, "Template", false, true},
		"off, KubeVirt's is off, too": {[]any{fields{"name": "decentralizedLiveMigration", "state": "Disabled"}}, "DecentralizedLiveMigration", false, false},
		"KubeVirt's own name":         {[]any{fields{"name": "ImageVolume"}}, "ImageVolume", false, true},
		"of another operand":          {[]any{fields{"name": "deployKubeSecondaryDNS"}}, "", false, false},
	} {
		developer := nested(rendered(t, fields{"featureGates": test.list}, ""), "configuration", "developerConfiguration").(fields)
		on, off := developer["featureGates"].([]any), developer["disabledFeatureGates"].([]any)
		if slices.Contains(on, any(test.gate)) != test.on || slices.Contains(off, any(test.gate)) != test.listOff {
			t.Errorf("%s: %v, disabled %v", name, on, off)
		}
	}
}

// TestUnknownGates: seen on the real one.
func TestUnknownGates(t *testing.T) {
	if len(gates) != 13 {
		t.Errorf("%d gates", len(gates))
	}
	list := []any{fields{"name": "template"}, fields{"name": "ImageVolume"}, fields{"name": "Absent", "state": "Disabled"}}
	want := []string{"the Absent featureGate is unknown and ignored.", "the ImageVolume featureGate is unknown and ignored."}
	if got := gateWarnings(list); !slices.Equal(got, want) {
		t.Errorf("warnings %q", got)
	}
	for name := range gates {
		if got := gateWarnings([]any{fields{"name": name}}); got != nil {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestGatesOfBeta1: seen on the real one.
func TestGatesOfBeta1(t *testing.T) {
	want := fields{
		"alignCPUs": false, "containerPathVolumes": false, "decentralizedLiveMigration": true, "declarativeHotplugVolumes": true,
		"deployKubeSecondaryDNS": false, "downwardMetrics": false, "incrementalBackup": false, "objectGraph": false,
	}
	if got := gatesToBeta1(nil); !reflect.DeepEqual(got, want) {
		t.Errorf("shown %v", got)
	}
	if got := gatesToV1(want); len(got) != 0 {
		t.Errorf("nothing is set, but v1 has %v", got)
	}
}
