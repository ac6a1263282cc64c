# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""What the tests of the kind cluster share: the pools, runs of playbooks, and looks at nodes by their container runtime."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import Any

import playbooks
from kind_cluster import registry
from kind_cluster.cluster import Container, KindCluster
from local_cluster.errors import ClusterError
from playbooks import RunningPlaybook
from scenario import OWNER, Object, Scenario
from watcher import Watcher

DEVICES = "devices.kubevirt.io/"
GPU: Object = {
    "name": "gpu",
    "nodeSelector": {"accelerator": "nvidia-a100"},
    "virtHandlerImage": "registry.example/virt-handler:gpu",
    "virtLauncherImage": "registry.example/virt-launcher:gpu",
    "selector": {"vmLabels": {"matchLabels": {"workload": "gpu"}}},
}
"""The pool of the scenario's inventory; a test compares them."""
PATIENT: Object = {
    "virtpools_node_timeout": 600,
    "virtpools_pull_timeout": 120,
    "virtpools_max_unavailable": "100%",
}
"""Variables of runs with the patience that a machine under load needs."""


def l4(handler: str = "b", launcher: str = "b", **fields: Any) -> Object:
    """Return a pool of the node with the other platform, with these variants of the images."""
    return {
        "name": "l4",
        "nodeSelector": {"accelerator": "nvidia-l4"},
        "virtHandlerImage": handler if "/" in handler else f"{registry.KNOWN}/virt-handler:{handler}",
        "virtLauncherImage": launcher if "/" in launcher else f"{registry.KNOWN}/virt-launcher:{launcher}",
        "selector": {"vmLabels": {"matchLabels": {"workload": "l4"}}},
        **fields,
    }


@dataclass
class Marks:
    """What virt-handler and the kubelet wrote on a node, each time that it changed, with the seconds since the beginning."""

    seen: list[tuple[float, dict[str, str]]] = field(default_factory=list)

    def seconds(self, of: Callable[[dict[str, str]], bool]) -> float:
        """Return for how long the marks were such as this function says, until they changed for the last time."""
        return sum(later - at for (at, state), (later, _) in pairwise(self.seen) if of(state))


class KindScenario(Scenario):
    """A kind cluster whose first pool has its nodes, and one node with another platform that tests play with."""

    def __init__(self, kind: KindCluster, images: registry.Registry) -> None:
        """Make what tests need once: the user of playbooks, and variants of KubeVirt's own images in the registry."""
        super().__init__(kind)  # type: ignore[arg-type]  # it has what a Scenario uses
        self.kind = kind
        nodes = self.get("nodes")["items"]
        platforms = {each["metadata"]["name"]: each["metadata"]["labels"].get("accelerator", "") for each in nodes}
        self.gpu_nodes = sorted(name for name, platform in platforms.items() if platform == "nvidia-a100")
        self.l4_node = next(name for name, platform in platforms.items() if platform == "nvidia-l4")
        self.other_nodes = sorted({*kind.nodes} - {*self.gpu_nodes, self.l4_node})
        self.control_plane = f"{kind.name}-control-plane"
        self.stock = self.stock_images()
        self.images = images
        for what in self.stock:
            for tag in "bc":
                self.push(what, tag)

    def push(self, what: str, tag: str, host: str = registry.KNOWN, base: str | None = None, **changes: Any) -> str:
        """Push a variant of one of KubeVirt's own images, and return the name by which nodes pull it from this host.

        :param base: another image instead of KubeVirt's own.
        :param changes: see ``registry.variant``.
        """
        made = registry.variant(base or self.stock[what], f"registry.example/{what}:{tag}", **changes)
        return self.images.push(made, f"{what}:{tag}", host)

    def stock_images(self) -> dict[str, str]:
        """Return the images of KubeVirt's own handler and launcher, as they are now."""
        pod = self.get("daemonset", "virt-handler")["spec"]["template"]["spec"]
        return {"virt-handler": pod["containers"][0]["image"], "virt-launcher": pod["initContainers"][0]["image"]}

    # Runs

    def start(self, pools: Sequence[Mapping[str, Any]], *arguments: str, **variables: Any) -> RunningPlaybook:
        """Start the playbook site."""
        return playbooks.start("site", self.writer.kubeconfig, pools, *arguments, **{**PATIENT, **variables})

    def restore(self) -> None:
        """Bring the cluster back to where each test begins: the first pool alone, all handlers Ready."""
        self.kind.kubectl("delete", "vmi", "--all", "--all-namespaces", "--ignore-not-found", "--wait=false")
        self.site([GPU], virtpools_prune=True).succeeded()

    # Looks

    def devices(self, node: str) -> dict[str, str]:
        """Return what a node has to give of KubeVirt's devices."""
        allocatable = self.get("node", node)["status"]["allocatable"]
        return {
            name.removeprefix(DEVICES): count for name, count in sorted(allocatable.items()) if name.startswith(DEVICES)
        }

    def marks(self, node: str) -> dict[str, str]:
        """Return the same, and what virt-handler itself writes: whether it takes VMs, and its heartbeat."""
        found = self.get("node", node)
        metadata, allocatable = found["metadata"], found["status"]["allocatable"]
        return {
            "owner": metadata["labels"].get(OWNER, "primary"),
            "schedulable": metadata["labels"].get("kubevirt.io/schedulable", ""),
            "heartbeat": metadata["annotations"].get("kubevirt.io/heartbeat", ""),
            **{name: count for name, count in sorted(allocatable.items()) if name.startswith(DEVICES)},
        }

    @contextmanager
    def watched(self, node: str) -> Iterator[Marks]:
        """Follow the marks of a node until the end of the block."""
        marks, stopped, begin = Marks(), threading.Event(), time.monotonic()

        def follow() -> None:
            while not stopped.wait(0.2):
                with contextlib.suppress(ClusterError):
                    state = self.marks(node)
                    if not marks.seen or marks.seen[-1][1] != state:
                        marks.seen.append((round(time.monotonic() - begin, 1), state))

        thread = threading.Thread(target=follow, daemon=True)
        thread.start()
        try:
            yield marks
        finally:
            stopped.set()
            thread.join(30)

    def running(self, node: str, name: str) -> list[Container]:
        """Return the containers of this name that run on a node, by its container runtime."""
        return [each for each in self.kind.containers(node) if each.name == name]

    def has_one_handler(self, node: str, image: str) -> None:
        """Fail unless exactly one handler runs on a node, with this image: by its container runtime, not by the API."""
        running = self.running(node, "virt-handler")
        assert [each.image_id for each in running] == [self.kind.image_id(node, image)], running

    def reported_after(self, node: str) -> float | None:
        """Return how many seconds after its start the only handler on a node sent its last heartbeat.

        Both are times of the node's clock, and the start is what its container runtime says. So less than 0 is the heartbeat
        of an earlier handler. None: there is no handler, or no heartbeat.
        """
        running = self.running(node, "virt-handler")
        beat = self.get("node", node)["metadata"]["annotations"].get("kubevirt.io/heartbeat")
        if len(running) != 1 or not beat:
            return None
        return (datetime.fromisoformat(beat) - self.kind.started(node, running[0])).total_seconds()

    def is_well(self, node: str) -> bool:
        """Say whether a node takes VMs, its handler itself has reported, and its devices are registered."""
        labels = self.get("node", node)["metadata"]["labels"]
        reported = self.reported_after(node)
        takes_vms = labels.get("kubevirt.io/schedulable") == "true"
        return takes_vms and reported is not None and reported >= 0 and self.devices(node).get("tun", "0") != "0"

    # Disturbances

    def create_vm(self, name: str, workload: str, namespace: str = "default") -> None:
        """Create a virtual machine instance that no guest will ever run in."""
        metadata = {"name": name, "namespace": namespace, "labels": {"workload": workload}}
        domain = {"devices": {}, "memory": {"guest": "64Mi"}, "resources": {"requests": {"memory": "64Mi"}}}
        spec = {"terminationGracePeriodSeconds": 0, "domain": domain}
        self.apply(
            {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": metadata, "spec": spec}
        )

    def launcher(self, name: str, namespace: str = "default") -> Object | None:
        """Return the launcher pod of a virtual machine instance."""
        pods = self.kind.get("pods", "-l", "kubevirt.io=virt-launcher", namespace=namespace)["items"]
        return next((pod for pod in pods if pod["metadata"]["annotations"]["kubevirt.io/domain"] == name), None)


__all__ = ["GPU", "OWNER", "PATIENT", "KindScenario", "Marks", "Object", "Watcher", "l4"]
