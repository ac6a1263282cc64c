# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.findings import InputErrors
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning import plan, waves
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.options import Options
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.waves import Member
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders

FLEET = [
    Member(f"{platform}{number}", {"platform": platform, **({"role": "canary"} if number == 10 else {})}, "gpu")
    for platform in ("b", "a")
    for number in (10, 2, 1)
]


def grouped(raw, members=FLEET):
    return {group.name: list(group.nodes) for group in waves.group(waves.parse(raw), members)}


def problems(raw):
    with pytest.raises(InputErrors) as caught:
        waves.parse(raw)
    return list(caught.value.messages)


def test_natural_order():
    assert sorted(["n10", "n9", "a", "n9b2", "n9b10"], key=waves.natural) == ["a", "n9", "n9b2", "n9b10", "n10"]


@pytest.mark.parametrize("raw", [None, [], ""])
def test_without_entries_there_is_one_wave(raw):
    assert grouped(raw) == {"all": ["a1", "a2", "a10", "b1", "b2", "b10"]}


def test_a_canary_of_every_platform_then_platform_by_platform():
    assert grouped([{"name": "canary", "match": {"role": "canary"}, "per": "platform"}, {"per": "platform"}]) == {
        "canary, platform=a": ["a10"],
        "canary, platform=b": ["b10"],
        "platform=a": ["a1", "a2"],
        "platform=b": ["b1", "b2"],
    }


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ([{"nodes": ["b2", "a1"]}], {"a1, b2": ["a1", "b2"], "rest": ["a2", "a10", "b1", "b10"]}),
        ([{"name": "one", "count": 1}], {"one": ["a1"], "rest": ["a2", "a10", "b1", "b2", "b10"]}),
        ([{"percent": "17%"}], {"17%": ["a1", "a2"], "rest": ["a10", "b1", "b2", "b10"]}),
        ([{"percent": "1%", "per": "platform"}], {"1%, platform=a": ["a1"], "1%, platform=b": ["b1"], "rest": ["a2", "a10", "b2", "b10"]}),
        ([{"match": {"platform": "a"}, "count": 9}], {"platform=a, first 9": ["a1", "a2", "a10"], "rest": ["b1", "b2", "b10"]}),
        ([{"matchExpressions": [{"key": "role", "operator": "DoesNotExist"}], "count": 1}, {"pools": ["gpu"]}],
         {"!role, first 1": ["a1"], "pool gpu": ["a2", "a10", "b1", "b2", "b10"]}),
        ([{"pools": ["fpga"]}], {"rest": ["a1", "a2", "a10", "b1", "b2", "b10"]}),
        ([{"per": "role"}], {"role=canary": ["a10", "b10"], "without role": ["a1", "a2", "b1", "b2"]}),
        ([{"count": 1}, {"count": 1}], {"first 1": ["a1"], "first 1 (2)": ["a2"], "rest": ["a10", "b1", "b2", "b10"]}),
    ],
)  # fmt: skip
def test_what_entries_take(raw, expected):
    assert grouped(raw) == expected


def test_labels_in_natural_order():
    members = [Member(f"n{value}", {"rack": f"r{value}"}, "gpu") for value in (10, 9, 1)]
    assert list(grouped([{"per": "rack"}], members)) == ["rack=r1", "rack=r9", "rack=r10"]


def test_nodes_back_to_the_primary_do_not_change_others_shares():
    leaving = Member("a0", {"platform": "a"}, "gpu", leaving=True)
    with_it, without = grouped([{"percent": "50%"}], [leaving, *FLEET]), grouped([{"percent": "50%"}])
    assert with_it["50%"] == without["50%"]
    assert with_it["rest"] == ["a0", *without["rest"]]
    assert "a0" in grouped([{"match": {"platform": "a"}}], [leaving, *FLEET])["platform=a"]


SPECS = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "match": st.sampled_from([{"role": "canary"}, {"platform": "a"}, {"platform": "c"}]),
            "per": st.sampled_from(["platform", "role", "none"]),
            "nodes": st.just(["a1", "b2", "x"]),
            "count": st.integers(1, 7),
        },
    ),
    max_size=4,
)


@given(SPECS, st.randoms(use_true_random=False))
def test_every_node_is_in_one_wave_in_any_order_of_reading(raw, random):
    shuffled = random.sample(FLEET, len(FLEET))
    found = waves.group(waves.parse(raw), shuffled)
    assert found == waves.group(waves.parse(raw), FLEET)
    assert sorted(node for group in found for node in group.nodes) == sorted(member.name for member in FLEET)
    assert len({group.name for group in found}) == len(found)
    assert all(group.nodes for group in found)


def test_all_problems_at_once():
    found = problems(
        [
            {"name": "1", "count": 0, "percent": 10},
            {"match": {"role": True}, "per": "no key", "waves": 1},
            "canary",
            {"name": "x", "match": {names.OWNER_LABEL: "gpu"}, "per": names.OWNER_LABEL},
            {"name": "x", "nodes": [], "count": 1},
            {"count": 1, "percent": "5%"},
        ]
    )
    starts = [
        'Wave 1: name is "1", which is a number',
        "Wave 1: count is 0; give a number of nodes from 1",
        "Wave 1: percent is 10; give a percentage",
        "Wave 1 has both count and percent",
        'Wave 2 has an unknown field "waves"',
        "Wave 2: match[role] is true",
        'Wave 2: per is "no key"',
        'Wave 3 is "canary"; give a mapping',
        f"Wave 4: match asks for {names.OWNER_LABEL}, which changes during a rollout",
        f'Wave 4: per is "{names.OWNER_LABEL}", which changes during a rollout',
        "Wave 5: nodes is an empty list",
        "Wave 6 has both count and percent",
    ]
    assert len(found) == len(starts)
    for message, start in zip(found, starts, strict=True):
        assert message.startswith(start)


def test_two_waves_must_not_have_the_same_name():
    assert problems([{"name": "x"}, {"name": "x"}]) == [
        'virtpools_waves: several waves have the name "x"; give each its own name.'
    ]


@pytest.mark.parametrize("raw", [{"name": "x"}, "canary", 3, True])
def test_no_list(raw):
    assert problems(raw)[0].startswith("virtpools_waves is ")


def test_entries_without_nodes_and_nodes_of_no_pool_are_reported():
    specs = waves.parse(
        [
            {"match": {"role": "canery"}},
            {"nodes": ["a1", "typo"]},
            {"nodes": ["a1"]},
            {"name": "c", "nodes": ["typo"]},
            {},
        ]
    )
    found = [(finding.code, finding.message) for finding in waves.check(specs, FLEET)]
    assert [code for code, _message in found] == ["wave_empty", "wave_node_unknown", "wave_empty", "wave_empty"]
    assert found[0][1].startswith("Wave 1 (role=canery) of virtpools_waves takes no node")
    assert found[1][1].endswith("no pool has or will have: typo.")
    assert found[2][1].startswith("Wave 3 (a1) of virtpools_waves takes no node")
    assert found[3][1].startswith("Wave 4 (c) of virtpools_waves takes no node")
    assert found[3][1].endswith(": it names 1 node that no pool has or will have: typo.")


class TestPlans:
    """Waves over a cluster: ``a1`` is done already, ``a3`` was never wanted."""

    NODES = (
        builders.node("a1", "gpu", labels={"hw": "gpu", "platform": "a"}),
        builders.node("a2", labels={"hw": "gpu", "platform": "a"}),
        builders.node("a3", labels={"platform": "a"}),
        builders.node("b1", labels={"hw": "gpu", "platform": "b"}),
        builders.node("b2", labels={"hw": "gpu", "platform": "b"}),
        builders.node("b3", labels={"hw": "gpu", "platform": "b"}, ready=False),
    )

    def plan_of(self, raw, nodes=NODES):
        pools = [builders.pool("gpu")]
        return plan.make_plan(builders.snapshot_of(list(nodes), pools), pools, Options(waves=waves.parse(raw)))

    def test_batches_follow_the_waves(self):
        found = self.plan_of([{"match": {"platform": "b"}, "count": 1}, {"per": "platform"}])
        assert [(wave.number, wave.name, wave.nodes) for wave in found.waves] == [
            (1, "platform=b, first 1", ("b1",)),
            (2, "platform=a", ("a1", "a2")),
            (3, "platform=b", ("b2", "b3")),
        ]
        assert [[move.node for move in batch] for batch in found.batches] == [["b1"], ["a2"], ["b2"]]
        assert [(wave.done, wave.remaining, wave.held_back) for wave in found.waves] == [
            (0, 1, 0),
            (1, 1, 0),
            (0, 1, 1),
        ]

    def test_a_wave_that_is_done_changes_no_other_and_not_the_digest(self):
        raw = [{"percent": "50%"}]
        before = self.plan_of(raw)
        moved = [builders.node("a2", "gpu", labels={"hw": "gpu", "platform": "a"})]
        after = self.plan_of(raw, [*moved, *(node for node in self.NODES if node["metadata"]["name"] != "a2")])
        assert [wave.nodes for wave in before.waves] == [wave.nodes for wave in after.waves]
        assert before.digest == after.digest
        assert [wave.remaining for wave in before.waves] == [2, 1]
        assert [wave.remaining for wave in after.waves] == [1, 1]

    def test_other_waves_are_another_plan(self):
        with_waves, without = self.plan_of([{"per": "platform"}]), self.plan_of(None)
        assert "waves" in with_waves.digest.mismatch(str(without.digest))
        assert with_waves.digest.mismatch(str(self.plan_of([{"per": "platform"}]).digest)) is None

    def test_a_wave_without_nodes_is_reported(self):
        found = self.plan_of([{"pools": ["fpga"]}])
        assert "wave_empty" in {finding.code for finding in found.findings}
        assert [wave.name for wave in found.waves] == ["rest"]
