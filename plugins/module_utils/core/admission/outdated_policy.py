# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Keeps KubeVirt from updating pool VMs forever.

KubeVirt compares each VM's launcher image with its own. So it calls every VM with a pool's image outdated, and with
``workloadUpdateMethods`` it migrates or restarts such VMs again and again. Either these methods must be empty, or a
policy must correct what virt-controller writes about a running VM: it replaces a pool's present image with KubeVirt's
own, and keeps any other image, such as a pool's former one. Where an upgrade is prepared, the images for the next version
are replaced with that version's own: each virt-controller then sees its own image in the VMs that are up to date for it. The
policy is not the default: it changes a status.
"""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ..base import cel, kinds, names
from ..base.findings import Finding, error, listed, warning
from ..base.objects import Object, field, short_digest
from ..kubevirt import controller, daemonsets, hco, health
from ..observed.snapshot import Admission, Snapshot
from ..vms.mapping import Table
from . import launcher_backends
from .probes import digest_in

_METHODS = ("spec", "workloadUpdateStrategy", "workloadUpdateMethods")
_EFFECTS = {"LiveMigrate": "migrate", "Evict": "restart"}


def stock_image(snapshot: Snapshot) -> str | None:
    """KubeVirt's own launcher image: the one that virt-controller gives to VMs or, where that is not known, the primary's; None
    while there is no primary."""
    if snapshot.primary is None:
        return None
    return controller.launcher_image(snapshot.controller) or daemonsets.images_of(snapshot.primary).get(names.LAUNCHER)


def deployed_stock_image(snapshot: Snapshot) -> str | None:
    """KubeVirt's own launcher image of the version that is deployed, also while an upgrade replaces it; None
    when nothing tells it."""
    stock = stock_image(snapshot)
    source = snapshot.controller if controller.launcher_image(snapshot.controller) else snapshot.primary
    annotations = field(source, "metadata", "annotations") or {}
    upgrading = health.Health.from_kubevirt(snapshot.kubevirt).upgrading
    if stock is None or upgrading is None or annotations.get(names.VERSION_ANNOTATION) != upgrading[1]:
        return stock
    return health.deployed_launcher_image(snapshot.kubevirt, stock)


def pool_images(table: Table, stock: str | None) -> dict[str, str]:
    """The launcher images that KubeVirt calls outdated, by pool: those that differ from its own."""
    return {pool: image for pool, image in table.images.items() if image not in (None, stock)}


def update_findings(snapshot: Snapshot, table: Table, outdated: str) -> t.Iterator[Finding]:
    """Findings when KubeVirt would update pool VMs forever.

    :param outdated: ``correct`` when the user asks for the policy that prevents this, else ``refuse``.
    """
    pools = pool_images(table, stock_image(snapshot))
    if not pools:
        return
    if outdated == "correct":
        if snapshot.admission is not None and snapshot.admission.policy_kind is None:
            yield error(
                "outdated_policy_not_served",
                f"virtpools_outdated: correct needs {kinds.MUTATING_ADMISSION_POLICIES[0].name}, which this API server does "
                f"not serve; enable it, or empty {_place(snapshot)} and set virtpools_outdated: refuse.",
            )
        return
    methods = _methods(snapshot)
    if methods:
        what = " and ".join(_EFFECTS[method] for method in methods)
        yield error(
            "workload_updates_never_end",
            f"{hco.title(snapshot.kubevirt)} has {' and '.join(methods)} in {'.'.join(_METHODS)}, and considers every "
            f"VM with the launcher image of pool {listed(pools)} outdated: it would {what} these VMs again and again. Either "
            f"empty {_place(snapshot)} (which also ends KubeVirt's hotplug of CPU, memory and network interfaces, and its volume migrations), "
            "and leave updates to the VMs' owners; or empty it and run the playbook virtpools.kubevirt.workload_update for "
            "them; or keep it and set virtpools_outdated: correct, which makes KubeVirt see its own image in these VMs.",
        )


def examine(snapshot: Snapshot, table: Table) -> t.Iterator[Finding]:
    """The same findings for the cluster as it is, where a live policy means that the user asked for it."""
    admission = snapshot.admission or Admission()
    live = admission.objects.get((kinds.MUTATING_ADMISSION_POLICIES[0].name, names.OUTDATED_POLICY))
    yield from update_findings(snapshot, table, "correct" if live is not None else "refuse")
    stock = stock_image(snapshot)
    if live is None or stock is None:
        return
    known = [table, launcher_backends.recorded_table(admission) or table]
    desired = [derive(each, stock, snapshot.namespace, kinds.MUTATING_ADMISSION_POLICIES[0]) for each in known]
    if not desired[0] or any(objects and not launcher_backends.drift(objects, admission) for objects in desired):
        return
    edited = digest_in(live) in [digest_in(objects[0][1]) for objects in desired if objects]
    what = (
        "was changed or partly deleted by hand"
        if edited
        else f"was created for launcher images other than those of the pools and KubeVirt's own, {stock}, as after an upgrade of KubeVirt"
    )
    yield warning(
        "outdated_policy_stale",
        f"Policy {names.OUTDATED_POLICY} {what}: KubeVirt calls pool VMs outdated until the next run of site.",
    )


def after_upgrade(snapshot: Snapshot, table: Table | None) -> t.Iterator[Finding]:
    """Findings on what an upgrade of KubeVirt will cause, because it changes the image that the live policy names.

    :param table: the mapping table when the upgrade begins, with what is prepared for it.
    """
    objects = snapshot.admission.objects if snapshot.admission is not None else {}
    methods = _methods(snapshot)
    if not methods or (kinds.MUTATING_ADMISSION_POLICIES[0].name, names.OUTDATED_POLICY) not in objects:
        return
    upcoming = table.upcoming if table is not None else None
    if table is not None and upcoming is not None:
        own_tags = health.has_own_tags(upcoming.stock, snapshot.kubevirt)
        told = not own_tags and health.retagged(upcoming.stock, upcoming.version) is not None
        same = [pool for pool, image in table.images.items() if image and upcoming.images.get(pool, image) == image]
        if told and not same:
            return
        why = (
            f"pool {listed(same)} keeps its launcher image"
            if same
            else "the tag of that image does not show its version"
        )
        remedy = f"since {why}, the preparation cannot change that: empty"
    else:
        remedy = "prepare the upgrade with the playbook upgrade and images built for the new version, or empty"
    yield warning(
        "upgrade_outdated_policy_stale",
        f"Policy {names.OUTDATED_POLICY} names KubeVirt's launcher image {stock_image(snapshot)}; once KubeVirt is "
        f"upgraded, it would {' and '.join(_EFFECTS[method] for method in methods)} pool VMs again and again until site "
        f"has run; {remedy} {_place(snapshot)} before the upgrade, and fill it again after that run.",
    )


def _methods(snapshot: Snapshot) -> list[str]:
    """The methods by which KubeVirt updates outdated VMs."""
    return [method for method in field(snapshot.kubevirt, *_METHODS) or () if method in _EFFECTS]


def _place(snapshot: Snapshot) -> str:
    """The field with the methods by which KubeVirt updates VMs, and its object, for messages."""
    if snapshot.hyperconverged is None:
        return f"{'.'.join(_METHODS)} of {hco.title(snapshot.kubevirt)}"
    return f"{hco.update_methods_path(snapshot.hyperconverged)} of {hco.title(snapshot.hyperconverged)}"


def derive(table: Table, stock: str, namespace: str, policy: kinds.Kind) -> list[tuple[kinds.Kind, Object]]:
    """The policy and its binding in the API version of ``policy``; empty when no pool has an image of its own.

    :param stock: KubeVirt's own launcher image; after an upgrade of KubeVirt the policy must be derived again.
    :param namespace: KubeVirt's namespace.
    """
    corrections = _corrections(table, stock)
    if not corrections:
        return []
    spec = _spec(corrections, namespace)
    labels = {names.MANAGED_BY_LABEL: names.MANAGED_BY}
    obj = policy.object(names.OUTDATED_POLICY, spec=spec)
    obj["metadata"].update(labels=labels, annotations={names.POLICY_ANNOTATION: short_digest(spec)})
    binding_kind = kinds.MUTATING_ADMISSION_POLICY_BINDINGS[kinds.MUTATING_ADMISSION_POLICIES.index(policy)]
    binding = binding_kind.object(names.OUTDATED_POLICY, spec={"policyName": names.OUTDATED_POLICY})
    binding["metadata"].update(labels=dict(labels))
    return [(policy, obj), (binding_kind, binding)]


def _corrections(table: Table, stock: str) -> list[tuple[str, list[str]]]:
    """KubeVirt's own launcher images, each with the images of pools that it stands for."""
    upcoming = table.upcoming
    if upcoming is None:
        found = {stock: table.launcher_images}
    else:
        now = replace(table, upcoming=None).launcher_images
        later = frozenset(image for image in upcoming.images.values() if image) - now
        begun = upcoming.begun(stock)
        found = {upcoming.stock if begun else stock: now, stock if begun else upcoming.next_stock: later}
    return [(own, sorted(images - {own})) for own, images in found.items() if images - {own}]


def _spec(corrections: t.Sequence[tuple[str, t.Sequence[str]]], namespace: str) -> Object:
    """The spec with all defaults that the server would add, so that the live policy can be compared with it."""
    label = cel.literal(names.OUTDATED_LABEL)
    variables: list[Object] = []
    corrected = ""
    for own, images in corrections:
        first = len(variables)
        variables += [
            {"name": f"images{first + number}", "expression": cel.literal(shard)}
            for number, shard in enumerate(cel.shards(images))
        ]
        known = cel.any_of(f"variables.image in variables.{each['name']}" for each in variables[first:])
        corrected += (
            f"{known} ? "
            f'[JSONPatch{{op: "replace", path: "/status/launcherContainerImageVersion", value: {cel.literal(own)}}}] + '
            f"(object.metadata.?labels[?{label}].hasValue() ? "
            f'[JSONPatch{{op: "remove", path: "/metadata/labels/" + jsonpatch.escapeKey({label})}}] : []) : '
        )
    listed_exactly = cel.any_of(f"variables.noted in variables.{each['name']}" for each in variables)
    return {
        # A policy that fails must not keep virt-controller from running VMs: only a correction is lost.
        "failurePolicy": "Ignore",
        "reinvocationPolicy": "Never",
        "matchConstraints": {
            "matchPolicy": "Equivalent",
            "namespaceSelector": {},
            "objectSelector": {},
            "resourceRules": [
                {
                    "apiGroups": [kinds.VIRTUAL_MACHINE_INSTANCE.group],
                    "apiVersions": ["*"],
                    "operations": ["UPDATE"],
                    "resources": [kinds.VIRTUAL_MACHINE_INSTANCE.plural],
                    "scope": "Namespaced",
                }
            ],
        },
        "matchConditions": [
            {
                "name": "by-virt-controller",
                "expression": f"request.userInfo.username == {cel.literal(names.controller_user(namespace))}",
            },
            # In earlier phases, virt-controller waits until its update is stored exactly as it sent it.
            {
                "name": "running",
                "expression": '[object, oldObject].all(vmi, vmi.?status.?phase.orValue("") == "Running")',
            },
        ],
        "variables": [
            {"name": "noted", "expression": 'object.?status.?launcherContainerImageVersion.orValue("")'},
            *variables,
            # As in ``LauncherImages``, a digest that admission appended is ignored, unless a pool's image is listed with it.
            {"name": "image", "expression": f'{listed_exactly} ? variables.noted : variables.noted.split("@")[0]'},
        ],
        "mutations": [
            {
                "patchType": "JSONPatch",
                "jsonPatch": {"expression": f"{corrected}[]"},
            }
        ],
    }
