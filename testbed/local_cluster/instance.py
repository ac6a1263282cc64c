# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""One cluster's folder: the files in it, its ports, and the command line of each of its components."""

from __future__ import annotations

import contextlib
import json
import shlex
import shutil
import socket
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import audit, credentials, paths
from .programs import AGENT, KUBERNETES, Programs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

STAGES = Path(__file__).with_name("kwok-stages.yaml")
# What a cluster is made of at rest.
STATE = ("etcd", "certs", "front-proxy", "tokens.csv", "service-account.key")
# Below the ports of outgoing connections: one of those could take a component's port while that restarts.
PORTS = range(20000, 32000)


@dataclass(frozen=True)
class Options:
    """The options with which a cluster was started."""

    fleet: str
    """Digest of its nodes."""
    hco: bool = False
    kubevirt: str = ""
    """KubeVirt's version; empty: Kubernetes alone."""
    kubernetes: str = KUBERNETES
    namespace: str = "kubevirt"
    """KubeVirt's namespace."""
    agent: str = ""
    """Further arguments of the agent, as one would write them in a shell."""
    api_server: str = ""
    """Further arguments of the API server."""
    build: str = ""
    """The build of KubeVirt with pools of its own that the agent plays; empty: stock KubeVirt."""


@dataclass(frozen=True)
class Instance:
    """What this process or a later one must know to run and stop a cluster's components."""

    name: str
    options: Options
    kubernetes: str
    """Folder of the programs."""
    agent: str
    apiserver_port: int
    etcd_port: int
    etcd_peer_port: int

    @property
    def dir(self) -> Path:
        """Return the folder that holds everything of this cluster."""
        return directory(self.name)

    @property
    def server(self) -> str:
        """Return the API server's address."""
        return f"https://127.0.0.1:{self.apiserver_port}"

    @property
    def etcd(self) -> str:
        """Return etcd's address."""
        return f"http://127.0.0.1:{self.etcd_port}"

    @property
    def authority(self) -> Path:
        """Return the certificate that the API server makes for itself at its first start."""
        return self.dir / "certs" / "apiserver.crt"

    @property
    def audit_log(self) -> Path:
        """Return the API server's audit log."""
        return self.dir / "audit.log"

    @property
    def ready_file(self) -> Path:
        """Return the file which the agent makes once nodes can run pods."""
        return self.dir / "agent-ready"

    @property
    def egress(self) -> Path:
        """Return the socket at which the API server asks for connections to pods; its path may have 107 characters."""
        return self.dir / "egress"

    @property
    def temporary(self) -> Path:
        """Return the folder of the components' temporary files."""
        return self.dir / "temporary"

    @property
    def kubevirt_programs(self) -> Path:
        """Return the folder that has a link to the folder of programs of each version of KubeVirt."""
        return self.dir / "kubevirt"

    @property
    def network(self) -> str:
        """Return the first part of this cluster's loopback addresses: no two clusters share a port."""
        return f"127.{self.apiserver_port >> 8}.{self.apiserver_port & 255}"

    def components(self) -> list[str]:
        """Return the components in the order of their start."""
        return [name for name in COMMANDS if name != AGENT or self.options.kubevirt]

    def kubeconfig(self, user: str) -> Path:
        """Return the kubeconfig of a user."""
        return self.dir / "kubeconfigs" / user.replace(":", "-")

    def log(self, component: str) -> Path:
        """Return a component's log."""
        return self.dir / "logs" / f"{component}.log"

    def pid_file(self, component: str) -> Path:
        """Return the file that remembers a component's process."""
        return self.dir / "run" / component

    def command(self, component: str) -> list[str]:
        """Return a component's command line."""
        program = self.agent if component == AGENT else str(Path(self.kubernetes) / component)
        return [program, *COMMANDS[component](self)]

    def tokens(self) -> dict[str, str]:
        """Return the tokens of the built-in users."""
        lines = (self.dir / "tokens.csv").read_text("utf-8").splitlines()
        return {user: token for token, user, *_ in (line.split(",") for line in lines)}

    def prepare(self, seed: Path | None = None) -> None:
        """Write the files that components need before their first start: new ones, or those of a seed."""
        for folder in ("logs", "run", "kubeconfigs", "kubevirt"):
            (self.dir / folder).mkdir(parents=True)
        if seed:
            copy_state(seed, self.dir)
        else:
            (self.dir / "certs").mkdir()
            credentials.create_tokens(self.dir / "tokens.csv")
            credentials.create_service_account_key(self.dir / "service-account.key")
            credentials.create_front_proxy(self.dir / "front-proxy")
        paths.write_atomically(self.dir / "audit-policy.json", json.dumps(audit.POLICY))
        paths.write_atomically(self.dir / "scheduler.json", json.dumps(_scheduler_configuration(self)))
        paths.write_atomically(self.dir / "egress.json", json.dumps(_egress_configuration(self)))

    def add_kubevirt(self, version: str, folder: Path) -> None:
        """Give the agent the programs of a version of KubeVirt."""
        (self.kubevirt_programs / version).symlink_to(folder)

    def write_kubeconfigs(self) -> None:
        """Write the kubeconfigs of the built-in users, once the API server has made its certificate."""
        for user, token in self.tokens().items():
            credentials.write_kubeconfig(self.kubeconfig(user), self.name, self.server, self.authority, user, token)


def copy_state(source: Path, target: Path) -> None:
    """Copy what a cluster at rest is made of from one folder to another."""
    for name in STATE:
        copy = shutil.copytree if (source / name).is_dir() else shutil.copy2
        copy(source / name, target / name)


def directory(name: str) -> Path:
    """Return the folder of the cluster of that name."""
    return paths.clusters() / name


def create(name: str, options: Options, programs: Programs, seed: Path | None = None) -> Instance:
    """Reserve ports for a new cluster and make its folder, from a seed if one is given."""
    with paths.locked(paths.clusters() / ".ports.lock"):
        ports = _free_ports()
        agent = str(programs.agent) if options.kubevirt else ""
        instance = Instance(name, options, str(programs.kubernetes), agent, next(ports), next(ports), next(ports))
        instance.dir.mkdir(mode=0o700)
        paths.write_atomically(instance.dir / "instance.json", json.dumps(asdict(instance)))
    instance.prepare(seed)
    if programs.kubevirt:
        instance.add_kubevirt(options.kubevirt, programs.kubevirt)
    return instance


def load(name: str) -> Instance | None:
    """Read a cluster's instance file, if there is one."""
    try:
        content = json.loads((directory(name) / "instance.json").read_text("utf-8"))
    except FileNotFoundError:
        return None
    # A checkout at another commit may have written fields that we do not know, or lack some.
    return Instance(**{**_known(Instance, content), "options": Options(**_known(Options, content["options"]))})


def _known(of: type[Instance] | type[Options], content: dict[str, Any]) -> dict[str, Any]:
    names_of = {field.name for field in fields(of)}
    return {name: value for name, value in content.items() if name in names_of}


def names() -> list[str]:
    """Return the names of all clusters, running or not."""
    return sorted(file.parent.name for file in paths.clusters().glob("*/instance.json"))


def _free_ports() -> Iterator[int]:
    others = [other for other in map(load, names()) if other]
    reserved = {port for other in others for port in (other.apiserver_port, other.etcd_port, other.etcd_peer_port)}
    for port in PORTS:
        if port not in reserved:
            with contextlib.suppress(OSError), socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
                yield port


def _etcd(instance: Instance) -> list[str]:
    client, peer = instance.etcd, f"http://127.0.0.1:{instance.etcd_peer_port}"
    return [
        f"--data-dir={instance.dir / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def _apiserver(instance: Instance) -> list[str]:
    key = instance.dir / "service-account.key"
    return [
        f"--etcd-servers={instance.etcd}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        f"--secure-port={instance.apiserver_port}",
        f"--cert-dir={instance.authority.parent}",
        f"--token-auth-file={instance.dir / 'tokens.csv'}",
        "--authorization-mode=RBAC",
        # As on real clusters. It concerns only users who act as kubelets.
        "--enable-admission-plugins=NodeRestriction",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-signing-key-file={key}",
        f"--service-account-key-file={key}",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--endpoint-reconciler-type=none",
        *_aggregation(instance),
        "--allow-privileged=true",
        f"--audit-policy-file={instance.dir / 'audit-policy.json'}",
        f"--audit-log-path={instance.audit_log}",
        # The log is never rotated: offsets into it must stay valid.
        "--audit-log-maxsize=100000",
        *shlex.split(instance.options.api_server),
    ]


def _aggregation(instance: Instance) -> list[str]:
    """Webhooks and aggregated APIs: the API server connects to the addresses of pods, through the agent."""
    front_proxy = instance.dir / "front-proxy"
    return (
        [
            "--enable-aggregator-routing=true",
            f"--egress-selector-config-file={instance.dir / 'egress.json'}",
            f"--requestheader-client-ca-file={front_proxy / 'ca.crt'}",
            "--requestheader-allowed-names=front-proxy",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            f"--proxy-client-cert-file={front_proxy / 'client.crt'}",
            f"--proxy-client-key-file={front_proxy / 'client.key'}",
        ]
        if instance.options.kubevirt
        else []
    )


def _egress_configuration(instance: Instance) -> dict[str, object]:
    transport = {"uds": {"udsName": str(instance.egress)}}
    return {
        "apiVersion": "apiserver.k8s.io/v1beta1",
        "kind": "EgressSelectorConfiguration",
        "egressSelections": [
            {"name": "cluster", "connection": {"proxyProtocol": "HTTPConnect", "transport": transport}},
        ],
    }


def _controller_manager(instance: Instance) -> list[str]:
    return [
        f"--kubeconfig={instance.kubeconfig('system:kube-controller-manager')}",
        f"--service-account-private-key-file={instance.dir / 'service-account.key'}",
        f"--root-ca-file={instance.authority}",
        "--use-service-account-credentials=true",
        "--leader-elect=false",
        "--secure-port=0",
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
        # Nodes renew no leases: hundreds would keep two cores busy. Their heartbeats are minutes apart.
        "--node-monitor-grace-period=20m",
    ]


def _scheduler(instance: Instance) -> list[str]:
    return [f"--config={instance.dir / 'scheduler.json'}", "--secure-port=0"]


def _scheduler_configuration(instance: Instance) -> dict[str, object]:
    kubeconfig = str(instance.kubeconfig("system:kube-scheduler"))
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": kubeconfig, "qps": 500, "burst": 1000},
        "leaderElection": {"leaderElect": False},
    }


def _kwok(instance: Instance) -> list[str]:
    return [
        f"--kubeconfig={instance.kubeconfig('kwok')}",
        f"--config={STAGES}",
        "--manage-all-nodes",
        "--node-lease-duration-seconds=0",
    ]


def _agent(instance: Instance) -> list[str]:
    return [
        f"--kubeconfig={instance.kubeconfig(AGENT)}",
        f"--ready-file={instance.ready_file}",
        f"--namespace={instance.options.namespace}",
        f"--programs={instance.kubevirt_programs}",
        f"--egress={instance.egress}",
        f"--network={instance.network}",
        *(["--hco"] if instance.options.hco else []),
        *([f"--build={instance.options.build}"] if instance.options.build else []),
        *shlex.split(instance.options.agent),
    ]


COMMANDS: dict[str, Callable[[Instance], list[str]]] = {
    "etcd": _etcd,
    "kube-apiserver": _apiserver,
    "kube-controller-manager": _controller_manager,
    "kube-scheduler": _scheduler,
    "kwok": _kwok,
    AGENT: _agent,
}
