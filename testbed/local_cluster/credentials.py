# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""Keys, tokens and kubeconfigs of a local cluster."""

from __future__ import annotations

import base64
import datetime
import json
import secrets
from typing import TYPE_CHECKING, Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from . import paths

if TYPE_CHECKING:
    from pathlib import Path

SYSTEM_NAMESPACE = "virtpools-system"
"""The namespace of the ServiceAccounts that stand for users."""

# User and group of each token. All components but kwok and the agent have the same rights as in a real cluster.
USERS = {
    "admin": "system:masters",
    "kwok": "system:masters",
    "agent": "system:masters",
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
    paths.write_atomically(file, _pem(ec.generate_private_key(ec.SECP256R1())), mode=0o600)


def create_front_proxy(folder: Path) -> None:
    """Write the authority, certificate and key by which aggregated APIs know the API server."""
    folder.mkdir()
    authority_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority = _certificate("front-proxy-ca", "front-proxy-ca", authority_key, authority_key)
    client = _certificate("front-proxy", "front-proxy-ca", key, authority_key)
    for name, pem in (("ca.crt", authority), ("client.crt", client), ("client.key", _pem(key))):
        paths.write_atomically(folder / name, pem, mode=0o600)


def _certificate(
    subject: str, issuer: str, key: ec.EllipticCurvePrivateKey, issuer_key: ec.EllipticCurvePrivateKey
) -> str:
    now = datetime.datetime.now(datetime.timezone.utc)
    builder = (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .issuer_name(_name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=3650))
        .add_extension(x509.BasicConstraints(ca=key is issuer_key, path_length=None), critical=True)
    )
    if key is not issuer_key:
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
        builder = builder.add_extension(usage, critical=False)
    return builder.sign(issuer_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    ).decode()


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
