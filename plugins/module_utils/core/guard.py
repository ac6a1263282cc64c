# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The guard: nobody but runs changes the owner of a node, and the primary virt-handler cannot lose the exclusion.

Two validating policies. A kubelet may write labels of its own node, so that a compromised node could join a pool: one
policy refuses whoever may not ``permissions.ASSIGN_OWNERS``. That is a right and not a name, so that any account of a run
has it by its ClusterRole. The other refuses a virt-handler DaemonSet that would run on pool nodes, whoever writes it.

A policy that cannot be evaluated refuses what it matches (``failurePolicy: Fail``). So the condition by which the first one
matches begins with a comparison that cannot fail: a request that leaves the owner label alone, as every heartbeat does,
goes no further.
"""

from __future__ import annotations

import copy
import typing as t
from dataclasses import dataclass

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import (
    cel,
    exclusion,
    health,
    kinds,
    launchers,
    names,
    node_policy,
    permissions,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.findings import Finding, error, warning
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kinds import Kind
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.objects import Object, digest
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools import Pool
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.probes import sample
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.selectors import example_labels
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.snapshot import Admission, KubeObject, Snapshot

_DIGITS = 12


@dataclass(frozen=True)
class Guard:
    """What a run does about the guard. ``assigned``: the pools that the node policy gives new nodes to, in order."""

    snapshot: Snapshot
    admission: Admission
    wanted: bool
    assigned: tuple[Pool, ...] = ()

    @property
    def desired(self) -> list[tuple[Kind, Object]]:
        """The policies and their bindings, in the order to write them."""
        return derive(self.snapshot.namespace, self.assigned) if self.wanted and self.admission.validating else []

    @property
    def to_write(self) -> tuple[Object, ...]:
        """Those that are missing or differ."""
        return launchers.missing(self.desired, self.admission)

    @property
    def to_delete(self) -> tuple[KubeObject, ...]:
        """Live ones of ours that are not wanted any more, in the order to take them away."""
        return () if self.wanted else live(self.admission)

    @property
    def changes(self) -> tuple[str, ...]:
        """What is written, one line each."""
        return launchers.lines(self.to_write, self.to_delete, self.admission)

    @property
    def digest(self) -> str:
        """Of all that it is made of."""
        return digest([obj for _kind, obj in derive(self.snapshot.namespace, self.assigned)])

    @property
    def in_force(self) -> bool:
        """Whether it refuses anything at any time of the run."""
        return self.wanted or is_live(self.admission)

    def findings(self) -> t.Iterator[Finding]:
        """What forbids it."""
        if self.wanted and not self.admission.validating:
            yield error(
                "guard_not_served",
                f"virtpools_guard needs {kinds.VALIDATING_ADMISSION_POLICY}, which this API server does not serve; use "
                "Kubernetes 1.30 or later, or leave that option out.",
            )
        yield from launchers.foreign(self.desired, self.admission)

    def probes(self) -> tuple[Probe, ...]:
        """Objects, never stored, that show whether it is in force: of each policy one to refuse and one to let pass."""
        free = node_policy.plain(names.OWNER_GUARD)
        made = [Probe("a node without an owner", kinds.NODE, free)]
        for pool in sample(self.assigned):
            labels = example_labels(pool.nodes)
            first = next((each.name for each in self.assigned if labels and each.nodes.matches(labels)), None)
            if labels is not None and first is not None:
                node = _labelled(free, {**labels, names.OWNER_LABEL: first})
                made.append(Probe(f"a new node of pool {first}", kinds.NODE, node))
        claimed = _labelled(free, {names.OWNER_LABEL: names.IN_TRANSIT})
        made.append(Probe("a node that says who owns it", kinds.NODE, claimed, names.OWNER_GUARD))
        if self.snapshot.primary is not None:
            primary = _daemonset(self.snapshot.primary)
            bare = copy.deepcopy(primary)
            bare["spec"]["template"]["spec"] = exclusion.without_exclusion_terms(primary["spec"]["template"]["spec"])
            made.append(Probe("a virt-handler with the exclusion", kinds.DAEMON_SET, primary))
            made.append(Probe("a virt-handler without it", kinds.DAEMON_SET, bare, names.EXCLUSION_GUARD))
        return tuple(made)


@dataclass(frozen=True)
class Probe:
    """An object that a dry run creates. ``refused_by``: the policy that must refuse it; None: it must be let in."""

    name: str
    kind: Kind
    obj: Object
    refused_by: str | None = None


def is_live(admission: Admission | None) -> bool:
    """Whether the cluster has anything of the guard."""
    return bool(live(admission))


def live(admission: Admission | None) -> tuple[KubeObject, ...]:
    """All of it that is ours, in the order to take it away."""
    return tuple(obj for name in names.GUARDS for obj in launchers.ours(admission, name)) if admission else ()


def examine(snapshot: Snapshot) -> t.Iterator[Finding]:
    """Whether the live guard is still what was written, and whether it holds KubeVirt back."""
    found = live(snapshot.admission)
    written = [obj for obj in found if _noted(obj) == _digest_of(obj["spec"])]
    if found and len(written) < 2 * len(names.GUARDS):
        yield warning(
            "guard_edited",
            f"The guard ({' and '.join(names.GUARDS)}) was changed or partly deleted by hand, so that others than runs may "
            "change the owners of nodes or drop the exclusion; run site with virtpools_guard: true to put it right, with "
            "false to take it away.",
        )
    degraded = health.Health.of(snapshot.kubevirt).degraded or ""
    if names.EXCLUSION_GUARD in degraded:
        yield warning(
            "guard_refuses",
            f"KubeVirt asks for a {names.HANDLER} that would run on pool nodes, too, and the guard refuses that: somebody "
            "changed customizeComponents or nodePlacement. The handlers run on as they are; run site to put the exclusion "
            "back.",
        )


# The policies -------------------------------------------------------------------------------------------------------


def derive(namespace: str, assigned: t.Sequence[Pool]) -> list[tuple[Kind, Object]]:
    """The policies and their bindings, in the order to create them.

    :param namespace: KubeVirt's.
    :param assigned: the pools that the node policy gives new nodes to, in order.
    """
    specs = {names.OWNER_GUARD: _owner_spec(assigned), names.EXCLUSION_GUARD: _exclusion_spec(namespace)}
    found = []
    for name, spec in specs.items():
        bound = {"policyName": name, "validationActions": ["Deny"]}
        found.append(_object(kinds.VALIDATING_ADMISSION_POLICY, name, spec))
        found.append(_object(kinds.VALIDATING_ADMISSION_POLICY_BINDING, name, bound))
    return found


def _object(kind: Kind, name: str, spec: Object) -> tuple[Kind, Object]:
    made = kind.object(name, spec=spec)
    made["metadata"].update(
        labels={names.MANAGED_BY_LABEL: names.MANAGED_BY}, annotations={names.POLICY_ANNOTATION: _digest_of(spec)}
    )
    return kind, made


def _digest_of(spec: t.Mapping[str, t.Any]) -> str:
    return digest(spec)[:_DIGITS]


def _noted(obj: KubeObject) -> str | None:
    return (obj["metadata"].get("annotations") or {}).get(names.POLICY_ANNOTATION)


def _owner_spec(assigned: t.Sequence[Pool]) -> Object:
    """A new node may have the owner that the node policy gives it; nothing tells whether it brought that along."""
    owner = cel.label("object", names.OWNER_LABEL)
    former = f'(request.operation == "CREATE" ? optional.none() : {cel.label("oldObject", names.OWNER_LABEL)})'
    right = permissions.ASSIGN_OWNERS
    permitted = (
        f"authorizer.group({cel.literal(right.group)}).resource({cel.literal(right.resource)})"
        f".check({cel.literal(right.verb)}).allowed()"
    )
    # One condition and not two: of several, all are evaluated, and the authorizer may be a server of its own.
    concerned = f"{owner} != {former} && ({_is_probe(names.OWNER_GUARD)} || !{permitted})"
    allowed = f'request.operation == "CREATE" && variables.owner != "" && {owner}.orValue("") == variables.owner'
    return {
        # Kubelets may change labels by the status, too (seen on Kubernetes 1.36).
        **_matches("", ["nodes", "nodes/status"], "Cluster", {}, concerned),
        **(
            {"variables": [{"name": key, "expression": value} for key, value in node_policy.variables(assigned)]}
            if assigned
            else {}
        ),
        "validations": [
            _validation(
                allowed if assigned else "false",
                f"The label {names.OWNER_LABEL} says which virt-handler runs on a node, and only who has the right "
                f"to {right} may change it, as the ClusterRole virtpools-writer has.",
            )
        ],
    }


def _exclusion_spec(namespace: str) -> Object:
    """The condition of ``exclusion.exclusion_in``."""
    ours = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    concerned = f"object.metadata.name == {cel.literal(names.HANDLER)} || {_is_probe(names.EXCLUSION_GUARD)}"
    affinity = "object.spec.template.spec.?affinity.?nodeAffinity.?requiredDuringSchedulingIgnoredDuringExecution"
    requirement = cel.all_of(
        f"expression.{field} == {cel.literal(exclusion.REQUIREMENT[field])}" for field in ("key", "operator")
    )
    carries = f"term.?matchExpressions.orValue([]).exists(expression, {requirement})"
    nothing = "(!has(term.matchExpressions) && !has(term.matchFields))"
    return {
        **_matches("apps", ["daemonsets"], "Namespaced", ours, concerned),
        "variables": [{"name": "terms", "expression": f"{affinity}.?nodeSelectorTerms.orValue([])"}],
        "validations": [
            _validation(
                f"variables.terms.size() > 0 && variables.terms.all(term, {carries} || {nothing})",
                f"Every required node-affinity term of {names.HANDLER} must have {names.OWNER_LABEL} DoesNotExist while "
                "virtpools.kubevirt has pools here, else their nodes get two handlers. Run its playbook site to put that "
                "back, or remove to take the pools away.",
            )
        ],
    }


def _matches(
    group: str, resources: t.Sequence[str], scope: str, namespaces: t.Mapping[str, t.Any], concerned: str
) -> Object:
    """What a policy acts on. Everything spelled out that the server would add, so that the live policy can be compared."""
    return {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "matchPolicy": "Equivalent",
            "namespaceSelector": dict(namespaces),
            "objectSelector": {},
            "resourceRules": [
                {
                    "apiGroups": [group],
                    "apiVersions": ["v1"],
                    "operations": ["CREATE", "UPDATE"],
                    "resources": list(resources),
                    "scope": scope,
                }
            ],
        },
        "matchConditions": [{"name": "concerned", "expression": concerned}],
    }


def _validation(expression: str, message: str) -> Object:
    return {"expression": expression, "message": message, "reason": "Forbidden"}


def _is_probe(policy: str) -> str:
    """Whether a request is a probe of this policy, which nobody has the right to."""
    label = cel.label("object", names.PROBE_LABEL)
    return f"(has(request.dryRun) && request.dryRun && {label} == optional.of({cel.literal(policy)}))"


# Probes -------------------------------------------------------------------------------------------------------------


def _labelled(obj: Object, labels: t.Mapping[str, str]) -> Object:
    made = copy.deepcopy(obj)
    made["metadata"]["labels"].update(labels)
    return made


def _daemonset(primary: KubeObject) -> Object:
    """The live primary under another name, so that other policies find nothing new in it."""
    made = kinds.DAEMON_SET.object(
        "virtpools-probe", primary["metadata"]["namespace"], spec=copy.deepcopy(primary["spec"])
    )
    made["metadata"]["labels"] = {names.PROBE_LABEL: names.EXCLUSION_GUARD}
    return made
