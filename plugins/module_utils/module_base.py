# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""What all modules share: reading their options, access to the cluster, the Lease around writes, errors and results."""

from __future__ import annotations

import contextlib
import functools
import gc
import getpass
import socket
import time
import traceback
import typing as t
import uuid
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from . import option_table
from .cluster.api import credentials
from .cluster.api.client import AUTH_ARGUMENTS, Cluster, ClusterError, Forbidden
from .cluster.api.lease import DURATION_SECONDS, RunLease
from .cluster.api.waiting import Clock, StatusLines
from .cluster.reading import dump, live
from .cluster.reading.asked import Asked
from .cluster.writing import history, record_file, settle
from .core.base import objects, permissions
from .core.base.findings import InputErrors, counted, listed
from .core.base.permissions import Permission
from .core.kubevirt import preflight
from .core.modes import choice
from .core.modes.mode import ClusterView, Mode
from .core.observed.snapshot import Snapshot
from .core.planning import interruption, plan, removal
from .core.planning.approval import ClusterId
from .core.planning.history import History
from .core.planning.plan import Plan
from .core.pools import dialects
from .core.reports import run_record
from .option_table import Arguments

show: t.Callable[[str], None] | None = None
"""Shows a line while a module runs. plugin_utils/in_worker.py sets it; a module in a process of its own can show none."""
note: t.Callable[[list[str]], None] | None = None
"""Keeps what a person reads who interrupts the run, in place of what was noted before. It is set like ``show``."""


class Module(AnsibleModule):
    """An AnsibleModule that treats empty and null options as unset, and hides only the secrets of a kubeconfig."""

    params: dict[str, t.Any]
    kubeconfig: t.Any
    """This option is not in ``params``: Ansible would hide everything in it wherever it occurs, so a node ``n1`` with a kubeconfig
    ``n1``, and the version ``v1`` with a dictionary."""

    def _load_params(self) -> None:
        super()._load_params()
        internal = {name: value for name, value in self.params.items() if name.startswith("_ansible_")}
        given = option_table.given(self.params, self.argument_spec)
        self.kubeconfig = given.pop("kubeconfig", None)
        self.no_log_values.update(credentials.secrets(self.kubeconfig))
        self.params = {**given, **internal}


_OBJECTS_PER_COLLECTION = 100_000

_HIDDEN = "********"
"""What Ansible puts in the place of a secret, wherever its text occurs in a result."""

_SETTLE_SECONDS = 300
"""How long a run waits for a KubeVirt that is Degraded; one that stays so ends the wait earlier."""


class Task:
    """One execution of a module."""

    def __init__(self, arguments: Arguments, *, of_kubevirt: bool = True) -> None:
        spec = {**AUTH_ARGUMENTS, **(option_table.arguments("kubevirt") if of_kubevirt else {}), **arguments}
        self.module = Module(argument_spec=spec, supports_check_mode=True)
        self.params: dict[str, t.Any] = {**self.module.params, "kubeconfig": self.module.kubeconfig}
        self.check_mode: bool = self.module.check_mode
        self.status = StatusLines(lambda line: show(line) if show is not None else None, note=self.note_run)
        self.clock = Clock(status=self.status)
        self._lease: RunLease | None = None
        self.forget()

    def forget(self) -> None:
        """Forget what was read of the cluster."""
        self.asked = Asked(self.params, lambda: self.cluster, self._read_history)

    @property
    def run_by(self) -> str:
        """Who runs this, for people who read the Lease and the history."""
        return self.params.get("run_by") or _user_and_host()

    @functools.cached_property
    def cluster(self) -> Cluster:
        return Cluster.connect({**self.params, "run_by": self.run_by})

    def snapshot(self, nodes: t.Collection[str] | None = None) -> Snapshot:
        """The state of the cluster, or of some of its nodes.

        :raises Forbidden: when a right to read it is missing. The message names all missing rights.
        """
        # Modules that plan look where the alerts are to be.
        settings = self.asked.options.alerts if "alerts" in self.params else None
        with self.naming_rights(permissions.READER):
            return live.take_snapshot(
                self.cluster,
                self.params["kubevirt_namespace"],
                self.params["kubevirt_name"],
                nodes,
                settings.namespace if settings else None,
                schema=self.asked.mode == "operator",
            )

    def observed(self, *, handlers: bool = True) -> tuple[Snapshot, list[dict[str, t.Any]] | None]:
        """The state of the cluster or, with the option ``dump``, that of its files and their objects.

        :param handlers: whether handler pods are needed.
        """
        if not self.params["dump"]:
            return self.snapshot(), None
        objects = dump.read_objects(self.params["dump"])
        kubevirt = self.params["kubevirt_namespace"], self.params["kubevirt_name"]
        return dump.snapshot_of(objects, *kubevirt, handlers=handlers), objects

    def cluster_id(self) -> ClusterId:
        """Which cluster this is; with ``dump``, nothing tells."""
        return (
            ClusterId("", "")
            if self.params.get("dump")
            else ClusterId(self.cluster.server, live.uid(self.cluster) or "")
        )

    def check_nodes(self, names: t.Collection[str], *, planned: bool = False) -> None:
        """Check the option ``nodes``. Inside a run, a node that does not exist was deleted since the run's plan.

        :param planned: whether they are from a plan, also without a run's Lease, as in check mode.
        :raises InputErrors: when a name is not a node's or, outside a run, when there is no such node.
        """
        hidden = [name for name in names if _HIDDEN in name]
        if hidden:
            problem = f"nodes has {listed(hidden)}, where Ansible has hidden a part that is also the text of a secret"
            raise InputErrors([f"{problem}, such as a password: give names as kubectl shows them, or another secret."])
        if planned or self.params["run_id"]:
            return
        with self.naming_rights(permissions.READER):
            found = {node["metadata"]["name"] for node in live.nodes_named(self.cluster, names)}
        missing = set(names) - found
        if missing:
            raise InputErrors(
                [f"nodes has {listed(missing)}, which the cluster does not have: correct or omit the name."]
            )

    def require(self, rights: t.Iterable[Permission]) -> None:
        """Check that the user has these rights.

        :raises ClusterError: when some are missing. The message names all of these.
        """
        missing = self.cluster.missing_permissions(rights)
        if missing:
            raise ClusterError(
                f"The user {self.cluster.user()} lacks {counted(len(missing), 'permission')} on {self.cluster.server}: "
                f"{', '.join(map(str, missing))}. Bind it to the ClusterRole virtpools-reader (plan and info modules) or "
                "virtpools-writer (runs) that this collection ships."
            )

    def lacks(self, rights: t.Iterable[Permission]) -> bool:
        """Whether the user lacks one of these rights."""
        return bool(self.cluster.missing_permissions(rights))

    @contextlib.contextmanager
    def naming_rights(self, rights: t.Iterable[Permission]) -> t.Iterator[None]:
        """Let a refused request name all of these rights that are missing."""
        try:
            yield
        except Forbidden:
            self.require(rights)
            raise

    def namespace(self) -> str:
        """KubeVirt's namespace."""
        found = live.find_kubevirt(self.cluster, self.params["kubevirt_namespace"], self.params["kubevirt_name"])
        return str(found["metadata"]["namespace"])

    def _read_history(self) -> History:
        return history.read(self.cluster, self.namespace())

    def mode(self, found: Snapshot) -> Mode:
        """The mode in which a run works on this cluster.

        :raises InputErrors: when the mode asked for is not possible here, or both modes are in use.
        """
        return choice.choose(self.asked.mode, found)

    def view(self, mode: Mode, found: Snapshot, *, recorded: bool = False) -> ClusterView:
        """The cluster, compared with the pools given or, without any or with ``recorded``, with those that it records.

        :raises InputErrors: when none are given and the cluster has none.
        """
        asked = self.asked
        pools, dialect = (asked.pools, asked.dialect) if asked.pools_given and not recorded else (None, dialects.OWN)
        return mode.view(found, pools, asked.options, dialect=dialect)

    def plan(self, nodes: t.Collection[str] | None = None) -> Plan:
        """The plan for the pools and options given, on the present cluster or on some of its nodes."""
        return plan.make_plan(self.snapshot(nodes), self.asked.pools, self.asked.options)

    def settle(self, timeout: float) -> None:
        """Wait until KubeVirt is healthy and has rolled out its last change. A run keeps its Lease.

        :raises ClusterError: when that takes longer than ``timeout`` seconds, or KubeVirt is being upgraded.
        """
        namespace, name = self.params["kubevirt_namespace"], self.params["kubevirt_name"]
        found = live.find_kubevirt(self.cluster, namespace, name)["metadata"]
        with self.waiting(found["namespace"]):
            settle.await_settled(self.cluster, found["namespace"], found["name"], timeout, self.clock)

    def refuse(self, made: Plan, but: t.Collection[str] = ()) -> None:
        """Refuse a plan that has errors. Errors with the codes ``but`` are ignored.

        :raises InputErrors: with all errors.
        """
        errors = [finding.message for finding in made.errors if finding.code not in but]
        if errors:
            raise InputErrors(errors)

    def plan_in_run(self) -> Plan:
        """The plan, which has no errors. Inside a run, transient errors are ignored: the run's plan has waited for
        it, and each batch makes KubeVirt unavailable again for some seconds. A KubeVirt that stays Degraded, or that goes on rolling
        out another deployment, is refused. After a wait for it the module plans again: KubeVirt's DaemonSet may be another.

        :raises InputErrors: with all errors.
        :raises ClusterError: when KubeVirt stays Degraded, or does not settle.
        """
        made = self.plan()
        if not self.params["run_id"] or self.check_mode:
            self.refuse(made)
            return made
        passing = preflight.PASSING | {removal.UNKNOWN}  # a pool that this run has removed
        self.refuse(made, but=passing)
        if {preflight.DEGRADED, preflight.ROLLOUT} & {finding.code for finding in made.errors}:
            self.settle(_SETTLE_SECONDS)
            made = self.plan()
            self.refuse(made, but=passing)
        return made

    def waiting(self, namespace: str | None = None) -> t.ContextManager[None]:
        """Keep the Lease of the run ``run_id`` during waits before a module writes, or without a write. Without a run there is none to
        keep, and a module that holds it keeps it already.

        :param namespace: KubeVirt's, if it is known.
        """
        if not self.params["run_id"] or self._lease is not None:
            return contextlib.nullcontext()
        return self.writing(namespace or self.namespace())

    @contextlib.contextmanager
    def writing(self, namespace: str) -> t.Iterator[None]:
        """Hold the Lease, that of the run ``run_id`` or, without one, a Lease for this module alone. With the latter in hand, the module
        begins again: until then, another run may have changed what this one has read."""
        if self._lease is None:
            self._lease = self._held(namespace)
            if not self.params["run_id"]:
                raise _ReadAgain
        self.note_run(None if self.asked.mode == "operator" else ())
        self.clock = Clock(beat=self._lease.ensure_fresh, status=self.status)
        try:
            yield
        finally:
            self.let_go()

    def _held(self, namespace: str) -> RunLease:
        """The Lease, held, and kept by all that this module reads and writes from now on."""
        run_id = self.params["run_id"]
        lease = RunLease(self.cluster, namespace, run_id or new_run_id(), description=self.run_by)
        if run_id:
            lease.attach()
        else:
            lease.acquire(self.params["lease_timeout"], self.status.say)
        self.cluster.keep_lease = lease.ensure_fresh
        return lease

    @property
    def created_lease(self) -> bool:
        """Whether there was no Lease until this module created one for itself."""
        return self._lease is not None and self._lease.created

    def let_go(self) -> None:
        """Release a Lease that is for this module alone, and leave that of a run to the run."""
        if self._lease is None:
            return
        lease, self._lease = self._lease, None
        self.cluster.keep_lease = None
        self.clock = Clock(status=self.status)
        if self.params["run_id"]:
            return
        self.note_end_of_run()
        # A failure is only a warning: the Lease expires by itself, and the module's result matters more.
        try:
            lease.release()
        except ClusterError as error:
            self.module.warn(str(error))

    def note_run(self, half_way: t.Collection[str] | None = (), lease_seconds: int = DURATION_SECONDS) -> None:
        """Keep what a person must know who interrupts the run from now on. For the parameters see ``interruption.lines``."""
        if note is not None:
            note(interruption.lines(half_way, lease_seconds))

    def note_end_of_run(self) -> None:
        """From now on, nothing can be interrupted half way."""
        if note is not None:
            note([])


def new_run_id() -> str:
    return f"run-{uuid.uuid4().hex[:12]}"


def _user_and_host() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        # A container whose user has no name.
        user = "unknown user"
    return f"{user} on {socket.gethostname()}"


def object_diff(
    before: t.Mapping[str, t.Any] | None,
    after: t.Mapping[str, t.Any] | None,
    origin: t.Mapping[str, t.Any] | None = None,
) -> dict[str, t.Any]:
    """One entry of an Ansible diff: the fields that differ between two objects, under the object's name.

    Of an object of ours that is deleted, the spec is left out: it is long, and follows from the pool list.

    :param origin: the object from which a new one is derived. The entry then shows how the new one differs from it.
    """
    title = _title(after or before or {})
    titles = {"before_header": title, "after_header": title}
    if before is None and origin is not None:
        before = origin
        titles = {"before_header": f"{_title(origin)}, which stays", "after_header": f"{title}, which is new"}
    elif after is None and before is not None and objects.is_managed(before):
        before = {name: value for name, value in before.items() if name != "spec"}
    shown = objects.diff(t.cast("dict[str, t.Any] | None", before), t.cast("dict[str, t.Any] | None", after))
    return {**titles, **shown}


def _title(obj: t.Mapping[str, t.Any]) -> str:
    metadata = obj.get("metadata") or {}
    return "/".join(str(part) for part in (obj.get("kind"), metadata.get("namespace"), metadata.get("name")) if part)


def run(body: t.Callable[[Task], dict[str, t.Any]], arguments: Arguments, *, of_kubevirt: bool = True) -> None:
    """Run a module. ``body`` returns its result; an exception becomes the message of a failure.

    :param of_kubevirt: whether the module has the options that name a KubeVirt object.
    """
    task, began = Task(arguments, of_kubevirt=of_kubevirt), time.time()
    result = {**_result(body, task), **_events(task)}
    if task.params.get("run_record"):
        module = Path(body.__code__.co_filename).stem
        step = run_record.step_of(module, task.params, result, began, time.time())
        record_file.append(task.params["run_record"], step.to_line())
    if result.get("failed"):
        task.module.fail_json(**result)
    task.module.exit_json(**result)


def _result(body: t.Callable[[Task], dict[str, t.Any]], task: Task) -> dict[str, t.Any]:
    """The result of a module, also of one that fails."""
    try:
        option_table.check_numbers(task.params, task.module.argument_spec)
        with _fewer_collections():
            return _carried_out(body, task)
    except InputErrors as error:
        return {"failed": True, "msg": "\n".join(error.messages)}
    except TaskFailed as error:
        return {"failed": True, "msg": str(error), **error.result}
    except ClusterError as error:
        return {"failed": True, "msg": str(error)}
    except Exception as error:  # noqa: BLE001 (whatever it is, the user gets a sentence)
        return {"failed": True, "msg": _unexpected(task, error), "exception": traceback.format_exc()}


def _carried_out(body: t.Callable[[Task], dict[str, t.Any]], task: Task) -> dict[str, t.Any]:
    try:
        return body(task)
    except _ReadAgain:
        task.forget()
    try:
        return body(task)
    finally:
        task.let_go()


def _events(task: Task) -> dict[str, t.Any]:
    """What has happened, for a result: shown at once where a module runs in Ansible's worker, else at its end."""
    return {"events": task.status.events} if task.status.events else {}


@contextlib.contextmanager
def _fewer_collections() -> t.Iterator[None]:
    """Let Python look for unreachable cycles less often. A page of a list is hundreds of thousands of new objects, none of them in
    a cycle, and looking at them each time that 700 more exist costs half as much as parsing them."""
    before = gc.get_threshold()
    gc.set_threshold(_OBJECTS_PER_COLLECTION, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _unexpected(task: Task, error: Exception) -> str:
    """A sentence on an error that no code expects. An API server validates objects, but files are not validated."""
    what = f"{type(error).__name__}: {error}"
    files = [str(task.params[name]) for name in ("manifest", "dump") if task.params.get(name)]
    if files and isinstance(error, (AttributeError, LookupError, TypeError, ValueError)):
        return (
            f"An object in {' or '.join(files)} has a field that is not as Kubernetes serves it ({what}); compare it with the output "
            "of kubectl get -o yaml, or check it with kubectl apply --dry-run=server."
        )
    return f"An error that this collection does not expect: {what}. Please report it."


class _ReadAgain(Exception):
    """The module has the Lease now, and has read the cluster before that."""


class TaskFailed(Exception):
    """The module did only a part of its work. The message says what failed, ``result`` what was done."""

    def __init__(self, message: str, result: dict[str, t.Any]) -> None:
        super().__init__(message)
        self.result = result
