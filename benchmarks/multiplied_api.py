# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""Multiplies the VMs of a local cluster for clients that list them.

A server in front of the API server answers lists of VMIs and launcher pods with copies of the cluster's own, under
other names and UIDs and in pages like the API server's. It passes all other requests on. So a client sees ten thousand
realistic VMs, while etcd and the controllers have no more work than with the few real ones.
"""

from __future__ import annotations

import json
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from endpoint import LAUNCHERS, LISTS, PODS, VMIS, Endpoint

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

Object = dict[str, Any]


class MultipliedApi(ThreadingHTTPServer):
    """The server; close it after use. Its ``kubeconfig`` leads to it, with the same rights as the original one."""

    daemon_threads = True

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        """Start to serve, at first each VM once."""
        super().__init__(("127.0.0.1", 0), _Handler)
        self.endpoint = Endpoint.of(kubeconfig)
        self._originals = {path: self._read(query) for path, query in LISTS.items()}
        self.lists: dict[str, tuple[Object, list[bytes]]] = {}
        self.multiply(len(self._originals[VMIS]["items"]))
        config = json.loads(kubeconfig.read_text("utf-8"))
        config["clusters"][0]["cluster"] = {"server": f"http://127.0.0.1:{self.server_port}"}
        self.kubeconfig = folder / "multiplied"
        self.kubeconfig.write_text(json.dumps(config), "utf-8")
        self.kubeconfig.chmod(0o600)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def multiply(self, count: int) -> int:
        """Serve this many VMs from now on; return the size of the two lists in bytes."""
        vmis = self._originals[VMIS]["items"]
        known = [(vmi["metadata"]["name"], vmi["metadata"]["uid"]) for vmi in vmis]
        for path, answer in self._originals.items():
            by_vm = {name: item for item in answer["items"] for name, _uid in known if name in item["metadata"]["name"]}
            texts = [(name, uid, json.dumps(by_vm[name], separators=(",", ":"))) for name, uid in known]
            head = {key: value for key, value in answer.items() if key != "items"}
            self.lists[path] = head, [_copy(*texts[number % len(texts)], number) for number in range(count)]
        return sum(len(item) for _head, items in self.lists.values() for item in items)

    def _read(self, path: str) -> Object:
        connection = self.endpoint.connect()
        connection.request("GET", path, headers=self.endpoint.headers)
        response = connection.getresponse()
        answer = response.read()
        connection.close()
        if response.status != 200:
            raise RuntimeError(f"{path}: {response.status} {answer.decode(errors='replace')}")
        page: Object = json.loads(answer)
        return page


def _copy(name: str, uid: str, text: str, number: int) -> bytes:
    """Copy an object of a VM for another VM: replace the VM's name and UID everywhere, and the object's own UID."""
    other = str(uuid.uuid5(uuid.UUID(uid), str(number)))
    copied = text.replace(name, f"{name}-{number:06}").replace(uid, other)
    own = json.loads(text)["metadata"]["uid"]
    return copied.replace(own, str(uuid.uuid5(uuid.UUID(own), str(number)))).encode()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: MultipliedApi

    def do_GET(self) -> None:
        """Answer lists of VMIs and launcher pods from memory, and pass on all other requests."""
        url = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        if url.path == VMIS or (url.path == PODS and query.get("labelSelector") == LAUNCHERS):
            self._answer(200, "application/json", self._page(url.path, query))
        else:
            self._pass_on()

    def do_POST(self) -> None:
        """Pass on an access review or a dry run."""
        self._pass_on()

    def _page(self, path: str, query: dict[str, str]) -> Sequence[bytes]:
        head, items = self.server.lists[path]
        start = int(query.get("continue", 0))
        end = start + int(query.get("limit", 0)) if int(query.get("limit", 0)) else len(items)
        metadata = {"resourceVersion": head["metadata"]["resourceVersion"]}
        if end < len(items):
            metadata |= {"continue": str(end)}
        opening = json.dumps({**head, "metadata": metadata})[:-1].encode()
        return [opening, b', "items": [', b",".join(items[start:end]), b"]}"]

    def _pass_on(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        skipped = ("host", "connection", "content-length", "accept-encoding")
        headers = {key: value for key, value in self.headers.items() if key.lower() not in skipped}
        connection = self.server.endpoint.connect()
        connection.request(self.command, self.path, self.rfile.read(length) if length else None, headers)
        response = connection.getresponse()
        self._answer(response.status, response.headers.get("Content-Type", ""), [response.read()])
        connection.close()

    def _answer(self, status: int, kind: str, parts: Sequence[bytes]) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(sum(map(len, parts))))
        self.end_headers()
        for part in parts:
            self.wfile.write(part)

    def log_message(self, *_: object) -> None:
        """Say nothing."""
