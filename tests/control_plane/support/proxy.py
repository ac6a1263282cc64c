# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""A proxy in front of an API server; a test decides what happens to requests and answers."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

import urllib3

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.transport import (
    NoAnswer,
    Request,
    Response,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from local_cluster import LocalCluster

Treatment = Callable[[Request, Callable[[], Response]], Response]
"""Makes the answer to a request; the function given sends it to the API server. NoAnswer cuts the connection."""

_SINGLE_HOP = {"connection", "content-length", "host", "transfer-encoding"}


class Proxy:
    """A running proxy. ``kubeconfig`` leads through it; ``treat`` may change between requests."""

    def __init__(self, kubeconfig: Path, treat: Treatment) -> None:
        """Use ``in_front_of`` instead."""
        self.kubeconfig = kubeconfig
        self.treat = treat


@contextmanager
def in_front_of(cluster: LocalCluster, kubeconfig: Path, treat: Treatment) -> Iterator[Proxy]:
    """Yield a proxy in front of this cluster, for the user of this kubeconfig."""
    proxy = Proxy(kubeconfig.with_name(f"{kubeconfig.name}-proxy"), treat)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(cluster, proxy))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    config: dict[str, Any] = json.loads(kubeconfig.read_text("utf-8"))
    config["clusters"][0]["cluster"] = {"server": f"http://127.0.0.1:{server.server_port}"}
    proxy.kubeconfig.write_text(json.dumps(config), "utf-8")
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()


def _handler(cluster: LocalCluster, proxy: Proxy) -> type[BaseHTTPRequestHandler]:
    configuration = cluster.api_client.configuration
    upstream = urllib3.PoolManager(ca_certs=configuration.ssl_ca_cert, retries=False, maxsize=8)

    class Handler(BaseHTTPRequestHandler):
        """Passes requests on."""

        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)) or None
            headers = {key: value for key, value in self.headers.items() if key.lower() not in _SINGLE_HOP}

            def forward() -> Response:
                answer = upstream.request(self.command, configuration.host + self.path, body=body, headers=headers)
                return Response(
                    answer.status, answer.data, {key.lower(): answer.headers[key] for key in answer.headers}
                )

            url = urlsplit(self.path)
            request = Request(self.command, url.path, tuple(parse_qsl(url.query)), json.loads(body) if body else None)
            try:
                self._send(proxy.treat(request, forward))
            except (NoAnswer, ConnectionError):
                self.close_connection = True

        def _send(self, answer: Response) -> None:
            self.send_response(answer.status)
            headers = {"content-type": "application/json", **answer.headers, "content-length": str(len(answer.body))}
            for name in headers.keys() - (_SINGLE_HOP - {"content-length"}):
                self.send_header(name, headers[name])
            self.end_headers()
            self.wfile.write(answer.body)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer  # noqa: N815 (the base class's names)

        def log_message(self, *_: object) -> None:
            """Keep quiet."""

    return Handler
