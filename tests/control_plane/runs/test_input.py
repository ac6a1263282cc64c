# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""Bad input fails the run with one clear message that names the pool, the field and the fix, and changes nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import playbooks
from local_cluster import Fleet, LocalCluster, Nodes
from playbooks import Account, Run

Pool = dict[str, Any]

GPU: Pool = {
    "name": "gpu",
    "nodeSelector": {"accelerator": "a100"},
    "virtHandlerImage": "registry.example/virt-handler:v1.9.0-gpu",
}
OTHER: Pool = {**GPU, "name": "other", "nodeSelector": {"accelerator": "l40s"}}
TEN_MEGABYTES = 10 * 1024 * 1024


class Site:
    """A cluster that no run here may change, and the user who runs playbooks on it."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.writer = Account.make(cluster, "writer")

    def run(self, pools: Any = None, playbook: str = "site", *arguments: str, **variables: Any) -> Run:
        """Run a playbook that must leave the cluster as it is."""
        marker = self.cluster.audit_marker()
        given = variables if pools is None else {"virtpools_pools": pools, **variables}
        ended = playbooks.run(playbook, self.writer.kubeconfig, None, *arguments, timeout=120, **given)
        assert self.cluster.writes(marker, self.writer.user) == []
        return ended

    def refusal(self, pools: Any = None, **variables: Any) -> str:
        """Return the one message of a run that was refused."""
        ended = self.run(pools, **variables)
        message = ended.refused()
        assert "Traceback" not in ended.stdout + ended.stderr
        assert "does not expect" not in message, "the error that no code expects"
        return message

    def apply(self, obj: dict[str, Any]) -> None:
        self.cluster.apply(obj)


@pytest.fixture(scope="module")
def site(start_cluster: Any) -> Site:
    fleet = Fleet.from_groups(
        Nodes(name="a100", labels={"accelerator": "a100", "zone": "one"}),
        Nodes(name="l40s", labels={"accelerator": "l40s", "zone": "one"}),
        Nodes(prefix="node-", count=2),
    )
    return Site(start_cluster(fleet))


def _gpu(**fields: Any) -> list[Pool]:
    """Return the good pool with other fields; None removes a field."""
    return [{field: value for field, value in {**GPU, **fields}.items() if value is not None}]


# make test tries these: each is a run of a playbook, and unit tests refuse the same input.
OFTEN = ("bool for a label", "empty list", "0", "virtHandlerPools", "site")


def _case(*values: Any, name: str) -> Any:
    return pytest.param(*values, id=name, marks=[] if name in OFTEN else [pytest.mark.thorough])


BAD_POOLS = {
    "unknown field": (_gpu(nodeSelectors={"a": "b"}), 'Pool gpu has an unknown field "nodeSelectors"; perhaps you mean nodeSelector.'),
    "mapping for a list": ({"gpu": GPU}, "virtpools_pools is a mapping; give a list of pools."),
    "text for a list": ("gpu", 'virtpools_pools is "gpu"; give a list of pools.'),
    "nothing for a pool": ([None], "virtpools_pools[0] is null; give a mapping with name, nodeSelector and so on."),
    "number for a name": (_gpu(name=7), "virtpools_pools[0]: name is 7, which YAML reads as a number; put it in quotes."),
    "bool for a label": (
        _gpu(nodeSelector={"gpu": True}),
        "Pool gpu: nodeSelector[gpu] is true, which YAML reads as true or false; put what you mean in quotes.",
    ),
    "empty image": (_gpu(virtHandlerImage=""), 'Pool gpu: virtHandlerImage is "", which is empty; name an image'),
    "empty selector": (_gpu(nodeSelector={}), "Pool gpu: nodeSelector is an empty mapping; give at least one label with its value."),
    "empty list": ([], "virtpools_pools is an empty list, which is refused because a mistake looks the same; give at least one pool."),
}  # fmt: skip
"""What Ansible could change on its way to the module: types, and what is empty. Unit tests have all other mistakes."""


@pytest.mark.parametrize(("pools", "message"), [_case(*BAD_POOLS[name], name=name) for name in BAD_POOLS])
def test_a_bad_pool_list_is_refused(site: Site, pools: Any, message: str) -> None:
    said = site.refusal(pools)
    assert message in said
    assert "\n" not in said, "one problem, one message"


def test_all_problems_are_reported_at_once(site: Site) -> None:
    said = site.refusal([*_gpu(virtHandlerImage=None), {**OTHER, "nodeSelector": {}, "colour": "red"}])
    assert len(said.splitlines()) == 3
    for part in (
        "Pool gpu has no image",
        "Pool other: nodeSelector is an empty",
        'Pool other has an unknown field "colour"',
    ):
        assert part in said


# Where the list comes from ----------------------------------------------------------------------------------------


@pytest.mark.thorough  # tests of pool_sources have it
def test_no_pool_list_is_not_an_empty_one(site: Site) -> None:
    assert site.refusal().startswith("No pool list is given; set virtpools_pools")


@pytest.mark.thorough  # tests of pool_sources have it
def test_two_pool_lists_are_refused(site: Site) -> None:
    said = site.refusal(_gpu(), virtpools_pools_manifest="/nowhere.yml")
    assert "is given more than once (pools, pools_manifest); keep one of them." in said


@pytest.mark.thorough  # tests of pool_sources have it
def test_a_missing_manifest_is_named(site: Site, tmp_path: Path) -> None:
    said = site.refusal(virtpools_pools_manifest=str(tmp_path / "none.yml"))
    assert f"The pool manifest {tmp_path}/none.yml cannot be read" in said
    assert "No such file" in said


@pytest.mark.thorough  # tests of pool_sources have it
@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(b"", "pools.yml; give the variable virtpools_pools, ", id="empty"),
        pytest.param(b"pools: " + b"[" * 5000, "is not valid YAML", id="deep"),
        pytest.param(b"# " + b"x" * TEN_MEGABYTES, "is larger than 4 MiB; is it the right file?", id="ten megabytes"),
    ],
)
def test_a_bad_manifest_is_refused(site: Site, tmp_path: Path, content: bytes, message: str) -> None:
    manifest = tmp_path / "pools.yml"
    manifest.write_bytes(content)
    said = site.refusal(virtpools_pools_manifest=str(manifest))
    assert message in said
    assert len(said) < 1000


@pytest.mark.thorough  # tests of the model have it
def test_ten_megabytes_in_a_field_are_refused_in_a_short_message(site: Site) -> None:
    said = site.refusal(_gpu(virtHandlerImage="x" * TEN_MEGABYTES))
    assert "Pool gpu: virtHandlerImage" in said
    assert "at most 512 are allowed" in said
    assert len(said) < 500


@pytest.mark.thorough  # tests of forms have it
def test_a_list_of_too_many_pools_is_refused(site: Site) -> None:
    pools = [{**GPU, "name": f"pool-{number}", "nodeSelector": {"kind": str(number)}} for number in range(1001)]
    assert "has 1001 entries, at most 1000 are allowed; is it the right list?" in site.refusal(pools)


KUBEVIRT = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "KubeVirt",
    "metadata": {"name": "kubevirt", "namespace": "kubevirt"},
}
PLAIN = {field: GPU[field] for field in ("name", "nodeSelector", "virtHandlerImage")}
SELECTING = {**PLAIN, "selector": {"vmLabels": {"matchLabels": {"workload": "gpu"}}}}
WORKER_POOL = {
    "apiVersion": "worker.kubevirt.io/v1alpha1",
    "kind": "WorkerPool",
    "metadata": {"name": "gpu"},
    "spec": {key: value for key, value in SELECTING.items() if key != "name"},
}
AIE_RULE = {
    "name": "gpu",
    "image": "registry.example/virt-launcher:v1.9.0-gpu",
    "selector": {"deviceNames": ["nvidia.com/A100"]},
    "nodeSelector": {"matchLabels": GPU["nodeSelector"]},
}
AIE = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "kubevirt-aie-launcher-config", "namespace": "kubevirt"},
    "data": {"config.yaml": json.dumps({"rules": [AIE_RULE]})},
}
MANIFESTS = {
    "virtpools": {"virtpools_pools": [GPU]},
    "additionalVirtHandlers": {**KUBEVIRT, "spec": {"additionalVirtHandlers": [PLAIN]}},
    "virtHandlerPools": {**KUBEVIRT, "spec": {"virtHandlerPools": [SELECTING]}},
    "workerPools": {**KUBEVIRT, "spec": {"workerPools": [SELECTING]}},
    "WorkerPool": WORKER_POOL,
    "kubevirt-aie-launcher-config": AIE,
}


@pytest.mark.parametrize("dialect", [_case(dialect, name=dialect) for dialect in MANIFESTS])
def test_every_dialect_can_be_a_manifest(site: Site, tmp_path: Path, dialect: str) -> None:
    manifest = tmp_path / "pools.yml"
    manifest.write_text(json.dumps(MANIFESTS[dialect]))
    plan = site.run(None, "plan", virtpools_pools_manifest=str(manifest)).succeeded().plan
    assert "DaemonSet kubevirt/virt-handler-gpu: create" in plan["changes"]
    assert "Node a100: primary -> gpu" in plan["changes"]


def _crd(group: str, version: str, kind: str, plural: str) -> dict[str, Any]:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Cluster",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [{"name": version, "served": True, "storage": True, "schema": schema}],
        },
    }


@pytest.mark.thorough  # every run without virtpools_mode decides it; tests of operator_pools refuse it
def test_operator_pools_on_stock_kubevirt(site: Site) -> None:
    """It stands before the one that gives the cluster WorkerPool objects."""
    assert site.refusal(_gpu(unmatched="allow"), virtpools_mode="operator") == (
        "virtpools_mode is operator, but KubeVirt kubevirt/kubevirt is a build without pools of its own: its CRD "
        "kubevirts.kubevirt.io would have to have one of spec.additionalVirtHandlers, spec.virtHandlerPools, spec.workerPools, or "
        "the cluster the CRD workerpools.worker.kubevirt.io; use virtpools_mode: collection, which needs neither."
    )


def test_worker_pools_are_read_from_the_cluster(site: Site) -> None:
    asked = {"virtpools_pools_from_cluster": True, "virtpools_pools_dialect": "WorkerPool"}
    assert "has no WorkerPool to read pools from" in site.refusal(**asked)
    site.apply(_crd("worker.kubevirt.io", "v1alpha1", "WorkerPool", "workerpools"))
    site.cluster.wait(
        lambda: "workerpools" in site.cluster.kubectl("api-resources", "--api-group=worker.kubevirt.io"), 30
    )
    site.apply(
        {
            **WORKER_POOL,
            "metadata": {"name": "zeta"},
            "spec": {**WORKER_POOL["spec"], "nodeSelector": {"accelerator": "l40s"}},
        }
    )
    site.apply(WORKER_POOL)
    plan = site.run(None, "plan", **asked).succeeded().plan
    assert plan["changes"][1:] == [
        "DaemonSet kubevirt/virt-handler-gpu: create",
        "DaemonSet kubevirt/virt-handler-zeta: create",
        "MutatingAdmissionPolicy virtpools-launcher: create",
        "MutatingAdmissionPolicyBinding virtpools-launcher: create",
        "VMs that match no pool start on no node of gpu, zeta",
        "Node a100: primary -> gpu",
        "Node l40s: primary -> zeta",
        "MutatingAdmissionPolicy virtpools-launcher: update",
        "VMs that match pool gpu start with KubeVirt's own launcher image on its nodes",
        "VMs that match pool zeta start with KubeVirt's own launcher image on its nodes",
    ]


@pytest.mark.thorough  # tests of pool_sources have it
def test_the_aie_webhooks_config_map_is_read_from_the_cluster(site: Site) -> None:
    asked = {"virtpools_pools_from_cluster": True, "virtpools_pools_dialect": "kubevirt-aie-launcher-config"}
    assert "has no kubevirt-aie-launcher-config to read pools from" in site.refusal(**asked)
    site.apply({**AIE, "data": {"config.yaml": "rules: ["}})
    assert "The YAML inside the ConfigMap is not valid" in site.refusal(**asked)
    site.apply(AIE)
    assert "Node a100: primary -> gpu" in site.run(None, "plan", **asked).succeeded().plan["changes"]


@pytest.mark.thorough  # tests of pool_sources have it
def test_reading_from_the_cluster_needs_a_dialect(site: Site) -> None:
    said = site.refusal(virtpools_pools_from_cluster=True)
    assert "needs virtpools_pools_dialect to specify what to read from the cluster" in said


# Options, and lists that do not fit the cluster -------------------------------------------------------------------


@pytest.mark.parametrize("value", [_case(value, name=str(value)) for value in (0, "150%", True, [])])
def test_nonsense_for_max_unavailable_is_refused(site: Site, value: Any) -> None:
    said = site.refusal(_gpu(), virtpools_max_unavailable=value)
    assert said.startswith("virtpools_max_unavailable is ")
    assert "give a number from 1, or a percentage from 1% to 100% like 10%." in said


@pytest.mark.parametrize(
    ("variable", "value", "part"),
    [
        _case(*each, name=each[0])
        for each in (
            ("virtpools_overlap", "both", "error, first_wins"),
            ("virtpools_pools_dialect", "virtpool", "virtHandlerPools"),
            ("virtpools_prune", "perhaps", "prune"),
            ("virtpools_node_timeout", "soon", "node_timeout"),
            ("virtpools_mode", "mixed", "auto, operator, collection"),
            ("virtpools_expected_plan", "yes", "is not a plan digest; copy it from the output of the playbook plan"),
        )
    ],
)
def test_a_bad_option_is_refused(site: Site, variable: str, value: str, part: str) -> None:
    assert part in site.refusal(_gpu(), **{variable: value})


@pytest.mark.parametrize("playbook", [_case(playbook, name=playbook) for playbook in ("site", "verify")])
def test_a_misspelt_variable_is_refused(site: Site, playbook: str) -> None:
    said = site.run(_gpu(), playbook, virtpools_vm="a/b", virtpools_expectd_plan="0000").refused()
    assert "There is no variable virtpools_expectd_plan: perhaps you mean virtpools_expected_plan." in said


def test_a_file_of_variables_without_its_sign_is_refused(site: Site) -> None:
    assert "-e pools.yml sets no variable: write -e @pools.yml" in site.run(_gpu(), "site", "-e", "pools.yml").refused()


@pytest.mark.thorough  # tests of assignment have it
def test_pools_that_select_the_same_nodes(site: Site) -> None:
    both = [GPU, {**OTHER, "nodeSelector": {"zone": "one"}}]
    said = site.refusal(both)
    assert "Pools gpu, other select the same nodes (a100)" in said
    assert "virtpools_overlap: first_wins" in said
    plan = site.run(both, "plan", virtpools_overlap="first_wins").succeeded().plan
    assert plan["changes"][3:] == ["Node a100: primary -> gpu", "Node l40s: primary -> other"]
    assert "overlap_first_wins" in {finding["code"] for finding in plan["findings"]}


@pytest.mark.thorough  # tests of plan_info have it
def test_pools_may_not_leave_the_primary_without_a_node(site: Site) -> None:
    said = site.refusal(_gpu(nodeSelector={"kubernetes.io/os": "linux"}))
    assert "The pools would leave the primary virt-handler without a node" in said
    assert "keep at least one node that no pool selects" in said


@pytest.mark.thorough  # test_inventory plans with such a pool
def test_a_pool_that_selects_no_node_is_a_warning(site: Site) -> None:
    plan = site.run([GPU, {**OTHER, "nodeSelector": {"accelerator": "h100"}}], "plan").succeeded().plan
    found = {finding["code"]: finding["message"] for finding in plan["findings"]}
    assert found["pool_without_nodes"].startswith(
        "Pool other gets no node: no node has the labels that its nodeSelector"
    )
