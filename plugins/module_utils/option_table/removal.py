# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Removal, rollback and upgrades."""

from __future__ import annotations

import typing as t

from ..core.planning import removal
from .option import Option
from .surveys import ANY_LIST, UPGRADE_WORKFLOW, Question

OPTIONS: tuple[Option, ...] = (
    Option(
        "remove_pools",
        "raw",
        """
        Remove pools instead. Either V(all), or a list of their names. The pools are those recorded in the cluster, so
        no pool list is given. Pools that are not named stay as they are.

        When no pool stays, the exclusion and everything else that was created for pools is removed, too.
        """,
        roles=("remove",),
        internal_roles=("pools",),
        role_variants={
            "remove": {
                "text": "The pools to remove. V(all), or a list of their names.",
                "required": True,
            }
        },
        modules=("pools", "leftovers", "workload_update"),
        module_variants={
            "leftovers": {
                "text": """
                    The pools that were to be removed, as for M(virtpools.kubevirt.plan_info). Where KubeVirt no longer
                    exists, only V(all) can be removed.
                    """,
                "default": removal.ALL,
            },
            "workload_update": {
                "text": """
                    The pools that are being removed, as for M(virtpools.kubevirt.plan_info). Their VMs are to get
                    KubeVirt's own launcher image, so the launcher policy need not have these pools.
                    """
            },
        },
        variable_name="virtpools_remove",
        written="items",
        question=Question("Pools to remove", ("remove",), type="textarea", highest=4096, shortest=1),
    ),
    Option(
        "keep_history",
        "bool",
        "Keep the history of pool lists when O(remove_pools) leaves no pool, since pools of the other mode come next.",
        internal_roles=("pools", "remove"),
        modules=("pools",),
        default=False,
    ),
    Option(
        "restore_nodes",
        "list",
        """
        Bring only these nodes back, and leave all others as they are. They go to the owner that an earlier list
        (O(pools_from_history)) gives them, or with O(remove_pools=all) to the primary. For a wave of a rollout that
        failed.

        When some of these nodes need a DaemonSet as the earlier list has it, it is put back. A pool that loses its last
        node no longer gets VMs.
        """,
        internal_roles=("pools",),
        modules=("pools",),
        elements="str",
    ),
    Option(
        "remove_vms",
        "str",
        """
        What happens to VMs from under which a run takes their pool. They run on nodes that leave a pool, or with the
        launcher image of a pool that goes, because it is removed, because O(prune), a rollback or a move between the
        modes takes it down, or because it no longer selects these nodes.

        V(refuse) refuses the run while such VMs exist, unless O(drain) says what happens to VMs on these nodes.

        V(leave) lets them keep running where they are. Next time they start by the pools that are left.

        V(migrate) live-migrates VMs from each such node, as O(drain=migrate) does.

        V(wait) gives each such node to its next owner when the VMs on it have ended. The run stops when that takes
        longer than O(migration_timeout) for a batch of nodes. Run it again, or with a longer time.

        When a wave fails and O(on_failure) returns nodes, VMs that have started on them since are left where they
        are, whatever this option says.
        """,
        roles=("pools", "remove"),
        role_variants={
            "remove": {
                "text": """
                    What happens to VMs that run with the launcher image of a pool to remove, or on its nodes.

                    V(refuse) refuses the run while such VMs exist. V(leave) lets them keep running where they are. They
                    start with KubeVirt's own image next time.

                    V(migrate) first live-migrates those with a pool's image to nodes of no pool. The run stops when a
                    migration fails, as it does for a device that only the pool's nodes have. VMs that cannot be
                    migrated at all keep running where they are.

                    V(wait) gives them KubeVirt's own image from their next start on, and hands each node back when the
                    VMs on it have ended. The run stops when that takes longer than O(migration_timeout) for a batch of
                    nodes. Run it again, or with a longer time.
                    """
            }
        },
        modules=("pools",),
        module_variants={
            "pools": {
                "text": """
                    What happens to VMs that run on nodes that leave a pool, or with the launcher image of a pool that
                    goes.

                    V(refuse) makes them an error of the plan, unless O(drain) says what happens to VMs on these nodes.
                    V(leave) lets them keep running where they are, since a guest lives in its launcher pod. With
                    V(migrate) they are live-migrated first, with V(wait) their nodes leave the pool when they have ended.
                    """
            }
        },
        default="refuse",
        choices=t.get_args(removal.Vms),
        question=Question("VMs that lose their pool", (*ANY_LIST, "remove")),
    ),
    Option(
        "remove_batch",
        "int",
        "How many VMs to migrate at the same time, with O(remove_vms=migrate). A number from 1.",
        roles=("remove",),
        internal_roles=("pools",),
        default=2,
        minimum=1,
        question=Question("Migrations at the same time", ("remove",), highest=1000),
    ),
    Option(
        "remove_max_failures",
        "int",
        "After this many failed migrations no further migration begins. A number from 1.",
        roles=("remove",),
        internal_roles=("pools",),
        default=1,
        minimum=1,
        question=Question("Failed migrations that end it", ("remove",), highest=1000),
    ),
    Option(
        "rollback_to",
        "str",
        """
        Digest of the pool list to go back to, as this role and M(virtpools.kubevirt.pool_history) show it.

        Default: the previous list. If the last run did not complete, the last recorded list.
        """,
        roles=("rollback",),
        question=Question("Digest of the pool list", ("rollback",)),
    ),
    Option(
        "upgrade_to",
        "str",
        "KubeVirt's version after the upgrade, such as V(v1.9.1).",
        roles=("upgrade_check", "upgrade"),
        required=True,
        question=Question(
            "Version after the upgrade", ("upgrade_check", "upgrade", UPGRADE_WORKFLOW), highest=64, shortest=1
        ),
    ),
    Option(
        "upgrade_wait",
        "int",
        """
        Seconds to wait, once the pools are prepared, until KubeVirt has been upgraded to O(upgrade_to). The run then goes on with
        the pools' handlers. V(0) does not wait: run the playbook again after the upgrade.
        """,
        roles=("upgrade",),
        default=0,
        question=Question("Seconds to wait for the upgrade", ("upgrade", UPGRADE_WORKFLOW), highest=86400),
    ),
)
