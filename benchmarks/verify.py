# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""Measures the verification of thousands of VMs, compared with merely listing them, and with k8s_info and Jinja.

The VMs are copies of those that run on a local cluster with the example pools. A verification is a task of a play, as users run it:
what a play costs with it and without it. The programs that only list or parse are processes of their own. Compared programs take
turns. Times are processor time: the machine is shared, and none of the programs has to wait.
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

import playbooks
from cost import Cost, exponent, in_turns, measured, median_seconds
from endpoint import PODS
from goals import Figure, show
from local_cluster import LocalCluster, paths
from multiplied_api import MultipliedApi
from playbooks import ANSIBLE_PLAYBOOK, Account

if TYPE_CHECKING:
    from collections.abc import Sequence

HERE = Path(__file__).parent
EXAMPLES = HERE.parent / "examples"
MODULE = "virtpools.kubevirt.verification_info"

COUNTS = (1_000, 10_000, 100_000)
REPEATED = {1_000: 4}
"""How often a play verifies so few VMs: their time is the mean."""
TURNS = 3
FEWER_TURNS = {100_000: 1}
GOAL = 1.4
"""Of a verification as a multiple of the program that only lists or parses."""
DUMPED = 100_000
DUMPED_KINDS = {
    "cluster": (
        "kubevirts,nodes,daemonsets,namespaces,configmaps,mutatingadmissionpolicies,mutatingadmissionpolicybindings",
    ),
    "handlers": ("pods", "-l", "kubevirt.io=virt-handler"),
}
MOST_MEGABYTES = 200
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
            rows = {count: _compare_with_listing(api, count, Path(folder)) for count in COUNTS}
            times = [(count, row.seconds) for count, row in rows.items()]
            print(f"\nFrom {COUNTS[0]:,} to {COUNTS[-1]:,} VMs the time grows to the power of {exponent(times):.2f}.\n")
            dumped = _compare_with_parsing(cluster, api, Path(folder))
            print(f"\n| {PLAYBOOK_COUNT:,} VMs | processor time | peak memory |\n|---|---:|---:|")
            _compare_playbooks(api)
    show(
        [
            *(
                Figure(f"{count:,} VMs verified", "listing and parsing them", row.ratio, GOAL)
                for count, row in rows.items()
            ),
            Figure(f"memory for {COUNTS[-1]:,} VMs", "a page", rows[COUNTS[-1]].megabytes, MOST_MEGABYTES, " MB"),
            Figure(f"a dump of {DUMPED:,} VMs verified", "parsing it", dumped, GOAL),
        ]
    )
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


@dataclass(frozen=True)
class Row:
    """What a verification of all VMs took."""

    seconds: float
    ratio: float
    megabytes: float


def _compare_with_listing(api: MultipliedApi, count: int, folder: Path) -> Row:
    size = api.multiply(count)
    times = REPEATED.get(count, 1)
    bare = [sys.executable, str(HERE / "bare_list.py"), str(api.kubeconfig)]
    listed, without, verified = in_turns(
        FEWER_TURNS.get(count, TURNS),
        lambda: measured(bare),
        lambda: _played(api.kubeconfig, folder),
        lambda: _played(api.kubeconfig, folder, *[_verified(count)] * times),
    )
    assert json.loads(listed[0].output) == [count, count]
    row = _row(listed, without, verified, times)
    print(
        f"| {count:,} | {size / 1e6:.0f} MB | {median_seconds(listed):.1f} s | {row.seconds:.1f} s | {row.ratio:.2f} "
        f"| {_megabytes(listed):.0f} MB | {row.megabytes:.0f} MB |",
        flush=True,
    )
    return row


def _compare_with_parsing(cluster: LocalCluster, api: MultipliedApi, folder: Path) -> float:
    """Verify a dump of all VMs, as ``kubectl get -o json`` writes it, and return how much longer that takes than parsing it."""
    size = api.multiply(DUMPED)
    dump = folder / "dump"
    dump.mkdir()
    for number, (path, (head, items)) in enumerate(api.lists.items()):
        with (dump / f"list-{number}.json").open("wb") as file:
            file.write(json.dumps(head)[:-1].encode() + b', "items": [')
            # Lists leave the kind of pods out, and kubectl puts it in.
            kind = b'"apiVersion":"v1","kind":"Pod",' if path == PODS else b""
            file.writelines(b"," * (index > 0) + b"{" + kind + item[1:] for index, item in enumerate(items))
            file.write(b"]}")
    for name, what in DUMPED_KINDS.items():
        (dump / f"{name}.json").write_text(cluster.kubectl("get", *what, "-A", "-o", "json"), "utf-8")
    api.multiply(1)  # their copies are in the files
    parsed, without, verified = in_turns(
        1,
        lambda: measured([sys.executable, str(HERE / "bare_parse.py"), str(dump)]),
        lambda: _played(api.kubeconfig, folder),
        lambda: _played(api.kubeconfig, folder, _verified(DUMPED, dump=str(dump))),
    )
    row = _row(parsed, without, verified)
    print(f"| a dump of {DUMPED:,} VMs | parsed | verified | ratio | peak memory: parsed | verified |")
    print("|---:|---:|---:|---:|---:|---:|")
    print(
        f"| {size / 1e6:.0f} MB | {median_seconds(parsed):.1f} s | {row.seconds:.1f} s | {row.ratio:.2f} "
        f"| {_megabytes(parsed):.0f} MB | {row.megabytes:.0f} MB |",
        flush=True,
    )
    return row.ratio


def _row(peer: Sequence[Cost], without: Sequence[Cost], verified: Sequence[Cost], times: int = 1) -> Row:
    seconds = (median_seconds(verified) - median_seconds(without)) / times
    return Row(seconds, seconds / median_seconds(peer), _megabytes(verified))


def _verified(count: int, **options: str) -> list[dict[str, Any]]:
    """Return the tasks of a play that verifies this many VMs."""
    right = "found.healthy and found.verdicts.correct == " + str(count)
    return [{MODULE: options, "register": "found"}, {"ansible.builtin.assert": {"that": right}}]


def _played(kubeconfig: Path, folder: Path, *parts: list[dict[str, Any]]) -> Cost:
    """Run a play with these tasks, after another module of ours: what the first one imports is not counted twice."""
    tasks = [{"virtpools.kubevirt.pool_info": {}}, *(task for part in parts for task in part)]
    play = folder / "play.yml"
    play.write_text(yaml.safe_dump([{"hosts": "localhost", "gather_facts": False, "tasks": tasks}]), "utf-8")
    return measured(
        [str(ANSIBLE_PLAYBOOK), str(play)], {"KUBECONFIG": str(kubeconfig), "K8S_AUTH_KUBECONFIG": str(kubeconfig)}
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
    assert all(f": {PLAYBOOK_COUNT} VMs on " in cost.output for cost in ours)
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
