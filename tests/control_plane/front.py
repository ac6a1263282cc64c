# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""A proxy before an API server that makes it look like an older one: without admission policies that mutate.

Kubernetes 1.36 always serves them, so no option of its own could show what happens where they are missing.
"""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import urllib3

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from local_cluster import LocalCluster

_HIDDEN = "mutatingadmissionpolic"
_SINGLE_HOP = {"connection", "content-length", "host", "transfer-encoding"}


@contextmanager
def without_admission_policies(cluster: LocalCluster, kubeconfig: Path, version: str) -> Iterator[Path]:
    """Yield a kubeconfig like another one, by way of a proxy that hides the policies and tells another version."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(cluster, version))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    config: dict[str, Any] = json.loads(kubeconfig.read_text("utf-8"))
    config["clusters"][0]["cluster"] = {"server": f"http://127.0.0.1:{server.server_port}"}
    file = kubeconfig.with_name(f"{kubeconfig.name}-front")
    file.write_text(json.dumps(config), "utf-8")
    try:
        yield file
    finally:
        server.shutdown()
        server.server_close()


def _handler(cluster: LocalCluster, version: str) -> type[BaseHTTPRequestHandler]:
    configuration = cluster.api_client.configuration
    upstream = urllib3.PoolManager(ca_certs=configuration.ssl_ca_cert, retries=False, maxsize=8)

    class Handler(BaseHTTPRequestHandler):
        """Passes requests on."""

        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if _HIDDEN in self.path:
                self._send(404, "text/plain", b"404 page not found\n")
                return
            headers = {key: value for key, value in self.headers.items() if key.lower() not in _SINGLE_HOP}
            answer = upstream.request(self.command, configuration.host + self.path, body=body or None, headers=headers)
            content = answer.headers.get("Content-Type", "application/json")
            self._send(answer.status, content, _older(self.path, answer.data, version))

        def _send(self, status: int, content: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", content)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer  # noqa: N815 (the base class's names)

        def log_message(self, *_: object) -> None:
            """Keep quiet."""

    return Handler


def _older(path: str, body: bytes, version: str) -> bytes:
    """Return an answer as an older server gives it."""
    if path == "/version":
        return json.dumps({**json.loads(body), "gitVersion": version}).encode()
    if path.startswith("/apis/admissionregistration.k8s.io/"):
        found = json.loads(body)
        found["resources"] = [each for each in found.get("resources", ()) if _HIDDEN not in each["name"]]
        return json.dumps(found).encode()
    return body
