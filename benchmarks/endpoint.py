# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""Connects to an API server without a client library, whose own time would be measured too."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from pathlib import Path

VMIS = "/apis/kubevirt.io/v1/virtualmachineinstances"
PODS = "/api/v1/pods"
LAUNCHERS = "kubevirt.io=virt-launcher"
LISTS = {VMIS: f"{VMIS}?limit=500", PODS: f"{PODS}?limit=500&labelSelector={LAUNCHERS}"}
"""The paths of VMIs and launcher pods, each with the request for its first page."""


@dataclass(frozen=True)
class Endpoint:
    """An API server and a user's token. Without ``authority`` (a certificate) the server speaks plain HTTP."""

    host: str
    token: str
    authority: str | None

    @classmethod
    def of(cls, kubeconfig: Path) -> Endpoint:
        """Read a kubeconfig that a local cluster wrote."""
        config = json.loads(kubeconfig.read_text("utf-8"))
        server = config["clusters"][0]["cluster"]
        authority = server.get("certificate-authority-data")
        return cls(
            urlsplit(server["server"]).netloc,
            config["users"][0]["user"]["token"],
            base64.b64decode(authority).decode() if authority else None,
        )

    @property
    def headers(self) -> dict[str, str]:
        """The headers that authenticate the user."""
        return {"Authorization": f"Bearer {self.token}"}

    def connect(self) -> http.client.HTTPConnection:
        """Open a connection for one request after the other."""
        if self.authority is None:
            return http.client.HTTPConnection(self.host, timeout=60)
        context = ssl.create_default_context(cadata=self.authority)
        return http.client.HTTPSConnection(self.host, timeout=60, context=context)
