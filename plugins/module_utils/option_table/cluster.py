# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Which cluster a task is about, and which pools."""

from __future__ import annotations

from ..core.pools import dialects
from .option import Option
from .surveys import NEW_LIST, Question

_LIST = "The pools, in order, as a list of dictionaries. The documentation of the collection (C(docs/pools.md)) describes every field."
_NAMESPACE_LEFT = """
    Namespace of the KubeVirt object, or where it was.

    Without it, the only KubeVirt object of the cluster is taken. Where none is left, it is the namespace of the pools'
    DaemonSets, or C(kubevirt).
    """

OPTIONS: tuple[Option, ...] = (
    Option(
        "kubevirt_namespace",
        "str",
        """
        Namespace of the KubeVirt object.

        Without it, the only KubeVirt object of the cluster is used, in any namespace. Several are an error.
        """,
        roles=("pools", "verify", "explain", "upgrade_check", "workload_update", "rollback", "remove"),
        role_variants={"remove": {"text": _NAMESPACE_LEFT}},
        modules=("kubevirt", "leftovers"),
        module_variants={"leftovers": {"text": _NAMESPACE_LEFT}},
    ),
    Option(
        "kubevirt_name",
        "str",
        "Name of the KubeVirt object, where its namespace holds several.",
        roles=("pools", "verify", "explain", "upgrade_check", "workload_update", "remove", "rollback"),
        modules=("kubevirt",),
    ),
    Option(
        "run_by",
        "str",
        """
        Who runs this, for people who read the Lease, the history, or the API server's audit log. There it is a part of
        the user agent.

        By default the job, the template and the user of AWX, or else the user and the machine.
        """,
        modules=("kubevirt",),
    ),
    Option(
        "run_record",
        "path",
        """
        The record of a run, a file that M(virtpools.kubevirt.run_report) began. The module appends what it did, and how
        it ended. A record that does not exist (any more) is ignored.
        """,
        modules=("kubevirt",),
    ),
    Option(
        "pools",
        "raw",
        f"""
        {_LIST}

        Exactly one of O(pools), O(pools_manifest), O(pools_from_cluster) and O(pools_from_history) is needed. A missing
        or empty list is an error.

        All problems of the list are reported together, before anything is changed.
        """,
        roles=("pools", "verify", "explain", "upgrade_check"),
        role_variants={
            "verify": {
                "text": f"""
                    {_LIST}

                    Defaults to the pools recorded in the cluster.
                    """
            },
            "explain": {
                "text": f"""
                    {_LIST}

                    Defaults to the mapping in effect in the cluster.
                    """
            },
            "upgrade_check": {
                "text": """
                    The pools, as they will be given to the run after the upgrade. C(docs/pools.md) describes every
                    field.

                    Defaults to the pools recorded in the cluster.
                    """
            },
        },
        modules=("pools",),
        written="yaml",
        question=Question("Pools, as YAML", (*NEW_LIST, "upgrade_check"), type="textarea", highest=65536),
    ),
    Option(
        "pools_dialect",
        "str",
        """
        The form in which O(pools) are written, or which O(pools_from_cluster) reads. A manifest shows its form by
        itself.

        V(virtpools) is this collection's own form. The others were designed for KubeVirt upstream, or are the
        ConfigMap of kubevirt-aie-webhook. They keep their own fields, rules and order.
        """,
        roles=("pools", "verify", "explain", "upgrade_check"),
        modules=("pools",),
        default=dialects.OWN,
        choices=tuple(dialects.DIALECTS),
    ),
    Option(
        "pools_manifest",
        "path",
        """
        A YAML file on the controller that holds the pools. This is a KubeVirt object with one of the upstream fields,
        C(WorkerPool) objects, the ConfigMap C(kubevirt-aie-launcher-config), or a mapping with C(virtpools_pools).
        """,
        roles=("pools", "verify", "explain", "upgrade_check"),
        modules=("pools",),
    ),
    Option(
        "pools_from_cluster",
        "bool",
        "Read the pools from objects in the cluster, of the kind that O(pools_dialect) names.",
        roles=("pools", "verify", "explain", "upgrade_check"),
        modules=("pools",),
        default=False,
    ),
    Option(
        "pools_from_history",
        "str",
        """
        Digest of an earlier pool list of this cluster, from M(virtpools.kubevirt.pool_history). The run brings that
        list back, with the values that O(overlap), O(launcher_backend), O(outdated), O(assign_new_nodes), O(guard) and
        the options of alerts had, and with O(prune=true).
        """,
        roles=("pools",),
        role_variants={
            "pools": {
                "text": """
                    Digest of an earlier pool list of this cluster, from M(virtpools.kubevirt.pool_history). The run
                    brings that list back, with the values that O(overlap), O(launcher_backend), O(outdated),
                    O(assign_new_nodes), O(guard) and the options of alerts had, and with O(prune=true).

                    Any other pool list is ignored.
                    """
            }
        },
        modules=("pools",),
    ),
)
