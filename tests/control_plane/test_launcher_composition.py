# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""The launcher policy beside what others put between a launcher pod and its kubelet, and through KubeVirt's upgrade.

The webhooks are real ones of the test's own. Whatever they do, and in whatever order, a pool's VM gets the pool's image
(or its mirrored name) everywhere, and no other VM gets it.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kinds import POD
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.mapping import Table
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools import parse_pools
from ansible_collections.virtpools.kubevirt.tests.unit import launcher_cases as cases
from ansible_collections.virtpools.kubevirt.tests.unit import launcher_oracle as oracle
from ansible_collections.virtpools.kubevirt.tests.unit.launcher_cases import launcher_pod
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
POOLS = derived(Table.of(parse_pools([GPU, ARM])))

REGISTRY, MIRROR = "registry.example/", "mirror.example/"
USERS = ("volumeroot", "root")


def mirrored(image: str) -> str:
    """Return what the mirror calls an image."""
    return image.replace(REGISTRY, MIRROR, 1)


# What others do -----------------------------------------------------------------------------------------------------


def mirror_of_containers(pod: Object) -> Patch:
    """Have the images of containers pulled from a mirror, as webhooks do that know no image volumes."""
    return [each for each in mirror(pod) if not each["path"].startswith("/spec/volumes")]


def mirror(pod: Object) -> Patch:
    """Have every image pulled from a mirror."""
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
    """Add a container with KubeVirt's launcher image, whatever the others have by now."""
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
    """Have compute ask for a device, as network resources are injected."""
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
"""What other policies do, as CEL, and what becomes of a launcher image then."""


def _mutation(expression: str) -> Object:
    return {"variables": [], "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}]}


@dataclass(frozen=True)
class Company:
    """Webhooks beside the policy, in the order in which they are called, each with its reinvocation policy."""

    webhooks: tuple[tuple[str, str], ...]

    @property
    def arena(self) -> str:
        """Return a name for it."""
        return "-".join(f"{name}-{reinvocation.lower()}" for name, reinvocation in self.webhooks)

    def has(self, name: str) -> bool:
        """Return whether one of the webhooks is of that kind."""
        return any(each == name for each, _reinvocation in self.webhooks)

    @property
    def mirrors_once(self) -> bool:
        """Return whether one of the webhooks renames images, and is not called again."""
        return any(name.startswith("mirror") and again == "Never" for name, again in self.webhooks)

    def names_of(self, image: str) -> set[str]:
        """Return what an image may be called in the end."""
        if self.has("mirror-of-containers"):
            return {image, mirrored(image)}
        return {mirrored(image)} if self.has("mirror") else {image}

    def __str__(self) -> str:
        """Return what pytest calls it."""
        return self.arena


def _companies() -> Iterator[Company]:
    for count in (1, 2):
        for kinds in itertools.permutations(OTHERS, count):
            if set(kinds) not in ({"stock", "copy"}, {"mirror", "mirror-of-containers"}):
                for reinvocations in itertools.product(("IfNeeded", "Never"), repeat=count):
                    yield Company(tuple(zip(kinds, reinvocations, strict=True)))
    for kinds in itertools.permutations(("mirror", "copy", "device")):
        for reinvocation in ("IfNeeded", "Never"):
            yield Company(tuple((kind, reinvocation) for kind in kinds))


COMPANIES = tuple(_companies())


@pytest.fixture(scope="module")
def server(plain_cluster: Any) -> PolicyServer:
    return PolicyServer(plain_cluster)


@pytest.fixture(scope="module")
def companies(
    plain_cluster: Any, server: PolicyServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PolicyServer]:
    """Put the policy beside each company's webhooks, which only meet pods of the company's own."""
    arenas = [company.arena for company in COMPANIES]
    server.install(POOLS, *arenas)
    server.install(changed(POOLS, lambda spec: spec.update(reinvocationPolicy="Never")), "called-once")
    with serve(tmp_path_factory.mktemp("webhooks")) as webhooks:
        configuration = [
            webhooks.webhook(f"{company.arena}-{index}", company.arena, OTHERS[name], reinvocation=reinvocation)
            for company in COMPANIES
            for index, (name, reinvocation) in enumerate(company.webhooks)
        ]
        once = webhooks.webhook("once", "called-once", stock_container, reinvocation="IfNeeded")
        server.put(WEBHOOK, WEBHOOK.object("test-companies", webhooks=[*configuration, once]))
        server.settle()
        # Webhooks are read apart from policies: the last of all must be there, too.
        plain_cluster.wait(
            lambda: "virtiofs-late" in containers(server.create(gpu_pod(), arena="called-once")), 30, "webhooks"
        )
        yield server
        server.cluster.delete(WEBHOOK, "test-companies", dry_run=False)
    server.remove(POOLS, *arenas)
    server.remove(POOLS, "called-once")


@pytest.mark.parametrize("company", COMPANIES, ids=str)
class TestBesideWebhooks:
    def test_a_pools_vm_gets_the_pools_image(self, companies: PolicyServer, company: Company) -> None:
        created = companies.create(gpu_pod(), arena=company.arena)
        is_of_gpu(created)
        assert launcher_images(created) <= company.names_of(IMAGE)
        assert users_images(created) <= company.names_of(cases.DISK)
        assert ("virtiofs-late" in containers(created)) == (company.has("stock") or company.has("copy"))

    @pytest.mark.parametrize(("architecture", "owner"), [("amd64", "primary"), ("arm64", "arm")])
    def test_another_vm_gets_its_own(
        self, companies: PolicyServer, company: Company, architecture: str, owner: str
    ) -> None:
        created = companies.create(launcher_pod("virtiofs", architecture=architecture), arena=company.arena)
        if company.has("device"):
            # Not another VM, as it turns out. A mirror that is not asked again has never seen the pool's image.
            is_of_gpu(created)
            assert launcher_images(created) <= ({IMAGE} if company.mirrors_once else company.names_of(IMAGE))
            return
        assert created["metadata"]["annotations"][oracle.POOL_ANNOTATION] == owner
        assert owners(created) == {None if owner == "primary" else owner}
        # What comes after a mirror that is not asked again keeps its name: not our business.
        late = {cases.STOCK} if company.mirrors_once and company.has("stock") else set()
        assert launcher_images(created) <= company.names_of(cases.STOCK) | late


def test_a_policy_that_is_called_once_would_miss_what_comes_later(companies: PolicyServer) -> None:
    """Or the tests above had nothing to say."""
    created = companies.create(gpu_pod(), arena="called-once")
    assert launcher_images(created) == {IMAGE, cases.STOCK}


class TestBesideAnotherPolicy:
    """The order of policies is undefined: each must do with both."""

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

    def test_without_its_policy_a_running_vm_stays_and_a_new_one_is_not_taken_for_the_pools(
        self, server: PolicyServer
    ) -> None:
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
        server.cluster.delete(POD, "runs", "plain", dry_run=False, grace_seconds=0)

        server.install(POOLS, "removal")
        server.settle()
        is_of_gpu(server.create(gpu_pod(), arena="removal"))
        server.remove(POOLS, "removal")


def gpu_pod(**fields: Any) -> Object:
    """Return the launcher pod of a VM of the pool."""
    host_model = cases.required(cases.term(cases.HOST_MODEL))
    return launcher_pod("virtiofs", devices={cases.A100: 1}, affinity=host_model, **fields)


def is_of_gpu(pod: Object) -> None:
    """Nothing of the pod is stock, and it goes to the pool's nodes."""
    assert not {cases.STOCK, mirrored(cases.STOCK)} & launcher_images(pod)
    assert pod["metadata"]["annotations"][oracle.POOL_ANNOTATION] == "gpu"
    assert owners(pod) == {"gpu"}
    assert TOLERATION in pod["spec"]["tolerations"]


def containers(pod: Object) -> list[str]:
    """Return the names of a pod's containers."""
    return [container["name"] for container in pod["spec"]["containers"]]


def launcher_images(pod: Object) -> set[str]:
    """Return the images of a pod where the launcher's should be."""
    return {image for place, image in oracle.references(pod) if place.partition("/")[2] not in USERS}


def users_images(pod: Object) -> set[str]:
    """Return the images of a pod that its VM's owner chose."""
    return {image for place, image in oracle.references(pod) if place.partition("/")[2] in USERS}


def owners(pod: Object) -> set[str | None]:
    """Return the owner labels of nodes where the pod can land."""
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
