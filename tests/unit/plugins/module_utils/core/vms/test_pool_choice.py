# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import random

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.observed.nodes import Node
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools.criteria import PodAttributes
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools.dialects import OWN, read_dialect
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms import pool_choice
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms.launcher_pods import LauncherPod, PodPlacement
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms.mapping import Table
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms.pool_choice import Rules
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders, launcher_cases, launcher_oracle

DEVICE = "nvidia.com/A100"
STOCK = builders.LAUNCHER_IMAGE
TAINT = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
GPU = builders.pool(
    "gpu",
    virtLauncherImage=builders.GPU_LAUNCHER_IMAGE,
    selector={"deviceNames": [DEVICE], "namespaces": ["demo"]},
    tolerations=[{"key": "gpu", "operator": "Exists"}],
)
RT = builders.pool("rt", selector={"vmLabels": {"matchLabels": {"class": "rt"}}})
HANDLER_ONLY = builders.pool("arm")


def attributes(namespace="demo", **fields):
    return PodAttributes(namespace=namespace, **fields)


def states(found):
    return {answer.pool: answer.state for answer in found.answers}


def node(name="n1", owner="gpu", devices=(DEVICE,), **fields):
    made = builders.node(name, owner, **fields)
    made["status"]["allocatable"] = {**dict.fromkeys(devices, "8"), "cpu": "64", "devices.kubevirt.io/kvm": "1k"}
    return Node.from_object(made)


def test_agrees_with_the_oracle_on_random_pods_and_pools():
    rng = random.Random(7)
    won = 0
    for number in range(600):
        pod = launcher_cases.random_pod(rng, f"p{number}")
        labels = launcher_cases.NAMESPACES[pod["metadata"]["namespace"]]
        raw = launcher_cases.random_pools(rng)
        images = launcher_cases.random_images(rng, raw)
        canaries = launcher_cases.random_canaries(rng, images)
        pools = read_dialect(OWN, raw)
        rules = Rules(Table.for_pools(pools, images, canaries), pools, STOCK)
        found = pool_choice.explain(rules, LauncherPod.from_object(pod, labels).attributes)
        expected = launcher_oracle.winner(raw, images, pod, labels)
        assert found.pool == (names.PRIMARY if expected is None else expected["name"])
        assert found.image == (launcher_oracle.image(expected, images, canaries, pod) or STOCK)
        _check_answers(found, raw, images)
        won += expected is not None
    assert 100 < won < 500


def _check_answers(found, raw, images):
    """Every pool has one answer, and its criteria agree with it."""
    assert sorted(answer.pool for answer in found.answers) == sorted(pool["name"] for pool in raw)
    assert [a.pool for a in found.answers if a.state == "wins"] == [found.pool] * (found.pool != names.PRIMARY)
    for answer in found.answers:
        restrictions = [c.met for c in answer.criteria if c.field == "selector.namespaces"]
        others = [c.met for c in answer.criteria if c.field != "selector.namespaces"]
        if answer.state == "no selector":
            assert not answer.criteria
        else:
            matches = all(restrictions) and any(others)
            assert matches == (answer.state in ("wins", "matches") or answer.why.endswith("it would match"))
        assert (answer.state in ("wins", "matches", "no match")) == (
            answer.pool in images and answer.state != "no selector"
        )


def test_a_pool_with_a_hypervisor_gives_it():
    mshv = builders.pool("mshv", hypervisor="hyperv-direct", selector={"deviceNames": [DEVICE]})
    rules = Rules(Table.for_pools([mshv]), stock_image=STOCK)
    found = pool_choice.explain(rules, attributes(devices=frozenset({DEVICE})))
    assert found.to_dict()["hypervisor"] == "hyperv-direct"
    assert " with hyperv-direct on nodes with virtpools.io/pool" in found.result()
    assert pool_choice.explain(rules, attributes()).to_dict()["hypervisor"] is None


class TestAnswers:
    def test_say_who_wins_and_why_the_others_lose(self):
        other = builders.pool("other", selector={"deviceNames": [DEVICE]})
        elsewhere = builders.pool("elsewhere", selector={"deviceNames": [DEVICE], "namespaces": ["prod"]})
        found = pool_choice.explain(
            Rules(Table.for_pools([elsewhere, GPU, RT, other]), (HANDLER_ONLY,)),
            attributes(devices=frozenset({DEVICE})),
        )
        assert {answer.pool: (answer.state, answer.why) for answer in found.answers} == {
            "elsewhere": ("no match", "it does not take VMs of this namespace"),
            "gpu": ("wins", "it is the first that matches"),
            "rt": ("no match", "no criterion is met"),
            "other": ("matches", "but pool gpu comes first"),
            "arm": ("no selector", "it changes the handler of its nodes, and takes no VM by itself"),
        }

    @pytest.mark.parametrize(
        ("labels", "would"), [({"class": "rt"}, "it would match"), ({}, "it would not match either")]
    )
    def test_tell_what_a_pool_would_do_that_is_not_active(self, labels, would):
        found = pool_choice.explain(
            Rules(Table.for_pools([GPU, RT], {"gpu": None}), (GPU, RT)), attributes(labels=labels)
        )
        assert states(found) == {"gpu": "no match", "rt": "not active"}
        assert found.answers[1].why.endswith(f"; {would}")

    def test_are_the_same_only_for_the_same_reasons(self):
        table = Table.for_pools([RT])
        none, other = (pool_choice.explain(Rules(table), attributes(labels=labels)) for labels in ({}, {"class": "x"}))
        assert none.answers != other.answers
        assert none.answers == pool_choice.explain(Rules(table), attributes(labels={"unrelated": "x"})).answers


class TestResult:
    def test_of_a_pool_without_an_image_of_its_own_is_kubevirts(self):
        found = pool_choice.explain(Rules(Table.for_pools([RT]), stock_image=STOCK), attributes(labels={"class": "rt"}))
        assert (
            found.result() == f"pool rt wins: KubeVirt's own launcher image {STOCK} on nodes with virtpools.io/pool=rt."
        )

    def test_of_a_vm_that_no_pool_takes_keeps_off_pool_nodes(self):
        found = pool_choice.explain(Rules(Table.for_pools([GPU])), attributes())
        assert found.result() == "no pool takes it: KubeVirt's own launcher image on nodes with no virtpools.io/pool."

    def test_without_any_mapping_is_any_node(self):
        found = pool_choice.explain(Rules(Table(()), (GPU,)), attributes())
        assert found.result() == "no pool takes it: KubeVirt's own launcher image on any node."
        assert found.to_dict()["requirement"] is None


class TestNodes:
    def fitting(self, *nodes, device=DEVICE, placement=None, table=None):
        found = pool_choice.explain(
            Rules(Table.for_pools([GPU]) if table is None else table),
            attributes(devices=frozenset({device, "devices.kubevirt.io/kvm", "memory"})),
            placement or PodPlacement({}, None, ()),
            {each.name: each for each in nodes},
        )
        return found.nodes

    def test_fit_with_the_owner_the_taints_and_the_devices(self):
        found = self.fitting(
            node("b", taints=[TAINT]),
            node("a"),
            node("rest-1", None),
            node("rest-2", None),
            node("without", devices=()),
            node("tainted", taints=[{**TAINT, "key": "other"}]),
        )
        assert found.fit == ("a", "b")
        assert found.unfit == (
            ("the node affinity asks for virtpools.io/pool=gpu", ("rest-1", "rest-2")),
            ("the node offers no nvidia.com/A100", ("without",)),
            ("the taint other=yes:NoSchedule is not tolerated", ("tainted",)),
        )
        assert str(found) == "2 nodes fit: a, b"

    def test_that_do_not_fit_say_why(self):
        found = self.fitting(node("a", devices=()), node("b", None))
        assert str(found) == (
            "no node fits: 1 because the node affinity asks for virtpools.io/pool=gpu; "
            "1 because the node offers no nvidia.com/A100"
        )
        assert str(self.fitting()) == "no node is known"

    def test_are_not_restricted_where_only_images_are_changed(self):
        found = pool_choice.explain(
            Rules(Table.for_pools([GPU]), places=False),
            attributes(devices=frozenset({DEVICE})),
            PodPlacement({}, None, ()),
            {each.name: each for each in (node("a"), node("b", None), node("c", taints=[TAINT]))},
        )
        assert (found.pool, found.requirement, found.nodes.fit) == ("gpu", None, ("a", "b"))

    def test_are_not_restricted_without_a_mapping(self):
        assert self.fitting(node("a"), node("b", None), table=Table(())).fit == ("a", "b")

    def test_in_the_data_are_counted_and_a_few_are_named(self):
        found = self.fitting(*(node(f"n{number:02}") for number in range(50)), node("rest", None)).to_dict()
        assert (found["count"], len(found["names"]), found["against"][0]["count"]) == (50, 20, 1)


class TestLines:
    def test_show_every_criterion_and_what_the_vms_owner_decides(self):
        found = pool_choice.explain(
            Rules(Table.for_pools([GPU, RT]), (HANDLER_ONLY,), STOCK),
            attributes(
                namespace_labels={"tier": "gold", "kubernetes.io/metadata.name": "demo"},
                devices=frozenset({DEVICE, "devices.kubevirt.io/kvm", "memory"}),
                labels={"app": "x", "kubevirt.io": "virt-launcher", "vm.kubevirt.io/name": "vm"},
                node_selector={"zone": "a", "kubevirt.io/schedulable": "true", "kubernetes.io/arch": "amd64"},
            ),
        )
        assert found.lines() == [
            "Its launcher pod asks for:",
            "  namespace demo (tier=gold)",
            "  devices: nvidia.com/A100",
            "  labels: app=x",
            "  nodeSelector: kubernetes.io/arch=amd64, zone=a",
            "Pools (the first that matches wins):",
            "  1. gpu: WINS, it is the first that matches",
            "       yes: selector.namespaces asks for one of demo; the VM has demo",
            "       yes: selector.deviceNames asks for one of nvidia.com/A100; the VM has nvidia.com/A100",
            "  2. rt: no match, no criterion is met",
            "       no: selector.vmLabels asks for class=rt; the VM has no class",
            "  - arm: no selector, it changes the handler of its nodes, and takes no VM by itself",
            f"Result: pool gpu wins: {builders.GPU_LAUNCHER_IMAGE} on nodes with virtpools.io/pool=gpu.",
        ]

    def test_stay_one_page_with_many_pools(self):
        many = [builders.pool(f"p{number}", selector={"deviceNames": [f"x/d{number}"]}) for number in range(200)]
        found = pool_choice.explain(Rules(Table.for_pools([*many, GPU])), attributes(devices=frozenset({DEVICE})))
        lines = found.lines()
        assert len(lines) < 80
        assert "  201. gpu: WINS, it is the first that matches" in lines
        assert "  and 170 more pools that do not match" in lines
        assert len(found.to_dict()["pools"]) == 201


def test_says_what_makes_a_canary_different():
    rules = Rules(Table.for_pools([GPU], canaries={"gpu": "registry.example/new"}), (GPU,))
    found = pool_choice.explain(rules, attributes(devices={DEVICE}, labels={names.CANARY_LABEL: "gpu"}))
    (answer,) = found.answers
    assert answer.why == (
        "it is the first that matches, and the label virtpools.io/canary gives the VM its new launcher image before other VMs "
        "get it"
    )
    assert found.image == "registry.example/new"
    other = pool_choice.explain(rules, attributes(devices={DEVICE}))
    assert (other.answers[0].why, other.image) == ("it is the first that matches", GPU.virt_launcher_image)
