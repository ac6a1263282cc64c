# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""A cluster to play nasty cases on: what tests look at, and what they break."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import playbooks
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
HANDLER_KNOB = "standin.virtpools.io/handler"
# Written by handlers all the time.
LIVELY = ("kubevirt.io/heartbeat", "kubevirt.io/schedulable", HANDLER_KNOB)
# A proxy in the environment has no way to this machine's loopback.
ENVIRONMENT = {**os.environ, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
MODULES = "ansible_collections.virtpools.kubevirt.plugins.modules"


def pool(name: str, accelerator: str, **fields: Any) -> Object:
    """Return a pool of the nodes with this accelerator."""
    return {
        "name": name,
        "nodeSelector": {"accelerator": accelerator},
        "virtHandlerImage": f"registry.example/virt-handler:v1.9.0-{name}",
        **fields,
    }


class Scene:
    """A cluster, its user who runs playbooks, and quick ways to look."""

    def __init__(self, cluster: LocalCluster, kubevirt: str = "kubevirt") -> None:
        """Give the user of playbooks the rights of the shipped ClusterRole; the KubeVirt object has this name."""
        self.cluster = cluster
        self._kubevirt = kubevirt
        self.writer = Account.make(cluster, "writer")

    # Runs

    def start(self, pools: Sequence[Mapping[str, Any]], *arguments: str, **variables: Any) -> RunningPlaybook:
        """Start the playbook site, patient for as long as things take on a local cluster."""
        quick = {"virtpools_node_timeout": 30, "virtpools_pull_timeout": 30, "virtpools_max_unavailable": "100%"}
        return playbooks.start("site", self.writer.kubeconfig, pools, *arguments, **{**quick, **variables})

    def site(self, pools: Sequence[Mapping[str, Any]], *arguments: str, **variables: Any) -> Run:
        """Run the playbook site to its end, whatever that is."""
        return self.start(pools, *arguments, **variables).wait()

    def refused(self, pools: Sequence[Mapping[str, Any]], **variables: Any) -> str:
        """Return the error of a run that was refused before it wrote anything."""
        with self.no_writes():
            run = self.site(pools, **variables)
        assert "Traceback" not in run.stdout + run.stderr
        return run.refused()

    def settled(self, pools: Sequence[Mapping[str, Any]], **variables: Any) -> Run:
        """Return a run that finds nothing to do, and writes nothing."""
        with self.no_writes():
            run = self.site(pools, **variables).succeeded()
        assert run.changed == 0, str(run)
        return run

    @contextmanager
    def no_writes(self) -> Iterator[None]:
        """Fail when the user of playbooks writes anything meanwhile."""
        marker = self.cluster.audit_marker()
        yield
        assert self.writes(marker) == []

    def writes(self, marker: int, resource: str | None = None) -> list[str]:
        """Return what playbooks wrote since then, of one resource or of all but the Lease."""
        written = self.cluster.writes(marker, self.writer.user)
        return [str(write) for write in written if resource is None or write.resource == resource]

    # Looks

    def get(self, *what: str) -> Object:
        """Return an object or a list, of KubeVirt's namespace if it is in any."""
        return dict(json.loads(self.cluster.kubectl("get", "-n", NAMESPACE, "-o", "json", *what)))

    def node(self, name: str) -> Object:
        """Return what should stay as it is of a node's metadata."""
        metadata = self.get("node", name)["metadata"]
        return {
            part: {key: value for key, value in metadata.get(part, {}).items() if key not in LIVELY}
            for part in ("labels", "annotations")
        }

    def owners(self) -> dict[str, str]:
        """Return every node's owner label; nodes of the primary, which have none, are left out."""
        labels = {node["metadata"]["name"]: node["metadata"]["labels"] for node in self.get("nodes")["items"]}
        return {name: found[OWNER] for name, found in labels.items() if OWNER in found}

    def handlers(self) -> dict[str, list[str]]:
        """Return the images of the handlers on every node that has any."""
        found: dict[str, list[str]] = {}
        for each in self.get("pods", "-l", "kubevirt.io=virt-handler")["items"]:
            found.setdefault(each["spec"].get("nodeName", ""), []).append(each["spec"]["containers"][0]["image"])
        return found

    def info(self) -> Object:
        """Return what the module pool_info says."""
        found = self.module("pool_info")
        assert not found.get("failed"), found
        return found

    def module(self, name: str, *, check: bool = False, **arguments: Any) -> Object:
        """Return what a module says, be it a failure. Run without Ansible, which takes seconds more to start it."""
        asked = {"kubeconfig": str(self.writer.kubeconfig), "_ansible_check_mode": check, **arguments}
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump({"ANSIBLE_MODULE_ARGS": asked}, file)
            file.flush()
            command = [sys.executable, "-m", f"{MODULES}.{name}", file.name]
            ended = subprocess.run(command, capture_output=True, text=True, check=False, env=ENVIRONMENT)
        assert ended.stdout.startswith("\n{") or ended.stdout.startswith("{"), ended.stdout + ended.stderr
        return dict(json.loads(ended.stdout))

    def findings(self) -> dict[str, str]:
        """Return the messages of pool_info's findings by their code."""
        return {finding["code"]: finding["message"] for finding in self.info()["findings"]}

    def kubevirt(self) -> Object:
        """Return the KubeVirt object."""
        return self.get("kubevirt", self._kubevirt)

    # Disturbances

    def apply(self, obj: Object) -> None:
        """Create or change an object, as the administrator."""
        self.cluster.kubectl("apply", "-f", "-", stdin=json.dumps(obj))

    def patch(self, what: str, *patch: Mapping[str, Any], merge: Mapping[str, Any] | None = None) -> None:
        """Change an object by the operations of a JSON patch, or by a merge patch, as the administrator."""
        how = ("merge", merge) if merge is not None else ("json", list(patch))
        self.cluster.kubectl("patch", "-n", NAMESPACE, *what.split("/"), f"--type={how[0]}", "-p", json.dumps(how[1]))

    def knob(self, node: str, value: str | None) -> None:
        """Set how a node treats handler pods."""
        self.cluster.set_node_annotation(node, HANDLER_KNOB, value)

    def restart_seconds(self, node: str) -> float:
        """Return how long a node has no Ready handler when its pod is deleted: what one takes to stop, and one to start."""
        pods = self.get("pods", "-l", "kubevirt.io=virt-handler", f"--field-selector=spec.nodeName={node}")["items"]
        with Watcher(self.cluster) as watcher:
            self.cluster.kubectl("delete", "pod", "-n", NAMESPACE, "--wait=false", pods[0]["metadata"]["name"])
            self.cluster.wait(lambda: watcher.starts and not watcher.without, 60, f"a new handler on {node}")
            return watcher.stop().gaps()[node]

    def exclude_primary(self) -> None:
        """Make the exclusion beforehand, for tests of what comes then: virt-operator may restart handlers one by one.

        The administrator restarts all at once instead.
        """
        self.wait_until_settled()
        with ThreadPoolExecutor(1) as pool:
            excluded = pool.submit(self.module, "primary_exclusion")

            def restarts() -> bool:
                status = self.get("daemonset", "virt-handler")["status"]
                behind = status.get("updatedNumberScheduled", 0) < status["desiredNumberScheduled"]
                return bool(behind or excluded.done())

            self.cluster.wait(restarts, 120, "virt-operator to restart handlers", interval=0.5)
            self.cluster.kubectl("delete", "pods", "-n", NAMESPACE, "-l", "kubevirt.io=virt-handler", "--wait=false")
            assert excluded.result().get("changed"), excluded.result()

    def wait_until_settled(self) -> None:
        """Wait until KubeVirt has taken in the latest change and all its handlers are Ready."""

        def settled() -> bool:
            kubevirt, primary = self.kubevirt(), self.get("daemonset", "virt-handler")
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
