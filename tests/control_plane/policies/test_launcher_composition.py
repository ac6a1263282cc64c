# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""The launcher policy together with other webhooks and policies that change launcher pods, and during an upgrade.

The webhooks are real and belong to the test. Whatever they do, and in whatever order, a pool's VM gets the pool's image
(or its mirrored name) everywhere, and no other VM gets it.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.client import DeleteOptions
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.kinds import POD
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools.dialects import OWN, read_dialect
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms.mapping import Table, Upcoming
from ansible_collections.virtpools.kubevirt.tests.unit.support import launcher_cases as cases
from ansible_collections.virtpools.kubevirt.tests.unit.support import launcher_oracle as oracle
from ansible_collections.virtpools.kubevirt.tests.unit.support.launcher_cases import launcher_pod
from policy_server import PolicyServer, changed, derived
from webhooks import WEBHOOK, Object, Patch, serve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

IMAGE = "registry.example/kubevirt/virt-launcher:v1.9.0-gpu"
TOLERATION = {"key": "gpu", "operator": "Exists"}
GPU = {
    "name": "gpu",
    "nodeSelector": {"accelerator": "nvidia"},
    "virtLauncherImage": IMAGE,
    "selector": {"deviceNames": [cases.A100]},
    "tolerations": [TOLERATION],
}
ARM = {
    "name": "arm",
    "nodeSelector": {"kubernetes.io/arch": "arm64"},
    "virtHandlerImage": "registry.example/virt-handler:arm",
    "selector": {"architectures": ["arm64"]},
}
POOLS = derived(Table.for_pools(read_dialect(OWN, [GPU, ARM])))

REGISTRY, MIRROR = "registry.example/", "mirror.example/"
USERS = ("volumeroot", "root")


def mirrored(image: str) -> str:
    """Return an image's name in the mirror."""
    return image.replace(REGISTRY, MIRROR, 1)


# What others do -----------------------------------------------------------------------------------------------------


def mirror_of_containers(pod: Object) -> Patch:
    """Rename the images of containers to those of a mirror, like webhooks that do not know image volumes."""
    return [each for each in mirror(pod) if not each["path"].startswith("/spec/volumes")]


def mirror(pod: Object) -> Patch:
    """Rename every image to that of a mirror."""
    patch = []
    for which, field in (("containers", "image"), ("initContainers", "image")):
        for index, container in enumerate(pod["spec"].get(which, ())):
            patch.append(_replace(f"/spec/{which}/{index}/{field}", container["image"]))
    for index, volume in enumerate(pod["spec"]["volumes"]):
        if "image" in volume:
            patch.append(_replace(f"/spec/volumes/{index}/image/reference", volume["image"]["reference"]))
    return [each for each in patch if each["value"] is not None]


def _replace(path: str, image: str) -> Object:
    return {"op": "replace", "path": path, "value": mirrored(image) if image.startswith(REGISTRY) else None}


def stock_container(pod: Object) -> Patch:
    """Add a container with KubeVirt's launcher image, whatever image the other containers have by now."""
    return _late(pod, cases.STOCK)


def copied_container(pod: Object) -> Patch:
    """Add a container with the image of compute, as virt-api's own webhook does."""
    return _late(pod, oracle.compute(pod)["image"])


def _late(pod: Object, image: str) -> Patch:
    containers = pod["spec"]["containers"]
    if any(container["name"] == "virtiofs-late" for container in containers):
        return []
    return [{"op": "add", "path": "/spec/containers/-", "value": {"name": "virtiofs-late", "image": image}}]


def device(pod: Object) -> Patch:
    """Have the container compute ask for a device, as injectors of network resources do."""
    index = next(i for i, each in enumerate(pod["spec"]["containers"]) if each["name"] == "compute")
    resources = pod["spec"]["containers"][index]["resources"]
    if cases.A100 in resources["limits"]:
        return []
    more = {which: {**resources[which], cases.A100: "1"} for which in ("limits", "requests")}
    return [{"op": "replace", "path": f"/spec/containers/{index}/resources", "value": more}]


OTHERS: dict[str, Callable[[Object], Patch]] = {
    "mirror": mirror,
    "mirror-of-containers": mirror_of_containers,
    "stock": stock_container,
    "copy": copied_container,
    "device": device,
}


_ADDS_A_CONTAINER = f"""
    object.spec.containers.exists(c, c.name == "virtiofs-late") ? [] :
    [JSONPatch{{op: "add", path: "/spec/containers/-", value: {{"name": "virtiofs-late", "image": "{cases.STOCK}"}}}}]"""
_RENAMES = " + ".join(
    f"""object.spec.?{items}.orValue([]).transformList(i, c, c{field}.orValue("").startsWith("{REGISTRY}"),
    JSONPatch{{op: "replace", path: "/spec/{items}/" + string(i) + "{path}",
    value: "{MIRROR}" + c{field}.orValue("").substring({len(REGISTRY)})}})"""
    for items, field, path in (
        ("containers", ".?image", "/image"),
        ("initContainers", ".?image", "/image"),
        ("volumes", ".?image.?reference", "/image/reference"),
    )
)
OTHER_POLICIES: dict[str, tuple[str, Callable[[str], str]]] = {
    "container": (_ADDS_A_CONTAINER, str),
    "mirror": (_RENAMES, mirrored),
}
"""What other policies do, as CEL, with a function that returns the name that they give a launcher image."""


def _mutation(expression: str) -> Object:
    return {"variables": [], "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}]}


@dataclass(frozen=True)
class Combination:
    """Webhooks that act together with the policy, in the order of their calls, each with its reinvocation policy."""

    webhooks: tuple[tuple[str, str], ...]

    @property
    def arena(self) -> str:
        """Return the arena of its pods."""
        return "-".join(f"{name}-{reinvocation.lower()}" for name, reinvocation in self.webhooks)

    def has(self, name: str) -> bool:
        """Return whether one of the webhooks is of that kind."""
        return any(each == name for each, _reinvocation in self.webhooks)

    @property
    def mirrors_once(self) -> bool:
        """Return whether one of the webhooks renames images and is called only once."""
        return any(name.startswith("mirror") and again == "Never" for name, again in self.webhooks)

    def names_of(self, image: str) -> set[str]:
        """Return the names that an image may have in the end."""
        if self.has("mirror-of-containers"):
            return {image, mirrored(image)}
        return {mirrored(image)} if self.has("mirror") else {image}

    def __str__(self) -> str:
        """Return its name in the ids of tests."""
        return self.arena


def _combinations() -> Iterator[Combination]:
    for count in (1, 2):
        for kinds in itertools.permutations(OTHERS, count):
            if set(kinds) not in ({"stock", "copy"}, {"mirror", "mirror-of-containers"}):
                for reinvocations in itertools.product(("IfNeeded", "Never"), repeat=count):
                    yield Combination(tuple(zip(kinds, reinvocations, strict=True)))
    for kinds in itertools.permutations(("mirror", "copy", "device")):
        for reinvocation in ("IfNeeded", "Never"):
            yield Combination(tuple((kind, reinvocation) for kind in kinds))


COMBINATIONS = tuple(_combinations())


@pytest.fixture(scope="module")
def server(plain_cluster: Any) -> PolicyServer:
    return PolicyServer(plain_cluster)


@pytest.fixture(scope="module")
def combinations(
    plain_cluster: Any, server: PolicyServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PolicyServer]:
    """Install the policy and the webhooks of every combination; each combination has an arena of its own."""
    arenas = [combination.arena for combination in COMBINATIONS]
    server.install(POOLS, *arenas)
    server.install(changed(POOLS, lambda spec: spec.update(reinvocationPolicy="Never")), "called-once")
    with serve(tmp_path_factory.mktemp("webhooks")) as webhooks:
        configuration = [
            webhooks.webhook(f"{combination.arena}-{index}", combination.arena, OTHERS[name], reinvocation=reinvocation)
            for combination in COMBINATIONS
            for index, (name, reinvocation) in enumerate(combination.webhooks)
        ]
        once = webhooks.webhook("once", "called-once", stock_container, reinvocation="IfNeeded")
        server.put(WEBHOOK, WEBHOOK.object("test-companies", webhooks=[*configuration, once]))
        server.settle()
        # The server loads webhooks and policies separately: wait for the last webhook, too.
        plain_cluster.wait(
            lambda: "virtiofs-late" in containers(server.create(gpu_pod(), arena="called-once")), 30, "webhooks"
        )
        yield server
        server.cluster.delete(WEBHOOK, "test-companies", dry_run=False)
    server.remove(POOLS, *arenas)
    server.remove(POOLS, "called-once")


@pytest.mark.parametrize("combination", COMBINATIONS, ids=str)
class TestBesideWebhooks:
    def test_a_pools_vm_gets_the_pools_image(self, combinations: PolicyServer, combination: Combination) -> None:
        created = combinations.create(gpu_pod(), arena=combination.arena)
        is_of_gpu(created)
        assert launcher_images(created) <= combination.names_of(IMAGE)
        assert users_images(created) <= combination.names_of(cases.DISK)
        assert ("virtiofs-late" in containers(created)) == (combination.has("stock") or combination.has("copy"))

    @pytest.mark.parametrize(("architecture", "owner"), [("amd64", "primary"), ("arm64", "arm")])
    def test_another_vm_gets_its_own(
        self, combinations: PolicyServer, combination: Combination, architecture: str, owner: str
    ) -> None:
        created = combinations.create(launcher_pod("virtiofs", architecture=architecture), arena=combination.arena)
        if combination.has("device"):
            # The device makes it a VM of the pool. A mirror that is called only once has not seen the pool's image.
            is_of_gpu(created)
            assert launcher_images(created) <= ({IMAGE} if combination.mirrors_once else combination.names_of(IMAGE))
            return
        assert created["metadata"]["annotations"][oracle.POOL_ANNOTATION] == owner
        assert owners(created) == {None if owner == "primary" else owner}
        # A mirror that is called only once does not rename the images of later containers; that is not our concern.
        late = {cases.STOCK} if combination.mirrors_once and combination.has("stock") else set()
        assert launcher_images(created) <= combination.names_of(cases.STOCK) | late


def test_a_policy_that_is_called_once_misses_later_containers(combinations: PolicyServer) -> None:
    """Otherwise the tests above would prove nothing."""
    created = combinations.create(gpu_pod(), arena="called-once")
    assert launcher_images(created) == {IMAGE, cases.STOCK}


class TestBesideAnotherPolicy:
    """The order of policies is undefined, so the launcher policy must work before and after another one."""

    @pytest.mark.parametrize("name", list(OTHER_POLICIES))
    def test_a_pools_vm_gets_the_pools_image(self, server: PolicyServer, name: str) -> None:
        expression, expected = OTHER_POLICIES[name]
        arena = f"policy-{name}"
        other = changed(POOLS, lambda spec: spec.update(_mutation(expression)))
        server.install(POOLS, arena)
        server.install(other, f"{arena}-too", arena)
        server.settle()
        created = server.create(gpu_pod(), arena=arena)
        is_of_gpu(created)
        assert launcher_images(created) == {expected(IMAGE)}
        unmatched = server.create(launcher_pod("virtiofs"), arena=arena)
        assert launcher_images(unmatched) == {expected(cases.STOCK)}
        server.remove(POOLS, arena)
        server.remove(other, f"{arena}-too")


class TestOverTime:
    def test_an_upgrade_of_kubevirt_needs_no_new_policy(self, server: PolicyServer) -> None:
        server.install(POOLS, "upgrade")
        server.settle()
        for stock in (cases.STOCK, "registry.example/kubevirt/virt-launcher:v1.10.0"):
            created = server.create(gpu_pod(stock=stock), arena="upgrade")
            is_of_gpu(created)
            assert launcher_images(created) == {IMAGE}
            assert launcher_images(server.create(launcher_pod("virtiofs", stock=stock), arena="upgrade")) == {stock}
        server.remove(POOLS, "upgrade")

    def test_a_mirrors_name_is_not_that_of_the_next_version(self, server: PolicyServer) -> None:
        """Whatever order the mirror and the policy act in: before an upgrade, pods get the image for the present version."""
        later = "registry.example/kubevirt/virt-launcher:v1.10.0"
        upcoming = Upcoming(cases.STOCK, "v1.10.0", {"gpu": f"{later}-gpu"})
        prepared = derived(Table.for_pools(read_dialect(OWN, [GPU, ARM]), upcoming=upcoming))
        server.install(prepared, "prepared")
        server.settle()
        for stock, image in ((cases.STOCK, IMAGE), (later, f"{later}-gpu")):
            for name in (stock, mirrored(stock)):
                assert launcher_images(server.create(gpu_pod(stock=name), arena="prepared")) == {image}
        server.remove(prepared, "prepared")

    def test_without_its_policy_a_new_vm_is_not_taken_for_the_pools(self, server: PolicyServer) -> None:
        server.install(POOLS, "removal")
        server.settle()
        before = server.create(gpu_pod(name="runs"), arena="removal", dry_run=False)
        server.remove(POOLS, "removal")
        server.settle()
        started = server.create(gpu_pod(), arena="removal")
        assert launcher_images(started) == {cases.STOCK}
        assert oracle.POOL_ANNOTATION not in started["metadata"]["annotations"]
        running = server.cluster.existing(POD, "runs", "plain")
        assert running["spec"]["containers"] == before["spec"]["containers"]
        is_of_gpu(running)
        server.cluster.delete(POD, "runs", "plain", DeleteOptions(grace_seconds=0), dry_run=False)

        server.install(POOLS, "removal")
        server.settle()
        is_of_gpu(server.create(gpu_pod(), arena="removal"))
        server.remove(POOLS, "removal")


def gpu_pod(**fields: Any) -> Object:
    """Return the launcher pod of a VM of the pool."""
    host_model = cases.required(cases.term(cases.HOST_MODEL))
    return launcher_pod("virtiofs", devices={cases.A100: 1}, affinity=host_model, **fields)


def is_of_gpu(pod: Object) -> None:
    """Fail unless the pod has no stock image and goes to the pool's nodes."""
    assert not {cases.STOCK, mirrored(cases.STOCK)} & launcher_images(pod)
    assert pod["metadata"]["annotations"][oracle.POOL_ANNOTATION] == "gpu"
    assert owners(pod) == {"gpu"}
    assert TOLERATION in pod["spec"]["tolerations"]


def containers(pod: Object) -> list[str]:
    """Return the names of a pod's containers."""
    return [container["name"] for container in pod["spec"]["containers"]]


def launcher_images(pod: Object) -> set[str]:
    """Return the images of a pod in all places that need the launcher image."""
    return {image for place, image in oracle.references(pod) if place.partition("/")[2] not in USERS}


def users_images(pod: Object) -> set[str]:
    """Return the images of a pod that its VM's owner chose."""
    return {image for place, image in oracle.references(pod) if place.partition("/")[2] in USERS}


def owners(pod: Object) -> set[str | None]:
    """Return the owner labels of the nodes on which the pod can run."""
    labels = {**pod["spec"]["nodeSelector"]}
    return {
        owner
        for owner in (None, "gpu", "arm", "in_transit")
        if oracle.lands(
            pod["spec"],
            {"name": "n", "labels": {**labels, **({cases.OWNER: owner} if owner else {})}, "taints": []},
            pod["spec"].get("tolerations", ()),
        )
    }
