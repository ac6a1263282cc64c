# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""What tests of operator mode share: the builds, their pools, and a cluster of one build with its user."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

import playbooks
from full_dump import dump
from playbooks import Run, RunningPlaybook
from scenario import TWO_HANDLERS, Object, Scenario

DEVICE = "nvidia.com/GA100_A100_PCIE_40GB"
VERSION = "v1.9.0"
QUICK = {"virtpools_mode": "operator", "virtpools_settle_timeout": 300}


@dataclass(frozen=True)
class Build:
    """What tests must know of a build. ``labelled``: what names the pool of a launcher pod; ``forgotten``: containers of a pool's
    handler that keep the stock image."""

    name: str
    labelled: str
    selectors: dict[str, Object]
    forgotten: bool = False


BY_VM = {"gpu": {"deviceNames": [DEVICE]}, "edge": {"vmLabels": {"matchLabels": {"site": "edge"}}}}
BY_NODES = {name: {"matchNodeSelector": True} for name in BY_VM}
A = Build("additionalVirtHandlers", "kubevirt.io/handler-pool", BY_NODES)
B = Build("virtHandlerPools", "kubevirt.io/handler-pool", BY_VM)
C = Build("WorkerPool", "kubevirt.io/worker-pool", BY_VM, forgotten=True)


class OperatorModeScenario(Scenario):
    """A cluster of one build, and what its user does and sees."""

    def __init__(self, build: Build, *arguments: Any) -> None:
        """Take the build, and what a scenario takes."""
        super().__init__(*arguments)
        self.build = build

    def pool(self, name: str, tag: str = "", version: str = VERSION, **fields: Any) -> Object:
        """Return a pool in our own form, as far as the build can say it."""
        return {
            "name": name,
            "nodeSelector": {"accelerator": name},
            "virtHandlerImage": f"registry.example/virt-handler:{version}-{name}{tag}",
            "virtLauncherImage": f"registry.example/virt-launcher:{version}-{name}{tag}",
            "selector": self.build.selectors[name],
            "unmatched": "allow",
            **fields,
        }

    def pools(self) -> list[Object]:
        """Return the list of most tests."""
        return [self.pool("gpu"), self.pool("edge")]

    def play(self, playbook: str, pools: list[Object] | None = None, *arguments: str, **variables: Any) -> Run:
        """Run a playbook to its end, be it success or failure."""
        return playbooks.run(playbook, self.writer.kubeconfig, pools, *arguments, **{**QUICK, **variables})

    def again(self, pools: list[Object], **variables: Any) -> None:
        """Run site once more, which must write nothing."""
        with self.no_writes():
            run = self.play("site", pools, **variables).succeeded()
        assert run.changed == 0, str(run)

    def start_site(self, pools: list[Object], **variables: Any) -> RunningPlaybook:
        """Start site."""
        return playbooks.start("site", self.writer.kubeconfig, pools, **{**QUICK, **variables})

    def handler_pods(self) -> dict[str, str]:
        """Return the UID of the one handler pod of each node."""
        pods = self.get("pods", "-l", "kubevirt.io=virt-handler")["items"]
        by_node = {pod["spec"]["nodeName"]: str(pod["metadata"]["uid"]) for pod in pods}
        assert len(by_node) == len(pods), "one handler on each node"
        return by_node

    def names(self) -> list[str]:
        """Return the names of all DaemonSets of handlers."""
        return sorted(each["metadata"]["name"] for each in self.get("daemonsets")["items"])

    def state(self) -> dict[str, Object]:
        """Return everything in the cluster, without what Kubernetes and the agent count and keep of what has been.

        Kubernetes keeps former templates of Deployments. Some builds bring the primary back before the pool's handlers have
        gone, and the agent notes that.
        """
        objects = {key: obj for key, obj in dump(self.cluster).items() if not key.startswith("replicasets.apps ")}
        for obj in objects.values():
            noted = {"Deployment": "deployment.kubernetes.io/revision", "Node": TWO_HANDLERS}.get(obj["kind"])
            if noted is None:
                continue
            annotations = obj["metadata"].get("annotations", {})
            annotations.pop(noted, None)
            if not annotations:
                obj["metadata"].pop("annotations", None)
        return objects


def only_on(scenario: OperatorModeScenario, *builds: Build) -> None:
    """Skip the test on other builds than these."""
    if scenario.build not in builds:
        pytest.skip(f"told on {' and '.join(build.name for build in builds)} only")
