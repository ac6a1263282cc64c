# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import epochs, kinds, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.observed.snapshot import Admission
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning import goals, plan, plan_text
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.options import Options
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders
from ansible_collections.virtpools.kubevirt.tests.unit.support.aie_webhook import webhook_of

SELECTOR = {"deviceNames": ["example.com/gpu"]}
GPU = builders.pool("gpu", virtLauncherImage=builders.GPU_LAUNCHER_IMAGE, selector=SELECTOR)
RT = builders.pool("rt", selector={"vmLabels": {"matchLabels": {"class": "rt"}}})
NEWER = dataclasses.replace(GPU, virt_launcher_image=f"{builders.GPU_LAUNCHER_IMAGE}.2")
SERVED = Admission(policy_kind=kinds.MUTATING_ADMISSION_POLICIES[0], version="v1.36.3")


def node(name, owner=None, kind="gpu"):
    made = builders.node(name, owner, None, {"hw": kind})
    made["status"]["allocatable"] = {"example.com/gpu": "4", "cpu": "8"}
    return made


def planned(nodes, pools=(GPU,), existing=None, admission=SERVED, of_kubevirt=None, **options):
    found = builders.snapshot_of(
        [*nodes, builders.node("stays")],
        pools if existing is None else existing,
        of_kubevirt=of_kubevirt,
        admission=admission,
    )
    return plan.make_plan(found, pools, Options(**options))


def live(made, stage=-1):
    """The cluster's admission after the policies of a plan's stage were written."""
    stage = stage % len(made.launcher_rollout.stages)
    objects = (*made.launcher_rollout.correction(stage), *made.launcher_rollout.policy(stage))
    return dataclasses.replace(SERVED, objects={(kind.name, obj["metadata"]["name"]): obj for kind, obj in objects})


def test_vms_are_kept_off_before_the_first_node_and_then_mapped():
    made = planned([node("n1"), node("n2")])
    assert made.part("launcher_policy").steps == (0, 1)
    assert [table.images for table in made.launcher_rollout.stages] == [
        {},
        {"gpu": GPU.virt_launcher_image},
        {"gpu": GPU.virt_launcher_image},
    ]
    assert made.part("launcher_policy").changes(0) == (
        "MutatingAdmissionPolicy virtpools-launcher: create",
        "MutatingAdmissionPolicyBinding virtpools-launcher: create",
        "VMs that match no pool start on no node of gpu",
    )
    assert made.part("launcher_policy").changes(1) == (
        "MutatingAdmissionPolicy virtpools-launcher: update",
        f"VMs that match pool gpu start with {GPU.virt_launcher_image} on its nodes",
    )
    text = plan_text.plan_lines(made)
    assert (
        text.index("Batch 1 of 2: 1 node")
        < text.index("  ~ MutatingAdmissionPolicy virtpools-launcher")
        < text.index("Batch 2 of 2: 1 node")
    )


def test_the_hypervisor_of_a_pool_takes_effect_with_its_image():
    mshv = dataclasses.replace(GPU, hypervisor="hyperv-direct")
    made = planned([node("n1"), node("n2")], [mshv])
    assert [table.sets_hypervisor for table in made.launcher_rollout.stages] == [False, True, True]
    assert made.part("launcher_policy").changes(1)[1:] == (
        f"VMs that match pool gpu start with {GPU.virt_launcher_image} and hyperv-direct on its nodes",
    )


def test_a_pool_that_is_kept_and_comes_later_is_told():
    both = (builders.pool("a", selector=SELECTOR), GPU)
    nodes = [node("n1", "gpu"), node("n2", "a", kind="a")]
    first = planned(nodes, both)
    listed = planned(nodes, (GPU,), existing=both, admission=live(first))
    line = "VMs that several pools match go to the first of gpu, a, which is another order than now"
    assert line in listed.part("launcher_policy").changes(0)
    assert f"  {line}" in plan_text.plan_lines(listed)
    assert line not in str(planned(nodes, both, admission=live(planned(nodes, both))).changes())


def test_a_second_run_changes_nothing():
    first = planned([node("n1")])
    again = planned([node("n1", "gpu")], admission=live(first))
    assert again.part("launcher_policy").steps == ()
    assert not again.changed
    assert again.digest == first.digest


@pytest.mark.parametrize(
    ("live_epoch", "read_at", "labels", "expected"),
    [
        (None, 1000, (), 1000),
        (None, 1000, (300, 500), 1000),
        (None, 400, (300, 500), 500),
        (700, 1000, (300, 500), 700),
        (400, 1000, (300, 500), 500),
    ],
    ids=["time", "time later than labels", "label later than time", "live policy", "label later than live policy"],
)
def test_no_node_that_a_pool_has_left_takes_vms_that_start_now(live_epoch, read_at, labels, expected):
    """Else a VM of the pool would fit a node that has another owner by now."""
    admission = SERVED
    if live_epoch is not None:
        before = planned([node("n1", "gpu")]).launcher_rollout
        made = dataclasses.replace(before, snapshot=dataclasses.replace(before.snapshot, read_at=live_epoch))
        objects = {(kind.name, obj["metadata"]["name"]): obj for kind, obj in made.policy(-1)}
        admission = dataclasses.replace(SERVED, objects=objects)
    left = [builders.node(f"left{epoch}", labels={epochs.until_label("gpu"): str(epoch)}) for epoch in labels]
    rollout = planned([node("n1", "gpu"), *left], admission=admission).launcher_rollout
    found = dataclasses.replace(rollout, snapshot=dataclasses.replace(rollout.snapshot, read_at=read_at))
    assert found.epoch == expected


def test_an_approved_plan_holds_half_way():
    first = planned([node("n1"), node("n2")], pools=(dataclasses.replace(GPU, activation="all_moved"),))
    half = planned(
        [node("n1", "gpu"), node("n2")],
        pools=(dataclasses.replace(GPU, activation="all_moved"),),
        admission=live(first, stage=1),
    )
    assert half.part("launcher_policy").steps == (1,)
    assert half.digest == first.digest


def test_another_launcher_image_takes_effect_with_the_last_node():
    first = planned([node("n1")])
    changed = planned([node("n1", "gpu")], pools=(NEWER,), existing=(GPU,), admission=live(first))
    assert changed.digest != first.digest
    assert [move.action for move in changed.moves] == ["replace"]
    assert changed.part("launcher_policy").steps == (1,)
    assert changed.launcher_rollout.stages[0].images == {"gpu": GPU.virt_launcher_image}
    assert changed.part("launcher_policy").changes(1)[1] == (
        f"VMs that match pool gpu start with {NEWER.virt_launcher_image} instead of {GPU.virt_launcher_image}"
    )


@pytest.mark.parametrize(
    ("fields", "waits"),
    [
        ({"taints": [{"key": "a", "effect": "NoSchedule"}]}, True),
        ({"taints": [{"key": "a", "effect": "NoSchedule"}, {"key": "node.kubernetes.io/unschedulable"}]}, False),
        ({"ready": False}, False),
        ({"schedulable": False}, False),
    ],
    ids=["takes VMs of its own kind", "cordoned", "not ready", "takes none"],
)
def test_a_new_image_waits_for_nodes_that_keep_an_older_handler(fields, waits):
    first = planned([node("n1", "gpu"), node("n2", "gpu")])
    held = builders.node(
        "n2", "gpu", None, {"hw": "gpu"}, **{"taints": [{"key": "a", "effect": "NoSchedule"}], **fields}
    )
    newer = dataclasses.replace(NEWER, virt_handler_image=f"{builders.GPU_IMAGE}.2")
    made = planned([node("n1", "gpu"), held], (newer,), existing=(GPU,), admission=live(first))
    assert [move.node for move in made.moves] == ["n1"]
    image = made.launcher_rollout.stages[-1].images["gpu"]
    assert image == (GPU if waits else NEWER).virt_launcher_image
    assert ("launcher_image_waits" in builders.codes(made.findings, "warning")) is waits


def test_an_image_that_starts_no_vm_is_replaced_at_once():
    old = dataclasses.replace(GPU, virt_launcher_image="registry.example/virt-launcher:v1.7.0-gpu")
    nodes = [node("n1", "gpu"), node("n2", "gpu")]
    before = planned(nodes, pools=(old,), existing=(old,))
    made = planned(nodes, existing=(old,), admission=live(before))
    assert made.part("launcher_policy").steps == (0,)
    assert made.part("launcher_policy").changes(0)[1:] == (
        f"VMs that match pool gpu start with {GPU.virt_launcher_image} instead of {old.virt_launcher_image}",
    )


def test_a_pool_that_goes_is_unmapped_before_its_nodes_leave():
    nodes = [node("n1", "gpu"), node("r1", "rt", "rt")]
    first = planned(nodes, (GPU, RT))
    made = planned(nodes, (RT,), existing=(GPU, RT), admission=live(first), prune=True)
    assert made.part("launcher_policy").steps == (0, 1)
    assert "New VMs no longer go to pool gpu" in made.part("launcher_policy").changes(0)
    assert made.launcher_rollout.stages[0].keep_off == ("gpu", "rt")
    assert made.launcher_rollout.stages[1].keep_off == ("rt",)


def test_a_kept_pool_that_left_the_list_keeps_its_vms():
    nodes = [node("n1", "gpu"), node("r1", "rt", "rt")]
    first = planned(nodes, (RT, GPU))
    made = planned(nodes, (RT,), existing=(GPU, RT), admission=live(first))
    assert made.part("launcher_policy").steps == ()
    assert made.launcher_rollout.stages[-1].images == {"rt": None, "gpu": GPU.virt_launcher_image}


def test_the_policy_goes_with_the_last_pool_that_needs_it():
    first = planned([node("n1", "gpu")])
    plain = builders.pool("gpu")
    made = planned([node("n1", "gpu")], pools=(plain,), existing=(GPU,), admission=live(first))
    assert made.part("launcher_policy").changes(0)[:2] == (
        "MutatingAdmissionPolicyBinding virtpools-launcher: delete",
        "MutatingAdmissionPolicy virtpools-launcher: delete",
    )


def test_what_was_edited_by_hand_is_put_right():
    first = planned([node("n1", "gpu")])
    admission = live(first)
    edited = admission.objects["MutatingAdmissionPolicy", names.POLICY]
    edited["spec"] = {**edited["spec"], "failurePolicy": "Ignore"}
    made = planned([node("n1", "gpu")], admission=admission)
    assert made.part("launcher_policy").changes(0)[0] == "MutatingAdmissionPolicy virtpools-launcher: update"


def test_a_policy_of_that_name_that_is_not_ours_is_an_error():
    foreign = kinds.MUTATING_ADMISSION_POLICIES[0].object(names.POLICY, spec={})
    admission = dataclasses.replace(SERVED, objects={("MutatingAdmissionPolicy", names.POLICY): foreign})
    assert "launcher_policy_foreign" in builders.codes(planned([node("n1")], admission=admission).findings, "error")


def test_a_server_without_a_back_end_is_an_error_only_if_needed():
    assert "launcher_backend_missing" in builders.codes(planned([node("n1")], admission=Admission()).errors)
    assert planned([node("n1")], pools=(builders.pool("gpu"),), admission=Admission()).errors == ()


@pytest.mark.parametrize(("outdated", "codes"), [("refuse", ["workload_updates_never_end"]), ("correct", [])])
def test_vms_that_kubevirt_would_update_for_ever(outdated, codes):
    updating = builders.excluding_kubevirt()
    updating["spec"]["workloadUpdateStrategy"] = {"workloadUpdateMethods": ["LiveMigrate"]}
    made = planned([node("n1")], of_kubevirt=updating, outdated=outdated)
    assert builders.codes(made.errors) == codes


def test_the_correction_lasts_while_images_and_option_need_it():
    made = planned([node("n1")], outdated="correct")
    assert made.launcher_rollout.correction(0) == []
    assert [obj["metadata"]["name"] for _kind, obj in made.launcher_rollout.correction(1)] == 2 * [
        names.OUTDATED_POLICY
    ]
    again = planned([node("n1", "gpu")], admission=live(made))
    assert [change.before["metadata"]["name"] for change in again.launcher_rollout.to_remove(0)] == 2 * [
        names.OUTDATED_POLICY
    ]


def test_devices_that_no_node_offers_are_named():
    other = dataclasses.replace(
        GPU, selector=dataclasses.replace(GPU.selector, device_names=("example.com/gpu", "example.com/claimed"))
    )
    text = builders.message(planned([node("n1")], pools=(other,)).findings, "device_not_offered")
    assert (
        "no node offers example.com/claimed (selector.deviceNames) as a resource now; nodes offer example.com/gpu."
        in text
    )


def test_a_pool_that_stays_inactive_is_noted():
    made = planned([], pools=(GPU,))
    assert "pool_not_active" in builders.codes(made.findings, "note")


def test_the_cluster_records_its_pools():
    nodes = [node("n1", "gpu"), node("r1", "rt", "rt")]
    first = planned(nodes, (RT, GPU))
    found = builders.snapshot_of(nodes, (GPU, RT), admission=live(first))
    assert goals.recorded(found) == (RT, GPU)
    made = plan.make_plan(found, goals.recorded(found), goals.recorded_options(found, Options()))
    assert made.part("launcher_policy").steps == ()


def test_canaries_get_a_new_image_while_the_old_one_is_in_effect():
    first = planned([node("n1", "gpu"), node("n2", "gpu")])
    made = planned([node("n1", "gpu"), node("n2", "gpu")], pools=(NEWER,), existing=(GPU,), admission=live(first))
    assert [dict(table.canaries) for table in made.launcher_rollout.stages] == [
        {},
        {"gpu": NEWER.virt_launcher_image},
        {},
    ]
    assert made.part("launcher_policy").steps == (1, 2)
    assert made.part("launcher_policy").changes(1) == (
        "MutatingAdmissionPolicy virtpools-launcher: update",
        f"VMs that match pool gpu and have the label virtpools.io/canary=gpu start with {NEWER.virt_launcher_image}",
    )
    half = planned(
        [node("n1", "gpu"), node("n2", "gpu")], pools=(NEWER,), existing=(GPU,), admission=live(made, stage=1)
    )
    assert half.digest == made.digest
    assert half.launcher_rollout.stages[0].canaries == {"gpu": NEWER.virt_launcher_image}
    assert half.part("launcher_policy").steps == (2,)


def test_canaries_are_as_others_where_a_pool_can_have_one_image():
    metadata = {"name": names.AIE_CONFIG, "namespace": builders.NAMESPACE}
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {}}
    admission = Admission(objects={("ConfigMap", names.AIE_CONFIG): config_map}, webhook=webhook_of(config_map))
    own, newer = (dataclasses.replace(pool, unmatched="allow") for pool in (GPU, NEWER))
    nodes = [node("n1", "gpu"), node("n2", "gpu")]
    first = planned(nodes, pools=(own,), admission=admission, launcher_backend="aie_webhook")
    objects = {(kind.name, obj["metadata"]["name"]): obj for kind, obj in first.launcher_rollout.policy(0)}
    made = planned(
        nodes,
        pools=(newer,),
        existing=(own,),
        admission=dataclasses.replace(admission, objects=objects, webhook=webhook_of(*objects.values())),
        launcher_backend="aie_webhook",
    )
    assert made.part("launcher_policy").steps == (2,)
    assert not any(table.canaries for table in made.launcher_rollout.stages)
