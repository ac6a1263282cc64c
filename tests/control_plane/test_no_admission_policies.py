# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""API servers without MutatingAdmissionPolicy: refused in one sentence before anything is written, or done without."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

import proxy
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster._transport import Request, Response
from scene import Scene, pool

HIDDEN = "mutatingadmissionpolic"
LAUNCHER = "registry.example/virt-launcher:v1.9.0-gpu"
VMS = {"deviceNames": ["nvidia.com/GA100_A100_PCIE_40GB"]}
GPU = pool("gpu", "nvidia-a100", virtLauncherImage=LAUNCHER, selector=VMS)
HANDLER_ONLY = pool("gpu", "nvidia-a100")


@pytest.fixture(scope="module")
def scene(cluster: Any) -> Iterator[Scene]:
    """A user who reaches the cluster through a server that looks like Kubernetes 1.35."""
    scene = Scene(cluster)
    with proxy.before(cluster, scene.writer.kubeconfig, older) as found:
        scene.writer = replace(scene.writer, kubeconfig=found.kubeconfig)
        yield scene


def older(request: Request, forward: Callable[[], Response]) -> Response:
    """Answer as a server whose version had no mutating admission policies: no option of a newer one hides them."""
    if HIDDEN in request.path:
        return Response(404, b"404 page not found\n", {"content-type": "text/plain"})
    answer = forward()
    if request.path == "/version":
        return replace(answer, body=json.dumps({**json.loads(answer.body), "gitVersion": "v1.35.4"}).encode())
    if request.path.startswith("/apis/admissionregistration.k8s.io/"):
        found = json.loads(answer.body)
        found["resources"] = [each for each in found.get("resources", ()) if HIDDEN not in each["name"]]
        return replace(answer, body=json.dumps(found).encode())
    return answer


@pytest.mark.parametrize("module", ["plan_info", "launcher_policy"])
@pytest.mark.parametrize("backend", ["auto", "admission_policy"])
def test_pools_with_launchers_are_refused_with_what_to_enable(scene: Scene, module: str, backend: str) -> None:
    with scene.no_writes():
        found = scene.module(module, pools=[GPU], launcher_backend=backend)
    message = str(found.get("msg") or found.get("findings"))
    assert "MutatingAdmissionPolicy" in message
    assert "--feature-gates=MutatingAdmissionPolicy=true" in message
    assert "admissionregistration.k8s.io/v1beta1=true" in message
    assert "Kubernetes v1.35.4" in message
    assert module == "plan_info" or found["failed"]


def test_without_a_back_end_the_plan_says_what_is_not_done(scene: Scene) -> None:
    found = scene.module("plan_info", pools=[GPU], launcher_backend="none")
    assert not found.get("failed"), found
    (said,) = (each for each in found["findings"] if each["code"] == "launcher_backend_none")
    assert "VMs of gpu start with KubeVirt's own launcher image on any node" in said["message"]


def test_pools_without_vms_of_their_own_need_none(scene: Scene) -> None:
    found = scene.module("plan_info", pools=[HANDLER_ONLY])
    assert not found.get("failed"), found
    assert not any(each["code"].startswith("launcher_backend") for each in found["findings"])
    with scene.no_writes():
        assert scene.module("launcher_policy", pools=[HANDLER_ONLY])["backend"] == "none"
