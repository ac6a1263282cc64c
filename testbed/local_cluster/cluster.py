# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""Run local clusters: start and stop them, restart their components, and read what was requested of them."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from kubernetes import client, config, dynamic

from . import audit, credentials, kubevirt, paths, processes, programs, seeds
from . import instance as instances
from .credentials import SYSTEM_NAMESPACE
from .errors import ClusterError
from .fleet import Fleet
from .go import Log
from .instance import Instance, Options
from .kubectl import WithKubectl
from .programs import AGENT
from .reading import Reader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

KUBELET_ANNOTATION = "agent.virtpools.io/kubelet"
NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")

T = TypeVar("T")


class LocalCluster(WithKubectl):
    """A cluster that runs on this machine; also a context manager that stops it."""

    patience: ClassVar[float] = 1
    """How many times longer than on an idle machine things may take."""

    def __init__(self, instance: Instance) -> None:
        """Use ``start`` or ``attach`` instead."""
        self._instance = instance

    @classmethod
    def start(
        cls,
        name: str,
        fleet: Fleet | Path | None = None,
        *,
        hco: bool = False,
        kubevirt: str = programs.KUBEVIRT,
        kubernetes: str = programs.KUBERNETES,
        namespace: str = "kubevirt",
        build: str = "",
        agent: str = "",
        api_server: str = "",
        log: Log = print,
    ) -> LocalCluster:
        """Start a cluster, or return the one that runs already with the same options.

        kubevirt and kubernetes are versions; without KubeVirt, nothing runs pods. namespace is KubeVirt's. build is one of
        BUILDS, to play a build with pools of its own. agent and api_server hold further arguments of these programs, as in
        "--migration-duration 5s".
        """
        _check(name)
        if not isinstance(fleet, Fleet):
            fleet = Fleet.load(fleet) if fleet else Fleet.plain(3)
        digest = hashlib.sha256(json.dumps(fleet.objects(), sort_keys=True).encode()).hexdigest()[:16]
        options = Options(digest, hco, kubevirt, kubernetes, namespace, agent, api_server, build)
        with paths.locked(paths.clusters() / f".{name}.lock"):
            running = cls._running(name)
            if running and running.options == options:
                return cls(running)
            if running:
                raise ClusterError(f"Cluster {name} runs with another fleet or other options: stop it first.")
            return cls._start_new(name, options, fleet, log)

    @classmethod
    def _start_new(cls, name: str, options: Options, fleet: Fleet, log: Log) -> LocalCluster:
        wanted = options.kubevirt or None
        built = programs.build(log, agent=bool(wanted), kubevirt=wanted, kubernetes=options.kubernetes)
        seed = cls.seed(options, built, log) if wanted else None
        _remove(name)
        cluster = cls(instances.create(name, options, built, seed))
        started = time.monotonic()
        nodes = fleet.objects()
        log(f"Starting cluster {name} with {len(nodes)} node(s) ...")
        cluster._bring_up(nodes, lambda: cluster._adopt(fleet) if wanted else None)
        log(f"Cluster {name} is up after {time.monotonic() - started:.0f} s.")
        return cluster

    @classmethod
    def seed(cls, options: Options, built: programs.Programs, log: Log = print) -> Path:
        """Return the cluster at rest from which such clusters start, made now unless there is one."""

        def plant(name: str, kept: Options) -> LocalCluster:
            return cls._plant(name, kept, built)

        return seeds.find(options, built, plant, log)

    @classmethod
    def _plant(cls, name: str, options: Options, built: programs.Programs) -> LocalCluster:
        """Start a cluster from nothing and install KubeVirt in it."""
        _remove(name)
        cluster = cls(instances.create(name, options, built))
        folder = built.kubevirt
        cluster._bring_up(kubevirt.SEED.objects(), lambda: kubevirt.install(cluster, folder) if folder else None)
        return cluster

    def _adopt(self, fleet: Fleet) -> None:
        """Wait until the KubeVirt of a seed works with the nodes of this cluster."""
        kubevirt.permit_devices(self, fleet.devices())
        self.wait(lambda: kubevirt.works(self), 120, "KubeVirt to be available", interval=0.25)

    @classmethod
    def attach(cls, name: str) -> LocalCluster:
        """Return a cluster that runs already."""
        _check(name)
        running = cls._running(name)
        if running is None:
            raise ClusterError(f"Cluster {name} does not run.")
        return cls(running)

    @staticmethod
    def _running(name: str) -> Instance | None:
        instance = instances.load(name)
        if instance is None or not (instance.dir / "complete").exists():
            return None
        return instance if all(state(instance).values()) else None

    def __enter__(self) -> LocalCluster:
        """Return the cluster itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the cluster."""
        self.stop()

    def stop(self) -> None:
        """Stop all components and remove the cluster's folder."""
        stop(self.name)

    # What it is

    @property
    def name(self) -> str:
        """Return the cluster's name."""
        return self._instance.name

    @property
    def dir(self) -> Path:
        """Return the folder of everything that belongs to the cluster."""
        return self._instance.dir

    @property
    def logs(self) -> Path:
        """Return the folder of the components' logs."""
        return self.dir / "logs"

    @property
    def options(self) -> Options:
        """Return the options with which the cluster was started."""
        return self._instance.options

    def components(self) -> list[str]:
        """Return the components in the order of their start."""
        return self._instance.components()

    def add_kubevirt(self, version: str, log: Log = print) -> Path:
        """Let the cluster's nodes run another version of KubeVirt too, and return the folder of its programs."""
        folder = programs.build_one("KubeVirt", version, log)
        self._instance.add_kubevirt(version, folder)
        return folder

    @property
    def kubeconfig(self) -> Path:
        """Return the administrator's kubeconfig."""
        return self._instance.kubeconfig("admin")

    @cached_property
    def api_client(self) -> client.ApiClient:
        """Return the administrator's API client."""
        configuration = client.Configuration()
        config.load_kube_config(str(self.kubeconfig), client_configuration=configuration)
        # A proxy that the environment names cannot reach this machine's loopback.
        configuration.proxy = None
        configuration.connection_pool_maxsize = 16
        return client.ApiClient(configuration)

    @cached_property
    def admin(self) -> dynamic.DynamicClient:
        """Return the administrator's dynamic client."""
        return dynamic.DynamicClient(self.api_client)

    @property
    def _core(self) -> client.CoreV1Api:
        return client.CoreV1Api(self.api_client)

    @cached_property
    def _reader(self) -> Reader:
        return Reader(self.api_client)

    # Use it

    def get(self, *what: str, namespace: str = "default") -> dict[str, Any]:
        """Return what ``kubectl get -o json`` would print for the administrator, without starting a kubectl."""
        return self._reader.get(*what, namespace=namespace)

    @property
    def kubectl_program(self) -> Path:
        """The kubectl that fits the cluster."""
        return Path(self._instance.kubernetes) / "kubectl"

    def kubectl(self, *arguments: str, stdin: str | None = None, kubeconfig: Path | None = None) -> str:
        """Run kubectl, by default as the administrator, and return its output."""
        command = [
            str(self.kubectl_program),
            f"--kubeconfig={kubeconfig or self.kubeconfig}",
            f"--cache-dir={self.dir / 'kubectl-cache'}",
            *arguments,
        ]
        # Without garbage collection it needs a quarter less processor time; it ends before it needs much memory.
        result = subprocess.run(
            command, input=stdin, capture_output=True, text=True, check=False, env={**os.environ, "GOGC": "off"}
        )
        if result.returncode != 0:
            raise ClusterError(f"kubectl {' '.join(arguments)} failed: {result.stderr.strip()}")
        return result.stdout

    def kubeconfig_for(self, name: str, cluster_roles: Iterable[str] = ()) -> Path:
        """Make a ServiceAccount with these ClusterRoles unless it exists; return a kubeconfig for it, valid one day."""
        account = {"metadata": {"name": name, "namespace": SYSTEM_NAMESPACE}}
        _unless_exists(lambda: self._core.create_namespace({"metadata": {"name": SYSTEM_NAMESPACE}}))
        _unless_exists(lambda: self._core.create_namespaced_service_account(SYSTEM_NAMESPACE, account))
        for role in cluster_roles:
            self._bind(name, role)
        request = {"spec": {"expirationSeconds": 24 * 3600, "audiences": []}}
        token = self._core.create_namespaced_service_account_token(name, SYSTEM_NAMESPACE, request).status.token
        file = self._instance.kubeconfig(f"{SYSTEM_NAMESPACE}:{name}")
        here = self._instance
        credentials.write_kubeconfig(file, self.name, here.server, here.authority, name, token)
        return file

    def _bind(self, name: str, role: str) -> None:
        binding = {
            "metadata": {"name": f"{SYSTEM_NAMESPACE}-{name}-{role}"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": SYSTEM_NAMESPACE}],
        }
        rbac = client.RbacAuthorizationV1Api(self.api_client)
        _unless_exists(lambda: rbac.create_cluster_role_binding(binding))

    def add_nodes(self, fleet: Fleet, timeout: float = 120) -> None:
        """Add nodes and wait until they are ready."""
        self._create_nodes(fleet.objects())
        self._wait_for_nodes({name for group in fleet.groups for name in group.names()}, timeout)

    def set_node_annotation(self, node: str, key: str, value: str | None) -> None:
        """Set an annotation of a node; None removes it."""
        self._core.patch_node(node, {"metadata": {"annotations": {key: value}}})

    def set_kubelet(self, node: str, *, up: bool) -> None:
        """Take a node's kubelet down, or bring it back, and wait until the node shows it."""
        self.set_node_annotation(node, KUBELET_ANNOTATION, None if up else "down")
        self.wait(lambda: (node in self._ready_nodes()) == up, 30, f"node {node} to be {'ready' if up else 'lost'}")

    # Read what was requested, and written

    def audit_marker(self) -> int:
        """Return a marker of this moment, for ``writes`` and ``requests``."""
        self._flush_audit_log()
        return self._instance.audit_log.stat().st_size

    def writes(self, since: int = 0, user: str | None = None) -> list[audit.Write]:
        """Return the successful mutating requests since a marker, without dry runs and access reviews."""
        self._flush_audit_log()
        all_writes = audit.writes(audit.read(self._instance.audit_log, since))
        return [write for write in all_writes if user is None or write.user == user]

    def requests(self, since: int, user: str) -> list[audit.Entry]:
        """Return the audit log's entries of all requests of a ServiceAccount since a marker."""
        self._flush_audit_log()
        return [entry for entry in audit.read(self._instance.audit_log, since) if entry["user"]["username"] == user]

    def _flush_audit_log(self) -> None:
        # The server sends a response shortly before it writes the entry: wait for the entry of a later request of ours.
        name = f"audit-marker-{time.time_ns()}"
        size = self._instance.audit_log.stat().st_size
        self._core.create_namespaced_config_map("default", {"metadata": {"name": name}}, dry_run="All")

        def logged() -> bool:
            entries = audit.read(self._instance.audit_log, size)
            return any(entry.get("objectRef", {}).get("name") == name for entry in entries)

        self.wait(logged, 10, "the audit log", interval=0.01)

    def pid(self, component: str) -> int:
        """Return the process id of a component, which must run."""
        process = processes.recall(self._pid_file(component))
        if process is None:
            raise ClusterError(f"Cluster {self.name}: {component} does not run; its log is in {self.logs}.")
        return process.pid

    # Disturb it

    def stop_component(self, component: str, *, kill: bool = False) -> None:
        """Stop a component gracefully, or kill it as a crash would."""
        process = processes.recall(self._pid_file(component))
        if process:
            process.stop(patience=0 if kill else 5)

    def start_component(self, component: str) -> None:
        """Start a stopped component on its former port and wait until it works."""
        process = processes.recall(self._pid_file(component))
        if not (process and process.alive()):
            self._spawn(component)
        self._wait_for_component(component)

    def restart(self, component: str, *, kill: bool = False) -> None:
        """Stop a component and start it again."""
        self.stop_component(component, kill=kill)
        self.start_component(component)

    def wait(self, predicate: Callable[[], T], timeout: float = 60, what: str = "it", interval: float = 0.2) -> T:
        """Return the predicate's result as soon as it is true; timeout is in seconds on an idle machine."""
        timeout *= self.patience
        deadline = time.monotonic() + timeout
        while not (result := predicate()):
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"Cluster {self.name}: waited {timeout:g} s in vain for {what}; logs are in {self.logs}."
                )
            time.sleep(interval)
        return result

    # Inside

    def _pid_file(self, component: str) -> Path:
        known = self._instance.components()
        if component not in known:
            raise ClusterError(f"Cluster {self.name} has no component {component!r}, only {', '.join(known)}.")
        return self._instance.pid_file(component)

    def _bring_up(self, nodes: Sequence[dict[str, Any]], then: Callable[[], object]) -> None:
        try:
            self._spawn("etcd")
            self._wait_alive(lambda: seeds.renamed(self._instance.etcd), 60, "etcd", interval=0.02)
            self._spawn("kube-apiserver")
            self._wait_for_component("kube-apiserver")
            self._instance.write_kubeconfigs()
            for component in self.components()[2:]:
                self._spawn(component)
            self._create_nodes(nodes)
            self._wait_for_nodes({node["metadata"]["name"] for node in nodes}, timeout=180)
            self._wait_for_service_accounts()
            if self.options.kubevirt:
                self._wait_for_component(AGENT)
            then()
        except BaseException:
            # The folder stays: it has the logs. The next start removes it.
            _stop_processes(self._instance)
            raise
        (self.dir / "complete").touch()

    def _spawn(self, component: str) -> None:
        if component == AGENT:
            self._instance.ready_file.unlink(missing_ok=True)
        process = processes.spawn(
            self._instance.command(component), self._instance.log(component), self._instance.temporary
        )
        processes.remember(process, self._instance.pid_file(component))

    def _wait_for_component(self, component: str) -> None:
        if component == "kube-apiserver":
            self._wait_alive(self._apiserver_ready, 60, "the API server to be ready")
        elif component == AGENT:
            self._wait_alive(self._instance.ready_file.exists, 60, "nodes to run pods")

    def _apiserver_ready(self) -> bool:
        if not self._instance.authority.exists():
            return False
        try:
            context = ssl.create_default_context(cafile=str(self._instance.authority))
            connection = http.client.HTTPSConnection(
                "127.0.0.1", self._instance.apiserver_port, timeout=5, context=context
            )
            connection.request(
                "GET", "/readyz", headers={"Authorization": f"Bearer {self._instance.tokens()['admin']}"}
            )
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False

    def _wait_for_nodes(self, names: set[str], timeout: float) -> None:
        self._wait_alive(
            lambda: names <= self._ready_nodes(), timeout, f"{len(names)} node(s) to be ready", interval=0.5
        )

    def _wait_for_service_accounts(self) -> None:
        """Wait until pods can be created: each needs its namespace's default ServiceAccount."""

        def exists() -> bool:
            accounts = self._core.list_namespaced_service_account("default", field_selector="metadata.name=default")
            return bool(accounts.items)

        self._wait_alive(exists, 60, "the controller manager")

    def _wait_alive(self, predicate: Callable[[], bool], timeout: float, what: str, interval: float = 0.1) -> None:
        """Wait, but fail at once when a component that was started is dead."""

        def checked() -> bool:
            for component, alive in state(self._instance).items():
                if alive is False:
                    raise ClusterError(self._obituary(component))
            return predicate()

        self.wait(checked, timeout, what, interval)

    def _obituary(self, component: str) -> str:
        log = self._instance.log(component)
        tail = "\n".join(log.read_text("utf-8", errors="replace").splitlines()[-20:])
        return f"Cluster {self.name}: {component} ended unexpectedly; the end of {log}:\n{tail}"

    def _create_nodes(self, nodes: Sequence[dict[str, Any]]) -> None:
        with ThreadPoolExecutor(8) as pool:
            # It takes half the time if the answers are not decoded.
            list(pool.map(lambda node: self._core.create_node(node, _preload_content=False), nodes))

    def _ready_nodes(self) -> set[str]:
        """Return the nodes that are ready and have no taint that says otherwise."""
        answer = self._core.list_node(_preload_content=False, resource_version="0")
        return {node["metadata"]["name"] for node in json.loads(answer.data)["items"] if _is_ready(node)}


def state(instance: Instance) -> dict[str, bool | None]:
    """Return for each component whether it is alive; None if it was never started."""
    recalled = {component: processes.recall(instance.pid_file(component)) for component in instance.components()}
    return {component: process.alive() if process else None for component, process in recalled.items()}


def stop(name: str) -> bool:
    """Stop a cluster, even a half-dead one, and remove its folder; return whether there was one."""
    _check(name)
    with paths.locked(paths.clusters() / f".{name}.lock"):
        return _remove(name)


def keep_logs(cluster: LocalCluster) -> Path:
    """Copy a cluster's logs to where they survive it, and return that folder."""
    kept = paths.state() / "logs" / cluster.name
    shutil.rmtree(kept, ignore_errors=True)
    shutil.copytree(cluster.logs, kept)
    shutil.copy(cluster.dir / "audit.log", kept)
    return kept


def _remove(name: str) -> bool:
    instance = instances.load(name)
    if instance:
        _stop_processes(instance)
    existed = instances.directory(name).exists()
    shutil.rmtree(instances.directory(name), ignore_errors=True)
    return existed


def _stop_processes(instance: Instance) -> None:
    # In reverse order, so that none complains about the others; killed at once, since their data is removed anyway.
    components = instance.components()
    # Others, such as Kyverno, were started beside them.
    beside = {file.name for file in instance.pid_file("").iterdir()} - {*components}
    for component in [*beside, *reversed(components)]:
        process = processes.recall(instance.pid_file(component))
        if process:
            process.stop(patience=0)


def _is_ready(node: dict[str, Any]) -> bool:
    conditions = {each["type"]: each["status"] for each in node["status"].get("conditions", [])}
    taints = {taint["key"] for taint in node["spec"].get("taints", [])}
    return conditions.get("Ready") == "True" and not taints & {
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    }


def _unless_exists(create: Callable[[], object]) -> None:
    try:
        create()
    except client.ApiException as error:
        if error.status != 409:
            raise


def _check(name: str) -> None:
    if sys.platform != "linux":
        raise ClusterError("The local control plane needs Linux.")
    if not NAME.fullmatch(name):
        raise ClusterError(f"{name!r} cannot name a cluster: use lower-case letters, digits and dashes.")
