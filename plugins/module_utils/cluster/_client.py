# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""The API server, as this collection uses it: plain objects in and out, pages, retries, guarded writes.

Every failure is a ClusterError: one sentence that says what was asked, of which object, what the server said and what
to do. Credentials never appear in one.
"""

from __future__ import annotations

import copy
import functools
import json
import random
import time
import typing as t
from dataclasses import dataclass

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster import _transport
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster._transport import JSON, Request
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import names, objects
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kinds import (
    SELF_SUBJECT_ACCESS_REVIEW,
    SELF_SUBJECT_REVIEW,
    Kind,
)

if t.TYPE_CHECKING:
    from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.objects import Object
    from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.permissions import Permission

AUTH_ARGUMENTS = _transport.AUTH_ARGUMENTS
"""kubernetes.core's options to reach a cluster, for an argument spec; documented by its ``k8s_auth_options``."""

RETRY_SECONDS = 60.0
"""How long a request is repeated before it fails. An API server that restarts is back within this time."""

WRITE_TIMEOUT_SECONDS = 15.0
"""How long one attempt of a write may take, here and (through the query parameter ``timeout``) in the server. A write
may start up to 10 s after the Lease was renewed; it must have ended when the Lease can be taken over, after 30 s."""

_FIRST_PAUSE_SECONDS = 0.25
_LONGEST_PAUSE_SECONDS = 5.0
_FAILURES = frozenset({429, 500, 502, 503, 504})
_REFUSALS = frozenset({401, 403})
_REFUSAL_SECONDS = 1.0
"""How long a refusal must last to be believed: a restarted API server answers for a moment (30 ms on Kubernetes 1.36)
before it has read its RBAC rules, and forbids what is allowed."""

_MOST_LISTINGS = 3
_MOST_EDITS = 10
_LONGEST_EDIT_PAUSE_SECONDS = 0.5
_MOST_MESSAGE = 1000
_DENIALS = (" denied request: ", " denied the request: ")
"""How policies and webhooks refuse, in the API server's words."""

_APPLY = "application/apply-patch+yaml"  # JSON is YAML
_JSON_PATCH = "application/json-patch+json"
_MERGE_PATCH = "application/merge-patch+json"

JsonPatch = t.Sequence[t.Mapping[str, t.Any]]
Propagation = t.Literal["Background", "Foreground"]
"""What a deletion does with dependents. Never Orphan: the primary DaemonSet adopts orphaned handler pods."""


# Errors -------------------------------------------------------------------------------------------------------------


class ClusterError(Exception):
    """The cluster did not do what was asked. The message is one sentence for a person.

    ``maybe_applied``: an earlier attempt of this very request got no answer and may have been carried out; with a
    Conflict, what is in the way may be the write itself.
    """

    def __init__(self, message: str, *, maybe_applied: bool = False) -> None:
        super().__init__(message)
        self.maybe_applied = maybe_applied


class Unreachable(ClusterError):
    """No answer, or none but failures of the server, for the whole retry time; or no way to talk to it at all."""


class Forbidden(ClusterError):
    """The credentials are not accepted, or do not allow what was asked."""


class Denied(ClusterError):
    """An admission policy or webhook refused the request, or failed to judge it."""


class NotFound(ClusterError):
    """The object, or its whole API, is not there."""


class Invalid(ClusterError):
    """The server refused the content of the request."""


class Conflict(ClusterError):
    """The object is not in the state the write was made for: read it again."""


class AlreadyExists(Conflict):
    """There is an object of that name."""


class _Expired(ClusterError):
    """The server has forgotten the listing that a continue token belongs to."""


# The cluster --------------------------------------------------------------------------------------------------------


class Cluster:
    """Reads and writes objects as plain dicts, as the API serves them.

    All methods raise ClusterError or one of its subclasses; Unreachable and Forbidden can come from any of them.
    A request without an answer, or answered with 429 or a failure of the server, is repeated for ``retry_seconds``,
    writes too: each method says how it meets an earlier attempt that was carried out after all.
    Writes with ``dry_run`` are complete (admission, validation, the answer) but store nothing.

    ``before_write`` is called before every attempt of a write that stores something; what it raises stops the write.
    """

    before_write: t.Callable[[], None] | None = None

    def __init__(
        self,
        transport: _transport.Transport,
        *,
        retry_seconds: float = RETRY_SECONDS,
        clock: t.Callable[[], float] = time.monotonic,
        sleep: t.Callable[[float], None] = time.sleep,
    ) -> None:
        self._transport = transport
        self._retry_seconds = retry_seconds
        self._clock = clock
        self._sleep = sleep

    @classmethod
    def connect(cls, params: t.Mapping[str, t.Any], *, retry_seconds: float = RETRY_SECONDS) -> Cluster:
        """The cluster that a module's options (AUTH_ARGUMENTS) name. Sends no request.

        Raises Unreachable when a library is missing, or the options, environment and kubeconfig name no cluster.
        """
        try:
            return cls(_transport.connect(params), retry_seconds=retry_seconds)
        except _transport.CannotConnect as error:
            raise Unreachable(str(error)) from error

    @property
    def server(self) -> str:
        """Where the API server is, for messages."""
        return self._transport.server

    def unguarded(self) -> Cluster:
        """The same cluster without ``before_write``: for the Lease, whose renewal is what ``before_write`` does."""
        other = copy.copy(self)
        other.before_write = None
        return other

    def within(self, retry_seconds: float) -> Cluster:
        """The same cluster, for reading, with requests that fail sooner: for answers that can be done without."""
        return Cluster(self._transport, retry_seconds=retry_seconds, clock=self._clock, sleep=self._sleep)

    # Reads

    def get(self, kind: Kind, name: str, namespace: str | None = None) -> Object | None:
        """The object; None when it, or its API, is not there."""
        try:
            return self.existing(kind, name, namespace)
        except NotFound:
            return None

    def existing(self, kind: Kind, name: str, namespace: str | None = None) -> Object:
        """The object. Raises NotFound when it, or its API, is not there."""
        path = kind.path(namespace, name)
        return self._answer(Request("GET", path), f"read {_what(kind, name, namespace)}", kind)

    def subresource(self, kind: Kind, name: str, namespace: str | None, subresource: str) -> Object:
        """What the server answers for a subresource. Raises NotFound when it, or its API, is not there."""
        path = f"{kind.path(namespace, name)}/{subresource}"
        return self._answer(Request("GET", path), f"read {subresource} of {_what(kind, name, namespace)}", kind)

    def list(
        self,
        kind: Kind,
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
        page: int = 500,
        missing_ok: bool = False,
    ) -> t.Iterator[Object]:
        """Every object of ``kind`` in ``namespace`` (None: in all), read in pages as the iteration goes on.

        Each object comes once and says its apiVersion and kind. When the server forgets the listing half-way (410,
        after some minutes), it begins anew, and objects that were changed meanwhile may be their older or newer self.
        Raises NotFound when the API is not served; with ``missing_ok`` there are then just no objects.
        """
        query = [("limit", str(page))]
        if label_selector:
            query.append(("labelSelector", label_selector))
        if field_selector:
            query.append(("fieldSelector", field_selector))
        seen: set[str | None] = set()
        for item in self._items(kind, namespace, tuple(query), missing_ok):
            uid = item["metadata"].get("uid")
            if uid is None or uid not in seen:
                seen.add(uid)
                yield {"apiVersion": kind.api_version, "kind": kind.name, **item}

    def _items(
        self, kind: Kind, namespace: str | None, query: tuple[tuple[str, str], ...], missing_ok: bool
    ) -> t.Iterator[Object]:
        """The items of a paged listing, begun anew when it expires: then with those items again that were given."""
        path = kind.path(namespace)
        asked = f"list {kind.plural}" + (f" in namespace {namespace}" if namespace else "")
        token = ""
        listings = 1
        while True:
            request = Request("GET", path, (*query, ("continue", token)) if token else query)
            try:
                answer = self._answer(request, asked, kind)
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
            yield from answer.get("items") or ()
            token = answer.get("metadata", {}).get("continue", "")
            if not token:
                return

    def exists_api(self, kind: Kind) -> bool:
        """Whether the server serves this kind in this version: is its CRD installed?"""
        try:
            served = self._answer(Request("GET", kind.base_path), f"ask for the API {kind.api_version}", kind)
        except NotFound:
            return False
        return any(resource.get("name") == kind.plural for resource in served.get("resources") or ())

    def first_served(self, *kinds: Kind) -> Kind | None:
        """The first of these (versions of one kind) that the server serves."""
        return next((kind for kind in kinds if self.exists_api(kind)), None)

    def version(self) -> str | None:
        """The server's version, as ``v1.36.3``; None when it does not say."""
        try:
            answer = self._answer(Request("GET", "/version"), "ask for the server's version", SELF_SUBJECT_REVIEW)
        except (Forbidden, NotFound):
            return None
        found = answer.get("gitVersion")
        return str(found) if found else None

    # Writes

    def apply(self, kind: Kind, obj: Object, *, dry_run: bool, force: bool = True) -> Object:
        """Server-side apply ``obj`` as our field manager: create it, or make what it says so and keep the rest.

        With ``force`` fields that other managers own become ours, without it they raise Conflict. Unknown fields
        raise Invalid. Returns the object as stored.
        """
        query = (("force", "true" if force else "false"), ("fieldValidation", "Strict"))
        name, namespace = _address(obj)
        return self._write("PATCH", "apply", kind, name, namespace, obj, dry_run, content_type=_APPLY, query=query)

    def create(self, kind: Kind, obj: Object, *, dry_run: bool) -> Object:
        """Create ``obj``; unknown fields raise Invalid, an object of that name raises AlreadyExists.

        When an attempt got no answer and the next finds an object of that name which has all that ``obj`` says, that
        is ours, and returned; any other raises AlreadyExists with ``maybe_applied``.
        """
        name, namespace = _address(obj)
        try:
            return self._write(
                "POST", "create", kind, name, namespace, obj, dry_run, query=(("fieldValidation", "Strict"),)
            )
        except AlreadyExists as error:
            live = self.get(kind, name, namespace) if error.maybe_applied else None
            if live is not None and objects.contains(live, obj):
                return live
            raise

    def replace(self, kind: Kind, obj: Object, *, dry_run: bool) -> Object:
        """Write the whole object. Raises Conflict when it is no longer at the resourceVersion inside ``obj``.

        With ``maybe_applied``, that may be our own write whose answer was lost.
        """
        name, namespace = _address(obj)
        return self._write("PUT", "replace", kind, name, namespace, obj, dry_run)

    def json_patch(
        self, kind: Kind, name: str, ops: JsonPatch, namespace: str | None = None, *, dry_run: bool
    ) -> Object:
        """Apply a JSON patch (RFC 6902). A failed ``test``, or a path that is not there, raises Conflict.

        It may be sent again when an answer is lost: where applying it twice would do harm, as with ``add`` to the end of a
        list, it must begin with a test that fails then. After Conflict with ``maybe_applied``, read the object again.
        """
        return self._write("PATCH", "patch", kind, name, namespace, [*ops], dry_run, content_type=_JSON_PATCH)

    def merge_patch(
        self, kind: Kind, name: str, patch: Object, namespace: str | None = None, *, dry_run: bool
    ) -> Object:
        """Apply a JSON merge patch (RFC 7386): lists are replaced, null removes."""
        return self._write("PATCH", "patch", kind, name, namespace, patch, dry_run, content_type=_MERGE_PATCH)

    def delete(
        self,
        kind: Kind,
        name: str,
        namespace: str | None = None,
        *,
        dry_run: bool,
        uid: str | None = None,
        resource_version: str | None = None,
        propagation: Propagation = "Background",
        grace_seconds: int | None = None,
    ) -> bool:
        """Have the object deleted; finalizers and grace periods may keep it for a while.

        False when there was nothing to delete: no such object or, with ``uid``, another one of that name. Raises
        Conflict when it is not at ``resource_version``.
        """
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        preconditions = {"uid": uid, "resourceVersion": resource_version}
        options["preconditions"] = {key: value for key, value in preconditions.items() if value is not None}
        if dry_run:  # as a query parameter it is ignored when there is a body: the object would be gone
            options["dryRun"] = ["All"]
        try:
            self._write("DELETE", "delete", kind, name, namespace, options, dry_run)
        except NotFound as error:
            return error.maybe_applied
        except Conflict:
            live = self.get(kind, name, namespace)
            if live is not None and uid in (None, live["metadata"]["uid"]):
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
        """Read the object, write what ``change`` makes of it, and nothing else: for lists that others write, too.

        ``change`` gets a copy of the object and returns the new one, or None (or an equal one) for no change. It is
        called again with the object read anew when somebody else was faster; raises Conflict when that never ends.
        Returns the object as it was before our write and as stored; twice the same for no change.
        """
        ours: Object | None = None  # what an attempt without an answer was made from: it may have been carried out
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

    def can(self, permissions: t.Iterable[Permission]) -> tuple[Permission, ...]:
        """Those of ``permissions`` that the server would not allow us, in the same order. Stores nothing."""
        return tuple(permission for permission in permissions if not self._allowed(permission))

    def _allowed(self, permission: Permission) -> bool:
        attributes = {
            "verb": permission.verb,
            "group": permission.group,
            "resource": permission.resource,
            "subresource": permission.subresource,
            "namespace": permission.namespace,
            "name": permission.name,
        }
        review = self._review(SELF_SUBJECT_ACCESS_REVIEW, {"resourceAttributes": attributes}, "ask for our permissions")
        return bool(review["status"].get("allowed"))

    def user(self) -> str:
        """The name the server knows us by."""
        review = self._review(SELF_SUBJECT_REVIEW, {}, "ask for our user name")
        return str(review["status"]["userInfo"]["username"])

    def _review(self, kind: Kind, spec: Object, asked: str) -> Object:
        """Reviews are created, but never stored: they are no writes."""
        body = {"apiVersion": kind.api_version, "kind": kind.name, "spec": spec}
        return self._answer(Request("POST", kind.path(), body=body), asked, kind)

    # Requests

    def _write(
        self,
        method: str,
        verb: str,
        kind: Kind,
        name: str,
        namespace: str | None,
        body: t.Any,
        dry_run: bool,
        *,
        content_type: str = JSON,
        query: tuple[tuple[str, str], ...] = (),
    ) -> Object:
        common = [("timeout", f"{WRITE_TIMEOUT_SECONDS:.0f}s")]
        if method != "DELETE":
            common.append(("fieldManager", names.FIELD_MANAGER))
            if dry_run:
                common.append(("dryRun", "All"))
        request = Request(
            method,
            kind.path(namespace, None if method == "POST" else name),
            (*query, *common),
            body,
            content_type,
            WRITE_TIMEOUT_SECONDS,
        )
        before = None if dry_run else self.before_write
        return self._answer(request, f"{verb} {_what(kind, name, namespace)}", kind, before)

    def _answer(
        self, request: Request, asked: str, kind: Kind, before_attempt: t.Callable[[], None] | None = None
    ) -> Object:
        """The JSON object the server answers with. ``asked`` completes the sentence "Could not …"."""
        answer, maybe_applied = self._repeated(request, asked, before_attempt)
        if not 200 <= answer.status < 300:
            raise _refusal(request, answer, asked, kind, self.server, maybe_applied)
        if answer.object is None:
            raise ClusterError(
                f"Could not {asked}: {self.server} did not answer in JSON; is it the address of an API server, and not "
                "of a proxy or a login page?"
            )
        return answer.object

    def _repeated(
        self, request: Request, asked: str, before_attempt: t.Callable[[], None] | None
    ) -> tuple[_Answer, bool]:
        """The first answer worth having, and whether an attempt before it may have been carried out.

        The pauses double, with a random part so that many clients do not come back at once.
        """
        give_up = self._clock() + self._retry_seconds
        refused_at: float | None = None
        pause = _FIRST_PAUSE_SECONDS
        maybe_applied = False
        while True:
            if before_attempt is not None:
                before_attempt()
            wait = pause * random.uniform(0.5, 1.0)  # noqa: S311 (not a secret)
            try:
                answer = self._attempt(request)
            except _transport.NoAnswer as error:
                problem = str(error)
                maybe_applied |= error.sent
            else:
                if answer.status in _REFUSALS and refused_at is None:
                    refused_at = self._clock()
                if not _worth_repeating(request, answer, refused_at, self._clock()):
                    return answer, maybe_applied
                problem = answer.summary
                maybe_applied |= answer.status >= 500
                wait = max(wait, answer.retry_after_seconds)
            if self._clock() + wait > give_up:
                raise Unreachable(
                    f"Could not {asked}: the API server at {self.server} gave no useful answer for "
                    f"{self._retry_seconds:.0f} s, last: {problem}; see that it works and can be reached from here, "
                    "then run again.",
                    maybe_applied=maybe_applied,
                )
            self._sleep(wait)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def _attempt(self, request: Request) -> _Answer:
        try:
            response = self._transport.send(request)
        except _transport.CannotConnect as error:
            raise Unreachable(str(error)) from error
        return _Answer(response.status, response.headers, response.body)


# Answers and sentences ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Answer:
    """What the server said, success or not; a Status object if it is an API server's failure."""

    status: int
    headers: t.Mapping[str, str]
    body: bytes

    @functools.cached_property
    def object(self) -> Object | None:
        """The JSON object it answered with, if it did."""
        try:
            value = json.loads(self.body)
        except ValueError:
            return None
        return value if isinstance(value, dict) else None

    @property
    def reason(self) -> str:
        """Of a Status: a word for machines."""
        return str((self.object or {}).get("reason") or "")

    @property
    def details(self) -> Object:
        """Of a Status: which object it is about."""
        return (self.object or {}).get("details") or {}

    @property
    def said(self) -> str:
        """The message for people, without a full stop."""
        if self.object is not None:
            return _clipped(str(self.object.get("message") or "it did not say why"))
        text = self.body.decode(errors="replace")
        return _clipped(text) if text and not text.lstrip().startswith("<") else "it did not say why"

    @property
    def summary(self) -> str:
        return f"{self.status} {self.reason}".rstrip() + f", {self.said}"

    @property
    def retry_after_seconds(self) -> float:
        """How long the server asks us to wait; 0 without a number (an API server sends no dates)."""
        value = self.headers.get("retry-after", "")
        return float(value) if value.isdigit() else 0.0


def _worth_repeating(request: Request, answer: _Answer, refused_at: float | None, now: float) -> bool:
    if answer.status in _REFUSALS and refused_at is not None:
        return now - refused_at < _REFUSAL_SECONDS
    return answer.status in _FAILURES and not _unknown_field(request, answer)


def _unknown_field(request: Request, answer: _Answer) -> bool:
    """Whether a failure of the server says that an applied object has a field the kind has not.

    Server-side apply answers 500 to that (apiserver's managedfields/internal/structuredmerge.go); seen on 1.36.
    """
    return request.content_type == _APPLY and "failed to create typed patch object" in answer.said


def _patch_does_not_fit(request: Request, answer: _Answer) -> bool:
    """Whether a 422 says that a JSON patch does not fit the object, and not that its result is invalid.

    The API server then names no object and keeps the patch library's error to itself (applyJSPatch in apiserver's
    endpoints/handlers/patch.go); seen on 1.36. An admission webhook's 422 may name no object either, but has a message.
    """
    generic = "the server rejected our request due to an error in our request"
    return request.content_type == _JSON_PATCH and not answer.details and answer.said == generic


def _refusal(
    request: Request, answer: _Answer, asked: str, kind: Kind, server: str, maybe_applied: bool
) -> ClusterError:
    """The error for an answer that is neither success nor worth repeating."""
    status, said = answer.status, answer.said
    if status == 401:
        return Forbidden(
            f"Could not {asked}: the API server at {server} does not accept the credentials; check the token or the "
            "client certificate, it may have expired."
        )
    if status == 403 and any(words in said for words in _DENIALS):
        return Denied(f"Could not {asked}: admission refuses it: {said}.")
    if status == 403:
        return Forbidden(
            f"Not allowed to {asked}: {said}. Grant this right (the collection's ClusterRoles have all that is needed) "
            "or use other credentials."
        )
    if status == 404:
        return NotFound(f"Could not {asked}: {_not_there(answer, kind)}.", maybe_applied=maybe_applied)
    if status == 410:
        return _Expired(f"Could not {asked}: the listing expired every time, the API server is too slow; run again.")
    if answer.reason == "AlreadyExists":
        return AlreadyExists(f"Could not {asked}: there is one of that name already.", maybe_applied=maybe_applied)
    if status == 409 and request.content_type == _APPLY:
        return Conflict(f"Could not {asked}: others own fields of it ({said}); they must leave them to us.")
    if status == 422 and _patch_does_not_fit(request, answer):
        return Conflict(
            f"Could not {asked}: it is not as it was when the change was planned; run again.",
            maybe_applied=maybe_applied,
        )
    if status == 409:
        return Conflict(
            f"Could not {asked}: it was changed by someone else in the meantime ({said}); run again.",
            maybe_applied=maybe_applied,
        )
    if status in (400, 422) or _unknown_field(request, answer):
        return Invalid(f"Could not {asked}: the API server refuses its content: {said}.")
    return ClusterError(f"Could not {asked}: the API server at {server} answered {answer.summary}.")


def _not_there(answer: _Answer, kind: Kind) -> str:
    """Names what is not there. The server names a missing object (or its namespace), but no kind it does not know."""
    if "name" in answer.details:
        return answer.said
    return f"this cluster does not serve {kind.plural} in {kind.api_version}; install what brings them"


def _what(kind: Kind, name: str, namespace: str | None) -> str:
    return f"{kind.name} {name}" + (f" in namespace {namespace}" if namespace else "")


def _clipped(text: str) -> str:
    text = " ".join(text.split()).rstrip(".")
    if len(text) <= _MOST_MESSAGE:
        return text
    # The cause is at the end, after an expression of a policy that may be long.
    return f"{text[: _MOST_MESSAGE // 2]} … {text[-_MOST_MESSAGE // 2 :]}"


def _address(obj: Object) -> tuple[str, str | None]:
    """Name and namespace of an object."""
    return obj["metadata"]["name"], obj["metadata"].get("namespace")
