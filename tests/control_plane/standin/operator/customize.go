// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

package operator

import (
	"encoding/json"
	"fmt"
	"sort"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"virtpools.io/controlplane/standin/kubevirt"
)

// customizer applies spec.customizeComponents.
type customizer struct {
	patches []kubevirt.Patch
	digest  string
}

// newCustomizer sorts the patches by their length: KubeVirt does that while it computes the digest.
func newCustomizer(customization kubevirt.CustomizeComponents) customizer {
	patches := append([]kubevirt.Patch(nil), customization.Patches...)
	sort.SliceStable(patches, func(i, j int) bool { return len(patches[i].Patch) < len(patches[j].Patch) })
	customization.Patches = patches
	return customizer{
		patches: append(patches, flagPatches(customization.Flags)...),
		digest:  digest(customization),
	}
}

func flagPatches(flags *kubevirt.Flags) []kubevirt.Patch {
	if flags == nil {
		return nil
	}
	var patches []kubevirt.Patch
	add := func(resourceType, name string, values map[string]string) {
		if len(values) > 0 {
			patches = append(patches, flagPatch(resourceType, name, values))
		}
	}
	add("Deployment", "virt-api", flags.API)
	add("Deployment", "virt-controller", flags.Controller)
	add("DaemonSet", "virt-handler", flags.Handler)
	return patches
}

func flagPatch(resourceType, name string, flags map[string]string) kubevirt.Patch {
	command := []string{name}
	for _, flag := range sortedKeys(flags) {
		command = append(command, "--"+strings.ToLower(flag))
		if flags[flag] != "" {
			command = append(command, flags[flag])
		}
	}
	text, _ := json.Marshal(command) // strings only
	return kubevirt.Patch{
		ResourceType: resourceType, ResourceName: name, Type: "strategic",
		Patch: fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":%q,"command":%s}]}}}}`, name, text),
	}
}

func sortedKeys(values map[string]string) []string {
	keys := make([]string, 0, len(values))
	for key := range values {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	return keys
}

// apply patches every component of the strategy in place.
func (c customizer) apply(s *strategy) error {
	for _, deployment := range []*appsv1.Deployment{s.api, s.controller} {
		if err := applyAll(c, deployment, deployment.Kind, deployment.Name); err != nil {
			return err
		}
	}
	return applyAll(c, s.handler, s.handler.Kind, s.handler.Name)
}

func applyAll[T any](c customizer, object *T, kind, name string) error {
	patches := c.matching(kind, name)
	mark := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, kubevirt.CustomizerAnnotation, c.digest)
	for _, patch := range append(patches, kubevirt.Patch{Patch: mark, Type: "strategic"}) {
		if err := applyOne(object, patch); err != nil {
			return err
		}
	}
	return nil
}

func (c customizer) matching(kind, name string) []kubevirt.Patch {
	var found []kubevirt.Patch
	for _, patch := range c.patches {
		if matches(patch.ResourceType, kind) && matches(patch.ResourceName, name) {
			found = append(found, patch)
		}
	}
	return found
}

func matches(pattern, value string) bool { return pattern == "*" || strings.EqualFold(pattern, value) }

// applyOne replaces the object by the patched one. A patch that fails leaves it EMPTY: the real one resets the object
// before it patches, which is why the next sync fails with a component that has no name.
func applyOne[T any](object *T, patch kubevirt.Patch) error {
	before, err := json.Marshal(object)
	if err != nil {
		return err
	}
	var empty T
	*object = empty
	after, err := patched(before, patch, empty)
	if err != nil {
		return err
	}
	return json.Unmarshal(after, object)
}

func patched(document []byte, patch kubevirt.Patch, schema any) ([]byte, error) {
	switch patch.Type {
	case "json":
		operations, err := jsonpatch.DecodePatch([]byte(patch.Patch))
		if err != nil {
			return nil, err
		}
		return operations.Apply(document)
	case "merge":
		return jsonpatch.MergePatch(document, []byte(patch.Patch))
	case "strategic":
		return strategicpatch.StrategicMergePatch(document, []byte(patch.Patch), schema)
	}
	return nil, fmt.Errorf("PatchType is not supported")
}
