# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""The mapping table as rules of kubevirt-aie-webhook, and what such rules cannot express.

We own the rules of its ConfigMap while POLICY_ANNOTATION is on it, and write no node labels.
docs/design/aie-config-map.md explains this.
"""

from __future__ import annotations

import copy
import typing as t

from ..base import names
from ..base.findings import Finding, error, listed, warning
from ..base.objects import SERVER_METADATA, KubeObject, Object, canonical_json, short_digest
from ..pools.criteria import CRITERIA
from ..pools.model import Pool
from ..vms.mapping import Table

KEY = "config.yaml"
_POSSIBLE = listed(criterion.path for criterion in CRITERIA if criterion.in_aie_rules)
_NO_RULES = canonical_json({"rules": []})
_EMPTY = frozenset({"", "{}", "rules:", "rules:[]", "rules:null", _NO_RULES})
"""A configuration without rules, spaces aside, as the webhook's chart, HCO or a person writes it."""


def check(table: Table) -> t.Iterator[Finding]:
    """What the webhook cannot do for this table: errors where VMs would get the wrong image or node, else warnings."""
    for rule in table.rules:
        beyond = listed(_beyond(rule))
        if beyond:
            yield error(
                "aie_cannot_express",
                f"Pool {rule.name}: kubevirt-aie-webhook leads VMs to a pool's nodes by {_POSSIBLE} alone, not by "
                f"{beyond}; leave that out, or choose another virtpools_launcher_backend.",
            )
        if rule.virt_launcher_image is None:
            yield error(
                "aie_cannot_express",
                f"Pool {rule.name}: every rule of kubevirt-aie-webhook needs an image; give virtLauncherImage, or choose "
                "another virtpools_launcher_backend.",
            )
    if table.keep_off:
        yield error(
            "aie_cannot_keep_off",
            f"kubevirt-aie-webhook cannot keep VMs that match no pool off the nodes of {listed(table.keep_off)}; set "
            "unmatched: allow there, or choose another virtpools_launcher_backend.",
        )
    if table.upcoming is not None:
        yield error(
            "aie_cannot_prepare",
            "kubevirt-aie-webhook gives a pool's VMs one image, so it cannot serve two versions of KubeVirt during an upgrade; choose "
            "another virtpools_launcher_backend, or run site as soon as virt-controller has been replaced.",
        )
    tolerating = [rule.name for rule in table.rules if rule.tolerations]
    if tolerating:
        yield warning(
            "aie_no_tolerations",
            f"kubevirt-aie-webhook adds no tolerations, so the VMs of {listed(tolerating)} need them in their own "
            "template where the pool's nodes are tainted.",
        )
    if table.adds_pull_secrets:
        yield warning(
            "aie_no_pull_secrets",
            "kubevirt-aie-webhook adds no pull secrets, so virtLauncherPullSecrets has no effect; give the kubelets of the "
            "pools' nodes credentials, or choose another virtpools_launcher_backend.",
        )
    if table.rules:
        yield warning(
            "aie_compute_only",
            f"kubevirt-aie-webhook changes the container {names.COMPUTE} alone: helpers of the VMs of "
            f"{listed(rule.name for rule in table.rules)} (serial console, virtiofs, container disks) keep KubeVirt's own "
            "launcher image, and only devices keep these VMs on the pools' nodes.",
        )


def _beyond(rule: Pool) -> t.Iterator[str]:
    """The criteria of a pool that no rule can express, or that would not lead the VMs to its nodes (labels)."""
    yield from (criterion.path for criterion in rule.criteria if not criterion.in_aie_rules)
    if rule.namespaces is not None:
        yield rule.namespaces.path


def foreign(live: KubeObject) -> Finding | None:
    """An error if the ConfigMap holds rules that are not ours."""
    if is_ours(live) or "".join(str((live.get("data") or {}).get(KEY) or "").split()) in _EMPTY:
        return None
    metadata = live["metadata"]
    return error(
        "aie_rules_foreign",
        f"ConfigMap {metadata.get('namespace')}/{metadata['name']} holds rules of others, which a run would overwrite; "
        f"turn them into pools (virtpools_pools_from_cluster reads them), then empty its {KEY}.",
    )


def is_ours(live: KubeObject) -> bool:
    """Whether the rules in the ConfigMap were written by us."""
    return names.POLICY_ANNOTATION in (live["metadata"].get("annotations") or {})


def derive(table: Table, live: KubeObject) -> Object:
    """The webhook's ConfigMap with the table's rules; everything else in it stays as it is."""
    text = canonical_json({"rules": [_rule(rule) for rule in table.rules]})
    annotations = {names.POLICY_ANNOTATION: short_digest(text), names.MAPPING_ANNOTATION: table.to_text() or None}
    return _with(live, text, annotations)


def released(live: KubeObject) -> Object:
    """The webhook's ConfigMap without rules. If the key or the ConfigMap were missing, the webhook would keep its rules."""
    return _with(live, _NO_RULES, {names.POLICY_ANNOTATION: None, names.MAPPING_ANNOTATION: None})


def _rule(rule: Pool) -> Object:
    written = rule.to_object()["selector"]
    selector = {criterion.field: written[criterion.field] for criterion in rule.criteria if criterion.in_aie_rules}
    return {"name": rule.name, "image": rule.virt_launcher_image, "selector": selector}


def _with(live: KubeObject, text: str, annotations: t.Mapping[str, str | None]) -> Object:
    obj = copy.deepcopy(dict(live))
    obj["data"] = {**(obj.get("data") or {}), KEY: text}
    metadata = {key: value for key, value in obj["metadata"].items() if key not in SERVER_METADATA}
    merged = {**(metadata.pop("annotations", None) or {}), **annotations}
    kept = {key: value for key, value in merged.items() if value is not None}
    obj["metadata"] = {**metadata, "annotations": kept} if kept else metadata
    return obj
