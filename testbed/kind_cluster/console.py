# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""A guest's serial console, by way of KubeVirt's API, the guest's virt-handler and its launcher."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import websocket

SUBRESOURCES = "/apis/subresources.kubevirt.io/v1/namespaces/default"
_PROTOCOL = "plain.kubevirt.io"


def type_line(api_client: Any, name: str, line: str, until: str, timeout: float = 30) -> str:
    """Type a line, which our guest runs as a command, and return what the console shows until it shows ``until``.

    :param api_client: a client with the rights and certificates of an administrator.
    :raises AssertionError: when the console does not show it within ``timeout`` seconds.
    """
    settings = api_client.configuration
    certificates = {"ca_certs": settings.ssl_ca_cert, "certfile": settings.cert_file, "keyfile": settings.key_file}
    address = f"{settings.host.replace('https:', 'wss:', 1)}{SUBRESOURCES}/virtualmachineinstances/{name}/console"
    shown, deadline = b"", time.monotonic() + timeout
    connection = websocket.create_connection(address, sslopt=certificates, subprotocols=[_PROTOCOL], timeout=timeout)
    try:
        connection.settimeout(1)
        connection.send_binary(f"{line}\n".encode())
        while until.encode() not in shown and time.monotonic() < deadline:
            with contextlib.suppress(websocket.WebSocketTimeoutException):
                received = connection.recv()
                shown += received if isinstance(received, bytes) else received.encode()
    finally:
        connection.close()
    text = shown.decode(errors="replace")
    assert until in text, f"The console of {name} does not show {until!r} within {timeout:g} s: {text}"
    return text
