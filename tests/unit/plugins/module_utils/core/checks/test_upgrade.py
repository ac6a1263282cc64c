# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.admission import launcher_policy, outdated_policy
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.findings import InputErrors
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.frozen import FrozenMap
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.checks import upgrade
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.options import Options
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.reports import terminal
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms.mapping import Table, Upcoming
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders, vms

TARGET = "v1.9.1"
NEXT = vms.gpu(
    virtHandlerImage="registry.example/virt-handler:v1.9.1-gpu",
    virtLauncherImage="registry.example/virt-launcher:v1.9.1-gpu",
)
NEXT_OTHER = vms.gpu("other", virtHandlerImage=NEXT.virt_handler_image, virtLauncherImage=None)


def cluster(nodes=None, *, policies=(), **fields):
    """A cluster in order, with a pool of two nodes and its launcher policy."""
    admission = vms.admission(*vms.policy(), *policies)
    return builders.snapshot_of(vms.nodes() if nodes is None else nodes, [vms.gpu()], admission=admission, **fields)


def check(snapshot=None, target=TARGET, pools=(NEXT,), **options):
    return upgrade.check(snapshot or cluster(), target, pools, Options(**options))


def codes(found, *severities):
    return [finding.code for finding in found.findings if finding.severity in (severities or ("error", "warning"))]


class TestVerdict:
    def test_ready_with_images_of_the_new_version(self):
        found = check()
        assert (found.verdict, codes(found)) == ("ready", [])
        assert found.summary == "The upgrade of KubeVirt from v1.9.0 to v1.9.1 can go ahead."

    def test_what_the_run_after_it_will_do_is_noted(self):
        text = builders.message(check().findings, "upgrade_site_after")
        assert "virt-handler stays at v1.9.0 and keeps working on 2 nodes of 1 pool" in text

    def test_a_cluster_without_pools_is_ready(self):
        found = check(builders.fresh_snapshot([builders.node()]), pools=None)
        assert (found.verdict, found.findings, found.images) == ("ready", (), ())

    def test_prepare_and_blocked(self):
        assert check(pools=None).verdict == "prepare"
        assert "once you have dealt with 2 warnings" in check(pools=None).summary
        blocked = check(cluster([*vms.nodes(), vms.node("lost", names.IN_TRANSIT, former="gpu")]))
        assert blocked.verdict == "blocked"
        assert blocked.summary.endswith("must wait until 1 error is fixed.")


class TestVersion:
    def test_tags_of_a_vendor_tell_nothing_of_the_next_one(self):
        primary = json.loads(json.dumps(builders.primary()).replace(f":{builders.VERSION}", ":4.20.3"))
        pool = vms.gpu(virtHandlerImage="mine/h:4.21.0", virtLauncherImage="mine/l:4.21.0")
        found = check(cluster(of_primary=primary), pools=[pool])
        assert [(image.skew, image.needed) for image in found.images] == [("unknown", None)] * 2
        assert "upgrade_image_skew" not in codes(found)

    @pytest.mark.parametrize("target", ["", "latest", "1.9", "devel"])
    def test_must_be_one(self, target):
        with pytest.raises(InputErrors, match="give the version of KubeVirt to upgrade to, such as v1.9.1"):
            check(target=target)

    @pytest.mark.parametrize("target", ["v1.8.2", "v1.9.0-rc.1"])
    def test_of_a_downgrade(self, target):
        found = check(target=target)
        assert "upgrade_backwards" in codes(found, "error")
        assert f"KubeVirt v1.9.0 is newer than {target}" in builders.message(found.findings, "upgrade_backwards")

    def test_that_is_deployed_already(self):
        found = check(target="1.9.0", pools=None)
        assert (found.verdict, codes(found, "error", "warning", "note")) == ("ready", ["upgrade_done"])
        assert found.summary == "KubeVirt v1.9.0 is deployed already."

    def test_of_another_build_of_the_same_release(self):
        vendor = builders.excluding_kubevirt(observedKubeVirtVersion="v1.9.0-1", targetKubeVirtVersion="v1.9.0-1")
        found = check(cluster(of_kubevirt=vendor), "v1.9.0-2", [vms.gpu()])
        assert (found.done, found.verdict, codes(found, "error", "warning")) == (False, "ready", [])

    def test_that_is_deployed_while_another_is_on_its_way(self):
        leaving = builders.excluding_kubevirt(targetKubeVirtVersion=TARGET)
        found = check(cluster(of_kubevirt=leaving), target="v1.9.0", pools=None)
        assert (found.verdict, codes(found, "error")) == ("blocked", ["kubevirt_upgrading"])
        assert (
            found.summary == "KubeVirt v1.9.0 is deployed already, but the pools can follow only when 1 error is fixed."
        )

    @pytest.mark.parametrize("target", ["20261101_0123abc", "v1.10.0-beta.0-1264-g0123abc"])
    def test_of_a_build_between_releases_is_warned_of(self, target):
        found = check(target=target)
        assert (found.verdict, codes(found, "error")) == ("prepare", [])
        assert "upgrade_target_unknown" in codes(found, "warning")

    def test_that_skips_a_release(self):
        found = check(target="v1.11.0")
        assert "upgrade_skips_releases" in codes(found, "error")
        assert "upgrade from v1.9.0 to 1.10 before v1.11.0" in builders.message(
            found.findings, "upgrade_skips_releases"
        )
        assert "upgrade_skips_releases" not in codes(check(target="v1.10.3"), "error")
        assert "upgrade_skips_releases" not in codes(check(target="v2.0.1"), "error")

    @pytest.mark.parametrize("target", ["4.18.3", "v2.1.0"])
    def test_that_does_not_follow_at_all(self, target):
        message = builders.message(check(target=target).findings, "upgrade_skips_releases")
        assert f"{target} does not follow v1.9.0" in message
        assert "give the version of the KubeVirt in it" in message

    @pytest.mark.parametrize("current", ["20261101_0123abc", "v1.10.0-beta.0-1264-g0123abc", "devel"])
    def test_from_a_build_between_releases_is_warned_of(self, current):
        nightly = builders.excluding_kubevirt(observedKubeVirtVersion=current, targetKubeVirtVersion=current)
        found = check(cluster(of_kubevirt=nightly))
        assert codes(found) == ["upgrade_target_unknown"]
        assert f"Of which release {current} is a build" in builders.message(found.findings, "upgrade_target_unknown")

    def test_whose_arguments_the_present_launchers_refuse(self):
        """The list for the run after it does not help: until then, VMs get the present images."""
        image = "registry.example/virt-launcher:v1.7.0-gpu"
        pool = vms.gpu(virtLauncherImage=image)
        old = builders.excluding_kubevirt(observedKubeVirtVersion="v1.7.0", targetKubeVirtVersion="v1.7.0")
        state = builders.snapshot_of(vms.nodes(), [pool], admission=vms.admission(*vms.policy(pool)), of_kubevirt=old)
        after = [vms.gpu(virtHandlerImage="r.example/h:v1.8.2-gpu", virtLauncherImage="r.example/l:v1.8.2-gpu")]
        found = check(state, "v1.8.2", after)
        assert codes(found, "error") == ["upgrade_breaks_vm_starts"]
        first = vms.gpu(virtLauncherImage="registry.example/virt-launcher:v1.8.2-gpu")
        state = builders.snapshot_of(vms.nodes(), [first], admission=vms.admission(*vms.policy(first)), of_kubevirt=old)
        assert codes(check(state, "v1.8.2", after), "error") == []


class TestImages:
    def test_of_recorded_pools_are_to_be_built(self):
        found = check(pools=None)
        assert codes(found, "warning") == ["upgrade_image_skew"] * 2
        assert [(image.field, image.skew, image.needed) for image in found.images] == [
            ("virtHandlerImage", "different", NEXT.virt_handler_image),
            ("virtLauncherImage", "different", NEXT.virt_launcher_image),
        ]
        assert f"build {NEXT.virt_handler_image} before the upgrade" in found.findings[0].message

    def test_in_a_list_would_be_refused_after_it_unless_allowed(self):
        assert codes(check(pools=[vms.gpu()]), "error") == ["upgrade_image_skew"] * 2
        found = check(pools=[vms.gpu(allowSkew=True), vms.gpu("other")])
        about = [(f.severity, f.message.partition(":")[0]) for f in found.findings if f.code == "upgrade_image_skew"]
        assert about == [*[("error", "Pool other")] * 2, *[("warning", "Pool gpu")] * 2]
        assert check(pools=[vms.gpu(allowSkew=True)]).verdict == "prepare"

    def test_of_a_pool_that_the_list_does_not_name_are_warned_of(self):
        found = check(pools=[NEXT_OTHER])
        assert codes(found) == ["upgrade_image_skew"] * 2
        assert {image.pool for image in found.images if image.finding} == {"gpu"}
        assert found.findings[0].message == (
            f"Pool gpu: virtHandlerImage {vms.gpu().virt_handler_image} is of another version than v1.9.1; build "
            f"{NEXT.virt_handler_image} before the upgrade, and put it into the list for the run of site after it. Or keep it: both are "
            "of release 1.9, so it may stay with allowSkew: true in the pool. The list does not name this pool. Unless virtpools_prune: "
            "true, site keeps such a pool, with its present images."
        )
        assert found.advice[-1].startswith("The list does not name pool gpu. Unless virtpools_prune: true, site keeps")

    def test_of_a_pool_that_the_list_does_not_name_may_be_accepted(self):
        recorded = builders.snapshot_of(vms.nodes(), [vms.gpu(allowSkew=True)], admission=vms.admission(*vms.policy()))
        found = check(recorded, pools=[NEXT_OTHER])
        assert [(image.pool, image.afterwards) for image in found.images if image.pool == "gpu"] == [
            ("gpu", "accepted by allowSkew")
        ] * 2

    def test_of_a_pool_that_site_will_prune_are_left_out(self):
        assert {image.pool for image in check(pools=[NEXT_OTHER], prune=True).images} == {"other"}

    @pytest.mark.parametrize(("target", "may"), [(TARGET, True), ("v1.10.0", False)])
    def test_may_stay_in_an_upgrade_to_a_patch_release(self, target, may):
        for pools in (None, [vms.gpu()], [vms.gpu(allowSkew=True)]):
            messages = [f.message for f in check(cluster(), target, pools).findings if f.code == "upgrade_image_skew"]
            assert ["both are of release 1.9, so it may stay" in message for message in messages] == [may] * 2

    def test_that_do_not_say_their_version(self):
        found = check(
            pools=[vms.gpu(virtHandlerImage=f"registry.example/h@sha256:{'01' * 32}", virtLauncherImage=None)]
        )
        assert codes(found) == ["upgrade_image_unknown"]
        assert (found.images[0].skew, found.images[0].needed) == ("unknown", None)

    def test_equal_to_the_present_stock_image_will_be_old(self):
        found = check(pools=[vms.gpu(virtHandlerImage=builders.HANDLER_IMAGE, virtLauncherImage=None)])
        assert codes(found, "error") == ["upgrade_image_skew"]


class TestCluster:
    def test_a_dead_node_of_the_primary_stops_the_rollout(self):
        found = check(cluster([*vms.nodes(), vms.node("dead", ready=False)]))
        assert codes(found, "error") == ["upgrade_blocked_by_unready_nodes"]
        assert "1 node that is not Ready (dead)" in found.findings[0].message

    def test_a_dead_node_of_a_pool_is_a_warning(self):
        found = check(cluster([*vms.nodes(), vms.node("gpu-9", "gpu", ready=False)]))
        assert codes(found) == ["node_not_ready", "upgrade_pool_nodes_not_ready"]

    def test_the_primary_must_keep_a_node(self):
        assert "primary_without_nodes" in codes(check(cluster(vms.nodes()[:2])), "error")

    def test_what_is_unfinished_or_drifted_comes_first(self):
        nodes = [*vms.nodes(), vms.node("gpu-2"), vms.node("gpu-3", "gpu", former="primary")]
        assert {"wrong_owner", "handover_unfinished"} <= set(codes(check(cluster(nodes))))

    def test_a_launcher_policy_that_is_gone(self):
        bare = builders.snapshot_of(vms.nodes(), [vms.gpu()], admission=vms.admission())
        assert "policy_missing" in codes(check(bare), "error")

    def test_an_api_server_that_serves_no_policies(self):
        bare = builders.snapshot_of(vms.nodes(), [vms.gpu()], admission=vms.admission(policy_kind=None))
        assert "launcher_backend_missing" in codes(check(bare), "error")

    def test_an_upgrade_under_way(self):
        running = builders.excluding_kubevirt(targetKubeVirtVersion=TARGET)
        assert "kubevirt_upgrading" in codes(check(cluster(of_kubevirt=running)), "error")

    def test_kubevirt_without_pools_must_be_fit_too(self):
        degraded = builders.kubevirt(conditions={"Degraded": "True"})
        bare = builders.snapshot_of(
            [builders.node()], of_kubevirt=degraded, of_primary=builders.primary(excluded=False)
        )
        assert codes(check(bare, pools=None), "error") == ["kubevirt_degraded"]

    def with_outdated_policy(self, table):
        """A cluster whose launcher policy has this table, and where KubeVirt updates outdated VMs."""
        updating = builders.excluding_kubevirt()
        updating["spec"]["workloadUpdateStrategy"] = {"workloadUpdateMethods": ["LiveMigrate"]}
        kind = vms.admission().policy_kind
        derived = launcher_policy.derive(table, builders.NAMESPACE, kind)
        corrected = outdated_policy.derive(table, vms.STOCK, builders.NAMESPACE, kind)
        return cluster(of_kubevirt=updating, policies=[obj for _kind, obj in (*derived, *corrected)])

    def test_the_outdated_policy_will_be_stale(self):
        found = check(self.with_outdated_policy(Table.for_pools([vms.gpu()])))
        assert codes(found) == ["upgrade_outdated_policy_stale"]
        assert "prepare the upgrade with the playbook upgrade" in builders.message(found.findings, codes(found)[0])

    @pytest.mark.parametrize(("version", "expected"), [(TARGET, []), ("v1.9.2", ["upgrade_outdated_policy_stale"])])
    def test_what_is_prepared_for_this_version_keeps_it_right(self, version, expected):
        upcoming = Upcoming(vms.STOCK, version, FrozenMap({"gpu": NEXT.virt_launcher_image}))
        found = check(self.with_outdated_policy(Table.for_pools([vms.gpu()]).prepared(upcoming)))
        assert [code for code in codes(found) if "outdated_policy" in code] == expected


def shown(pools, **of_cluster):
    """What people see of the check, with single spaces."""
    return [" ".join(line.split()) for line in terminal.upgrade_lines(check(cluster(**of_cluster), pools=pools))]


def test_in_text_each_image_is_one_row():
    """An image with a finding has it in its row, and what to do comes once."""
    other = vms.gpu("other", virtHandlerImage="r/h:latest", virtLauncherImage=None)
    assert shown([NEXT, vms.gpu("old"), other, vms.gpu("kept", virtLauncherImage=None, allowSkew=True)]) == [
        "The upgrade of KubeVirt from v1.9.0 to v1.9.1 must wait until 2 errors are fixed.",
        (
            "NOTE upgrade_site_after: virt-handler stays at v1.9.0 and keeps working on 2 nodes of 1 pool, until you run site after the "
            "upgrade; site replaces it node by node."
        ),
        f"FINDING POOL FIELD IMAGE FOR {TARGET}",
        f"- gpu virtHandlerImage {NEXT.virt_handler_image} as it is",
        f"- gpu virtLauncherImage {NEXT.virt_launcher_image} as it is",
        f"ERROR upgrade_image_skew old virtHandlerImage {vms.gpu().virt_handler_image} {NEXT.virt_handler_image}",
        f"ERROR upgrade_image_skew old virtLauncherImage {vms.gpu().virt_launcher_image} {NEXT.virt_launcher_image}",
        "WARNING upgrade_image_unknown other virtHandlerImage r/h:latest unknown",
        f"WARNING upgrade_image_skew kept virtHandlerImage {vms.gpu().virt_handler_image} accepted by allowSkew",
        (
            "site would refuse images of another version after the upgrade: build those of the last column and put them into the list, "
            "or set allowSkew: true in their pools."
        ),
        "Images of release 1.9 may stay, with allowSkew: true in their pools.",
        (
            "Where the tag does not show the version, make sure that a build for KubeVirt v1.9.1 exists and that the list for the next run "
            "of site names it."
        ),
    ]


def test_in_text_other_findings_stay_lines():
    dead = [*vms.nodes(), vms.node("dead", "gpu", ready=False)]
    lines = shown(None, nodes=dead)
    assert sum(line.startswith("WARNING upgrade_pool_nodes_not_ready: ") for line in lines) == 1
    assert sum(line.startswith("WARNING upgrade_image_skew gpu ") for line in lines) == 2
    assert lines[-2:] == [
        "Build the images of the last column before the upgrade, and put them into the list for the run of site after it.",
        "Images of release 1.9 may stay, with allowSkew: true in their pools.",
    ]


def test_in_text_images_that_fit_need_no_advice():
    assert shown([NEXT])[-1] == f"- gpu virtLauncherImage {NEXT.virt_launcher_image} as it is"
