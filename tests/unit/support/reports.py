# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Verification reports as data, for tests of what renders them; clusters can have any size."""

from __future__ import annotations

import collections

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.checks.verdicts import FAILING, VERDICTS

STOCK = "registry.example/kubevirt/virt-launcher@sha256:" + "5" * 64


def image(pool):
    return f"registry.example/virtpools/virt-launcher:v1.9.0-{pool}"


def vm(name="web", namespace="shop", pool="gpu", verdict="wrong_image", **fields):
    return {
        "namespace": namespace,
        "name": name,
        "pool": pool,
        "expected_image": image(pool),
        "images": {"container compute": STOCK, "container guest-console-log": STOCK},
        "node": f"{pool}-0",
        "owner": pool,
        "verdict": verdict,
        "reason": "it has another image, because its pod bypassed the launcher policy",
        "remedy": "restart",
        **fields,
    }


def node(name, owner="primary", problem=None, handlers=1, ready=True, **fields):
    return {
        "name": name,
        "owner": owner,
        "wanted": owner,
        "problem": problem,
        "handlers": handlers,
        "ready": ready,
        **fields,
    }


def report(vms=(), nodes=(), pools=("gpu",), correct=7, left_out=0, **fields):
    """A report of these VMs and of ``correct`` other VMs, which are correct, in every pool."""
    vms, nodes, owners = list(vms), list(nodes), ["primary", *pools]
    verdicts = collections.Counter(each["verdict"] for each in vms)
    verdicts["correct"] += correct * len(owners)
    problems = sum(verdicts[verdict] for verdict in FAILING)
    return {
        "healthy": not problems,
        "summary": f"{problems} VMs are wrong." if problems else "Every VM has the image and nodes of its pool.",
        "counts": {
            "vms": verdicts.total(),
            "unjudged": 0,
            "nodes": len(nodes),
            "pools": len(pools),
            "problems": problems,
            "listed": verdicts["outdated"],
        },
        "pools": [_pool(owner, vms, nodes, correct) for owner in owners],
        "verdicts": {verdict: verdicts[verdict] for verdict in VERDICTS},
        "vms": vms,
        "vms_left_out": left_out,
        "nodes": nodes,
        "daemonsets": [
            {"name": f"virt-handler-{pool}", "pool": pool, "desired": 2, "ready": 2, "problems": []} for pool in pools
        ],
        "policy": {
            "backend": "admission_policy",
            "name": "virtpools-launcher",
            "state": "live",
            "digest": "0123456789ab",
            "problem": None,
        },
        "findings": [],
        **fields,
    }


def _pool(owner, vms, nodes, correct):
    own = [each for each in nodes if each["owner"] == owner]
    counts = collections.Counter(each["verdict"] for each in vms if (each["pool"] or "primary") == owner)
    counts["correct"] += correct
    return {
        "name": owner,
        "nodes": len(own),
        "ready": sum(each["ready"] for each in own),
        "daemonset": "virt-handler" if owner == "primary" else f"virt-handler-{owner}",
        "handler_image": f"registry.example/virt-handler:v1.9.0-{owner}",
        "launcher_image": None if owner == "primary" else image(owner),
        "launcher_contents": "" if owner == "primary" else "QEMU 10.1.0, libvirt 11.9.0",
        "active": True,
        "starts_fail": False,
        "failed_launchers": 0,
        "vms": {verdict: counts[verdict] for verdict in VERDICTS},
    }
