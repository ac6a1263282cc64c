# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""What an API server answered: its status, its message for people, and whether to send the request again."""

from __future__ import annotations

import functools
import json
import re
import typing as t
from dataclasses import dataclass, replace

from ...core.base.kinds import Kind
from ...core.base.objects import Object
from .transport import Request

APPLY = "application/apply-patch+yaml"  # JSON is YAML
JSON_PATCH = "application/json-patch+json"

_FAILURES = frozenset({429, 500, 502, 503, 504})
REFUSALS = frozenset({401, 403})
_REFUSAL_SECONDS = 1.0
"""A refusal counts only when it lasts so long: a restarted API server forbids what is allowed for a moment (30 ms on
Kubernetes 1.36), until it has read its RBAC rules."""

_MOST_MESSAGE = 1000

_MANAGED_FIELDS = b',"managedFields":['
_END_OF_MANAGED_FIELDS = re.compile(rb'\](?=\}?,"[a-zA-Z])')


@dataclass(frozen=True)
class ServerAnswer:
    """The server's answer, success or not. Failures of an API server are Status objects."""

    status: int
    headers: t.Mapping[str, str]
    body: bytes

    @functools.cached_property
    def object(self) -> Object | None:
        """The JSON object in the answer; None when there is none."""
        try:
            value = json.loads(self.body)
        except ValueError:
            return None
        return value if isinstance(value, dict) else None

    @property
    def reason(self) -> str:
        """A Status's reason, a word for machines."""
        return str((self.object or {}).get("reason") or "")

    @property
    def details(self) -> Object:
        """A Status's details: which object it is about."""
        return (self.object or {}).get("details") or {}

    @property
    def message(self) -> str:
        """The message for people, without a full stop."""
        if self.object is not None:
            return _shortened(str(self.object.get("message") or "it gave no reason"))
        text = self.body.decode(errors="replace")
        return _shortened(text) if text and not text.lstrip().startswith("<") else "it gave no reason"

    @property
    def summary(self) -> str:
        return f"{self.status} {self.reason}".rstrip() + f", {self.message}"

    @property
    def retry_after_seconds(self) -> float:
        """The seconds that the server asks us to wait; 0 when it gives no number (an API server sends no dates)."""
        value = self.headers.get("retry-after", "")
        return float(value) if value.isdigit() else 0.0

    def without_managed_fields(self) -> ServerAnswer:
        """The same list without what the metadata of its objects says about who set which field: 40% of the text of a launcher pod, and
        of the time to parse it. Only JSON without spaces, as API servers write it, gets shorter.

        Inside a text, quotes have a backslash. So a quote between a comma and a letter begins a text, and what is before it is outside
        of any. The fields contain mappings alone: they end at the first bracket.
        """
        first, *others = self.body.split(_MANAGED_FIELDS)
        parts = [first]
        for other in others:
            end = _END_OF_MANAGED_FIELDS.search(other)
            parts += [_MANAGED_FIELDS, other] if end is None else [other[end.end() :]]
        return replace(self, body=b"".join(parts))


def is_transient(request: Request, answer: ServerAnswer, refused_at: float | None, now: float) -> bool:
    """Whether to send the request again: the server fails, is busy with an object that ours depends on, or has refused for too
    short a time to be believed."""
    if answer.status in REFUSALS and refused_at is not None:
        return now - refused_at < _REFUSAL_SECONDS
    return (answer.status in _FAILURES and not unknown_field(request, answer)) or _conflicts_elsewhere(request, answer)


def _conflicts_elsewhere(request: Request, answer: ServerAnswer) -> bool:
    """Whether a 409 is about another object than ours, and so nothing was stored: what is being created cannot have changed.

    The API server answers that when several creations change the status of the same ResourceQuota at once (apiserver's
    quota admission).
    """
    if answer.status != 409 or answer.reason == "AlreadyExists":
        return False
    return request.method == "POST" or answer.details.get("kind") == "resourcequotas"


_ADMISSION = re.compile(r" is forbidden: (?!User )")
"""How a refusal by an admission plugin of the API server begins. Where a right is missing, the user is named (apiserver)."""

_REMEDIES = (
    (" quota: ", "Raise that quota, or delete what it counts."),
    (" PodSecurity ", "Let the label pod-security.kubernetes.io/enforce of the namespace allow it."),
    (
        " security context constraint",
        "Let the ServiceAccount of such pods use SecurityContextConstraints that allow it.",
    ),
    (" usage per ", "Change the LimitRange of the namespace."),
    (" is being terminated", "Wait until the namespace is deleted, or choose another one."),
)
"""What to do about refusals where the user has the right, by words of their messages (Kubernetes and OpenShift)."""


def admission_refusal(answer: ServerAnswer) -> str | None:
    """Why the API server refuses what the user has the right to do, with what helps; None for any other answer."""
    message = answer.message
    if not _ADMISSION.search(message):
        return None
    return f"admission refuses it: {message.rstrip('.')}. {remedy(message) or 'No right is missing.'}"


def remedy(message: str) -> str | None:
    """What helps against a refusal of admission, by its message; None where that is not known."""
    return next((text for words, text in _REMEDIES if words in message), None)


def unknown_field(request: Request, answer: ServerAnswer) -> bool:
    """Whether the server answers that an applied object has a field that its kind does not have.

    Server-side apply answers with 500 then (apiserver's managedfields/internal/structuredmerge.go); seen on 1.36.
    """
    return request.content_type == APPLY and "failed to create typed patch object" in answer.message


def patch_does_not_fit(request: Request, answer: ServerAnswer) -> bool:
    """Whether a 422 says that a JSON patch does not fit the object, rather than that its result is invalid.

    The API server then names no object and hides the patch library's error (applyJSPatch in apiserver's
    endpoints/handlers/patch.go); seen on 1.36. An admission webhook's 422 may name no object either, but has a message.
    """
    generic = "the server rejected our request due to an error in our request"
    return request.content_type == JSON_PATCH and not answer.details and answer.message == generic


def what_is_missing(answer: ServerAnswer, kind: Kind) -> str:
    """Names what is missing. The server names a missing object or namespace, but not a kind that it does not know."""
    if "name" in answer.details:
        return answer.message
    return f"this cluster does not serve {kind.plural} in {kind.api_version}; install what provides them"


def _shortened(text: str) -> str:
    text = " ".join(text.split()).rstrip(".")
    if len(text) <= _MOST_MESSAGE:
        return text
    # The cause stands at the end, after a policy's expression, which may be long.
    return f"{text[: _MOST_MESSAGE // 2]} … {text[-_MOST_MESSAGE // 2 :]}"
