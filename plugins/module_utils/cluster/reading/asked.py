# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""What the options of a module ask for: the pools, the options of the run, and the mode."""

from __future__ import annotations

import functools
import typing as t
from dataclasses import replace

from ...core.base.findings import InputErrors
from ...core.monitoring import alerts
from ...core.planning import removal, waves
from ...core.planning.history import NO_POOLS, Entry, History
from ...core.planning.options import Drain, Options, read_share
from ...core.planning.proposal import AskedMode
from ...core.pools import dialects
from ...core.pools.model import Pool
from ..api.client import Cluster
from . import pool_sources


class Asked:
    """What the options of a module ask for. The cluster is read only where they refer to it."""

    def __init__(
        self,
        params: t.Mapping[str, t.Any],
        cluster: t.Callable[[], Cluster],
        history: t.Callable[[], History],
    ) -> None:
        """
        :param cluster: connects to the cluster.
        :param history: reads the cluster's history.
        """
        self._params = params
        self._cluster = cluster
        self._history = history

    @property
    def pools_given(self) -> bool:
        """Whether the options name a pool list, valid or not."""
        params = self._params
        return any(params[source] is not None for source in ("pools", "pools_manifest")) or bool(
            params["pools_from_cluster"] or params["pools_from_history"]
        )

    @functools.cached_property
    def earlier(self) -> Entry | None:
        """The list of the history that ``pools_from_history`` names; None without that option.

        :raises InputErrors: when the history does not have it.
        """
        digest = self._params["pools_from_history"]
        return self._history().find(digest) if digest else None

    @functools.cached_property
    def pools(self) -> tuple[Pool, ...]:
        """The pools that the options name; none with ``remove_pools``.

        :raises InputErrors: for a wrong list, and for a list beside ``remove_pools``.
        """
        if self._params["remove_pools"] is not None:
            if self.pools_given:
                raise InputErrors(
                    ["A pool list is given beside virtpools_remove, which uses the pools of the cluster; drop it."]
                )
            return ()
        _dialect, given = self._read
        return self.earlier.pools if self.earlier else given

    @property
    def dialect(self) -> str:
        """The form in which the pools are written."""
        return dialects.OWN if self._params["remove_pools"] is not None else self._read[0]

    @functools.cached_property
    def _read(self) -> tuple[str, tuple[Pool, ...]]:
        return pool_sources.read(self._params, self._cluster, self._history)

    @functools.cached_property
    def options(self) -> Options:
        """The options of the run, those of an earlier list included.

        :raises InputErrors: when one is wrong.
        """
        params = self._params
        read: dict[str, t.Any] = {
            "waves": waves.parse(params["waves"]),
            "remove_pools": removal.parse(params["remove_pools"]),
            "restore_nodes": frozenset(params["restore_nodes"]) if params["restore_nodes"] else None,
            "drain": Drain(params["drain"], params["on_non_migratable"]),
            "alerts": alerts.parse(
                params["alerts"], params["alerts_namespace"], params["alerts_labels"], params["runbook_url"]
            ),
            **{name: read_share(params[name], name) for name in ("max_unavailable", "max_nodes_lost")},
            "back_to": params["pools_from_history"] or (NO_POOLS if params["remove_pools"] else None),
        }
        options = Options(
            **{name: read[name] if name in read else params[name] for name in Options.__dataclass_fields__}
        )
        # A run that goes back leaves the cluster with the pools of the earlier list and no others.
        return replace(options, **self.earlier.run_options, prune=True) if self.earlier else options

    @property
    def mode(self) -> AskedMode:
        """The mode that is asked for. An earlier list comes back in the mode that it had."""
        if "mode" in self._params and self._params.get("pools_from_history") and self.earlier is not None:
            return "operator" if self.earlier.build else "collection"
        return self._params.get("mode") or "auto"
