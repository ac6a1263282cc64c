# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""Virtual machines with a guest of our own, and a probe that asks each guest all the time how long it has lived."""

from __future__ import annotations

import itertools
import json
import subprocess
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from local_cluster.errors import ClusterError

from . import engine, images
from .cluster import KindCluster

PORT = 8080
KERNEL_ARGUMENTS = "console=ttyS0 quiet no_timer_check"
"""On a busy machine an emulated timer is so late that the kernel, which checks it, would not boot."""
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
        node = f"{self._kind.name}-control-plane"
        process = engine.follow("exec", "-i", node, "bash", "-c", ASK.format(address=address, port=PORT))
        self._asking[name] = process
        threading.Thread(target=self._listen, args=(name, process), daemon=True).start()

    def _listen(self, name: str, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            words = line.split()
            if len(words) == 3:
                answer = Answer(time.monotonic(), words[0], float(words[1]), words[2])
                self.guest(name).answers.append(answer)


def virtual_machine(name: str, image: str, workload: str) -> dict[str, Any]:
    """Return a virtual machine that always runs, with the guest from an image."""
    container = {
        "image": image,
        "kernelPath": images.GUEST_KERNEL,
        "initrdPath": images.GUEST_INITRD,
        "imagePullPolicy": "IfNotPresent",
    }
    spec = {
        "terminationGracePeriodSeconds": 5,
        "evictionStrategy": "LiveMigrate",
        "domain": {
            "resources": {"requests": {"memory": "128Mi", "cpu": "50m"}},
            "firmware": {"kernelBoot": {"kernelArgs": KERNEL_ARGUMENTS, "container": container}},
            "devices": {"interfaces": [{"name": "default", "masquerade": {}, "ports": [{"port": PORT}]}]},
        },
        "networks": [{"name": "default", "pod": {}}],
    }
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "runStrategy": "Always",
            "template": {"metadata": {"labels": {"workload": workload}}, "spec": spec},
        },
    }
