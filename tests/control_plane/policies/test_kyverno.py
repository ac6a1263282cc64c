# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""Kyverno's own admission controller as the back end: its policy is judged by the oracle that judges the admission policy.

Part of make test-matrix.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest

import playbooks
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.client import ClusterError
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.admission import kyverno_policy
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import names
from ansible_collections.virtpools.kubevirt.tests.unit.support import launcher_cases as cases
from ansible_collections.virtpools.kubevirt.tests.unit.support import launcher_oracle as oracle
from ansible_collections.virtpools.kubevirt.tests.unit.support.launcher_cases import launcher_pod
from launcher_mutants import CANARIES, KEPT_OFF, MIXED, MUTANTS, Mutant
from local_cluster import ClusterError as LocalClusterError
from local_cluster import Fleet, LocalCluster, Nodes
from local_cluster.kyverno import ALIVE, HEALTH, NAMESPACE, Kyverno
from policy_cases import PolicyCase, Trial, as_sent, failing_cases, policy_cases
from policy_server import KUBEVIRT, Objects, PolicyServer, changed, in_arena
from scenario import Scenario
from webhooks import WEBHOOK, Patch, serve

if TYPE_CHECKING:
    from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms.mapping import Table

pytestmark = [
    pytest.mark.skipif(not os.environ.get("VIRTPOOLS_TEST_MATRIX"), reason="part of make test-matrix"),
    pytest.mark.timeout(1200),
]

Object = dict[str, Any]
Install = Callable[[dict[str, Objects]], None]

# It has no MutatingAdmissionPolicy by default, so it is where Kyverno is of use.
KUBERNETES = "v1.35.2"
SEED = 20261128
PODS_PER_LIST = 40
LISTS = 12


def objects(table: Table) -> Objects:
    """Return the policy of a mapping table for Kyverno."""
    return [kyverno_policy.derive(table, KUBEVIRT)]


def trial(arena: str, pools: list[Object], canaries: dict[str, str | None] | None = None) -> Trial:
    """Return the trial of a pool list whose pools are all active, in Kyverno."""
    return replace(Trial.for_pools(arena, pools, canaries), derive=objects)


def mutated(policy: Objects, mutant: Mutant) -> Objects:
    """Return the policy with the mutant's edit; it is written for the admission policy, which has one condition less."""

    def change(spec: Object) -> None:
        user_known = spec["matchConditions"].pop(0)
        mutant.change(spec)
        spec["matchConditions"].insert(0, user_known)

    return changed(policy, change)


def await_policy(cluster: LocalCluster, server: PolicyServer, arena: str) -> None:
    """Wait until Kyverno changes the pods of an arena, or refuses them."""
    pod = launcher_pod(devices={cases.A100: 1})
    plain = as_sent(in_arena(server.create(pod, server.cluster), arena))

    def acts() -> bool:
        try:
            return as_sent(server.create(pod, arena=arena)) != plain
        except ClusterError:
            return True

    cluster.wait(acts, 60, f"the policy of arena {arena}")


# The policy ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def plain(start_cluster: Callable[..., LocalCluster]) -> LocalCluster:
    return start_cluster(kubevirt="", kubernetes=KUBERNETES)


@pytest.fixture(scope="module")
def kyverno(plain: LocalCluster) -> Kyverno:
    return Kyverno.install(plain)


@pytest.fixture(scope="module")
def server(kyverno: Kyverno) -> PolicyServer:
    return PolicyServer(kyverno.cluster)


@pytest.fixture(scope="module")
def install(kyverno: Kyverno, server: PolicyServer) -> Iterator[Install]:
    """Return a function that puts policies in force, each for the pods of its arena."""
    installed: dict[str, Objects] = {}

    def put(policies: dict[str, Objects]) -> None:
        installed.update(policies)
        for arena, policy in policies.items():
            server.install(policy, arena)
        for arena in policies:
            await_policy(kyverno.cluster, server, arena)

    yield put
    for arena, policy in installed.items():
        server.remove(policy, arena)


@pytest.fixture(scope="module")
def known_cases(server: PolicyServer) -> dict[str, PolicyCase]:
    return {case.name: case for case in policy_cases(server)}


# The API server calls the admission policy again in the same request, and Kyverno only when the pod is sent again.
SHOWN_LATER = {"tolerations come twice": "again, matched"}
RIGHT = {
    "mixed": trial("mixed", MIXED, CANARIES),
    "kept off": trial("kept-off", KEPT_OFF),
    "prepared for an upgrade": replace(
        trial("prepared", MIXED, CANARIES),
        upcoming=(cases.STOCK, {pool["name"]: f"registry.example/next-{pool['name']}:v1.10.0" for pool in MIXED}),
    ),
}


class TestPolicy:
    @pytest.mark.parametrize("pools", RIGHT)
    def test_cases_end_as_the_design_has_them(
        self, server: PolicyServer, install: Install, known_cases: dict[str, PolicyCase], pools: str
    ) -> None:
        right = RIGHT[pools]
        install({right.arena: right.objects})
        assert not failing_cases(server, right, known_cases.values())

    def test_random_pods_are_as_the_design_has_them(self, server: PolicyServer, install: Install) -> None:
        rng, rng_of_upcoming = random.Random(SEED), random.Random(SEED)
        faulty, won, of_next_version = {}, 0, 0
        for number in range(LISTS):
            pools = cases.random_pools(rng)
            images = cases.random_images(rng, pools)
            upcoming = (cases.STOCK, cases.random_canaries(rng_of_upcoming, images)) if number % 2 else None
            canaries = cases.random_canaries(rng, images)
            random_trial = Trial(f"list-{number}", pools, images, canaries, objects, upcoming)
            install({random_trial.arena: random_trial.objects})
            sent = [cases.random_pod(rng, f"pod-{number}-{each}") for each in range(PODS_PER_LIST)]
            before = server.create_all(sent, server.cluster)
            after = server.create_all(sent, arena=random_trial.arena)
            for one, other in zip(before, after, strict=True):
                faults = random_trial.faults(server, one, other)
                won += other["metadata"]["annotations"][names.OWNER_LABEL] != names.PRIMARY
                plain = replace(random_trial, upcoming=None)
                of_next_version += random_trial.image(server, one) != plain.image(server, one)
                if faults:
                    faulty[one["metadata"]["name"]] = faults
        assert not faulty, (len(faulty), list(faulty.items())[:3])
        assert won > LISTS * PODS_PER_LIST // 10
        assert of_next_version > 0, "pods of two versions are among them"

    def test_cases_notice_every_mutant(
        self, server: PolicyServer, install: Install, known_cases: dict[str, PolicyCase]
    ) -> None:
        arenas = {f"mutant-{number}": mutant for number, mutant in enumerate(MUTANTS)}
        install({arena: mutated(RIGHT[mutant.pools].objects, mutant) for arena, mutant in arenas.items()})
        unnoticed = [
            str(mutant)
            for arena, mutant in arenas.items()
            for case in [known_cases[SHOWN_LATER.get(str(mutant), mutant.case)]]
            if not case.faults(server, replace(RIGHT[mutant.pools], arena=arena))
        ]
        assert unnoticed == []


# Its limits, as docs/launcher-images.md has them ---------------------------------------------------------------------


def asks_for_a_device(pod: Object) -> Patch:
    """Have the container compute, the first one, ask for a device."""
    path = "/spec/containers/0/resources/{}/" + cases.A100.replace("/", "~1")
    return [{"op": "add", "path": path.format(which), "value": "1"} for which in ("limits", "requests")]


def adds_a_container(image: Callable[[Object], str]) -> Callable[[Object], Patch]:
    """Return a webhook that adds a container with this image."""
    return lambda pod: [{"op": "add", "path": "/spec/containers/-", "value": {"name": "late", "image": image(pod)}}]


OTHERS = {
    "device": asks_for_a_device,
    "stock": adds_a_container(lambda pod: cases.STOCK),
    "copy": adds_a_container(lambda pod: str(oracle.compute(pod)["image"])),
}
POOL_IMAGE = str(MIXED[1]["virtLauncherImage"])


@pytest.fixture(scope="module")
def beside_webhooks(server: PolicyServer, install: Install, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Install webhooks that are called before Kyverno's, and after it, each in an arena with the right policy."""
    # The API server calls webhooks in the order of the names of their configurations.
    configurations = {"before": "a-before-kyverno", "after": "z-after-kyverno"}
    with serve(tmp_path_factory.mktemp("webhooks")) as webhooks:
        for when, configuration in configurations.items():
            called = [
                webhooks.webhook(f"{name}-{when}", f"{name}-{when}", change, reinvocation="Never")
                for name, change in OTHERS.items()
            ]
            server.put(WEBHOOK, {**WEBHOOK.object(configuration), "webhooks": called})
        install({f"{name}-{when}": RIGHT["mixed"].objects for name in OTHERS for when in configurations})
        yield
        for configuration in configurations.values():
            server.cluster.delete(WEBHOOK, configuration, dry_run=False)


@pytest.mark.usefixtures("beside_webhooks")
class TestBesideWebhooks:
    @pytest.mark.parametrize(("when", "pool"), [("before", "gpu"), ("after", names.PRIMARY)])
    def test_a_device_counts_only_if_it_was_added_before(self, server: PolicyServer, when: str, pool: str) -> None:
        pod = server.create(launcher_pod(), arena=f"device-{when}")
        assert cases.A100 in oracle.compute(pod)["resources"]["limits"]
        assert pod["metadata"]["annotations"][names.OWNER_LABEL] == pool
        assert oracle.compute(pod)["image"] == (POOL_IMAGE if pool == "gpu" else cases.STOCK)

    @pytest.mark.parametrize(
        ("what", "when", "image"),
        [
            ("stock", "before", POOL_IMAGE),
            ("copy", "before", POOL_IMAGE),
            ("copy", "after", POOL_IMAGE),
            ("stock", "after", cases.STOCK),
        ],
    )
    def test_a_stock_container_added_after_kyverno_is_missed(
        self, server: PolicyServer, what: str, when: str, image: str
    ) -> None:
        pod = server.create(launcher_pod(devices={cases.A100: 1}), arena=f"{what}-{when}")
        images = {each["name"]: each["image"] for each in pod["spec"]["containers"]}
        assert images == {"compute": POOL_IMAGE, "late": image}


class TestWithoutKyverno:
    """In the end, since Kyverno is stopped."""

    def state(self, kyverno: Kyverno, arena: str) -> str:
        """Return what becomes of a new launcher pod."""
        pod = json.dumps(in_arena(launcher_pod(devices={cases.A100: 1}), arena))
        controller = ("--as", cases.CONTROLLER, "--as-group", "system:masters")
        create = ("create", "--dry-run=server", "-o", "json", "-f", "-", *controller)
        try:
            answer = kyverno.cluster.kubectl(*create, stdin=pod)
        except LocalClusterError as error:
            return "refused" if "failed calling webhook" in str(error) else str(error)
        return "changed" if names.POLICY_ANNOTATION in json.loads(answer)["metadata"]["annotations"] else "unchanged"

    def test_no_vm_starts_while_it_is_down(self, kyverno: Kyverno, install: Install) -> None:
        install({"down": RIGHT["mixed"].objects})
        assert self.state(kyverno, "down") == "changed"
        kyverno.stop(kill=True)
        assert self.state(kyverno, "down") == "refused"
        kyverno.start()
        kyverno.cluster.wait(lambda: self.state(kyverno, "down") == "changed", 30, "Kyverno to act again")

    def test_vms_start_unchanged_for_seconds_after_a_long_outage(self, kyverno: Kyverno, install: Install) -> None:
        """It looks at its own last note, finds it old, and removes its webhooks until it has written a new one."""
        install({"back": RIGHT["mixed"].objects})
        kyverno.stop(kill=True)
        long_ago = (datetime.now(timezone.utc) - timedelta(minutes=10)).strftime("%Y-%m-%dT%H:%M:%SZ")
        kyverno.cluster.kubectl("annotate", "lease", "-n", NAMESPACE, HEALTH, f"{ALIVE}={long_ago}", "--overwrite")
        assert self.state(kyverno, "back") == "refused"
        with ThreadPoolExecutor(1) as thread:
            started = thread.submit(kyverno.start)
            seen = {self.state(kyverno, "back") for _ in _until(started.done)}
            started.result()
        assert "unchanged" in seen
        kyverno.cluster.wait(lambda: self.state(kyverno, "back") == "changed", 30, "Kyverno to act again")


def _until(done: Callable[[], bool]) -> Iterator[None]:
    while not done():
        yield
        time.sleep(0.1)


# The way of a user --------------------------------------------------------------------------------------------------

FLEET = Fleet.from_groups(
    Nodes(prefix="gpu-", count=2, labels={"accelerator": "nvidia", "zone": "a"}, capacity={cases.A100: "4"}),
    Nodes(name="team", labels={"rack.example/number": "1"}),
    Nodes(prefix="plain-", count=2),
)
# One with handlers of its own, too.
POOLS = [{**KEPT_OFF[0], "virtHandlerImage": "registry.example/kubevirt/virt-handler:v1.9.0-gpu"}, KEPT_OFF[1]]
VM = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "VirtualMachineInstance",
    "spec": {"domain": {"memory": {"guest": "64Mi"}, "devices": {}}},
}


class TestUser:
    def test_has_pools_with_kyverno_where_no_mutating_policies_exist(
        self, start_cluster: Callable[..., LocalCluster]
    ) -> None:
        cluster = start_cluster(FLEET, kubernetes=KUBERNETES)
        scenario = Scenario(cluster)
        refusal = scenario.refused(POOLS)
        assert f"Kubernetes {KUBERNETES} has no back end" in refusal
        assert "--feature-gates=MutatingAdmissionPolicy=true" in refusal
        assert "or install Kyverno 1.18 or later" in refusal
        assert "install Kyverno 1.18 or later" in scenario.refused(POOLS, virtpools_launcher_backend="kyverno")

        Kyverno.install(cluster)
        scenario.site(POOLS, virtpools_launcher_backend="kyverno").succeeded()
        scenario.settled(POOLS, virtpools_launcher_backend="kyverno")
        # That is what a run chooses by itself, too: it only notes the option in the history.
        assert scenario.site(POOLS).succeeded().plan["changes"] == []
        scenario.settled(POOLS)

        server = PolicyServer(cluster)
        assert not failing_cases(server, trial("", POOLS), policy_cases(server))

        self.start_vms(scenario)
        stock = "stock.example/kubevirt/virt-launcher:v1.9.0"
        assert self.launchers(scenario) == {"with-device": (POOL_IMAGE, "gpu-"), "of-none": (stock, "plain-")}
        playbooks.run("verify", scenario.writer.kubeconfig).succeeded()

        cluster.kubectl("delete", "vmi", "-n", "plain", "--all")
        playbooks.run("remove", scenario.writer.kubeconfig, virtpools_remove="all").succeeded()
        assert cluster.kubectl("get", "mutatingpolicies", "-o", "name") == ""
        assert scenario.owners() == {}

    def start_vms(self, scenario: Scenario) -> None:
        gpus = {"domain": {"memory": {"guest": "64Mi"}, "devices": {"gpus": [{"name": "a", "deviceName": cases.A100}]}}}
        scenario.apply({**VM, "metadata": {"name": "of-none", "namespace": "plain"}})
        scenario.apply({**VM, "metadata": {"name": "with-device", "namespace": "plain"}, "spec": gpus})

        def running() -> bool:
            vmis = scenario.get("vmis", "-n", "plain")["items"]
            return [each.get("status", {}).get("phase") for each in vmis] == ["Running", "Running"]

        scenario.cluster.wait(running, 60, "both VMs to run", interval=0.5)

    def launchers(self, scenario: Scenario) -> dict[str, tuple[str, str]]:
        """Return the image of each VM, and the kind of its node."""
        pods = scenario.get("pods", "-n", "plain", "-l", "kubevirt.io=virt-launcher")["items"]
        return {
            pod["metadata"]["labels"]["vm.kubevirt.io/name"]: (
                oracle.compute(pod)["image"],
                pod["spec"]["nodeName"].rstrip("0123456789"),
            )
            for pod in pods
        }
