# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""The stand-in plays virtual machines as KubeVirt does: launcher pods, migrations, updates, and what goes wrong."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from local_cluster import ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from local_cluster import LocalCluster

Object = dict[str, Any]

CONTROLLER = "system:serviceaccount:kubevirt:kubevirt-controller"
STOCK = "stock.example/kubevirt/virt-launcher:v1.9.0"
OTHER = "registry.example/virt-launcher:other"
GPU = "nvidia.com/AD102GL_L40S"
OUTDATED = "kubevirt.io/outdatedLauncherImage"
DISK = {"name": "root", "containerDisk": {"image": "registry.example/disks/os:1"}}


class Machines:
    """What a user of virtual machines does and sees."""

    def __init__(self, cluster: LocalCluster) -> None:
        """Work in the namespace default."""
        self.cluster = cluster

    def create(self, *objects: Object) -> None:
        """Create objects."""
        self.cluster.kubectl(
            "create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        )

    def get(self, *what: str) -> Object:
        """Return an object or a list."""
        return dict(json.loads(self.cluster.kubectl("get", "-o", "json", *what)))

    def vmi(self, name: str) -> Object:
        """Return an instance, or nothing."""
        return next((each for each in self.get("vmi")["items"] if each["metadata"]["name"] == name), {})

    def phase(self, name: str) -> str:
        """Return an instance's phase."""
        return str(self.vmi(name).get("status", {}).get("phase", ""))

    def running(self, name: str) -> Object:
        """Wait until an instance runs, and return its pod."""
        self.wait(lambda: self.phase(name) == "Running", f"{name} to run")
        return self.pods(name)[-1]

    def pods(self, name: str) -> list[Object]:
        """Return an instance's launcher pods, the oldest first."""
        found = self.get("pods", "-l", f"vmi.kubevirt.io/id={name}")["items"]
        return sorted(found, key=lambda pod: pod["metadata"]["creationTimestamp"])

    def condition(self, name: str, kind: str) -> Object:
        """Return a condition of an instance."""
        conditions = self.vmi(name).get("status", {}).get("conditions", [])
        return next((each for each in conditions if each["type"] == kind), {})

    def wait(self, predicate: Callable[[], object], what: str, timeout: float = 30) -> None:
        """Wait for something."""
        self.cluster.wait(predicate, timeout, what, interval=0.3)

    def update_methods(self, *methods: str) -> None:
        """Say what KubeVirt does about outdated instances."""
        patch = {"spec": {"workloadUpdateStrategy": {"workloadUpdateMethods": list(methods)}}}
        self.cluster.kubectl("patch", "-n", "kubevirt", "kubevirt", "kubevirt", "--type=merge", "-p", json.dumps(patch))


@pytest.fixture
def machines(cluster: LocalCluster) -> Iterator[Machines]:
    """Return a user whose machines are gone after the test, and with them the policies and settings."""
    user = Machines(cluster)
    yield user
    user.update_methods()
    kinds = "mutatingadmissionpolicybindings,mutatingadmissionpolicies,vmim,vm,vmi"
    cluster.kubectl("delete", kinds, "--all", "--timeout=40s")
    user.wait(lambda: not user.get("pods", "-l", "kubevirt.io=virt-launcher")["items"], "launcher pods to go")


def vmi(name: str, *, volumes: list[Object] | None = None, **spec: Any) -> Object:
    """Return an instance with a disk in an image."""
    domain = {"memory": {"guest": "128Mi"}, "devices": {}, **spec.pop("domain", {})}
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"name": name, "labels": {"tier": name}},
        "spec": {"domain": domain, "volumes": volumes or [DISK], "terminationGracePeriodSeconds": 0, **spec},
    }


def vm(name: str, *, strategy: str = "Always", **spec: Any) -> Object:
    """Return a machine that has nothing but a disk."""
    template = {"metadata": {"labels": {"tier": name}}, "spec": {"domain": {"devices": {}}, "volumes": [DISK]}}
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": name},
        "spec": {"runStrategy": strategy, "template": template, **spec},
    }


def migration(name: str, of: str) -> Object:
    """Return a request to migrate an instance."""
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstanceMigration",
        "metadata": {"name": name},
        "spec": {"vmiName": of},
    }


def policy(expression: str) -> tuple[Object, Object]:
    """Return a policy, and its binding, by which virt-controller's pods become something else."""
    version = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": "standin-test"}}
    spec = {
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "matchConstraints": {
            "objectSelector": {"matchLabels": {"kubevirt.io": "virt-launcher"}},
            "resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
            ],
        },
        "matchConditions": [{"name": "controller", "expression": f"request.userInfo.username == {CONTROLLER!r}"}],
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}],
    }
    return (
        {**version, "kind": "MutatingAdmissionPolicy", "spec": spec},
        {**version, "kind": "MutatingAdmissionPolicyBinding", "spec": {"policyName": "standin-test"}},
    )


def other_image(machines: Machines) -> None:
    """Give every later launcher pod another image, and wait until that works."""
    machines.create(*policy(f'[JSONPatch{{op: "replace", path: "/spec/containers/0/image", value: "{OTHER}"}}]'))
    probe = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "probe", "labels": {"kubevirt.io": "virt-launcher"}},
        "spec": {"containers": [{"name": "compute", "image": STOCK}]},
    }
    as_controller = ("create", "--dry-run=server", "-o", "json", f"--as={CONTROLLER}", "-f", "-")
    machines.wait(lambda: OTHER in machines.cluster.kubectl(*as_controller, stdin=json.dumps(probe)), "the policy")


def images(pod: Object) -> dict[str, str]:
    """Return the images of a pod, by container and by image volume."""
    spec = pod["spec"]
    containers = {each["name"]: each["image"] for each in [*spec.get("initContainers", []), *spec["containers"]]}
    volumes = {each["name"]: each["image"]["reference"] for each in spec["volumes"] if "image" in each}
    return containers | volumes


def test_instances_run_in_pods_made_by_virt_controller(machines: Machines) -> None:
    gpu = {"devices": {"gpus": [{"name": "a", "deviceName": GPU}, {"name": "b", "deviceName": GPU}]}}
    shared = {"name": "shared", "configMap": {"name": "kube-root-ca.crt"}}
    virtiofs = {"devices": {"filesystems": [{"name": "shared", "virtiofs": {}}]}}
    marker = machines.cluster.audit_marker()
    machines.create(
        vmi("plain"),
        vmi("gpu", domain=gpu),
        vmi("virtiofs", domain=virtiofs, volumes=[DISK, shared]),
        vmi("arm", architecture="arm64"),
        vmi("model", domain={"cpu": {"model": "Cascadelake-Server"}}),
    )
    stock = dict.fromkeys(("compute", "guest-console-log", "launcher-volume"), STOCK)
    disk = dict.fromkeys(("root", "volumeroot"), DISK["containerDisk"]["image"])  # type: ignore[index]
    assert images(machines.running("plain")) == stock | disk
    assert images(machines.running("virtiofs")) == stock | disk | {"virtiofs-shared": STOCK}
    pod = machines.running("gpu")
    assert pod["spec"]["containers"][0]["resources"]["limits"][GPU] == "2"
    assert pod["spec"]["nodeName"].startswith("l40s-")
    assert machines.running("arm")["spec"]["nodeName"].startswith("arm-")
    assert "affinity" not in machines.running("model")["spec"]
    created = [write for write in machines.cluster.writes(marker) if (write.verb, write.resource) == ("create", "pods")]
    assert {write.user for write in created} == {CONTROLLER}
    labels = machines.vmi("plain")["metadata"]["labels"]
    assert OUTDATED not in labels
    assert labels["kubevirt.io/nodeName"] == machines.vmi("plain")["status"]["nodeName"]


def test_instancetypes_are_pinned_and_expanded(machines: Machines) -> None:
    kind = {
        "apiVersion": "instancetype.kubevirt.io/v1beta1",
        "kind": "VirtualMachineInstancetype",
        "metadata": {"name": "one-gpu"},
        "spec": {"cpu": {"guest": 2}, "memory": {"guest": "1Gi"}, "gpus": [{"name": "g", "deviceName": GPU}]},
    }
    wanted = {"name": "one-gpu", "kind": "VirtualMachineInstancetype"}
    machines.create(kind, vm("typed", instancetype=wanted), vm("halted", strategy="Halted", instancetype=wanted))
    assert machines.running("typed")["spec"]["containers"][0]["resources"]["limits"][GPU] == "1"
    ref = machines.get("vm", "typed")["status"]["instancetypeRef"]
    uid = machines.get("virtualmachineinstancetype", "one-gpu")["metadata"]["uid"]
    assert ref["controllerRevisionRef"]["name"] == f"typed-one-gpu-v1beta1-{uid}-1"

    base = "/apis/subresources.kubevirt.io/v1/namespaces/default"
    machines.cluster.kubectl("delete", "virtualmachineinstancetype", "one-gpu")
    path = f"{base}/virtualmachines/halted/expand-spec"
    stored = json.loads(machines.cluster.kubectl("get", "--raw", path))["spec"]
    assert "instancetype" not in stored
    assert stored["template"]["spec"]["domain"]["devices"]["gpus"] == [{"name": "g", "deviceName": GPU}]
    given = vm("new", instancetype={**wanted, "revisionName": ref["controllerRevisionRef"]["name"]})
    answer = machines.cluster.kubectl("replace", "--raw", f"{base}/expand-vm-spec", "-f", "-", stdin=json.dumps(given))
    assert json.loads(answer)["spec"]["template"]["spec"]["domain"]["memory"] == {"guest": "1Gi"}
    given["spec"]["template"]["spec"]["domain"]["memory"] = {"guest": "2Gi"}
    with pytest.raises(ClusterError, match="domain.memory conflicts with selected instance type"):
        machines.cluster.kubectl("replace", "--raw", f"{base}/expand-vm-spec", "-f", "-", stdin=json.dumps(given))


def test_a_migration_moves_an_instance_and_ends_its_source_or_fails(machines: Machines) -> None:
    machines.create(
        vmi("mover"),
        vmi("alone", nodeSelector={"kubernetes.io/hostname": "plain-03"}),
        vmi("fixed", domain={"devices": {"gpus": [{"name": "a", "deviceName": GPU}]}}),
    )
    source = machines.running("mover")
    machines.running("alone")
    machines.create(migration("move", "mover"), migration("nowhere", "alone"))
    machines.wait(lambda: machines.get("vmim", "move").get("status", {}).get("phase") == "Succeeded", "the migration")
    target = machines.pods("mover")[-1]
    state = machines.vmi("mover")["status"]
    assert target["spec"]["nodeName"] == state["nodeName"] != source["spec"]["nodeName"]
    assert state["migrationState"]["sourceNode"] == source["spec"]["nodeName"]
    assert "launcher-volume" not in images(target)
    assert "@sha256:" in images(target)["root"]
    machines.wait(lambda: machines.pods("mover")[0]["status"]["phase"] == "Succeeded", "the source to end")
    assert machines.phase("mover") == "Running"

    machines.running("fixed")
    with pytest.raises(ClusterError, match="HostDeviceNotLiveMigratable"):
        machines.create(migration("never", "fixed"))

    machines.wait(lambda: machines.get("vmim", "nowhere").get("status", {}).get("phase") == "Failed", "the failure")
    machines.wait(lambda: len(machines.pods("alone")) == 1, "the target to go")
    assert machines.phase("alone") == "Running"


def test_outdated_instances_migrate_for_ever(machines: Machines) -> None:
    other_image(machines)
    machines.create(vmi("pingpong"), vmi("fixed", domain={"devices": {"gpus": [{"name": "a", "deviceName": GPU}]}}))
    for name in ("pingpong", "fixed"):
        machines.running(name)
        machines.wait(lambda name=name: OUTDATED in machines.vmi(name)["metadata"]["labels"], f"{name} to be outdated")
    machines.update_methods("LiveMigrate")

    def updates() -> list[str]:
        found = machines.get("vmim")["items"]
        return [each["spec"]["vmiName"] for each in found if each["status"].get("phase") == "Succeeded"]

    machines.wait(lambda: len(updates()) >= 2, "two updates that changed nothing", 40)
    assert set(updates()) == {"pingpong"}
    assert images(machines.pods("pingpong")[-1])["compute"] == OTHER
    machines.cluster.kubectl("delete", "mutatingadmissionpolicybinding", "standin-test")
    machines.wait(lambda: OUTDATED not in machines.vmi("pingpong")["metadata"]["labels"], "an update that helps", 40)


def test_outdated_machines_are_evicted(machines: Machines) -> None:
    other_image(machines)
    machines.create(vm("evicted"))
    first = machines.running("evicted")["metadata"]["uid"]
    machines.update_methods("Evict")
    machines.wait(
        lambda: machines.phase("evicted") == "Running" and machines.running("evicted")["metadata"]["uid"] != first,
        "a restart",
    )


def test_without_exactly_one_handler_nothing_starts(machines: Machines) -> None:
    knob = "standin.virtpools.io/handler"
    machines.cluster.set_node_annotation("plain-04", knob, "never-ready")
    try:
        # The node itself is still schedulable: a handler that dies has nobody who says so.
        machines.create(vmi("waiting", nodeSelector={"kubernetes.io/hostname": "plain-04"}))
        machines.wait(lambda: [pod["status"]["phase"] for pod in machines.pods("waiting")] == ["Running"], "its pod")
        time.sleep(2)
        assert machines.phase("waiting") == "Scheduling"
    finally:
        machines.cluster.set_node_annotation("plain-04", knob, None)
    machines.running("waiting")


def test_a_refused_pod_shows_in_its_instance_and_is_tried_again(machines: Machines) -> None:
    machines.create(*policy('[JSONPatch{op: "replace", path: "/spec/nowhere/image", value: "x"}]'))
    time.sleep(2)
    machines.create(vmi("refused"))
    machines.wait(lambda: machines.condition("refused", "Synchronized").get("reason") == "FailedCreate", "the refusal")
    assert machines.pods("refused") == []
    machines.cluster.kubectl("delete", "mutatingadmissionpolicybinding", "standin-test")
    machines.running("refused")
    assert machines.condition("refused", "Synchronized") == {}


def test_a_machine_restarts_as_its_run_strategy_says(machines: Machines) -> None:
    machines.create(vm("always"), vm("rerun", strategy="RerunOnFailure"))
    pods = [machines.running(name)["metadata"]["name"] for name in ("always", "rerun")]
    first = machines.vmi("always")["metadata"]["uid"]
    machines.cluster.kubectl("annotate", "pod", *pods, "standin.virtpools.io/exit=succeeded")
    machines.wait(lambda: machines.phase("rerun") == "Succeeded", "the guest's end")
    machines.wait(
        lambda: machines.phase("always") == "Running" and machines.vmi("always")["metadata"]["uid"] != first,
        "a restart",
    )
    machines.cluster.kubectl("patch", "vm", "always", "--type=merge", "-p", '{"spec":{"runStrategy":"Halted"}}')
    machines.wait(lambda: not machines.vmi("always") and not machines.pods("always"), "the machine to stop")
    machines.wait(lambda: machines.get("vm", "always")["status"]["printableStatus"] == "Stopped", "the status")
    assert machines.phase("rerun") == "Succeeded"


def test_a_dead_node_s_instances_fail_over_unless_two_daemonsets_are_handlers(machines: Machines) -> None:
    node = "plain-02"
    machines.create(vmi("lost", nodeSelector={"kubernetes.io/hostname": node}))
    pod = machines.running("lost")["metadata"]["name"]
    second = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "second", "namespace": "kubevirt", "labels": {"kubevirt.io": "virt-handler"}},
        "spec": {
            "selector": {"matchLabels": {"app": "second"}},
            "template": {
                "metadata": {"labels": {"app": "second"}},
                "spec": {
                    "nodeSelector": {"no": "node"},
                    "containers": [{"name": "c", "image": "registry.example/c:1"}],
                },
            },
        },
    }
    machines.create(second)
    machines.cluster.set_kubelet(node, up=False)
    try:
        machines.cluster.kubectl("delete", "pod", pod, "--force", "--grace-period=0")
        silent = {
            "metadata": {
                "labels": {"kubevirt.io/schedulable": "false"},
                "annotations": {"kubevirt.io/heartbeat": '"2020-01-01T00:00:00Z"'},
            }
        }
        machines.cluster.kubectl("patch", "node", node, "--type=merge", "-p", json.dumps(silent))
        time.sleep(4)
        assert machines.phase("lost") == "Running"
        machines.cluster.kubectl("delete", "-n", "kubevirt", "daemonset", "second")
        machines.wait(lambda: machines.phase("lost") == "Failed", "the fail-over")
        assert machines.vmi("lost")["status"]["reason"] == "NodeUnresponsive"
    finally:
        machines.cluster.set_kubelet(node, up=True)
