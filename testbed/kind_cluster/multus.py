# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""Multus, which attaches pods to the networks that their annotations name, besides their first one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from local_cluster import programs
from local_cluster.go import Log

from . import engine
from .cluster import KindCluster

GROUP = "k8s.cni.cncf.io"
DEFINITIONS = f"network-attachment-definitions.{GROUP}"
PLACES = "/usr/lib/cni /opt/cni/bin"
"""Where nodes have plugins, as Debian and as kind place them."""
CONFIGURATIONS = "/etc/cni/net.d"
# The container runtime takes the first by name.
CONFIGURATION, KUBECONFIG = f"{CONFIGURATIONS}/00-multus.conf", "/etc/cni/multus.kubeconfig"


def build(log: Log = print) -> list[Path]:
    """Build Multus and the plugin of our networks if the cache lacks them; return the programs."""
    multus = programs.build_one("Multus", programs.MULTUS, log) / "multus"
    return [multus, programs.build_one("Bridge", programs.BRIDGE, log) / "bridge"]


@contextmanager
def installed(kind: KindCluster, log: Log = print) -> Iterator[None]:
    """Let Multus attach the pods that are created in this block. At its end none of them should exist any more."""
    plugins = build(log)
    # Multus may read definitions and pods, and write what a pod got into its status: here as the administrator.
    access = kind.on(f"{kind.name}-control-plane", "cat", "/etc/kubernetes/admin.conf")
    try:
        kind.kubectl("apply", "-f", "-", stdin=json.dumps(_resource()))
        kind.kubectl("wait", "--for=condition=Established", f"crd/{DEFINITIONS}", "--timeout=60s")
        for node in kind.nodes:
            _install(kind, node, plugins, access)
        yield
    finally:
        for node in kind.nodes:
            kind.on(node, "rm", "-f", CONFIGURATION, KUBECONFIG)
        kind.kubectl("delete", "crd", DEFINITIONS, "--ignore-not-found")


def bridge(name: str, namespace: str = "default") -> dict[str, Any]:
    """Return a network whose pods of one node share a bridge; it gives them no addresses."""
    config = {"cniVersion": "0.4.0", "name": name, "type": "bridge", "bridge": name}
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"config": json.dumps(config)},
    }


def _install(kind: KindCluster, node: str, plugins: list[Path], access: str) -> None:
    folder = kind.on(node, "sh", "-c", f"for each in {PLACES}; do [ -e $each/ptp ] && echo $each; done; true").strip()
    for plugin in plugins:
        engine.run("cp", str(plugin), f"{node}:{folder}/{plugin.name}")
    kind.on(node, "sh", "-c", f"umask 077; cat > {KUBECONFIG}", stdin=access)
    first = kind.on(node, "sh", "-c", f"cat {CONFIGURATIONS}/*.conflist")
    configuration = {
        "cniVersion": "0.4.0",
        "name": "multus",
        "type": "multus",
        "binDir": folder,
        "kubeconfig": KUBECONFIG,
        "capabilities": {"portMappings": True},
        "delegates": [json.loads(first)],
    }
    kind.on(node, "sh", "-c", f"cat > {CONFIGURATION}", stdin=json.dumps(configuration))


def _resource() -> dict[str, Any]:
    config = {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": {"config": {"type": "string"}}}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": DEFINITIONS},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "plural": "network-attachment-definitions",
                "singular": "network-attachment-definition",
                "kind": "NetworkAttachmentDefinition",
                "shortNames": ["net-attach-def"],
            },
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": config}}],
        },
    }
