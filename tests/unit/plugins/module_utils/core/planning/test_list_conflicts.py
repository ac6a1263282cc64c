# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from dataclasses import replace

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning import history, list_conflicts
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.batching import Move
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.history import (
    History,
    OpenWave,
    PendingMove,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.options import Options
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders

GPU, RT = builders.pool("gpu"), builders.pool("rt")
NEXT_GPU = builders.pool("gpu", virtHandlerImage="registry.example/virt-handler:next")
BUILD = "additionalVirtHandlers"


def entry(*pools, day="21", by="alice on host", build=None):
    return history.entry_of(pools, (), Options(), f"2026-11-{day}T19:30:00Z", by, build)


OLD, NEW = entry(GPU, RT), entry(NEXT_GPU, RT, day="22", by="AWX job 7, started by bob")
KNOWN = History((OLD, NEW))


def not_applied(given, known=KNOWN, recorded=NEW.pools, build=None):
    return list_conflicts.not_applied(known, given, recorded, build)


class TestNotApplied:
    def test_says_what_differs_since_when_and_both_ways_out(self):
        found = not_applied((GPU, builders.pool("fpga")))
        assert (found.severity, found.code) == ("error", "list_not_applied")
        assert "which AWX job 7, started by bob applied on 2026-11-22T19:30:00Z" in found.message
        differences = (
            "pool fpga is only in the given list, pool gpu has another virtHandlerImage, pool rt is not in the"
        )
        assert differences in found.message
        assert "bring the given list with site or a workflow" in found.message
        assert "or put the list that the cluster has" in found.message
        assert "is older" not in found.message

    def test_an_older_list_is_called_so(self):
        assert "The given list is older, of 2026-11-21T19:30:00Z." in not_applied((RT, GPU)).message

    @pytest.mark.parametrize(
        ("given", "known", "recorded", "build"),
        [
            pytest.param((RT, NEXT_GPU), KNOWN, NEW.pools, None, id="the-same"),
            pytest.param((GPU,), History(), (NEXT_GPU,), None, id="no-list-recorded"),
            pytest.param((), KNOWN, NEW.pools, None, id="nothing-to-compare"),
            pytest.param((GPU, RT), KNOWN, (GPU, RT), None, id="its-run-is-unfinished"),
            pytest.param((GPU, RT), KNOWN, (NEXT_GPU,), None, id="pools-were-edited"),
            pytest.param((GPU,), KNOWN, NEW.pools, BUILD, id="pools-of-the-other-mode"),
            pytest.param((GPU,), replace(KNOWN, going_to=OLD.digest), NEW.pools, None, id="rollback"),
            pytest.param((NEXT_GPU,), replace(KNOWN, applying=True), NEW.pools, None, id="begun-before-its-first-wave"),
            pytest.param((NEXT_GPU,), replace(KNOWN, waves=(OpenWave("1", ("n1",)),)), NEW.pools, None, id="open-wave"),
            pytest.param((GPU,), replace(KNOWN, moving=PendingMove(OLD, NEW)), NEW.pools, None, id="move"),
        ],
    )
    def test_is_no_false_alarm(self, given, known, recorded, build):
        assert not_applied(given, known, recorded, build) is None

    @pytest.mark.parametrize(("target", "under_way"), [("rt", True), ("gpu", False), (names.PRIMARY, False)])
    def test_a_run_that_takes_a_pool_away_is_told_by_nodes(self, target, under_way):
        moves = [Move("n1", names.PRIMARY, target, "move"), Move("n2", "rt", "rt", "replace")]
        assert list_conflicts.is_under_way([NEXT_GPU], moves[1:]) is False
        assert list_conflicts.is_under_way([NEXT_GPU], [replace(moves[0], source="fpga"), moves[1]]) is under_way


class TestBringsBack:
    def test_says_which_list_comes_and_which_one_goes(self):
        found = list_conflicts.brings_back(KNOWN, (RT, GPU), None)
        assert (found.severity, found.code) == ("warning", "older_list")
        assert f"the one of 2026-11-21T19:30:00Z ({OLD.digest})" in found.message
        assert "in place of the list that AWX job 7, started by bob applied on 2026-11-22T19:30:00Z" in found.message
        assert "pool gpu has another virtHandlerImage" in found.message

    @pytest.mark.parametrize(
        ("given", "known", "build"),
        [
            pytest.param(NEW.pools, KNOWN, None, id="the-newest"),
            pytest.param(OLD.pools, History((NEW, OLD)), None, id="the-newest-again"),
            pytest.param((GPU,), KNOWN, None, id="a-new-one"),
            pytest.param(OLD.pools, KNOWN, BUILD, id="in-the-other-mode"),
            pytest.param(OLD.pools, History(), None, id="the-first"),
        ],
    )
    def test_not_of_a_list_that_takes_nothing_back(self, given, known, build):
        assert list_conflicts.brings_back(known, given, build) is None
