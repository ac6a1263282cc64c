# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Getting a pool's images onto a node before its handler is taken away, by a short-lived pod.

The pod runs ``true`` from each image. Whether that works does not matter: a container that was created has its image.
"""

from __future__ import annotations

import hashlib
import typing as t
from dataclasses import dataclass

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster._client import Cluster
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.waiting import Clock
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import daemonsets, kinds, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.snapshot import Node

Object = dict[str, t.Any]

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
    """Images that a node needs for its next handler, and how its DaemonSet would get them."""

    node: Node
    daemonset: t.Mapping[str, t.Any]

    @property
    def missing(self) -> tuple[str, ...]:
        """Images that the node does not report to have. (The kubelet reports the 50 largest.)"""
        return tuple(sorted(set(daemonsets.images_of(self.daemonset).values()) - self.node.images))


def pull(cluster: Cluster, namespace: str, pulls: t.Sequence[Pull], timeout: float, clock: Clock) -> dict[str, str]:
    """Pull the missing images on all nodes side by side; returns what went wrong, by node.

    Pods are deleted again in any case.
    """
    waiting = {_pod_name(p.node.name): p for p in pulls if p.missing}
    problems: dict[str, str] = {}
    try:
        for name, wanted in waiting.items():
            cluster.create(kinds.POD, _pod(name, namespace, wanted), dry_run=False)
        left = set(waiting)

        def pending() -> str | None:
            found = cluster.list(kinds.POD, namespace, label_selector=names.PULL_LABEL)
            pods = {pod["metadata"]["name"]: pod for pod in found}
            for name in sorted(left):
                state = _state(pods.get(name))
                if state == "pulled":
                    left.discard(name)
                elif state.startswith("failed"):
                    left.discard(name)
                    problems[waiting[name].node.name] = state.removeprefix("failed: ")
            return "pulling" if left else None

        if waiting:
            clock.wait(pending, timeout)
        for name in left:
            problems[waiting[name].node.name] = f"images were not pulled within {timeout:.0f} s"
    finally:
        remove(cluster, namespace, waiting)
    return problems


def remove(cluster: Cluster, namespace: str, pods: t.Iterable[str]) -> None:
    """Delete pull pods at once; the kubelet of a dead node would never confirm their end."""
    for name in pods:
        cluster.delete(kinds.POD, name, namespace, grace_seconds=0, dry_run=False)


def _pod_name(node: str) -> str:
    """Bounded in length, and the same for every run: a run that died is cleaned up after by the next."""
    return f"virtpools-pull-{hashlib.sha256(node.encode()).hexdigest()[:16]}"


def _pod(name: str, namespace: str, wanted: Pull) -> Object:
    template = wanted.daemonset["spec"]["template"]["spec"]
    pod = kinds.POD.object(name, namespace)
    pod["metadata"]["labels"] = {names.PULL_LABEL: "true", names.MANAGED_BY_LABEL: names.MANAGED_BY}
    pod["spec"] = {
        # Bound by us: the scheduler would weigh a request for resources, and a cordon, that do not matter here.
        "nodeName": wanted.node.name,
        "restartPolicy": "Never",
        "activeDeadlineSeconds": 3600,
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        "serviceAccountName": template.get("serviceAccountName", "default"),
        "tolerations": [{"operator": "Exists"}],
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65534, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [_container(index, image) for index, image in enumerate(wanted.missing)],
    }
    if template.get("imagePullSecrets"):
        pod["spec"]["imagePullSecrets"] = template["imagePullSecrets"]
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
        return "failed: the pod that pulls its images was deleted by somebody else"
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
