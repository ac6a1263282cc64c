# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.admission import launcher_policy, probes
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms.mapping import Table
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders, launcher_oracle
from ansible_collections.virtpools.kubevirt.tests.unit.support.admission import SITE

GPU = builders.pool(
    "gpu",
    virtLauncherImage=builders.GPU_LAUNCHER_IMAGE,
    selector={
        "deviceNames": ["vendor.example/gpu"],
        "vmLabels": {"matchLabels": {"class": "gpu"}},
        "matchNodeSelector": True,
        "architectures": ["arm64"],
    },
    tolerations=[{"key": "gpu", "operator": "Exists"}],
    virtLauncherPullSecrets=[{"name": "launchers"}],
)
TABLE = Table.for_pools([GPU])
MSHV = builders.pool(
    "mshv",
    hypervisor="hyperv-direct",
    selector={"vmLabels": {"matchLabels": {"kubevirt.io/hypervisor": "mshv"}}},
)


def made(*pools):
    return {probe.name: probe for probe in probes.probes(Table.for_pools(pools), SITE)}


def pool_of(probe):
    return probe.expected["metadata"]["annotations"][names.OWNER_LABEL]


class TestProbes:
    def test_ask_by_every_criterion_and_by_none(self):
        assert {name: pool_of(probe) for name, probe in made(GPU).items()} == {
            "for no pool": "primary",
            "for selector.deviceNames of pool gpu": "gpu",
            "for selector.vmLabels of pool gpu": "gpu",
            "for selector.matchNodeSelector of pool gpu": "gpu",
            "for selector.architectures of pool gpu": "gpu",
        }

    def test_ask_as_canaries_where_a_new_image_is_for_those(self):
        table = Table.for_pools([GPU], canaries={"gpu": "registry.example/new"})
        found = {probe.name: probe for probe in probes.probes(table, SITE)}
        images = {
            name: next(c["image"] for c in probe.expected["spec"]["containers"] if c["name"] == names.COMPUTE)
            for name, probe in found.items()
            if "canary" in name
        }
        assert len(found) == 9
        assert set(images.values()) == {"registry.example/new"}
        assert len(images) == 4

    @pytest.mark.parametrize("pools", [[GPU], [GPU, MSHV]], ids=["images", "a hypervisor"])
    def test_expect_what_the_design_says(self, pools):
        """The judge, which shares no code with the policies, finds nothing wrong with the expected pods."""
        table = Table.for_pools(pools)
        digest = launcher_policy.digest_of(table, SITE.namespace)
        raw = [{**pool.to_object(), "virtHandlerImage": "any"} for pool in pools]
        nodes = [
            {"name": f"n-{owner}", "labels": {**labels, "kubernetes.io/os": "linux"}, "taints": []}
            for owner, labels in (("gpu", {names.OWNER_LABEL: "gpu", "hw": "gpu"}), ("none", {"hw": "gpu"}))
        ]
        found_probes = list(probes.probes(table, SITE))
        assert found_probes
        for probe in found_probes:
            expected = copy.deepcopy(probe.expected)
            expected["metadata"]["labels"][names.PROBE_LABEL] = names.POLICY
            if probe.tolerations:
                expected["spec"]["tolerations"] = [dict(each) for each in probe.tolerations]
            if probe.secrets:
                expected["spec"]["imagePullSecrets"] = [{"name": name} for name in probe.secrets]
            images = table.images
            found = launcher_oracle.faults(
                raw, images, probe.pod, expected, namespace_labels={}, digest=digest, nodes=nodes
            )
            assert list(found) == [], probe.name

    def test_know_that_an_earlier_pool_takes_it_all(self):
        first = builders.pool(
            "first", selector={"vmLabels": {"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}}
        )
        assert {pool_of(probe) for probe in made(first, GPU).values()} == {"first"}

    def test_know_that_a_pool_is_for_other_namespaces(self):
        elsewhere = builders.pool("far", selector={"architectures": ["arm64"], "namespaces": ["elsewhere"]})
        assert {pool_of(probe) for probe in made(elsewhere).values()} == {"primary"}

    def test_of_many_pools_are_a_sample_with_both_ends(self):
        pools = [builders.pool(f"p{n}", selector={"architectures": [f"a{n}"]}) for n in range(777)]
        found = list(made(*pools))
        assert len(found) == 1 + probes.MOST_RULES
        assert found[1] == "for selector.architectures of pool p0"
        assert found[-1] == "for selector.architectures of pool p776"

    def test_cannot_be_taken_for_another_policys(self):
        stolen = {"vmLabels": {"matchLabels": {names.KUBEVIRT_LABEL: "other", names.PROBE_LABEL: "other"}}}
        found = list(probes.probes(Table.for_pools([builders.pool("gpu", selector=stolen)]), SITE, "mine"))
        labels = [probe.pod["metadata"]["labels"] for probe in found]
        assert {(each[names.KUBEVIRT_LABEL], each[names.PROBE_LABEL]) for each in labels} == {(names.LAUNCHER, "mine")}


class TestProblem:
    """Changes by others to both pods are no problem; every fault in the policy's part is one."""

    @pytest.fixture
    def probe(self):
        return made(GPU)["for selector.deviceNames of pool gpu"]

    @pytest.fixture
    def result(self, probe):
        pod = copy.deepcopy(probe.expected)
        pod["spec"]["tolerations"] = [dict(each) for each in probe.tolerations]
        pod["spec"]["imagePullSecrets"] = [{"name": name} for name in probe.secrets]
        return pod

    def test_is_none_when_all_is_as_expected(self, probe, result):
        assert probe.problem(result, probe.expected) is None

    def test_is_none_for_what_others_do(self, probe, result):
        others = copy.deepcopy(probe.expected)
        for pod in (result, others):
            for container in pod["spec"]["containers"]:
                container["image"] = f"mirror.example/{container['image']}"
                container.setdefault("resources", {})["claims"] = [{"name": "theirs"}]
            pod["spec"]["containers"].append({"name": "proxy", "image": "proxy"})
            pod["metadata"]["annotations"]["others"] = "too"
            pod["spec"].setdefault("tolerations", []).append(
                {"key": "lost", "operator": "Exists", "tolerationSeconds": 300}
            )
        assert probe.problem(result, others) is None

    @pytest.mark.parametrize(
        ("noted", "right"),
        [
            (f"mirror.example/{SITE.launcher_image}", True),
            (f"{SITE.launcher_image}-1", False),
            (f"mirror.example/x{SITE.launcher_image.rpartition('/')[2]}", False),
            ("", False),
        ],
    )
    def test_is_none_where_a_mirror_renamed_the_noted_image(self, probe, result, noted, right):
        note = next(e for e in result["spec"]["containers"][1]["env"] if e["name"] == names.STOCK_IMAGE_ENV)
        note["value"] = noted
        problem = probe.problem(result, probe.expected)
        assert problem is None if right else "environment.VIRTPOOLS_STOCK_IMAGE" in problem

    @pytest.mark.parametrize(
        ("spoil", "place"),
        [
            (
                lambda pod: pod["metadata"]["annotations"].update({names.OWNER_LABEL: "b"}),
                "annotations[virtpools.io/pool]",
            ),
            (lambda pod: pod["spec"]["initContainers"][0].update(image="b"), "images.container-disk-binary"),
            (lambda pod: pod["spec"]["containers"][0].update(image="b"), "images.hook-sidecar-0"),
            (lambda pod: pod["spec"]["containers"][1]["env"].pop(), "environment.VIRTPOOLS_STOCK_IMAGE"),
            (lambda pod: pod["spec"].pop("affinity", None), "nodeSelectorTerms"),
            (lambda pod: pod["spec"].pop("tolerations"), "tolerations"),
            (lambda pod: pod["spec"].pop("imagePullSecrets"), "imagePullSecrets"),
        ],
        ids=["annotation", "image", "user's image", "variable", "affinity", "toleration", "pull secret"],
    )
    def test_names_what_is_wrong(self, probe, result, spoil, place):
        spoil(result)
        problem = probe.problem(result, probe.expected)
        assert problem.startswith(f"The probe for selector.deviceNames of pool gpu has the wrong result: {place}")
        assert problem.endswith(".")
