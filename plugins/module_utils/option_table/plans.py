# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""The plan: its approval, and where it is read from."""

from __future__ import annotations

from .option import Option
from .surveys import Question

_DUMP = "A directory of YAML or JSON files with Kubernetes objects, as C(kubectl get -o yaml) writes them, to {} instead of a cluster."
_DUMP_ROLE = "A directory of objects from C(kubectl get -o yaml), to {} instead of a cluster."

_UNDONE = """
The plan of a run that is to be undone, as an earlier job of a workflow published it. AWX passes it on. The rollback then goes
back to the list that the cluster had when the plan was made, however far its run came.
"""
_VERIFIED = """
The approved plan, as an earlier job of a workflow published it. AWX passes it on. It is a problem when the cluster does not have
the list that the plan brings.
"""

OPTIONS: tuple[Option, ...] = (
    Option(
        "plan_vms",
        "bool",
        """
        Whether the plan reads all launcher pods, to name the running VMs that could not start again where they are.
        """,
        roles=("pools",),
        default=True,
    ),
    Option(
        "expected_plan",
        "str",
        """
        Digest of the plan that was approved. When the plan is no longer that one, the run is refused with what
        changed since, and changes nothing.

        An approved plan still holds after an interruption, since the digest does not cover what is left to do. The run
        that completes it uses the approval up.
        """,
        roles=("pools", "remove"),
        modules=("plan_info", "upgrade_preparation"),
        question=Question("Digest of the approved plan", ("site", "rollout", "remove", "upgrade")),
    ),
    Option(
        "published_plan",
        "raw",
        """
        The approved plan, as an earlier job of a workflow published it. AWX passes it on. It is
        used where O(expected_plan) is not given.

        The playbook C(plan), and C(site), C(rollout), C(rollback), C(remove) and C(upgrade) in check mode, publish their
        plans, each for its own kind of run. With several clusters there is one plan for each.
        """,
        roles=("pools", "remove", "rollback", "verify"),
        role_variants={"rollback": {"text": _UNDONE}, "verify": {"text": _VERIFIED}},
        modules=("plan_info", "upgrade_preparation", "pool_history", "verification_info"),
        module_variants={"pool_history": {"text": _UNDONE}, "verification_info": {"text": _VERIFIED}},
        variable_name="virtpools_plan",
        written="yaml",
    ),
    Option(
        "run_result",
        "raw",
        """
        What the run of an earlier job of a workflow published. AWX passes it on. After a run that stopped where it was
        asked to, the cluster need not have the list of O(published_plan) yet.
        """,
        roles=("verify",),
        modules=("verification_info",),
        variable_name="virtpools_result",
        written="yaml",
    ),
    Option(
        "require_approval",
        "bool",
        """
        Whether a run is refused without the digest of an approved plan, from O(expected_plan) or O(published_plan).
        """,
        roles=("pools", "remove"),
        modules=("plan_info", "upgrade_preparation"),
        default=False,
    ),
    Option(
        "dump",
        "path",
        f"{_DUMP_ROLE.format('read')} Only for what changes nothing, such as the playbook C(plan).",
        roles=("pools", "verify", "explain", "upgrade_check"),
        role_variants={
            "verify": {"text": _DUMP_ROLE.format("verify")},
            "explain": {"text": _DUMP_ROLE.format("explain from")},
            "upgrade_check": {"text": _DUMP_ROLE.format("check")},
        },
        modules=("plan_info", "verification_info", "explanation_info", "upgrade_info"),
        module_variants={
            "plan_info": {
                "text": f"""
                    {_DUMP.format("plan from")}

                    It must hold KubeVirt, DaemonSets, the Deployment C(virt-controller), nodes and the pods of
                    KubeVirt's namespace; HyperConverged where there is one; for O(vms) the launcher pods, and the
                    namespaces where pools select them; the policies, to see what the launcher policy does now; with
                    O(alerts) the PrometheusRules.
                    """
            },
            "verification_info": {
                "text": f"""
                    {_DUMP.format("verify")}

                    It must hold KubeVirt, DaemonSets, the Deployment C(virt-controller), nodes, the pods of
                    KubeVirt's namespace, the launcher pods, the VirtualMachineInstances and the launcher policy with
                    its binding; namespaces where pools select them by labels.
                    """
            },
            "explanation_info": {
                "text": f"""
                    {_DUMP.format("explain from")}

                    It must hold KubeVirt, DaemonSets, the Deployment C(virt-controller), nodes, the launcher policy
                    with its binding, and the VM with its VirtualMachineInstance, launcher pod, instancetype,
                    ControllerRevisions and NetworkAttachmentDefinitions, where they exist; its namespace where pools
                    select namespaces by labels.
                    """
            },
            "upgrade_info": {
                "text": f"""
                    {_DUMP.format("check")}

                    It must hold KubeVirt, DaemonSets, the Deployment C(virt-controller), nodes, the pods of
                    KubeVirt's namespace, and the launcher policy with its binding.
                    """
            },
        },
    ),
)
