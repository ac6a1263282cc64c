# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""A cluster for tests of difficult cases: how they read its state, and how they disturb it."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import playbooks
from ansible_collections.virtpools.kubevirt.tests.unit.support.in_process import run_module
from ansible_collections.virtpools.kubevirt.tests.unit.support.roles import Play
from local_cluster import LocalCluster
from playbooks import Account, Run, RunningPlaybook
from watcher import Watcher

if TYPE_CHECKING:
    from collections.abc import Iterator

Object = dict[str, Any]

NAMESPACE = "kubevirt"
OWNER = "virtpools.io/pool"
FORMER_OWNER = "virtpools.io/former-owner"
OUR_REQUIREMENT = {"key": OWNER, "operator": "DoesNotExist"}
HANDLER_KNOB = "agent.virtpools.io/handler"
HANDS_OFF = "agent.virtpools.io/hands-off"
TWO_HANDLERS = "agent.virtpools.io/two-handlers"
HEARTBEAT = "kubevirt.io/heartbeat"
# Handlers write these all the time.
LIVELY = (HEARTBEAT, "kubevirt.io/schedulable", HANDLER_KNOB)
QUICK = {"virtpools_node_timeout": 30, "virtpools_pull_timeout": 30, "virtpools_max_unavailable": "100%"}
"""Options that suit a local cluster."""
# A proxy that the environment names cannot reach this machine's loopback. Modules run in this process.
os.environ.update(NO_PROXY="127.0.0.1", no_proxy="127.0.0.1")


def pool(name: str, accelerator: str, **fields: Any) -> Object:
    """Return a pool of the nodes with this accelerator."""
    return {
        "name": name,
        "nodeSelector": {"accelerator": accelerator},
        "virtHandlerImage": f"registry.example/virt-handler:v1.9.0-{name}",
        **fields,
    }


def gpu_pool(version: str, **selector: Any) -> Object:
    """Return the pool gpu with images of this version, for VMs that this selects."""
    return pool(
        "gpu",
        "a100",
        virtHandlerImage=f"registry.example/virt-handler:{version}-gpu",
        virtLauncherImage=f"registry.example/virt-launcher:{version}-gpu",
        selector=selector,
    )


def migration(vm: str, namespace: str = "default", name: str = "") -> Object:
    """Return a request to migrate a VM. Its name is the VM's unless another one is given."""
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstanceMigration",
        "metadata": {"name": name or vm, "namespace": namespace},
        "spec": {"vmiName": vm},
    }


class Scenario:
    """A cluster, the user who runs playbooks on it, and shortcuts to read and disturb it."""

    def __init__(self, cluster: LocalCluster, kubevirt: str = "kubevirt") -> None:
        """Give the user of playbooks the rights of the shipped ClusterRole; ``kubevirt`` names the KubeVirt object."""
        self.cluster = cluster
        self.namespace = cluster.options.namespace
        self._kubevirt = kubevirt
        self.writer = Account.make(cluster, "writer")

    # Runs

    def start(self, pools: Sequence[Mapping[str, Any]], *arguments: str, **variables: Any) -> RunningPlaybook:
        """Start the playbook site, with timeouts that suit a local cluster."""
        return playbooks.start("site", self.writer.kubeconfig, pools, *arguments, **{**QUICK, **variables})

    def site(self, pools: Sequence[Mapping[str, Any]], *arguments: str, **variables: Any) -> Run:
        """Run the playbook site to its end, be it success or failure."""
        return self.start(pools, *arguments, **variables).wait()

    def refused(self, pools: Sequence[Mapping[str, Any]], **variables: Any) -> str:
        """Return the error of a run that was refused before it wrote anything."""
        with self.no_writes():
            run = self.site(pools, **variables)
        assert "Traceback" not in run.stdout + run.stderr
        return run.refused()

    def settled(self, pools: Sequence[Mapping[str, Any]], **variables: Any) -> list[str]:
        """Repeat a run, which must succeed and write nothing, and return the lines that it shows.

        test_idempotence and the user journey repeat whole playbooks.
        """
        with self.no_writes():
            shown, changed = self._play(pools, variables)
        assert not changed, (changed, shown)
        return shown

    def set_up(self, pools: Sequence[Mapping[str, Any]], **variables: Any) -> None:
        """Bring these pools, for tests of what comes afterwards."""
        self._play(pools, variables)

    def _play(self, pools: Sequence[Mapping[str, Any]], variables: Mapping[str, Any]) -> tuple[list[str], list[str]]:
        """Play the role of the playbook site in this process; return the lines that it shows, and the modules that changed something.

        The same modules send the same requests, with the rights of the user; Ansible would take seconds more.
        """
        changed: list[str] = []
        options = {"virtpools_guard": False, "virtpools_pools": pools, **QUICK, **variables}

        def module(name: str, **arguments: Any) -> Object:
            result = self.module(name, guarded=options["virtpools_guard"] is not False, **arguments)
            changed.extend([name] if result.get("changed") else [])
            return result

        play = Play(module)
        play.role("pools", **options)
        return play.shown, changed

    @contextmanager
    def no_writes(self) -> Iterator[None]:
        """Fail if the user of playbooks writes anything meanwhile."""
        marker = self.cluster.audit_marker()
        yield
        written = self.writes(marker)
        assert not written, "\n".join(written)  # pytest explains only what is in a test file

    def writes(self, marker: int, resource: str | None = None) -> list[str]:
        """Return what the user of playbooks has written since the marker, to one resource or to all."""
        written = self.cluster.writes(marker, self.writer.user)
        return [str(write) for write in written if resource is None or write.resource == resource]

    # Reading

    def get(self, *what: str) -> Object:
        """Return an object or a list; namespaced ones are those of KubeVirt's namespace."""
        return self.cluster.get(*what, namespace=self.namespace)

    def node(self, name: str) -> Object:
        """Return a node's labels and annotations, without those that handlers write all the time."""
        metadata = self.get("node", name)["metadata"]
        return {
            part: {key: value for key, value in metadata.get(part, {}).items() if key not in LIVELY}
            for part in ("labels", "annotations")
        }

    def owners(self) -> dict[str, str]:
        """Return every node's owner label; nodes of the primary, which have none, are left out."""
        labels = {node["metadata"]["name"]: node["metadata"]["labels"] for node in self.get("nodes")["items"]}
        return {name: each[OWNER] for name, each in labels.items() if OWNER in each}

    def handlers(self) -> dict[str, list[str]]:
        """Return the images of the handlers by node; a node between two handlers has an empty list, and no key."""
        images: dict[str, list[str]] = defaultdict(list)
        for each in self.get("pods", "-l", "kubevirt.io=virt-handler")["items"]:
            images[each["spec"].get("nodeName", "")].append(each["spec"]["containers"][0]["image"])
        return images

    def info(self) -> Object:
        """Return what the module pool_info says."""
        result = self.module("pool_info")
        assert not result.get("failed"), result
        return result

    def module(self, name: str, *, check: bool = False, **arguments: Any) -> Object:
        """Return a module's result, even a failure; run it in this process, since Ansible or a process would take seconds more."""
        return dict(run_module(name, check=check, **{"kubeconfig": str(self.writer.kubeconfig), **arguments}))

    def findings(self) -> dict[str, str]:
        """Return the messages of pool_info's findings by their code."""
        return {finding["code"]: finding["message"] for finding in self.info()["findings"]}

    def kubevirt(self) -> Object:
        """Return the KubeVirt object."""
        return self.get("kubevirt", self._kubevirt)

    # Disturbances

    def apply(self, obj: Object) -> None:
        """Create or change an object, as the administrator."""
        self.cluster.apply(obj)

    def patch(self, what: str, *patch: Mapping[str, Any], merge: Mapping[str, Any] | None = None) -> None:
        """Change an object by the operations of a JSON patch, or by a merge patch, as the administrator."""
        how = ("merge", merge) if merge is not None else ("json", list(patch))
        self.cluster.kubectl(
            "patch", "-n", self.namespace, *what.split("/"), f"--type={how[0]}", "-p", json.dumps(how[1])
        )

    def knob(self, node: str, value: str | None) -> None:
        """Tell the agent how a node treats handler pods; None: as usual."""
        self.cluster.set_node_annotation(node, HANDLER_KNOB, value)

    def restart_seconds(self, *nodes: str) -> float:
        """Delete these nodes' handler pods at once; return the most seconds for which one of them has no Ready handler."""
        pods = self.get("pods", "-l", "kubevirt.io=virt-handler")["items"]
        names = [pod["metadata"]["name"] for pod in pods if pod["spec"]["nodeName"] in nodes]
        with Watcher(self.cluster) as watcher:
            self.cluster.kubectl("delete", "pod", "-n", self.namespace, "--wait=false", *names)
            self.cluster.wait(
                lambda: len(watcher.starts) == len(nodes) and not watcher.without_ready_handler, 300, "new handlers"
            )
            return max(watcher.stop().gaps().values())

    def exclude_primary(self) -> None:
        """Write the exclusion now, for tests of what a run does after it.

        virt-operator would restart the handlers one by one; to save time, the administrator restarts all at once.
        """
        self.wait_until_settled()
        with ThreadPoolExecutor(1) as pool:
            excluded = pool.submit(self.module, "primary_exclusion", settle_timeout=1800)

            def restarts() -> bool:
                status = self.get("daemonset", "virt-handler")["status"]
                behind = status.get("updatedNumberScheduled", 0) < status["desiredNumberScheduled"]
                return bool(behind or excluded.done())

            self.cluster.wait(restarts, 120, "virt-operator to restart handlers", interval=0.5)
            self.cluster.kubectl(
                "delete", "pods", "-n", self.namespace, "-l", "kubevirt.io=virt-handler", "--wait=false"
            )
            assert excluded.result().get("changed"), excluded.result()

    def wait_until_settled(self) -> None:
        """Wait until KubeVirt has acted on its latest change and all its handlers are Ready."""

        def settled() -> bool:
            kubevirt, primary = self.get(f"kubevirt/{self._kubevirt}", "daemonset/virt-handler")["items"]
            conditions = {each["type"]: each["status"] for each in kubevirt["status"]["conditions"]}
            status = primary["status"]
            return (
                kubevirt["status"].get("observedGeneration") == kubevirt["metadata"]["generation"]
                and (conditions["Available"], conditions["Degraded"]) == ("True", "False")
                and kubevirt["status"]["observedKubeVirtVersion"] == kubevirt["status"]["targetKubeVirtVersion"]
                and status["observedGeneration"] == primary["metadata"]["generation"]
                and status["desiredNumberScheduled"]
                == status.get("updatedNumberScheduled")
                == status.get("numberReady")
            )

        self.cluster.wait(settled, 90, "KubeVirt to settle", interval=0.5)
