# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""The node policy: admission gives a new node its owner, so that the node never runs another owner's handler.

The policy acts only on CREATE: a node that is relabelled later is drift, and the next run of site moves it. A node that
comes with an owner label keeps it.
"""

from __future__ import annotations

import copy
import typing as t
from dataclasses import dataclass

from ..base import cel, kinds, names, objects, permissions
from ..base.findings import Finding, error, warning
from ..base.kinds import Kind
from ..base.objects import Change, KubeObject, Object
from ..base.parts import Step
from ..base.permissions import Permission
from ..base.selectors import example_labels
from ..observed.snapshot import Admission
from ..pools.model import Pool
from . import launcher_backends, policy_objects
from .probes import Desired, Probe, Site, Trial, digest_in, sample


@dataclass(frozen=True)
class NodePolicy(policy_objects.WrittenFirst):
    """What a run does for new nodes. The first of ``pools`` that selects a node owns it; without pools, no policy."""

    admission: Admission
    pools: tuple[Pool, ...] = ()
    name: t.ClassVar = "node_policy"

    @property
    def desired(self) -> list[tuple[Kind, Object]]:
        """The policy and its binding, in the order to write them."""
        served = self.admission.policy_kind
        return derive(self.pools, served) if self.pools and served else []

    @property
    def to_delete(self) -> tuple[KubeObject, ...]:
        """Our live objects that are not needed, in the order to delete them."""
        candidates = policy_objects.live_objects(self.admission, names.CANDIDATE_NODE_POLICY)
        return candidates if self.desired else live_objects(self.admission)

    @property
    def approved(self) -> str | None:
        """The digest of what the policy does; None without a policy."""
        return digest_of(self.pools) if self.pools else None

    @property
    def rights(self) -> tuple[Permission, ...]:
        return permissions.ASSIGN_NEW_NODES if self.steps else ()

    def objects(self, _step: Step) -> tuple[Desired, ...]:
        """The objects to write, in groups that are written one after the other."""
        return (self.desired,) if self.desired else ()

    def leaving(self, _step: Step) -> tuple[Change, ...]:
        """The removal of our live objects."""
        return policy_objects.removals(self.to_delete)

    def trials(self, _step: Step, _site: t.Callable[[], Site]) -> tuple[Trial | None, ...]:
        """How each group of ``objects`` is tried."""
        if not self.desired:
            return ()
        candidate = derive(self.pools, self.desired[0][0], names.CANDIDATE_NODE_POLICY)
        return (Trial(candidate, probes(self.pools, names.CANDIDATE_NODE_POLICY), probes(self.pools)),)

    def last_probe(self, _step: Step, _site: t.Callable[[], Site]) -> Object | None:
        """What shows that no policy acts any more; None while one stays."""
        return None if self.desired else plain()

    def findings(self) -> t.Iterator[Finding]:
        """Findings that prevent the policy."""
        if self.pools and self.admission.policy_kind is None:
            yield error(
                "node_policy_not_served",
                f"virtpools_assign_new_nodes needs {kinds.MUTATING_ADMISSION_POLICIES[0]}, which this API server does not "
                "serve; enable it, or leave that option out and run site after nodes have joined.",
            )
        yield from policy_objects.foreign_findings(self.desired, self.admission)


def is_live(admission: Admission | None) -> bool:
    """Whether the cluster has a node policy of ours."""
    return bool(policy_objects.live_objects(admission, names.NODE_POLICY))


def live_objects(admission: Admission | None) -> tuple[KubeObject, ...]:
    """Our live objects that change nodes, in the order to delete them."""
    return policy_objects.live_objects(admission, names.NODE_POLICY, names.CANDIDATE_NODE_POLICY)


def examine(admission: Admission | None, *, expected: bool) -> t.Iterator[Finding]:
    """A warning when the live policy was changed or deleted by hand.

    :param expected: whether the run that completed last was to write it.
    """
    live = {obj["kind"]: obj for obj in policy_objects.live_objects(admission, names.NODE_POLICY)}
    # A dump may leave policies out.
    if admission is None or not (live or (expected and admission.policy_kind and not admission.assumed)):
        return
    binding = _binding(kinds.MUTATING_ADMISSION_POLICY_BINDINGS[0], names.NODE_POLICY)
    policy = live.get(kinds.MUTATING_ADMISSION_POLICIES[0].name)
    if policy is None or not _is_as_written(policy) or launcher_backends.drift([binding], admission):
        yield warning(
            "node_policy_edited",
            f"Policy {names.NODE_POLICY} was changed or deleted by hand, so that new nodes may get another owner than "
            f"the pools specify, or none; run site with virtpools_assign_new_nodes: true to repair it.",
        )


def _is_as_written(policy: KubeObject) -> bool:
    """Whether a run has written the policy as it is, for whatever pools."""
    digest = digest_in(policy)
    return digest is not None and digest == _digest(_without(digest, policy["spec"]))


# The policy ---------------------------------------------------------------------------------------------------------


def derive(pools: t.Sequence[Pool], policy: Kind, name: str = names.NODE_POLICY) -> list[tuple[Kind, Object]]:
    """The policy and its binding, in the order to create them.

    :param policy: MutatingAdmissionPolicy in the API version to write.
    :param name: a policy with another name than ``names.NODE_POLICY`` acts only on probes of that name.
    """
    binding_kind = kinds.MUTATING_ADMISSION_POLICY_BINDINGS[kinds.MUTATING_ADMISSION_POLICIES.index(policy)]
    digest = digest_of(pools)
    obj = policy.object(name, spec=_spec(pools, name, digest))
    obj["metadata"].update(
        labels={names.MANAGED_BY_LABEL: names.MANAGED_BY}, annotations={names.POLICY_ANNOTATION: digest}
    )
    return [(policy, obj), _binding(binding_kind, name)]


def _binding(kind: Kind, name: str) -> tuple[Kind, Object]:
    binding = kind.object(name, spec={"policyName": name})
    binding["metadata"]["labels"] = {names.MANAGED_BY_LABEL: names.MANAGED_BY}
    return kind, binding


def digest_of(pools: t.Sequence[Pool]) -> str:
    """The digest of the policy for these pools, the same under any name."""
    return _digest(_spec(pools, names.NODE_POLICY, digest=""))


def _digest(spec: t.Mapping[str, t.Any]) -> str:
    return objects.short_digest(spec)


def _without(digest: str, spec: t.Any) -> t.Any:
    """The spec as it was before the digest was put into it."""
    if isinstance(spec, t.Mapping):
        return {key: _without(digest, value) for key, value in spec.items()}
    if isinstance(spec, list):
        return [_without(digest, value) for value in spec]
    return spec.replace(cel.literal(digest), cel.literal("")) if isinstance(spec, str) else spec


def _spec(pools: t.Sequence[Pool], name: str, digest: str) -> Object:
    """The spec with all defaults that the server would add, so that the live policy can be compared with it."""
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
        "matchConditions": [{"name": "nodes", "expression": _match_condition(name)}],
        "variables": [{"name": key, "expression": value} for key, value in variables(pools)],
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": _patch(digest)}}],
    }


def _match_condition(name: str) -> str:
    """Which requests the policy acts on: new nodes and its own probes, but no probes of another policy."""
    if name == names.NODE_POLICY:
        return f"{_probe_of(name)} == {cel.literal(name)}"
    return f"has(request.dryRun) && request.dryRun && {_probe_of('')} == {cel.literal(name)}"


def _probe_of(default: str) -> str:
    """The name of the policy that a node is a probe of; ``default`` for a real node."""
    return f"{cel.label('object', names.PROBE_LABEL)}.orValue({cel.literal(default)})"


def variables(pools: t.Sequence[Pool]) -> t.Iterator[tuple[str, str]]:
    """CEL variables, the last of which is ``owner``: the first pool that selects the node, or an empty string.

    There are several, because the server's time to check an expression grows faster than the expression's length.
    """
    yield "labels", "object.metadata.?labels.orValue({})"
    conditions = [(pool.name, cel.meets_term(pool.nodes, "variables.labels")) for pool in pools]
    hits = []
    for number, shard in enumerate(cel.grouped(conditions, lambda pair: len(f"{cel.literal(pair[0])}, {pair[1]}"))):
        yield f"hit{number}", f"[{', '.join(condition for _name, condition in shard)}].indexOf(true)"
        yield f"names{number}", cel.literal([name for name, _condition in shard])
        hits.append(f"variables.hit{number} >= 0 ? variables.names{number}[variables.hit{number}] : {cel.literal('')}")
    nothing = cel.literal("")
    yield "owner", f"([{', '.join(hits)}].filter(name, name != {nothing}) + [{nothing}])[0]"


def _patch(digest: str) -> str:
    """Sets the owner label. Probes, which are never stored, also get the digest, to show that this policy acted."""
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
    """A node for the policy, and the node that the policy must make of it."""

    def problem(self, result: Object, expected: Object) -> str | None:
        actual, wanted = ((node["metadata"].get("labels") or {}).get(names.OWNER_LABEL) for node in (result, expected))
        if actual == wanted:
            return None
        return f"The probe {self.name} came out wrong: its owner is {actual or names.PRIMARY}, not {wanted or names.PRIMARY}."


def probes(pools: t.Sequence[Pool], policy: str = names.NODE_POLICY) -> list[Probe]:
    """Probes for the policy of this name: a node that no pool selects, one for each pool, and one that has an owner."""
    all_probes = [_probe("for no pool", {}, pools, policy)]
    for pool in sample(pools):
        labels = example_labels(pool.nodes)
        if labels is not None:
            all_probes.append(_probe(f"for pool {pool.name}", labels, pools, policy))
    owned = _node(policy, {**all_probes[-1].pod["metadata"]["labels"], names.OWNER_LABEL: names.IN_TRANSIT})
    return [*all_probes, NodeProbe("that has an owner", owned, owned)]


def plain(policy: str = names.NODE_POLICY) -> Object:
    """A probe that no pool selects: a plain node that shows whether the policy of this name acts."""
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
