# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""What a cluster is left as: everything that a run may write, without what changes by itself."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from local_cluster import LocalCluster
from watcher import NAMESPACE, OWNER, PRIMARY

Object = dict[str, Any]

# Written by handlers and kubelets all the time, or by the control plane whatever we do.
LIVELY = ("kubevirt.io/heartbeat", "kubevirt.io/schedulable", "node.alpha.kubernetes.io/ttl")


@dataclass(frozen=True)
class EndState:
    """Two clusters, or one at two times, are the same to a user when these are equal."""

    kubevirt: Object
    """The spec."""
    daemonsets: dict[str, Object]
    """Spec, labels and annotations of each DaemonSet in KubeVirt's namespace."""
    nodes: dict[str, Object]
    """Labels, annotations, taints of each node."""
    leftovers: list[str]
    """Leases and pods that nobody needs after a run."""
    policies: dict[str, Object]
    """Spec and annotations of our admission policies and their bindings."""
    newest_list: Object | None
    """The list that the history has last, with its options."""

    @classmethod
    def of(cls, cluster: LocalCluster) -> EndState:
        """Look at a cluster."""
        kubevirt = _get(cluster, "kubevirt", "kubevirt")
        leases = _get(cluster, "leases")["items"]
        policies = _get(cluster, "mutatingadmissionpolicies,mutatingadmissionpolicybindings")["items"]
        pulls = _get(cluster, "pods", "-l", "virtpools.io/pull")["items"]
        return cls(
            kubevirt["spec"],
            {item["metadata"]["name"]: _daemonset(item) for item in _get(cluster, "daemonsets")["items"]},
            {item["metadata"]["name"]: _node(item) for item in _get(cluster, "nodes")["items"]},
            [f"{item['kind']} {item['metadata']['name']}" for item in [*leases, *pulls]],
            {f"{item['kind']} {item['metadata']['name']}": _policy(item) for item in policies},
            _newest(_get(cluster, "configmaps", "--field-selector=metadata.name=virtpools-history")["items"]),
        )

    @property
    def owners(self) -> dict[str, str]:
        """Return the owner of every node."""
        return {name: node["labels"].get(OWNER, PRIMARY) for name, node in self.nodes.items()}

    def with_text(self, old: str, new: str) -> EndState:
        """Return the same state with another text wherever one stands, an image's tag for instance."""

        def changed(value: Any) -> Any:
            return json.loads(json.dumps(value).replace(old, new))

        return EndState(
            changed(self.kubevirt),
            changed(self.daemonsets),
            self.nodes,
            self.leftovers,
            changed(self.policies),
            changed(self.newest_list),
        )


def _get(cluster: LocalCluster, *what: str) -> Object:
    return dict(json.loads(cluster.kubectl("get", "-n", NAMESPACE, "-o", "json", *what)))


def _daemonset(item: Object) -> Object:
    metadata = item["metadata"]
    annotations = metadata.get("annotations") or {}
    # Both count changes of the object: how often depends on the way to a state.
    counters = ("deprecated.daemonset.template.generation", "kubevirt.io/generation")
    return {
        "labels": metadata.get("labels") or {},
        "annotations": {key: value for key, value in annotations.items() if key not in counters},
        "spec": item["spec"],
    }


def _policy(item: Object) -> Object:
    return {"annotations": item["metadata"].get("annotations") or {}, "spec": item["spec"]}


def _newest(config_maps: list[Object]) -> Object | None:
    if not config_maps:
        return None
    newest = json.loads(config_maps[0]["data"]["entries"])[-1]
    return {key: newest[key] for key in ("options", "pools")}


def _node(item: Object) -> Object:
    return {
        **{
            part: {key: value for key, value in (item["metadata"].get(part) or {}).items() if key not in LIVELY}
            for part in ("labels", "annotations")
        },
        "taints": item["spec"].get("taints") or [],
    }
