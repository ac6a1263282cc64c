# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.writing import former_template
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kubevirt import daemonsets
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders
from ansible_collections.virtpools.kubevirt.tests.unit.support.fake_cluster import World

NAME = "virt-handler-gpu"
SETS = [
    builders.pool_daemonset(builders.pool("gpu", virtHandlerImage=f"registry.example/virt-handler:v1.9.0-{tag}"))
    for tag in ("a", "b", "c")
]
A, B, C = map(daemonsets.template_of, SETS)


@pytest.fixture
def world():
    """A pool that had three templates, one after the other."""
    made = World(builders.primary(), SETS[0])
    for each in SETS:
        live = made.find(kinds.DAEMON_SET, NAME, builders.NAMESPACE)
        made.put({**live, "spec": each["spec"]})
        made.sleep(1)
    for revision in made.all(kinds.CONTROLLER_REVISION):
        revision["revision"] += 8  # the newest two are 10 and 11
    made.writes.clear()
    return made


def restore(world, unwanted, former):
    return former_template.restore(world.client(), builders.NAMESPACE, NAME, unwanted, former)


def live(world):
    return world.find(kinds.DAEMON_SET, NAME, builders.NAMESPACE)


@pytest.mark.parametrize(("former", "brought"), [(A, A), (B, B), (None, B)])
def test_brings_the_template_that_is_named_or_else_the_newest(world, former, brought):
    assert restore(world, C, former) == brought
    assert daemonsets.template_of(live(world)) == brought
    assert live(world)["spec"]["template"] in [each["spec"]["template"] for each in SETS]


def test_changes_nothing_else(world):
    before = live(world)["spec"]
    restore(world, C, A)
    assert {**live(world)["spec"], "template": None} == {**before, "template": None}


def test_another_template_that_comes_at_that_moment_stays(world):
    def meddle(request):
        if request.method == "PUT" and daemonsets.template_of(live(world)) == C:
            world.put({**live(world), "spec": SETS[1]["spec"]})

    world.before = meddle
    assert restore(world, C, A) == B
    assert daemonsets.template_of(live(world)) == B


@pytest.mark.parametrize("former", [B, "0" * 12], ids=["known", "unknown"])
def test_another_template_is_not_overwritten(world, former):
    assert restore(world, A, former) == C
    assert world.writes == []


def test_an_unknown_one_is_no_template(world):
    assert restore(world, C, "0" * 12) is None
    assert world.writes == []


def test_revisions_of_another_daemonset_are_not_used(world):
    """Such as one that was deleted just now, before its revisions are."""
    again = {**live(world), "metadata": {**live(world)["metadata"], "uid": "another"}}
    world.put(again)
    orphan = copy.deepcopy(world.all(kinds.CONTROLLER_REVISION)[0])
    del orphan["metadata"]["ownerReferences"]
    world.put(orphan)
    assert restore(world, C, None) is None
