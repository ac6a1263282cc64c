# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""The demo: start a cluster, run the playbook site with the example pools, and show the cluster before and after. Then
start the example VMs, show which launcher image and node each got and why, and verify them.

Usage: demo.py CLUSTER FLEET
"""

from __future__ import annotations

import collections
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, TextIO

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import names, text
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms import mapping, matching
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms.launcher_pods import LauncherPod
from local_cluster import ClusterError, LocalCluster, kubevirt
from watcher import IN_TRANSIT, OWNER, Watcher

CHECKOUT = Path(__file__).resolve().parents[1]
POOLS = CHECKOUT / "examples/pools.yml"
VMS = CHECKOUT / "examples/vms.yml"
PAGE = CHECKOUT / ".build/demo.html"
# As a user in the checkout calls Ansible's programs: from the venv that runs this.
BIN = os.path.relpath(Path(sys.prefix) / "bin", CHECKOUT)
PATIENCE_SECONDS = 60
CLUSTER_ROLES = CHECKOUT / "playbooks/files/clusterroles.yml"
RECAP = re.compile(r"changed=(\d+)")


def main() -> int:
    name, fleet = sys.argv[1], Path(sys.argv[2])
    try:
        cluster = LocalCluster.start(name, fleet, log=say)
        cluster.kubectl("apply", "-f", str(CLUSTER_ROLES))
        # Not as the administrator: the demo has only the rights that the collection asks for.
        kubeconfig = cluster.kubeconfig_for("demo", ["virtpools-writer"])
        title("Before")
        _show(cluster)
        with Watcher(cluster) as watcher:
            title("The run")
            code, output = play(kubeconfig, "site", f"@{POOLS.relative_to(CHECKOUT)}")
            watcher.stop()
        title("After")
        _show(cluster)
        _summary(output, watcher)
        if not code:
            _start_vms(cluster)
            title("Is every VM where it belongs?")
            PAGE.parent.mkdir(exist_ok=True)
            code, _output = play(kubeconfig, "verify", f"virtpools_report_html={PAGE}")
    except ClusterError as error:
        print(error, file=sys.stderr)
        return 1
    if code:
        say("\nThe playbook failed; its output is above.")
        return code
    _hints(name, cluster)
    return 0


def say(text: str) -> None:
    print(text, flush=True)


def title(text: str) -> None:
    say(f"\n{text}\n{'=' * len(text)}")


def _show(cluster: LocalCluster) -> None:
    # Without the control plane's nodes, which have no handlers.
    workers = f"!{kubevirt.CONTROL_PLANE}"
    nodes = json.loads(cluster.kubectl("get", "nodes", "-l", workers, "-o", "json"))["items"]
    owners = collections.Counter(node["metadata"]["labels"].get(OWNER, "primary") for node in nodes)
    say("Nodes by owner: " + ", ".join(f"{owner} {count}" for owner, count in sorted(owners.items())))
    columns = (
        "DAEMONSET:.metadata.name,DESIRED:.status.desiredNumberScheduled,READY:.status.numberReady,"
        "IMAGE:.spec.template.spec.containers[0].image"
    )
    say(cluster.kubectl("get", "daemonsets", "-n", "kubevirt", "-o", f"custom-columns={columns}").rstrip())


def play(kubeconfig: Path, playbook: str, variables: str, output: TextIO = sys.stdout) -> tuple[int, list[str]]:
    """Run a playbook as a user would; return its exit code and the lines that it printed."""
    command = [f"{BIN}/ansible-playbook", "-i", "localhost,", f"virtpools.kubevirt.{playbook}", "-e", variables]
    settings = {"KUBECONFIG": str(kubeconfig), "ANSIBLE_CONFIG": "examples/ansible.cfg"}
    shown = " ".join([*(f"{name}={value}" for name, value in settings.items()), *command])
    print(f"$ {shown}", flush=True, file=output)
    environment = {**os.environ, **settings}
    lines = []
    with subprocess.Popen(command, cwd=CHECKOUT, env=environment, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout or ():
            lines.append(line)
            print(line, end="", flush=True, file=output)
    return process.returncode, lines


def _start_vms(cluster: LocalCluster) -> None:
    title("VMs")
    say(f"$ kubectl apply -f {VMS.relative_to(CHECKOUT)}")
    cluster.kubectl("apply", "-f", str(VMS))
    wanted = json.loads(cluster.kubectl("get", "-f", str(VMS), "-o", "json"))["items"]
    running = [vm for vm in wanted if vm["kind"] == "VirtualMachine" and vm["spec"].get("runStrategy") == "Always"]
    give_up = time.monotonic() + PATIENCE_SECONDS
    while len(pods := _launcher_pods(cluster)) < len(running):
        if time.monotonic() > give_up:
            raise ClusterError(
                f"{len(running) - len(pods)} of {len(running)} VMs do not run after {PATIENCE_SECONDS} s."
            )
        time.sleep(0.5)
    say("\n".join(text.table(("VM", "POOL", "NODE", "LAUNCHER IMAGE", "WHY"), _vm_rows(cluster, pods))))


def _launcher_pods(cluster: LocalCluster) -> list[LauncherPod]:
    """The running launcher pods, sorted by VM."""
    selector = f"{names.KUBEVIRT_LABEL}={names.LAUNCHER}"
    pods = json.loads(cluster.kubectl("get", "pods", "-A", "-l", selector, "-o", "json"))["items"]
    launchers = [LauncherPod.from_object(pod) for pod in pods]
    return sorted((pod for pod in launchers if pod.phase == "Running"), key=lambda pod: (pod.namespace, pod.vmi))


def _vm_rows(cluster: LocalCluster, pods: list[LauncherPod]) -> list[tuple[str, ...]]:
    policy: dict[str, Any] = json.loads(cluster.kubectl("get", "mutatingadmissionpolicy", names.POLICY, "-o", "json"))
    table = mapping.restore(policy["metadata"]["annotations"][names.MAPPING_ANNOTATION])
    rows = []
    for pod in pods:
        winner = matching.winner(table, pod.attributes)
        met = [c for c in matching.criteria(winner, pod.attributes) if c.met] if winner else []
        why = f"{met[0].field}: {met[0].found}" if met else "no pool selects it"
        pool = winner.name if winner else names.PRIMARY
        rows.append((f"{pod.namespace}/{pod.vmi}", pool, pod.node, pod.launcher_images["container compute"], why))
    return rows


def _summary(output: list[str], watcher: Watcher) -> None:
    """Show what the playbook reported, and what an independent witness saw of nodes and handler pods during the run."""
    recap = next((m for line in reversed(output) if (m := RECAP.search(line))), None)
    title("What changed")
    if recap is not None and recap[1] == "0":
        say("No change: the cluster already matches the pools.")
    moved = {name: seen.owners for name, seen in watcher.nodes.items() if len(seen.owners) > 1}
    gaps = watcher.gaps()
    if gaps:
        say("NODE       OWNER                              LONGEST TIME WITHOUT A READY HANDLER")
    for node in sorted(gaps):
        owners = " -> ".join(owner for owner in moved.get(node, ["primary"]) if owner != IN_TRANSIT)
        say(f"{node:<10} {owners:<34} {gaps[node]:.1f} s{'' if node in moved else '  (the exclusion)'}")
    say(f"Nodes that had two handlers at any time: {', '.join(watcher.crowded) or 'none'}.")


def _hints(name: str, cluster: LocalCluster) -> None:
    title("Look around")
    suffix = "" if name == "demo" else f" CLUSTER={name}"
    say(f"export KUBECONFIG={cluster.kubeconfig}")
    say(f"alias kubectl={cluster.kubectl_program}   # unless you have one")
    say(f"kubectl get nodes -L {OWNER}")
    say("kubectl get pods -n kubevirt -o wide -l kubevirt.io=virt-handler")
    say("kubectl get vmis -A -o wide")
    say(
        f"{BIN}/ansible-playbook virtpools.kubevirt.explain -e virtpools_vm=team-a/night   # a VM that does not run yet"
    )
    say(f"{BIN}/ansible-playbook virtpools.kubevirt.plan -e @examples/pools.yml   # after you changed the pools")
    say(f"{PAGE.as_uri()}   # the report of verify, for a browser")
    say(f"make demo{suffix}           # a second run changes nothing")
    say(f"make cluster-down{suffix}   # stop and delete it")


if __name__ == "__main__":
    sys.exit(main())
