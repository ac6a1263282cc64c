# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.admission.live_policy import Policy
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.checks.verdicts import Judge, Vmi
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.observed.nodes import timestamp
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning import relocation
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms.launcher_pods import LauncherPod
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms.mapping import Table
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders, vms
from ansible_collections.virtpools.kubevirt.tests.unit.support.vms import EARLIER, IMAGE, LATER, STOCK, launcher


def judged(pod, vmi=None, *, made=None, policy=None):
    made = made or vms.plan_of()
    judge = Judge(
        made.launcher_rollout.stages[0], STOCK, made.snapshot, policy or Policy.from_rollout(made.launcher_rollout)
    )
    return judge.judge(LauncherPod.from_object(pod), Vmi.from_object(vmi) if vmi else None)


def verdict(*args, **kwargs):
    found = judged(*args, **kwargs)
    return found.verdict, found.remedy


def place(pod, of, image):
    """The same pod with another image in one place."""
    parts = [*pod["spec"]["containers"], *pod["spec"]["initContainers"]]
    next(part for part in parts if part["name"] == of)["image"] = image
    return pod


# In order -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pod",
    [
        launcher(),
        launcher(kind="containerDisk"),
        launcher(on="rest", pool="primary", device=False),
        launcher(on="", phase="Pending"),
        launcher(on="rest", pool=None, device=False),
        launcher(on="rest", pool=None, device=False, created=EARLIER),
        launcher(made_by="0" * 12),
        launcher(image=f"mirror.example/cache/{IMAGE.rpartition('/')[2]}"),
        launcher(image=f"{IMAGE}@sha256:{'a' * 64}"),
    ],
    ids=[
        "a pool's VM",
        "with a container disk",
        "a VM without a pool",
        "not yet on a node",
        "sits right, though no policy saw it",
        "sits right, and is older",
        "sits right, made for an earlier mapping",
        "from a mirror",
        "with a digest that admission appended",
    ],
)
def test_in_order(pod):
    assert verdict(pod) == ("correct", "none")


def test_vms_that_differ_in_one_fact_share_nothing():
    """A judge remembers what many VMs have in common. Each is judged as it would be alone, whichever came before."""
    taint = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
    nodes = [*vms.nodes(), vms.node("gpu-8", "gpu", taints=[taint]), vms.node("gpu-9", "gpu", ready=False)]
    made, pinned = vms.plan_of(of_nodes=nodes), {"kubernetes.io/hostname": "gpu-8"}
    pods = [
        launcher(),
        launcher(image=STOCK),
        launcher(image="mirror.example/a/other:1"),
        launcher(on="rest"),
        launcher(on="gpu-9"),
        launcher(pool=None, image=STOCK),
        launcher(pool=None, image=IMAGE, device=False, on="rest"),
        launcher(pool="primary", image=STOCK),
        launcher(pool=None, image=STOCK, created=EARLIER),
        launcher(made_by="0" * 12, image=STOCK),
        launcher(device=False),
        launcher(node_selector={"hw": "other"}),
        launcher(node_selector={"hw": "other"}, image=STOCK),
        launcher(node_selector=pinned, image=STOCK),
        launcher(node_selector=pinned, image=STOCK, tolerations=[{"operator": "Exists"}]),
        launcher(on="", node_selector={"hw": "other"}, status=vms.unschedulable()),
        launcher(on="", status=vms.unschedulable()),
        launcher(on="", status=vms.unschedulable("it says something else")),
        launcher(on="", pool=None, status=vms.unschedulable()),
        vms.by_webhook(launcher(), "a.example/b"),
    ]
    alone = [judged(pod, vms.vmi(), made=made) for pod in pods]
    assert len({(each.verdict, each.reason, each.remedy) for each in alone}) == len(pods)
    for order in (pods, pods[::-1]):
        judge, vmi = Judge.for_plan(made), Vmi.from_object(vms.vmi())
        together = {id(pod): judge.judge(LauncherPod.from_object(pod), vmi) for pod in (*order, *order)}
        assert [together[id(pod)] for pod in pods] == alone


def test_the_facts_of_a_judgement():
    found = judged(launcher()).to_dict()
    assert (found["namespace"], found["name"], found["pool"], found["owner"]) == ("plain", "vm", "gpu", "gpu")
    assert found["expected_image"] == IMAGE
    assert found["images"]["container compute"] == IMAGE


# Images -------------------------------------------------------------------------------------------------------------


def test_a_pod_that_bypassed_the_policy_is_wrong():
    found = judged(launcher(pool=None, on="gpu-0"))
    assert (found.verdict, found.remedy) == ("wrong_image", "restart")
    assert f"{STOCK} in container compute" in found.reason
    assert f"instead of {IMAGE}" in found.reason
    assert "bypassed the launcher policy" in found.reason


def test_a_hypervisor_of_its_own_is_checked_like_an_image():
    mshv = vms.gpu(hypervisor="hyperv-direct")
    made = vms.plan_of(mshv)
    pod = launcher(made_by=vms.digest(mshv))
    found = judged(pod, made=made)
    assert found.verdict == "wrong_image"
    assert found.reason.startswith("it runs on kvm instead of hyperv-direct, although the launcher policy gave it")
    compute = pod["spec"]["containers"][0]
    compute["command"] = ["virt-launcher-monitor", "--hypervisor", "hyperv-direct"]
    assert judged(pod, made=made).verdict == "correct"
    assert judged(launcher(pool=None, created=EARLIER), made=made).verdict == "outdated"


def test_an_annotation_does_not_excuse_it():
    pod = launcher(pool=None)
    pod["metadata"]["annotations"].update({names.OWNER_LABEL: "gpu", names.POLICY_ANNOTATION: "0" * 12})
    assert verdict(pod) == ("wrong_image", "restart")


def test_a_pod_that_is_older_than_the_policy_is_outdated():
    found = judged(launcher(pool=None, created=EARLIER))
    assert (found.verdict, found.remedy) == ("outdated", "restart")
    assert found.reason.endswith("it is older than the launcher policy")


def test_a_pod_made_while_the_policy_spread_is_outdated():
    assert verdict(launcher(pool=None, created="2026-11-01T12:00:20Z"))[0] == "outdated"
    assert verdict(launcher(pool=None, created="2026-11-01T12:00:40Z"))[0] == "wrong_image"


def test_an_unknown_age_proves_nothing():
    assert verdict(launcher(pool=None, created=""))[0] == "outdated"


def test_a_former_image_of_the_pool_is_outdated():
    found = judged(launcher(image=f"{IMAGE}-old", made_by="0" * 12))
    assert (found.verdict, found.remedy) == ("outdated", "restart")
    assert "older than the last change of the pools" in found.reason


def test_a_migration_is_enough_where_it_is_possible():
    old = launcher(image=f"{IMAGE}-old", made_by="0" * 12)
    assert verdict(old, vms.vmi())[1] == "migration"
    assert verdict(old, vms.vmi(migratable=False))[1] == "restart"
    assert verdict(old, vms.vmi(migratable=None))[1] == "restart"


def test_an_image_that_was_changed_after_the_policy():
    found = judged(place(launcher(), "compute", f"{IMAGE}-evil"), vms.vmi())
    assert (found.verdict, found.remedy) == ("wrong_image", "migration")
    assert "something changed it afterwards" in found.reason


@pytest.mark.parametrize(
    ("of", "where"),
    [("compute", "container compute"), ("guest-console-log", "init container guest-console-log")],
)
def test_every_launcher_image_counts(of, where):
    found = judged(place(launcher(kind="containerDisk"), of, STOCK))
    assert found.verdict == "wrong_image"
    assert f"{STOCK} in {where} instead" in found.reason


def test_a_vm_whose_labels_changed_since():
    pod = launcher(on="rest", pool="primary", device=True)
    found = judged(pod)
    assert found.verdict == "wrong_image"
    assert "the policy matched it to primary" in found.reason
    assert "not on one of pool gpu" in found.reason


def test_a_vm_without_a_pool_that_has_a_pools_image():
    assert verdict(launcher(on="rest", pool="primary", device=False, image=IMAGE))[0] == "wrong_image"


def test_kubevirts_own_image_before_an_upgrade():
    found = judged(launcher(on="rest", pool="primary", device=False, image=f"{STOCK}-before"))
    assert (found.verdict, found.remedy) == ("outdated", "restart")
    assert "KubeVirt's launcher image now" in found.reason


def test_different_images_are_not_kubevirts_before_an_upgrade():
    before = launcher(on="rest", pool="primary", device=False, image=f"{STOCK}-before", kind="containerDisk")
    assert verdict(before)[0] == "outdated"
    assert verdict(place(before, "compute", f"{STOCK}-evil"))[0] == "wrong_image"


def test_kubevirts_own_image_is_what_virt_controller_gives():
    patched = f"{STOCK}-patched"
    made = vms.plan_of(deployments=[builders.controller("--launcher-image", patched)])
    judge = Judge.for_plan(made)
    unmatched = LauncherPod.from_object(launcher(on="rest", pool="primary", device=False, image=patched))
    assert judge.judge(unmatched).verdict == "correct"


def test_a_pool_without_a_launcher_image_has_kubevirts_own():
    pool = vms.gpu(virtLauncherImage=None)
    made = vms.plan_of(pool)
    assert judged(launcher(image=STOCK, made_by=vms.digest(pool)), made=made).verdict == "correct"
    assert judged(launcher(image=STOCK, made_by=vms.digest(pool)), made=made).expected_image == STOCK


# Without the policy that should be there ----------------------------------------------------------------------------


def test_without_a_policy_every_difference_is_outdated():
    found = judged(launcher(pool=None), made=vms.plan_of(objects=[]))
    assert (found.verdict, found.remedy) == ("outdated", "run site, then restart")
    assert "there is no launcher policy" in found.reason


def test_a_policy_of_other_pools():
    former = vms.gpu(virtLauncherImage=f"{IMAGE}-old")
    made = vms.plan_of(objects=vms.policy(former))
    found = judged(launcher(image=f"{IMAGE}-old", made_by=vms.digest(former)), vms.vmi(), made=made)
    # The new image is not in effect before the last of the pool's nodes got its handler, and here that is so.
    assert (found.verdict, found.remedy) == ("outdated", "run site, then migration")


@pytest.mark.parametrize(
    ("state", "remedy"), [("edited", "run site, then restart"), ("failing", "run site, then restart")]
)
def test_a_policy_that_gives_wrong_images(state, remedy):
    policy = dataclasses.replace(Policy.from_rollout(vms.plan_of().launcher_rollout), state=state)
    found = judged(launcher(image=f"{IMAGE}-evil"), policy=policy)
    assert (found.verdict, found.remedy) == ("wrong_image", remedy)
    assert found.reason.endswith(f"and the launcher policy is {state}")


def test_a_back_end_that_leaves_no_trace():
    webhook = dataclasses.replace(Policy.from_rollout(vms.plan_of().launcher_rollout), backend="aie_webhook")
    inits = place(launcher(pool=None, image=IMAGE, kind="containerDisk"), "guest-console-log", STOCK)
    assert judged(inits, policy=webhook).verdict == "correct"
    found = judged(launcher(pool=None), policy=webhook)
    assert found.verdict == "outdated"
    assert "does not show whether it is older" in found.reason


THEIRS = "registry.example/theirs:1"


@pytest.mark.parametrize(
    ("rules", "pod", "expected", "words"),
    [
        (
            [{"name": "theirs", "image": THEIRS, "selector": {"deviceNames": [vms.DEVICE]}}],
            vms.by_webhook(launcher(), THEIRS),
            ("wrong_image", "correct rule, then restart"),
            "because a rule of kubevirt-aie-webhook takes the VM, too (annotation kubevirt.io/alternative-launcher-image)",
        ),
        ([], vms.by_webhook(launcher(), THEIRS), ("outdated", "restart"), "by a rule that it does not have now"),
        (
            [{"name": "theirs", "image": THEIRS, "selector": {"vmLabels": {"matchLabels": {"a": "b"}}}}],
            vms.by_webhook(launcher(on="rest", pool="primary", device=False), THEIRS),
            ("correct", "none"),
            "",
        ),
        (
            [],
            vms.by_webhook(launcher(on="rest", pool="primary", device=False), THEIRS),
            ("outdated", "restart"),
            "by a rule that it does not have now",
        ),
        (
            [{"name": "theirs", "image": IMAGE, "selector": {"deviceNames": [vms.DEVICE]}}],
            vms.by_webhook(launcher(), IMAGE),
            ("correct", "none"),
            "",
        ),
    ],
    ids=[
        "of a pool",
        "of a pool, by an earlier rule",
        "of no pool",
        "of no pool, by an earlier rule",
        "the same image",
    ],
)
def test_an_image_of_kubevirt_aie_webhook(rules, pod, expected, words):
    made = vms.plan_of(objects=vms.beside_webhook(*rules))
    found = judged(pod, made=made)
    assert (found.verdict, found.remedy) == expected
    assert words in found.reason


def test_an_annotation_of_the_vm_owner_proves_nothing():
    rule = {"name": "theirs", "image": THEIRS, "selector": {"deviceNames": ["b"]}}
    pod = launcher(on="rest", pool="primary", device=False, image=IMAGE)
    pod["metadata"]["annotations"]["kubevirt.io/alternative-launcher-image"] = THEIRS
    assert judged(pod, made=vms.plan_of(objects=vms.beside_webhook(rule))).verdict == "wrong_image"


# Remedies -----------------------------------------------------------------------------------------------------------


OLD = {"image": f"{IMAGE}-old", "made_by": "0" * 12}


@pytest.mark.parametrize(
    ("vmi", "of_nodes"),
    [
        (vms.vmi(phase="Scheduling"), None),
        (
            vms.vmi(conditions=[{"type": "LiveMigratable", "status": "True"}, {"type": "Paused", "status": "True"}]),
            None,
        ),
        (vms.vmi(), [vms.node("gpu-0", "gpu"), vms.node("rest")]),
        (vms.vmi(), [vms.node("gpu-0", "gpu"), vms.node("gpu-1", "gpu", ready=False)]),
    ],
    ids=["not running", "paused by an error", "no other node", "no other Ready node"],
)
def test_migration_is_for_vms_that_workload_update_migrates(vmi, of_nodes):
    made = vms.plan_of(of_nodes=of_nodes)
    assert verdict(launcher(**OLD), vms.vmi())[1] == "migration"
    assert verdict(launcher(**OLD), vmi, made=made) == ("outdated", "restart")
    drift = relocation.ImageDrift(made.launcher_rollout.stages[0], STOCK, made.snapshot.nodes.values())
    assert relocation.with_vmi(drift.relocation_for(LauncherPod.from_object(launcher(**OLD))), vmi).how == "restart"


@pytest.mark.parametrize(
    ("selector", "fields", "remedy", "words"),
    [
        (
            {"hw": "rest"},
            {},
            "change placement, then restart",
            "allows no node of gpu, only those of primary: once stopped",
        ),
        ({"zone": "a"}, {}, "add node, then restart", "allows no node of gpu: once stopped, it cannot start again"),
        ({}, {"ready": False}, "repair node, then restart", ""),
        ({"kubevirt.io/schedulable": "true"}, {"schedulable": False}, "repair node, then restart", ""),
        (
            {},
            {"taints": [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]},
            "repair node, then restart",
            "",
        ),
    ],
    ids=["pinned elsewhere", "pinned nowhere", "not ready", "not schedulable", "cordoned"],
)
def test_no_restart_that_ends_pending(selector, fields, remedy, words):
    rest = builders.node("rest", labels={"hw": "rest", "kubernetes.io/arch": "amd64"})
    made = vms.plan_of(of_nodes=[vms.node("gpu-0", "gpu", **fields), rest], pods=[builders.handler_pod("rest")])
    pod = launcher(on="rest", pool=None, created=EARLIER, node_selector=selector)
    found = judged(pod, vms.vmi(on="rest"), made=made)
    assert found.remedy == remedy
    assert words in found.reason


def test_a_pinned_vm_that_waits_is_told_whose_nodes_it_asks_for():
    pod = launcher(on="", status=vms.unschedulable(), node_selector={"kubernetes.io/hostname": "rest"})
    assert verdict(pod) == ("pending", "change placement")


def test_the_node_comes_before_the_vm():
    found = judged(launcher(pool=None), vms.vmi(), made=vms.plan_of(pods=[]))
    assert (found.verdict, found.remedy) == ("wrong_image", "repair node, then migration")


def test_an_image_that_cannot_run_is_corrected_first():
    kubevirt = builders.excluding_kubevirt()
    pool = vms.gpu(virtLauncherImage="registry.example/virt-launcher:v1.7.0-gpu")
    made = vms.plan_of(pool, of_kubevirt=kubevirt)
    found = judged(launcher(**OLD), vms.vmi(), made=made)
    assert found.remedy == "correct image, then migration"


# Nodes and handlers -------------------------------------------------------------------------------------------------


def test_a_pools_vm_on_another_owners_node():
    found = judged(launcher(on="rest"))
    assert (found.verdict, found.remedy, found.owner) == ("wrong_node", "restart", "primary")
    assert "it runs on node rest of primary, not on one of pool gpu" in found.reason
    assert "the owner of the node has changed" in found.reason


def test_a_vm_without_a_pool_on_a_node_that_keeps_it_off():
    found = judged(launcher(pool=None, device=False, image=STOCK))
    assert found.verdict == "wrong_node"
    assert found.reason == "it runs on node gpu-0 of gpu, which takes no VMs without a pool"


def test_a_vm_without_a_pool_may_run_where_the_pool_allows_it():
    pool = vms.gpu(unmatched="allow")
    pod = launcher(pool="primary", device=False, made_by=vms.digest(pool))
    asked = {"key": names.OWNER_LABEL, "operator": "NotIn", "values": [names.IN_TRANSIT]}
    pod["spec"]["affinity"] = builders.affinity({"matchExpressions": [asked]})
    assert judged(pod, made=vms.plan_of(pool)).verdict == "correct"


def test_a_vm_whose_pod_does_not_fit_its_node_is_at_risk():
    pod = launcher(pool=None, device=False, on="rest", node_selector={"disk": "ssd"})
    other = builders.node("other", labels={"disk": "ssd", "kubernetes.io/arch": "amd64"})
    found = judged(pod, vms.vmi(on="rest"), made=vms.plan_of(of_nodes=[*vms.nodes(), other]))
    assert (found.verdict, found.remedy) == ("at_risk", "migration")
    assert found.reason == (
        "a restart of the kubelet of node rest ends it: its nodeSelector asks for disk=ssd, which the node does not have now"
    )


@pytest.mark.parametrize(("until", "verdict"), [("7", "outdated"), ("6", "at_risk")])
def test_a_pod_may_stay_where_its_owner_left_after_it(until, verdict):
    stay = {"key": "until.virtpools.io/primary", "operator": "Gt", "values": ["6"]}
    asked = {"key": names.OWNER_LABEL, "operator": "DoesNotExist"}
    pod = launcher(pool="primary", device=False, made_by="earlier")
    pod["spec"]["affinity"] = builders.affinity({"matchExpressions": [asked]}, {"matchExpressions": [stay]})
    node = builders.node("gpu-0", "gpu", labels={"until.virtpools.io/primary": until, "kubernetes.io/arch": "amd64"})
    assert judged(pod, vms.vmi(), made=vms.plan_of(of_nodes=[node])).verdict == verdict


def test_older_vms_may_be_anywhere():
    found = judged(launcher(pool=None, device=False, created=EARLIER), vms.vmi())
    assert (found.verdict, found.remedy) == ("outdated", "migration")


@pytest.mark.parametrize(
    ("of_node", "handlers", "reason", "remedy"),
    [
        ({}, [], "its node gpu-0 of gpu has no Ready virt-handler", "repair node"),
        ({}, [{"ready": False}], "its node gpu-0 of gpu has no Ready virt-handler", "repair node"),
        ({}, [{"terminating": True}], "its node gpu-0 of gpu has no Ready virt-handler", "repair node"),
        ({"ready": False}, [], "its node gpu-0 is not Ready", "repair node"),
        ({"owner": names.IN_TRANSIT}, [], "its node gpu-0 is in transit", "run site"),
        (None, [], "its node gpu-0 does not exist", "add node, then restart"),
    ],
    ids=["none", "not ready", "terminating", "dead node", "in transit", "no node"],
)
def test_a_node_without_a_handler(of_node, handlers, reason, remedy):
    nodes = [] if of_node is None else [vms.node("gpu-0", **{"owner": "gpu", **of_node})]
    pods = [builders.handler_pod("gpu-0", "virt-handler-gpu", **fields) for fields in handlers]
    found = judged(launcher(), made=vms.plan_of(of_nodes=[*nodes, vms.node("rest")], pods=pods))
    assert (found.verdict, found.remedy) == ("no_ready_handler", remedy)
    assert found.reason.startswith(reason)


def test_any_ready_handler_is_enough():
    pods = [builders.handler_pod("gpu-0", "virt-handler-gpu", ready=False), builders.handler_pod("gpu-0")]
    assert judged(launcher(), made=vms.plan_of(pods=pods)).verdict == "correct"


def test_the_worst_fault_is_the_verdict_and_all_are_reasons():
    found = judged(launcher(on="rest", pool=None), made=vms.plan_of(pods=[]))
    assert found.verdict == "wrong_image"
    assert "bypassed the launcher policy" in found.reason
    assert "not on one of pool gpu" in found.reason
    assert "has no Ready virt-handler" in found.reason


def test_a_fault_is_not_hidden_by_age():
    assert verdict(launcher(pool=None, created=EARLIER), made=vms.plan_of(pods=[]))[0] == "no_ready_handler"


# Pending ------------------------------------------------------------------------------------------------------------


def test_no_node_fits():
    pod = launcher(on="", status=vms.unschedulable(), node_selector={"zone": "a"})
    found = judged(pod)
    assert (found.verdict, found.remedy) == ("pending", "add node")
    assert "none of 3 nodes fits: on 2 the nodeSelector asks for" in found.reason
    assert "on 1 the node affinity asks for virtpools.io/pool=gpu" in found.reason
    assert found.reason.endswith("the scheduler reports: 0/3 nodes are available: 3 Insufficient nvidia.com/x")


@pytest.mark.parametrize(
    ("container", "reason", "remedy"),
    [
        ("compute", "ImagePullBackOff", "correct image"),
        ("guest-console-log", "ErrImagePull", "correct image"),
        ("container-disk-binary", "InvalidImageName", "correct image"),
        ("virtiofs-data", "ImagePullBackOff", "correct image"),
        ("compute", "SignatureValidationFailed", "none"),
        ("volumeroot", "ErrImagePull", "none"),
        ("hook-sidecar-0", "ImagePullBackOff", "none"),
        ("compute", "CreateContainerConfigError", "none"),
    ],
)
@pytest.mark.parametrize("field", ["containerStatuses", "initContainerStatuses"])
def test_the_kubelet_cannot_start_it(container, reason, remedy, field):
    message = "not found" if remedy != "none" else "Image of compute not found"
    waiting = {"name": container, "state": {"waiting": {"reason": reason, "message": message}}}
    found = judged(launcher(status={"phase": "Pending", field: [waiting]}))
    said = f"the kubelet of node gpu-0 cannot start it: container {container} waits with {reason} ({message})"
    assert (found.verdict, found.reason, found.remedy) == ("pending", said, remedy)


@pytest.mark.parametrize("phase", ["Pending", "Running"])
def test_a_pod_that_is_starting_or_runs_is_not_pending(phase):
    reason = "ContainerCreating" if phase == "Pending" else "CrashLoopBackOff"
    waiting = {"name": "compute", "state": {"waiting": {"reason": reason}}}
    found = judged(launcher(status={"phase": phase, "containerStatuses": [waiting]}))
    assert (found.verdict, found.remedy) == ("correct", "none")


@pytest.mark.parametrize(
    ("pod", "who"),
    [
        (launcher(on="", phase="Pending"), "the scheduler has given it no node"),
        (launcher(phase="Pending"), "the kubelet of node gpu-0 has not started it"),
    ],
    ids=["a volume is not provisioned", "a volume cannot be attached"],
)
def test_a_pod_that_waits_for_long_is_pending(pod, who):
    made = vms.plan_of()
    at = timestamp(LATER)

    def judged_after(seconds):
        return judged(pod, made=dataclasses.replace(made, snapshot=dataclasses.replace(made.snapshot, read_at=seconds)))

    assert judged_after(0).verdict == judged_after(at + 599).verdict == "correct"
    found = judged_after(at + 720)
    assert (found.verdict, found.remedy) == ("pending", "none")
    assert found.reason.startswith(f"{who} for 12 minutes and reports nothing in its pod")


def test_no_node_is_added_for_a_volume():
    said = "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims."
    assert verdict(launcher(on="", status=vms.unschedulable(said))) == ("pending", "none")
    assert verdict(launcher(on="", status=vms.unschedulable())) == ("pending", "add node")


def test_nodes_fit_but_are_full():
    found = judged(launcher(on="", status=vms.unschedulable()))
    assert found.reason.startswith("2 nodes have the labels it asks for; the scheduler reports: 0/3 nodes")


def test_a_taint_that_nobody_tolerates():
    taint = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
    nodes = [vms.node("gpu-0", "gpu", taints=[taint]), vms.node("rest")]
    found = judged(launcher(on="", status=vms.unschedulable()), made=vms.plan_of(of_nodes=nodes))
    assert "on 1 the taint gpu=yes:NoSchedule is not tolerated" in found.reason


def test_a_pod_that_waits_for_nodes_of_an_earlier_mapping():
    pod = launcher(on="", pool="former", image=IMAGE, made_by="0" * 12, status=vms.unschedulable())
    found = judged(pod)
    assert (found.verdict, found.remedy) == ("pending", "restart")
    assert "the nodes of an earlier mapping" in found.reason


def test_placements_are_explained_up_to_a_limit():
    made = vms.plan_of()
    judge = Judge(made.launcher_rollout.stages[0], STOCK, made.snapshot, Policy.from_rollout(made.launcher_rollout))
    reasons = {
        judge.judge(
            LauncherPod.from_object(launcher(on="", status=vms.unschedulable(), node_selector={"rack": str(number)}))
        ).reason
        for number in range(250)
    }
    assert sum("none of 3 nodes fits: " in reason for reason in reasons) == 200
    assert any(reason.startswith("the scheduler reports") for reason in reasons)


@pytest.mark.parametrize(("state", "remedy"), [("live", "none"), ("failing", "run site")])
def test_a_launcher_pod_that_is_refused(state, remedy):
    problem = {"type": "Synchronized", "status": "False", "reason": "FailedCreate", "message": "denied: no such key"}
    made = vms.plan_of()
    policy = dataclasses.replace(Policy.from_rollout(made.launcher_rollout), state=state)
    judge = Judge(made.launcher_rollout.stages[0], STOCK, made.snapshot, policy)
    found = judge.without_pod(Vmi.from_object(vms.vmi(on="", phase="Pending", conditions=[problem])))
    assert (found.verdict, found.name, found.pool, found.remedy) == ("pending", "vm", "", remedy)
    assert found.reason == "KubeVirt cannot create its launcher pod: denied: no such key"


def test_a_copy_of_two_images_is_judged_by_what_the_policy_noted():
    """KubeVirt's image and the pool's have one name, and a mirror keeps only that."""
    stock, image = "quay.example/kubevirt/virt-launcher:1", "reg.example/gpu/virt-launcher:1"
    judge = Judge(
        Table((builders.pool("gpu", virtLauncherImage=image, selector={"deviceNames": [vms.DEVICE]}),)),
        stock,
        vms.plan_of().snapshot,
        Policy("admission_policy", "live"),
    )
    noted = LauncherPod.from_object(launcher(image="mirror.example/virt-launcher:1"))
    assert judge.judge(noted).verdict == "correct"
    found = judge.judge(LauncherPod.from_object(launcher(image="mirror.example/virt-launcher:1", pool=None)))
    assert (found.verdict, found.remedy) == ("unknown_image", "none")
    assert "a copy of reg.example/gpu/virt-launcher:1 or of another launcher image" in found.reason
    of_another = LauncherPod.from_object(launcher(image="mirror.example/virt-launcher:1", pool="another"))
    assert "a copy of reg.example/gpu/virt-launcher:1 or of another launcher image" in judge.judge(of_another).reason
