# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""A running kind cluster, as tests use it: through the API as a LocalCluster, and through the engine as a machine room."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml
from kubernetes import client, config

from local_cluster.credentials import SYSTEM_NAMESPACE
from local_cluster.errors import ClusterError
from local_cluster.kubectl import WithKubectl

from . import engine


@dataclass(frozen=True)
class Options:
    """The options of a LocalCluster that helpers of tests ask for."""

    namespace: str = "kubevirt"


@dataclass(frozen=True)
class Container:
    """A running container, as the container runtime of a node says."""

    pod: str
    name: str
    image: str
    """The name of its image, or its digest where the image has no name any more."""
    image_id: str
    id: str


class KindCluster(WithKubectl):
    """A kind cluster. What it shares with a LocalCluster has the same names, so that helpers of tests take either."""

    def __init__(self, name: str, kubeconfig: Path) -> None:
        """Use a running cluster by the administrator's kubeconfig."""
        self.name = name
        self.kubeconfig = kubeconfig
        self.options = Options()
        self.dir = Path(tempfile.mkdtemp(prefix="virtpools-kind-"))

    def close(self) -> None:
        """Remove the files that belong to this object; the cluster stays."""
        shutil.rmtree(self.dir, ignore_errors=True)

    # Through the API

    @cached_property
    def api_client(self) -> Any:
        """A client with the administrator's rights."""
        return config.new_client_from_config(str(self.kubeconfig))

    @property
    def _core(self) -> Any:
        return client.CoreV1Api(self.api_client)

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl as the administrator, on the control plane's node, which has the one that fits; return its output."""
        given = list(arguments)
        at = given.index("-f") + 1 if "-f" in given else None
        if at and given[at] != "-" and "://" not in given[at]:
            stdin, given[at] = Path(given[at]).read_text("utf-8"), "-"
        return self.on(
            f"{self.name}-control-plane", "kubectl", "--kubeconfig=/etc/kubernetes/admin.conf", *given, stdin=stdin
        )

    def get(self, *what: str, namespace: str = "kubevirt") -> dict[str, Any]:
        """Return an object or a list."""
        return dict(json.loads(self.kubectl("get", "-n", namespace, "-o", "json", *what)))

    def keep_state(self, folder: Path) -> None:
        """Write down what a person reads who looks for the cause of a failure. What cannot be read is replaced by the reason."""
        folder.mkdir(parents=True, exist_ok=True)
        whole = ("--all-containers", "--prefix", "--tail=-1", "--max-log-requests=50")
        asked = {
            "objects.yaml": ("get", "vmi,vmim,pods,daemonsets,nodes,kubevirt", "-A", "-o", "yaml"),
            "events.txt": ("get", "events", "-A", "--sort-by=.lastTimestamp"),
            "handlers.log": ("logs", "-n", self.options.namespace, "-l", "kubevirt.io=virt-handler", *whole),
            "launchers.log": ("logs", "-n", "default", "-l", "kubevirt.io=virt-launcher", *whole),
        }
        for name, arguments in asked.items():
            try:
                said = self.kubectl(*arguments)
            except ClusterError as error:
                said = str(error)
            (folder / name).write_text(said, "utf-8")

    def kubeconfig_for(self, name: str, cluster_roles: Iterable[str] = ()) -> Path:
        """Make a ServiceAccount with these ClusterRoles unless it exists; return a kubeconfig for it, valid one day."""
        manifests = [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM_NAMESPACE}},
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": SYSTEM_NAMESPACE}},
            *(_binding(name, role) for role in cluster_roles),
        ]
        self.kubectl("apply", "-f", "-", stdin="\n---\n".join(map(json.dumps, manifests)))
        token = self.kubectl("create", "token", "-n", SYSTEM_NAMESPACE, name, "--duration=24h").strip()
        content = yaml.safe_load(self.kubeconfig.read_text("utf-8"))
        content["users"] = [{"name": each["name"], "user": {"token": token}} for each in content["users"]]
        file = self.dir / f"{name}.kubeconfig"
        file.write_text(yaml.safe_dump(content), "utf-8")
        file.chmod(0o600)
        return file

    def wait(self, condition: Callable[[], object], timeout: float, what: str, interval: float = 0.5) -> None:
        """Wait until a condition holds; also while the API server does not answer."""
        deadline = time.monotonic() + timeout
        failure = ""
        while time.monotonic() < deadline:
            try:
                if condition():
                    return
                failure = ""
            except ClusterError as error:
                failure = f" ({error})"
            time.sleep(interval)
        raise AssertionError(f"Waited {timeout:g} s for {what}.{failure}")

    # Through the engine

    @cached_property
    def nodes(self) -> list[str]:
        """The names of all nodes, which are those of their containers."""
        label = f"io.x-k8s.kind.cluster={self.name}"
        return sorted(engine.run("ps", "--all", "--filter", f"label={label}", "--format", "{{.Names}}").split())

    def on(self, node: str, *command: str, stdin: str | None = None) -> str:
        """Run a command on a node and return what it prints."""
        return engine.run("exec", "-i", node, *command, stdin=stdin)

    def containers(self, node: str) -> list[Container]:
        """Return the containers that run on a node, by its container runtime."""
        listed = json.loads(self.on(node, "crictl", "ps", "--state", "Running", "--output", "json"))["containers"]
        names = {
            each["id"]: each for each in json.loads(self.on(node, "crictl", "images", "--output", "json"))["images"]
        }
        found = []
        for each in listed:
            image = names.get(each["imageRef"], {})
            # crictl says of a container what the kubelet asked for; of images, which names they have.
            asked = each["image"].get("userSpecifiedImage") or next(iter(image.get("repoTags") or []), each["imageRef"])
            found.append(
                Container(
                    each["labels"]["io.kubernetes.pod.name"],
                    each["metadata"]["name"],
                    asked,
                    each["imageRef"],
                    each["id"],
                )
            )
        return found

    def started(self, node: str, container: Container) -> datetime:
        """Return when a container started, in whole seconds of the node's clock, by its container runtime."""
        status = json.loads(self.on(node, "crictl", "inspect", "--output", "json", container.id))["status"]
        return datetime.fromisoformat(status["startedAt"][:19] + "+00:00")

    def image_id(self, node: str, image: str) -> str:
        """Return the id that a node's container runtime has for an image by this name."""
        return str(json.loads(self.on(node, "crictl", "inspecti", "--output", "json", image))["status"]["id"])

    def reboot(self, node: str) -> None:
        """Restart a node: everything in it ends at once and starts again."""
        engine.run("restart", "--time", "0", node)


def _binding(account: str, role: str) -> dict[str, Any]:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"{SYSTEM_NAMESPACE}-{account}-{role}"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": SYSTEM_NAMESPACE}],
    }
