# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""What is said before an upgrade of KubeVirt comes true in the upgrade: what it stops at, what it leaves, what site needs."""

from __future__ import annotations

from typing import Any

import playbooks
from local_cluster import Fleet, Nodes
from playbooks import Account
from scene import Object, Scene, pool

FROM, TO = "v1.9.0", "v1.9.1"
DEVICE = "nvidia.com/GA100_A100_PCIE_40GB"


def gpu(version: str) -> Object:
    """Return the pool with images of this version."""
    return pool(
        "gpu",
        "a100",
        virtHandlerImage=f"registry.example/virt-handler:{version}-gpu",
        virtLauncherImage=f"registry.example/virt-launcher:{version}-gpu",
        selector={"deviceNames": [DEVICE]},
    )


def codes(found: Object, severity: str) -> list[str]:
    return [finding["code"] for finding in found["findings"] if finding["severity"] == severity]


def test_an_upgrade_is_as_the_check_before_it_says(start_cluster: Any) -> None:
    fleet = Fleet.of(
        Nodes(prefix="a100-", count=1, labels={"accelerator": "a100"}, capacity={DEVICE: 4}),
        Nodes(prefix="node-", count=1),
    )
    scene = Scene(start_cluster(fleet))
    scene.site([gpu(FROM)]).succeeded()
    reader = Account.make(scene.cluster, "reader")

    with scene.no_writes():
        run = playbooks.run("upgrade_check", reader.kubeconfig, None, virtpools_upgrade_to=TO).succeeded()
        (task,) = run.of("virtpools.kubevirt.upgrade_info")
    assert (run.changed, task.result["verdict"]) == (0, "prepare")
    needed = [image["needed"] for image in task.result["images"]]
    assert needed == [gpu(TO)["virtHandlerImage"], gpu(TO)["virtLauncherImage"]]
    old = scene.module("upgrade_info", version=TO, pools=[gpu(FROM)])
    assert (old["verdict"], codes(old, "error")) == ("blocked", ["upgrade_image_skew"] * 2), old["text"]
    ready = scene.module("upgrade_info", version=TO, pools=[gpu(TO)])
    assert (ready["verdict"], codes(ready, "note")) == ("ready", ["upgrade_site_after"]), ready["text"]

    scene.cluster.kubectl(
        "set", "image", "-n", "kubevirt", "deploy/virt-operator", f"virt-operator=quay.io/kubevirt/virt-operator:{TO}"
    )

    def upgraded() -> bool:
        status = scene.kubevirt()["status"]
        return bool(status["observedKubeVirtVersion"] == status["targetKubeVirtVersion"] == TO)

    scene.cluster.wait(upgraded, 90, "the upgrade")
    scene.wait_until_settled()
    # The pool stays at what it had, as the note says, and the list that the check refused is refused.
    assert scene.handlers()["a100-00"] == [gpu(FROM)["virtHandlerImage"]]
    assert scene.handlers()["node-00"] == [f"quay.io/kubevirt/virt-handler:{TO}"]
    (handler, launcher) = scene.module("plan_info", pools=[gpu(FROM)])["errors"]
    assert f"is of another version than KubeVirt {TO}" in handler
    assert f"is of another version than KubeVirt {TO}" in launcher
    done = scene.module("upgrade_info", version=TO, pools=[gpu(TO)])
    assert (done["verdict"], codes(done, "note")) == ("ready", ["upgrade_done"])
