# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Canary VMs: short-lived VMs that show whether VMs start as they should on a pool's nodes in a wave.

A canary VM is a VirtualMachine: the user's own, or one without disks and network, whose guest is firmware that finds
nothing to boot. It gets what makes it a VM of its pool, and must run on the nodes of the wave.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..base import affinity, kinds, names
from ..base.findings import Finding, InputErrors, listed, note, warning
from ..base.objects import KubeObject, Object, condition
from ..base.selectors import Requirement
from ..observed.handlers import pod_problem
from ..observed.nodes import Node
from ..pools.criteria import ARCHITECTURE_LABEL, Example
from ..pools.inputs import shown
from ..pools.model import Pool
from ..vms import matching, prediction, rendering
from ..vms.launcher_pods import LauncherPod, PodPlacement
from ..vms.mapping import Table
from ..vms.rendering import Defaults
from .explanation import Subject
from .verdicts import Judge, Judgement, Vmi

_SWITCHES = {"true": True, "yes": True, "false": False, "no": False, "": False}
"""Booleans as text, as ``-e name=value`` gives them."""
_MINIMAL: KubeObject = {
    "domain": {
        "devices": {"autoattachPodInterface": False, "autoattachGraphicsDevice": False},
        "memory": {"guest": "64Mi"},
    }
}


# What the user wants ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Blueprint:
    """What canary VMs are created from."""

    namespace: str
    metadata: KubeObject
    """Labels and annotations."""
    spec: KubeObject
    """That of a VirtualMachine."""

    def vm(self, name: str, namespace: str, template: KubeObject | None = None) -> Object:
        """The VirtualMachine of this name. ``template`` replaces the user's."""
        # It starts once: a guest that ends has failed, and must not come back before we see that.
        spec = {key: value for key, value in self.spec.items() if key != "running"}
        vm = kinds.VIRTUAL_MACHINE.object(name, namespace, spec={**spec, "runStrategy": "Once"})
        vm["metadata"].update(self.metadata)
        if template is not None:
            vm["spec"]["template"] = template
        return _with_own_volumes(vm)


def _with_own_volumes(vm: Object) -> Object:
    """The VM, whose data volumes are named after it: those of the canary VMs of two pools must not be the same."""
    spec, name = vm["spec"], vm["metadata"]["name"]
    given = spec.get("dataVolumeTemplates") or ()
    if not given:
        return vm
    new = {str((each.get("metadata") or {}).get("name")): f"{name}-{number}" for number, each in enumerate(given, 1)}
    spec["dataVolumeTemplates"] = [
        {**each, "metadata": {**(each.get("metadata") or {}), "name": f"{name}-{number}"}}
        for number, each in enumerate(given, 1)
    ]
    template = spec["template"]
    volumes = [_renamed(volume, new) for volume in template["spec"].get("volumes") or ()]
    spec["template"] = {**template, "spec": {**template["spec"], "volumes": volumes}}
    return vm


def _renamed(volume: KubeObject, new: t.Mapping[str, str]) -> KubeObject:
    """A VM's volume, with the new name of its data volume."""
    renamed = dict(volume)
    for source, field in (("dataVolume", "name"), ("persistentVolumeClaim", "claimName")):
        referred = volume.get(source) or {}
        if referred.get(field) in new:
            renamed[source] = {**referred, field: new[referred[field]]}
    return renamed


def parse(raw: object) -> Blueprint | None:
    """The value of ``virtpools_canary_vm``: a boolean, or the manifest of a VirtualMachine or VirtualMachineInstance, whose
    ``kind`` and ``spec`` may be missing; None when the user wants no canary VM.

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
        raise _bad("has a metadata or spec that is not a mapping")
    namespace = str(metadata.get("namespace") or "default")
    own = {key: metadata[key] for key in ("labels", "annotations") if metadata.get(key)}
    if kind != kinds.VIRTUAL_MACHINE.name:
        return Blueprint(namespace, {}, {"template": {"metadata": own, "spec": spec or _MINIMAL}})
    template = spec.get("template")
    if not isinstance(template, t.Mapping) or not isinstance(template.get("spec"), t.Mapping):
        raise _bad("is a VirtualMachine without spec.template.spec")
    return Blueprint(namespace, own, spec)


def _bad(what: str) -> InputErrors:
    return InputErrors(
        [f"virtpools_canary_vm {what}; give true, or the manifest of a VirtualMachine or VirtualMachineInstance."]
    )


# The canary VM of a pool --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Draft:
    """The canary VM of a pool, which must run on one of these nodes."""

    pool: str
    nodes: frozenset[str]
    vm: KubeObject
    namespace_labels: t.Mapping[str, str] | None
    """Those of its namespace."""

    @property
    def title(self) -> str:
        metadata = self.vm["metadata"]
        return f"{metadata['namespace']}/{metadata['name']}"

    def __str__(self) -> str:
        return f"Canary VM {self.title} of pool {self.pool}"


@dataclass(frozen=True)
class LeftOut:
    """A pool without a canary VM."""

    pool: str
    reason: str
    """A clause."""

    def __str__(self) -> str:
        return f"No canary VM starts for pool {self.pool}: {self.reason}."


def nodes_by_pool(nodes: t.Iterable[Node]) -> dict[str, list[Node]]:
    """The nodes that pools have, by pool."""
    pools: dict[str, list[Node]] = {}
    for node in nodes:
        if node.owner not in (names.PRIMARY, names.IN_TRANSIT):
            pools.setdefault(node.owner, []).append(node)
    return dict(sorted(pools.items()))


def namespace_for(table: Table, pool: str, wanted: str, namespaces: t.Mapping[str, t.Mapping[str, str]]) -> str | None:
    """The namespace of a pool's canary VM: the wanted one, else the first namespace whose VMs the pool takes; None if there
    is none."""
    rule = _rule(table, pool)
    only = rule.selector.namespaces if rule is not None and rule.selector is not None else None
    return next(
        (name for name in (wanted, *sorted(namespaces)) if only is None or only.match(name, namespaces[name])), None
    )


def draft(
    wanted: Blueprint,
    pool: str,
    table: Table,
    nodes: t.Sequence[Node],
    subject: Subject,
    defaults: Defaults,
    everywhere: t.Iterable[Node] = (),
) -> Draft | LeftOut:
    """The canary VM of a pool that has these nodes, or why there is none.

    :param subject: the VM made from ``wanted``, with its instancetype applied. It decides whether the pool takes the VM.
    :param everywhere: all nodes of the cluster.
    """
    rule = _rule(table, pool)
    if rule is None and pool not in table.allow:
        return LeftOut(pool, "it takes no VMs, or none yet")
    hosts, members = set(map(_host, nodes)), {node.name for node in nodes}
    twins = sorted(node.name for node in everywhere if _host(node) in hosts and node.name not in members)
    if twins:
        return LeftOut(
            pool,
            f"a VM cannot be kept to its nodes, because node {listed(twins)} has the same label {names.HOSTNAME_LABEL} as one of "
            "them; give each node a value of its own",
        )
    expanded = (subject.vm or {})["spec"]["template"]
    winner: Pool | None = None
    for addition in _additions(rule, nodes):
        attributes = prediction.predict(
            _with(_placed(expanded, pool, nodes), addition),
            subject.namespace,
            subject.namespace_labels,
            name=subject.name,
            defaults=defaults,
            networks=subject.networks,
        ).attributes
        winner = matching.winner(table, attributes)
        if (winner and winner.name) == (rule and rule.name):
            template = _with(_placed(wanted.spec["template"], pool, nodes), addition)
            vm = wanted.vm(subject.name, subject.namespace, template)
            ours = {names.MANAGED_BY_LABEL: names.MANAGED_BY, names.CANARY_LABEL: pool}
            vm["metadata"]["labels"] = {**(vm["metadata"].get("labels") or {}), **ours}
            return Draft(pool, frozenset(node.name for node in nodes), vm, subject.namespace_labels)
    if winner is not None:
        return LeftOut(pool, f"pool {winner.name} would take it")
    given = [name for name in (rule.selector.device_names if rule and rule.selector else ()) if not _can_ask_for(name)]
    if given:
        return LeftOut(
            pool,
            f"KubeVirt itself gives device {listed(given)} to VMs, and refuses a VM that names it; set virtpools_canary_vm to the "
            "manifest of a VM that gets it",
        )
    return LeftOut(pool, "its selector would not take it")


def findings(drafts: t.Iterable[Draft | LeftOut]) -> t.Iterator[Finding]:
    """A plan's findings on its canary VMs."""
    results = tuple(drafts)
    titles = [f"{each.title} (pool {each.pool})" for each in results if isinstance(each, Draft)]
    if titles:
        yield note(
            "canary_vms",
            "After each wave, the run starts a canary VM on the nodes of each pool that got nodes or new handlers in it, "
            f"verifies it, and deletes it: {listed(titles)}.",
        )
    for each in results:
        if isinstance(each, LeftOut):
            yield warning("canary_vm_left_out", str(each))


def _with(template: Object, addition: Example) -> Object:
    """The template with the addition."""
    spec, metadata = template["spec"], template["metadata"]
    new_metadata = {**metadata, "labels": {**metadata["labels"], **addition.labels}}
    node_selector = {**(spec.get("nodeSelector") or {}), **addition.node_selector}
    new_spec = {**spec, **addition.spec, "nodeSelector": node_selector}
    asked = rendering.ASKED_BY.get(addition.device or "")
    if asked is not None:
        new_spec["domain"] = _merged(spec.get("domain") or {}, asked)
    elif addition.device is not None:
        # KubeVirt has two lists for devices. Both may name any device; hostDevices needs a feature gate of that name.
        domain = spec.get("domain") or {}
        devices = domain.get("devices") or {}
        added = {"name": "virtpools-canary", "deviceName": addition.device}
        devices = {**devices, "gpus": [*(devices.get("gpus") or ()), added]}
        new_spec["domain"] = {**domain, "devices": devices}
    return {**template, "metadata": new_metadata, "spec": new_spec}


def _merged(own: KubeObject, added: KubeObject) -> Object:
    """An object with what another one has more; both may have mappings in common."""
    merged = {**added, **own}
    for key, value in added.items():
        if isinstance(value, dict):
            merged[key] = _merged(own.get(key) or {}, value)
        elif isinstance(value, bool):
            merged[key] = value
    return merged


def _can_ask_for(device: str) -> bool:
    """Whether a VM can be made so that it gets the device."""
    return not device.startswith(names.KUBEVIRT_DEVICES) or device in rendering.ASKED_BY


def _additions(rule: Pool | None, nodes: t.Sequence[Node]) -> t.Iterator[Example]:
    """What we may add to a VM so that the pool takes it. A device comes last, since all devices may be in use."""
    yield Example()
    offered = frozenset(device for node in nodes for device, count in node.devices.items() if count)
    criteria = rule.criteria if rule is not None else ()
    alternatives = [criterion.examples(rule.selection) for criterion in criteria if rule and criterion.for_canary_vms]
    possible = [[each for each in examples if _can_ask_for(each.device or "")] for examples in alternatives]
    for examples in sorted(filter(None, possible), key=lambda examples: examples[0].device is not None):
        yield next((example for example in examples if example.device in offered), examples[0])


def _placed(template: KubeObject, pool: str, nodes: t.Sequence[Node]) -> Object:
    """The template for a VM on these nodes: it gets the image that the pool's other VMs get later, and is killed at once when
    it is deleted."""
    metadata, spec = template.get("metadata") or {}, template["spec"]
    on_nodes = Requirement(names.HOSTNAME_LABEL, "In", tuple(map(_host, nodes)))
    terms = PodPlacement.from_spec(spec).requiring(on_nodes).terms or ()
    architecture = spec.get("architecture") or nodes[0].labels.get(ARCHITECTURE_LABEL)
    return {
        **template,
        "metadata": {**metadata, "labels": {**(metadata.get("labels") or {}), names.CANARY_LABEL: pool}},
        "spec": {
            **spec,
            **({"architecture": architecture} if architecture else {}),
            "affinity": affinity.with_required_terms(spec.get("affinity"), terms),
            "terminationGracePeriodSeconds": 0,
        },
    }


def _host(node: Node) -> str:
    return node.labels.get(names.HOSTNAME_LABEL, node.name)


def _rule(table: Table, pool: str) -> Pool | None:
    return next((rule for rule in table.rules if rule.name == pool), None)


# Whether it has passed ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CanaryProblem:
    """Why a canary VM has not passed, as clauses."""

    message: str
    final: bool = False
    """Whether it does not pass by itself."""


def result(
    draft: Draft,
    vm: KubeObject,
    vmi: KubeObject | None,
    pod: KubeObject | None,
    judge: Judge,
    was_wrong: str | None = None,
) -> Judgement | CanaryProblem:
    """The state of a canary VM now: a judgement once it has passed.

    :param vmi: its VM instance; None while there is none. So is ``pod``, the launcher pod of the VM instance.
    :param was_wrong: what was wrong with its launcher pod before: KubeVirt deletes the pod of a guest that has ended.
    """
    if vmi is None:
        failure = condition(vm, "Failure").get("message")
        return CanaryProblem("it has no VM instance yet" + (f": {failure}" if failure else ""))
    phase, seen = (vmi.get("status") or {}).get("phase") or "Pending", Vmi.from_object(vmi)
    if phase in ("Failed", "Succeeded"):
        why = (pod_problem(pod) if pod is not None else None) or was_wrong
        return CanaryProblem(f"its guest has ended (phase {phase}){f': {why}' if why else ''}", final=True)
    if pod is None:
        return _stays(phase, seen.problem, "it has no launcher pod")
    launcher = LauncherPod.from_object(pod, draft.namespace_labels)
    judgement = judge.judge(launcher, seen)
    if phase != "Running":
        ended = f"its launcher pod has ended (phase {launcher.phase})" if launcher.ended else None
        return _stays(phase, seen.problem, judgement.reason, pod_problem(pod) or ended)
    wrong = _wrong(draft, judgement)
    return CanaryProblem(wrong, final=True) if wrong else judgement


def _stays(phase: str, *why: str | None) -> CanaryProblem:
    return CanaryProblem("; ".join([f"it stays {phase}", *filter(None, why)]))


def _wrong(draft: Draft, judgement: Judgement) -> str | None:
    """What is wrong with a canary VM that runs."""
    if judgement.verdict != "correct":
        return judgement.reason
    if judgement.node not in draft.nodes:
        return f"it runs on node {judgement.node}, which is not one of the pool's nodes in this wave"
    return None
