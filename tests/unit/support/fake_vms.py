# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A KubeVirt that starts the VirtualMachines of a World, and stops them when they are deleted."""

from __future__ import annotations

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders, vms


class Kubevirt:
    """Creates an instance and a launcher pod for every VirtualMachine of ``world``, and deletes both with it.

    Instances reach ``phase`` on the node ``on`` (None: the first that they ask for). Their pods have ``image``, if there
    is no ``admitted``, the function that makes a pod what admission makes of it. ``lingering``: nothing is deleted.
    """

    def __init__(self, world, *, phase="Running", on="gpu-0", image=vms.IMAGE, admitted=None):
        self.world = world
        self.phase = phase
        self.on = on
        self.image = image
        self.admitted = admitted
        self.lingering = False
        self.seen = []
        """Every VirtualMachine that it started."""
        tick = world._tick

        def both():
            tick()
            self.tick()

        world._tick = both

    def tick(self):
        machines = {vm["metadata"]["name"]: vm for vm in self.world.all(kinds.VIRTUAL_MACHINE)}
        for name, vm in machines.items():
            namespace = vm["metadata"]["namespace"]
            if self.world.find(kinds.VIRTUAL_MACHINE_INSTANCE, name, namespace) is None:
                self.seen.append(vm)
                self._start(name, namespace, vm["spec"]["template"])
        for vmi in self.world.all(kinds.VIRTUAL_MACHINE_INSTANCE):
            name, namespace = vmi["metadata"]["name"], vmi["metadata"]["namespace"]
            owned = bool(vmi["metadata"].get("ownerReferences"))
            if owned and name not in machines and not self.lingering:
                self.world.drop(kinds.VIRTUAL_MACHINE_INSTANCE, name, namespace)
                self.world.drop(kinds.POD, f"virt-launcher-{name}", namespace)

    def _start(self, name, namespace, template):
        on = self.on or _wanted_nodes(template)[0]
        vmi = vms.vmi(name, on, namespace=namespace, phase=self.phase)
        vmi["metadata"]["ownerReferences"] = [{"kind": kinds.VIRTUAL_MACHINE.name, "name": name, "controller": True}]
        self.world.put(vmi)
        labels = template["metadata"]["labels"]
        if self.admitted is None:
            pod = vms.launcher(name, on, image=self.image, namespace=namespace, labels=labels)
        else:
            plain = {"pool": None, "device": False, "image": builders.LAUNCHER_IMAGE}
            pod = self.admitted(vms.launcher(name, on, namespace=namespace, labels=labels, **plain))
        pod["metadata"]["labels"][names.CREATED_BY_LABEL] = f"uid-{name}"
        self.world.put(pod)


def _wanted_nodes(template):
    required = template["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (expression,) = required["nodeSelectorTerms"][0]["matchExpressions"]
    return expression["values"]
