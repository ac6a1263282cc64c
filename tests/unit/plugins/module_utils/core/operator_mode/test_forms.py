# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.operator_mode import forms
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.operator_mode.builds import BUILDS
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools.dialects import OWN, read_dialect
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders

A, B, C = (BUILDS[name] for name in ("additionalVirtHandlers", "virtHandlerPools", "WorkerPool"))
LISTS = [B, BUILDS["workerPools"]]
DEVICES = {"deviceNames": ["nvidia.com/A100", "amd.com/MI300"]}
BOTH = {**DEVICES, "vmLabels": {"matchLabels": {"tier": "gpu"}}}


def pool(**fields):
    given = {"virtLauncherImage": builders.GPU_LAUNCHER_IMAGE, "selector": BOTH, "unmatched": "allow"}
    return builders.pool(**{**given, **fields})


class TestWriting:
    def test_a_list_without_selectors(self):
        assert forms.to_build(A, pool(selector={"matchNodeSelector": True})) == {
            "name": "gpu",
            "nodeSelector": {"hw": "gpu"},
            "virtHandlerImage": f"{builders.HANDLER_IMAGE}-gpu",
            "virtLauncherImage": builders.GPU_LAUNCHER_IMAGE,
        }

    @pytest.mark.parametrize("build", LISTS)
    def test_a_list(self, build):
        assert forms.to_build(build, pool()) == {
            "name": "gpu",
            "nodeSelector": {"hw": "gpu"},
            "virtHandlerImage": f"{builders.HANDLER_IMAGE}-gpu",
            "virtLauncherImage": builders.GPU_LAUNCHER_IMAGE,
            "selector": {
                "deviceNames": ["amd.com/MI300", "nvidia.com/A100"],
                "vmLabels": {"matchLabels": {"tier": "gpu"}},
            },
        }

    def test_an_object(self):
        written = forms.to_build(C, pool())
        assert written["metadata"] == {"name": "gpu"}
        assert written["spec"] == {key: value for key, value in forms.to_build(B, pool()).items() if key != "name"}

    @pytest.mark.parametrize("build", [*LISTS, C])
    def test_is_read_back(self, build):
        entry = forms.to_build(build, pool())
        if build.kind is not None:
            entry = {"apiVersion": build.kind.api_version, "kind": build.kind.name, **entry}
        assert forms.from_build(build, [entry]) == (pool(),)

    def test_without_selectors_is_read_back(self):
        written = pool(selector={"matchNodeSelector": True})
        assert forms.from_build(A, [forms.to_build(A, written)]) == (written,)


REFUSED = [
    ({"nodeExpressions": [{"key": "zone", "operator": "Exists"}]}, "nodeExpressions"),
    ({"unmatched": "keep_off"}, "unmatched"),
    ({"activation": "all_moved"}, "activation"),
    ({"tolerations": [{"operator": "Exists"}]}, "tolerations"),
    ({"imagePullSecrets": [{"name": "s"}]}, "imagePullSecrets"),
    ({"virtLauncherPullSecrets": [{"name": "s"}]}, "virtLauncherPullSecrets"),
    ({"resources": {"requests": {"cpu": "1"}}}, "resources"),
    ({"hypervisor": "hyperv-direct"}, "hypervisor"),
    ({"selector": {**DEVICES, "namespaces": ["team"]}}, "selector.namespaces"),
    ({"selector": {"architectures": ["arm64"]}}, "selector.architectures"),
    (
        {"selector": {"vmLabels": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}},
        "selector.vmLabels.matchExpressions",
    ),
]


class TestRefusals:
    @pytest.mark.parametrize("build", [A, *LISTS, C])
    @pytest.mark.parametrize(("fields", "path"), REFUSED, ids=[path for _fields, path in REFUSED])
    def test_of_what_no_build_can_say(self, build, fields, path):
        messages = [finding.message for finding in forms.problems(build, [pool(**fields)])]
        assert any(
            text.startswith(f"Pool gpu: {path} is set, and {build.place} has no such field") for text in messages
        )

    @pytest.mark.parametrize("selector", [DEVICES, {"vmLabels": {"matchLabels": {"tier": "gpu"}}}])
    def test_of_criteria_in_a_list_without_selectors(self, selector):
        (finding,) = forms.problems(A, [pool(selector=selector)])
        assert "let VMs ask for the pool's nodes in their nodeSelector" in finding.message

    @pytest.mark.parametrize("build", [*LISTS, C])
    def test_of_match_node_selector(self, build):
        texts = [f.message for f in forms.problems(build, [pool(selector={"matchNodeSelector": True})])]
        assert any("selector.matchNodeSelector is set" in text for text in texts)

    @pytest.mark.parametrize("build", [*LISTS, C])
    def test_of_a_pool_without_selector(self, build):
        (finding,) = forms.problems(build, [builders.pool()])
        assert finding.message.startswith("Pool gpu: selector is missing")

    @pytest.mark.parametrize("build", [*LISTS, C])
    def test_of_a_pool_without_image(self, build):
        (raw,) = read_dialect("additionalVirtHandlers", [{"name": "gpu", "nodeSelector": {"hw": "gpu"}}])
        assert any("has no image" in finding.message for finding in forms.problems(build, [raw]))

    def test_are_all_reported_at_once(self):
        one, other = pool(name="one", activation="all_moved"), pool(name="other", tolerations=[{"operator": "Exists"}])
        assert [f.message.split(":")[0] for f in forms.problems(B, [one, other])] == ["Pool one", "Pool other"]

    def test_of_nothing_that_the_build_can_say(self):
        assert forms.problems(B, [pool()]) == forms.problems(C, [pool()]) == ()
        assert forms.problems(A, [pool(selector={"matchNodeSelector": True})]) == ()
        assert forms.problems(A, [builders.pool(unmatched="allow")]) == ()


def test_only_a_form_that_can_say_it_keeps_other_vms_off():
    raw = {
        "name": "gpu",
        "nodeSelector": {"hw": "gpu"},
        "virtHandlerImage": "registry.example/h:v1",
        "selector": DEVICES,
    }
    for dialect, unmatched in ((OWN, "keep_off"), ("virtHandlerPools", "allow")):
        (read,) = forms.without_unmatched(read_dialect(dialect, [raw]), dialect)
        assert read.unmatched == unmatched
