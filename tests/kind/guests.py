# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""Guests that live through what tests do to the cluster."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import playbooks
from kind_cluster import console, images, probe
from kind_cluster.probe import Probe
from kind_cluster.registry import KNOWN
from kind_fixture import PATIENT, KindScenario, Object
from playbooks import Run
from scenario import migration

NOTICEABLE = 5.0
"""How many seconds a guest, whose CPU is emulated on a busy machine, may be silent while a run touches nothing of its VM."""
MIGRATION = 60
"""How many seconds a guest may be silent while QEMU, which emulates its CPU on a busy machine, migrates it."""


class GuestScenario:
    """A kind cluster with guests, what they notice, and what runs do to them."""

    def __init__(self, scenario: KindScenario, probe: Probe) -> None:
        """Push the image that guests have."""
        self.cluster = scenario
        self.probe = probe
        self._image = scenario.images.push(images.make_guest(), "guest:kernel", KNOWN)

    def machine(self, name: str, workload: str) -> Object:
        """Return a virtual machine that always runs, whose instances have the label ``workload``."""
        return probe.virtual_machine(name, self._image, workload)

    def start(self, name: str, workload: str, machine: Object | None = None) -> None:
        """Create a virtual machine, and wait until its guest answers."""
        self.cluster.apply(machine or self.machine(name, workload))
        self.probe.await_answer(name, 300)

    def ask(
        self, name: str, subresource: str, body: Object | None = None, *, of: str = "virtualmachineinstances"
    ) -> None:
        """Ask KubeVirt to do something with a guest, or with its virtual machine."""
        path = f"{console.SUBRESOURCES}/{of}/{name}/{subresource}"
        self.cluster.kind.kubectl("replace", "--raw", path, "-f", "-", stdin=json.dumps(body or {}))

    def type(self, name: str, line: str, until: str) -> str:
        """Type a command on a guest's console, and return what it shows."""
        return console.type_line(self.cluster.kind.api_client, name, line, until)

    def node(self, name: str) -> str:
        return str(self.cluster.kind.get("vmi", name, namespace="default")["status"]["nodeName"])

    def launcher_uid(self, name: str) -> str:
        """Return the uid of the only launcher pod in which a guest runs."""
        (uid,) = self.cluster.kind.get("vmi", name, namespace="default")["status"]["activePods"]
        return str(uid)

    def migrate(self, name: str) -> None:
        """Ask KubeVirt for a live migration, as a person does, and wait until it has succeeded."""
        self.cluster.apply(migration(name))

        def phase() -> str:
            found = self.cluster.kind.get("virtualmachineinstancemigration", name, namespace="default")
            return str(found.get("status", {}).get("phase"))

        self.cluster.kind.wait(lambda: phase() in {"Succeeded", "Failed"}, 300, f"the migration of {name}")
        assert phase() == "Succeeded"

    def is_recorded(self, name: str) -> bool:
        """Say whether the handler of a guest's node has a record of its VM, which the next handler there needs."""
        uid = self.cluster.kind.get("vmi", name, namespace="default")["metadata"]["uid"]
        records = self.cluster.kind.on(self.node(name), "find", "/var/run/kubevirt-private/ghost-records", "-type", "f")
        return f"/{uid}" in records

    def launcher_image(self, name: str) -> str:
        """Return the id of the image of a guest's launcher, by the container runtime of its node."""
        node, pods = self.node(name), f"virt-launcher-{name}-"
        (launcher,) = [each for each in self.cluster.running(node, "compute") if each.pod.startswith(pods)]
        return launcher.image_id

    def image_id(self, name: str, image: str) -> str:
        """Return the id of an image on a guest's node."""
        return self.cluster.kind.image_id(self.node(name), image)

    def play(self, playbook: str, **variables: Any) -> Run:
        return playbooks.run(playbook, self.cluster.writer.kubeconfig, None, **{**PATIENT, **variables})

    def restart_kubelets(self, *names: str) -> None:
        """Restart the kubelets of the nodes on which guests are."""
        for node in {self.node(name) for name in names}:
            self.cluster.kind.on(node, "systemctl", "restart", "kubelet")
        time.sleep(30)  # a kubelet that ends a pod does so within seconds of its start

    def started_again(self, name: str) -> str:
        """Say that a guest has started again, with the events of its VM and pods: the cluster is gone when somebody asks why."""
        found = self.cluster.kind.get("events", namespace="default")["items"]
        told = [
            f"{each.get('lastTimestamp')} {each['involvedObject']['name']}: {each['reason']}: {each['message']}"
            for each in found
            if name in each["involvedObject"]["name"]
        ]
        return "\n".join((f"{name} started again", *sorted(told)[-30:]))

    @contextmanager
    def unnoticed(self, *names: str, silence: float = NOTICEABLE) -> Iterator[Callable[[], float]]:
        """Fail unless guests live through the block, and are never silent for longer. Yields what tells the longest silence."""
        before = {name: self.probe.await_answer(name) for name in names}
        yield lambda: max(self.probe.guest(name).silence(answer.at) for name, answer in before.items())
        for name, answer in before.items():
            after = self.probe.await_answer(name)
            assert (after.boot, after.machine) == (answer.boot, answer.machine), self.started_again(name)
            assert after.uptime > answer.uptime
            assert self.probe.guest(name).silence(answer.at) <= silence, name
