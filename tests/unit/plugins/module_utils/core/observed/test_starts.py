# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.observed import starts

FAILED_STEP = {"type": "Synchronized", "status": "False", "reason": "Synchronizing with the Domain failed."}
READY = {"type": "Ready", "status": "False"}


def vmi(phase, *conditions, **metadata):
    status = {"phase": phase, "conditions": list(conditions)} if phase else {}
    return {"metadata": {"namespace": "vms", "name": "vm", **metadata}, "status": status}


@pytest.mark.parametrize(
    ("instance", "starting"),
    [
        (vmi("Scheduled"), True),
        (vmi("Scheduled", READY), True),
        (vmi("Scheduled", READY, FAILED_STEP), False),
        (vmi("Scheduled", deletionTimestamp="2026-11-27T12:00:00Z"), False),
        (vmi(None), False),
        *((vmi(phase), False) for phase in ("Pending", "Scheduling", "Running", "Succeeded", "Failed")),
    ],
)
def test_a_vm_is_starting_while_its_handler_works_on_it(instance, starting):
    assert starts.is_starting(instance) is starting
