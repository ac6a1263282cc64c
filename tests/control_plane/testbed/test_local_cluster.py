# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""The local control plane does what other tests rely on."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from local_cluster import ClusterError, Fleet, LocalCluster, Nodes, audit, paths
from local_cluster import instance as instances
from local_cluster.fleet import CAPACITY

if TYPE_CHECKING:
    from collections.abc import Callable

Node = dict[str, Any]

ROLE = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"}
# The test bed itself changes rarely. In make test is what other tests would prove nothing without, on the cluster of other files.
thorough = pytest.mark.thorough
# What the tests write: namespaced and harmless.
CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap"}


@pytest.fixture(scope="module")
def other_cluster(start_cluster: Callable[..., LocalCluster]) -> LocalCluster:
    gpu = Nodes(
        prefix="gpu-",
        count=2,
        labels={"accelerator": "any"},
        annotations={"example.com/rack": "7"},
        taints=[{"key": "gpu", "value": "true", "effect": "NoSchedule"}],
        capacity={"nvidia.com/GA100_A100_PCIE_40GB": 4},
    )
    return start_cluster(Fleet.from_groups(gpu, Nodes(name="arm", arch="arm64")), kubevirt="")


def _nodes(cluster: LocalCluster) -> dict[str, Node]:
    return {node["metadata"]["name"]: node for node in cluster.get("nodes")["items"]}


def _taints(node: Node) -> set[tuple[str, str]]:
    return {(taint["key"], taint["effect"]) for taint in node["spec"].get("taints", [])}


def _ready(node: Node) -> str:
    return next(str(each["status"]) for each in node["status"]["conditions"] if each["type"] == "Ready")


def _create(cluster: LocalCluster, name: str, *flags: str) -> None:
    cluster.kubectl("create", "-f", "-", *flags, stdin=json.dumps({**CONFIG_MAP, "metadata": {"name": name}}))


def _unique(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


@thorough
def test_two_clusters_side_by_side(plain_cluster: LocalCluster, other_cluster: LocalCluster) -> None:
    assert set(_nodes(plain_cluster)) == {"node-00", "node-01", "node-02"}
    assert set(_nodes(other_cluster)) == {"gpu-00", "gpu-01", "arm"}
    assert {plain_cluster.name, other_cluster.name} <= set(instances.names())


@thorough
def test_nodes_are_what_the_fleet_says(other_cluster: LocalCluster) -> None:
    gpu, arm = (_nodes(other_cluster)[name] for name in ("gpu-01", "arm"))
    assert (
        gpu["metadata"]["labels"].items()
        >= {
            "accelerator": "any",
            "kubernetes.io/hostname": "gpu-01",
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
        }.items()
    )
    assert gpu["metadata"]["annotations"]["example.com/rack"] == "7"
    assert _taints(gpu) == {("gpu", "NoSchedule")}
    assert gpu["status"]["allocatable"] == {**CAPACITY, "nvidia.com/GA100_A100_PCIE_40GB": "4"}
    assert arm["metadata"]["labels"]["kubernetes.io/arch"] == arm["status"]["nodeInfo"]["architecture"] == "arm64"
    assert arm["status"]["allocatable"] == CAPACITY


def test_starting_a_running_cluster_does_nothing(plain_cluster: LocalCluster) -> None:
    pids = {file.name: file.read_text() for file in (plain_cluster.dir / "run").iterdir()}
    said: list[str] = []
    again = LocalCluster.start(plain_cluster.name, kubevirt="", log=said.append)
    assert {file.name: file.read_text() for file in (again.dir / "run").iterdir()} == pids
    assert said == []


def test_a_running_cluster_refuses_a_start_with_other_options(plain_cluster: LocalCluster) -> None:
    with pytest.raises(ClusterError, match="stop it first"):
        LocalCluster.start(plain_cluster.name, Fleet.plain(4), kubevirt="")


@thorough
def test_a_half_dead_cluster_starts_anew(start_cluster: Callable[..., LocalCluster]) -> None:
    cluster = start_cluster(Fleet.plain(1), kubevirt="")
    _create(cluster, "of-former-life")
    cluster.stop_component("kube-scheduler", kill=True)
    with pytest.raises(ClusterError, match="does not run"):
        LocalCluster.attach(cluster.name)
    again = LocalCluster.start(cluster.name, Fleet.plain(1), kubevirt="")
    assert again.kubectl("get", "configmap", "of-former-life", "--ignore-not-found") == ""
    again.stop()
    assert not again.dir.exists()


@thorough
def test_pods_are_scheduled_and_daemonsets_rolled_out(plain_cluster: LocalCluster) -> None:
    name = _unique("daemon")
    template = {
        "metadata": {"labels": {"app": name}},
        "spec": {"containers": [{"name": "main", "image": "none.example/none:1"}]},
    }
    daemon_set = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"app": name}}, "template": template},
    }
    plain_cluster.kubectl("create", "-f", "-", stdin=json.dumps(daemon_set))

    def hosts() -> list[str]:
        pods = plain_cluster.get("pods", "-l", f"app={name}")["items"]
        return sorted(pod["spec"]["nodeName"] for pod in pods if pod["spec"].get("nodeName"))

    assert plain_cluster.wait(lambda: len(hosts()) == 3 and hosts(), 30) == ["node-00", "node-01", "node-02"]
    # Without KubeVirt there is no agent, and nobody else plays the kubelet for pods.
    phases = plain_cluster.kubectl("get", "pods", "-l", f"app={name}", "-o", "jsonpath={.items[*].status.phase}")
    assert set(phases.split()) == {"Pending"}


@thorough
def test_a_dead_kubelet_loses_its_node_until_it_is_back(plain_cluster: LocalCluster) -> None:
    plain_cluster.set_kubelet("node-01", up=False)
    lost = ("node.kubernetes.io/unreachable", "NoExecute")
    plain_cluster.wait(lambda: lost in _taints(_nodes(plain_cluster)["node-01"]), 30, "the taint")
    nodes = _nodes(plain_cluster)
    assert {name: _ready(node) for name, node in nodes.items()} == {
        "node-00": "True",
        "node-01": "Unknown",
        "node-02": "True",
    }
    plain_cluster.set_kubelet("node-01", up=True)
    plain_cluster.wait(lambda: not _taints(_nodes(plain_cluster)["node-01"]), 30, "no taint")
    assert _ready(_nodes(plain_cluster)["node-01"]) == "True"


@thorough
@pytest.mark.parametrize("kill", [False, True])
def test_the_api_server_restarts_where_it_was(plain_cluster: LocalCluster, kill: bool) -> None:
    name = _unique("survivor")
    marker = plain_cluster.audit_marker()
    _create(plain_cluster, name)
    plain_cluster.stop_component("kube-apiserver", kill=kill)
    with pytest.raises(ClusterError, match="kubectl"):
        plain_cluster.kubectl("get", "configmap", name)
    with pytest.raises(ClusterError, match="cannot be read"):
        plain_cluster.get("configmap", name)
    plain_cluster.start_component("kube-apiserver")
    plain_cluster.kubectl("get", "configmap", name)
    plain_cluster.get("configmap", name)
    # The audit log goes on where it was, and so do the controllers.
    assert [write.name for write in plain_cluster.writes(marker, user="admin")] == [name]
    namespace = _unique("after")
    plain_cluster.kubectl("create", "namespace", namespace)
    plain_cluster.wait(
        lambda: plain_cluster.kubectl("get", "-n", namespace, "serviceaccount", "default", "--ignore-not-found"), 90
    )


@pytest.mark.parametrize(
    "what",
    [
        ("namespace", "default"),
        ("ns/default",),
        ("clusterroles.rbac.authorization.k8s.io", "view", "edit"),
        ("clusterrole/view", "cm/kube-root-ca.crt"),
        ("configmaps", "-n", "kube-system"),
        ("sa,cm", "-A", "-l", "!app"),
        ("configmaps", "-A", "--field-selector=metadata.name=kube-root-ca.crt"),
        ("secrets",),
    ],
    ids=" ".join,
)
def test_objects_are_read_as_kubectl_reads_them(plain_cluster: LocalCluster, what: tuple[str, ...]) -> None:
    printed = json.loads(plain_cluster.kubectl("get", "-o", "json", *what))
    if printed["kind"] == "List":
        assert printed.pop("metadata") == {"resourceVersion": ""}
    assert plain_cluster.get(*what) == printed


def test_an_object_that_cannot_be_read_is_named(plain_cluster: LocalCluster) -> None:
    with pytest.raises(ClusterError, match='/configmaps/none cannot be read: configmaps "none" not found'):
        plain_cluster.get("configmap", "none")
    with pytest.raises(ClusterError, match="no kind pigs"):
        plain_cluster.get("pigs")


def test_only_real_writes_are_counted(plain_cluster: LocalCluster) -> None:
    name = _unique("counted")
    marker = plain_cluster.audit_marker()
    _create(plain_cluster, name, "--dry-run=server")
    plain_cluster.kubectl("get", "configmaps")
    plain_cluster.kubectl("auth", "can-i", "create", "pods")
    assert plain_cluster.writes(marker, user="admin") == []

    _create(plain_cluster, name)
    with pytest.raises(ClusterError, match="already exists"):
        _create(plain_cluster, name)
    plain_cluster.kubectl("annotate", "configmap", name, "a=b", "--dry-run=server")
    plain_cluster.kubectl("annotate", "configmap", name, "a=b")
    # kubectl marks the dry run of a deletion in the body, other clients do it in the URL.
    plain_cluster.kubectl("delete", "configmap", name, "--dry-run=server")
    plain_cluster.kubectl("delete", "configmap", name)
    writes = plain_cluster.writes(marker, user="admin")
    assert [(write.verb, write.resource, write.namespace, write.name) for write in writes] == [
        (verb, "configmaps", "default", name) for verb in ("create", "patch", "delete")
    ]
    assert plain_cluster.writes(plain_cluster.audit_marker(), user="admin") == []


def test_a_service_account_has_its_roles_and_no_more(plain_cluster: LocalCluster) -> None:
    role = _unique("node-reader")
    rules = [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "patch"]}]
    plain_cluster.kubectl("create", "-f", "-", stdin=json.dumps({**ROLE, "metadata": {"name": role}, "rules": rules}))
    kubeconfig = plain_cluster.kubeconfig_for("reader", [role])
    assert plain_cluster.kubeconfig_for("reader", [role]) == kubeconfig

    marker = plain_cluster.audit_marker()
    assert "node-02" in plain_cluster.kubectl("get", "nodes", kubeconfig=kubeconfig)
    plain_cluster.kubectl("label", "node", "node-02", "touched=yes", kubeconfig=kubeconfig)
    with pytest.raises(ClusterError, match="forbidden"):
        plain_cluster.kubectl("get", "secrets", kubeconfig=kubeconfig)
    user = "system:serviceaccount:virtpools-system:reader"
    assert [str(write) for write in plain_cluster.writes(marker, user)] == [f"{user}: patch nodes node-02"]


@thorough
def test_nodes_can_join_later(other_cluster: LocalCluster) -> None:
    other_cluster.add_nodes(Fleet.from_groups(Nodes(prefix="late-", count=2)))
    assert {"late-00", "late-01"} <= set(_nodes(other_cluster))
    assert (
        other_cluster.admin.resources.get(api_version="v1", kind="Node").get(name="late-01").metadata.name == "late-01"
    )


@thorough
def test_a_component_that_cannot_start_shows_why(plain_cluster: LocalCluster) -> None:
    policy = plain_cluster.dir / "audit-policy.json"
    good = policy.read_text()
    plain_cluster.stop_component("kube-apiserver", kill=True)
    try:
        policy.write_text("nonsense")
        with pytest.raises(ClusterError, match=r"kube-apiserver ended unexpectedly(.|\n)*audit policy"):
            plain_cluster.start_component("kube-apiserver")
    finally:
        policy.write_text(good)
        plain_cluster.start_component("kube-apiserver")


def test_the_demo_fleet() -> None:
    nodes = Fleet.load(paths.FLEETS / "demo.yaml").objects()
    accelerators = [node["metadata"]["labels"].get("accelerator") for node in nodes]
    arm = [node for node in nodes if node["metadata"]["labels"]["kubernetes.io/arch"] == "arm64"]
    assert accelerators.count("nvidia-a100") == 4
    assert accelerators.count("nvidia-l40s") == 3
    assert len(arm) == 3
    assert len({node["metadata"]["name"] for node in nodes}) == len(nodes) == 15


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nodes: 3", "needs a list 'nodes'"),
        ("nodes: [{nmae: a}]", "known keys are"),
        ("nodes: [{count: 2}]", "a name or a prefix"),
        ("nodes: [{name: a, count: 2}]", "a prefix instead of a name"),
        ("nodes: [{name: Node_1}]", "cannot name a node"),
        ("nodes: [{prefix: a-, count: 0}]", "not positive"),
        ("nodes: [{name: a, arch: x86}]", "use amd64, arm64, s390x"),
        ("nodes: [{name: a-01}, {prefix: a-, count: 2}]", "names a-01 more than once"),
        ("nodes: [", "cannot be read"),
    ],
)
def test_a_bad_fleet_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "fleet.yaml"
    file.write_text(text)
    with pytest.raises(ClusterError, match=message):
        Fleet.load(file)


@pytest.mark.parametrize("name", ["", "UP", "a/b", "..", "-a", "a" * 64])
def test_a_bad_name_is_refused(name: str) -> None:
    with pytest.raises(ClusterError, match="cannot name a cluster"):
        LocalCluster.attach(name)


@pytest.mark.parametrize(
    ("offset", "entries"),
    [
        pytest.param(0, [1, 22], id="the beginning"),
        pytest.param(3, [22], id="within a line that was being written"),
        pytest.param(8, [22], id="between two lines"),
        pytest.param(17, [], id="the end"),
    ],
)
def test_the_audit_log_is_read_from_the_next_whole_line_on(tmp_path: Path, offset: int, entries: list[int]) -> None:
    log = tmp_path / "audit.log"
    log.write_text('{"n":1}\n{"n":22}\n{"n":', "utf-8")
    tail = audit.Tail(log, offset)
    assert [entry["n"] for entry in audit.read(log, offset)] == [entry["n"] for entry in tail.entries()] == entries
    with log.open("a", encoding="utf-8") as file:
        file.write('333}\n{"n":4444}\n')
    assert [entry["n"] for entry in tail.entries()] == [333, 4444]
    assert tail.entries() == []
