# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs with kubevirt-aie-webhook and Kyverno, from nothing to nothing, and from one back end to another."""

from __future__ import annotations

import json

import pytest
import yaml

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api import client
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders
from ansible_collections.virtpools.kubevirt.tests.unit.support.admission import BINDING, POLICY, Admission
from ansible_collections.virtpools.kubevirt.tests.unit.support.aie_webhook import AieWebhook

RAW = {
    **builders.RAW_POOL,
    "virtLauncherImage": builders.GPU_LAUNCHER_IMAGE,
    "selector": {"deviceNames": ["nvidia.com/A100"]},
    "unmatched": "allow",
}
RULE = {
    "name": "gpu",
    "image": builders.GPU_LAUNCHER_IMAGE,
    "selector": {"deviceNames": ["nvidia.com/A100"]},
}
AIE, TO_AIE = "ConfigMap kubevirt/kubevirt-aie-launcher-config", {"pools": [RAW], "launcher_backend": "aie_webhook"}


@pytest.fixture(autouse=True)
def admission(excluded):
    """Acts by policies; the pool has its node."""
    excluded.put(builders.node("n1", "gpu", labels={"hw": "gpu"}))
    return Admission(excluded)


@pytest.fixture
def webhook(excluded):
    return AieWebhook(excluded, builders.NAMESPACE)


def put(run, **options):
    return run("run_part", part="launcher_policy", **{**TO_AIE, **options})


def take_away(run):
    return run("run_part", part="launcher_policy", state="absent")


def started(world, webhook, *devices, **labels):
    """The image with which a VM starts."""
    vmi = kinds.VIRTUAL_MACHINE_INSTANCE.object("vm", "default")
    vmi["metadata"]["labels"] = labels
    gpus = [{"name": f"g{number}", "deviceName": device} for number, device in enumerate(devices)]
    world.put({**vmi, "spec": {"domain": {"devices": {"gpus": gpus}}}})
    pod = kinds.POD.object("virt-launcher-vm", "default")
    pod["metadata"]["ownerReferences"] = [{"kind": "VirtualMachineInstance", "name": "vm"}]
    pod["spec"] = {"containers": [{"name": "compute", "image": builders.LAUNCHER_IMAGE}]}
    return webhook.mutated(pod)["spec"]["containers"][0]["image"]


@pytest.fixture
def impatient(monkeypatch):
    """Requests are not repeated."""
    monkeypatch.setattr(client, "_FIRST_PAUSE_SECONDS", 200)


def before_writing(world, act):
    """Do something between the plan and the first write of a run."""

    def before(request):
        if request.method != "GET" and "selfsubject" not in request.path and "/leases" not in request.path:
            world.before = lambda request: None
            act()

    world.before = before


THEIRS = """\
- name: theirs
  # for the A30 alone
  image: "registry.example/theirs:1"
  selector:
    deviceNames: [nvidia.com/A30]
"""


class TestWebhook:
    def test_gets_its_rules_once(self, run, world, webhook):
        found = put(run)
        assert found["changes"][0] == f"{AIE}: update"
        assert found["backend"] == "aie_webhook"
        assert found["digest"] == webhook.config_map["metadata"]["annotations"][names.POLICY_ANNOTATION]
        assert webhook.rules == [RULE]
        assert started(world, webhook, "nvidia.com/A100") == builders.GPU_LAUNCHER_IMAGE
        assert started(world, webhook, "nvidia.com/A30") == builders.LAUNCHER_IMAGE
        assert world.all(POLICY) == []
        world.writes.clear()
        assert put(run) == {**found, "changed": False, "changes": [], "diff": []}
        assert world.writes == []

    def test_check_mode_predicts_and_writes_nothing(self, run, world, webhook):
        predicted = put(run, check=True)
        assert world.writes == []
        done = put(run)
        assert [predicted[key] for key in ("changes", "digest", "diff")] == [
            done[key] for key in ("changes", "digest", "diff")
        ]

    @pytest.mark.parametrize(
        "text",
        ["rules:\n", "rules: []\n", '{"rules":[]}', "", "rules: null", "# none\n", "rules:", "version: 1\n", None],
    )
    def test_has_its_text_back_when_our_rules_go(self, run, excluded, text):
        webhook = AieWebhook(excluded, builders.NAMESPACE, text=text)
        before = webhook.config_map
        put(run)
        assert webhook.rules == [RULE]
        put(run, pools=[{**RAW, "selector": {"deviceNames": ["a.example/b"]}}])
        assert [rule["selector"] for rule in webhook.rules] == [{"deviceNames": ["a.example/b"]}]
        found = take_away(run)
        assert found["changes"] == [f"{AIE}: update"]
        after = webhook.config_map
        # Without the key, the webhook would keep our rules.
        assert after["data"] == {"config.yaml": text or ""}
        assert after["metadata"]["labels"] == before["metadata"]["labels"]
        assert not after["metadata"].get("annotations")
        assert take_away(run)["changed"] is False

    @pytest.mark.parametrize(
        ("text", "added"),
        [
            (f"rules:\n{THEIRS}", False),
            (f"# ours\nrules:   # in order\n# the first\n{THEIRS}# the last\nversion: 1\n", False),
            ("rules:\n" + "".join(f"    {line}\n" for line in THEIRS.splitlines()), False),
            ("rules: [{name: theirs, image: i, selector: {deviceNames: [nvidia.com/A30]}}]\nversion: 1\n", False),
            (f"rules:\n{THEIRS}", True),
        ],
    )
    def test_keeps_rules_of_others_and_their_text(self, run, world, excluded, text, added):
        webhook = AieWebhook(excluded, builders.NAMESPACE, text="rules:\n" if added else text)
        put(run)
        if added:
            webhook.edit(webhook.text + THEIRS)
        else:
            assert webhook.rules[0] == RULE
        theirs = webhook.rules[1]
        found = put(run, pools=[{**RAW, "virtLauncherImage": f"{builders.GPU_LAUNCHER_IMAGE}-2"}])
        assert found["changed"]
        assert webhook.rules == [{**RULE, "image": f"{builders.GPU_LAUNCHER_IMAGE}-2"}, theirs]
        assert started(world, webhook, "nvidia.com/A30") == theirs["image"]
        assert put(run, pools=[{**RAW, "virtLauncherImage": f"{builders.GPU_LAUNCHER_IMAGE}-2"}])["changed"] is False
        assert take_away(run)["changes"] == [f"{AIE}: update"]
        assert webhook.text == text
        assert not webhook.config_map["metadata"].get("annotations")

    def test_keeps_what_its_owner_adds_in_front_of_ours(self, run, webhook):
        put(run)
        webhook.edit(webhook.text.replace("rules:\n", f"rules:\n{THEIRS}"))
        assert put(run)["changed"], "the rules of pools are the first ones again"
        assert [rule["name"] for rule in webhook.rules] == ["gpu", "theirs"]
        take_away(run)
        assert webhook.text == f"rules:\n{THEIRS}"

    def test_keeps_what_its_owner_adds_during_the_run(self, run, world, webhook):
        before_writing(world, lambda: webhook.edit(f"rules:\n{THEIRS}"))
        assert "it was changed by someone else in the meantime" in run.failure(
            "run_part", part="launcher_policy", **TO_AIE
        )
        assert webhook.text == f"rules:\n{THEIRS}"

    def test_gets_a_rule_of_ours_back_that_was_edited(self, run, webhook):
        put(run)
        webhook.edit(webhook.text.replace(builders.GPU_LAUNCHER_IMAGE, "registry.example/edited:1"))
        assert put(run)["changed"]
        assert webhook.rules == [RULE]
        webhook.edit(webhook.text.replace(builders.GPU_LAUNCHER_IMAGE, "registry.example/edited:1"))
        take_away(run)
        assert webhook.text == "rules:\n"

    def test_loses_our_rules_alone_after_another_tool_wrote_it(self, run, webhook):
        put(run)
        webhook.edit(json.dumps({"rules": [*webhook.rules, yaml.safe_load(THEIRS)[0]]}))
        take_away(run)
        assert webhook.rules == yaml.safe_load(THEIRS)

    def test_knows_our_rules_without_the_mapping(self, run, world, webhook):
        put(run)
        webhook.edit(webhook.text + THEIRS)
        live = webhook.config_map
        live["metadata"]["annotations"][names.MAPPING_ANNOTATION] = "edited"
        assert put(run)["changed"]
        assert [rule["name"] for rule in webhook.rules] == ["gpu", "theirs"]
        live = webhook.config_map
        live["metadata"]["annotations"].update({names.MAPPING_ANNOTATION: "", names.POLICY_ANNOTATION: "0"})
        world.writes.clear()
        message = run.failure("run_part", part="launcher_policy", state="absent")
        assert "cannot tell its own rules from others" in message
        assert world.writes == []

    @pytest.mark.parametrize(
        ("rule", "common"),
        [
            ("{name: theirs, image: i, selector: {deviceNames: [b, nvidia.com/A100]}}", "nvidia.com/A100 in common"),
            ("{name: gpu, image: i, selector: {deviceNames: [b]}}", "the name in common"),
        ],
    )
    def test_rules_of_others_for_vms_of_a_pool_are_refused(self, run, world, webhook, rule, common):
        webhook.edit(f"rules: [{rule}]")
        message = run.failure("run_part", part="launcher_policy", **TO_AIE)
        assert "that no run has written" in message
        assert common in message
        assert world.writes == []

    def test_text_that_nobody_can_read_is_refused(self, run, world, webhook):
        put(run)
        webhook.edit("rules: {")
        world.writes.clear()
        for options in (TO_AIE, {"state": "absent"}, {"remove_pools": "gpu"}):
            assert "config.yaml of ConfigMap" in run.failure("run_part", part="launcher_policy", **options)
        assert world.writes == []

    def test_pools_it_cannot_serve_are_refused(self, run, world, webhook):
        pools = [{**RAW, "unmatched": "keep_off"}]
        assert "cannot keep VMs that match no pool off" in run.failure(
            "run_part", part="launcher_policy", **{**TO_AIE, "pools": pools}
        )
        assert world.writes == []

    def test_gives_way_to_another_back_end_and_comes_back(self, run, world, webhook):
        put(run)
        to_policies = run("run_part", part="launcher_policy", pools=[RAW])
        assert to_policies["backend"] == "admission_policy"
        assert f"{AIE}: update" in to_policies["changes"]
        assert (webhook.text, len(world.all(POLICY))) == ("rules:\n", 1)
        back = put(run)
        assert f"{POLICY} {names.POLICY}: delete" in back["changes"]
        assert (webhook.rules, world.all(POLICY), world.all(BINDING)) == ([RULE], [], [])

    @pytest.mark.parametrize(
        ("fault", "words"),
        [
            ("unregister", "no MutatingWebhookConfiguration calls kubevirt-aie-webhook"),
            ("take_ca_bundle", "has no caBundle"),
            ("stop", "Deployment kubevirt/kubevirt-aie-webhook has no ready pod"),
        ],
    )
    def test_that_does_not_work_gets_no_rules(self, run, world, webhook, fault, words):
        getattr(webhook, fault)()
        assert words in run.failure("run_part", part="launcher_policy", **TO_AIE)
        assert (world.writes, webhook.text) == ([], "rules:\n")

    @pytest.mark.usefixtures("impatient")
    def test_that_dies_unseen_gets_no_rules(self, run, world, webhook):
        before_writing(world, webhook.stop)
        message = run.failure("run_part", part="launcher_policy", **TO_AIE)
        assert "was not activated, nothing has changed for VMs" in message
        assert "failed calling webhook" in message
        assert webhook.text == "rules:\n"

    @pytest.mark.usefixtures("impatient")
    @pytest.mark.parametrize("options", [TO_AIE, {"pools": [RAW]}])
    def test_that_is_dead_is_reported_by_verify(self, run, webhook, options):
        run("run_part", part="launcher_policy", **options)
        webhook.stop()
        found = run("verification_info", probe=True, **options)
        codes = {finding["code"] for finding in found["findings"]}
        assert {"aie_webhook_down", "policy_failing"} <= codes

    def test_and_verify_report_rules_that_meet_a_pool(self, run, webhook):
        theirs = "rules: [{name: theirs, image: i, selector: {deviceNames: [nvidia.com/A100]}}]\n"
        run("run_part", part="launcher_policy", pools=[RAW])
        webhook.edit(theirs)
        found = run("verification_info", pools=[RAW])
        assert {"aie_rule_meets_pool", "aie_rules_beside"} <= {finding["code"] for finding in found["findings"]}
        assert "takes VMs of pool gpu by nvidia.com/A100" in run.failure(
            "run_part", part="launcher_policy", pools=[RAW]
        )
        assert take_away(run)["changed"]
        assert webhook.text == theirs

    @pytest.mark.parametrize("options", [TO_AIE, {"pools": [RAW]}], ids=["as the back end", "beside the policy"])
    def test_is_read_from_a_dump_as_from_the_cluster(self, run, world, webhook, tmp_path, options):
        run("run_part", part="launcher_policy", **options)
        webhook.edit(webhook.text + THEIRS)
        (tmp_path / "all.json").write_text(json.dumps({"kind": "List", "items": list(world.objects.values())}))
        online, offline = (run("verification_info", **options, **of) for of in ({}, {"dump": str(tmp_path)}))
        assert (offline["policy"], offline["findings"]) == (online["policy"], online["findings"])

    def test_and_rules_for_a_pool_that_stays_hinder_no_removal(self, run, world, webhook):
        other = {**RAW, "name": "rt", "nodeSelector": {"hw": "rt"}, "selector": {"deviceNames": ["a.example/b"]}}
        world.put(builders.node("n2", "rt", labels={"hw": "rt"}))
        for raw in (RAW, other):
            world.put(builders.pool_daemonset(builders.pool(**raw), desired=0))
        put(run, pools=[RAW, other])
        assert [rule["name"] for rule in webhook.rules] == ["gpu", "rt"]
        webhook.edit(webhook.text + "- {name: theirs, image: i, selector: {deviceNames: [nvidia.com/A100]}}\n")
        planned = run("plan_info", remove_pools="rt")
        assert [f for f in planned["findings"] if f["severity"] == "error" and f["code"].startswith("aie_")] == []
        assert run("run_part", part="launcher_policy", remove_pools="rt")["changed"]
        assert [rule["name"] for rule in webhook.rules] == ["gpu", "theirs"]

    @pytest.mark.usefixtures("impatient")
    def test_that_is_dead_does_not_hinder_the_plan_of_remove(self, run, webhook):
        put(run)
        webhook.edit(webhook.text + "- {name: theirs, image: i, selector: {deviceNames: [nvidia.com/A100]}}\n")
        webhook.stop()
        planned = run("plan_info", remove_pools="all")
        assert [f for f in planned["findings"] if f["severity"] == "error" and f["code"].startswith("aie_")] == []
        assert run("run_part", part="launcher_policy", remove_pools="all")["changed"]
        assert [rule["name"] for rule in webhook.rules] == ["theirs"]

    @pytest.mark.usefixtures("impatient")
    @pytest.mark.parametrize("options", [TO_AIE, {"pools": [RAW]}])
    def test_that_is_dead_keeps_no_pools_from_going(self, run, world, webhook, options):
        run("run_part", part="launcher_policy", **options)
        webhook.stop()
        found = take_away(run)
        assert found["changed"]
        assert (webhook.text, world.all(POLICY)) == ("rules:\n", [])


def test_a_kyverno_that_does_not_act_gets_no_policy(run, world, admission):
    admission.idle.add(names.CANDIDATE_POLICY)
    message = run.failure("run_part", part="launcher_policy", pools=[RAW], launcher_backend="kyverno")
    assert message.startswith("MutatingPolicy virtpools-launcher was not activated, nothing has changed for VMs: ")
    assert "does not act on launcher pods" in message
    assert world.all(kinds.KYVERNO_MUTATING_POLICY) == []
