# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The policy's text. tests/control_plane/policies/test_launcher_policy.py shows on a real API server what it does."""

from __future__ import annotations

import re

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.admission import launcher_policy
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import cel, kinds, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms import mapping
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms.mapping import Table, Upcoming
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders

NAMESPACE = builders.NAMESPACE
V1 = kinds.MUTATING_ADMISSION_POLICIES[0]
LABELLED = {"vmLabels": {"matchLabels": {"class": "gpu"}}}


def pool(name="gpu", selector=LABELLED, **fields):
    return builders.pool(name, **{"virtLauncherImage": builders.GPU_LAUNCHER_IMAGE, "selector": selector, **fields})


def many(count):
    return Table.for_pools(
        pool(f"pool-{n}", {"deviceNames": [f"vendor.example/d{n}-{i}" for i in range(9)]}) for n in range(count)
    )


def variables(table):
    return {each["name"]: each["expression"] for each in launcher_policy.spec(table, NAMESPACE)["variables"]}


def condition(**fields):
    """The condition of the only rule of a table."""
    (hit,) = (text for name, text in variables(Table.for_pools([pool(**fields)])).items() if name == "hit0")
    return hit.removeprefix("[").removesuffix("].indexOf(true)")


class TestHypervisor:
    def test_costs_nothing_where_no_pool_has_one(self):
        spec = launcher_policy.spec(Table.for_pools([pool(), pool("other")]), NAMESPACE)
        assert "ypervisor" not in str(spec)

    def test_is_part_of_the_one_patch(self):
        spec = launcher_policy.spec(Table.for_pools([pool(), pool("mshv", hypervisor="hyperv-direct")]), NAMESPACE)
        (mutation,) = spec["mutations"]
        assert "variables.hypervisor" in mutation["jsonPatch"]["expression"]
        assert launcher_policy.digest_of(Table.for_pools([pool()]), NAMESPACE) != launcher_policy.digest_of(
            Table.for_pools([pool(hypervisor="kvm")]), NAMESPACE
        )


class TestDerive:
    def test_a_policy_and_its_binding(self):
        table = Table.for_pools([pool()])
        (kind, policy), (binding_kind, binding) = launcher_policy.derive(table, NAMESPACE, V1)
        assert (kind, binding_kind) == (V1, kinds.MUTATING_ADMISSION_POLICY_BINDINGS[0])
        assert binding["spec"] == {"policyName": policy["metadata"]["name"]} == {"policyName": names.POLICY}
        for obj in (policy, binding):
            assert obj["metadata"]["labels"] == {names.MANAGED_BY_LABEL: names.MANAGED_BY}
        annotations = policy["metadata"]["annotations"]
        assert mapping.restore(annotations[names.MAPPING_ANNOTATION]) == table
        assert annotations[names.POLICY_ANNOTATION] == launcher_policy.digest_of(table, NAMESPACE)

    def test_leaves_out_a_table_that_no_annotation_can_hold(self, monkeypatch):
        monkeypatch.setattr(Table, "to_text", lambda self: "")
        (_kind, policy), _binding = launcher_policy.derive(Table.for_pools([pool()]), NAMESPACE, V1)
        assert policy["metadata"]["annotations"].keys() == {names.POLICY_ANNOTATION}

    @pytest.mark.parametrize("kind", kinds.MUTATING_ADMISSION_POLICIES, ids=lambda kind: kind.api_version)
    def test_in_the_version_that_is_served(self, kind):
        found = launcher_policy.derive(Table.for_pools([pool()]), NAMESPACE, kind)
        assert {obj["apiVersion"] for _kind, obj in found} == {kind.api_version}

    def test_acts_for_virt_controller_and_its_own_probes_only(self):
        found = {}
        for name in (names.POLICY, names.CANDIDATE_POLICY):
            ((_kind, policy), _binding) = launcher_policy.derive(Table.for_pools([pool()]), "elsewhere", V1, name)
            (only,) = policy["spec"]["matchConditions"]
            found[name] = only["expression"]
            assert f'[?"{names.PROBE_LABEL}"].orValue("") == "{name}"' in found[name]
        user = f'request.userInfo.username == "{names.controller_user("elsewhere")}"'
        assert found[names.POLICY].startswith(f"{user} || (has(request.dryRun) && request.dryRun && ")
        assert "username" not in found[names.CANDIDATE_POLICY]

    def test_fails_rather_than_do_half_of_it(self):
        spec = launcher_policy.spec(Table.for_pools([pool()]), NAMESPACE)
        assert (spec["failurePolicy"], spec["reinvocationPolicy"], len(spec["mutations"])) == ("Fail", "IfNeeded", 1)

    def test_the_stock_image_is_nowhere(self):
        assert builders.LAUNCHER_IMAGE + '"' not in str(launcher_policy.spec(Table.for_pools([pool()]), NAMESPACE))


class TestUpgrade:
    @pytest.mark.parametrize("name", ["virt-launcher:v1.9.0", f"virt-launcher@sha256:{64 * 'a'}"])
    @pytest.mark.parametrize("registry", ["", "registry.example:5000/kubevirt/"])
    def test_tells_the_version_by_the_end_of_the_image(self, registry, name):
        """A mirror may have renamed the image before the policy runs."""
        upcoming = Upcoming(registry + name, "v1.10.0", {"gpu": "registry.example/virt-launcher:v1.10.0-gpu"})
        (found,) = (
            text for key, text in variables(Table.for_pools([pool()], upcoming=upcoming)).items() if key == "next"
        )
        assert found == f'!("/" + variables.cameAs).endsWith("/{name}")'


class TestImages:
    """A mirror that acted before the policy may have renamed some of KubeVirt's launcher images, and not the others."""

    @staticmethod
    def parts():
        (mutation,) = launcher_policy.spec(Table.for_pools([pool()]), NAMESPACE)["mutations"]
        return mutation["jsonPatch"]["expression"].split("\n+ ")[:3]

    def test_of_the_same_end_are_looked_for_in_kubevirts_places(self):
        own = '(item.name in ["container-disk-binary", "guest-console-log"] || item.name.startsWith("virtiofs-"))'
        places = [own, own, 'item.name == "launcher-volume"']
        for part, place in zip(self.parts(), places, strict=True):
            assert f'(variables.ownEnd != "" && {place} && ("/" + item.' in part

    def test_of_owners_and_others_are_not_among_them(self):
        containers, init_containers, volumes = self.parts()
        for part in (containers, init_containers):
            assert ' && !(item.name.startsWith("volume") || item.name.startsWith("hook-sidecar-")), JSONPatch' in part
        assert ' && item.name == "launcher-volume", JSONPatch' in volumes

    def test_are_not_looked_for_once_they_are_changed(self):
        found = variables(Table.for_pools([pool()]))["ownEnd"]
        assert found.startswith("!variables.first && !variables.moved || variables.wrong.size() == 0 || ")


class TestDigest:
    def test_is_that_of_the_candidate_as_well(self):
        table = Table.for_pools([pool()])
        digest = launcher_policy.digest_of(table, NAMESPACE)
        assert re.fullmatch(r"[0-9a-f]{12}", digest)
        for name in (names.POLICY, names.CANDIDATE_POLICY):
            (mutation,) = launcher_policy.spec(table, NAMESPACE, name)["mutations"]
            assert f'value: "{digest}"' in mutation["jsonPatch"]["expression"]

    @pytest.mark.parametrize(
        "changed",
        [
            {"virtLauncherImage": "other"},
            {"selector": {**LABELLED, "architectures": ["arm64"]}},
            {"tolerations": [{"key": "gpu", "operator": "Exists"}]},
            {"unmatched": "allow"},
        ],
        ids=lambda fields: next(iter(fields)),
    )
    def test_tells_what_launcher_pods_see(self, changed):
        one, other = Table.for_pools([pool()]), Table.for_pools([pool(**changed)])
        assert launcher_policy.digest_of(one, NAMESPACE) != launcher_policy.digest_of(other, NAMESPACE)

    def test_tells_the_order_and_the_namespace(self):
        first, second = pool("a"), pool("b")
        found = {
            launcher_policy.digest_of(Table.for_pools(pools), namespace)
            for pools in ([first, second], [second, first])
            for namespace in ("kubevirt", "openshift-cnv")
        }
        assert len(found) == 4

    def test_does_not_tell_handlers(self):
        one, other = (
            Table.for_pools([pool()]),
            Table.for_pools([pool(virtHandlerImage="other", resources={"limits": {"cpu": "1"}})]),
        )
        assert launcher_policy.digest_of(one, NAMESPACE) == launcher_policy.digest_of(other, NAMESPACE)


class TestCondition:
    def test_of_devices(self):
        assert condition(selector={"deviceNames": ["a.io/x", "b.io/y"]}) == (
            '("a.io/x" in variables.asked || "b.io/y" in variables.asked)'
        )

    def test_labels_are_one_criterion(self):
        expressions = [{"key": "tier", "operator": "NotIn", "values": ["dev"]}]
        selector = {"vmLabels": {"matchLabels": {"class": "gpu"}, "matchExpressions": expressions}}
        assert condition(selector=selector) == (
            '(("class" in variables.labels && variables.labels["class"] in ["gpu"])'
            ' && !("tier" in variables.labels && variables.labels["tier"] in ["dev"]))'
        )

    def test_of_the_nodes_that_a_vm_selects(self):
        assert condition(selector={"matchNodeSelector": True}) == (
            '("hw" in variables.selected && variables.selected["hw"] in ["gpu"])'
        )

    def test_any_criterion_is_enough_within_the_namespaces(self):
        selector = {
            "architectures": ["arm64"],
            "deviceNames": ["a.io/x"],
            "namespaces": {"names": ["one"], "matchLabels": {"team": "a"}},
        }
        assert condition(selector=selector) == (
            '((request.namespace in ["one"] || ("team" in variables.namespaceLabels'
            ' && variables.namespaceLabels["team"] in ["a"]))'
            ' && ("a.io/x" in variables.asked || (("kubernetes.io/arch" in variables.selected'
            ' && variables.selected["kubernetes.io/arch"] in ["arm64"]) || ("kubevirt.io/vm-arch-arm64" in variables.selected'
            ' && variables.selected["kubevirt.io/vm-arch-arm64"] in ["true"]))))'
        )


class TestVariables:
    def test_are_defined_once_and_before_they_are_used(self):
        for table in (Table.for_pools([pool(), pool("b", unmatched="allow")]), many(150), Table((), ("kept-off",))):
            known = set()
            for name, expression in variables(table).items():
                assert set(re.findall(r"variables\.([a-zA-Z]+[0-9]*)", expression)) <= known, name
                known.add(name)
            (mutation,) = launcher_policy.spec(table, NAMESPACE)["mutations"]
            used = set(re.findall(r"variables\.([a-zA-Z]+[0-9]*)", mutation["jsonPatch"]["expression"]))
            assert used <= known

    def test_stay_short_however_many_pools_there_are(self):
        table = many(1000)
        found = variables(table)
        assert len([name for name in found if name.startswith("hit")]) > 50
        assert (
            max(map(len, (text for name, text in found.items() if name.startswith(("hit", "rules")))))
            < cel.MOST_TEXT + 100
        )
        rules = [text for name, text in found.items() if name.startswith("rules")]
        assert re.findall(r'"name": dyn\("(pool-\d+)"\)', "".join(rules)) == [rule.name for rule in table.rules]

    def test_the_names_of_many_pools_that_keep_vms_off(self):
        keep_off = [f"pool-number-{number}" for number in range(1000)]
        found = variables(Table((), tuple(keep_off), ("open",)))
        shards = [text for name, text in found.items() if re.fullmatch(r"others\d+", name)]
        assert len(shards) > 2
        assert re.findall(r'"([^"]+)"', "".join(shards)) == sorted([*keep_off, names.IN_TRANSIT])

    def test_are_the_same_every_time(self):
        launcher_policy.digest_of.cache_clear()
        once = launcher_policy.spec(many(50), NAMESPACE)
        launcher_policy.digest_of.cache_clear()
        assert launcher_policy.spec(many(50), NAMESPACE) == once
