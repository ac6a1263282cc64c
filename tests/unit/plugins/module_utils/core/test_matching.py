# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import matching
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.mapping import Table
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.matching import Asked
from ansible_collections.virtpools.kubevirt.tests.unit import builders

DEVICES = {"deviceNames": ["example.com/a", "example.com/b"]}
LABELS = {
    "vmLabels": {
        "matchLabels": {"class": "rt"},
        "matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["test"]}],
    }
}


def asked(**fields):
    return Asked("team", **fields)


@pytest.mark.parametrize(
    ("selector", "vm", "matches"),
    [
        (DEVICES, asked(devices=frozenset({"cpu", "example.com/b"})), True),
        (DEVICES, asked(devices=frozenset({"cpu"})), False),
        (LABELS, asked(labels={"class": "rt"}), True),
        (LABELS, asked(labels={"class": "rt", "tier": "test"}), False),
        (LABELS, asked(labels={"tier": "prod"}), False),
        ({"architectures": ["arm64"]}, asked(node_selector={"kubernetes.io/arch": "arm64"}), True),
        ({"architectures": ["arm64"]}, asked(), False),
        ({"matchNodeSelector": True}, asked(node_selector={"hw": "gpu", "zone": "a"}), True),
        ({"matchNodeSelector": True}, asked(node_selector={"hw": "other"}), False),
        ({**DEVICES, **LABELS}, asked(labels={"class": "rt"}), True),
        ({**DEVICES, "namespaces": ["team"]}, asked(devices=frozenset({"example.com/a"})), True),
        ({**DEVICES, "namespaces": ["other"]}, asked(devices=frozenset({"example.com/a"})), False),
        (
            {**DEVICES, "namespaces": {"names": ["other"], "matchLabels": {"gpu": "yes"}}},
            asked(devices=frozenset({"example.com/a"}), namespace_labels={"gpu": "yes"}),
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
    assert not matching.matches(builders.pool(), asked())
    assert matching.criteria(builders.pool(), asked()) == ()


def test_the_first_pool_that_matches_wins():
    pools = [builders.pool(name, selector=DEVICES) for name in ("z", "a")]
    found = matching.winner(Table.of(pools), asked(devices=frozenset({"example.com/a"})))
    assert found == Table.of(pools).rules[0]


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
    wanted = Asked("team", {"env": "x"}, {"class": "rt"}, {"zone": "a"}, frozenset({"example.com/a"}))
    assert Asked.of_pod(pod, {"env": "x"}) == wanted


def test_criteria_say_what_was_wanted_and_found():
    pool = builders.pool(selector={**DEVICES, **LABELS, "matchNodeSelector": True, "architectures": ["arm64"]})
    found = matching.criteria(pool, asked(labels={"class": "db"}))
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
    table = Table.of(pools, canaries={"gpu": "new"})
    vm = asked(devices=frozenset({"example.com/a"}), labels={"virtpools.io/canary": named})
    assert matching.winner(table, vm).virt_launcher_image == image
    assert matching.is_canary(table, table.rules[0], vm) is (named == "gpu")
    assert matching.winner(Table.of(pools), vm).virt_launcher_image == "old"
    assert matching.winner(table, asked(labels={"virtpools.io/canary": named})) is None
