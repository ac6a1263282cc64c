# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.admission import guard
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.checks import state
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders, vms

GPU = builders.pool("gpu")
GUARD = [obj for _kind, obj in guard.derive(builders.NAMESPACE, ())]


TAINT = {"key": "a", "effect": "NoSchedule"}


def hw(name, owner=None, former=None, **fields):
    return builders.node(name, owner, former, {"hw": "gpu"}, **fields)


def examined(nodes, pools=(GPU,), **others):
    return state.examine(builders.snapshot_of(nodes, pools, **others))


def codes(*args, **others):
    return builders.codes(examined(*args, **others).findings)


def test_nothing_is_found_where_everything_is_as_it_should_be():
    found = examined([hw("n1", "gpu"), builders.node("n2")])
    assert found.findings == ()
    assert found.excluded
    assert (found.in_transit, found.version) == ((), builders.VERSION)


CORDONED = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("fields", "code", "severity"),
    [
        ({"schedulable": False}, "not_schedulable", "error"),
        ({"heartbeat": builders.heartbeat(1000)}, "heartbeat_old", "error"),
        ({"ready": False}, "node_not_ready", "warning"),
        ({"taints": [CORDONED]}, "node_cordoned", "warning"),
    ],
)
def test_nodes_of_pools_on_which_no_vm_starts(fields, code, severity):
    now = builders.heartbeat(1301)
    rest = builders.node("rest", heartbeat=now)
    found = examined([hw("n1", "gpu", **{"heartbeat": now, **fields}), rest]).findings
    assert [(finding.code, finding.severity) for finding in found] == [(code, severity)]
    assert "n1" in found[0].message
    assert examined([hw("n1", heartbeat=now), builders.node("rest", **{"heartbeat": now, **fields})], []).findings == ()


def test_a_heartbeat_may_be_old_for_as_long_as_kubevirt_waits():
    nodes = [
        hw("n1", "gpu", heartbeat=builders.heartbeat(1000)),
        builders.node("n2", heartbeat=builders.heartbeat(1300)),
    ]
    assert examined(nodes).findings == ()


def test_neither_clock_alone_makes_a_heartbeat_old():
    first = builders.snapshot_of([hw("n1", "gpu", heartbeat=builders.heartbeat(1000))], [GPU])
    assert state.examine(dataclasses.replace(first, read_at=5000)).findings == ()
    nodes = [
        hw("n1", "gpu", heartbeat=builders.heartbeat(1000)),
        builders.node("n2", heartbeat=builders.heartbeat(5000)),
    ]
    second = builders.snapshot_of(nodes, [GPU])
    assert state.examine(dataclasses.replace(second, read_at=1100)).findings == ()


def test_a_handler_that_has_just_started_may_be_about_to_report():
    found = builders.snapshot_of([hw("n1", "gpu", schedulable=False), builders.node("n2")], [GPU])
    assert state.examine(dataclasses.replace(found, read_at=builders.STARTED + 120)).findings == ()
    assert builders.codes(state.examine(dataclasses.replace(found, read_at=builders.STARTED + 121)).findings) == [
        "not_schedulable"
    ]


def test_an_active_pool_without_nodes_is_a_warning():
    active = vms.admission(*vms.policy())
    pools, nodes = [vms.gpu()], [builders.node("n2")]
    found = examined(nodes, pools, admission=active).findings
    assert [(finding.code, finding.severity) for finding in found] == [("pool_without_nodes", "warning")]
    assert "Pool gpu takes VMs and has no node" in found[0].message
    assert examined(nodes, pools, admission=vms.admission()).findings == ()


def test_owners_are_the_primary_and_every_pool():
    found = examined([hw("n1", "gpu"), hw("n2", "gpu"), builders.node("n3")])
    assert [(owner.name, owner.daemonset, owner.nodes) for owner in found.owners] == [
        ("primary", "virt-handler", 1),
        ("gpu", "virt-handler-gpu", 2),
    ]
    assert found.owners[1].handler_image == f"{builders.HANDLER_IMAGE}-gpu"
    assert found.owners[0].to_dict()["desired"] == 3
    assert [owner.hypervisor for owner in found.owners] == ["kvm", "kvm"]


def test_a_pool_may_have_a_hypervisor_of_its_own():
    pool = vms.gpu(hypervisor="hyperv-direct")
    assert [owner.hypervisor for owner in examined([hw("n1", "gpu")], [pool]).owners] == ["kvm", "hyperv-direct"]


def test_a_node_of_the_control_plane_is_no_node_of_the_primary():
    nodes = [builders.node(), builders.node("n2", taints=[TAINT], heartbeat=None)]
    found = examined(nodes, pods=[builders.handler_pod("n1")])
    assert ([owner.nodes for owner in found.owners], found.findings) == ([1, 0], ())


def test_stock_kubevirt_without_pools_is_fine():
    found = state.examine(builders.fresh_snapshot([builders.node()]))
    assert (found.findings, found.excluded) == ((), False)


def test_before_virt_handler_exists():
    found = state.examine(builders.build_snapshot(nodes=[builders.node()]))
    assert found.owners == ()
    assert "kubevirt_not_deployed" in builders.codes(found.findings)


class TestHandlers:
    def test_missing(self):
        text = builders.message(examined([hw("n1", "gpu")], pods=[]).findings, "no_handler")
        assert text == "1 node has no handler pod: n1."

    def test_missing_on_a_pools_node_that_was_tainted_since(self):
        text = builders.message(examined([hw("n1", "gpu", taints=[TAINT])], pods=[]).findings, "no_handler")
        assert text == "1 node has no handler pod: n1 (taint a=:NoSchedule is not tolerated)."

    def test_lost_on_a_node_of_the_primary_that_was_tainted_since(self):
        (found,) = examined([builders.node("n1", taints=[TAINT])], pods=[]).findings
        assert (found.severity, found.code) == ("warning", "handler_lost")
        assert (
            "1 node has lost the handler, which will not be recreated: n1 (taint a=:NoSchedule is not tolerated)"
            in found.message
        )

    def test_missing_on_a_node_of_the_primary(self):
        assert codes([builders.node()], pods=[]) == ["no_handler"]

    @pytest.mark.parametrize("label", ["", "primary", "ghost"])
    def test_missing_where_the_label_names_no_pool(self, label):
        assert codes([builders.node("n1", label)], pods=[]) == ["no_handler", "owner_unknown"]

    def test_doubled(self):
        pods = [builders.handler_pod("n1"), builders.handler_pod("n1", "virt-handler-gpu", terminating=True)]
        assert codes([builders.node()], pods=pods) == ["two_handlers"]

    def test_beside_one_that_has_ended_is_alone(self):
        """Its DaemonSet creates the next one a moment before the kubelet lets the object go."""
        ended = builders.handler_pod("n1", name="ended", terminating=True)
        ended["status"]["phase"] = "Failed"
        assert codes([builders.node()], pods=[ended, builders.handler_pod("n1")]) == []

    def test_of_another_owner(self):
        assert codes([hw("n1", "gpu")], pods=[builders.handler_pod("n1")]) == ["wrong_handler"]

    def test_not_ready(self):
        pods = [builders.handler_pod("n1", ready=False, waiting="ImagePullBackOff")]
        text = builders.message(examined([builders.node()], pods=pods).findings, "handler_not_ready")
        assert "n1 (container virt-handler: ImagePullBackOff (it says why))" in text

    def test_not_ready_on_a_dead_node_is_the_nodes_problem(self):
        pods = [builders.handler_pod("n1", ready=False)]
        assert codes([builders.node(ready=False)], pods=pods) == []


class TestUnfinished:
    def test_in_transit(self):
        found = examined([hw("n1", names.IN_TRANSIT, "primary")], pods=[])
        assert found.in_transit == ("n1",)
        assert builders.codes(found.findings) == ["in_transit"]

    def test_never_proven(self):
        assert codes([hw("n1", "gpu", "primary")]) == ["handover_unfinished"]

    @pytest.mark.parametrize("owner", [names.IN_TRANSIT, "gpu"])
    def test_is_finished_by_the_playbook_that_stopped(self, owner):
        """Run `site` after a stopped `rollout`, and all other nodes follow in one wave. A reader of `verify` ran that last."""
        pods = [] if owner == names.IN_TRANSIT else None
        (finding,) = examined([hw("n1", owner, "primary")], pods=pods).findings
        assert finding.message.endswith("; unless a run is under way, run the playbook that stopped again to finish.")

    def test_launchers_that_refuse_what_kubevirt_passes(self):
        old = vms.gpu(virtLauncherImage="registry.example/virt-launcher:v1.7.0-gpu")
        found = [
            state.examine(
                builders.snapshot_of(vms.nodes(), [old], admission=vms.admission(*vms.policy(of_policy)))
            ).findings
            for of_policy in (vms.gpu(), old)
        ]
        # While the launcher policy still has the former image, VMs start.
        assert [[each.code for each in each_found] for each_found in found] == [[], ["launcher_refuses_arguments"]]

    def test_pull_pods_left(self):
        pod = builders.pull_pod("n1")
        assert codes([builders.node()], pods=[builders.handler_pod("n1"), pod]) == ["pull_pods_left"]


class TestDrift:
    def test_of_a_daemonset(self):
        live = builders.pool_daemonset(GPU)
        live["spec"]["template"]["spec"]["containers"][0]["image"] = "other"
        found = examined([builders.node()], [], more=[live])
        assert "containers[virt-handler].image" in builders.message(found.findings, "daemonset_drift")

    def test_of_a_daemonset_after_an_upgrade(self):
        old = builders.primary()
        old["spec"]["template"]["spec"]["containers"][0]["args"] = ["--old"]
        assert codes([builders.node()], [], more=[builders.pool_daemonset(GPU, old)]) == ["daemonset_drift"]

    def test_that_cannot_be_told(self):
        live = builders.pool_daemonset(GPU)
        live["metadata"]["annotations"] = {}
        assert codes([builders.node()], [], more=[live]) == ["pool_unreadable"]

    def test_of_a_node_that_joined_later(self):
        text = builders.message(examined([hw("n1"), builders.node("n2")]).findings, "node_drift")
        assert "belongs to the primary (n1)" in text

    def test_of_a_node_that_lost_its_labels(self):
        text = builders.message(examined([builders.node("n1", "gpu")]).findings, "node_drift")
        assert "1 node belongs to pool gpu without the labels that it selects (n1)" in text


def test_a_primary_that_lost_the_exclusion_is_an_error():
    found = examined([builders.node()], of_primary=builders.primary(excluded=False))
    assert "exclusion_missing" in builders.codes(found.findings, "error")


def test_an_exclusion_missing_in_the_kubevirt_object_is_outdated():
    """The primary still has it: somebody has just taken it out."""
    found = examined([hw("n1", "gpu")], of_kubevirt=builders.kubevirt())
    assert builders.message(found.findings, "exclusion_outdated") == (
        "KubeVirt kubevirt/kubevirt has changed since the exclusion was written there (spec.customizeComponents.patches), as by "
        "another nodePlacement: the primary virt-handler is about to lose the exclusion; run site."
    )


def test_a_placement_that_changed_under_hco_is_not_followed_yet():
    """KubeVirt has the exclusion, with the terms of before."""
    zone = {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}
    kubevirt, hyperconverged = builders.under_hco(
        builders.excluding_kubevirt(), zone, operations=[builders.hco_exclusion()]
    )
    found = examined([hw("n1", "gpu")], of_kubevirt=kubevirt, hyperconvergeds=[hyperconverged])
    message = builders.message(found.findings, "exclusion_outdated")
    assert message.startswith("HyperConverged kubevirt/kubevirt-hyperconverged has changed since")
    assert message.endswith("the primary virt-handler follows the former one until then; run site.")


class TestAnnotationReplaced:
    """Somebody has set another patch as HCO's documentation says, which replaces ours (seen on the real one)."""

    THEIRS: t.ClassVar = {"op": "add", "path": "/spec/configuration/evictionStrategy", "value": "None"}

    def examined(self, *, excluded, guarded):
        kubevirt, hyperconverged = builders.under_hco(builders.kubevirt(), operations=[self.THEIRS])
        return examined(
            [hw("n1", "gpu")],
            of_primary=builders.primary(excluded=excluded),
            of_kubevirt=kubevirt,
            hyperconvergeds=[hyperconverged],
            admission=vms.admission(*(GUARD if guarded else ()), validating=True),
        )

    @pytest.mark.parametrize(
        ("excluded", "guarded", "effect"),
        [
            (True, True, "only the guard keeps virt-handler off pool nodes, and KubeVirt and HCO are Degraded"),
            (True, False, "virt-handler is about to run on pool nodes, too"),
            (False, False, "virt-handler also runs on pool nodes"),
        ],
    )
    def test_is_the_first_finding(self, excluded, guarded, effect):
        first = self.examined(excluded=excluded, guarded=guarded).findings[0]
        assert (first.severity, first.code) == ("error", "exclusion_overwritten")
        assert first.message == (
            "The annotation kubevirt.kubevirt.io/jsonpatch of HyperConverged kubevirt/kubevirt-hyperconverged no longer has this "
            "collection's operation: it was replaced as a whole, as by kubectl annotate --overwrite. "
            f"Now {effect}; run site. Append to that annotation instead of replacing it."
        )

    def test_is_no_change_of_ours(self):
        assert "own_change_settling" not in builders.codes(self.examined(excluded=True, guarded=True).findings)


def test_an_annotation_that_cannot_be_edited_is_an_error():
    theirs = {"op": "add", "path": "/spec/workloads/nodePlacement/tolerations", "value": []}
    kubevirt, hyperconverged = builders.under_hco(
        builders.excluding_kubevirt(), operations=[builders.hco_exclusion(), theirs]
    )
    found = examined([hw("n1", "gpu")], of_kubevirt=kubevirt, hyperconvergeds=[hyperconverged])
    assert "builds on operation 0" in builders.message(found.findings, "exclusion_edit_impossible")
