# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.writing import leftovers
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders
from ansible_collections.virtpools.kubevirt.tests.unit.support.fake_cluster import World

GPU = builders.pool("gpu")


def cluster(*more):
    nodes = [builders.node("n1", "gpu"), builders.node("n2")]
    return World(kinds.NAMESPACE.object(builders.NAMESPACE), builders.pool_daemonset(GPU), *nodes, *more)


def find(world, namespace=None):
    return leftovers.find(world.client(), namespace)


@pytest.mark.parametrize(("objects", "has"), [((), False), ((builders.kubevirt(),), True)])
def test_a_cluster_has_kubevirt_if_its_object_exists(objects, has):
    assert leftovers.has_kubevirt(World(*objects).client()) == has


def test_nothing_is_left_on_an_empty_cluster():
    found = find(World())
    assert (found.lines, found.namespace, found.locked) == ((), "kubevirt", False)


def test_daemonsets_and_owners_of_nodes_are_left():
    found = find(cluster())
    assert found.lines == ("DaemonSet kubevirt/virt-handler-gpu: delete", "Node n1: forget its owner gpu")
    assert found.locked


def test_the_namespace_is_that_of_our_daemonsets_unless_given():
    daemonset = builders.pool_daemonset(GPU)
    daemonset["metadata"]["namespace"] = "elsewhere"
    world = World(daemonset)
    assert find(world).namespace == "elsewhere"
    assert find(world, "given").namespace == "given"


def test_no_run_can_lock_a_namespace_that_is_being_deleted():
    world = cluster()
    world.find(kinds.NAMESPACE, builders.NAMESPACE)["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert not find(world).locked


def test_after_the_deletion_nothing_is_left():
    world = cluster()
    leftovers.delete(world.client(), find(world), 30, world.clock())
    assert find(world).lines == ()
    assert names.OWNER_LABEL not in world.find(kinds.NODE, "n1")["metadata"]["labels"]


def test_a_node_that_is_deleted_before_its_turn_is_left_out():
    world = cluster(builders.node("n0", "gpu"))

    def delete_node(request):
        if request.method == "PATCH" and request.path.endswith("/nodes/n0"):
            world.drop(kinds.NODE, "n0")

    world.before = delete_node
    leftovers.delete(world.client(), find(world), 30, world.clock())
    assert find(world).lines == ()
