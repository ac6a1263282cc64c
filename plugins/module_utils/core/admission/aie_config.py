# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""The mapping table as rules of kubevirt-aie-webhook, and what such rules cannot express.

Rule by rule, those are ours that the recorded table has. All others, and their text, stay as they are. We write no node labels.
docs/design/aie-config-map.md explains this.
"""

from __future__ import annotations

import copy
import json
import typing as t

from ..base import names
from ..base.findings import Finding, InputErrors, error, listed, warning
from ..base.objects import SERVER_METADATA, KubeObject, Object, canonical_json, short_digest
from ..kubevirt import launcher_arguments
from ..observed.webhook import KEY, Config, Rule, Webhook
from ..pools.criteria import CRITERIA, PodAttributes
from ..pools.model import Pool
from ..vms import mapping
from ..vms.mapping import Table

_POSSIBLE = listed(criterion.path for criterion in CRITERIA if criterion.in_aie_rules)
_STOCK = "KubeVirt's own launcher image"
_FIELDS = ("name", "image", "selector", "nodeSelector")


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
        if rule.hypervisor is not None:
            yield error(
                "aie_cannot_express",
                f"Pool {rule.name}: kubevirt-aie-webhook changes images, not the hypervisor of a VM; remove hypervisor, or choose another "
                "virtpools_launcher_backend.",
            )
    if table.rules and not table.to_text():
        yield error(
            "aie_cannot_express",
            f"The {len(table.rules)} pools are too many for the annotation by which a run knows its own rules of "
            "kubevirt-aie-webhook; choose another virtpools_launcher_backend.",
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
            f"another virtpools_launcher_backend, or {launcher_arguments.WITH_ONE_IMAGE}.",
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


# Whose a rule is ---------------------------------------------------------------------------------------------------


def is_ours(live: KubeObject) -> bool:
    """Whether a run has written rules into the ConfigMap."""
    return names.POLICY_ANNOTATION in (live["metadata"].get("annotations") or {})


def recorded(live: KubeObject) -> Table | None:
    """The table whose rules a run has written; None where there is none, or it cannot be read."""
    text = (live["metadata"].get("annotations") or {}).get(names.MAPPING_ANNOTATION)
    try:
        return mapping.restore(text) if text else None
    except InputErrors:
        return None


def foreign_rules(live: KubeObject, webhook: Webhook) -> tuple[Rule, ...]:
    """The rules that no run has written. All of them, where it is not known which those are."""
    mine = _mine(live, webhook.config) or frozenset()
    return tuple(rule for number, rule in enumerate(webhook.config.rules) if number not in mine)


def unusable(live: KubeObject, webhook: Webhook | None) -> Finding | None:
    """An error if our rules cannot be told from others, so that no run can write or remove them."""
    title = _title(live)
    problem = webhook.config.problem if webhook is not None else "the Python package PyYAML is missing"
    if webhook is None or problem is not None:
        return error(
            "aie_config_unreadable", f"{KEY} of {title} cannot be read: {problem}; correct it, then run again."
        )
    if _mine(live, webhook.config) is None:
        return error(
            "aie_rules_foreign",
            f"The annotation {names.MAPPING_ANNOTATION} of {title} cannot be read, so a run cannot tell its own rules from "
            f"others; delete the rules of pools from its {KEY}, and its annotation {names.POLICY_ANNOTATION}, then run again.",
        )
    return None


def foreign_findings(table: Table, live: KubeObject, webhook: Webhook) -> t.Iterator[Finding]:
    """An error for each rule of another owner that takes VMs of a pool, and a warning that names those that stay."""
    stay = []
    for rule in foreign_rules(live, webhook):
        pool, common = next(meetings(rule, table), (None, ""))
        if pool is None and rule.name in table.images:
            pool, common = rule.name, "the name"
        if pool is None:
            stay.append(rule.name)
            continue
        yield error(
            "aie_rules_foreign",
            f"{_title(live)} has a rule {rule.name} that no run has written and that has {common} in common with pool {pool}; "
            f"delete that rule from its {KEY}, or leave {common} out of the pool.",
        )
    if stay:
        yield warning(
            "aie_rules_kept",
            f"{_title(live)} has rules that no run has written: {listed(stay)}. They stay, behind those of the pools: a VM "
            "that a pool takes, too, gets the pool's image.",
        )


def beside_findings(table: Table, live: KubeObject, webhook: Webhook) -> t.Iterator[Finding]:
    """What the webhook does to launcher pods beside another back end, which acts before it: errors where it replaces the image of
    a pool's VMs."""
    beside = []
    for rule in foreign_rules(live, webhook):
        for pool, common in meetings(rule, table):
            image = table.images[pool]
            if rule.image != image:
                yield error(
                    "aie_rule_meets_pool",
                    f"Rule {rule.name} of kubevirt-aie-webhook ({_title(live)}) takes VMs of pool {pool} by {common}: their "
                    f"container {names.COMPUTE} would start with {rule.image}, and their helpers with "
                    f"{image or _STOCK}; delete that rule"
                    f"{', or give it the image of the pool' if image else ''}.",
                )
        beside.append(rule.name)
    if beside:
        yield warning(
            "aie_rules_beside",
            f"kubevirt-aie-webhook changes launcher pods, too, after the launcher policy: VMs that its rules take "
            f"({listed(beside)} of {_title(live)}) start with the image of the rule in the container {names.COMPUTE}, and with "
            "the images of the policy elsewhere.",
        )


def meetings(rule: Rule, table: Table) -> t.Iterator[tuple[str, str]]:
    """The pools that take VMs of this rule, each with what both select by, in words."""
    for pool in table.rules:
        devices = rule.devices.intersection(pool.selector.device_names if pool.selector else ())
        if devices:
            yield pool.name, listed(devices)
        elif _share_labels(rule, pool):
            yield pool.name, listed(f"{key}={value}" for key, value in rule.labels.items())


def _share_labels(rule: Rule, pool: Pool) -> bool:
    """Whether all VMs that one of the two takes by their labels are VMs of the other."""
    of_rule = PodAttributes("", labels=rule.labels)
    return bool(rule.labels) and any(
        criterion.met(pool.selection, of_rule)
        or any(rule.takes((), example.labels) for example in criterion.examples(pool.selection))
        for criterion in pool.criteria
    )


def _mine(live: KubeObject, config: Config) -> frozenset[int] | None:
    """The numbers of our rules; None if that is not known.

    A recorded rule that another user has edited still has its name and a device.
    """
    if not is_ours(live):
        return frozenset()
    table = recorded(live)
    if table is None:
        return _by_digest(live, config)
    mine: dict[str, int] = {}
    for is_same in (_is_equal, _is_edited):
        for ours in (Rule(rule) for rule in _rules(table)):
            left = (
                number
                for number, rule in enumerate(config.rules)
                if number not in mine.values() and is_same(rule, ours)
            )
            number = None if ours.name in mine else next(left, None)
            if number is not None:
                mine[ours.name] = number
    return frozenset(mine.values())


def _is_equal(rule: Rule, ours: Rule) -> bool:
    return rule.obj == ours.obj


def _is_edited(rule: Rule, ours: Rule) -> bool:
    return rule.name == ours.name and not rule.devices.isdisjoint(ours.devices)


def _by_digest(live: KubeObject, config: Config) -> frozenset[int] | None:
    """Our rules by their digest: they were written as the first ones."""
    digest = live["metadata"]["annotations"][names.POLICY_ANNOTATION]
    rules = [rule.obj for rule in config.rules]
    return next(
        (frozenset(range(count)) for count in range(len(rules) + 1) if _digest(rules[:count]) == digest),
        None if rules else frozenset(),
    )


# The ConfigMap ------------------------------------------------------------------------------------------------------


def derive(table: Table, live: KubeObject, webhook: Webhook) -> Object:
    """The webhook's ConfigMap with the table's rules before all others; everything else in it stays as it is."""
    rules = _rules(table)
    annotations = {names.POLICY_ANNOTATION: _digest(rules), names.MAPPING_ANNOTATION: table.to_text() or None}
    if webhook.former is None and webhook.config.place is None:
        annotations[names.FORMER_RULES_ANNOTATION] = webhook.config.text
    obj = _with(live, _text(live, webhook.config, rules), annotations)
    if "resourceVersion" in live["metadata"]:
        # A rule that its owner adds before the run writes must not be lost.
        obj["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"]
    return obj


def released(live: KubeObject, webhook: Webhook) -> Object:
    """The webhook's ConfigMap without our rules. If the key or the ConfigMap were missing, the webhook would keep its rules."""
    text, former = _text(live, webhook.config, ()), webhook.former
    left = ([dict(rule.obj) for rule in foreign_rules(live, webhook)], dict(webhook.config.more), None)
    if former is not None and former.meaning == left:
        text = former.text
    ours = (names.POLICY_ANNOTATION, names.MAPPING_ANNOTATION, names.FORMER_RULES_ANNOTATION)
    return _with(live, text, dict.fromkeys(ours))


def approved_part(obj: KubeObject) -> Object:
    """What a user approves of the ConfigMap: our rules. The rest is not ours, and may change between plan and run."""
    annotations = obj["metadata"].get("annotations") or {}
    return {key: annotations.get(key) for key in (names.POLICY_ANNOTATION, names.MAPPING_ANNOTATION)}


def _text(live: KubeObject, config: Config, rules: t.Sequence[Object]) -> str:
    """The text with these rules of ours, the first ones, in place of those that it has."""
    mine = _mine(live, config) or frozenset()
    others = [rule for number, rule in enumerate(config.rules) if number not in mine]
    if [rule.obj for rule in config.rules] == [*rules, *(rule.obj for rule in others)] and len(mine) == len(rules):
        return config.text
    if config.place is None:
        more = (f"{json.dumps(key)}: {json.dumps(value, default=str)}\n" for key, value in config.more.items())
        return "".join(("rules:\n", *(_lines(rule, 0) for rule in (*rules, *(o.obj for o in others))), *more))
    at, column = config.place
    text = config.text
    for number in sorted(mine, reverse=True):
        text = text[: config.rules[number].start] + text[config.rules[number].end :]
    return text[:at] + "".join(_lines(rule, column) for rule in rules) + text[at:]


def _lines(rule: KubeObject, column: int) -> str:
    """A rule as its chart and people write it, with the dash in this column. JSON's strings and lists are YAML as well."""
    fields = [f"{key}: {json.dumps(rule[key], default=str)}" for key in sorted(rule, key=_order)]
    return "".join(f"{' ' * column}{'  ' if number else '- '}{text}\n" for number, text in enumerate(fields))


def _order(field: str) -> tuple[int, str]:
    return (_FIELDS.index(field) if field in _FIELDS else len(_FIELDS), field)


def _rules(table: Table) -> list[Object]:
    return [_rule(rule) for rule in table.rules]


def _rule(rule: Pool) -> Object:
    written = rule.to_object()["selector"]
    selector = {criterion.field: written[criterion.field] for criterion in rule.criteria if criterion.in_aie_rules}
    return {"name": rule.name, "image": rule.virt_launcher_image, "selector": selector}


def _digest(rules: t.Sequence[KubeObject]) -> str:
    return short_digest(canonical_json({"rules": list(rules)}))


def _title(live: KubeObject) -> str:
    return f"ConfigMap {live['metadata'].get('namespace')}/{live['metadata']['name']}"


def _with(live: KubeObject, text: str, annotations: t.Mapping[str, str | None]) -> Object:
    obj = copy.deepcopy(dict(live))
    obj["data"] = {**(obj.get("data") or {}), KEY: text}
    metadata = {key: value for key, value in obj["metadata"].items() if key not in SERVER_METADATA}
    merged = {**(metadata.pop("annotations", None) or {}), **annotations}
    kept = {key: value for key, value in merged.items() if value is not None}
    obj["metadata"] = {**metadata, "annotations": kept} if kept else metadata
    return obj
