# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import random

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api import answers
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.answers import ServerAnswer
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.transport import Request
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds

GET = Request("GET", "/api/v1/nodes")
POST = Request("POST", "/api/v1/nodes")
APPLY = Request("PATCH", "/api/v1/nodes/n1", content_type=answers.APPLY)
PATCH = Request("PATCH", "/api/v1/nodes/n1", content_type=answers.JSON_PATCH)


def status(code, message="", reason="", details=None, **headers):
    body = {"kind": "Status", "message": message, "reason": reason, "details": details}
    return ServerAnswer(code, headers, json.dumps(body).encode())


class TestMessage:
    @pytest.mark.parametrize(
        ("body", "message"),
        [
            (b'{"message": "not  today.\\n"}', "not today"),
            (b"{}", "it gave no reason"),
            (b"plain text.", "plain text"),
            (b"<html>a proxy</html>", "it gave no reason"),
            (b"", "it gave no reason"),
            (b"[1]", "[1]"),
        ],
    )
    def test_is_one_line_without_a_full_stop(self, body, message):
        assert ServerAnswer(500, {}, body).message == message

    def test_of_many_characters_keeps_both_ends(self):
        message = status(422, "begin " + "x" * 5000 + " end").message
        assert message.startswith("begin x")
        assert message.endswith("x end")
        assert len(message) < 1100

    def test_summary_has_the_status_and_the_reason(self):
        assert status(409, "changed", "Conflict").summary == "409 Conflict, changed"
        assert ServerAnswer(502, {}, b"").summary == "502, it gave no reason"


@pytest.mark.parametrize(("value", "seconds"), [("3", 3.0), ("", 0.0), ("Wed, 25 Nov 2026", 0.0)])
def test_retry_after_is_a_number_of_seconds(value, seconds):
    assert ServerAnswer(429, {"retry-after": value}, b"").retry_after_seconds == seconds


class TestTransient:
    @pytest.mark.parametrize("code", [429, 500, 502, 503, 504])
    def test_failures_of_the_server_are(self, code):
        assert answers.is_transient(GET, status(code), None, 0.0)

    @pytest.mark.parametrize("code", [200, 400, 404, 409, 422])
    def test_final_answers_are_not(self, code):
        assert not answers.is_transient(GET, status(code), None, 0.0)

    @pytest.mark.parametrize("code", [401, 403])
    def test_a_refusal_is_for_one_second(self, code):
        assert answers.is_transient(GET, status(code), 10.0, 10.9)
        assert not answers.is_transient(GET, status(code), 10.0, 11.1)

    def test_a_conflict_about_a_quota_is(self):
        quota = status(409, "Operation cannot be fulfilled on resourcequotas", "Conflict", {"kind": "resourcequotas"})
        assert answers.is_transient(POST, quota, None, 0.0)
        assert answers.is_transient(APPLY, quota, None, 0.0)

    def test_a_conflict_about_what_is_created_is_only_of_its_name(self):
        assert answers.is_transient(POST, status(409, "try again", "Conflict"), None, 0.0)
        assert not answers.is_transient(POST, status(409, "it exists", "AlreadyExists"), None, 0.0)

    def test_an_unknown_field_is_not_although_the_status_is_500(self):
        unknown = status(500, "failed to create typed patch object (/; v1, Kind=Node): .x: field not declared")
        assert answers.unknown_field(APPLY, unknown)
        assert not answers.is_transient(APPLY, unknown, None, 0.0)
        assert answers.is_transient(GET, unknown, None, 0.0)


def test_an_unfitting_json_patch_is_not_an_invalid_result():
    generic = "the server rejected our request due to an error in our request"
    assert answers.patch_does_not_fit(PATCH, status(422, generic))
    assert not answers.patch_does_not_fit(PATCH, status(422, generic, details={"name": "n1"}))
    assert not answers.patch_does_not_fit(PATCH, status(422, "spec is invalid"))
    assert not answers.patch_does_not_fit(APPLY, status(422, generic))


def test_what_is_missing_is_the_object_or_the_kind():
    named = status(404, 'nodes "n1" not found', details={"name": "n1"})
    assert answers.what_is_missing(named, kinds.NODE) == 'nodes "n1" not found'
    assert answers.what_is_missing(status(404, "page not found"), kinds.NODE) == (
        "this cluster does not serve nodes in v1; install what provides them"
    )


class TestWithoutManagedFields:
    """A part of the text is cut out before it is parsed, whatever stands in the texts around it."""

    NASTY = (
        *(
            ',"managedFields":[',
            '"managedFields":[',
            '],"name":"x',
            ']},"spec":{',
            "]}",
            '],"',
            "],",
            "],a",
            "\\",
            '\\"',
            "ü\n",
        ),
        *('f:],"', 'k:{"name":"],"}', 'v:"]},"', '{"managedFields":[{}],"name":1}'),
    )

    def fields(self, rng):
        """Managed fields: mappings of mappings."""
        entry = {"manager": rng.choice(self.NASTY), "fieldsV1": {rng.choice(self.NASTY): {rng.choice(self.NASTY): {}}}}
        return [entry] * rng.randrange(3)

    def items(self, rng, *, managed):
        """Launcher pods, whose metadata ends with the managed fields, and VMIs, where a name follows."""
        for number in range(4):
            fields = {"managedFields": self.fields(rng)}
            texts = {rng.choice(self.NASTY): rng.choice(self.NASTY), "managedFields": rng.choice(self.NASTY)}
            metadata = {"annotations": texts, **(fields if managed else {}), **({"name": "vm"} if number % 2 else {})}
            yield {"metadata": metadata, "spec": {"args": [rng.choice(self.NASTY), texts]}}

    @pytest.mark.parametrize("seed", range(50))
    def test_everything_else_stays(self, seed):
        whole, rest = (
            {"kind": "PodList", "items": list(self.items(random.Random(seed), managed=managed))}
            for managed in (True, False)
        )
        body = json.dumps(whole, separators=(",", ":"), ensure_ascii=False).encode()
        assert ServerAnswer(200, {}, body).without_managed_fields().object == rest

    def test_a_list_in_another_style_stays_as_it_is(self):
        items = {"items": [{"metadata": {"name": "a", "managedFields": [{}]}, "spec": {}}]}
        for body in (json.dumps(items), json.dumps({"metadata": {"a": 1, "managedFields": []}}, separators=(",", ":"))):
            assert ServerAnswer(200, {}, body.encode()).without_managed_fields().body == body.encode()
