# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""The state in which a run leaves a cluster: everything that a run may write, without what changes by itself."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import prometheus_operator
from full_dump import normalised, without_epoch
from local_cluster import LocalCluster
from watcher import NAMESPACE, OWNER, PRIMARY

Object = dict[str, Any]

# Handlers, kubelets and the control plane write these whatever we do.
LIVELY = ("kubevirt.io/heartbeat", "kubevirt.io/schedulable", "node.alpha.kubernetes.io/ttl")

POLICIES = (
    "mutatingadmissionpolicies,mutatingadmissionpolicybindings,"
    "validatingadmissionpolicies,validatingadmissionpolicybindings"
)


@dataclass(frozen=True)
class EndState:
    """The state of a cluster; a user sees no difference between two clusters, or two times, with equal ones."""

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
    alerts: list[Object]
    """The PrometheusRules."""
    newest_list: Object | None
    """The newest pool list of the history, with its options."""

    @classmethod
    def read(cls, cluster: LocalCluster) -> EndState:
        """Read the state of a cluster."""
        (kubevirt,) = _get(cluster, "kubevirts")["items"]
        leases = _get(cluster, "leases", "--field-selector=metadata.name=virtpools")["items"]
        policies = _get(cluster, POLICIES, "-l", "app.kubernetes.io/managed-by=virtpools")["items"]
        pulls = _get(cluster, "pods", "-l", "virtpools.io/pull")["items"]
        return cls(
            kubevirt["spec"],
            {item["metadata"]["name"]: _daemonset(item) for item in _get(cluster, "daemonsets")["items"]},
            {item["metadata"]["name"]: _node(item) for item in _get(cluster, "nodes")["items"]},
            [f"{item['kind']} {item['metadata']['name']}" for item in [*leases, *pulls]],
            {f"{item['kind']} {item['metadata']['name']}": _policy(item) for item in policies},
            [normalised(rule) for rule in prometheus_operator.rules(cluster)],
            _newest(_get(cluster, "configmaps", "--field-selector=metadata.name=virtpools-history")["items"]),
        )

    @property
    def owners(self) -> dict[str, str]:
        """Return the owner of every node."""
        return {name: node["labels"].get(OWNER, PRIMARY) for name, node in self.nodes.items()}

    def with_text(self, old: str, new: str) -> EndState:
        """Return the same state with one text, such as an image's tag, replaced by another."""

        def changed(value: Any) -> Any:
            return json.loads(json.dumps(value).replace(old, new))

        return EndState(
            changed(self.kubevirt),
            changed(self.daemonsets),
            self.nodes,
            self.leftovers,
            changed(self.policies),
            changed(self.alerts),
            changed(self.newest_list),
        )


def _get(cluster: LocalCluster, *what: str) -> Object:
    return cluster.get(*what, namespace=NAMESPACE)


def _daemonset(item: Object) -> Object:
    metadata = item["metadata"]
    annotations = metadata.get("annotations") or {}
    # Runs may reach the same state with more or fewer changes, which the first two count, and looks into images.
    of_the_way = (
        "deprecated.daemonset.template.generation",
        "kubevirt.io/generation",
        "virtpools.io/image-contents",
    )
    return {
        "labels": metadata.get("labels") or {},
        "annotations": {key: value for key, value in annotations.items() if key not in of_the_way},
        "spec": item["spec"],
    }


def _policy(item: Object) -> Object:
    return {"annotations": item["metadata"].get("annotations") or {}, "spec": without_epoch(item["spec"])}


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
