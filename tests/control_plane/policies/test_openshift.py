# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""Runs where SecurityContextConstraints decide on pods. A policy plays those that matter here. The tests run in order."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from local_cluster import ClusterError, Fleet, LocalCluster, Nodes
from scenario import NAMESPACE, Object, Scenario, pool

pytestmark = pytest.mark.thorough  # a policy plays OpenShift's admission

GPU = pool(
    "gpu",
    "gpu",
    virtLauncherImage="registry.example/virt-launcher:v1.9.0-gpu",
    selector={"vmLabels": {"matchLabels": {"workload": "gpu"}}},
    imagePullSecrets=[{"name": "registry"}],
)
"""With a pull secret, so that a run also starts a pod as a VM's would be started."""
CONSTRAINTS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "securitycontextconstraints.security.openshift.io"},
    "spec": {
        "group": "security.openshift.io",
        "names": {"kind": "SecurityContextConstraints", "plural": "securitycontextconstraints"},
        "scope": "Cluster",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                },
            }
        ],
    },
}
RESTRICTED = "!('runAsUser' in c) && (!('seccompProfile' in c) || c.seccompProfile.type == 'RuntimeDefault')"
HANDLER = "!('seccompProfile' in c)"
REFUSAL = "unable to validate against any security context constraint"


def constraints(name: str, account: str, allowed: str) -> list[Object]:
    """Return a policy that refuses pods of an account in KubeVirt's namespace unless their security contexts are allowed."""
    contexts = (
        "[object.spec.?securityContext.optMap(c, dyn(c)).orValue(dyn({}))]"
        " + object.spec.containers.map(each, each.?securityContext.optMap(c, dyn(c)).orValue(dyn({})))"
    )
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [rule]},
        "matchConditions": [
            {
                "name": "account",
                "expression": f"object.metadata.namespace == '{NAMESPACE}'"
                f" && object.spec.serviceAccountName == '{account}'",
            }
        ],
        "validations": [
            {"expression": f"({contexts}).all(c, {allowed})", "message": REFUSAL, "reason": "Forbidden"},
        ],
    }
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": name}}
    binding = {"policyName": name, "validationActions": ["Deny"]}
    return [
        {**kind, "kind": "ValidatingAdmissionPolicy", "spec": spec},
        {**kind, "kind": "ValidatingAdmissionPolicyBinding", "spec": binding},
    ]


class OpenShiftScenario(Scenario):
    """A cluster that looks like OpenShift to a run."""

    def refuse(self, policy: list[Object], account: str, context: Object) -> None:
        """Put a policy in force, and wait until the API server refuses a pod of this account with this security context."""
        for obj in policy:
            self.apply(obj)
        containers = [{"name": "a", "image": "registry.example/a"}]
        spec = {"serviceAccountName": account, "securityContext": context, "containers": containers}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": NAMESPACE}, "spec": spec}

        def refused() -> bool:
            try:
                self.cluster.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(pod))
            except ClusterError as error:
                return REFUSAL in str(error)
            return False

        self.cluster.wait(refused, 30, "the API server to know the policy")


@pytest.fixture(scope="module")
def scenario(start_cluster: Callable[..., LocalCluster]) -> OpenShiftScenario:
    fleet = Fleet.from_groups(
        Nodes(prefix="gpu-", count=1, labels={"accelerator": "gpu"}), Nodes(prefix="plain-", count=1)
    )
    scenario = OpenShiftScenario(start_cluster(fleet))
    for name in ("registry", "launchers"):
        scenario.cluster.kubectl("create", "secret", "generic", "-n", NAMESPACE, name, "--from-literal=a=b")
    scenario.apply(CONSTRAINTS)
    profile: dict[str, Any] = {"seccompProfile": {"type": "RuntimeDefault"}}
    scenario.refuse(constraints("restricted-v2", "default", RESTRICTED), "default", {"runAsUser": 107})
    scenario.refuse(constraints("kubevirt-handler", "kubevirt-handler", HANDLER), "kubevirt-handler", profile)
    return scenario


def test_pods_of_a_run_fit_the_constraints(scenario: OpenShiftScenario) -> None:
    marker = scenario.cluster.audit_marker()
    pools = [{**GPU, "virtLauncherPullSecrets": [{"name": "launchers"}]}]
    scenario.site(pools).succeeded()
    assert scenario.owners() == {"gpu-00": "gpu"}
    pods = [write for write in scenario.writes(marker, "pods") if "create" in write]
    assert {purpose for purpose in ("pull", "start") for write in pods if f"virtpools-{purpose}-" in write} == {
        "pull",
        "start",
    }, pods


def test_a_refused_pod_is_no_missing_right(scenario: OpenShiftScenario) -> None:
    policy = constraints("own", "kubevirt-handler", "!('runAsUser' in c)")
    scenario.refuse(policy, "kubevirt-handler", {"runAsUser": 107})
    pools = [{**GPU, "virtHandlerImage": f"{GPU['virtHandlerImage']}-2"}]
    error = scenario.site(pools).refused()
    assert f"denied request: {REFUSAL}" in error
    assert "Let the ServiceAccount of such pods use SecurityContextConstraints that allow it." in error
