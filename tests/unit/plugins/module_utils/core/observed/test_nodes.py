# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.observed.nodes import Node
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders


class TestNode:
    def test_without_the_label_belongs_to_the_primary(self):
        assert Node.from_object(builders.node()).owner == names.PRIMARY

    @pytest.mark.parametrize("owner", ["gpu", names.IN_TRANSIT])
    def test_belongs_to_whom_its_label_names(self, owner):
        assert Node.from_object(builders.node(owner=owner)).owner == owner

    @pytest.mark.parametrize("value", ["", "primary"])
    def test_with_a_label_of_no_pool_does_not_belong_to_the_primary(self, value):
        """The exclusion keeps the primary off every node with the label, whatever its value."""
        assert Node.from_object(builders.node(owner=value)).owner == f"'{value}'"

    def test_tells_what_a_handover_needs(self):
        found = Node.from_object(
            builders.node(
                former="gpu", heartbeat="t7", schedulable=False, taints=[{"key": "a", "effect": "NoSchedule"}]
            )
        )
        assert (found.former_owner, found.heartbeat, found.schedulable) == ("gpu", "t7", False)
        assert found.taints == ({"key": "a", "effect": "NoSchedule"},)

    def test_ready_is_a_condition_that_is_true(self):
        assert Node.from_object(builders.node()).ready
        assert not Node.from_object(builders.node(ready=False)).ready
        assert not Node.from_object({"metadata": {"name": "n"}}).ready

    def test_as_bare_as_the_api_allows(self):
        found = Node.from_object(
            {"metadata": {"name": "n", "labels": None, "annotations": None}, "spec": {}, "status": {}}
        )
        assert (found.owner, found.former_owner, found.heartbeat) == (names.PRIMARY, None, None)
        assert (found.images, found.taints, found.schedulable) == (frozenset(), (), False)

    @pytest.mark.parametrize(("key", "cordoned"), [("node.kubernetes.io/unschedulable", True), ("other", False)])
    def test_is_cordoned_by_one_of_its_taints(self, key, cordoned):
        taints = [{"key": found, "effect": "NoSchedule"} for found in ("a", key, "b")]
        assert Node.from_object(builders.node(taints=taints)).cordoned is cordoned

    @pytest.mark.parametrize(
        ("owner", "former", "unfinished"),
        [(None, None, False), ("gpu", None, False), ("gpu", "gpu", True), (names.IN_TRANSIT, None, True)],
    )
    def test_is_unfinished_until_the_new_handler_is_proven(self, owner, former, unfinished):
        assert Node.from_object(builders.node("n1", owner, former)).unfinished is unfinished

    def test_counts_devices_however_they_are_written(self):
        node = builders.node("n1")
        node["status"]["allocatable"] = {
            "a.example/gpu": "4",
            "b.example/kvm": "1k",
            "cpu": "8",
            "c.example/odd": "many",
        }
        assert Node.from_object(node).devices == {"a.example/gpu": 4, "b.example/kvm": 1000}

    def test_knows_images_by_all_their_names(self):
        obj = builders.node()
        obj["status"]["images"] = [{"names": ["a:1", "a@sha256:0"]}, {"sizeBytes": 1}, {"names": None}]
        assert Node.from_object(obj).images == {"a:1", "a@sha256:0"}
