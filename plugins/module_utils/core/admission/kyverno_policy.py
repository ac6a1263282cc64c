# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""The launcher policy for Kyverno: the same CEL in a MutatingPolicy, for API servers without MutatingAdmissionPolicy."""

from __future__ import annotations

from ..base import names
from ..base.kinds import KYVERNO_MUTATING_POLICY, Kind
from ..base.objects import Object
from ..vms.mapping import Table
from . import launcher_policy

_TIMEOUT = 10
"""In seconds, the API server's default. Kyverno gives a policy a webhook of its own only if it sets such a field. In the
shared webhook, Kyverno 1.18 uses the selectors of the last policy for all."""

_USER_KNOWN = {"name": "user-known", "expression": 'request.userInfo.username != ""'}
"""Kyverno before 1.18 evaluates conditions without the user, so the policy would ignore virt-controller's pods. With this
condition it ignores its probes as well, and they fail."""


def derive(table: Table, namespace: str, name: str = names.POLICY, epoch: int = 0) -> tuple[Kind, Object]:
    """The policy; there is no binding. The arguments are those of ``launcher_policy.derive``."""
    kind = KYVERNO_MUTATING_POLICY
    spec = launcher_policy.spec(table, namespace, name, epoch)
    policy = kind.object(
        name,
        spec={
            **spec,
            "matchConditions": [_USER_KNOWN, *spec["matchConditions"]],
            # No rules for Deployments and the like, and no MutatingAdmissionPolicy that Kyverno generates.
            "autogen": {"podControllers": {"controllers": []}, "mutatingAdmissionPolicy": {"enabled": False}},
            # Background scans have no user, and running pods cannot be changed.
            "evaluation": {"admission": {"enabled": True}, "background": {"enabled": False}},
            "webhookConfiguration": {"timeoutSeconds": _TIMEOUT},
        },
    )
    policy["metadata"].update(launcher_policy.metadata(table, namespace))
    return kind, policy
