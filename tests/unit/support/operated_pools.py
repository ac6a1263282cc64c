# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pools of operator mode, and clusters in memory with the operator of each build."""

from __future__ import annotations

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders, fake_operator_mode, vms
from ansible_collections.virtpools.kubevirt.tests.unit.support.fake_operator_mode import OperatorModeWorld

HANDLER, LAUNCHER = builders.GPU_IMAGE, builders.GPU_LAUNCHER_IMAGE
SELECTOR = {"deviceNames": [vms.DEVICE]}


def pool(build, name="gpu", **fields):
    """A pool as the build can say it, in our form."""
    selector = {"matchNodeSelector": True} if build == "A" else SELECTOR
    return {
        "name": name,
        "nodeSelector": {"hw": name},
        "virtHandlerImage": HANDLER,
        "virtLauncherImage": LAUNCHER,
        "selector": selector,
        "unmatched": "allow",
        **fields,
    }


def make(build, *, of_kubevirt=None, hws=("gpu", "gpu", "fpga", None, None), **fields):
    nodes = [
        builders.node(f"n{number}", labels={"kubernetes.io/arch": "amd64", **({"hw": hw} if hw else {})})
        for number, hw in enumerate(hws, 1)
    ]
    sets = [fake_operator_mode.primary(desired=len(nodes))]
    found = of_kubevirt or fake_operator_mode.kubevirt()
    return OperatorModeWorld(build, found, *sets, *nodes, *builders.handlers_of(nodes, sets), **fields)


def kubevirt(world):
    (found,) = world.all(kinds.KUBEVIRT)
    return found


def operator(run, build, *pools, **arguments):
    found = run("operator_pools", mode="operator", pools=list(pools or [pool(build)]), **arguments)
    assert not found.get("failed"), found
    return found
