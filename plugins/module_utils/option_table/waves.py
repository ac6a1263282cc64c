# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""The waves of a run, and the gates after them."""

from __future__ import annotations

from .option import Option
from .surveys import ANY_LIST, ROLLOUT_WORKFLOW, Question

OPTIONS: tuple[Option, ...] = (
    Option(
        "waves",
        "raw",
        """
        Which nodes come first, as a list of entries. Each entry takes nodes that no earlier entry took. The nodes
        that are left are the last wave.

        An entry may have C(name), C(nodes) (a list of names), C(match) (labels), C(matchExpressions), C(pools) (a
        list of names), C(per) (a label; one wave for every value of it) and C(count) or C(percent) (how many of the
        nodes; with C(per), of every wave). A node must meet everything that the entry asks for.

        The waves depend on the pools and on the nodes' labels, never on what is done already.
        """,
        roles=("pools", "rollout"),
        modules=("pools",),
        default=[],
        written="yaml",
    ),
    Option(
        "stop_after_wave",
        "raw",
        """
        The name or number of the last wave that the run carries out. The run then ends successfully. To go on, run it again
        without this option or with a later wave.

        The digest of the plan does not depend on it, so an approved plan stays approved.
        """,
        roles=("pools",),
        modules=("plan_info",),
        question=Question("Last wave of this run", ("rollout", ROLLOUT_WORKFLOW)),
    ),
    Option(
        "soak_seconds",
        "int",
        "Seconds to wait after every wave before its gates are checked a second time.",
        roles=("pools",),
        default=0,
        question=Question("Soak time after a wave (seconds)", ("rollout", ROLLOUT_WORKFLOW, "rollback"), highest=86400),
    ),
    Option(
        "gate_timeout",
        "int",
        """
        Seconds that a problem may last after a wave before the run stops. VMs on the wave's nodes, and canary VMs, have
        the same time to start.
        """,
        roles=("pools",),
        default=180,
    ),
    Option(
        "canary_vm",
        "raw",
        """
        A VM to start after every wave on its nodes, for every pool that has some there. It is verified and deleted.

        V(true) is a VM without disks and network in the namespace V(default). Otherwise the manifest of a
        VirtualMachine or VirtualMachineInstance, see M(virtpools.kubevirt.canary_vm). It must run within
        O(gate_timeout) seconds.
        """,
        roles=("pools",),
        default=False,
        written="yaml",
    ),
    Option(
        "gates",
        "list",
        """
        Files with tasks of your own that must succeed after every wave, and again after its soak time. Give absolute
        paths. The tasks find the wave in C(virtpools_wave), with its C(name), C(number) and C(nodes).
        """,
        roles=("pools",),
        default=[],
        elements="path",
    ),
    Option(
        "gate_lease_seconds",
        "int",
        """
        Seconds that all O(gates) together may take after a wave while no other run can begin. When they take longer,
        another run may begin, and then this one stops.

        A run that is killed in such a gate delays the next run by at most this time. A run that waits less
        (O(lease_timeout)) is refused.
        """,
        roles=("pools",),
        default=90,
    ),
    Option(
        "skip_pending_gates",
        "bool",
        """
        A wave that an earlier run began, and whose gates have not passed since, must pass them before the run goes
        on.

        V(true) accepts what is wrong now as known before the run, so that these gates need not pass. Use it for one
        run, after you have looked at the problems.
        """,
        roles=("pools",),
        modules=("pools",),
        default=False,
        question=Question("Skip gates that have not passed?", ANY_LIST),
    ),
    Option(
        "on_failure",
        "str",
        """
        What happens to the nodes when a wave fails, because a node or a gate does. The run still fails, and later waves
        are left alone. Any other error stops the run and leaves the nodes as they are: a lost Lease, an API server that
        cannot be reached, an error in your own task files.

        V(stop) leaves the nodes as they are. V(rollback_wave) brings the nodes of the wave back to the previous list,
        V(rollback_all) the whole fleet, in waves. Before the first list there were no pools. O(gates),
        O(soak_seconds), O(canary_vm) and O(expected_plan) do not apply on the way back.

        A run with the list that was applied last, for nodes that joined or after an upgrade of KubeVirt, has no list to
        go back to: it reports this and stops. A rollback that fails stops.
        """,
        roles=("pools",),
        default="stop",
        choices=("stop", "rollback_wave", "rollback_all"),
        question=Question("When a wave fails", ("site", "rollout", ROLLOUT_WORKFLOW)),
    ),
)
