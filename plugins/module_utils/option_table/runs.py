# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""What a run does with the pools and their nodes."""

from __future__ import annotations

import typing as t

from ..core.admission import launcher_backends, launcher_rollout
from ..core.monitoring import alerts
from ..core.planning import assignment
from ..core.planning.options import DrainMode, OnNonMigratable
from ..core.planning.proposal import AskedMode
from .option import Option
from .surveys import ANY_LIST, NEW_LIST, Question

OPTIONS: tuple[Option, ...] = (
    Option(
        "mode",
        "str",
        """
        Who creates the pools' DaemonSets. V(collection): this collection, on any KubeVirt. V(operator): virt-operator, where
        KubeVirt is a build with pools of its own; C(docs/operator-mode.md) describes these builds and their limits.

        V(auto) is V(operator) where the cluster has such pools already, else V(collection). A run in the other mode
        than the cluster's moves all its pools over. A list of the history comes back in the mode that it had.
        """,
        roles=("pools", "remove", "verify", "explain", "upgrade_check"),
        modules=("mode",),
        default="auto",
        choices=t.get_args(AskedMode),
    ),
    Option(
        "overlap",
        "str",
        """
        What to do with a node that two pools select.

        V(error) refuses the list and names nodes and pools. V(first_wins) gives the node to the pool that comes
        first.
        """,
        roles=("pools", "verify", "explain"),
        modules=("pools",),
        default="error",
        choices=t.get_args(assignment.Overlap),
    ),
    Option(
        "prune",
        "bool",
        """
        Whether to take down a pool that exists but is no longer in the list. By default it stays, with the nodes it
        has, and the plan reports it.
        """,
        roles=("pools", "explain", "verify", "upgrade_check"),
        role_variants={
            "verify": {"text": "Whether to report a pool that is not in the list as an error."},
            "upgrade_check": {
                "text": """
                Whether C(site) takes down a pool that exists but is not in the list. Then its images are not checked.
                """
            },
        },
        modules=("pools",),
        default=False,
        question=Question("Take down pools that are not in the list?", NEW_LIST),
    ),
    Option(
        "max_unavailable",
        "raw",
        """
        How many nodes of one pool may be without a Ready virt-handler at the same time because of a run. A number
        from 1, or a percentage of the pool's nodes such as V(10%), rounded down but at least 1.
        """,
        roles=("pools", "remove"),
        modules=("pools",),
        default=1,
        question=Question("Nodes of a pool at the same time", (*ANY_LIST, "remove"), highest=16),
    ),
    Option(
        "max_nodes_lost",
        "raw",
        """
        How many of its nodes a pool of the list may lose by one run. A number, or a percentage of the pool's nodes,
        rounded down but at least 1. Only V(100%) lets a pool lose all its nodes.

        A run with a pool that would lose more is refused, since a label may be misspelt in its selector, or missing for
        some minutes. To confirm the loss, set V(100%) for that run. A pool that is removed, pruned or rolled back to
        another selector needs no such confirmation.
        """,
        roles=("pools",),
        modules=("pools",),
        default="50%",
        question=Question("Nodes that a pool may lose", ANY_LIST, highest=16),
    ),
    Option(
        "prepull",
        "bool",
        """
        Pull the images that a node needs with a short-lived pod, before the node's handler is removed, and look whether a pool's
        images have all that KubeVirt needs.
        """,
        roles=("pools", "remove"),
        modules=("pools",),
        default=True,
    ),
    Option(
        "launcher_backend",
        "str",
        """
        What gives launcher pods their pool's image and nodes. C(docs/launcher-images.md) describes the choice.

        V(admission_policy) is a MutatingAdmissionPolicy, which Kubernetes has on by default from 1.36. V(kyverno) is
        a MutatingPolicy of Kyverno. V(aie_webhook) is the ConfigMap of kubevirt-aie-webhook. V(none) leaves launcher
        pods alone.

        V(auto) takes V(admission_policy) where the API server has it, else V(kyverno) where that is installed.
        """,
        roles=("pools", "verify", "explain"),
        modules=("pools",),
        default="auto",
        choices=t.get_args(launcher_backends.BackendOption),
    ),
    Option(
        "outdated",
        "str",
        """
        KubeVirt calls every VM with a pool's launcher image outdated. It migrates or restarts such a VM again and
        again when C(workloadUpdateMethods) of the KubeVirt object has C(LiveMigrate) or C(Evict).

        V(refuse) then refuses pools with launcher images.

        V(correct) installs a second policy that keeps KubeVirt from calling VMs with a current pool image outdated.
        It changes a status field that virt-controller writes.
        """,
        roles=("pools", "explain"),
        modules=("pools",),
        default="refuse",
        choices=t.get_args(launcher_rollout.Outdated),
    ),
    Option(
        "assign_new_nodes",
        "bool",
        """
        Whether a node that joins gets its owner at once. A policy sets the owner while the node is created, from the
        labels that it is created with. A label that is set later makes the node drift, which the next run repairs.

        Needs C(MutatingAdmissionPolicy), which Kubernetes has on by default from 1.36.
        """,
        roles=("pools",),
        modules=("pools",),
        default=False,
    ),
    Option(
        "guard",
        "bool",
        """
        Whether two admission policies protect the pools. One lets only runs change the owner label of nodes, where a
        run is any user with the right to C(assign nodeowners.virtpools.io). The other keeps KubeVirt from a
        virt-handler that runs
        on pool nodes. They are on unless this is false, which deletes them.

        They need C(ValidatingAdmissionPolicy), which Kubernetes has from 1.30. Without that, or without the right to
        write them, the plan has a note and the run does everything else; where this is true, it is refused.
        C(docs/security.md) describes the policies.
        """,
        roles=("pools",),
        modules=("pools",),
    ),
    Option(
        "alerts",
        "bool",
        """
        Whether a run writes alerts for Prometheus, as a C(PrometheusRule) named C(virtpools-alerts). They watch the
        handlers of all pools, nodes in transit, the launcher policy, and what the last verification found. Without
        this option the run deletes it.

        Needs the Prometheus operator. Where it is not installed, the plan reports this and the run writes no alerts.
        C(docs/alerts.md) describes every alert and the metrics that it needs.
        """,
        roles=("pools",),
        modules=("pools",),
        default=False,
    ),
    Option(
        "alerts_namespace",
        "str",
        "Namespace of the C(PrometheusRule), which must exist. Without it, KubeVirt's namespace.",
        roles=("pools",),
        modules=("pools",),
    ),
    Option(
        "alerts_labels",
        "raw",
        """
        Labels of the C(PrometheusRule) by which your Prometheus selects rules, as a mapping such as
        C({release: monitoring}). It always has the labels of KubeVirt's own C(PrometheusRule).
        """,
        roles=("pools",),
        modules=("pools",),
    ),
    Option(
        "runbook_url",
        "str",
        """
        Address of the page that describes the alerts, without an anchor. Each alert links to its section there. By
        default the page in the collection's repository; give your own copy of it where that cannot be reached.
        """,
        roles=("pools",),
        modules=("pools",),
        default=alerts.RUNBOOK_URL,
    ),
    Option(
        "drain",
        "str",
        """
        What to do with VMs on a node before its virt-handler is removed. The nodes of a batch are drained together,
        after their images were pulled.

        V(leave) leaves the VMs where they are. Guests go on without a virt-handler, but cannot be stopped or migrated
        until the next one is Ready.

        V(migrate) live-migrates them. Nodes are then handed over one at a time, regardless of O(max_unavailable),
        since VMs would move between the nodes of a batch.

        V(wait) waits until they have ended.

        VMs get the launcher image that the policy gives them at that moment. A new pool is not mapped before its
        first nodes are Ready, and a pool that is being removed is no longer mapped.
        """,
        roles=("pools",),
        modules=("pools",),
        default="leave",
        choices=t.get_args(DrainMode),
        question=Question("VMs on the nodes", ANY_LIST),
    ),
    Option(
        "on_non_migratable",
        "str",
        """
        What happens, with O(drain=migrate), to VMs that cannot be migrated. Such a VM is not migratable according to
        KubeVirt, is paused because of an error, does not run yet, or is on a node whose virt-handler is not Ready.

        V(leave) leaves them where they are. V(wait) waits until they have ended, before any VM of the batch is
        migrated. V(fail) stops the run before the batch.
        """,
        roles=("pools",),
        modules=("pools",),
        default="leave",
        choices=t.get_args(OnNonMigratable),
        question=Question("VMs that cannot be migrated", ANY_LIST),
    ),
    Option(
        "feature_gates_present",
        "list",
        """
        Feature gates of KubeVirt that the run turns on before anything else. Pools on stock KubeVirt need none.
        """,
        roles=("pools",),
        modules=("plan_info", "upgrade_preparation"),
        default=[],
        elements="str",
    ),
    Option(
        "feature_gates_absent",
        "list",
        "Feature gates of KubeVirt that the run turns off before anything else.",
        roles=("pools", "remove"),
        role_variants={
            "remove": {
                "text": "Feature gates of KubeVirt that the run turns off at its end: those that only pools needed."
            }
        },
        modules=("plan_info", "upgrade_preparation"),
        module_variants={
            "plan_info": {"text": "Feature gates of KubeVirt that the run turns off, with O(remove_pools) at its end."}
        },
        default=[],
        elements="str",
    ),
)
