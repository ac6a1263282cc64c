# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""The launcher policy on a real API server, against a judge written from the design alone.

Random launcher pods, as virt-controller could make them, meet random pool lists; the judge looks at what the server made
of each. Then the judge is put to the test as well: it must notice every mutant of the policy.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import matching, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.mapping import Table
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools import parse_pools
from ansible_collections.virtpools.kubevirt.tests.unit import launcher_cases as cases
from ansible_collections.virtpools.kubevirt.tests.unit import launcher_oracle as oracle
from policy_server import Objects, PolicyServer, derived, digest, in_arena

if TYPE_CHECKING:
    from collections.abc import Iterator

Object = dict[str, Any]

SEED = 20261121
PODS = 600
LISTS = 24
PODS_PER_LIST = 100


@dataclass(frozen=True)
class Trial:
    """A pool list, and the policy made for it."""

    arena: str
    pools: list[Object]
    images: dict[str, str | None]

    @cached_property
    def table(self) -> Table:
        """Return the mapping table."""
        return Table.of(parse_pools(self.pools), self.images)

    @cached_property
    def objects(self) -> Objects:
        """Return the policy and its binding."""
        return derived(self.table)

    def faults(self, server: PolicyServer, before: Object, after: Object, **more: Any) -> list[str]:
        """Return what the judge finds wrong with what became of a pod."""
        rng = random.Random(before["metadata"]["name"])
        return list(
            oracle.faults(
                self.pools,
                self.images,
                before,
                after,
                namespace_labels=server.namespaces[before["metadata"]["namespace"]],
                digest=digest(self.objects),
                nodes=cases.random_nodes(rng, before, self.pools),
                **more,
            )
        )


@dataclass(frozen=True)
class Case:
    """A pod as virt-controller makes it, and as the server serves it when there is no policy."""

    sent: Object
    plain: Object

    def before(self, trial: Trial) -> Object:
        """Return what a policy is judged by: the pod without policy, but with the label of the trial."""
        return in_arena(self.plain, trial.arena)


def as_sent(pod: Object) -> Object:
    """Return a pod that the server has answered with as it can be created again."""
    metadata = {key: value for key, value in pod["metadata"].items() if key not in oracle.SET_BY_THE_SERVER}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod["spec"]}


@pytest.fixture(scope="module")
def server(plain_cluster: Any) -> PolicyServer:
    return PolicyServer(plain_cluster)


@pytest.fixture(scope="module")
def trials() -> list[Trial]:
    rng = random.Random(SEED)
    made = []
    for number in range(LISTS):
        pools = cases.random_pools(rng)
        made.append(Trial(f"list-{number}", pools, cases.random_images(rng, pools)))
    return made


@pytest.fixture(scope="module")
def pods(server: PolicyServer) -> list[Case]:
    rng = random.Random(SEED)
    sent = [cases.random_pod(rng, f"pod-{number}") for number in range(PODS)]
    return [Case(*each) for each in zip(sent, server.create_all(sent, server.cluster), strict=True)]


@dataclass(frozen=True)
class Result:
    """What became of a pod under a policy."""

    trial: Trial
    case: Case
    after: Object

    @property
    def title(self) -> str:
        """Return which one it is; the seed repeats it."""
        return f"{self.case.sent['metadata']['name']} under {self.trial.arena}"


@pytest.fixture(scope="module")
def results(server: PolicyServer, trials: list[Trial], pods: list[Case]) -> Iterator[list[Result]]:
    """Every policy is in force for pods of its own; each pod meets several of them."""
    for trial in trials:
        server.install(trial.objects, trial.arena)
    server.settle()
    rng = random.Random(SEED)
    found = []
    for number, trial in enumerate(trials):
        own = pods[number * PODS // LISTS : (number + 1) * PODS // LISTS]
        chosen = [*own, *rng.sample(pods, PODS_PER_LIST - len(own))]
        after = server.create_all([case.sent for case in chosen], arena=trial.arena)
        found += [Result(trial, case, pod) for case, pod in zip(chosen, after, strict=True)]
    yield found
    for trial in trials:
        server.remove(trial.objects, trial.arena)


class TestRandomPods:
    def test_are_as_the_design_has_them(self, server: PolicyServer, results: list[Result]) -> None:
        wrong = {}
        for result in results:
            faults = result.trial.faults(server, result.case.before(result.trial), result.after)
            if faults:
                wrong[result.title] = faults
        assert not wrong, (len(wrong), dict(list(wrong.items())[:3]))
        assert len({result.case.sent["metadata"]["name"] for result in results}) == PODS

    def test_get_the_pool_that_the_matcher_predicts(self, server: PolicyServer, results: list[Result]) -> None:
        for result in results:
            before = result.case.before(result.trial)
            asked = matching.Asked.of_pod(before, server.namespaces[before["metadata"]["namespace"]])
            won = matching.winner(result.trial.table, asked)
            predicted = won.name if won else names.PRIMARY
            assert result.after["metadata"]["annotations"][names.OWNER_LABEL] == predicted, result.title

    def test_are_finished_after_one_pass(self, server: PolicyServer, results: list[Result]) -> None:
        """A result that is fed back stays as it is: the server may run the policy as often as it likes."""
        for trial in {result.trial.arena: result.trial for result in results}.values():
            own = [result for result in results if result.trial is trial][::4]
            again = server.create_all([as_sent(result.after) for result in own], arena=trial.arena)
            for result, pod in zip(own, again, strict=True):
                assert as_sent(pod) == as_sent(result.after), result.title
