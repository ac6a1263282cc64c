# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""kubevirt-aie-webhook as it is on a cluster: the rules that it reads, and whether API servers can call it."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ..base import kinds, names
from ..base.objects import KubeObject

KEY = "config.yaml"
"""The key of its ConfigMap that holds the rules."""

_HOOK = "virt-launcher-mutator.kubevirt.io"
"""The name of the webhook in its MutatingWebhookConfiguration, from HCO and from its chart."""


@dataclass(frozen=True)
class Rule:
    """A rule of the webhook. It takes the VMs that have one of the devices, or all of the labels."""

    obj: KubeObject
    start: int = 0
    """Where its lines begin in the text, and where they end."""
    end: int = 0

    @property
    def name(self) -> str:
        return str(self.obj.get("name") or "without a name")

    @property
    def image(self) -> str:
        return str(self.obj.get("image") or "")

    @property
    def devices(self) -> frozenset[str]:
        return frozenset((self.obj.get("selector") or {}).get("deviceNames") or ())

    @property
    def labels(self) -> t.Mapping[str, str]:
        selector = self.obj.get("selector") or {}
        return dict((selector.get("vmLabels") or {}).get("matchLabels") or {})

    def takes(self, devices: t.Collection[str], labels: t.Mapping[str, str]) -> bool:
        """Whether it takes a VM with these devices and labels."""
        by_labels = bool(self.labels) and all(labels.get(key) == value for key, value in self.labels.items())
        return by_labels or not self.devices.isdisjoint(devices)


@dataclass(frozen=True)
class Config:
    """The rules in the webhook's ConfigMap, and where they stand in its text."""

    text: str = ""
    rules: tuple[Rule, ...] = ()
    more: t.Mapping[str, t.Any] = field(default_factory=dict)
    """What the text holds besides the rules."""
    place: tuple[int, int] | None = None
    """Where a rule in lines of its own can be the first one: the offset in the text, and the column of its dash. None where the
    rules are not written in lines of their own."""
    problem: str | None = None
    """Why the webhook cannot read the text; it then keeps the rules that it has."""

    @property
    def meaning(self) -> tuple[t.Any, ...]:
        return ([dict(rule.obj) for rule in self.rules], dict(self.more), self.problem)


ReadConfig = t.Callable[[str], Config]
"""Reads the text; the core has no YAML parser."""


@dataclass(frozen=True)
class Webhook:
    """The webhook of a cluster that has its ConfigMap."""

    config: Config
    former: Config | None = None
    """The text before the first rule of ours, where that had no lines to put it between."""
    registered: bool | None = None
    """Whether API servers call it; None when that is not known, as in most dumps."""
    problem: str | None = None
    """Why API servers cannot call it, or why it reads another ConfigMap."""

    @classmethod
    def from_objects(
        cls,
        config_map: KubeObject,
        read: ReadConfig,
        configurations: t.Collection[KubeObject] | None,
        deployment: t.Callable[[str, str], KubeObject | None],
    ) -> Webhook:
        """From its ConfigMap and the MutatingWebhookConfigurations of the cluster.

        :param configurations: None when they are not known.
        :param deployment: finds a Deployment by namespace and name.
        """
        former = (config_map["metadata"].get("annotations") or {}).get(names.FORMER_RULES_ANNOTATION)
        found = None
        if configurations is not None:
            found = [
                (obj, hook) for obj in configurations for hook in obj.get("webhooks") or () if hook["name"] == _HOOK
            ]
        namespace = config_map["metadata"].get("namespace", "")
        problems = (_problem(obj, hook, namespace, deployment) for obj, hook in found or ())
        return cls(
            config=read(str((config_map.get("data") or {}).get(KEY) or "")),
            former=None if former is None else read(former),
            registered=None if found is None else bool(found),
            problem=next((problem for problem in problems if problem is not None), None),
        )


def _problem(
    obj: KubeObject, hook: KubeObject, namespace: str, deployment: t.Callable[[str, str], KubeObject | None]
) -> str | None:
    client = hook.get("clientConfig") or {}
    service = client.get("service")
    if service is None:
        return None
    title = f"{kinds.DEPLOYMENT} {service['namespace']}/{service['name']}"
    if service["namespace"] != namespace:
        return f"its Service {service['namespace']}/{service['name']} is in another namespace, where it reads its rules"
    if not client.get("caBundle"):
        return f"{obj['kind']} {obj['metadata']['name']} has no caBundle"
    pods = deployment(service["namespace"], service["name"])
    if pods is None:
        return f"there is no {title}"
    if not (pods.get("status") or {}).get("readyReplicas"):
        return f"{title} has no ready pod"
    return None
