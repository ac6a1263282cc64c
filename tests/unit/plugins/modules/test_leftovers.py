# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.writing import settle
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.admission import guard
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.monitoring import alerts
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.monitoring.alert_rules import Scope
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.monitoring.alerts import Settings
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning import removal
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders, vms

GUARD_KINDS = (kinds.VALIDATING_ADMISSION_POLICY_BINDING, kinds.VALIDATING_ADMISSION_POLICY)
OURS = {names.MANAGED_BY_LABEL: names.MANAGED_BY}
POLICIES = [
    *(f"{kind} {name}: delete" for name in names.GUARDS for kind in GUARD_KINDS),
    "MutatingAdmissionPolicyBinding virtpools-launcher: delete",
    "MutatingAdmissionPolicy virtpools-launcher: delete",
]
HISTORY = "ConfigMap kubevirt/virtpools-history: delete"
OWNERS = ["Node n1: forget its owner gpu", "Node n2: forget its owner rt"]
ALERTS = f"PrometheusRule monitoring/{names.ALERTS}: delete"
EXPECTED = [
    *POLICIES,
    ALERTS,
    "DaemonSet kubevirt/virt-handler-gpu: delete",
    f"Pod kubevirt/{builders.PULL_POD}: delete",
    HISTORY,
    *OWNERS,
]


def history(labels=OURS):
    made = kinds.CONFIG_MAP.object(names.HISTORY, builders.NAMESPACE, data={})
    made["metadata"]["labels"] = dict(labels)
    return made


@pytest.fixture
def left(world):
    """What pools leave behind, on a cluster with KubeVirt."""
    for obj in (*vms.policy(), *(obj for _kind, obj in guard.derive(builders.NAMESPACE, ()))):
        world.put(obj)
    for obj in (
        builders.pool_daemonset(builders.pool("gpu")),
        builders.pull_pod(),
        history(),
        alerts.derive(Scope(builders.NAMESPACE, ("gpu",)), Settings("monitoring")),
        builders.node("n1", "gpu"),
        builders.node("n2", None, "rt"),
        kinds.NAMESPACE.object(builders.NAMESPACE),
    ):
        world.put(obj)
    return world


@pytest.fixture
def abandoned(left):
    """The same when KubeVirt and its own DaemonSet are gone."""
    left.drop(kinds.KUBEVIRT, "kubevirt", builders.NAMESPACE)
    left.drop(kinds.DAEMON_SET, "virt-handler", builders.NAMESPACE)
    return left


def everything(world):
    return {key: obj for key, obj in world.objects.items() if key[1] not in ("nodes", "namespaces")}


class TestWithoutKubeVirt:
    def test_all_that_is_ours_goes_and_a_second_time_changes_nothing(self, run, abandoned):
        found = run("leftovers")
        assert (found["kubevirt"], found["changed"], found["changes"]) == (False, True, EXPECTED)
        assert found["text"] == [removal.WITHOUT_KUBEVIRT, *EXPECTED]
        kinds_left = {key[1] for key in everything(abandoned)}
        assert kinds_left <= {"pods"}, "only handlers of the primary, whose DaemonSet is gone"
        noted = [removal.owner_noted(node) for node in abandoned.all(kinds.NODE)]
        assert noted
        assert set(noted) == {None}
        abandoned.writes.clear()
        again = run("leftovers")
        assert (again["changed"], again["text"]) == (False, [removal.NOTHING_LEFT])
        assert abandoned.writes == []

    def test_check_mode_predicts_and_writes_nothing(self, run, abandoned):
        predicted = run("leftovers", check=True)
        assert abandoned.writes == []
        done = run("leftovers")
        assert [predicted[key] for key in ("changes", "diff")] == [done[key] for key in ("changes", "diff")]

    def test_nor_its_custom_resources(self, run, abandoned):
        abandoned.unserved |= {"KubeVirt", "VirtualMachineInstance", "VirtualMachineInstanceMigration"}
        assert run("leftovers")["changes"] == EXPECTED

    def test_nor_its_namespace(self, run, abandoned):
        for kind, name in (
            (kinds.DAEMON_SET, "virt-handler-gpu"),
            (kinds.POD, builders.PULL_POD),
            (kinds.CONFIG_MAP, names.HISTORY),
        ):
            abandoned.drop(kind, name, builders.NAMESPACE)
        abandoned.drop(kinds.NAMESPACE, builders.NAMESPACE)
        assert run("leftovers")["changes"] == [*POLICIES, ALERTS, *OWNERS]
        assert not any("/leases" in path for _verb, path in abandoned.writes), "there is no place for a Lease"

    def test_nothing_of_others(self, run, abandoned):
        abandoned.put(history(labels={}))
        foreign = builders.pool_daemonset(builders.pool("mine"))
        del foreign["metadata"]["labels"][names.MANAGED_BY_LABEL]
        abandoned.put(foreign)
        abandoned.put(kinds.PROMETHEUS_RULE.object(names.ALERTS, "theirs", spec={}))
        copies = [builders.pull_pod(), builders.pool_daemonset(builders.pool("gpu"))]
        for copied in copies:
            copied["metadata"].update(name="a-copy", uid="of-the-copy")
            abandoned.put(copied)
        assert HISTORY not in run("leftovers")["changes"]
        assert abandoned.find(kinds.POD, "a-copy", builders.NAMESPACE) is not None
        assert abandoned.find(kinds.DAEMON_SET, "a-copy", builders.NAMESPACE) is not None
        assert abandoned.find(kinds.PROMETHEUS_RULE, names.ALERTS, "theirs") is not None
        assert abandoned.find(kinds.DAEMON_SET, "virt-handler-mine", builders.NAMESPACE) is not None

    def test_a_lease_of_a_dead_run_goes_too(self, run, abandoned):
        lease = kinds.LEASE.object(names.LEASE_NAME, builders.NAMESPACE, spec={})
        abandoned.put(lease)
        assert run("leftovers")["changes"] == [*EXPECTED, "Lease kubevirt/virtpools: delete"]
        assert abandoned.all(kinds.LEASE) == []

    def test_only_daemonsets_go_in_the_foreground(self, run, abandoned):
        """Another object would exist for some time, and what a new KubeVirt's first run writes into it would be lost."""
        asked = {}

        def note(request):
            if request.method == "DELETE" and "/leases/" not in request.path:
                asked[request.path.rpartition("/")[2]] = request.body

        abandoned.after = note
        run("leftovers")
        foreground = {name for name, body in asked.items() if body["propagationPolicy"] == "Foreground"}
        assert foreground == {"virt-handler-gpu"}
        assert {names.HISTORY, builders.PULL_POD} <= asked.keys()
        assert asked["virt-handler-gpu"]["preconditions"]["uid"], "not one that was created since"

    def test_nodes_keep_their_owner_until_its_handlers_have_ended(self, run, abandoned, monkeypatch):
        seen = []

        def has_gone(_cluster, daemonset, *_limits):
            seen.append((daemonset["metadata"]["name"], removal.owner_noted(abandoned.find(kinds.NODE, "n1"))))

        monkeypatch.setattr(settle, "await_daemonset_gone", has_gone)
        run("leftovers")
        assert seen == [("virt-handler-gpu", "gpu")]

    def test_nothing_when_it_was_installed_again_meanwhile(self, run, abandoned, other_run):
        other_run(lambda: abandoned.put(builders.kubevirt()))
        found = run("leftovers")
        assert (found["kubevirt"], found["changed"]) == (True, False)
        assert abandoned.find(kinds.DAEMON_SET, "virt-handler-gpu", builders.NAMESPACE) is not None

    def test_one_pool_cannot_go_alone(self, run, abandoned):
        assert "no pool can stay" in run.failure("leftovers", remove_pools=["gpu"])
        assert abandoned.writes == []

    def test_missing_rights_are_named_before_anything_is_written(self, run, abandoned):
        abandoned.denied.add(("delete", "daemonsets"))
        assert "delete daemonsets.apps" in run.failure("leftovers")
        assert abandoned.writes == []


class TestWithKubeVirt:
    def test_nothing_goes_while_there_are_pools(self, run, left):
        found = run("leftovers")
        assert (found["kubevirt"], found["changed"]) == (True, False)
        assert left.writes == []

    def test_check_mode_takes_it_that_they_are_gone(self, run, left):
        assert run("leftovers", check=True)["changes"] == [HISTORY]
        assert left.writes == []

    def test_then_the_history(self, run, world):
        world.put(history())
        assert run("leftovers", only_without_kubevirt=True)["changed"] is False
        assert run("leftovers")["changes"] == [HISTORY]
        assert world.all(kinds.CONFIG_MAP) == world.all(kinds.LEASE) == []
