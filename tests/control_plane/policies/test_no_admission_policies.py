# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""API servers without MutatingAdmissionPolicy: a run is refused before it writes anything, or needs no policy."""

from __future__ import annotations

import os
from typing import Any

import pytest

from local_cluster import Fleet, Nodes
from scenario import Scenario, pool

# The newest version that does not serve them unless an administrator asks for it.
KUBERNETES = "v1.35.2"
LAUNCHER = "registry.example/virt-launcher:v1.9.0-gpu"
VMS = {"deviceNames": ["nvidia.com/GA100_A100_PCIE_40GB"]}
GPU = pool("gpu", "nvidia-a100", virtLauncherImage=LAUNCHER, selector=VMS)
HANDLER_ONLY = pool("gpu", "nvidia-a100")


pytestmark = pytest.mark.skipif(
    "VIRTPOOLS_TEST_MATRIX" not in os.environ, reason="make test-matrix builds Kubernetes 1.35"
)


@pytest.fixture(scope="module")
def scenario(start_cluster: Any) -> Scenario:
    fleet = Fleet.from_groups(
        Nodes(prefix="gpu-", count=1, labels={"accelerator": "nvidia-a100"}),
        Nodes(prefix="node-", count=1),
    )
    return Scenario(start_cluster(fleet, kubernetes=KUBERNETES))


@pytest.mark.parametrize("module", ["plan_info", "launcher_policy"])
@pytest.mark.parametrize("backend", ["auto", "admission_policy"])
def test_pools_with_launchers_are_refused_with_what_to_enable(scenario: Scenario, module: str, backend: str) -> None:
    with scenario.no_writes():
        result = scenario.module(module, pools=[GPU], launcher_backend=backend)
    message = str(result.get("msg") or result.get("findings"))
    assert "MutatingAdmissionPolicy" in message
    assert "--feature-gates=MutatingAdmissionPolicy=true" in message
    assert "admissionregistration.k8s.io/v1beta1=true" in message
    assert f"Kubernetes {KUBERNETES}" in message
    assert module == "plan_info" or result["failed"]


def test_without_a_back_end_the_plan_says_what_is_not_done(scenario: Scenario) -> None:
    result = scenario.module("plan_info", pools=[GPU], launcher_backend="none")
    assert not result.get("failed"), result
    (said,) = (each for each in result["findings"] if each["code"] == "launcher_backend_none")
    assert "VMs of gpu start with KubeVirt's own launcher image on any node" in said["message"]


def test_pools_without_vms_of_their_own_need_none(scenario: Scenario) -> None:
    result = scenario.module("plan_info", pools=[HANDLER_ONLY])
    assert not result.get("failed"), result
    assert not any(each["code"].startswith("launcher_backend") for each in result["findings"])
    with scenario.no_writes():
        result = scenario.module("run_part", part="launcher_policy", pools=[HANDLER_ONLY])
    assert result.get("backend") == "none", result
