# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rules of kubevirt-aie-webhook: how they express a table, what they cannot express, and whose they are."""

from __future__ import annotations

import copy
import json

import pytest
import yaml

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.admission import aie_config
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.findings import InputErrors
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.observed.webhook import KEY
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools.dialects import (
    AIE,
    read_dialect,
    read_manifest,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms import mapping
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms.mapping import Table
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders
from ansible_collections.virtpools.kubevirt.tests.unit.support.aie_webhook import webhook_of

DEVICES = ["nvidia.com/A100", "nvidia.com/A30"]
TAINT = {"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}


def pool(name="gpu", image=True, **fields):
    fields.setdefault("selector", {"deviceNames": DEVICES})
    fields.setdefault("unmatched", "allow")
    if image:
        fields["virtLauncherImage"] = f"{builders.LAUNCHER_IMAGE}-{name}"
    return builders.pool(name, **fields)


def config_map(text="rules:\n", **metadata):
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": names.AIE_CONFIG,
            "namespace": builders.NAMESPACE,
            "labels": {"app.kubernetes.io/managed-by": "Helm"},
            "resourceVersion": "7",
            **metadata,
        },
        "data": {KEY: text},
    }


def rules(obj):
    return yaml.safe_load(obj["data"][KEY])["rules"] or []


def derive(table, live):
    return aie_config.derive(table, live, webhook_of(live))


def released(live):
    return aie_config.released(live, webhook_of(live))


def test_rules_are_the_tables_in_its_order():
    table = Table.for_pools([pool("z"), pool("a", selector={"deviceNames": ["vendor.example/b"]})])
    made = rules(derive(table, config_map()))
    assert made == [
        {"name": "z", "image": f"{builders.LAUNCHER_IMAGE}-z", "selector": {"deviceNames": DEVICES}},
        {"name": "a", "image": f"{builders.LAUNCHER_IMAGE}-a", "selector": {"deviceNames": ["vendor.example/b"]}},
    ]
    assert not list(aie_config.check(Table.for_pools([]))), "a table without pools has nothing to say"


def test_pools_that_are_not_active_get_no_rule():
    pools = [pool("gpu"), pool("rt")]
    made = derive(Table.for_pools(pools, {"rt": "registry.example/virt-launcher:v1.9.0-old"}), config_map())
    assert [(rule["name"], rule["image"]) for rule in rules(made)] == [
        ("rt", "registry.example/virt-launcher:v1.9.0-old")
    ]


def test_the_rest_of_the_config_map_stays_as_it_is():
    live = config_map(annotations={"theirs": "1"})
    live["data"]["other"] = "kept"
    before = copy.deepcopy(live)
    made = derive(Table.for_pools([pool()]), live)
    assert live == before
    assert made["metadata"]["labels"] == live["metadata"]["labels"]
    assert made["metadata"]["annotations"].keys() == {"theirs", names.POLICY_ANNOTATION, names.MAPPING_ANNOTATION}
    assert made["data"]["other"] == "kept"
    after = released(made)
    assert rules(after) == []
    assert after["metadata"].pop("resourceVersion", None) is None, "a plan would depend on it"
    del before["metadata"]["resourceVersion"]
    assert {**after, "data": None} == {**before, "data": None}
    assert "annotations" not in released(derive(Table.for_pools([pool()]), config_map()))["metadata"]


def test_the_annotation_tells_the_table():
    table = Table.for_pools([pool("gpu"), pool("rt", unmatched="keep_off")])
    made = derive(table, config_map())
    assert mapping.restore(made["metadata"]["annotations"][names.MAPPING_ANNOTATION]) == table


def test_the_digest_follows_the_rules():
    def digest(*pools):
        made = derive(Table.for_pools(pools), config_map())
        return made["metadata"]["annotations"][names.POLICY_ANNOTATION]

    assert digest(pool("a"), pool("b")) == digest(pool("a"), pool("b"))
    assert digest(pool("a"), pool("b")) != digest(pool("b"), pool("a"))


def test_a_table_too_long_for_an_annotation_is_refused(monkeypatch):
    monkeypatch.setattr(Table, "to_text", lambda self: "")
    found = list(aie_config.check(Table.for_pools([pool()])))
    assert "too many for the annotation" in builders.message(found, "aie_cannot_express")


def test_a_table_too_long_for_an_annotation_leaves_none(monkeypatch):
    monkeypatch.setattr(Table, "to_text", lambda self: "")
    annotations = derive(Table.for_pools([pool()]), config_map())["metadata"]["annotations"]
    assert not annotations.get(names.MAPPING_ANNOTATION)
    assert "" not in annotations.values()


def test_the_dialect_reads_the_rules_but_not_foreign_nodes():
    given = [pool("gpu"), pool("rt", selector={"deviceNames": ["vendor.example/rt"]})]
    made = derive(Table.for_pools(given), config_map())
    with pytest.raises(InputErrors) as caught:
        read_manifest([made], yaml.safe_load)
    assert len(caught.value.messages) == len(given)
    assert all("nodeSelector.matchLabels is missing" in message for message in caught.value.messages)

    with_nodes = [{**rule, "nodeSelector": {"matchLabels": {"hw": rule["name"]}}} for rule in rules(made)]
    read = read_dialect(AIE, {"rules": with_nodes})
    assert [(p.name, p.selector, p.virt_launcher_image) for p in read] == [
        (p.name, p.selector, p.virt_launcher_image) for p in given
    ]


def test_devices_alone_are_accepted_with_what_to_know():
    found = list(aie_config.check(Table.for_pools([pool(tolerations=[TAINT]), pool("rt")])))
    assert builders.codes(found, "error") == []
    assert builders.codes(found) == ["aie_no_tolerations", "aie_compute_only"]
    assert "the VMs of gpu need them" in builders.message(found, "aie_no_tolerations")
    assert "VMs of gpu, rt" in builders.message(found, "aie_compute_only")
    assert builders.codes(aie_config.check(Table.for_pools([pool()]))) == ["aie_compute_only"]
    secret = pool(virtLauncherPullSecrets=[{"name": "launchers"}])
    assert builders.codes(aie_config.check(Table.for_pools([secret]))) == ["aie_no_pull_secrets", "aie_compute_only"]


@pytest.mark.parametrize(
    ("selector", "field"),
    [
        ({"vmLabels": {"matchLabels": {"a": "b"}}}, "selector.vmLabels"),
        ({"vmLabels": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}, "selector.vmLabels"),
        ({"matchNodeSelector": True}, "selector.matchNodeSelector"),
        ({"architectures": ["arm64"]}, "selector.architectures"),
        ({"namespaces": ["team-a"]}, "selector.namespaces"),
        ({"namespaces": {"matchLabels": {"tier": "gold"}}}, "selector.namespaces"),
    ],
)
def test_what_a_rule_cannot_say_is_refused_even_beside_devices(selector, field):
    table = Table.for_pools([pool("plain"), pool("gpu", selector={"deviceNames": DEVICES, **selector})])
    found = list(aie_config.check(table))
    assert builders.codes(found, "error") == ["aie_cannot_express"]
    message = builders.message(found, "aie_cannot_express")
    assert message.startswith("Pool gpu: ")
    assert f"not by {field};" in message


def test_two_versions_of_kubevirt_cannot_be_served():
    upcoming = mapping.Upcoming(builders.LAUNCHER_IMAGE, "v1.10.0", {"gpu": f"{builders.LAUNCHER_IMAGE}-next"})
    found = list(aie_config.check(Table.for_pools([pool()]).prepared(upcoming)))
    assert builders.codes(found, "error") == ["aie_cannot_prepare"]
    message = builders.message(found, "aie_cannot_prepare")
    assert "run site with a list in which only virtLauncherImage is of the new version" in message


def test_a_hypervisor_is_refused():
    found = list(aie_config.check(Table.for_pools([pool(), pool("mshv", hypervisor="hyperv-direct")])))
    assert builders.codes(found, "error") == ["aie_cannot_express"]
    message = builders.message(found, "aie_cannot_express")
    assert message.startswith("Pool mshv: kubevirt-aie-webhook changes images, not the hypervisor of a VM; ")


def test_a_pool_without_a_launcher_needs_a_rule_without_an_image():
    found = list(aie_config.check(Table.for_pools([pool(image=False)])))
    assert "give virtLauncherImage," in builders.message(found, "aie_cannot_express")


def test_unmatched_vms_cannot_be_kept_off():
    table = Table.for_pools([pool("a"), pool("b", unmatched="keep_off"), pool("c", unmatched="keep_off")])
    found = list(aie_config.check(table))
    assert builders.codes(found, "error") == ["aie_cannot_keep_off"]
    assert "nodes of b, c;" in builders.message(found, "aie_cannot_keep_off")


LABELS = {"vmLabels": {"matchLabels": {"tier": "gold", "team": "a"}}}


def foreign(table, *given):
    """What a run with this back end says of rules that others have written."""
    live = config_map(json.dumps({"rules": given}))
    return list(aie_config.foreign_findings(table, live, webhook_of(live)))


def test_rules_of_others_for_vms_of_a_pool_are_refused():
    table = Table.for_pools([pool()])
    assert foreign(table) == []
    (found,) = foreign(table, {"name": "theirs", "image": "i", "selector": {"deviceNames": ["b", DEVICES[1]]}})
    assert (found.severity, found.code) == ("error", "aie_rules_foreign")
    assert found.message.startswith(
        "ConfigMap kubevirt/kubevirt-aie-launcher-config has a rule theirs that no run has written"
    )
    assert f"has {DEVICES[1]} in common with pool gpu; delete that rule from its config.yaml" in found.message
    (found,) = foreign(table, {"name": "gpu", "image": "i", "selector": {"deviceNames": ["b"]}})
    assert found.code == "aie_rules_foreign"


def test_other_rules_of_others_stay_and_are_named():
    table = Table.for_pools([pool()])
    (found,) = foreign(
        table,
        {"name": "a30", "image": "i", "selector": {"deviceNames": ["b"]}},
        {"name": "gold", "image": "i", "selector": LABELS},
    )
    assert (found.severity, found.code) == ("warning", "aie_rules_kept")
    assert "has rules that no run has written: a30, gold. They stay" in found.message


@pytest.mark.parametrize(
    ("selector", "met"),
    [
        ({"deviceNames": DEVICES}, False),
        ({"vmLabels": {"matchLabels": {"tier": "gold"}}}, True),
        ({"vmLabels": {"matchLabels": {"tier": "gold", "team": "a", "more": "1"}}}, True),
        ({"vmLabels": {"matchExpressions": [{"key": "team", "operator": "Exists"}]}}, True),
        ({"vmLabels": {"matchLabels": {"tier": "silver"}}}, False),
        ({"vmLabels": {"matchLabels": {"other": "1"}}}, False),
        ({"matchNodeSelector": True}, False),
    ],
)
def test_labels_meet_where_all_vms_of_one_are_of_the_other(selector, met):
    live = config_map(json.dumps({"rules": [{"name": "gold", "image": "i", "selector": LABELS}]}))
    found = list(aie_config.beside_findings(Table.for_pools([pool(selector=selector)]), live, webhook_of(live)))
    assert builders.codes(found, "error") == (["aie_rule_meets_pool"] if met else [])
    assert builders.codes(found, "warning") == ["aie_rules_beside"]


def test_a_rule_with_the_image_of_the_pool_does_no_harm():
    def found(**fields):
        rule = {"name": "theirs", "image": f"{builders.LAUNCHER_IMAGE}-gpu", "selector": {"deviceNames": DEVICES}}
        live = config_map(json.dumps({"rules": [{**rule, **fields}]}))
        return list(aie_config.beside_findings(Table.for_pools([pool()]), live, webhook_of(live)))

    assert builders.codes(found(), "error") == []
    message = builders.message(found(image="i:1"), "aie_rule_meets_pool")
    assert f"takes VMs of pool gpu by {DEVICES[0]}, {DEVICES[1]}" in message
    assert f"would start with i:1, and their helpers with {builders.LAUNCHER_IMAGE}-gpu" in message


def test_our_own_rules_are_known_again():
    live = config_map("rules:\n- {name: theirs, image: i, selector: {deviceNames: [b]}}\n")
    ours = derive(Table.for_pools([pool("a", selector={"deviceNames": ["a.example/x"]}), pool("b")]), live)
    assert not aie_config.is_ours(live)
    assert aie_config.is_ours(ours)
    assert [rule.name for rule in aie_config.foreign_rules(ours, webhook_of(ours))] == ["theirs"]
    assert not aie_config.is_ours(released(ours))
    assert released(ours)["data"] == live["data"]
    edited = ours["data"][KEY].replace("a.example/x", "a.example/y")
    ours["data"][KEY] = edited
    assert [rule.name for rule in aie_config.foreign_rules(ours, webhook_of(ours))] == ["a", "theirs"], "another device"


def test_a_user_approves_our_rules_alone():
    table = Table.for_pools([pool()])
    one, other = config_map(), config_map("rules:\n- {name: theirs, image: i, selector: {deviceNames: [b]}}\n")
    parts = [aie_config.approved_part(derive(each, live)) for each, live in ((table, one), (table, other))]
    assert parts[0] == parts[1]
    assert aie_config.approved_part(derive(Table.for_pools([pool("rt")]), one)) != parts[0]
