# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""The surveys of AWX: which there are, and how they ask for an option."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

PLAYBOOKS: t.Mapping[str, tuple[str, ...]] = {
    "plan": ("pools",),
    "site": ("pools",),
    "rollout": ("rollout", "pools"),
    "rollback": ("rollback", "pools"),
    "remove": ("pools", "remove"),
    "verify": ("verify",),
    "explain": ("explain",),
    "workload_update": ("workload_update",),
    "upgrade_check": ("upgrade_check",),
    "upgrade": ("upgrade", "pools"),
}
"""The playbooks that AWX gets a job template for, each with the roles whose variables its survey may ask for.

Where several have an option, the last role describes it.
"""

ROLLOUT_WORKFLOW = "rollout_workflow"
UPGRADE_WORKFLOW = "upgrade_workflow"
WORKFLOWS: t.Mapping[str, str] = {ROLLOUT_WORKFLOW: "rollout", UPGRADE_WORKFLOW: "upgrade"}
"""The surveys of AWX's workflows, each with the playbook that carries out the workflow's change.

The answers reach all playbooks of the workflow.
"""
NEW_LIST = ("plan", "site", "rollout", "upgrade", *WORKFLOWS)
"""The surveys for what brings a pool list to a cluster."""
ANY_LIST = (*NEW_LIST, "rollback")


@dataclass(frozen=True)
class Question:
    """How surveys of AWX ask for an option.

    No answer is filled in: AWX would send it as if a person had given it, also from schedules and from workflows that never
    show the survey, and it would hide the inventory's variable.
    """

    text: str
    """The question, in a few words. AWX shows the option's description behind a question mark."""
    surveys: tuple[str, ...]
    """The surveys that ask: names of playbooks, and of ``WORKFLOWS``."""
    type: str = ""
    """The type in AWX, where it does not follow from the option's."""
    highest: int = 1024
    """The highest number, or the greatest length of a text."""
    shortest: int = 0
    """The least length of a text."""


def roles_of(survey: str) -> tuple[str, ...]:
    """The roles whose variables a survey may ask for."""
    return PLAYBOOKS[WORKFLOWS.get(survey, survey)]
