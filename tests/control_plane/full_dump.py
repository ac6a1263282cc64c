# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""Everything that a cluster holds, so that two moments can be compared: whatever is left behind shows."""

from __future__ import annotations

import copy
import json
from typing import Any

from local_cluster import LocalCluster

Object = dict[str, Any]

LEFT_OUT = {
    "events": "the control plane reports what happened, for an hour",
    "events.events.k8s.io": "the same again",
    "controllerrevisions.apps": "Kubernetes keeps former templates of a DaemonSet",
    "endpoints": "addresses of pods, which were replaced",
    "endpointslices.discovery.k8s.io": "the same again",
    "componentstatuses": "not stored",
    "pods": "handlers were replaced; see `handlers`",
    "leases.coordination.k8s.io": "control plane and kubelets renew theirs all the time; see `ours`",
}
SERVER_SET = {
    "metadata": ("creationTimestamp", "generation", "managedFields", "resourceVersion", "uid"),
    "annotations": (
        "deprecated.daemonset.template.generation",  # Kubernetes counts changes
        "kubevirt.io/generation",  # KubeVirt counts changes
        "kubevirt.io/customizer-identifier",  # KubeVirt notes by which customizeComponents an object was made
        "kubevirt.io/heartbeat",  # handlers write it all the time
        "node.alpha.kubernetes.io/ttl",  # Kubernetes writes it when the number of nodes changes
    ),
    "labels": ("kubevirt.io/schedulable",),  # handlers write it all the time
}


def dump(cluster: LocalCluster) -> dict[str, Object]:
    """Return every object of every kind, normalised, by kind, namespace and name."""
    kinds = cluster.kubectl("api-resources", "--verbs=list", "-o", "name").split()
    found = {}
    for kind in sorted(set(kinds) - set(LEFT_OUT)):
        for item in json.loads(cluster.kubectl("get", kind, "-A", "-o", "json"))["items"]:
            metadata = item["metadata"]
            found[f"{kind} {metadata.get('namespace', '')}/{metadata['name']}"] = normalised(item)
    return found


def ours(cluster: LocalCluster) -> list[str]:
    """Return the Leases and pods that only runs of ours make."""
    leases = cluster.kubectl("get", "leases", "-A", "-o", "name", "--field-selector=metadata.name=virtpools")
    return [*leases.split(), *cluster.kubectl("get", "pods", "-A", "-o", "name", "-l", "virtpools.io/pull").split()]


def handlers(cluster: LocalCluster) -> dict[str, list[str]]:
    """Return the labels and annotations of the handler pods on every node, but for what names their template."""
    found: dict[str, list[str]] = {}
    for pod in json.loads(cluster.kubectl("get", "pods", "-A", "-l", "kubevirt.io=virt-handler", "-o", "json"))[
        "items"
    ]:
        metadata = normalised(pod)["metadata"]
        hashes = ("controller-revision-hash", "pod-template-generation")
        labels = {key: value for key, value in metadata["labels"].items() if key not in hashes}
        noted = json.dumps([labels, metadata.get("annotations")], sort_keys=True)
        found.setdefault(pod["spec"]["nodeName"], []).append(noted)
    return found


def normalised(item: Object) -> Object:
    """Return what users and controllers ask for: no status, and nothing that a server sets by itself."""
    kept = {key: value for key, value in copy.deepcopy(item).items() if key != "status"}
    for key in SERVER_SET["metadata"]:
        kept["metadata"].pop(key, None)
    for field in ("labels", "annotations"):
        values = {k: v for k, v in (kept["metadata"].pop(field, None) or {}).items() if k not in SERVER_SET[field]}
        if values:
            kept["metadata"][field] = values
    return kept


def differences(before: dict[str, Object], after: dict[str, Object]) -> dict[str, tuple[Object | None, Object | None]]:
    """Return the objects that came, went or changed."""
    return {
        key: (before.get(key), after.get(key))
        for key in before.keys() | after.keys()
        if before.get(key) != after.get(key)
    }
