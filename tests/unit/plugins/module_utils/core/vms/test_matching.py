# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import random

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools.criteria import PodAttributes
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools.dialects import OWN, read_dialect
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms import matching
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms.mapping import Table
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders, launcher_cases

DEVICES = {"deviceNames": ["example.com/a", "example.com/b"]}
LABELS = {
    "vmLabels": {
        "matchLabels": {"class": "rt"},
        "matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["test"]}],
    }
}


def attributes(**fields):
    return PodAttributes("team", **fields)


@pytest.mark.parametrize(
    ("selector", "vm", "matches"),
    [
        (DEVICES, attributes(devices=frozenset({"cpu", "example.com/b"})), True),
        (DEVICES, attributes(devices=frozenset({"cpu"})), False),
        (LABELS, attributes(labels={"class": "rt"}), True),
        (LABELS, attributes(labels={"class": "rt", "tier": "test"}), False),
        (LABELS, attributes(labels={"tier": "prod"}), False),
        ({"architectures": ["arm64"]}, attributes(node_selector={"kubernetes.io/arch": "arm64"}), True),
        ({"architectures": ["arm64"]}, attributes(), False),
        ({"matchNodeSelector": True}, attributes(node_selector={"hw": "gpu", "zone": "a"}), True),
        ({"matchNodeSelector": True}, attributes(node_selector={"hw": "other"}), False),
        ({**DEVICES, **LABELS}, attributes(labels={"class": "rt"}), True),
        ({**DEVICES, "namespaces": ["team"]}, attributes(devices=frozenset({"example.com/a"})), True),
        ({**DEVICES, "namespaces": ["other"]}, attributes(devices=frozenset({"example.com/a"})), False),
        (
            {**DEVICES, "namespaces": {"names": ["other"], "matchLabels": {"gpu": "yes"}}},
            attributes(devices=frozenset({"example.com/a"}), namespace_labels={"gpu": "yes"}),
            True,
        ),
    ],
)
def test_any_criterion_is_enough_within_the_namespaces(selector, vm, matches):
    pool = builders.pool(selector=selector)
    assert matching.matches(pool, vm) is matches
    inside = matching.namespace_criterion(pool, vm)
    explained = any(criterion.met for criterion in matching.criteria(pool, vm)) and (inside is None or inside.met)
    assert explained is matches


def test_a_pool_without_selector_takes_no_vm():
    assert not matching.matches(builders.pool(), attributes())
    assert matching.criteria(builders.pool(), attributes()) == ()


def test_the_first_pool_that_matches_wins():
    pools = [builders.pool(name, selector=DEVICES) for name in ("z", "a")]
    found = matching.winner(Table.for_pools(pools), attributes(devices=frozenset({"example.com/a"})))
    assert found == Table.for_pools(pools).rules[0]


def test_what_a_pod_asks_for():
    pod = {
        "metadata": {"name": "p", "namespace": "team", "labels": {"class": "rt"}},
        "spec": {
            "nodeSelector": {"zone": "a"},
            "containers": [
                {"name": "hook-sidecar-0", "resources": {"limits": {"example.com/b": "1"}}},
                {"name": "compute", "resources": {"limits": {"example.com/a": "2"}}},
            ],
        },
    }
    wanted = PodAttributes("team", {"env": "x"}, {"class": "rt"}, {"zone": "a"}, frozenset({"example.com/a"}))
    assert PodAttributes.from_pod(pod, {"env": "x"}) == wanted


def test_criteria_say_what_was_wanted_and_found():
    pool = builders.pool(selector={**DEVICES, **LABELS, "matchNodeSelector": True, "architectures": ["arm64"]})
    found = matching.criteria(pool, attributes(labels={"class": "db"}))
    assert [criterion.to_dict() for criterion in found] == [
        {
            "field": "selector.deviceNames",
            "met": False,
            "wanted": "one of example.com/a, example.com/b",
            "found": "none of them in the limits of compute",
        },
        {
            "field": "selector.vmLabels",
            "met": False,
            "wanted": "class=rt, tier not in (test)",
            "found": "class=db, no tier",
        },
        {"field": "selector.matchNodeSelector", "met": False, "wanted": "nodeSelector with hw=gpu", "found": "no hw"},
        {"field": "selector.architectures", "met": False, "wanted": "one of arm64", "found": "no architecture"},
    ]


@pytest.mark.parametrize(("named", "image"), [("gpu", "new"), ("other", "old"), ("primary", "old"), ("", "old")])
def test_a_canary_of_the_pool_that_wins_gets_the_new_image(named, image):
    pools = [builders.pool("gpu", virtLauncherImage="old", selector=DEVICES)]
    table = Table.for_pools(pools, canaries={"gpu": "new"})
    vm = attributes(devices=frozenset({"example.com/a"}), labels={"virtpools.io/canary": named})
    assert matching.winner(table, vm).virt_launcher_image == image
    assert matching.is_canary(table, table.rules[0], vm) is (named == "gpu")
    assert matching.winner(Table.for_pools(pools), vm).virt_launcher_image == "old"
    assert matching.winner(table, attributes(labels={"virtpools.io/canary": named})) is None


def test_no_rule_that_matches_is_left_unasked():
    rng = random.Random(11)
    matched = 0
    for number in range(400):
        pod = launcher_cases.random_pod(rng, f"p{number}")
        vm = PodAttributes.from_pod(pod, launcher_cases.NAMESPACES[pod["metadata"]["namespace"]])
        table = Table.for_pools(read_dialect(OWN, launcher_cases.random_pools(rng)))
        asked = [rule.name for rule in table.candidates(vm)]
        expected = [rule.name for rule in table.rules if matching.matches(rule, vm)]
        assert [name for name in asked if name in expected] == expected
        matched += bool(expected)
    assert matched > 100


def test_rules_are_asked_only_about_vms_that_could_match():
    rules = [
        builders.pool(f"p{number}", selector={"deviceNames": [f"example.com/{number}"], "architectures": ["arm64"]})
        for number in range(50)
    ]
    unlike = builders.pool(
        "unlike", selector={"vmLabels": {"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]}}
    )
    table = Table.for_pools([*rules, unlike])
    found = table.candidates(attributes(devices=frozenset({"cpu", "example.com/7"}), labels={"x": "y"}))
    assert [rule.name for rule in found] == ["p7", "unlike"]
