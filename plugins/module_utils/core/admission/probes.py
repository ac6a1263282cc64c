# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Probes of a launcher policy: pods like launcher pods, and the pods that the policy must make of them.

API servers do not check what a policy does before they use it, and a policy that fails stops every VM from starting. So
we try it with dry-run creates, which go through admission like any other but are not stored.
"""

from __future__ import annotations

import copy
import typing as t
from dataclasses import dataclass, replace

from ..base import affinity, epochs, kinds, names, objects
from ..base.kinds import Kind
from ..base.objects import KubeObject, Object, field
from ..kubevirt import health
from ..pools.criteria import Example, PodAttributes
from ..pools.hypervisors import ARGUMENT, HYPERVISORS, KVM, RESOURCES, Hypervisor
from ..pools.model import Pool
from ..vms import matching
from ..vms.mapping import Table
from . import launcher_policy

MOST_RULES = 20
"""How many rules get probes of their own. A condition that raises an error does so for every pod, whatever its rule; beyond
that, probes show that rules are taken for the right pods, and a sample of the rules is enough for it."""

_POLICY_NOTES = (names.POOL_ENV, names.STOCK_IMAGE_ENV, names.STOCK_HYPERVISOR_ENV)


@dataclass(frozen=True)
class Site:
    """Where probes are sent: KubeVirt's namespace. Their images are those of KubeVirt's own pods: a cluster that admits
    only certain images must admit these.
    """

    namespace: str
    namespace_labels: t.Mapping[str, str]
    launcher_image: str
    other_image: str


@dataclass(frozen=True)
class Probe:
    """A pod for the policy, and the pod that the policy must make of it, which the policy itself ignores.

    Other policies and webhooks change both alike, so we compare what the API server returns for the two. ``tolerations``
    are those that the policy adds. They are not in ``expected``, since the API server adds different ones of its own
    where it finds these. Neither are ``secrets``, the names of the pull secrets that the policy adds: with these, the API
    server would leave out those of the ServiceAccount.
    """

    name: str
    pod: Object
    expected: Object
    tolerations: tuple[t.Mapping[str, t.Any], ...] = ()
    secrets: tuple[str, ...] = ()

    def problem(self, result: Object, expected: Object) -> str | None:
        """What is wrong with the pod that the API server returned, given what it returned for ``self.expected``, or None."""
        wrong = objects.differences(_decided_part(expected, self.tolerations, self.secrets), _decided_part(result))
        return f"The probe {self.name} has the wrong result: {wrong[0]}." if wrong else None


Desired = t.Sequence[tuple[Kind, Object]]
"""Objects to write, in this order, with their kinds."""


@dataclass(frozen=True)
class Trial:
    """How a policy is tried before VMs depend on it."""

    candidate: Desired
    """The same policy under another name, which acts on its own probes only."""
    candidate_probes: t.Sequence[Probe]
    probes: t.Sequence[Probe]
    """The probes of the policy itself, once it is live."""


def digest_in(obj: KubeObject) -> str | None:
    """The digest that one of our policies has in its annotation, and that it notes on the pods and nodes it admits."""
    digest = field(obj, "metadata", "annotations", names.POLICY_ANNOTATION)
    return None if digest is None else str(digest)


def probes(table: Table, site: Site, policy: str = names.POLICY, epoch: int = 0) -> list[Probe]:
    """Probes for the policy of this name and epoch: one that meets no criterion, and one for each criterion of each rule. Where
    the table is prepared for an upgrade, the same pods again as the next version of KubeVirt makes them.
    """
    every = _probes(table, site, policy, epoch)
    if table.upcoming is not None:
        later = replace(site, launcher_image=table.upcoming.next_stock)
        version = table.upcoming.version
        every += [replace(p, name=f"{p.name}, from KubeVirt {version}") for p in _probes(table, later, policy, epoch)]
    return every


def _probes(table: Table, site: Site, policy: str, epoch: int) -> list[Probe]:
    every = [_probe("for no pool", plain_pod(site, policy), table, site, epoch)]
    for number, rule in enumerate(sample(table.rules)):
        for criterion in rule.criteria:
            # An earlier rule may still take the pod.
            pod = _pod(site, policy, criterion.examples(rule.selection)[0], terms=bool(number % 2))
            every.append(_probe(f"for {criterion.path} of pool {rule.name}", pod, table, site, epoch))
            if rule.name in table.canaries:
                pod = copy.deepcopy(pod)
                pod["metadata"]["labels"][names.CANARY_LABEL] = rule.name
                every.append(
                    _probe(
                        f"for {criterion.path} and {names.CANARY_LABEL} of pool {rule.name}", pod, table, site, epoch
                    )
                )
    return every


def call_of_webhook(site: Site) -> Trial:
    """Whether API servers can call kubevirt-aie-webhook. It leaves a pod without a VM instance as it is."""
    pod = plain_pod(site, policy="")
    del pod["metadata"]["labels"][names.PROBE_LABEL]
    probe = Probe("for kubevirt-aie-webhook", pod, pod)
    return Trial(candidate=(), candidate_probes=(probe,), probes=(probe,))


def plain_pod(site: Site, policy: str = names.POLICY) -> Object:
    """A pod that meets no criterion; the digest on it shows which policy of this name acted."""
    return _pod(site, policy, Example(), terms=True)


def sample(rules: t.Sequence[Pool]) -> t.Sequence[Pool]:
    """At most MOST_RULES rules, evenly spread, with the first and the last."""
    if len(rules) <= MOST_RULES:
        return rules
    return [rules[index * (len(rules) - 1) // (MOST_RULES - 1)] for index in range(MOST_RULES)]


def _pod(site: Site, policy: str, example: Example, *, terms: bool) -> Object:
    """A pod like virt-controller's. ``terms``: whether it has node affinity, with both kinds of terms."""
    pod = kinds.POD.object("virtpools-probe", site.namespace)
    pod["metadata"]["labels"] = {**example.labels, names.KUBEVIRT_LABEL: names.LAUNCHER, names.PROBE_LABEL: policy}
    resources = {kind: {example.device: "1"} for kind in ("limits", "requests")} if example.device else {}
    pod["spec"] = {
        **example.spec,
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
    if example.node_selector:
        pod["spec"]["nodeSelector"] = dict(example.node_selector)
    if terms:
        by_label = {"matchExpressions": [{"key": "kubernetes.io/os", "operator": "Exists"}]}
        by_field = {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["nowhere"]}]}
        pod["spec"]["affinity"] = affinity.with_required_terms(None, [by_label, by_field])
    return pod


def _probe(name: str, pod: Object, table: Table, site: Site, epoch: int) -> Probe:
    if table.sets_hypervisor:
        pod = copy.deepcopy(pod)
        _run_on(pod["spec"], KVM)
    in_effect = table.as_of(site.launcher_image)
    winner = matching.winner(in_effect, PodAttributes.from_pod(pod, site.namespace_labels))
    expected = copy.deepcopy(pod)
    del expected["metadata"]["labels"][names.PROBE_LABEL]
    expected["metadata"]["annotations"] = {
        names.OWNER_LABEL: winner.name if winner else names.PRIMARY,
        names.POLICY_ANNOTATION: launcher_policy.digest_of(table, site.namespace),
    }
    spec = expected["spec"]
    _set_image(spec, site.launcher_image, winner)
    if table.sets_hypervisor:
        _run_on(spec, HYPERVISORS[(winner and winner.hypervisor) or KVM.name])
        _compute(spec)["env"].append({"name": names.STOCK_HYPERVISOR_ENV, "value": KVM.name})
    own_terms = affinity.required_terms(spec.get("affinity")) or [{}]
    owner = winner.name if winner else names.PRIMARY
    terms = [
        affinity.with_requirements(term, [requirement.to_object()])
        for requirement in (table.requirement(winner), epochs.stay_requirement(owner, epoch))
        for term in own_terms
    ]
    spec["affinity"] = affinity.with_required_terms(spec.get("affinity"), terms)
    if winner is None:
        return Probe(name, pod, expected)
    secrets = tuple(secret["name"] for secret in winner.virt_launcher_pull_secrets)
    return Probe(name, pod, expected, winner.tolerations, secrets)


def _compute(spec: KubeObject) -> t.Any:
    return next(container for container in spec["containers"] if container["name"] == names.COMPUTE)


def _run_on(spec: Object, hypervisor: Hypervisor) -> None:
    """Let the guest run on a hypervisor."""
    compute = _compute(spec)
    compute["command"] = ["virt-launcher-monitor", ARGUMENT, hypervisor.name]
    for kind in ("limits", "requests"):
        others = {key: count for key, count in compute["resources"].get(kind, {}).items() if key not in RESOURCES}
        compute["resources"][kind] = {**others, hypervisor.resource: "1"}


def _set_image(spec: Object, stock: str, winner: Pool | None) -> None:
    image = winner.virt_launcher_image if winner else None
    notes = {names.POOL_ENV: winner.name if winner else names.PRIMARY, names.STOCK_IMAGE_ENV: stock}
    for container in (*spec["initContainers"], *spec["containers"]):
        if container["name"] == names.COMPUTE:
            container["env"] = [{"name": key, "value": value} for key, value in notes.items()]
        if image and container["image"] == stock:
            container["image"] = image


def _decided_part(
    pod: Object, tolerations: t.Iterable[t.Mapping[str, t.Any]] = (), secrets: t.Iterable[str] = ()
) -> Object:
    """The parts of a pod that the policy decides, named so that a difference says where it is."""
    spec = pod["spec"]
    containers = {c["name"]: c for c in (*(spec.get("initContainers") or ()), *spec["containers"])}
    annotations = pod["metadata"].get("annotations") or {}
    compute = containers[names.COMPUTE]
    variables = {variable["name"]: variable.get("value") for variable in compute.get("env") or ()}
    if variables.get(names.STOCK_IMAGE_ENV):
        # A mirror may have renamed the image before the policy noted it. It renames no variable of the expected pod.
        variables[names.STOCK_IMAGE_ENV] = health.last_part(variables[names.STOCK_IMAGE_ENV])
    resources = compute.get("resources") or {}
    return {
        "annotations": {key: annotations.get(key) for key in (names.OWNER_LABEL, names.POLICY_ANNOTATION)},
        "images": {name: container["image"] for name, container in containers.items()},
        "environment": {key: value for key, value in variables.items() if key in _POLICY_NOTES},
        "command": compute.get("command"),
        "hypervisors": {
            kind: sorted(RESOURCES.intersection(resources.get(kind) or ())) for kind in ("limits", "requests")
        },
        "nodeSelectorTerms": affinity.required_terms(spec.get("affinity")),
        "tolerations": sorted(set(map(_identity, (*(spec.get("tolerations") or ()), *tolerations)))),
        "imagePullSecrets": sorted({*(secret["name"] for secret in spec.get("imagePullSecrets") or ()), *secrets}),
    }


def _identity(toleration: t.Mapping[str, t.Any]) -> str:
    """The fields by which the policy compares tolerations."""
    defaults = {"key": "", "operator": "Equal", "value": "", "effect": ""}
    return ":".join(toleration.get(key) or default for key, default in defaults.items())
