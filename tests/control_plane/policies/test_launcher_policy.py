# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""The launcher policy on a real API server, checked by an oracle that was written from the design alone.

Random launcher pods, as virt-controller could make them, meet random pool lists, and the oracle checks what the server
makes of each. The oracle is tested as well: it must notice every mutant of the policy.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools.criteria import PodAttributes
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms import matching, pool_choice
from ansible_collections.virtpools.kubevirt.tests.unit.support import launcher_cases as cases
from ansible_collections.virtpools.kubevirt.tests.unit.support import launcher_oracle as oracle
from launcher_mutants import CANARIES, KEPT_OFF, MIXED, MUTANTS, UNNOTICED, Mutant
from policy_cases import PolicyCase, Trial, as_sent, failing_cases, policy_cases, with_device
from policy_server import PolicyServer, changed

if TYPE_CHECKING:
    from collections.abc import Iterator

Object = dict[str, Any]

SEED = 20261121
PODS = 600
LISTS = 24
PODS_PER_LIST = 50


@dataclass(frozen=True)
class Case:
    """A pod as virt-controller makes it, and as the server serves it when there is no policy."""

    sent: Object
    plain: Object


@pytest.fixture(scope="module")
def server(plain_cluster: Any) -> PolicyServer:
    return PolicyServer(plain_cluster)


@pytest.fixture(scope="module")
def trials() -> list[Trial]:
    rng, rng_of_upcoming = random.Random(SEED), random.Random(SEED)
    drawn = []
    for number in range(LISTS):
        pools = cases.random_pools(rng)
        images = cases.random_images(rng, pools)
        canaries = cases.random_canaries(rng, images) if number % 3 else {}
        prepared = not canaries or number % 8 == 1
        upcoming = (cases.STOCK, cases.random_canaries(rng_of_upcoming, images)) if prepared else None
        drawn.append(Trial(f"list-{number}", pools, images, canaries, upcoming=upcoming))
    return drawn


@pytest.fixture(scope="module")
def pods(server: PolicyServer) -> list[Case]:
    rng = random.Random(SEED)
    sent = [cases.random_pod(rng, f"pod-{number}") for number in range(PODS)]
    return [Case(*each) for each in zip(sent, server.create_all(sent, server.cluster), strict=True)]


@dataclass(frozen=True)
class Result:
    """A pod after a policy has acted on it."""

    trial: Trial
    case: Case
    after: Object

    @property
    def title(self) -> str:
        """Return the names of the pod and of its pool list; the same seed makes the same ones again."""
        return f"{self.case.sent['metadata']['name']} under {self.trial.arena}"


@pytest.fixture(scope="module")
def results(server: PolicyServer, trials: list[Trial], pods: list[Case]) -> Iterator[list[Result]]:
    """Create the pods under the policies: every policy has an arena of its own, and each pod meets several policies."""
    for trial in trials:
        server.install(trial.objects, trial.arena)
    server.settle()
    rng = random.Random(SEED)
    collected = []
    for number, trial in enumerate(trials):
        own = pods[number * PODS // LISTS : (number + 1) * PODS // LISTS]
        chosen = [*own, *rng.sample(pods, PODS_PER_LIST - len(own))]
        after = server.create_all([case.sent for case in chosen], arena=trial.arena)
        collected += [Result(trial, case, pod) for case, pod in zip(chosen, after, strict=True)]
    yield collected
    for trial in trials:
        server.remove(trial.objects, trial.arena)


class TestRandomPods:
    def test_are_as_the_design_has_them(self, server: PolicyServer, results: list[Result]) -> None:
        faults = {result.title: result.trial.faults(server, result.case.plain, result.after) for result in results}
        faulty = {title: each for title, each in faults.items() if each}
        assert not faulty, (len(faulty), list(faulty.items())[:3])
        assert len({result.case.sent["metadata"]["name"] for result in results}) == PODS

    def test_get_what_the_matcher_predicts_and_the_explanation_says(
        self, server: PolicyServer, results: list[Result]
    ) -> None:
        """The policy, the matcher and the explanation agree."""
        for result in results:
            before = result.case.plain
            table = result.trial.table.as_of(oracle.compute(before)["image"])
            attributes = PodAttributes.from_pod(before, server.namespaces[before["metadata"]["namespace"]])
            won = matching.winner(table, attributes)
            explained = pool_choice.explain(
                pool_choice.Rules(table, stock_image=oracle.compute(before)["image"]), attributes
            )
            found = result.after["metadata"]["annotations"][names.OWNER_LABEL]
            assert (won.name if won else names.PRIMARY, explained.pool) == (found, found), result.title
            assert explained.image == oracle.compute(result.after)["image"], result.title
            winners = [answer.pool for answer in explained.answers if answer.state == "wins"]
            assert winners == ([found] if won else []), result.title

    def test_have_canaries_among_them(self, server: PolicyServer, results: list[Result]) -> None:
        """So the other tests of random pods hold for canaries as well."""
        with_canary = 0
        for trial, before in ((result.trial, result.case.plain) for result in results):
            with_canary += trial.image(server, before) != replace(trial, canaries={}).image(server, before)
        assert with_canary > 20

    def test_get_the_images_of_the_version_that_made_them(self, server: PolicyServer, results: list[Result]) -> None:
        """So the other tests of random pods hold for policies that wait for an upgrade as well."""
        of_next_version = 0
        for trial, before in ((result.trial, result.case.plain) for result in results):
            of_next_version += trial.image(server, before) != replace(trial, upcoming=None).image(server, before)
        assert of_next_version > 20

    def test_go_to_the_pool_that_a_later_device_makes_win(self, server: PolicyServer, results: list[Result]) -> None:
        """If a webhook adds a device after the policy has run, the result is as if the pod had asked for it before."""
        moved = 0
        for number, result in enumerate(results[::5]):
            device = cases.DEVICES[number % len(cases.DEVICES)]
            trial = result.trial
            after = server.create(with_device(as_sent(result.after), device), arena=trial.arena)
            before = with_device(result.case.plain, device)
            assert not trial.faults(server, before, after, former=trial.pools), (result.title, device)
            moved += oracle.compute(after)["env"] != oracle.compute(result.after)["env"]
        assert moved > 20

    def test_follow_a_new_list_that_comes_between_two_passes(self, server: PolicyServer, results: list[Result]) -> None:
        """If the pool that won is no longer listed, the pod loses both its image and its nodes."""
        gone = 0
        for result, other in zip(results, reversed(results), strict=True):
            former = {pool["name"]: pool for pool in result.trial.pools}
            won = former.get(result.after["metadata"]["annotations"][oracle.POOL_ANNOTATION])
            if won is None or won["name"] in {pool["name"] for pool in other.trial.pools}:
                continue
            if result.trial.table.sets_hypervisor and not other.trial.table.sets_hypervisor:
                continue  # A policy without hypervisors does not look at them: all launcher pods would pay for it.
            after = server.create(as_sent(result.after), arena=other.trial.arena)
            assert not other.trial.faults(server, result.case.plain, after, former=[won]), result.title
            gone += bool(won.get("virtLauncherImage"))
        assert gone > 10

    def test_are_finished_after_one_pass(self, server: PolicyServer, results: list[Result]) -> None:
        """A second pass of the policy changes nothing, so the server may call it as often as it likes."""
        for trial in {result.trial.arena: result.trial for result in results}.values():
            own = [result for result in results if result.trial is trial][::4]
            again = server.create_all([as_sent(result.after) for result in own], arena=trial.arena)
            for result, pod in zip(own, again, strict=True):
                assert as_sent(pod) == as_sent(result.after), result.title


def test_two_hundred_pools(server: PolicyServer) -> None:
    """Each pool wins its pod; where two pools match, the first one wins."""
    pools = [
        {
            "name": f"pool-{number}",
            "nodeSelector": {"pool": str(number)},
            "virtLauncherImage": f"registry.example/virt-launcher:{number}",
            "selector": {
                "deviceNames": [f"vendor-{number}.example/device-{each}" for each in range(20)],
                "vmLabels": {"matchLabels": {"number": str(number // 2)}},
            },
        }
        for number in range(200)
    ]
    trial = Trial.for_pools("two-hundred", pools)
    server.install(trial.objects, trial.arena)
    server.settle()
    sent = [
        cases.launcher_pod("virtiofs", f"device-{n}", devices={f"vendor-{n}.example/device-19": 1}) for n in range(200)
    ]
    sent += [cases.launcher_pod("virtiofs", f"label-{n}", labels={"number": str(n)}) for n in range(101)]
    before = server.create_all(sent, server.cluster)
    after = server.create_all(sent, arena=trial.arena)
    server.remove(trial.objects, trial.arena)
    won = [pod["metadata"]["annotations"][names.OWNER_LABEL] for pod in after]
    assert won[:200] == [pool["name"] for pool in pools]
    assert won[200:] == [*(f"pool-{2 * number}" for number in range(100)), "primary"]
    # Only some of them: with 200 owners the oracle has many nodes to examine.
    for each in range(0, len(sent), 25):
        assert not trial.faults(server, before[each], after[each])


@pytest.fixture(scope="module")
def known_cases(server: PolicyServer) -> dict[str, PolicyCase]:
    return {case.name: case for case in policy_cases(server)}


@pytest.fixture(scope="module")
def policies(server: PolicyServer) -> Iterator[dict[str, Trial]]:
    """Install the policies from which mutants are made, and all mutants, each in an arena of its own."""
    right = {"mixed": Trial.for_pools("mixed", MIXED, CANARIES), "kept off": Trial.for_pools("kept-off", KEPT_OFF)}
    for trial in right.values():
        server.install(trial.objects, trial.arena)
    for number, mutant in enumerate(MUTANTS):
        server.install(changed(right[mutant.pools].objects, mutant.change), f"mutant-{number}")
    for number, change in enumerate(UNNOTICED.values()):
        server.install(changed(right["mixed"].objects, change), f"unnoticed-{number}")
    server.settle()
    yield right
    for trial in right.values():
        server.remove(trial.objects, trial.arena)
    for number, mutant in enumerate(MUTANTS):
        server.remove(right[mutant.pools].objects, f"mutant-{number}")
    for number in range(len(UNNOTICED)):
        server.remove(right["mixed"].objects, f"unnoticed-{number}")


class TestCases:
    @pytest.mark.parametrize("pools", ["mixed", "kept off"])
    def test_end_as_the_design_has_them(
        self, server: PolicyServer, policies: dict[str, Trial], known_cases: dict[str, PolicyCase], pools: str
    ) -> None:
        assert not failing_cases(server, policies[pools], known_cases.values())

    @pytest.mark.parametrize("mutant", MUTANTS, ids=str)
    def test_notice_every_mutant(
        self, server: PolicyServer, policies: dict[str, Trial], known_cases: dict[str, PolicyCase], mutant: Mutant
    ) -> None:
        right = policies[mutant.pools]
        trial = replace(right, arena=f"mutant-{MUTANTS.index(mutant)}")
        assert known_cases[mutant.case].faults(server, trial)

    @pytest.mark.parametrize("name", UNNOTICED)
    def test_do_not_notice_a_mutant_that_changes_no_pod(
        self, server: PolicyServer, policies: dict[str, Trial], known_cases: dict[str, PolicyCase], name: str
    ) -> None:
        right = policies["mixed"]
        trial = replace(right, arena=f"unnoticed-{list(UNNOTICED).index(name)}")
        assert not failing_cases(server, trial, list(known_cases.values())[::4])
