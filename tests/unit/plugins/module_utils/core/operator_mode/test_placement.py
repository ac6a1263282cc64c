# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where handlers run by a build's rule: compared with the DaemonSets that the operators of these builds make."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.observed.nodes import Node
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.operator_mode import placement
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.operator_mode.builds import BUILDS
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.operator_mode.placement import Placement
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders, fake_operator_mode
from ansible_collections.virtpools.kubevirt.tests.unit.support.fake_operator_mode import OperatorModeWorld

NAMES = {"A": "additionalVirtHandlers", "B": "virtHandlerPools", "C": "WorkerPool"}
TAINT = {"key": "special", "effect": "NoSchedule"}
ZONE = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}


def found(labels, *, taints=(), pools=(), placement_of=None, build="B", handlers=()):
    """The findings on a cluster with these nodes and pools, and where handlers then run."""
    nodes = [builders.node(f"n{i}", labels=each, taints=taints) for i, each in enumerate(labels, 1)]
    of_kubevirt = builders.kubevirt(placement=placement_of) if placement_of else builders.kubevirt()
    stock = fake_operator_mode.primary()
    snapshot = builders.build_snapshot(of_kubevirt, daemonsets=[stock], nodes=nodes, pods=handlers)
    parsed = [builders.pool(f"p{i}", nodeSelector=selector) for i, selector in enumerate(pools, 1)]
    layout = placement.layout_for(BUILDS[NAMES[build]], snapshot, stock, parsed)
    placed = Placement.from_layout(layout, snapshot)
    return list(placement.findings(snapshot, layout, parsed, placed)), placed


@pytest.fixture(params=["A", "B", "C"])
def build(request):
    return request.param


class TestFindings:
    def test_none_where_each_node_has_its_one_handler(self, build):
        findings, placed = found([{"hw": "gpu"}, {}], pools=[{"hw": "gpu"}], build=build)
        assert findings == []
        assert placed.owners == {"n1": ("p1",), "n2": (names.PRIMARY,)}

    def test_nodes_with_one_of_several_labels_would_have_no_handler(self, build):
        labels = [{"hw": "gpu", "disk": "ssd"}, {"disk": "ssd"}, {}]
        findings, placed = found(labels, pools=[{"hw": "gpu", "disk": "ssd"}], build=build)
        text = builders.message(findings, "operator_no_handler")
        assert "1 node would have no handler (n2): this build keeps the primary off every node with disk=ssd" in text
        assert placed.bare == ("n2",)
        assert builders.codes(findings, "warning") == ["operator_several_labels"]

    def test_several_labels_are_a_warning_if_no_node_has_only_some(self, build):
        findings, _placed = found([{"hw": "gpu", "disk": "ssd"}, {}], pools=[{"hw": "gpu", "disk": "ssd"}], build=build)
        assert builders.codes(findings) == ["operator_several_labels"]

    def test_nodes_of_two_pools(self, build):
        pools = [{"hw": "gpu"}, {"disk": "ssd"}]
        findings, placed = found(
            [{"hw": "gpu", "disk": "ssd"}, {"hw": "gpu"}, {"disk": "ssd"}, {}], pools=pools, build=build
        )
        assert "1 node would get a handler of each of p1, p2 (n1)" in builders.message(
            findings, "operator_two_handlers"
        )
        assert builders.codes(findings, "warning") == ["operator_overlap_possible"]
        assert placed.crowded == ("n1",)

    def test_nodes_that_were_tainted_while_their_handler_ran(self, build):
        labels, pools = [{"hw": "gpu"}, {}, {}], [{"hw": "gpu"}]
        handlers = [builders.handler_pod("n2")]
        assert found(labels, taints=[TAINT], pools=pools, build=build)[1].bare == ()
        assert found(labels, taints=[TAINT], pools=pools, build=build, handlers=handlers)[1].bare == ("n2",)

    def test_a_few_of_many_possible_overlaps_are_named(self):
        pools = [{key: "yes"} for key in "abcd"]
        text = builders.message(found([{}], pools=pools)[0], "operator_overlap_possible")
        assert "p1 and p2, p1 and p3, p1 and p4, p2 and p3, p2 and p4 and 1 more pair. Let" in text
        assert "more" not in builders.message(found([{}], pools=pools[:3])[0], "operator_overlap_possible")

    @pytest.mark.parametrize(("labels", "owner"), [([{}], "Pool p1"), ([{"hw": "gpu"}], "The primary virt-handler")])
    def test_an_owner_without_a_node(self, build, labels, owner):
        findings, _placed = found(labels, pools=[{"hw": "gpu"}], build=build)
        assert f"{owner} would have no node" in builders.message(findings, "operator_owner_empty")

    def test_a_taint_that_the_pool_does_not_tolerate(self):
        tolerated = {"tolerations": [{"key": "special", "operator": "Exists"}]}
        nodes = [{"hw": "gpu"}, {}]
        stock = fake_operator_mode.primary()
        stock["spec"]["template"]["spec"]["tolerations"] += tolerated["tolerations"]
        given_nodes = [builders.node(f"n{i}", labels=each, taints=[TAINT]) for i, each in enumerate(nodes, 1)]
        snapshot = builders.build_snapshot(
            builders.kubevirt(placement=tolerated), daemonsets=[stock], nodes=given_nodes, pods=[]
        )
        pools = [builders.pool("p1", nodeSelector={"hw": "gpu"})]
        seen = {}
        for name, of_build in NAMES.items():
            layout = placement.layout_for(BUILDS[of_build], snapshot, stock, pools)
            placed = Placement.from_layout(layout, snapshot)
            seen[name] = builders.codes(placement.findings(snapshot, layout, pools, placed))
        # A ignores spec.workloads for its pools.
        assert seen == {"A": ["operator_no_handler", "operator_owner_empty"], "B": [], "C": []}

    @pytest.mark.parametrize(
        ("build", "codes"), [("A", []), ("B", ["operator_two_handlers"]), ("C", ["operator_two_handlers"])]
    )
    def test_required_terms_defeat_the_exclusion_of_some_builds(self, build, codes):
        labels = [{"hw": "gpu", "zone": "a"}, {"zone": "a"}]
        findings, _placed = found(
            labels, pools=[{"hw": "gpu"}], placement_of={"affinity": builders.affinity(ZONE)}, build=build
        )
        assert builders.codes(findings) == codes
        if codes:
            assert "defeat this build's exclusion" in builders.message(findings, "operator_two_handlers")

    @pytest.mark.parametrize(
        ("name", "kind"),
        [("virt-handler", "DaemonSet"), ("*", "DaemonSet"), ("virt-handler", "daemonset"), ("Virt-Handler", "*")],
    )
    def test_a_patch_of_the_primarys_place(self, build, name, kind):
        patch = {
            "resourceName": name,
            "resourceType": kind,
            "type": "strategic",
            "patch": '{"affinity":{}}',
        }
        nodes = [builders.node("n1", labels={"hw": "gpu"}), builders.node("n2")]
        stock = fake_operator_mode.primary()
        snapshot = builders.build_snapshot(builders.kubevirt(patch), daemonsets=[stock], nodes=nodes, pods=[])
        pools = [builders.pool("p1", nodeSelector={"hw": "gpu"})]
        of_build = BUILDS[NAMES[build]]
        layout = placement.layout_for(of_build, snapshot, stock, pools)
        findings = list(placement.findings(snapshot, layout, pools, Placement.from_layout(layout, snapshot)))
        assert builders.codes(findings) == ["operator_primary_patched"]

    def test_a_patch_of_another_component(self, build):
        patch = {
            "resourceName": "virt-api",
            "resourceType": "Deployment",
            "type": "strategic",
            "patch": '{"affinity":{}}',
        }
        nodes = [builders.node("n1", labels={"hw": "gpu"}), builders.node("n2")]
        stock = fake_operator_mode.primary()
        snapshot = builders.build_snapshot(builders.kubevirt(patch), daemonsets=[stock], nodes=nodes, pods=[])
        assert list(placement._patched(snapshot)) == []


LABELS = st.dictionaries(st.sampled_from(("hw", "disk", "zone")), st.sampled_from(("a", "b")))
SELECTORS = st.lists(LABELS.filter(bool), min_size=1, max_size=3)
TERMS = st.sampled_from([(), (ZONE,), (ZONE, {"matchExpressions": [{"key": "disk", "operator": "Exists"}]})])


@given(
    build=st.sampled_from("ABC"),
    labels=st.lists(LABELS, min_size=1, max_size=5),
    selectors=SELECTORS,
    terms=TERMS,
    selected=st.sampled_from([{}, {"zone": "a"}]),
    tolerates=st.booleans(),
    tainted=st.booleans(),
)
def test_handlers_run_where_the_operators_daemonsets_put_them(
    build, labels, selectors, terms, selected, tolerates, tainted
):
    placement_of = {
        **({"affinity": builders.affinity(*terms)} if terms else {}),
        **({"nodeSelector": selected} if selected else {}),
        **({"tolerations": [{"key": "special", "operator": "Exists"}]} if tolerates else {}),
    }
    of_kubevirt = builders.kubevirt(placement=placement_of)
    nodes = [builders.node(f"n{i}", labels=each, taints=[TAINT] if tainted else ()) for i, each in enumerate(labels)]
    world = OperatorModeWorld(build, of_kubevirt, fake_operator_mode.primary(), *nodes)
    raw = {f"p{i}": {"nodeSelector": selector, "virtHandlerImage": "x"} for i, selector in enumerate(selectors)}
    # The live primary of a cluster without pools.
    stock = world.find(kinds.DAEMON_SET, names.HANDLER, builders.NAMESPACE)
    stock["spec"] = world._primary_spec(of_kubevirt, {})
    sets = {names.PRIMARY: {"metadata": {"name": names.HANDLER}, "spec": world._primary_spec(of_kubevirt, raw)}}
    sets.update({name: world._daemonset(name, pool, of_kubevirt) for name, pool in raw.items()})
    parsed = [builders.pool(name, nodeSelector=pool["nodeSelector"]) for name, pool in raw.items()]
    snapshot = builders.build_snapshot(of_kubevirt, daemonsets=[stock], nodes=nodes, pods=[])
    layout = placement.layout_for(BUILDS[NAMES[build]], snapshot, stock, parsed)
    fits = {name: world.fits(daemonset) for name, daemonset in sets.items()}
    for node in nodes:
        expected = tuple(name for name, on_nodes in fits.items() if on_nodes[node["metadata"]["name"]].wanted)
        assert layout.runners(Node.from_object(node)) == expected
