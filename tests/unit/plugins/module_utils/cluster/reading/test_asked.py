# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.reading.asked import Asked
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.findings import InputErrors
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning import history
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.options import Options
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders

GIVEN = {
    "pools": None,
    "pools_dialect": "virtpools",
    "pools_manifest": None,
    "pools_from_cluster": False,
    "pools_from_history": None,
    "remove_pools": None,
    "restore_nodes": None,
    "waves": None,
    "drain": "leave",
    "on_non_migratable": "leave",
    "alerts": False,
    "alerts_namespace": None,
    "alerts_labels": None,
    "runbook_url": None,
    "overlap": "error",
    "prune": False,
    "max_unavailable": 1,
    "max_nodes_lost": "50%",
    "remove_vms": "refuse",
    "prepull": True,
    "launcher_backend": "auto",
    "outdated": "refuse",
    "assign_new_nodes": False,
    "guard": None,
    "keep_history": False,
    "skip_pending_gates": False,
}


def asked(entry=None, **params):
    def nothing_to_read(*_arguments):
        raise AssertionError("the cluster was read")

    known = history.History((entry,)) if entry else None
    return Asked({**GIVEN, **params}, nothing_to_read, (lambda: known) if known else nothing_to_read)


def test_the_defaults_are_those_of_options():
    assert asked().options == Options()


def test_pools_are_given_or_not():
    assert asked(pools=[builders.RAW_POOL]).pools_given
    assert not asked().pools_given


def test_a_list_beside_a_removal_is_refused():
    assert asked(remove_pools="all").pools == ()
    with pytest.raises(InputErrors, match="beside virtpools_remove"):
        _ = asked(remove_pools="all", pools=[builders.RAW_POOL]).pools


class TestEarlier:
    def entry(self, build=None):
        return history.entry_of([builders.pool()], (), Options(guard=True), "now", "me", build)

    def test_brings_its_pools_options_and_no_others(self):
        digest = self.entry().digest
        found = asked(self.entry(), pools_from_history=digest)
        assert found.pools == (builders.pool(),)
        assert (found.options.guard, found.options.prune, found.options.back_to) == (True, True, digest)

    @pytest.mark.parametrize(("build", "mode"), [(None, "collection"), ("virtHandlerPools", "operator")])
    def test_comes_back_in_the_mode_that_it_had(self, build, mode):
        entry = self.entry(build)
        assert asked(entry, pools_from_history=entry.digest, mode="auto").mode == mode


def test_without_a_mode_the_cluster_decides():
    assert asked().mode == asked(mode=None).mode == "auto"
    assert asked(mode="operator").mode == "operator"
