# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A cluster in memory behind HTTP, for ansible-playbook itself. Its time passes as ours does, with each request."""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
import time
import urllib.parse

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.transport import Request


@contextlib.contextmanager
def serving(world):
    """Serve ``world``, and give the address. Nothing can be followed."""
    one_at_a_time, before = threading.Lock(), [time.monotonic()]

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle(self):
            with contextlib.suppress(ConnectionError):  # a client that was killed
                super().handle()

        def do_GET(self):
            path, _, query = self.path.partition("?")
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            request = Request(
                self.command,
                urllib.parse.unquote(path),
                tuple(urllib.parse.parse_qsl(query)),
                json.loads(body) if body else None,
                self.headers.get("Content-Type") or "",
            )
            with one_at_a_time:
                now = time.monotonic()
                world.sleep(now - before[0])
                before[0] = now
                followed = ("watch", "true") in request.query
                status, answer = (403, b"{}") if followed else _answer(world, request)
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815 (the base class's names)

        def log_message(self, *args):
            """Keep quiet."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _answer(world, request):
    response = world.send(request)
    return response.status, response.body
