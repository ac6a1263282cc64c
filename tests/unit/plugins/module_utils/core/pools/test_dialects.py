# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The upstream dialects: what they mean in our model, and that messages use their own words."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.findings import InputErrors
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.selectors import Requirement
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools.criteria import VmSelector
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools.dialects import (
    DIALECTS,
    read_dialect,
    read_manifest,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools.model import Pool, restore_pool

HANDLER = "registry.example/virt-handler:gpu"
LAUNCHER = "registry.example/virt-launcher:gpu"
DEVICE = "nvidia.com/TU104GL_Tesla_T4"

IN_KUBEVIRT: dict[str, t.Any] = {
    "name": "gpu",
    "nodeSelector": {"nvidia.com/gpu.product": "Tesla-T4"},
    "virtHandlerImage": HANDLER,
    "virtLauncherImage": LAUNCHER,
    "selector": {"deviceNames": [DEVICE], "vmLabels": {"matchLabels": {"workload": "gpu"}}},
}
RULE: dict[str, t.Any] = {
    "name": "gpu",
    "image": LAUNCHER,
    "selector": {"deviceNames": [DEVICE], "vmLabels": {"matchLabels": {"workload": "gpu"}}},
    "nodeSelector": {"matchLabels": {"nvidia.com/gpu.product": "Tesla-T4"}},
}
GPU = Pool(
    "gpu",
    {"nvidia.com/gpu.product": "Tesla-T4"},
    virt_handler_image=HANDLER,
    virt_launcher_image=LAUNCHER,
    selector=VmSelector(device_names=(DEVICE,), match_labels={"workload": "gpu"}),
)


def worker_pool(name: str = "gpu", **spec: t.Any) -> dict[str, t.Any]:
    return {
        "apiVersion": "worker.kubevirt.io/v1alpha1",
        "kind": "WorkerPool",
        "metadata": {"name": name, "uid": "0", "labels": {"a": "b"}, "annotations": None},
        "spec": {
            "nodeSelector": {"nvidia.com/gpu.product": "Tesla-T4"},
            "virtHandlerImage": HANDLER,
            "virtLauncherImage": LAUNCHER,
            **spec,
        },
        "status": {"conditions": []},
    }


def without(value: dict[str, t.Any], *fields: str) -> dict[str, t.Any]:
    return {key: item for key, item in value.items() if key not in fields}


def problems(dialect: str, raw: object) -> tuple[str, ...]:
    with pytest.raises(InputErrors) as caught:
        read_dialect(dialect, raw)
    return caught.value.messages


# What they mean -----------------------------------------------------------------------------------------------------


def test_the_dialects() -> None:
    assert list(DIALECTS) == [
        "virtpools",
        "additionalVirtHandlers",
        "virtHandlerPools",
        "workerPools",
        "WorkerPool",
        "kubevirt-aie-launcher-config",
    ]


@pytest.mark.parametrize("dialect", ["virtpools", "virtHandlerPools", "workerPools"])
def test_lists_of_pools(dialect: str) -> None:
    assert read_dialect(dialect, [IN_KUBEVIRT]) == (GPU,)
    assert [p.name for p in read_dialect(dialect, [IN_KUBEVIRT, {**IN_KUBEVIRT, "name": "a"}])] == ["gpu", "a"]


def test_additional_virt_handlers_take_vms_that_select_nodes() -> None:
    (pool,) = read_dialect("additionalVirtHandlers", [without(IN_KUBEVIRT, "selector")])
    assert pool.selector == VmSelector(match_node_selector=True)
    assert pool.virt_launcher_image == LAUNCHER
    assert pool.unmatched == "keep_off"


def test_additional_virt_handlers_need_no_image() -> None:
    (pool,) = read_dialect("additionalVirtHandlers", [{"name": "gpu", "nodeSelector": {"a": "b"}}])
    assert pool == Pool("gpu", {"a": "b"}, selector=VmSelector(match_node_selector=True), unmatched="allow")
    assert restore_pool(pool.to_object()) == pool


@pytest.mark.parametrize(
    "selector",
    [
        {"selector": {"deviceNames": [DEVICE], "vmLabels": {"matchLabels": {"workload": "gpu"}}}},
        {"vmiSelector": {"deviceNames": [DEVICE], "vmiLabels": {"matchLabels": {"workload": "gpu"}}}},
    ],
    ids=["earlier", "later"],
)
def test_worker_pool_objects(selector: dict[str, t.Any]) -> None:
    assert read_dialect("WorkerPool", [worker_pool(**selector)]) == (GPU,)
    assert read_dialect("WorkerPool", worker_pool(**selector)) == (GPU,)
    assert read_dialect("WorkerPool", {"kind": "WorkerPoolList", "items": [worker_pool(**selector)]}) == (GPU,)


def test_worker_pools_are_in_order_of_name() -> None:
    selector = {"vmiSelector": {"deviceNames": [DEVICE]}}
    pools = read_dialect("WorkerPool", [worker_pool(name, **selector) for name in ("b", "a-b", "c", "a")])
    assert [pool.name for pool in pools] == ["a", "a-b", "b", "c"]


def test_worker_pools_have_match_expressions() -> None:
    found = {"matchExpressions": [{"key": "runtime", "operator": "In", "values": ["rh10"]}]}
    for selector in ({"vmiSelector": {"vmiLabels": found}}, {"selector": {"vmLabels": found}}):
        (pool,) = read_dialect("WorkerPool", [worker_pool(**selector)])
        assert pool.selector == VmSelector(match_expressions=(Requirement("runtime", "In", ("rh10",)),))


def test_launcher_rules() -> None:
    (pool,) = read_dialect("kubevirt-aie-launcher-config", {"rules": [RULE]})
    assert pool == Pool(
        "gpu",
        GPU.node_selector,
        virt_launcher_image=LAUNCHER,
        selector=VmSelector(device_names=(DEVICE,), match_labels={"workload": "gpu"}),
    )


@pytest.mark.parametrize(
    ("dialect", "raw"),
    [
        ("virtHandlerPools", [IN_KUBEVIRT]),
        ("additionalVirtHandlers", [without(IN_KUBEVIRT, "selector")]),
        ("WorkerPool", [worker_pool(vmiSelector={"deviceNames": [DEVICE]})]),
        ("kubevirt-aie-launcher-config", {"rules": [RULE]}),
    ],
)
def test_every_pool_can_be_written_in_our_form(dialect: str, raw: object) -> None:
    (pool,) = read_dialect(dialect, raw)
    assert restore_pool(pool.to_object()) == pool


# What is wrong ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dialect", "raw", "expected"),
    [
        ("virtHandlerPools", None, ("spec.virtHandlerPools is missing; give a list of pools.",)),
        ("virtHandlerPools", [], ("spec.virtHandlerPools is an empty list, which is refused",)),
        (
            "virtHandlerPools",
            [5],
            ("spec.virtHandlerPools[0] is 5; give a mapping with name, nodeSelector and so on.",),
        ),
        (
            "virtHandlerPools",
            [{**IN_KUBEVIRT, "tolerations": []}],
            ('Pool gpu has an unknown field "tolerations"; known here: name, nodeSelector, virtHandlerImage,',),
        ),
        (
            "virtHandlerPools",
            [{**IN_KUBEVIRT, "selector": {"vmLabels": {"matchExpressions": []}}}],
            ('Pool gpu: selector.vmLabels has an unknown field "matchExpressions"; known here: matchLabels.',),
        ),
        (
            "workerPools",
            [without(IN_KUBEVIRT, "selector")],
            ("Pool gpu: virtLauncherImage is set but selector is missing: no VM would get it;",),
        ),
        (
            "workerPools",
            [without(IN_KUBEVIRT, "virtHandlerImage", "virtLauncherImage")],
            ("Pool gpu has no image; give virtHandlerImage or virtLauncherImage.",),
        ),
        (
            "additionalVirtHandlers",
            [IN_KUBEVIRT],
            ('Pool gpu has an unknown field "selector"; perhaps you mean nodeSelector.',),
        ),
        ("additionalVirtHandlers", [{"name": "gpu"}], ("Pool gpu: nodeSelector is missing; a pool owns nodes:",)),
        ("WorkerPool", [], ("WorkerPool is an empty list",)),
        (
            "WorkerPool",
            [{}],
            ("WorkerPool[0]: metadata.name is missing", "spec.nodeSelector is missing", "spec.virtHan"),
        ),
        (
            "WorkerPool",
            [{**worker_pool(), "spec": {}}],
            ("WorkerPool gpu: spec is empty; give at least one of nodeSelector, virtHandlerImage,",),
        ),
        (
            "WorkerPool",
            [{**worker_pool(vmiSelector={"deviceNames": [DEVICE]}), "metadata": 5}],
            ("WorkerPool[0]: metadata is 5; give a mapping.",),
        ),
        (
            "WorkerPool",
            [worker_pool()],
            ("WorkerPool gpu: spec.virtLauncherImage is set but spec.vmiSelector is missing: no VM would get it;",),
        ),
        (
            "WorkerPool",
            [worker_pool(vmiSelector={"vmLabels": {}})],
            ('WorkerPool gpu: spec.vmiSelector has an unknown field "vmLabels"; perhaps you mean vmiLabels.',),
        ),
        (
            "WorkerPool",
            [worker_pool(vmiSelector={"vmiLabels": {}})],
            (
                "WorkerPool gpu: spec.vmiSelector.vmiLabels is empty; give at least one of matchLabels, matchExpressions.",
            ),
        ),
        (
            "WorkerPool",
            [worker_pool(vmiSelector={"deviceNames": [DEVICE]}, selector={"deviceNames": [DEVICE]})],
            ("WorkerPool gpu: spec.selector.deviceNames repeats spec.vmiSelector.deviceNames; keep one",),
        ),
        (
            "WorkerPool",
            [worker_pool(nodeSelector={"a": True}, selector={"deviceNames": ["A100"]})],
            ("spec.nodeSelector[a] is true, which YAML reads", 'spec.selector.deviceNames[0] is "A100", which has no'),
        ),
        (
            "WorkerPool",
            [worker_pool("a.b", selector={"deviceNames": [DEVICE]})],
            ('WorkerPool[0]: metadata.name is "a.b", which is not made of lower case letters,',),
        ),
        (
            "WorkerPool",
            [worker_pool(selector={"deviceNames": [DEVICE]})] * 2,
            ('WorkerPool[1]: metadata.name is "gpu", as is that of WorkerPool[0];',),
        ),
        ("kubevirt-aie-launcher-config", None, ("config.yaml is null; give a mapping with rules.",)),
        ("kubevirt-aie-launcher-config", {}, ("rules is missing; give a list of pools.",)),
        (
            "kubevirt-aie-launcher-config",
            {"rule": []},
            ('config.yaml has an unknown field "rule"; perhaps you mean rules.',),
        ),
        (
            "kubevirt-aie-launcher-config",
            {"rules": [5]},
            ("rules[0] is 5; give a mapping with name, nodeSelector.matchL",),
        ),
        (
            "kubevirt-aie-launcher-config",
            {"rules": [without(RULE, "nodeSelector")]},
            ("Rule gpu: nodeSelector.matchLabels is missing; a pool owns nodes: add a label that only they have.",),
        ),
        (
            "kubevirt-aie-launcher-config",
            {"rules": [{**RULE, "nodeSelector": {}}]},
            ("Rule gpu: nodeSelector is empty; give matchLabels.",),
        ),
        (
            "kubevirt-aie-launcher-config",
            {"rules": [{**RULE, "nodeSelector": {"gpu": "a"}}]},
            ('Rule gpu: nodeSelector has an unknown field "gpu"; known here: matchLabels.',),
        ),
        ("kubevirt-aie-launcher-config", {"rules": [without(RULE, "image")]}, ("Rule gpu has no image; give image.",)),
        (
            "kubevirt-aie-launcher-config",
            {"rules": [without(RULE, "selector")]},
            ("Rule gpu: image is set but selector is missing: no VM would get it;",),
        ),
    ],
)
def test_problems(dialect: str, raw: object, expected: tuple[str, ...]) -> None:
    messages = problems(dialect, raw)
    for part in expected:
        assert any(part in message for message in messages), messages
    assert len(messages) == len(expected), messages
    assert all(message.endswith(".") for message in messages)


def test_an_unknown_dialect() -> None:
    (message,) = problems("workerPool", [])
    assert message.startswith('The dialect is "workerPool"; give virtpools, additionalVirtHandlers, ')
    assert message.endswith(" or kubevirt-aie-launcher-config; perhaps you mean WorkerPool.")


def test_problems_of_all_pools_at_once() -> None:
    messages = problems("kubevirt-aie-launcher-config", {"rules": [{**RULE, "image": ""}, {**RULE, "name": "A b"}]})
    assert [message.split(" is ")[0] for message in messages] == ["Rule gpu: image", "rules[1]: name"]


# Manifests ----------------------------------------------------------------------------------------------------------


def kubevirt(**spec: t.Any) -> dict[str, t.Any]:
    return {"apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": {"name": "kubevirt"}, "spec": spec}


def config_map(config: object) -> dict[str, t.Any]:
    name = "kubevirt-aie-launcher-config"
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"config.yaml": config}}


WORKER_POOLS = [
    worker_pool("b", vmiSelector={"deviceNames": [DEVICE]}),
    worker_pool("a", vmiSelector={"deviceNames": [DEVICE]}),
]


@pytest.mark.parametrize(
    ("documents", "dialect", "names"),
    [
        ([{"virtpools_pools": [IN_KUBEVIRT], "other_variable": 1}], "virtpools", ["gpu"]),
        ([{"pools": [IN_KUBEVIRT]}], "virtpools", ["gpu"]),
        ([kubevirt(virtHandlerPools=[IN_KUBEVIRT], workerPools=None)], "virtHandlerPools", ["gpu"]),
        ([kubevirt(workerPools=[IN_KUBEVIRT])], "workerPools", ["gpu"]),
        (
            [kubevirt(additionalVirtHandlers=[without(IN_KUBEVIRT, "selector")])],
            "additionalVirtHandlers",
            ["gpu"],
        ),
        (WORKER_POOLS, "WorkerPool", ["a", "b"]),
        ([{"apiVersion": "v1", "kind": "List", "items": WORKER_POOLS}], "WorkerPool", ["a", "b"]),
        ([None, kubevirt(), {"kind": "Namespace"}, "text", *WORKER_POOLS, []], "WorkerPool", ["a", "b"]),
        ([config_map({"rules": [RULE]})], "kubevirt-aie-launcher-config", ["gpu"]),
    ],
)
def test_manifests(documents: list[object], dialect: str, names: list[str]) -> None:
    found, pools = read_manifest(documents)
    assert found == dialect
    assert [pool.name for pool in pools] == names


def test_the_text_in_a_config_map_is_parsed() -> None:
    parsed = {"the text": {"rules": [RULE]}}
    dialect, pools = read_manifest([config_map("the text")], load_yaml=parsed.__getitem__)
    assert (dialect, [pool.name for pool in pools]) == ("kubevirt-aie-launcher-config", ["gpu"])


def refusal(documents: list[object], **options: t.Any) -> str:
    with pytest.raises(InputErrors) as caught:
        read_manifest(documents, **options)
    (message,) = caught.value.messages
    return message


def test_a_config_map_that_is_no_yaml() -> None:
    def broken(text: str) -> object:
        raise ValueError("mapping values are not allowed here")

    assert refusal([config_map("a: b: c")], load_yaml=broken) == (
        'ConfigMap kubevirt-aie-launcher-config: data[config.yaml] is not YAML: "mapping values are not allowed here".'
    )
    assert "config.yaml is null" in refusal([{**config_map(""), "data": None}])
    assert 'config.yaml is "a: b"; give a mapping with rules.' in refusal([config_map("a: b")])


@pytest.mark.parametrize(
    "documents",
    [
        [],
        [None],
        [kubevirt()],
        [{"kind": "KubeVirt", "apiVersion": "kubevirt.io/v1", "spec": None}],
        # Objects of others that have the same kind.
        [{**kubevirt(workerPools=[IN_KUBEVIRT]), "apiVersion": "example.com/v1"}],
        [{**WORKER_POOLS[0], "apiVersion": "example.com/v1"}],
        [{**config_map(""), "metadata": {"name": "other"}}],
        [{"kind": "Other", "pools": [IN_KUBEVIRT]}],
        [[IN_KUBEVIRT]],
    ],
)
def test_no_pools(documents: list[object]) -> None:
    assert refusal(documents).startswith(
        "No pools were found; give the variable virtpools_pools, a KubeVirt object with"
    )


def test_an_empty_list_is_not_the_same_as_none() -> None:
    assert refusal([kubevirt(workerPools=[])]).startswith("spec.workerPools is an empty list")
    assert refusal([{"virtpools_pools": []}]).startswith("virtpools_pools is an empty list")
    assert refusal([{"virtpools_pools": None}]).startswith("virtpools_pools is missing")


@pytest.mark.parametrize(
    ("documents", "places"),
    [
        (
            [kubevirt(workerPools=[IN_KUBEVIRT], virtHandlerPools=[IN_KUBEVIRT])],
            "spec.virtHandlerPools of a KubeVirt object, spec.workerPools of a KubeVirt object",
        ),
        ([{"pools": []}, *WORKER_POOLS], "pools, WorkerPool objects"),
        ([{"pools": [], "virtpools_pools": []}], "virtpools_pools, pools"),
        (
            [config_map({}), config_map({})],
            "ConfigMap kubevirt-aie-launcher-config, ConfigMap kubevirt-aie-launcher-conf",
        ),
    ],
)
def test_several_kinds(documents: list[object], places: str) -> None:
    message = refusal(documents)
    assert message.startswith(f"Pools were found in several places ({places}")
    assert message.endswith("); keep one of them.")


def test_other_variables_beside_the_pools() -> None:
    """In a project like the example, they would have no effect, since the file is not one of variables there."""
    message = refusal([{"virtpools_pools": [], "virtpools_prune": True, "virtpools_alerts": True, "mine": 1}])
    assert message.startswith(
        "The file of the pools is read for its pools alone, and virtpools_alerts, virtpools_prune would have no effect there: set it in"
    )
