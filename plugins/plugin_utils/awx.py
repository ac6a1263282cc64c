# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this plugin util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""What a job of AWX or Automation Platform knows of itself: extra variables, which modules do not see."""

from __future__ import annotations

import typing as t


def job(variables: t.Mapping[str, t.Any]) -> str | None:
    """Who runs this: the job with its template and the user or schedule that started it; None outside AWX.

    AWX gives each variable twice, as ``awx_*`` and by its former name ``tower_*``.
    """

    def value(name: str) -> t.Any:
        return variables.get(f"awx_{name}") or variables.get(f"tower_{name}")

    number, template, user, schedule = map(value, ("job_id", "job_template_name", "user_name", "schedule_name"))
    if not number:
        return None
    of_template = f" of template {template}" if template else ""
    started = f", started by {user}" if user else f", started by schedule {schedule}" if schedule else ""
    return f"AWX job {number}{of_template}{started}"
