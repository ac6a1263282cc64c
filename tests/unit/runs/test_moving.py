# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From operator to collection pools and back, in one run each way: against the operators of the three builds."""

from __future__ import annotations

import copy
import json

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.objects import is_managed
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders, fake_operator_mode, vms
from ansible_collections.virtpools.kubevirt.tests.unit.support.admission import Admission, GuardAdmission
from ansible_collections.virtpools.kubevirt.tests.unit.support.operated_pools import (
    HANDLER,
    kubevirt,
    make,
    pool,
)
from ansible_collections.virtpools.kubevirt.tests.unit.support.roles import Play, TaskFailed
from ansible_collections.virtpools.kubevirt.tests.unit.support.staged_runs import ALL

NODES = {"n1": "gpu", "n2": "gpu", "n3": "fpga", "n4": None, "n5": None}
ON_THEIR_NODES = {node: ["virt-handler-gpu" if hw == "gpu" else "virt-handler"] for node, hw in NODES.items()}


# The other builds differ from B in how they name and check the field, which the tests of the modules look at for all three.
BUILDS = ["A", "B", "C"] if ALL else ["B"]


@pytest.fixture(params=BUILDS)
def build(request):
    return request.param


@pytest.fixture
def world(build):
    made = begun(make(build))
    made.sleep(5)
    made.writes.clear()
    return made


def begun(made):
    """The same cluster with what collection pools need besides."""
    Admission(made)
    for namespace in ("default", builders.NAMESPACE):
        made.put(kinds.NAMESPACE.object(namespace))
    return made


class Scenario:
    """Runs of a user on a cluster of one build."""

    def __init__(self, run, build):
        self.run, self.build = run, build
        self.before = copy.deepcopy(kubevirt(run.world)["spec"])

    def pools(self, *more):
        return [pool(self.build), *(pool(self.build, name) for name in more)]

    def site(self, mode, *more, module=None, check=False, **variables):
        play = Play(module or self.run, check=check)
        play.role("pools", virtpools_mode=mode, virtpools_pools=self.pools(*more), **variables)
        return play

    def plan(self, mode, **arguments):
        return self.run("plan_info", mode=mode, pools=self.pools(), **arguments)

    def owners(self):
        """The DaemonSets with a handler on each node."""
        return {node: self.run.world.handlers(node) for node in NODES}

    def history(self):
        """The build of each list that the cluster had, or None."""
        live = self.run.world.find(kinds.CONFIG_MAP, names.HISTORY, builders.NAMESPACE)
        return [entry["options"].get("build") for entry in json.loads(live["data"]["entries"])]

    def has(self, mode, **arguments):
        """Whether the cluster has its one pool in this mode, and nothing of the other."""
        assert self.owners() == ON_THEIR_NODES
        ours = self.run.world.find(kinds.DAEMON_SET, "virt-handler-gpu", builders.NAMESPACE)["metadata"]["labels"]
        labels = [node["metadata"]["labels"].get(names.OWNER_LABEL) for node in self.run.world.all(kinds.NODE)]
        collection = mode == "collection"
        assert (ours[names.MANAGED_BY_LABEL] == names.MANAGED_BY) is collection
        assert labels == (["gpu", "gpu", None, None, None] if collection else [None] * 5)
        spec = kubevirt(self.run.world)["spec"]
        assert bool((spec.get("customizeComponents") or {}).get("patches")) is collection
        if collection:
            rest = {key: value for key, value in spec.items() if key != "customizeComponents"}
            assert rest == {key: value for key, value in self.before.items() if key != "customizeComponents"}
        assert not self.plan(mode, **arguments)["pending"]
        assert self.run.world.all(kinds.LEASE) == []
        return True


@pytest.fixture
def scenario(run, world, build):
    return Scenario(run, build)


OTHER = {"operator": "collection", "collection": "operator"}


@pytest.fixture(params=["operator", "collection"])
def to(request, scenario):
    """The mode to move to; the cluster has the other."""
    scenario.site(OTHER[request.param])
    assert scenario.has(OTHER[request.param])
    scenario.run.world.writes.clear()
    return request.param


def test_there_back_again_and_away(scenario, to):
    scenario.site(to)
    assert scenario.has(to)
    scenario.site(OTHER[to])
    assert scenario.has(OTHER[to])
    assert len(scenario.history()) == 3
    Play(scenario.run).role("remove", virtpools_remove="all")
    assert kubevirt(scenario.run.world)["spec"] == scenario.before
    assert {tuple(each) for each in scenario.owners().values()} == {("virt-handler",)}
    assert scenario.run.world.find(kinds.CONFIG_MAP, names.HISTORY, builders.NAMESPACE) is None


def test_the_plan_shows_both_parts(scenario, to):
    found = scenario.plan(to)
    assert (found["mode"], found["leaving"], found["errors"], found["pending"]) == (to, OTHER[to], [], True)
    nodes = [line for line in found["changes"] if line.startswith("Node n1")]
    assert nodes == ["Node n1: gpu -> primary", "Node n1: primary -> gpu"]
    assert found["owners"]["gpu"] == {"now": 2, "after": 2}
    assert "moving" in [finding["code"] for finding in found["findings"]]
    assert f"Part 1 of 2, the {OTHER[to]} pools go:" in found["text"]
    assert scenario.run.world.writes == []
    published = found["published"]["localhost"]["site"]
    assert published["pending"]
    assert published["summary"].startswith(f"moves from {OTHER[to]} pools")


def test_asks_about_vms_as_a_removal_does(scenario, to):
    scenario.run.world.put(vms.launcher(on="n1", pool=None))
    with pytest.raises(TaskFailed, match="1 VM runs with the launcher image of pool gpu or on its nodes"):
        scenario.site(to)
    assert scenario.run.world.writes == []
    scenario.site(to, virtpools_remove_vms="leave")
    assert scenario.has(to)


def test_the_operator_part_names_the_nodes_of_its_window(scenario, to):
    (window,) = [each for each in scenario.plan(to)["findings"] if each["code"] == "operator_window"]
    assert "n1" in window["message"]
    assert "n2" in window["message"]


def test_check_mode_writes_nothing(scenario, to):
    scenario.site(to, check=True)
    assert scenario.run.world.writes == []


def test_an_approval_covers_the_whole_move(scenario, to):
    digest = scenario.plan(to)["digest"]
    with pytest.raises(TaskFailed, match="not the approved one"):
        scenario.site(to, "fpga", virtpools_expected_plan=digest)
    assert scenario.run.world.writes == []
    scenario.site(to, virtpools_expected_plan=digest)
    assert scenario.has(to)
    assert scenario.plan(to, expected_plan=digest)["pending"] is False


def test_a_rollback_undoes_the_move(scenario, to):
    scenario.site(to)
    Play(scenario.run).role("rollback", virtpools_mode=to)
    assert scenario.has(OTHER[to])


@pytest.mark.parametrize("writes", range(2, 32, 6))
def test_a_run_that_dies_is_finished_by_the_same_command(scenario, build, to, writes):
    """Each build dies after other writes; together they cover every second one of a move."""
    digest = scenario.plan(to)["digest"]
    die_after(scenario.run.world, writes + 2 * "ABC".index(build))
    with pytest.raises(KeyboardInterrupt):
        scenario.site(to, virtpools_expected_plan=digest)
    revive(scenario.run.world)
    scenario.site(to, virtpools_expected_plan=digest)
    assert scenario.has(to)


@pytest.mark.parametrize("writes", [5, 12])
def test_a_run_that_dies_is_undone_by_a_rollback(scenario, to, writes):
    die_after(scenario.run.world, writes)
    with pytest.raises(KeyboardInterrupt):
        scenario.site(to)
    revive(scenario.run.world)
    Play(scenario.run).role("rollback")
    assert scenario.has(OTHER[to])


@pytest.mark.parametrize("writes", [5, 12])
def test_a_rollback_that_dies_is_finished_by_a_rollback(scenario, to, writes):
    scenario.site(to)
    die_after(scenario.run.world, writes)
    with pytest.raises(KeyboardInterrupt):
        Play(scenario.run).role("rollback")
    revive(scenario.run.world)
    Play(scenario.run).role("rollback")
    assert scenario.has(OTHER[to])


def die_after(world, writes):
    world.writes.clear()

    def dies(_request):
        if len(world.writes) >= writes:
            raise KeyboardInterrupt

    world.after = dies


def die_without(world, pool):
    """Die as soon as the cluster has nothing of this pool."""
    _die_when(lambda: not _has_daemonset(world, pool), world)


def die_with(world, pool):
    """Die as soon as the cluster has something of this pool."""
    _die_when(lambda: _has_daemonset(world, pool), world)


def _die_when(condition, world):
    def dies(_request):
        if condition():
            raise KeyboardInterrupt

    world.after = dies


def _has_daemonset(world, pool):
    return world.find(kinds.DAEMON_SET, f"virt-handler-{pool}", builders.NAMESPACE) is not None


def revive(world):
    world.after = lambda _request: None
    world.drop(kinds.LEASE, names.LEASE_NAME, builders.NAMESPACE)


def test_the_second_part_is_checked_before_the_first_writes(scenario, to):
    with pytest.raises(TaskFailed, match="of another version than KubeVirt"):
        Play(scenario.run).role(
            "pools",
            virtpools_mode=to,
            virtpools_pools=[pool(scenario.build, virtHandlerImage=HANDLER.rpartition(":")[0] + ":v0.1.0")],
        )
    assert scenario.run.world.writes == []


WITH_FPGA = {**ON_THEIR_NODES, "n3": ["virt-handler-fpga"]}
DIALECTS = {"A": "additionalVirtHandlers", "B": "virtHandlerPools", "C": "WorkerPool"}


class TestTheListInTheCluster:
    """Part 1 takes down the list that part 2 brings."""

    @pytest.fixture
    def move(self, scenario, build):
        scenario.site("operator", "fpga")
        scenario.run.world.writes.clear()

        def site():
            source = {"virtpools_pools_from_cluster": True, "virtpools_pools_dialect": DIALECTS[build]}
            Play(scenario.run).role("pools", virtpools_mode="collection", **source)

        return site

    def test_is_not_lost(self, scenario, move):
        move()
        assert scenario.owners() == WITH_FPGA
        assert scenario.history() == [DIALECTS[scenario.build], None]

    @pytest.mark.parametrize("writes", [3, 4, 5, 7, 11, 20])
    def test_comes_back_from_the_history(self, scenario, move, writes):
        die_after(scenario.run.world, writes)
        with pytest.raises(KeyboardInterrupt):
            move()
        revive(scenario.run.world)
        assert "a move to collection pools was started" in scenario.run("pool_history")["moving"]
        move()
        assert scenario.owners() == WITH_FPGA
        assert scenario.run("pool_history")["moving"] == ""

    def test_is_named_when_the_source_is_gone_for_good(self, scenario, move):
        move()
        with pytest.raises(TaskFailed, match="the module pool_history shows the lists that runs applied"):
            move()


class TestUnlistedPools:
    @pytest.fixture(autouse=True)
    def two(self, scenario, to):
        scenario.site(OTHER[to], "fpga")
        scenario.run.world.writes.clear()

    def test_move_too(self, scenario, to):
        found = [each["message"] for each in scenario.plan(to)["findings"] if each["code"] == "pool_not_listed"]
        assert found == ["Pool fpga is not in the list: it moves as it is; set virtpools_prune: true to leave it out."]
        scenario.site(to)
        assert scenario.owners() == WITH_FPGA

    def test_go_with_prune(self, scenario, to):
        scenario.site(to, virtpools_prune=True)
        assert scenario.has(to)

    @pytest.mark.parametrize("writes", [4, 9, 14])
    def test_move_too_when_the_run_dies(self, scenario, to, writes):
        die_after(scenario.run.world, writes)
        with pytest.raises(KeyboardInterrupt):
            scenario.site(to)
        revive(scenario.run.world)
        scenario.site(to)
        assert scenario.owners() == WITH_FPGA

    def begin(self, scenario, to, dies):
        if dies == "early":
            die_after(scenario.run.world, 4)
        else:
            die_without(scenario.run.world, "fpga")
        with pytest.raises(KeyboardInterrupt):
            scenario.site(to)
        revive(scenario.run.world)

    def test_come_back_in_the_former_mode_when_the_run_dies(self, scenario, to):
        self.begin(scenario, to, "late")
        messages = [each["message"] for each in scenario.plan(OTHER[to])["findings"]]
        assert (
            "Pool fpga is not in the list: it comes back as it was; set virtpools_prune: true to leave it out."
            in messages
        )
        scenario.site(OTHER[to])
        assert scenario.owners() == WITH_FPGA
        assert scenario.run("pool_history")["moving"] == ""

    def test_stay_away_with_prune_in_the_former_mode(self, scenario, to):
        self.begin(scenario, to, "late")
        scenario.site(OTHER[to], virtpools_prune=True)
        assert scenario.has(OTHER[to])

    @pytest.mark.parametrize("dies", ["early", "late"])
    def test_stay_away_when_they_are_removed_meanwhile(self, scenario, to, dies):
        self.begin(scenario, to, dies)
        Play(scenario.run).role("remove", virtpools_remove=["fpga"])
        scenario.site(to)
        assert scenario.has(to)

    def test_do_not_take_the_others_along_when_they_are_removed(self, scenario, to):
        self.begin(scenario, to, "late")
        Play(scenario.run).role("remove", virtpools_remove=["fpga"])
        Play(scenario.run).role("rollback")
        assert scenario.owners() == WITH_FPGA


def test_an_approval_covers_what_part_1_takes_down(scenario, to):
    digest = scenario.plan(to, prune=True)["digest"]
    scenario.site(OTHER[to], "fpga")
    scenario.run.world.writes.clear()
    with pytest.raises(TaskFailed, match="the pools that the move takes down and the list that the cluster has"):
        scenario.site(to, virtpools_prune=True, virtpools_expected_plan=digest)
    assert scenario.run.world.writes == []


def test_pools_of_a_run_that_died_do_not_come_back_by_a_rollback(scenario, to):
    """The run before the move died before its list was complete."""
    die_with(scenario.run.world, "fpga")
    with pytest.raises(KeyboardInterrupt):
        scenario.site(OTHER[to], "fpga")
    revive(scenario.run.world)
    scenario.site(to, virtpools_prune=True)
    Play(scenario.run).role("rollback")
    assert scenario.has(OTHER[to])


def test_pools_that_no_run_recorded_come_back_by_a_rollback(scenario, to):
    GuardAdmission(scenario.run.world)  # a list without options gets the guard
    scenario.run.world.drop(kinds.CONFIG_MAP, names.HISTORY, builders.NAMESPACE)
    scenario.site(to)
    Play(scenario.run).role("rollback")
    assert scenario.has(OTHER[to], guard=None)


class TestAnApprovedMove:
    @staticmethod
    def join(world):
        node = builders.node("n6", labels={"hw": "gpu"})
        primary = world.find(kinds.DAEMON_SET, "virt-handler", builders.NAMESPACE)
        world.put(node)
        for pod in builders.handlers_of([node], [primary]):
            world.put(pod)

    def test_ends_although_a_node_joins_between_the_parts(self, scenario, to):
        digest, calls = scenario.plan(to)["digest"], []

        def module(name, **arguments):
            calls.append((name, arguments.get("remove_pools")))
            if name == "plan_info" and ("plan_info", "all") in calls[:-1]:
                calls.clear()
                self.join(scenario.run.world)
            return scenario.run(name, **arguments)

        scenario.site(to, module=module, virtpools_expected_plan=digest)
        assert scenario.owners() == ON_THEIR_NODES
        assert scenario.run.world.handlers("n6") == ["virt-handler-gpu"]

    def test_is_finished_although_a_node_joined_since_it_died(self, scenario, to):
        digest = scenario.plan(to)["digest"]
        die_after(scenario.run.world, 10)
        with pytest.raises(KeyboardInterrupt):
            scenario.site(to, virtpools_expected_plan=digest)
        revive(scenario.run.world)
        self.join(scenario.run.world)
        with pytest.raises(TaskFailed, match="the desired objects"):
            scenario.site(to, "fpga", virtpools_expected_plan=digest)
        scenario.site(to, virtpools_expected_plan=digest)
        assert scenario.run.world.handlers("n6") == ["virt-handler-gpu"]


def test_one_lease_covers_both_parts(scenario, to):
    leases = []

    def module(name, **arguments):
        if name == "run_lease":
            leases.append(arguments.get("state", "present"))
        return scenario.run(name, **arguments)

    scenario.site(to, module=module)
    assert leases == ["present", "absent"]


def test_a_move_that_the_plan_did_not_show_is_refused(scenario, build):
    def module(name, **arguments):
        if name == "run_lease" and arguments.get("state") is None:
            scenario.run("operator_pools", mode="operator", pools=scenario.pools())
        return scenario.run(name, **arguments)

    with pytest.raises(TaskFailed, match="another user brought operator pools into this cluster"):
        scenario.site("collection", "fpga", module=module)
    assert scenario.has("operator")


class TestUnderHco:
    @pytest.fixture
    def world(self, build):
        managed, hyperconverged = builders.under_hco(fake_operator_mode.kubevirt(gates=[]))
        made = begun(make(build, of_kubevirt=managed))
        made.rendered = copy.deepcopy(managed["spec"])
        made.put(hyperconverged)
        made.sleep(5)
        return made

    @staticmethod
    def annotations(scenario):
        return scenario.run.world.find(kinds.HYPER_CONVERGED, names.HCO_NAME, builders.NAMESPACE)["metadata"][
            "annotations"
        ]

    def test_there_back_again_and_away(self, scenario):
        annotations = dict(self.annotations(scenario))
        for mode in ("collection", "operator", "collection", "operator"):
            scenario.site(mode)
            assert scenario.owners() == ON_THEIR_NODES
            live = scenario.run.world.find(kinds.DAEMON_SET, "virt-handler-gpu", builders.NAMESPACE)
            assert is_managed(live) is (mode == "collection")
            assert not scenario.plan(mode)["pending"]
        Play(scenario.run).role("remove", virtpools_remove="all")
        scenario.run.world.sleep(5)
        assert kubevirt(scenario.run.world)["spec"] == scenario.before
        assert self.annotations(scenario) == annotations


def test_a_failed_wave_after_a_move_between_modes_only_stops(scenario, build):
    scenario.site("operator")
    assert "other mode" in scenario.run("pool_history", pools=scenario.pools())["no_before"]
