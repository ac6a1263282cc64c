# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""A cluster with VMs."""

from __future__ import annotations

from scenario import Object, Scenario

VMS = "default"
ENDING_VMS = "agent.virtpools.io/ending-vms"


class VmScenario(Scenario):
    """A cluster that starts and stops VMs, and tells which of them a kubelet would have ended."""

    def start_vm(self, name: str, **labels: str) -> Object:
        """Return the pod of a VM that runs, started if need be."""
        self.create_vm(name, **labels)
        return self.cluster.wait(lambda: self.running(name), 60, f"{name} to run", interval=0.3)

    def create_vm(self, name: str, **labels: str) -> None:
        """Create a VM, which may have to wait for a node."""
        devices = {
            "disks": [{"name": "root", "disk": {"bus": "virtio"}}],
            "interfaces": [{"name": "n", "masquerade": {}}],
        }
        spec = {
            "domain": {"devices": devices, "resources": {"requests": {"memory": "64Mi"}}},
            "networks": [{"name": "n", "pod": {}}],
            "volumes": [{"name": "root", "containerDisk": {"image": "registry.example/disks/fedora:41"}}],
        }
        metadata = {"name": name, "namespace": VMS, "labels": labels or {"class": "gpu"}}
        kind = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance"}
        # KubeVirt refuses every change of an instance by its owner, even one that changes nothing.
        if not self.get("vmi", "-n", VMS, f"--field-selector=metadata.name={name}")["items"]:
            self.apply({**kind, "metadata": metadata, "spec": spec})

    def running(self, name: str) -> Object:
        """Return the pod of a running VM, else nothing."""
        vmi = self.get("vmi", name, "-n", VMS)
        pods = self.get("pods", "-n", VMS, "-l", f"vm.kubevirt.io/name={name}")["items"]
        live = [pod for pod in pods if pod["status"].get("phase") == "Running"]
        return live[-1] if live and vmi.get("status", {}).get("phase") == "Running" else {}

    def stop_vms(self) -> None:
        self.cluster.kubectl("delete", "vmi", "-n", VMS, "--all", "--ignore-not-found")
        self.cluster.wait(lambda: not self.get("pods,vmi", "-n", VMS)["items"], 60, "the VMs to end")

    def ending_vms(self) -> dict[str, str]:
        """Return the VMs, by node, that a restart of their kubelet would have ended at some moment until now."""
        nodes = {
            node["metadata"]["name"]: node["metadata"].get("annotations", {}) for node in self.get("nodes")["items"]
        }
        return {name: annotations[ENDING_VMS] for name, annotations in nodes.items() if ENDING_VMS in annotations}
