# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Every option that users set: as a variable of our roles, as an option of our modules, or as both.

Modules take their argument specs from here. ``make options`` writes the roles' argument specs and defaults, the options of
the documentation fragments, the documentation of the modules' options that stand here, and the reference in
docs/variables.md. An option that only one module has, and no role, stands in that module.

An option that is empty ("") or null was not given, everywhere: surveys of AWX send every question that nobody answered as
an empty string. Surveys have text areas, but neither lists nor mappings, so roles take both as text, too.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field, replace

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from .core.admission import launcher_backends, launcher_rollout
from .core.base.findings import InputErrors
from .core.monitoring import alerts
from .core.planning import assignment, removal
from .core.planning.options import DrainMode, OnNonMigratable
from .core.planning.proposal import AskedMode
from .core.pools import dialects

try:
    import yaml
except ImportError:
    yaml = None  # type: ignore[assignment]

Arguments = dict[str, dict[str, t.Any]]
Places = t.Mapping[str, t.Mapping[str, t.Any]]
"""Names of roles or modules, each with the fields of the option that are different there."""

FRAGMENTS = ("kubevirt", "mode", "pools", "run")
"""Documentation fragments. What they have, every module has that names them."""


def _in(*names: str, **different: t.Mapping[str, t.Any]) -> Places:
    return {**{name: {} for name in names}, **different}


PLAYBOOKS: t.Mapping[str, tuple[str, ...]] = {
    "plan": ("pools",),
    "site": ("pools",),
    "rollout": ("rollout", "pools"),
    "rollback": ("rollback", "pools"),
    "remove": ("remove",),
    "verify": ("verify",),
    "explain": ("explain",),
    "workload_update": ("workload_update",),
    "upgrade_check": ("upgrade_check",),
}
"""The playbooks that AWX gets a job template for, each with the roles whose variables its survey may ask for."""

WORKFLOW = "workflow"
"""The survey of AWX's workflow. Its answers reach all playbooks of the workflow."""


@dataclass(frozen=True)
class Question:
    """How surveys of AWX ask for an option.

    :param text: the question, in a few words. AWX shows the option's description behind a question mark.
    :param surveys: the surveys that ask: names of playbooks, and ``WORKFLOW``.
    :param type: the type in AWX, where it does not follow from the option's.
    :param limits: the lowest and the highest number, or the lengths of a text.
    :param filled: whether the default is filled in. What is filled in hides the variable of an inventory, so an option
        that is about a cluster rather than about one run is left open.
    """

    text: str
    surveys: tuple[str, ...]
    type: str = ""
    limits: tuple[int, int] = (0, 1024)
    filled: bool = False


@dataclass(frozen=True)
class Option:
    """One option.

    :param text: its description in Ansible's markup, with empty lines between paragraphs. ``O(name)`` is another option.
    :param roles: the roles that have it as a variable.
    :param modules: the modules, or documentation fragments, that have it as an option of this name.
    :param variable: the variable's name, if it is not ``virtpools_`` with the option's name.
    :param question: how surveys of AWX ask for it. Without it, none does.
    :param secret: whether its value must not be shown. role_options then checks it, but does not return it.
    """

    name: str
    type: str
    text: str
    roles: Places = field(default_factory=dict)
    modules: Places = field(default_factory=dict)
    default: t.Any = None
    choices: tuple[str, ...] = ()
    elements: str | None = None
    required: bool = False
    variable: str = ""
    written: t.Literal["", "items", "yaml"] = ""
    """What a role makes of text: items, one per line or with commas between them, as of every list; or what the YAML says."""
    question: Question | None = None
    secret: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "variable", self.variable or f"virtpools_{self.name}")

    def of_role(self, role: str) -> Option:
        return replace(self, **self.roles[role])

    def of_module(self, module: str) -> Option:
        return replace(self, **self.modules[module])

    @property
    def paragraphs(self) -> list[str]:
        """Its description."""
        return [" ".join(paragraph.split()) for paragraph in self.text.split("\n\n")]

    @property
    def argument(self) -> dict[str, t.Any]:
        """Its entry in an argument spec."""
        return {
            "type": self.type,
            **({"elements": self.elements} if self.elements else {}),
            **({"choices": list(self.choices)} if self.choices else {}),
            **({"required": True} if self.required else {}),
            **({"default": self.default} if self.default is not None else {}),
        }


_EXPLAIN, _VERIFY, _UPGRADE = "explain", "verify", "upgrade_check"
_POOLS = ("pools", _VERIFY, _EXPLAIN, _UPGRADE)
"""The roles that take a pool list."""

_NEW_LIST = ("plan", "site", "rollout", WORKFLOW)
"""The surveys for what brings a pool list to a cluster."""
_ANY_LIST = (*_NEW_LIST, "rollback")

_LIST = "The pools, in order, as a list of dictionaries. The documentation of the collection (C(docs/pools.md)) describes every field."
_DUMP = "A directory of YAML or JSON files with Kubernetes objects, as C(kubectl get -o yaml) writes them, to {} instead of a cluster."
_DUMP_ROLE = "A directory of objects from C(kubectl get -o yaml), to {} instead of a cluster."

_NAMESPACE_LEFT = """
    Namespace of the KubeVirt object, or where it was.

    Without it, the only KubeVirt object of the cluster is taken. Where none is left, it is the namespace of the pools'
    DaemonSets, or C(kubevirt).
    """

TABLE: tuple[Option, ...] = (
    # Which cluster ---------------------------------------------------------------------------------------------------
    Option(
        "kubevirt_namespace",
        "str",
        """
        Namespace of the KubeVirt object.

        Without it, the only KubeVirt object of the cluster is taken, in whatever namespace. Several are an error.
        """,
        roles=_in(
            *("pools", _VERIFY, _EXPLAIN, _UPGRADE, "workload_update", "feature_gate", "rollback"),
            remove={"text": _NAMESPACE_LEFT},
        ),
        modules=_in(
            "kubevirt",
            leftovers={"text": _NAMESPACE_LEFT},
        ),
    ),
    Option(
        "kubevirt_name",
        "str",
        "Name of the KubeVirt object, where its namespace holds several.",
        roles=_in(
            *(
                "pools",
                _VERIFY,
                _EXPLAIN,
                _UPGRADE,
                "workload_update",
                "feature_gate",
                "remove",
                "rollback",
            )
        ),
        modules=_in("kubevirt"),
    ),
    Option(
        "run_by",
        "str",
        """
        Who runs this, for people who read the Lease, the history, or the API server's audit log. There it is a part of
        the user agent.

        By default the job, the template and the user of AWX, or else the user and the machine.
        """,
        modules=_in("kubevirt"),
    ),
    # Which pools -----------------------------------------------------------------------------------------------------
    Option(
        "pools",
        "raw",
        f"""
        {_LIST}

        Exactly one of O(pools), O(pools_manifest), O(pools_from_cluster) and O(pools_from_history) is needed. No list
        is an error, and so is an empty one.

        All problems of the list are reported together, before anything is changed.
        """,
        roles=_in(
            "pools",
            **{
                _VERIFY: {
                    "text": f"""
                    {_LIST}

                    Without a pool list, those pools count that the cluster itself records.
                    """
                },
                _EXPLAIN: {
                    "text": f"""
                    {_LIST}

                    Without a pool list, the mapping counts that is in effect in the cluster.
                    """
                },
                _UPGRADE: {
                    "text": """
                    The pools, as they will be given to the run after the upgrade. C(docs/pools.md) describes every
                    field.

                    Without a pool list, those pools count that the cluster itself records.
                    """
                },
            },
        ),
        modules=_in("pools"),
        written="yaml",
        question=Question("Pools, as YAML", (*_NEW_LIST, "upgrade_check"), type="textarea", limits=(0, 65536)),
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
        roles=_in(*_POOLS),
        modules=_in("pools"),
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
        roles=_in(*_POOLS),
        modules=_in("pools"),
    ),
    Option(
        "pools_from_cluster",
        "bool",
        "Read the pools from objects in the cluster, of the kind that O(pools_dialect) names.",
        roles=_in(*_POOLS),
        modules=_in("pools"),
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
        roles=_in(
            pools={
                "text": """
                    Digest of an earlier pool list of this cluster, from M(virtpools.kubevirt.pool_history). The run
                    brings that list back, with the values that O(overlap), O(launcher_backend), O(outdated),
                    O(assign_new_nodes), O(guard) and the options of alerts had, and with O(prune=true).

                    Any other pool list is ignored.
                    """
            }
        ),
        modules=_in("pools"),
    ),
    # What a run does -------------------------------------------------------------------------------------------------
    Option(
        "mode",
        "str",
        """
        Who makes the pools' DaemonSets. V(collection): this collection, on any KubeVirt. V(operator): virt-operator, where
        KubeVirt is a build with pools of its own; C(docs/operator-mode.md) says which these are and what they cannot do.

        V(auto) is V(operator) where the cluster has such pools already, else V(collection). A run with the other mode than the
        cluster's moves all its pools over. A list of the history comes back in the mode that it had.
        """,
        roles=_in("pools", "remove", _VERIFY, _EXPLAIN, _UPGRADE),
        modules=_in("mode"),
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
        roles=_in("pools", _VERIFY, _EXPLAIN),
        modules=_in("pools"),
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
        roles=_in(
            "pools",
            _EXPLAIN,
            **{_VERIFY: {"text": "Whether it is wrong that a pool exists which is not in the list."}},
        ),
        modules=_in("pools"),
        default=False,
        question=Question("Take down pools that are not in the list?", _NEW_LIST),
    ),
    Option(
        "max_unavailable",
        "raw",
        """
        How many nodes of one pool may be without a Ready virt-handler at the same time because of a run. A number
        from 1, or a percentage of the pool's nodes such as V(10%), rounded down but at least 1.
        """,
        roles=_in("pools", "remove"),
        modules=_in("pools"),
        default=1,
        question=Question("Nodes of a pool at the same time", (*_ANY_LIST, "remove"), limits=(0, 16)),
    ),
    Option(
        "allow_skew",
        "bool",
        """
        Accept a pool with an image that is tagged with another version than KubeVirt's. By default that is an error.
        """,
        roles=_in(
            *("pools", _VERIFY, _EXPLAIN),
            **{_UPGRADE: {"text": "Accept images that are tagged with another version than O(upgrade_to)."}},
        ),
        modules=_in("pools"),
        default=False,
        question=Question("Accept images of another version?", (*_NEW_LIST, "upgrade_check")),
    ),
    Option(
        "prepull",
        "bool",
        "Pull the images that a node needs with a short-lived pod, before the node's handler is taken away.",
        roles=_in("pools", "remove"),
        modules=_in("pools"),
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
        roles=_in("pools", _VERIFY, _EXPLAIN),
        modules=_in("pools"),
        default="auto",
        choices=t.get_args(launcher_backends.Wanted),
    ),
    Option(
        "outdated",
        "str",
        """
        KubeVirt calls every VM with a pool's launcher image outdated. It migrates or restarts such a VM again and
        again when C(workloadUpdateMethods) of the KubeVirt object say so.

        V(refuse) refuses pools with launcher images while they do.

        V(correct) installs a second policy that keeps KubeVirt from calling VMs with a current pool image outdated.
        It changes a status field that virt-controller writes.
        """,
        roles=_in("pools", _EXPLAIN),
        modules=_in("pools"),
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
        roles=_in("pools"),
        modules=_in("pools"),
        default=False,
    ),
    Option(
        "guard",
        "bool",
        """
        Whether two admission policies protect the pools. One lets only runs change the owner label of nodes, where a
        run is whoever may C(assign nodeowners.virtpools.io). The other keeps KubeVirt from a virt-handler that runs
        on pool nodes.

        Needs C(ValidatingAdmissionPolicy), which Kubernetes has from 1.30. C(docs/security.md) describes the
        policies.
        """,
        roles=_in("pools"),
        modules=_in("pools"),
        default=False,
    ),
    Option(
        "alerts",
        "bool",
        """
        Whether a run writes alerts for Prometheus, as a C(PrometheusRule) named C(virtpools-alerts). They watch the
        handlers of all pools, nodes in transit, the launcher policy, and what the last verification found. Without
        this option the run deletes it.

        Needs the Prometheus operator. Where it is not installed, the plan says so and the run writes no alerts.
        C(docs/alerts.md) describes every alert and the metrics that it needs.
        """,
        roles=_in("pools"),
        modules=_in("pools"),
        default=False,
    ),
    Option(
        "alerts_namespace",
        "str",
        "Namespace of the C(PrometheusRule), which must exist. Without it, KubeVirt's namespace.",
        roles=_in("pools"),
        modules=_in("pools"),
    ),
    Option(
        "alerts_labels",
        "raw",
        """
        Labels of the C(PrometheusRule) by which your Prometheus selects rules, as a mapping such as
        C({release: monitoring}). It has the labels of KubeVirt's own C(PrometheusRule) in any case.
        """,
        roles=_in("pools"),
        modules=_in("pools"),
    ),
    Option(
        "runbook_url",
        "str",
        """
        Address of the page that describes the alerts, without an anchor. Each alert links to its section there. By
        default the page in the collection's repository; give your own copy of it where that cannot be reached.
        """,
        roles=_in("pools"),
        modules=_in("pools"),
        default=alerts.RUNBOOK_URL,
    ),
    Option(
        "drain",
        "str",
        """
        What happens to the VMs on a node before its virt-handler is taken away. The nodes of a batch are treated
        together, after their images were pulled.

        V(leave) leaves the VMs where they are. Guests go on without a virt-handler, but cannot be stopped or migrated
        until the next one is Ready.

        V(migrate) live-migrates them. Nodes are then handed over one at a time, whatever O(max_unavailable) says,
        since VMs would move between the nodes of a batch.

        V(wait) waits until they have ended.

        VMs get the launcher image that the policy gives them at that moment. A new pool is not mapped before its
        first nodes are Ready, and a pool that goes is no longer mapped.
        """,
        roles=_in("pools"),
        modules=_in("pools"),
        default="leave",
        choices=t.get_args(DrainMode),
        question=Question("VMs on the nodes", _ANY_LIST),
    ),
    Option(
        "on_non_migratable",
        "str",
        """
        What happens, with O(drain=migrate), to VMs that cannot be migrated. Such a VM is not migratable according to
        KubeVirt, is paused, does not run yet, or is on a node whose virt-handler is not Ready.

        V(leave) leaves them where they are. V(wait) waits until they have ended, before any VM of the batch is
        migrated. V(fail) stops the run before the batch.
        """,
        roles=_in("pools"),
        modules=_in("pools"),
        default="leave",
        choices=t.get_args(OnNonMigratable),
        question=Question("VMs that cannot be migrated", _ANY_LIST),
    ),
    # Waves and gates -------------------------------------------------------------------------------------------------
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
        roles=_in("pools", "rollout"),
        modules=_in("pools"),
        default=[],
        written="yaml",
    ),
    Option(
        "stop_after_wave",
        "raw",
        """
        The name or number of the last wave that the run carries out. The run then ends well. To go on, run it again
        without this option or with a later wave.

        The digest of the plan does not depend on it, so an approved plan stays approved.
        """,
        roles=_in("pools"),
        modules=_in("plan_info"),
        question=Question("Last wave of this run", ("rollout", WORKFLOW)),
    ),
    Option(
        "soak_seconds",
        "int",
        "Seconds to wait after every wave before its gates are checked a second time.",
        roles=_in("pools"),
        default=0,
        question=Question("Soak time after a wave (seconds)", ("rollout", WORKFLOW, "rollback"), limits=(0, 86400)),
    ),
    Option(
        "gate_timeout",
        "int",
        """
        Seconds that a problem may last after a wave before the run stops. A VM on the nodes of the wave, and a canary
        VM, may take as long to start.
        """,
        roles=_in("pools"),
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
        roles=_in("pools"),
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
        roles=_in("pools"),
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
        roles=_in("pools"),
        default=90,
    ),
    Option(
        "skip_pending_gates",
        "bool",
        """
        A wave that an earlier run began, and whose gates have not passed since, must pass them before the run goes
        on.

        V(true) accepts what is wrong now as known before the run, so that these gates need not pass. Use it for one
        run, after you have looked.
        """,
        roles=_in("pools"),
        modules=_in("pools"),
        default=False,
        question=Question("Skip gates that have not passed?", _ANY_LIST, filled=True),
    ),
    Option(
        "on_failure",
        "str",
        """
        What happens to the nodes when a wave fails, because a node or a gate does. The run fails in any case, and
        later waves are left alone.

        V(stop) leaves the nodes as they are. V(rollback_wave) brings the nodes of the wave back to the previous list,
        V(rollback_all) the whole fleet, in waves. Before the first list there were no pools. O(gates),
        O(soak_seconds), O(canary_vm) and O(expected_plan) do not apply on the way back.

        A run with the list that was applied last, for nodes that joined or after an upgrade of KubeVirt, has no list
        to go back to. It says so, and stops. A rollback that fails stops.
        """,
        roles=_in("pools"),
        default="stop",
        choices=("stop", "rollback_wave", "rollback_all"),
        question=Question("When a wave fails", ("site", "rollout", WORKFLOW)),
    ),
    # The plan --------------------------------------------------------------------------------------------------------
    Option(
        "plan_vms",
        "bool",
        """
        Whether the plan reads all launcher pods, to name the running VMs that could not start again where they are.
        """,
        roles=_in("pools"),
        default=True,
    ),
    Option(
        "expected_plan",
        "str",
        """
        Digest of the plan that was approved. When the plan is no longer that one, the run is refused with what
        changed since, and changes nothing.

        An approved plan still holds after an interruption, since the digest does not cover what is left to do.
        """,
        roles=_in("pools", "remove"),
        modules=_in("plan_info"),
        question=Question("Digest of the approved plan", ("site", "rollout", "remove")),
    ),
    Option(
        "published_plan",
        "raw",
        """
        What an earlier job of a workflow has published of its plan, which is the approved one. AWX passes it on. It
        counts where O(expected_plan) is not given.

        The playbook C(plan), and C(rollback) and C(remove) in check mode, publish their plans, each for its own kind of
        run. With several clusters there is one plan for each.
        """,
        roles=_in("pools", "remove"),
        modules=_in("plan_info"),
        variable="virtpools_plan",
        written="yaml",
    ),
    Option(
        "require_approval",
        "bool",
        """
        Whether a run is refused without the digest of an approved plan, from O(expected_plan) or O(published_plan).
        """,
        roles=_in("pools", "remove"),
        modules=_in("plan_info"),
        default=False,
    ),
    Option(
        "dump",
        "path",
        f"{_DUMP_ROLE.format('read')} Only for what changes nothing, such as the playbook C(plan).",
        roles=_in(
            "pools",
            **{
                _VERIFY: {"text": _DUMP_ROLE.format("verify")},
                _EXPLAIN: {"text": _DUMP_ROLE.format("explain from")},
                _UPGRADE: {"text": _DUMP_ROLE.format("check")},
            },
        ),
        modules=_in(
            plan_info={
                "text": f"""
                    {_DUMP.format("plan from")}

                    It must hold KubeVirt, DaemonSets, nodes and the pods of KubeVirt's namespace; HyperConverged
                    where there is one; for O(vms) the launcher pods, and the namespaces where pools select them; the
                    policies, to see what the launcher policy does now; with O(alerts) the PrometheusRules.
                    """
            },
            verification_info={
                "text": f"""
                    {_DUMP.format("verify")}

                    It must hold KubeVirt, DaemonSets, nodes, the pods of KubeVirt's namespace, the launcher pods, the
                    VirtualMachineInstances and the launcher policy with its binding; namespaces where pools select
                    them by labels.
                    """
            },
            explanation_info={
                "text": f"""
                    {_DUMP.format("explain from")}

                    It must hold KubeVirt, DaemonSets, nodes, the launcher policy with its binding, and the VM with
                    its VirtualMachineInstance, launcher pod, instancetype, ControllerRevisions and
                    NetworkAttachmentDefinitions, as far as there are any; its namespace where pools select namespaces
                    by labels.
                    """
            },
            upgrade_info={
                "text": f"""
                    {_DUMP.format("check")}

                    It must hold KubeVirt, DaemonSets, nodes, the pods of KubeVirt's namespace, and the launcher
                    policy with its binding.
                    """
            },
        ),
    ),
    # Removal, rollback, upgrade ----------------------------------------------------------------------------------------
    Option(
        "remove_pools",
        "raw",
        """
        Take pools away instead. Either V(all), or a list of their names. The pools that the cluster records count, so
        no pool list is given. Pools that are not named stay as they are.

        When no pool stays, the exclusion and everything else that was made for pools goes, too.
        """,
        roles=_in(
            remove={
                "text": "The pools to take away. V(all), or a list of their names.",
                "required": True,
            }
        ),
        modules=_in(
            "pools",
            leftovers={
                "text": """
                    The pools that were to be removed, as for M(virtpools.kubevirt.plan_info). Where KubeVirt is gone,
                    only V(all) can be removed.
                    """,
                "default": removal.ALL,
            },
            workload_update={
                "text": """
                    The pools that are being taken away, as for M(virtpools.kubevirt.plan_info). Their VMs are to get
                    KubeVirt's own launcher image, so the launcher policy need not have these pools.
                    """
            },
        ),
        variable="virtpools_remove",
        written="items",
        question=Question("Pools to take away", ("remove",), type="textarea", limits=(1, 4096)),
    ),
    Option(
        "keep_history",
        "bool",
        "Keep the history of pool lists when O(remove_pools) leaves no pool, since pools of the other mode come next.",
        modules=_in("pools"),
        default=False,
    ),
    Option(
        "restore_nodes",
        "list",
        """
        Bring only these nodes back, and leave all others as they are. They go to the owner that an earlier list
        (O(pools_from_history)) gives them, or with O(remove_pools=all) to the primary. For a wave of a rollout that
        failed.

        When some of these nodes need a DaemonSet as the earlier list has it, it is put back. A pool that loses its
        last node gets no VM any more.
        """,
        modules=_in("pools"),
        elements="str",
    ),
    Option(
        "remove_vms",
        "str",
        """
        What happens to VMs that run with the launcher image of a pool to remove, or on its nodes.

        V(refuse) refuses the run while there are any. V(leave) lets them run on where they are. They start with
        KubeVirt's own image next time.

        V(migrate) first live-migrates those with a pool's image to nodes of no pool. The run stops when a migration
        fails, as it does for a device that only the pool's nodes have. VMs that cannot be migrated at all run on
        where they are.

        V(wait) gives them KubeVirt's own image from their next start on, and hands each node back when the VMs on it
        have ended. The run stops when that takes longer than O(migration_timeout) for a batch of nodes. Run it again,
        or with a longer time.
        """,
        roles=_in("remove"),
        modules=_in(
            plan_info={
                "text": """
                    With O(remove_pools), what happens to VMs that run with the launcher image of a pool to remove, or
                    on its nodes. Needs O(vms).

                    V(refuse) makes them an error. V(leave) lets them run on where they are, since a guest lives in
                    its launcher pod. They start with KubeVirt's own image next time. V(migrate) says that they are
                    live-migrated first, V(wait) that their nodes go back when they have ended.
                    """
            }
        ),
        default="refuse",
        choices=t.get_args(removal.Vms),
        question=Question("VMs of these pools", ("remove",), filled=True),
    ),
    Option(
        "remove_batch",
        "int",
        "How many VMs to migrate at the same time, with O(remove_vms=migrate).",
        roles=_in("remove"),
        default=2,
        question=Question("Migrations at the same time", ("remove",), limits=(1, 1000), filled=True),
    ),
    Option(
        "remove_max_failures",
        "int",
        "After this many failed migrations no further migration begins.",
        roles=_in("remove"),
        default=1,
        question=Question("Failed migrations that end it", ("remove",), limits=(1, 1000), filled=True),
    ),
    Option(
        "rollback_to",
        "str",
        """
        Digest of the pool list to go back to, as this role and M(virtpools.kubevirt.pool_history) show it.

        Without it, the list before the present one. When a run since the newest list of the history has not
        completed, that is this newest list.
        """,
        roles=_in("rollback"),
        question=Question("Digest of the pool list", ("rollback",)),
    ),
    Option(
        "upgrade_to",
        "str",
        "KubeVirt's version after the upgrade, such as V(v1.9.1).",
        roles=_in(_UPGRADE),
        required=True,
        question=Question("Version after the upgrade", ("upgrade_check",), limits=(1, 64)),
    ),
    # Verify and explain ----------------------------------------------------------------------------------------------
    Option(
        "probe",
        "bool",
        """
        Whether to try out the launcher policy by creating pods in KubeVirt's namespace as server-side dry runs, which
        stores none.

        This needs the right to create pods there, which the ClusterRole C(virtpools-reader) lacks.
        """,
        roles=_in(_VERIFY),
        modules=_in("verification_info"),
        default=False,
    ),
    Option(
        "max_listed_vms",
        "int",
        "How many single VMs to list at most. All are counted.",
        roles=_in(_VERIFY, "workload_update"),
        modules=_in(
            "verification_info",
            workload_update={
                "text": "How many single VMs to list at most in RV(vms) and in RV(restarts). All are counted."
            },
        ),
        default=1000,
    ),
    Option(
        "fail_on",
        "raw",
        """
        What makes the role fail. V(problems) for everything that is wrong; V(any) for what is only listed, too;
        V(none) for nothing; or a list of verdicts and codes of findings (C(docs/findings.md)).

        VMs that are only outdated are listed, not wrong.
        """,
        roles=_in(_VERIFY),
        modules=_in(
            verification_info={
                "text": """
                    What RV(failing) has. V(problems) for everything that is wrong; V(any) for what is only listed,
                    too; V(none) for nothing; or a list of verdicts and codes of findings (C(docs/findings.md)).

                    VMs that are only V(outdated) are listed, not wrong.
                    """
            }
        ),
        default="problems",
        written="items",
        question=Question("What makes the job fail", ("verify",), filled=True),
    ),
    Option(
        "report_json",
        "path",
        """
        A file on the controller to write the whole report to, as JSON. With several clusters, put C({{
        inventory_hostname }}) into its name.
        """,
        roles=_in(_VERIFY),
    ),
    Option(
        "report_junit",
        "path",
        "A file to write the report to as JUnit XML, for CI systems.",
        roles=_in(_VERIFY),
    ),
    Option(
        "report_prometheus",
        "path",
        "A file to write the report's counts to for the textfile collector of Prometheus' node exporter.",
        roles=_in(_VERIFY),
    ),
    Option(
        "report_html",
        "path",
        "A file to write the report to as one HTML page that needs no network.",
        roles=_in(_VERIFY),
    ),
    Option(
        "report_configmap",
        "str",
        """
        A ConfigMap to write the report to, as V(namespace/name), or as V(name) in KubeVirt's namespace. It outlives the
        job, and holds the report as text, JSON and HTML. Large ones are compressed.
        """,
        roles=_in(_VERIFY),
    ),
    Option(
        "vm",
        "str",
        """
        A VirtualMachine, as V(namespace/name). It need not run.

        Exactly one of O(vm), O(vmi) and O(manifest) is needed.
        """,
        roles=_in(_EXPLAIN),
        modules=_in("explanation_info"),
        question=Question("VirtualMachine (namespace/name)", ("explain",)),
    ),
    Option(
        "vmi",
        "str",
        "A VirtualMachineInstance, as V(namespace/name), with or without a VirtualMachine.",
        roles=_in(_EXPLAIN),
        modules=_in("explanation_info"),
        question=Question("VirtualMachineInstance (namespace/name)", ("explain",)),
    ),
    Option(
        "manifest",
        "path",
        """
        A YAML or JSON file with one VirtualMachine, VirtualMachineInstance, or template of one, which is not in the
        cluster yet. Its instancetype and preference are looked for in the file, then in the cluster (or in O(dump)).
        """,
        roles=_in(_EXPLAIN),
        modules=_in("explanation_info"),
    ),
    # Updates of VMs, feature gates -------------------------------------------------------------------------------------
    Option(
        "update_namespaces",
        "list",
        "Update only VMs of these namespaces. By default those of all namespaces.",
        roles=_in("workload_update"),
        default=[],
        elements="str",
        question=Question("Namespaces", ("workload_update",), type="textarea", limits=(0, 4096)),
    ),
    Option(
        "update_batch",
        "int",
        "How many VMs to migrate at the same time.",
        roles=_in("workload_update"),
        default=2,
        question=Question("Migrations at the same time", ("workload_update",), limits=(1, 1000), filled=True),
    ),
    Option(
        "update_max_failures",
        "int",
        "After this many failed updates no further update begins.",
        roles=_in("workload_update"),
        default=1,
        question=Question("Failed updates that end it", ("workload_update",), limits=(1, 1000), filled=True),
    ),
    Option(
        "update_timeout",
        "int",
        "Seconds that the update of one VM may take. A migration that takes longer is cancelled.",
        roles=_in("workload_update"),
        default=900,
        question=Question("Time for one VM (seconds)", ("workload_update",), limits=(1, 86400), filled=True),
    ),
    Option(
        "feature_gates_present",
        "list",
        "Feature gates to turn on.",
        roles=_in("feature_gate"),
        default=[],
        elements="str",
    ),
    Option(
        "feature_gates_absent",
        "list",
        "Feature gates to turn off.",
        roles=_in("feature_gate"),
        default=[],
        elements="str",
    ),
    # AWX -----------------------------------------------------------------------------------------------------------------
    Option(
        "awx_state",
        "str",
        """
        V(present) makes what the role makes in AWX, and corrects what differs. V(absent) takes it away.

        What somebody else added to AWX stays.
        """,
        roles=_in("awx"),
        default="present",
        choices=("present", "absent"),
    ),
    Option(
        "awx_host",
        "str",
        """
        Address of AWX, such as V(https://awx.example).

        Without it and the next four, the collection awx.awx takes its own environment variables (E(CONTROLLER_HOST),
        E(CONTROLLER_OAUTH_TOKEN), E(CONTROLLER_USERNAME), E(CONTROLLER_PASSWORD), E(CONTROLLER_VERIFY_SSL)) and
        configuration files. A job of AWX gets these from a credential for AWX.
        """,
        roles=_in("awx"),
    ),
    Option(
        "awx_token",
        "str",
        "OAuth token for AWX, of a user who may change the organization.",
        roles=_in("awx"),
        secret=True,
    ),
    Option("awx_username", "str", "User name in AWX, instead of O(awx_token).", roles=_in("awx")),
    Option("awx_password", "str", "Password of O(awx_username).", roles=_in("awx"), secret=True),
    Option(
        "awx_verify_ssl", "bool", "Whether to check the certificate of AWX. By default it is checked.", roles=_in("awx")
    ),
    Option(
        "awx_prefix",
        "str",
        """
        What the names of all objects begin with. Names of execution environments and credential types are unique in a
        whole AWX, so give every organization that uses this role a prefix of its own.
        """,
        roles=_in("awx"),
        default="virtpools",
    ),
    Option("awx_organization", "str", "The organization.", roles=_in("awx"), default="virtpools"),
    Option(
        "awx_manage_organization",
        "bool",
        """
        Whether the role makes the organization, gives it O(awx_galaxy_credentials), and deletes it when nothing is left in
        it.

        V(false) for an organization that is not only for this collection. It must be there, and stays as it is.
        """,
        roles=_in("awx"),
        default=True,
    ),
    Option(
        "awx_galaxy_credentials",
        "list",
        """
        Names of the credentials with which projects of the organization install collections, in order. AWX itself has
        V(Ansible Galaxy).
        """,
        roles=_in("awx"),
        default=["Ansible Galaxy"],
        elements="str",
    ),
    Option(
        "awx_project_url",
        "str",
        "The git repository with your project, as C(examples/) is one. Needed unless O(awx_state=absent).",
        roles=_in("awx"),
    ),
    Option("awx_project_branch", "str", "Branch, tag or commit of the project.", roles=_in("awx")),
    Option(
        "awx_project_credential",
        "str",
        "Name of the credential in AWX that reads the repository, if it is not public.",
        roles=_in("awx"),
    ),
    Option(
        "awx_image",
        "str",
        """
        The image of an execution environment for all jobs. Without it, they run in AWX's default one, which must have the
        Python packages in C(requirements.txt).
        """,
        roles=_in("awx"),
    ),
    Option("awx_image_credential", "str", "Name of the credential in AWX that pulls O(awx_image).", roles=_in("awx")),
    Option(
        "awx_reader",
        "dict",
        """
        What jobs that only read authenticate with, to make a credential. For one cluster C(host), C(bearer_token),
        C(ssl_ca_cert) and C(verify_ssl), as the credential type C(OpenShift or Kubernetes API Bearer Token) has them. For
        several, C(kubeconfig) with the text of a kubeconfig file.

        Without it and O(awx_reader_credential), the job templates keep the credentials that they have.
        """,
        roles=_in("awx"),
        default={},
        secret=True,
    ),
    Option(
        "awx_writer",
        "dict",
        "The same as O(awx_reader), for jobs that change clusters.",
        roles=_in("awx"),
        default={},
        secret=True,
    ),
    Option(
        "awx_reader_credential",
        "str",
        "Name of a credential that AWX has, instead of O(awx_reader).",
        roles=_in("awx"),
    ),
    Option(
        "awx_writer_credential",
        "str",
        "Name of a credential that AWX has, instead of O(awx_writer).",
        roles=_in("awx"),
    ),
    Option(
        "awx_update_secrets",
        "bool",
        """
        Whether to write the secrets of O(awx_reader) and O(awx_writer) again. AWX does not show secrets, so the role cannot
        see that one is another: use this for one run, with new tokens.
        """,
        roles=_in("awx"),
        default=False,
    ),
    Option(
        "awx_inventory_path",
        "str",
        "Path of the inventory in the project. Every host of it is a cluster.",
        roles=_in("awx"),
        default="inventory/clusters.yml",
    ),
    Option(
        "awx_hosts",
        "dict",
        """
        The clusters, if the inventory is not in the project: variables by the name of the host. A host that you take out
        stays in AWX.
        """,
        roles=_in("awx"),
        default={},
    ),
    Option(
        "awx_variables",
        "dict",
        """
        Variables of this collection for all jobs, such as C(virtpools_waves). They count instead of the inventory's. Mark
        values that only the job may evaluate with C(!unsafe).
        """,
        roles=_in("awx"),
        default={},
    ),
    Option(
        "awx_labels",
        "list",
        "Labels of all templates.",
        roles=_in("awx"),
        default=["virtpools"],
        elements="str",
    ),
    Option(
        "awx_verify_schedule",
        "str",
        """
        When AWX verifies the clusters by itself, as an iCalendar rule with C(DTSTART) and C(INTERVAL). V(none) for never.
        """,
        roles=_in("awx"),
        default="DTSTART:20260101T030000Z RRULE:FREQ=DAILY;INTERVAL=1",
    ),
    Option(
        "awx_webhook",
        "dict",
        """
        A webhook that is told of failed jobs and of approvals that are waited for: C(url), and as far as you need them
        C(headers), C(http_method), C(username), C(password) and C(disable_ssl_verification).

        With a password, awx.awx writes the notification again in every run.
        """,
        roles=_in("awx"),
        default={},
        secret=True,
    ),
    Option(
        "awx_email",
        "dict",
        """
        The same by e-mail: C(host), C(sender), C(recipients) (a list), and as far as you need them C(port), C(username),
        C(password), C(use_tls), C(use_ssl) and C(timeout).
        """,
        roles=_in("awx"),
        default={},
        secret=True,
    ),
    # How long to wait ------------------------------------------------------------------------------------------------
    Option(
        "node_timeout",
        "int",
        """
        Seconds that an old handler may take to end, and then the new one to get Ready, before the node goes back to
        its former owner.
        """,
        roles=_in("pools", "remove"),
        modules=_in("pool_nodes"),
        default=300,
    ),
    Option(
        "pull_timeout",
        "int",
        "Seconds that the images of a batch may take to be pulled.",
        roles=_in("pools", "remove"),
        modules=_in("pool_nodes"),
        default=900,
    ),
    Option(
        "migration_timeout",
        "int",
        """
        Seconds to wait for live migrations that a restart of a handler would break. With O(drain), also the seconds
        that one migration, and the end of VMs that are waited for, may take.
        """,
        roles=_in(
            "pools",
            remove={
                "text": """
                    Seconds to wait for live migrations that a restart of a handler would break. With O(remove_vms),
                    also the seconds that one migration, and the end of the VMs on a batch of nodes, may take.
                    """
            },
        ),
        modules=_in(
            "pool_nodes",
            primary_exclusion={"text": "Seconds to wait for running live migrations, before anything is changed."},
            operator_pools={"text": "Seconds to wait for running live migrations, before anything is changed."},
        ),
        default=900,
    ),
    Option(
        "settle_timeout",
        "int",
        "Seconds that KubeVirt may take to roll out a change of its primary virt-handler.",
        roles=_in("pools", "remove"),
        modules=_in(
            "primary_exclusion",
            operator_pools={
                "text": "Seconds that virt-operator may take to follow a change of the pools, for each step of the plan.",
            },
            plan_info={"text": "Seconds to wait with O(for_run)."},
            pool_nodes={
                "text": "Seconds to wait for KubeVirt to be available and settled before a batch.",
                "default": 300,
            },
        ),
        default=1800,
    ),
    Option(
        "lease_timeout",
        "int",
        "Seconds to wait for another run to end.",
        roles=_in("pools", "remove", "workload_update", "feature_gate"),
        modules=_in(run={"text": "Without O(run_id), how many seconds to wait for another run to end."}),
        default=120,
    ),
    Option(
        "run_id",
        "str",
        """
        The run that this task belongs to, as returned by M(virtpools.kubevirt.run_lease). When that run does not hold
        the Lease, or no longer, the task fails and changes nothing.

        Without it, the module takes the Lease for itself while it writes.
        """,
        modules=_in("run"),
    ),
)


def arguments(*modules: str) -> Arguments:
    """The argument spec of what these modules, or documentation fragments, have."""
    return {
        option.name: option.of_module(module).argument
        for module in modules
        for option in TABLE
        if module in option.modules
    }


def of_role(role: str) -> tuple[Option, ...]:
    """The options of a role, in the order of the table."""
    return tuple(option.of_role(role) for option in TABLE if role in option.roles)


def given(values: t.Mapping[str, t.Any], spec: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """What of an argument spec was given: neither empty nor null, down to suboptions."""
    return {
        name: given(value, inner) if isinstance(value, dict) and (inner := spec.get(name, {}).get("options")) else value
        for name, value in values.items()
        if value is not None and value != ""
    }


def resolve(
    role: str, variables: t.Mapping[str, t.Any], override: t.Mapping[str, t.Any] | None = None
) -> dict[str, t.Any]:
    """The value of each option of a role, by the option's name: what was given, in its type, or else the default.

    :param variables: variables by name. Only those of the role count.
    :param override: values, by the options' names, that count instead of variables.
    :raises InputErrors: with everything that is wrong.
    """
    options = of_role(role)
    written = {option.variable: option for option in options if option.written or option.type == "list"}
    spec = {option.variable: option.argument for option in options}
    instead = {option.variable: override[option.name] for option in options if override and option.name in override}
    values = {**variables, **instead}
    values |= {name: _read(written[name], value) for name, value in values.items() if name in written}
    result = ArgumentSpecValidator(spec).validate(given({name: values[name] for name in spec if name in values}, spec))
    if result.error_messages:
        raise InputErrors(result.error_messages)
    return {option.name: result.validated_parameters[option.variable] for option in options}


def _read(option: Option, value: t.Any) -> t.Any:
    """What a text stands for; any other value is what it is."""
    if not isinstance(value, str):
        return value
    if option.written == "yaml":
        return _from_yaml(option.variable, value)
    items = [item.strip() for item in value.replace(",", "\n").splitlines() if item.strip()]
    # One item may be a word of its own, such as all; none was not given.
    return items if items and (option.type == "list" or len(items) > 1) else "".join(items)


def _from_yaml(variable: str, text: str) -> t.Any:
    if yaml is None:
        raise InputErrors(["The Python package PyYAML is missing where Ansible runs; install it."])
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        problem = " ".join(str(error).split())[:200]
        raise InputErrors([f"{variable} is text that is not valid YAML: {problem}."]) from error
