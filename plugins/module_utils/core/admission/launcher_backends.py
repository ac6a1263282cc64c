# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""The back ends that change launcher pods: which one a run uses, the objects of each, and what is live of them."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, replace

from ..base import kinds, names
from ..base.findings import Finding, InputErrors, error, listed, note, warning
from ..base.kinds import Kind
from ..base.objects import ABSENT, Change, Difference, KubeObject, Object, differences, is_managed
from ..kubevirt.health import release_of
from ..observed.snapshot import Admission
from ..observed.webhook import Rule
from ..vms import mapping
from ..vms.mapping import Table
from . import aie_config, kyverno_policy, launcher_policy

Backend = t.Literal["admission_policy", "kyverno", "aie_webhook", "none"]
BackendOption = t.Literal["auto", "admission_policy", "kyverno", "aie_webhook", "none"]

_POLICY, _BINDING = kinds.MUTATING_ADMISSION_POLICIES[0].name, kinds.MUTATING_ADMISSION_POLICY_BINDINGS[0].name
_KYVERNO, _CONFIG_MAP = kinds.KYVERNO_MUTATING_POLICY.name, kinds.CONFIG_MAP.name
_KINDS: t.Mapping[Backend, tuple[str, ...]] = {
    "admission_policy": (_POLICY, _BINDING),
    "kyverno": (_KYVERNO,),
    "aie_webhook": (_CONFIG_MAP,),
    "none": (),
}
"""The objects of each back end; the first holds the rules and the annotations."""

_GATE = "--feature-gates=MutatingAdmissionPolicy=true and --runtime-config=admissionregistration.k8s.io/{}=true"
_KYVERNO_SINCE = "1.18"


@dataclass(frozen=True)
class Choice:
    """The back end of a run."""

    backend: Backend
    reason: str
    """A sentence for the user."""
    findings: tuple[Finding, ...] = ()
    """An error among them stops the run."""

    def __str__(self) -> str:
        return f"Launcher back end {self.backend}: {self.reason}"


# The choice ---------------------------------------------------------------------------------------------------------


def choose(wanted: BackendOption, admission: Admission, table: Table) -> Choice:
    """The back end for a table on a cluster.

    ``auto`` never takes kubevirt-aie-webhook, since it does less for every VM than the others.
    """
    if not table.needed:
        return Choice("none", "No pool selects VMs or keeps them off, so no launcher pod has to be changed.")
    if wanted == "none":
        return Choice("none", "virtpools_launcher_backend is none.", (_nothing_done(table),))
    if wanted == "aie_webhook":
        return Choice("aie_webhook", "virtpools_launcher_backend is aie_webhook.", tuple(_aie(admission, table)))
    if wanted == "kyverno" or (wanted == "auto" and admission.policy_kind is None and admission.kyverno):
        choice = _kyverno(wanted, admission)
    else:
        choice = _admission_policy(wanted, admission)
    return replace(choice, findings=(*choice.findings, *_beside_webhook(admission, table)))


def _admission_policy(wanted: BackendOption, admission: Admission) -> Choice:
    kind = admission.policy_kind
    if kind is None:
        return Choice("admission_policy", "The API server has no MutatingAdmissionPolicy.", (_missing(admission),))
    if wanted != "auto":
        return Choice("admission_policy", f"virtpools_launcher_backend is {wanted}.")
    if admission.assumed:
        reason = "A dump does not show what the API server serves, so MutatingAdmissionPolicy is assumed."
    else:
        reason = f"The API server has MutatingAdmissionPolicy ({kind.api_version}), which needs nothing else."
    return Choice("admission_policy", reason)


def _kyverno(wanted: BackendOption, admission: Admission) -> Choice:
    if not admission.kyverno:
        missing = error(
            "launcher_backend_missing",
            f"virtpools_launcher_backend is kyverno, but this cluster has no {kinds.KYVERNO_MUTATING_POLICY} of "
            f"{kinds.KYVERNO_MUTATING_POLICY.api_version}; install Kyverno {_KYVERNO_SINCE} or later, or choose auto.",
        )
        return Choice("kyverno", f"virtpools_launcher_backend is {wanted}.", (missing,))
    reason = "The API server has no MutatingAdmissionPolicy, and Kyverno is installed."
    once = note(
        "launcher_backend_kyverno",
        "Kyverno changes a launcher pod only once: it does not see what other webhooks add afterwards (a container "
        "with the launcher image, an SR-IOV resource that a pool selects by).",
    )
    return Choice("kyverno", reason if wanted == "auto" else f"virtpools_launcher_backend is {wanted}.", (once,))


def _aie(admission: Admission, table: Table) -> t.Iterator[Finding]:
    live, webhook = _live(admission, _CONFIG_MAP), admission.webhook
    if live is None:
        yield error(
            "launcher_backend_missing",
            f"virtpools_launcher_backend is aie_webhook, but there is no ConfigMap {names.AIE_CONFIG} in KubeVirt's "
            "namespace; install kubevirt-aie-webhook there, or choose auto.",
        )
    elif webhook is not None:
        if webhook.registered is False:
            yield error(
                "launcher_backend_missing",
                f"virtpools_launcher_backend is aie_webhook, but no {kinds.MUTATING_WEBHOOK_CONFIGURATION} calls "
                "kubevirt-aie-webhook; install it, or choose auto.",
            )
        if webhook.problem is not None:
            yield error("aie_webhook_down", f"{_down(webhook.problem)}; repair it, or choose auto.")
        yield from aie_config.foreign_findings(table, live, webhook)
    yield from aie_config.check(table)


def _beside_webhook(admission: Admission, table: Table) -> t.Iterator[Finding]:
    """What kubevirt-aie-webhook does beside another back end."""
    live, webhook = _live(admission, _CONFIG_MAP), admission.webhook
    if live is None or webhook is None or webhook.registered is False:
        return
    if webhook.problem is not None:
        yield warning("aie_webhook_down", f"{_down(webhook.problem)}; repair it, or uninstall it.")
    if webhook.config.problem is not None and not aie_config.is_ours(live):
        unreadable = aie_config.unusable(live, webhook)
        yield from () if unreadable is None else (replace(unreadable, severity="warning"),)
    yield from aie_config.beside_findings(table, live, webhook)


def _down(problem: str) -> str:
    return f"kubevirt-aie-webhook cannot do its work, and while API servers cannot call it, no VM starts: {problem}"


def _nothing_done(table: Table) -> Finding:
    effects = []
    if table.rules:
        effects.append(f"VMs of {listed(table.images)} start with KubeVirt's own launcher image on any node")
    if table.keep_off:
        effects.append(f"nothing keeps other VMs off the nodes of {listed(table.keep_off)}")
    return warning(
        "launcher_backend_none",
        f"virtpools_launcher_backend is none, so {', and '.join(effects)}; lead the VMs in another way, or choose auto.",
    )


def _missing(admission: Admission) -> Finding:
    """An error that says what to enable on an API server that has none of the back ends."""
    server = f"Kubernetes {admission.version}" if admission.version else "This cluster"
    release = release_of(admission.version)
    if release is None:
        enable = "use Kubernetes 1.36 or later, where it is on by default"
    elif release >= (1, 36):
        enable = "stop turning off admissionregistration.k8s.io/v1 with --runtime-config of its API servers"
    elif release >= (1, 32):
        version = "v1beta1" if release >= (1, 34) else "v1alpha1"
        enable = f"start its API servers with {_GATE.format(version)}, upgrade to 1.36 or later"
    else:
        enable = "upgrade to 1.36 or later"
    return error(
        "launcher_backend_missing",
        f"{server} has no back end that changes launcher pods, which the pools need: MutatingAdmissionPolicy is not served; "
        f"{enable}, or install Kyverno {_KYVERNO_SINCE} or later.",
    )


# The objects --------------------------------------------------------------------------------------------------------


def desired(
    backend: Backend,
    table: Table,
    namespace: str,
    admission: Admission,
    name: str = names.POLICY,
    epoch: int = 0,
) -> list[tuple[Kind, Object]]:
    """The objects that must be live for a table, in the order in which to write them; empty when none are needed.

    :param namespace: KubeVirt's.
    :param admission: of a cluster that ``choose`` found no error with.
    :param name: ``names.CANDIDATE_POLICY`` for the objects with which the policy is tried; kubevirt-aie-webhook has none.
    :param epoch: that of the pods which the policy admits; kubevirt-aie-webhook gives pods none.
    """
    if not table.needed or backend == "none":
        return []
    if backend == "aie_webhook":
        live, webhook = _live(admission, _CONFIG_MAP), admission.webhook
        if live is None or webhook is None or name != names.POLICY:
            return []
        return [(kinds.CONFIG_MAP, aie_config.derive(table, live, webhook))]
    if backend == "kyverno":
        return [kyverno_policy.derive(table, namespace, name, epoch)]
    served = admission.policy_kind or kinds.MUTATING_ADMISSION_POLICIES[0]
    return launcher_policy.derive(table, namespace, served, name, epoch)


def removals_of_other_backends(backend: Backend, admission: Admission) -> list[Change]:
    """The removal of our objects of all back ends but this one, in this order. kubevirt-aie-webhook's ConfigMap only loses our
    rules."""
    return [
        Change(live, _without_rules(live, admission))
        for other, of_other in _KINDS.items()
        if other != backend
        for kind in reversed(of_other)
        if (live := _ours(admission, kind)) is not None
    ]


def _without_rules(live: KubeObject, admission: Admission) -> KubeObject | None:
    """What an object of ours becomes when its rules are removed; None where it is deleted."""
    if live["kind"] != _CONFIG_MAP:
        return None
    return live if admission.webhook is None else aie_config.released(live, admission.webhook)


def unusable_rules(backend: Backend, admission: Admission) -> Finding | None:
    """An error if a run with this back end must write or remove rules of kubevirt-aie-webhook, and cannot."""
    live = _live(admission, _CONFIG_MAP)
    if live is None or not (backend == "aie_webhook" or aie_config.is_ours(live)):
        return None
    return aie_config.unusable(live, admission.webhook)


def other_rules(admission: Admission | None) -> tuple[Rule, ...]:
    """The rules by which kubevirt-aie-webhook changes launcher pods, without ours."""
    live = _live(admission, _CONFIG_MAP) if admission is not None else None
    webhook = admission.webhook if admission is not None else None
    if live is None or webhook is None or webhook.registered is False:
        return ()
    return aie_config.foreign_rules(live, webhook)


def approved_part(obj: KubeObject) -> KubeObject:
    """What a user approves of an object that a run writes."""
    return aie_config.approved_part(obj) if obj["kind"] == _CONFIG_MAP else obj


def recorded_table(admission: Admission) -> Table | None:
    """The table in effect, read from the annotation of the live rules; None where there are none of ours, or no table.

    ``Table.as_of`` has what it means for the present version of KubeVirt.
    """
    live = rules_object(admission)
    text = (live["metadata"].get("annotations") or {}).get(names.MAPPING_ANNOTATION) if live is not None else None
    try:
        return mapping.restore(text) if text else None
    except InputErrors:
        return None


def images_in_effect(admission: Admission | None, stock: str | None) -> dict[str, str]:
    """The launcher images that VMs get now instead of KubeVirt's own, by pool.

    :param stock: KubeVirt's own; None when it is not known.
    """
    table = recorded_table(admission) if admission is not None else None
    images = table.as_of(stock).images if table is not None else {}
    return {pool: image for pool, image in images.items() if image}


def images_after_upgrade(admission: Admission | None) -> dict[str, str]:
    """The same once the next version of KubeVirt makes launcher pods."""
    return images_in_effect(admission, stock="")


def rules_object(admission: Admission) -> KubeObject | None:
    """The live object of ours that holds the rules, of any back end; None where there is none."""
    holders = (of_backend[0] for of_backend in _KINDS.values() if of_backend)
    return next((live for kind in holders if (live := _ours(admission, kind)) is not None), None)


def live_epoch(admission: Admission) -> int | None:
    """The epoch of the pods that the live rules admit; None where there are none of ours, or they give pods none."""
    live = rules_object(admission)
    return launcher_policy.epoch_of(live) if live is not None else None


def backend_in_use(admission: Admission) -> Backend | None:
    """The back end whose live rules are ours; None where there are none."""
    live = rules_object(admission)
    return next((backend for backend, of_backend in _KINDS.items() if live and live["kind"] in of_backend), None)


def drift(wanted: t.Sequence[tuple[Kind, Object]], admission: Admission) -> tuple[Difference, ...]:
    """Where the live objects differ from the wanted ones; fields that a server adds are ignored.

    A path begins with kind and name. A path of these alone, with ABSENT, is an object that is missing.
    """
    return tuple(difference for kind, obj in wanted for difference in _drift(kind, obj, admission))


def _drift(kind: Kind, obj: Object, admission: Admission) -> t.Iterator[Difference]:
    title = f"{kind} {obj['metadata']['name']}"
    live = admission.objects.get((kind.name, obj["metadata"]["name"]))
    if live is None:
        yield Difference(title, obj, ABSENT)
        return
    for field in ("spec", "data"):
        yield from differences(_compact(obj.get(field)), _compact(live.get(field)), f"{title} {field}")
    for field in ("labels", "annotations"):
        ours, theirs = (side["metadata"].get(field) or {} for side in (obj, live))
        present = {key: theirs[key] for key in ours if key in theirs}
        yield from differences(dict(ours), present, f"{title} metadata.{field}")


def _compact(value: t.Any) -> t.Any:
    """``value`` without empty fields: servers write empty selectors where none are given."""
    if isinstance(value, t.Mapping):
        return {key: kept for key, item in value.items() if (kept := _compact(item)) not in ({}, [], None)}
    if isinstance(value, (list, tuple)):
        return [_compact(item) for item in value]
    return value


def _live(admission: Admission, kind: str) -> KubeObject | None:
    return admission.objects.get((kind, names.AIE_CONFIG if kind == _CONFIG_MAP else names.POLICY))


def _ours(admission: Admission, kind: str) -> KubeObject | None:
    live = _live(admission, kind)
    if live is None:
        return None
    if kind == _CONFIG_MAP:
        return live if aie_config.is_ours(live) else None
    return live if is_managed(live) else None
