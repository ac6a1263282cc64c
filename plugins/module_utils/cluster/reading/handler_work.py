# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""What handlers do, and have done, for VMs: read before a handler ends."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ...core.base import names
from ...core.base.objects import Object
from ...core.observed.migrations import Arrival, is_migrating, is_taking_over
from ...core.observed.starts import is_starting
from ..api.client import Cluster
from . import live


@dataclass(frozen=True)
class HandlerWork:
    """What the handler of a node does, and has done, for VMs."""

    busy: tuple[str, ...] = ()
    """What it should not leave half done, as ``starting VM vms/a``."""
    received: tuple[Arrival, ...] = ()
    """The VMs that it has taken over from other nodes."""


def read(cluster: Cluster, nodes: t.Collection[str]) -> dict[str, HandlerWork]:
    """What the handlers of these nodes do, by node. A handler without work may be missing."""
    busy: dict[str, list[str]] = {}
    received: dict[str, list[Arrival]] = {}
    for label in (names.NODE_NAME_LABEL, names.MIGRATION_TARGET_LABEL):
        for vmi in live.vmis_on(cluster, nodes, label):
            node, metadata = vmi["metadata"]["labels"][label], vmi["metadata"]
            doing = _doing(vmi, label)
            if doing:
                busy.setdefault(node, []).append(f"{doing} VM {metadata['namespace']}/{metadata['name']}")
            elif (arrival := Arrival.of(vmi)) is not None and not is_taking_over(vmi):
                received.setdefault(node, []).append(arrival)
    return {
        node: HandlerWork(tuple(busy.get(node, ())), tuple(received.get(node, ())))
        for node in (busy.keys() | received.keys())
    }


def _doing(vmi: Object, label: str) -> str:
    """What the handler of the node in this label does with the VM."""
    if is_migrating(vmi):
        return "migrating"
    if is_taking_over(vmi):
        return "taking over" if label == names.MIGRATION_TARGET_LABEL else ""
    return "starting" if is_starting(vmi) else ""
