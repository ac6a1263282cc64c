# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""A run does exactly what plan and check mode said before, a second run writes nothing at all, and a rollback takes it back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from end_state import EndState
from local_cluster import Fleet, LocalCluster, Nodes
from playbooks import Account, Run, run
from scenario import Scenario
from watcher import Watcher

Pool = dict[str, Any]

QUICK = {"agent.virtpools.io/start-seconds": "0.3", "agent.virtpools.io/stop-seconds": "0.3"}
EXCLUSION = (
    "KubeVirt kubevirt/kubevirt: keep the primary virt-handler off nodes with the label virtpools.io/pool "
    "(spec.customizeComponents.patches)"
)


def _pool(name: str, accelerator: str, tag: str = "v1.9.0-1", **fields: Any) -> Pool:
    return {
        "name": name,
        "nodeSelector": {"accelerator": accelerator},
        "virtHandlerImage": f"registry.example/virt-handler:{tag}",
        **fields,
    }


GPU, FPGA = _pool("gpu", "gpu"), _pool("fpga", "fpga")
FIRST = [GPU, FPGA]
# Another image for one pool, another selector for the other: two of its three nodes leave it, and a new one joins.
EDITED = [
    _pool("gpu", "gpu", "v1.9.0-2"),
    {**FPGA, "nodeSelector": {"place": "far"}},
]
PRUNED = [EDITED[0]]
USUAL = {"virtpools_max_unavailable": "100%", "virtpools_max_nodes_lost": "100%"}


@pytest.fixture(scope="module")
def site(start_cluster: Callable[..., LocalCluster]) -> Site:
    fleet = Fleet.from_groups(
        Nodes(prefix="gpu-", count=3, labels={"accelerator": "gpu"}, annotations=QUICK),
        Nodes(prefix="fpga-", count=2, labels={"accelerator": "fpga"}, annotations=QUICK),
        Nodes(name="fpga-far", labels={"accelerator": "fpga", "place": "far"}, annotations=QUICK),
        Nodes(name="plain-far", labels={"place": "far"}, annotations=QUICK),
        Nodes(prefix="plain-", count=2, annotations=QUICK),
    )
    return Site(start_cluster(fleet))


class Site:
    """A cluster with a user who may write and one who may only read."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.scenario = Scenario(cluster)
        self.writer = self.scenario.writer
        self.reader = Account.make(cluster, "reader")
        self.brought: list[Pool] | None = None
        self.former: EndState | None = None
        """The state before that list was brought."""

    def bring(self, pools: list[Pool]) -> None:
        """Bring this list to the cluster, unless the test before has done so."""
        if self.brought != pools:
            former = EndState.read(self.cluster)
            self.run(pools, virtpools_prune=True).succeeded()
            self.brought, self.former = pools, former

    def run(self, pools: list[Pool], *arguments: str, **variables: Any) -> Run:
        return run("site", self.writer.kubeconfig, pools, *arguments, **{**USUAL, **variables})

    def plan(self, pools: list[Pool], **variables: Any) -> Run:
        """Plan as soon as that can be done: while KubeVirt acts on the run before, a plan is refused."""
        self.scenario.wait_until_settled()
        return run("plan", self.reader.kubeconfig, pools, **{**USUAL, **variables})

    @contextmanager
    def nothing_written(self) -> Iterator[None]:
        """Fail if the API server's audit log shows that a playbook writes anything meanwhile."""
        marker = self.cluster.audit_marker()
        yield
        users = {self.writer.user, self.reader.user}
        assert [str(write) for write in self.cluster.writes(marker) if write.user in users] == []


@pytest.mark.parametrize(
    ("before", "pools", "prune"),
    [
        pytest.param(None, FIRST, False, id="first-run"),
        pytest.param(FIRST, EDITED, False, id="image-and-selector-edited"),
        # test_remove compares the removal of a pool with its plan; test_rollback prunes.
        pytest.param(EDITED, PRUNED, True, id="pool-pruned", marks=pytest.mark.thorough),
    ],
)
def test_a_run_does_what_is_planned_and_the_next_writes_nothing(
    site: Site, before: list[Pool] | None, pools: list[Pool], prune: bool
) -> None:
    if before is not None:
        site.bring(before)

    with site.nothing_written():
        planned = site.plan(pools, virtpools_prune=prune).succeeded()
        checked = site.run(pools, "--check", "--diff", virtpools_prune=prune).succeeded()
    state = EndState.read(site.cluster)
    with Watcher(site.cluster) as watcher:
        done = site.run(pools, "--diff", virtpools_prune=prune).succeeded()
        watcher.stop()
    site.brought, site.former = pools, state

    happened = _what_happened(state, EndState.read(site.cluster), watcher)
    assert happened, "This test needs something to happen."
    assert planned.plan["changes"] == checked.plan["changes"] == done.plan["changes"]
    assert planned.plan["digest"] == checked.plan["digest"] == done.plan["digest"]
    assert sorted(planned.plan["changes"]) == happened
    assert checked.changes == done.changes == planned.plan["changes"]
    assert checked.changed == done.changed
    assert _diffs(checked) == _diffs(done)

    with site.nothing_written():
        second = site.run(pools, virtpools_prune=prune).succeeded()
        checked_again = site.run(pools, "--check", virtpools_prune=prune).succeeded()
    assert (second.changed, second.plan["changes"], second.plan["pending"]) == (0, [], False)
    assert (checked_again.changed, checked_again.plan["changes"]) == (0, [])
    # The last part is for the list that the run has brought: it has used its approval up.
    assert second.plan["digest"].split("-")[:-1] == done.plan["digest"].split("-")[:-1]
    assert done.results_of("virtpools.kubevirt.pool_info")
    assert second.results_of("virtpools.kubevirt.pool_info") == [], "its plan has read the state already"
    assert _shown_state(second) == _shown_state(done)
    in_check_mode = "In check mode nothing was changed. The state of the pools:"
    assert _shown_state(checked_again) == [in_check_mode, *_shown_state(second)]


def _shown_state(run: Run) -> list[str]:
    """Return the lines of the table at the end of a run."""
    (shown,) = [task.result["lines"] for task in run.tasks if task.name.endswith("Show the state of the pools")]
    return list(shown)


def _what_happened(before: EndState, after: EndState, watcher: Watcher) -> list[str]:
    """Return what changed, as seen from outside, in the words of a plan."""
    assert after.leftovers == []
    lines = [EXCLUSION] if before.kubevirt != after.kubevirt else []
    for name in before.daemonsets.keys() | after.daemonsets.keys():
        old, new = before.daemonsets.get(name), after.daemonsets.get(name)
        # virt-operator changes the primary.
        if old != new and name != "virt-handler":
            what = "create" if old is None else "delete" if new is None else "update"
            lines.append(f"DaemonSet kubevirt/{name}: {what}")
    rolled = set(after.nodes) if before.kubevirt != after.kubevirt else set()
    for node, owner in after.owners.items():
        former = before.owners[node]
        if former != owner:
            lines.append(f"Node {node}: {former} -> {owner}")
        elif watcher.restarted.get(node, 0) > (node in rolled):
            lines.append(f"Node {node}: replace the handler of {owner}")
    return sorted(lines)


def _diffs(done: Run) -> list[tuple[str, Any]]:
    """Return what --diff shows, by module."""
    return [(task.action, task.result["diff"]) for task in done.tasks if task.status == "changed"]


@pytest.fixture
def approved(site: Site) -> str:
    """Return the digest of a plan for the list that the cluster has."""
    site.bring(EDITED)
    site.scenario.wait_until_settled()
    options = {name.removeprefix("virtpools_"): value for name, value in USUAL.items()}
    return str(site.scenario.module("plan_info", pools=EDITED, guard=False, **options)["digest"])


def test_an_approved_plan_runs_and_a_changed_one_is_refused(site: Site, approved: str) -> None:
    assert site.run(EDITED, virtpools_expected_plan=approved).succeeded().changed == 0
    assert _changed_since(site, approved, [_pool("gpu", "gpu", "v1.9.0-9"), EDITED[1]]) == ["the desired objects"]


@pytest.mark.thorough  # tests of plan have every part of the message
def test_a_changed_plan_is_refused_with_what_has_changed(site: Site, approved: str) -> None:
    elsewhere = {**EDITED[0], "nodeExpressions": [{"key": "place", "operator": "Exists"}]}
    assert _changed_since(site, approved, [elsewhere, EDITED[1]])[-1] == "the owners of nodes"
    assert _changed_since(site, approved, EDITED, virtpools_max_unavailable=1)[-1] == "the options"


def _changed_since(site: Site, approved: str, pools: list[Pool], **options: Any) -> list[str]:
    """Return the parts that a refused run names as changed since the approved plan."""
    with site.nothing_written():
        refused = site.run(pools, virtpools_expected_plan=approved, **options).refused()
    assert "The plan is not the approved one" in refused
    return [part for part in ("the desired objects", "the owners of nodes", "the options") if part in refused]


def test_a_reader_is_told_what_it_lacks_for_a_run(site: Site) -> None:
    """It has planned in the tests before this one."""
    with site.nothing_written():
        refused = run("site", site.reader.kubeconfig, [EDITED[0], FPGA], **USUAL).refused()
    for right in ("update kubevirts.kubevirt.io", "patch nodes", "create leases.coordination.k8s.io"):
        assert right in refused


def test_a_rollback_brings_the_list_before_back_as_planned(site: Site) -> None:
    if site.brought is None:
        site.bring(FIRST)
    site.bring(EDITED)
    former, site.brought = site.former, None
    quick = {"virtpools_max_unavailable": "100%"}
    with site.nothing_written():
        foretold = run("rollback", site.writer.kubeconfig, None, "--check", **quick).succeeded()
    # A rollback ignores the current list, even one on the command line.
    approved = {"virtpools_expected_plan": foretold.plan["digest"]}
    done = run("rollback", site.writer.kubeconfig, EDITED, **approved, **quick).succeeded()
    assert done.changes == foretold.changes == done.plan["changes"]
    assert EndState.read(site.cluster) == former


@pytest.mark.thorough
def test_the_order_of_pools_that_do_not_overlap_changes_nothing(site: Site) -> None:
    site.bring(FIRST)
    with site.nothing_written():
        again = site.run(FIRST[::-1]).succeeded()
    assert again.changed == 0
    assert json.dumps(again.plan["changes"]) == "[]"
