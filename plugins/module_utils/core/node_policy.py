# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node policy: admission gives a node its owner when it is created, so that it never runs the handler of another.

It acts on CREATE alone: a node that is relabelled later is drift, and the next run of site moves it. A label that the node
brings along stays.
"""

from __future__ import annotations

import copy
import typing as t
from dataclasses import dataclass

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import (
    cel,
    kinds,
    launchers,
    names,
    objects,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.findings import Finding, error, warning
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kinds import Kind
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.objects import Object
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools import Pool
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.probes import Probe, sample
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.selectors import example_labels
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.snapshot import Admission, KubeObject

_DIGITS = 12


@dataclass(frozen=True)
class NodePolicy:
    """What a run does for nodes to come. ``pools`` in order: the first that selects a node owns it; none: no policy."""

    admission: Admission
    pools: tuple[Pool, ...] = ()

    @property
    def desired(self) -> list[tuple[Kind, Object]]:
        """The policy and its binding, in the order to write them."""
        served = self.admission.policy_kind
        return derive(self.pools, served) if self.pools and served else []

    @property
    def to_write(self) -> tuple[Object, ...]:
        """Those that are missing or differ."""
        return launchers.missing(self.desired, self.admission)

    @property
    def to_delete(self) -> tuple[KubeObject, ...]:
        """Live ones of ours that are not needed, in the order to take them away."""
        candidates = launchers.ours(self.admission, names.CANDIDATE_NODE_POLICY)
        return tuple(candidates if self.desired else live(self.admission))

    @property
    def changes(self) -> tuple[str, ...]:
        """What is written, one line each."""
        return launchers.lines(self.to_write, self.to_delete, self.admission)

    @property
    def digest(self) -> str | None:
        """Of the pools' part in it; None without a policy."""
        return digest_of(self.pools) if self.pools else None

    def findings(self) -> t.Iterator[Finding]:
        """What forbids it."""
        if self.pools and self.admission.policy_kind is None:
            yield error(
                "node_policy_not_served",
                f"virtpools_assign_new_nodes needs {kinds.MUTATING_ADMISSION_POLICIES[0]}, which this API server does not "
                "serve; enable it, or leave that option out and run site when nodes have joined.",
            )
        yield from launchers.foreign(self.desired, self.admission)


def is_live(admission: Admission | None) -> bool:
    """Whether the cluster has a node policy of ours."""
    return admission is not None and bool(launchers.ours(admission, names.NODE_POLICY))


def live(admission: Admission | None) -> tuple[KubeObject, ...]:
    """All of ours that changes nodes, in the order to take it away."""
    if admission is None:
        return ()
    return tuple(
        obj for name in (names.NODE_POLICY, names.CANDIDATE_NODE_POLICY) for obj in launchers.ours(admission, name)
    )


def examine(admission: Admission | None) -> t.Iterator[Finding]:
    """Whether the live policy is still what was written."""
    for obj in live(admission):
        noted = (obj["metadata"].get("annotations") or {}).get(names.POLICY_ANNOTATION)
        if obj["metadata"]["name"] == names.NODE_POLICY and noted and noted != _digest(_without(noted, obj["spec"])):
            yield warning(
                "node_policy_edited",
                f"{obj['kind']} {names.NODE_POLICY} was changed by hand, so that nodes that join may get another owner than "
                "the pools say; run site with virtpools_assign_new_nodes: true to put it right.",
            )


# The policy ---------------------------------------------------------------------------------------------------------


def derive(pools: t.Sequence[Pool], policy: Kind, name: str = names.NODE_POLICY) -> list[tuple[Kind, Object]]:
    """The policy and its binding, in the order to create them.

    :param policy: the version of MutatingAdmissionPolicy to write.
    :param name: with another name than ``names.NODE_POLICY`` it acts on probes of that name alone.
    """
    binding = kinds.MUTATING_ADMISSION_POLICY_BINDINGS[kinds.MUTATING_ADMISSION_POLICIES.index(policy)]
    digest = digest_of(pools)
    made = policy.object(name, spec=_spec(pools, name, digest))
    labels = {names.MANAGED_BY_LABEL: names.MANAGED_BY}
    made["metadata"].update(labels=labels, annotations={names.POLICY_ANNOTATION: digest})
    bound = binding.object(name, spec={"policyName": name})
    bound["metadata"].update(labels=dict(labels))
    return [(policy, made), (binding, bound)]


def digest_of(pools: t.Sequence[Pool]) -> str:
    """What tells this policy from any other that does something else."""
    return _digest(_spec(pools, names.NODE_POLICY, digest=""))


def _digest(spec: t.Mapping[str, t.Any]) -> str:
    return objects.digest(spec)[:_DIGITS]


def _without(digest: str, spec: t.Any) -> t.Any:
    """The spec that the digest was made of, before it was put into it."""
    if isinstance(spec, t.Mapping):
        return {key: _without(digest, value) for key, value in spec.items()}
    if isinstance(spec, list):
        return [_without(digest, value) for value in spec]
    return spec.replace(cel.literal(digest), cel.literal("")) if isinstance(spec, str) else spec


def _spec(pools: t.Sequence[Pool], name: str, digest: str) -> Object:
    """Everything spelled out that the server would add, so that the live policy can be compared with it."""
    return {
        # A node without its owner is drift; a node that cannot join is an outage.
        "failurePolicy": "Ignore",
        "reinvocationPolicy": "IfNeeded",
        "matchConstraints": {
            "matchPolicy": "Equivalent",
            "namespaceSelector": {},
            "objectSelector": {"matchExpressions": [{"key": names.OWNER_LABEL, "operator": "DoesNotExist"}]},
            "resourceRules": [
                {
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "operations": ["CREATE"],
                    "resources": ["nodes"],
                    "scope": "Cluster",
                }
            ],
        },
        "matchConditions": [{"name": "nodes", "expression": _concerned(name)}],
        "variables": [{"name": key, "expression": value} for key, value in variables(pools)],
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": _patch(digest)}}],
    }


def _concerned(name: str) -> str:
    """Which requests the policy acts on. Probes of another policy are none of its business."""
    if name == names.NODE_POLICY:
        return f"{_probe_of(name)} == {cel.literal(name)}"
    return f"has(request.dryRun) && request.dryRun && {_probe_of('')} == {cel.literal(name)}"


def _probe_of(default: str) -> str:
    """The policy that a node is a probe of."""
    return f"{cel.label('object', names.PROBE_LABEL)}.orValue({cel.literal(default)})"


def variables(pools: t.Sequence[Pool]) -> t.Iterator[tuple[str, str]]:
    """Variable ``owner``: the first pool that selects the node, or nothing. In several, since the time to check an
    expression grows faster than its length."""
    yield "labels", "object.metadata.?labels.orValue({})"
    conditions = [(pool.name, cel.meets_term(pool.nodes, "variables.labels")) for pool in pools]
    found = []
    for number, shard in enumerate(cel.grouped(conditions, lambda pair: len(f"{cel.literal(pair[0])}, {pair[1]}"))):
        yield f"hit{number}", f"[{', '.join(condition for _name, condition in shard)}].indexOf(true)"
        yield f"names{number}", cel.literal([name for name, _condition in shard])
        found.append(f"variables.hit{number} >= 0 ? variables.names{number}[variables.hit{number}] : {cel.literal('')}")
    nothing = cel.literal("")
    yield "owner", f"([{', '.join(found)}].filter(name, name != {nothing}) + [{nothing}])[0]"


def _patch(digest: str) -> str:
    """Sets the label. On probes, which are never stored, the digest as well, to show that this very policy acted."""
    label = _add("labels", names.OWNER_LABEL, "variables.owner")
    shown = _add("annotations", names.POLICY_ANNOTATION, cel.literal(digest))
    return (
        f'(variables.owner == "" ? [] : {label})\n'
        f"+ ({cel.literal(names.PROBE_LABEL)} in variables.labels ? {shown} : [])"
    )


def _add(field: str, key: str, value: str) -> str:
    begun = f'JSONPatch{{op: "add", path: "/metadata/{field}", value: {{}}}}'
    added = (
        f'JSONPatch{{op: "add", path: "/metadata/{field}/" + jsonpatch.escapeKey({cel.literal(key)}), value: {value}}}'
    )
    return f"((has(object.metadata.{field}) ? [] : [{begun}]) + [{added}])"


# Probes -------------------------------------------------------------------------------------------------------------


class NodeProbe(Probe):
    """A node for the policy, and the node that it must make of it."""

    def problem(self, result: Object, expected: Object) -> str | None:
        found, wanted = ((node["metadata"].get("labels") or {}).get(names.OWNER_LABEL) for node in (result, expected))
        if found == wanted:
            return None
        return f"The probe {self.name} came out wrong: its owner is {found or names.PRIMARY}, not {wanted or names.PRIMARY}."


def probes(pools: t.Sequence[Pool], policy: str = names.NODE_POLICY) -> list[Probe]:
    """Probes for the policy of this name: a node that no pool selects, one for each pool, and one that has an owner."""
    made = [_probe("for no pool", {}, pools, policy)]
    for pool in sample(pools):
        labels = example_labels(pool.nodes)
        if labels is not None:
            made.append(_probe(f"for pool {pool.name}", labels, pools, policy))
    owned = _node(policy, {**made[-1].pod["metadata"]["labels"], names.OWNER_LABEL: names.IN_TRANSIT})
    return [*made, NodeProbe("that has an owner", owned, owned)]


def plain(policy: str = names.NODE_POLICY) -> Object:
    """A node that shows which policy of this name acts."""
    return _node(policy, {})


def _node(policy: str, labels: t.Mapping[str, str]) -> Object:
    node = kinds.NODE.object("virtpools-probe")
    node["metadata"]["labels"] = {**labels, names.PROBE_LABEL: policy}
    return node


def _probe(name: str, labels: t.Mapping[str, str], pools: t.Sequence[Pool], policy: str) -> Probe:
    node = _node(policy, labels)
    expected = copy.deepcopy(node)
    owner = next((pool.name for pool in pools if pool.nodes.matches(labels)), None)
    if owner is not None:
        expected["metadata"]["labels"][names.OWNER_LABEL] = owner
    expected["metadata"]["annotations"] = {names.POLICY_ANNOTATION: digest_of(pools)}
    return NodeProbe(name, node, expected)
