# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.admission import node_policy
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders
from ansible_collections.virtpools.kubevirt.tests.unit.support.admission import NodeAdmission

POLICY, BINDING = kinds.MUTATING_ADMISSION_POLICIES[0], kinds.MUTATING_ADMISSION_POLICY_BINDINGS[0]
GPU = builders.pool("gpu")
WANTED = {"pools": [builders.RAW_POOL | {"virtHandlerImage": GPU.virt_handler_image}], "assign_new_nodes": True}
CREATED = [f"{kind} {names.NODE_POLICY}: create" for kind in (POLICY, BINDING)]


def live(world, name=names.NODE_POLICY):
    return [world.find(kind, name) for kind in (POLICY, BINDING)]


@pytest.fixture
def written(excluded):
    for _kind, obj in node_policy.derive([GPU], POLICY):
        excluded.put(copy.deepcopy(obj))
    return excluded


@pytest.fixture
def acting(world):
    NodeAdmission(world, WANTED["pools"])
    return world


def test_in_check_mode_says_what_it_would_write(run, excluded):
    found = run("run_part", part="node_policy", check=True, **WANTED)
    assert (found["changed"], found["changes"]) == (True, CREATED)
    assert excluded.writes == []


def test_is_written_once_it_was_tried(run, excluded, acting):
    found = run("run_part", part="node_policy", **WANTED)
    assert found["changes"] == CREATED
    assert None not in live(excluded)
    assert live(excluded, names.CANDIDATE_NODE_POLICY) == [None, None]
    assert run("run_part", part="node_policy", **WANTED)["changed"] is False


def test_one_that_does_nothing_is_not_put_live(run, excluded):
    message = run.failure("run_part", part="node_policy", **WANTED)
    assert "virtpools-nodes was not activated" in message
    assert "does not act on new nodes" in message
    assert live(excluded) == live(excluded, names.CANDIDATE_NODE_POLICY) == [None, None]


def test_is_deleted_when_it_is_no_longer_asked_for(run, written):
    found = run("run_part", part="node_policy", **{**WANTED, "assign_new_nodes": False})
    assert found["changes"] == [f"{kind} {names.NODE_POLICY}: delete" for kind in (BINDING, POLICY)]
    assert live(written) == [None, None]
