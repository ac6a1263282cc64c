# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.checks import state
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning import plan
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.options import Options
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.reports import terminal
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders

GPU, FPGA = builders.pool("gpu"), builders.pool("fpga")


def hw(name, owner=None, former=None, kind="gpu", **fields):
    return builders.node(name, owner, former, {"hw": kind}, **fields)


def planned(nodes, pools=(GPU,), existing=(), snapshot=None, **options):
    found = snapshot or builders.snapshot_of([*nodes, builders.node("stays")], existing)
    return plan.make_plan(found, pools, Options(**options))


def test_state_for_people():
    found = state.examine(builders.snapshot_of([hw("n1", names.IN_TRANSIT), builders.node("n2")], [GPU]))
    text = terminal.state_lines(found)
    assert text[0].split() == ["OWNER", "NODES", "DAEMONSET", "DESIRED", "READY", "HANDLER", "IMAGE"]
    assert text[1].split() == ["primary", "1", "virt-handler", "3", "3", builders.HANDLER_IMAGE]
    assert text[2].split()[:3] == ["gpu", "0", "virt-handler-gpu"]
    assert text[3] == "In transit: n1"
    assert text[4].startswith("ERROR in_transit: ")
    assert not [line for line in text if line != line.rstrip()]
