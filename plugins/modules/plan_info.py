#!/usr/bin/python
# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module plan_info: what a run would do."""

from __future__ import annotations

DOCUMENTATION = r"""
module: plan_info
short_description: Plan virt-handler pools on a cluster, without changing anything
version_added: 0.1.0
description:
  - Compares a pool list with a cluster. Returns everything that a run of the playbook C(virtpools.kubevirt.site) would do, in order, and what its user
    should know first.
  - Needs only the rights of the ClusterRole C(virtpools-reader).
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
  - virtpools.kubevirt.kubevirt
  - virtpools.kubevirt.mode
  - virtpools.kubevirt.pools
  - virtpools.kubevirt.attributes
  - virtpools.kubevirt.attributes.reads
options:
  expected_plan:
    description:
      - Digest of the plan that was approved. When the plan is no longer that one, the run is refused with what changed since, and changes
        nothing.
      - An approved plan still holds after an interruption, since the digest does not cover what is left to do.
    type: str
  for_run:
    description:
      - Whether a run follows. Then the module also checks the rights that the run needs, and reports all missing ones together. It waits up to
        O(settle_timeout) seconds for a KubeVirt that an interrupted run left unsettled.
    type: bool
    default: false
  settle_timeout:
    description: Seconds to wait with O(for_run).
    type: int
    default: 1800
  cluster_name:
    description: The cluster's name in the inventory, under which its plan is published and approved.
    type: str
    default: localhost
  dump:
    description:
      - A directory of YAML or JSON files with Kubernetes objects, as C(kubectl get -o yaml) writes them, to plan from instead of a
        cluster.
      - It must hold KubeVirt, DaemonSets, nodes and the pods of KubeVirt's namespace; HyperConverged where there is one; for O(vms)
        the launcher pods, and the namespaces where pools select them; the policies, to see what the launcher policy does now; with
        O(alerts) the PrometheusRules.
    type: path
  stop_after_wave:
    description:
      - The name or number of the last wave that the run carries out. The run then ends successfully. To go on, run it again without
        this option or with a later wave.
      - The digest of the plan does not depend on it, so an approved plan stays approved.
    type: raw
  canary_vm:
    description:
      - The VM that M(virtpools.kubevirt.canary_vm) starts after each wave, in the form that module takes. A finding says for which pools. With
        O(for_run), the API server checks each VM in a dry run.
    type: raw
  vms:
    description:
      - Whether to read the launcher pods of all namespaces, to name the running VMs that the mapping keeps off the nodes they run on, or off all nodes that
        they could run on.
    type: bool
    default: false
  remove_vms:
    description:
      - With O(remove_pools), what happens to VMs that run with the launcher image of a pool to remove, or on its nodes. Needs O(vms).
      - V(refuse) makes them an error. V(leave) lets them keep running where they are, since a guest lives in its launcher pod. They
        start with KubeVirt's own image next time. With V(migrate) they are live-migrated first, with V(wait) their nodes go back when
        they have ended.
    type: str
    choices:
      - refuse
      - leave
      - migrate
      - wait
    default: refuse
  published_plan:
    description:
      - The approved plan, as an earlier job of a workflow published it. AWX passes it on. It is used where O(expected_plan) is not
        given.
      - The playbook C(plan), and C(rollback) and C(remove) in check mode, publish their plans, each for its own kind of run. With several
        clusters there is one plan for each.
    type: raw
  require_approval:
    description: Whether a run is refused without the digest of an approved plan, from O(expected_plan) or O(published_plan).
    type: bool
    default: false
author:
  - the virtpools.kubevirt authors (@virtpools)
"""

EXAMPLES = r"""
- name: What would happen?
  virtpools.kubevirt.plan_info:
    pools:
      - name: gpu
        nodeSelector:
          accelerator: nvidia
        virtHandlerImage: registry.example/virt-handler:v1.9.0-gpu
  register: plan

- name: Show it
  ansible.builtin.debug:
    var: plan.text
"""

RETURN = r"""
mode:
  description: V(collection) or V(operator). In an operator-mode plan, what only collection pools have is empty.
  returned: success
  type: str
build:
  description: The build of KubeVirt by whose pools an operator-mode run works, as in O(pools_dialect). Empty for collection pools.
  returned: success
  type: str
leaving:
  description:
    - Whose pools a run takes down first, V(operator) or V(collection), because it brings pools of the other mode. Empty for an ordinary run.
    - RV(changes), RV(text) and RV(owners) are then about both parts, and all else is about the second, on the cluster as the first will leave it.
  returned: success
  type: str
pending:
  description: Whether a run has anything to do, within the limit of O(stop_after_wave).
  returned: success
  type: bool
recorded:
  description: Whether the newest list in the history has these pools. It does not when a run was killed between its last change and its record.
  returned: success
  type: bool
settling:
  description: Whether KubeVirt has not rolled out yet what an earlier run asked of it; the run waits for that.
  returned: success
  type: bool
digest:
  description: Approve the plan by this digest. It covers the desired objects, the owner of every node, and the options that change what is written.
  returned: success
  type: str
  sample: 4be2a0fcd1c1-77d0ff0ae914-0a1b2c3d4e5f
changes:
  description: Every change, one line each, in the order of the run.
  returned: success
  type: list
  elements: str
  sample: ["DaemonSet kubevirt/virt-handler-gpu: create", "Node gpu-0: primary -> gpu"]
batches:
  description: The moves of nodes, in groups that are handed over side by side.
  returned: success
  type: list
  elements: list
waves:
  description: The waves, in order. Without O(waves) there is one.
  returned: success
  type: list
  elements: dict
  contains:
    number:
      description: Its position, from 1.
      type: int
    name:
      description: Its name.
      type: str
    nodes:
      description: All its nodes, including those that are done.
      type: list
      elements: str
    pools:
      description: The pools that get nodes or new handlers in it.
      type: list
      elements: str
    done:
      description: How many nodes are as they should be.
      type: int
    left:
      description: How many nodes are still to be changed.
      type: int
    batches:
      description: The indices of its batches in RV(batches).
      type: list
      elements: int
    due:
      description: Whether the run carries it out, if only to check its gate. Not when it has nothing to do, or comes after O(stop_after_wave).
      type: bool
    open:
      description: Its identifier in the history, when an earlier run began it and its gate has not passed since. Otherwise empty.
      type: str
stop:
  description: Where the run stops early, and how to go on. Empty when it does not stop.
  returned: success
  type: str
progress:
  description: How far the rollout is before each of RV(batches), for M(virtpools.kubevirt.pool_nodes).
  returned: success
  type: list
  elements: dict
launcher_steps:
  description: The numbers of batches after which the launcher policy changes. 0 is before the first batch.
  returned: success
  type: list
  elements: int
  sample: [0, 1, 4]
node_policy:
  description: Whether the run changes the policy that gives new nodes their owner.
  returned: success
  type: bool
guard:
  description: Whether the run changes the guard.
  returned: success
  type: bool
alerts:
  description: Whether the run changes the alerts before it hands nodes over.
  returned: success
  type: bool
last_alerts:
  description: Whether the run changes the alerts once the DaemonSets of pools that go are deleted.
  returned: success
  type: bool
leftovers:
  description: Image pull pods and canary VMs that an interrupted run left behind. The run deletes them.
  returned: success
  type: list
  elements: str
  sample: ["VirtualMachine default/virt-canary-gpu: delete"]
retire:
  description: Names of the pools whose DaemonSet is deleted at the end.
  returned: success
  type: list
  elements: str
exclusion:
  description: Whether the run changes the exclusion, which keeps the primary off pool nodes. With O(remove_pools), that comes last.
  returned: success
  type: bool
cleared:
  description: What else the run deletes at the very end, when no pool stays.
  returned: success
  type: list
  elements: str
  sample: ["ConfigMap kubevirt/virtpools-history: delete"]
findings:
  description: What the user should know. Errors forbid a run.
  returned: success
  type: list
  elements: dict
  contains:
    severity:
      description: V(error), V(warning) or V(note).
      type: str
    code:
      description: A stable name for this kind of finding.
      type: str
    message:
      description: One sentence.
      type: str
errors:
  description: The messages of the findings that forbid a run.
  returned: success
  type: list
  elements: str
owners:
  description:
    - How many nodes every owner has now, and how many it will have.
    - Nodes where the primary runs no handler, such as most of a control plane, are not the primary's.
  returned: success
  type: dict
state:
  description:
    - What the pools are like now, as lines for people, as RV(virtpools.kubevirt.pool_info#module:text) has it.
    - Empty when a run has anything to do. What it leaves is to be read after it.
  returned: success
  type: list
  elements: str
published:
  description: What a later job of a workflow needs to carry out this very plan. A dictionary by O(cluster_name), then by the kind of run.
  returned: success
  type: dict
  sample: {"west": {"site": {"digest": "4be2a0fcd1c1-77d0ff0ae914-0a1b2c3d4e5f", "nodes": 4, "pending": true}}}
text:
  description: The plan for people, as lines.
  returned: success
  type: list
  elements: str
"""

import contextlib
import time
import typing as t
from dataclasses import replace

from ansible_collections.virtpools.kubevirt.plugins.module_utils import module_base, option_table
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.client import ClusterError
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.nodes import canary as canary_vms
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.reading import dump, live
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.writing import settle
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.admission import policy_objects
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names, permissions
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.findings import Finding, InputErrors
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.checks import canary, state
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kubevirt import preflight
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.observed import snapshot
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.observed.snapshot import Snapshot
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.operator_mode import moving, view
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.operator_mode import plan as operator_plan
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.operator_mode import state as operator_state
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.operator_mode.builds import Build
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.operator_mode.moving import Departure
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.operator_mode.plan import OperatorPlan
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning import (
    approval,
    goals,
    history,
    plan,
    progress,
    removal,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.options import Options
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools.model import Pool
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.reports import terminal
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms import node_fit
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms.launcher_pods import LauncherPod

ARGUMENTS = {
    **option_table.arguments("mode", "pools", "plan_info"),
    "for_run": {"type": "bool", "default": False},
    "canary_vm": {"type": "raw"},
    "cluster_name": {"type": "str", "default": "localhost"},
    "vms": {"type": "bool", "default": False},
}

_TRANSIENT_SECONDS = 60


def body(task: module_base.Task) -> dict:
    options, pools = task.options(), task.pools()
    run = _run(task)
    expected = _expected(task, run)
    objects = dump.read_objects(task.params["dump"]) if task.params["dump"] else None
    cluster_state = _read(task, objects)
    brings = options.remove_pools is None and options.restore_nodes is None
    build = task.build(cluster_state, moving=brings)
    departure = moving.departure(build, cluster_state) if brings else None
    if departure is not None:
        _require_both(task, departure, cluster_state, build)
    if build is not None:
        return _operator(task, build, cluster_state, objects, expected, departure)
    planned, more = _plan(task, cluster_state, objects, pools, options, departure)
    _refuse_mismatch(planned.digest, expected)
    planned = planned.with_findings(more)
    if departure is not None:
        more = _of_departing_vms(task, departure, objects)
        planned = replace(planned, findings=departure.findings((*planned.findings, *more)))
    # Where a plan has errors they are what counts, and it may have no waves at all.
    scope = progress.RolloutScope.for_plan(planned, None if planned.errors else task.params["stop_after_wave"])
    server, uid = _cluster_of(task)
    cluster = {"server": server, "uid": uid or ""}
    result = {
        "changed": False,
        "mode": "collection",
        "build": "",
        "leaving": "",
        "pending": scope.pending,
        "recorded": _recorded(planned, pools, options),
        "settling": planned.settling,
        "digest": str(planned.digest),
        "changes": list(planned.changes()),
        "batches": [[move.to_dict() for move in batch] for batch in planned.batches],
        "waves": scope.to_list(),
        "stop": scope.stop or "",
        "progress": [each.to_dict() for each in scope.progress(time.time())],
        "launcher_steps": list(planned.launcher_steps),
        "node_policy": bool(planned.node_policy_changes),
        "guard": bool(planned.guard_changes),
        "alerts": bool(planned.alert_changes),
        "last_alerts": bool(planned.last_alert_changes),
        "leftovers": list(planned.leftovers),
        "retire": [change.pool for change in planned.retired],
        "exclusion": planned.exclusion.changed,
        "cleared": [policy_objects.change_line(obj, "delete") for obj in planned.cleared],
        "findings": [finding.to_dict() for finding in planned.findings],
        "errors": [finding.message for finding in planned.errors],
        "owners": terminal.owners(planned),
        "state": [] if scope.pending else terminal.state_lines(state.examine(planned.snapshot)),
        "published": approval.publish(task.params["cluster_name"], run, planned, scope, cluster),
        "text": [*([terminal.cluster_line(server, uid)] if server else ()), *terminal.plan_lines(planned, scope)],
    }
    return _with_departure(task, run, departure, result)


def _with_departure(task: module_base.Task, run: approval.Run, departure: Departure | None, result: dict) -> dict:
    """The result with the first part of a move, if the run is one."""
    if departure is None:
        return result
    first, name = departure.plan, task.params["cluster_name"]
    now = (terminal.owners(first) if isinstance(first, plan.Plan) else first.owners()).items()
    entry = result["published"][name][run]
    if not result["errors"]:
        entry = {**entry, "pending": True, "summary": f"{departure.summary}; then {entry['summary']}"}
    cluster = 0 if task.params["dump"] else 1  # the line that names it
    owners = {owner: {"now": count["now"], "after": 0} for owner, count in now}
    for owner, count in result["owners"].items():
        owners[owner] = {"now": owners.get(owner, {"now": 0})["now"], "after": count["after"]}
    return {
        **result,
        "leaving": departure.mode,
        "pending": True,
        "recorded": False,
        "state": [],
        "changes": [*first.changes(), *result["changes"]],
        "owners": owners,
        "published": {name: {run: entry}},
        "text": [*result["text"][:cluster], *terminal.move_lines(departure, result["text"][cluster:])],
    }


def _read(task: module_base.Task, objects: list[dict] | None) -> Snapshot:
    if objects is None:
        return task.snapshot()
    return snapshot.from_objects(objects, task.params["kubevirt_namespace"], task.params["kubevirt_name"])


def _cluster_of(task: module_base.Task) -> tuple[str, str | None]:
    return (task.cluster.server, live.uid(task.cluster)) if not task.params["dump"] else ("", "")


def _refuse_mismatch(digest: plan.Digest, expected: str | None) -> None:
    changed = digest.mismatch(expected) if expected else None
    if changed:
        raise InputErrors(
            [f"The plan is not the approved one: {changed} changed since. Read the plan again, then approve {digest}."]
        )


def _run(task: module_base.Task) -> approval.Run:
    if task.params["remove_pools"] is not None:
        return "remove"
    return "rollback" if task.params["pools_from_history"] else "site"


def _expected(task: module_base.Task, run: approval.Run) -> str | None:
    """The digest of the approved plan, if there is one."""
    name = task.params["cluster_name"]
    expected = task.params["expected_plan"] or approval.digest_of(task.params["published_plan"] or {}, name, run)
    if task.params["require_approval"] and task.params["for_run"] and not expected:
        raise InputErrors([approval.missing(name, run)])
    return expected


def _require_both(task: module_base.Task, departure: Departure, cluster_state: Snapshot, build: Build | None) -> None:
    """Ask for the rights of both parts of a move, before anything was changed."""
    if not task.params["for_run"]:
        return
    used = build or (departure.plan.build if isinstance(departure.plan, OperatorPlan) else None)
    hco = cluster_state.hyperconverged is not None
    collection = departure.plan if isinstance(departure.plan, plan.Plan) else None
    operator = permissions.for_operator_run(hco=hco, objects=used is not None and used.kind is not None)
    task.require({*operator, *(_rights(task, collection, task.options()) if collection else ())})


def _of_departing_vms(task: module_base.Task, departure: Departure, objects: list[dict] | None) -> tuple[Finding, ...]:
    """What the first part of a move means for VMs."""
    if not task.params["vms"]:
        return ()
    pods = dump.launcher_pods(objects) if objects is not None else live.launcher_pods(task.cluster)
    if isinstance(departure.plan, OperatorPlan):
        before, nodes = departure.plan.before, departure.plan.snapshot.nodes
        noted = (replace(pod, pool_env=pod.operator_pool) for pod in pods)
        return tuple(removal.vm_findings(noted, nodes, before, {pool.name for pool in before}, "leave"))
    found = departure.plan.snapshot
    leaving = removal.leaving(removal.ALL, found)
    return tuple(removal.vm_findings(pods, found.nodes, goals.recorded(found), leaving, "leave"))


def _recorded(planned: plan.Plan, pools: t.Sequence[Pool], options: Options) -> bool:
    admission = planned.snapshot.admission
    if planned.undoing or admission is None:
        return True
    known = history.read(admission.objects.get((kinds.CONFIG_MAP.name, names.HISTORY)))
    return known.is_current(history.entry_of(pools, goals.recorded(planned.snapshot), options, "", ""))


def _operator(
    task: module_base.Task,
    build: Build,
    cluster_state: Snapshot,
    objects: list[dict] | None,
    expected: str | None,
    departure: Departure | None,
) -> dict:
    """The result where KubeVirt's own operator creates the pools."""
    planned = task.operator_plan(build, departure.after if departure else cluster_state)
    if task.params["for_run"] and departure is None:
        task.require(
            permissions.for_operator_run(hco=cluster_state.hyperconverged is not None, objects=build.kind is not None)
        )
        if preflight.TRANSIENT & {finding.code for finding in planned.errors}:
            with contextlib.suppress(ClusterError):
                task.settle(_TRANSIENT_SECONDS)
            planned = task.operator_plan(build, task.snapshot())
    _refuse_mismatch(planned.digest, expected)
    pods = dump.launcher_pods(objects) if objects is not None else live.launcher_pods(task.cluster)
    planned = planned.with_findings((*_of_operator_vms(task, planned, pods), *_refused(task)))
    if departure is not None:
        more = _of_departing_vms(task, departure, objects)
        planned = replace(planned, findings=departure.findings((*planned.findings, *more)))
    server, uid = _cluster_of(task)
    run, name = _run(task), task.params["cluster_name"]
    result = {
        "changed": False,
        "mode": "operator",
        "build": build.name,
        "leaving": "",
        "pending": planned.pending,
        "recorded": planned.removing or planned.is_recorded(task.options()),
        "settling": planned.settling,
        "digest": str(planned.digest),
        "changes": list(planned.changes()),
        **{key: [] for key in ("batches", "waves", "progress", "launcher_steps", "leftovers", "cleared")},
        **dict.fromkeys(("node_policy", "guard", "alerts", "last_alerts", "exclusion"), False),
        "stop": "",
        "retire": sorted({pool.name for pool in planned.before} - {pool.name for pool in planned.pools}),
        "findings": [finding.to_dict() for finding in planned.findings],
        "errors": [finding.message for finding in planned.errors],
        "owners": planned.owners(),
        "state": [] if planned.pending else terminal.state_lines(operator_state.examine(build, planned.snapshot)),
        "published": planned.publish(name, run, {"server": server, "uid": uid or ""}),
        "text": [
            *([terminal.cluster_line(server, uid)] if server else ()),
            *terminal.operator_plan_lines(planned),
        ],
    }
    return _with_departure(task, run, departure, result)


def _refused(task: module_base.Task) -> t.Iterator[Finding]:
    """Options of this module that operator mode cannot keep."""
    if canary.parse(task.params["canary_vm"]) is not None:
        yield operator_plan.refused("virtpools_canary_vm", "there are no waves after which to start one")
    if task.params["stop_after_wave"]:
        yield operator_plan.refused("virtpools_stop_after_wave", "there are no waves")
    if task.params["remove_vms"] not in ("refuse", "leave"):
        yield operator_plan.refused(
            f"virtpools_remove_vms: {task.params['remove_vms']}",
            "virt-operator does not wait for VMs, and KubeVirt's own updates know the pools' images",
        )


def _of_operator_vms(
    task: module_base.Task, planned: OperatorPlan, pods: t.Iterable[LauncherPod]
) -> tuple[Finding, ...]:
    """What the removal of pools means for VMs."""
    if not (task.params["vms"] and planned.removing and planned.before):
        return ()
    leaving = {pool.name for pool in planned.before} - {pool.name for pool in planned.pools}
    seen = view.make_view(planned.build, planned.snapshot, None, task.options())
    noted = (replace(pod, pool_env=pod.operator_pool) for pod in pods)
    return tuple(removal.vm_findings(noted, seen.snapshot.nodes, planned.before, leaving, task.params["remove_vms"]))


def _plan(
    task: module_base.Task,
    cluster_state: Snapshot,
    objects: list[dict] | None,
    pools: t.Sequence[Pool],
    options: Options,
    departure: Departure | None,
) -> tuple[plan.Plan, tuple[Finding, ...]]:
    """The plan, and what it means for VMs."""
    if departure is not None:
        planned = plan.make_plan(departure.after, pools, options)
        if task.params["for_run"]:
            task.require(_rights(task, planned, options))
    elif objects is not None:
        planned = plan.make_plan(cluster_state, pools, options)
    else:
        planned = _live_plan(task, cluster_state, pools, options)
    if objects is not None:
        return planned, _of_vms(task, planned, dump.launcher_pods(objects))
    return planned, (*_of_vms(task, planned, live.launcher_pods(task.cluster)), *_canary_vms(task, planned))


def _of_vms(task: module_base.Task, planned: plan.Plan, pods: t.Iterable[LauncherPod]) -> tuple[Finding, ...]:
    # Canary VMs go before any node does.
    pods = (pod for pod in pods if f"{pod.namespace}/{pod.vmi}" not in planned.snapshot.leftover_canaries)
    if task.params["vms"] and planned.undoing:
        removed = task.options().remove_pools
        owners = removal.leaving(removed, planned.snapshot) if removed else ()
        recorded = goals.recorded(planned.snapshot)
        return tuple(removal.vm_findings(pods, planned.snapshot.nodes, recorded, owners, task.params["remove_vms"]))
    if not task.params["vms"] or planned.launcher_rollout is None or not planned.launcher_rollout.full.needed:
        return ()
    return node_fit.restart_findings(planned.launcher_rollout.full, planned.nodes_after(), pods)


def _canary_vms(task: module_base.Task, planned: plan.Plan) -> t.Iterator[Finding]:
    wanted = canary.parse(task.params["canary_vm"])
    if wanted is None or planned.launcher_rollout is None or planned.errors or not planned.batches:
        return
    pools = {move.target for move in planned.moves}
    nodes = [node for node in planned.nodes_after().values() if node.owner in pools]
    drafts = canary_vms.draft_vms(
        task.cluster, wanted, planned.launcher_rollout.stages[-1], nodes, planned.snapshot.kubevirt
    )
    for draft in drafts if task.params["for_run"] else ():
        if isinstance(draft, canary.Draft) and draft.title not in planned.snapshot.leftover_canaries:
            canary_vms.dry_run(task.cluster, draft)
    yield from canary.findings(drafts)


def _live_plan(task: module_base.Task, cluster_state: Snapshot, pools: t.Sequence[Pool], options: Options) -> plan.Plan:
    if task.params["for_run"]:
        first = plan.make_plan(cluster_state, pools, options)
        task.require(_rights(task, first, options))
        if first.settling:
            settle.await_own_change(task.cluster, cluster_state, task.params["settle_timeout"], task.clock)
        elif preflight.TRANSIENT & {finding.code for finding in first.errors}:
            # So it is for some seconds when nodes were handed over. What lasts is refused.
            with contextlib.suppress(ClusterError):
                task.settle(_TRANSIENT_SECONDS)
        else:
            return first
        cluster_state = task.snapshot()
    return plan.make_plan(cluster_state, pools, options)


def _rights(task: module_base.Task, planned: plan.Plan, options: Options) -> set[permissions.Permission]:
    """What a run of this plan needs."""
    found = planned.snapshot
    rights = permissions.for_run(
        hco=found.hyperconverged is not None,
        backend=planned.launcher_rollout.choice.backend if planned.launcher_rollout else "none",
        node_policy=bool(planned.node_policy_changes),
        guard=planned.guard is not None and planned.guard.in_force,
        alerts=bool(planned.alert_changes or planned.last_alert_changes),
        migrates=options.drain.vms == "migrate",
        canary_vms=bool(canary.parse(task.params["canary_vm"]) or found.leftover_canaries),
    )
    return {*rights, *(permissions.LEFTOVERS if planned.cleared else ())}


def main() -> None:
    module_base.run(body, ARGUMENTS)


if __name__ == "__main__":
    main()
