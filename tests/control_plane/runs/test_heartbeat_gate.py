# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""A handler of the first wave stops reporting: the gate closes, on heartbeats in virt-handler's own form."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import playbooks
from local_cluster import Fleet, LocalCluster, Nodes
from scenario import HEARTBEAT, Scenario, pool

pytestmark = pytest.mark.thorough  # unit tests close the gate on heartbeats

POOL = pool("gpu", "gpu")
WAVES = [{"name": "canary", "nodes": ["gpu-00"]}]
LONG_AGO = "2026-01-02T03:04:05Z"
# The agent's knob: the real virt-handler would have to hang.
SILENT = "agent.virtpools.io/heartbeat"


def test_a_handler_that_stops_reporting_closes_the_gate(
    start_cluster: Callable[..., LocalCluster], tmp_path: Path
) -> None:
    gpu = Nodes(prefix="gpu-", count=2, labels={"accelerator": "gpu"})
    scenario = Scenario(start_cluster(Fleet.from_groups(gpu, Nodes(name="plain"))))
    written = scenario.get("node", "gpu-00")["metadata"]["annotations"][HEARTBEAT]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", written), "as virt-handler v1.9.0 writes it, without quotes"

    # Waiting for 180 s of silence would prove no more than a last heartbeat that is older.
    silence = tmp_path / "silence.yml"
    annotate = [
        str(scenario.cluster.kubectl_program),
        f"--kubeconfig={scenario.cluster.kubeconfig}",
        "annotate",
        "node",
    ]
    command = [*annotate, "gpu-00", f"{SILENT}=silent", f"{HEARTBEAT}={LONG_AGO}", "--overwrite"]
    silence.write_text(json.dumps([{"name": "Hang", "ansible.builtin.command": {"argv": command}}]), "utf-8")
    options = {"virtpools_waves": WAVES, "virtpools_gate_timeout": 3, "virtpools_soak_seconds": 1}
    run = playbooks.run("rollout", scenario.writer.kubeconfig, [POOL], **options, virtpools_gates=[str(silence)])
    error = run.refused()
    assert "Node gpu-00 has a handler that has sent no heartbeat for more than 180 seconds" in error
    assert LONG_AGO in error
    assert scenario.owners() == {"gpu-00": "gpu"}

    # It reports again: the next run asks the same gate, which passes, and goes on.
    scenario.cluster.set_node_annotation("gpu-00", SILENT, None)
    pods = scenario.get("pods", "-l", "kubevirt.io=virt-handler", "--field-selector=spec.nodeName=gpu-00")["items"]
    scenario.cluster.kubectl("delete", "pod", "-n", "kubevirt", pods[0]["metadata"]["name"])
    scenario.cluster.wait(
        lambda: scenario.get("node", "gpu-00")["metadata"]["annotations"][HEARTBEAT] > LONG_AGO, 60, "a heartbeat"
    )
    playbooks.run("rollout", scenario.writer.kubeconfig, [POOL], **options).succeeded()
    assert scenario.owners() == {"gpu-00": "gpu", "gpu-01": "gpu"}
