# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""What a cluster has of the Prometheus operator here: the API of PrometheusRule, and nobody who acts on it."""

from __future__ import annotations

from typing import Any

from local_cluster import LocalCluster

Object = dict[str, Any]

DURATION = {
    "type": "string",
    "pattern": "^(0|(([0-9]+)y)?(([0-9]+)w)?(([0-9]+)d)?(([0-9]+)h)?(([0-9]+)m)?(([0-9]+)s)?(([0-9]+)ms)?)$",
}
TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
RULE = {
    "type": "object",
    "required": ["expr"],
    "properties": {
        "record": {"type": "string"},
        "alert": {"type": "string"},
        "expr": {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True},
        "for": DURATION,
        "keep_firing_for": {**DURATION, "minLength": 1},
        "labels": TEXTS,
        "annotations": TEXTS,
    },
}
GROUPS = {
    "type": "array",
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["name"],
    "items": {
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": {"type": "string", "minLength": 1},
            "interval": DURATION,
            "labels": TEXTS,
            "limit": {"type": "integer"},
            "partial_response_strategy": {"type": "string"},
            "query_offset": DURATION,
            "rules": {"type": "array", "items": RULE},
        },
    },
}
SPEC = {"type": "object", "properties": {"groups": GROUPS}}
CRD: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "prometheusrules.monitoring.coreos.com"},
    "spec": {
        "group": "monitoring.coreos.com",
        "scope": "Namespaced",
        "names": {"kind": "PrometheusRule", "plural": "prometheusrules", "singular": "prometheusrule"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "required": ["spec"], "properties": {"spec": SPEC}}},
            }
        ],
    },
}
"""With the schema of the Prometheus operator 0.80, which has no defaults."""


def install(cluster: LocalCluster) -> None:
    """Let the API server serve PrometheusRule."""
    cluster.apply(CRD)
    cluster.kubectl("wait", "--for=condition=Established", "crd", CRD["metadata"]["name"], "--timeout=60s")


def rules(cluster: LocalCluster) -> list[Object]:
    """Return all PrometheusRules of a cluster; none where the API server does not serve them."""
    if not cluster.kubectl("get", "crd", CRD["metadata"]["name"], "--ignore-not-found", "-o", "name").strip():
        return []
    return list(cluster.get("prometheusrules", "-A")["items"])
