# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""A server for the mutating webhooks of tests, like those with which other software changes launcher pods."""

from __future__ import annotations

import base64
import datetime
import ipaddress
import json
import ssl
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, ClassVar

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.kinds import Kind
from policy_server import ARENA

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

Object = dict[str, Any]
Patch = list[Object]
"""A JSON patch of the pod."""

WEBHOOK = Kind(
    "admissionregistration.k8s.io/v1",
    "MutatingWebhookConfiguration",
    "mutatingwebhookconfigurations",
    namespaced=False,
)


class Webhooks:
    """An HTTPS server on the loopback; every webhook has a path of its own."""

    def __init__(self, server: ThreadingHTTPServer, authority: bytes) -> None:
        """Use ``serve`` instead."""
        self._server = server
        self._authority = base64.b64encode(authority).decode()

    def webhook(self, name: str, arena: str, change: Callable[[Object], Patch], *, reinvocation: str) -> Object:
        """Return a webhook for the pods of an arena that answers with the patch that ``change`` returns for a pod."""
        client = self.answer(name, change)
        return for_pods(name, arena, client, reinvocation=reinvocation)

    def answer(self, name: str, change: Callable[[Object], Patch]) -> Object:
        """Let a webhook answer with the patch that ``change`` returns; return how API servers reach it."""
        _Handler.changes[f"/{name}"] = change
        return {"url": f"https://127.0.0.1:{self.port}/{name}", "caBundle": self._authority}

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_address[1])


def for_pods(name: str, arena: str, client: Object, *, reinvocation: str = "Never") -> Object:
    """Return a webhook for the pods of an arena. ``client`` says where and how the API server reaches it."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    return {
        "name": f"{name}.test.virtpools.io",
        "admissionReviewVersions": ["v1"],
        "clientConfig": client,
        "failurePolicy": "Fail",
        "objectSelector": {"matchLabels": {ARENA: arena}},
        "reinvocationPolicy": reinvocation,
        "rules": [rule],
        "sideEffects": "None",
        "timeoutSeconds": 5,
    }


@contextmanager
def serve(directory: Path, *names: str) -> Iterator[Webhooks]:
    """Serve webhooks; certificate and key are kept in the directory.

    :param names: what API servers call the server besides its address, as ``service.namespace.svc``.
    """
    certificate, key = _certificate(names)
    file = directory / "webhooks.pem"
    file.write_bytes(certificate + key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    # An endpoint of a Service cannot be on the loopback.
    server = ThreadingHTTPServer(("0.0.0.0" if names else "127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield Webhooks(server, certificate)
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    """Answers AdmissionReviews."""

    protocol_version = "HTTP/1.1"
    changes: ClassVar[dict[str, Callable[[Object], Patch]]] = {}

    def do_POST(self) -> None:
        """Answer one review."""
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["request"]
        patch = self.changes[self.path.partition("?")[0]](request["object"])
        response = {"uid": request["uid"], "allowed": True}
        if patch:
            encoded = base64.b64encode(json.dumps(patch).encode()).decode()
            response |= {"patchType": "JSONPatch", "patch": encoded}
        body = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


def _certificate(names: Iterable[str]) -> tuple[bytes, bytes]:
    """Return a self-signed certificate for the loopback and other names, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test webhooks")])
    now = datetime.datetime.now(datetime.timezone.utc)
    day = datetime.timedelta(days=1)
    loopback = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    all_names = x509.SubjectAlternativeName([loopback, *map(x509.DNSName, names)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - day)
        .not_valid_after(now + day)
        .add_extension(all_names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return certificate.public_bytes(pem), secret
