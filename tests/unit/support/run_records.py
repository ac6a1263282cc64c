# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Records of runs, for tests of what renders them; rollouts can have any size, and fail anywhere."""

from __future__ import annotations

import random

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.reports import run_record

BEGAN = 1_795_000_000.0
WAVES = ("canary", "platform-a", "platform-b")
GO_ON = "To go on, correct the cause and run the same command again."


def node(name, began, gap=12.0, result="done", message=""):
    """What pool_nodes returns of one node."""
    return {
        "node": name,
        "from": "primary",
        "to": "gpu",
        "action": "move",
        "result": result,
        "message": message,
        "seconds_without_handler": gap,
        "began": began,
    }


def outcome(nodes, done=None, **fields):
    done = nodes if done is None else done
    became = {
        "run": "site",
        "digest": "0123",
        "changed": True,
        "failed": False,
        "nodes": nodes,
        "done": done,
        "stop": "",
        "later": [],
        "summary": f"completed, with {nodes} nodes changed",
        **fields,
    }
    return {"west": became}


def plan(nodes, **fields):
    """What plan_info returns."""
    digest = "9d3c52e7ab10-4be2a0fcd1c1"
    summary = f"every primary virt-handler restarts; 1 DaemonSet changes; {nodes} nodes change; 1 warning"
    entry = {"digest": digest, "summary": summary, "server": "https://west.example:6443", "uid": "5e1f-77"}
    warning = {
        "severity": "warning",
        "code": "primary_restarts",
        "message": "KubeVirt restarts its virt-handlers once.",
    }
    return {
        "text": [
            f"WARNING {warning['code']}: {warning['message']}",
            *("OWNER    NODES NOW  AFTER THE RUN", f"primary  {nodes + 20}         20", f"gpu      0          {nodes}"),
            *("First:", "  + DaemonSet kubevirt/virt-handler-gpu", "Wave 1 of 3 (canary): 0 of 2 nodes done, 2 to go"),
            *("  primary -> gpu: gpu-000, gpu-001", f"Plan: {summary}.", f"Plan digest: {digest}"),
        ],
        "findings": [warning],
        "errors": [],
        "pending": True,
        "stop": "",
        "outcome": outcome(nodes),
        "ending": [],
        "published": {"west": {"site": entry}},
        "mode": "collection",
        **fields,
    }


class Recorder:
    """A record, to which modules are added as they end."""

    def __init__(self, check=False):
        self.now = BEGAN
        self._steps = []
        self._check = check

    def ran(self, module, seconds=1.0, params=None, error="", **result):
        """A module has ended, after these seconds."""
        began, self.now = self.now, self.now + seconds
        if error:
            result = {**result, "failed": True, "msg": error}
        self._steps.append(run_record.step_of(module, params or {}, result, began, self.now))

    @property
    def record(self):
        """It went through its lines, as that of a run does."""
        opened = run_record.RunRecord(BEGAN, "admin on bastion", "west", self._check)
        return run_record.read([opened.opening, *(step.to_line() for step in self._steps)])


def rollout(nodes=60, batch=3, slow=(), failing=None, waves=WAVES, soak=120, seed=1):
    """The record of a rollout.

    :param slow: numbers of nodes that take many times as long.
    :param failing: the number of the node at which it fails.
    """
    recorder, chance = Recorder(), random.Random(seed)
    recorder.ran("plan_info", 2, **plan(nodes))
    recorder.ran("run_lease", 0.2, {"state": "present"})
    recorder.ran("plan_info", 1.5, **plan(nodes))
    recorder.ran("pool_history", 0.2, {"record": "begun"})
    changed = [f"KubeVirt kubevirt/kubevirt: {nodes} handlers restart"]
    recorder.ran("primary_exclusion", 41, {"state": "present"}, changes=changed)
    recorder.ran("pool_daemonsets", 3, {"state": "present"}, changes=["DaemonSet kubevirt/virt-handler-gpu: create"])
    recorder.ran(
        "run_part", 2, {"part": "launcher_policy"}, changes=["MutatingAdmissionPolicy virtpools-launcher: create"]
    )
    names = [f"gpu-{number:03}" for number in range(nodes)]
    first = max(2, nodes // 30)
    cut = first + (nodes - first) // 2
    parts = (names[:first], names[first:cut], names[cut:]) if len(waves) > 1 else (names,)
    done = 0
    for number, (wave, members) in enumerate(zip(waves, parts, strict=True), 1):
        recorder.ran("wave_gate", 0.5, {}, problems=[])
        recorder.ran("pool_history", 0.2, {"record": "wave_begun", "wave": {"name": wave, "nodes": members}})
        for start in range(0, len(members), batch):
            here = members[start : start + batch]
            began = recorder.now + chance.uniform(2, 6)
            found = []
            for name in here:
                place = names.index(name)
                gap = chance.uniform(9, 16) * (6 if place in slow else 1)
                failed = place == failing
                why = "the handler of gpu is not Ready after 60 s; it went back to primary" if failed else ""
                result = "returned" if failed else "done"
                found.append(node(name, began + chance.uniform(0, 0.8), 74.2 if failed else gap, result, why))
            done += sum(each["result"] == "done" for each in found)
            seconds = began - recorder.now + max(each["seconds_without_handler"] for each in found) + 1
            progress = {"wave": wave, "number": number, "waves": len(waves)}
            error = "1 of 3 nodes failed, and the run stops here." if any(each["message"] for each in found) else ""
            recorder.ran("pool_nodes", seconds, {"progress": progress}, error, nodes=found)
            if error:
                end = plan(
                    nodes, outcome=outcome(nodes, done, failed=True), ending=[f"Done: {done} of {nodes} nodes.", GO_ON]
                )
                recorder.ran("plan_info", 2, {"planned_batches": [[]]}, **end)
                return recorder
        recorder.ran("wave_gate", 8, {"baseline": [], "soak": 0}, problems=[])
        vm = {"pool": "gpu", "vm": "default/virt-canary-gpu", "node": members[0], "seconds": 14.2, "image": "x"}
        recorder.ran("canary_vm", 16, {}, vms=[vm])
        if soak:
            recorder.ran("wave_gate", soak + 3, {"baseline": [], "soak": soak}, problems=[])
        recorder.ran("pool_history", 0.2, {"record": "wave_done"})
    recorder.ran("pool_history", 0.2, {"record": "completed"})
    recorder.ran("run_lease", 0.1, {"state": "absent"})
    return recorder
