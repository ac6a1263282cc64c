# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Reads and writes the ConfigMap with the history of pool lists."""

from __future__ import annotations

import typing as t

from ...core.base import kinds, names
from ...core.base.objects import Object
from ...core.planning import history
from ...core.planning.history import History
from ..api.client import Cluster


def read(cluster: Cluster, namespace: str) -> History:
    """The history of the KubeVirt in ``namespace``; empty when there is none."""
    return history.read(cluster.get(kinds.CONFIG_MAP, names.HISTORY, namespace))


def write(
    cluster: Cluster, namespace: str, change: t.Callable[[History], History], *, dry_run: bool
) -> tuple[Object | None, Object | None]:
    """Change the history by ``change``.

    :returns: the ConfigMap before and after; twice the same (None: it does not exist) when nothing changed.
    """
    live = cluster.get(kinds.CONFIG_MAP, names.HISTORY, namespace)
    before = history.read(live)
    after = change(before)
    if after == before:
        return live, live
    if live is None:
        return None, cluster.create(kinds.CONFIG_MAP, after.to_config_map(namespace), dry_run=dry_run)

    def edit(config_map: Object) -> Object | None:
        old = history.read(config_map)
        new = change(old)
        if new == old:
            return None
        others = {key: value for key, value in (config_map.get("data") or {}).items() if key not in history.FIELDS}
        return {**config_map, "data": {**others, **new.to_data()}}

    return cluster.edit(kinds.CONFIG_MAP, names.HISTORY, namespace, edit, dry_run=dry_run)
