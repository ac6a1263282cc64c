# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.findings import InputErrors
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.modes.collection import CollectionMode
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning import approval, history
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.approval import ClusterId
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.history import History
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.options import Options
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.request import PlanRequest
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders

WEST = ClusterId("https://west", "uid-west")
GPU, FPGA = builders.pool("gpu"), builders.pool("fpga")


def published(snapshot, pools=(GPU,), host="west", run="site", **options):
    request = PlanRequest(tuple(pools), Options(**options))
    proposal = CollectionMode().propose(snapshot, request)
    return proposal.plan, approval.publish(host, run, proposal, WEST)


def hw(name, owner=None, kind="gpu"):
    return builders.node(name, owner, None, {"hw": kind})


class TestPublished:
    def test_is_what_a_person_approves(self):
        nodes = [hw("n1"), hw("n2"), hw("n3", kind="fpga"), builders.node("stays")]
        made, found = published(builders.fresh_snapshot(nodes), [GPU, FPGA])
        entry = found["west"]["site"]
        assert entry["digest"] == str(made.digest)
        assert (entry["pending"], entry["nodes"], entry["batches"], entry["errors"]) == (True, 3, 2, 0)
        assert (entry["server"], entry["uid"]) == WEST
        assert entry["summary"] == (
            "every primary virt-handler restarts; 2 DaemonSets change; "
            "3 nodes in 2 batches (primary -> fpga: 1, primary -> gpu: 2)"
        )

    def test_of_new_images_and_a_pool_that_goes(self):
        nodes = [hw("n1", "gpu"), hw("n2", "fpga", "fpga"), builders.node("stays")]
        other = builders.pool("gpu", virtHandlerImage=f"{builders.GPU_IMAGE}2")
        _made, found = published(builders.snapshot_of(nodes, [GPU, FPGA]), [other], prune=True)
        summary = found["west"]["site"]["summary"]
        assert "fpga -> primary: 1, new handlers in gpu: 1" in summary
        assert "DaemonSets of fpga are deleted" in summary

    def test_of_no_change(self):
        _made, found = published(builders.snapshot_of([hw("n1", "gpu"), builders.node("stays")], [GPU]))
        assert (found["west"]["site"]["pending"], found["west"]["site"]["summary"]) == (False, "no change")

    def test_of_a_refused_plan(self):
        made, found = published(builders.snapshot_of([hw("n1")]))
        entry = found["west"]["site"]
        assert entry["errors"] == len(made.errors) > 0
        assert entry["summary"].startswith("refused, because ")


def entry(digest):
    return {"digest": digest, **WEST._asdict()}


PLANS = {"east": {"site": entry("e")}, "west": {"site": entry("w"), "remove": entry("r")}}


class TestDigest:
    def test_is_that_of_the_cluster_and_the_kind_of_run(self):
        assert approval.digest_of(PLANS, "east", "site", WEST) == "e"
        assert approval.digest_of(PLANS, "west", "site", WEST) == "w"
        assert approval.digest_of(PLANS, "west", "remove", WEST) == "r"

    def test_of_another_kind_does_not_count(self):
        assert approval.digest_of(PLANS, "west", "rollback", WEST) is None
        assert approval.digest_of({}, "west", "site", WEST) is None

    def test_of_other_clusters_alone_is_refused(self):
        with pytest.raises(InputErrors, match="has a plan of site for east, west, but not for north; plan for north"):
            approval.digest_of(PLANS, "north", "site", WEST)

    def test_made_for_another_cluster_is_refused(self):
        other = ClusterId("https://west", "uid-of-a-new-cluster")
        with pytest.raises(InputErrors) as refused:
            approval.digest_of(PLANS, "west", "site", other)
        assert str(refused.value) == (
            "virtpools_plan has a plan of site that was made for https://west (UID uid-west), but west is https://west "
            "(UID uid-of-a-new-cluster) now; correct how west reaches its cluster, or plan again and approve that plan."
        )

    def test_is_used_where_nobody_may_read_which_cluster_it_is(self):
        assert approval.digest_of(PLANS, "west", "site", ClusterId("https://west", "")) == "w"

    @pytest.mark.parametrize(
        "wrong", ["text", 1, ["a"], {"west": "x"}, {"west": {"site": "site"}}, {"west": {"site": {}}}], ids=str
    )
    def test_of_something_else_is_refused(self, wrong):
        with pytest.raises(InputErrors, match="not what the playbook plan publishes"):
            approval.digest_of(wrong, "west", "site", WEST)


class TestRollbackTarget:
    OLD, NEW, NEXT = (history.entry_of([builders.pool(name)], (), Options(), "", "") for name in ("a", "b", "c"))

    def target(self, known, **plans):
        lists = {run: {**entry("x"), "list": new.digest, "before": old.digest} for run, (new, old) in plans.items()}
        return approval.rollback_target({"west": lists}, "west", WEST, History(known))

    def test_is_the_list_before_the_approved_plan(self):
        assert self.target([self.OLD, self.NEW], site=(self.NEW, self.OLD)) == self.OLD

    def test_is_that_of_an_approved_rollback_once_that_has_begun(self):
        given = {"site": (self.NEW, self.OLD), "rollback": (self.OLD, self.NEW)}
        assert self.target([self.OLD, self.NEW, self.NEXT], **given) == self.OLD

    def test_is_left_open_by_plans_of_other_kinds(self):
        assert self.target([self.OLD, self.NEW], remove=(self.NEW, self.OLD)) is None


@pytest.mark.parametrize(
    ("run", "how"),
    [
        ("site", "playbook plan"),
        ("rollback", "rollback --check"),
        ("remove", "remove --check"),
        ("upgrade", "upgrade --check"),
    ],
)
def test_a_run_without_approval_is_told_how_to_get_one(run, how):
    params = {"cluster_name": "west", "expected_plan": None, "published_plan": None, "require_approval": True}
    with pytest.raises(InputErrors, match=f"no plan of {run} was approved for west: run .*{how}"):
        approval.expected_digest(params, run, WEST, changes=True)
    assert approval.expected_digest(params, run, WEST, changes=False) is None
