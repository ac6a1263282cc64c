# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""An independent witness: it follows nodes and handler pods through the watch API without a gap, and records them."""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from kubernetes import client
from urllib3.exceptions import HTTPError

from local_cluster import LocalCluster
from local_cluster.kubevirt import CONTROL_PLANE

NAMESPACE = "kubevirt"
# A label of KubeVirt's pods; handlers have the value virt-handler.
COMPONENT = "kubevirt.io"
OWNER = "virtpools.io/pool"
PRIMARY = "primary"
IN_TRANSIT = "in_transit"
"""The owner of a node between its former handler and its next one."""

Object = dict[str, Any]


@dataclass(frozen=True)
class Interval:
    """A time in which the number of a node's handler pods did not change; by the clock of the witness."""

    handlers: int
    begin: float
    end: float

    @property
    def seconds(self) -> float:
        """Return its length."""
        return self.end - self.begin


@dataclass(frozen=True)
class Start:
    """A handler pod that was created while the witness watched."""

    node: str
    daemonset: str
    name: str


@dataclass
class Seen:
    """What the witness saw of one node."""

    owners: list[str] = field(default_factory=list)
    """The values of the owner label in order, beginning with the one at the start; ``primary`` stands for no label."""
    intervals: list[Interval] = field(default_factory=list)
    unready: list[float] = field(default_factory=list)
    """The seconds of each time in which the node had no Ready handler."""
    unowned: list[float] = field(default_factory=list)
    """The seconds from the end of the former handler to the next owner, for each handover: a run's own part of a gap."""


class Watcher:
    """Follows one cluster. It is a context manager, so that it also sees the time before and after a run.

    It lists, then watches from the list's resourceVersion on, so that no event is lost. An API server that was restarted
    no longer has the next event (410 Gone). The witness then lists each state of the cluster since, which etcd keeps for
    minutes. So it misses nothing, but events of that time have the time at which it learned of them. When a watch fails
    for good, ``stop`` and the end of the context fail.
    """

    def __init__(self, cluster: LocalCluster) -> None:
        """Watch as the administrator."""
        self._core = client.CoreV1Api(cluster.api_client)
        self._cluster = cluster
        self._namespace = cluster.options.namespace
        self._lock = threading.Lock()
        self._pods: dict[str, dict[str, Object]] = defaultdict(dict)
        """Handler pods of each node by uid. Looking through those of 3,000 nodes at each event would take longer than events do."""
        self._nodes: dict[str, Object] = {}
        self._counts: Counter[str] = Counter()
        self._since: dict[str, float] = {}
        self._unready_since: dict[str, float] = {}
        self._version: dict[str, str] = {}
        self._last: dict[str, dict[str, Object]] = {}
        self._problems: list[str] = []
        self._threads: list[threading.Thread] = []
        self._markers: dict[str, threading.Event] = {}
        self._responses: dict[str, Any] = {}
        self._stopped = False
        self.nodes: dict[str, Seen] = defaultdict(Seen)
        self.starts: list[Start] = []
        self.crowded_by_pools: set[str] = set()
        """The nodes that had several handlers at any time, of which one was of a collection pool."""
        self.recovered = 0
        """How many changes it learned of from etcd's history, because no watch told of them."""

    def __enter__(self) -> Watcher:
        """Begin to watch."""
        now = time.monotonic()
        nodes, pods = self._list(self._core.list_node), self._list(self._list_pods)
        for node in nodes["items"]:
            self._note_node(node, now)
        for pod in filter(_is_handler, pods["items"]):
            self._pods[_node(pod)][pod["metadata"]["uid"]] = pod
        for name in self._nodes:
            self._counts[name] = len(self._on(name))
            self._since[name] = now
            self._note_readiness(name, now)
        self._follow("nodes", self._core.list_node, nodes, self._node_event)
        self._follow("pods", self._list_pods, pods, self._pod_event)
        return self

    def __exit__(self, failure: object, *_: object) -> None:
        """Stop watching. A witness that has not seen everything fails the test, unless that has failed already."""
        if failure is None and not self._stopped:
            self.stop()
        self._stop()

    def stop(self) -> Watcher:
        """Catch up with everything that happened so far, stop, and return the witness with all that it saw."""
        try:
            self._catch_up()
        finally:
            self._stop()
        assert not self._problems, "\n".join(self._problems)
        return self

    # What it saw

    @property
    def crowded(self) -> list[str]:
        """Return the nodes that had two or more handler pods at any time that had not ended."""
        return sorted(name for name, seen in self.nodes.items() if any(each.handlers > 1 for each in seen.intervals))

    @property
    def without_ready_handler(self) -> list[str]:
        """Return the nodes that have no Ready handler at the end."""
        return sorted(name for name in self._nodes if name in self._unready_since)

    @property
    def restarted(self) -> dict[str, int]:
        """Return how many handlers were started on each node that had any."""
        return dict(Counter(start.node for start in self.starts))

    def started(self, sizes: Iterable[int]) -> list[list[str]]:
        """Return the nodes on which pool handlers were started, in order, in groups of these sizes and one of the rest.

        Each group is sorted, because the nodes of a batch are handed over at the same time.
        """
        nodes = iter([start.node for start in self.starts if start.daemonset != "virt-handler"])
        groups = [sorted(itertools.islice(nodes, size)) for size in sizes]
        more = list(nodes)
        return [*groups, more] if more else groups

    @property
    def handlers(self) -> dict[str, list[str]]:
        """Return for each node the DaemonSets of its handler pods at the end."""
        with self._lock:
            return {name: sorted(_daemonset(pod) for pod in self._on(name)) for name in self._nodes}

    @property
    def images(self) -> dict[str, list[str]]:
        """Return for each node the images of its handler containers at the end."""
        return {name: sorted(_image(pod) for pod in self._on(name)) for name in self._nodes}

    def gaps(self) -> dict[str, float]:
        """Return for each node that had no Ready handler at any time the longest such time, in seconds."""
        with self._lock:
            return {name: max(seen.unready) for name, seen in self.nodes.items() if seen.unready}

    # Inside

    def _list(self, function: Any, **arguments: Any) -> Object:
        return dict(json.loads(function(_preload_content=False, **arguments).data))

    def _list_pods(self, **arguments: Any) -> Any:
        return self._core.list_namespaced_pod(self._namespace, label_selector=COMPONENT, **arguments)

    def _follow(self, what: str, function: Any, listed: Object, handle: Any) -> None:
        self._version[what] = listed["metadata"]["resourceVersion"]
        self._last[what] = {obj["metadata"]["uid"]: obj for obj in listed["items"]}
        thread = threading.Thread(target=self._watch, args=(what, function, handle), daemon=True)
        thread.start()
        self._threads.append(thread)

    def _watch(self, what: str, function: Any, handle: Any) -> None:
        try:
            while not self._stopped:
                # Each watch goes on where the last one ended: the API server ends every watch after a while.
                self._watch_or_recover(what, function, handle)
        except Exception as error:  # noqa: BLE001 (in a thread: whatever it is must reach the test)
            if not self._stopped:
                self._problems.append(f"The watch of {what} failed: {type(error).__name__}: {error}")

    def _watch_or_recover(self, what: str, function: Any, handle: Any) -> None:
        try:
            self._watch_once(what, function, handle)
        except _Gone:
            self._recover(what, function, handle)
        except (HTTPError, client.ApiException) as error:
            # An API server that has just started forbids everything until it has read the roles.
            if isinstance(error, client.ApiException) and error.status < 500 and error.status != HTTPStatus.FORBIDDEN:
                raise
            self._rest()

    @staticmethod
    def _rest() -> None:
        time.sleep(0.1)

    def _watch_once(self, what: str, function: Any, handle: Any) -> None:
        try:
            response = function(
                watch=True,
                resource_version=self._version[what],
                allow_watch_bookmarks=True,
                timeout_seconds=3600,
                _preload_content=False,
            )
        except client.ApiException as error:
            raise _Gone if error.status == 410 else error from error
        self._responses[what] = response
        for line in _lines(response):
            self._take(what, json.loads(line), handle)

    def _take(self, what: str, event: Object, handle: Any) -> None:
        obj = event["object"]
        if event["type"] == "ERROR":
            raise _Gone if obj.get("code") == 410 else RuntimeError(f"the watch of {what} got {obj}")
        with self._lock:
            self._version[what] = obj["metadata"]["resourceVersion"]
            if event["type"] != "BOOKMARK":
                self._apply(what, event["type"], obj, handle)

    def _apply(self, what: str, kind: str, obj: Object, handle: Any) -> None:
        if kind == "DELETED":
            self._last[what].pop(obj["metadata"]["uid"], None)
        else:
            self._last[what][obj["metadata"]["uid"]] = obj
        handle(kind, obj, time.monotonic())

    def _recover(self, what: str, function: Any, handle: Any) -> None:
        """Go through all states since the last event. Each is one write of the cluster, be it to one of these objects or not."""
        present = int(self._list(function)["metadata"]["resourceVersion"])
        for version in range(int(self._version[what]) + 1, present + 1):
            exactly = {"resource_version": str(version), "resource_version_match": "Exact"}
            listed = {obj["metadata"]["uid"]: obj for obj in self._list(function, **exactly)["items"]}
            with self._lock:
                self._compare(what, listed, handle)
                self._version[what] = str(version)

    def _compare(self, what: str, listed: dict[str, Object], handle: Any) -> None:
        last = self._last[what]
        for uid in last.keys() - listed.keys():
            self.recovered += 1
            self._apply(what, "DELETED", last[uid], handle)
        for uid, obj in listed.items():
            if uid not in last or last[uid]["metadata"]["resourceVersion"] != obj["metadata"]["resourceVersion"]:
                self.recovered += 1
                self._apply(what, "MODIFIED" if uid in last else "ADDED", obj, handle)

    def _node_event(self, kind: str, node: Object, now: float) -> None:
        name = node["metadata"]["name"]
        marker = (node["metadata"].get("annotations") or {}).get("watcher")
        if marker in self._markers:
            self._markers.pop(marker).set()
        if kind == "DELETED":
            self._nodes.pop(name, None)
            return
        self._since.setdefault(name, now)
        self._note_node(node, now)

    def _note_node(self, node: Object, now: float) -> None:
        metadata = node["metadata"]
        labels = metadata.get("labels") or {}
        if CONTROL_PLANE in labels:
            return  # handlers do not tolerate its taint; one that was still started there is among the starts
        name = metadata["name"]
        self._nodes[name] = node
        owner = labels.get(OWNER, PRIMARY)
        seen = self.nodes[name]
        if not seen.owners or seen.owners[-1] != owner:
            if seen.owners and seen.owners[-1] == IN_TRANSIT:
                # The two watches are not in step: the owner may be seen before the end of the handler that it waited for.
                seen.unowned.append(0.0 if self._counts[name] else now - self._since[name])
            seen.owners.append(owner)

    def _pod_event(self, kind: str, pod: Object, now: float) -> None:
        uid = pod["metadata"]["uid"]
        if not _is_handler(pod):
            if pod["metadata"]["name"] in self._markers:
                self._markers.pop(pod["metadata"]["name"]).set()
            return
        node = _node(pod)
        pods = self._pods[node]
        if kind == "DELETED":
            pods.pop(uid, None)
        else:
            if uid not in pods:
                self.starts.append(Start(node, _daemonset(pod), pod["metadata"]["name"]))
            pods[uid] = pod
        self._note_count(node, now)
        self._note_readiness(node, now)

    def _note_count(self, node: str, now: float) -> None:
        pods = self._on(node)
        count = len(pods)
        if count > 1 and any(OWNER in pod["metadata"]["labels"] for pod in pods):
            self.crowded_by_pools.add(node)
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
        """Return the handler pods of the node, each from its creation on, even before it is bound, until it has ended."""
        return [pod for pod in self._pods[node].values() if not _ended(pod)]

    def _catch_up(self) -> None:
        """Wait until both watches have delivered a write of ours, and so everything before it."""
        pod_marker, node_marker = (f"watcher-{what}-{time.time_ns()}" for what in ("pod", "node"))
        self._markers = {name: threading.Event() for name in (pod_marker, node_marker)}
        waiting = list(self._markers.values())
        labels = {COMPONENT: "watcher"}
        # There is no scheduler of this name, so the pod never runs.
        spec = {"schedulerName": "none", "containers": [{"name": "none", "image": "none.example/none:1"}]}
        self._core.create_namespaced_pod(
            self._namespace, {"metadata": {"name": pod_marker, "labels": labels}, "spec": spec}
        )
        node = next(iter(self._nodes))
        self._core.patch_node(node, {"metadata": {"annotations": {"watcher": node_marker}}}, _preload_content=False)
        try:
            self._cluster.wait(
                lambda: self._problems or all(each.is_set() for each in waiting), 30, "the watches to catch up"
            )
        finally:
            self._core.delete_namespaced_pod(pod_marker, self._namespace, grace_period_seconds=0)
            self._core.patch_node(node, {"metadata": {"annotations": {"watcher": None}}}, _preload_content=False)

    def _stop(self) -> None:
        if self._stopped:
            return
        self._stopped = True
        now = time.monotonic()
        with self._lock:
            for name, count in self._counts.items():
                self.nodes[name].intervals.append(Interval(count, self._since.get(name, now), now))
        for response in [*self._responses.values()]:
            with contextlib.suppress(OSError, RuntimeError, ValueError):  # it has just ended
                response.shutdown()  # close would wait for the thread that reads, until the next event or bookmark


class _Gone(Exception):
    """The API server no longer has the next event of a watch."""


def _lines(response: Any) -> Any:
    buffer = b""
    for chunk in response.stream(amt=None, decode_content=False):
        *lines, buffer = (buffer + chunk).split(b"\n")
        yield from (line for line in lines if line)


def _is_handler(pod: Object) -> bool:
    return bool(pod["metadata"]["labels"][COMPONENT] == "virt-handler")


def _node(pod: Object) -> str:
    """Return the node of a DaemonSet's pod; before the pod is bound, the one that its affinity names."""
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


def _ended(pod: Object) -> bool:
    """Tell whether only the object is left: a kubelet writes the final phase when all containers have ended, and then deletes the pod."""
    return "deletionTimestamp" in pod["metadata"] and pod["status"]["phase"] in ("Succeeded", "Failed")


def _ready(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or []
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    return ready and not pod["metadata"].get("deletionTimestamp")
