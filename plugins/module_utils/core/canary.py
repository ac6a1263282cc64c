# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Canary VMs: short-lived VMs of ours that show, for each pool with nodes in a wave, whether VMs start there as they should.

A canary VM is a VirtualMachine: the user's own, or one without disks and network, whose guest is firmware that finds
nothing to boot. It asks for what makes it a VM of its pool, and for the nodes of the wave.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import kinds, matching, names, prediction
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.findings import (
    Finding,
    InputErrors,
    listed,
    note,
    warning,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.frozen import FrozenMap
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.inputs import shown
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.launcher_pods import LauncherPod, Placement
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.mapping import Table
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.outlook import Subject
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools import Pool
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.prediction import Defaults
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.selectors import Requirement, example_labels
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.snapshot import Node, pod_problem
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.verdicts import Judge, Judgement, Vmi

KubeObject = t.Mapping[str, t.Any]
Object = dict[str, t.Any]

_NAME_PREFIX = "virt-canary-"
"""Short: a pool's name after it is still a valid host name."""
_SWITCHES = {"true": True, "yes": True, "false": False, "no": False, "": False}
"""What a switch may be as text, as ``-e name=value`` gives it."""
_MINIMAL: KubeObject = {
    "domain": {
        "devices": {"autoattachPodInterface": False, "autoattachGraphicsDevice": False},
        "memory": {"guest": "64Mi"},
    }
}


# What the user wants ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Wanted:
    """What canary VMs are made from: the namespace, labels and annotations, and ``spec`` of a VirtualMachine."""

    namespace: str
    metadata: KubeObject
    spec: KubeObject

    def vm(self, name: str, namespace: str, template: KubeObject | None = None) -> Object:
        """The VirtualMachine of this name, with this template in place of the user's."""
        # Started once: a guest that ends has not passed, and is not to come back before it is looked at.
        spec = {key: value for key, value in self.spec.items() if key != "running"}
        vm = kinds.VIRTUAL_MACHINE.object(name, namespace, spec={**spec, "runStrategy": "Once"})
        vm["metadata"].update(self.metadata)
        if template is not None:
            vm["spec"]["template"] = template
        return vm


def parse(raw: object) -> Wanted | None:
    """What the user says of canary VMs: a switch, or the manifest of a VirtualMachine or VirtualMachineInstance, whose
    ``kind`` and ``spec`` may be missing; None where none is wanted.

    :raises InputErrors: for anything else.
    """
    if raw is None or isinstance(raw, str):
        raw = _SWITCHES.get((raw or "").strip().lower(), raw)
    if raw is False:
        return None
    given = {} if raw is True else raw
    if not isinstance(given, t.Mapping):
        raise _bad(f"is {shown(given)}")
    kind, metadata, spec = given.get("kind"), given.get("metadata") or {}, given.get("spec") or {}
    if kind not in (None, kinds.VIRTUAL_MACHINE.name, kinds.VIRTUAL_MACHINE_INSTANCE.name):
        raise _bad(f"is of kind {shown(kind)}")
    if not isinstance(metadata, t.Mapping) or not isinstance(spec, t.Mapping):
        raise _bad("has a metadata or spec that is no mapping")
    namespace = str(metadata.get("namespace") or "default")
    own = {key: metadata[key] for key in ("labels", "annotations") if metadata.get(key)}
    if kind != kinds.VIRTUAL_MACHINE.name:
        return Wanted(namespace, {}, {"template": {"metadata": own, "spec": spec or _MINIMAL}})
    template = spec.get("template")
    if not isinstance(template, t.Mapping) or not isinstance(template.get("spec"), t.Mapping):
        raise _bad("is a VirtualMachine without spec.template.spec")
    return Wanted(namespace, own, spec)


def _bad(what: str) -> InputErrors:
    return InputErrors(
        [f"virtpools_canary_vm {what}; give true, or the manifest of a VirtualMachine or VirtualMachineInstance."]
    )


# What is made of it -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Draft:
    """The canary VM of a pool, which must run on one of these nodes. ``namespace_labels``: of its namespace."""

    pool: str
    nodes: frozenset[str]
    vm: KubeObject
    namespace_labels: t.Mapping[str, str] | None

    @property
    def title(self) -> str:
        metadata = self.vm["metadata"]
        return f"{metadata['namespace']}/{metadata['name']}"

    def __str__(self) -> str:
        return f"Canary VM {self.title} of pool {self.pool}"


@dataclass(frozen=True)
class LeftOut:
    """A pool without a canary VM. ``reason`` is a clause."""

    pool: str
    reason: str

    def __str__(self) -> str:
        return f"No canary VM starts for pool {self.pool}: {self.reason}."


def by_pool(nodes: t.Iterable[Node]) -> dict[str, list[Node]]:
    """The nodes that pools have, by pool."""
    found: dict[str, list[Node]] = {}
    for node in nodes:
        if node.owner not in (names.PRIMARY, names.IN_TRANSIT):
            found.setdefault(node.owner, []).append(node)
    return dict(sorted(found.items()))


def name_of(pool: str) -> str:
    """One at a time: what a run that died left behind is found by it, and replaced."""
    return f"{_NAME_PREFIX}{pool}"


def home(table: Table, pool: str, wanted: str, namespaces: t.Mapping[str, t.Mapping[str, str]]) -> str | None:
    """The namespace of a pool's canary VM: the wanted one or, where the pool takes no VMs of it, the first that it does."""
    rule = _rule(table, pool)
    only = rule.selector.namespaces if rule is not None and rule.selector is not None else None
    return next(
        (name for name in (wanted, *sorted(namespaces)) if only is None or only.match(name, namespaces[name])), None
    )


def draft(
    wanted: Wanted, pool: str, table: Table, nodes: t.Sequence[Node], subject: Subject, defaults: Defaults
) -> Draft | LeftOut:
    """The canary VM of a pool that has these nodes.

    :param subject: what ``wanted`` makes, with its instancetype applied: whether the pool takes it, that decides.
    """
    rule = _rule(table, pool)
    if rule is None and pool not in table.allow:
        return LeftOut(pool, "it takes no VMs, or not yet")
    expanded = (subject.vm or {})["spec"]["template"]
    winner: Pool | None = None
    for more in _ways(rule, nodes):
        asked = prediction.predict(
            more.to(_placed(expanded, pool, nodes)),
            subject.namespace,
            subject.namespace_labels,
            name=subject.name,
            defaults=defaults,
            networks=subject.networks,
        ).asked
        winner = matching.winner(table, asked)
        if (winner and winner.name) == (rule and rule.name):
            template = more.to(_placed(wanted.spec["template"], pool, nodes))
            vm = wanted.vm(subject.name, subject.namespace, template)
            ours = {names.MANAGED_BY_LABEL: names.MANAGED_BY, names.CANARY_LABEL: pool}
            vm["metadata"]["labels"] = {**(vm["metadata"].get("labels") or {}), **ours}
            return Draft(pool, frozenset(node.name for node in nodes), vm, subject.namespace_labels)
    return LeftOut(pool, f"pool {winner.name} would take it" if winner else "its selector would not take it")


def findings(drafts: t.Iterable[Draft | LeftOut]) -> t.Iterator[Finding]:
    """What a plan tells of them."""
    found = tuple(drafts)
    titles = [f"{each.title} (pool {each.pool})" for each in found if isinstance(each, Draft)]
    if titles:
        yield note(
            "canary_vms",
            "After each wave a canary VM starts on its nodes, of every pool that gets some or new handlers there, is "
            f"verified, and deleted: {listed(titles)}.",
        )
    for each in found:
        if isinstance(each, LeftOut):
            yield warning("canary_vm_left_out", str(each))


@dataclass(frozen=True)
class _More:
    """What a VM is given for a pool to take it."""

    labels: t.Mapping[str, str] = FrozenMap()
    node_selector: t.Mapping[str, str] = FrozenMap()
    device: str | None = None

    def to(self, template: Object) -> Object:
        """The template with it."""
        spec, metadata = template["spec"], template["metadata"]
        made = {
            "metadata": {**metadata, "labels": {**metadata["labels"], **self.labels}},
            "spec": {**spec, "nodeSelector": {**(spec.get("nodeSelector") or {}), **self.node_selector}},
        }
        if self.device is not None:
            # Of the two lists for devices, KubeVirt takes any device in this one.
            domain = spec.get("domain") or {}
            devices = domain.get("devices") or {}
            added = {"name": "virtpools-canary", "deviceName": self.device}
            devices = {**devices, "hostDevices": [*(devices.get("hostDevices") or ()), added]}
            made["spec"]["domain"] = {**domain, "devices": devices}
        return {**template, **made}


def _ways(rule: Pool | None, nodes: t.Sequence[Node]) -> t.Iterator[_More]:
    """What may make a VM one of the pool, the least first: a device may be in use."""
    yield _More()
    selector = rule.selector if rule is not None else None
    if rule is None or selector is None:
        return
    if selector.labels is not None:
        yield _More(labels=FrozenMap(example_labels(selector.labels)))
    if selector.match_node_selector:
        yield _More(node_selector=rule.node_selector)
    offered = [device for device in selector.device_names if any(device in node.devices for node in nodes)]
    for device in (offered or selector.device_names)[:1]:
        yield _More(device=device)


def _placed(template: KubeObject, pool: str, nodes: t.Sequence[Node]) -> Object:
    """The template for VMs on these nodes: with the image that the pool's other VMs get later, and gone at once."""
    metadata, spec = template.get("metadata") or {}, template["spec"]
    on = Requirement(
        names.HOSTNAME_LABEL, "In", tuple(node.labels.get(names.HOSTNAME_LABEL, node.name) for node in nodes)
    )
    affinity = spec.get("affinity") or {}
    required = {"nodeSelectorTerms": list(Placement.of_spec(spec).requiring(on).terms or ())}
    of_nodes = {
        **(affinity.get("nodeAffinity") or {}),
        "requiredDuringSchedulingIgnoredDuringExecution": required,
    }
    architecture = spec.get("architecture") or nodes[0].labels.get(matching.ARCHITECTURE_LABEL)
    return {
        **template,
        "metadata": {**metadata, "labels": {**(metadata.get("labels") or {}), names.CANARY_LABEL: pool}},
        "spec": {
            **spec,
            **({"architecture": architecture} if architecture else {}),
            "affinity": {**affinity, "nodeAffinity": of_nodes},
            "terminationGracePeriodSeconds": 0,
        },
    }


def _rule(table: Table, pool: str) -> Pool | None:
    return next((rule for rule in table.rules if rule.name == pool), None)


# Has it passed ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Problem:
    """Why a canary VM has not passed: clauses. One that is ``final`` does not go away by itself."""

    message: str
    final: bool = False


def look(
    made: Draft, vm: KubeObject, vmi: KubeObject | None, pod: KubeObject | None, judge: Judge
) -> Judgement | Problem:
    """What is to say of a canary VM now: a judgement once it has passed.

    :param vmi: its VM instance, and that one's launcher ``pod``; None while there is none.
    """
    if vmi is None:
        said = next((c.get("message") for c in _conditions(vm) if c.get("type") == "Failure"), None)
        return Problem("it has no VM instance yet" + (f": {said}" if said else ""))
    phase, seen = (vmi.get("status") or {}).get("phase") or "Pending", Vmi.of(vmi)
    if phase in ("Failed", "Succeeded"):
        return Problem(f"its guest has ended (phase {phase})", final=True)
    if pod is None:
        return _stays(phase, seen.trouble, "it has no launcher pod")
    judged = judge.judge(LauncherPod.of(pod, made.namespace_labels), seen)
    if phase != "Running":
        return _stays(phase, seen.trouble, judged.reason, pod_problem(pod))
    wrong = _wrong(made, judged)
    return Problem(wrong, final=True) if wrong else judged


def _stays(phase: str, *why: str | None) -> Problem:
    return Problem("; ".join([f"it stays {phase}", *filter(None, why)]))


def _wrong(made: Draft, judged: Judgement) -> str | None:
    """What is wrong with a canary VM that runs."""
    if judged.verdict != "correct":
        return judged.reason
    if judged.node not in made.nodes:
        return f"it runs on node {judged.node}, which is none of the pool's in this wave"
    return None


def _conditions(obj: KubeObject) -> t.Sequence[KubeObject]:
    return (obj.get("status") or {}).get("conditions") or ()
