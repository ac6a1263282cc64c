# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Findings, which plans and checks report to the user, the error for bad input, and helpers for the text of messages."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

Severity = t.Literal["error", "warning", "note"]
_HARM_NOW = ("two_handlers", "exclusion_overwritten")
_ORDER: dict[str, int] = {"error": 0, "warning": 1, "note": 2}

CODES: frozenset[str] = frozenset(
    """
    aie_cannot_express aie_cannot_keep_off aie_cannot_prepare aie_compute_only aie_config_unreadable aie_no_pull_secrets
    aie_no_tolerations aie_rule_meets_pool aie_rule_takes_vm aie_rules_beside aie_rules_foreign aie_rules_kept
    aie_webhook_down alerts_edited alerts_foreign alerts_missing alerts_namespace_missing alerts_not_served
    approved_list_missing at_risk canary_vm_left_out canary_vms canary_vms_left daemonset_being_deleted daemonset_drift
    daemonset_left daemonset_missing daemonset_not_ready device_from_claim device_not_offered ends_on_kubelet_restart
    exclusion_blocked_by_unready_nodes exclusion_edit_impossible exclusion_missing exclusion_outdated
    exclusion_overwritten exclusion_would_end_handlers feature_gate_of_fork feature_gate_refused feature_gate_unknown
    feature_gates_stay foreign_daemonset gate_breaks_vm_starts gate_pending guard_deleted guard_edited guard_not_served
    guard_refuses guard_unavailable handler_image handler_lost handler_not_ready handler_outdated handler_replaced_early
    handover_held_back handover_unfinished hco_not_reconciling hco_tainted heartbeat_old history_unreadable
    hypervisor_changed hypervisor_device_selected hypervisor_emulated hypervisor_needs_handler hypervisor_not_offered
    hypervisor_of_handler hypervisor_unsupported image_unchecked in_transit kept_pool_missing kept_pool_skew kept_pool_unreadable
    kubevirt_degraded kubevirt_deleted kubevirt_ignored kubevirt_not_available kubevirt_not_deployed kubevirt_not_found
    kubevirt_rolling_out kubevirt_settling kubevirt_unhealthy kubevirt_upgrading kubevirt_waits_for_pools
    kubevirt_waits_for_unready_nodes label_not_in_template launcher_backend_kyverno launcher_backend_missing
    launcher_backend_none launcher_image_waits launcher_policy_foreign launcher_refuses_arguments list_not_applied
    migrations_running moved_pool_unreadable moving namespace_unknown network_unknown no_handler no_ready_handler
    node_cordoned node_drift node_held_back node_not_ready node_policy_edited node_policy_not_served
    node_without_primary nodes_of_group not_schedulable older_list operator_cannot_say operator_edit_impossible
    operator_gate_off operator_images_left operator_kubevirt_unsettled operator_label_of_pod operator_migrations_running
    operator_no_handler operator_nodes_wrong operator_option_refused operator_overlap_possible operator_owner_empty
    operator_pools_in_use operator_pools_unreadable operator_primary_patched operator_restarts operator_several_labels
    operator_strategies_stay operator_two_handlers operator_updates_vms operator_upgrade operator_upgrade_images
    operator_window outdated outdated_policy_not_served outdated_policy_stale overlap overlap_first_wins
    overlap_possible own_change_settling owner_label_foreign owner_unknown patch_on_primary_affinity
    patch_on_primary_node_selector patch_unreadable pending placement_uses_owner_label policy_candidate_left
    policy_edited policy_failing policy_missing policy_not_needed policy_outdated pool_being_deleted pool_loses_nodes
    pool_not_active pool_not_listed pool_not_removed pool_unreadable pool_without_nodes primary_node_selector_patched
    primary_restarts primary_without_nodes pull_pods_left removed_pool_gone removed_pool_unknown replacement_held_back
    rescheduled_on_restart two_handlers unknown_image unschedulable_on_restart upgrade_arguments_unknown
    upgrade_backwards upgrade_blocked_by_unready_nodes upgrade_breaks_vm_starts upgrade_done upgrade_image_skew
    upgrade_image_unknown upgrade_outdated_policy_stale upgrade_pool_nodes_not_ready upgrade_site_after
    upgrade_skips_releases upgrade_target_unknown version_skew version_skew_unknown vms_awaited vms_left vms_migrated
    vms_of_pool wave_empty wave_node_unknown workload_updates_never_end wrong_handler wrong_image wrong_node wrong_owner
    """.split()  # noqa: SIM905 (a list has a line for each)
)
"""All codes, as docs/findings.md describes them; some of them are verdicts on VMs, too."""


@dataclass(frozen=True)
class Finding:
    """One thing that the user should know."""

    severity: Severity
    code: str
    """Stable and documented."""
    message: str
    """A sentence for a person."""

    def to_dict(self) -> dict[str, str]:
        return {"severity": self.severity, "code": self.code, "message": self.message}


def in_order(findings: t.Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings by severity (errors first), code and message, without duplicates. What harms VMs now, or is about to,
    comes before all."""
    return tuple(sorted(set(findings), key=lambda f: (f.code not in _HARM_NOW, _ORDER[f.severity], f.code, f.message)))


def error(code: str, message: str) -> Finding:
    return Finding("error", code, message)


def warning(code: str, message: str) -> Finding:
    return Finding("warning", code, message)


def note(code: str, message: str) -> Finding:
    return Finding("note", code, message)


class InputErrors(ValueError):
    """All problems of bad input, each a sentence that names the object, the field, the value and the fix."""

    def __init__(self, messages: t.Sequence[str]) -> None:
        self.messages = tuple(messages)
        super().__init__("; ".join(self.messages))


def listed(items: t.Iterable[str], most: int = 5) -> str:
    """``a, b, c and 7 more``: sorted names, shortened for a message."""
    names = sorted(items)
    if len(names) <= most:
        return ", ".join(names)
    return f"{', '.join(names[:most])} and {len(names) - most} more"


def counted(number: int, one: str, several: str = "") -> str:
    """A number with its noun, and the verb where there is one: ``1 node has``, ``3 nodes have``. By default several take an s."""
    return f"{number} {one if number == 1 else several or f'{one}s'}"


def printable(text: object) -> str:
    """Text from a cluster, made safe for files that people and tools read: one line, in which characters that XML forbids,
    that cannot be encoded, or that reverse text are escaped."""
    line = str(text)
    if line.isprintable():
        return line
    line = " ".join(line.split())
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)
