# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""What all our modules share: options, the way to the cluster, the Lease around writes, errors and results."""

from __future__ import annotations

import contextlib
import functools
import getpass
import socket
import traceback
import typing as t
import uuid
from dataclasses import replace

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster import (
    history,
    live,
    pool_sources,
    settle,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster._client import (
    AUTH_ARGUMENTS,
    Cluster,
    ClusterError,
    Forbidden,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.lease import RunLease
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.waiting import Clock
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import (
    dialects,
    drain,
    objects,
    permissions,
    plan,
    removal,
    waves,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.findings import InputErrors
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.history import NO_POOLS, Entry
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.options import Options
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.permissions import Permission
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.plan import Plan
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools import Pool
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.snapshot import Snapshot

Arguments = dict[str, dict[str, t.Any]]

KUBEVIRT_ARGUMENTS: Arguments = {
    "kubevirt_namespace": {"type": "str"},
    "kubevirt_name": {"type": "str"},
}

POOL_ARGUMENTS: Arguments = {
    "pools": {"type": "raw"},
    "pools_dialect": {"type": "str", "default": "virtpools", "choices": list(dialects.DIALECTS)},
    "pools_manifest": {"type": "path"},
    "pools_from_cluster": {"type": "bool", "default": False},
    "pools_from_history": {"type": "str"},
    "overlap": {"type": "str", "default": "error", "choices": ["error", "first_wins"]},
    "prune": {"type": "bool", "default": False},
    "max_unavailable": {"type": "raw", "default": 1},
    "allow_skew": {"type": "bool", "default": False},
    "prepull": {"type": "bool", "default": True},
    "launcher_backend": {
        "type": "str",
        "default": "auto",
        "choices": ["auto", "admission_policy", "kyverno", "aie_webhook", "none"],
    },
    "outdated": {"type": "str", "default": "refuse", "choices": ["refuse", "correct"]},
    "assign_new_nodes": {"type": "bool", "default": False},
    "guard": {"type": "bool", "default": False},
    "waves": {"type": "raw"},
    "removed": {"type": "raw"},
    "only": {"type": "list", "elements": "str"},
    "accept_closed_gates": {"type": "bool", "default": False},
    "vms_on_nodes": {"type": "str", "default": "leave", "choices": list(drain.VMS_ON_NODES)},
    "unmovable": {"type": "str", "default": "leave", "choices": list(drain.UNMOVABLE)},
}

RUN_ARGUMENTS: Arguments = {
    "run_id": {"type": "str"},
    "lease_timeout": {"type": "int", "default": 120},
}


class Task:
    """One run of one of our modules."""

    def __init__(self, arguments: Arguments) -> None:
        self.module = AnsibleModule(
            argument_spec={**AUTH_ARGUMENTS, **KUBEVIRT_ARGUMENTS, **arguments}, supports_check_mode=True
        )
        self.params: dict[str, t.Any] = self.module.params
        self.check_mode: bool = self.module.check_mode
        self.clock = Clock()
        self._cluster: Cluster | None = None

    @property
    def cluster(self) -> Cluster:
        if self._cluster is None:
            self._cluster = Cluster.connect(self.params)
        return self._cluster

    def snapshot(self, nodes: t.Collection[str] | None = None) -> Snapshot:
        """The cluster's state; when a right to read it is missing, the error names all that are."""
        try:
            return live.take_snapshot(
                self.cluster, self.params["kubevirt_namespace"], self.params["kubevirt_name"], nodes
            )
        except Forbidden:
            self.require(permissions.READER)
            raise

    def require(self, rights: t.Iterable[Permission]) -> None:
        """Refuse to go on without these rights.

        :raises ClusterError: naming all missing ones together.
        """
        missing = self.cluster.can(rights)
        if missing:
            raise ClusterError(
                f"The user {self.cluster.user()} lacks {len(missing)} permission(s) on {self.cluster.server}: "
                f"{', '.join(map(str, missing))}. Bind it to the ClusterRole virtpools-reader (plan and info modules) or "
                "virtpools-writer (runs) that this collection ships."
            )

    @property
    def pools_given(self) -> bool:
        """Whether the options name a pool list, good or bad."""
        return any(self.params[source] is not None for source in ("pools", "pools_manifest")) or bool(
            self.params["pools_from_cluster"] or self.params["pools_from_history"]
        )

    def namespace(self) -> str:
        """KubeVirt's namespace."""
        found = live.find_kubevirt(self.cluster, self.params["kubevirt_namespace"], self.params["kubevirt_name"])
        return str(found["metadata"]["namespace"])

    @functools.cached_property
    def earlier(self) -> Entry | None:
        """The list of the history that the options name; None when they name none.

        :raises InputErrors: when the history does not have it.
        """
        digest = self.params["pools_from_history"]
        return history.read(self.cluster, self.namespace()).find(digest) if digest else None

    def pools(self) -> tuple[Pool, ...]:
        """The pools that the options name, validated; none where some are removed. Needs no cluster unless they are
        read from one.

        :raises InputErrors: for a bad list, and for a list beside pools to remove.
        """
        if self.params["removed"] is not None:
            if self.pools_given:
                raise InputErrors(
                    ["A pool list is given beside removed, where the pools of the cluster count; drop it."]
                )
            return ()
        given = pool_sources.read(self.params, lambda: self.cluster)
        return self.earlier.pools if self.earlier else given

    def options(self) -> Options:
        options = Options(
            overlap=self.params["overlap"],
            prune=self.params["prune"],
            max_unavailable=self.params["max_unavailable"],
            allow_skew=self.params["allow_skew"],
            prepull=self.params["prepull"],
            launcher_backend=self.params["launcher_backend"],
            outdated=self.params["outdated"],
            assign_new_nodes=self.params["assign_new_nodes"],
            guard=self.params["guard"],
            waves=waves.parse(self.params["waves"]),
            removed=removal.parse(self.params["removed"]),
            only=frozenset(self.params["only"]) if self.params["only"] else None,
            drain=drain.Drain(self.params["vms_on_nodes"], self.params["unmovable"]),
            back_to=self.params["pools_from_history"] or (NO_POOLS if self.params["removed"] else None),
            accept_closed_gates=self.params["accept_closed_gates"],
        )
        # Going back means that the cluster has these pools and no other.
        return replace(options, **self.earlier.options, prune=True) if self.earlier else options

    def plan(self, nodes: t.Collection[str] | None = None) -> Plan:
        """The plan for the pools and options given, on the cluster as it is (or on some of its nodes)."""
        options = self.options()
        pools = self.pools()
        return plan.make(self.snapshot(nodes), pools, options)

    def plan_or_recorded(self, found: Snapshot) -> Plan:
        """The plan for the pools given or, without any, for those that the cluster records, on this snapshot.

        :raises InputErrors: when none are given and the cluster has none.
        """
        if self.pools_given:
            return plan.make(found, self.pools(), self.options())
        pools = plan.recorded(found)
        if not pools:
            raise InputErrors(["No pools were given, and the cluster has none: give virtpools_pools."])
        return plan.make(found, pools, plan.recorded_options(found, self.options()))

    def settle(self, timeout: float) -> None:
        """Wait until KubeVirt is fit to be changed.

        :raises ClusterError: when it is not within ``timeout`` seconds, or is being upgraded.
        """
        namespace, name = self.params["kubevirt_namespace"], self.params["kubevirt_name"]
        found = live.find_kubevirt(self.cluster, namespace, name)["metadata"]
        settle.fit(self.cluster, found["namespace"], found["name"], timeout, self.clock)

    def refuse(self, made: Plan, but: t.Collection[str] = ()) -> None:
        """Go no further with a plan that has errors, other than those with the codes ``but``.

        :raises InputErrors: with all of them.
        """
        errors = [finding.message for finding in made.errors if finding.code not in but]
        if errors:
            raise InputErrors(errors)

    @contextlib.contextmanager
    def writing(self, namespace: str) -> t.Iterator[None]:
        """Hold the Lease: join the run that ``run_id`` names or, without one, take it for this module alone."""
        run_id = self.params["run_id"]
        lease = RunLease(self.cluster, namespace, run_id or new_run_id(), description=description())
        if run_id:
            lease.attach()
        else:
            lease.acquire(self.params["lease_timeout"])
        self.cluster.before_write = lease.ensure_fresh
        self.clock = Clock(beat=lease.ensure_fresh)
        try:
            yield
        finally:
            self.cluster.before_write = None
            self.clock = Clock()
            if not run_id:
                self._release(lease)

    def _release(self, lease: RunLease) -> None:
        """What the module did, or why it failed, matters more than a Lease that expires by itself."""
        try:
            lease.release()
        except ClusterError as error:
            self.module.warn(str(error))


def new_run_id() -> str:
    return f"run-{uuid.uuid4().hex[:12]}"


def description() -> str:
    """Who runs this, for people who find the Lease."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        # A container whose user has no name.
        user = "somebody"
    return f"{user} on {socket.gethostname()}"


def object_diff(before: t.Mapping[str, t.Any] | None, after: t.Mapping[str, t.Any] | None) -> dict[str, t.Any]:
    """One entry of an Ansible diff: only what differs between two objects, under the object's name."""
    present = after or before or {}
    metadata = present.get("metadata") or {}
    title = "/".join(
        str(part) for part in (present.get("kind"), metadata.get("namespace"), metadata.get("name")) if part
    )
    shown = objects.diff(t.cast("dict[str, t.Any] | None", before), t.cast("dict[str, t.Any] | None", after))
    return {"before_header": title, "after_header": title, **shown}


def run(body: t.Callable[[Task], dict[str, t.Any]], arguments: Arguments) -> None:
    """Run a module: ``body`` returns the result; what went wrong becomes one clear message."""
    task = Task(arguments)
    try:
        result = body(task)
    except InputErrors as error:
        task.module.fail_json(msg="\n".join(error.messages), errors=list(error.messages))
    except TaskFailed as error:
        task.module.fail_json(msg=str(error), **error.result)
    except ClusterError as error:
        task.module.fail_json(msg=str(error))
    except Exception as error:  # noqa: BLE001 (whatever it is, the user gets a sentence)
        task.module.fail_json(
            msg=f"An error that this collection does not expect: {type(error).__name__}: {error}. Please report it.",
            exception=traceback.format_exc(),
        )
    else:
        task.module.exit_json(**result)


class TaskFailed(Exception):
    """The module did its work in part: the message says what failed, ``result`` what was done."""

    def __init__(self, message: str, result: dict[str, t.Any]) -> None:
        super().__init__(message)
        self.result = result
