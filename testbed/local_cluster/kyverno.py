# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""Run Kyverno's own admission controller beside a local cluster, as a process that the API server calls at an address."""

from __future__ import annotations

import http.client
import json
import shutil
import ssl
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import yaml
from kubernetes import client

from . import credentials, processes, programs
from . import instance as instances
from .errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from .cluster import LocalCluster
    from .go import Log

NAME = "kyverno"
NAMESPACE = "kyverno"
CONTROLLER = "kyverno-admission-controller"
"""The Deployment of the admission controller, and its ServiceAccount."""
# Of the cluster's own loopback addresses; KubeVirt's programs have the first ones.
HOST, PORT = 5, 9443
# The Lease in which Kyverno notes every few seconds that it is alive; without a recent note it registers no policy.
HEALTH, ALIVE = "kyverno-health", "kyverno.io/last-request-time"

Object = dict[str, Any]


@dataclass(frozen=True)
class Kyverno:
    """Kyverno in a local cluster; it stops with the cluster."""

    cluster: LocalCluster
    folder: Path
    """The program and its manifest."""

    @classmethod
    def install(cls, cluster: LocalCluster, version: str = programs.KYVERNO, log: Log = print) -> Kyverno:
        """Install Kyverno, run its admission controller, and wait until it works.

        Its other controllers are left out: reports, background scans and cleaning up change no pod that is created.
        """
        kyverno = cls(cluster, programs.build_one("Kyverno", version, log))
        manifest = kyverno._manifest()
        # Kyverno reads its own Deployment.
        kyverno._apply(each for each in manifest if each["kind"] != "Deployment" or _is_controller(each))
        kyverno._write_kubeconfig()
        kyverno.start()
        return kyverno

    def start(self) -> None:
        """Run the admission controller and wait until it works."""
        started = datetime.now(timezone.utc).replace(microsecond=0)
        process = processes.spawn(self._command(), self.log, self._instance.temporary)
        processes.remember(process, self._instance.pid_file(NAME))
        self.cluster.wait(lambda: self._works(process, started), 60, "Kyverno to work", interval=0.5)

    def stop(self, *, kill: bool = False) -> None:
        """Stop the admission controller, or kill it as a crash would."""
        process = processes.recall(self._instance.pid_file(NAME))
        if process:
            process.stop(patience=0 if kill else 10)

    @property
    def log(self) -> Path:
        """Return its log."""
        return self._instance.log(NAME)

    @property
    def _instance(self) -> instances.Instance:
        instance = instances.load(self.cluster.name)
        if instance is None:
            raise ClusterError(f"Cluster {self.cluster.name} does not run.")
        return instance

    def _manifest(self) -> list[Object]:
        documents = yaml.load_all((self.folder / "kyverno.yaml").read_text("utf-8"), yaml.CSafeLoader)
        return [document for document in documents if document]

    def _apply(self, objects: Iterable[Object]) -> None:
        items = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self.cluster.kubectl("apply", "--server-side", "--validate=false", "-f", "-", stdin=json.dumps(items))

    def _write_kubeconfig(self) -> None:
        """Give the program the rights of its ServiceAccount."""
        here = self._instance
        token = self.cluster.kubectl("create", "token", CONTROLLER, "-n", NAMESPACE, "--duration=24h").strip()
        file = here.kubeconfig(NAME)
        credentials.write_kubeconfig(file, here.name, here.server, here.authority, CONTROLLER, token)

    def _command(self) -> list[str]:
        """Return the command of the Deployment's container, changed for a process out of the cluster."""
        here = self._instance
        (container,) = _deployment(self._manifest())["spec"]["template"]["spec"]["containers"]
        ours = {
            "--kubeconfig": here.kubeconfig(NAME),
            "--serverIP": f"{self._address}:{PORT}",
            "--webhookServerHost": self._address,
            "--webhookServerPort": PORT,
            "--metricsHost": self._address,
            "--controllerRuntimeMetricsAddress": "0",
        }
        given = [each for each in container["args"] if each.partition("=")[0] not in ours]
        environment = {each["name"]: each["value"] for each in container["env"] if "value" in each}
        environment |= {
            "KYVERNO_NAMESPACE": NAMESPACE,
            "KYVERNO_POD_NAME": CONTROLLER,
            "TUF_ROOT": str(here.dir / "tuf"),
        }
        return [
            shutil.which("env") or "/usr/bin/env",
            *(f"{name}={value}" for name, value in environment.items()),
            str(self.folder / NAME),
            *given,
            *(f"{name}={value}" for name, value in ours.items()),
        ]

    def _works(self, process: processes.Process, started: datetime) -> bool:
        """Return whether it is ready for requests, and has registered its webhooks since it was started."""
        if not process.alive():
            raise ClusterError(f"Kyverno ended unexpectedly; its log is {self.log}.")
        leases = client.CoordinationV1Api(self.cluster.api_client).list_namespaced_lease(NAMESPACE).items
        alive = (lease.metadata.annotations[ALIVE] for lease in leases if lease.metadata.name == HEALTH)
        return any(datetime.fromisoformat(at) >= started for at in alive) and self._ready()

    def _ready(self) -> bool:
        # Kyverno signs its certificate itself, and this asks for nothing but a yes.
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection(self._address, PORT, timeout=5, context=context)
        try:
            connection.request("GET", "/health/readiness")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    @property
    def _address(self) -> str:
        return f"{self._instance.network}.{HOST}"


def _is_controller(obj: Object) -> bool:
    return bool(obj["kind"] == "Deployment" and obj["metadata"]["name"] == CONTROLLER)


def _deployment(manifest: Iterable[Object]) -> Object:
    return next(each for each in manifest if _is_controller(each))
