# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""The requests and writes that a cluster has received, from the API server's audit log."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from .credentials import SYSTEM_NAMESPACE

if TYPE_CHECKING:
    from pathlib import Path

Entry = dict[str, Any]

MUTATING = ("create", "update", "patch", "delete", "deletecollection")
# API groups in which one asks a question by creating an object that is never stored.
REVIEWS = ("authentication.k8s.io", "authorization.k8s.io")

POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [
        # The heartbeats of a few hundred nodes would bury everything else.
        {"level": "None", "users": ["kwok"]},
        # A delete may be marked as a dry run in its body only.
        {"level": "Request", "verbs": ["delete", "deletecollection"]},
        {"level": "Metadata", "verbs": [verb for verb in MUTATING if not verb.startswith("delete")]},
        # What users read, but not what components read: that would bury everything else.
        {"level": "Metadata", "userGroups": [f"system:serviceaccounts:{SYSTEM_NAMESPACE}"]},
        {"level": "None"},
    ],
}


@dataclass(frozen=True)
class Write:
    """One successful mutating request that was not a dry run."""

    user: str
    verb: str
    resource: str
    """As in nodes, pods/binding, daemonsets.apps."""
    namespace: str
    name: str
    entry: Entry
    """The audit log's whole entry."""

    def __str__(self) -> str:
        """Return one line for the message of a failed test."""
        return f"{self.user}: {self.verb} {self.resource} {self.namespace}/{self.name}".replace(" /", " ")


class Tail:
    """Reads an audit log as it grows, each entry once."""

    def __init__(self, log: Path, offset: int) -> None:
        """Begin with the first entry that begins at a byte offset or after it."""
        self._log = log
        self._offset = max(0, offset - 1)
        self._rest = b""
        self._begun = not offset

    def entries(self) -> list[Entry]:
        """Return the entries that were completed since the last call."""
        with self._log.open("rb") as file:
            file.seek(self._offset)
            new = file.read()
        self._offset += len(new)
        *lines, self._rest = (self._rest + new).split(b"\n")
        if lines and not self._begun:
            del lines[0]  # The log may have had a part of a long line when its size was taken for the offset.
            self._begun = True
        return [json.loads(line) for line in lines]


def read(log: Path, offset: int) -> list[Entry]:
    """Return the audit entries that begin at a byte offset or after it, leaving out a line that is still being written."""
    return Tail(log, offset).entries()


def writes(entries: list[Entry]) -> list[Write]:
    """Pick the writes out of audit entries."""
    return [_write(entry) for entry in entries if _is_write(entry)]


def _is_write(entry: Entry) -> bool:
    return (
        entry["verb"] in MUTATING
        and 200 <= entry.get("responseStatus", {}).get("code", 0) < 300
        and entry.get("objectRef", {}).get("apiGroup") not in REVIEWS
        and not _is_dry_run(entry)
    )


def _is_dry_run(entry: Entry) -> bool:
    body = entry.get("requestObject") or {}
    return bool(parse_qs(urlsplit(entry["requestURI"]).query).get("dryRun") or body.get("dryRun"))


def _write(entry: Entry) -> Write:
    target = entry.get("objectRef", {})
    resource = "/".join(part for part in (target.get("resource", ""), target.get("subresource", "")) if part)
    return Write(
        user=(entry.get("impersonatedUser") or entry["user"])["username"],
        verb=entry["verb"],
        resource=".".join(part for part in (resource, target.get("apiGroup", "")) if part),
        namespace=target.get("namespace", ""),
        name=target.get("name", ""),
        entry=entry,
    )
