# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Writes reports to a ConfigMap."""

from __future__ import annotations

import typing as t

from ...core.base import kinds
from ...core.base.objects import Object
from ...core.reports import config_map
from ..api.client import Cluster


def put(
    cluster: Cluster, namespace: str, name: str, reports: t.Mapping[str, bytes], *, by: str, dry_run: bool
) -> tuple[Object | None, Object]:
    """Write these reports, and no others, to the ConfigMap. ``by``: who writes them.

    :returns: the ConfigMap before and after; None: it did not exist.
    :raises InputErrors: when it is something else than reports of ours, or the reports are too large.
    """

    def desired(live: Object | None) -> Object:
        return config_map.written(live, namespace, name, reports, by)

    if cluster.get(kinds.CONFIG_MAP, name, namespace) is None:
        return None, cluster.create(kinds.CONFIG_MAP, desired(None), dry_run=dry_run)
    return cluster.edit(kinds.CONFIG_MAP, name, namespace, desired, dry_run=dry_run)
