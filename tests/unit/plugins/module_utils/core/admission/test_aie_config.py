# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rules of kubevirt-aie-webhook: how they express a table, what they cannot express, and whose they are."""

from __future__ import annotations

import copy
import json

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.admission import aie_config
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.findings import InputErrors
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools.dialects import (
    AIE,
    read_dialect,
    read_manifest,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms import mapping
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms.mapping import Table
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders

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
        "data": {aie_config.KEY: text},
    }


def rules(obj):
    return json.loads(obj["data"][aie_config.KEY])["rules"]


def test_rules_are_the_tables_in_its_order():
    table = Table.for_pools([pool("z"), pool("a", selector={"deviceNames": ["vendor.example/b"]})])
    made = rules(aie_config.derive(table, config_map()))
    assert made == [
        {"name": "z", "image": f"{builders.LAUNCHER_IMAGE}-z", "selector": {"deviceNames": DEVICES}},
        {"name": "a", "image": f"{builders.LAUNCHER_IMAGE}-a", "selector": {"deviceNames": ["vendor.example/b"]}},
    ]
    assert not list(aie_config.check(Table.for_pools([]))), "a table without pools has nothing to say"


def test_pools_that_are_not_active_get_no_rule():
    pools = [pool("gpu"), pool("rt")]
    made = aie_config.derive(Table.for_pools(pools, {"rt": "registry.example/virt-launcher:v1.9.0-old"}), config_map())
    assert [(rule["name"], rule["image"]) for rule in rules(made)] == [
        ("rt", "registry.example/virt-launcher:v1.9.0-old")
    ]


def test_the_rest_of_the_config_map_stays_as_it_is():
    live = config_map(annotations={"theirs": "1"})
    live["data"]["other"] = "kept"
    before = copy.deepcopy(live)
    made = aie_config.derive(Table.for_pools([pool()]), live)
    assert live == before
    assert made["metadata"]["labels"] == live["metadata"]["labels"]
    assert made["metadata"]["annotations"].keys() == {"theirs", names.POLICY_ANNOTATION, names.MAPPING_ANNOTATION}
    assert made["data"]["other"] == "kept"
    after = aie_config.released(made)
    assert rules(after) == []
    assert after["metadata"].pop("resourceVersion", None) is None, "a plan would depend on it"
    del before["metadata"]["resourceVersion"]
    assert {**after, "data": None} == {**before, "data": None}
    assert (
        "annotations" not in aie_config.released(aie_config.derive(Table.for_pools([pool()]), config_map()))["metadata"]
    )


def test_the_annotation_tells_the_table():
    table = Table.for_pools([pool("gpu"), pool("rt", unmatched="keep_off")])
    made = aie_config.derive(table, config_map())
    assert mapping.restore(made["metadata"]["annotations"][names.MAPPING_ANNOTATION]) == table


def test_the_digest_follows_the_rules():
    def digest(*pools):
        made = aie_config.derive(Table.for_pools(pools), config_map())
        return made["metadata"]["annotations"][names.POLICY_ANNOTATION]

    assert digest(pool("a"), pool("b")) == digest(pool("a"), pool("b"))
    assert digest(pool("a"), pool("b")) != digest(pool("b"), pool("a"))


def test_a_table_too_long_for_an_annotation_is_left_out(monkeypatch):
    monkeypatch.setattr(Table, "to_text", lambda self: "")
    made = aie_config.derive(Table.for_pools([pool()]), config_map())
    assert made["metadata"]["annotations"].keys() == {names.POLICY_ANNOTATION}


def test_the_dialect_reads_the_rules_but_not_foreign_nodes():
    given = [pool("gpu"), pool("rt", selector={"deviceNames": ["vendor.example/rt"]})]
    made = aie_config.derive(Table.for_pools(given), config_map())
    with pytest.raises(InputErrors) as caught:
        read_manifest([made], json.loads)
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


def test_a_pool_without_a_launcher_needs_a_rule_without_an_image():
    found = list(aie_config.check(Table.for_pools([pool(image=False)])))
    assert "give virtLauncherImage," in builders.message(found, "aie_cannot_express")


def test_unmatched_vms_cannot_be_kept_off():
    table = Table.for_pools([pool("a"), pool("b", unmatched="keep_off"), pool("c", unmatched="keep_off")])
    found = list(aie_config.check(table))
    assert builders.codes(found, "error") == ["aie_cannot_keep_off"]
    assert "nodes of b, c;" in builders.message(found, "aie_cannot_keep_off")


@pytest.mark.parametrize("text", ["", "rules:\n", "rules: []", '{"rules":[]}', "{}\n", "rules: null\n"])
def test_a_config_map_without_rules_is_taken(text):
    live = config_map(text)
    assert aie_config.foreign(live) is None
    assert not aie_config.is_ours(live)
    assert aie_config.foreign({**live, "data": None}) is None


def test_rules_of_others_are_refused_and_ours_known_again():
    theirs = config_map(
        "rules:\n- name: gpu\n  image: registry.example/l:1\n  selector: {deviceNames: [a.example/b]}\n"
    )
    found = aie_config.foreign(theirs)
    assert found is not None
    assert found.severity == "error"
    assert found.message.startswith("ConfigMap kubevirt/kubevirt-aie-launcher-config holds rules")
    ours = aie_config.derive(Table.for_pools([pool()]), config_map())
    assert aie_config.is_ours(ours)
    assert aie_config.foreign(ours) is None
    assert aie_config.foreign(aie_config.released(ours)) is None
