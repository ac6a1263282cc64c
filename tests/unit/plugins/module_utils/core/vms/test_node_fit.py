# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.observed.nodes import Node
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms.launcher_pods import LauncherPod
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms.mapping import Table
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms.node_fit import (
    KubeletRestarts,
    restart_findings,
)
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders, fake_migrations, launcher_cases

SELECTOR = {"deviceNames": [launcher_cases.A100]}
ON_GPU_NODES = launcher_cases.required(launcher_cases.term(launcher_cases.expression("hw", "In", "gpu")))


def node(name, owner=None, **labels):
    return Node.from_object(builders.node(name, owner, labels={"kubernetes.io/arch": "amd64", **labels}))


NODES = {found.name: found for found in (node("gpu-0", "gpu", hw="gpu"), node("rest"))}


def table(**fields):
    return Table.for_pools([builders.pool("gpu", selector=SELECTOR, **fields)])


def vm(name="vm", on="rest", phase="Running", **fields):
    pod = fake_migrations.vm(name, on, **fields)[1]
    pod["status"] = {"phase": phase}
    return LauncherPod.from_object(pod)


def found(*pods, of=None, nodes=NODES):
    return [(each.code, each.severity) for each in restart_findings(of or table(), nodes, pods)]


@pytest.mark.parametrize(
    "pod",
    [
        vm(),
        vm(on="gpu-0", devices={launcher_cases.A100: 1}),
        vm(on="", phase="Pending"),
        vm(on="gpu-0", phase="Succeeded"),
        vm(on="rest", devices={launcher_cases.A100: 1}),
    ],
    ids=["off the pool", "in its pool", "waiting", "ended", "not yet in its pool"],
)
def test_nothing_to_say(pod):
    assert found(pod) == []


def test_a_vm_on_a_pools_node_starts_elsewhere_next_time():
    (finding,) = restart_findings(table(), NODES, [vm("guest", on="gpu-0")])
    assert (finding.code, finding.severity) == ("rescheduled_on_restart", "note")
    assert finding.message.startswith("1 VM runs on nodes of pool gpu without belonging to it (plain/guest)")


def test_unless_the_pool_allows_it():
    assert found(vm(on="gpu-0"), of=table(unmatched="allow")) == []


@pytest.mark.parametrize(
    "asks", [{"node_selector": {"hw": "gpu"}}, {"affinity": ON_GPU_NODES}], ids=["node_selector", "affinity"]
)
@pytest.mark.parametrize("where", [{"on": "gpu-0"}, {"on": "", "phase": "Pending"}], ids=["running", "waiting"])
def test_a_vm_that_selects_only_pool_nodes_could_start_nowhere(asks, where):
    (finding,) = restart_findings(table(), NODES, [vm("guest", **where, **asks)])
    assert (finding.code, finding.severity) == ("unschedulable_on_restart", "warning")
    assert "1 VM belongs to no pool" in finding.message
    assert "allow only nodes of gpu (plain/guest)" in finding.message


def test_a_pools_vm_that_fits_none_of_its_nodes():
    pinned = vm("guest", devices={launcher_cases.A100: 1}, node_selector={"kubernetes.io/hostname": "rest"})
    (finding,) = restart_findings(table(), NODES, [pinned])
    assert finding.code == "unschedulable_on_restart"
    assert "1 VM belongs to pool gpu" in finding.message
    assert "only those of primary (plain/guest)" in finding.message


def test_a_pools_vm_while_the_pool_has_no_node():
    """Its own settings are not the reason."""
    pod = vm("guest", devices={launcher_cases.A100: 1})
    (finding,) = restart_findings(table(), {"rest": NODES["rest"]}, [pod])
    assert finding.code == "unschedulable_on_restart"
    assert finding.message.startswith("1 VM belongs to pool gpu, which has no node after this run (plain/guest): ")


def test_the_owners_that_nodes_will_have_count():
    nodes = {"gpu-0": node("gpu-0", None, hw="gpu"), "rest": node("rest")}
    assert found(vm(on="gpu-0"), nodes=nodes) == []
    coming = {**nodes, "gpu-0": nodes["gpu-0"].owned_by("gpu")}
    assert found(vm(on="gpu-0"), nodes=coming) == [("rescheduled_on_restart", "note")]


def test_what_an_earlier_policy_asked_for_is_not_the_vms_own():
    earlier = launcher_cases.required(
        launcher_cases.term(launcher_cases.expression("virtpools.io/pool", "In", "gpu")),
    )
    assert found(vm(on="gpu-0", affinity=earlier)) == [("rescheduled_on_restart", "note")]


def test_a_pools_tolerations_count_for_its_vms():
    taint = {"key": "gpu", "effect": "NoSchedule"}
    tainted = {**NODES, "gpu-0": Node.from_object(builders.node("gpu-0", "gpu", taints=[taint]))}
    pod = vm(devices={launcher_cases.A100: 1}, architecture=None)
    assert found(pod, nodes=tainted) == [("unschedulable_on_restart", "warning")]
    tolerant = table(tolerations=[{"key": "gpu", "operator": "Exists"}])
    assert found(pod, of=tolerant, nodes=tainted) == []


def test_of_many_only_a_few_are_named():
    (finding,) = restart_findings(table(), NODES, (vm(f"vm-{number}", on="gpu-0") for number in range(12)))
    assert finding.message.startswith("12 VMs ")
    assert "(plain/vm-0, plain/vm-1, plain/vm-2, plain/vm-3, plain/vm-4 and 7 more)" in finding.message


# Kubelets that restart ----------------------------------------------------------------------------------------------


def ending(*pods, after):
    """The finding on VMs that the run leaves on nodes whose kubelets would end them."""
    restarts = KubeletRestarts(NODES, {**NODES, **after})
    assert list(restarts.passing(pods)) == list(pods)
    return [each.message for each in restarts.findings()]


def owned(name, owner, *more, on):
    """A VM whose pod asks for nodes of this owner, and has these terms besides."""
    operator = {"operator": "DoesNotExist"} if owner is None else {"operator": "In", "values": [owner]}
    terms = [{"matchExpressions": [{"key": "virtpools.io/pool", **operator}]}, *more]
    return vm(name, on, affinity=launcher_cases.required(*terms))


def stay(owner):
    key = f"until.virtpools.io/{owner}"
    return {"matchExpressions": [{"key": key, "operator": "Gt", "values": ["1764081000"]}]}


TAKEN = {"rest": NODES["rest"].owned_by("gpu")}
GIVEN_BACK = {"gpu-0": NODES["gpu-0"].owned_by("primary")}


def test_pods_of_an_earlier_policy_are_named():
    (message,) = ending(owned("old", None, on="rest"), owned("new", None, stay("primary"), on="rest"), after=TAKEN)
    assert message.startswith("1 VM runs on nodes that get another owner")
    assert "plain/old" in message
    assert "plain/new" not in message
    assert ending(owned("old", "gpu", on="gpu-0"), after=GIVEN_BACK)


def test_vms_that_no_kubelet_would_end_are_not_named():
    assert ending(vm(on="rest"), owned("stays", None, on="rest"), after=GIVEN_BACK) == []
    assert ending(owned("new", "gpu", stay("gpu"), on="gpu-0"), after=GIVEN_BACK) == []


def test_vms_of_no_pool_may_stay_where_the_pool_let_them_in():
    guest = owned("guest", "gpu", stay("primary"), on="gpu-0")
    assert ending(guest, after=GIVEN_BACK) == []
