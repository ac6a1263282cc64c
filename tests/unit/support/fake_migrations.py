# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Running VMs for tests, and a KubeVirt that migrates them in a World."""

from __future__ import annotations

import copy
import json

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms.launcher_pods import LauncherPod
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders, launcher_cases

VMI = kinds.VIRTUAL_MACHINE_INSTANCE
MIGRATION = kinds.VIRTUAL_MACHINE_INSTANCE_MIGRATION


def vm(name="vm", on="n1", image=builders.LAUNCHER_IMAGE, *, migratable=True, phase="Running", **fields):
    """The VMI and launcher pod of a VM with this launcher image."""
    uid = f"uid-{name}"
    conditions = [{"type": "LiveMigratable", "status": str(migratable), "message": "because of its GPU"}]
    vmi = VMI.object(name, "plain", spec={}, status={"phase": phase, "nodeName": on, "conditions": conditions})
    vmi["metadata"]["uid"] = uid
    pod = launcher_cases.launcher_pod(name=f"virt-launcher-{name}", stock=image, **fields)
    owner = {"apiVersion": "kubevirt.io/v1", "kind": VMI.name, "name": name, "uid": uid, "controller": True}
    pod["metadata"].update(uid=f"pod-{name}", ownerReferences=[owner])
    pod["metadata"]["labels"]["kubevirt.io/created-by"] = uid
    pod["spec"]["nodeName"] = on
    pod["status"] = {"phase": "Running"}
    return vmi, pod


class Kubevirt:
    """Migrates VMs of ``world`` to the node ``to``, where their pods get ``image``.

    ``fail`` names the VMIs whose migration fails for ``reason``, ``stick`` those whose migration never ends, for want of a node.
    """

    OUT_OF_MEMORY = "the target ran out of memory"
    NO_NODE = "0/4 nodes are available: 4 Insufficient cpu."

    def __init__(
        self, world, image=builders.GPU_LAUNCHER_IMAGE, to="n2", fail=(), stick=(), seconds=2.0, reason=OUT_OF_MEMORY
    ):
        self.world = world
        self.image = image
        self.to = to
        self.fail = fail
        self.stick = stick
        self.seconds = seconds
        self.reason = reason
        self.most_at_once = 0
        self._since = {}
        tick = world._tick

        def both():
            tick()
            self.tick()

        world._tick = both
        delete = world._deleted

        def deleted(kind, key, live, options, dry):
            """A migration takes its waiting pod along at once."""
            if kind is MIGRATION and not dry:
                self.world.drop(kinds.POD, f"target-{live['metadata']['uid']}", live["metadata"]["namespace"])
            return delete(kind, key, live, options, dry)

        world._deleted = deleted

    def tick(self):
        active = [
            m for m in self.world.all(MIGRATION) if (m.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
        ]
        self.most_at_once = max(self.most_at_once, len(active))
        for migration in active:
            name = migration["spec"]["vmiName"]
            status = migration.setdefault("status", {"phase": "Scheduling"})
            since = self._since.setdefault(migration["metadata"]["uid"], self.world.now)
            if name in self.fail:
                status.update(phase="Failed", migrationState={"failureReason": self.reason})
            elif name in self.stick:
                self._wait(migration)
            elif self.world.now - since >= self.seconds:
                self._switch(migration["metadata"]["namespace"], name, migration["metadata"]["uid"])
                status["phase"] = "Succeeded"

    def _source(self, vmi):
        uid = vmi["metadata"]["uid"]
        of_vmi = [p for p in self.world.all(kinds.POD) if p["metadata"]["labels"].get("kubevirt.io/created-by") == uid]
        return next(pod for pod in of_vmi if pod["status"]["phase"] == "Running")

    def _wait(self, migration):
        """The target pod stays without a node."""
        namespace, uid = migration["metadata"]["namespace"], migration["metadata"]["uid"]
        target = copy.deepcopy(self._source(self.world.find(VMI, migration["spec"]["vmiName"], namespace)))
        target["metadata"].update(name=f"target-{uid}", uid=f"target-{uid}")
        target["metadata"]["labels"]["kubevirt.io/migrationJobUID"] = uid
        del target["spec"]["nodeName"]
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": self.NO_NODE}
        target["status"] = {"phase": "Pending", "conditions": [condition]}
        self.world.put(target)

    def _switch(self, namespace, name, migration):
        vmi = self.world.find(VMI, name, namespace)
        source = self._source(vmi)
        text = json.dumps(source)
        for image in set(LauncherPod.from_object(source).launcher_images.values()):
            text = text.replace(json.dumps(image), json.dumps(self.image))
        target = json.loads(text)
        target["metadata"].update(name=f"{source['metadata']['name']}-x", uid=f"{source['metadata']['uid']}-x")
        target["metadata"]["labels"]["kubevirt.io/migrationJobUID"] = migration
        target["spec"]["nodeName"] = vmi["status"]["nodeName"] = self.to
        source["status"]["phase"] = "Succeeded"
        self.world.put(target)
