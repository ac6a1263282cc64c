# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""The virt-handler pods of a cluster."""

from __future__ import annotations

import json
import sys
import typing as t
from dataclasses import dataclass, field

from ..base import names
from ..base.findings import printable
from ..base.frozen import FrozenMap
from ..base.objects import KubeObject, condition
from .nodes import Node, timestamp

_MONITOR = "virt-launcher-monitor"
_LONGEST_LINE = 200


@dataclass(frozen=True)
class HandlerPod:
    """A virt-handler pod."""

    name: str
    uid: str
    node: str
    daemonset: str | None
    """Its DaemonSet's name."""
    template: str | None
    ready: bool
    terminating: bool
    problem: str | None
    """Why it is not Ready, if known."""
    last_end: str | None = None
    """How a container ended that runs again; None when none ended."""
    images: t.Mapping[str, str] = field(default_factory=FrozenMap)
    """Those of its containers, by name."""
    started: float | None = None
    """When its handler, which now runs, last started, in seconds since 1970 by the node's clock; None when it does
    not run."""

    def has_reported(self, node: Node) -> bool:
        """Whether the last heartbeat of its node is its own, and not one of an earlier handler.

        Heartbeat and start are whole seconds of the same clock, the node's. An earlier handler has ended before.
        """
        beat = node.last_heartbeat
        return self.started is not None and beat is not None and beat >= self.started

    @property
    def fault(self) -> str | None:
        """Why it does not start; None for one that only takes its time."""
        return self.problem or self.last_end

    @classmethod
    def from_object(cls, obj: KubeObject) -> HandlerPod:
        metadata = obj.get("metadata") or {}
        spec, status = obj.get("spec") or {}, obj.get("status") or {}
        containers = (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
        return cls(
            name=metadata["name"],
            uid=metadata.get("uid", ""),
            node=node_of(obj),
            daemonset=_controller(metadata, "DaemonSet"),
            template=(metadata.get("annotations") or {}).get(names.TEMPLATE_ANNOTATION),
            ready=status.get("phase") == "Running" and condition(obj, "Ready").get("status") == "True",
            terminating=bool(metadata.get("deletionTimestamp")),
            problem=pod_problem(obj),
            last_end=_last_end(obj),
            images=FrozenMap({each["name"]: sys.intern(each.get("image") or "") for each in containers}),
            started=_started(obj),
        )


def has_ended(pod: KubeObject) -> bool:
    """Whether all containers of a deleted pod have ended, so that only its object is left, for a second or so. Then its DaemonSet has
    already created the next one (getNodesToDaemonPods in Kubernetes' pkg/controller/daemon)."""
    deleted = bool(pod["metadata"].get("deletionTimestamp"))
    return deleted and (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def pod_problem(pod: KubeObject) -> str | None:
    """The kubelet's reason why a container of the pod does not run, with how it ended; None when nothing is wrong."""
    status = pod.get("status") or {}
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        state, last = container.get("state") or {}, container.get("lastState") or {}
        waiting = state.get("waiting") or {}
        reason = waiting.get("reason")
        if reason and reason not in ("ContainerCreating", "PodInitializing"):
            message = f" ({waiting['message']})" if waiting.get("message") else ""
            ended = _end(last.get("terminated") or {})
            return f"container {container.get('name')}: {reason}{message}{f', it {ended}' if ended else ''}"
        ended = _end(state.get("terminated") or {})
        if ended:
            return f"container {container.get('name')} {ended}"
    if status.get("phase") == "Failed":
        return f"pod failed: {status.get('reason') or status.get('message') or 'no reason given'}"
    return None


def _last_end(pod: KubeObject) -> str | None:
    for container in (pod.get("status") or {}).get("containerStatuses") or ():
        ended = _end((container.get("lastState") or {}).get("terminated") or {})
        if ended:
            return f"container {container.get('name')} {ended}, and was restarted"
    return None


def _end(terminated: KubeObject) -> str:
    """How a container ended, with the last line of its log, which the kubelet keeps for KubeVirt's containers; empty for a
    container that did its work."""
    code = terminated.get("exitCode")
    if not code:
        return ""
    reason = terminated.get("reason")
    why = f" ({reason})" if reason and reason != "Error" else ""
    line = _last_line(str(terminated.get("message") or ""))
    return f"ended with exit code {code}{why}{f' and said {line!r}' if line else ''}"


def _last_line(text: str) -> str:
    """The last line of a log in words, but for what virt-launcher-monitor says once virt-launcher has died (KubeVirt)."""
    lines = [(line, _logged(line)) for line in text.splitlines() if line.strip()]
    own = [each for each in lines if each[1].get("component") != _MONITOR] or lines
    if not own:
        return ""
    line, logged = own[-1]
    words = ": ".join(str(logged[key]) for key in ("msg", "reason") if logged.get(key))
    return printable((words or line).strip())[:_LONGEST_LINE]


def _logged(line: str) -> t.Mapping[str, t.Any]:
    """A line of KubeVirt's own log, which is JSON; nothing for any other line."""
    try:
        logged = json.loads(line)
    except ValueError:
        return {}
    return logged if isinstance(logged, dict) else {}


def node_of(pod: KubeObject) -> str:
    """The node of a pod; empty while the pod waits for the scheduler."""
    spec = pod.get("spec") or {}
    return str(spec.get("nodeName") or "")


def _started(pod: KubeObject) -> float | None:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    states = (each.get("state") or {} for each in statuses if each.get("name") == names.HANDLER)
    return next((timestamp((state.get("running") or {}).get("startedAt")) for state in states), None)


def _controller(metadata: KubeObject, kind: str) -> str | None:
    for reference in metadata.get("ownerReferences") or ():
        if reference.get("controller") and reference.get("kind") == kind:
            return str(reference["name"])
    return None
