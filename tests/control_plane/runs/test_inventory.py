# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""The clusters that a run works on: without an inventory, with one host per cluster, in AWX, from any folder."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from local_cluster import Fleet, LocalCluster, Nodes
from playbooks import ANSIBLE_PLAYBOOK, Account

EXAMPLES = Path(__file__).parents[3] / "examples"
POOLS = [
    {
        "name": "gpu",
        "nodeSelector": {"accelerator": "a100"},
        "virtHandlerImage": "registry.example/virt-handler:v1.9.0-gpu",
    }
]


@dataclass(frozen=True)
class Ended:
    """An ended run as its user sees it."""

    rc: int
    output: str


class User:
    """A user who runs ansible-playbook in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.write("pools.json", json.dumps({"virtpools_pools": POOLS}))

    def write(self, name: str, text: str) -> Path:
        file = self.folder / name
        file.write_text(text, "utf-8")
        return file

    def play(self, *arguments: str, folder: Path | None = None, **environment: str) -> Ended:
        """Run ansible-playbook with only these settings."""
        ours = {key: os.environ[key] for key in ("PATH", "HOME", "LANG", "XDG_CACHE_HOME") if key in os.environ}
        ended = subprocess.run(
            [str(ANSIBLE_PLAYBOOK), *arguments],
            cwd=folder or self.folder,
            env={**ours, "ANSIBLE_NOCOLOR": "1", "NO_PROXY": "127.0.0.1", **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        return Ended(ended.returncode, ended.stdout + ended.stderr)


@pytest.fixture
def user(tmp_path: Path) -> User:
    return User(tmp_path)


def _fleet(*accelerators: str) -> Fleet:
    gpus = (Nodes(name=f"{name}-node", labels={"accelerator": name}) for name in accelerators)
    return Fleet.from_groups(*gpus, Nodes(name="plain"))


@pytest.fixture(scope="module")
def east(start_cluster: Any) -> LocalCluster:
    cluster: LocalCluster = start_cluster(_fleet("a100"))
    return cluster


@pytest.fixture(scope="module")
def west(start_cluster: Any) -> LocalCluster:
    cluster: LocalCluster = start_cluster(_fleet("l40s"))
    return cluster


def _reader(cluster: LocalCluster) -> Account:
    return Account.make(cluster, "reader")


def _owners(cluster: LocalCluster) -> dict[str, str]:
    nodes = cluster.get("nodes", "-l", "virtpools.io/pool")["items"]
    return {node["metadata"]["name"]: node["metadata"]["labels"]["virtpools.io/pool"] for node in nodes}


def test_without_an_inventory_the_environments_cluster_is_used(east: LocalCluster, user: User) -> None:
    kubeconfig = str(_reader(east).kubeconfig)
    ended = user.play("virtpools.kubevirt.plan", "-e", "@pools.json", KUBECONFIG=kubeconfig)
    assert ended.rc == 0, ended.output
    assert "primary -> gpu: a100-node" in ended.output
    assert "localhost                  : ok=" in ended.output


def test_without_any_cluster_the_message_says_what_is_missing(user: User) -> None:
    ended = user.play("virtpools.kubevirt.plan", "-e", "@pools.json", HOME=str(user.folder))
    assert ended.rc != 0
    assert "kubeconfig" in ended.output
    assert "Traceback" not in ended.output


def test_a_kubeconfig_may_be_a_variable_and_have_contexts(east: LocalCluster, user: User) -> None:
    kubeconfig = f"virtpools_kubeconfig={_reader(east).kubeconfig}"
    arguments = ("virtpools.kubevirt.plan", "-e", "@pools.json", "-e", kubeconfig)
    ended = user.play(*arguments, "-e", f"virtpools_context={east.name}")
    assert ended.rc == 0, ended.output
    ended = user.play(*arguments, "-e", "virtpools_context=elsewhere")
    assert ended.rc != 0
    assert "elsewhere" in ended.output


def test_every_host_of_an_inventory_is_a_cluster(east: LocalCluster, west: LocalCluster, user: User) -> None:
    hosts = {
        name: {"virtpools_kubeconfig": str(Account.make(cluster, "writer").kubeconfig), "virtpools_pools": pools}
        for name, cluster, pools in (
            ("east", east, POOLS),
            ("west", west, [{**POOLS[0], "name": "l40s", "nodeSelector": {"accelerator": "l40s"}}]),
        )
    }
    user.write("clusters.yml", json.dumps({"all": {"hosts": hosts}}))
    arguments = ("-i", "clusters.yml", "virtpools.kubevirt.site")

    only = user.play(*arguments, "--limit", "localhost,west", "--check")
    assert only.rc == 0, only.output
    assert "primary -> l40s: l40s-node" in only.output
    assert "a100-node" not in only.output

    ended = user.play(*arguments)
    assert ended.rc == 0, ended.output
    assert _owners(east) == {"a100-node": "gpu"}
    assert _owners(west) == {"l40s-node": "l40s"}

    again = user.play(*arguments)
    assert again.rc == 0, again.output
    assert again.output.count("changed=0 ") == again.output.count(": ok=")


def test_one_failing_cluster_fails_the_run_but_not_the_other(
    east: LocalCluster, west: LocalCluster, user: User
) -> None:
    hosts = {
        "east": {"virtpools_kubeconfig": str(_reader(east).kubeconfig)},
        "west": {"virtpools_kubeconfig": str(user.folder / "none")},
    }
    user.write("clusters.yml", json.dumps({"all": {"hosts": hosts}}))
    ended = user.play("-i", "clusters.yml", "virtpools.kubevirt.plan", "-e", "@pools.json")
    assert ended.rc != 0
    assert "Plan digest" in ended.output
    assert "does not exist" in ended.output


def test_two_hosts_that_are_one_cluster_are_refused(east: LocalCluster, west: LocalCluster, user: User) -> None:
    accounts = {"east": east, "also-east": east, "west": west}
    hosts = {name: {"virtpools_kubeconfig": str(_reader(cluster).kubeconfig)} for name, cluster in accounts.items()}
    user.write("clusters.yml", json.dumps({"all": {"hosts": hosts}}))
    arguments = ("-i", "clusters.yml", "virtpools.kubevirt.plan", "-e", "@pools.json")
    ended = user.play(*arguments)
    assert ended.rc != 0
    text = " ".join(ended.output.split())
    assert f"The hosts east and also-east are one cluster, {_server(east)}" in text
    assert ended.output.count("Plan digest") == 1
    assert f"Cluster {_server(west)}, UID " in text
    assert user.play(*arguments, "--limit", "localhost,east,west").output.count("Plan digest") == 2


def test_a_hosts_kubeconfig_beside_a_credential_is_refused(east: LocalCluster, west: LocalCluster, user: User) -> None:
    """The credential's host would win: the host west of the inventory would be the cluster east."""
    of_east = yaml.safe_load(_reader(east).kubeconfig.read_text("utf-8"))
    environment = {
        "K8S_AUTH_HOST": _server(east),
        "K8S_AUTH_API_KEY": of_east["users"][0]["user"]["token"],
        "K8S_AUTH_VERIFY_SSL": "False",
    }
    kubeconfig = str(_reader(west).kubeconfig)
    user.write("clusters.yml", json.dumps({"all": {"hosts": {"west": {"virtpools_kubeconfig": kubeconfig}}}}))
    ended = user.play("-i", "clusters.yml", "virtpools.kubevirt.plan", "-e", "@pools.json", **environment)
    assert ended.rc != 0
    text = " ".join(ended.output.split())
    assert f"Two clusters may be meant: the option kubeconfig, {kubeconfig}, but also K8S_AUTH_HOST" in text
    assert _server(east) in text
    assert "Plan digest" not in text
    assert environment["K8S_AUTH_API_KEY"] not in ended.output


@pytest.mark.thorough  # tests of the lookup clusters refuse them, and run its playbook
@pytest.mark.parametrize(
    ("inventory", "arguments"),
    [
        pytest.param("all: {hosts: {}}", (), id="empty"),
        pytest.param("all: {hosts: {east: {}}}", ("-e", "virtpools_hosts=wset"), id="misspelt"),
    ],
)
@pytest.mark.parametrize("playbook", ["site", "plan"])
def test_an_inventory_without_the_cluster_fails(
    user: User, inventory: str, arguments: tuple[str, ...], playbook: str
) -> None:
    user.write("clusters.yml", inventory)
    ended = user.play("-i", "clusters.yml", f"virtpools.kubevirt.{playbook}", "-e", "@pools.json", *arguments)
    assert ended.rc != 0
    assert "has no host that matches" in ended.output
    assert "add a host for every cluster, or correct virtpools_hosts" in " ".join(ended.output.split())


@pytest.mark.parametrize("trust", ["authority", "none"])
def test_the_environment_of_awx_is_enough(east: LocalCluster, user: User, trust: str) -> None:
    kubeconfig = json.loads(_reader(east).kubeconfig.read_text("utf-8"))
    environment = {
        "K8S_AUTH_HOST": kubeconfig["clusters"][0]["cluster"]["server"],
        "K8S_AUTH_API_KEY": kubeconfig["users"][0]["user"]["token"],
        "HOME": str(user.folder),
    }
    arguments = ("virtpools.kubevirt.plan", "-e", "@pools.json")
    if trust == "authority":
        authority = str(east.dir / "certs" / "apiserver.crt")
        ended = user.play(*arguments, **environment, K8S_AUTH_VERIFY_SSL="True", K8S_AUTH_SSL_CA_CERT=authority)
    else:
        distrusting = user.play(*arguments, **environment, K8S_AUTH_VERIFY_SSL="True")
        assert distrusting.rc != 0
        assert "certificate" in distrusting.output.lower()
        assert environment["K8S_AUTH_API_KEY"] not in distrusting.output
        ended = user.play(*arguments, **environment, K8S_AUTH_VERIFY_SSL="False")
    assert ended.rc == 0, ended.output
    assert "Plan digest" in ended.output
    assert environment["K8S_AUTH_API_KEY"] not in ended.output


def test_a_token_that_is_not_accepted_is_reported_as_such(east: LocalCluster, user: User) -> None:
    environment = {"K8S_AUTH_HOST": f"{_server(east)}", "K8S_AUTH_API_KEY": "wrong", "K8S_AUTH_VERIFY_SSL": "False"}
    ended = user.play("virtpools.kubevirt.plan", "-e", "@pools.json", **environment)
    assert ended.rc != 0
    assert "credentials" in ended.output
    assert "Traceback" not in ended.output


@pytest.mark.thorough  # most tests here run in another folder than the collection's
def test_the_folder_does_not_matter(east: LocalCluster, user: User) -> None:
    kubeconfig = str(_reader(east).kubeconfig)
    pools = f"@{user.folder / 'pools.json'}"
    ended = user.play("virtpools.kubevirt.plan", "-e", pools, folder=Path("/"), KUBECONFIG=kubeconfig)
    assert ended.rc == 0, ended.output
    assert "Plan digest" in ended.output


def test_the_example_project_runs_in_its_folder(east: LocalCluster, user: User) -> None:
    kubeconfig = str(Account.make(east, "writer").kubeconfig)
    for playbook in ("plan.yml", "site.yml"):
        ended = user.play(playbook, "--check", folder=EXAMPLES, KUBECONFIG=kubeconfig)
        assert ended.rc == 0, ended.output
        assert "my-cluster" in ended.output
        assert "Pool gpu-a100 gets no node" in ended.output


def test_a_playbook_of_the_users_own_works_on_example_hosts(east: LocalCluster, user: User) -> None:
    ended = user.play("own.yml", folder=EXAMPLES, KUBECONFIG=str(_reader(east).kubeconfig))
    assert ended.rc == 0, ended.output
    assert "KubeVirt v1.9.0: no findings" in ended.output


def _server(cluster: LocalCluster) -> str:
    kubeconfig = json.loads(cluster.kubeconfig.read_text("utf-8"))
    return str(kubeconfig["clusters"][0]["cluster"]["server"])
