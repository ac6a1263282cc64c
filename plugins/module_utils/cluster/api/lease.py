# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""One run at a time: a Lease in KubeVirt's namespace, held by the run's id.

Each module of a run attaches to the Lease and renews it before it writes.
docs/design/lease.md explains the numbers.
"""

from __future__ import annotations

import copy
import math
import threading
import typing as t
from datetime import datetime, timezone

from ...core.base import names
from ...core.base.kinds import LEASE
from ...core.base.objects import Object
from .client import AlreadyExists, ClusterError, Conflict, DeleteOptions, NotFound
from .waiting import Clock, seconds_since_boot

if t.TYPE_CHECKING:
    from .client import Cluster

DURATION_SECONDS = 30
"""A Lease unchanged for this long is stale."""

RENEW_SECONDS = 10.0
"""A run may write only while its last renewal of the Lease is younger than this."""

RUN_ANNOTATION = "virtpools.io/run"
"""On the Lease: the run that holds it, described for people."""

_POLL_SECONDS = 2.0
_LONGEST_GAP_SECONDS = _POLL_SECONDS + 5.0
"""A longer time between two answers, also because this machine was suspended, does not show that a holder is dead."""

_MOST_TRIES = 5
_MOST_DESCRIPTION = 300


class LeaseHeld(ClusterError):
    """Another run held the Lease for as long as we could wait."""


class LeaseLost(ClusterError):
    """The Lease is not ours, or no longer ours: this run must change nothing more."""


class RunLease:
    """The Lease of one run, as seen by one process of it.

    ``holder`` is the run's id, the same in all its processes. ``description`` tells people about the run (who, where,
    when); it is stored in the cluster and must hold no secret. ``duration_seconds``, DURATION_SECONDS or more, says how
    long the Lease lasts after a renewal. Set ``cluster.keep_lease = lease.ensure_fresh`` to check every
    write, and to renew the Lease while long lists are read.

    All methods raise ClusterError when the API server fails. Several threads may call ``renew`` and ``ensure_fresh``.
    """

    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        holder: str,
        *,
        description: str = "",
        duration_seconds: int = DURATION_SECONDS,
        clock: Clock | None = None,
    ) -> None:
        self._cluster = cluster.without_lease()
        self._namespace = namespace
        self._holder = holder
        self._description = " ".join(description.split())[:_MOST_DESCRIPTION]
        self._duration = duration_seconds
        self.created = False
        """Whether there was no Lease before ``acquire``."""
        self._clock = clock or Clock(now=seconds_since_boot)  # other runs do not wait while this machine is suspended
        self._stored: Object | None = None  # the Lease as we last wrote it
        self._renewed_at = -math.inf
        self._renewing = threading.RLock()

    def acquire(self, wait_seconds: float, on_wait: t.Callable[[str], None] | None = None) -> None:
        """Take the Lease when it is free, already ours, or its holder is dead; otherwise wait for that.

        ``on_wait`` gets one sentence for each holder that we wait for. A holder is dead when its Lease has not changed
        for the duration that the Lease names, by our clock. Only time in which the API server answered counts: a holder
        cannot renew at other times. Raises LeaseHeld after ``wait_seconds``; 0 does not wait at all.
        """
        answered = self._clock.now()
        give_up = answered + wait_seconds
        watched, since = "", 0.0
        announced = ""
        lost = 0
        while True:
            live = self._read()
            now = self._clock.now()
            is_gap, answered = now - answered > _LONGEST_GAP_SECONDS, now
            expires = now
            if live is not None and _holder(live) not in ("", self._holder):
                version = live["metadata"]["resourceVersion"]
                if version != watched or is_gap:
                    watched, since = version, now
                expires = since + self._duration_of(live)
            if live is None or now >= expires:
                if self._take(live):
                    return
                lost += 1  # another run was faster, or our read was out of date
                if lost >= _MOST_TRIES and now >= give_up:
                    raise ClusterError(
                        f"Could not take the Lease {self._title()}: another run is faster whenever it is free, or "
                        "reads of it are out of date; see who holds it, then run again."
                    )
                if lost > 1:
                    self._clock.sleep(_POLL_SECONDS)
                continue
            if now >= give_up:
                raise LeaseHeld(self._held_by(live))
            if _holder(live) != announced:
                announced = _holder(live)
                if on_wait is not None:
                    on_wait(f"Waiting for {_run_title(live)}, which holds the Lease {self._title()}.")
            self._clock.sleep(min(_POLL_SECONDS, expires - now, give_up - now))

    def attach(self) -> None:
        """Join the run that holds the Lease, as another of its processes, and renew the Lease.

        A Lease that has expired but was not taken by another run is still ours. Raises LeaseLost when it is not ours.
        """
        self._stored = None
        self.renew()

    def renew(self) -> None:
        """Show other runs that this run is alive. Raises LeaseLost when the Lease is not ours."""
        with self._renewing:
            self._renew()

    def _renew(self) -> None:
        for _try in range(_MOST_TRIES):
            ours = self._require_ours(self._stored if self._stored is not None else self._read())
            started = self._clock.now()
            try:
                self._stored = self._cluster.replace(LEASE, self._renewed(ours), dry_run=False)
            except NotFound:
                self._stored = None
                self._require_ours(None)
            except Conflict:  # another run took it, another process of this run renewed it, or our own answer was lost
                self._stored = None
            else:
                self._renewed_at = started
                return
        raise ClusterError(
            f"Could not renew the Lease {self._title()}: another client keeps changing it; see who, then run again."
        )

    def check(self) -> None:
        """Only read the Lease. Raises LeaseLost when it is not ours."""
        self._require_ours(self._read())

    def ensure_fresh(self) -> None:
        """Renew the Lease unless we did so less than RENEW_SECONDS ago. Call this before each write, in waits and in long reads.

        Raises LeaseLost when the Lease is not ours.
        """
        for _try in range(2):
            with self._renewing:
                if self._clock.now() - self._renewed_at < RENEW_SECONDS:
                    return
                self._renew()
        if self._clock.now() - self._renewed_at >= RENEW_SECONDS:
            raise ClusterError(
                f"The API server takes more than {RENEW_SECONDS:.0f} s to renew the Lease {self._title()}: too slow to "
                "change anything safely; run again when it has recovered."
            )

    def release(self) -> bool:
        """Delete the Lease, so that the next run need not wait. Returns False when the Lease is not ours."""
        self._stored, self._renewed_at = None, -math.inf
        for _try in range(_MOST_TRIES):
            live = self._read()
            if live is None or _holder(live) != self._holder:
                return False
            metadata = live["metadata"]
            try:
                options = DeleteOptions(uid=metadata["uid"], resource_version=metadata["resourceVersion"])
                return self._cluster.delete(LEASE, names.LEASE_NAME, self._namespace, options, dry_run=False)
            except Conflict:  # it was changed since: read again whether it is ours
                continue
        raise ClusterError(
            f"Could not release the Lease {self._title()}: another client keeps changing it; it expires by itself."
        )

    def is_ours(self) -> bool:
        """Whether the Lease names this run as its holder."""
        live = self._read()
        return live is not None and _holder(live) == self._holder

    # Records

    def _read(self) -> Object | None:
        return self._cluster.get(LEASE, names.LEASE_NAME, self._namespace)

    def _take(self, live: Object | None) -> bool:
        """Make the Lease ours if it is unchanged since we read ``live``; returns False when another run was faster."""
        started = self._clock.now()
        try:
            if live is None:
                self._stored = self._cluster.create(LEASE, self._new(), dry_run=False)
            else:
                self._stored = self._cluster.replace(LEASE, self._taken(live), dry_run=False)
        except (AlreadyExists, Conflict):
            return False
        except NotFound:
            if live is None:  # the namespace is missing
                raise
            return False
        self._renewed_at, self.created = started, live is None
        return True

    def _new(self) -> Object:
        now = _timestamp()
        lease = LEASE.object(names.LEASE_NAME, self._namespace)
        lease["metadata"]["labels"] = {names.MANAGED_BY_LABEL: names.MANAGED_BY}
        lease["metadata"]["annotations"] = {RUN_ANNOTATION: self._description}
        lease["spec"] = {
            "holderIdentity": self._holder,
            "leaseDurationSeconds": self._duration,
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": 0,
        }
        return lease

    def _taken(self, live: Object) -> Object:
        """``live`` with us as its holder."""
        if _holder(live) == self._holder:
            return self._renewed(live)
        lease = self._new()
        lease["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"]
        lease["spec"]["leaseTransitions"] = _spec(live).get("leaseTransitions", 0) + 1
        return lease

    def _renewed(self, ours: Object) -> Object:
        lease = copy.deepcopy(ours)
        lease["spec"].update({"renewTime": _timestamp(), "leaseDurationSeconds": self._duration})
        return lease

    def _require_ours(self, live: Object | None) -> Object:
        """Returns ``live`` when this run holds it, else raises LeaseLost."""
        if live is not None and _holder(live) == self._holder:
            return live
        gone = "was deleted" if live is None else f"is held by {_run_title(live)}"
        raise LeaseLost(
            f"The run {self._holder} has lost its Lease: {self._title()} {gone}. Nothing more was changed; run again."
        )

    # Sentences

    def _title(self) -> str:
        return f"{names.LEASE_NAME} in namespace {self._namespace}"

    def _held_by(self, live: Object) -> str:
        acquired, renewed = (_spec(live).get(key, "an unknown time") for key in ("acquireTime", "renewTime"))
        return (
            f"Only one run may change the cluster at a time, and {_run_title(live)} holds the Lease {self._title()} since "
            f"{acquired}, renewed at {renewed}. Wait until it has ended, then run again. A run that died delays the "
            f"next one by {self._duration_of(live)} s at most."
        )

    def _duration_of(self, live: Object) -> int:
        """The seconds after the last renewal when the holder is considered dead."""
        return int(_spec(live).get("leaseDurationSeconds") or self._duration)


def _spec(lease: Object) -> Object:
    return lease.get("spec") or {}


def _holder(lease: Object) -> str:
    """The id of the run that holds the Lease; empty when no run does."""
    return str(_spec(lease).get("holderIdentity") or "")


def _run_title(lease: Object) -> str:
    """The run that holds the Lease, in words for people."""
    description = (lease["metadata"].get("annotations") or {}).get(RUN_ANNOTATION)
    return f"the run {_holder(lease)}" + (f" ({description})" if description else "")


def _timestamp() -> str:
    """Now, as a Kubernetes MicroTime."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
