# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Probes of a launcher policy: pods like launcher pods, and what must come of them.

API servers check nothing of a policy before they use it, and one that fails stops every VM from starting. So it is tried
with dry runs of creates, which are admitted like any other but stored nowhere.
"""

from __future__ import annotations

import copy
import typing as t
from dataclasses import dataclass

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import (
    kinds,
    launcher_policy,
    matching,
    names,
    objects,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.mapping import Table
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.matching import ARCHITECTURE_LABEL, Asked
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools import Pool
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.selectors import example_labels

Object = dict[str, t.Any]

MOST_RULES = 20
"""Of the rules that have probes of their own. A condition that fails fails for every pod, whatever rule it belongs to; what
is left to see is that rules are taken for the right pods, and a sample shows that."""

_POLICY_NOTES = (names.POOL_ENV, names.STOCK_IMAGE_ENV)
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@dataclass(frozen=True)
class Site:
    """Where probes are made: in KubeVirt's namespace, with images that its handlers have, too.

    A cluster that lets only certain images in must let these in, whichever they are for.
    """

    namespace: str
    namespace_labels: t.Mapping[str, str]
    launcher_image: str
    other_image: str


@dataclass(frozen=True)
class Probe:
    """A pod for the policy, and the pod that it must make of it, for which the policy has no eye.

    Other policies and webhooks change both alike, so the two are compared as the server answers them. ``tolerations``
    are those that the policy adds: the server adds its own before that, and other ones where it finds these.
    """

    name: str
    pod: Object
    expected: Object
    tolerations: tuple[t.Mapping[str, t.Any], ...] = ()

    def problem(self, result: Object, expected: Object) -> str | None:
        """What is wrong with the pod that came back, given what came back for ``self.expected``; None when nothing is."""
        found = objects.differences(_decided(expected, self.tolerations), _decided(result))
        return f"The probe {self.name} came out wrong: {found[0]}." if found else None


def digest_in(pod: Object) -> str | None:
    """The digest of the policy that admitted a pod."""
    value = (pod["metadata"].get("annotations") or {}).get(names.POLICY_ANNOTATION)
    return str(value) if value is not None else None


def probes(table: Table, site: Site, policy: str = names.POLICY) -> list[Probe]:
    """Probes for the policy of this name: one that asks for nothing, and one for each criterion of each rule."""
    made = [_probe("for no pool", plain(site, policy), table, site)]
    for number, rule in enumerate(sample(table.rules)):
        for field, asking in _asking(rule):
            pod = _pod(site, policy, terms=bool(number % 2), **asking)
            made.append(_probe(f"for {field} of pool {rule.name}", pod, table, site))
            if rule.name in table.canaries:
                pod = copy.deepcopy(pod)
                pod["metadata"]["labels"][names.CANARY_LABEL] = rule.name
                made.append(_probe(f"for {field} and {names.CANARY_LABEL} of pool {rule.name}", pod, table, site))
    return made


def plain(site: Site, policy: str = names.POLICY) -> Object:
    """A pod that shows which policy of this name acts."""
    return _pod(site, policy)


def sample(rules: t.Sequence[Pool]) -> t.Sequence[Pool]:
    """As many rules as get probes, evenly spread, the first and the last among them."""
    if len(rules) <= MOST_RULES:
        return rules
    return [rules[index * (len(rules) - 1) // (MOST_RULES - 1)] for index in range(MOST_RULES)]


def _asking(rule: Pool) -> t.Iterator[tuple[str, dict[str, t.Any]]]:
    """The criteria of a rule, and what a pod has that meets each. (An earlier rule may take it all the same.)"""
    selector = rule.selector
    if selector is None:
        return
    if selector.device_names:
        yield "selector.deviceNames", {"device": selector.device_names[0]}
    labels = example_labels(selector.labels) if selector.labels is not None else None
    if labels is not None:
        yield "selector.vmLabels", {"labels": labels}
    if selector.match_node_selector:
        yield "selector.matchNodeSelector", {"node_selector": dict(rule.node_selector)}
    if selector.architectures:
        yield "selector.architectures", {"node_selector": {ARCHITECTURE_LABEL: selector.architectures[0]}}


def _pod(
    site: Site,
    policy: str,
    *,
    terms: bool = True,
    device: str | None = None,
    labels: t.Mapping[str, str] | None = None,
    node_selector: t.Mapping[str, str] | None = None,
) -> Object:
    """A pod like virt-controller's. ``terms``: with node affinity of its own, in the two forms that a term can have."""
    pod = kinds.POD.object("virtpools-probe", site.namespace)
    pod["metadata"]["labels"] = {**(labels or {}), names.KUBEVIRT_LABEL: names.LAUNCHER, names.PROBE_LABEL: policy}
    resources = {"limits": {device: "1"}, "requests": {device: "1"}} if device else {}
    pod["spec"] = {
        "automountServiceAccountToken": False,
        "restartPolicy": "Never",
        "initContainers": [{"name": "container-disk-binary", "image": site.launcher_image}],
        "containers": [
            {"name": "hook-sidecar-0", "image": site.other_image},
            {"name": names.COMPUTE, "image": site.launcher_image, "resources": resources},
            {"name": "guest-console-log", "image": site.launcher_image},
        ],
        "volumes": [{"name": "private", "emptyDir": {}}],
    }
    if node_selector:
        pod["spec"]["nodeSelector"] = dict(node_selector)
    if terms:
        by_label = {"matchExpressions": [{"key": "kubernetes.io/os", "operator": "Exists"}]}
        by_field = {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["nowhere"]}]}
        pod["spec"]["affinity"] = {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": [by_label, by_field]}}}
    return pod


def _probe(name: str, pod: Object, table: Table, site: Site) -> Probe:
    winner = matching.winner(table, Asked.of_pod(pod, site.namespace_labels))
    expected = copy.deepcopy(pod)
    del expected["metadata"]["labels"][names.PROBE_LABEL]
    expected["metadata"]["annotations"] = {
        names.OWNER_LABEL: winner.name if winner else names.PRIMARY,
        names.POLICY_ANNOTATION: launcher_policy.digest_of(table, site.namespace),
    }
    spec = expected["spec"]
    _set_image(spec, site.launcher_image, winner)
    required = table.requirement(winner).to_object()
    node_affinity = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {_REQUIRED: {"nodeSelectorTerms": [{}]}})
    for term in node_affinity[_REQUIRED]["nodeSelectorTerms"]:
        term["matchExpressions"] = [*term.get("matchExpressions", ()), required]
    return Probe(name, pod, expected, winner.tolerations if winner else ())


def _set_image(spec: Object, stock: str, winner: Pool | None) -> None:
    image = winner.virt_launcher_image if winner else None
    notes = {names.POOL_ENV: winner.name if winner else names.PRIMARY, names.STOCK_IMAGE_ENV: stock}
    for container in (*spec["initContainers"], *spec["containers"]):
        if container["name"] == names.COMPUTE:
            container["env"] = [{"name": key, "value": value} for key, value in notes.items()]
        if image and container["image"] == stock:
            container["image"] = image


def _decided(pod: Object, tolerations: t.Iterable[t.Mapping[str, t.Any]] = ()) -> Object:
    """What of a pod the policy decides, in a form that says where a difference is."""
    spec = pod["spec"]
    containers = {c["name"]: c for c in (*(spec.get("initContainers") or ()), *spec["containers"])}
    annotations = pod["metadata"].get("annotations") or {}
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    variables = {variable["name"]: variable.get("value") for variable in containers[names.COMPUTE].get("env") or ()}
    return {
        "annotations": {key: annotations.get(key) for key in (names.OWNER_LABEL, names.POLICY_ANNOTATION)},
        "images": {name: container["image"] for name, container in containers.items()},
        "environment": {key: value for key, value in variables.items() if key in _POLICY_NOTES},
        "nodeSelectorTerms": (affinity.get(_REQUIRED) or {}).get("nodeSelectorTerms"),
        "tolerations": sorted(set(map(_identity, (*(spec.get("tolerations") or ()), *tolerations)))),
    }


def _identity(toleration: t.Mapping[str, t.Any]) -> str:
    """What the policy tells tolerations by."""
    defaults = {"key": "", "operator": "Equal", "value": "", "effect": ""}
    return ":".join(toleration.get(field) or default for field, default in defaults.items())
