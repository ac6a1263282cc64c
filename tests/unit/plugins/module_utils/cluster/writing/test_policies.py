# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.client import ClusterError
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.writing import policies
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.admission import (
    launcher_policy,
    policy_objects,
    probes,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms.mapping import Table
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders
from ansible_collections.virtpools.kubevirt.tests.unit.support.admission import BINDING, POLICY, SITE, Admission
from ansible_collections.virtpools.kubevirt.tests.unit.support.fake_cluster import LOST, World

TIMEOUT = 20


def table(image):
    selector = {"vmLabels": {"matchLabels": {"class": "gpu"}}}
    return Table.for_pools([builders.pool("gpu", virtLauncherImage=image, selector=selector)])


OLD, NEW = table("old"), table("new")


def desired(of, name=names.POLICY):
    return launcher_policy.derive(of, SITE.namespace, POLICY, name)


def digest(of):
    return launcher_policy.digest_of(of, SITE.namespace)


@pytest.fixture
def world():
    return World()


@pytest.fixture
def admission(world):
    return Admission(world)


@pytest.fixture
def put(world, admission):
    def _put(of, **options):
        tried = [probes.probes(of, SITE, name) for name in (names.CANDIDATE_POLICY, names.POLICY)]
        trial = policies.Trial(desired(of, names.CANDIDATE_POLICY), *tried)
        return policies.put(world.client(), desired(of), trial, TIMEOUT, world.clock(), **options)

    return _put


@pytest.fixture
def old(put, world, admission):
    """Puts the policy of OLD live and returns its objects."""
    put(OLD)
    world.writes.clear()
    admission.acting.clear()
    return copy.deepcopy([world.find(kind, names.POLICY) for kind in (POLICY, BINDING)])


def live(world, name=names.POLICY):
    return [world.find(kind, name) for kind in (POLICY, BINDING)]


def contents(objects):
    """Objects without what changes with every write."""
    return [obj and (obj.get("spec"), {**obj["metadata"], "resourceVersion": "", "generation": 0}) for obj in objects]


def lose():
    """The server's answer is lost."""
    raise LOST


def written(world):
    return [f"{verb} {path.rpartition('/')[2]}" for verb, path in world.writes]


class TestPut:
    def test_tries_the_candidate_before_anything_is_live(self, put, world, admission):
        assert len(put(NEW)) == 2
        assert written(world) == [
            "create mutatingadmissionpolicies",
            "create mutatingadmissionpolicybindings",
            f"delete {names.CANDIDATE_POLICY}",
            f"delete {names.CANDIDATE_POLICY}",
            "create mutatingadmissionpolicies",
            "create mutatingadmissionpolicybindings",
        ]
        assert set(admission.acting) == {digest(NEW)}
        assert live(world, names.CANDIDATE_POLICY) == [None, None]

    @pytest.mark.usefixtures("old")
    def test_writes_nothing_when_all_is_so_already(self, put, world):
        assert put(OLD) == []
        assert world.writes == []

    @pytest.mark.usefixtures("old")
    def test_writes_only_what_differs(self, put, world):
        (change,) = put(NEW)
        assert str(change) == "MutatingAdmissionPolicy virtpools-launcher: update"
        assert (change.before["spec"], change.after["spec"]) == (desired(OLD)[0][1]["spec"], desired(NEW)[0][1]["spec"])

    def test_what_others_noted_stays_and_what_we_noted_does_not(self, put, world, old):
        metadata = world.find(POLICY, names.POLICY)["metadata"]
        metadata["labels"]["others.example/label"] = "kept"
        ours = dict.fromkeys((names.MAPPING_ANNOTATION, names.FORMER_RULES_ANNOTATION), "out of date")
        metadata["annotations"].update({"others.example/note": "kept", **ours})
        put(OLD)
        now = world.find(POLICY, names.POLICY)["metadata"]
        assert now["labels"] == {**old[0]["metadata"]["labels"], "others.example/label": "kept"}
        assert now["annotations"] == {**old[0]["metadata"]["annotations"], "others.example/note": "kept"}

    @pytest.mark.usefixtures("admission")
    def test_without_a_trial_is_written_at_once(self, world):
        assert len(policies.put(world.client(), desired(NEW), None, TIMEOUT, world.clock())) == 2
        assert len(world.writes) == 2

    @pytest.mark.usefixtures("old")
    def test_waits_as_long_as_servers_take(self, put, world, admission):
        admission.idle.add(names.CANDIDATE_POLICY)
        world.at[world.now + TIMEOUT - 2] = admission.idle.clear
        assert put(NEW)

    def test_gives_up_what_never_acts(self, put, world, admission, old):
        admission.idle.add(names.CANDIDATE_POLICY)
        with pytest.raises(ClusterError, match="was not activated.*has nothing in its annotation virtpools.io/policy"):
            put(NEW)
        assert contents(live(world)) == contents(old)

    def test_bears_with_a_webhook_that_fails_for_a_moment(self, put, world, admission):
        admission.failing.add(names.CANDIDATE_POLICY)
        world.at[world.now + 1] = admission.failing.clear
        assert put(NEW)


class TestFailure:
    @pytest.mark.usefixtures("old")
    def test_of_the_candidate_touches_nothing(self, put, world, admission, old):
        admission.failing.add(names.CANDIDATE_POLICY)
        with pytest.raises(
            ClusterError, match="nothing has changed for VMs: The probe for no pool was refused.*afinity"
        ):
            put(NEW)
        assert contents(live(world)) == contents(old)
        assert live(world, names.CANDIDATE_POLICY) == [None, None]

    def test_of_the_live_one_brings_back_the_former(self, put, world, admission, old):
        def spoil(pod):
            if probes.digest_in(pod) == digest(NEW) and pod["metadata"]["labels"][names.PROBE_LABEL] == names.POLICY:
                pod["spec"]["containers"][1]["image"] = "mine"

        admission.spoil = spoil
        with pytest.raises(ClusterError, match='images.compute is "mine".*The former state is in effect again'):
            put(NEW)
        assert contents(live(world)) == contents(old)
        assert admission.acting[-1] == digest(OLD)

    def test_restores_what_a_controller_has_noted_a_status_on(self, put, world, admission, old):
        """Kyverno writes the status of each policy."""

        def spoil(pod):
            if probes.digest_in(pod) == digest(NEW) and pod["metadata"]["labels"][names.PROBE_LABEL] == names.POLICY:
                pod["spec"]["containers"][1]["image"] = "mine"
                world.touch(world.find(POLICY, names.POLICY))

        admission.spoil = spoil
        with pytest.raises(ClusterError, match="The former state is in effect again"):
            put(NEW)
        assert contents(live(world)) == contents(old)

    @pytest.mark.usefixtures("old")
    def test_leaves_what_another_client_wrote_since(self, put, world, admission):
        def spoil(pod):
            if probes.digest_in(pod) == digest(NEW) and pod["metadata"]["labels"][names.PROBE_LABEL] == names.POLICY:
                pod["spec"]["containers"][1]["image"] = "mine"
                policy = world.find(POLICY, names.POLICY)
                policy["spec"]["failurePolicy"] = "Ignore"
                world.touch(policy)

        admission.spoil = spoil
        with pytest.raises(ClusterError, match="could not be restored.*changed by someone else"):
            put(NEW)
        assert world.find(POLICY, names.POLICY)["spec"]["failurePolicy"] == "Ignore"

    @pytest.mark.usefixtures("admission")
    def test_of_the_first_one_takes_it_away(self, put, world, admission):
        admission.idle.add(names.POLICY)
        with pytest.raises(ClusterError, match="in effect again"):
            put(NEW)
        assert live(world) == [None, None]

    def test_of_the_second_write_takes_back_the_first(self, world, admission):
        world.denied.add(("create", BINDING.plural))
        with pytest.raises(ClusterError, match="Not allowed to create MutatingAdmissionPolicyBinding"):
            policies.put(world.client(), desired(NEW), None, TIMEOUT, world.clock())
        assert live(world) == [None, None]

    @pytest.mark.usefixtures("old")
    def test_says_when_the_former_one_cannot_be_put_back(self, put, world, admission):
        def spoil(pod):
            if pod["metadata"]["labels"][names.PROBE_LABEL] == names.POLICY:
                pod["spec"]["containers"][1]["image"] = "mine"
                world.denied.add(("update", POLICY.plural))

        admission.spoil = spoil
        with pytest.raises(ClusterError, match="The former state could not be restored: Not allowed to replace"):
            put(NEW)

    @pytest.mark.usefixtures("admission")
    @pytest.mark.parametrize("name", [names.POLICY, names.CANDIDATE_POLICY])
    def test_somebody_elses_is_never_touched(self, put, world, name):
        ((_kind, foreign), _binding) = desired(OLD, name)
        foreign["metadata"]["labels"] = {"team": "a"}
        world.put(foreign)
        with pytest.raises(ClusterError, match=f"{name} exists but is not ours.*delete or rename it"):
            put(NEW)
        assert world.writes == []

    def test_a_lost_lease_stops_before_the_next_write(self, put, world, admission, old):
        def lost():
            raise ClusterError("The Lease is lost.")

        world.beat = lost
        with pytest.raises(ClusterError, match="The Lease is lost"):
            put(NEW)
        assert contents(live(world)) == contents(old)


class TestAnswersThatAreLost:
    def test_a_replacement_that_was_carried_out_counts(self, put, world, old):
        lost = []

        def after(request):
            if request.method == "PUT" and ("dryRun", "All") not in request.query and not lost:
                lost.append(request)
                raise LOST

        world.after = after
        (change,) = put(NEW)
        assert change.after["spec"] == desired(NEW)[0][1]["spec"]
        assert world.find(POLICY, names.POLICY)["spec"] == desired(NEW)[0][1]["spec"]

    @pytest.fixture
    def put_in_outage(self, world, admission):
        """Put a policy while the API server carries out one more write, and then answers nothing for so many seconds."""

        def _put(of, method, seconds, kind=POLICY):
            def after(request):
                of_kind = request.method == method and kind.plural in request.path.split("/")
                if of_kind and ("dryRun", "All") not in request.query:
                    world.after = lambda request: None
                    until = world.now + seconds
                    world.before = lambda request: lose() if world.now < until else None
                    lose()

            world.after = after
            with pytest.raises(ClusterError) as caught:
                policies.put(world.client(retry_seconds=20), desired(of), None, TIMEOUT, world.clock())
            assert caught.value.maybe_applied
            return str(caught.value)

        return _put

    def test_a_change_that_was_carried_out_is_taken_back(self, put_in_outage, world, old):
        assert put_in_outage(NEW, "PUT", 30).endswith("The former state is in effect again.")
        assert contents(live(world)) == contents(old)

    @pytest.mark.parametrize("kind", [POLICY, BINDING], ids=str)
    def test_a_creation_that_was_carried_out_is_taken_back(self, put_in_outage, world, kind):
        assert put_in_outage(NEW, "POST", 30, kind).endswith("The former state is in effect again.")
        assert live(world) == [None, None]

    def test_probes_that_get_no_answer_bring_back_the_former(self, put, world, admission, old):
        def spoil(pod):
            if probes.digest_in(pod) == digest(NEW) and pod["metadata"]["labels"][names.PROBE_LABEL] == names.POLICY:
                lose()

        admission.spoil = spoil
        with pytest.raises(ClusterError, match="gave no useful answer.*The former state is in effect again") as caught:
            put(NEW)
        assert not caught.value.maybe_applied
        assert contents(live(world)) == contents(old)

    @pytest.mark.usefixtures("old")
    def test_a_change_that_cannot_be_read_is_told(self, put_in_outage):
        said = put_in_outage(NEW, "PUT", 1000)
        assert (
            f"Policy {names.POLICY} may have been written. The former state could not be restored: Could not read"
            in said
        )

    def test_a_change_that_was_not_carried_out_was_not_written(self, world, old):
        def before(request):
            if request.method == "PUT" and ("dryRun", "All") not in request.query:
                lose()

        world.before = before
        with pytest.raises(ClusterError, match="Nothing was written"):
            policies.put(world.client(), desired(NEW), None, TIMEOUT, world.clock())
        assert contents(live(world)) == contents(old)

    def test_a_change_that_another_client_forestalled_is_told(self, world, old):
        def before(request):
            if request.method == "PUT" and ("dryRun", "All") not in request.query:
                world.before = lambda request: None
                policy = world.find(POLICY, names.POLICY)
                policy["spec"]["failurePolicy"] = "Ignore"
                world.touch(policy)
                lose()

        world.before = before
        with pytest.raises(ClusterError, match="changed by someone else.*Nothing was written"):
            policies.put(world.client(), desired(NEW), None, TIMEOUT, world.clock())
        assert world.find(POLICY, names.POLICY)["spec"] == {**old[0]["spec"], "failurePolicy": "Ignore"}


class TestPreview:
    def test_is_what_put_then_does(self, put, world, old):
        before = policies.preview(world.client(), desired(NEW))
        assert world.writes == []
        assert contents(change.after for change in before) == contents(change.after for change in put(NEW))


class TestRemove:
    def test_deletes_and_waits_until_nothing_acts(self, world, admission, old):
        changes = policy_objects.removals(reversed(live(world)))
        done = policies.remove(world.client(), changes, probes.plain_pod(SITE), TIMEOUT, world.clock())
        assert [str(change) for change in done] == [
            "MutatingAdmissionPolicyBinding virtpools-launcher: delete",
            "MutatingAdmissionPolicy virtpools-launcher: delete",
        ]
        assert live(world) == [None, None]

    @pytest.mark.usefixtures("old")
    def test_leaves_what_another_client_created_since(self, world):
        changes = policy_objects.removals(copy.deepcopy(live(world)))
        world.find(POLICY, names.POLICY)["metadata"]["uid"] = "another"
        policies.remove(world.client(), changes, None, TIMEOUT, world.clock())
        assert [obj is None for obj in live(world)] == [False, True]

    def test_says_when_it_still_acts(self, world, admission, old):
        admission._policy = lambda name: old[0]
        admission._admitted = lambda pod, name: {
            **pod,
            "metadata": {**pod["metadata"], "annotations": {names.POLICY_ANNOTATION: "stays"}},
        }
        changes = policy_objects.removals(reversed(live(world)))
        with pytest.raises(
            ClusterError, match="still changes launcher pods after 20 s; check that all API servers work"
        ):
            policies.remove(world.client(), changes, probes.plain_pod(SITE), TIMEOUT, world.clock())

    @pytest.mark.usefixtures("admission")
    def test_says_when_another_client_creates_it_again(self, world, old):
        """As a GitOps tool does that has it in its repository."""
        changes = policy_objects.removals(reversed(live(world)))

        def create():
            for obj in old:
                world.put({**obj, "metadata": {**obj["metadata"], "uid": "uid-of-another"}})

        world.at[world.now + 1] = create
        world.after = lambda request: (
            world.sleep(2) if request.method == "DELETE" and live(world) == [None, None] else None
        )
        with pytest.raises(ClusterError) as raised:
            policies.remove(world.client(), changes, probes.plain_pod(SITE), TIMEOUT, world.clock())
        assert str(raised.value) == (
            "The policy was deleted but still changes launcher pods after 20 s; another client has created its "
            "MutatingAdmissionPolicyBinding and MutatingAdmissionPolicy again. See who did that, such as a GitOps tool, and make it "
            "leave them out, then run again."
        )


class TestSite:
    def test_is_kubevirts_namespace_and_images(self, world, admission):
        namespace = world.find(kinds.NAMESPACE, SITE.namespace)
        namespace["metadata"]["labels"] = {"kubernetes.io/metadata.name": SITE.namespace}
        found = policies.probe_site(world.client(), builders.snapshot_of([builders.node()]))
        assert (found.namespace, found.namespace_labels) == (SITE.namespace, namespace["metadata"]["labels"])
        assert (found.launcher_image, found.other_image) == (builders.LAUNCHER_IMAGE, builders.HANDLER_IMAGE)
