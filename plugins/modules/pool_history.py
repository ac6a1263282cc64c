#!/usr/bin/python
# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module pool_history: the pool lists that a cluster had."""

from __future__ import annotations

DOCUMENTATION = r"""
module: pool_history
short_description: Record the pool lists that a cluster had, and look them up
version_added: 0.1.0
description:
  - The ConfigMap C(virtpools-history) in KubeVirt's namespace holds the last ten pool lists of runs that completed, or fewer when they are larger than
    900 kB together. O(pools_from_history) uses one of them as the list of a run.
  - It also holds the waves that runs began and whose gates have not passed since, with what was wrong before each wave.
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
  - virtpools.kubevirt.kubevirt
  - virtpools.kubevirt.pools
  - virtpools.kubevirt.run
  - virtpools.kubevirt.attributes
  - virtpools.kubevirt.attributes.writes
options:
  record:
    description:
      - What to record. By default the module only reads.
      - V(completed) is for the end of a run that completed. It appends a list of the pools given, then of the pools that the cluster keeps besides, unless
        that is the newest list already. No wave stays open.
      - V(begun) records that a run begins. A run that goes back to the list of O(pools_from_history) records this target, in case it is interrupted. Any
        other run records that it brings another list than the newest and, on a cluster without pools, that it had none before. Open waves of runs with
        another target are forgotten, and with O(skip_pending_gates) all open waves. A removal (O(remove_pools)) records only that it begins.
      - V(move_begun) records O(move), a move between the modes, before its first write. A run that completes ends it. The pools that the move takes down
        become a list of the history, too.
      - V(wave_begun) records O(wave) as open, with what was wrong before it. A wave that is open already keeps what was wrong then.
      - V(wave_done) removes O(wave), whose gate has passed.
      - V(removed) is for the end of a removal. It appends the newest list without the pools of O(remove_pools), so that no run goes back to them when it
        fails. During a move that is unfinished it takes them out of the record of that move instead.
    type: str
    choices:
      - completed
      - begun
      - move_begun
      - wave_begun
      - wave_done
      - removed
  move:
    description: The move to record, as M(virtpools.kubevirt.plan_info) returned it. Needed with O(record=move_begun).
    type: dict
  wave:
    description: The wave to record or to remove. Needed with O(record=wave_begun) and O(record=wave_done).
    type: dict
    suboptions:
      open:
        description: The identifier of a wave that is open already, as RV(open_wave) or M(virtpools.kubevirt.plan_info) return it.
        type: str
      name:
        description: Its name, for people.
        type: str
      nodes:
        description: Its nodes.
        type: list
        elements: str
      baseline:
        description: What was wrong before it, as M(virtpools.kubevirt.wave_gate) returned it.
        type: list
        elements: str
  cluster_name:
    description: The name under which O(published_plan) has the plan for this cluster.
    type: str
    default: localhost
  expected_newest:
    description:
      - RV(newest) as a task of the same run read it before. The module fails when the newest list is another one, because another run has recorded it since.
    type: str
  published_plan:
    description: The plan of a run that is to be undone, as an earlier job of a workflow published it. AWX passes it on. The rollback
      then goes back to the list that the cluster had when the plan was made, however far its run came.
    type: raw
author:
  - the virtpools.kubevirt authors (@virtpools)
"""

EXAMPLES = r"""
- name: Look at the lists that this cluster had
  virtpools.kubevirt.pool_history:
  register: history

- name: Go back to the oldest of them
  ansible.builtin.include_role:
    name: virtpools.kubevirt.rollback
  vars:
    virtpools_rollback_to: "{{ history.entries[0].digest }}"
"""

RETURN = r"""
entries:
  description: The lists, the newest last. In check mode those before the change.
  returned: success
  type: list
  elements: dict
  contains:
    digest:
      description: The digest by which the list is named.
      type: str
      sample: 3f6d1c0a9b42
    applied:
      description: When a run with this list completed, as RFC 3339.
      type: str
      sample: "2026-11-21T19:30:00Z"
    by:
      description: Who ran it.
      type: str
      sample: admin on bastion
    options:
      description: The options that decide what the list does to a cluster.
      type: dict
    pools:
      description: The pools, in this collection's own form.
      type: list
      elements: dict
target:
  description:
    - Digest of the list that a rollback goes back to by default. With O(published_plan) that is the list which the cluster had when the plan was made,
      however far its run came.
    - Without it, that is the target of an interrupted rollback. Otherwise the newest list, when a run of another list did not complete since then or the
      cluster's pools differ from it. Otherwise the list before the newest. Empty when there is none.
  returned: when O(record) is not given
  type: str
no_target:
  description: Why there is no V(target), as a sentence; empty when there is one.
  returned: when O(record) is not given
  type: str
before:
  description:
    - What a run with the given list goes back to when it fails. Digest of the newest list, or V(no pools) for a first run. Empty when there is nothing to
      go back to.
  returned: when O(record) is not given, and a list is
  type: str
no_before:
  description: Why there is no V(before), as a sentence; empty when there is one.
  returned: when O(record) is not given, and a list is
  type: str
newest:
  description: The newest list and when it was recorded, or V(no pools) when no list is recorded.
  returned: when O(record) is not given
  type: str
  sample: 3f6d1c0a9b42 2026-11-21T19:30:00Z
open_wave:
  description: The wave as it is recorded now.
  returned: with O(record=wave_begun)
  type: dict
  contains:
    open:
      description: What the history calls it.
      type: str
      sample: 0a1b2c3d4e5f
    baseline:
      description: What was wrong before it when it first began.
      type: list
      elements: str
moving:
  description: The move between the modes that a run began and no run has completed, as a sentence. In check mode that before the change. Empty for none.
  returned: success
  type: str
open_waves:
  description: The waves that runs began and whose gates have not passed since. In check mode those before the change.
  returned: success
  type: list
  elements: dict
  contains:
    open:
      description: What the history calls it.
      type: str
    name:
      description: Its name.
      type: str
    nodes:
      description: Its nodes.
      type: list
      elements: str
changes:
  description: What was, or would be, done.
  returned: success
  type: list
  elements: str
  sample: ["ConfigMap kubevirt/virtpools-history: update"]
text:
  description: The lists for people, one line each, the newest last, then the unfinished move and the open waves.
  returned: success
  type: list
  elements: str
"""

import typing as t
from dataclasses import replace
from datetime import datetime, timezone

from ansible_collections.virtpools.kubevirt.plugins.module_utils import module_base, option_table
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.reading import live
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.writing import history as live_history
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.findings import InputErrors
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.modes import choice
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning import approval, goals, history, removal
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.history import Entry, History, OpenWave
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools.model import Pool

ARGUMENTS: option_table.Arguments = {
    **option_table.arguments("pools", "run", "pool_history"),
    "record": {"type": "str", "choices": ["completed", "begun", "move_begun", "wave_begun", "wave_done", "removed"]},
    "move": {"type": "dict"},
    "wave": {
        "type": "dict",
        "options": {
            "open": {"type": "str"},
            "name": {"type": "str"},
            "nodes": {"type": "list", "elements": "str"},
            "baseline": {"type": "list", "elements": "str"},
        },
    },
    "expected_newest": {"type": "str"},
    "cluster_name": {"type": "str", "default": "localhost"},
}


def body(task: module_base.Task) -> dict:
    if task.params["record"] is None:
        snapshot = task.snapshot()
        known = live_history.read(task.cluster, snapshot.namespace)
        if task.params["expected_newest"]:
            known.require_newest(task.params["expected_newest"])
        used = choice.in_use(snapshot)
        recorded = used.recorded(snapshot)
        before = _before(known, _brought(task, recorded), recorded) if task.asked.pools_given else {}
        target = _target(task, known, recorded, used.build_name or None)
        return {"changed": False, "changes": [], "newest": known.newest, **_shown(known), **target, **before}
    if task.params["record"] in ("wave_begun", "wave_done"):
        return _of_wave(task, task.params["wave"] or {})
    if task.params["record"] == "move_begun":
        return _write(task, task.namespace(), _move_begun(task))
    if task.params["record"] == "removed":
        asked = task.asked.options.remove_pools
        if asked is None:
            raise InputErrors(["record is removed, but remove_pools is missing; give the names of the pools, or all."])
        snapshot, removed = task.snapshot(nodes=()), None if asked == removal.ALL else asked
        there = {*snapshot.pools, *(pool.name for pool in choice.in_use(snapshot).recorded(snapshot))}
        return _write(task, snapshot.namespace, lambda known: known.pools_removed(removed, there, _now(), task.run_by))
    if task.params["record"] == "begun" and task.asked.options.remove_pools is not None:
        return _write(task, task.namespace(), History.removal_begun)
    if task.params["record"] == "begun":
        snapshot = task.snapshot(nodes=())  # the DaemonSets tell what pools there are
        recorded, digest = goals.recorded(snapshot), task.params["pools_from_history"] or None
        afresh = task.params["skip_pending_gates"]
        brings = "" if digest else _brought(task, recorded).digest
        return _write(
            task, snapshot.namespace, lambda known: known.begun(digest, recorded, brings=brings, afresh=afresh)
        )
    snapshot = task.snapshot()
    entry = _entry(task, goals.recorded(snapshot))
    return _write(task, snapshot.namespace, lambda known: known.completed(entry))


def _of_wave(task: module_base.Task, wave: dict) -> dict:
    kubevirt = live.find_kubevirt(task.cluster, task.params["kubevirt_namespace"], task.params["kubevirt_name"])
    namespace = kubevirt["metadata"]["namespace"]
    if task.params["record"] == "wave_done":
        if not wave.get("open"):
            raise InputErrors(["record is wave_done, but wave.open does not name one; give what wave_begun returned."])
        return _write(task, namespace, lambda known: known.wave_done(wave["open"]))
    if not wave.get("open"):
        if None in (wave.get("name"), wave.get("nodes"), wave.get("baseline")):
            raise InputErrors(["record is wave_begun, but wave lacks name, nodes or baseline; give all three."])
        begun = OpenWave(wave["name"], tuple(wave["nodes"]), tuple(wave["baseline"]), task.asked.options.back_to)
        result = _write(task, namespace, lambda known: known.wave_begun(begun))
        noted = live_history.read(task.cluster, namespace).wave_begun(begun).open_wave(begun.id)
    else:
        noted = live_history.read(task.cluster, namespace).open_wave(wave["open"])
        result = _write(task, namespace, lambda known: known)
    return {**result, "open_wave": {"open": noted.id, "baseline": list(noted.baseline)}}


def _move_begun(task: module_base.Task) -> t.Callable[[History], History]:
    move = history.read_move(task.params["move"])
    if move is None:
        raise InputErrors(["record is move_begun, but move is not what plan_info returned; give that."])
    now, run_by = _now(), task.run_by
    former = move.former and replace(move.former, applied=now, by=run_by)
    begun = replace(move, to=replace(move.to, applied=now, by=run_by), former=former)
    going_to = task.params["pools_from_history"] or None
    return lambda known: known.move_begun(begun, going_to)


def _now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def _brought(task: module_base.Task, recorded: t.Sequence[Pool]) -> Entry:
    """The entry for a run of the given list, as it will be when the run has completed.

    :param recorded: the pools that the cluster has now.
    """
    return _entry(task, () if task.asked.options.prune else recorded)


def _entry(task: module_base.Task, kept: t.Sequence[Pool]) -> Entry:
    return history.entry_of(task.asked.pools, kept, task.asked.options, _now(), task.run_by)


def _write(task: module_base.Task, namespace: str, change: t.Callable[[History], History]) -> dict:
    known = live_history.read(task.cluster, namespace)
    if change(known) == known:
        return {"changed": False, "changes": [], "diff": [], **_shown(known)}
    if task.check_mode:
        before, after = live_history.write(task.cluster, namespace, change, dry_run=True)
    else:
        with task.writing(namespace):
            before, after = live_history.write(task.cluster, namespace, change, dry_run=False)
        known = history.read(after)
    action = "update" if before else "create"
    changes = [f"ConfigMap {namespace}/{names.HISTORY}: {action}"]
    return {"changed": True, "changes": changes, "diff": [module_base.object_diff(before, after)], **_shown(known)}


def _shown(known: History) -> dict:
    return {
        "entries": [entry.to_dict() for entry in known.entries],
        "open_waves": [{"open": wave.id, "name": wave.name, "nodes": list(wave.nodes)} for wave in known.waves],
        "moving": str(known.moving or ""),
        "text": [*map(str, known.entries), *([str(known.moving)] if known.moving else []), *map(str, known.waves)],
    }


def _target(task: module_base.Task, known: History, recorded: t.Sequence[Pool], operator: str | None) -> dict:
    published, host = task.params["published_plan"] or {}, task.params["cluster_name"]
    try:
        approved = approval.rollback_target(published, host, task.cluster_id(), known) if published else None
        return {"target": (approved or known.rollback_target(recorded, operator)).digest, "no_target": ""}
    except InputErrors as error:
        return {"target": "", "no_target": "\n".join(error.messages)}


def _before(known: History, entry: Entry, recorded: t.Sequence[Pool]) -> dict:
    try:
        return {"before": known.fallback(entry, recorded), "no_before": ""}
    except InputErrors as error:
        return {"before": "", "no_before": "\n".join(error.messages)}


def main() -> None:
    module_base.run(body, ARGUMENTS)


if __name__ == "__main__":
    main()
