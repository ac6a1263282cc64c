# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tests of the judge of launcher policies: correct pods pass, and it notices every kind of fault."""

from __future__ import annotations

import copy
import random

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools.dialects import OWN, read_dialect
from ansible_collections.virtpools.kubevirt.tests.unit.support import launcher_cases as cases
from ansible_collections.virtpools.kubevirt.tests.unit.support import launcher_oracle as oracle
from ansible_collections.virtpools.kubevirt.tests.unit.support.launcher_cases import (
    expression,
    launcher_pod,
    required,
    term,
)

DIGEST = "d1"
IMAGE = "registry.example/virt-launcher:gpu"
TOLERATION = {"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}
SECRET = {"name": "launchers"}
GPU = {
    "name": "gpu",
    "nodeSelector": {"accelerator": "nvidia"},
    "virtLauncherImage": IMAGE,
    "selector": {"deviceNames": [cases.A100]},
    "tolerations": [TOLERATION],
    "virtLauncherPullSecrets": [SECRET],
}
ARM = {
    "name": "arm",
    "nodeSelector": {"kubernetes.io/arch": "arm64"},
    "virtHandlerImage": "registry.example/virt-handler:arm",
    "selector": {"architectures": ["arm64"]},
    "unmatched": "allow",
}
SCREEN = {
    "name": "screen",
    "nodeSelector": {"screen": "yes"},
    "virtHandlerImage": "registry.example/virt-handler:screen",
}
POOLS = [GPU, ARM]
IN_GPU = expression(cases.OWNER, "In", "gpu")
OFF_GPU = expression(cases.OWNER, "NotIn", "gpu", "in_transit")
OF_GPU = {"tolerations": [TOLERATION], "secrets": [SECRET], "requirement": IN_GPU}


def images_of(pools):
    return {pool["name"]: pool.get("virtLauncherImage") for pool in pools}


def judged(before, after, pools=POOLS, images=None, seed=1, **more):
    rng = random.Random(seed)
    return oracle.faults(
        pools,
        images_of(pools) if images is None else images,
        before,
        after,
        namespace_labels=cases.NAMESPACES[before["metadata"]["namespace"]],
        digest=DIGEST,
        nodes=cases.random_nodes(rng, before, pools),
        **more,
    )


def mutated(before, *, pool=None, image=None, tolerations=(), secrets=(), requirement=OFF_GPU):
    """What a policy without fault makes of a pod."""
    after = copy.deepcopy(before)
    spec = after["spec"]
    stock = oracle.compute(before)["image"]
    if image:
        for container in (*spec["containers"], *spec.get("initContainers", ())):
            if container["image"] == stock and not container["name"].startswith(("volume", "hook-sidecar-")):
                container["image"] = image
        for volume in spec["volumes"]:
            if volume["name"] == "launcher-volume" and volume.get("image", {}).get("reference") == stock:
                volume["image"]["reference"] = image
    env = oracle.compute(after).setdefault("env", [])
    env += [{"name": "VIRTPOOLS_STOCK_IMAGE", "value": stock}, {"name": "VIRTPOOLS_POOL", "value": pool or "primary"}]
    missing = [each for each in tolerations if each not in spec.get("tolerations", [])]
    if missing:
        spec["tolerations"] = [*spec.get("tolerations", []), *missing]
    more = [each for each in secrets if each not in spec.get("imagePullSecrets", [])]
    if more:
        spec["imagePullSecrets"] = [*spec.get("imagePullSecrets", []), *more]
    node = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    demanded = node.setdefault("requiredDuringSchedulingIgnoredDuringExecution", {"nodeSelectorTerms": [{}]})
    terms = demanded["nodeSelectorTerms"]
    for each in terms:
        if each or not before["spec"].get("affinity", {}).get("nodeAffinity", {}).get(
            "requiredDuringSchedulingIgnoredDuringExecution"
        ):
            each.setdefault("matchExpressions", []).append(requirement)
    annotations = after["metadata"].setdefault("annotations", {})
    annotations |= {"virtpools.io/pool": pool or "primary", "virtpools.io/policy": DIGEST}
    return after


def gpu_pod(kind="virtiofs", **fields):
    return launcher_pod(kind, devices={cases.A100: 1}, **fields)


def matched(before):
    return mutated(before, pool="gpu", image=IMAGE, **OF_GPU)


class TestWhatIsRight:
    @pytest.mark.parametrize("seed", range(30))
    def test_is_what_it_makes_itself(self, seed):
        rng = random.Random(seed)
        pools = cases.random_pools(rng)
        images = cases.random_images(rng, pools)
        canaries = cases.random_canaries(rng, images)
        for number in range(20):
            pod = cases.random_pod(rng, f"pod-{number}")
            labels = cases.NAMESPACES[pod["metadata"]["namespace"]]
            made = oracle.admitted(pools, images, pod, namespace_labels=labels, digest=DIGEST, canaries=canaries)
            assert judged(pod, made, pools, images, seed=seed + number, canaries=canaries) == []

    @pytest.mark.parametrize("kind", cases.KINDS)
    def test_of_every_kind(self, kind):
        assert judged(gpu_pod(kind), matched(gpu_pod(kind))) == []
        plain = {key: launcher_pod(kind, architecture=key) for key in ("arm64", "amd64")}
        if cases.A100 in oracle.compute(plain["arm64"])["resources"]["limits"]:
            return
        arm = mutated(plain["arm64"], pool="arm", requirement=expression(cases.OWNER, "In", "arm"))
        assert judged(plain["arm64"], arm) == []
        assert judged(plain["amd64"], mutated(plain["amd64"])) == []

    def test_when_every_pool_keeps_unmatched_vms_off(self):
        before = launcher_pod()
        absent = expression(cases.OWNER, "DoesNotExist")
        assert judged(before, mutated(before, requirement=absent), [GPU]) == []
        # A node of a pool that was taken off the list is nobody's.
        not_gpu = mutated(before, requirement=OFF_GPU)
        assert any("ghost" in fault for fault in judged(before, not_gpu, [GPU]))

    def test_random_pods_that_no_pool_takes(self):
        """Affinities of every shape, users' images, spoofed annotations: all left as they are."""
        rng = random.Random(7)
        for number in range(300):
            before = cases.random_pod(rng, f"pod-{number}")
            assert judged(before, mutated(before), images={}, seed=number) == []

    def test_random_pods_that_a_pool_takes(self):
        rng = random.Random(8)
        everything = {**GPU, "selector": {"architectures": list(cases.ARCHITECTURES)}}
        for number in range(300):
            before = cases.random_pod(rng, f"pod-{number}")
            before["spec"]["nodeSelector"]["kubernetes.io/arch"] = "amd64"
            assert judged(before, matched(before), [everything], seed=number) == []

    def test_a_pool_image_that_is_the_stock_image(self):
        before = gpu_pod()
        same = {"gpu": cases.STOCK, "arm": None}
        after = mutated(before, pool="gpu", image=cases.STOCK, **OF_GPU)
        assert judged(before, after, images=same) == []
        assert judged(before, matched(before), images=same)

    @pytest.mark.parametrize("kind", ["virtiofs", "containerDisk, image volumes off"])
    def test_what_a_mirror_left_out_before(self, kind):
        before = gpu_pod(kind)
        oracle.compute(before)["image"] = f"mirror.example/{cases.STOCK}"
        others = matched(gpu_pod(kind))
        oracle.compute(others)["env"] = oracle.compute(matched(before))["env"]
        assert judged(before, others) == []
        assert any("has the image" in fault for fault in judged(before, matched(before)))
        assert judged(before, mutated(before), images={}) == []

    @pytest.mark.parametrize("left", [{"tolerations": [TOLERATION]}, {"secrets": [SECRET]}], ids=str)
    def test_what_a_former_winner_left(self, left):
        before = launcher_pod()
        after = mutated(before, **left)
        assert judged(before, after)
        assert judged(before, after, former=[GPU]) == []


class TestCanaries:
    NEW = "registry.example/virt-launcher:gpu-2"

    @pytest.mark.parametrize(("named", "image"), [("gpu", NEW), ("arm", IMAGE), ("primary", IMAGE)])
    def test_get_the_image_of_the_pool_that_they_name(self, named, image):
        before = gpu_pod(labels={cases.CANARY: named})
        for found in (IMAGE, self.NEW):
            after = mutated(before, pool="gpu", image=found, **OF_GPU)
            assert (judged(before, after, canaries={"gpu": self.NEW}) == []) is (found == image)

    def test_may_get_the_stock_image(self):
        before = gpu_pod(labels={cases.CANARY: "gpu"})
        after = mutated(before, pool="gpu", **OF_GPU)
        assert judged(before, after, canaries={"gpu": None}) == []
        assert judged(before, after)


class TestWinner:
    def won(self, pod, *pools, images=None):
        labels = cases.NAMESPACES[pod["metadata"]["namespace"]]
        found = oracle.winner(pools, images_of(pools) if images is None else images, pod, labels)
        return found and found["name"]

    def test_is_the_first_that_matches(self):
        pod = gpu_pod(architecture="arm64")
        assert self.won(pod, GPU, ARM) == "gpu"
        assert self.won(pod, ARM, GPU) == "arm"
        assert self.won(pod, SCREEN, ARM) == "arm"
        assert self.won(pod, SCREEN) is None

    def test_must_be_active(self):
        assert self.won(gpu_pod(architecture="arm64"), GPU, ARM, images={"arm": None}) == "arm"

    @pytest.mark.parametrize(
        ("selector", "takes"),
        [
            ({"deviceNames": [cases.L40S, cases.A100]}, True),
            ({"deviceNames": [cases.L40S]}, False),
            ({"vmLabels": {"matchLabels": {"workload": "gpu"}}}, True),
            ({"vmLabels": {"matchLabels": {"workload": "GPU"}}}, False),
            ({"vmLabels": {"matchLabels": {"workload": "gpu", "other": "x"}}}, False),
            (
                {"vmLabels": {"matchLabels": {"workload": "gpu"}, "matchExpressions": [expression("x", "Exists")]}},
                False,
            ),
            ({"vmLabels": {"matchExpressions": [expression("workload", "In", "rt", "gpu")]}}, True),
            ({"vmLabels": {"matchExpressions": [expression("workload", "NotIn", "gpu")]}}, False),
            ({"vmLabels": {"matchExpressions": [expression("other", "NotIn", "gpu")]}}, True),
            ({"vmLabels": {"matchExpressions": [expression("other", "DoesNotExist")]}}, True),
            ({"vmLabels": {"matchExpressions": [expression("workload", "Exists")]}}, True),
            ({"matchNodeSelector": True}, True),
            ({"architectures": ["s390x", "amd64"]}, True),
            ({"architectures": ["s390x"]}, False),
            ({"architectures": ["s390x"], "deviceNames": [cases.A100]}, True),
            ({"architectures": ["amd64"], "namespaces": ["team-a"]}, True),
            ({"architectures": ["amd64"], "namespaces": ["plain"]}, False),
            ({"architectures": ["amd64"], "namespaces": {"matchLabels": {"tier": "gold"}}}, True),
            ({"architectures": ["amd64"], "namespaces": {"matchLabels": {"tier": "silver"}}}, False),
            (
                {"architectures": ["amd64"], "namespaces": {"names": ["team-a"], "matchLabels": {"tier": "silver"}}},
                True,
            ),
        ],
    )
    def test_of_each_criterion(self, selector, takes):
        pod = gpu_pod(namespace="team-a", labels={"workload": "gpu"}, node_selector={"accelerator": "nvidia"})
        assert (self.won(pod, {**GPU, "selector": selector}) == "gpu") == takes

    def test_of_a_node_selector_that_lacks_a_label(self):
        pool = {**GPU, "nodeSelector": {"accelerator": "nvidia", "zone": "a"}, "selector": {"matchNodeSelector": True}}
        assert self.won(launcher_pod(node_selector={"accelerator": "nvidia"}), pool) is None
        assert self.won(launcher_pod(node_selector={"accelerator": "nvidia", "zone": "a"}), pool) == "gpu"


def _stock_again(which, name):
    def spoil(pod):
        next(each for each in pod["spec"][which] if each["name"] == name)["image"] = cases.STOCK

    return spoil


def _set(*path, value):
    def spoil(pod):
        *above, last = path
        for step in above:
            pod = pod[step]
        pod[last] = value

    return spoil


def _without(*path):
    def spoil(pod):
        *above, last = path
        for step in above:
            pod = pod[step]
        del pod[last]

    return spoil


def _terms(pod):
    return pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]


def _volume(pod, name):
    return next(volume for volume in pod["spec"]["volumes"] if volume["name"] == name)


ENV = ("spec", "containers", 0, "env")
FAULTS = {
    "compute has the stock image": _stock_again("containers", "compute"),
    "virtiofs has the stock image": _stock_again("containers", "virtiofs-cfg"),
    "the log has the stock image": _stock_again("initContainers", "guest-console-log"),
    "launcher-volume has the stock image": lambda pod: _volume(pod, "launcher-volume")["image"].update(
        reference=cases.STOCK
    ),
    "the user's disk has the pool image": lambda pod: _volume(pod, "root")["image"].update(reference=IMAGE),
    "the user's container has the pool image": _set("spec", "initContainers", 1, "image", value=IMAGE),
    "another pool image": _set("spec", "containers", 0, "image", value=f"{IMAGE}x"),
    "no affinity": _without("spec", "affinity"),
    "a term more, which is ORed": lambda pod: _terms(pod).append(term(expression("zone", "Exists"))),
    "one term without the requirement": lambda pod: _terms(pod)[0]["matchExpressions"].remove(IN_GPU),
    "a term of fields without the requirement": lambda pod: _terms(pod)[1].pop("matchExpressions"),
    "a term has lost what the user asked": lambda pod: _terms(pod)[0]["matchExpressions"].pop(0),
    "a term has lost its fields": lambda pod: _terms(pod)[1].pop("matchFields"),
    "the empty term has got the requirement": lambda pod: _terms(pod)[2].update(matchExpressions=[IN_GPU]),
    "a term is lost": lambda pod: _terms(pod).pop(0),
    "the requirement names another pool": _set(
        "spec",
        "affinity",
        value=required(term(expression("zone", "In", "a"), expression(cases.OWNER, "In", "arm"))),
    ),
    "the requirement is weaker": lambda pod: [
        each["matchExpressions"].append(expression(cases.OWNER, "Exists")) or each["matchExpressions"].remove(IN_GPU)
        for each in _terms(pod)[:2]
    ],
    "the preference is lost": _without(
        "spec", "affinity", "nodeAffinity", "preferredDuringSchedulingIgnoredDuringExecution"
    ),
    "a toleration is missing": lambda pod: pod["spec"]["tolerations"].remove(TOLERATION),
    "a toleration comes twice": lambda pod: pod["spec"]["tolerations"].append(TOLERATION),
    "the user's toleration is lost": lambda pod: pod["spec"]["tolerations"].pop(0),
    "a toleration for no reason": lambda pod: pod["spec"]["tolerations"].append({"operator": "Exists"}),
    "a pull secret is missing": lambda pod: pod["spec"]["imagePullSecrets"].remove(SECRET),
    "a pull secret comes twice": lambda pod: pod["spec"]["imagePullSecrets"].append(SECRET),
    "the user's pull secret is lost": lambda pod: pod["spec"]["imagePullSecrets"].pop(0),
    "a pull secret for no reason": lambda pod: pod["spec"]["imagePullSecrets"].append({"name": "other"}),
    "another pool's name": _set("metadata", "annotations", "virtpools.io/pool", value="arm"),
    "no name": _without("metadata", "annotations", "virtpools.io/pool"),
    "a spoofed digest stays": _set("metadata", "annotations", "virtpools.io/policy", value="0"),
    "the user's annotation is lost": _without("metadata", "annotations", "kubevirt.io/domain"),
    "a label is lost": _without("metadata", "labels", "vm.kubevirt.io/name"),
    "no variables": lambda pod: oracle.compute(pod).update(env=oracle.compute(pod)["env"][:-2]),
    "no name of the pool": lambda pod: oracle.compute(pod)["env"].pop(),
    "another stock image remembered": _set(*ENV, -2, "value", value=cases.DISK),
    "a variable twice": lambda pod: oracle.compute(pod)["env"].append(oracle.compute(pod)["env"][-1]),
    "KubeVirt's variable is lost": lambda pod: oracle.compute(pod)["env"].pop(0),
    "the variables on another container": lambda pod: pod["spec"]["containers"][1].update(
        env=[oracle.compute(pod)["env"].pop(), oracle.compute(pod)["env"].pop()]
    ),
    "a container is lost": lambda pod: pod["spec"]["containers"].pop(),
    "a limit is changed": _set("spec", "containers", 0, "resources", "limits", cases.A100, value="2"),
    "a pull policy is changed": lambda pod: _volume(pod, "launcher-volume")["image"].update(pullPolicy="Always"),
    "a node selector": _set("spec", "nodeSelector", "zone", value="a"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_notices_on_a_matched_pod(fault):
    preference = {"weight": 1, "preference": term(expression("zone", "In", "a"))}
    fields = [expression("metadata.name", "In", "node-1")]
    before = gpu_pod(
        affinity=required(
            term(expression("zone", "In", "a")),
            term(fields=fields),
            {},
            preferredDuringSchedulingIgnoredDuringExecution=[preference],
        ),
        tolerations=[{"key": "dedicated.example/for", "operator": "Exists"}],
        pull_secrets=["disks"],
        annotations=cases.SPOOF,
    )
    after = matched(before)
    assert judged(before, after) == []
    FAULTS[fault](after)
    assert judged(before, after) != []


UNMATCHED_FAULTS = {
    "may land on the pool": lambda pod: pod["spec"].pop("affinity"),
    "may land on nodes in transit": _set(
        "spec", "affinity", value=required(term(expression(cases.OWNER, "NotIn", "gpu")))
    ),
    "kept off a pool that allows it": _set(
        "spec", "affinity", value=required(term(expression(cases.OWNER, "DoesNotExist")))
    ),
    "has the pool image": _set("spec", "containers", 0, "image", value=IMAGE),
    "does not say so in a variable": lambda pod: oracle.compute(pod)["env"].pop(),
    "forgets the stock image": lambda pod: oracle.compute(pod)["env"].pop(-2),
    "tolerates for no reason": _set("spec", "tolerations", value=[TOLERATION]),
    "has a pull secret for no reason": _set("spec", "imagePullSecrets", value=[SECRET]),
    "a pool's name": _set("metadata", "annotations", "virtpools.io/pool", value="gpu"),
}


@pytest.mark.parametrize("fault", UNMATCHED_FAULTS)
def test_notices_on_an_unmatched_pod(fault):
    before = launcher_pod("containerDisk", annotations=cases.SPOOF)
    after = mutated(before)
    assert judged(before, after) == []
    UNMATCHED_FAULTS[fault](after)
    assert judged(before, after) != []


class TestCases:
    def test_pool_lists_are_valid(self):
        rng = random.Random(1)
        for _ in range(200):
            pools = cases.random_pools(rng)
            assert [pool.name for pool in read_dialect(OWN, pools)] == [pool["name"] for pool in pools]

    def test_pools_and_pods_meet_and_miss(self):
        """Or a judge of what a policy makes of them would have seen one half only."""
        rng = random.Random(2)
        pods = [cases.random_pod(rng, f"pod-{number}") for number in range(100)]
        found = {"matched": 0, "handler only": 0, "unmatched": 0, "allowed": 0}
        for _ in range(20):
            pools = cases.random_pools(rng)
            images = cases.random_images(rng, pools)
            for pod in pods:
                won = oracle.winner(pools, images, pod, cases.NAMESPACES[pod["metadata"]["namespace"]])
                allowed = any(pool.get("unmatched") == "allow" for pool in pools)
                kind = ("matched" if images[won["name"]] else "handler only") if won else "unmatched"
                found["allowed" if kind == "unmatched" and allowed else kind] += 1
        assert min(found.values()) > 100, found

    def test_nodes_tell_pods_apart(self):
        rng = random.Random(3)
        landings = 0
        for number in range(200):
            pod = cases.random_pod(rng, f"pod-{number}")
            nodes = cases.random_nodes(rng, pod, [GPU])
            landings += any(oracle.lands(pod["spec"], node, [{"operator": "Exists"}]) for node in nodes)
        # The others ask for what no node has: nothing but empty terms, or terms that contradict themselves.
        assert landings > 150

    def test_a_seed_repeats(self):
        one, other = ([cases.random_pod(random.Random(5), "x"), cases.random_pools(random.Random(5))] for _ in "12")
        assert one == other
