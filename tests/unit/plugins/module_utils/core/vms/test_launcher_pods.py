# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import random

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import affinity, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.selectors import Requirement
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.observed.nodes import Node
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms import launcher_pods, mapping
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms.launcher_pods import (
    LauncherImages,
    LauncherPod,
    PodPlacement,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms.mapping import Table
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders, launcher_cases

STOCK = launcher_cases.STOCK
GPU_NODES = Requirement(names.OWNER_LABEL, "In", ("gpu",))


def node(*args, **fields):
    return Node.from_object(builders.node(*args, **fields))


class TestWrong:
    A, B = "a" * 64, "b" * 64

    def wrong(self, image, expected, stock=STOCK):
        images = LauncherImages(
            Table((builders.pool("gpu", virtLauncherImage=expected, selector={"deviceNames": ["a.example/b"]}),)), stock
        )
        return images.wrong({"container compute": image}, expected)

    def test_not_by_a_digest_that_admission_appended(self):
        assert not self.wrong(f"reg.example/gpu:1@sha256:{self.A}", "reg.example/gpu:1")

    def test_by_another_digest_than_the_pools(self):
        assert self.wrong(f"reg.example/gpu:1@sha256:{self.A}", f"reg.example/gpu:1@sha256:{self.B}")

    def test_by_kubevirts_image_with_an_appended_digest(self):
        """Both have the same last element, so that a mirror's copy would count as the right one."""
        stock = "reg.example/kubevirt/virt-launcher:1"
        assert self.wrong(f"{stock}@sha256:{self.A}", "reg.example/gpu/virt-launcher:1", stock)


class TestMirrors:
    STOCK, GPU = "quay.example/kubevirt/virt-launcher:1", "reg.example/gpu/virt-launcher:1"
    IMAGES = LauncherImages(
        Table((builders.pool("gpu", virtLauncherImage=GPU, selector={"deviceNames": ["a.example/b"]}),)), STOCK
    )

    @pytest.mark.parametrize(
        ("image", "expected", "found"),
        [
            ("mirror.example/kubevirt/virt-launcher:1", STOCK, "right"),
            ("mirror.example/kubevirt/virt-launcher:1", GPU, "wrong"),
            ("mirror.example/quay.example/kubevirt/virt-launcher:1", STOCK, "right"),
            ("mirror.example/cache/gpu/virt-launcher:1", GPU, "right"),
            ("mirror.example/cache/gpu/virt-launcher:1", STOCK, "wrong"),
            ("mirror.example/virt-launcher:1", GPU, "unsure"),
            ("mirror.example/virt-launcher:1", STOCK, "unsure"),
            ("mirror.example/virt-launcher:2", STOCK, "wrong"),
            (GPU, STOCK, "wrong"),
        ],
    )
    def test_show_by_the_path_whose_copy_an_image_is(self, image, expected, found):
        pod = {"container compute": image}
        wrong, unsure = self.IMAGES.wrong(pod, expected), self.IMAGES.unsure(pod, expected)
        assert (wrong, unsure) == (pod if found == "wrong" else {}, pod if found == "unsure" else {})


class TestLauncherImages:
    @pytest.mark.parametrize(
        ("kind", "more"),
        [
            ("pvc", {"init container guest-console-log"}),
            ("containerDisk", {"init container guest-console-log", "volume launcher-volume"}),
            (
                "virtiofs, image volumes off",
                {
                    "init container guest-console-log",
                    "init container container-disk-binary",
                    "container virtiofs-shared",
                    "container virtiofs-cfg",
                },
            ),
            ("hook sidecars", {"init container guest-console-log"}),
            ("no init container", set()),
        ],
    )
    def test_are_found_by_name_in_every_place(self, kind, more):
        pod = LauncherPod.from_object(launcher_cases.launcher_pod(kind, stock="other.example/launcher:2"))
        assert pod.launcher_images == dict.fromkeys({"container compute", *more}, "other.example/launcher:2")

    def test_the_users_own_images_are_none(self):
        pod = launcher_cases.launcher_pod("containerDisk")
        pod["spec"]["volumes"].append({"name": "other", "image": {"reference": STOCK}})
        pod["spec"]["volumes"].append({"name": "launcher-volume", "emptyDir": {}})
        assert set(LauncherPod.from_object(pod).launcher_images) == {
            "container compute",
            "init container guest-console-log",
            "volume launcher-volume",
        }


class TestHypervisor:
    """The one of a new pod is the pool's or, as the launcher policy noted it, that of KubeVirt's configuration."""

    MSHV = builders.pool("mshv", hypervisor="hyperv-direct", selector={"deviceNames": ["a.example/b"]})
    PLAIN = builders.pool("plain", selector={"deviceNames": ["a.example/b"]})

    def pod(self, command, stock=None, args=()):
        pod = launcher_cases.launcher_pod()
        compute = pod["spec"]["containers"][0]
        compute["command"], compute["args"] = command, args
        if stock:
            compute["env"].append({"name": "VIRTPOOLS_STOCK_HYPERVISOR", "value": stock})
        return LauncherPod.from_object(pod)

    @pytest.mark.parametrize(
        ("command", "name"),
        [
            (["virt-launcher-monitor", "--hypervisor", "hyperv-direct", "--allow-emulation"], "hyperv-direct"),
            (["virt-launcher-monitor"], "kvm"),
            (["virt-launcher-monitor", "--hypervisor"], "kvm"),
            ([], "kvm"),
        ],
    )
    def test_is_the_value_of_the_argument(self, command, name):
        assert self.pod(command).hypervisor == name
        assert self.pod(command[:1], args=command[1:]).hypervisor == name, "as KubeVirt has it after 1.9"

    def test_of_a_pod_that_only_binds_volumes_is_that_of_its_device(self):
        pod = launcher_cases.launcher_pod()
        compute = pod["spec"]["containers"][0]
        compute |= {"command": ["/bin/bash", "-c"], "resources": {"limits": {"devices.kubevirt.io/mshv": "1"}}}
        assert LauncherPod.from_object(pod).hypervisor == "hyperv-direct"

    @pytest.mark.parametrize(
        ("now", "stock", "winner", "wrong"),
        [
            ("kvm", None, None, ""),
            ("kvm", None, PLAIN, ""),
            ("kvm", None, MSHV, "it runs on kvm instead of hyperv-direct"),
            ("hyperv-direct", "kvm", MSHV, ""),
            ("hyperv-direct", "kvm", PLAIN, "it runs on hyperv-direct instead of kvm"),
            ("hyperv-direct", "kvm", None, "it runs on hyperv-direct instead of kvm"),
        ],
    )
    def test_differs_from_that_of_a_new_pod(self, now, stock, winner, wrong):
        assert self.pod(["m", "--hypervisor", now], stock).wrong_hypervisor(winner) == wrong


class TestLauncherPod:
    def test_tells_what_the_policy_noted_from_what_anybody_can_write(self):
        pod = launcher_cases.launcher_pod(annotations={"virtpools.io/pool": "spoofed", "virtpools.io/policy": "0"})
        compute = pod["spec"]["containers"][0]
        compute["env"] += [
            {"name": "VIRTPOOLS_STOCK_IMAGE", "value": STOCK},
            {"name": "VIRTPOOLS_POOL", "value": "gpu"},
        ]
        sidecar = {"name": "hook-sidecar-0", "env": [{"name": "VIRTPOOLS_POOL", "value": "other"}]}
        pod["spec"]["containers"].append(sidecar)
        found = LauncherPod.from_object(pod)
        assert (found.stock, found.pool_env) == (STOCK, "gpu")
        assert found.policy_annotation == "0"

    def test_is_its_vmis_whose_name_may_be_too_long_for_a_label(self):
        long = "v" * 100
        pod = launcher_cases.launcher_pod(annotations={"kubevirt.io/domain": long})
        assert (LauncherPod.from_object(pod).vmi, LauncherPod.from_object(pod).vmi_uid) == (long, None)
        pod["metadata"]["ownerReferences"] = [
            {"kind": "Other", "name": "x", "uid": "1", "controller": True},
            {"kind": "VirtualMachineInstance", "name": f"{long}2", "uid": "2", "controller": True},
        ]
        assert (LauncherPod.from_object(pod).vmi, LauncherPod.from_object(pod).vmi_uid) == (f"{long}2", "2")
        del pod["metadata"]["ownerReferences"], pod["metadata"]["annotations"]
        assert LauncherPod.from_object(pod).vmi == "vm"

    def test_says_what_the_scheduler_says(self):
        pod = launcher_cases.launcher_pod()
        assert LauncherPod.from_object(pod).unschedulable is None
        pod["status"] = {
            "phase": "Pending",
            "conditions": [
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
            ],
        }
        assert LauncherPod.from_object(pod).unschedulable == "0/3 nodes"

    def test_knows_that_it_is_a_migrations_target_or_has_ended(self):
        assert LauncherPod.from_object(launcher_cases.launcher_pod("migration target")).migration == "f7a7"
        pod = launcher_cases.launcher_pod()
        assert LauncherPod.from_object(pod).migration is None
        assert not LauncherPod.from_object(pod).ended
        assert LauncherPod.from_object({**pod, "status": {"phase": "Succeeded"}}).ended

    def test_needs_nothing_but_a_name_and_a_spec(self):
        found = LauncherPod.from_object({"metadata": {"name": "x"}, "spec": {}})
        assert (found.vmi, found.node, found.launcher_images, found.placement.terms) == ("", "", {}, None)

    def test_every_random_pod_can_be_read(self):
        rng = random.Random(4)
        for number in range(200):
            pod = launcher_cases.random_pod(rng, f"virt-launcher-{number}")
            found = LauncherPod.from_object(pod)
            (image,) = [c["image"] for c in pod["spec"]["containers"] if c["name"] == "compute"]
            assert found.launcher_images["container compute"] == image
            assert launcher_pods.is_launcher(pod)
            hash(found.launcher_images)


class TestPlacement:
    def test_with_a_pool_is_the_former_one_on_the_pools_nodes_only(self):
        """For random pods and nodes: a node fits when it fits both, however the terms are written."""
        rng = random.Random(11)
        table = mapping.Table(rules=(), keep_off=("a", "b-2"), allow=("gpu",))
        for number in range(300):
            before = PodPlacement.from_spec(launcher_cases.random_pod(rng, f"p{number}")["spec"])
            pool = builders.pool(rng.choice(launcher_cases.POOL_NAMES))
            requirement = table.requirement(rng.choice((None, pool)))
            after = before.with_pool(requirement)
            for owner in (None, "gpu", "a", "b-2", "in_transit", pool.name):
                labels = {key: rng.choice(values) for key, values in launcher_cases.NODE_LABELS.items()}
                labels |= {} if owner is None else {names.OWNER_LABEL: owner}
                name = rng.choice(launcher_cases.NODE_NAMES)
                assert _allows(after, labels, name) == (
                    _allows(before, labels, name) and requirement.matches(labels)
                ), (before.terms, after.terms, labels)

    def test_adds_the_pools_tolerations(self):
        taint = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
        before = PodPlacement({}, None, ())
        on = node(owner="gpu", taints=[taint])
        assert before.with_pool(GPU_NODES).unfit(on) == "the taint gpu=yes:NoSchedule is not tolerated"
        assert before.with_pool(GPU_NODES, [{"key": "gpu", "operator": "Exists"}]).unfit(on) is None

    def test_names_the_owner_first_since_it_concerns_most_nodes(self):
        placement = PodPlacement({"kubevirt.io/schedulable": "true"}, None, ()).with_pool(GPU_NODES)
        assert placement.unfit(node(schedulable=False)) == "the node affinity asks for virtpools.io/pool=gpu"
        assert placement.unfit(node(owner="gpu", schedulable=False)) == (
            "the nodeSelector asks for kubevirt.io/schedulable=true"
        )
        assert placement.unfit(node(owner="gpu")) is None

    def test_tells_other_affinity_from_the_owners(self):
        zone = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
        placement = PodPlacement({}, (zone,), ()).with_pool(GPU_NODES)
        assert placement.owner == GPU_NODES
        assert placement.unfit(node(owner="gpu")) == "no required term of the node affinity fits"
        assert placement.unfit(node(owner="gpu", labels={"zone": "a"})) is None

    def test_has_no_one_owner_where_terms_disagree(self):
        terms = [{"matchExpressions": [{"key": names.OWNER_LABEL, "operator": "In", "values": [v]}]} for v in "ab"]
        assert PodPlacement({}, tuple(terms), ()).owner is None
        assert PodPlacement({}, None, ()).owner is None


def _allows(placement, labels, name):
    return affinity.is_met(placement.terms, labels, name)


@pytest.mark.parametrize(
    "terms", [None, (), ({},), ({"matchExpressions": [{"key": "a", "operator": "Exists"}]},)], ids=str
)
def test_what_the_policy_added_can_be_taken_out_of_a_placement(terms):
    own = PodPlacement({}, terms, ())
    freed = own.with_pool(GPU_NODES).without_owner()
    for labels in ({}, {"a": "1"}, {names.OWNER_LABEL: "gpu"}):
        found = node(labels=labels)
        assert (freed.unfit(found) is None) == (own.unfit(found) is None)
