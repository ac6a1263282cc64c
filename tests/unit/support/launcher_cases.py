# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Launcher pods of every kind of VM, pool lists and nodes: some written by hand, others random from a seed.

All use the same few labels, devices and namespaces, so that pools and pods often match, and as often just do not.
"""

from __future__ import annotations

import copy
import random

STOCK = "registry.example/kubevirt/virt-launcher:v1.9.0"
DISK = "registry.example/disks/fedora:41"
CONTROLLER = "system:serviceaccount:kubevirt:kubevirt-controller"

A100, L40S, NIC = "nvidia.com/GA100_A100_PCIE_40GB", "nvidia.com/AD102GL_L40S", "intel.example/sriov_netdevice"
DEVICES = (A100, L40S, NIC, "vendor.example/a.b_c-D", f"{'d' * 40}.example/{'x' * 54}")
KVM = "devices.kubevirt.io/kvm"

NAMESPACES = {
    "plain": {},
    "team-a": {"tier": "gold"},
    "team-b": {"tier": "silver", "quota.example/none": ""},
    "team-c": {"tier": "silver"},
}
"""Namespaces of the test's own, with their labels."""

VM_LABELS = {
    "workload": ("gpu", "GPU", "rt", ""),
    "class.example/size": ("a.b_c-d", "1", "z" * 63),
    f"{'p' * 60}.{'q' * 60}.example/{'k' * 63}": ("true",),
}
NODE_LABELS = {"accelerator": ("nvidia", "amd"), "zone": ("a", "b"), "rack.example/number": ("1", "9")}
ARCHITECTURES = ("amd64", "arm64", "s390x")
NODE_NAMES = ("node-1", "node-2")
TAINT_KEYS = ("gpu", "dedicated.example/for", "node.kubernetes.io/unreachable")
OWNER = "virtpools.io/pool"
CANARY = "virtpools.io/canary"
POOL_NAMES = ("gpu", "rt", "a", "b-2", "primary-2", "n" * 48)

HOSTILE = (
    "it's",
    'say "x"',
    "back\\slash",
    "line\nbreak",
    "${variables.hit}",
    '"] + object.spec.x',
    "zażółć 嗨",
    "%s{{x}}",
    "~0~1/",
    "l" * 2000,
)
"""Texts with a special meaning somewhere. Labels cannot hold them; variables, annotations and users' images can."""

SPOOF = {
    "virtpools.io/pool": "gpu",
    "virtpools.io/policy": "0",
    "VIRTPOOLS_STOCK_IMAGE": DISK,
    "virtpools.io/stock-image": DISK,
}


AWAY_FROM_THE_SOURCE = {
    "requiredDuringSchedulingIgnoredDuringExecution": [
        {
            "labelSelector": {"matchLabels": {"kubevirt.io/created-by": "86573d79"}},
            "topologyKey": "kubernetes.io/hostname",
        }
    ]
}
"""The pod anti-affinity of a migration's target."""


# Launcher pods as virt-controller makes them ------------------------------------------------------------------------

_LOG = ("guest-console-log", STOCK)
_IMAGE_DISK = {"inits": [_LOG, ("volumeroot", DISK)], "volumes": {"root": DISK, "launcher-volume": STOCK}}
_BINARY = ("container-disk-binary", STOCK)
_COPIED_DISK = {"containers": [("volumeroot", DISK)], "inits": [_LOG, _BINARY, ("volumeroot-init", DISK)]}
_VIRTIOFS = [("virtiofs-shared", STOCK), ("virtiofs-cfg", STOCK)]
_KERNEL = "registry.example/kernels/kernel:1"

KINDS = {
    "pvc": {"inits": [_LOG]},
    "gpu": {"inits": [_LOG], "devices": {A100: 1}},
    "host devices": {"inits": [_LOG], "devices": {L40S: 2, NIC: 1}},
    "sr-iov": {"inits": [_LOG], "devices": {NIC: 1}},
    "hook sidecars": {
        "containers": [("hook-sidecar-0", "registry.example/hooks/hook:1"), ("hook-sidecar-1", f"{STOCK}-shim")],
        "inits": [_LOG],
    },
    "containerDisk": _IMAGE_DISK,
    "containerDisk, no serial log": {**_IMAGE_DISK, "inits": [("volumeroot", DISK)]},
    "gpu on containerDisk": {**_IMAGE_DISK, "devices": {A100: 1}},
    "kernelBoot": {
        "inits": [_LOG, ("volumekernel-boot-volume", _KERNEL)],
        "volumes": {"kernel-boot-volume": _KERNEL, "launcher-volume": STOCK},
    },
    "virtiofs": {**_IMAGE_DISK, "containers": _VIRTIOFS},
    "containerDisk, image volumes off": _COPIED_DISK,
    "kernelBoot, image volumes off": {
        "containers": [("volumekernel-boot-volume", _KERNEL)],
        "inits": [_LOG, _BINARY, ("volumekernel-boot-volume-init", _KERNEL)],
    },
    "virtiofs, image volumes off": {**_COPIED_DISK, "containers": [("volumeroot", DISK), *_VIRTIOFS]},
    "launcher image as a disk": {
        "containers": [("hook-sidecar-0", STOCK)],
        "inits": [_LOG, ("volumeroot", STOCK)],
        "volumes": {"root": STOCK, "launcher-volume": STOCK},
    },
    "migration target": {"inits": [("volumeroot", DISK)], "volumes": {"root": DISK}, "migration": True},
    "no init container": {"inits": []},
}
"""The measured kinds, by what they have beside ``compute``; a migration's target may come without launcher-volume."""


def launcher_pod(
    kind="pvc",
    name="virt-launcher-vm-x",
    *,
    namespace="plain",
    labels=None,
    node_selector=None,
    architecture="amd64",
    devices=None,
    affinity=None,
    tolerations=None,
    pull_secrets=None,
    annotations=None,
    stock=STOCK,
):
    """A launcher pod with everything that a policy looks at, or might mistake for it."""
    parts = KINDS[kind]
    limits = {KVM: "1", "devices.kubevirt.io/tun": "1"}
    limits |= {key: str(count) for key, count in {**parts.get("devices", {}), **(devices or {})}.items()}
    compute = {
        **_container("compute", STOCK),
        "command": ["/usr/bin/virt-launcher-monitor", "--name", "vm", "--hypervisor", "kvm", "--run-as-nonroot"],
        "env": [
            {"name": "XDG_RUNTIME_DIR", "value": "/var/run"},
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}},
        ],
        "resources": {"limits": limits, "requests": {"cpu": "100m", **limits}},
    }
    inits = [{**_container(*each), **({"restartPolicy": "Always"} if each == _LOG else {})} for each in parts["inits"]]
    volumes = [{"name": "private", "emptyDir": {}}]
    for volume, image in parts.get("volumes", {}).items():
        volumes.append({"name": volume, "image": {"reference": image, "pullPolicy": "IfNotPresent"}})
    if parts.get("migration"):
        affinity = {**(affinity or {}), "podAntiAffinity": AWAY_FROM_THE_SOURCE}
        labels = {**(labels or {}), "kubevirt.io/migrationJobUID": "f7a7"}
    own = {"kubevirt.io": "virt-launcher", "kubevirt.io/created-by": "86573d79", "vm.kubevirt.io/name": "vm"}
    arch = {"kubernetes.io/arch": architecture} if architecture else {}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {**(labels or {}), **own},
            "annotations": {"kubevirt.io/domain": "vm", **(annotations or {})},
        },
        "spec": {
            "automountServiceAccountToken": False,
            "containers": [compute, *(_container(*each) for each in parts.get("containers", ()))],
            "initContainers": inits,
            "nodeSelector": {"kubevirt.io/schedulable": "true", **arch, **(node_selector or {})},
            "restartPolicy": "Never",
            "volumes": volumes,
        },
    }
    if affinity is not None:
        pod["spec"]["affinity"] = affinity
    if tolerations is not None:
        pod["spec"]["tolerations"] = tolerations
    if pull_secrets is not None:
        pod["spec"]["imagePullSecrets"] = [{"name": secret} for secret in pull_secrets]
    return with_stock(pod, stock)


def with_stock(pod, stock):
    """The pod as virt-controller makes it once KubeVirt's launcher image is ``stock``."""
    pod = copy.deepcopy(pod)
    spec = pod["spec"]
    for container in (*spec["containers"], *spec.get("initContainers", ())):
        container["image"] = stock if container["image"] == STOCK else container["image"]
    for volume in spec["volumes"]:
        if volume.get("image", {}).get("reference") == STOCK:
            volume["image"]["reference"] = stock
    return pod


def required(*terms, **more):
    """An affinity whose required node affinity has these terms."""
    node = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {"nodeAffinity": {**node, **more}}


def term(*expressions, fields=()):
    """A node selector term."""
    made = {"matchExpressions": list(expressions)} if expressions else {}
    return {**made, **({"matchFields": list(fields)} if fields else {})}


def expression(key, operator, *values):
    """A requirement, of a node's label for instance."""
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


PULL_SECRETS = ("disks", "launchers", "mirror.example")
"""KubeVirt gives launcher pods those of container disks."""
HOST_MODEL = expression("node-labeller.kubevirt.io/obsolete-host-model", "DoesNotExist")


def _container(name, image):
    return {"name": name, "image": image, "resources": {"limits": {"cpu": "100m"}}}


# Random pods --------------------------------------------------------------------------------------------------------


def random_pod(rng: random.Random, name):
    """Any launcher pod that virt-controller could make of what a VM's owner may write."""
    pod = launcher_pod(
        rng.choice(list(KINDS)),
        name,
        namespace=rng.choice(list(NAMESPACES)),
        labels=_some_labels(rng, VM_LABELS, 0.3),
        node_selector=_some_labels(rng, NODE_LABELS, 0.3),
        architecture=rng.choice((*ARCHITECTURES, None)),
        devices={rng.choice(DEVICES): rng.randint(1, 8) for _ in range(rng.choice((0, 0, 0, 1, 2)))},
        affinity=_affinity(rng),
        tolerations=rng.choice((None, [], [_toleration(rng) for _ in range(rng.randint(1, 3))])),
        pull_secrets=rng.choice((None, None, [], rng.sample(PULL_SECRETS, rng.randint(1, 3)))),
        annotations=_annotations(rng),
        stock=rng.choice((STOCK, STOCK, "virt-launcher", f"10.0.0.1:5000/kubevirt/virt-launcher@sha256:{'0' * 64}")),
    )
    _add_users_parts(rng, pod)
    if rng.random() < 0.05:
        pod["metadata"]["labels"][OWNER] = rng.choice(POOL_NAMES)
    if rng.random() < 0.7:
        pod["metadata"]["labels"][CANARY] = rng.choice(POOL_NAMES[:3])
    if rng.random() < 0.1:
        del pod["metadata"]["annotations"]
    if rng.random() < 0.1:
        del _compute(pod)["env"]
    if rng.random() < 0.05:
        del _compute(pod)["resources"]
    # A pod that only binds volumes to a node starts no virt-launcher.
    command = rng.choice((None, ["/bin/bash", "-c"], ["virt-launcher-monitor", "--hypervisor", "hyperv-direct"]))
    if rng.random() < 0.2:
        _compute(pod)["command"] = command
        if command is None:
            del _compute(pod)["command"]
        elif "hyperv-direct" in command:
            for counts in _compute(pod).get("resources", {}).values():
                counts["devices.kubevirt.io/mshv"] = counts.pop(KVM)
    _change_with_kubevirt(rng, pod)
    if not pod["spec"]["initContainers"] or rng.random() < 0.05:
        del pod["spec"]["initContainers"]
    return pod


def _change_with_kubevirt(rng, pod):
    """Make the pod as other releases and configurations of KubeVirt do."""
    selected, compute = pod["spec"]["nodeSelector"], _compute(pod)
    # With the gate CrossArchitectureVirtualization.
    if "kubernetes.io/arch" in selected and rng.random() < 0.2:
        selected[f"kubevirt.io/vm-arch-{selected.pop('kubernetes.io/arch')}"] = "true"
    # KubeVirt after 1.9 has only the program in the command.
    if "--hypervisor" in compute.get("command", ()) and rng.random() < 0.5:
        program, *compute["args"] = compute["command"]
        compute["command"] = [program]


def _compute(pod):
    return next(container for container in pod["spec"]["containers"] if container["name"] == "compute")


def _annotations(rng):
    found = {f"note.example/{index}": text for index, text in enumerate(rng.sample(HOSTILE, rng.randint(0, 2)))}
    return {**found, **SPOOF} if rng.random() < 0.2 else found


def _add_users_parts(rng, pod):
    """Sidecars and image volumes whose images look like KubeVirt's, and variables that look like ours."""
    stock = _compute(pod)["image"]
    last = stock.rsplit("/", 1)[-1]
    similar = (
        f"evil.example/{last}",
        f"x{last}",
        f"{stock}-1",
        f"{stock}.x",
        f"evil.example/{stock}",
        *HOSTILE,
    )
    spec = pod["spec"]
    if rng.random() < 0.3:
        env = [{"name": name, "value": rng.choice((stock, DISK, *HOSTILE))} for name in SPOOF if name.isupper()]
        spec["containers"].append(
            {**_container(rng.choice(("hook-sidecar-9", "injected")), rng.choice(similar)), "env": env}
        )
    if rng.random() < 0.2:
        spec["initContainers"].append(_container("volumeother-init", rng.choice(similar)))
    if rng.random() < 0.2:
        spec["volumes"].append({"name": "other", "image": {"reference": rng.choice(similar)}})
    if rng.random() < 0.2:
        rng.shuffle(spec["containers"])
    if rng.random() < 0.1:
        text = rng.choice(HOSTILE)
        _compute(pod).setdefault("env", []).append({"name": "SHARED_FILESYSTEM_PATHS", "value": text})


def _affinity(rng):
    shape = rng.choice(("none", "none", "host-model", "pods", "preferred", "empty", "terms", "terms", "terms"))
    preferred = [{"weight": 1, "preference": term(expression("zone", "In", "a"))}]
    preference = {"preferredDuringSchedulingIgnoredDuringExecution": preferred}
    if shape == "host-model":
        return required(term(HOST_MODEL))
    if shape == "pods":
        return {"podAntiAffinity": AWAY_FROM_THE_SOURCE}
    if shape == "preferred":
        return {"nodeAffinity": preference}
    if shape == "empty":
        return rng.choice(({}, {"nodeAffinity": {}}))
    if shape == "none":
        return None
    terms = [_term(rng) for _ in range(rng.randint(1, 4))]
    return required(*terms, **(preference if rng.random() < 0.3 else {}))


def _term(rng):
    """A term of labels, of fields, of both, or of neither, which no node meets."""
    expressions = [_node_expression(rng) for _ in range(rng.choice((0, 1, 1, 2)))]
    fields = [expression("metadata.name", rng.choice(("In", "NotIn")), rng.choice(NODE_NAMES))]
    return term(*expressions, fields=fields if rng.random() < 0.35 else ())


def _node_expression(rng):
    if rng.random() < 0.3:
        return _about_the_owner(rng)
    key = rng.choice(list(NODE_LABELS))
    operator = rng.choice(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
    if operator in ("Gt", "Lt"):
        return expression("rack.example/number", operator, str(rng.randint(0, 9)))
    if operator in ("Exists", "DoesNotExist"):
        return expression(key, operator)
    return expression(key, operator, *rng.sample(NODE_LABELS[key], rng.randint(1, 2)))


def _about_the_owner(rng):
    """Requirements that owners of VMs might write if they know our label."""
    operator = rng.choice(("In", "NotIn", "Exists", "DoesNotExist"))
    if operator in ("Exists", "DoesNotExist"):
        return expression(OWNER, operator)
    return expression(OWNER, operator, *rng.sample((*POOL_NAMES, "in_transit"), rng.randint(1, 3)))


def _toleration(rng):
    if rng.random() < 0.1:
        return {"operator": "Exists"}
    made = {"key": rng.choice(TAINT_KEYS)}
    if rng.random() < 0.5:
        made["operator"] = "Exists"
    elif rng.random() < 0.7:
        made |= {"operator": "Equal", "value": rng.choice(("yes", "no"))}
    if rng.random() < 0.7:
        made["effect"] = rng.choice(("NoSchedule", "NoExecute"))
    if made.get("effect") == "NoExecute" and rng.random() < 0.5:
        made["tolerationSeconds"] = rng.choice((0, 60))
    return made


def _distinction(toleration):
    """The fields by which Kubernetes compares tolerations."""
    return tuple(
        toleration.get(field, "Equal" if field == "operator" else "")
        for field in ("key", "operator", "value", "effect")
    )


def _some_labels(rng, labels, likelihood):
    return {key: rng.choice(values) for key, values in labels.items() if rng.random() < likelihood}


# Random pools -------------------------------------------------------------------------------------------------------


def random_pools(rng: random.Random):
    """A pool list in our own form, as a user may write it."""
    chosen = rng.sample(POOL_NAMES, rng.randint(1, len(POOL_NAMES)))
    pools = [_pool(rng, name) for name in chosen]
    # A pool that selects by the device of a hypervisor is refused beside one that changes it.
    if not any(KVM in pool.get("selector", {}).get("deviceNames", ()) for pool in pools):
        for pool in pools:
            if "selector" in pool and rng.random() < 0.3:
                pool["hypervisor"] = rng.choice(("kvm", "hyperv-direct"))
    return pools


def random_images(rng: random.Random, pools):
    """The active pools among ``pools``, with the launcher image in effect."""
    return {pool["name"]: pool.get("virtLauncherImage") for pool in pools if rng.random() < 0.85}


def random_canaries(rng: random.Random, images):
    """Pools of ``images`` that have another launcher image for their canaries, with that."""
    others = ("registry.example/virt-launcher:new", "other.example/l/new", STOCK, None)
    return {name: rng.choice(others) for name in images if rng.random() < 0.9}


def _pool(rng, name):
    pool = {"name": name, "nodeSelector": _some_labels(rng, NODE_LABELS, 0.5) or {"accelerator": "nvidia"}}
    shape = rng.choice(("both", "both", "both", "handler", "handler", "handler, no VMs"))
    if shape != "both" or rng.random() < 0.5:
        pool["virtHandlerImage"] = f"registry.example/virt-handler:{name}"
    if shape == "both":
        pool["virtLauncherImage"] = rng.choice(
            (f"registry.example/virt-launcher:{name}", f"other.example/l/{name}", STOCK)
        )
    if shape != "handler, no VMs":
        pool["selector"] = _selector(rng)
    if rng.random() < 0.4:
        pool["unmatched"] = rng.choice(("keep_off", "allow"))
    if rng.random() < 0.5:
        tolerations = [_toleration(rng) for _ in range(rng.randint(1, 3))]
        pool["tolerations"] = list({_distinction(each): each for each in tolerations}.values())
    if "virtLauncherImage" in pool and rng.random() < 0.4:
        pool["virtLauncherPullSecrets"] = [{"name": each} for each in rng.sample(PULL_SECRETS, rng.randint(1, 2))]
    return pool


def _selector(rng):
    selector = {}
    while not selector:
        if rng.random() < 0.35:
            selector["deviceNames"] = rng.sample((*DEVICES, KVM) if rng.random() < 0.1 else DEVICES, rng.randint(1, 3))
        if rng.random() < 0.35:
            selector["vmLabels"] = _vm_labels(rng)
        if rng.random() < 0.2:
            selector["matchNodeSelector"] = True
        if rng.random() < 0.15:
            selector["architectures"] = rng.sample(ARCHITECTURES, rng.randint(1, 2))
    if rng.random() < 0.3:
        selector["namespaces"] = rng.choice(
            (
                ["team-a"],
                {"names": ["plain", "team-b"]},
                {"matchLabels": {"tier": "gold"}},
                {"names": ["plain"], "matchLabels": {"tier": "silver", "quota.example/none": ""}},
                {"matchLabels": {"tier": "gold", "quota.example/none": ""}},
            )
        )
    return selector


def _vm_labels(rng):
    keys = list(VM_LABELS)
    made = {}
    rng.shuffle(keys)
    if rng.random() < 0.6:
        made["matchLabels"] = {key: rng.choice(VM_LABELS[key]) for key in keys[: rng.randint(1, 2)]}
    if not made or rng.random() < 0.5:
        # On another key than matchLabels', so that the two do not contradict each other.
        made["matchExpressions"] = [_label_expression(rng, keys[-1])]
    return made


def _label_expression(rng, key):
    operator = rng.choice(("In", "NotIn", "Exists", "DoesNotExist"))
    values = rng.sample(VM_LABELS[key], rng.randint(1, len(VM_LABELS[key]))) if operator in ("In", "NotIn") else ()
    return expression(key, operator, *values)


# Random nodes -------------------------------------------------------------------------------------------------------


def random_nodes(rng: random.Random, pod, pools, count=3):
    """Nodes with every owner, ``count`` of each: most are made so that the pod, were it not for us, could land there."""
    owners = (None, "in_transit", "ghost", *(pool["name"] for pool in pools))
    return [_node(rng, pod, owner) for owner in owners for _ in range(count)]


def _node(rng, pod, owner):
    labels = {**_some_labels(rng, NODE_LABELS, 0.6), **pod["spec"]["nodeSelector"]}
    name = rng.choice(NODE_NAMES)
    for each in _any_term(rng, pod).get("matchExpressions", ()):
        _oblige(rng, labels, each)
    if rng.random() < 0.1 and labels:
        del labels[rng.choice(sorted(labels))]
    labels.pop(OWNER, None)
    if owner is not None:
        labels[OWNER] = owner
    taints = [_taint(rng) for _ in range(rng.choice((0, 0, 1, 2)))]
    return {"name": name, "labels": labels, "taints": taints}


def _any_term(rng, pod):
    node = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    terms = node.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms")
    return rng.choice(terms) if terms else {}


def _oblige(rng, labels, wanted):
    key, operator = wanted["key"], wanted["operator"]
    if operator == "In":
        labels[key] = rng.choice(wanted["values"])
    elif operator == "Exists":
        labels.setdefault(key, "1")
    elif operator in ("Gt", "Lt"):
        labels[key] = str(int(wanted["values"][0]) + (1 if operator == "Gt" else -1))
    elif operator == "DoesNotExist" or labels.get(key) in wanted["values"]:
        labels.pop(key, None)


def _taint(rng):
    effect = rng.choice(("NoSchedule", "NoSchedule", "NoExecute", "PreferNoSchedule"))
    return {"key": rng.choice(TAINT_KEYS), "value": rng.choice(("yes", "no")), "effect": effect}
