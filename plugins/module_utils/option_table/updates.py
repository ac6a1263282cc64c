# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Updates of VMs."""

from __future__ import annotations

from .option import Option
from .surveys import Question

OPTIONS: tuple[Option, ...] = (
    Option(
        "update_namespaces",
        "list",
        "Update only VMs of these namespaces. By default those of all namespaces.",
        roles=("workload_update",),
        default=[],
        elements="str",
        question=Question("Namespaces", ("workload_update",), type="textarea", highest=4096),
    ),
    Option(
        "update_batch",
        "int",
        "How many VMs to migrate at the same time. A number from 1.",
        roles=("workload_update",),
        default=2,
        minimum=1,
        question=Question("Migrations at the same time", ("workload_update",), highest=1000),
    ),
    Option(
        "update_max_failures",
        "int",
        "After this many failed updates no further update begins. A number from 1.",
        roles=("workload_update",),
        default=1,
        minimum=1,
        question=Question("Failed updates that end it", ("workload_update",), highest=1000),
    ),
    Option(
        "update_timeout",
        "int",
        "Seconds that the update of one VM may take. A migration that takes longer is cancelled.",
        roles=("workload_update",),
        default=900,
        minimum=1,
        question=Question("Time for one VM (seconds)", ("workload_update",), highest=86400),
    ),
)
