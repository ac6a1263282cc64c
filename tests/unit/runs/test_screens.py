# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What people see of playbooks is what the pages show of it: the demo's nodes with the pools of examples/pools.yml, in memory.

On a page, … stands for any text and, alone on a line, for any lines. Times and digests may differ.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning import interruption
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders, launcher_cases, vms
from ansible_collections.virtpools.kubevirt.tests.unit.support.roles import Play
from ansible_collections.virtpools.kubevirt.tests.unit.support.staged_runs import Stage

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[3]
POOLS = yaml.safe_load((ROOT / "examples/pools.yml").read_text("utf-8"))
FLEET = yaml.safe_load((ROOT / "testbed/fleets/demo.yaml").read_text("utf-8"))["nodes"]


def nodes():
    for group in FLEET:
        labels = {"kubernetes.io/arch": group.get("arch", "amd64"), **group.get("labels", {})}
        for number in range(group["count"]):
            node = builders.node(f"{group['prefix']}{number:02}", labels=labels)
            node["status"]["allocatable"] = {key: str(value) for key, value in group.get("capacity", {}).items()}
            yield node


class Demo:
    """The demo's cluster. ``shown``: what a person sees of all playbooks so far."""

    def __init__(self, run, monkeypatch):
        run.guarded = True
        self._run = run
        self._stage = Stage(run, monkeypatch)
        of_nodes = list(nodes())
        sets = [builders.primary(excluded=False, desired=len(of_nodes))]
        objects = [builders.kubevirt(), kinds.NAMESPACE.object("team-a"), *sets, *of_nodes]
        self.world, _disturbance = self._stage.on([*objects, *builders.handlers_of(of_nodes, sets)])

    def play(self, role, **variables):
        """Run a role as its playbook does; return what a person sees of it."""
        play = Play(lambda name, **arguments: self._module(play, name, arguments))
        play.role(role, **variables)
        if role == "pools" and "tasks" not in variables:
            play.role("pools", tasks="state", **variables)
        return play.shown

    def _module(self, play, name, arguments):
        result = self._run(name, **arguments)
        play.shown += result.get("events") or ()
        return result

    def start_vm(self, name, on, *, gpu=False, arch="amd64"):
        """Start a VM of team-a, as virt-controller does and the live policy changes it."""
        gpus = [{"name": "gpu0", "deviceName": launcher_cases.A100}] if gpu else []
        spec = {"architecture": arch, "domain": {"devices": {"gpus": gpus}}}
        vm = kinds.VIRTUAL_MACHINE.object(name, "team-a", spec={"template": {"metadata": {"labels": {}}, "spec": spec}})
        vmi = {**vms.vmi(name, on, namespace="team-a"), "spec": spec}
        vmi["metadata"]["ownerReferences"] = [{"kind": "VirtualMachine", "name": name, "controller": True}]
        plain = {"pool": None, "image": builders.LAUNCHER_IMAGE, "node_selector": {"kubernetes.io/arch": arch}}
        pod = vms.launcher(name, on, device=gpu, namespace="team-a", **plain)
        pod["metadata"]["labels"][names.CREATED_BY_LABEL] = f"uid-{name}"
        for obj in (vmi, vm, self._stage.admission.admitted(pod)):
            self.world.put(obj)


@pytest.fixture
def demo(run, monkeypatch):
    return Demo(run, monkeypatch)


TIME = re.compile(r"\d+(?:\.\d)? s\b")
DIGEST = re.compile(r"[0-9a-f]{12}(?:-[0-9a-f]{12})+")


def plain(line):
    return DIGEST.sub("<digest>", TIME.sub("<time>", line))


def screen(page, beginning):
    """The lines of the screen on a page that begins so, without those of Ansible itself."""
    # Between two marks of a block there is every other time a block, whatever its language.
    blocks = re.split(r"^ *```\w*\n", (ROOT / "docs" / page).read_text("utf-8"), flags=re.MULTILINE)[1::2]
    (block,) = (block for block in map(textwrap.dedent, blocks) if block.startswith(beginning))
    return [line for line in block.splitlines() if line and not line.startswith(OF_ANSIBLE)]


OF_ANSIBLE = ("PLAY ", "TASK ", "changed: ", "ok: ", "included: ", "east ")


def stray(screen, shown):
    """The first line of a screen that was not shown after those before it; None where all were."""
    text, pattern = "".join(f"{plain(line)}\n" for line in shown), "(?m)^"
    for line in screen:
        parts = re.split("(…)", plain(line))
        one = "".join(".*" if part == "…" else re.escape(part) for part in parts)
        pattern += r"(?:.*\n)*?" if line.strip() == "…" else f"{one}\n"
        if not re.search(pattern, text):
            return line
    return None


def test_a_run(demo):
    planned = demo.play("pools", tasks="plan_only", **POOLS)
    assert stray(screen("rollout.md", "NOTE primary_restarts"), planned) is None
    done = demo.play("pools", **POOLS)
    assert stray(screen("rollout.md", "Node a100-00: primary -> gpu-a100"), done) is None
    assert stray(screen("awx.md", "PLAY [Identify"), done) is None


def test_checks_and_a_removal(demo):
    demo.play("pools", **POOLS)
    demo.start_vm("chat", "a100-01", gpu=True)
    demo.start_vm("web", "plain-01")
    for name in ("build", "test"):
        demo.start_vm(name, "arm-01", arch="arm64")
    assert stray(screen("verify.md", "Everything is in order"), demo.play("verify")) is None
    explained = demo.play("explain", virtpools_vm="team-a/chat")
    assert stray(screen("verify.md", "VirtualMachine team-a/chat"), explained) is None
    checked = demo.play("upgrade_check", virtpools_upgrade_to="v1.9.1")
    assert stray(screen("operations.md", "The upgrade of KubeVirt"), checked) is None
    removed = demo.play("remove", virtpools_remove="all", virtpools_remove_vms="leave")
    assert stray(screen("operations.md", "3 VMs still run"), removed) is None


def test_an_interruption():
    said = interruption.lines(["a100-01", "arm-01"], 30)
    assert stray(screen("rollout.md", "The run was interrupted."), said) is None


def test_a_line_that_nothing_shows_is_found():
    assert stray(["a", "b…", "…", "d 1 s"], ["x", "a", "bc", "c", "e", "d 2.5 s"]) is None
    assert stray(["a", "c"], ["a", "b", "c"]) == "c"


def test_the_cluster_is_shown_once(demo):
    line = f"Cluster {demo.world.server}, UID unknown: the user may not read namespace kube-system"
    for role, variables in (("pools", POOLS), ("verify", {}), ("remove", {"virtpools_remove": "all"})):
        assert demo.play(role, **variables)[0] == line, "a play of the user shows nothing before"
        assert line not in demo.play(role, **variables, __virtpools_cluster={"text": line})
