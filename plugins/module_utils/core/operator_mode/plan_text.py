# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""An operator-mode plan as lines of text."""

from __future__ import annotations

from ..base.text import finding_lines, signed
from ..planning.plan_text import owner_lines
from .plan import OperatorPlan


def plan_lines(plan: OperatorPlan) -> list[str]:
    """A plan where KubeVirt's own operator makes the pools: what the user must know, what is written, and what the operator then
    does on each node."""
    lines = finding_lines(plan.findings)
    if plan.errors or plan.pending:
        lines += owner_lines(plan.owners())
    lines.append(f"Mode operator: virt-operator creates the pools from {plan.build.place}.")
    if plan.errors:
        lines.append("A run is refused until its errors are fixed.")
    elif not plan.pending:
        state = "nothing is left of these pools." if plan.removing else "everything matches the pools."
        lines.append(f"No change: {state}")
    else:
        lines += map(signed, plan.changes())
        if plan.settling and not plan.changed:
            lines.append(f"virt-operator has not finished: {plan.rollout.problem} The run waits for it.")
    return [*lines, f"Plan digest: {plan.digest}"]
