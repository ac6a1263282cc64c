# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api import waiting
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.client import ClusterError
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.writing.epochs import Epochs
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.admission import launcher_policy
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.observed.nodes import Node
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms.launcher_pods import LauncherPod
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms.mapping import Table
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders, launcher_cases, vms
from ansible_collections.virtpools.kubevirt.tests.unit.support.admission import POLICY, SITE, Admission
from ansible_collections.virtpools.kubevirt.tests.unit.support.fake_cluster import World

UNTIL_GPU, UNTIL_PRIMARY = "until.virtpools.io/gpu", "until.virtpools.io/primary"
NOW = 1_800_000_000


def world_with(*objects, pools=None, epoch=6):
    world = World(*objects)
    world.admission = Admission(world)
    for _kind, obj in launcher_policy.derive(
        Table.for_pools(pools or [vms.gpu()]), builders.NAMESPACE, POLICY, epoch=epoch
    ):
        world.put(obj)
    return world


def epochs_of(world):
    return Epochs(world.client(), lambda: SITE)


def vm_pod(pool, epoch, on="n1", **fields):
    """The launcher pod of a VM that started on a node of its pool under a policy of this epoch."""
    pod = vms.launcher(pool=pool, device=pool != names.PRIMARY, on=on, **fields)
    stay = {"key": f"until.virtpools.io/{pool}", "operator": "Gt", "values": [str(epoch)]}
    terms = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    terms["nodeSelectorTerms"].append({"matchExpressions": [stay]})
    return pod


def policy_epoch(world):
    return launcher_policy.epoch_of(world.find(POLICY, names.POLICY))


def guest_pod(epoch=6):
    """The launcher pod of a VM of no pool that started on gpu's node while that pool let it in, and pool rt did not."""
    wanted = Table((), keep_off=("rt",), allow=("gpu",)).requirement(None).to_object()
    stay = launcher_cases.expression(UNTIL_PRIMARY, "Gt", str(epoch))
    pod = vms.launcher(pool=names.PRIMARY, device=False, on="n1")
    pod["spec"]["affinity"] = launcher_cases.required(launcher_cases.term(wanted), launcher_cases.term(stay))
    return pod


def node_of(owner, **until):
    labels = {f"until.virtpools.io/{key}": value for key, value in until.items()}
    return builders.node("n1", owner, labels={"kubernetes.io/arch": "amd64", **labels})


def leaving(epochs, owner, **until):
    """The labels of a node that this owner loses, and that is labelled at once."""
    with epochs.leaving(node_of(owner, **until), owner) as labels:
        return labels


class TestLeaving:
    def test_in_an_epoch_that_no_pod_has(self):
        assert leaving(epochs_of(world_with()), "gpu") == {UNTIL_GPU: "7"}

    def test_vms_without_a_pool_where_the_pool_allows_them(self):
        world = world_with(pools=[vms.gpu(unmatched="allow")])
        assert leaving(epochs_of(world), "gpu") == {UNTIL_GPU: "7", UNTIL_PRIMARY: "7"}

    def test_without_a_policy_epochs_follow_the_time(self, monkeypatch):
        monkeypatch.setattr(waiting, "seconds_since_1970", lambda: NOW)
        assert leaving(epochs_of(World()), "primary") == {UNTIL_PRIMARY: str(NOW)}

    @pytest.mark.parametrize(
        ("of_pod", "epoch"),
        [(NOW - 300, NOW), (NOW, NOW + 1), (NOW + 300, NOW + 301), (2**63 - 2, NOW)],
        ids=["earlier", "now", "from a clock ahead of ours", "written by the owner of a VM"],
    )
    def test_without_a_policy_pods_of_an_earlier_one_may_stay(self, monkeypatch, of_pod, epoch):
        monkeypatch.setattr(waiting, "seconds_since_1970", lambda: NOW)
        world = World(vm_pod("gpu", of_pod))
        assert leaving(epochs_of(world), "gpu") == {UNTIL_GPU: str(epoch), UNTIL_PRIMARY: str(epoch)}

    def test_the_newest_of_several_pods_decides(self, monkeypatch):
        monkeypatch.setattr(waiting, "seconds_since_1970", lambda: NOW)
        world = World(*(vm_pod("gpu", NOW + ahead, name=f"vm-{ahead}") for ahead in (5, 300, 7)))
        assert leaving(epochs_of(world), "gpu")[UNTIL_GPU] == str(NOW + 301)

    @pytest.mark.parametrize(("former", "epoch"), [(NOW + 300, NOW + 301), (6, NOW)])
    def test_after_a_policy_that_was_deleted_meanwhile(self, monkeypatch, former, epoch):
        monkeypatch.setattr(waiting, "seconds_since_1970", lambda: NOW)
        world = world_with(vm_pod("gpu", 6), epoch=former)
        epochs = epochs_of(world)
        world.drop(POLICY, names.POLICY)
        assert epochs.settle(node_of(names.IN_TRANSIT, gpu=str(former + 1)), "primary") == {}
        assert leaving(epochs, "primary") == {UNTIL_PRIMARY: str(epoch)}

    def test_a_policy_of_somebody_else_does_not_count(self, monkeypatch):
        monkeypatch.setattr(waiting, "seconds_since_1970", lambda: NOW)
        assert leaving(epochs_of(World(POLICY.object(names.POLICY, spec={}))), "gpu") == {
            UNTIL_GPU: str(NOW),
            UNTIL_PRIMARY: str(NOW),
        }


class TestLeavingAPoolThatLetOthersInBefore:
    def test_a_vm_of_no_pool_may_stay(self):
        world = world_with(guest_pod())
        labels = leaving(epochs_of(world), "gpu")
        assert labels == {UNTIL_GPU: "7", UNTIL_PRIMARY: "7"}
        for owner in (names.IN_TRANSIT, "rt"):
            node = Node.from_object(node_of(owner, gpu=labels[UNTIL_GPU], primary=labels[UNTIL_PRIMARY]))
            assert LauncherPod.from_object(guest_pod()).placement.misfit(node) is None

    def test_a_vm_of_no_pool_that_has_ended_needs_no_label(self):
        ended = {**guest_pod(), "status": {"phase": "Succeeded"}}
        assert leaving(epochs_of(world_with(ended)), "gpu") == {UNTIL_GPU: "7"}

    def test_vms_of_the_pool_need_no_other_label(self):
        assert leaving(epochs_of(world_with(vm_pod("gpu", 6))), "gpu") == {UNTIL_GPU: "7"}

    def test_a_vm_that_stays_by_an_older_label_needs_no_new_one(self):
        """The policy would have to go on for it, and waiting VMs could start there once more."""
        world = world_with(vm_pod(names.PRIMARY, 3))
        assert leaving(epochs_of(world), "gpu", primary="5") == {UNTIL_GPU: "7"}

    def test_a_vm_that_could_not_stay_with_it_needs_no_other(self):
        world = world_with(vm_pod("rt", 6))
        assert leaving(epochs_of(world), "gpu") == {UNTIL_GPU: "7"}

    def test_pods_that_cannot_be_read_are_an_error(self):
        world = world_with()
        world.denied.add(("list", "pods"))
        with pytest.raises(ClusterError):
            leaving(epochs_of(world), "gpu")

    def test_other_nodes_cost_no_request(self):
        world = world_with()
        world.denied.add(("list", "pods"))
        assert leaving(epochs_of(world), names.PRIMARY) == {UNTIL_PRIMARY: "7"}


class TestSettle:
    def node(self, owner=names.IN_TRANSIT, **until):
        return node_of(owner, **until)

    def test_a_node_without_vms_loses_its_labels(self):
        world = world_with()
        assert epochs_of(world).settle(self.node(gpu="7"), "primary") == {UNTIL_GPU: None}
        assert policy_epoch(world) == 6

    def test_the_policy_goes_on_before_the_next_owner_comes(self):
        world = world_with(vm_pod("gpu", 6))
        epochs = epochs_of(world)
        assert epochs.settle(self.node(gpu="7", primary="3"), "primary") == {UNTIL_PRIMARY: None}
        assert policy_epoch(world) == 7
        assert leaving(epochs, "gpu") == {UNTIL_GPU: "8"}, "a pod may have epoch 7 now"

    def test_the_policy_does_not_go_on_while_a_node_gets_its_label(self):
        """Until then pods come to that node as before: one of the new epoch would not stay there."""
        world = world_with(vm_pod("gpu", 6))
        epochs = epochs_of(world)
        with epochs.leaving(node_of("gpu"), "gpu") as labels:
            assert labels == {UNTIL_GPU: "7"}
            assert epochs.settle(self.node(gpu="7"), "primary") is None
            assert policy_epoch(world) == 6
        assert epochs.settle(self.node(gpu="7"), "primary") == {}
        assert policy_epoch(world) == 7

    def test_the_policy_goes_on_after_a_label_that_failed(self):
        epochs = epochs_of(world_with(vm_pod("gpu", 6)))
        with pytest.raises(ClusterError), epochs.leaving(node_of("gpu"), "gpu"):
            raise ClusterError("no answer")
        assert epochs.settle(self.node(gpu="7"), "primary") == {}

    def test_a_server_that_still_admits_by_the_old_policy_is_awaited(self):
        world = world_with(vm_pod("gpu", 6))
        epochs = epochs_of(world)
        world.admission.spoil = lambda pod: _set_epoch(pod, "6")
        assert epochs.settle(self.node(gpu="7"), "primary") is None
        assert epochs.settle(self.node(gpu="7"), "primary") is None
        world.admission.spoil = lambda pod: None
        assert epochs.settle(self.node(gpu="7"), "primary") == {}
        assert len([write for write in world.writes if "mutatingadmissionpolicies" in str(write)]) == 1

    @pytest.mark.parametrize("epoch", [7, 20])
    def test_the_policy_never_goes_back(self, epoch):
        """Another run may have moved it on."""
        world = world_with(vm_pod("gpu", 6))
        epochs = epochs_of(world)
        world.put(launcher_policy.with_epoch(world.find(POLICY, names.POLICY), epoch))
        assert epochs.settle(self.node(gpu="7"), "primary") == {}
        assert policy_epoch(world) == epoch
        assert not [path for _verb, path in world.writes if POLICY.plural in path]
        assert leaving(epochs, "gpu") == {UNTIL_GPU: str(epoch + 1)}

    def test_another_client_that_writes_the_policy_too_is_no_error(self):
        world = world_with(vm_pod("gpu", 6))
        epochs = epochs_of(world)

        def meddle(request):
            if request.method == "PUT":
                world.before = lambda request: None
                world.put(copy.deepcopy(world.find(POLICY, names.POLICY)))

        world.before = meddle
        assert epochs.settle(self.node(gpu="7"), "primary") is None
        assert epochs.settle(self.node(gpu="7"), "primary") == {}
        assert policy_epoch(world) == 7

    def test_only_what_a_probe_shows_is_in_force(self):
        world = world_with(vm_pod("gpu", 6), vm_pod("gpu", 7, on="n2", name="other"))
        epochs = epochs_of(world)
        world.admission.spoil = lambda pod: _set_epoch(pod, "6")
        n2 = {**self.node(gpu="8"), "metadata": {**self.node(gpu="8")["metadata"], "name": "n2"}}
        assert epochs.settle(n2, "primary") is None, "the policy has epoch 8"
        world.admission.spoil = lambda pod: _set_epoch(pod, "7")
        assert epochs.settle(self.node(gpu="7"), "primary") == {}
        assert epochs.settle(n2, "primary") is None

    def test_a_vm_whose_owner_comes_back_needs_no_label(self):
        world = world_with(vm_pod("gpu", 6))
        assert epochs_of(world).settle(self.node(gpu="7"), "gpu") == {UNTIL_GPU: None}

    def test_a_vm_that_has_ended_needs_none(self):
        world = world_with(vm_pod("gpu", 6, phase="Succeeded"))
        assert epochs_of(world).settle(self.node(gpu="7"), "primary") == {UNTIL_GPU: None}

    def test_a_label_of_two_owners_ago_stays(self):
        world = world_with(vm_pod("gpu", 3))
        assert epochs_of(world).settle(self.node(gpu="5", rt="6"), "primary") == {"until.virtpools.io/rt": None}
        assert policy_epoch(world) == 6

    def test_a_policy_that_was_deleted_meanwhile_holds_nothing_up(self):
        world = world_with(vm_pod("gpu", 6))
        epochs = epochs_of(world)
        world.drop(POLICY, names.POLICY)
        assert epochs.settle(self.node(gpu="7"), "primary") == {}

    def test_pods_that_cannot_be_read_are_an_error(self):
        world = world_with()
        epochs = epochs_of(world)
        world.denied.add(("list", "pods"))
        with pytest.raises(ClusterError):
            epochs.settle(self.node(gpu="7"), "primary")


def _set_epoch(pod, epoch):
    required = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    for term in required["nodeSelectorTerms"]:
        for expression in term.get("matchExpressions", ()):
            if expression["operator"] == "Gt":
                expression["values"] = [epoch]
