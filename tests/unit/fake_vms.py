# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A KubeVirt that starts the VirtualMachines of a World, and lets them go."""

from __future__ import annotations

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import kinds, names
from ansible_collections.virtpools.kubevirt.tests.unit import vms


class Kubevirt:
    """Gives every VirtualMachine of ``world`` an instance with a launcher pod, and takes both away with it.

    They get to ``phase`` on the node ``on``, and the pod has ``image``. ``lingering``: instances stay.
    """

    def __init__(self, world, *, phase="Running", on="gpu-0", image=vms.IMAGE):
        self.world = world
        self.phase = phase
        self.on = on
        self.image = image
        self.lingering = False
        self.seen = []
        """The VirtualMachines there were."""
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
            if name not in machines and not self.lingering:
                self.world.drop(kinds.VIRTUAL_MACHINE_INSTANCE, name, namespace)
                self.world.drop(kinds.POD, f"virt-launcher-{name}", namespace)

    def _start(self, name, namespace, template):
        self.world.put(vms.vmi(name, self.on, namespace=namespace, phase=self.phase))
        labels = template["metadata"]["labels"]
        pod = vms.launcher(name, self.on, image=self.image, namespace=namespace, labels=labels)
        pod["metadata"]["labels"][names.CREATED_BY_LABEL] = f"uid-{name}"
        self.world.put(pod)
