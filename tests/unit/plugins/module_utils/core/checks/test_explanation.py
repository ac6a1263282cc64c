# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.checks import explanation
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.checks.explanation import ExplainContext, Subject
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning import plan
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.options import Options
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms.launcher_pods import LauncherPod
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders, vms

GPU = {"name": "g", "deviceName": vms.DEVICE}
FITS = dict.fromkeys(("cpu-model-migration.node.kubevirt.io/Haswell", "cpu-feature.node.kubevirt.io/aes"), "true")
"""The labels of a node to which a VM with that CPU of its host can be migrated."""
STUCK = {"type": "LiveMigratable", "status": "False", "message": "VMI uses a PCI host device"}


def nodes():
    made = vms.nodes()
    for node in made:
        on_pool = node["metadata"]["labels"].get("hw") == "gpu"
        node["metadata"]["labels"]["kubernetes.io/arch"] = "amd64"
        node["status"]["allocatable"] = {"devices.kubevirt.io/kvm": "1k", **({vms.DEVICE: "4"} if on_pool else {})}
    return made


def in_effect(**fields):
    return ExplainContext.from_live_policy(vms.plan_of(of_nodes=nodes(), **fields))


def vm(*, gpu=True, **fields):
    spec = {"domain": {"devices": {"gpus": [GPU]}}} if gpu else {}
    return {
        "metadata": {"name": "vm", "namespace": "plain"},
        "spec": {"runStrategy": "Halted", "template": {"metadata": {}, "spec": spec}},
        **fields,
    }


def vmi(*, gpu=True, **fields):
    return {**vms.vmi(**fields), "spec": vm(gpu=gpu)["spec"]["template"]["spec"]}


def subject(*pods, **fields):
    known = {"namespace_labels": {}, **fields}
    return Subject("plain", "vm", pods=tuple(map(LauncherPod.from_object, pods)), **known)


def whens(found):
    return [(case.when, case.explained.pool) for case in found.cases]


class TestPinned:
    def lines(self, selector, *, gpu=True, **fields):
        pinned = vm(gpu=gpu)
        pinned["spec"]["template"]["spec"]["nodeSelector"] = selector
        return explanation.explain_vm(subject(vm=pinned), in_effect(**fields)).lines()

    def advice(self, *args, **fields):
        return [line.strip() for line in self.lines(*args, **fields) if line.strip().startswith("Advice: ")]

    def test_to_a_node_of_the_primary(self):
        (advice,) = self.advice({"kubernetes.io/hostname": "rest"})
        assert advice == (
            "Advice: The VM itself asks, by its nodeSelector, node affinity or tolerations, for nodes that only primary has. "
            "Change that in the VM; or give such a node to pool gpu; or let no pool's selector match the VM."
        )

    def test_to_a_node_of_a_pool_that_does_not_take_it(self):
        (advice,) = self.advice({"kubernetes.io/hostname": "gpu-0"}, gpu=False)
        assert "for nodes that only gpu has" in advice
        assert advice.endswith(
            "or take such a node out of its pool; or let the selector of pool gpu match the VM, or set unmatched: allow for pool gpu."
        )

    def test_to_no_node_or_to_one_of_its_pool(self):
        assert self.advice({"kubernetes.io/hostname": "gone"}) == []
        assert self.advice({"kubernetes.io/hostname": "gpu-1"}) == []


class TestLabels:
    POOL = vms.gpu(selector={"vmLabels": {"matchLabels": {"class": "gpu", "tier": "a"}}})

    def findings(self, on_vm, in_template):
        labelled = vm(gpu=False)
        labelled["metadata"]["labels"] = on_vm
        labelled["spec"]["template"]["metadata"]["labels"] = in_template
        return explanation.explain_vm(subject(vm=labelled), in_effect(pool=self.POOL)).findings

    def test_of_the_virtual_machine_do_not_reach_the_pod(self):
        (found,) = self.findings({"class": "gpu", "tier": "a", "owner": "me"}, {})
        assert (found.severity, found.code) == ("warning", "label_not_in_template")
        assert "Pool gpu would take this VM" in found.message
        assert "(class=gpu, tier=a)" in found.message
        (found,) = self.findings({"class": "gpu", "tier": "a"}, {"tier": "a"})
        assert "(class=gpu)" in found.message

    def test_that_change_nothing_are_not_mentioned(self):
        assert self.findings({"owner": "me"}, {}) == ()
        assert self.findings({"class": "gpu", "tier": "a"}, {"class": "gpu", "tier": "a"}) == ()


class TestRunning:
    def test_has_its_pod_judged_and_its_next_start_explained(self):
        found = explanation.explain_vm(subject(vms.launcher(), vm=vm(), vmi=vmi()), in_effect())
        assert found.state == "Running on node gpu-0"
        assert whens(found) == [("now", "gpu"), ("next start", "gpu"), ("live migration", "gpu")]
        (pod,) = found.pods
        assert (pod.owner, pod.judgement.verdict) == ("gpu", "correct")
        assert [case.explained.nodes.fit for case in found.cases] == [
            ("gpu-0", "gpu-1"),
            ("gpu-0", "gpu-1"),
            ("gpu-1",),
        ]
        assert found.findings == ()

    @pytest.mark.parametrize(
        ("on_pod", "on_target", "model", "fits"),
        [
            ({}, {}, "host-model", False),
            ({}, {"cpu-model-migration.node.kubevirt.io/Haswell": "true"}, "host-model", False),
            ({}, FITS, "host-model", True),
            ({"cpu-model-migration.node.kubevirt.io/Old": "true"}, FITS, "host-model", False),
            ({"cpu-model-migration.node.kubevirt.io/Haswell": "true"}, FITS, "host-model", True),
            ({}, {}, "host-passthrough", True),
        ],
    )
    def test_goes_only_to_nodes_that_can_give_it_its_cpu(self, on_pod, on_target, model, fits):
        made, running, pod = nodes(), vmi(), vms.launcher()
        running["spec"]["domain"]["cpu"] = {"model": model}
        pod["spec"].setdefault("nodeSelector", {}).update(on_pod)
        of_host = {"host-model-cpu.node.kubevirt.io/Haswell", "host-model-required-features.node.kubevirt.io/aes"}
        made[0]["metadata"]["labels"] |= dict.fromkeys(of_host, "true")
        made[1]["metadata"]["labels"] |= on_target
        context = ExplainContext.from_live_policy(vms.plan_of(of_nodes=made))
        found = explanation.explain_vm(subject(pod, vm=vm(), vmi=running), context)
        assert found.cases[-1].when == "live migration"
        assert found.cases[-1].explained.nodes.fit == (("gpu-1",) if fits else ())

    @pytest.mark.parametrize(
        ("of_source", "of_target", "machine", "fits"),
        [
            ("cpu-vendor.node.kubevirt.io/Intel", "cpu-vendor.node.kubevirt.io/AMD", None, False),
            ("cpu-vendor.node.kubevirt.io/Intel", "cpu-vendor.node.kubevirt.io/Intel", None, True),
            ("rack", "machine-type.node.kubevirt.io/pc-q35-9.0", "pc-q35-9.0", True),
            ("machine-type.node.kubevirt.io/pc-q35-9.0", "rack", "pc-q35-9.0", False),
        ],
    )
    def test_keeps_vendor_and_machine_in_a_migration(self, of_source, of_target, machine, fits):
        made, running = nodes(), vmi()
        running["spec"]["domain"]["cpu"] = {"model": "host-passthrough"}
        if machine is not None:
            running["status"]["machine"] = {"type": machine}
        made[0]["metadata"]["labels"][of_source] = made[1]["metadata"]["labels"][of_target] = "true"
        context = ExplainContext.from_live_policy(vms.plan_of(of_nodes=made))
        found = explanation.explain_vm(subject(vms.launcher(), vm=vm(), vmi=running), context)
        assert found.cases[-1].explained.nodes.fit == (("gpu-1",) if fits else ())

    def test_says_why_it_cannot_be_migrated(self):
        status = vms.vmi()["status"] | {"conditions": [STUCK]}
        found = explanation.explain_vm(subject(vms.launcher(), vm=vm(), vmi={**vmi(), "status": status}), in_effect())
        assert found.notes == {"live migration": "not possible; KubeVirt reports: VMI uses a PCI host device"}
        assert whens(found) == [("now", "gpu"), ("next start", "gpu")]

    def test_with_a_changed_template_starts_next_with_another_image(self):
        found = explanation.explain_vm(subject(vms.launcher(), vm=vm(gpu=False), vmi=vmi()), in_effect())
        assert whens(found) == [("now", "gpu"), ("next start", "primary"), ("live migration", "gpu")]
        assert found.cases[1].explained.image == vms.STOCK

    def test_that_is_older_than_the_policy_says_so_and_what_helps(self):
        pod = vms.launcher(pool=None, image=vms.STOCK, created=vms.EARLIER)
        found = explanation.explain_vm(subject(pod, vm=vm(), vmi=vmi()), in_effect())
        lines = found.lines()
        assert "  the launcher policy left no trace in it" in lines
        assert any(line.startswith("  verdict: outdated: ") for line in lines)
        assert "  remedy: migration" in lines

    def test_that_no_pool_matched_says_so(self):
        pod = vms.launcher(on="rest", pool="primary", device=False)
        found = explanation.explain_vm(subject(pod, vm=vm(gpu=False), vmi=vmi(gpu=False, on="rest")), in_effect())
        assert f"  when it was created, no pool matched it (launcher policy {vms.digest()})" in found.lines()
        assert found.pods[0].judgement.verdict == "correct"

    def test_in_a_migration_is_judged_by_the_pod_with_the_guest(self):
        source = vms.launcher(image=vms.STOCK, created=vms.EARLIER)
        target = vms.launcher(on="gpu-1", labels={"kubevirt.io/migrationJobUID": "m"})
        for pods in ([source, target], [target, source]):
            found = explanation.explain_vm(subject(*pods, vm=vm(), vmi=vmi()), in_effect())
            assert [(pod.pod.node, pod.judgement is None) for pod in found.pods] == [("gpu-0", False), ("gpu-1", True)]
        ended = {**source, "status": {"phase": "Succeeded"}}
        found = explanation.explain_vm(subject(ended, target, vm=vm(), vmi=vmi(on="gpu-1")), in_effect())
        assert [pod.pod.node for pod in found.pods] == ["gpu-1"]
        assert found.pods[0].judgement is not None

    def test_pods_that_virt_controller_did_not_make_do_not_count(self):
        foreign = vms.launcher(on="rest", ownerReferences=[])
        former = vms.launcher(on="rest")
        former["metadata"]["ownerReferences"][0]["uid"] = "uid-of-a-former-vmi"
        found = explanation.explain_vm(subject(foreign, former, vms.launcher(), vm=vm(), vmi=vmi()), in_effect())
        assert [pod.pod.node for pod in found.pods] == ["gpu-0"]

    def test_without_a_virtualmachine_is_not_started_again(self):
        found = explanation.explain_vm(subject(vms.launcher(), vmi=vmi()), in_effect())
        assert found.title == "VirtualMachineInstance plain/vm"
        assert whens(found) == [("now", "gpu"), ("live migration", "gpu")]
        assert "nothing starts it again" in found.notes["next start"]

    def test_without_a_pod_yet_is_predicted(self):
        found = explanation.explain_vm(subject(vmi=vmi(on="", phase="Pending")), in_effect())
        assert found.state == "Pending, without a launcher pod"
        assert whens(found) == [("now", "gpu")]
        refused = {"type": "Synchronized", "status": "False", "message": "admission refuses"}
        status = {"phase": "Pending", "conditions": [refused]}
        found = explanation.explain_vm(subject(vmi={**vmi(), "status": status}), in_effect())
        assert found.state == "Pending, without a launcher pod: admission refuses"

    def test_that_waits_for_a_node_says_that_none_fits(self):
        pod = vms.launcher(on="", status=vms.unschedulable(), node_selector={"zone": "none"})
        found = explanation.explain_vm(subject(pod, vmi=vmi(on="", phase="Scheduling")), in_effect())
        assert found.state == "Scheduling, on no node yet"
        assert str(found.cases[0].explained.nodes) == (
            "no node fits: 2 because the nodeSelector asks for zone=none; 1 because the node affinity asks for "
            "virtpools.io/pool=gpu"
        )


class TestNotRunning:
    def test_is_explained_for_its_next_start(self):
        found = explanation.explain_vm(subject(vm=vm(status={"printableStatus": "Stopped"})), in_effect())
        assert found.state == "is not running (Stopped, runStrategy Halted)"
        assert whens(found) == [("next start", "gpu")]
        data = found.to_dict()
        assert (data["pool"], data["image"], data["pods"]) == ("gpu", vms.IMAGE, [])
        assert data["image_contents"] == ""

    def test_says_what_is_in_the_image(self):
        made = vms.plan_of(of_nodes=nodes())
        state = builders.looked_into(made.snapshot, vms.IMAGE, qemu="10.1.0", libvirt="11.9.0")
        context = ExplainContext.from_live_policy(dataclasses.replace(made, snapshot=state))
        found = explanation.explain_vm(subject(vm=vm()), context)
        assert found.to_dict()["image_contents"] == "QEMU 10.1.0, libvirt 11.9.0"
        assert any(f"{vms.IMAGE} (QEMU 10.1.0, libvirt 11.9.0) on nodes" in line for line in found.lines())

    def test_when_it_has_ended_is_the_same(self):
        found = explanation.explain_vm(subject(vm=vm(), vmi=vmi(phase="Succeeded")), in_effect())
        assert whens(found) == [("next start", "gpu")]

    def test_one_that_will_not_start_again_says_so(self):
        found = explanation.explain_vm(subject(vmi=vmi(phase="Failed")), in_effect())
        assert found.cases == ()
        assert found.to_dict()["pool"] is None
        assert any(line.startswith("Next start: it has no VirtualMachine") for line in found.lines())

    def test_one_from_a_file_is_explained_for_its_next_start(self):
        for given in ({"vm": vm()}, {"vmi": vmi()}):
            found = explanation.explain_vm(subject(in_cluster=False, **given), in_effect())
            assert found.state == "not in the cluster"
            assert whens(found) == [("next start", "gpu")]
            assert found.notes == {}


class TestMapping:
    def test_in_effect_is_that_of_the_live_policy(self):
        assert in_effect().title == "in effect now, by MutatingAdmissionPolicy virtpools-launcher"
        assert [rule.name for rule in in_effect().table.rules] == ["gpu"]

    def test_too_long_to_be_recorded_is_the_planned_one(self):
        live = vms.policy()
        del live[0]["metadata"]["annotations"]["virtpools.io/mapping"]
        assert [rule.name for rule in in_effect(objects=live).table.rules] == ["gpu"]

    @pytest.mark.parametrize("live", [[], vms.policy()[:1]], ids=["nothing", "no binding"])
    def test_without_a_policy_takes_no_vm(self, live):
        found = explanation.explain_vm(subject(vm=vm()), in_effect(objects=live))
        assert "is not in force, there is no Mutating" in builders.message(found.findings, "policy_missing")
        assert found.mapping == "no launcher policy is in effect; launcher pods stay as KubeVirt creates them"
        assert whens(found) == [("next start", "primary")]
        assert [answer.state for answer in found.cases[0].explained.answers] == ["not active"]
        assert found.cases[0].explained.requirement is None

    def test_of_a_policy_that_was_edited_says_so(self):
        live = vms.policy()
        live[0]["spec"]["matchConditions"] = [{"name": "never", "expression": "false"}]
        found = explanation.explain_vm(subject(vm=vm()), in_effect(objects=live))
        assert "was changed by hand" in builders.message(found.findings, "policy_edited")

    def test_of_a_pool_list_is_the_one_after_the_run(self):
        pool = vms.gpu()
        bare = [node for node in nodes() if node["metadata"]["labels"].pop("virtpools.io/pool", None) or True]
        found = plan.make_plan(builders.snapshot_of(bare, admission=vms.admission()), [pool], Options(overlap="error"))
        after = ExplainContext.from_planned_policy(found, [pool])
        seen = explanation.explain_vm(subject(vm=vm()), after)
        assert whens(seen) == [("next start", "gpu")]
        assert seen.cases[0].explained.nodes.fit == ("gpu-0", "gpu-1")
        assert seen.findings == ()

    def test_of_a_refused_pool_list_reports_it_and_keeps_other_pools(self):
        listed = vms.gpu("other", virtHandlerImage="registry.example/virt-handler:v0.1.0")
        made = plan.make_plan(vms.plan_of(of_nodes=nodes()).snapshot, [listed], Options())
        found = explanation.explain_vm(subject(vm=vm()), ExplainContext.from_planned_policy(made, [listed]))
        assert "version_skew" in builders.codes(found.findings, "error")
        assert {answer.pool for answer in found.cases[0].explained.answers} == {"other", "gpu"}

    def test_with_a_back_end_that_changes_no_pods_takes_no_vm(self):
        made = plan.make_plan(vms.plan_of(of_nodes=nodes()).snapshot, [vms.gpu()], Options(launcher_backend="none"))
        assert whens(
            explanation.explain_vm(subject(vm=vm()), ExplainContext.from_planned_policy(made, [vms.gpu()]))
        ) == [("next start", "primary")]

    def test_of_kubevirt_aie_webhook_chooses_no_nodes(self):
        pool = vms.gpu(unmatched="allow")
        bare = builders.snapshot_of(nodes(), [pool], admission=vms.admission())
        made = plan.make_plan(bare, [pool], Options(launcher_backend="aie_webhook"))
        (case,) = explanation.explain_vm(subject(vm=vm()), ExplainContext.from_planned_policy(made, [pool])).cases
        assert (case.explained.pool, case.explained.image, case.explained.requirement) == ("gpu", vms.IMAGE, None)


class TestWebhook:
    """kubevirt-aie-webhook beside the launcher policy, and as the back end."""

    IMAGE = "registry.example/theirs:1"

    def beside(self, **selector):
        rule = {"name": "theirs", "image": self.IMAGE, "selector": selector}
        made = vms.plan_of(of_nodes=nodes(), objects=vms.beside_webhook(rule))
        return ExplainContext.from_live_policy(made)

    def test_is_named_by_its_annotation(self):
        pod = vms.by_webhook(vms.launcher(), self.IMAGE)
        found = explanation.explain_vm(subject(pod, vm=vm(), vmi=vmi()), self.beside(deviceNames=[vms.DEVICE]))
        assert f"  kubevirt-aie-webhook gave its container compute {self.IMAGE}" in found.lines()
        assert found.pods[0].to_dict()["webhook_image"] == self.IMAGE
        message = builders.message(found.findings, "aie_rule_takes_vm")
        assert (
            f"Rule theirs of kubevirt-aie-webhook takes this VM: its container compute starts with {self.IMAGE}"
            in message
        )

    def test_that_takes_other_vms_is_not_mentioned(self):
        found = explanation.explain_vm(subject(vms.launcher(), vm=vm(), vmi=vmi()), self.beside(deviceNames=["b"]))
        assert found.findings == ()
        assert not any("webhook" in line for line in found.lines())

    def test_whose_image_was_replaced_again_says_so(self):
        pod = vms.by_webhook(vms.launcher(), self.IMAGE)
        pod["metadata"]["annotations"]["kubevirt.io/alternative-launcher-image"] = "registry.example/other:1"
        found = explanation.explain_vm(subject(pod, vm=vm(), vmi=vmi()), in_effect())
        assert any(
            line.endswith("registry.example/other:1, and something else changed it afterwards")
            for line in found.lines()
        )

    def test_as_back_end_leaves_its_annotation(self):
        pool = vms.gpu(unmatched="allow")
        config_map = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "kubevirt-aie-launcher-config", "namespace": builders.NAMESPACE},
            "data": {"config.yaml": "rules:\n"},
        }
        bare = builders.snapshot_of(nodes(), [pool], admission=vms.admission(config_map))
        made = plan.make_plan(bare, [pool], Options(launcher_backend="aie_webhook"))
        live = [obj for _kind, obj in made.launcher_rollout.policy(0)]
        here = builders.snapshot_of(nodes(), [pool], admission=vms.admission(*live))
        context = ExplainContext.from_live_policy(plan.make_plan(here, [pool], Options(launcher_backend="aie_webhook")))

        def of(pod):
            found = explanation.explain_vm(subject(pod, vm=vm(), vmi=vmi()), context)
            assert found.findings == ()
            assert not any("left no trace" in line for line in found.lines())
            return found.lines()

        assert f"  kubevirt-aie-webhook gave its container compute {vms.IMAGE}" in of(
            vms.by_webhook(vms.launcher(pool=None), vms.IMAGE)
        )
        assert any("kubevirt-aie-webhook did not change it" in line for line in of(vms.launcher(pool=None)))


class TestNamespace:
    def labelled(self):
        pool = vms.gpu(selector={"deviceNames": [vms.DEVICE], "namespaces": {"matchLabels": {"tier": "gold"}}})
        return ExplainContext.from_live_policy(vms.plan_of(pool, of_nodes=nodes()))

    def test_labels_decide(self):
        for labels, pool in (({"tier": "gold"}, "gpu"), ({}, "primary")):
            found = explanation.explain_vm(subject(vm=vm(), namespace_labels=labels), self.labelled())
            assert (whens(found), found.findings) == ([("next start", pool)], ())

    def test_that_cannot_be_read_is_reported_where_it_matters(self):
        found = explanation.explain_vm(subject(vm=vm(), namespace_labels=None), self.labelled())
        assert builders.codes(found.findings) == ["namespace_unknown"]
        assert explanation.explain_vm(subject(vm=vm(), namespace_labels=None), in_effect()).findings == ()


def test_what_is_not_known_of_the_next_pod_is_reported_once():
    claimed = vm()
    claimed["spec"]["template"]["spec"]["domain"]["devices"]["gpus"].append({"name": "g2", "claimName": "c"})
    running = {**vmi(), "spec": claimed["spec"]["template"]["spec"]}
    found = explanation.explain_vm(subject(vms.launcher(), vm=claimed, vmi=running), in_effect())
    assert builders.codes(found.findings) == ["device_from_claim"]


def test_one_page():
    found = explanation.explain_vm(subject(vms.launcher(), vm=vm(), vmi=vmi()), in_effect())
    result = f"pool gpu wins: {vms.IMAGE} on nodes with virtpools.io/pool=gpu"
    same = "the same"
    assert found.lines() == [
        "VirtualMachine plain/vm: Running on node gpu-0",
        "Mapping: in effect now, by MutatingAdmissionPolicy virtpools-launcher",
        "Launcher pod virt-launcher-vm (Running) on node gpu-0 of gpu:",
        f"  container compute: {vms.IMAGE}",
        f"  init container guest-console-log: {vms.IMAGE}",
        f"  when it was created, pool gpu matched it (launcher policy {vms.digest()})",
        "  verdict: correct",
        "Now (by launcher pod virt-launcher-vm):",
        "  Its launcher pod asks for:",
        "    namespace plain",
        f"    devices: {vms.DEVICE}",
        "    labels: none of its own",
        "    nodeSelector: kubernetes.io/arch=amd64",
        "  Pools (the first that matches wins):",
        "    1. gpu: WINS, it is the first that matches",
        f"         yes: selector.deviceNames asks for one of {vms.DEVICE}; the VM has {vms.DEVICE}",
        f"  Result: {result}; 2 nodes fit: gpu-0, gpu-1.",
        f"Next start (by the VirtualMachine): {same}, {result}; 2 nodes fit: gpu-0, gpu-1.",
        f"Live migration (by the VirtualMachineInstance): {same}, {result}; 1 node fits: gpu-1.",
    ]


@pytest.mark.parametrize("change", ["stopped", "running"])
def test_the_data_is_plain(change):
    given = subject(vm=vm()) if change == "stopped" else subject(vms.launcher(), vm=vm(), vmi=vmi())
    data = explanation.explain_vm(given, in_effect()).to_dict()
    assert set(data) == {
        "vm",
        "state",
        "mapping",
        "pool",
        "image",
        "image_contents",
        "hypervisor",
        "pods",
        "cases",
        "notes",
        "findings",
    }
    assert _plain(data)


def _plain(value):
    if isinstance(value, dict):
        return type(value) is dict and all(map(_plain, value.values()))
    if isinstance(value, list):
        return all(map(_plain, value))
    return value is None or type(value) in (str, int, bool)
