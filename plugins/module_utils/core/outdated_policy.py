# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keeping KubeVirt from updating pool VMs for ever.

KubeVirt compares each VM's launcher image with its own, so every VM with a pool's image is outdated to it, and with
``workloadUpdateMethods`` it migrates or restarts such VMs again and again. Either those methods are empty, or a policy
corrects what virt-controller notes down about a running VM: the image of a pool as it is now reads as KubeVirt's own,
any other image, such as the one a pool had before, stays what it is. Not the default, since it changes a status.
"""

from __future__ import annotations

import typing as t

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import cel, daemonsets, hco, kinds, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.findings import Finding, error, listed, warning
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.hco import field
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.mapping import Table
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.objects import digest
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.snapshot import Snapshot

Object = dict[str, t.Any]

_METHODS = ("spec", "workloadUpdateStrategy", "workloadUpdateMethods")
_EFFECTS = {"LiveMigrate": "migrate", "Evict": "restart"}


def stock_image(snapshot: Snapshot) -> str | None:
    """KubeVirt's own launcher image, which the primary's init container has; None while there is no primary."""
    return daemonsets.images_of(snapshot.primary).get(names.LAUNCHER) if snapshot.primary is not None else None


def pool_images(table: Table, stock: str | None) -> dict[str, str]:
    """The launcher images that KubeVirt calls outdated, by pool."""
    return {pool: image for pool, image in table.images.items() if image not in (None, stock)}


def check(snapshot: Snapshot, table: Table, outdated: str) -> t.Iterator[Finding]:
    """Whether KubeVirt would update pool VMs for ever.

    :param outdated: ``correct`` when the policy that prevents it is asked for, else ``refuse``.
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
            f"{hco.title(snapshot.kubevirt)} has {' and '.join(methods)} in {'.'.join(_METHODS)}, and takes every VM with "
            f"the launcher image of pool {listed(pools)} for outdated: it would {what} these VMs again and again. Either "
            f"empty {_place(snapshot)} (which also ends KubeVirt's hotplug of CPU and memory and its volume migrations), "
            "and leave updates to the VMs' owners; or empty it and run the playbook virtpools.kubevirt.workload_update for "
            "them; or keep it and set virtpools_outdated: correct, which makes KubeVirt see its own image in these VMs.",
        )


def examine(snapshot: Snapshot, table: Table) -> t.Iterator[Finding]:
    """The same of the cluster as it is, where the live policy says what was asked for."""
    objects = snapshot.admission.objects if snapshot.admission is not None else {}
    live = objects.get((kinds.MUTATING_ADMISSION_POLICIES[0].name, names.OUTDATED_POLICY))
    yield from check(snapshot, table, "correct" if live is not None else "refuse")
    stock = stock_image(snapshot)
    if live is None or stock is None:
        return
    desired = derive(table, stock, snapshot.namespace, kinds.MUTATING_ADMISSION_POLICIES[0])
    if desired and _digest_of(live) != _digest_of(desired[0][1]):
        yield warning(
            "outdated_policy_stale",
            f"Policy {names.OUTDATED_POLICY} was made for other launcher images than those of the pools and KubeVirt's own, "
            f"{stock}, as after an upgrade of KubeVirt: KubeVirt takes pool VMs for outdated until the next run of site.",
        )


def after_upgrade(snapshot: Snapshot) -> t.Iterator[Finding]:
    """What an upgrade of KubeVirt will bring about: it changes the image that the live policy names."""
    objects = snapshot.admission.objects if snapshot.admission is not None else {}
    methods = _methods(snapshot)
    if methods and (kinds.MUTATING_ADMISSION_POLICIES[0].name, names.OUTDATED_POLICY) in objects:
        yield warning(
            "upgrade_outdated_policy_stale",
            f"Policy {names.OUTDATED_POLICY} names KubeVirt's launcher image {stock_image(snapshot)}; once KubeVirt is "
            f"upgraded, it would {' and '.join(_EFFECTS[method] for method in methods)} pool VMs again and again until site "
            f"has run: empty {_place(snapshot)} before the upgrade, and fill it again after that run.",
        )


def _methods(snapshot: Snapshot) -> list[str]:
    """By what KubeVirt updates outdated VMs."""
    return [method for method in field(snapshot.kubevirt, *_METHODS) or () if method in _EFFECTS]


def _digest_of(policy: t.Mapping[str, t.Any]) -> t.Any:
    return field(policy, "metadata", "annotations", names.POLICY_ANNOTATION)


def _place(snapshot: Snapshot) -> str:
    """Where the user says by which methods KubeVirt updates VMs."""
    if snapshot.hyperconverged is None:
        return f"{'.'.join(_METHODS)} of {hco.title(snapshot.kubevirt)}"
    return f"{hco.update_methods_path(snapshot.hyperconverged)} of {hco.title(snapshot.hyperconverged)}"


def derive(table: Table, stock: str, namespace: str, policy: kinds.Kind) -> list[tuple[kinds.Kind, Object]]:
    """The policy and its binding in the API version of ``policy``; nothing when no pool has an image of its own.

    :param stock: KubeVirt's own launcher image; after an upgrade of KubeVirt the policy must be derived anew.
    :param namespace: KubeVirt's.
    """
    images = sorted(table.launcher_images - {stock})
    if not images:
        return []
    spec = _spec(images, stock, namespace)
    labels = {names.MANAGED_BY_LABEL: names.MANAGED_BY}
    made = policy.object(names.OUTDATED_POLICY, spec=spec)
    made["metadata"].update(labels=labels, annotations={names.POLICY_ANNOTATION: digest(spec)[:12]})
    binding = kinds.MUTATING_ADMISSION_POLICY_BINDINGS[kinds.MUTATING_ADMISSION_POLICIES.index(policy)]
    bound = binding.object(names.OUTDATED_POLICY, spec={"policyName": names.OUTDATED_POLICY})
    bound["metadata"].update(labels=dict(labels))
    return [(policy, made), (binding, bound)]


def _spec(images: t.Sequence[str], stock: str, namespace: str) -> Object:
    """Everything spelled out that the server would add, so that the live policy can be compared with it."""
    shards = list(cel.shards(images))
    known = cel.any_of(f"variables.image in variables.images{number}" for number in range(len(shards)))
    label = cel.literal(names.OUTDATED_LABEL)
    return {
        # A policy that fails must not keep virt-controller from running VMs; what it leaves out is only a correction.
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
            # In the phases before, virt-controller waits for the very update that it sent.
            {
                "name": "running",
                "expression": '[object, oldObject].all(vmi, vmi.?status.?phase.orValue("") == "Running")',
            },
        ],
        "variables": [
            {"name": "image", "expression": 'object.?status.?launcherContainerImageVersion.orValue("")'},
            *({"name": f"images{number}", "expression": cel.literal(shard)} for number, shard in enumerate(shards)),
        ],
        "mutations": [
            {
                "patchType": "JSONPatch",
                "jsonPatch": {
                    "expression": f"{known} ? "
                    f'[JSONPatch{{op: "replace", path: "/status/launcherContainerImageVersion", value: {cel.literal(stock)}}}] + '
                    f"(object.metadata.?labels[?{label}].hasValue() ? "
                    f'[JSONPatch{{op: "remove", path: "/metadata/labels/" + jsonpatch.escapeKey({label})}}] : []) : []'
                },
            }
        ],
    }
