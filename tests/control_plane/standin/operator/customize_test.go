// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

package operator

import (
	"reflect"
	"testing"

	"virtpools.io/controlplane/standin/kubevirt"
)

func testTarget() target {
	return target{Namespace: "kubevirt", Registry: "stock.example/kubevirt", Version: "v1.9.0"}
}

func testStrategy() *strategy { return newStrategy(testTarget(), kubevirt.Configuration{}) }

func patches(list ...kubevirt.Patch) kubevirt.CustomizeComponents {
	return kubevirt.CustomizeComponents{Patches: list}
}

func strategic(text string) kubevirt.Patch {
	return kubevirt.Patch{ResourceName: "virt-handler", ResourceType: "DaemonSet", Patch: text, Type: "strategic"}
}

// The digests were recorded from KubeVirt v1.9.0.
func TestDigestIsKubeVirts(t *testing.T) {
	exclusion := strategic(`{"spec":{"template":{"spec":{"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":` +
		`{"nodeSelectorTerms":[{"matchExpressions":[{"key":"gpu","operator":"DoesNotExist"}]}]}}}}}}}`)
	for want, customization := range map[string]kubevirt.CustomizeComponents{
		"bf21a9e8fbc5a3846fb05b4fa0859e0917b2202f": {},
		"821263a13b0868356593f88888983140c7ce74b7": patches(exclusion),
	} {
		if got := newCustomizer(customization).digest; got != want {
			t.Errorf("digest %s, want %s", got, want)
		}
	}
}

func TestLongerPatchWins(t *testing.T) {
	long := strategic(`{"metadata":{"labels":{"who":"long"}},  "spec":{}}`)
	short := strategic(`{"metadata":{"labels":{"who":"short"}}}`)
	for _, list := range []kubevirt.CustomizeComponents{patches(long, short), patches(short, long)} {
		s := testStrategy()
		if err := newCustomizer(list).apply(s); err != nil {
			t.Fatal(err)
		}
		if got := s.handler.Labels["who"]; got != "long" {
			t.Errorf("label %q, want that of the longer patch", got)
		}
	}
}

func TestEqualLengthKeepsListOrder(t *testing.T) {
	s := testStrategy()
	first, second := strategic(`{"metadata":{"labels":{"who":"a"}}}`), strategic(`{"metadata":{"labels":{"who":"b"}}}`)
	if err := newCustomizer(patches(first, second)).apply(s); err != nil {
		t.Fatal(err)
	}
	if got := s.handler.Labels["who"]; got != "b" {
		t.Errorf("label %q, want that of the later patch", got)
	}
}

func TestPatchesPileUp(t *testing.T) {
	add := strategic(`[{"op":"add","path":"/spec/template/spec/tolerations/-","value":{"key":"x","operator":"Exists"}}]`)
	add.Type = "json"
	s := testStrategy()
	for range 3 {
		if err := newCustomizer(patches(add)).apply(s); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(s.handler.Spec.Template.Spec.Tolerations); got != 4 {
		t.Errorf("%d tolerations, want its own and three copies", got)
	}
}

func TestFailedPatchLeavesNothing(t *testing.T) {
	remove := strategic(`[{"op":"remove","path":"/spec/template/spec/tolerations"}]`)
	remove.Type = "json"
	s, c := testStrategy(), newCustomizer(patches(remove))
	if err := c.apply(s); err != nil {
		t.Fatal(err)
	}
	if err := c.apply(s); err == nil {
		t.Fatal("the second removal did not fail")
	}
	if s.handler.Name != "" || s.handler.Kind != "" {
		t.Errorf("the DaemonSet kept its name %q", s.handler.Name)
	}
	// It matches no patch any more, so this sync gets as far as creating it.
	if err := c.apply(s); err != nil {
		t.Error(err)
	}
}

func TestMatching(t *testing.T) {
	for _, test := range []struct {
		patch kubevirt.Patch
		want  bool
	}{
		{kubevirt.Patch{ResourceType: "daemonset", ResourceName: "VIRT-HANDLER"}, true},
		{kubevirt.Patch{ResourceType: "*", ResourceName: "*"}, true},
		{kubevirt.Patch{ResourceType: "Deployment", ResourceName: "virt-handler"}, false},
		{kubevirt.Patch{ResourceType: "DaemonSet", ResourceName: "virt-handler*"}, false},
	} {
		if got := len(newCustomizer(patches(test.patch)).matching("DaemonSet", "virt-handler")) == 1; got != test.want {
			t.Errorf("%+v matches: %v, want %v", test.patch, got, test.want)
		}
	}
}

func TestUnknownTypeFails(t *testing.T) {
	odd := strategic("{}")
	odd.Type = "nonsense"
	if err := newCustomizer(patches(odd)).apply(testStrategy()); err == nil || err.Error() != "PatchType is not supported" {
		t.Errorf("error %v", err)
	}
}

func TestMergePatch(t *testing.T) {
	merge := strategic(`{"spec":{"template":{"spec":{"tolerations":null}}}}`)
	merge.Type = "merge"
	s := testStrategy()
	if err := newCustomizer(patches(merge)).apply(s); err != nil {
		t.Fatal(err)
	}
	if got := s.handler.Spec.Template.Spec.Tolerations; got != nil {
		t.Errorf("tolerations %v", got)
	}
}

func TestFlagsReplaceTheCommand(t *testing.T) {
	s := testStrategy()
	customization := kubevirt.CustomizeComponents{Flags: &kubevirt.Flags{Handler: map[string]string{"v": "5", "Dry": ""}}}
	if err := newCustomizer(customization).apply(s); err != nil {
		t.Fatal(err)
	}
	want := []string{"virt-handler", "--dry", "--v", "5"}
	if got := s.handler.Spec.Template.Spec.Containers[0].Command; !reflect.DeepEqual(got, want) {
		t.Errorf("command %v, want %v", got, want)
	}
}
