# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""Cases that a launcher policy is judged by: pods chosen so that nearly every wrong policy fails one of them.

A case creates a pod. It may go on with what other webhooks make of the result: the server runs the policy again then.
"""

from __future__ import annotations

import copy
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.client import ClusterError
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools.dialects import OWN, read_dialect
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms.mapping import Table, Upcoming
from ansible_collections.virtpools.kubevirt.tests.unit.support import launcher_cases as cases
from ansible_collections.virtpools.kubevirt.tests.unit.support import launcher_oracle as oracle
from ansible_collections.virtpools.kubevirt.tests.unit.support.launcher_cases import (
    expression,
    launcher_pod,
    required,
    term,
)
from policy_server import Objects, PolicyServer, derived, digest, in_arena

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

Object = dict[str, Any]

_MIRROR = "mirror.example/"


@dataclass(frozen=True)
class Trial:
    """A pool list, the launcher images in effect, those of canaries, and the policy made for them in an arena."""

    arena: str
    pools: list[Object]
    images: dict[str, str | None]
    canaries: dict[str, str | None] = field(default_factory=dict)
    derive: Callable[[Table], Objects] = derived
    upcoming: tuple[str, dict[str, str | None]] | None = None
    """The stock image before an upgrade, and the images of pools for pods with another one."""

    @classmethod
    def for_pools(cls, arena: str, pools: list[Object], canaries: dict[str, str | None] | None = None) -> Trial:
        """Return the trial of a pool list whose pools are all active."""
        return cls(arena, pools, {pool["name"]: pool.get("virtLauncherImage") for pool in pools}, canaries or {})

    @cached_property
    def table(self) -> Table:
        """Return the mapping table."""
        upcoming = Upcoming(self.upcoming[0], "v1.10.0", self.upcoming[1]) if self.upcoming else None
        return Table.for_pools(read_dialect(OWN, self.pools), self.images, self.canaries, upcoming)

    @cached_property
    def objects(self) -> Objects:
        """Return the policy, and its binding if it has one."""
        return self.derive(self.table)

    def faults(
        self, server: PolicyServer, before: Object, after: Object, *, former: Sequence[Object] = ()
    ) -> list[str]:
        """Return what the judge finds wrong with what became of a pod.

        ``former``: pools that may have won before, whose tolerations and pull secrets then stay.
        """
        rng = random.Random(before["metadata"]["name"])
        before = in_arena(before, self.arena)
        return oracle.faults(
            self.pools,
            self.images,
            before,
            after,
            namespace_labels=server.namespaces[before["metadata"]["namespace"]],
            digest=digest(self.objects),
            nodes=cases.random_nodes(rng, before, self.pools),
            former=former,
            canaries=self.canaries,
            upcoming=self.upcoming,
        )

    def image(self, server: PolicyServer, pod: Object) -> str | None:
        """Return the launcher image of a pod's pool, as virt-controller made the pod; None for the stock image."""
        labels = server.namespaces[pod["metadata"]["namespace"]]
        won = oracle.winner(self.pools, self.images, pod, labels)
        return oracle.image(won, self.images, self.canaries, pod, self.upcoming)


def as_sent(pod: Object) -> Object:
    """Return a pod that the server has answered with as it can be created again."""
    metadata = {key: value for key, value in pod["metadata"].items() if key not in oracle.SET_BY_THE_SERVER}
    return copy.deepcopy({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod["spec"]})


def with_device(pod: Object, device: str) -> Object:
    """Return the pod with one more device in its compute container."""
    pod = copy.deepcopy(pod)
    resources = oracle.compute(pod).setdefault("resources", {})
    for which in ("limits", "requests"):
        resources.setdefault(which, {})[device] = "1"
    return pod


def with_container(pod: Object, image: str) -> Object:
    """Return the pod with one more container, added after the first pass."""
    late = {"name": "virtiofs-late", "image": image, "imagePullPolicy": "IfNotPresent", "resources": {}}
    late |= {"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}
    pod = copy.deepcopy(pod)
    pod["spec"]["containers"].append(late)
    return pod


def mirrored(pod: Object, *, volumes: bool = True) -> Object:
    """Return the pod with its images pulled from a mirror; many leave image volumes as they are."""
    pod = copy.deepcopy(pod)
    spec = pod["spec"]
    for container in (*spec["containers"], *spec.get("initContainers", ())):
        container["image"] = _MIRROR + container["image"]
    for volume in spec["volumes"]:
        if volumes and "image" in volume:
            volume["image"]["reference"] = _MIRROR + volume["image"]["reference"]
    return pod


@dataclass(frozen=True)
class PolicyCase:
    """A pod, the same pod as the server serves it without any policy, and what happens to the result."""

    name: str
    sent: Object
    plain: Object = field(default_factory=dict)
    goes_on: Callable[[PolicyCase, PolicyServer, Trial, Object], Iterator[str]] | None = None

    def __str__(self) -> str:
        """Return what pytest calls it."""
        return self.name

    def faults(self, server: PolicyServer, trial: Trial) -> list[str]:
        """Return what is wrong with the policy that is in force in the trial's arena."""
        try:
            after = server.create(self.sent, arena=trial.arena)
            found = trial.faults(server, self.plain, after)
            if not found and self.goes_on:
                found = list(self.goes_on(self, server, trial, after))
        except ClusterError as error:
            return [str(error)]
        return found


def failing_cases(server: PolicyServer, trial: Trial, known_cases: Iterable[PolicyCase]) -> dict[str, list[str]]:
    """Return the cases that do not end as they should, each with its faults."""
    with ThreadPoolExecutor(4) as threads:
        pairs = threads.map(lambda case: (case.name, case.faults(server, trial)), known_cases)
        return {name: faults for name, faults in pairs if faults}


def _again(pod: Object, server: PolicyServer, trial: Trial) -> Object:
    return as_sent(server.create(pod, arena=trial.arena))


def _stays(case: PolicyCase, server: PolicyServer, trial: Trial, after: Object) -> Iterator[str]:
    """The policy does not change its own result."""
    sent = as_sent(after)
    yield from oracle.differences(sent, _again(sent, server, trial))


def _mirror(case: PolicyCase, server: PolicyServer, trial: Trial, after: Object) -> Iterator[str]:
    """Images that a mirror renamed stay renamed, and later containers get the image that compute has now."""
    sent = mirrored(as_sent(after))
    yield from oracle.differences(sent, _again(sent, server, trial))
    yield from _late(case, server, trial, sent, (oracle.compute(case.plain)["image"],))
    changed = oracle.compute(after)["image"] != oracle.compute(case.plain)["image"]
    if changed:
        yield from _late(case, server, trial, sent, (_MIRROR + oracle.compute(case.plain)["image"],))


def _container(case: PolicyCase, server: PolicyServer, trial: Trial, after: Object) -> Iterator[str]:
    """A container that is added later with the stock image, or with that of compute, gets that of compute."""
    images = (oracle.compute(case.plain)["image"], oracle.compute(after)["image"])
    yield from _late(case, server, trial, as_sent(after), images)


def _late(case: PolicyCase, server: PolicyServer, trial: Trial, sent: Object, images: tuple[str, ...]) -> Iterator[str]:
    own = trial.image(server, case.plain)
    for image in images:
        expected = with_container(sent, oracle.compute(sent)["image"] if own else image)
        yield from oracle.differences(expected, _again(with_container(sent, image), server, trial))


def _device(device: str) -> Callable[[PolicyCase, PolicyServer, Trial, Object], Iterator[str]]:
    """A device that a webhook adds makes another pool win, with the same result as if it had been there at first."""

    def goes_on(case: PolicyCase, server: PolicyServer, trial: Trial, after: Object) -> Iterator[str]:
        later = server.create(with_device(as_sent(after), device), arena=trial.arena)
        yield from trial.faults(server, with_device(case.plain, device), later, former=trial.pools)
        yield from _stays(case, server, trial, later)

    return goes_on


def _device_behind_a_mirror(device: str) -> Callable[[PolicyCase, PolicyServer, Trial, Object], Iterator[str]]:
    """The same after a mirror renamed all images, or all but those of volumes: every launcher image is changed again."""

    def goes_on(case: PolicyCase, server: PolicyServer, trial: Trial, after: Object) -> Iterator[str]:
        before = dict(oracle.references(case.plain))
        stock = oracle.compute(case.plain)["image"]
        labels = server.namespaces[case.plain["metadata"]["namespace"]]
        won = oracle.winner(trial.pools, trial.images, with_device(case.plain, device), labels)
        image = trial.image(server, with_device(case.plain, device))
        changed = oracle.compute(after)["image"] != stock
        moved = (won["name"] if won else "primary") != after["metadata"]["annotations"][oracle.POOL_ANNOTATION]
        for volumes in (True, False):
            sent = with_device(mirrored(as_sent(after), volumes=volumes), device)
            renamed = dict(oracle.references(sent))
            for place, found in oracle.references(server.create(sent, arena=trial.arena)):
                again = moved and before[place] == stock and (image or changed)
                expected = (image or stock) if again else renamed[place]
                if found != expected:
                    yield f"{place} has the image {found!r}, not {expected!r}"

    return goes_on


def _untouched(server: PolicyServer, trial: Trial, pod: Object, **by: Any) -> Iterator[str]:
    plain = as_sent(in_arena(as_sent(server.create(pod, server.cluster)), trial.arena))
    yield from oracle.differences(plain, as_sent(server.create(pod, arena=trial.arena, **by)))


def _others(case: PolicyCase, server: PolicyServer, trial: Trial, after: Object) -> Iterator[str]:
    """The policy leaves pods alone that virt-controller did not create, and its pods that run no VM."""
    for user in ("", "system:serviceaccount:other:kubevirt-controller", "system:serviceaccount:kubevirt:default"):
        yield from _untouched(server, trial, case.sent, by=server.acting_as(user))
    hotplug = launcher_pod("pvc", "hp-volume", labels={"workload": "rt"}, devices={cases.A100: 1})
    hotplug["metadata"]["labels"]["kubevirt.io"] = "hotplug-disk"
    yield from _untouched(server, trial, hotplug)


_ZONE = expression("zone", "In", "a", "b")
_ON_NODE = expression("metadata.name", "In", "node-1")
_PREFERRED = [{"weight": 1, "preference": term(expression("zone", "In", "a"))}]
_TEAM = {"workload": "rt", "class.example/size": "1"}
_YES = {"key": "dedicated.example/for", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}


def policy_cases(server: PolicyServer) -> list[PolicyCase]:
    """Return all of them, with their pods as the server serves them without a policy."""
    told = [
        *_of_kinds(),
        *_of_criteria(),
        *_of_images(),
        *_of_nodes(),
        *_of_pull_secrets(),
        *_of_hypervisors(),
        *_of_second_times(),
        *_of_canaries(),
    ]
    plain = server.create_all([case.sent for case in told], server.cluster)
    return [PolicyCase(case.name, case.sent, pod, case.goes_on) for case, pod in zip(told, plain, strict=True)]


def _of_kinds() -> Iterator[PolicyCase]:
    for kind in cases.KINDS:
        yield PolicyCase(f"{kind}, matched", launcher_pod(kind, devices={cases.A100: 1}))
        yield PolicyCase(f"{kind}, a pool without image", launcher_pod(kind, architecture="arm64"))
        yield PolicyCase(f"{kind}, unmatched", launcher_pod(kind))


def _of_criteria() -> Iterator[PolicyCase]:
    def pod(name: str, **fields: Any) -> PolicyCase:
        return PolicyCase(name, launcher_pod("containerDisk", **fields))

    yield pod("first of two pools", devices={cases.A100: 1, cases.NIC: 1}, architecture="arm64")
    yield pod("the other device", devices={cases.L40S: 1})
    yield pod("another architecture", architecture="s390x")
    yield pod("all of the node selector", node_selector={"accelerator": "nvidia", "zone": "a"})
    yield pod("one label of the node selector", node_selector={"accelerator": "nvidia"})
    yield pod("the other label of the node selector", node_selector={"zone": "a"})
    for namespace in cases.NAMESPACES:
        yield pod(f"labels in {namespace}", namespace=namespace, labels=_TEAM)
        yield pod(f"no labels in {namespace}", namespace=namespace)
    yield pod("one label of two", namespace="team-a", labels={"workload": "rt"})
    yield pod("the other label of two", namespace="team-a", labels={"class.example/size": "1"})
    yield pod("another value", namespace="team-a", labels={**_TEAM, "workload": "gpu"})
    for wave in ("1", "2", "3"):
        yield pod(f"wave {wave}", labels={"wave.example/of": wave})
        yield pod(f"wave {wave}, kept", labels={"wave.example/of": wave, "wave.example/held": ""})
        yield pod(f"wave {wave}, slow", labels={"wave.example/of": wave, "wave.example/kind": "slow"})
        yield pod(f"wave {wave}, fast", labels={"wave.example/of": wave, "wave.example/kind": "fast"})


def _of_images() -> Iterator[PolicyCase]:
    for stock in ("virt-launcher", "10.0.0.1:5000/other/launcher:v2"):
        yield PolicyCase(f"stock image {stock}", launcher_pod("virtiofs", devices={cases.A100: 1}, stock=stock))
    for image in ("evil.example/virt-launcher:v1.9.0", f"{cases.STOCK}-1", f"evil.example/{cases.STOCK}"):
        pod = launcher_pod("hook sidecars", devices={cases.A100: 1})
        # One that another webhook has injected: images of a VM owner's own sidecars are not looked at.
        pod["spec"]["containers"][1].update(name="injected", image=image)
        yield PolicyCase(f"a sidecar with {image}", pod)
    for kind in ("virtiofs", "containerDisk, image volumes off"):
        for won, devices in (("matched", {cases.A100: 1}), ("unmatched", {})):
            pod = launcher_pod(kind, devices=devices)
            yield PolicyCase(f"{kind}, mirrored before but for volumes, {won}", mirrored(pod, volumes=False))
            oracle.compute(pod)["image"] = _MIRROR + cases.STOCK
            yield PolicyCase(f"{kind}, only compute mirrored before, {won}", pod)
    pod = mirrored(launcher_pod("virtiofs"), volumes=False)
    yield PolicyCase("mirrored before but for volumes, a device late", pod, goes_on=_device(cases.A100))
    pod = launcher_pod("hook sidecars", devices={cases.A100: 1})
    pod["spec"]["containers"].reverse()
    yield PolicyCase("compute is the last container", pod)
    pod = launcher_pod("hook sidecars")
    pod["spec"]["containers"][1]["resources"]["limits"][cases.A100] = "1"
    yield PolicyCase("a sidecar with a device", pod)
    pod = launcher_pod("hook sidecars", devices={cases.A100: 1}, annotations=cases.SPOOF)
    pod["spec"]["containers"][1]["env"] = [
        {"name": oracle.POOL_VARIABLE, "value": "gpu"},
        {"name": oracle.STOCK_VARIABLE, "value": "registry.example/hooks/hook:1"},
    ]
    yield PolicyCase("annotations and variables that look like ours", pod)
    yield PolicyCase("annotations that look like ours on an unmatched VM", launcher_pod(annotations=cases.SPOOF))
    pod = launcher_pod(devices={cases.A100: 1})
    del pod["metadata"]["annotations"], oracle.compute(pod)["env"], pod["spec"]["initContainers"]
    yield PolicyCase("nothing there to add to", pod)


def _of_nodes() -> Iterator[PolicyCase]:
    shapes = {
        "host-model": required(term(cases.HOST_MODEL)),
        "labels, fields and nothing": required(term(_ZONE), term(fields=[_ON_NODE]), term()),
        "fields, both and labels": required(term(fields=[_ON_NODE]), term(_ZONE, fields=[_ON_NODE]), term(_ZONE)),
        "nothing": required(term()),
        "pods": {"podAntiAffinity": cases.AWAY_FROM_THE_SOURCE},
        "preference": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": _PREFERRED}},
        "preference and terms": required(term(_ZONE), preferredDuringSchedulingIgnoredDuringExecution=_PREFERRED),
        "an empty affinity": {},
        "our label in": required(term(expression(cases.OWNER, "In", "gpu", "arm"))),
        "our label not in": required(term(expression(cases.OWNER, "NotIn", "gpu")), term(_ZONE)),
        "our label there": required(term(expression(cases.OWNER, "Exists"))),
        "our label absent": required(term(expression(cases.OWNER, "DoesNotExist"))),
    }
    tolerations = [
        None,
        [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
        [{"key": "gpu", "value": "yes"}, _YES],
        [{"operator": "Exists"}],
    ]
    for number, (shape, affinity) in enumerate(shapes.items()):
        for which, devices in (("matched", {cases.A100: 1}), ("unmatched", {})):
            chosen = tolerations[number % len(tolerations)]
            pod = launcher_pod(name=f"pod-{number}", devices=devices, affinity=affinity, tolerations=chosen)
            yield PolicyCase(f"affinity of {shape}, {which}", pod)


def _of_pull_secrets() -> Iterator[PolicyCase]:
    for which, secrets in (("none", []), ("others", ["disks"]), ("one of two", ["disks", "launchers"])):
        for won, devices in (("matched", {cases.A100: 1}), ("unmatched", {})):
            yield PolicyCase(f"pull secrets: {which}, {won}", launcher_pod(devices=devices, pull_secrets=secrets))


def _of_hypervisors() -> Iterator[PolicyCase]:
    for won, devices in (("matched", {cases.A100: 1}), ("unmatched", {})):
        emulated, binding = launcher_pod(devices=devices), launcher_pod(devices=devices)
        for counts in oracle.compute(emulated)["resources"].values():
            del counts[cases.KVM]
        yield PolicyCase(f"emulation, {won}", emulated)
        oracle.compute(binding)["command"] = ["/bin/bash", "-c", "echo", "bound PVCs"]
        yield PolicyCase(f"pods that only bind volumes, {won}", binding)
        reconfigured = launcher_pod(devices=devices)
        oracle.compute(reconfigured)["command"] = ["virt-launcher-monitor", "--hypervisor", "hyperv-direct"]
        yield PolicyCase(f"a device of the former configuration, {won}", reconfigured)
        later = launcher_pod(devices=devices)
        program, *oracle.compute(later)["args"] = oracle.compute(later)["command"]
        oracle.compute(later)["command"] = [program]
        yield PolicyCase(f"arguments apart from the program, {won}", later)


def _of_second_times() -> Iterator[PolicyCase]:
    gpu, plain = {"devices": {cases.A100: 1}}, {"annotations": cases.SPOOF}
    affinities = {"": None, ", with terms": required(term(cases.HOST_MODEL), term(fields=[_ON_NODE]), term())}
    for won, fields in (("matched", gpu), ("unmatched", plain), ("without image", {"architecture": "arm64"})):
        for terms, affinity in affinities.items():
            which = won + terms
            pod = launcher_pod("virtiofs", affinity=affinity, **fields)
            yield PolicyCase(f"again, {which}", pod, goes_on=_stays)
            yield PolicyCase(f"mirrored, {which}", pod, goes_on=_mirror)
            yield PolicyCase(f"a late container, {which}", pod, goes_on=_container)
            # NETWORK comes before GPU and has no image, GPU before the others.
            yield PolicyCase(f"a device late, {which}", pod, goes_on=_device(cases.A100))
            yield PolicyCase(f"a network late, {which}", pod, goes_on=_device(cases.NIC))
            yield PolicyCase(f"mirrored, a device late, {which}", pod, goes_on=_device_behind_a_mirror(cases.A100))
            yield PolicyCase(f"mirrored, a network late, {which}", pod, goes_on=_device_behind_a_mirror(cases.NIC))
    fresh = {"labels": {"wave.example/of": "1"}}
    pod = launcher_pod("virtiofs", **fresh)
    yield PolicyCase("a device late, from one image to another", pod, goes_on=_device(cases.A100))
    late = _device_behind_a_mirror(cases.A100)
    yield PolicyCase("mirrored, a device late, from one image to another", pod, goes_on=late)
    own = required(term(expression(cases.OWNER, "DoesNotExist")))
    yield PolicyCase("a device late, the VM keeps off pools", launcher_pod(affinity=own), goes_on=_device(cases.A100))
    yield PolicyCase("pods of others", launcher_pod("virtiofs", **gpu), goes_on=_others)


def _of_canaries() -> Iterator[PolicyCase]:
    gpu, arm, fresh = {"devices": {cases.A100: 1}}, {"architecture": "arm64"}, {"wave.example/of": "1"}

    def pod(of: str, labels: Object | None = None, **fields: Any) -> Object:
        return launcher_pod("virtiofs", labels={**(labels or {}), cases.CANARY: of}, **fields)

    yield PolicyCase("a canary", pod("gpu", **gpu))
    yield PolicyCase("a canary of a pool without image", pod("arm", **arm))
    yield PolicyCase("a canary that has the stock image again", pod("fresh", fresh))
    yield PolicyCase("a canary of another pool", pod("gpu", fresh))
    yield PolicyCase("a canary of a pool that has none", pod("team", _TEAM, namespace="team-a"))
    yield PolicyCase("a canary that no pool takes", pod("gpu"))
    yield PolicyCase("a canary, again", pod("gpu", **gpu), goes_on=_stays)
    yield PolicyCase("a canary, mirrored", pod("gpu", **gpu), goes_on=_mirror)
    yield PolicyCase("a canary, a late container", pod("gpu", **gpu), goes_on=_container)
    for which, sent in (("gpu", pod("gpu", fresh)), ("arm", pod("arm", **arm)), ("fresh", pod("fresh", fresh))):
        yield PolicyCase(f"a canary of {which}, a device late", sent, goes_on=_device(cases.A100))
        late = _device_behind_a_mirror(cases.A100)
        yield PolicyCase(f"a canary of {which}, mirrored, a device late", sent, goes_on=late)
