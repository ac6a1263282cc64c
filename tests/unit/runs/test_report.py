# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whole runs leave a page of themselves, however they end."""

from __future__ import annotations

import copy
import html
import re

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.writing import report_files
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.findings import InputErrors
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders
from ansible_collections.virtpools.kubevirt.tests.unit.support.fake_cluster import Behaviour
from ansible_collections.virtpools.kubevirt.tests.unit.support.roles import TaskFailed
from ansible_collections.virtpools.kubevirt.tests.unit.support.staged_runs import GPU, RT, Stage, stock

WAVES = [{"nodes": ["n1"]}, {"nodes": ["n2", "n3"]}]
POOLS = [GPU, RT]


class Reported:
    """Runs on one cluster, each with a page."""

    def __init__(self, stage, folder):
        self._stage = stage
        self.path = folder / "run.html"
        self.world, _none = stage.on(copy.deepcopy(stock()))

    def run(self, role, *, check=False, **variables):
        """Returns what the page tells, its headline first."""
        self.path.unlink(missing_ok=True)
        given = {"virtpools_report_html": str(self.path), "inventory_hostname": "west", **variables}
        self._stage.job(role, given, check=check)
        return self.page

    def fails(self, role, **variables):
        with pytest.raises(TaskFailed) as caught:
            self.run(role, **variables)
        return str(caught.value), self.page

    @property
    def page(self):
        text = self.path.read_text("utf-8")
        body = re.sub(r"<style>.*?</style>|<head>.*?</head>", "", text, flags=re.DOTALL)
        return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", body))).strip()

    def breaks(self, node):
        usual = self.world.behaviour

        def behaviour(pod):
            if pod["spec"]["nodeName"] == node and pod["metadata"]["name"].startswith("virt-handler-gpu"):
                return Behaviour(broken="ImagePullBackOff")
            return usual(pod)

        self.world.behaviour = behaviour


@pytest.fixture
def reported(run, monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    yield Reported(Stage(run, monkeypatch), tmp_path)
    assert list((tmp_path / "tmp").iterdir()) == [], "records are deleted with their runs"
    assert [file.name for file in tmp_path.glob(".*")] == []


class TestOfARunThatBringsPools:
    def test_tells_each_handover(self, reported):
        page = reported.run("rollout", virtpools_pools=POOLS, virtpools_waves=WAVES)
        assert "Finished: 3 nodes changed" in page
        assert "west" in page
        for node in ("n1", "n2", "n3"):
            assert re.search(rf" {node} [\d.]+ s", page)
        assert "Wave 1 of 2" in page
        assert "Wave 2 of 2" in page
        assert page.count("passed Gate") == 2
        assert "n4" not in page

    def test_tells_that_there_was_nothing_to_do(self, reported):
        reported.run("pools", virtpools_pools=POOLS)
        page = reported.run("pools", virtpools_pools=POOLS)
        assert "Nothing to do: everything matches the pools" in page

    def test_tells_where_it_stopped_as_asked(self, reported):
        given = {"virtpools_pools": POOLS, "virtpools_waves": WAVES}
        assert "Paused as asked: 1 of 3 nodes changed" in reported.run("rollout", **given, virtpools_stop_after_wave=1)
        assert "Finished: 2 nodes changed" in reported.run("rollout", **given)

    def test_that_is_refused_tells_why(self, reported):
        kubevirt = next(obj for obj in reported.world.all(kinds.KUBEVIRT))
        kubevirt["status"]["targetKubeVirtVersion"] = "v1.10.0"
        error, page = reported.fails("pools", virtpools_pools=POOLS, virtpools_settle_timeout=1)
        assert "nothing was changed" in page
        assert page.count(error.splitlines()[0][:60]) >= 1

    def test_that_fails_tells_where_why_and_how_to_go_on(self, reported):
        reported.breaks("n2")
        error, page = reported.fails("rollout", virtpools_pools=POOLS, virtpools_waves=WAVES)
        assert re.search(r"Failed at batch 2 of wave 2 of 2 \(.+?\): 2 of 3 nodes changed", page)
        assert "To go on, correct the cause and run the same command again." in page
        assert error.splitlines()[0] in page
        assert "returned:" in page

    def test_that_goes_back_tells_so(self, reported):
        reported.run("pools", virtpools_pools=[RT])
        reported.breaks("n2")
        on_failure = {"virtpools_on_failure": "rollback_all"}
        _error, page = reported.fails("rollout", virtpools_pools=POOLS, virtpools_waves=WAVES, **on_failure)
        assert re.search(r"Failed at batch 2 .*, and \d nodes? went back", page)
        assert "Way back" in page

    def test_in_check_mode_tells_what_it_would_do(self, reported):
        page = reported.run("pools", check=True, virtpools_pools=POOLS)
        assert "Only a plan: 3 nodes would change" in page
        assert "Plan digest:" in page
        assert not [path for _verb, path in reported.world.writes if "/nodes/" in path]


class TestOfOtherRuns:
    def test_a_removal_tells_each_handover(self, reported):
        reported.run("pools", virtpools_pools=POOLS)
        page = reported.run("remove", virtpools_remove="all")
        assert "Pools removed" in page
        assert "Finished: 3 nodes changed" in page
        assert re.search(r" n1 [\d.]+ s", page)

    def test_a_removal_of_some_pools_and_a_rollback(self, reported):
        reported.run("pools", virtpools_pools=[RT])
        reported.run("pools", virtpools_pools=POOLS)
        page = reported.run("rollback")
        assert "Rollback" in page
        assert "Finished: 2 nodes changed" in page

    def test_a_cleanup_without_kubevirt_has_a_page(self, reported):
        reported.run("pools", virtpools_pools=POOLS)
        reported.world.drop(kinds.KUBEVIRT, "kubevirt", builders.NAMESPACE)
        page = reported.run("remove", virtpools_remove="all")
        assert page.startswith("Run")
        assert "Finished" in page
        assert "Deleting what is left" in page


class TestAFolderThatCannotBeWritten:
    @pytest.mark.parametrize("role", ["pools", "remove"])
    def test_is_refused_before_anything_is_changed(self, reported, role):
        reported.path = reported.path.parent / "missing" / "run.html"
        given = {"virtpools_remove": "all"} if role == "remove" else {"virtpools_pools": POOLS}
        with pytest.raises(TaskFailed) as caught:
            reported.run(role, **given)
        missing = reported.path.parent
        assert f"virtpools_report_html is {reported.path}, but there is no folder {missing};" in str(caught.value)
        assert reported.world.writes == []

    def test_at_the_end_does_not_fail_the_run(self, reported, monkeypatch):
        def refused(*_arguments):
            raise InputErrors(["No space is left."])

        monkeypatch.setattr(report_files, "write", refused)
        with pytest.raises(FileNotFoundError):
            reported.run("pools", virtpools_pools=POOLS)
        assert reported.world.handlers("n1") == ["virt-handler-gpu"]
