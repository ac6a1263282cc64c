# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The Lease against an API server that has only this Lease, with a clock that moves only while somebody sleeps."""

from __future__ import annotations

import copy
import json
import threading
import time
from concurrent import futures

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.client import (
    WRITE_TIMEOUT_SECONDS,
    Cluster,
    ClusterError,
    NotFound,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.lease import (
    DURATION_SECONDS,
    RENEW_SECONDS,
    LeaseHeld,
    LeaseLost,
    RunLease,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.transport import NoAnswer, Response
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.waiting import Clock
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.kinds import NODE

LOST = NoAnswer("Connection reset by peer", sent=True)


class LeaseServer:
    """Stores one Lease and obeys preconditions. Answers to the next requests can be lost or slow."""

    server = "https://api.example:6443"

    def __init__(self):
        self.now = 0.0
        self.lease = None
        self.versions = 0
        self.methods = []
        self.lose_answers = 0
        self.seconds_per_request = 0.0
        self.away = (0.0, 0.0)  # the time during which requests get no answer
        self.at = {}  # what happens at which time

    # The clock

    def clock(self):
        return self.now

    def sleep(self, seconds):
        until = self.now + seconds
        for moment in sorted(moment for moment in self.at if moment <= until):
            self.now = max(self.now, moment)
            self.at.pop(moment)()
        self.now = until

    # The API

    def send(self, request):
        self.methods.append(request.method)
        self.now += self.seconds_per_request
        if self.away[0] <= self.now < self.away[1]:
            self.now = self.away[1]
        status, answer = getattr(self, request.method.lower())(request.body)
        if request.method != "GET" and self.lose_answers:
            self.lose_answers -= 1
            raise LOST
        return Response(status, json.dumps(answer).encode())

    def get(self, _body):
        return (200, self.lease) if self.lease else self.failure(404, "NotFound")

    def post(self, lease):
        if self.lease:
            return self.failure(409, "AlreadyExists")
        return 201, self.store(lease, uid=f"uid-{self.versions}")

    def put(self, lease):
        if not self.lease:
            return self.failure(404, "NotFound")
        if lease["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
            return self.failure(409, "Conflict")
        return 200, self.store(lease, uid=self.lease["metadata"]["uid"])

    def delete(self, options):
        if not self.lease:
            return self.failure(404, "NotFound")
        if any(self.lease["metadata"][key] != value for key, value in options["preconditions"].items()):
            return self.failure(409, "Conflict")
        self.lease = None
        return 200, {}

    def patch(self, _body):
        """A write of something else."""
        return 200, {}

    def store(self, lease, uid):
        self.versions += 1
        self.lease = copy.deepcopy(lease)
        self.lease["metadata"] |= {"resourceVersion": str(self.versions), "uid": uid}
        return self.lease

    @staticmethod
    def failure(status, reason):
        return status, {"reason": reason, "message": reason, "details": {"name": "virtpools"}}

    # For the tests

    @property
    def holder(self):
        return self.lease and self.lease["spec"]["holderIdentity"]

    def cluster(self):
        return Cluster(self, clock=self.clock, sleep=self.sleep)

    def run(self, holder, **options):
        clock = Clock(now=self.clock, sleep=self.sleep)
        return RunLease(self.cluster(), "kubevirt", holder, clock=clock, **options)


@pytest.fixture
def server():
    return LeaseServer()


def test_the_numbers_leave_no_room_for_a_late_write():
    assert RENEW_SECONDS + WRITE_TIMEOUT_SECONDS < DURATION_SECONDS


class TestAcquire:
    def test_a_free_lease(self, server):
        server.run("run-1", description="site.yml\nby jane").acquire(0)
        metadata, spec = server.lease["metadata"], server.lease["spec"]
        assert (metadata["name"], metadata["namespace"]) == ("virtpools", "kubevirt")
        assert metadata["labels"] == {"app.kubernetes.io/managed-by": "virtpools"}
        assert metadata["annotations"] == {"virtpools.io/run": "site.yml by jane"}
        assert (spec["holderIdentity"], spec["leaseDurationSeconds"], spec["leaseTransitions"]) == ("run-1", 30, 0)
        assert spec["acquireTime"] == spec["renewTime"]

    def test_again_by_the_same_run(self, server):
        server.run("run-1").acquire(0)
        acquired = server.lease["spec"]["acquireTime"]
        server.run("run-1").acquire(0)
        assert (server.holder, server.versions) == ("run-1", 2)
        assert server.lease["spec"]["acquireTime"] == acquired

    @pytest.mark.parametrize("spec", [{"holderIdentity": "", "leaseTransitions": 4}, {}, None])
    def test_one_that_nobody_holds(self, server, spec):
        server.store({"metadata": {"name": "virtpools"}, "spec": spec}, "uid")
        server.run("run-1").acquire(0)
        assert server.holder == "run-1"
        assert server.now == 0

    def test_a_held_one_is_refused_and_its_holder_named(self, server):
        server.run("run-1", description="site.yml by jane").acquire(0)
        with pytest.raises(LeaseHeld) as caught:
            server.run("run-2").acquire(0)
        message = str(caught.value)
        assert "the run run-1 (site.yml by jane) holds the Lease virtpools in namespace kubevirt since 2" in message
        assert message.endswith("A run that died delays the next one by 30 s at most.")
        assert server.now == 0
        assert server.holder == "run-1"

    def test_waits_until_it_is_released(self, server):
        first = server.run("run-1")
        first.acquire(0)
        server.at = {7: first.release}
        said = []
        server.run("run-2").acquire(60, said.append)
        assert server.holder == "run-2"
        assert 7 <= server.now < 10
        assert said == ["Waiting for the run run-1, which holds the Lease virtpools in namespace kubevirt."]

    def test_takes_over_from_a_dead_run_after_its_duration(self, server):
        server.run("run-1").acquire(0)
        server.lease["spec"]["renewTime"] = "1970-01-01T00:00:00.000000Z"  # another machine's clock must not count
        server.run("run-2").acquire(60)
        assert server.holder == "run-2"
        assert server.now == 30
        assert server.lease["spec"]["leaseTransitions"] == 1

    def test_waits_for_a_run_that_renews(self, server):
        first = server.run("run-1")
        first.acquire(0)
        server.at = {float(moment): first.renew for moment in range(10, 300, 10)}
        with pytest.raises(LeaseHeld):
            server.run("run-2").acquire(200)
        assert server.now == 200
        assert server.holder == "run-1"

    def test_the_holder_says_how_long_it_lives(self, server):
        server.run("run-1", duration_seconds=5).acquire(0)
        server.run("run-2").acquire(60)
        assert server.now == 5

    def test_a_time_in_which_we_were_suspended_does_not_count(self, server):
        server.run("run-1").acquire(0)
        clock = Clock(now=lambda: server.now + (3600 if server.now >= 10 else 0), sleep=server.sleep)
        RunLease(server.cluster(), "kubevirt", "run-2", clock=clock).acquire(7200)
        assert server.now == 10 + DURATION_SECONDS

    def test_a_time_without_api_server_does_not_count(self, server):
        """The holder could not renew during that time."""
        server.run("run-1").acquire(0)
        server.away = (10, 35)
        server.run("run-2").acquire(120)
        assert server.now == 35 + 30

    @pytest.mark.parametrize("until", [1.5, 1000.0])
    def test_pauses_between_reads_that_are_out_of_date(self, server, until):
        server.run("run-1").acquire(0)
        second = server.run("run-2")
        read = second._read
        second._read = lambda: None if server.now < until else read()
        with pytest.raises(ClusterError, match="holds the Lease" if until < 10 else "reads of it are out of date"):
            second.acquire(10)
        assert server.methods.count("POST") < 10
        assert server.holder == "run-1"

    def test_in_a_namespace_that_is_missing_tells_that(self, server):
        server.post = lambda _lease: (
            404,
            {"message": 'namespaces "kubevirt" not found', "details": {"name": "kubevirt"}},
        )
        with pytest.raises(NotFound, match='namespaces "kubevirt" not found'):
            server.run("run-1").acquire(60)

    def test_only_one_of_two_takes_over(self, server):
        server.run("run-1").acquire(0)
        third = server.run("run-3")
        second = server.run("run-2")
        read = second._read

        def third_is_faster():
            live = read()
            if server.now >= 30 and server.holder == "run-1":
                assert third._take(live)
            return live

        second._read = third_is_faster
        with pytest.raises(LeaseHeld, match="the run run-3 holds the Lease"):
            second.acquire(40)
        assert server.holder == "run-3"

    @pytest.mark.parametrize("held", [False, True])
    def test_its_own_write_whose_answer_was_lost(self, server, held):
        if held:
            server.run("run-0", duration_seconds=1).acquire(0)
        server.lose_answers = 1
        server.run("run-1").acquire(60)
        assert server.holder == "run-1"


class TestRenew:
    def test_changes_the_record(self, server):
        run = server.run("run-1")
        run.acquire(0)
        before = server.lease
        run.renew()
        assert server.lease["spec"]["renewTime"] > before["spec"]["renewTime"]
        assert server.lease["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"]
        assert server.methods == ["GET", "POST", "PUT"]

    def test_for_longer_until_the_next_process_renews_it(self, server):
        server.run("run-1").acquire(0)
        server.run("run-1", duration_seconds=600).renew()
        with pytest.raises(LeaseHeld, match="delays the next one by 600 s at most"):
            server.run("run-2").acquire(599)
        server.run("run-1").attach()
        server.run("run-2").acquire(30)
        assert server.holder == "run-2"

    def test_a_lost_lease_stays_lost(self, server):
        first = server.run("run-1")
        first.acquire(0)
        server.run("run-2", description="by joe").acquire(60)
        for _ in range(2):
            with pytest.raises(LeaseLost) as caught:
                first.renew()
            assert str(caught.value) == (
                "The run run-1 has lost its Lease: virtpools in namespace kubevirt is held by the run run-2 (by joe). "
                "Nothing more was changed; run again."
            )
        assert server.holder == "run-2"

    def test_a_deleted_lease_is_lost(self, server):
        run = server.run("run-1")
        run.acquire(0)
        server.lease = None
        for _ in range(2):
            with pytest.raises(LeaseLost, match="virtpools in namespace kubevirt was deleted"):
                run.renew()
        assert server.lease is None

    def test_other_processes_of_the_run_and_lost_answers_do_no_harm(self, server):
        run = server.run("run-1")
        run.acquire(0)
        server.run("run-1").attach()
        run.renew()
        server.lose_answers = 1
        run.renew()
        assert server.holder == "run-1"

    def test_gives_up_when_others_keep_changing_it(self, server):
        run = server.run("run-1")
        run.acquire(0)
        server.put = lambda lease: server.failure(409, "Conflict")
        with pytest.raises(
            ClusterError,
            match="Could not renew the Lease virtpools in namespace kubevirt: another client keeps changing it",
        ):
            run.renew()


class TestAttach:
    def test_to_our_run(self, server):
        server.run("run-1").acquire(0)
        other_process = server.run("run-1")
        other_process.attach()
        assert server.versions == 2

    def test_an_expired_lease_that_nobody_took_is_still_ours(self, server):
        server.run("run-1").acquire(0)
        server.now += 1000
        server.run("run-1").attach()
        with pytest.raises(LeaseHeld):
            server.run("run-2").acquire(0)

    @pytest.mark.parametrize("holder", [None, "run-2"])
    def test_to_a_lease_that_is_not_ours(self, server, holder):
        if holder:
            server.run(holder).acquire(0)
        with pytest.raises(LeaseLost):
            server.run("run-1").attach()
        assert server.holder == holder


class TestEnsureFresh:
    def test_renews_when_ten_seconds_have_passed(self, server):
        run = server.run("run-1")
        run.acquire(0)
        server.now += 9.9
        run.ensure_fresh()
        assert server.versions == 1
        server.now += 0.1
        run.ensure_fresh()
        assert server.versions == 2

    def test_renews_after_the_machine_was_suspended(self, server, monkeypatch):
        """Of its clocks, only one goes on then."""
        run = RunLease(server.cluster(), "kubevirt", "run-1")
        run.acquire(0)
        usual = time.clock_gettime
        monkeypatch.setattr(time, "clock_gettime", lambda clock: usual(clock) + 3600 * (clock == time.CLOCK_BOOTTIME))
        run.ensure_fresh()
        assert server.versions == 2

    def test_guards_every_write_without_guarding_itself(self, server):
        cluster = server.cluster()
        run = RunLease(cluster, "kubevirt", "run-1", clock=Clock(now=server.clock, sleep=server.sleep))
        run.acquire(0)
        cluster.keep_lease = run.ensure_fresh
        cluster.apply(NODE, NODE.object("n1"), dry_run=False)
        server.now += 11
        cluster.apply(NODE, NODE.object("n1"), dry_run=False)
        assert server.methods == ["GET", "POST", "PATCH", "PUT", "PATCH"]
        server.run("run-2").acquire(60)
        with pytest.raises(LeaseLost):
            cluster.apply(NODE, NODE.object("n1"), dry_run=False)
        assert server.methods[-2:] == ["PUT", "GET"]

    def test_of_a_process_that_forgot_to_attach(self, server):
        server.run("run-1").acquire(0)
        server.run("run-1").ensure_fresh()
        assert server.versions == 2

    @pytest.mark.parametrize("held", [False, True])
    def test_a_lease_counts_from_when_it_was_taken(self, server, held):
        """An answer that takes 12 s leaves too little time for a write."""
        if held:
            server.run("run-0", duration_seconds=1).acquire(0)
        run = server.run("run-1")
        take = run._take

        def slow_take(live):
            server.seconds_per_request = 12.0
            taken = take(live)
            server.seconds_per_request = 0.0
            return taken

        run._take = slow_take
        run.acquire(60)
        assert run.created is not held
        before = server.versions
        run.ensure_fresh()
        assert server.versions == before + 1

    def test_a_renewal_counts_from_when_it_was_asked_for(self, server):
        """A server that takes 12 s per renewal is too slow: when the answer comes, it is older than RENEW_SECONDS."""
        run = server.run("run-1")
        run.acquire(0)
        server.seconds_per_request = 12.0
        server.now += 10
        with pytest.raises(ClusterError, match="takes more than 10 s to renew the Lease"):
            run.ensure_fresh()

    def test_a_renewal_that_was_slow_once_is_tried_again(self, server):
        run = server.run("run-1")
        run.acquire(0)
        server.now += 10
        server.seconds_per_request = 12.0
        put = server.put

        def slow_once(body):
            server.seconds_per_request = 0.0
            return put(body)

        server.put = slow_once
        run.ensure_fresh()
        assert server.versions == 3

    def test_several_threads_renew_once(self, server):
        run = server.run("run-1")
        run.acquire(0)
        server.now += 10
        asking, first = threading.Semaphore(0), threading.Lock()
        put = server.put

        def slow_put(body):
            assert first.acquire(blocking=False), "two renewals at a time"
            for _other in range(3):
                assert asking.acquire(timeout=60)
            return put(body)

        def ensure_fresh():
            asking.release()
            run.ensure_fresh()

        server.put = slow_put
        with futures.ThreadPoolExecutor(3) as threads:
            for call in [threads.submit(ensure_fresh) for _each in range(3)]:
                call.result(60)
        assert server.versions == 2


class TestRelease:
    def test_leaves_nothing_behind(self, server):
        run = server.run("run-1")
        run.acquire(0)
        assert run.release()
        assert server.lease is None
        assert not run.release()

    def test_by_another_process_of_the_run(self, server):
        server.run("run-1").acquire(0)
        assert server.run("run-1").release()
        assert server.lease is None

    def test_never_takes_away_what_is_someone_elses(self, server):
        server.run("run-2").acquire(0)
        assert not server.run("run-1").release()
        assert server.holder == "run-2"

    def test_someone_takes_it_over_in_the_middle(self, server):
        run = server.run("run-1")
        run.acquire(0)
        delete = server.delete

        def taken_over(options):
            server.lease["spec"]["holderIdentity"] = "run-2"
            server.lease["metadata"]["resourceVersion"] = "99"
            return delete(options)

        server.delete = taken_over
        assert not run.release()
        assert server.holder == "run-2"

    def test_an_answer_that_was_lost(self, server):
        run = server.run("run-1")
        run.acquire(0)
        server.lose_answers = 1
        assert run.release()

    def test_a_released_lease_must_be_acquired_again(self, server):
        run = server.run("run-1")
        run.acquire(0)
        run.release()
        with pytest.raises(LeaseLost):
            run.ensure_fresh()
