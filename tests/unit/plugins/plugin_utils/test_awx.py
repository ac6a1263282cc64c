# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.plugin_utils.awx import job


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({}, None),
        ({"awx_job_id": ""}, None),
        ({"awx_job_id": 12}, "AWX job 12"),
        (
            {"awx_job_id": 12, "awx_job_template_name": "pools rollout", "awx_user_name": "alice"},
            "AWX job 12 of template pools rollout, started by alice",
        ),
        (
            {"tower_job_id": "12", "tower_job_template_name": "verify", "tower_schedule_name": "nightly"},
            "AWX job 12 of template verify, started by schedule nightly",
        ),
    ],
    ids=str,
)
def test_says_who_runs(variables, said):
    assert job(variables) == said
