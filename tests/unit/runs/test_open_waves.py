# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whole rollouts that were stopped by a gate: the next run passes that gate before it goes on."""

from __future__ import annotations

import copy

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.tests.unit.support.roles import TaskFailed
from ansible_collections.virtpools.kubevirt.tests.unit.support.staged_runs import (
    FIRST,
    GPU,
    NEXT_GPU,
    RT,
    Stage,
    handlers,
    stock,
    told,
)

WAVES = [{"nodes": ["n1"]}, {"nodes": ["n2", "n3"]}]
CLOSED = "- ansible.builtin.fail: {{msg: Closed.}}\n  when: virtpools_wave.name == '{name}'\n"


class Rollout:
    def __init__(self, stage, runner, folder):
        self._stage, self._runner, self._folder = stage, runner, folder
        self.begin(stock())

    def begin(self, objects):
        self.cuts = []
        self.world, self.disturbance = self._stage.on(copy.deepcopy(list(objects)), cuts=self.cuts)

    def run(self, pools=(GPU, RT), role="rollout", closed_at="", tasks=CLOSED, **variables):
        """Run it; ``closed_at``: the wave after which the user's gate is closed, which has these tasks."""
        gate = self._folder / f"{len(list(self._folder.iterdir()))}.yml"
        gate.write_text(tasks.format(name=closed_at), "utf-8")
        waves = {"virtpools_waves": WAVES} if role == "rollout" else {}
        given = {"virtpools_pools": list(pools), **waves, "virtpools_gates": [str(gate)], **variables}
        self._stage.run(role, given)

    def told(self, *pools, **variables):
        """Run it, which must fail; all lines that people see of it."""
        with pytest.raises(TaskFailed) as caught:
            self.run(*pools, **variables)
        assert self.world.doubled == []
        return str(caught.value).splitlines()

    def fails(self, *pools, **variables):
        return self.told(*pools, **variables)[0]

    def moved(self):
        return [name for name, (daemonset,) in handlers(self.world).items() if daemonset != names.HANDLER]

    def open_waves(self):
        return [(wave["name"], wave["nodes"]) for wave in self._runner("pool_history")["open_waves"]]

    def plan(self, pools=(GPU, RT), waves=WAVES, **options):
        return self._runner("plan_info", pools=list(pools), waves=waves, max_unavailable=2, **options)


@pytest.fixture
def rollout(run, monkeypatch, tmp_path):
    return Rollout(Stage(run, monkeypatch), run, tmp_path)


def test_a_closed_gate_is_asked_again_before_any_other_node(rollout):
    assert rollout.fails(closed_at="n1") == "Closed."
    assert rollout.open_waves() == [("n1", ["n1"])]
    assert rollout.fails(closed_at="n1") == "Closed."
    assert rollout.moved() == ["n1"]
    rollout.run()
    assert rollout.moved() == ["n1", "n2", "n3"]
    assert rollout.open_waves() == []
    rollout.world.writes.clear()
    rollout.run()
    assert rollout.world.writes == []


@pytest.mark.parametrize(("given", "seconds"), [({}, 90), ({"virtpools_gate_lease_seconds": 3600}, 3600)])
def test_no_other_run_begins_while_the_users_gate_is_asked(rollout, given, seconds):
    another_run = "- virtpools.kubevirt.run_lease: {{timeout: 0}}"
    error = rollout.fails(tasks=another_run, **given)
    assert "Only one run may change the cluster at a time" in error
    assert f"delays the next one by {seconds} s at most" in error


PLANS = """
- ansible.builtin.include_role: {{name: virtpools.kubevirt.pools, tasks_from: plan_only}}
  vars: {{virtpools_on_failure: stop, virtpools_waves: [], virtpools_plan_vms: false}}
"""


def test_a_users_gate_that_plans_leaves_the_run_as_it_is(rollout, tmp_path):
    page, waves = tmp_path / "page", [{"nodes": ["n1"]}, {"nodes": ["n2"]}]
    rollout.run(tasks=PLANS, virtpools_waves=waves, virtpools_report_html=str(page))
    assert rollout.moved() == ["n1", "n2", "n3"]
    written = [path.rpartition("/")[2] for _verb, path in rollout.world.writes if "/nodes/" in path]
    assert list(dict.fromkeys(written)) == ["n1", "n2", "n3"]
    assert "Finished: 3 nodes changed" in page.read_text("utf-8")


def test_a_users_gate_that_plans_and_fails_is_a_failed_wave(rollout):
    error = rollout.fails(tasks=PLANS + CLOSED, closed_at="n1", virtpools_on_failure="rollback_wave")
    assert error == "Closed."
    assert rollout.moved() == []


def test_a_users_gate_may_set_a_variable_with_our_prefix(rollout):
    """It is known only once it is set, when the run must go back or tell how far it came."""
    sets = "- ansible.builtin.set_fact: {{virtpools_answer: closed}}\n"
    said = rollout.told(tasks=sets + CLOSED, closed_at="n1", virtpools_on_failure="rollback_wave")
    assert rollout.moved() == []
    assert "Done: none of 3 nodes." in said


def test_the_plan_tells_of_it_and_is_as_approved_as_before(rollout):
    before = rollout.plan()
    rollout.fails(closed_at="n1")
    found = rollout.plan()
    assert found["digest"] == before["digest"]
    assert [(wave["number"], wave["left"], wave["due"], bool(wave["open"])) for wave in found["waves"]] == [
        (1, 0, True, True),
        (2, 2, True, False),
    ]
    assert found["waves"][0]["pools"] == ["gpu"]
    assert "Wave 1 of 2 (n1): 1 of 1 node done, 0 to go, 0 batches, gate not passed" in found["text"]
    assert "An earlier run began wave 1 (n1), and its gate has not passed since" in "\n".join(found["text"])
    rollout.run(virtpools_expected_plan=before["digest"])
    assert "No change: everything matches the pools." in rollout.plan()["text"]


def test_the_last_gate_is_asked_again_even_if_no_work_is_left(rollout, run):
    rollout.fails(closed_at="n2, n3")
    found = rollout.plan()
    assert (found["pending"], found["recorded"], found["changes"]) == (True, False, [])
    rollout.fails(closed_at="n2, n3")
    assert run("pool_history")["entries"] == []
    rollout.run()
    assert len(run("pool_history")["entries"]) == 1
    assert not rollout.plan()["pending"]


def test_a_gate_beyond_the_stop_is_left_for_later(rollout):
    rollout.fails(closed_at="n2, n3")
    stopped = rollout.plan(stop_after_wave=1)
    assert (stopped["pending"], [wave["due"] for wave in stopped["waves"]]) == (False, [False, False])
    assert "with 0 nodes in 1 wave left" in stopped["stop"]


def node(rollout):
    return rollout.world.find(kinds.NODE, "n1")


def closed_by_us(rollout):
    """A first wave after which a node takes no VMs: what our own gate looks at."""
    send = rollout.world.send

    def spoiled(request):
        answer = send(request)
        metadata = node(rollout)["metadata"]
        proven = names.FORMER_OWNER_ANNOTATION not in metadata["annotations"]
        if metadata["labels"].get(names.OWNER_LABEL) == "gpu" and proven:
            metadata["labels"][names.SCHEDULABLE_LABEL] = "false"
        return answer

    rollout.world.send = spoiled
    text = rollout.fails(virtpools_gate_timeout=0)
    rollout.world.send = send
    return text


def test_what_was_wrong_before_the_wave_is_remembered(rollout):
    assert "Node n1 has no label kubevirt.io/schedulable=true" in closed_by_us(rollout)
    again = rollout.fails(virtpools_gate_timeout=0)
    assert "Node n1 has no label kubevirt.io/schedulable=true" in again
    assert again.endswith("To accept it instead, set virtpools_skip_pending_gates.")
    node(rollout)["metadata"]["labels"][names.SCHEDULABLE_LABEL] = "true"
    rollout.run()
    assert rollout.moved() == ["n1", "n2", "n3"]


def test_what_is_wrong_can_be_accepted(rollout):
    closed_by_us(rollout)
    assert [wave["open"] for wave in rollout.plan(skip_pending_gates=True)["waves"]] == ["", ""]
    rollout.run(virtpools_skip_pending_gates=True, closed_at="n1")
    assert rollout.moved() == ["n1", "n2", "n3"]
    assert rollout.open_waves() == []


def test_a_record_that_cannot_be_read_is_no_way_around_it(rollout):
    rollout.fails(closed_at="n1")
    found = rollout.world.find(kinds.CONFIG_MAP, names.HISTORY, "kubevirt")
    rollout.world.put({**found, "data": {**found["data"], "openWaves": found["data"]["openWaves"][:-1]}})
    assert "cannot read data.openWaves, by which a run goes on" in rollout.fails()
    assert rollout.moved() == ["n1"]
    rollout.run(virtpools_skip_pending_gates=True)
    assert rollout.moved() == ["n1", "n2", "n3"]


def test_accepting_the_last_gate_completes_the_run(rollout, run):
    rollout.fails(closed_at="n2, n3")
    rollout.run(virtpools_skip_pending_gates=True, closed_at="n2, n3")
    assert rollout.open_waves() == []
    assert len(run("pool_history")["entries"]) == 1
    rollout.world.writes.clear()
    rollout.run(closed_at="n2, n3")
    assert rollout.world.writes == []


def test_a_list_that_differs_is_no_way_around_it(rollout):
    rollout.fails(closed_at="n1")
    newer = [NEXT_GPU, RT]
    assert rollout.fails(newer, closed_at="n1") == "Closed."
    assert rollout.moved() == ["n1"]
    rollout.run(newer)
    assert rollout.open_waves() == []


def test_waves_that_differ_come_after_it(rollout):
    rollout.fails(closed_at="n1")
    found = rollout.plan(waves=[])
    assert [(wave["name"], wave["nodes"], wave["left"]) for wave in found["waves"]] == [
        ("n1, begun before", ["n1"], 0),
        ("all", ["n2", "n3"], 2),
    ]
    assert found["progress"][0]["nodes"] == 2
    assert rollout.fails(role="pools", closed_at="n1, begun before") == "Closed."
    assert rollout.moved() == ["n1"]
    rollout.run(role="pools")
    assert rollout.moved() == ["n1", "n2", "n3"]
    assert rollout.open_waves() == []


def test_a_begun_wave_is_changed_before_the_others_of_its_wave(rollout):
    """A newer list may be what its nodes need to pass its gate."""
    rollout.fails(closed_at="n1")
    found = rollout.plan([NEXT_GPU, RT], waves=[{"nodes": ["n3"]}])
    assert [(wave["name"], wave["nodes"], wave["left"]) for wave in found["waves"]] == [
        ("n3", ["n3"], 1),
        ("n1, begun before", ["n1"], 1),
        ("rest", ["n2"], 1),
    ]


def test_without_waves_a_stopped_handover_passes_its_gate_first(rollout):
    rollout.run()
    cut = next(cut for cut in rollout.cuts if owner_in(cut, "n1") == names.IN_TRANSIT)
    rollout.begin(cut)
    found = rollout.plan(waves=[])
    assert [(wave["name"], wave["nodes"], wave["left"]) for wave in found["waves"]] == [
        ("n1, begun before", ["n1"], 1),
        ("all", ["n2", "n3"], 2),
    ]
    assert rollout.fails(role="pools", closed_at="n1, begun before") == "Closed."
    assert rollout.moved() == ["n1"]
    rollout.run(role="pools")
    assert rollout.moved() == ["n1", "n2", "n3"]
    assert rollout.open_waves() == []


def owner_in(objects, name):
    (found,) = (obj for obj in objects if obj["kind"] == "Node" and obj["metadata"]["name"] == name)
    return found["metadata"]["labels"].get(names.OWNER_LABEL)


def test_the_gate_of_a_divided_wave_comes_after_its_last_part(rollout):
    rollout.fails(closed_at="n2, n3")
    found = rollout.plan([NEXT_GPU, RT], waves=[{"nodes": ["n3"]}])
    assert [wave["name"] for wave in found["waves"]] == ["n3", "rest", "n2, n3, begun before"]


def test_a_node_that_is_gone_closes_no_gate(rollout):
    rollout.fails(closed_at="n2, n3")
    world = rollout.world
    gone = [
        key
        for key, obj in world.objects.items()
        if "n3" in (obj["metadata"]["name"], obj.get("spec", {}).get("nodeName"))
    ]
    for key in gone:
        del world.objects[key]
    rollout.run([GPU, RT])
    assert rollout.open_waves() == []


@pytest.fixture
def running(rollout, run, monkeypatch):
    """The pools are there."""
    stage = Stage(run, monkeypatch)
    world, _none = stage.on(stock())
    stage.run(FIRST.role, FIRST.variables)
    rollout.begin(world.objects.values())
    return rollout


def test_a_rollback_does_not_ask_what_it_undoes(running):
    running.fails([NEXT_GPU, RT], closed_at="n1")
    running.run([], role="rollback")
    assert running.open_waves() == []
    assert not running.plan()["pending"]


def test_a_rollback_passes_its_own(running, run):
    running.run([NEXT_GPU, RT])
    first = run("pool_history")["entries"][0]["digest"]
    running.fails([], role="rollback", closed_at="all")
    assert run("pool_history")["target"] == first
    running.fails([], role="rollback", closed_at="all")
    running.run([], role="rollback")
    assert running.open_waves() == []
    assert not running.plan()["pending"]


@pytest.mark.parametrize("on_failure", ["rollback_wave", "rollback_all"])
def test_nodes_that_went_back_are_asked_nothing(running, on_failure):
    running.fails([NEXT_GPU, RT], closed_at="n1", virtpools_on_failure=on_failure)
    assert running.open_waves() == []


def test_cut_off_anywhere_the_next_run_asks_every_gate(rollout):
    """After each write of a rollout: whatever wave was begun passes its gate, in the next run if not in this one."""
    rollout.run()
    steps = list(zip(rollout.disturbance.writes, rollout.cuts, strict=True))
    asked = dict.fromkeys(("n1", "n2, n3"), 0)
    for write, cut in steps:
        rollout.begin(cut)
        with told(f"The power fails after {write}"):
            due = [wave["name"] for wave in rollout.plan()["waves"] if wave["due"]]
            if not due:
                assert rollout.open_waves() == []
                continue
            assert rollout.fails(closed_at=due[0]) == "Closed."
            asked[due[0]] += 1
    assert min(asked.values()) > 3
