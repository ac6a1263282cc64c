# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""The state of the launcher policy on a cluster, compared with what the pools ask for."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, replace

from ..base import names
from ..base.findings import Finding, error, warning
from . import launcher_backends
from .launcher_backends import Backend
from .launcher_rollout import LauncherPolicyRollout
from .probes import digest_in

PolicyState = t.Literal["live", "missing", "edited", "outdated", "not_needed", "failing"]

_MOST_SHOWN = 3


@dataclass(frozen=True)
class Policy:
    """The launcher policy, of any back end."""

    backend: Backend
    state: PolicyState
    """``edited``: it was changed by hand. ``outdated``: it belongs to other pools, images or settings. ``failing``:
    the object is right, but probes show that it does not work."""
    problem: str | None = None
    digest: str | None = None
    created: str | None = None
    """The creation time of the live object; None when no policy of ours acts."""
    build: str | None = None
    """The build of KubeVirt that gives launcher pods their images itself, without a policy of ours; None for none."""

    @classmethod
    def from_rollout(cls, rollout: LauncherPolicyRollout | None) -> Policy:
        """The policy on a plan's cluster, compared with the mapping table that must be in effect there now."""
        admission = rollout.snapshot.admission if rollout is not None else None
        if rollout is None or admission is None:
            return cls("none", "not_needed")
        backend, wanted = rollout.choice.backend, rollout.policy_now()
        live = launcher_backends.rules_object(admission)
        if not wanted:
            problem = f"{live['kind']} {live['metadata']['name']} exists, and no pool needs it" if live else None
            return cls(backend, "not_needed", problem)
        absent = [
            f"{kind} {obj['metadata']['name']}"
            for kind, obj in wanted
            if (kind.name, obj["metadata"]["name"]) not in admission.objects
        ]
        if live is None or absent:
            return cls(backend, "missing", f"there is no {' and no '.join(absent)}" if absent else "it is not ours")
        digest = digest_in(live)
        drift = launcher_backends.drift(wanted, admission)
        policy = cls(
            backend=backend,
            state="live",
            problem=None,
            digest=digest,
            created=live["metadata"].get("creationTimestamp") or "",
        )
        if not drift:
            return policy
        edited = digest == digest_in(wanted[0][1])
        problem = "; ".join(map(str, drift[:_MOST_SHOWN])) + ("; and more" if len(drift) > _MOST_SHOWN else "")
        return replace(policy, state="edited" if edited else "outdated", problem=problem)

    @property
    def name(self) -> str:
        """The name of the policy's objects; of KubeVirt's own pools, where these are."""
        if self.build is not None:
            return self.build
        return names.AIE_CONFIG if self.backend == "aie_webhook" else names.POLICY

    @property
    def title(self) -> str:
        """What messages about VMs call it."""
        return "the launcher policy" if self.build is None else "the last change of KubeVirt's pools"

    @property
    def in_order(self) -> bool:
        """Whether the policy's objects are as the pools ask for."""
        return self.state in ("live", "failing", "not_needed")

    @property
    def compute_only(self) -> bool:
        """Whether the policy changes only the image of the container ``compute`` and leaves nothing in the pod by which its rule
        could be known."""
        return self.backend == "aie_webhook"

    def failing(self, problem: str) -> Policy:
        """The same policy, after a probe showed that it does not work."""
        return replace(self, state="failing", problem=problem)

    def to_dict(self) -> dict[str, t.Any]:
        return {
            "backend": self.backend,
            "name": self.name,
            "state": self.state,
            "digest": self.digest,
            "problem": self.problem,
        }

    def findings(self) -> t.Iterator[Finding]:
        where = f"Launcher policy {self.name}"
        if self.state == "missing":
            yield error("policy_missing", f"{where} is not in force, {self.problem}; run site.")
        elif self.state == "edited":
            yield error("policy_edited", f"{where} was changed by hand: {self.problem}; run site.")
        elif self.state == "outdated":
            yield error("policy_outdated", f"{where} is not what the pools ask for: {self.problem}; run site.")
        elif self.state == "failing":
            yield error("policy_failing", f"{where} does not do what it should: {self.problem}; run site.")
        elif self.problem is not None:
            yield error("policy_not_needed", f"{where} should not exist: {self.problem}; run site.")


def leftovers(rollout: LauncherPolicyRollout | None) -> t.Iterator[Finding]:
    """Findings on our objects that a run left behind."""
    admission = rollout.snapshot.admission if rollout is not None else None
    if rollout is None or admission is None:
        return
    candidates = [f"{kind} {name}" for kind, name in admission.objects if name == names.CANDIDATE_POLICY]
    if candidates:
        yield warning(
            "policy_candidate_left",
            f"A run that died left {' and '.join(candidates)} behind; the next run removes them.",
        )
    if not rollout.policy_now():
        return  # The state of the policy says that it is not needed.
    backend = rollout.choice.backend
    for change in launcher_backends.removals_of_other_backends(backend, admission):
        left = change.present
        yield error(
            "policy_not_needed",
            f"{left['kind']} {left['metadata']['name']} is left from another back end and acts beside {backend}, so that VMs may get "
            "other images and nodes than their pools specify; run site.",
        )
