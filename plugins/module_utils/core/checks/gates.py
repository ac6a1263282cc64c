# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""The gate between two waves of a rollout: what is wrong with KubeVirt, and with the nodes of the wave and their VMs."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import typing as t
from dataclasses import dataclass

from ..admission import launcher_backends, outdated_policy
from ..base.findings import listed
from ..base.objects import KubeObject
from ..kubevirt import launcher_arguments, preflight
from ..observed.nodes import Node, timestamp
from ..observed.snapshot import Admission, Snapshot
from ..vms import matching, pool_choice
from ..vms.launcher_pods import LauncherImages, LauncherPod
from ..vms.mapping import Table
from . import node_checks

_MOST_CHARACTERS = 100_000
_DIGESTS = "sha256:"
_DIGEST_BYTES = 5
"""Of 100,000 known problems, one in ten million new ones has the digest of any."""


@dataclass(frozen=True)
class GateProblem:
    """What keeps a gate from passing. ``code`` and ``subject`` identify it, before a wave and after it."""

    code: str
    subject: str
    message: str
    final: bool = False
    """Whether it does not pass by itself."""
    starting: bool = False
    """Whether a VM is starting, which is a problem only when it takes too long."""
    of_wave: bool = True
    """Whether it means that the wave failed. What others can cause, such as the owner of a VM, only stops the run."""

    @property
    def key(self) -> str:
        return f"{self.code} {self.subject}"


def cluster_problems(snapshot: Snapshot, nodes: t.Collection[str], now: float) -> t.Iterator[GateProblem]:
    """What is wrong with KubeVirt and with these nodes.

    :param snapshot: with these nodes at least.
    :param now: seconds since 1970. If the clock is wrong, it was already wrong when the baseline was taken.
    """
    for finding in preflight.fitness(snapshot):
        if finding.severity == "error":
            # An upgrade, another deployment, or another tool that takes KubeVirt over, is not the wave's.
            of_wave = finding.code in preflight.PASSING - {preflight.ROLLOUT}
            yield GateProblem(finding.code, snapshot.kubevirt_name, finding.message, of_wave=of_wave)
    facts = node_checks.Facts(snapshot, now)
    for name in nodes:
        node = snapshot.nodes.get(name)
        if node is None:
            continue  # An autoscaler deleted it.
        if problem := node_checks.first_problem(node_checks.GATE, facts, node):
            yield GateProblem(problem.check.code, name, problem.sentence)


def vmi_problem(vmi: KubeObject) -> GateProblem | None:
    """What is wrong with a VM instance on a node of the wave."""
    status = vmi.get("status") or {}
    title, subject = _named(vmi)
    what = f"{title} on node {status.get('nodeName')}"
    if _is_to_end(vmi):
        return None
    if status.get("phase") == "Failed":
        return GateProblem("vmi_failed", subject, f"{what} has failed.", final=True)
    if status.get("phase") == "Scheduled":  # Its pod runs, its guest does not yet.
        return GateProblem("vmi_starting", subject, f"{what} stays Scheduled.", starting=True)
    return None


def _is_to_end(vmi: KubeObject) -> bool:
    """Whether a VM instance was deleted, and not only because it had failed.

    When a VM is deleted while its node has no handler, the kubelet ends the guest, and the next handler marks the VM as Failed until
    it is deleted (seen on KubeVirt 1.9.0). A VM that failed first may be deleted by KubeVirt, which then starts it again.
    """
    deleted = timestamp(vmi["metadata"].get("deletionTimestamp"))
    if deleted is None:
        return False
    status = vmi.get("status") or {}
    phases = {each.get("phase"): each for each in status.get("phaseTransitionTimestamps") or ()}
    failed = timestamp(phases.get("Failed", {}).get("phaseTransitionTimestamp"))
    return status.get("phase") != "Failed" or (failed is not None and deleted < failed)


def cured_failures(pods: t.Iterable[LauncherPod], snapshot: Snapshot, admission: Admission) -> frozenset[str]:
    """The uids of VM instances that failed because virt-launcher refused an argument, with an image that VMs do not get any more.

    No handler had a part in that, and the run has already cured it: such a failure is none of the wave's.

    :param pods: launcher pods that have failed.
    :param admission: with the live launcher policy.
    """
    table = launcher_backends.recorded_table(admission) or Table(())
    stock = outdated_policy.stock_image(snapshot) or ""
    if not table.rules:
        return frozenset()
    table = table.as_of(stock or None)
    images = LauncherImages(table, stock)

    def given(pod: LauncherPod) -> bool:
        if pod.by_webhook:
            return True  # by a rule of its own, which is not the run's
        winner = matching.winner(table, pod.attributes)
        canary = table.canaries.get(winner.name) if winner is not None else None
        compute = pod.images_of(compute_only=True)
        return any(not images.wrong(compute, image) for image in (images.expected(winner), canary) if image)

    refused = (pod for pod in pods if pod.exit_code == launcher_arguments.EXIT_CODE)
    return frozenset(pod.vmi_uid for pod in refused if pod.vmi_uid and not given(pod))


def orphan_problem(vmi: KubeObject) -> GateProblem | None:
    """The problem with a VM instance that runs on a node without a Ready handler, where nothing manages it."""
    status = vmi.get("status") or {}
    if status.get("phase") != "Running":
        return None
    title, subject = _named(vmi)
    message = f"{title} runs on node {status.get('nodeName')}, which has no Ready handler."
    # The node is outside the wave. That it died is likelier than that the wave took its handler.
    return GateProblem("orphan", subject, message, of_wave=False)


def _named(vmi: KubeObject) -> tuple[str, str]:
    """How messages name a VM instance, and what identifies it."""
    metadata = vmi["metadata"]
    where = f"{metadata['namespace']}/{metadata['name']}"
    return f"VM instance {where}", f"{where} {metadata.get('uid', '')}"


def nodes_without_handler(snapshot: Snapshot) -> frozenset[str]:
    """The nodes on which no handler is Ready, whether or not one should run there."""
    return frozenset(name for name in snapshot.nodes if not any(pod.ready for pod in snapshot.handlers.get(name, ())))


def pending_problems(
    pods: t.Iterable[LauncherPod], wave: t.Collection[str], nodes: t.Callable[[], t.Collection[Node]]
) -> t.Iterator[GateProblem]:
    """What is wrong with launcher pods that do not run yet, on nodes of the wave or on no node at all.

    A pod on no node counts when only the requirement that the launcher policy adds keeps it off every node. One that waits until a
    device is free does not: no other node has such a device.

    :param nodes: returns all nodes; called only when there are such pods.
    """
    for pod in pods:
        if pod.terminating or pod.migration is not None:
            continue  # During a migration the VM runs elsewhere.
        vmi, subject = f"VM instance {pod.namespace}/{pod.vmi}", f"{pod.namespace}/{pod.vmi} {pod.vmi_uid}"
        if pod.node in wave:
            # virt-handler has no part in this yet: the kubelet starts the pod, with what the VM's owner asked for.
            message = f"{vmi} on node {pod.node} stays Scheduling."
            yield GateProblem("vmi_starting", subject, message, starting=True, of_wave=False)
        elif pod.unschedulable is not None and (requirement := pod.placement.owner) is not None:
            # Nodes that fit what the VM asks for itself, and that only the policy's requirement excludes.
            own, mapped = pod.placement.without_owner(), pod.placement
            usable = (node for node in nodes() if node.ready and node.schedulable)
            excluded = (node for node in usable if own.unfit(node) is None and mapped.unfit(node) is not None)
            fitting = [node.name for node in excluded if not pool_choice.missing_devices(pod.attributes, node)]
            if fitting:
                yield GateProblem(
                    "vmi_kept_off",
                    subject,
                    f"{vmi} finds no node because it must go to one with {requirement}, while {listed(fitting)} "
                    f"would take it; the scheduler reports: {pod.unschedulable.rstrip('.')}.",
                    of_wave=False,
                )


def baseline_of(problems: t.Iterable[GateProblem]) -> list[str]:
    """What is wrong now, for a gate that is asked later: a key for each problem, or of many a part of each key's digest.

    An open wave keeps it in the history, a ConfigMap, which the keys of 9,000 VMs would fill.
    """
    keys = sorted(problem.key for problem in problems)
    if sum(map(len, keys)) <= _MOST_CHARACTERS:
        return keys
    return [_DIGESTS + base64.b64encode(b"".join(map(_digest, keys))).decode()]


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()[:_DIGEST_BYTES]


def _digests_in(baseline: t.Iterable[str]) -> t.Iterator[bytes]:
    for each in baseline:
        if each.startswith(_DIGESTS):
            with contextlib.suppress(ValueError):  # the history was edited by hand
                packed = base64.b64decode(each.removeprefix(_DIGESTS))
                yield from (packed[start : start + _DIGEST_BYTES] for start in range(0, len(packed), _DIGEST_BYTES))


class Gate:
    """Passes when there is no problem beyond the baseline.

    It does not wait for VMs that begin to start while it looks, since on a busy cluster some always do.
    """

    def __init__(self, baseline: t.Iterable[str]) -> None:
        self._known = frozenset(baseline)
        self._digests = frozenset(_digests_in(self._known))
        self._starting: set[str] | None = None

    def blocking(self, problems: t.Iterable[GateProblem]) -> list[GateProblem]:
        """Those that keep the gate from passing; callers look again until there are none.

        The first call decides which VMs were starting.
        """
        fresh = [problem for problem in problems if not self._knows(problem.key)]
        if self._starting is None:
            self._starting = {problem.key for problem in fresh if problem.starting}
        return [problem for problem in fresh if not problem.starting or problem.key in self._starting]

    def _knows(self, key: str) -> bool:
        return key in self._known or (bool(self._digests) and _digest(key) in self._digests)
