# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kubevirt import exclusion, preflight
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.observed.operator_api import OperatorApi
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders

GPU = builders.pool("gpu")


def checked(snapshot, pools=(GPU,)):
    edit = exclusion.with_exclusion(snapshot.kubevirt, snapshot.hyperconverged)
    return list(preflight.check(snapshot, pools, edit))


def codes(*args, severity=None, **options):
    return builders.codes(checked(*args, **options), severity)


class TestUnderHco:
    """Advice that HCO would revert is none."""

    def snapshot(self, nodes=(), **hco):
        kubevirt, hyperconverged = builders.under_hco(builders.kubevirt(), **hco)
        return builders.snapshot_of(
            nodes or [builders.node()],
            of_kubevirt=kubevirt,
            of_primary=builders.primary(excluded=False),
            hyperconvergeds=[hyperconverged],
            pods=[builders.handler_pod("n1")],
        )

    def test_what_the_annotation_brings_with_it_is_said_once(self):
        (said,) = (each for each in checked(self.snapshot(), ()) if each.code == "hco_tainted")
        assert said.severity == "note"
        assert "TaintedConfiguration" in said.message
        assert "UnsupportedHCOModification" in said.message
        assert "hco_tainted" not in codes(self.snapshot(operations=[builders.hco_exclusion()]), ())

    def test_a_placement_is_changed_where_hco_has_it(self):
        tainted = builders.node(taints=[{"key": "a", "effect": "NoSchedule"}])
        message = builders.message(checked(self.snapshot([tainted]), ()), "exclusion_would_end_handlers")
        assert "let virt-handler tolerate it (spec.deployment.nodePlacements.workload of HyperConverged" in message

    def test_an_interrupted_run_is_continued_when_hco_has_not_acted(self):
        assert preflight.own_change_settling(self.snapshot(operations=[builders.hco_exclusion()]))
        assert not preflight.own_change_settling(self.snapshot())

    def test_without_virt_handler_there_is_no_run_to_continue(self):
        kubevirt, hyperconverged = builders.under_hco(builders.kubevirt(), operations=[builders.hco_exclusion()])
        lost = builders.build_snapshot(kubevirt, hyperconvergeds=[hyperconverged])
        assert not preflight.own_change_settling(lost)

    def test_an_hco_that_does_not_reconcile_stops_the_run(self):
        kubevirt, hyperconverged = builders.under_hco(builders.kubevirt())
        hyperconverged["status"] = {"conditions": [{"type": "ReconcileComplete", "status": "False", "reason": "Bad"}]}
        found = builders.snapshot_of([builders.node()], of_kubevirt=kubevirt, hyperconvergeds=[hyperconverged])
        assert "hco_not_reconciling" in builders.codes(preflight.fitness(found), "error")


@pytest.mark.parametrize("excluded", [True, False])
def test_a_refusal_by_the_guard_that_is_over_is_waited_for(excluded):
    """virt-operator has acted, and reports what it was refused up to its next sync (seen with KubeVirt's own)."""
    kubevirt = (builders.excluding_kubevirt if excluded else builders.kubevirt)(conditions={"Degraded": "True"})
    for condition in kubevirt["status"]["conditions"]:
        condition["message"] = f"ValidatingAdmissionPolicy '{names.EXCLUSION_GUARD}' denied request"
    snapshot = builders.snapshot_of(of_kubevirt=kubevirt, of_primary=builders.primary(excluded=excluded))
    assert preflight.own_change_settling(snapshot)
    assert builders.codes(preflight.fitness(snapshot)) == ["own_change_settling"]
    with_pools = builders.snapshot_of(pools=[GPU], of_kubevirt=kubevirt, of_primary=builders.primary(excluded=excluded))
    told = builders.codes(preflight.fitness(with_pools))
    assert told == (["own_change_settling"] if excluded else []), "a removal takes it away only after the nodes"


class TestFitness:
    def test_of_a_settled_kubevirt(self):
        assert codes(builders.snapshot_of([builders.node()], [GPU])) == []
        assert codes(builders.fresh_snapshot([builders.node()])) == []

    def test_of_one_that_is_degraded(self):
        snapshot = builders.snapshot_of(of_kubevirt=builders.excluding_kubevirt(conditions={"Degraded": "True"}))
        assert codes(snapshot, severity="error") == ["kubevirt_degraded"]

    def test_of_one_that_waits_for_dead_nodes_only(self):
        dead = builders.excluding_kubevirt(conditions={"Available": "False"})
        snapshot = builders.snapshot_of(
            [builders.node(), builders.node("dead", ready=False)],
            of_kubevirt=dead,
            of_primary=builders.primary(desired=2, ready=1),
        )
        assert codes(snapshot) == ["kubevirt_waits_for_unready_nodes"]
        assert codes(snapshot.limited_to(["n1"])) == ["kubevirt_waits_for_unready_nodes"], (
            "a batch without the dead node, too"
        )

    def test_of_one_that_waits_for_a_handler_on_a_good_node_as_well(self):
        dead = builders.excluding_kubevirt(conditions={"Available": "False"})
        nodes = [builders.node("n1"), builders.node("n2"), builders.node("dead", ready=False)]
        pods = [builders.handler_pod(name, ready=name == "n1") for name in ("n1", "n2", "dead")]
        snapshot = builders.snapshot_of(
            nodes, of_kubevirt=dead, of_primary=builders.primary(desired=3, ready=3), pods=pods
        )
        assert codes(snapshot, severity="error") == ["kubevirt_not_available"]
        assert codes(snapshot.limited_to(["n1"]), severity="error") == ["kubevirt_not_available"]

    def test_of_one_whose_handler_does_not_start(self):
        nodes = [builders.node("n1"), builders.node("n2")]
        pods = [builders.handler_pod("n1"), builders.broken(builders.handler_pod("n2", ready=False))]
        snapshot = builders.snapshot_of(
            nodes,
            of_kubevirt=builders.excluding_kubevirt(conditions={"Available": "False"}),
            of_primary=builders.primary(desired=2, ready=1),
            pods=pods,
        )
        (refused,) = preflight.fitness(snapshot)
        assert refused.code == "kubevirt_not_available"
        problem = f"n2 (pod {pods[1]['metadata']['name']}: container virt-handler: CrashLoopBackOff, it ended with exit code 1 and said 'no such CPU')"
        assert refused.message.endswith(f"Its virt-handler is not Ready on 1 node that is Ready: {problem}.")
        (let,) = preflight.fitness(snapshot, ["n2"])
        assert (let.severity, let.code) == ("warning", "kubevirt_waits_for_pools")
        assert f"does not start on 1 node that goes to a pool in this run: {problem}." in let.message

    def test_of_one_that_is_degraded_names_no_handlers(self):
        degraded = builders.excluding_kubevirt(conditions={"Available": "False", "Degraded": "True"})
        pods = [builders.broken(builders.handler_pod("n1", ready=False))]
        snapshot = builders.snapshot_of([builders.node("n1")], of_kubevirt=degraded, pods=pods)
        (refused,) = preflight.fitness(snapshot, ["n1"])
        assert (refused.severity, refused.code) == ("error", "kubevirt_degraded")

    def test_a_broken_handler_of_a_dead_node_is_only_dead(self):
        pods = [builders.broken(builders.handler_pod(name, ready=False)) for name in ("dead", "n1")]
        nodes = [builders.node("dead", ready=False), builders.node("n1")]
        assert list(preflight.broken_handlers(builders.snapshot_of(nodes, pods=pods))) == ["n1"]

    def test_of_one_that_takes_in_our_own_change(self):
        rolling = builders.primary(desired=3, ready=1)
        progressing = builders.excluding_kubevirt(conditions={"Available": "False", "Progressing": "True"})
        snapshot = builders.snapshot_of(of_kubevirt=progressing, of_primary=rolling)
        assert preflight.own_change_settling(snapshot)
        assert codes(snapshot) == ["own_change_settling"]


class TestUpgrade:
    def found(self, pools=(GPU,)):
        upgrading = builders.snapshot_of(
            [builders.node("n1")], pools, of_kubevirt=builders.excluding_kubevirt(targetKubeVirtVersion="v1.9.1")
        )
        return builders.message(checked(upgrading, pools), "kubevirt_upgrading")

    def test_says_what_may_be_run_until_it_is_done(self):
        assert self.found().endswith(
            "is being upgraded from v1.9.0 to v1.9.1; wait until that is done, then run again. Until then you can run the playbook "
            "upgrade with virtpools_upgrade_to=v1.9.1 and the list for that version: VMs of pools then start with both versions. With "
            "virtpools_upgrade_wait it goes on by itself."
        )

    def test_without_pools_there_is_nothing_to_run(self):
        assert self.found(()).endswith("then run again.")


class TestExclusion:
    def test_is_refused_while_a_dead_node_has_a_primary_handler(self):
        snapshot = builders.fresh_snapshot([builders.node(), builders.node("dead", ready=False)])
        assert "exclusion_blocked_by_unready_nodes" in codes(snapshot)

    def test_may_be_installed_when_the_dead_node_has_none(self):
        nodes = [builders.node(), builders.node("dead", ready=False)]
        snapshot = builders.fresh_snapshot(nodes, pods=[builders.handler_pod("n1")])
        assert codes(snapshot) == []

    def test_that_is_there_already_does_not_mind_dead_nodes(self):
        snapshot = builders.snapshot_of([builders.node(), builders.node("dead", ready=False)])
        assert "exclusion_blocked_by_unready_nodes" not in codes(snapshot)


class TestForeign:
    @pytest.mark.parametrize("label", [names.MANAGED_BY_LABEL, names.OWNER_LABEL])
    def test_daemonset_that_lost_a_label_is_not_to_be_deleted(self, label):
        ours = builders.pool_daemonset(GPU)
        del ours["metadata"]["labels"][label]
        text = builders.message(checked(builders.snapshot_of(more=[ours])), "foreign_daemonset")
        assert "DaemonSet kubevirt/virt-handler-gpu of pool gpu has lost labels" in text
        assert "--overwrite app.kubernetes.io/managed-by=virtpools virtpools.io/pool=gpu`" in text
        assert "delete" not in text

    def test_daemonset_with_a_pools_name_is_refused(self):
        foreign = builders.pool_daemonset(GPU)
        del foreign["metadata"]["labels"][names.MANAGED_BY_LABEL]
        del foreign["spec"]["template"]["metadata"]["annotations"][names.TEMPLATE_ANNOTATION]
        found = checked(builders.snapshot_of(more=[foreign]))
        text = builders.message(found, "foreign_daemonset")
        assert "kubevirt/virt-handler-gpu has the name that pool gpu needs" in text

    def test_daemonset_with_another_name_is_not(self):
        foreign = builders.pool_daemonset(builders.pool("other"))
        del foreign["metadata"]["labels"][names.MANAGED_BY_LABEL]
        assert codes(builders.snapshot_of(more=[foreign])) == []

    def test_owner_labels_on_stock_kubevirt_are_refused(self):
        found = checked(builders.fresh_snapshot([builders.node("n1", "gpu"), builders.node("n2", "ghost")]))
        texts = [finding.message for finding in found if finding.code == "owner_label_foreign"]
        assert len(texts) == 2
        assert "kubectl label nodes -l virtpools.io/pool=ghost virtpools.io/pool-" in texts[0]

    def test_owner_labels_that_lost_their_pool_are_repaired(self):
        found = checked(builders.snapshot_of([builders.node("n1", "ghost"), builders.node("n2", "")]))
        assert builders.codes(found) == ["owner_unknown", "owner_unknown"]
        assert {finding.severity for finding in found} == {"warning"}

    def test_owner_labels_of_pools_and_handovers_are_our_own(self):
        nodes = [builders.node("n1", "gpu"), builders.node("n2", names.IN_TRANSIT, "gpu"), builders.node("n3")]
        assert codes(builders.snapshot_of(nodes, [GPU])) == []


def test_a_daemonset_that_is_being_deleted_is_waited_for():
    ending = builders.pool_daemonset(GPU)
    ending["metadata"]["deletionTimestamp"] = "2026-01-01T09:00:00Z"
    snapshot = builders.snapshot_of(more=[ending])
    assert codes(snapshot, severity="error") == ["daemonset_being_deleted"]
    assert codes(snapshot, [builders.pool("other")]) == []


class TestSkew:
    def found(self, image, severity=None, **fields):
        return codes(
            builders.snapshot_of(), [builders.pool("gpu", virtHandlerImage=image, **fields)], severity=severity
        )

    @pytest.mark.parametrize("tag", [":v1.9.0", ":v1.9.0-gpu", ":1.9.0_cuda12"])
    def test_there_is_none_in_a_build_of_the_same_version(self, tag):
        assert self.found(f"registry.example/other{tag}") == []

    def test_is_an_error(self):
        assert self.found("registry.example/virt-handler:v1.8.2") == ["version_skew"]
        assert self.found("registry.example/virt-handler:v1.8.2", severity="error") == ["version_skew"]

    def test_is_a_warning_where_the_pool_allows_it(self):
        assert self.found("registry.example/virt-handler:v1.8.2", severity="warning", allowSkew=True) == [
            "version_skew"
        ]

    @pytest.mark.parametrize(
        ("tag", "found"),
        [("4.20.3-gpu", []), ("v1.9.0-gpu", []), ("4.20.4", ["version_skew"]), ("gpu", ["version_skew_unknown"])],
    )
    def test_of_a_vendor_that_tags_images_otherwise(self, tag, found):
        primary = json.loads(json.dumps(builders.primary()).replace(f":{builders.VERSION}", ":4.20.3"))
        pools = [builders.pool("gpu", virtHandlerImage=f"mine/virt-handler:{tag}", allowSkew=True)]
        snapshot = builders.snapshot_of(of_primary=primary)
        assert codes(snapshot, pools) == found
        assert codes(snapshot, pools, severity="error") == []
        assert all(
            "KubeVirt v1.9.0 (registry.example" in each.message or not found for each in checked(snapshot, pools)
        )

    def test_allowed_in_one_pool_is_an_error_in_the_others(self):
        old = {"virtHandlerImage": "registry.example/virt-handler:v1.8.2"}
        pools = [builders.pool("canary", allowSkew=True, **old), builders.pool("gpu", **old)]
        assert [
            f.message.partition(":")[0] for f in checked(builders.snapshot_of(), pools) if f.severity == "error"
        ] == ["Pool gpu"]

    @pytest.mark.parametrize(("tag", "severity"), [("v1.10.0", "error"), ("v1.9.1", "warning")])
    def test_of_a_handler_of_a_later_release_is_never_allowed(self, tag, severity):
        """Unless the pool has it, after an upgrade that was taken back."""
        image = f"registry.example/virt-handler:{tag}"
        assert self.found(image, severity=severity, allowSkew=True) == ["version_skew"]
        pool = builders.pool("gpu", virtHandlerImage=image, allowSkew=True)
        assert codes(builders.snapshot_of(pools=[pool]), [pool], severity="warning") == ["version_skew"]

    def test_of_a_launcher_of_a_later_release_may_be_allowed(self):
        image = "registry.example/virt-launcher:v1.10.0"
        found = {"virtLauncherImage": image, "selector": {"architectures": ["amd64"]}, "allowSkew": True}
        assert self.found(builders.HANDLER_IMAGE, "error", **found) == []
        assert self.found(builders.HANDLER_IMAGE, "warning", **found) == ["version_skew"]

    @pytest.mark.parametrize(
        ("tag", "why"),
        [
            ("", "without a tag, the node pulls latest"),
            (":latest", "the tag does not show its version"),
            ("@sha256:" + 64 * "a", "a digest does not show its version"),
        ],
    )
    def test_that_cannot_be_told_is_a_warning(self, tag, why):
        image = f"registry.example:5000/virt-handler{tag}"
        assert self.found(image, severity="warning") == ["version_skew_unknown"]
        findings = checked(builders.snapshot_of(), [builders.pool("gpu", virtHandlerImage=image)])
        assert f"{image}: {why}" in builders.message(findings, "version_skew_unknown")

    @pytest.mark.parametrize(
        ("tag", "found"), [("v1.9.0-gpu", []), ("v1.8.2-gpu", ["version_skew"]), ("gpu", ["version_skew_unknown"])]
    )
    def test_of_the_launcher_counts_as_well(self, tag, found):
        pool = builders.pool(
            "gpu",
            virtHandlerImage=builders.HANDLER_IMAGE,
            virtLauncherImage=f"registry.example/virt-launcher:{tag}",
            selector={"architectures": ["amd64"]},
        )
        assert codes(builders.snapshot_of(), [pool]) == found

    def test_does_not_matter_for_the_stock_images(self):
        pool = builders.pool(
            "gpu",
            virtHandlerImage=builders.HANDLER_IMAGE,
            virtLauncherImage=builders.LAUNCHER_IMAGE,
            selector={"architectures": ["amd64"]},
        )
        odd = builders.kubevirt()
        odd["status"].update(observedKubeVirtVersion="v9.9.9", targetKubeVirtVersion="v9.9.9")
        assert codes(builders.snapshot_of(of_kubevirt=odd), [pool]) == []


def test_pools_of_kubevirts_own_are_refused():
    operator = builders.excluding_kubevirt()
    operator["spec"]["virtHandlerPools"] = [{"name": "a"}]
    assert "operator_pools_in_use" in codes(builders.snapshot_of(of_kubevirt=operator), severity="error")


@pytest.mark.parametrize(("gates", "refused"), [(["WorkerPools"], True), ([], False)])
def test_worker_pools_are_refused_where_kubevirt_uses_them(gates, refused):
    kubevirt = builders.excluding_kubevirt()
    kubevirt["spec"]["configuration"] = {"developerConfiguration": {"featureGates": gates}}
    served = OperatorApi(worker_pools=(kinds.WORKER_POOL.object("gpu"),))
    found = codes(builders.snapshot_of(of_kubevirt=kubevirt, operator_api=served), severity="error")
    assert ("operator_pools_in_use" in found) is refused
