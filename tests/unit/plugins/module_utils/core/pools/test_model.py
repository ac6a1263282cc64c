# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The model of pools, its form, and the messages about a wrong list of pools."""

from __future__ import annotations

import dataclasses
import json
import time
import typing as t

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.findings import InputErrors
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.selectors import Requirement
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools.criteria import Namespaces, VmSelector
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools.dialects import OWN, read_dialect
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools.inputs import image_problem
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools.model import (
    Pool,
    restore_pool,
)

GPU: dict[str, t.Any] = {
    "name": "gpu",
    "nodeSelector": {"accelerator": "nvidia"},
    "virtHandlerImage": "registry.example/virt-handler:v1.9.0-gpu",
    "virtLauncherImage": "registry.example/virt-launcher:v1.9.0-gpu",
    "selector": {
        "deviceNames": ["nvidia.com/GA100_A100_PCIE_40GB"],
        "vmLabels": {"matchLabels": {"workload": "gpu"}},
    },
}


def parse(**changes: t.Any) -> Pool:
    (pool,) = read_dialect(OWN, [{**GPU, **changes}])
    return pool


def problems(raw: object) -> tuple[str, ...]:
    with pytest.raises(InputErrors) as caught:
        read_dialect(OWN, raw)
    for message in caught.value.messages:
        assert message.endswith(".")
        assert "\n" not in message
        assert len(message) < 600
    return caught.value.messages


def problems_with(**changes: t.Any) -> tuple[str, ...]:
    return problems([{**GPU, **changes}])


# The model ----------------------------------------------------------------------------------------------------------


def test_a_pool() -> None:
    assert parse() == Pool(
        name="gpu",
        node_selector={"accelerator": "nvidia"},
        virt_handler_image="registry.example/virt-handler:v1.9.0-gpu",
        virt_launcher_image="registry.example/virt-launcher:v1.9.0-gpu",
        selector=VmSelector(device_names=("nvidia.com/GA100_A100_PCIE_40GB",), match_labels={"workload": "gpu"}),
        unmatched="keep_off",
        activation="first_node",
    )


def test_the_canonical_form() -> None:
    assert parse().to_object() == {**GPU, "unmatched": "keep_off", "activation": "first_node"}


def test_a_pool_cannot_be_changed() -> None:
    labels = {"accelerator": "nvidia"}
    pool = Pool("gpu", labels)
    labels["accelerator"] = "amd"
    assert pool.node_selector == {"accelerator": "nvidia"}
    assert hash(pool) == hash(Pool("gpu", {"accelerator": "nvidia"}))
    with pytest.raises(TypeError):
        pool.node_selector["accelerator"] = "amd"  # type: ignore[index]
    with pytest.raises(dataclasses.FrozenInstanceError):
        pool.name = "cpu"  # type: ignore[misc]


def test_what_has_no_order_is_sorted() -> None:
    one = parse(
        nodeSelector={"b": "1", "a": "2"},
        nodeExpressions=[{"key": "z", "operator": "Exists"}, {"key": "y", "operator": "In", "values": ["2", "1"]}],
        tolerations=[{"key": "b", "operator": "Exists"}, {"operator": "Exists", "key": "a"}],
        selector={"deviceNames": ["b.c/d", "a.b/c"], "architectures": ["s390x", "amd64"], "namespaces": ["b", "a"]},
    )
    other = parse(
        nodeSelector={"a": "2", "b": "1"},
        nodeExpressions=[{"key": "y", "operator": "In", "values": ["1", "2"]}, {"key": "z", "operator": "Exists"}],
        tolerations=[{"operator": "Exists", "key": "a"}, {"key": "b", "operator": "Exists"}],
        selector={"deviceNames": ["a.b/c", "b.c/d"], "architectures": ["amd64", "s390x"], "namespaces": ["a", "b"]},
    )
    assert one == other
    assert json.dumps(one.to_object()) == json.dumps(other.to_object())


def test_the_order_of_pools_and_of_pull_secrets_is_kept() -> None:
    second = {**GPU, "name": "a", "imagePullSecrets": [{"name": "z"}, {"name": "a"}]}
    pools = read_dialect(OWN, [GPU, second])
    assert [pool.name for pool in pools] == ["gpu", "a"]
    assert pools[1].to_object()["imagePullSecrets"] == [{"name": "z"}, {"name": "a"}]


def test_nodes_are_those_with_labels_and_expressions() -> None:
    pool = parse(nodeExpressions=[{"key": "generation", "operator": "Gt", "values": ["7"]}])
    assert pool.nodes.matches({"accelerator": "nvidia", "generation": "8"})
    assert not pool.nodes.matches({"accelerator": "nvidia", "generation": "7"})
    assert not pool.nodes.matches({"generation": "8"})


def test_the_labels_of_vms_are_one_criterion() -> None:
    selector = VmSelector(match_labels={"a": "1"}, match_expressions=(Requirement("b", "Exists"),))
    assert selector.labels.matches({"a": "1", "b": ""})
    assert not selector.labels.matches({"a": "1"})
    assert [c.path for c in selector.criteria] == ["selector.vmLabels"]
    assert [c.path for c in VmSelector(device_names=("a.b/c",)).criteria] == ["selector.deviceNames"]


def test_namespaces() -> None:
    by_name = parse(selector={"architectures": ["arm64"], "namespaces": ["prod"]})
    assert by_name.selector is not None
    assert by_name.selector.namespaces == Namespaces(names=("prod",))
    both = Namespaces(("prod",), {"tier": "1"})
    assert both.match("prod", {})
    assert both.match("test", {"tier": "1"})
    assert not both.match("test", {"tier": "2"})
    assert not Namespaces(("prod",)).match("test", {})


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "keep_off"),
        ({"virtHandlerImage": None}, "keep_off"),
        ({"virtLauncherImage": None}, "keep_off"),
        ({"virtLauncherImage": None, "selector": None}, "allow"),
        ({"virtLauncherImage": None, "selector": None, "unmatched": "keep_off"}, "keep_off"),
        ({"unmatched": "allow"}, "allow"),
    ],
)
def test_unmatched_vms_stay_off_unless_only_the_handler_differs(changes: dict[str, t.Any], expected: str) -> None:
    assert parse(**changes).unmatched == expected


@pytest.mark.parametrize(
    ("given_value", "expected", "written"),
    [
        ("all_moved", "all_moved", "all_moved"),
        ("50%", 50, "50%"),
        (50, 50, "50%"),
        ("100%", 100, "100%"),
        ("007%", 7, "7%"),
        (1, 1, "1%"),
    ],
)
def test_activation(given_value: object, expected: object, written: str) -> None:
    pool = parse(activation=given_value)
    assert pool.activation == expected
    assert pool.to_object()["activation"] == written


def test_null_is_absent() -> None:
    assert parse(nodeExpressions=None, tolerations=None, resources=None, activation=None) == parse()


def test_resources_are_as_the_api_server_serves_them() -> None:
    pool = parse(resources={"requests": {"cpu": 0.5, "memory": "1024Mi"}, "limits": {"cpu": "1000m", "memory": 2**31}})
    assert pool.resources == {
        "requests": {"cpu": "500m", "memory": "1Gi"},
        "limits": {"cpu": "1", "memory": "2147483648"},
    }
    assert pool.to_object()["resources"] == {
        "limits": {"cpu": "1", "memory": "2147483648"},
        "requests": {"cpu": "500m", "memory": "1Gi"},
    }
    assert json.loads(json.dumps(pool.to_object()))["resources"] == pool.resources


def test_tolerations_lose_their_empty_fields() -> None:
    pool = parse(tolerations=[{"key": "gpu", "operator": "Exists", "value": "", "effect": ""}])
    assert pool.tolerations == ({"key": "gpu", "operator": "Exists"},)


def test_a_stored_pool_needs_no_image() -> None:
    pool = Pool("gpu", {"a": "b"}, selector=VmSelector(match_node_selector=True), unmatched="allow")
    assert restore_pool(json.loads(json.dumps(pool.to_object()))) == pool
    with pytest.raises(InputErrors, match="has no image"):
        read_dialect(OWN, [pool.to_object()])
    with pytest.raises(InputErrors, match="The stored pool is null; give a mapping"):
        restore_pool(None)


# There and back -----------------------------------------------------------------------------------------------------

words = st.text("abcdefghijklmnopqrstuvwxyz0123456789", min_size=1, max_size=8)
keys = st.one_of(words, st.builds("{}.example/{}".format, words, words))
values = st.one_of(st.just(""), words, st.builds("{}_{}.{}-Z".format, words, words, words))
labels = st.dictionaries(keys, values, min_size=1, max_size=3)
devices = st.lists(st.builds("{}.example/{}".format, words, words), min_size=1, max_size=3, unique=True)


def expressions(*operators: str) -> st.SearchStrategy[list[dict[str, t.Any]]]:
    """Requirements on keys of their own, so that they can be satisfied."""
    of = {
        "In": st.lists(values, min_size=1, max_size=3, unique=True),
        "NotIn": st.lists(values, min_size=1, max_size=3, unique=True),
        "Gt": st.integers(0, 2**62).map(lambda number: [str(number)]),
        "Lt": st.integers(1, 2**62).map(lambda number: [str(number)]),
    }

    def expression(operator: str) -> st.SearchStrategy[dict[str, t.Any]]:
        parts = {"key": words.map(lambda word: f"expr.{word}/x"), "operator": st.just(operator)}
        return st.fixed_dictionaries({**parts, "values": of[operator]} if operator in of else parts)

    one = st.sampled_from(operators).flatmap(expression)
    return st.lists(one, min_size=1, max_size=3, unique_by=lambda found: found["key"])


selectors = st.one_of(
    st.fixed_dictionaries(
        {"deviceNames": devices},
        optional={
            "vmLabels": st.one_of(
                st.fixed_dictionaries({"matchLabels": labels}),
                st.fixed_dictionaries({"matchExpressions": expressions("In", "NotIn", "Exists", "DoesNotExist")}),
            ),
            "matchNodeSelector": st.booleans(),
            "architectures": st.lists(st.sampled_from(("amd64", "arm64", "s390x")), min_size=1, unique=True),
            "namespaces": st.one_of(
                st.lists(words, min_size=1, max_size=3, unique=True),
                st.fixed_dictionaries({"matchLabels": labels}, optional={"names": st.just(["prod"])}),
            ),
        },
    ),
    st.fixed_dictionaries({"matchNodeSelector": st.just(True)}),
)
tolerations = st.lists(
    st.one_of(
        st.fixed_dictionaries({"key": keys, "operator": st.just("Exists")}),
        st.fixed_dictionaries({"key": keys}, optional={"value": values, "effect": st.just("NoSchedule")}),
        st.fixed_dictionaries({"key": keys, "effect": st.just("NoExecute"), "tolerationSeconds": st.integers(0, 99)}),
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda found: found["key"],
)
amounts = st.fixed_dictionaries(
    {}, optional={"cpu": st.sampled_from(("1000m", 2, 0.5)), "memory": st.sampled_from(("1024Mi", "1.5Gi", 2**30))}
).filter(bool)
raw_pools = st.fixed_dictionaries(
    {"name": words, "nodeSelector": labels, "virtHandlerImage": st.just("a.example:5000/b/c_d:v1@sha256:" + "0" * 64)},
    optional={
        "nodeExpressions": expressions("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"),
        "selector": selectors,
        "unmatched": st.sampled_from(("keep_off", "allow")),
        "activation": st.one_of(st.sampled_from(("first_node", "all_moved", "7%")), st.integers(1, 100)),
        "tolerations": tolerations,
        "imagePullSecrets": st.lists(words.map(lambda word: {"name": word}), min_size=1, unique_by=lambda s: s["name"]),
        "resources": st.fixed_dictionaries({}, optional={"requests": amounts, "limits": st.just({"cpu": "4"})}).filter(
            bool
        ),
    },
).filter(lambda raw: raw["name"] != "primary")


@given(raw_pools)
@settings(deadline=None, max_examples=200)
def test_there_and_back(raw: dict[str, t.Any]) -> None:
    (pool,) = read_dialect(OWN, [raw])
    written = pool.to_object()
    assert read_dialect(OWN, [json.loads(json.dumps(written))]) == (pool,)
    assert restore_pool(written) == pool
    assert json.dumps(restore_pool(written).to_object()) == json.dumps(written)
    assert restore_pool(json.loads(json.dumps(written, sort_keys=True))) == pool


junk = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.binary(max_size=3), st.dates()
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.one_of(st.sampled_from([*GPU, "key", "matchLabels", "names"]), st.integers()), inner, max_size=3
        ),
    ),
    max_leaves=10,
)


@given(st.dictionaries(st.sampled_from([*GPU, "tolerations", "resources", "nodeExpressions", "activation"]), junk))
@settings(deadline=None, max_examples=200)
def test_whatever_it_is_it_is_refused_in_words(changes: dict[str, object]) -> None:
    try:
        read_dialect(OWN, [{**GPU, **changes}])
    except InputErrors as refused:
        assert refused.messages  # noqa: PT017
        assert all(refused.messages)  # noqa: PT017
        "; ".join(refused.messages).encode()


REFUSED = "which is refused because a mistake looks the same; give at least one pool"

# What is wrong ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (None, "virtpools_pools is missing; give a list of pools."),
        ("gpu", 'virtpools_pools is "gpu"; give a list of pools.'),
        ({"gpu": GPU}, "virtpools_pools is a mapping; give a list of pools."),
        ([], f"virtpools_pools is an empty list, {REFUSED}."),
        (["gpu"], 'virtpools_pools[0] is "gpu"; give a mapping with name, nodeSelector and so on.'),
        ([None], "virtpools_pools[0] is null; give a mapping with name, nodeSelector and so on."),
        (
            [GPU, GPU],
            'virtpools_pools[1]: name is "gpu", as is that of virtpools_pools[0]; give every pool a name of its own.',
        ),
    ],
)
def test_the_list(raw: object, expected: str) -> None:
    assert problems(raw) == (expected,)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        # Fields
        ({"virtlauncherimage": "x"}, 'has an unknown field "virtlauncherimage"; perhaps you mean virtLauncherImage.'),
        ({"node_selector": {}}, "perhaps you mean nodeSelector."),
        ({"replicas": 1}, 'has an unknown field "replicas"; known here: name, nodeSelector, '),
        ({1: 2}, "has the key 1, which YAML does not read as text; put it in quotes."),
        (
            {"selector": {"devices": ["a.b/c"]}},
            'selector has an unknown field "devices"; perhaps you mean deviceNames.',
        ),
        ({"selector": "gpu"}, 'selector is "gpu"; give a mapping with deviceNames, '),
        ({"selector": {}}, "selector is empty; give at least one of deviceNames, vmLabels, "),
        ({"selector": {"vmLabels": {}}}, "selector.vmLabels is empty; give at least one of matchLabels, matchExp"),
        # Nodes
        ({"nodeSelector": None}, "nodeSelector is missing; a pool owns nodes: add a label that only they have."),
        ({"nodeSelector": {}}, "nodeSelector is an empty mapping; give at least one label with its value."),
        ({"nodeSelector": ["a"]}, "nodeSelector is a list; give a mapping."),
        ({"nodeSelector": {"gpu": True}}, "nodeSelector[gpu] is true, which YAML reads as true or false; put what you"),
        ({"nodeSelector": {"gpu": 1}}, "nodeSelector[gpu] is 1, which YAML reads as a number; put it in quotes."),
        ({"nodeSelector": {"gpu": 1.5}}, "nodeSelector[gpu] is 1.5, which YAML reads as a number; put it in quotes."),
        ({"nodeSelector": {"gpu": None}}, "nodeSelector[gpu] is null; give text."),
        ({"nodeSelector": {"gpu": "a b"}}, 'nodeSelector[gpu] is "a b", which is not made of letters, digits,'),
        ({"nodeSelector": {"a b": "c"}}, 'nodeSelector has the label "a b", which is not made of letters, digits,'),
        (
            {"nodeSelector": {True: "c"}},
            "nodeSelector has the key true, which YAML does not read as text; put it in qu",
        ),
        ({"nodeSelector": {"virtpools.io/pool": "gpu"}}, "nodeSelector asks for virtpools.io/pool, which this collec"),
        ({"nodeExpressions": []}, "nodeExpressions is an empty list; give at least one of the requirements, or leave"),
        ({"nodeExpressions": {}}, "nodeExpressions is an empty mapping; give a list of requirements."),
        ({"nodeExpressions": ["a"]}, 'nodeExpressions[0] is "a"; give a mapping with key, operator or values.'),
        ({"nodeExpressions": [{"key": "a"}]}, "nodeExpressions[0] has no operator; give one, as in {key: zone, op"),
        ({"nodeExpressions": [{"operator": "Exists"}]}, "nodeExpressions[0] has no key; give one"),
        (
            {"nodeExpressions": [{"key": "a", "operator": "in", "values": ["b"]}]},
            'nodeExpressions[0].operator is "in"; give In, NotIn, Exists, DoesNotExist, Gt or Lt; perhaps you mean In.',
        ),
        (
            {"nodeExpressions": [{"key": "a", "operator": "In"}]},
            "nodeExpressions[0].values is missing, the operator In",
        ),
        (
            {"nodeExpressions": [{"key": "a", "operator": "In", "values": []}]},
            "nodeExpressions[0].values is an empty li",
        ),
        (
            {"nodeExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]},
            "nodeExpressions[0].values is not allowed with the operator Exists;",
        ),
        (
            {"nodeExpressions": [{"key": "a", "operator": "Gt", "values": [5]}]},
            "nodeExpressions[0].values[0] is 5, which",
        ),
        (
            {"nodeExpressions": [{"key": "a", "operator": "Gt", "values": ["5", "6"]}]},
            "nodeExpressions[0].values must be exactly one integer in quotes with the operator Gt,",
        ),
        (
            {"nodeExpressions": [{"key": "a", "operator": "Lt", "values": ["six"]}]},
            "nodeExpressions[0].values must be exactly one integer in quotes with the operator Lt,",
        ),
        (
            {"nodeExpressions": [{"key": "a", "operator": "In", "values": ["b", "b"]}]},
            "nodeExpressions[0].values[1] repeats nodeExpressions[0].values[0]; keep one of them.",
        ),
        (
            {"nodeExpressions": [{"key": "virtpools.io/pool", "operator": "Exists"}]},
            "nodeExpressions[0] asks for virtpools.io/pool, which this collection sets itself;",
        ),
        (
            {"nodeExpressions": [{"key": "accelerator", "operator": "NotIn", "values": ["nvidia"]}]},
            "Pool gpu can have no node because its nodeSelector and nodeExpressions contradict each other; change one of them.",
        ),
        # VMs
        (
            {"selector": None},
            "virtLauncherImage is set but selector is missing: no VM would get it; specify in selector wh",
        ),
        ({"selector": {"namespaces": ["prod"]}}, "selector selects no VM; give at least one of deviceNames, vmLabels."),
        ({"selector": {"matchNodeSelector": False}}, "selector selects no VM; give at least one of deviceNames,"),
        (
            {"selector": {"matchNodeSelector": "yes"}},
            'selector.matchNodeSelector is "yes"; give true or false, without',
        ),
        (
            {"selector": {"deviceNames": []}},
            "selector.deviceNames is an empty list; give at least one of the device na",
        ),
        ({"selector": {"deviceNames": "a.b/c"}}, 'selector.deviceNames is "a.b/c"; give a list of device names.'),
        ({"selector": {"deviceNames": [""]}}, 'selector.deviceNames[0] is "", which has no vendor\'s domain,'),
        ({"selector": {"deviceNames": ["A100"]}}, 'selector.deviceNames[0] is "A100", which has no vendor\'s domain,'),
        (
            {"selector": {"deviceNames": ["a.b/c", "a.b/d", "a.b/c"]}},
            "selector.deviceNames[2] repeats selector.deviceNames[0]; keep one of them.",
        ),
        (
            {"selector": {"vmLabels": {"matchLabels": {"a": True}}}},
            "selector.vmLabels.matchLabels[a] is true, which YA",
        ),
        (
            {"selector": {"vmLabels": {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["5"]}]}}},
            'selector.vmLabels.matchExpressions[0].operator is "Gt"; give In, NotIn, Exists or DoesNotExist.',
        ),
        (
            {
                "selector": {
                    "vmLabels": {
                        "matchLabels": {"a": "b"},
                        "matchExpressions": [{"key": "a", "operator": "DoesNotExist"}],
                    }
                }
            },
            "selector.vmLabels.matchExpressions can match no VM because",
        ),
        ({"selector": {"architectures": ["x86_64"]}}, '"x86_64", which Kubernetes calls amd64; write amd64.'),
        (
            {"selector": {"architectures": ["AMD64"]}},
            '"AMD64", which is not an architecture like amd64, arm64 or s390x.',
        ),
        ({"selector": {"architectures": ["arm64"], "namespaces": {}}}, "selector.namespaces is an empty mapping; give"),
        (
            {"selector": {"architectures": ["arm64"], "namespaces": ["A"]}},
            'selector.namespaces[0] is "A", which is not',
        ),
        (
            {"selector": {"architectures": ["arm64"], "namespaces": {"names": [], "labels": {}}}},
            'selector.namespaces has an unknown field "labels"; perhaps you mean matchLabels.',
        ),
        ({"unmatched": "keep-off"}, 'unmatched is "keep-off"; give keep_off or allow; perhaps you mean keep_off.'),
        ({"unmatched": True}, "unmatched is true; give keep_off or allow."),
        # Activation
        ({"activation": 0}, "activation is 0; give first_node, all_moved, or a percentage from 1% to 100%."),
        ({"activation": "101%"}, 'activation is "101%"; give first_node,'),
        ({"activation": "000%"}, 'activation is "000%"; give first_node,'),
        ({"activation": "0050%"}, 'activation is "0050%"; give first_node,'),
        ({"activation": True}, "activation is true; give first_node,"),
        ({"activation": 0.5}, "activation is 0.5; give first_node,"),
        ({"activation": "all"}, 'activation is "all"; give first_node, all_moved, or a percentage'),
        ({"activation": "firstNode"}, "perhaps you mean first_node."),
        # Pods
        ({"tolerations": {}}, "tolerations is an empty mapping; give a list of tolerations."),
        ({"tolerations": [{}]}, "tolerations[0] has no key; give the key of the taint, or operator: Exists alone"),
        ({"tolerations": [{"key": "a b"}]}, 'tolerations[0].key is "a b", which is not made of'),
        ({"tolerations": [{"key": "a", "operator": "Gt"}]}, 'tolerations[0].operator is "Gt"; give Exists or Equal.'),
        (
            {"tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]},
            "tolerations[0].value is not allowed with the operator Exists; remove it, or use Equal.",
        ),
        (
            {"tolerations": [{"key": "a", "value": True}]},
            "tolerations[0].value is true, which YAML reads as true or fal",
        ),
        ({"tolerations": [{"key": "a", "effect": "NoScedule"}]}, "; perhaps you mean NoSchedule."),
        (
            {"tolerations": [{"key": "a", "effect": "NoSchedule", "tolerationSeconds": 5}]},
            "tolerations[0].tolerationSeconds is only for effect: NoExecute; remove it, or set that effect.",
        ),
        (
            {"tolerations": [{"key": "a", "effect": "NoExecute", "tolerationSeconds": "5"}]},
            'tolerations[0].tolerationSeconds is "5"; give a whole number of seconds, without quotes.',
        ),
        ({"tolerations": [{"key": "a"}, {"key": "a", "value": ""}]}, "tolerations[1] repeats tolerations[0];"),
        ({"imagePullSecrets": ["regcred"]}, 'imagePullSecrets[0] is "regcred"; write it as {name: regcred}.'),
        ({"imagePullSecrets": [{}]}, "imagePullSecrets[0] has no name; give that of a Secret."),
        ({"imagePullSecrets": [{"name": "A"}]}, 'imagePullSecrets[0].name is "A", which is not a DNS name'),
        (
            {"virtLauncherPullSecrets": [{"name": "a"}], "virtLauncherImage": None},
            "virtLauncherPullSecrets is set but virtLauncherImage is missing: launcher pods would pull nothing with it;",
        ),
        (
            {"hypervisor": "mshv"},
            'hypervisor is "mshv"; give kvm or hyperv-direct.',
        ),
        (
            {"hypervisor": "hyperv_direct"},
            'hypervisor is "hyperv_direct"; give kvm or hyperv-direct; perhaps you mean hyperv-direct.',
        ),
        (
            {"hypervisor": "kvm", "selector": None, "virtLauncherImage": None},
            "hypervisor is set but selector is missing: no VM would get it;",
        ),
        ({"resources": {}}, "resources is an empty mapping; give requests, limits or both."),
        ({"resources": {"cpu": 1}}, 'resources has an unknown field "cpu"; known here: requests, limits.'),
        (
            {"resources": {"limits": {"gpu": 1}}},
            'resources.limits has an unknown field "gpu"; known here: cpu, memory,',
        ),
        (
            {"resources": {"limits": {"cpu": "1 core"}}},
            'resources.limits.cpu is "1 core", which is not a quantity; give',
        ),
        ({"resources": {"limits": {"cpu": float("nan")}}}, "resources.limits.cpu is nan, which is not a quantity;"),
        ({"resources": {"limits": {"cpu": -1}}}, "resources.limits.cpu is -1, which is not a quantity;"),
        ({"resources": {"limits": {"cpu": True}}}, "resources.limits.cpu is true, which is not a quantity;"),
        (
            {"resources": {"requests": {"memory": "1Gi"}, "limits": {"memory": "1G"}}},
            "resources.requests.memory is 1Gi, more than the limit 1G; raise the limit or lower the request.",
        ),
        # Images
        ({"virtHandlerImage": ""}, 'virtHandlerImage is "", which is empty; name an image, or leave the field out.'),
        ({"virtHandlerImage": 5}, "virtHandlerImage is 5, which YAML reads as a number; put it in quotes."),
        ({"virtLauncherImage": "a b"}, 'virtLauncherImage is "a b", which has white space; remove it.'),
    ],
)
def test_one_problem(changes: dict[t.Any, t.Any], expected: str) -> None:
    messages = (
        problems_with(**{str(k): v for k, v in changes.items()}) if "1" in changes else problems([{**GPU, **changes}])
    )
    assert any(expected in message for message in messages), messages
    assert all(message.startswith("Pool gpu") for message in messages), messages
    assert len(messages) <= 2, messages


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (None, "virtpools_pools[0]: name is missing; give the pool a name of its own, such as gpu."),
        (7, "virtpools_pools[0]: name is 7, which YAML reads as a number; put it in quotes."),
        ("", 'virtpools_pools[0]: name is "", which is empty.'),
        (
            "GPU",
            "virtpools_pools[0]: name is \"GPU\", which is not made of lower case letters, digits and '-' with a letter or",
        ),
        ("in_transit", 'virtpools_pools[0]: name is "in_transit", which is not made of lower case letters'),
        ("a.b", 'virtpools_pools[0]: name is "a.b", which is not made of'),
        ("gpu-", 'virtpools_pools[0]: name is "gpu-", which is not made of'),
        (
            "primary",
            'virtpools_pools[0]: name is "primary", which is the name of the stock virt-handler; choose another name',
        ),
        ("a" * 49, "which has 49 characters, at most 48 are allowed."),
    ],
)
def test_names(name: object, expected: str) -> None:
    (message,) = problems_with(name=name)
    assert expected in message


def test_a_name_of_48_characters() -> None:
    assert parse(name="a" * 48).name == "a" * 48


def test_at_least_one_image() -> None:
    assert problems_with(virtHandlerImage=None, virtLauncherImage=None) == (
        "Pool gpu has no image; give virtHandlerImage or virtLauncherImage.",
    )


@pytest.mark.parametrize(
    "image",
    [
        "virt-handler",
        "kubevirt/virt-handler",
        "stock.example/kubevirt/virt-handler:v1.9.0",
        "localhost/a:b",
        "localhost:5000/a",
        "registry.example:5000/a/b_c/d__e/f--g.h:V1.2_x-y",
        "a@sha256:" + "0123456789abcdef" * 4,
        "a.example/b:tag@sha256:" + "0" * 64,
        "[2001:db8::1]:5000/a",
        "10.0.0.1:5000/a",
        "Registry.example/a",
    ],
)
def test_images(image: str) -> None:
    assert image_problem(image) is None


@pytest.mark.parametrize(
    ("image", "problem"),
    [
        ("", "is empty"),
        ("a b", "white space"),
        ("a:b\n", "white space"),
        ("https://a.example/b", "is a URL; leave out what ends in ://"),
        ("a.example/B", 'has the path "B"'),
        ("a.example//b", "has the path"),
        ("a.example/b/", "has the path"),
        ("/a", "has the path"),
        ("A", "has the path"),
        ("a:", "no valid tag"),
        ("a:b:c", "no valid tag"),
        ("a:-b", "no valid tag"),
        ("a:" + "b" * 129, "no valid tag"),
        ("a@sha256:123", "no digest"),
        ("a@", "no digest"),
        ("a_b.example/c", 'begins with "a_b.example"'),
        ("a.example:port/c", 'begins with "a.example:port"'),
        ("a" * 513, "513 characters"),
        ("{{ image }}", "white space"),
        ("${IMAGE}", "has the path"),
    ],
)
def test_what_is_no_image(image: str, problem: str) -> None:
    assert problem in (image_problem(image) or "")


def test_all_problems_at_once() -> None:
    messages = problems([{"name": "a"}, {**GPU, "nodeSelector": {"a": 1, "b": 2}, "activation": 0}, 5, {**GPU}])
    assert messages == (
        "Pool a: nodeSelector is missing; a pool owns nodes: add a label that only they have.",
        "Pool a has no image; give virtHandlerImage or virtLauncherImage.",
        "Pool gpu: nodeSelector[a] is 1, which YAML reads as a number; put it in quotes.",
        "Pool gpu: nodeSelector[b] is 2, which YAML reads as a number; put it in quotes.",
        "Pool gpu: activation is 0; give first_node, all_moved, or a percentage from 1% to 100%.",
        "virtpools_pools[2] is 5; give a mapping with name, nodeSelector and so on.",
        'virtpools_pools[3]: name is "gpu", as is that of virtpools_pools[1]; give every pool a name of its own.',
    )


# Hostile input ------------------------------------------------------------------------------------------------------


def deep(levels: int) -> list[t.Any]:
    nested: list[t.Any] = []
    for _ in range(levels):
        nested = [nested]
    return nested


def cyclic() -> dict[str, t.Any]:
    loop: dict[str, t.Any] = {"name": "loop", "nodeSelector": {"a": "b"}}
    loop["selector"] = {"vmLabels": {"matchLabels": loop, "matchExpressions": [loop]}, "namespaces": loop}
    loop["tolerations"] = loop["resources"] = [loop]
    return loop


@pytest.mark.parametrize(
    "raw",
    [
        deep(100_000),
        [deep(100_000)],
        [{**GPU, "nodeSelector": {"a": deep(100_000)}, "tolerations": deep(100_000)}],
        [cyclic()],
        [{**GPU, "name": "a" * 10_000_000}],
        [{**GPU, "a" * 10_000_000: 1}],
        [{**GPU, "nodeSelector": {"a" * 10_000_000: "b" * 10_000_000}}],
        [{**GPU, "virtHandlerImage": "a" * 10_000_000}],
        [{**GPU, "virtHandlerImage": "a/" * 200 + " "}],
        [{**GPU, "activation": 10**10_000}],
        [{**GPU, "resources": {"limits": {"cpu": "1e999999999", "memory": "9" * 10_000_000}}}],
        [{**GPU, "nodeExpressions": [{"key": "a", "operator": "Gt", "values": ["9" * 10_000_000]}]}],
        [{**GPU, float("nan"): 1, None: 2, (1, 2): 3}],
        [{**GPU, "nodeSelector": {"a": "\ud800"}}],
        [{**GPU, "selector": {"deviceNames": ["a.b/c"] * 100_000}}],
        [{}] * 20_000,
    ],
    ids=range(16),
)
def test_hostile_input_is_refused_at_once(raw: object) -> None:
    start = time.process_time()
    messages = problems(raw)
    assert time.process_time() - start < 2
    assert len("".join(messages).encode()) < 20_000


def test_most_problems_shown() -> None:
    messages = problems([{**GPU, "name": f"p{index}", "activation": 0} for index in range(60)])
    assert len(messages) == 51
    assert messages[-1] == "And 10 more."


def test_a_thousand_pools() -> None:
    start = time.process_time()
    pools = read_dialect(OWN, [{**GPU, "name": f"p{index}"} for index in range(1000)])
    assert len(pools) == 1000
    assert time.process_time() - start < 2
