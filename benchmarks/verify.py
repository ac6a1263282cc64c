# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""Measures the verification of thousands of VMs, compared with merely listing them, and with k8s_info and Jinja.

The VMs are copies of those that run on a local cluster with the example pools. Each program is a process of its own;
compared programs take turns. Times are processor time: the machine is shared, and none of the programs has to wait.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from cost import Cost, in_turns, measured, median_seconds

import playbooks
from local_cluster import LocalCluster, paths
from multiplied_api import MultipliedApi
from playbooks import ANSIBLE_PLAYBOOK, Account

if TYPE_CHECKING:
    from collections.abc import Sequence

HERE = Path(__file__).parent
EXAMPLES = HERE.parent / "examples"
MODULE = "ansible_collections.virtpools.kubevirt.plugins.modules.launcher_images_info"

COUNTS = (1_000, 10_000)
TURNS = 3
PLAYBOOK_COUNT = 1_000
"""Few enough for the playbook with k8s_info to end within minutes."""
PLAYBOOK_TURNS = 2


def main() -> int:
    """Measure, and print tables for the README."""
    fleet = paths.FLEETS / "demo.yaml"
    with (
        LocalCluster.start("bench-verify", fleet, log=_note) as cluster,
        tempfile.TemporaryDirectory(prefix="virtpools-bench-") as folder,
    ):
        _note("Making the pools and starting the VMs ...")
        _prepare(cluster)
        with MultipliedApi(Account.make(cluster, "reader").kubeconfig, Path(folder)) as api:
            print("| VMs | JSON | listed and parsed | verified | ratio | peak memory: listed | verified |")
            print("|---:|---:|---:|---:|---:|---:|---:|")
            for count in COUNTS:
                _compare_with_listing(api, count, Path(folder))
            print(f"\n| {PLAYBOOK_COUNT:,} VMs | processor time | peak memory |\n|---|---:|---:|")
            _compare_playbooks(api)
    return 0


def _prepare(cluster: LocalCluster) -> None:
    """Make the example pools, and start the example VMs under names that no other text in their objects contains."""
    pools = yaml.safe_load((EXAMPLES / "pools.yml").read_text("utf-8"))["virtpools_pools"]
    writer = Account.make(cluster, "writer")
    playbooks.run("site", writer.kubeconfig, pools, virtpools_max_unavailable="100%").succeeded()
    examples = yaml.safe_load((EXAMPLES / "vms.yml").read_text("utf-8"))
    vms = [obj for obj in examples["items"] if obj["kind"] == "VirtualMachine"]
    for vm in vms:
        vm["metadata"]["name"] = f"bench-{vm['metadata']['name']}-vm"
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(examples))
    started = sum(vm["spec"]["runStrategy"] == "Always" for vm in vms)

    def running() -> bool:
        vmis = json.loads(cluster.kubectl("get", "vmis", "-A", "-o", "json"))["items"]
        return sum(vmi.get("status", {}).get("phase") == "Running" for vmi in vmis) == started

    cluster.wait(running, 120, f"{started} VMs to run", interval=1)


def _compare_with_listing(api: MultipliedApi, count: int, folder: Path) -> None:
    size = api.multiply(count)
    arguments = folder / "arguments.json"
    arguments.write_text(json.dumps({"ANSIBLE_MODULE_ARGS": {"kubeconfig": str(api.kubeconfig)}}), "utf-8")
    listed, verified = in_turns(
        TURNS,
        lambda: measured([sys.executable, str(HERE / "bare_list.py"), str(api.kubeconfig)]),
        lambda: measured([sys.executable, "-m", MODULE, str(arguments)]),
    )
    assert json.loads(listed[0].output) == [count, count]
    for cost in verified:
        report = json.loads(cost.output)
        assert report["healthy"], report["summary"]
        assert report["verdicts"]["correct"] == count
    ratio = median_seconds(verified) / median_seconds(listed)
    print(
        f"| {count:,} | {size / 1e6:.0f} MB | {median_seconds(listed):.1f} s | {median_seconds(verified):.1f} s | {ratio:.1f} "
        f"| {_megabytes(listed):.0f} MB | {_megabytes(verified):.0f} MB |",
        flush=True,
    )


def _compare_playbooks(api: MultipliedApi) -> None:
    api.multiply(PLAYBOOK_COUNT)
    environment = {"K8S_AUTH_KUBECONFIG": str(api.kubeconfig), "KUBECONFIG": str(api.kubeconfig)}
    pools = ["-e", f"@{EXAMPLES / 'pools.yml'}"]
    ours, theirs = in_turns(
        PLAYBOOK_TURNS,
        lambda: measured([str(ANSIBLE_PLAYBOOK), "virtpools.kubevirt.verify", *pools], environment),
        lambda: measured([str(ANSIBLE_PLAYBOOK), str(HERE / "verify_with_k8s_info.yml"), *pools], environment),
    )
    assert all(f"{PLAYBOOK_COUNT} VM(s)" in cost.output for cost in ours)
    assert all(f"{PLAYBOOK_COUNT} launcher pods are right" in cost.output for cost in theirs)
    for name, costs in (("playbook `verify`", ours), ("`k8s_info` and Jinja", theirs)):
        print(f"| {name} | {median_seconds(costs):.1f} s | {_megabytes(costs):.0f} MB |")
    print(
        f"\n`k8s_info` and Jinja take {median_seconds(theirs) / median_seconds(ours):.1f} times as much of the processor."
    )


def _megabytes(costs: Sequence[Cost]) -> float:
    return max(cost.megabytes for cost in costs)


def _note(text: Any) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
