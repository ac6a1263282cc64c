# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Pulls a pool's images onto a node before the node loses its handler, and tries whether launcher pods may use theirs.

Both take a short-lived pod that runs ``true`` from each image. That need not succeed: a container that was created has its
image.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ...core.base import kinds, names
from ...core.base.objects import Object
from ...core.kubevirt import daemonsets
from ...core.observed.leftovers import Leftover
from ...core.observed.nodes import Node
from ..api.client import Cluster, DeleteOptions
from ..api.waiting import Clock

_NOT_PULLED_YET = frozenset({"ContainerCreating", "PodInitializing", ""})
_CANNOT_PULL = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "RegistryUnavailable",
        "ImageInspectError",
    }
)
_FINAL_REFUSALS = frozenset({"ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})


@dataclass(frozen=True)
class Pull:
    """The node to pull images to, and the DaemonSet of its next handler with images and pull secrets."""

    node: Node
    daemonset: t.Mapping[str, t.Any]

    @property
    def missing(self) -> tuple[str, ...]:
        """The images that the node does not report. (The kubelet reports only the 50 largest.)"""
        return tuple(sorted(set(daemonsets.images_of(self.daemonset).values()) - self.node.images))


@dataclass(frozen=True)
class Start:
    """The node on which a launcher pod is to start, its image, and the names of the pull secrets that such pods have."""

    node: Node
    image: str
    secrets: tuple[str, ...]


def pull(cluster: Cluster, namespace: str, pulls: t.Sequence[Pull], timeout: float, clock: Clock) -> dict[str, str]:
    """Pull the missing images on all nodes side by side. Returns the problems by node."""
    pods = {p.node.name: _pull_pod(namespace, p) for p in pulls if p.missing}
    return _run(cluster, namespace, pods, timeout, clock)


def start(cluster: Cluster, namespace: str, starts: t.Sequence[Start], timeout: float, clock: Clock) -> dict[str, str]:
    """Try on all nodes side by side whether launcher pods would get their image. Returns the problems by node.

    An image that is on the node is not enough. From Kubernetes 1.35 on, a kubelet that pulled it with a pull secret wants that secret,
    or one that its registry takes, from every other pod (KubeletEnsureSecretPulledImages). Whether it does follows from the
    node's settings, which the API server does not show.
    """
    pods = {each.node.name: _start_pod(namespace, each) for each in starts}
    return _run(cluster, namespace, pods, timeout, clock)


def _run(
    cluster: Cluster, namespace: str, pods_of: t.Mapping[str, Object], timeout: float, clock: Clock
) -> dict[str, str]:
    """Create pods, one for a node, until their images are on the nodes. The pods are always deleted."""
    waiting = {pod["metadata"]["name"]: node for node, pod in pods_of.items()}
    created: list[Leftover] = []
    problems: dict[str, str] = {}
    try:
        for pod in pods_of.values():
            stored = cluster.create(kinds.POD, pod, dry_run=False)
            created.append(Leftover.from_object(stored))
        left = set(waiting)

        def pending() -> str | None:
            listed = cluster.list(kinds.POD, namespace, label_selector=names.PULL_LABEL)
            pods = {pod["metadata"]["name"]: pod for pod in listed}
            for name in sorted(left):
                state = _state(pods.get(name))
                if state == "pulled":
                    left.discard(name)
                elif state.startswith("failed"):
                    left.discard(name)
                    problems[waiting[name]] = state.removeprefix("failed: ")
            return "pulling" if left else None

        if waiting:
            clock.wait(pending, timeout)
        for name in left:
            problems[waiting[name]] = f"images were not pulled within {timeout:.0f} s"
    finally:
        remove(cluster, created)
    return problems


def remove(cluster: Cluster, pods: t.Iterable[Leftover]) -> None:
    """Delete pull pods without a grace period: the kubelet of a dead node would never confirm their end."""
    for pod in pods:
        options = DeleteOptions(grace_seconds=0, uid=pod.uid)
        cluster.delete(kinds.POD, pod.name, pod.namespace, options, dry_run=False)


def _pull_pod(namespace: str, wanted: Pull) -> Object:
    """A pod that pulls as the node's next handler would."""
    account = wanted.daemonset["spec"]["template"]["spec"].get("serviceAccountName", "default")
    secrets = daemonsets.pull_secrets_of(wanted.daemonset)
    return _pod(names.PULL, wanted.node, namespace, account, wanted.missing, secrets)


def _start_pod(namespace: str, wanted: Start) -> Object:
    """A pod that may use no more than a launcher pod: those run with the default ServiceAccount of their namespace."""
    secrets = [{"name": name} for name in wanted.secrets]
    return _pod(names.START, wanted.node, namespace, "default", [wanted.image], secrets)


def _pod(
    purpose: str, node: Node, namespace: str, account: str, images: t.Sequence[str], secrets: t.Sequence[t.Any]
) -> Object:
    pod = kinds.POD.object(names.pull_pod_name(purpose, node.name), namespace)
    pod["metadata"]["labels"] = {names.PULL_LABEL: "true", names.MANAGED_BY_LABEL: names.MANAGED_BY}
    pod["spec"] = {
        # We bind the pod: the scheduler would heed resource requests and cordons, which do not matter here.
        "nodeName": node.name,
        "restartPolicy": "Never",
        "activeDeadlineSeconds": 3600,
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        "serviceAccountName": account,
        "tolerations": [{"operator": "Exists"}],
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65534, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [_container(index, image) for index, image in enumerate(images)],
    }
    if secrets:
        pod["spec"]["imagePullSecrets"] = list(secrets)
    return pod


def _container(index: int, image: str) -> Object:
    return {
        "name": f"image-{index}",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["true"],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }


def _state(pod: Object | None) -> str:
    """``pulling``, ``pulled`` or ``failed: why``."""
    if pod is None:
        return "failed: the pod that pulls its images was deleted by another client"
    status = pod.get("status") or {}
    containers = status.get("containerStatuses") or []
    for container in containers:
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") in _FINAL_REFUSALS:
            message = f" ({waiting['message']})" if waiting.get("message") else ""
            return f"failed: image {container['image']} cannot be pulled: {waiting['reason']}{message}"
    if status.get("phase") == "Failed" and not containers:
        return (
            f"failed: the node refused the pod that pulls its images: {status.get('message') or status.get('reason')}"
        )
    done = len(containers) == len(pod["spec"]["containers"]) and all(map(_has_image, containers))
    return "pulled" if done else "pulling"


def _has_image(container: Object) -> bool:
    state = container.get("state") or {}
    if "running" in state or "terminated" in state:
        return True
    reason = (state.get("waiting") or {}).get("reason") or ""
    return reason not in _NOT_PULLED_YET | _CANNOT_PULL
