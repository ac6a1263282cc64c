# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""How long to wait, and which run a task belongs to."""

from __future__ import annotations

from .option import Option

OPTIONS: tuple[Option, ...] = (
    Option(
        "node_timeout",
        "int",
        """
        Seconds to wait for the old handler to stop, and again for the new one to become Ready, before the node goes
        back to its former owner.
        """,
        roles=("pools", "remove"),
        modules=("pool_nodes",),
        default=300,
        minimum=1,
    ),
    Option(
        "pull_timeout",
        "int",
        "Seconds that the images of a batch may take to be pulled.",
        roles=("pools", "remove"),
        modules=("pool_nodes",),
        default=900,
    ),
    Option(
        "migration_timeout",
        "int",
        """
        Seconds to wait for live migrations that a restart of a handler would break. With O(drain), also the seconds
        that one migration, and the end of VMs that are waited for, may take.
        """,
        roles=("pools", "remove"),
        role_variants={
            "remove": {
                "text": """
                    Seconds to wait for live migrations that a restart of a handler would break. With O(remove_vms),
                    also the seconds that one migration, and the end of the VMs on a batch of nodes, may take.
                    """
            }
        },
        modules=("pool_nodes", "primary_exclusion", "operator_pools"),
        module_variants={
            "primary_exclusion": {"text": "Seconds to wait for running live migrations, before anything is changed."},
            "operator_pools": {"text": "Seconds to wait for running live migrations, before anything is changed."},
        },
        default=900,
    ),
    Option(
        "settle_timeout",
        "int",
        "Seconds that KubeVirt may take to roll out a change of its primary virt-handler.",
        roles=("pools", "remove"),
        modules=("primary_exclusion", "operator_pools", "plan_info", "pool_nodes"),
        module_variants={
            "operator_pools": {
                "text": "Seconds that virt-operator may take to follow a change of the pools, for each step of the plan.",
            },
            "plan_info": {"text": "Seconds to wait with O(for_run)."},
            "pool_nodes": {
                "text": "Seconds to wait for KubeVirt to be available and settled before a batch.",
                "default": 300,
            },
        },
        default=1800,
        minimum=1,
    ),
    Option(
        "lease_timeout",
        "int",
        "Seconds to wait for another run to end.",
        roles=("pools", "remove", "workload_update"),
        modules=("run",),
        module_variants={"run": {"text": "Without O(run_id), how many seconds to wait for another run to end."}},
        default=120,
    ),
    Option(
        "run_id",
        "str",
        """
        The run that this task belongs to, as returned by M(virtpools.kubevirt.run_lease). When that run does not hold
        the Lease (any more), the task fails and changes nothing.

        Without it, the module takes the Lease for itself while it writes.
        """,
        modules=("run",),
    ),
)
