# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""Keys, tokens and kubeconfigs of a local cluster."""

from __future__ import annotations

import base64
import json
import secrets
from typing import TYPE_CHECKING, Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from . import paths

if TYPE_CHECKING:
    from pathlib import Path

SYSTEM_NAMESPACE = "virtpools-system"
"""Of the ServiceAccounts that stand for users."""

# User and group of each token. Components other than kwok and the stand-in have the rights they have in a real cluster.
USERS = {
    "admin": "system:masters",
    "kwok": "system:masters",
    "standin": "system:masters",
    "system:kube-controller-manager": "",
    "system:kube-scheduler": "",
}


def create_tokens(file: Path) -> dict[str, str]:
    """Write the API server's token file and return the token of each user."""
    tokens = {user: secrets.token_urlsafe(24) for user in USERS}
    lines = (f'{tokens[user]},{user},{user},"{group}"\n' for user, group in USERS.items())
    paths.write_atomically(file, "".join(lines), mode=0o600)
    return tokens


def create_service_account_key(file: Path) -> None:
    """Write the key that signs the tokens of ServiceAccounts."""
    pem = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    paths.write_atomically(file, pem.decode(), mode=0o600)


def write_kubeconfig(file: Path, cluster: str, server: str, authority: Path, user: str, token: str) -> None:
    """Write a kubeconfig that needs no other file."""
    certificate = base64.b64encode(authority.read_bytes()).decode()
    config: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": cluster,
        "clusters": [{"name": cluster, "cluster": {"server": server, "certificate-authority-data": certificate}}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": user}}],
    }
    # JSON is YAML, and every reader of kubeconfigs takes it.
    paths.write_atomically(file, json.dumps(config, indent=2) + "\n", mode=0o600)
