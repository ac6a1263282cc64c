# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.client import ClusterError, Conflict
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.writing import node_owner
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.observed.nodes import Node
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders
from ansible_collections.virtpools.kubevirt.tests.unit.support.fake_cluster import LOST, ApiServer

GPU = builders.pool("gpu")


def no_sleep(seconds):
    """Retries do not wait in these tests."""


class TestOwner:
    def write(self, obj, owner, former, server=None):
        server = server or ApiServer(obj)
        found = Node.from_object(
            node_owner.write_owner(server.client(sleep=no_sleep), obj, Node.from_object(obj).owner, owner, former)
        )
        live = Node.from_object(server.find(kinds.NODE, "n1"))
        assert (found.owner, found.former_owner) == (live.owner, live.former_owner) == (owner, former)
        return server

    @pytest.mark.parametrize("owner", ["gpu", names.IN_TRANSIT, names.PRIMARY])
    @pytest.mark.parametrize("former", ["gpu", "primary", None])
    @pytest.mark.parametrize("present", [None, "fpga"])
    def test_is_written_together_with_the_former_one(self, owner, former, present):
        server = self.write(builders.node("n1", present, present), owner, former)
        assert len(server.writes) <= 1

    def test_on_a_node_without_annotations(self):
        server = self.write(builders.node(heartbeat=None), names.IN_TRANSIT, "primary")
        self.write(server.find(kinds.NODE, "n1"), "gpu", None, server)
        assert "annotations" not in server.find(kinds.NODE, "n1")["metadata"]

    def test_on_a_node_without_labels(self):
        node = builders.node()
        del node["metadata"]["labels"]
        self.write(node, "gpu", "primary")

    def test_leaves_everything_else(self):
        before = builders.node(labels={"a/b~c": "1"})
        server = self.write(before, "gpu", "primary")
        live = server.find(kinds.NODE, "n1")
        del live["metadata"]["labels"][names.OWNER_LABEL]
        del live["metadata"]["annotations"][names.FORMER_OWNER_ANNOTATION]
        assert live["metadata"]["labels"] == before["metadata"]["labels"]
        assert live["metadata"]["annotations"] == before["metadata"]["annotations"]

    def test_that_is_so_already_is_not_written(self):
        assert self.write(builders.node("n1", "gpu"), "gpu", None).writes == []

    @pytest.mark.parametrize("present", [None, names.IN_TRANSIT])
    def test_comes_with_the_labels_by_which_vms_stay(self, present):
        """Also where another client has written the owner alone."""
        server = ApiServer(builders.node("n1", present, "primary", {"until.virtpools.io/fpga": "3"}))
        until = {"until.virtpools.io/primary": "7", "until.virtpools.io/fpga": None}
        seen = builders.node("n1")
        node_owner.write_owner(server.client(), seen, present or "primary", names.IN_TRANSIT, "primary", until)
        labels = Node.from_object(server.find(kinds.NODE, "n1")).labels
        assert (labels[names.OWNER_LABEL], labels["until.virtpools.io/primary"]) == (names.IN_TRANSIT, "7")
        assert "until.virtpools.io/fpga" not in labels

    @pytest.mark.parametrize("value", ["", "primary"])
    def test_replaces_a_label_that_names_no_pool(self, value):
        server = self.write(builders.node("n1", value), names.PRIMARY, None)
        assert names.OWNER_LABEL not in server.find(kinds.NODE, "n1")["metadata"]["labels"]

    def test_that_somebody_else_changed_is_not_overwritten(self):
        seen = builders.node("n1")
        server = ApiServer(builders.node("n1", "fpga"))
        with pytest.raises(ClusterError, match=r"Node n1 was to go from primary to gpu, but .* it is fpga now"):
            node_owner.write_owner(server.client(), seen, "primary", "gpu", "primary")
        assert server.find(kinds.NODE, "n1")["metadata"]["labels"][names.OWNER_LABEL] == "fpga"

    def test_changed_by_others_at_that_moment_is_not_overwritten(self):
        server = ApiServer(builders.node())

        def meddle(request):
            if request.method == "PATCH":
                server.find(kinds.NODE, "n1")["metadata"]["labels"][names.OWNER_LABEL] = "fpga"

        server.before = meddle
        with pytest.raises(ClusterError, match="it is fpga now"):
            node_owner.write_owner(server.client(), builders.node(), "primary", "gpu", "primary")

    def test_is_written_despite_a_heartbeat_at_that_moment(self):
        server = ApiServer(builders.node())

        def beat(request):
            if request.method == "PATCH":
                server.find(kinds.NODE, "n1")["metadata"]["annotations"][names.HEARTBEAT_ANNOTATION] = "t1"

        server.before = beat
        self.write(builders.node(), "gpu", "primary", server)

    def test_is_one_request_when_nobody_meddles(self):
        server = self.write(builders.node(), "gpu", "primary")
        assert [request.method for request in server.requests] == ["PATCH"]

    def test_is_retried_when_the_first_annotation_comes_meanwhile(self):
        server = ApiServer(builders.node(heartbeat=None))

        def first_annotation(request):
            if request.method == "PATCH":
                server.find(kinds.NODE, "n1")["metadata"].setdefault("annotations", {"a": "b"})

        server.before = first_annotation
        self.write(builders.node(heartbeat=None), "gpu", "primary", server)

    def test_whose_answer_is_lost_was_written(self):
        server = ApiServer(builders.node())
        lost = []

        def lose_first(request):
            if request.method == "PATCH" and not lost:
                lost.append(request)
                raise LOST

        server.after = lose_first
        self.write(builders.node(), "gpu", "primary", server)

    def test_is_given_up_when_it_never_fits(self):
        server = ApiServer(builders.node())

        def change_always(request):
            labels = server.find(kinds.NODE, "n1")["metadata"]["labels"]
            if request.method == "PATCH":
                labels[names.OWNER_LABEL] = "elsewhere"
            else:
                labels.pop(names.OWNER_LABEL, None)

        server.before = change_always
        with pytest.raises(Conflict):
            node_owner.write_owner(server.client(), builders.node(), "primary", "gpu", "primary")
        assert 2 <= len(server.writes) <= 20

    @pytest.mark.parametrize("created_again", [False, True])
    @pytest.mark.parametrize("seen", [None, "fpga"], ids=["patched", "read again"])
    def test_of_a_deleted_node_tells_that_it_is_the_node(self, seen, created_again):
        another = builders.node_created_again("n1")
        server = ApiServer(*([another] if created_again else []))
        with pytest.raises(node_owner.NodeGone, match="Node n1"):
            node_owner.write_owner(server.client(), builders.node("n1", seen), "primary", "gpu", "primary")
        assert not created_again or server.find(kinds.NODE, "n1")["metadata"]["labels"] == another["metadata"]["labels"]
