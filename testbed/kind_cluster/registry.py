# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""A registry with passwords, on the network of the nodes, and the images of the tests."""

from __future__ import annotations

import base64
import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass

from . import engine, images

HOST = "private.example"
"""What nodes call it; no real registry."""
KNOWN = "known.example"
"""Its other name, for which the container runtimes of nodes have the password."""
USER, PASSWORD = "puller", "not-a-secret"
_NETWORK = "kind"


@dataclass(frozen=True)
class Registry:
    """A running registry."""

    container: str
    address: str
    """Its address on this machine's loopback."""

    @classmethod
    def start(cls, name: str) -> Registry:
        """Start a registry unless it runs."""
        container = f"{name}-registry"
        if not engine.run("ps", "--quiet", "--filter", f"name=^{container}$").strip():
            options = [
                "--detach",
                "--name",
                container,
                "--network",
                _NETWORK,
                "--network-alias",
                HOST,
                "--network-alias",
                KNOWN,
            ]
            engine.run("run", *options, "--publish", "127.0.0.1::80", images.make_registry())
        return cls(container, engine.run("port", container, "80/tcp").split()[0])

    def stop(self) -> None:
        """Stop it; what was pushed is lost."""
        engine.run("rm", "--force", "--volumes", self.container)

    def push(self, image: str, repository: str, host: str = HOST) -> str:
        """Push an image that the engine has; return the name by which nodes pull it, from one of its hosts."""
        there = f"{self.address}/{repository}"
        engine.run("tag", image, there)
        # In a folder of its own, so that the user's docker does not remember the password.
        with tempfile.TemporaryDirectory(prefix="virtpools-kind-") as folder:
            options = ("--config", folder)
            engine.run(*options, "login", "--username", USER, "--password-stdin", self.address, stdin=PASSWORD)
            engine.run(*options, "push", "--quiet", there)
        return f"{host}/{repository}"

    def known_to(self, node: str) -> None:
        """Tell a node's container runtime that the registry speaks HTTP, and its password under one of the names."""
        password = f'  [host."http://{KNOWN}".header]\n    authorization = "Basic {_credentials()}"\n'
        for host, more in ((HOST, ""), (KNOWN, password)):
            folder = f"/etc/containerd/certs.d/{host}"
            text = f'server = "http://{host}"\n[host."http://{host}"]\n  capabilities = ["pull", "resolve"]\n{more}'
            engine.run("exec", node, "mkdir", "-p", folder)
            engine.run("exec", "-i", node, "cp", "/dev/stdin", f"{folder}/hosts.toml", stdin=text)


def pull_secret(name: str, namespace: str) -> dict[str, object]:
    """Return the Secret with which a pod may pull from the registry."""
    content = json.dumps({"auths": {HOST: {"username": USER, "password": PASSWORD, "auth": _credentials()}}})
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace},
        "type": "kubernetes.io/dockerconfigjson",
        "stringData": {".dockerconfigjson": content},
    }


def _credentials() -> str:
    return base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()


def variant(base: str, name: str, *, scripts: Mapping[str, str] | None = None, without: str = "") -> str:
    """Make an image of another name that says so: its environment has IMAGE, so its digest is its own.

    :param scripts: shell scripts that it has instead of the programs at these paths.
    :param without: a file that it lacks.
    """
    own = json.loads(engine.run("image", "inspect", "--format", "{{json .Config}}", base))
    command = ["--entrypoint", "rm", base, "-f", without] if without else [base, "none"]
    container = engine.run("create", "--user", "0", *command).strip()
    try:
        if without:
            engine.run("start", "--attach", container)
        for path, script in (scripts or {}).items():
            archive = engine.archive({path: f"#!/bin/sh\n{script}\n".encode()})
            engine.put(archive, container)
        changes = [f"ENV IMAGE={name}", f"USER {own['User']}", f"ENTRYPOINT {json.dumps(own['Entrypoint'])}"]
        engine.run("commit", *(option for change in changes for option in ("--change", change)), container, name)
    finally:
        engine.run("rm", container)
    return name
