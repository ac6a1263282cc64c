# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""The guard: only runs may change the owner of a node, and the primary virt-handler cannot lose the exclusion.

It consists of two validating policies with ``failurePolicy: Fail``. docs/design/guard.md explains this.
"""

from __future__ import annotations

import copy
import typing as t
from dataclasses import dataclass, replace

from ..base import cel, kinds, names, permissions
from ..base.findings import Finding, error, note, warning
from ..base.kinds import Kind
from ..base.objects import KubeObject, Object, digest, short_digest
from ..base.parts import LAST, Step
from ..base.permissions import Permission
from ..base.selectors import example_labels
from ..kubevirt import exclusion, hco, health
from ..observed.snapshot import Admission, Snapshot
from ..pools.model import Pool
from . import node_policy, policy_objects
from .probes import digest_in, sample


@dataclass(frozen=True)
class Guard(policy_objects.WrittenFirst):
    """What a run does about the guard."""

    snapshot: Snapshot
    admission: Admission
    wanted: bool
    assigned: tuple[Pool, ...] = ()
    """The pools to which the node policy gives new nodes, in order."""
    asked_for: bool = False
    """Whether the user asks for it. Otherwise a run that cannot write it does everything else."""
    leaving: bool = False
    """Whether the last pool goes, and with it what the guard protects."""
    name: t.ClassVar = "guard"

    @property
    def _step(self) -> Step:
        """Before the first batch; the last pool's guard goes only after it: KubeVirt may have been told to drop the exclusion,
        and pool nodes would get a second handler."""
        return LAST if self.leaving else 0

    @property
    def steps(self) -> tuple[Step, ...]:
        return (self._step,) if self.changes(self._step) else ()

    def changes(self, step: Step) -> tuple[str, ...]:
        """What happens to each object, one line each."""
        return super().changes(0) if step == self._step else ()

    @property
    def desired(self) -> list[tuple[Kind, Object]]:
        """The policies and their bindings, in the order to write them."""
        writes = self.wanted and self.admission.validating and not self.forbidden
        return derive(self.snapshot.namespace, self.assigned) if writes else []

    @property
    def forbidden(self) -> bool:
        """Whether the run goes on without the guard, which its user may not write. A live one would refuse the run."""
        return self.may_do_without and not self.admission.may_guard

    @property
    def may_do_without(self) -> bool:
        """Whether the run can do without the guard."""
        return not self.asked_for and not is_live(self.admission)

    @property
    def to_delete(self) -> tuple[KubeObject, ...]:
        """Our live objects that are not wanted any more, in the order to delete them."""
        return () if self.wanted else live_objects(self.admission)

    @property
    def approved(self) -> str | None:
        """The digest of all objects of the guard; None without a guard."""
        return digest([obj for _kind, obj in derive(self.snapshot.namespace, self.assigned)]) if self.wanted else None

    @property
    def rights(self) -> tuple[Permission, ...]:
        served = self.asked_for or self.admission.validating
        return permissions.GUARD if self.in_force and served and not self.forbidden else ()

    @property
    def in_force(self) -> bool:
        """Whether the guard refuses anything at any time of the run."""
        return self.wanted or is_live(self.admission)

    def findings(self) -> t.Iterator[Finding]:
        """What prevents the guard, and that it is deleted."""
        open_to_all = (
            "other tools can change the owners of nodes, and let virt-handler back on pool nodes by replacing "
            f"{hco.shared_place(self.snapshot.hyperconverged)}"
        )
        if self.wanted and not self.admission.validating and self.asked_for:
            yield error(
                "guard_not_served",
                f"virtpools_guard needs {kinds.VALIDATING_ADMISSION_POLICY}, which this API server does not serve; use "
                "Kubernetes 1.30 or later, or leave that option out.",
            )
        elif self.wanted and not self.admission.validating:
            yield note(
                "guard_unavailable",
                f"The run writes no guard, because this API server does not serve {kinds.VALIDATING_ADMISSION_POLICY}: "
                f"{open_to_all}. Use Kubernetes 1.30 or later to have one.",
            )
        elif self.wanted and self.forbidden:
            yield note(
                "guard_unavailable",
                f"The run writes no guard, because its user lacks a right for that: {open_to_all}. Bind the user to the ClusterRole "
                "virtpools-writer to have one.",
            )
        if self.to_delete and not self.leaving:
            yield warning(
                "guard_deleted",
                "The run deletes the guard, because virtpools_guard is false: then other tools can change the owners of nodes, and "
                f"replacing {hco.shared_place(self.snapshot.hyperconverged)} gives every pool node two handlers. Leave that option out "
                "to keep it.",
            )
        yield from policy_objects.foreign_findings(self.desired, self.admission)

    def probes(self) -> tuple[GuardProbe, ...]:
        """Objects, never stored, that show whether the guard is in force: each policy refuses one and lets one pass."""
        free = node_policy.plain(names.OWNER_GUARD)
        probes = [GuardProbe("a node without an owner", kinds.NODE, free)]
        for pool in sample(self.assigned):
            labels = example_labels(pool.nodes)
            if labels is not None:
                first = next(each.name for each in self.assigned if each.nodes.matches(labels))
                node = _labelled(free, {**labels, names.OWNER_LABEL: first})
                probes.append(GuardProbe(f"a new node of pool {first}", kinds.NODE, node))
        claimed = _labelled(free, {names.OWNER_LABEL: names.IN_TRANSIT})
        probes.append(GuardProbe("a node that names its owner", kinds.NODE, claimed, names.OWNER_GUARD))
        if self.snapshot.primary is not None:
            primary = _daemonset(self.snapshot.primary)
            bare = copy.deepcopy(primary)
            bare["spec"]["template"]["spec"] = exclusion.without_exclusion_terms(primary["spec"]["template"]["spec"])
            probes.append(GuardProbe("a virt-handler with the exclusion", kinds.DAEMON_SET, primary))
            probes.append(GuardProbe("a virt-handler without it", kinds.DAEMON_SET, bare, names.EXCLUSION_GUARD))
        return tuple(probes)


@dataclass(frozen=True)
class GuardProbe:
    """An object that a dry run creates. ``refused_by``: the policy that must refuse it; None: no policy may refuse it."""

    name: str
    kind: Kind
    obj: Object
    refused_by: str | None = None


def is_live(admission: Admission | None) -> bool:
    """Whether the cluster has any object of the guard."""
    return bool(live_objects(admission))


def live_objects(admission: Admission | None) -> tuple[KubeObject, ...]:
    """The guard's live objects, in the order to delete them."""
    return policy_objects.live_objects(admission, *names.GUARDS)


def examine(snapshot: Snapshot, *, expected: bool) -> t.Iterator[Finding]:
    """Warnings when the live guard was changed or deleted by hand, and when it refuses what KubeVirt wants to write.

    :param expected: whether the run that completed last was asked to write it.
    """
    admission = snapshot.admission or Admission()
    live = live_objects(admission)
    unchanged = [obj for obj in live if digest_in(obj) == _digest_of(obj["spec"])]
    # A dump may leave policies out.
    wanted = bool(live) or (expected and admission.validating and not admission.assumed)
    if wanted and len(unchanged) < 2 * len(names.GUARDS):
        yield warning(
            "guard_edited",
            f"The guard ({' and '.join(names.GUARDS)}) was changed or deleted by hand, so that not only runs "
            f"may change the owners of nodes or drop the exclusion; run site to repair it, or set "
            "virtpools_guard: false to delete it.",
        )
    elif _refuses_new_nodes(admission):
        yield warning(
            "guard_edited",
            f"The guard {names.OWNER_GUARD} was written for other pools than policy {names.NODE_POLICY}, which gives new nodes their "
            "owner, so that nodes with such an owner cannot join; run site to repair it.",
        )
    yield from _refusal(snapshot)


def _refuses_new_nodes(admission: Admission) -> bool:
    """Whether the guard does not know the owners that the node policy gives, as after a run that was killed between the two."""
    guards, policies = (policy_objects.live_objects(admission, name) for name in (names.OWNER_GUARD, names.NODE_POLICY))
    known, given = (
        [obj["spec"].get("variables") for obj in live if obj["kind"] == kind.name]
        for live, kind in (
            (guards, kinds.VALIDATING_ADMISSION_POLICY),
            (policies, kinds.MUTATING_ADMISSION_POLICIES[0]),
        )
    )
    return bool(known and given) and known != given


def _refusal(snapshot: Snapshot) -> t.Iterator[Finding]:
    if health.Health.from_kubevirt(snapshot.kubevirt).refused_by_guard:
        changed = (
            "customizeComponents or nodePlacement"
            if snapshot.hyperconverged is None
            else hco.shared_place(snapshot.hyperconverged)
        )
        yield warning(
            "guard_refuses",
            f"KubeVirt asks for a {names.HANDLER} that would also run on pool nodes, and the guard refuses that: "
            f"{changed} was changed. The handlers keep running; run site to restore the exclusion.",
        )


def holds_exclusion(snapshot: Snapshot) -> bool:
    """Whether only the guard keeps the primary off pool nodes, since KubeVirt no longer asks for the exclusion."""
    return (
        bool(policy_objects.live_objects(snapshot.admission, names.EXCLUSION_GUARD))
        and snapshot.primary is not None
        and exclusion.has_exclusion(snapshot.primary)
        and not exclusion.is_asked_for(snapshot.kubevirt, snapshot.hyperconverged)
    )


def lost_exclusion(snapshot: Snapshot, remedy: str) -> list[Finding]:
    """Warnings of a plan that another client took the exclusion away.

    :param remedy: what the run does about that, as a clause.
    """
    if not snapshot.pools:
        return []
    # The run repairs it.
    found = [replace(finding, severity="warning") for finding in overwritten(snapshot, remedy)]
    return found or [*_refusal(snapshot)]


def overwritten(snapshot: Snapshot, remedy: str) -> t.Iterator[Finding]:
    """Under HCO: the annotation lacks our operation, as after another user has set a patch as HCO's documentation says.

    :param remedy: what to do, or what the run does, as a clause.
    """
    hyperconverged = snapshot.hyperconverged
    if hyperconverged is None or not exclusion.is_overwritten(hyperconverged):
        return
    if snapshot.primary is not None and not exclusion.has_exclusion(snapshot.primary):
        effect = f"{names.HANDLER} also runs on pool nodes"
    elif policy_objects.live_objects(snapshot.admission, names.EXCLUSION_GUARD):
        effect = f"only the guard keeps {names.HANDLER} off pool nodes, and KubeVirt and HCO are Degraded"
    else:
        effect = f"{names.HANDLER} is about to run on pool nodes, too"
    yield error(
        "exclusion_overwritten",
        f"The annotation {names.HCO_PATCH_ANNOTATION} of {hco.title(hyperconverged)} no longer has this collection's operation: "
        "it was replaced as a whole, as by "
        f"kubectl annotate --overwrite. Now {effect}; {remedy}. Append to that annotation instead of replacing it.",
    )


# The policies -------------------------------------------------------------------------------------------------------


def derive(namespace: str, assigned: t.Sequence[Pool]) -> list[tuple[Kind, Object]]:
    """The policies and their bindings, in the order to create them.

    :param namespace: KubeVirt's namespace.
    :param assigned: the pools to which the node policy gives new nodes, in order.
    """
    specs = {names.OWNER_GUARD: _owner_spec(assigned), names.EXCLUSION_GUARD: _exclusion_spec(namespace)}
    objects = []
    for name, spec in specs.items():
        binding_spec = {"policyName": name, "validationActions": ["Deny"]}
        objects.append(_object(kinds.VALIDATING_ADMISSION_POLICY, name, spec))
        objects.append(_object(kinds.VALIDATING_ADMISSION_POLICY_BINDING, name, binding_spec))
    return objects


def _object(kind: Kind, name: str, spec: Object) -> tuple[Kind, Object]:
    obj = kind.object(name, spec=spec)
    obj["metadata"].update(
        labels={names.MANAGED_BY_LABEL: names.MANAGED_BY}, annotations={names.POLICY_ANNOTATION: _digest_of(spec)}
    )
    return kind, obj


def _digest_of(spec: t.Mapping[str, t.Any]) -> str:
    return short_digest(spec)


def _owner_spec(assigned: t.Sequence[Pool]) -> Object:
    """A new node may have the owner that the node policy gives it; we cannot tell whether it came with this label."""
    owner = cel.label("object", names.OWNER_LABEL)
    former = f'(request.operation == "CREATE" ? optional.none() : {cel.label("oldObject", names.OWNER_LABEL)})'
    right = permissions.ASSIGN_OWNERS
    permitted = (
        f"authorizer.group({cel.literal(right.group)}).resource({cel.literal(right.resource)})"
        f".check({cel.literal(right.verb)}).allowed()"
    )
    # One condition, not two: the server evaluates all of several, and its authorizer may be another server.
    changed = f"({owner} != {former} || {_until_changed()})"
    concerned = f"{changed} && ({_is_probe(names.OWNER_GUARD)} || !{permitted})"
    allowed = (
        f'request.operation == "CREATE" && variables.owner != "" && {owner}.orValue("") == variables.owner'
        f" && !{_until_changed()}"
    )
    return {
        # Kubelets can also change labels by writing the status (seen on Kubernetes 1.36).
        **_matches("", ["nodes", "nodes/status"], "Cluster", {}, concerned),
        **(
            {"variables": [{"name": key, "expression": value} for key, value in node_policy.variables(assigned)]}
            if assigned
            else {}
        ),
        "validations": [
            _validation(
                allowed if assigned else "false",
                f"The label {names.OWNER_LABEL} decides which virt-handler runs on a node, and {names.UNTIL_PREFIX}* which VMs may "
                f"stay there. Only users with the right to {right} may change them; the ClusterRole virtpools-writer has it.",
            )
        ],
    }


def _until_changed() -> str:
    """Whether a request changes a label by which VMs may stay on a node. A user who writes one draws a pool's VMs to it."""
    labels, former = (f"{node}.metadata.?labels.orValue({{}})" for node in ("object", "oldObject"))
    former = f'(request.operation == "CREATE" ? {{}} : {former})'
    prefix = cel.literal(names.UNTIL_PREFIX)

    def differs(these: str, others: str) -> str:
        return f"{these}.exists(key, key.startsWith({prefix}) && {these}[key] != {others}[?key].orValue(''))"

    return f"({differs(labels, former)} || {differs(former, labels)})"


def _exclusion_spec(namespace: str) -> Object:
    """The condition of ``exclusion.has_exclusion``, in CEL."""
    ours = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    concerned = f"object.metadata.name == {cel.literal(names.HANDLER)} || {_is_probe(names.EXCLUSION_GUARD)}"
    affinity = f"object.spec.template.spec.?affinity.?nodeAffinity.?{names.REQUIRED_AFFINITY}"
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
                "back, or remove to delete the pools.",
            )
        ],
    }


def _matches(
    group: str, resources: t.Sequence[str], scope: str, namespaces: t.Mapping[str, t.Any], concerned: str
) -> Object:
    """What a policy acts on, with all defaults that the server would add, so that the live policy can be compared."""
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
    """Whether a request is a probe of this policy. A probe is refused even to those who have the right."""
    label = cel.label("object", names.PROBE_LABEL)
    return f"(has(request.dryRun) && request.dryRun && {label} == optional.of({cel.literal(policy)}))"


# Probes -------------------------------------------------------------------------------------------------------------


def _labelled(obj: Object, labels: t.Mapping[str, str]) -> Object:
    copied = copy.deepcopy(obj)
    copied["metadata"]["labels"].update(labels)
    return copied


def _daemonset(primary: KubeObject) -> Object:
    """A copy of the live primary under another name; other people's policies see nothing new in it."""
    copied = kinds.DAEMON_SET.object(
        "virtpools-probe", primary["metadata"]["namespace"], spec=copy.deepcopy(primary["spec"])
    )
    copied["metadata"]["labels"] = {names.PROBE_LABEL: names.EXCLUSION_GUARD}
    return copied
