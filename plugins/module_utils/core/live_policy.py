# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The launcher policy as it is on a cluster, compared with what the pools ask for."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, replace

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import launcher_backends, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.findings import Finding, error, warning
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.launcher_backends import Backend
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.launchers import Launchers

State = t.Literal["live", "missing", "edited", "outdated", "not_needed", "failing"]

_MOST_SHOWN = 3


@dataclass(frozen=True)
class Policy:
    """The launcher policy, of whatever back end.

    ``edited``: somebody changed it by hand. ``outdated``: it was made for other pools, images or settings. ``failing``:
    it is as it should be, and does not do what it should. ``created``: as the API serves it; None while no policy of ours
    makes launcher pods.
    """

    backend: Backend
    state: State
    problem: str | None = None
    digest: str | None = None
    created: str | None = None

    @classmethod
    def of(cls, launchers: Launchers | None) -> Policy:
        """The policy of a plan's cluster, for the mapping table that is due there now."""
        admission = launchers.snapshot.admission if launchers is not None else None
        if launchers is None or admission is None:
            return cls("none", "not_needed")
        backend, wanted = launchers.choice.backend, launchers.policy(0)
        live = launcher_backends.in_effect(admission)
        if not wanted:
            left = f"{live['kind']} {live['metadata']['name']} is there, and no pool needs it" if live else None
            return cls(backend, "not_needed", left)
        absent = [
            f"{kind} {obj['metadata']['name']}"
            for kind, obj in wanted
            if (kind.name, obj["metadata"]["name"]) not in admission.objects
        ]
        if live is None or absent:
            return cls(backend, "missing", f"there is no {' and no '.join(absent)}" if absent else "it is not ours")
        digest = _digest_of(live)
        found = launcher_backends.drift(wanted, admission)
        policy = cls(backend, "live", None, digest, live["metadata"].get("creationTimestamp") or "")
        if not found:
            return policy
        edited = digest == _digest_of(wanted[0][1])
        shown = "; ".join(map(str, found[:_MOST_SHOWN])) + ("; and more" if len(found) > _MOST_SHOWN else "")
        return replace(policy, state="edited" if edited else "outdated", problem=shown)

    @property
    def name(self) -> str:
        """The name of its objects."""
        return names.AIE_CONFIG if self.backend == "aie_webhook" else names.POLICY

    @property
    def in_order(self) -> bool:
        """Whether it is what the pools ask for."""
        return self.state in ("live", "failing", "not_needed")

    @property
    def compute_only(self) -> bool:
        """Whether it changes the image of the container ``compute`` only, and leaves no trace in the pod."""
        return self.backend == "aie_webhook"

    def failing(self, problem: str) -> Policy:
        """The same policy, where a probe showed that it does not do what it should."""
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
            yield error("policy_not_needed", f"{where} should not be there: {self.problem}; run site.")


def leftovers(launchers: Launchers | None) -> t.Iterator[Finding]:
    """Objects of ours beside the policy itself that should not be there, or should."""
    admission = launchers.snapshot.admission if launchers is not None else None
    if launchers is None or admission is None:
        return
    candidates = [f"{kind} {name}" for kind, name in admission.objects if name == names.CANDIDATE_POLICY]
    if candidates:
        yield warning(
            "candidate_left", f"A run that died left {' and '.join(candidates)} behind; the next one removes them."
        )


def _digest_of(obj: t.Mapping[str, t.Any]) -> str | None:
    found = (obj["metadata"].get("annotations") or {}).get(names.POLICY_ANNOTATION)
    return None if found is None else str(found)
