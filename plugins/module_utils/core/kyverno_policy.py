# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The launcher policy for Kyverno: the same CEL in a MutatingPolicy, for API servers without MutatingAdmissionPolicy."""

from __future__ import annotations

import typing as t

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import launcher_policy, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kinds import KYVERNO_MUTATING_POLICY, Kind
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.mapping import Table

if t.TYPE_CHECKING:
    from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.objects import Object

_TIMEOUT = 10
"""Seconds, the API servers' own default. Only a policy that says something of its own for sure gets a webhook of its own:
in the shared one Kyverno 1.18 uses the selectors of whichever policy comes last."""

_USER_KNOWN = {"name": "user-known", "expression": 'request.userInfo.username != ""'}
"""Kyverno before 1.18 evaluates conditions without the user, so the policy would do nothing to virt-controller's pods:
then its probes are to fail, too."""


def derive(table: Table, namespace: str, name: str = names.POLICY) -> tuple[Kind, Object]:
    """The policy; there is no binding. The arguments are those of ``launcher_policy.derive``."""
    kind = KYVERNO_MUTATING_POLICY
    spec = launcher_policy.spec(table, namespace, name)
    made = kind.object(
        name,
        spec={
            **spec,
            "matchConditions": [_USER_KNOWN, *spec["matchConditions"]],
            # Nothing for Deployments and the like, and no MutatingAdmissionPolicy behind our back.
            "autogen": {"podControllers": {"controllers": []}, "mutatingAdmissionPolicy": {"enabled": False}},
            # Background scans have no user, and pods that run cannot be changed.
            "evaluation": {"admission": {"enabled": True}, "background": {"enabled": False}},
            "webhookConfiguration": {"timeoutSeconds": _TIMEOUT},
        },
    )
    made["metadata"].update(launcher_policy.metadata(table, namespace))
    return kind, made
