# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""A dump of everything in a cluster: the comparison of two dumps shows whatever was left behind."""

from __future__ import annotations

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
    "poddisruptionbudgets.policy": "virt-operator's follow virt-api's replicas, and these the number of nodes",
    "leases.coordination.k8s.io": "control plane and kubelets renew theirs all the time; see `ours`",
}
SERVER_SET = {
    "metadata": ("creationTimestamp", "generation", "managedFields", "resourceVersion", "uid"),
    "annotations": (
        "deprecated.daemonset.template.generation",  # Kubernetes counts changes
        "kubevirt.io/generation",  # KubeVirt counts changes
        "kubevirt.io/customizer-identifier",  # KubeVirt notes by which customizeComponents an object was made
        "kubevirt.io/heartbeat",  # handlers write it all the time
        "virtpools.io/image-contents",  # runs note which images they have looked into
        "node.alpha.kubernetes.io/ttl",  # Kubernetes writes it when the number of nodes changes
    ),
    "labels": ("kubevirt.io/schedulable",),  # handlers write it all the time
}

# virt-operator scales it with the number of nodes, some time after they have joined.
SCALED = "virt-api"

# virt-operator makes all certificates anew when customizeComponents change.
CERTIFICATES = ("caBundle", "ca-bundle", "tls.crt", "tls.key")


def dump(cluster: LocalCluster) -> dict[str, Object]:
    """Return every object of every kind, normalised, by kind, namespace and name."""
    kinds = _kinds(cluster)
    listed = sorted(set(kinds.values()) - set(LEFT_OUT))
    objects = {}
    for item in cluster.get(",".join(listed), "-A")["items"]:
        kind, metadata = kinds[item["apiVersion"], item["kind"]], item["metadata"]
        objects[f"{kind} {metadata.get('namespace', '')}/{metadata['name']}"] = normalised(item)
    return objects


def _kinds(cluster: LocalCluster) -> dict[tuple[str, str], str]:
    """Return what kubectl calls each kind that can be listed, by its API version and kind: ``daemonsets.apps``."""
    names = {}
    for line in cluster.kubectl("api-resources", "--verbs=list", "--no-headers").splitlines():
        plural, *_short_names, version, _namespaced, kind = line.split()
        group = version.rpartition("/")[0]
        names[version, kind] = f"{plural}.{group}" if group else plural
    return names


def ours(cluster: LocalCluster) -> list[str]:
    """Return the Leases and pods that only our runs create."""
    leases = cluster.kubectl("get", "leases", "-A", "-o", "name", "--field-selector=metadata.name=virtpools")
    return [*leases.split(), *cluster.kubectl("get", "pods", "-A", "-o", "name", "-l", "virtpools.io/pull").split()]


def handlers(cluster: LocalCluster) -> dict[str, list[str]]:
    """Return the labels and annotations of the handler pods of every node, without those that name their template."""
    by_node: dict[str, list[str]] = {}
    for pod in cluster.get("pods", "-A", "-l", "kubevirt.io=virt-handler")["items"]:
        metadata = normalised(pod)["metadata"]
        hashes = ("controller-revision-hash", "pod-template-generation")
        labels = {key: value for key, value in metadata["labels"].items() if key not in hashes}
        noted = json.dumps([labels, metadata.get("annotations")], sort_keys=True)
        by_node.setdefault(pod["spec"]["nodeName"], []).append(noted)
    return by_node


def normalised(item: Object) -> Object:
    """Return an object without its status, and without what the API server and controllers write by themselves."""
    kept = {key: _without_certificates(value) for key, value in item.items() if key != "status"}
    if item["kind"] == "Deployment" and item["metadata"]["name"] == SCALED:
        del kept["spec"]["replicas"]
    for key in SERVER_SET["metadata"]:
        kept["metadata"].pop(key, None)
    for field in ("labels", "annotations"):
        values = {k: v for k, v in (kept["metadata"].pop(field, None) or {}).items() if k not in SERVER_SET[field]}
        if values:
            kept["metadata"][field] = values
    if item["kind"] == "MutatingAdmissionPolicy":
        kept["spec"] = without_epoch(kept["spec"])
    return kept


def without_epoch(spec: Object) -> Object:
    """Return the spec of a policy without its epoch: that follows the time, and the number of tries."""
    return {**spec, "variables": [each for each in spec.get("variables", ()) if each["name"] != "epoch"]}


def _without_certificates(value: Any) -> Any:
    """Return a copy of a value in which each certificate and key is only known to be there."""
    if isinstance(value, dict):
        return {key: "…" if key in CERTIFICATES else _without_certificates(inner) for key, inner in value.items()}
    return [_without_certificates(inner) for inner in value] if isinstance(value, list) else value


def differences(before: dict[str, Object], after: dict[str, Object]) -> dict[str, tuple[Object | None, Object | None]]:
    """Return the objects that were created, deleted or changed, each before and after."""
    return {
        key: (before.get(key), after.get(key))
        for key in before.keys() | after.keys()
        if before.get(key) != after.get(key)
    }
