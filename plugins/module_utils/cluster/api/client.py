# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Reads and writes objects on the API server: plain dicts, paged lists, retries, and writes that need the run's Lease.

Every failure is a ClusterError: one sentence with the request, the object, the server's answer and what to do. No
message contains a credential.
"""

from __future__ import annotations

import copy
import random
import time
import typing as t
from dataclasses import dataclass, replace

from ...core.base import names, objects
from ...core.base.kinds import SELF_SUBJECT_ACCESS_REVIEW, SELF_SUBJECT_REVIEW, SELF_SUBJECT_RULES_REVIEW, Kind
from ...core.base.objects import Object
from . import answers, transport, watch
from .answers import ServerAnswer
from .transport import Request

if t.TYPE_CHECKING:
    from ...core.base.permissions import Permission

AUTH_ARGUMENTS = transport.AUTH_ARGUMENTS
"""kubernetes.core's options to reach a cluster, for an argument spec; documented by its ``k8s_auth_options``."""

RETRY_SECONDS = 60.0
"""How long a request is repeated before it fails. An API server that restarts is back within this time."""

WRITE_TIMEOUT_SECONDS = 15.0
"""One attempt of a write may take so long, here and (by the query parameter ``timeout``) in the server. A write starts
at most 10 s after the Lease was renewed, and must have ended before another run can take the Lease over, after 30 s."""

_FIRST_PAUSE_SECONDS = 0.25
_LONGEST_PAUSE_SECONDS = 5.0
_SILENT_SECONDS = 150.0
"""A watch that is silent for this long has lost its connection."""

_VERSIONS_SECONDS = 1.0
"""How long a list of all API groups may be used again. A snapshot takes longer."""

_NO_NAMESPACE = "no.namespace"
"""No namespace can have this name, so no RoleBinding adds its rules to those that hold everywhere."""

_MOST_LISTINGS = 3
_MOST_EDITS = 10
_LONGEST_EDIT_PAUSE_SECONDS = 0.5
_DENIALS = (" denied request: ", " denied the request: ")
"""What the API server says when a policy or webhook refuses a request."""

_WEBHOOK_FAILURE = "failed calling webhook"
"""What it says, with status 500, when it cannot call a webhook whose failurePolicy is Fail (apiserver's webhook dispatchers)."""

_NO_UNKNOWN_FIELDS = ("fieldValidation", "Strict")

JsonPatch = t.Sequence[t.Mapping[str, t.Any]]


@dataclass(frozen=True)
class DeleteOptions:
    """How ``Cluster.delete`` deletes an object, in the terms of Kubernetes' DeleteOptions."""

    uid: str | None = None
    """An object of the same name but another uid stays."""
    resource_version: str | None = None
    """An object that has changed since stays."""
    propagation: t.Literal["Background", "Foreground"] = "Background"
    """What happens to dependents. Never Orphan: the primary DaemonSet adopts orphaned handler pods."""
    grace_seconds: int | None = None
    """None for the object's own grace period."""

    def to_object(self, *, dry_run: bool) -> Object:
        body: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": self.propagation}
        if self.grace_seconds is not None:
            body["gracePeriodSeconds"] = self.grace_seconds
        preconditions = {"uid": self.uid, "resourceVersion": self.resource_version}
        body["preconditions"] = {key: value for key, value in preconditions.items() if value is not None}
        if dry_run:  # The server ignores the query parameter when there is a body: it would delete the object.
            body["dryRun"] = ["All"]
        return body


# Errors -------------------------------------------------------------------------------------------------------------


class ClusterError(Exception):
    """The cluster did not do what was asked. The message is one sentence for a person.

    ``maybe_applied``: an earlier attempt of this request got no answer, or none that tells what came of it, and the server may
    have carried it out. A Conflict may then come from our own write.
    """

    def __init__(self, message: str, *, maybe_applied: bool = False) -> None:
        super().__init__(message)
        self.maybe_applied = maybe_applied


class Unreachable(ClusterError):
    """The server gave no answer, or only failures, for the whole retry time; or we cannot talk to it at all."""


class Forbidden(ClusterError):
    """The server does not accept the credentials, they do not allow the request, or a quota or the like does not."""


class Denied(ClusterError):
    """An admission policy or webhook refused the request, or failed to judge it."""


class WebhookDown(Denied):
    """For the whole retry time, the server could not call a webhook without which it does not carry out the request."""


class NotFound(ClusterError):
    """The object does not exist, or the server does not serve its API."""


class Invalid(ClusterError):
    """The server refused the content of the request."""


class Conflict(ClusterError):
    """The object has changed since it was read: read it again."""


class AlreadyExists(Conflict):
    """An object of that name exists."""


class _Expired(ClusterError):
    """The server has forgotten the listing that a continue token belongs to."""


# The cluster --------------------------------------------------------------------------------------------------------


class Cluster:
    """Reads and writes objects as plain dicts, as the API serves them.

    Every method can raise ClusterError, Unreachable and Forbidden; other subclasses are named where they occur. A
    request that gets no answer, status 429, a failure of the server or a conflict about another object is repeated for
    ``retry_seconds``. That includes writes: each method says what happens when the server carried out an attempt without
    answering. With ``dry_run`` the server does everything (admission, validation, the answer) but store the object.

    ``keep_lease`` is called before each attempt of a write that stores something, and of each page of a list: other runs
    take over a Lease that is not renewed while a long list is read. An exception stops the request.
    """

    keep_lease: t.Callable[[], None] | None = None

    def __init__(
        self,
        transport: transport.Transport,
        *,
        retry_seconds: float = RETRY_SECONDS,
        clock: t.Callable[[], float] = time.monotonic,
        sleep: t.Callable[[float], None] = time.sleep,
    ) -> None:
        self._transport = transport
        self._retry_seconds = retry_seconds
        self._clock = clock
        self._sleep = sleep
        self._served: dict[str, frozenset[str]] = {}
        self._granted: t.Sequence[Object] | None = None
        self._versions: tuple[float | None, frozenset[str]] = (None, frozenset())

    @classmethod
    def connect(cls, params: t.Mapping[str, t.Any], *, retry_seconds: float = RETRY_SECONDS) -> Cluster:
        """The cluster that a module's options (AUTH_ARGUMENTS) name. Sends no request.

        Raises Unreachable when a library is missing, or when options, environment and kubeconfig name no cluster.
        """
        try:
            return cls(transport.connect(params), retry_seconds=retry_seconds)
        except transport.CannotConnect as error:
            raise Unreachable(str(error)) from error

    @property
    def server(self) -> str:
        """The URL of the API server, for messages."""
        return self._transport.server

    def without_lease(self) -> Cluster:
        """The same cluster without ``keep_lease``: for the Lease itself."""
        other = copy.copy(self)
        other.keep_lease = None
        return other

    def retrying_for(self, retry_seconds: float) -> Cluster:
        """The same cluster with another retry time, without ``keep_lease``: for reads that we can do without."""
        return Cluster(self._transport, retry_seconds=retry_seconds, clock=self._clock, sleep=self._sleep)

    # Reads

    def get(self, kind: Kind, name: str, namespace: str | None = None) -> Object | None:
        """The object; None when it or its API does not exist."""
        try:
            return self.existing(kind, name, namespace)
        except NotFound:
            return None

    def existing(self, kind: Kind, name: str, namespace: str | None = None) -> Object:
        """The object. Raises NotFound when it or its API does not exist."""
        address = _Address(kind, name, namespace)
        return self._answer(Request("GET", address.path), f"read {address}", kind)

    def subresource(self, kind: Kind, name: str, namespace: str | None, subresource: str) -> Object:
        """What the server answers for a subresource. Raises NotFound when it or its API does not exist."""
        address = _Address(kind, name, namespace)
        return self._answer(Request("GET", f"{address.path}/{subresource}"), f"read {subresource} of {address}", kind)

    def list(
        self,
        kind: Kind,
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
        page: int = 500,
        missing_ok: bool = False,
        managed_fields: bool = True,
    ) -> t.Iterator[Object]:
        """Every object of ``kind`` in ``namespace`` (None: in all namespaces), read page by page while you iterate.

        Each object comes once, with its apiVersion and kind. When the server forgets the listing half-way (410, after
        some minutes), the listing starts again, and an object that changed in between may come in its old or new state.
        Raises NotFound when the server does not serve the API; with ``missing_ok`` the result is empty instead. Without
        ``managed_fields`` an object lacks those of its metadata as a rule: reading thousands of objects takes less time.
        """
        query = [("limit", str(page))]
        if label_selector:
            query.append(("labelSelector", label_selector))
        if field_selector:
            query.append(("fieldSelector", field_selector))
        seen: set[str | None] = set()
        for item in self._items(kind, namespace, tuple(query), missing_ok, managed_fields):
            uid = item["metadata"].get("uid")
            if uid is None or uid not in seen:
                seen.add(uid)
                yield {"apiVersion": kind.api_version, "kind": kind.name, **item}

    def _items(
        self,
        kind: Kind,
        namespace: str | None,
        query: tuple[tuple[str, str], ...],
        missing_ok: bool,
        managed_fields: bool,
    ) -> t.Iterator[Object]:
        """The items of a paged listing. When the listing expires it starts again, and gives the same items again."""
        path = kind.path(namespace)
        action = f"list {kind.plural}" + (f" in namespace {namespace}" if namespace else "")
        token = ""
        listings = 1
        while True:
            request = Request("GET", path, (*query, ("continue", token)) if token else query)
            try:
                answer = self._answer(request, action, kind, self.keep_lease, managed_fields=managed_fields)
            except NotFound:
                if missing_ok:
                    return
                raise
            except _Expired:
                listings += 1
                if listings > _MOST_LISTINGS:
                    raise
                token = ""
                continue
            token = answer.get("metadata", {}).get("continue", "")
            items = answer.get("items") or []
            del answer  # A page is large: it is freed before the next one comes.
            items.reverse()
            while items:
                yield items.pop()
            if not token:
                return

    def follow(self, kind: Kind, namespace: str | None = None, *, label_selector: str, seconds: float) -> watch.Watch:
        """What happens to these objects from now on, for at most ``seconds``. The connection is opened by another thread; when
        it fails, breaks or is not allowed, following ends."""
        selected = ("labelSelector", label_selector)
        path = kind.path(namespace)
        now = self._answer(Request("GET", path, (("limit", "1"), selected)), f"list {kind.plural}", kind)
        query = (
            ("watch", "true"),
            selected,
            ("resourceVersion", now["metadata"]["resourceVersion"]),
            ("allowWatchBookmarks", "true"),  # about one a minute: a silent connection is dead
            ("timeoutSeconds", f"{seconds:.0f}"),
        )
        return watch.ThreadWatch(self._transport, Request("GET", path, query, timeout_seconds=_SILENT_SECONDS))

    def serves(self, kind: Kind) -> bool:
        """Whether the server serves this kind in this version, now or a second ago. What it serves is asked once."""
        if kind.plural in self._served.get(kind.base_path, ()):
            return True
        if kind.api_version not in self._api_versions():
            return False
        try:
            served = self._answer(Request("GET", kind.base_path), f"ask for the API {kind.api_version}", kind)
        except NotFound:
            return False
        plurals = frozenset(str(resource.get("name")) for resource in served.get("resources") or ())
        self._served[kind.base_path] = plurals
        return kind.plural in plurals

    def _api_versions(self) -> t.Collection[str]:
        """The groups and their versions that the server has. A snapshot asks about many that most clusters do not have."""
        asked_at, versions = self._versions
        now = self._clock()
        if asked_at is None or now - asked_at >= _VERSIONS_SECONDS:
            answer = self._answer(Request("GET", "/apis"), "ask for the APIs", SELF_SUBJECT_REVIEW)
            groups = answer.get("groups") or ()
            versions = frozenset(str(each["groupVersion"]) for group in groups for each in group["versions"])
            self._versions = (now, versions)
        return versions

    def first_served(self, *kinds: Kind) -> Kind | None:
        """The first of these versions of one kind that the server serves; None when it serves none."""
        return next((kind for kind in kinds if self.serves(kind)), None)

    def version(self) -> str | None:
        """The server's version, as ``v1.36.3``; None when it does not say."""
        try:
            answer = self._answer(Request("GET", "/version"), "ask for the server's version", SELF_SUBJECT_REVIEW)
        except (Forbidden, NotFound):
            return None
        version = answer.get("gitVersion")
        return str(version) if version else None

    # Writes

    def apply(self, kind: Kind, obj: Object, *, dry_run: bool, force: bool = True) -> Object:
        """Server-side apply ``obj`` as our field manager: create the object, or set its fields and keep the others.

        With ``force`` we take over fields that other managers own, without it they raise Conflict. Unknown fields raise
        Invalid. Returns the object as stored.
        """
        address = _Address.for_object(kind, obj)
        query = (("force", "true" if force else "false"), _NO_UNKNOWN_FIELDS)
        return self._write("apply", address, Request("PATCH", address.path, query, obj, answers.APPLY), dry_run)

    def create(self, kind: Kind, obj: Object, *, dry_run: bool) -> Object:
        """Create ``obj``. Unknown fields raise Invalid, an object of that name raises AlreadyExists.

        When an attempt got no answer and the next one finds an object of that name that contains all of ``obj``, we
        created it, and it is returned. Any other object then raises AlreadyExists with ``maybe_applied``.
        """
        address = _Address.for_object(kind, obj)
        request = Request("POST", kind.path(address.namespace), (_NO_UNKNOWN_FIELDS,), obj)
        try:
            return self._write("create", address, request, dry_run)
        except AlreadyExists as error:
            live = self.get(kind, address.name, address.namespace) if error.maybe_applied else None
            if live is not None and objects.contains(live, obj):
                return live
            raise

    def replace(self, kind: Kind, obj: Object, *, dry_run: bool) -> Object:
        """Write the whole object. Raises Conflict when it is no longer at the resourceVersion inside ``obj``.

        With ``maybe_applied``, our own write, whose answer was lost, may have changed it.
        """
        address = _Address.for_object(kind, obj)
        return self._write("replace", address, Request("PUT", address.path, body=obj), dry_run)

    def json_patch(
        self, kind: Kind, name: str, ops: JsonPatch, namespace: str | None = None, *, dry_run: bool
    ) -> Object:
        """Apply a JSON patch (RFC 6902). A failed ``test`` or a missing path raises Conflict.

        The patch is sent again when an answer is lost. When applying it twice would do harm, as with ``add`` to the end
        of a list, it must begin with a test that fails then. After Conflict with ``maybe_applied``, read again.
        """
        address = _Address(kind, name, namespace)
        request = Request("PATCH", address.path, body=[*ops], content_type=answers.JSON_PATCH)
        return self._write("patch", address, request, dry_run)

    def delete(
        self,
        kind: Kind,
        name: str,
        namespace: str | None = None,
        options: DeleteOptions = DeleteOptions(),
        *,
        dry_run: bool,
    ) -> bool:
        """Delete the object; finalizers and grace periods may keep it for a while.

        Returns False when there was nothing to delete: no object of that name, or one with another ``options.uid``.
        Raises Conflict when the object is not at ``options.resource_version``.
        """
        address = _Address(kind, name, namespace)
        request = Request("DELETE", address.path, body=options.to_object(dry_run=dry_run))
        try:
            self._write("delete", address, request, dry_run)
        except NotFound as error:
            return error.maybe_applied
        except Conflict:
            live = self.get(kind, name, namespace)
            if live is not None and options.uid in (None, live["metadata"]["uid"]):
                raise
            return False
        return True

    def edit(
        self,
        kind: Kind,
        name: str,
        namespace: str | None,
        change: t.Callable[[Object], Object | None],
        *,
        dry_run: bool,
    ) -> tuple[Object, Object]:
        """Read the object, let ``change`` change it, and write it back: for objects that others write too.

        ``change`` gets a copy of the object and returns the new one; None or an equal object means no change. When
        another client writes first, the object is read again and ``change`` is called again; after ten times this raises
        Conflict. Returns the object before our write and as stored; twice the same for no change.
        """
        ours: Object | None = None  # the object before a write that got no answer and may have been carried out
        for attempt in range(1, _MOST_EDITS + 1):
            live = self.existing(kind, name, namespace)
            wanted = change(copy.deepcopy(live))
            if wanted is None or wanted == live:
                return ours or live, live
            wanted["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"]
            try:
                return live, self.replace(kind, wanted, dry_run=dry_run)
            except Conflict as error:
                if attempt == _MOST_EDITS:
                    raise
                if error.maybe_applied:
                    ours = live
                self._sleep(random.uniform(0, min(0.02 * 2**attempt, _LONGEST_EDIT_PAUSE_SECONDS)))  # noqa: S311
        raise AssertionError("the last attempt returns or raises")

    # Who we are

    def missing_permissions(self, permissions: t.Iterable[Permission]) -> tuple[Permission, ...]:
        """Those of ``permissions`` that we do not have, in the same order. Stores nothing.

        One request tells most rights, once for all calls. Only what it leaves open is asked one by one.
        """
        if self._granted is None:
            self._granted = self._rules()
        rules = self._granted
        return tuple(
            permission
            for permission in permissions
            if not any(permission.is_granted_by(rule) for rule in rules) and not self._allowed(permission)
        )

    def _rules(self) -> t.Sequence[Object]:
        """What we may do in all namespaces; nothing where the server cannot tell all rules.

        An authorizer that cannot list its rules, such as a webhook, might refuse what the rules of others allow.
        """
        try:
            spec = {"namespace": _NO_NAMESPACE}
            status = self._review(SELF_SUBJECT_RULES_REVIEW, spec, "ask for our permissions")["status"]
        except (Forbidden, NotFound):
            return ()
        complete = not status.get("incomplete") and not status.get("evaluationError")
        return (status.get("resourceRules") or ()) if complete else ()

    def _allowed(self, permission: Permission) -> bool:
        spec = {"resourceAttributes": dict(vars(permission))}
        review = self._review(SELF_SUBJECT_ACCESS_REVIEW, spec, "ask for our permissions")
        return bool(review["status"].get("allowed"))

    def user(self) -> str:
        """Our user name, as the server knows it."""
        review = self._review(SELF_SUBJECT_REVIEW, {}, "ask for our user name")
        return str(review["status"]["userInfo"]["username"])

    def _review(self, kind: Kind, spec: Object, action: str) -> Object:
        """Ask for a review. The server never stores one, so this is not a write."""
        body = {"apiVersion": kind.api_version, "kind": kind.name, "spec": spec}
        return self._answer(Request("POST", kind.path(), body=body), action, kind)

    # Requests

    def _write(self, verb: str, address: _Address, request: Request, dry_run: bool) -> Object:
        """Send a write with the parameters that all writes have in common."""
        query = [*request.query, ("timeout", f"{WRITE_TIMEOUT_SECONDS:.0f}s")]
        if request.method != "DELETE":
            query.append(("fieldManager", names.FIELD_MANAGER))
            if dry_run:
                query.append(("dryRun", "All"))
        request = replace(request, query=tuple(query), timeout_seconds=WRITE_TIMEOUT_SECONDS)
        return self._answer(request, f"{verb} {address}", address.kind, None if dry_run else self.keep_lease)

    def _answer(
        self,
        request: Request,
        action: str,
        kind: Kind,
        before_attempt: t.Callable[[], None] | None = None,
        *,
        managed_fields: bool = True,
    ) -> Object:
        """The JSON object that the server answers. ``action`` completes the sentence "Could not …"."""
        answer, maybe_applied = self._send(request, action, before_attempt)
        if not 200 <= answer.status < 300:
            error = _error_for(request, answer, action, kind, self.server)
            error.maybe_applied = maybe_applied
            raise error
        if not managed_fields:
            answer = answer.without_managed_fields()
        if answer.object is None:
            raise ClusterError(
                f"Could not {action}: {self.server} did not answer in JSON; is it the address of an API server, and not "
                "of a proxy or a login page?",
                maybe_applied=True,
            )
        return answer.object

    def _send(
        self, request: Request, action: str, before_attempt: t.Callable[[], None] | None
    ) -> tuple[ServerAnswer, bool]:
        """Send the request until the answer is final; also says whether an earlier attempt may have been carried out.

        Each pause is twice as long as the one before, with a random part: many clients must not come back at once.
        """
        give_up = self._clock() + self._retry_seconds
        refused_at: float | None = None
        pause = _FIRST_PAUSE_SECONDS
        maybe_applied = False
        while True:
            wait = pause * random.uniform(0.5, 1.0)  # noqa: S311 (not a secret)
            asked_to_wait = 0.0
            try:
                if before_attempt is not None:
                    before_attempt()
                answer = self._attempt(request)
            except ClusterError as error:
                error.maybe_applied = maybe_applied  # what is true of this request, not of one for the Lease
                raise
            except transport.NoAnswer as error:
                problem = str(error)
                maybe_applied |= error.sent
                refused_at = None
            else:
                if answer.status not in answers.REFUSALS:
                    refused_at = None
                elif refused_at is None:
                    refused_at = self._clock()
                if not answers.is_transient(request, answer, refused_at, self._clock()):
                    return answer, maybe_applied
                problem = answer.summary
                maybe_applied |= answer.status >= 500
                asked_to_wait = answer.retry_after_seconds
                wait = max(wait, asked_to_wait)
            if self._clock() + wait > give_up:
                if _WEBHOOK_FAILURE in problem:
                    raise WebhookDown(
                        f"Could not {action}: the API server at {self.server} cannot call a webhook: {problem}; repair that "
                        "webhook, then run again.",
                        maybe_applied=maybe_applied,
                    )
                if asked_to_wait > _LONGEST_PAUSE_SECONDS:
                    raise Unreachable(
                        f"Could not {action}: the API server at {self.server} asks to wait for {asked_to_wait:.0f} s, and a "
                        f"request is repeated for {self._retry_seconds:.0f} s at most, last: {problem}; run again when it is less "
                        "busy.",
                        maybe_applied=maybe_applied,
                    )
                raise Unreachable(
                    f"Could not {action}: the API server at {self.server} gave no useful answer for "
                    f"{self._retry_seconds:.0f} s, last: {problem}; check that it works and can be reached from here, "
                    "then run again.",
                    maybe_applied=maybe_applied,
                )
            self._sleep(wait)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def _attempt(self, request: Request) -> ServerAnswer:
        try:
            response = self._transport.send(request)
        except transport.CannotConnect as error:
            raise Unreachable(str(error)) from error
        return ServerAnswer(response.status, response.headers, response.body)


# Answers and sentences ----------------------------------------------------------------------------------------------


def _error_for(request: Request, answer: ServerAnswer, action: str, kind: Kind, server: str) -> ClusterError:
    """The error for a final answer without success."""
    status, message = answer.status, answer.message
    if status == 401:
        return Forbidden(
            f"Could not {action}: the API server at {server} does not accept the credentials; check the token or the "
            "client certificate, it may have expired."
        )
    if status == 403 and any(words in message for words in _DENIALS):
        remedy = answers.remedy(message)
        return Denied(f"Could not {action}: admission refuses it: {message}.{f' {remedy}' if remedy else ''}")
    if status == 403 and (not_a_right := answers.admission_refusal(answer)):
        return Forbidden(f"Could not {action}: {not_a_right}")
    if status == 403:
        return Forbidden(
            f"Not allowed to {action}: {message}. Grant this right (the collection's ClusterRoles have all that is needed) "
            "or use other credentials."
        )
    if status == 404:
        return NotFound(f"Could not {action}: {answers.what_is_missing(answer, kind)}.")
    if status == 410:
        return _Expired(f"Could not {action}: the listing expired every time, the API server is too slow; run again.")
    if answer.reason == "AlreadyExists":
        return AlreadyExists(f"Could not {action}: one with that name already exists.")
    if status == 409 and request.content_type == answers.APPLY:
        return Conflict(f"Could not {action}: others own fields of it ({message}); they must give them up.")
    if status == 422 and answers.patch_does_not_fit(request, answer):
        return Conflict(f"Could not {action}: it is not as it was when the change was planned; run again.")
    if status == 409:
        return Conflict(f"Could not {action}: it was changed by someone else in the meantime ({message}); run again.")
    if status in (400, 422) or answers.unknown_field(request, answer):
        return Invalid(f"Could not {action}: the API server refuses its content: {message}.")
    return ClusterError(f"Could not {action}: the API server at {server} answered {answer.summary}.")


@dataclass(frozen=True)
class _Address:
    """Which object a request is about."""

    kind: Kind
    name: str
    namespace: str | None

    @classmethod
    def for_object(cls, kind: Kind, obj: Object) -> _Address:
        return cls(kind, obj["metadata"]["name"], obj["metadata"].get("namespace"))

    @property
    def path(self) -> str:
        return self.kind.path(self.namespace, self.name)

    def __str__(self) -> str:
        return f"{self.kind} {self.name}" + (f" in namespace {self.namespace}" if self.namespace else "")
