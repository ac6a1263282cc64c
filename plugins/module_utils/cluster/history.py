# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""The history of pool lists, in its ConfigMap."""

from __future__ import annotations

import typing as t

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster._client import Cluster
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import history, kinds, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.history import History

Object = dict[str, t.Any]


def read(cluster: Cluster, namespace: str) -> History:
    """The history of the KubeVirt in ``namespace``; an empty one where there is none."""
    return history.of(cluster.get(kinds.CONFIG_MAP, names.HISTORY, namespace))


def write(
    cluster: Cluster, namespace: str, change: t.Callable[[History], History], *, dry_run: bool
) -> tuple[Object | None, Object | None]:
    """Make of the history what ``change`` does; twice the same ConfigMap, or nothing, for no change.

    :returns: the ConfigMap before and after.
    """
    live = cluster.get(kinds.CONFIG_MAP, names.HISTORY, namespace)
    before = history.of(live)
    after = change(before)
    if after == before:
        return live, live
    if live is None:
        return None, cluster.create(kinds.CONFIG_MAP, after.to_config_map(namespace), dry_run=dry_run)

    def again(found: Object) -> Object | None:
        known = history.of(found)
        wanted = change(known)
        return None if wanted == known else {**found, "data": wanted.to_data()}

    return cluster.edit(kinds.CONFIG_MAP, names.HISTORY, namespace, again, dry_run=dry_run)
