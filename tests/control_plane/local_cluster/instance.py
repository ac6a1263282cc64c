# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""One cluster's folder: the files in it, its ports, and the command line of each of its components."""

from __future__ import annotations

import contextlib
import json
import shlex
import socket
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import audit, credentials, paths
from .programs import STANDIN, Programs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

STAGES = Path(__file__).with_name("kwok-stages.yaml")
# Below what Linux gives to outgoing connections, which could otherwise take a port while its component restarts.
PORTS = range(20000, 32000)


@dataclass(frozen=True)
class Options:
    """What a cluster was started with."""

    fleet: str
    """Digest of its nodes."""
    hco: bool
    kubevirt: bool
    standin: str = ""
    """More arguments of the stand-in, as a shell would split them."""


@dataclass(frozen=True)
class Instance:
    """What must be known to run or stop a cluster's components, by this process or a later one."""

    name: str
    options: Options
    kubernetes: str
    """Folder of the programs."""
    standin: str
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
    def authority(self) -> Path:
        """Return the certificate that the API server makes for itself at its first start."""
        return self.dir / "certs" / "apiserver.crt"

    @property
    def audit_log(self) -> Path:
        """Return the API server's audit log."""
        return self.dir / "audit.log"

    @property
    def ready_file(self) -> Path:
        """Return the file which the stand-in makes once KubeVirt is available."""
        return self.dir / "standin-ready"

    def components(self) -> list[str]:
        """Return the components in the order of their start."""
        return [name for name in COMMANDS if name != STANDIN or self.options.kubevirt]

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
        program = self.standin if component == STANDIN else str(Path(self.kubernetes) / component)
        return [program, *COMMANDS[component](self)]

    def tokens(self) -> dict[str, str]:
        """Return the tokens of the built-in users."""
        lines = (self.dir / "tokens.csv").read_text("utf-8").splitlines()
        return {user: token for token, user, *_ in (line.split(",") for line in lines)}

    def prepare(self) -> None:
        """Write the files that components need before their first start."""
        for folder in ("logs", "run", "kubeconfigs", "certs"):
            (self.dir / folder).mkdir(parents=True)
        credentials.create_tokens(self.dir / "tokens.csv")
        credentials.create_service_account_key(self.dir / "service-account.key")
        paths.write_atomically(self.dir / "audit-policy.json", json.dumps(audit.POLICY))
        paths.write_atomically(self.dir / "scheduler.json", json.dumps(_scheduler_configuration(self)))

    def write_kubeconfigs(self) -> None:
        """Write the kubeconfigs of the built-in users, once the API server has made its certificate."""
        for user, token in self.tokens().items():
            credentials.write_kubeconfig(self.kubeconfig(user), self.name, self.server, self.authority, user, token)


def directory(name: str) -> Path:
    """Return the folder of the cluster of that name."""
    return paths.clusters() / name


def create(name: str, options: Options, programs: Programs) -> Instance:
    """Reserve ports for a new cluster and make its folder."""
    with paths.locked(paths.clusters() / ".ports.lock"):
        ports = _free_ports()
        standin = str(programs.standin) if options.kubevirt else ""
        instance = Instance(name, options, str(programs.kubernetes), standin, next(ports), next(ports), next(ports))
        instance.dir.mkdir(mode=0o700)
        paths.write_atomically(instance.dir / "instance.json", json.dumps(asdict(instance)))
    instance.prepare()
    return instance


def load(name: str) -> Instance | None:
    """Read a cluster's instance file, if there is one."""
    try:
        content = json.loads((directory(name) / "instance.json").read_text("utf-8"))
    except FileNotFoundError:
        return None
    # A checkout at another commit may have written more than we know, or less.
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
    client, peer = (f"http://127.0.0.1:{port}" for port in (instance.etcd_port, instance.etcd_peer_port))
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
        f"--etcd-servers=http://127.0.0.1:{instance.etcd_port}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        f"--secure-port={instance.apiserver_port}",
        f"--cert-dir={instance.authority.parent}",
        f"--token-auth-file={instance.dir / 'tokens.csv'}",
        "--authorization-mode=RBAC",
        # As on real clusters; it concerns only who says to be a kubelet.
        "--enable-admission-plugins=NodeRestriction",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-signing-key-file={key}",
        f"--service-account-key-file={key}",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--endpoint-reconciler-type=none",
        "--allow-privileged=true",
        f"--audit-policy-file={instance.dir / 'audit-policy.json'}",
        f"--audit-log-path={instance.audit_log}",
        # Never rotated: offsets into the log must stay valid.
        "--audit-log-maxsize=100000",
    ]


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


def _standin(instance: Instance) -> list[str]:
    hco = ["--hco"] if instance.options.hco else []
    kubeconfig, ready = str(instance.kubeconfig(STANDIN)), str(instance.ready_file)
    more = shlex.split(instance.options.standin)
    return ["--kubeconfig", kubeconfig, "--log-level", "info", *hco, "--ready-file", ready, *more]


COMMANDS: dict[str, Callable[[Instance], list[str]]] = {
    "etcd": _etcd,
    "kube-apiserver": _apiserver,
    "kube-controller-manager": _controller_manager,
    "kube-scheduler": _scheduler,
    "kwok": _kwok,
    STANDIN: _standin,
}
