# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy
import dataclasses
import re

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.admission import launcher_policy, outdated_policy
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import cel, kinds, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.observed import snapshot
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms.mapping import Table, Upcoming
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders

POLICY = kinds.MUTATING_ADMISSION_POLICIES[0]
STOCK = builders.LAUNCHER_IMAGE
GPU = builders.GPU_LAUNCHER_IMAGE
NEW_GPU = "registry.example/virt-launcher:v1.10.0-gpu"
NEXT_STOCK = Upcoming(STOCK, "v1.10.0", {}).next_stock


def pool(name="gpu", image=GPU):
    fields = {} if image is None else {"virtLauncherImage": image}
    return builders.pool(name, selector={"vmLabels": {"matchLabels": {"for": name}}}, **fields)


def table(*pools):
    return Table.for_pools(pools or [pool()])


def prepared(image=NEW_GPU, stock=STOCK):
    return table().prepared(Upcoming(stock, "v1.10.0", {"gpu": image}))


def updating(*methods, **others):
    kubevirt = builders.excluding_kubevirt()
    kubevirt["spec"]["workloadUpdateStrategy"] = {"workloadUpdateMethods": list(methods)}
    return builders.snapshot_of([builders.node()], of_kubevirt=kubevirt, **others)


def check(state, outdated="refuse", of=None):
    return list(outdated_policy.update_findings(state, of or table(), outdated))


class TestStockImage:
    OTHER = "mirror.example/virt-launcher:v1.9.0-patched"

    @staticmethod
    def snapshot(*deployments, **others):
        return builders.snapshot_of([builders.node()], deployments=deployments, **others)

    def test_is_the_one_that_virt_controller_gives(self):
        state = self.snapshot(builders.controller("--launcher-image", self.OTHER))
        assert outdated_policy.stock_image(state) == self.OTHER
        assert outdated_policy.deployed_stock_image(state) == self.OTHER

    def test_is_the_primarys_where_virt_controller_does_not_say(self):
        assert outdated_policy.stock_image(self.snapshot()) == STOCK
        assert outdated_policy.stock_image(self.snapshot(builders.controller("-v", "2"))) == STOCK

    def test_of_another_namespace_is_not_it(self):
        deployment = builders.controller("--launcher-image", self.OTHER)
        deployment["metadata"]["namespace"] = "elsewhere"
        assert outdated_policy.stock_image(self.snapshot(deployment)) == STOCK

    def test_in_an_upgrade_that_has_not_come_to_virt_controller(self):
        kubevirt = builders.excluding_kubevirt(observedKubeVirtVersion="v1.8.2")
        state = self.snapshot(
            builders.controller("--launcher-image", self.OTHER, version="v1.8.2"), of_kubevirt=kubevirt
        )
        assert outdated_policy.deployed_stock_image(state) == self.OTHER


class TestCheck:
    @pytest.mark.parametrize(
        ("methods", "words"),
        [
            (["LiveMigrate"], ("has LiveMigrate in", "would migrate these")),
            (["Evict"], ("has Evict in", "would restart these")),
            (["LiveMigrate", "Evict"], ("has LiveMigrate and Evict in", "would migrate and restart these")),
        ],
    )
    def test_methods_that_never_end_are_refused_with_three_ways_out(self, methods, words):
        (finding,) = check(updating(*methods))
        assert (finding.severity, finding.code) == ("error", "workload_updates_never_end")
        ways = (
            "empty spec.workloadUpdateStrategy.workloadUpdateMethods of KubeVirt kubevirt/kubevirt",
            "hotplug of CPU, memory and network interfaces, and its volume migrations",
            "virtpools.kubevirt.workload_update",
            "virtpools_outdated: correct",
        )
        for part in ("pool gpu", *words, *ways):
            assert part in finding.message

    @pytest.mark.parametrize("methods", [[], ["SomethingNew"]])
    def test_others_are_fine(self, methods):
        assert check(updating(*methods)) == []

    def test_so_is_no_strategy_at_all(self):
        assert check(builders.snapshot_of([builders.node()])) == []

    @pytest.mark.parametrize("image", [None, STOCK])
    def test_pools_with_kubevirts_own_image_are_not_outdated(self, image):
        assert check(updating("LiveMigrate"), of=table(pool(image=image))) == []

    def test_with_the_policy_nothing_is_refused(self):
        assert check(updating("LiveMigrate", admission=snapshot.Admission(policy_kind=POLICY)), "correct") == []

    def test_a_server_without_policies_cannot_correct(self):
        (finding,) = check(updating("LiveMigrate", admission=snapshot.Admission()), "correct")
        assert (finding.severity, finding.code) == ("error", "outdated_policy_not_served")

    @pytest.mark.parametrize(
        ("version", "place"),
        [
            ("v1", "spec.virtualization.workloadUpdateStrategy.workloadUpdateMethods"),
            ("v1beta1", "spec.workloadUpdateStrategy.workloadUpdateMethods"),
        ],
    )
    def test_under_hco_its_own_field_is_named(self, version, place):
        kubevirt = builders.excluding_kubevirt()
        kubevirt["metadata"]["labels"] = {names.MANAGED_BY_LABEL: "hco-operator"}
        kubevirt["spec"]["workloadUpdateStrategy"] = {"workloadUpdateMethods": ["LiveMigrate"]}
        hyperconverged = {
            "apiVersion": f"hco.kubevirt.io/{version}",
            "kind": "HyperConverged",
            "metadata": {"name": names.HCO_NAME, "namespace": builders.NAMESPACE},
        }
        state = builders.snapshot_of([builders.node()], of_kubevirt=kubevirt, hyperconvergeds=[hyperconverged])
        (finding,) = check(state)
        assert f"empty {place} of HyperConverged kubevirt/kubevirt-hyperconverged" in finding.message


class TestDerive:
    def test_policy_and_binding_of_the_version_that_is_served(self):
        for policy, binding in zip(
            kinds.MUTATING_ADMISSION_POLICIES, kinds.MUTATING_ADMISSION_POLICY_BINDINGS, strict=True
        ):
            pairs = outdated_policy.derive(table(), STOCK, "kv", policy)
            assert [kind for kind, _obj in pairs] == [policy, binding]
            for kind, obj in pairs:
                assert (obj["apiVersion"], obj["kind"]) == (kind.api_version, kind.name)
                assert obj["metadata"]["name"] == names.OUTDATED_POLICY
                assert obj["metadata"]["labels"] == {names.MANAGED_BY_LABEL: names.MANAGED_BY}
        assert "system:serviceaccount:kv:kubevirt-controller" in str(pairs[0][1])

    @pytest.mark.parametrize("pools", [[], [pool(image=None)], [pool(image=STOCK)]], ids=["none", "no image", "stock"])
    def test_nothing_without_images_of_pools(self, pools):
        assert outdated_policy.derive(Table.for_pools(pools), STOCK, "kubevirt", POLICY) == []

    def test_the_digest_tells_images_and_stock_image(self):
        def digest(of, stock=STOCK):
            policy = outdated_policy.derive(of, stock, "kubevirt", POLICY)[0][1]
            return policy["metadata"]["annotations"][names.POLICY_ANNOTATION]

        other = table(pool(image=f"{GPU}2"))
        assert len({digest(table()), digest(other), digest(table(), f"{STOCK}2")}) == 3
        assert digest(table(pool("a", GPU), pool("b", f"{GPU}2"))) == digest(
            table(pool("b", f"{GPU}2"), pool("a", GPU), pool("c", GPU), pool("d", None))
        )

    def test_a_thousand_images_go_into_short_expressions(self):
        pools = [pool(f"p{number}", f"{GPU}-{number}") for number in range(1000)]
        spec = outdated_policy.derive(table(*pools), STOCK, "kubevirt", POLICY)[0][1]["spec"]
        expressions = [variable["expression"] for variable in spec["variables"]]
        assert all(len(expression) < 8_000 for expression in expressions)
        assert sum(expression.count(GPU) for expression in expressions) == 1000


class TestDigestOfImages:
    """Admission may append a digest to the tag of a launcher image."""

    @staticmethod
    def variables(of):
        spec = outdated_policy.derive(of, STOCK, "kubevirt", POLICY)[0][1]["spec"]
        return {each["name"]: each["expression"] for each in spec["variables"]}

    def test_is_ignored_where_no_image_is_listed_with_it(self):
        found = self.variables(table())
        assert list(found) == ["noted", "images0", "image"]
        assert (
            found["image"] == 'variables.noted in variables.images0 ? variables.noted : variables.noted.split("@")[0]'
        )

    def test_is_looked_for_among_the_images_of_both_versions(self):
        found = self.variables(prepared(f"{GPU}@sha256:{64 * 'a'}"))
        listed = "(variables.noted in variables.images0 || variables.noted in variables.images1)"
        assert found["image"] == f'{listed} ? variables.noted : variables.noted.split("@")[0]'


class TestPrepared:
    """Each virt-controller sees its own image in the VMs that have the pool's image for it."""

    def corrections(self, of, stock=STOCK):
        """What the policy makes of each image of a pool."""
        spec = outdated_policy.derive(of, stock, "kubevirt", POLICY)[0][1]["spec"]
        images = {each["name"]: each["expression"] for each in spec["variables"]}
        found, expression = {}, spec["mutations"][0]["jsonPatch"]["expression"]
        for name, value in re.findall(r"variables\.image in variables\.(images\d+) .*?value: \"(.*?)\"", expression):
            found.update(dict.fromkeys(re.findall(r'"(.*?)"', images[name]), value))
        assert expression.endswith(" : []")
        return found

    def test_images_of_both_versions_are_told_apart(self):
        assert self.corrections(prepared()) == {GPU: STOCK, NEW_GPU: NEXT_STOCK}

    def test_kubevirts_own_image_may_have_another_name_than_foreseen(self):
        assert self.corrections(prepared(), "registry.example/moved:v1.10.0") == {
            GPU: STOCK,
            NEW_GPU: "registry.example/moved:v1.10.0",
        }

    def test_kubevirts_own_image_may_have_moved_before_the_upgrade(self):
        moved = f"mirror.example/{STOCK}"
        assert self.corrections(prepared(), moved) == {GPU: moved, NEW_GPU: NEXT_STOCK}

    def test_an_image_that_stays_is_that_of_the_present_version(self):
        assert self.corrections(prepared(GPU)) == {GPU: STOCK}

    def test_without_it_all_images_are_alike(self):
        assert self.corrections(table(pool(), pool("other", NEW_GPU))) == {GPU: STOCK, NEW_GPU: STOCK}


class TestExamine:
    def live(self, stock=STOCK, of=None):
        pairs = outdated_policy.derive(of or table(), stock, builders.NAMESPACE, POLICY)
        objects = {(obj["kind"], obj["metadata"]["name"]): copy.deepcopy(obj) for _kind, obj in pairs}
        return snapshot.Admission(policy_kind=POLICY, objects=objects)

    def examine(self, admission):
        return list(outdated_policy.examine(updating("LiveMigrate", admission=admission), table()))

    def test_a_policy_that_is_as_it_should_be(self):
        assert self.examine(self.live()) == []

    @pytest.mark.parametrize("admission", [None, snapshot.Admission(policy_kind=POLICY)])
    def test_without_policy_the_methods_count(self, admission):
        assert builders.codes(self.examine(admission), "error") == ["workload_updates_never_end"]

    def test_after_an_upgrade_of_kubevirt_it_is_stale(self):
        (finding,) = self.examine(self.live(stock=f"{STOCK}-old"))
        assert (finding.severity, finding.code) == ("warning", "outdated_policy_stale")
        assert f"KubeVirt's own, {STOCK}, as after an upgrade" in finding.message

    @pytest.mark.parametrize("kind", ["MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"])
    def test_one_that_was_edited_does_not_do_its_work(self, kind):
        admission = self.live()
        admission.objects[kind, names.OUTDATED_POLICY]["spec"]["matchConstraints"] = {"namespaceSelector": {"a": "b"}}
        (finding,) = self.examine(admission)
        assert (finding.severity, finding.code) == ("warning", "outdated_policy_stale")
        assert "changed or partly deleted by hand" in finding.message

    def test_without_its_binding_it_does_not_do_its_work(self):
        admission = self.live()
        del admission.objects["MutatingAdmissionPolicyBinding", names.OUTDATED_POLICY]
        (finding,) = self.examine(admission)
        assert (finding.severity, finding.code) == ("warning", "outdated_policy_stale")
        assert "changed or partly deleted by hand" in finding.message

    def test_a_prepared_one_is_right_before_the_upgrade_and_after_it(self):
        launchers = [obj for _kind, obj in launcher_policy.derive(prepared(), builders.NAMESPACE, POLICY)]
        live = self.live(of=prepared())
        objects = {**live.objects, **{(obj["kind"], obj["metadata"]["name"]): obj for obj in launchers}}
        admission = dataclasses.replace(live, objects=objects)
        assert self.examine(admission) == []
        upgraded = builders.primary()
        upgraded["spec"]["template"]["spec"]["initContainers"][0]["image"] = NEXT_STOCK
        state = updating("LiveMigrate", admission=admission, of_primary=upgraded)
        assert list(outdated_policy.examine(state, table(pool(image=NEW_GPU)))) == []

    def test_without_pools_it_is_the_next_run_that_removes_it(self):
        state = updating("LiveMigrate", admission=self.live())
        assert list(outdated_policy.examine(state, Table(()))) == []


class TestAfterUpgrade:
    def found(self, *methods, admission=None, of=None):
        state = updating(*methods, admission=admission or TestExamine().live())
        return list(outdated_policy.after_upgrade(state, of or table()))

    def test_the_policy_is_stale_while_kubevirt_updates_vms_itself(self):
        (finding,) = self.found("LiveMigrate", "Evict")
        assert (finding.severity, finding.code) == ("warning", "upgrade_outdated_policy_stale")
        assert f"image {STOCK}; once KubeVirt is upgraded, it would migrate and restart pool VMs" in finding.message
        assert (
            "empty spec.workloadUpdateStrategy.workloadUpdateMethods of KubeVirt kubevirt/kubevirt" in finding.message
        )

    def test_it_is_not_stale_where_the_upgrade_is_prepared(self):
        assert self.found("LiveMigrate", of=prepared()) == []

    @pytest.mark.parametrize(
        ("image", "stock", "why"),
        [
            (GPU, STOCK, "since pool gpu keeps its launcher image"),
            (NEW_GPU, "registry.example/l@sha256:" + 64 * "a", "since the tag of that image does not show its version"),
            (NEW_GPU, "vendor.example/l:v4.18.2", "since the tag of that image does not show its version"),
        ],
    )
    def test_unless_that_cannot_tell_the_versions_apart(self, image, stock, why):
        (finding,) = self.found("LiveMigrate", of=prepared(image, stock))
        assert f"{why}, the preparation cannot change that: empty spec.workload" in finding.message

    def test_nothing_without_methods_or_policy(self):
        assert self.found() == []
        assert self.found("LiveMigrate", admission=snapshot.Admission(policy_kind=POLICY)) == []


def test_the_image_of_canaries_is_one_of_the_pools():
    """Otherwise KubeVirt would migrate them for ever, to the image that they already have."""
    of = Table.for_pools([pool()], canaries={"gpu": "registry.example/new"})
    spec = outdated_policy.derive(of, STOCK, "kubevirt", POLICY)[0][1]["spec"]
    (images,) = (each["expression"] for each in spec["variables"] if each["name"] == "images0")
    assert images == cel.literal(sorted([GPU, "registry.example/new"]))
