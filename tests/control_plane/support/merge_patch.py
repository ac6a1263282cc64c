# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""Writes of others: JSON merge patches, which the collection itself never sends."""

from __future__ import annotations

from typing import Any

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.client import Cluster, _Address
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.transport import Request
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.kinds import Kind

Object = dict[str, Any]


def merge_patch(
    cluster: Cluster, kind: Kind, name: str, patch: Object, namespace: str | None = None, *, dry_run: bool
) -> Object:
    """Apply a JSON merge patch (RFC 7386): lists are replaced, null removes."""
    address = _Address(kind, name, namespace)
    request = Request("PATCH", address.path, body=patch, content_type="application/merge-patch+json")
    return cluster._write("patch", address, request, dry_run)
