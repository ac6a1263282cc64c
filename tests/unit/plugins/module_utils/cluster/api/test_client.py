# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The client against scripted answers: its requests, its retries and its messages."""

from __future__ import annotations

import gc
import json
import typing

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.client import (
    AlreadyExists,
    Cluster,
    ClusterError,
    Conflict,
    DeleteOptions,
    Denied,
    Forbidden,
    Invalid,
    NotFound,
    Unreachable,
    WebhookDown,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.transport import (
    CannotConnect,
    NoAnswer,
    Response,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.kinds import (
    DAEMON_SET,
    HYPER_CONVERGED,
    HYPER_CONVERGED_V1BETA1,
    KUBEVIRT,
    NODE,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.permissions import Permission

REFUSED = NoAnswer("Connection refused", sent=False)
LOST = NoAnswer("Connection reset by peer", sent=True)
GENERIC_422 = "the server rejected our request due to an error in our request"


class Script:
    """A transport that gives these answers, one per request, and keeps the requests."""

    server = "https://api.example:6443"

    def __init__(self, *answers):
        self.answers = list(answers)
        self.requests = []

    def send(self, request):
        self.requests.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    @property
    def request(self):
        """The only request."""
        (request,) = self.requests
        return request


class Time:
    """A clock that moves only while somebody sleeps."""

    def __init__(self):
        self.now = 1000.0
        self.slept = []

    def clock(self):
        return self.now

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds


def ok(value, status=200):
    return Response(status, json.dumps(value).encode())


def failure(status, reason="", message="it said so", details=None, **headers):
    """A failure as an API server answers it: a Status object."""
    answer = {"kind": "Status", "code": status, "reason": reason, "message": message, "details": details or {}}
    return Response(status, json.dumps(answer).encode(), {k.replace("_", "-"): v for k, v in headers.items()})


def cluster_of(*answers, time=None, **options):
    time = time or Time()
    script = Script(*answers)
    return Cluster(script, clock=time.clock, sleep=time.sleep, **options), script


def node(name="n1", version="7", **labels):
    return {"metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": version, "labels": labels}}


def page(*names, token=""):
    return ok({"metadata": {"continue": token}, "items": [node(name) for name in names]})


EXPIRED = failure(410, "Expired")


class TestList:
    def test_reads_page_after_page(self):
        cluster, script = cluster_of(page("a", "b", token="t1"), page("c"))
        found = list(cluster.list(NODE, label_selector="gpu", field_selector="x=y", page=2))
        assert [item["metadata"]["name"] for item in found] == ["a", "b", "c"]
        selected = (("limit", "2"), ("labelSelector", "gpu"), ("fieldSelector", "x=y"))
        assert [request.query for request in script.requests] == [selected, (*selected, ("continue", "t1"))]

    def test_a_page_is_gone_when_the_next_one_comes(self, monkeypatch):
        cluster, script = cluster_of(page(*map(str, range(20)), token="t1"), page("last"))
        answer, alive = script.send, []

        def send(request):
            alive.append(sum(isinstance(each, dict) and "resourceVersion" in each for each in gc.get_objects()))
            return answer(request)

        monkeypatch.setattr(script, "send", send)
        assert len([item["metadata"]["name"] for item in cluster.list(NODE)]) == 21
        assert alive[1] - alive[0] <= 1, "but for the item that was given last"

    @pytest.mark.parametrize("wanted", [True, False])
    def test_managed_fields_are_read_where_they_are_wanted(self, wanted):
        managed = {"metadata": {"name": "a", "managedFields": [{"manager": "kubelet"}]}, "spec": {}}
        body = json.dumps({"metadata": {}, "items": [managed]}, separators=(",", ":")).encode()
        cluster, _ = cluster_of(Response(200, body))
        (found,) = cluster.list(NODE, managed_fields=wanted)
        assert ("managedFields" in found["metadata"]) is wanted
        assert (found["metadata"]["name"], found["spec"]) == ("a", {})

    def test_items_say_what_they_are(self):
        cluster, _ = cluster_of(page("a"))
        (found,) = cluster.list(NODE)
        assert (found["apiVersion"], found["kind"]) == ("v1", "Node")

    def test_restarts_an_expired_listing_and_yields_each_object_once(self):
        cluster, script = cluster_of(page("a", "b", token="t1"), EXPIRED, page("a", "b", token="t2"), page("c"))
        assert [item["metadata"]["name"] for item in cluster.list(NODE)] == ["a", "b", "c"]
        assert ("continue", "t1") not in script.requests[2].query

    def test_gives_up_when_it_expires_every_time(self):
        cluster, script = cluster_of(
            page("a", token="t"), EXPIRED, page("a", token="t"), EXPIRED, page("a", token="t"), EXPIRED
        )
        with pytest.raises(ClusterError, match="Could not list nodes: the listing expired every time"):
            list(cluster.list(NODE))
        assert len(script.requests) == 6

    def test_an_api_that_is_not_served(self):
        missing = Response(404, b"404 page not found\n")
        cluster, _ = cluster_of(missing)
        assert list(cluster.list(KUBEVIRT, missing_ok=True)) == []
        with pytest.raises(NotFound, match=r"Could not list kubevirts in namespace kv: .* kubevirts in kubevirt.io/v1"):
            list(cluster.list(KUBEVIRT, "kv"))


class TestReads:
    def test_get(self):
        cluster, script = cluster_of(ok(node()))
        assert cluster.get(NODE, "n1") == node()
        assert (script.request.method, script.request.path) == ("GET", "/api/v1/nodes/n1")

    def test_get_of_nothing(self):
        cluster, _ = cluster_of(failure(404, "NotFound", 'nodes "n1" not found', {"name": "n1"}))
        assert cluster.get(NODE, "n1") is None
        with pytest.raises(NotFound, match=r'^Could not read Node n1: nodes "n1" not found\.$'):
            cluster.existing(NODE, "n1")

    APPS = ok({"groups": [{"name": "apps", "versions": [{"groupVersion": "apps/v1", "version": "v1"}]}]})

    def test_serves(self):
        served = ok({"resources": [{"name": "daemonsets"}, {"name": "daemonsets/status"}]})
        cluster, script = cluster_of(self.APPS, served)
        assert cluster.serves(DAEMON_SET)
        assert cluster.serves(DAEMON_SET)
        assert [request.path for request in script.requests] == ["/apis", "/apis/apps/v1"]
        assert not cluster_of(self.APPS, ok({"resources": [{"name": "deployments"}]}))[0].serves(DAEMON_SET)
        assert not cluster_of(self.APPS, Response(404, b"404 page not found"))[0].serves(DAEMON_SET)

    def test_groups_that_are_not_there_take_one_request(self):
        cluster, script = cluster_of(self.APPS)
        assert not cluster.serves(HYPER_CONVERGED)
        assert not cluster.serves(HYPER_CONVERGED_V1BETA1)
        assert [request.path for request in script.requests] == ["/apis"]

    def test_a_group_that_comes_later_is_seen_a_second_later(self):
        time = Time()
        later = ok({"groups": [{"versions": [{"groupVersion": HYPER_CONVERGED.api_version}]}]})
        cluster, _script = cluster_of(self.APPS, later, ok({"resources": [{"name": "hyperconvergeds"}]}), time=time)
        assert not cluster.serves(HYPER_CONVERGED)
        time.sleep(1)
        assert cluster.serves(HYPER_CONVERGED)

    def test_first_served(self):
        older = ok({"groups": [{"versions": [{"groupVersion": HYPER_CONVERGED_V1BETA1.api_version}]}]})
        cluster, _ = cluster_of(older, ok({"resources": [{"name": "hyperconvergeds"}]}))
        assert cluster.first_served(HYPER_CONVERGED, HYPER_CONVERGED_V1BETA1) is HYPER_CONVERGED_V1BETA1
        assert cluster_of(self.APPS)[0].first_served(HYPER_CONVERGED, HYPER_CONVERGED_V1BETA1) is None

    def test_an_answer_that_is_no_json(self):
        cluster, _ = cluster_of(Response(200, b"<html>log in"))
        with pytest.raises(ClusterError, match="did not answer in JSON; is it the address of an API server"):
            cluster.get(NODE, "n1")


DAEMON = DAEMON_SET.object("virt-handler-gpu", "kubevirt")
DAEMON_PATH = "/apis/apps/v1/namespaces/kubevirt/daemonsets"
OURS = (("timeout", "15s"), ("fieldManager", "virtpools"))


class TestWrites:
    @pytest.mark.parametrize(
        ("write", "method", "path", "query", "content_type"),
        [
            pytest.param(
                lambda c, dry: c.apply(DAEMON_SET, DAEMON, dry_run=dry),
                "PATCH",
                f"{DAEMON_PATH}/virt-handler-gpu",
                (("force", "true"), ("fieldValidation", "Strict"), *OURS),
                "application/apply-patch+yaml",
                id="apply",
            ),
            pytest.param(
                lambda c, dry: c.create(DAEMON_SET, DAEMON, dry_run=dry),
                "POST",
                DAEMON_PATH,
                (("fieldValidation", "Strict"), *OURS),
                "application/json",
                id="create",
            ),
            pytest.param(
                lambda c, dry: c.replace(DAEMON_SET, DAEMON, dry_run=dry),
                "PUT",
                f"{DAEMON_PATH}/virt-handler-gpu",
                OURS,
                "application/json",
                id="replace",
            ),
            pytest.param(
                lambda c, dry: c.json_patch(NODE, "n1", [{"op": "remove", "path": "/a"}], dry_run=dry),
                "PATCH",
                "/api/v1/nodes/n1",
                OURS,
                "application/json-patch+json",
                id="json patch",
            ),
        ],
    )
    def test_request(self, write, method, path, query, content_type):
        cluster, script = cluster_of(ok({}))
        write(cluster, False)
        request = script.request
        assert (request.method, request.path, request.query) == (method, path, query)
        assert (request.content_type, request.timeout_seconds) == (content_type, 15.0)

        cluster, script = cluster_of(ok({}))
        write(cluster, True)
        assert script.request.query == (*query, ("dryRun", "All"))

    def test_delete(self):
        cluster, script = cluster_of(ok({}))
        options = DeleteOptions(uid="u", resource_version="7", propagation="Foreground", grace_seconds=0)
        assert cluster.delete(NODE, "n1", options=options, dry_run=False)
        assert script.request.method == "DELETE"
        assert script.request.body == {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Foreground",
            "gracePeriodSeconds": 0,
            "preconditions": {"uid": "u", "resourceVersion": "7"},
        }

    def test_a_dry_deletion_says_so_where_the_server_looks(self):
        cluster, script = cluster_of(ok({}))
        cluster.delete(NODE, "n1", dry_run=True)
        assert script.request.body["dryRun"] == ["All"]

    def test_delete_of_nothing(self):
        assert not cluster_of(failure(404, "NotFound"))[0].delete(NODE, "n1", dry_run=False)

    def test_delete_of_another_object_of_that_name(self):
        cluster, _ = cluster_of(failure(409, "Conflict"), ok(node()))
        assert not cluster.delete(NODE, "n1", options=DeleteOptions(uid="another"), dry_run=False)

    def test_delete_of_a_changed_object(self):
        cluster, _ = cluster_of(failure(409, "Conflict"), ok(node()))
        with pytest.raises(Conflict, match="Could not delete Node n1: it was changed by someone else"):
            cluster.delete(NODE, "n1", options=DeleteOptions(uid="uid-n1", resource_version="6"), dry_run=False)


class TestKeepingTheLease:
    def writes(self, cluster, dry_run):
        cluster.apply(NODE, node(), dry_run=dry_run)
        cluster.json_patch(NODE, "n1", [], dry_run=dry_run)
        cluster.delete(NODE, "n1", dry_run=dry_run)

    def test_is_called_before_every_attempt_of_a_write(self):
        cluster, script = cluster_of(REFUSED, ok({}))
        calls = []
        cluster.keep_lease = lambda: calls.append(len(script.requests))
        self.writes(cluster, dry_run=False)
        assert calls == [0, 1, 2, 3]

    def test_is_not_called_when_nothing_is_stored(self):
        cluster, _ = cluster_of(ok({"status": {"allowed": True}, "items": []}))
        cluster.keep_lease = lambda: pytest.fail("nothing is written")
        self.writes(cluster, dry_run=True)
        cluster.missing_permissions([Permission("get", "nodes")])
        cluster.get(NODE, "n1")

    def test_goes_on_before_every_page_of_a_list(self):
        cluster, script = cluster_of(page("a", token="t1"), failure(503), page("b", token="t2"), page("c"))
        calls = []
        cluster.keep_lease = lambda: calls.append(len(script.requests))
        assert len(list(cluster.list(NODE))) == 3
        assert calls == [0, 1, 2, 3]

    def test_stops_the_write(self):
        cluster, script = cluster_of(ok({}))

        def stop():
            raise ClusterError("the Lease is lost")

        cluster.keep_lease = stop
        with pytest.raises(ClusterError, match="the Lease is lost"):
            cluster.apply(NODE, node(), dry_run=False)
        assert script.requests == []

    def test_the_lease_itself_is_not_guarded(self):
        cluster, script = cluster_of(ok({}))
        cluster.keep_lease = lambda: pytest.fail("would never end")
        cluster.without_lease().apply(NODE, node(), dry_run=False)
        assert len(script.requests) == 1
        assert cluster.keep_lease is not None


class TestRepeating:
    @pytest.mark.parametrize(
        "problem", [REFUSED, LOST, *(failure(status) for status in (429, 500, 502, 503, 504))], ids=str
    )
    def test_until_it_works(self, problem):
        cluster, script = cluster_of(problem, problem, ok(node()))
        assert cluster.get(NODE, "n1") == node()
        assert len(script.requests) == 3

    def test_pauses_double_up_to_a_limit(self):
        time = Time()
        cluster, _ = cluster_of(*[REFUSED] * 8, ok(node()), time=time)
        cluster.get(NODE, "n1")
        for slept, pause in zip(time.slept, [0.25, 0.5, 1, 2, 4, 5, 5, 5], strict=True):
            assert pause / 2 <= slept <= pause

    def test_gives_up_in_time_and_says_what_happened(self):
        time = Time()
        cluster, _ = cluster_of(REFUSED, time=time, retry_seconds=60)
        with pytest.raises(
            Unreachable,
            match=r"^Could not read Node n1: the API server at https://api.example:6443 gave no useful answer for "
            r"60 s, last: Connection refused; check that it works",
        ):
            cluster.get(NODE, "n1")
        assert 50 <= sum(time.slept) <= 60

    def test_says_what_a_failing_server_said(self):
        cluster, _ = cluster_of(failure(500, "InternalError", "etcd is full"), retry_seconds=1)
        with pytest.raises(Unreachable, match="last: 500 InternalError, etcd is full; check"):
            cluster.get(NODE, "n1")

    def test_names_a_webhook_that_the_server_cannot_call(self):
        message = 'Internal error occurred: failed calling webhook "a.example": failed to call webhook: no endpoints'
        cluster, _ = cluster_of(failure(500, "InternalError", message), retry_seconds=1)
        with pytest.raises(WebhookDown, match='cannot call a webhook: .*webhook "a.example".*; repair that webhook'):
            cluster.get(NODE, "n1")

    def test_waits_as_long_as_the_server_asks(self):
        time = Time()
        cluster, _ = cluster_of(failure(429, retry_after="7"), ok(node()), time=time)
        cluster.get(NODE, "n1")
        assert time.slept == [7.0]

    def test_does_not_wait_for_longer_than_it_may(self):
        time = Time()
        cluster, _ = cluster_of(failure(429, retry_after="3600"), time=time)
        with pytest.raises(Unreachable):
            cluster.get(NODE, "n1")
        assert time.slept == []

    def test_tells_that_the_server_asks_to_wait_for_longer(self):
        cluster, _ = cluster_of(failure(429, "TooManyRequests", retry_after="120"))
        with pytest.raises(
            Unreachable, match="asks to wait for 120 s, and a request is repeated for 60 s at most, last: 429"
        ):
            cluster.get(NODE, "n1")

    def test_not_when_only_a_person_can_help(self):
        cluster, script = cluster_of(CannotConnect("The certificate is not trusted."))
        with pytest.raises(Unreachable, match=r"^The certificate is not trusted\.$"):
            cluster.get(NODE, "n1")
        assert len(script.requests) == 1

    def test_while_others_are_counted_in_the_same_quota(self):
        message = 'Operation cannot be fulfilled on resourcequotas "q": the object has been modified'
        cluster, script = cluster_of(failure(409, "Conflict", message, {"kind": "resourcequotas"}), ok(node(), 201))
        assert cluster.create(NODE, node(), dry_run=False) == node()
        assert [request.method for request in script.requests] == ["POST", "POST"]

    def test_a_restarted_server_forbids_what_is_allowed(self):
        cluster, _ = cluster_of(failure(403, "Forbidden"), failure(403, "Forbidden"), ok(node()))
        assert cluster.get(NODE, "n1") == node()

    @pytest.mark.parametrize("problem", [failure(503), REFUSED], ids=["a failure", "no answer"])
    def test_a_refusal_before_an_outage_is_not_believed(self, problem):
        forbids = failure(403, "Forbidden")
        cluster, _ = cluster_of(forbids, problem, problem, problem, problem, forbids, ok(node()))
        assert cluster.get(NODE, "n1") == node()

    def test_a_refusal_is_believed_after_a_second(self):
        time = Time()
        cluster, _ = cluster_of(failure(403, "Forbidden"), time=time)
        with pytest.raises(Forbidden):
            cluster.get(NODE, "n1")
        assert 1 <= sum(time.slept) < 3


class TestLostAnswers:
    """The server may have carried out a write without answering; the retry then finds our own object."""

    EXISTS = failure(409, "AlreadyExists")

    def test_create_finds_its_own_object(self):
        live = {**node(), "spec": {"defaulted": True}}
        cluster, script = cluster_of(LOST, self.EXISTS, ok(live))
        assert cluster.create(NODE, {"metadata": {"name": "n1"}}, dry_run=False) == live
        assert [request.method for request in script.requests] == ["POST", "POST", "GET"]

    def test_create_finds_an_object_of_someone_else(self):
        cluster, _ = cluster_of(LOST, self.EXISTS, ok(node(owner="someone")))
        with pytest.raises(AlreadyExists) as caught:
            cluster.create(NODE, {"metadata": {"name": "n1", "labels": {"owner": "us"}}}, dry_run=False)
        assert caught.value.maybe_applied

    @pytest.mark.parametrize("problem", [None, REFUSED, failure(429)], ids=str)
    def test_create_does_not_adopt_what_it_cannot_have_made(self, problem):
        answers = [self.EXISTS, ok(node())]
        cluster, _ = cluster_of(*([problem, *answers] if problem else answers))
        with pytest.raises(
            AlreadyExists, match="Could not create Node n1: one with that name already exists"
        ) as caught:
            cluster.create(NODE, {"metadata": {"name": "n1"}}, dry_run=False)
        assert not caught.value.maybe_applied

    def test_delete_finds_nothing_left(self):
        cluster, _ = cluster_of(LOST, failure(404, "NotFound"))
        assert cluster.delete(NODE, "n1", dry_run=False)

    @pytest.mark.parametrize("first", [LOST, REFUSED], ids=["lost", "refused"])
    def test_is_told_when_the_lease_stops_the_next_attempt(self, first):
        cluster, script = cluster_of(first, ok(node()))

        def keep_lease():
            if script.requests:
                raise Unreachable("Could not replace the Lease.", maybe_applied=first is REFUSED)

        cluster.keep_lease = keep_lease
        with pytest.raises(Unreachable) as caught:
            cluster.replace(NODE, node(), dry_run=False)
        assert caught.value.maybe_applied is (first is LOST)

    @pytest.mark.parametrize(
        ("final", "raised"),
        [
            (failure(422, "Invalid", GENERIC_422), Conflict),
            (failure(422, "Invalid", "labels: too long", {"name": "n1"}), Invalid),
            (failure(403, "Forbidden", 'admission webhook "a" denied the request: no'), Denied),
            (failure(403, "Forbidden", "cannot patch nodes"), Forbidden),
            (failure(401, "Unauthorized"), Forbidden),
            (failure(405, "MethodNotAllowed"), ClusterError),
            (CannotConnect("The client's certificate cannot be read."), Unreachable),
        ],
        ids=["conflict", "invalid", "denied", "forbidden", "unauthorized", "other", "no connection"],
    )
    @pytest.mark.parametrize("first", [LOST, failure(504), REFUSED], ids=["lost", "timeout", "refused"])
    def test_patch_tells_its_caller(self, first, final, raised):
        cluster, _ = cluster_of(first, final)
        with pytest.raises(raised) as caught:
            cluster.json_patch(NODE, "n1", [], dry_run=False)
        assert caught.value.maybe_applied is (first is not REFUSED)

    def test_patch_that_is_answered_without_json_may_be_carried_out(self):
        cluster, _ = cluster_of(Response(200, b"<html>"))
        with pytest.raises(ClusterError) as caught:
            cluster.json_patch(NODE, "n1", [], dry_run=False)
        assert caught.value.maybe_applied


class TestEdit:
    CONFLICT = failure(409, "Conflict", "the object has been modified")

    @staticmethod
    def label(obj):
        obj["metadata"]["labels"]["a"] = "b"
        return obj

    def test_writes_what_the_change_makes_of_it(self):
        cluster, script = cluster_of(ok(node()), ok(node(version="8", a="b")))
        assert cluster.edit(NODE, "n1", None, self.label, dry_run=False) == (node(), node(version="8", a="b"))
        assert script.requests[1].body == node(version="7", a="b")

    @pytest.mark.parametrize("change", [lambda obj: None, lambda obj: obj])
    def test_no_change_no_write(self, change):
        cluster, script = cluster_of(ok(node()))
        assert cluster.edit(NODE, "n1", None, change, dry_run=False) == (node(), node())
        assert len(script.requests) == 1

    def test_begins_anew_when_somebody_was_faster(self):
        cluster, script = cluster_of(ok(node()), self.CONFLICT, ok(node(version="9", x="y")), ok(node(version="10")))
        before, _ = cluster.edit(NODE, "n1", None, self.label, dry_run=False)
        assert before == node(version="9", x="y")
        assert script.requests[3].body == node(version="9", x="y", a="b")

    def test_does_not_begin_anew_for_ever(self):
        time = Time()
        cluster, script = cluster_of(*[ok(node()), self.CONFLICT] * 10, time=time)
        with pytest.raises(Conflict, match="Could not replace Node n1: it was changed by someone else"):
            cluster.edit(NODE, "n1", None, self.label, dry_run=False)
        assert len(script.requests) == 20
        assert sum(time.slept) < 5

    def test_of_nothing(self):
        with pytest.raises(NotFound):
            cluster_of(failure(404, "NotFound"))[0].edit(NODE, "n1", None, self.label, dry_run=False)

    def test_counts_its_own_write_whose_answer_was_lost(self):
        done = node(version="8", a="b")
        cluster, _ = cluster_of(ok(node()), LOST, self.CONFLICT, ok(done))
        assert cluster.edit(NODE, "n1", None, self.label, dry_run=False) == (node(), done)


class TestPermissions:
    ALL: typing.ClassVar = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
    NODES: typing.ClassVar = {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["nodes"]}

    def test_one_request_tells_what_is_granted(self):
        cluster, script = cluster_of(ok({"status": {"resourceRules": [self.NODES], "incomplete": False}}, 201))
        assert cluster.missing_permissions([Permission("get", "nodes"), Permission("list", "nodes")]) == ()
        (request,) = script.requests
        assert request.path == "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
        assert "." in request.body["spec"]["namespace"], "a namespace of this name could have RoleBindings"

    def test_what_rules_do_not_tell_is_asked(self):
        get, patch = Permission("get", "nodes"), Permission("patch", "nodes")
        rules = ok({"status": {"resourceRules": [self.NODES]}}, 201)
        cluster, script = cluster_of(rules, ok({"status": {"allowed": False}}, 201))
        assert cluster.missing_permissions([get, patch]) == (patch,)
        assert [request.body["spec"].get("resourceAttributes", {}).get("verb") for request in script.requests] == [
            None,
            "patch",
        ]

    @pytest.mark.parametrize(
        "answer",
        [
            ok({"status": {"resourceRules": [ALL], "incomplete": True}}, 201),
            ok({"status": {"resourceRules": [ALL], "evaluationError": "clusterrole not found"}}, 201),
            failure(404, "NotFound"),
        ],
        ids=["webhook", "error", "not served"],
    )
    def test_rules_that_are_not_all_there_is_do_not_count(self, answer):
        get = Permission("get", "nodes")
        cluster, _script = cluster_of(answer, ok({"status": {"allowed": False}}, 201))
        assert cluster.missing_permissions([get]) == (get,)

    def test_can_returns_what_is_not_allowed(self):
        get, patch = Permission("get", "nodes"), Permission("patch", "daemonsets", "apps", "kubevirt")
        unknown = ok({"status": {"resourceRules": [self.ALL], "incomplete": True}}, 201)
        cluster, script = cluster_of(
            unknown, ok({"status": {"allowed": True}}, 201), ok({"status": {"allowed": False}}, 201)
        )
        assert cluster.missing_permissions([get, patch]) == (patch,)
        assert script.requests[2].body["spec"] == {
            "resourceAttributes": {
                "verb": "patch",
                "group": "apps",
                "resource": "daemonsets",
                "subresource": "",
                "namespace": "kubevirt",
                "name": "",
            }
        }

    def test_user(self):
        cluster, _ = cluster_of(ok({"status": {"userInfo": {"username": "jane"}}}, 201))
        assert cluster.user() == "jane"


PATCH = [{"op": "test", "path": "/a", "value": None}]


class TestSentences:
    @pytest.mark.parametrize(
        ("answer", "error", "sentence"),
        [
            (
                failure(401, "Unauthorized"),
                Forbidden,
                (
                    "Could not patch Node n1: the API server at https://api.example:6443 does not accept the "
                    "credentials; check the token or the client certificate, it may have expired."
                ),
            ),
            (
                failure(403, "Forbidden", 'nodes "n1" is forbidden: User "jane" cannot patch resource "nodes".'),
                Forbidden,
                (
                    'Not allowed to patch Node n1: nodes "n1" is forbidden: User "jane" cannot patch resource "nodes". '
                    "Grant this right (the collection's ClusterRoles have all that is needed) or use other credentials."
                ),
            ),
            (
                failure(403, "Forbidden", 'pods "p" is forbidden: exceeded quota: q, requested: pods=1, used: pods=9'),
                Forbidden,
                (
                    'Could not patch Node n1: admission refuses it: pods "p" is forbidden: exceeded quota: q, requested: '
                    "pods=1, used: pods=9. Raise that quota, or delete what it counts."
                ),
            ),
            (
                failure(
                    403, "Forbidden", 'pods "p" is forbidden: violates PodSecurity "restricted:latest": runAsUser=0'
                ),
                Forbidden,
                (
                    'Could not patch Node n1: admission refuses it: pods "p" is forbidden: violates PodSecurity '
                    '"restricted:latest": runAsUser=0. Let the label pod-security.kubernetes.io/enforce of the namespace '
                    "allow it."
                ),
            ),
            (
                failure(
                    403,
                    "Forbidden",
                    'pods "p" is forbidden: unable to validate against any security context constraint: []',
                ),
                Forbidden,
                (
                    'Could not patch Node n1: admission refuses it: pods "p" is forbidden: unable to validate against any '
                    "security context constraint: []. Let the ServiceAccount of such pods use SecurityContextConstraints "
                    "that allow it."
                ),
            ),
            (
                failure(403, "Forbidden", 'pods "p" is forbidden: something new.'),
                Forbidden,
                (
                    'Could not patch Node n1: admission refuses it: pods "p" is forbidden: something new. No right is missing.'
                ),
            ),
            (
                failure(403, "Forbidden", f"policy 'p' with binding 'p' denied request: {'x' * 2000} no such key: a"),
                Denied,
                (
                    "Could not patch Node n1: admission refuses it: policy 'p' with binding 'p' denied request: "
                    f"{'x' * 456} … {'x' * 485} no such key: a."
                ),
            ),
            (
                failure(403, "Forbidden", 'admission webhook "q" denied the request: exceeded quota: q'),
                Denied,
                (
                    'Could not patch Node n1: admission refuses it: admission webhook "q" denied the request: exceeded '
                    "quota: q. Raise that quota, or delete what it counts."
                ),
            ),
            (
                failure(403, "Forbidden", 'admission webhook "w.example" denied the request: not on Fridays'),
                Denied,
                (
                    'Could not patch Node n1: admission refuses it: admission webhook "w.example" denied the request: not '
                    "on Fridays."
                ),
            ),
            (
                failure(422, "Invalid", GENERIC_422),
                Conflict,
                "Could not patch Node n1: it is not as it was when the change was planned; run again.",
            ),
            (
                failure(422, "Invalid", 'webhook "kubevirt" denied it: no.'),
                Invalid,
                'Could not patch Node n1: the API server refuses its content: webhook "kubevirt" denied it: no.',
            ),
            (
                failure(422, "Invalid", 'Node "n1" is invalid: bad label', {"name": "n1", "kind": "Node"}),
                Invalid,
                'Could not patch Node n1: the API server refuses its content: Node "n1" is invalid: bad label.',
            ),
            (
                failure(418, "", "I am a teapot"),
                ClusterError,
                "Could not patch Node n1: the API server at https://api.example:6443 answered 418, I am a teapot.",
            ),
            (
                Response(400, b"this is an HTTPS server.\n"),
                Invalid,
                "Could not patch Node n1: the API server refuses its content: this is an HTTPS server.",
            ),
            (
                Response(302, b"<html>"),
                ClusterError,
                "Could not patch Node n1: the API server at https://api.example:6443 answered 302, it gave no reason.",
            ),
        ],
        ids=lambda value: str(value.status) if isinstance(value, Response) else "",
    )
    def test_of_a_patch(self, answer, error, sentence):
        cluster, _ = cluster_of(answer)
        with pytest.raises(ClusterError) as caught:
            cluster.json_patch(NODE, "n1", PATCH, dry_run=False)
        assert type(caught.value) is error
        assert str(caught.value) == sentence

    def test_of_an_unknown_field_that_is_applied(self):
        said = "failed to create typed patch object (/n1; /v1, Kind=Node): .spec.zzz: field not declared in schema"
        cluster, script = cluster_of(failure(500, "", said))
        with pytest.raises(
            Invalid, match="Could not apply Node n1: the API server refuses its content: failed to create"
        ):
            cluster.apply(NODE, node(), dry_run=False)
        assert len(script.requests) == 1

    def test_of_fields_that_others_own(self):
        cluster, _ = cluster_of(failure(409, "Conflict", 'conflict with "helm" using v1: .spec.x'))
        with pytest.raises(Conflict, match=r'others own fields of it \(conflict with "helm" using v1: \.spec\.x\)'):
            cluster.apply(NODE, node(), force=False, dry_run=False)

    def test_long_messages_are_cut(self):
        cluster, _ = cluster_of(failure(400, "BadRequest", "x" * 100_000))
        with pytest.raises(Invalid) as caught:
            cluster.get(NODE, "n1")
        assert len(str(caught.value)) < 1200
