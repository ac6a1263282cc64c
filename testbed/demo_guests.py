# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""The demo with guests: two pools on a kind cluster, and three virtual machines that boot. Shows what each guest says on its
console, then changes a pool's launcher image, migrates its guest, and shows all the while how long each guest has lived.

Usage: demo_guests.py CLUSTER. The molecule scenario kind has created it, with images made from packages.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from typing import Any

import yaml

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import text
from demo import CHECKOUT, CLUSTER_ROLES, play, say, title
from kind_cluster import images
from kind_cluster.cluster import KindCluster
from kind_cluster.probe import Probe, virtual_machine
from kind_cluster.registry import KNOWN, Registry, variant
from local_cluster.errors import ClusterError

FOLDER = CHECKOUT / ".build/demo-guests"
POOLS = FOLDER / "pools.yml"
GUESTS = {"train": "gpu", "render": "l4", "office": "none"}
"""The virtual machines, and what their label ``workload`` says."""
PLATFORMS = {"gpu": "nvidia-a100", "l4": "nvidia-l4"}
PATIENCE_SECONDS = 300
CONSOLE_LINES = 3


class Demo:
    """A kind cluster with a registry, pools and guests."""

    def __init__(self, cluster: KindCluster, probe: Probe) -> None:
        self._cluster = cluster
        self._probe = probe
        self._registry = Registry.start(cluster.name)
        for node in cluster.nodes:
            self._registry.known_to(node)
        pod = cluster.get("daemonset", "virt-handler")["spec"]["template"]["spec"]
        self._stock = {"handler": pod["containers"][0]["image"], "launcher": pod["initContainers"][0]["image"]}
        cluster.kubectl("apply", "-f", str(CLUSTER_ROLES))
        self._kubeconfig = cluster.kubeconfig_for("demo", ["virtpools-writer"])

    def _push(self, what: str, tag: str) -> str:
        made = variant(self._stock[what], f"registry.example/virt-{what}:{tag}")
        return self._registry.push(made, f"virt-{what}:{tag}", KNOWN)

    def write_pools(self, launcher_tag: str) -> None:
        """Write the list of pools; the launcher image of the first one has this tag."""
        pools = [
            {
                "name": name,
                "nodeSelector": {"accelerator": platform},
                "virtHandlerImage": self._push("handler", f"{images.KUBEVIRT}-{name}"),
                "virtLauncherImage": self._push(
                    "launcher", f"{images.KUBEVIRT}-{name}{launcher_tag * (name == 'gpu')}"
                ),
                "selector": {"vmLabels": {"matchLabels": {"workload": name}}},
            }
            for name, platform in PLATFORMS.items()
        ]
        FOLDER.mkdir(parents=True, exist_ok=True)
        POOLS.write_text(yaml.safe_dump({"virtpools_pools": pools}, sort_keys=False), "utf-8")

    def play(self, playbook: str) -> None:
        code, _output = play(self._kubeconfig, playbook, f"@{POOLS.relative_to(CHECKOUT)}")
        if code:
            raise ClusterError("The playbook failed; its output is above.")

    def start_guests(self) -> None:
        image = self._registry.push(images.make_guest(), "guest:kernel", KNOWN)
        for name, workload in GUESTS.items():
            self._cluster.kubectl("apply", "-f", "-", stdin=json.dumps(virtual_machine(name, image, workload)))
        for name in GUESTS:
            self._probe.await_answer(name, PATIENCE_SECONDS)

    def show_consoles(self) -> None:
        for name in GUESTS:
            log = self._cluster.kubectl("logs", "-n", "default", self._pod(name)["name"], "-c", "guest-console-log")
            say(f"{name}:")
            lines = [line[line.index("GUEST") :].strip() for line in log.splitlines() if "GUEST" in line]
            for line in lines[:CONSOLE_LINES]:
                say(f"  {line}")

    def change_launcher(self) -> None:
        """Change the launcher image under the guests, with a table of how they are, until all is done."""
        self.write_pools(".2")
        say(f"The launcher image of pool gpu in {POOLS.relative_to(CHECKOUT)} has a new tag now.")
        begin, ended = time.monotonic(), threading.Event()
        shown = threading.Thread(target=self._show_until, args=(ended, begin), daemon=True)
        shown.start()
        try:
            for playbook in ("site", "workload_update"):
                log = FOLDER / f"{playbook}.log"
                with log.open("w", encoding="utf-8") as output:
                    code, _lines = play(self._kubeconfig, playbook, f"@{POOLS.relative_to(CHECKOUT)}", output)
                if code:
                    raise ClusterError(f"{playbook} failed; its output is in {log.relative_to(CHECKOUT)}.")
        finally:
            ended.set()
            shown.join()

    def _show_until(self, ended: threading.Event, begin: float) -> None:
        last = 0
        while True:
            done = ended.wait(1 if sys.stdout.isatty() else 15)
            lines = [f"after {time.monotonic() - begin:.0f} s", *self._table(begin)]
            if last and sys.stdout.isatty():
                print(f"\x1b[{last}A\x1b[J", end="")
            say("\n".join(lines))
            last = len(lines)
            if done:
                return

    def _table(self, begin: float) -> list[str]:
        rows = []
        for name in GUESTS:
            try:
                pod = self._pod(name)
            except (ClusterError, StopIteration):
                continue
            # Only now: to ask for the pod takes a second or two, in which the guest has answered again.
            guest = self._probe.guest(name)
            answer = guest.answers[-1]
            silence = max(guest.silence(begin), time.monotonic() - answer.at)
            rows.append((name, pod["node"], pod["image"], answer.boot, f"{answer.uptime:.0f} s", f"{silence:.1f} s"))
        return text.table(("GUEST", "NODE", "LAUNCHER IMAGE", "BOOT", "UPTIME", "LONGEST SILENCE"), rows)

    def _pod(self, name: str) -> dict[str, str]:
        """The launcher pod in which a guest is."""
        vmi = self._cluster.get("vmi", name, namespace="default")
        node = vmi["status"]["nodeName"]
        pods: list[dict[str, Any]] = self._cluster.get(
            "pods", "-l", f"kubevirt.io/created-by={vmi['metadata']['uid']}", namespace="default"
        )["items"]
        pod = next(each for each in pods if each["spec"].get("nodeName") == node)
        image = next(each["image"] for each in pod["spec"]["containers"] if each["name"] == "compute")
        return {"name": pod["metadata"]["name"], "node": node, "image": image}


def main() -> int:
    name = sys.argv[1]
    FOLDER.mkdir(parents=True, exist_ok=True)
    kubeconfig = FOLDER / "kubeconfig"
    try:
        kind = [str(images.kind(say)), "export", "kubeconfig", "--name", name, "--kubeconfig", str(kubeconfig)]
        subprocess.run(kind, check=True, capture_output=True)
        cluster = KindCluster(name, kubeconfig)
        with Probe(cluster) as probe:
            demo = Demo(cluster, probe)
            title("Two pools")
            demo.write_pools("")
            demo.play("site")
            title("Three guests, and what they say on their consoles")
            demo.start_guests()
            demo.show_consoles()
            title("A new launcher image, while they run")
            demo.change_launcher()
            title("Is every VM where it belongs?")
            demo.play("verify")
    except (ClusterError, AssertionError) as error:
        print(error, file=sys.stderr)
        return 1
    say(f"\nLook around: export KUBECONFIG={kubeconfig.relative_to(CHECKOUT)}")
    say("Stop it: make demo-guests-down")
    return 0


if __name__ == "__main__":
    sys.exit(main())
