# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Pulls a pool's images onto a node before the node loses its handler, looks into them, and tries whether launcher pods may
use theirs.

All take a short-lived pod. Its containers look into their images, or run ``true``. That need not succeed: a container that was
created has its image.
"""

from __future__ import annotations

import contextlib
import typing as t
from dataclasses import dataclass, field

from ...core.base import kinds, names
from ...core.base.findings import counted, listed, printable
from ...core.base.objects import Object
from ...core.kubevirt import daemonsets, image_contents
from ...core.kubevirt.image_contents import Contents
from ...core.observed.leftovers import Leftover
from ...core.observed.nodes import Node
from ...core.observed.snapshot import Snapshot
from ...core.pools.model import Pool
from ..api import at_once
from ..api.client import Cluster, ClusterError, DeleteOptions
from ..api.waiting import Clock
from ..reading import live


class ImagesMissing(ClusterError):
    """Nodes cannot get the images of their next handler or of their VMs, or these lack something; no node was touched."""


CHECK_IMAGE = (
    "Check the image, its registry and pull secrets; set virtpools_prepull: false if nodes get images in another way."
)
_AFTER_THE_PULL = frozenset(
    {
        "CreateContainerConfigError",
        "CreateContainerError",
        "PreCreateHookError",
        "PreStartHookError",
        "PostStartHookError",
        "RunContainerError",
        "CrashLoopBackOff",
    }
)
"""Why a container waits whose image the kubelet has pulled (pkg/kubelet/kuberuntime). Every other reason, also one that kubelets
get later, may be about the pull, as ``SignatureValidationFailed`` is."""
_NOTHING = ["true"]
_LONGEST_REASON = 200
_FINAL_REFUSALS = frozenset({"ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})
_LEFT_TO_OPENSHIFT = {names.PULL: "seccompProfile", names.START: "runAsUser"}
"""The field of a pod's securityContext that OpenShift would refuse, by the purpose of the pod. KubeVirt lets its handlers'
ServiceAccount use SecurityContextConstraints with any user, but without a seccomp profile. ``default`` may only use
``restricted-v2``, which chooses the user; that of a pod that runs ``true`` does not matter."""


@dataclass(frozen=True)
class Pull:
    """The node to pull images to, and the DaemonSet of its next handler with images and pull secrets."""

    node: Node
    daemonset: t.Mapping[str, t.Any]
    known: t.Collection[str]
    """The images into which a run has looked."""
    stock: t.Collection[str] = ()
    """KubeVirt's own images, which need no look."""

    @property
    def missing(self) -> frozenset[str]:
        """The images that the node does not report. (The kubelet reports only the 50 largest.)"""
        return frozenset(daemonsets.images_of(self.daemonset).values()) - self.node.images

    @property
    def unknown(self) -> frozenset[str]:
        """The images into which no run has looked."""
        return frozenset(image_contents.roles_of(self.daemonset, self.stock)) - frozenset(self.known)


@dataclass
class Pulled:
    """What became of pulls."""

    problems: dict[str, str] = field(default_factory=dict)
    """By node, why it has not got its images."""
    lacking: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """By image, what it should contain and does not."""
    contents: dict[str, Contents] = field(default_factory=dict)
    """What each other image contains that was looked into."""

    def note(self, image: str, message: str) -> None:
        """Take in what a look into an image found."""
        lacking, contents = image_contents.read(message)
        if lacking:
            self.lacking[image] = lacking
        else:
            self.contents[image] = contents


@dataclass(frozen=True)
class Start:
    """The node on which a launcher pod is to start, its image, and the names of the pull secrets that such pods have."""

    node: Node
    image: str
    secrets: tuple[str, ...]

    @classmethod
    def of(cls, node: Node, pool: Pool) -> Start | None:
        """That of a pool's VMs; None for a pool without a launcher image."""
        if pool.virt_launcher_image is None:
            return None
        return cls(node, pool.virt_launcher_image, tuple(each["name"] for each in pool.virt_launcher_pull_secrets))


def pull(cluster: Cluster, namespace: str, pulls: t.Sequence[Pull], timeout: float, clock: Clock) -> Pulled:
    """Pull the missing images on all nodes side by side, and look into those that no run knows yet."""
    return _run(cluster, namespace, names.PULL, _pull_pods(namespace, pulls), timeout, clock)


@contextlib.contextmanager
def pulling(
    cluster: Cluster, namespace: str, pulls: t.Sequence[Pull], timeout: float, clock: Clock
) -> t.Iterator[t.Callable[[], Pulled]]:
    """Pull images during other work. Yields a function that waits for what is left, and returns what came of it.

    This only saves time: who needs the images later pulls what is missing then, and reports what does not come. So none of its
    errors may end the other work, perhaps half-way, and it does not wait for what a kubelet complains about.
    """
    pods_of = _pull_pods(namespace, pulls)
    created: list[Leftover] = []

    def wait() -> Pulled:
        try:
            return _await(cluster, namespace, pods_of, timeout, clock, patient=False)
        except ClusterError:
            return Pulled()

    try:
        with contextlib.suppress(ClusterError):
            _create(cluster, names.PULL, pods_of, created)
        yield wait
    finally:
        with contextlib.suppress(ClusterError):
            remove(cluster, created)


def start(cluster: Cluster, namespace: str, starts: t.Sequence[Start], timeout: float, clock: Clock) -> dict[str, str]:
    """Try on all nodes side by side whether launcher pods would get their image. Returns the problems by node.

    An image that is on the node is not enough. From Kubernetes 1.35 on, a kubelet that pulled it with a pull secret wants that secret,
    or one that its registry takes, from every other pod (KubeletEnsureSecretPulledImages). Whether it does follows from the
    node's settings, which the API server does not show.
    """
    pods = {each.node.name: _start_pod(namespace, each) for each in starts}
    return _run(cluster, namespace, names.START, pods, timeout, clock).problems


def stock_images(snapshot: Snapshot) -> frozenset[str]:
    """KubeVirt's own images, which need no look."""
    return frozenset() if snapshot.primary is None else frozenset(daemonsets.images_of(snapshot.primary).values())


def incomplete(pulled: Pulled, images: t.Collection[str]) -> str:
    """What some of these images lack that KubeVirt's pods start, and what to do, as the end of a sentence; empty when nothing."""
    lacking = "; ".join(
        f"image {image} lacks {listed(parts)}" for image, parts in sorted(pulled.lacking.items()) if image in images
    )
    return lacking and f"{lacking}. Build pool images on KubeVirt's image of the same version (docs/pool-images.md)."


def refuse_incomplete(what: str, pulled: Pulled) -> None:
    """Refuse images that lack what KubeVirt's pods start.

    :param what: the beginning of the message.
    :raises ImagesMissing: with the images and what they lack.
    """
    lacking = incomplete(pulled, pulled.lacking)
    if lacking:
        raise ImagesMissing(f"{what} {lacking}")


def of_existing(cluster: Cluster, problems: t.Mapping[str, str], nodes: t.Mapping[str, Node]) -> dict[str, str]:
    """The problems, by node, without those of nodes that were deleted in the meantime.

    :param nodes: as they were before.
    """
    deleted = live.deleted_nodes(cluster, [nodes[name] for name in problems])
    return {node: problem for node, problem in problems.items() if node not in deleted}


def examples(problems: t.Mapping[str, str]) -> str:
    """The first problems, by node."""
    return "; ".join(f"{node}: {problem}" for node, problem in sorted(problems.items())[:5])


def _run(
    cluster: Cluster, namespace: str, purpose: str, pods_of: t.Mapping[str, Object], timeout: float, clock: Clock
) -> Pulled:
    """Create pods, one for a node, until their images are on the nodes. The pods are always deleted."""
    created: list[Leftover] = []
    try:
        _create(cluster, purpose, pods_of, created)
        return _await(cluster, namespace, pods_of, timeout, clock)
    finally:
        remove(cluster, created)


def _create(cluster: Cluster, purpose: str, pods_of: t.Mapping[str, Object], created: list[Leftover]) -> None:
    """Create pods, one for a node, and add each to ``created``."""
    if pods_of and cluster.serves(kinds.SECURITY_CONTEXT_CONSTRAINTS):
        for pod in pods_of.values():
            del pod["spec"]["securityContext"][_LEFT_TO_OPENSHIFT[purpose]]

    def create(pod: Object) -> None:
        created.append(Leftover.from_object(cluster.create(kinds.POD, pod, dry_run=False)))

    at_once.for_each(create, [*pods_of.values()])


def _await(
    cluster: Cluster,
    namespace: str,
    pods_of: t.Mapping[str, Object],
    timeout: float,
    clock: Clock,
    *,
    patient: bool = True,
) -> Pulled:
    """Wait until the images of these pods, one for a node, are on the nodes.

    :param patient: also for what a kubelet complains about: it may come with a later attempt.
    """
    waiting = {pod["metadata"]["name"]: node for node, pod in pods_of.items()}
    # As we asked for them: a webhook may send pods to a mirror of the registry.
    looks = {pod["metadata"]["name"]: _looks(pod) for pod in pods_of.values()}
    pulled = Pulled()
    left = set(waiting)
    pods: dict[str, Object] = {}

    def pending() -> str | None:
        listed = cluster.list(kinds.POD, namespace, label_selector=names.PULL_LABEL)
        pods.clear()
        pods.update((pod["metadata"]["name"], pod) for pod in listed)
        for name in sorted(left):
            state = _state(pods.get(name), looks[name])
            if state == "pulled":
                left.discard(name)
                _look(pods[name], looks[name], pulled)
            elif state.startswith("failed"):
                left.discard(name)
                pulled.problems[waiting[name]] = state.removeprefix("failed: ")
            elif not patient and (complaint := _held_up(pods.get(name))):
                left.discard(name)
                pulled.problems[waiting[name]] = f"images are not pulled{complaint}"
        if not left:
            return None
        return f"{counted(len(left), 'node pulls', 'nodes pull')} images: {examples({waiting[name]: _doing(pods.get(name)) for name in left})}"

    if waiting:
        clock.wait(pending, timeout)
    for name in left:
        if _pulled(pods.get(name), ()):
            _look(pods[name], looks[name], pulled)
        else:
            late = f"images were not pulled within {timeout:.0f} s"
            pulled.problems[waiting[name]] = f"{late}{_held_up(pods.get(name))}"
    return pulled


def _looks(pod: Object) -> dict[str, str]:
    """The containers of a pod that look into their images, with these."""
    return {each["name"]: each["image"] for each in pod["spec"]["containers"] if each["command"] != _NOTHING}


def _look(pod: Object, looks: t.Mapping[str, str], pulled: Pulled) -> None:
    """Take in what the pod's containers found in their images."""
    for status in pod["status"]["containerStatuses"]:
        image = looks.get(status["name"])
        if image is None:
            continue
        ended = (status.get("state") or {}).get("terminated") or {}
        if ended.get("reason") == "Completed":
            pulled.note(image, str(ended.get("message") or ""))
        else:
            pulled.contents.setdefault(image, Contents(unchecked=_why_unchecked(status.get("state") or {})))


def _why_unchecked(state: Object) -> str:
    how = state.get("terminated") or state.get("waiting")
    if not how:
        return "its shell did not end"
    message = printable(how.get("message") or "")
    if "/bin/sh" in message and "no such file" in message:
        return "it has no /bin/sh"
    code = f", exit code {how['exitCode']}" if "exitCode" in how else ""
    return f"its shell did not run: {how.get('reason')}{code}{f', {message[-_LONGEST_REASON:]}' if message else ''}"


def remove(cluster: Cluster, pods: t.Iterable[Leftover]) -> None:
    """Delete pull pods without a grace period: the kubelet of a dead node would never confirm their end."""

    def delete(pod: Leftover) -> None:
        options = DeleteOptions(grace_seconds=0, uid=pod.uid)
        cluster.delete(kinds.POD, pod.name, pod.namespace, options, dry_run=False)

    at_once.for_each(delete, [*pods])


def _pull_pods(namespace: str, pulls: t.Iterable[Pull]) -> dict[str, Object]:
    """The pods that pull what is missing, by node. Only one of them looks into an image that no run knows yet."""
    pods: dict[str, Object] = {}
    assigned: set[str] = set()
    for each in pulls:
        wanted = each.missing | (each.unknown - assigned)
        assigned |= wanted
        if wanted:
            pods[each.node.name] = _pull_pod(namespace, each, sorted(wanted))
    return pods


def _pull_pod(namespace: str, wanted: Pull, images: t.Iterable[str]) -> Object:
    """A pod that pulls as the node's next handler would."""
    account = wanted.daemonset["spec"]["template"]["spec"].get("serviceAccountName", "default")
    secrets = daemonsets.pull_secrets_of(wanted.daemonset)
    roles = image_contents.roles_of(wanted.daemonset, wanted.stock)
    commands = {image: image_contents.command(roles[image]) if image in roles else _NOTHING for image in images}
    return _pod(names.PULL, wanted.node, namespace, account, commands, secrets)


def _start_pod(namespace: str, wanted: Start) -> Object:
    """A pod that may use no more than a launcher pod: those run with the default ServiceAccount of their namespace."""
    secrets = [{"name": name} for name in wanted.secrets]
    return _pod(names.START, wanted.node, namespace, "default", {wanted.image: _NOTHING}, secrets)


def _pod(
    purpose: str,
    node: Node,
    namespace: str,
    account: str,
    commands: t.Mapping[str, t.Sequence[str]],
    secrets: t.Sequence[t.Any],
) -> Object:
    """``commands``: what to run, by image."""
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
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": image_contents.USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(index, *each) for index, each in enumerate(commands.items())],
    }
    if secrets:
        pod["spec"]["imagePullSecrets"] = list(secrets)
    return pod


def _container(index: int, image: str, command: t.Sequence[str]) -> Object:
    return {
        "name": f"image-{index}",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": [*command],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }


def _state(pod: Object | None, looks: t.Collection[str]) -> str:
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
    return "pulled" if _pulled(pod, looks) else "pulling"


def _pulled(pod: Object | None, looks: t.Collection[str]) -> bool:
    """Whether all images are on the node, and the looks of these containers have ended."""
    if pod is None:
        return False
    containers = (pod.get("status") or {}).get("containerStatuses") or []
    return len(containers) == len(pod["spec"]["containers"]) and all(
        _has_image(each) and not (each["name"] in looks and "running" in (each.get("state") or {}))
        for each in containers
    )


def _has_image(container: Object) -> bool:
    state = container.get("state") or {}
    if "running" in state or "terminated" in state:
        return True
    return (state.get("waiting") or {}).get("reason") in _AFTER_THE_PULL


def _not_pulled(pod: Object | None) -> t.Iterator[tuple[str, Object]]:
    """The images that a pod has not got, each with what the kubelet says of it."""
    for container in ((pod or {}).get("status") or {}).get("containerStatuses") or []:
        if not _has_image(container):
            yield container["image"], (container.get("state") or {}).get("waiting") or {}


def _doing(pod: Object | None) -> str:
    """What a pod does that has not got all its images."""
    pulls = (f"{image} ({waiting.get('reason') or 'waiting'})" for image, waiting in _not_pulled(pod))
    return ", ".join(pulls) or "its pod has not started"


def _held_up(pod: Object | None) -> str:
    """What the kubelet says of the first image that a pod has not got, as the end of a sentence."""
    for image, waiting in _not_pulled(pod):
        if waiting.get("message"):
            return f"; the kubelet says of image {image}: {waiting.get('reason')} ({waiting['message']})"
    return ""
