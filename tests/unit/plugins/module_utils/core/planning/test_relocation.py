# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy
import dataclasses

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.admission import launcher_policy
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.findings import InputErrors
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.observed import snapshot
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.observed.nodes import Node
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning import relocation
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.relocation import Evacuation, ImageDrift
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms.launcher_pods import LauncherPod
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms.mapping import Table, Upcoming
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders, launcher_cases
from ansible_collections.virtpools.kubevirt.tests.unit.support.fake_migrations import vm

STOCK, GPU = builders.LAUNCHER_IMAGE, builders.GPU_LAUNCHER_IMAGE
POOL = builders.pool("gpu", virtLauncherImage=GPU, selector={"vmLabels": {"matchLabels": {"for": "gpu"}}})
FOR_GPU = {"labels": {"for": "gpu"}}
POLICY = kinds.MUTATING_ADMISSION_POLICIES[0]


def node(name, owner=None, **fields):
    return builders.node(name, owner, labels={"kubernetes.io/arch": "amd64"}, **fields)


NODES = [node("n1", "gpu"), node("n2", "gpu"), node("stays"), node("stays-2")]


def mapping(*, of=(POOL,), nodes=NODES, **options):
    return ImageDrift(Table.for_pools(of), STOCK, map(Node.from_object, nodes), **options)


def update(*args, of=None, **fields):
    vmi, pod = vm(*args, **fields)
    found = (of or mapping()).relocation_for(LauncherPod.from_object(pod))
    return found and relocation.with_vmi(found, vmi)


class TestHypervisor:
    """No VM can be migrated from one hypervisor to another."""

    MSHV = builders.pool("gpu", hypervisor="hyperv-direct", selector={"vmLabels": {"matchLabels": {"for": "gpu"}}})

    def test_of_a_new_pod_differs_so_the_vm_is_restarted(self):
        found = update(of=mapping(of=[self.MSHV]), image=STOCK, **FOR_GPU)
        assert (found.how, found.images, found.misfit) == ("restart", {}, "it runs on kvm instead of hyperv-direct")
        assert (
            found.reason == "it runs on kvm instead of hyperv-direct, and no VM can be migrated to another hypervisor"
        )

    def test_of_a_new_pod_differs_so_no_node_is_emptied_by_migration(self):
        _vmi, pod = vm(image=STOCK, **FOR_GPU)
        pod = LauncherPod.from_object(pod)
        found = Evacuation({pod.node: True}, Table.for_pools([self.MSHV])).relocation_for(pod)
        assert (found.how, found.reason) == (
            "restart",
            "it runs on kvm instead of hyperv-direct, which a migration would bring",
        )
        assert Evacuation({pod.node: True}).relocation_for(pod).how == "migrate"


class TestOutdated:
    def test_a_pools_vm_with_kubevirts_image(self):
        found = update(image=STOCK, **FOR_GPU)
        assert (found.vm, found.pool, found.expected_image, found.how) == ("plain/vm", "gpu", GPU, "migrate")
        assert set(found.images.values()) == {STOCK}
        assert str(found) == f"VM plain/vm: migrate for {GPU} of gpu"

    def test_a_vm_of_no_pool_with_a_pools_image(self):
        assert (update(on="stays", image=GPU).expected_image, update(on="stays", image=GPU).pool) == (STOCK, "primary")

    def test_after_an_upgrade_of_kubevirt(self):
        assert update(on="stays", image=f"{STOCK}-old").expected_image == STOCK

    def test_a_vm_on_a_node_of_another_owner_moves(self):
        moved = update(**FOR_GPU, image=GPU, on="stays")
        assert (moved.images, moved.misfit) == ({}, "node stays is one of primary")
        assert str(moved) == "VM plain/vm: migrate to a node of gpu, because node stays is one of primary"

    def test_a_vm_stays_on_a_node_whose_next_owner_is_not_known(self):
        nodes = [node("n1", names.IN_TRANSIT, former="gpu"), *NODES[1:]]
        assert update(**FOR_GPU, image=GPU, of=mapping(nodes=nodes)) is None

    def test_without_pools_a_vm_stays_where_it_is(self):
        assert update(on="n1", image=STOCK, of=mapping(of=())) is None

    def test_a_vm_that_a_kubelet_would_end_moves(self):
        _vmi, pod = vm(image=STOCK, on="stays", node_selector={"disk": "ssd"})
        assert mapping().relocation_for(LauncherPod.from_object(pod)).misfit == (
            "a restart of the kubelet of stays would end it"
        )

    def test_one_place_is_enough(self):
        _vmi, pod = vm(image=GPU, **FOR_GPU)
        pod["spec"]["initContainers"][0]["image"] = STOCK
        assert dict(mapping().relocation_for(LauncherPod.from_object(pod)).images) == {
            "init container guest-console-log": STOCK
        }

    @pytest.mark.parametrize(
        "fields",
        [
            {"image": GPU, **FOR_GPU},
            {"image": STOCK, "on": "stays"},
            {"image": "mirror.example/a/virt-launcher:v1.9.0-gpu", **FOR_GPU},
            {"image": f"{GPU}@sha256:{'a' * 64}", **FOR_GPU},
        ],
        ids=["pool's image", "KubeVirt's image", "mirror", "appended digest"],
    )
    def test_vms_with_the_right_image_stay_where_they_are(self, fields):
        assert update(**fields) is None

    @pytest.mark.parametrize(
        "change",
        [
            lambda pod: pod["status"].update(phase="Succeeded"),
            lambda pod: pod["metadata"].update(deletionTimestamp="now"),
            lambda pod: pod["metadata"].pop("ownerReferences"),
        ],
        ids=["ended", "ending", "nobody's"],
    )
    def test_pods_without_a_guest_do_not_count(self, change):
        _vmi, pod = vm(image=STOCK, **FOR_GPU)
        change(pod)
        pod = LauncherPod.from_object(pod)
        assert (mapping().relocation_for(pod), Evacuation({"n1": True}).relocation_for(pod)) == (None, None)

    def test_a_back_end_for_compute_only_is_judged_by_compute(self):
        _vmi, pod = vm(image=STOCK, **FOR_GPU)
        pod["spec"]["containers"][0]["image"] = GPU
        assert mapping().relocation_for(LauncherPod.from_object(pod)) is not None
        assert mapping(compute_only=True).relocation_for(LauncherPod.from_object(pod)) is None

    def test_an_image_that_kubevirt_aie_webhook_would_give_again(self):
        other = "registry.example/theirs:1"

        def by_webhook(*of_webhook):
            _vmi, pod = vm(image=GPU, **FOR_GPU)
            pod["metadata"].setdefault("annotations", {})["kubevirt.io/alternative-launcher-image"] = other
            next(each for each in pod["spec"]["containers"] if each["name"] == "compute")["image"] = other
            drift = mapping(of_webhook=of_webhook)
            return drift.relocation_for(LauncherPod.from_object(pod))

        assert by_webhook(other) is None
        assert by_webhook() is not None, "its rule is not there any more"


class TestHow:
    @pytest.mark.parametrize(
        ("fields", "reason"),
        [
            ({"migratable": False}, "it cannot be migrated (because of its GPU)"),
            ({"phase": "Scheduling"}, "it is Scheduling, and only running VMs can be migrated"),
            ({"node_selector": {"kubernetes.io/hostname": "n1"}}, "no other Ready node of gpu fits it"),
        ],
    )
    def test_needs_a_restart(self, fields, reason):
        found = update(image=STOCK, **FOR_GPU, **fields)
        assert (found.how, found.reason) == ("restart", reason)
        assert str(found).endswith(f"restart for {GPU} of gpu, since {reason}")

    @pytest.mark.parametrize(
        ("paused", "reason"),
        [
            ({"reason": "PausedByUser", "message": "VMI was paused by user"}, ""),
            ({"reason": "PausedIOError", "message": "IO error detected"}, "it is paused (IO error detected)"),
            ({}, "it is paused (KubeVirt gives no reason)"),
        ],
    )
    def test_a_vm_that_its_user_paused_can_be_migrated(self, paused, reason):
        vmi, pod = vm(image=STOCK, **FOR_GPU)
        vmi["status"]["conditions"].append({"type": "Paused", "status": "True", **paused})
        found = relocation.with_vmi(mapping().relocation_for(LauncherPod.from_object(pod)), vmi)
        assert (found.how, found.reason) == ("restart" if reason else "migrate", reason)

    def test_kubevirt_has_not_said_yet(self):
        vmi, pod = vm(image=STOCK, **FOR_GPU)
        vmi["status"]["conditions"] = []
        assert relocation.with_vmi(mapping().relocation_for(LauncherPod.from_object(pod)), vmi).how == "restart"

    @pytest.mark.parametrize("ready", [True, False])
    def test_only_to_nodes_that_are_ready(self, ready):
        nodes = [NODES[0], node("n2", "gpu", ready=ready)]
        assert (update(image=STOCK, of=mapping(nodes=nodes), **FOR_GPU).how == "migrate") is ready

    @pytest.mark.parametrize(
        ("own", "reason"),
        [([node("n1", "gpu", ready=False)], "its node n1 is not Ready"), ([], "its node n1 does not exist")],
    )
    def test_only_from_a_node_that_is_ready(self, own, reason):
        found = update(image=STOCK, of=mapping(nodes=[*own, NODES[1]]), **FOR_GPU)
        assert (found.how, found.reason) == ("restart", reason)

    def test_a_machine_type_that_no_node_has(self):
        has = {"kubernetes.io/arch": "amd64", f"{names.MACHINE_TYPE_PREFIX}pc-q35-10.1": "true"}
        nodes = [builders.node(name, "gpu", labels=has) for name in ("n1", "n2")]

        def needs(machine, nodes=nodes):
            vmi, pod = vm(image=STOCK, **FOR_GPU)
            vmi["status"]["machine"] = {"type": machine}
            return relocation.with_vmi(mapping(nodes=nodes).relocation_for(LauncherPod.from_object(pod)), vmi)

        assert needs("pc-q35-10.1").how == "migrate"
        old = needs("pc-q35-9.2")
        assert (old.how, old.reason) == ("restart", "no Ready node to which it may go has its machine type pc-q35-9.2")
        down = builders.node("n3", "gpu", labels={f"{names.MACHINE_TYPE_PREFIX}pc-q35-9.2": "true"}, ready=False)
        assert needs("pc-q35-9.2", [*nodes, down]) == old
        # An older KubeVirt, and a handler that has just started, say nothing about machine types.
        silent = node("n2", "gpu")
        for label in builders.MACHINE_TYPE:
            del silent["metadata"]["labels"][label]
        assert needs("pc-q35-9.2", [nodes[0], silent]).how == "migrate"

    def test_the_former_requirement_is_not_asked_for_again(self):
        earlier = launcher_cases.required(
            launcher_cases.term(launcher_cases.expression(names.OWNER_LABEL, "In", "former"))
        )
        assert update(image=STOCK, affinity=earlier, **FOR_GPU).how == "migrate"

    @pytest.mark.parametrize(
        "change",
        [
            lambda vmi: vmi["metadata"].update(uid="another"),
            lambda vmi: vmi["metadata"].update(deletionTimestamp="now"),
            lambda vmi: vmi["status"].update(phase="Succeeded"),
        ],
        ids=["another", "being deleted", "ended"],
    )
    def test_a_vm_that_is_gone_needs_nothing(self, change):
        vmi, pod = vm(image=STOCK, **FOR_GPU)
        found = mapping().relocation_for(LauncherPod.from_object(pod))
        change(vmi)
        assert relocation.with_vmi(found, vmi) is None
        assert relocation.with_vmi(found, None) is None


@pytest.mark.parametrize(
    ("rule", "former", "exists", "problem"),
    [
        (mapping(), "n1", False, "which is not of gpu"),
        (Evacuation({"n1": True}), "n1", False, "which no longer exists"),
        (Evacuation({"n2": True}), "n2", True, "which it was to leave"),
        (Evacuation({"n1": True, "n2": True}), "n1", True, None),
    ],
)
def test_a_migrated_vm_on_a_wrong_node(rule, former, exists, problem):
    moved = update(on=former, image=STOCK, of=rule, **FOR_GPU)
    pod = LauncherPod.from_object(vm(on="n2", image=GPU, **FOR_GPU)[1])
    found = rule.problem(moved, pod, Node.from_object(NODES[1]) if exists else None)
    assert found == (problem and f"it is on node n2, {problem}")


class TestInEffect:
    def admission(self, *pools, **options):
        pairs = launcher_policy.derive(Table.for_pools(pools, **options), builders.NAMESPACE, POLICY)
        objects = {(obj["kind"], obj["metadata"]["name"]): copy.deepcopy(obj) for _kind, obj in pairs}
        return snapshot.Admission(policy_kind=POLICY, objects=objects)

    def state(self, admission, pools=(POOL,), of_kubevirt=None):
        return builders.snapshot_of(NODES, pools, admission=admission, of_kubevirt=of_kubevirt)

    def refusal(self, state, removed=None):
        with pytest.raises(InputErrors) as caught:
            ImageDrift.from_live_policy(state, removed)
        (message,) = caught.value.messages
        return message

    def test_is_what_the_live_policy_says(self):
        other = builders.pool(
            "gpu", virtLauncherImage=f"{GPU}2", selector={"vmLabels": {"matchLabels": {"for": "gpu"}}}
        )
        found = ImageDrift.from_live_policy(self.state(self.admission(other)))
        assert update(image=GPU, of=found, **FOR_GPU).expected_image == f"{GPU}2"

    def test_is_what_was_prepared_once_kubevirt_is_upgraded(self):
        prepared = Upcoming(stock=f"{STOCK}-former", version="v1.9.0", images={"gpu": f"{GPU}2"})
        admission = self.admission(POOL, upcoming=prepared)
        state = self.state(admission)
        found = ImageDrift.from_live_policy(state)
        assert update(image=GPU, of=found, **FOR_GPU).expected_image == f"{GPU}2"
        assert Evacuation.from_snapshot({}, state, admission).table.images == {"gpu": f"{GPU}2"}

    def test_keeps_vms_from_images_that_refuse_what_kubevirt_passes(self):
        """The image that VMs get when a node is emptied is that of the live policy."""
        old = builders.pool(
            "gpu",
            virtLauncherImage="registry.example/virt-launcher:v1.7.0-gpu",
            selector={"vmLabels": {"matchLabels": {"for": "gpu"}}},
        )
        pod = LauncherPod.from_object(vm(image=GPU, **FOR_GPU)[1])
        found = [
            Evacuation.from_snapshot({"n1": True}, self.state(None), self.admission(each)).relocation_for(pod)
            for each in (POOL, old)
        ]
        assert [each.how for each in found] == ["migrate", "restart"]

    def test_without_pools_everything_goes_back_to_kubevirts_image(self):
        found = ImageDrift.from_live_policy(self.state(snapshot.Admission(policy_kind=POLICY), pools=()))
        assert update(image=GPU, of=found, **FOR_GPU).expected_image == STOCK

    def test_pools_without_policy_are_refused(self):
        message = self.refusal(self.state(snapshot.Admission(policy_kind=POLICY)))
        assert message.startswith("1 pool has launcher images (gpu), but no launcher policy is in force")

    def test_pools_without_policy_may_be_removed(self):
        state = self.state(snapshot.Admission(policy_kind=POLICY))
        assert update(image=GPU, of=ImageDrift.from_live_policy(state, ("gpu",)), **FOR_GPU).expected_image == STOCK
        assert "no launcher policy is in force" in self.refusal(state, removed=("other",))

    def test_pools_with_kubevirts_own_images_need_no_policy(self):
        handlers_only = builders.pool("gpu", selector={"vmLabels": {"matchLabels": {"for": "gpu"}}})
        found = ImageDrift.from_live_policy(self.state(snapshot.Admission(policy_kind=POLICY), pools=[handlers_only]))
        assert update(image=f"{STOCK}-old", of=found, **FOR_GPU).expected_image == STOCK

    def test_pools_of_handlers_alone_take_any_vm(self):
        """No launcher policy keeps VMs off their nodes."""
        nothing = snapshot.Admission(policy_kind=POLICY)
        state = builders.snapshot_of(NODES[:2], [builders.pool("gpu", unmatched="allow")], admission=nothing)
        found = ImageDrift.from_live_policy(state)
        assert update(image=f"{STOCK}-old", of=found).how == "migrate"
        _vmi, pod = vm(on="n2", image=STOCK)
        moved, node = update(image=f"{STOCK}-old", of=found), Node.from_object(NODES[1])
        assert found.problem(moved, LauncherPod.from_object(pod), node) is None

    @pytest.mark.parametrize("part", ["spec", "binding", "annotation"])
    def test_a_policy_changed_by_hand_is_refused(self, part):
        admission = self.admission(POOL)
        live = admission.objects[POLICY.name, names.POLICY]
        if part == "spec":
            live["spec"]["failurePolicy"] = "Ignore"
        elif part == "binding":
            del admission.objects[kinds.MUTATING_ADMISSION_POLICY_BINDINGS[0].name, names.POLICY]
        else:
            del live["metadata"]["annotations"][names.MAPPING_ANNOTATION]
        assert self.refusal(self.state(admission)).startswith("The launcher policy was changed by hand: ")

    def test_kubevirts_own_updates_would_undo_ours(self):
        kubevirt = builders.excluding_kubevirt()
        kubevirt["spec"]["workloadUpdateStrategy"] = {"workloadUpdateMethods": ["LiveMigrate"]}
        message = self.refusal(self.state(self.admission(POOL), of_kubevirt=kubevirt))
        assert "it would migrate these VMs again and again" in message

    def test_also_while_kubevirt_is_unavailable_for_a_moment(self):
        """A node that restarts makes it so."""
        kubevirt = builders.excluding_kubevirt(conditions={"Available": "False"})
        found = ImageDrift.from_live_policy(self.state(self.admission(POOL), of_kubevirt=kubevirt))
        assert update(image=STOCK, of=found, **FOR_GPU).expected_image == GPU

    def test_not_while_kubevirt_is_being_upgraded(self):
        kubevirt = builders.excluding_kubevirt(targetKubeVirtVersion="v1.9.1")
        assert "is being upgraded" in self.refusal(self.state(self.admission(POOL), of_kubevirt=kubevirt))


class TestRemaining:
    """What people see at the end of a removal."""

    def test_vms_by_image_and_how_to_move_them(self):
        vms = [update(f"vm-{number}", on="stays", image=GPU) for number in range(7)]
        vms += [
            dataclasses.replace(vms[0], vmi="held", how="restart", images={"container compute": "r/other:1"}),
            dataclasses.replace(vms[0], vmi="stray", images={}, misfit="node n1 is one of gpu"),
        ]
        assert relocation.remaining_lines(vms) == [
            "9 VMs still run with images or on nodes that they would not get now:",
            "  on another node: 1 VM (plain/stray)",
            "  r/other:1: 1 VM (plain/held)",
            f"  {GPU}: 7 VMs (plain/vm-0, plain/vm-1, plain/vm-2, plain/vm-3, plain/vm-4 and 2 more)",
            (
                "To change that: ansible-playbook virtpools.kubevirt.workload_update live-migrates 8; restart plain/held, which cannot be "
                "migrated."
            ),
        ]

    def test_only_restarts(self):
        held = dataclasses.replace(update("vm", on="stays", image=GPU), how="restart")
        assert relocation.remaining_lines([held])[-1] == "To change that: restart plain/vm, which cannot be migrated."
