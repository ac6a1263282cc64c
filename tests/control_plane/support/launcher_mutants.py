# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""Launcher policies that are each wrong in one place. They show whether the judge of policies notices every fault.

A mutant is the policy for ``MIXED``, or for ``KEPT_OFF`` where all pools keep unmatched VMs off, with one edit. An edit
that changes nothing fails, so mutants must be kept up with the policy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ansible_collections.virtpools.kubevirt.tests.unit.support import launcher_cases as cases

if TYPE_CHECKING:
    from collections.abc import Callable

Object = dict[str, Any]

GPU = {
    "name": "gpu",
    "nodeSelector": {"accelerator": "nvidia", "zone": "a"},
    "virtLauncherImage": "registry.example/kubevirt/virt-launcher:v1.9.0-gpu",
    "hypervisor": "hyperv-direct",
    "selector": {"deviceNames": [cases.A100, cases.L40S], "matchNodeSelector": True},
    "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
    "virtLauncherPullSecrets": [{"name": "launchers"}, {"name": "mirror.example"}],
}
TEAM = {
    "name": "team",
    "nodeSelector": {"rack.example/number": "1"},
    "virtLauncherImage": "registry.example/teams/launcher:1",
    "selector": {
        "vmLabels": {"matchLabels": {"workload": "rt", "class.example/size": "1"}},
        "namespaces": {"names": ["team-a"], "matchLabels": {"tier": "silver", "quota.example/none": ""}},
    },
}
ARM = {
    "name": "arm",
    "nodeSelector": {"kubernetes.io/arch": "arm64"},
    "virtHandlerImage": "registry.example/virt-handler:arm",
    "selector": {"architectures": ["arm64", "s390x"]},
}
FRESH = {
    "name": "fresh",
    "nodeSelector": {"rack.example/number": "9"},
    "virtLauncherImage": "registry.example/kubevirt/virt-launcher:v1.10.0",
    "selector": {
        "vmLabels": {
            "matchExpressions": [
                cases.expression("wave.example/of", "In", "1", "2"),
                cases.expression("wave.example/held", "DoesNotExist"),
                cases.expression("wave.example/kind", "NotIn", "slow"),
            ]
        }
    },
    "tolerations": [{"key": "dedicated.example/for", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}],
}
NETWORK = {
    "name": "network",
    "nodeSelector": {"zone": "b"},
    "virtHandlerImage": "registry.example/virt-handler:network",
    "selector": {"deviceNames": [cases.NIC]},
    "unmatched": "allow",
}
MIXED = [NETWORK, GPU, TEAM, ARM, FRESH]
KEPT_OFF = [GPU, TEAM]
CANARIES = {"gpu": "registry.example/kubevirt/virt-launcher:v1.9.0-gpu2", "arm": "other.example/arm:2", "fresh": None}
"""The images of ``MIXED`` for canary VMs."""


@dataclass(frozen=True)
class Mutant:
    """A change of a policy's spec, and the case that must show it; ``pools`` are those that the policy is made for."""

    name: str
    case: str
    change: Callable[[Object], None]
    pools: str = "mixed"

    def __str__(self) -> str:
        """Return what pytest calls it."""
        return self.name


def _edited(text: str, old: str, new: str) -> str:
    assert old in text, f"{old!r} is not in {text!r}"
    return text.replace(old, new)


def _variable(name: str, old: str, new: str) -> Callable[[Object], None]:
    def change(spec: Object) -> None:
        (variable,) = (each for each in spec["variables"] if each["name"] == name)
        variable["expression"] = _edited(variable["expression"], old, new)

    return change


def _redefined(name: str, expression: str) -> Callable[[Object], None]:
    def change(spec: Object) -> None:
        (variable,) = (each for each in spec["variables"] if each["name"] == name)
        assert variable["expression"] != expression
        variable["expression"] = expression

    return change


def _patch(old: str, new: str) -> Callable[[Object], None]:
    def change(spec: Object) -> None:
        patch = spec["mutations"][0]["jsonPatch"]
        patch["expression"] = _edited(patch["expression"], old, new)

    return change


def _without_part(of: str) -> Callable[[Object], None]:
    """Drop the part of the patch that writes below a path."""

    def change(spec: Object) -> None:
        patch = spec["mutations"][0]["jsonPatch"]
        parts = patch["expression"].split("\n+ ")
        (dropped,) = (part for part in parts if f'path: "{of}' in part)
        patch["expression"] = "\n+ ".join(part for part in parts if part is not dropped)

    return change


def _all(*changes: Callable[[Object], None]) -> Callable[[Object], None]:
    def change(spec: Object) -> None:
        for each in changes:
            each(spec)

    return change


def _condition(old: str, new: str) -> Callable[[Object], None]:
    def change(spec: Object) -> None:
        condition = spec["matchConditions"][0]
        condition["expression"] = _edited(condition["expression"], old, new)

    return change


def _every_pod(spec: Object) -> None:
    spec["matchConstraints"]["objectSelector"] = {}


_TERM = "(has(t.matchExpressions) || has(t.matchFields))"
_MOVED = "[variables.now, variables.stock, variables.given]"
_OWN_PLACE = '(item.name in ["container-disk-binary", "guest-console-log"] || item.name.startsWith("virtiofs-"))'
_CONTAINERS = "object.spec.?containers.orValue([]).transformList(i, item, "

MUTANTS = (
    # Pieces of the patch
    Mutant("containers are left alone", "virtiofs, matched", _without_part('/spec/containers/" + string(i) + "/image')),
    Mutant(
        "init containers are left alone",
        "containerDisk, image volumes off, matched",
        _without_part("/spec/initContainers"),
    ),
    Mutant("image volumes are left alone", "containerDisk, matched", _without_part("/spec/volumes")),
    Mutant(
        "disks of the VM's owner, too",
        "launcher image as a disk, matched",
        _all(
            _patch(' && !(item.name.startsWith("volume")', " && !(false"),
            _patch(' && item.name == "launcher-volume"', ""),
        ),
    ),
    Mutant("affinity is left alone", "pvc, matched", _without_part("/spec/affinity")),
    Mutant("tolerations are left alone", "pvc, matched", _without_part("/spec/tolerations")),
    Mutant("annotations are left alone", "pvc, unmatched", _without_part("/metadata/annotations")),
    Mutant(
        "variables are left alone", "pvc, matched", _without_part('/spec/containers/" + string(variables.at) + "/env')
    ),
    # Which pods
    Mutant(
        "virt-controllers of all namespaces",
        "pods of others",
        _condition(f'username == "{cases.CONTROLLER}"', 'username.endsWith(":kubevirt-controller")'),
    ),
    Mutant(
        "whoever creates pods", "pods of others", _condition('kubevirt-controller"', 'kubevirt-controller" || true')
    ),
    Mutant("hotplug pods, too", "pods of others", _every_pod),
    # Which pool
    Mutant(
        "the last match wins", "gpu, a pool without image", _variable("hit0", ".indexOf(true)", ".lastIndexOf(true)")
    ),
    Mutant(
        "limits of all containers",
        "a sidecar with a device",
        _redefined("asked", "object.spec.containers.map(c, c.?resources.?limits.orValue({}).map(k, k)).flatten()"),
    ),
    Mutant("limits of the first container", "compute is the last container", _variable("asked", "variables.at", "0")),
    Mutant("the first device only", "pvc, matched", _variable("hit0", f' || "{cases.A100}" in variables.asked', "")),
    Mutant(
        "one of the labels is enough",
        "one label of two",
        _variable("hit0", '["1"]) && ("workload"', '["1"]) || ("workload"'),
    ),
    Mutant("labels by key", "another value", _variable("hit0", ' && variables.labels["workload"] in ["rt"]', "")),
    Mutant("In knows one value", "wave 2", _variable("hit0", '["1", "2"]', '["1"]')),
    Mutant(
        "DoesNotExist is Exists", "wave 1", _variable("hit0", '!("wave.example/held" in', '("wave.example/held" in')
    ),
    Mutant(
        "DoesNotExist is forgotten",
        "wave 1, kept",
        _variable("hit0", '!("wave.example/held" in variables.labels)', "true"),
    ),
    Mutant("NotIn is In", "wave 1", _variable("hit0", '!("wave.example/kind" in', '("wave.example/kind" in')),
    Mutant(
        "NotIn needs the label",
        "wave 1",
        _variable(
            "hit0",
            '!("wave.example/kind" in variables.labels && variables.labels["wave.example/kind"] in ["slow"])',
            '("wave.example/kind" in variables.labels && !(variables.labels["wave.example/kind"] in ["slow"]))',
        ),
    ),
    Mutant(
        "any one label of the node selector",
        "one label of the node selector",
        _variable("hit0", '["nvidia"]) && ("zone"', '["nvidia"]) || ("zone"'),
    ),
    Mutant(
        "the node selector is forgotten",
        "all of the node selector",
        _variable("hit0", 'variables.selected["zone"] in ["a"]', "false"),
    ),
    Mutant("the first architecture only", "another architecture", _variable("hit0", '["arm64", "s390x"]', '["arm64"]')),
    Mutant(
        "namespaces are one criterion more",
        "labels in plain",
        _variable("hit0", '["silver"]))) && ', '["silver"]))) || '),
    ),
    Mutant(
        "namespaces by name only",
        "labels in team-b",
        _variable("hit0", '"tier" in variables.namespaceLabels && ', "false && "),
    ),
    Mutant(
        "namespaces by one of the labels",
        "labels in team-c",
        _variable(
            "hit0",
            '"quota.example/none" in variables.namespaceLabels && variables.namespaceLabels["quota.example/none"] in [""]',
            "true",
        ),
    ),
    Mutant(
        "namespaces by label only", "labels in team-a", _variable("hit0", 'request.namespace in ["team-a"]', "false")
    ),
    # Images
    Mutant(
        "only compute has the launcher image",
        "virtiofs, matched",
        _patch(_CONTAINERS, f"{_CONTAINERS}i == variables.at && "),
    ),
    Mutant(
        "a stock image that is written down",
        "stock image virt-launcher",
        _variable("wrong", "variables.first ? [variables.now]", f'variables.first ? ["{cases.STOCK}"]'),
    ),
    Mutant(
        "images that begin like the stock image",
        "a sidecar with registry.example/kubevirt/virt-launcher:v1.9.0-1",
        _patch(
            'item.?image.orValue("") in variables.wrong',
            'variables.wrong.exists(w, item.?image.orValue("").startsWith(w))',
        ),
    ),
    Mutant(
        "images that end like the stock image",
        "a sidecar with evil.example/registry.example/kubevirt/virt-launcher:v1.9.0",
        _patch(
            'item.?image.orValue("") in variables.wrong',
            'variables.wrong.exists(w, item.?image.orValue("").endsWith(w))',
        ),
    ),
    Mutant(
        "images of the same name from anywhere",
        "a sidecar with evil.example/virt-launcher:v1.9.0",
        _redefined(
            "wrongEnd",
            'variables.to == "" ? "" : ("/" + variables.now).substring(("/" + variables.now).lastIndexOf("/"))',
        ),
    ),
    Mutant(
        "places that a mirror left out are left alone",
        "virtiofs, mirrored before but for volumes, matched",
        _redefined("ownEnd", '""'),
    ),
    Mutant(
        "only volumes that a mirror left out are seen",
        "virtiofs, only compute mirrored before, matched",
        _patch(_OWN_PLACE, "false"),
    ),
    Mutant(
        "virtiofs that a mirror left out is left alone",
        "virtiofs, only compute mirrored before, matched",
        _patch(' || item.name.startsWith("virtiofs-")', ""),
    ),
    Mutant(
        "helpers that a mirror left out are left alone",
        "containerDisk, image volumes off, only compute mirrored before, matched",
        _patch('item.name in ["container-disk-binary", "guest-console-log"]', "false"),
    ),
    Mutant(
        "places of others are as KubeVirt's own",
        "a sidecar with evil.example/virt-launcher:v1.9.0",
        _patch(_OWN_PLACE, "true"),
    ),
    Mutant(
        "a later winner looks for whole names only",
        "mirrored before but for volumes, a device late",
        _variable("ownEnd", "!variables.moved", "true"),
    ),
    Mutant(
        "a pool without image leaves none",
        "pvc, a pool without image",
        _variable("wrong", 'variables.to == "" && variables.given == "" ? [] : ', ""),
    ),
    # Canaries
    Mutant("canaries are as others", "a canary", _redefined("to", "variables.pool.image")),
    Mutant(
        "a canary of a pool without image gets none",
        "a canary of a pool without image",
        _redefined(
            "to", 'variables.pool.image == "" ? "" : (variables.canary.map(c, c.image) + [variables.pool.image])[0]'
        ),
    ),
    Mutant("every VM is a canary", "pvc, matched", _variable("canary", "c.name == ", "true || c.name == ")),
    Mutant(
        "a canary of another pool is one",
        "a canary of another pool",
        _redefined("to", "(variables.canary.map(c, c.image) + [variables.pool.image])[0]"),
    ),
    Mutant(
        "a canary cannot have the stock image",
        "a canary that has the stock image again",
        _variable("to", "variables.canary.filter(c, ", 'variables.canary.filter(c, c.image != "" && '),
    ),
    Mutant(
        "a later winner forgets what the former one's canary got",
        "a canary of arm, mirrored, a device late",
        _variable("given", "variables.canary.filter(c, c.name == variables.former).map(c, c.image) + ", ""),
    ),
    # Hypervisors
    Mutant("the argument is left alone", "pvc, matched", _redefined("renamed", "false")),
    Mutant("the device is left alone", "pvc, matched", _redefined("wrongDevices", '[""].filter(d, false)')),
    Mutant(
        "every pod runs on the hypervisor of some pool",
        "pvc, unmatched",
        _variable("hypervisor", "variables.pool.hypervisor", '"hyperv-direct"'),
    ),
    Mutant(
        "pods without virt-launcher are left alone",
        "pods that only bind volumes, matched",
        _variable("wrongDevices", 'variables.device == ""', "variables.argument == 0"),
    ),
    Mutant(
        "pods with emulation are left alone",
        "emulation, matched",
        _variable(
            "renamed",
            "variables.hypervisor !=",
            "variables.wrongDevices.exists(d, d in variables.asked) && variables.hypervisor !=",
        ),
    ),
    Mutant(
        "devices of other pods follow their argument",
        "a device of the former configuration, unmatched",
        _variable("wrongDevices", "variables.hypervisor == variables.runsOn", "false"),
    ),
    Mutant(
        "a later winner leaves the hypervisor",
        "a network late, matched",
        _redefined("cameWith", '[variables.runsOn].filter(h, h != "")'),
    ),
    # Nodes
    Mutant("a matched pod may land anywhere", "pvc, matched", _redefined("wanted", "variables.others")),
    Mutant("a matched pod keeps off its pool", "pvc, matched", _variable("wanted", '"In"', '"NotIn"')),
    Mutant(
        "an unmatched pod may land on nodes in transit", "pvc, unmatched", _variable("others0", '"in_transit", ', "")
    ),
    Mutant("an unmatched pod may land on a pool", "pvc, unmatched", _variable("others0", '"gpu", ', "")),
    Mutant(
        "an unmatched pod keeps off all pools",
        "pvc, unmatched",
        _variable("others0", '"in_transit", ', '"in_transit", "network", '),
    ),
    Mutant(
        "unmatched pods need an owner",
        "pvc, a pool without image",
        _variable("others", '"DoesNotExist"', '"Exists"'),
        "kept off",
    ),
    Mutant(
        "unmatched pods may land on forgotten pools",
        "pvc, a pool without image",
        _redefined(
            "others",
            '{"key": dyn("virtpools.io/pool"), "operator": dyn("NotIn"), "values": dyn(["gpu", "team", "in_transit"])}',
        ),
        "kept off",
    ),
    Mutant(
        "terms of fields are left alone",
        "affinity of labels, fields and nothing, matched",
        _patch(_TERM, "has(t.matchExpressions)"),
    ),
    Mutant("empty terms are filled", "affinity of labels, fields and nothing, unmatched", _patch(_TERM, "true")),
    Mutant(
        "only the first term", "affinity of labels, fields and nothing, matched", _patch(_TERM, f"i == 0 && {_TERM}")
    ),
    Mutant(
        "only the last term",
        "affinity of labels, fields and nothing, matched",
        _patch(_TERM, f"i == variables.terms.size() - 1 && {_TERM}"),
    ),
    Mutant(
        "a term of our own, which is ORed",
        "affinity of host-model, matched",
        _patch(
            "variables.terms.transformList(i, t, ",
            '[JSONPatch{op: "add", path: "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/-", value: {"matchExpressions": [variables.wanted]}}].filter(i, variables.terms.size() > 0) + variables.terms.transformList(i, t, false && ',
        ),
    ),
    Mutant(
        "other affinity is replaced",
        "migration target, matched",
        _patch(
            "!has(object.spec.affinity) ?", "!has(object.spec.affinity) || !has(object.spec.affinity.nodeAffinity) ?"
        ),
    ),
    Mutant(
        "preferences are replaced",
        "affinity of preference, matched",
        _patch(
            "!has(object.spec.affinity.nodeAffinity) ?",
            "!has(object.spec.affinity.nodeAffinity) || !has(object.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution) ?",
        ),
    ),
    Mutant(
        "what the VM asks of our label is taken for ours",
        "a device late, the VM keeps off pools",
        _patch("variables.first || variables.moved || !variables.present[i]", "!variables.present[i]"),
        "kept off",
    ),
    # Tolerations
    Mutant(
        "the VM's tolerations are replaced", "pvc, matched", _patch("has(object.spec.tolerations) ? []", "false ? []")
    ),
    Mutant("tolerations come twice", "pvc, matched", _redefined("tolerations", "variables.pool.tolerations")),
    Mutant(
        "tolerations are compared by key",
        "affinity of fields, both and labels, matched",
        _redefined(
            "tolerations", "variables.pool.tolerations.filter(t, !variables.tolerated.exists(h, h[0] == t.key))"
        ),
    ),
    # Pull secrets
    Mutant(
        "the VM's pull secrets are replaced",
        "pull secrets: others, matched",
        _patch("has(object.spec.imagePullSecrets) ? []", "false ? []"),
    ),
    Mutant(
        "pull secrets come twice", "pull secrets: one of two, matched", _redefined("secrets", "variables.pool.secrets")
    ),
    Mutant("pull secrets are left alone", "pvc, matched", _without_part("/spec/imagePullSecrets")),
    Mutant(
        "any pull secret is enough",
        "pull secrets: others, matched",
        _redefined("secrets", "variables.pool.secrets.filter(s, variables.named.size() == 0)"),
    ),
    # What the VM's owner can write
    Mutant(
        "a pool's name in an annotation is believed",
        "annotations and variables that look like ours",
        _redefined("former", 'object.metadata.?annotations[?"virtpools.io/pool"].orValue("")'),
    ),
    Mutant(
        "a stock image in an annotation is believed",
        "annotations and variables that look like ours",
        _variable(
            "wrong",
            "variables.first ? [variables.now]",
            'variables.first ? [object.metadata.?annotations[?"virtpools.io/stock-image"].orValue(variables.now)]',
        ),
    ),
    Mutant(
        "annotations that are there stay",
        "annotations that look like ours on an unmatched VM",
        _patch(
            '[JSONPatch{op: "add", path: "/metadata/annotations/" + jsonpatch.escapeKey("virtpools.io/pool"), value: variables.pool.name}',
            '["x"].filter(x, !("virtpools.io/pool" in object.metadata.?annotations.orValue({}))).map(x, JSONPatch{op: "add", path: "/metadata/annotations/" + jsonpatch.escapeKey("virtpools.io/pool"), value: variables.pool.name}) + [JSONPatch{op: "test", path: "/kind", value: "Pod"}',
        ),
    ),
    Mutant(
        "variables of all containers",
        "annotations and variables that look like ours",
        _redefined("env", "object.spec.containers.map(c, c.?env.orValue([])).flatten()"),
    ),
    # Once more
    Mutant("every time is the first", "again, matched", _redefined("first", "true")),
    Mutant(
        "late containers are left alone",
        "a late container, matched",
        _variable("wrong", ": [variables.stock]", ': [""]'),
    ),
    Mutant(
        "late containers get the image without the mirror",
        "mirrored, matched",
        _redefined("right", 'variables.to != "" ? variables.to : variables.stock'),
    ),
    Mutant("mirrored late containers are left alone", "mirrored, matched", _redefined("wrongEnd", '""')),
    Mutant(
        "a mirror is undone",
        "mirrored, matched",
        _all(
            _variable("wrong", ": [variables.stock]", ": [variables.now]"),
            _redefined("right", "variables.to"),
        ),
    ),
    Mutant("a later winner leaves the images", "a network late, matched", _variable("wrong", _MOVED, '[""]')),
    Mutant(
        "a later winner leaves the requirement",
        "a network late, matched",
        _redefined("outdated", "variables.terms.map(t, -1)"),
    ),
    Mutant(
        "a later winner leaves the variable",
        "a network late, matched",
        _patch('variables.moved ? [JSONPatch{op: "replace"', 'false ? [JSONPatch{op: "replace"'),
    ),
    Mutant(
        "a later winner forgets what it replaces",
        "a device late, unmatched",
        _variable("formerly", '"primary"', '"nobody"'),
    ),
    Mutant(
        "a later winner without image leaves the former one",
        "a network late, matched",
        _variable("wrong", _MOVED, f'(variables.to == "" ? [dyn("")] : {_MOVED})'),
    ),
    Mutant(
        "a later winner forgets the former one's image",
        "mirrored, a device late, from one image to another",
        _redefined("given", 'dyn("")'),
    ),
)
"""The judge must notice each."""

UNNOTICED = {
    "requests instead of limits": _variable("asked", ".?limits", ".?requests"),
    "Ignore instead of Fail": lambda spec: spec.update(failurePolicy="Ignore"),
    "a later winner looks for the image of compute only": _variable(
        "wrong", _MOVED, "[variables.now, variables.given]"
    ),
}
"""Changes that no pod can show. A pod's requests of devices always equal its limits: the API server enforces it. Ignore
matters only when a policy fails, which it must not. Containers that a later winner leaves with the stock image are changed
when the API server runs the policy again in the same request, because it changed the pod.
"""
