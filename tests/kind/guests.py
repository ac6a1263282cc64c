# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""Virtual machines with a guest of our own, a probe that asks each guest all the time how long it has lived, and runs under them."""

from __future__ import annotations

import itertools
import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import playbooks
from kind_cluster import images
from kind_cluster.cluster import KindCluster
from kind_cluster.registry import KNOWN
from kind_fixture import KindScenario, Object
from local_cluster.errors import ClusterError
from playbooks import Run

PORT = 8080
NOTICEABLE = 5.0
"""How many seconds a guest, whose CPU is emulated on a busy machine, may be silent while a run touches nothing of its VM."""
MIGRATION = 60
"""How many seconds a guest may be silent while QEMU, which emulates its CPU on a busy machine, migrates it."""
# Four times a second, over a connection of its own each time. A guest that does not answer within a second is silent.
ASK = """
while sleep 0.25; do
    timeout 1 bash -c 'exec 3<>/dev/tcp/{address}/{port} && printf "GET / HTTP/1.0\\r\\n\\r\\n" >&3 && tail -n 1 <&3'
done 2> /dev/null
"""


@dataclass(frozen=True)
class Answer:
    """What a guest said, and when."""

    at: float
    boot: str
    """What the guest's kernel calls this start of it."""
    uptime: float
    machine: str
    """The machine type and version that its firmware shows it."""


@dataclass
class Guest:
    """What is known of a guest."""

    address: str = ""
    answers: list[Answer] = field(default_factory=list)

    def silence(self, since: float = 0) -> float:
        """Return the longest time between two answers, in seconds, from a moment of ``time.monotonic`` on."""
        times = [each.at for each in self.answers if each.at >= since]
        return max((after - before for before, after in itertools.pairwise(times)), default=0.0)


class Probe:
    """Asks the guests of all VirtualMachineInstances of a namespace, from a node of the cluster."""

    def __init__(self, kind: KindCluster, namespace: str = "default") -> None:
        """Begin when it is entered as a context."""
        self._kind = kind
        self._namespace = namespace
        self._guests: dict[str, Guest] = {}
        self._stopped = threading.Event()
        self._follower = threading.Thread(target=self._follow, daemon=True)
        self._asking: dict[str, subprocess.Popen[str]] = {}

    def __enter__(self) -> Probe:
        """Begin to ask."""
        self._follower.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Ask no more."""
        self._stopped.set()
        self._follower.join(30)
        for process in self._asking.values():
            process.terminate()

    def guest(self, name: str) -> Guest:
        """Return what a guest has answered until now."""
        return self._guests.setdefault(name, Guest())

    def await_answer(self, name: str, timeout: float = 180) -> Answer:
        """Return the next answer of a guest."""
        begin = time.monotonic()

        def answered() -> bool:
            answers = self.guest(name).answers
            return bool(answers) and answers[-1].at > begin

        self._kind.wait(answered, timeout, f"guest {name} to answer", 0.1)
        return self.guest(name).answers[-1]

    def _follow(self) -> None:
        """Ask each guest where it is now: a live migration gives it another address."""
        while not self._stopped.wait(0.5):
            try:
                vmis = self._kind.get("virtualmachineinstances", namespace=self._namespace)["items"]
            except (ClusterError, json.JSONDecodeError):
                continue
            for vmi in vmis:
                name = vmi["metadata"]["name"]
                interfaces = vmi.get("status", {}).get("interfaces") or [{}]
                address = interfaces[0].get("ipAddress", "")
                if address and address != self.guest(name).address:
                    self.guest(name).address = address
                    self._ask(name, address)

    def _ask(self, name: str, address: str) -> None:
        if name in self._asking:
            self._asking[name].terminate()
        command = ["docker", "exec", "-i", f"{self._kind.name}-control-plane", "bash", "-c"]
        process = subprocess.Popen(
            [*command, ASK.format(address=address, port=PORT)], stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self._asking[name] = process
        threading.Thread(target=self._listen, args=(name, process), daemon=True).start()

    def _listen(self, name: str, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            words = line.split()
            if len(words) == 3:
                answer = Answer(time.monotonic(), words[0], float(words[1]), words[2])
                self.guest(name).answers.append(answer)


def create(scenario: KindScenario, name: str, image: str, workload: str = "none") -> None:
    """Create a virtual machine that always runs, with the guest from an image."""
    container = {
        "image": image,
        "kernelPath": images.GUEST_KERNEL,
        "initrdPath": images.GUEST_INITRD,
        "imagePullPolicy": "IfNotPresent",
    }
    spec: Object = {
        "terminationGracePeriodSeconds": 5,
        "evictionStrategy": "LiveMigrate",
        "domain": {
            "resources": {"requests": {"memory": "128Mi", "cpu": "50m"}},
            "firmware": {"kernelBoot": {"kernelArgs": "console=ttyS0 quiet", "container": container}},
            "devices": {"interfaces": [{"name": "default", "masquerade": {}, "ports": [{"port": PORT}]}]},
        },
        "networks": [{"name": "default", "pod": {}}],
    }
    scenario.apply(
        {
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachine",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "runStrategy": "Always",
                "template": {"metadata": {"labels": {"workload": workload}}, "spec": spec},
            },
        }
    )


class GuestScenario:
    """A kind cluster with guests, what they notice, and what runs do to them."""

    def __init__(self, scenario: KindScenario, probe: Probe) -> None:
        """Push the image that guests have."""
        self.cluster = scenario
        self.probe = probe
        self._image = scenario.images.push(images.make_guest(), "guest:kernel", KNOWN)

    def start(self, name: str, workload: str) -> None:
        create(self.cluster, name, self._image, workload)
        self.probe.await_answer(name, 300)

    def node(self, name: str) -> str:
        return str(self.cluster.kind.get("vmi", name, namespace="default")["status"]["nodeName"])

    def launcher_image(self, name: str) -> str:
        """Return the id of the image of a guest's launcher, by the container runtime of its node."""
        node, pods = self.node(name), f"virt-launcher-{name}-"
        (launcher,) = [each for each in self.cluster.running(node, "compute") if each.pod.startswith(pods)]
        return launcher.image_id

    def image_id(self, name: str, image: str) -> str:
        """Return the id of an image on a guest's node."""
        return self.cluster.kind.image_id(self.node(name), image)

    def play(self, playbook: str, **variables: Any) -> Run:
        patient = {"virtpools_node_timeout": 600, "virtpools_max_unavailable": "100%"}
        return playbooks.run(playbook, self.cluster.writer.kubeconfig, None, **{**patient, **variables})

    def restart_kubelets(self, *names: str) -> None:
        """Restart the kubelets of the nodes on which guests are."""
        for node in {self.node(name) for name in names}:
            self.cluster.kind.on(node, "systemctl", "restart", "kubelet")
        time.sleep(30)  # a kubelet that ends a pod does so within seconds of its start

    @contextmanager
    def unnoticed(self, *names: str, silence: float = NOTICEABLE) -> Iterator[Callable[[], float]]:
        """Fail unless guests live through the block, and are never silent for longer. Yields what tells the longest silence."""
        before = {name: self.probe.await_answer(name) for name in names}
        yield lambda: max(self.probe.guest(name).silence(answer.at) for name, answer in before.items())
        for name, answer in before.items():
            after = self.probe.await_answer(name)
            assert (after.boot, after.machine) == (answer.boot, answer.machine), f"{name} started again"
            assert after.uptime > answer.uptime
            assert self.probe.guest(name).silence(answer.at) <= silence, name
