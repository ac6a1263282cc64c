# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""Launcher policies on a real API server: none goes live untried, and none makes things worse."""

from __future__ import annotations

import copy
import threading
import time

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.client import (
    Cluster,
    ClusterError,
    DeleteOptions,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.waiting import Clock
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.writing import policies
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.admission import (
    launcher_policy,
    policy_objects,
    probes,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools.dialects import OWN, read_dialect
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms.mapping import Table
from policy_server import SERVICE_ACCOUNT

POLICY, BINDING = kinds.MUTATING_ADMISSION_POLICIES[0], kinds.MUTATING_ADMISSION_POLICY_BINDINGS[0]
NAMESPACE = "kubevirt"
STOCK = "registry.example/virt-launcher:v1.9.0"
TIMEOUT = 30
CONTROLLER = {"impersonate_user": names.controller_user(NAMESPACE), "impersonate_groups": ["system:masters"]}


def table(image, *more):
    """Return the table of a pool whose VMs carry the label class=gpu."""
    gpu = {
        "name": "gpu",
        "nodeSelector": {"hw": "gpu"},
        "virtLauncherImage": image,
        "selector": {"deviceNames": ["vendor.example/gpu"], "vmLabels": {"matchLabels": {"class": "gpu"}}},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
    }
    return Table.for_pools(read_dialect(OWN, [gpu, *more]))


OLD, NEW = table(f"{STOCK}-gpu"), table(f"{STOCK}-gpu-2")


class Site:
    """An API server, with what a user and virt-controller do there."""

    def __init__(self, kubernetes):
        self.kubernetes = kubernetes
        kubeconfig = {"kubeconfig": str(kubernetes.kubeconfig)}
        self.cluster = Cluster.connect(kubeconfig)
        self.controller = Cluster.connect({**kubeconfig, **CONTROLLER}, retry_seconds=5)
        if self.cluster.get(kinds.NAMESPACE, NAMESPACE) is None:
            self.cluster.create(kinds.NAMESPACE, kinds.NAMESPACE.object(NAMESPACE), dry_run=False)
        kubernetes.wait(lambda: self.cluster.get(SERVICE_ACCOUNT, "default", NAMESPACE), 30, "the namespace")
        labels = self.cluster.existing(kinds.NAMESPACE, NAMESPACE)["metadata"]["labels"]
        self.where = probes.Site(NAMESPACE, labels, STOCK, "registry.example/virt-handler:v1.9.0")

    def desired(self, of, name=names.POLICY):
        return launcher_policy.derive(of, NAMESPACE, POLICY, name)

    def trial(self, of):
        tried = [probes.probes(of, self.where, name) for name in (names.CANDIDATE_POLICY, names.POLICY)]
        return policies.Trial(self.desired(of, names.CANDIDATE_POLICY), *tried)

    def put(self, of, *, desired=None, trial=None, timeout=TIMEOUT):
        return policies.put(self.cluster, desired or self.desired(of), trial or self.trial(of), timeout, Clock())

    def remove(self):
        live = [self.cluster.get(kind, names.POLICY) for kind in (BINDING, POLICY)]
        changes = policy_objects.removals(obj for obj in live if obj is not None)
        return policies.remove(self.cluster, changes, probes.plain_pod(self.where), TIMEOUT, Clock())

    def live(self, name=names.POLICY):
        return self.cluster.get(POLICY, name), self.cluster.get(BINDING, name)

    def start_vm(self):
        """Return the launcher image and the policy's digest of a VM of pool gpu that starts now."""
        pod = probes.plain_pod(self.where)
        pod["metadata"]["labels"] = {names.KUBEVIRT_LABEL: names.LAUNCHER, "class": "gpu"}
        admitted = self.controller.create(kinds.POD, pod, dry_run=True)
        return admitted["spec"]["containers"][1]["image"], probes.digest_in(admitted)

    def drop(self, name):
        for kind in (BINDING, POLICY):
            self.cluster.delete(kind, name, dry_run=False)


@pytest.fixture(scope="module")
def site(plain_cluster):
    created = Site(plain_cluster)
    yield created
    for name in (names.POLICY, names.CANDIDATE_POLICY):
        created.drop(name)


@pytest.fixture
def nothing(site):
    """Begin the test without a live policy."""
    for name in (names.POLICY, names.CANDIDATE_POLICY):
        site.drop(name)
    site.kubernetes.wait(lambda: site.start_vm()[1] is None, 15, "policies to be gone")
    return site


@pytest.fixture
def old(site):
    """Begin the test with the policy of table OLD live."""
    if site.start_vm()[1] != launcher_policy.digest_of(OLD, NAMESPACE):
        site.put(OLD)
    return site


def broken(desired):
    """Return a policy that the API server accepts, but that fails as soon as it acts on a pod."""
    copied = copy.deepcopy(desired)
    variables = copied[0][1]["spec"]["variables"]
    next(each for each in variables if each["name"] == "terms")["expression"] = "object.spec.afinity.terms"
    return copied


def careless(desired):
    """Return a policy that works, but forgets the init containers."""
    copied = copy.deepcopy(desired)
    patch = copied[0][1]["spec"]["mutations"][0]["jsonPatch"]
    patch["expression"] = patch["expression"].replace("object.spec.?initContainers", "object.spec.?ephemeralContainers")
    return copied


def version(live):
    return [obj and obj["metadata"]["resourceVersion"] for obj in live]


class TestPut:
    def test_makes_vms_start_with_the_pools_image(self, nothing):
        changes = nothing.put(OLD)
        assert [str(change) for change in changes] == [
            "MutatingAdmissionPolicy virtpools-launcher: create",
            "MutatingAdmissionPolicyBinding virtpools-launcher: create",
        ]
        assert nothing.start_vm() == (f"{STOCK}-gpu", launcher_policy.digest_of(OLD, NAMESPACE))
        assert nothing.live(names.CANDIDATE_POLICY) == (None, None)

    def test_again_writes_nothing(self, old):
        marker = old.kubernetes.audit_marker()
        assert old.put(OLD) == []
        assert old.kubernetes.writes(marker, user="admin") == []

    def test_replaces_the_former_one(self, old):
        assert [str(change) for change in old.put(NEW)] == ["MutatingAdmissionPolicy virtpools-launcher: update"]
        assert old.start_vm() == (f"{STOCK}-gpu-2", launcher_policy.digest_of(NEW, NAMESPACE))

    def test_puts_right_what_was_edited_and_keeps_what_others_noted(self, old):
        policy, binding = old.live()
        policy["spec"]["failurePolicy"] = "Ignore"
        policy["spec"]["variables"].insert(0, {"name": "intruder", "expression": "1"})
        policy["metadata"]["labels"]["others.example/note"] = "kept"
        policy["metadata"]["annotations"][names.MAPPING_ANNOTATION] = "edited"
        old.cluster.replace(POLICY, policy, dry_run=False)
        options = DeleteOptions(uid=binding["metadata"]["uid"])
        old.cluster.delete(BINDING, names.POLICY, options=options, dry_run=False)
        assert len(old.put(OLD)) == 2
        now = old.live()[0]
        ((_kind, wanted), _binding) = old.desired(OLD)
        assert now["spec"] == wanted["spec"]
        assert now["metadata"]["annotations"] == wanted["metadata"]["annotations"]
        assert now["metadata"]["labels"] == {**wanted["metadata"]["labels"], "others.example/note": "kept"}

    def test_takes_away_the_candidate_of_a_killed_run(self, old):
        for kind, obj in broken(old.desired(OLD, names.CANDIDATE_POLICY)):
            old.cluster.create(kind, obj, dry_run=False)
        old.put(NEW)
        assert old.live(names.CANDIDATE_POLICY) == (None, None)

    def test_of_many_pools(self, old):
        more = [
            {
                "name": f"pool-{number}",
                "nodeSelector": {"hw": f"pool-{number}"},
                "virtLauncherImage": f"{STOCK}-{number}",
                "selector": {"architectures": ["arm64"], "vmLabels": {"matchLabels": {"class": str(number)}}},
                "unmatched": "keep_off" if number else "allow",
            }
            for number in range(200)
        ]
        large = table(f"{STOCK}-gpu", *more)
        old.put(large)
        assert old.start_vm() == (f"{STOCK}-gpu", launcher_policy.digest_of(large, NAMESPACE))


class TestPreview:
    def test_tells_what_would_be_written_and_writes_nothing(self, old):
        before, marker = old.live(), old.kubernetes.audit_marker()
        (change,) = policies.preview(old.cluster, old.desired(NEW))
        assert change.before == before[0]
        assert change.after["spec"] == old.desired(NEW)[0][1]["spec"]
        assert old.kubernetes.writes(marker, user="admin") == []
        assert version(old.live()) == version(before)

    def test_finds_what_the_server_refuses(self, old):
        ((kind, policy), binding) = old.desired(NEW)
        policy["spec"]["variables"][0]["expression"] = "object.spec.("
        with pytest.raises(ClusterError, match="Syntax error"):
            policies.preview(old.cluster, [(kind, policy), binding])


class TestFaultyPolicies:
    def test_a_policy_that_fails_is_never_live(self, old):
        before, seen, done = version(old.live()), [], threading.Event()

        def start_vms():
            while not done.is_set():
                seen.append(old.start_vm())
                time.sleep(0.02)

        vms = threading.Thread(target=start_vms)
        vms.start()
        trial = old.trial(NEW)
        faulty = policies.Trial(broken(trial.candidate), trial.candidate_probes, trial.probes)
        with pytest.raises(ClusterError, match=r"was not activated.*no such key: afinity"):
            old.put(NEW, desired=broken(old.desired(NEW)), trial=faulty)
        done.set()
        vms.join()
        assert set(seen) == {(f"{STOCK}-gpu", launcher_policy.digest_of(OLD, NAMESPACE))}
        assert len(seen) > 20
        assert version(old.live()) == before
        assert old.live(names.CANDIDATE_POLICY) == (None, None)

    def test_a_policy_that_does_the_wrong_thing_is_never_live(self, old):
        before, trial = version(old.live()), old.trial(NEW)
        faulty = policies.Trial(careless(trial.candidate), trial.candidate_probes, trial.probes)
        wrong = r"pool gpu has the wrong result: images.container-disk-binary is .*, it should be .*-gpu-2"
        with pytest.raises(ClusterError, match=wrong):
            old.put(NEW, trial=faulty)
        assert version(old.live()) == before

    def test_one_that_fails_when_live_is_replaced_by_the_former(self, old):
        policy, binding = old.live()
        with pytest.raises(ClusterError, match=r"no such key: afinity.* The former state is in effect again\."):
            old.put(NEW, desired=broken(old.desired(NEW)))
        assert old.start_vm() == (f"{STOCK}-gpu", launcher_policy.digest_of(OLD, NAMESPACE))
        now = old.live()
        assert (now[0]["spec"], now[0]["metadata"]["annotations"]) == (
            policy["spec"],
            policy["metadata"]["annotations"],
        )
        assert now[1] == binding

    def test_a_first_policy_that_fails_when_live_is_deleted(self, nothing):
        with pytest.raises(ClusterError, match="in effect again"):
            nothing.put(NEW, desired=broken(nothing.desired(NEW)))
        assert nothing.live() == (None, None)
        assert nothing.start_vm() == (STOCK, None)

    @pytest.mark.parametrize("name", [names.POLICY, names.CANDIDATE_POLICY])
    def test_a_policy_of_somebody_else_is_left_alone(self, nothing, name):
        ((kind, foreign), _binding) = nothing.desired(OLD, name)
        del foreign["metadata"]["labels"]
        created = nothing.cluster.create(kind, foreign, dry_run=False)
        with pytest.raises(ClusterError, match="exists but is not ours"):
            nothing.put(NEW)
        assert nothing.live(name) == (created, None)

    def test_a_policy_that_never_acts_is_given_up(self, nothing):
        trial = nothing.trial(NEW)
        unbound = policies.Trial(trial.candidate[:1], trial.candidate_probes, trial.probes)
        with pytest.raises(ClusterError, match="does not act on launcher pods"):
            nothing.put(NEW, trial=unbound, timeout=2)
        assert nothing.live() == (None, None)


class TestRemove:
    def test_waits_until_vms_start_without_the_policy(self, old):
        assert [str(change) for change in old.remove()] == [
            "MutatingAdmissionPolicyBinding virtpools-launcher: delete",
            "MutatingAdmissionPolicy virtpools-launcher: delete",
        ]
        assert old.start_vm() == (STOCK, None)
        assert old.remove() == []


class TestProbes:
    def test_of_other_policies_and_other_users_pods_are_left_alone(self, old):
        candidate = probes.plain_pod(old.where, names.CANDIDATE_POLICY)
        assert probes.digest_in(old.cluster.create(kinds.POD, candidate, dry_run=True)) is None
        plain = probes.plain_pod(old.where)
        assert probes.digest_in(old.cluster.create(kinds.POD, plain, dry_run=True)) is not None
        stored = old.cluster.create(kinds.POD, plain, dry_run=False)
        old.cluster.delete(
            kinds.POD, plain["metadata"]["name"], NAMESPACE, DeleteOptions(grace_seconds=0), dry_run=False
        )
        assert probes.digest_in(stored) is None
