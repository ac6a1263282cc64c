# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""An independent witness: follows nodes and handler pods through the watch API, without a gap, and remembers all of it."""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from kubernetes import client

from local_cluster import LocalCluster

NAMESPACE = "kubevirt"
# On handlers with the value virt-handler, and on KubeVirt's other pods.
COMPONENT = "kubevirt.io"
OWNER = "virtpools.io/pool"
PRIMARY = "primary"

Object = dict[str, Any]


@dataclass(frozen=True)
class Interval:
    """A stretch of time in which a node had the same number of handler pods. Times are the witness's own clock."""

    handlers: int
    begin: float
    end: float

    @property
    def seconds(self) -> float:
        """Return its length."""
        return self.end - self.begin


@dataclass(frozen=True)
class Start:
    """A handler pod that was made while somebody watched."""

    node: str
    daemonset: str
    name: str


@dataclass
class Seen:
    """Everything about one node."""

    owners: list[str] = field(default_factory=list)
    """Values of the owner label in their order, the first being that from before; ``primary`` stands for none."""
    intervals: list[Interval] = field(default_factory=list)
    unready: list[float] = field(default_factory=list)
    """How long, each time, the node had no handler that was Ready."""


class Watcher:
    """Follows one cluster; a context manager, so that it sees the time before a run and after it, too.

    It lists, and watches from the list's resourceVersion on: no event in between is lost. An event that cannot be
    followed any more (410 Gone) fails ``stop`` instead of being papered over.
    """

    def __init__(self, cluster: LocalCluster) -> None:
        """Watch as the administrator."""
        self._core = client.CoreV1Api(cluster.api_client)
        self._cluster = cluster
        self._lock = threading.Lock()
        self._pods: dict[str, Object] = {}
        self._nodes: dict[str, Object] = {}
        self._counts: Counter[str] = Counter()
        self._since: dict[str, float] = {}
        self._unready_since: dict[str, float] = {}
        self._version: dict[str, str] = {}
        self._problems: list[str] = []
        self._threads: list[threading.Thread] = []
        self._markers: dict[str, threading.Event] = {}
        self._responses: list[Any] = []
        self._stopped = False
        self.nodes: dict[str, Seen] = defaultdict(Seen)
        self.starts: list[Start] = []

    def __enter__(self) -> Watcher:
        """Begin to watch."""
        now = time.monotonic()
        nodes, pods = self._list(self._core.list_node), self._list(self._list_pods)
        for node in nodes["items"]:
            self._note_node(node)
        for pod in filter(_is_handler, pods["items"]):
            self._pods[pod["metadata"]["uid"]] = pod
        for name in self._nodes:
            self._counts[name] = len(self._on(name))
            self._since[name] = now
            self._note_readiness(name, now)
        self._follow("nodes", self._core.list_node, nodes, self._node_event)
        self._follow("pods", self._list_pods, pods, self._pod_event)
        return self

    def __exit__(self, *_: object) -> None:
        """Stop watching."""
        self._stop()

    def stop(self) -> Watcher:
        """Catch up with everything that happened so far, stop, and return the witness with all that it saw."""
        self._catch_up()
        self._stop()
        assert not self._problems, "\n".join(self._problems)
        return self

    # What it saw

    @property
    def crowded(self) -> list[str]:
        """Return the nodes that at any time had two handler pods or more, whatever state these were in."""
        return sorted(name for name, seen in self.nodes.items() if any(each.handlers > 1 for each in seen.intervals))

    @property
    def without(self) -> list[str]:
        """Return the nodes that have no handler, or one that is not Ready, at the end."""
        return sorted(name for name in self._nodes if name in self._unready_since)

    @property
    def restarted(self) -> dict[str, int]:
        """Return how many handlers were started on each node that had any."""
        return dict(Counter(start.node for start in self.starts))

    def started(self, sizes: Iterable[int]) -> list[list[str]]:
        """Return the nodes on which pools' handlers were started, in order, in groups of these sizes, and a last one of more.

        Within a group they are sorted: nodes of one batch go side by side.
        """
        nodes = iter([start.node for start in self.starts if start.daemonset != "virt-handler"])
        groups = [sorted(itertools.islice(nodes, size)) for size in sizes]
        more = list(nodes)
        return [*groups, more] if more else groups

    @property
    def handlers(self) -> dict[str, list[str]]:
        """Return the DaemonSets that have a handler pod on each node at the end."""
        with self._lock:
            return {name: sorted(_daemonset(pod) for pod in self._on(name)) for name in self._nodes}

    @property
    def images(self) -> dict[str, list[str]]:
        """Return the images of the handler container on each node at the end."""
        return {name: sorted(_image(pod) for pod in self._on(name)) for name in self._nodes}

    def gaps(self) -> dict[str, float]:
        """Return the longest time without a Ready handler of each node that had such a time."""
        with self._lock:
            return {name: max(seen.unready) for name, seen in self.nodes.items() if seen.unready}

    # Inside

    def _list(self, function: Any, **arguments: Any) -> Object:
        return dict(json.loads(function(_preload_content=False, **arguments).data))

    def _list_pods(self, **arguments: Any) -> Any:
        return self._core.list_namespaced_pod(NAMESPACE, label_selector=COMPONENT, **arguments)

    def _follow(self, what: str, function: Any, listed: Object, handle: Any) -> None:
        self._version[what] = listed["metadata"]["resourceVersion"]
        thread = threading.Thread(target=self._watch, args=(what, function, handle), daemon=True)
        thread.start()
        self._threads.append(thread)

    def _watch(self, what: str, function: Any, handle: Any) -> None:
        try:
            while not self._stopped:
                # From where the last watch ended: the API server ends each after a while.
                self._watch_once(what, function, handle)
        except Exception as error:  # noqa: BLE001 (in a thread: whatever it is must reach the test)
            if not self._stopped:
                self._problems.append(f"The watch of {what} failed: {error!r}")

    def _watch_once(self, what: str, function: Any, handle: Any) -> None:
        response = function(
            watch=True,
            resource_version=self._version[what],
            allow_watch_bookmarks=True,
            timeout_seconds=3600,
            _preload_content=False,
        )
        self._responses.append(response)
        for line in _lines(response):
            self._take(what, json.loads(line), handle)

    def _take(self, what: str, event: Object, handle: Any) -> None:
        obj = event["object"]
        if event["type"] == "ERROR":
            raise RuntimeError(f"events of {what} were lost: {obj}")
        with self._lock:
            self._version[what] = obj["metadata"]["resourceVersion"]
            if event["type"] != "BOOKMARK":
                handle(event["type"], obj, time.monotonic())

    def _node_event(self, kind: str, node: Object, now: float) -> None:
        name = node["metadata"]["name"]
        marker = (node["metadata"].get("annotations") or {}).get("watcher")
        if marker in self._markers:
            self._markers.pop(marker).set()
        if kind == "DELETED":
            self._nodes.pop(name, None)
            return
        self._since.setdefault(name, now)
        self._note_node(node)

    def _note_node(self, node: Object) -> None:
        metadata = node["metadata"]
        self._nodes[metadata["name"]] = node
        owner = (metadata.get("labels") or {}).get(OWNER, PRIMARY)
        owners = self.nodes[metadata["name"]].owners
        if not owners or owners[-1] != owner:
            owners.append(owner)

    def _pod_event(self, kind: str, pod: Object, now: float) -> None:
        uid = pod["metadata"]["uid"]
        if not _is_handler(pod):
            if pod["metadata"]["name"] in self._markers:
                self._markers.pop(pod["metadata"]["name"]).set()
            return
        node = _node(pod)
        if kind == "DELETED":
            self._pods.pop(uid, None)
        else:
            if uid not in self._pods:
                self.starts.append(Start(node, _daemonset(pod), pod["metadata"]["name"]))
            self._pods[uid] = pod
        self._note_count(node, now)
        self._note_readiness(node, now)

    def _note_count(self, node: str, now: float) -> None:
        count = len(self._on(node))
        if count != self._counts[node]:
            begin = self._since.get(node, now)
            self.nodes[node].intervals.append(Interval(self._counts[node], begin, now))
            self._counts[node], self._since[node] = count, now

    def _note_readiness(self, node: str, now: float) -> None:
        if any(_ready(pod) for pod in self._on(node)):
            since = self._unready_since.pop(node, None)
            if since is not None:
                self.nodes[node].unready.append(now - since)
        else:
            self._unready_since.setdefault(node, now)

    def _on(self, node: str) -> list[Object]:
        """Return the handler pods that a DaemonSet means for the node; it counts from the pod's creation on."""
        return [pod for pod in self._pods.values() if _node(pod) == node]

    def _catch_up(self) -> None:
        """Wait until the watches delivered a write of ours: then they delivered everything before it."""
        pod_marker, node_marker = (f"watcher-{what}-{time.time_ns()}" for what in ("pod", "node"))
        self._markers = {name: threading.Event() for name in (pod_marker, node_marker)}
        waiting = list(self._markers.values())
        labels = {COMPONENT: "watcher"}
        # No scheduler takes it, so it never runs anywhere.
        spec = {"schedulerName": "none", "containers": [{"name": "none", "image": "none.example/none:1"}]}
        self._core.create_namespaced_pod(NAMESPACE, {"metadata": {"name": pod_marker, "labels": labels}, "spec": spec})
        node = next(iter(self._nodes))
        self._core.patch_node(node, {"metadata": {"annotations": {"watcher": node_marker}}}, _preload_content=False)
        try:
            for event in waiting:
                assert event.wait(30), "\n".join(["The watches do not catch up.", *self._problems])
        finally:
            self._core.delete_namespaced_pod(pod_marker, NAMESPACE, grace_period_seconds=0)
            self._core.patch_node(node, {"metadata": {"annotations": {"watcher": None}}}, _preload_content=False)

    def _stop(self) -> None:
        if self._stopped:
            return
        self._stopped = True
        now = time.monotonic()
        with self._lock:
            for name, count in self._counts.items():
                self.nodes[name].intervals.append(Interval(count, self._since.get(name, now), now))
        for response in self._responses:
            with contextlib.suppress(OSError):  # the server has just ended it
                response.shutdown()  # close would wait for the thread that reads, until the next event or bookmark


def _lines(response: Any) -> Any:
    buffer = b""
    for chunk in response.stream(amt=None, decode_content=False):
        *lines, buffer = (buffer + chunk).split(b"\n")
        yield from (line for line in lines if line)


def _is_handler(pod: Object) -> bool:
    return bool(pod["metadata"]["labels"][COMPONENT] == "virt-handler")


def _node(pod: Object) -> str:
    """Return the node of a DaemonSet's pod: before it is bound, the one it is made for."""
    bound = pod["spec"].get("nodeName")
    if bound:
        return str(bound)
    required = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    field = required["nodeSelectorTerms"][0]["matchFields"][0]
    return str(field["values"][0])


def _daemonset(pod: Object) -> str:
    owners = pod["metadata"].get("ownerReferences") or []
    return next((str(each["name"]) for each in owners if each["kind"] == "DaemonSet"), "")


def _image(pod: Object) -> str:
    return next(str(each["image"]) for each in pod["spec"]["containers"] if each["name"] == "virt-handler")


def _ready(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or []
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    return ready and not pod["metadata"].get("deletionTimestamp")
