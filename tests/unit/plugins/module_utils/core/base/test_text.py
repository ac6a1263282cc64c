# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.findings import note, warning
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.text import finding_lines, signed, table


def test_a_finding_is_one_line_with_its_severity_and_code():
    assert finding_lines([warning("skew", "It differs."), note("done", "It is done.")]) == [
        "WARNING skew: It differs.",
        "NOTE done: It is done.",
    ]


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        ("DaemonSet kubevirt/virt-handler-gpu: create", "+ DaemonSet kubevirt/virt-handler-gpu"),
        ("MutatingAdmissionPolicy virtpools-launcher: update", "~ MutatingAdmissionPolicy virtpools-launcher"),
        ("Pod kubevirt/pull-1: delete", "- Pod kubevirt/pull-1"),
        ("KubeVirt kubevirt/kubevirt: turn Sidecar on", "~ KubeVirt kubevirt/kubevirt: turn Sidecar on"),
        ("Node n1: primary -> gpu", "Node n1: primary -> gpu"),
        ("VMs that match no pool start on no node of gpu", "VMs that match no pool start on no node of gpu"),
    ],
)
def test_a_change_of_an_object_has_a_sign(change, shown):
    assert signed(change) == shown


def test_a_table_aligns_its_columns_and_ends_no_line_with_blanks():
    assert table(["POOL", "NODES"], [["gpu", "12"], ["memory", ""]]) == ["POOL    NODES", "gpu     12", "memory"]
