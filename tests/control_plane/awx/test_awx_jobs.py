# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""The example project as AWX runs it: ansible-runner, a private directory for each job, and artifacts that become extra variables.

AWX itself cannot be had here. What a job gets, and what becomes of it, is as a real AWX 24.6 did it: the environment of its
credential, variables of the job, an inventory that is a program, the project as working directory.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.virtpools.kubevirt.plugins.plugin_utils.awx_objects import LIST_SOURCES
from local_cluster import Fleet, LocalCluster, Nodes
from playbooks import ANSIBLE_PLAYBOOK, Account

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples"
SURVEYS = ROOT / "roles" / "awx" / "vars" / "main" / "surveys.yml"
POOLS = [
    {
        "name": "gpu",
        "nodeSelector": {"accelerator": "a100"},
        "virtHandlerImage": "registry.example/virt-handler:v1.9.0-gpu",
    }
]
ALICE = {"awx_job_template_name": "pools rollout", "awx_user_name": "alice"}


@dataclass
class Job:
    """A job that has ended, or that runs."""

    number: int
    folder: Path
    process: subprocess.Popen[str]

    @property
    def events(self) -> list[dict[str, Any]]:
        files = (self.folder / "artifacts" / str(self.number) / "job_events").glob("*-*.json")
        return [json.loads(file.read_text("utf-8")) for file in files if not file.name.startswith(".")]

    def wait(self) -> Job:
        self.process.wait(600)
        return self

    @property
    def output(self) -> str:
        return (self.folder / "artifacts" / str(self.number) / "stdout").read_text("utf-8")

    @property
    def text(self) -> str:
        """The output with its lines joined: terminals break them."""
        return " ".join(self.output.split())

    @property
    def artifacts(self) -> dict[str, Any]:
        """What set_stats published."""
        (stats,) = (event for event in self.events if event["event"] == "playbook_on_stats")
        return dict(stats["event_data"].get("artifact_data") or {})

    def succeeded(self) -> Job:
        assert self.process.returncode == 0, self.output
        return self

    def failed(self) -> str:
        assert self.process.returncode != 0, self.output
        assert "Traceback" not in self.output
        return self.text


@dataclass
class Awx:
    """Starts jobs of the example project. ``hosts`` are the inventory's, with their variables."""

    folder: Path
    environment: dict[str, str]
    hosts: dict[str, dict[str, Any]] = field(default_factory=lambda: {"east": {}})
    jobs: list[Job] = field(default_factory=list)

    def start(self, playbook: str, *, check: bool = False, **variables: Any) -> Job:
        number = len(self.jobs) + 1
        folder = self.folder / f"job-{number}"
        shutil.copytree(EXAMPLES, folder / "project")
        (folder / "project/pools.yml").write_text(yaml.safe_dump({"virtpools_pools": POOLS}), "utf-8")
        inventory, env = folder / "inventory", folder / "env"
        inventory.mkdir()
        env.mkdir()
        # AWX has read the inventory of the project, with group_vars, and gives it to jobs as a program.
        shared = yaml.safe_load((EXAMPLES / "inventory/group_vars/all.yml").read_text("utf-8"))
        content = {"all": {"hosts": list(self.hosts), "vars": shared}, "_meta": {"hostvars": self.hosts}}
        program = inventory / "hosts"
        program.write_text(f"#!/bin/sh\ncat <<'END'\n{json.dumps(content)}\nEND\n", "utf-8")
        program.chmod(0o755)
        extra = {"awx_job_id": number, "tower_job_id": number, **ALICE, **variables}
        (env / "extravars").write_text(json.dumps(extra), "utf-8")
        (env / "settings").write_text(json.dumps({"idle_timeout": 600, "pexpect_use_poll": True}), "utf-8")
        (env / "cmdline").write_text(f"-u root{' --check --diff' if check else ''}", "utf-8")
        runner = Path(ANSIBLE_PLAYBOOK).with_name("ansible-runner")
        command = [str(runner), "run", str(folder), "-p", f"{playbook}.yml", "-i", str(number), "-q"]
        environment = {key: os.environ[key] for key in ("HOME", "LANG", "XDG_CACHE_HOME") if key in os.environ}
        environment |= {"PATH": f"{runner.parent}{os.pathsep}{os.environ['PATH']}", "NO_PROXY": "127.0.0.1"}
        environment |= {"JOB_ID": str(number), **self.environment}
        process = subprocess.Popen(
            command, cwd=folder, env=environment, text=True, stdout=subprocess.DEVNULL, start_new_session=True
        )
        self.jobs.append(Job(number, folder, process))
        return self.jobs[-1]

    def run(self, playbook: str, *, check: bool = False, **variables: Any) -> Job:
        return self.start(playbook, check=check, **variables).wait()


def _credential(cluster: LocalCluster) -> dict[str, str]:
    """What AWX's bearer token credential puts into the environment."""
    kubeconfig = yaml.safe_load(Account.make(cluster, "writer").kubeconfig.read_text("utf-8"))
    return {
        "K8S_AUTH_HOST": kubeconfig["clusters"][0]["cluster"]["server"],
        "K8S_AUTH_API_KEY": kubeconfig["users"][0]["user"]["token"],
        "K8S_AUTH_VERIFY_SSL": "False",
    }


def _fleet() -> Fleet:
    gpus = Nodes(prefix="gpu-", count=2, labels={"accelerator": "a100"})
    return Fleet.from_groups(gpus, Nodes(prefix="plain-", count=2))


@pytest.fixture(scope="module")
def east(start_cluster: Any) -> LocalCluster:
    return start_cluster(_fleet())


@pytest.fixture(scope="module")
def west(start_cluster: Any) -> LocalCluster:
    return start_cluster(_fleet())


@pytest.fixture
def awx(tmp_path: Path, east: LocalCluster) -> Awx:
    return Awx(tmp_path, _credential(east))


def answered(playbook: str, **answers: Any) -> dict[str, Any]:
    """What AWX makes of these answers to the survey of a playbook: a question that nobody answers has its default, or is empty."""
    survey = yaml.safe_load(SURVEYS.read_text("utf-8"))["__awx_surveys"][playbook]["spec"]
    untouched = {question["variable"]: question.get("default", "") for question in survey}
    assert answers.keys() <= untouched.keys()
    return {**untouched, **answers}


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory, east: LocalCluster) -> Job:
    """Return a job that planned the first run. Nobody answered its survey, which changes nothing."""
    awx = Awx(tmp_path_factory.mktemp("plan"), _credential(east))
    return awx.run("plan", **answered("plan")).succeeded()


def _label(cluster: LocalCluster, *change: str) -> None:
    cluster.kubectl("label", "node", *change)


def test_a_required_approval_is_the_digest_of_the_job_before(awx: Awx, east: LocalCluster, planned: Job) -> None:
    error = awx.run("site", virtpools_require_approval="true").failed()
    assert "no plan of site was approved for east" in error
    entry = planned.artifacts["virtpools_plan"]["east"]["site"]
    assert (entry["pending"], entry["nodes"], entry["errors"]) == (True, 2, 0)
    assert "2 nodes in 2 batches (primary -> gpu: 2)" in entry["summary"]
    assert entry["server"] == awx.environment["K8S_AUTH_HOST"]
    assert len(entry["uid"]) == 36
    # Somebody relabels a node between the plan and its approval.
    _label(east, "plain-00", "accelerator=a100")
    error = awx.run(
        "rollout", virtpools_require_approval="true", virtpools_waves="[{count: 1}]", **planned.artifacts
    ).failed()
    assert "The plan is not the approved one: " in error
    assert "the owners of nodes" in error
    assert "virtpools.io/pool" not in east.kubectl("get", "nodes", "-o", "yaml")
    _label(east, "plain-00", "accelerator-")


def test_what_was_approved_is_carried_out_and_says_who_ran_it(awx: Awx, east: LocalCluster, planned: Job) -> None:
    marker = east.audit_marker()
    done = awx.run("site", virtpools_require_approval="true", **planned.artifacts).succeeded()
    result = done.artifacts["virtpools_result"]["east"]
    digest = planned.artifacts["virtpools_plan"]["east"]["site"]["digest"]
    assert (result["run"], result["digest"], result["changed"], result["failed"]) == ("site", digest, True, False)
    assert (result["nodes"], result["done"], result["stop"], result["later"]) == (2, 2, "", [])
    assert result["summary"] == "completed, with 2 nodes changed"
    history = east.kubectl("get", "configmap", "-n", "kubevirt", "virtpools-history", "-o", "yaml")
    assert f"AWX job {done.number} of template pools rollout, started by alice" in " ".join(history.split())
    agents = {entry["userAgent"] for entry in east.requests(marker, Account.make(east, "writer").user)}
    assert f"virtpools.kubevirt (AWX job {done.number} of template pools rollout, started by alice)" in agents
    again = awx.run("site", virtpools_require_approval="true", **planned.artifacts).succeeded()
    assert again.artifacts["virtpools_result"]["east"]["changed"] is False
    assert awx.environment["K8S_AUTH_API_KEY"] not in done.output


def test_pools_lists_and_switches_come_from_a_survey(awx: Awx, planned: Job) -> None:
    """Pools as YAML text in spite of the inventory's file, items one per line, and switches as text."""
    text = yaml.safe_dump([*POOLS, {**POOLS[0], "name": "fpga", "nodeSelector": {"accelerator": "fpga"}}])
    asked = awx.run("plan", **answered("plan", virtpools_pools=text, virtpools_prune="false")).succeeded()
    assert "Pool fpga gets no node" in asked.text
    assert "fpga" not in planned.text
    error = awx.run("remove", check=True, **answered("remove", virtpools_remove="fgpa\nalso-misspelt")).failed()
    assert "fgpa" in error
    assert "gpu" in error.partition("fgpa")[2]


def test_verify_knows_whose_list_the_cluster_has(awx: Awx) -> None:
    """The project's list is not the one that was applied, as after an answer of somebody, or after a commit."""
    in_project = yaml.safe_dump([{**POOLS[0], "virtHandlerImage": "registry.example/virt-handler:v1.9.0-next"}])
    error = awx.run("verify", virtpools_pools=in_project).failed()
    assert "The given list is not the one that the cluster has, which AWX job" in error
    assert "of template pools rollout, started by alice applied on" in error
    assert "pool gpu has another virtHandlerImage." in error
    assert "daemonset_drift" not in error
    # Where lists come from answers, the templates hide the project's.
    hidden = dict.fromkeys(LIST_SOURCES, "")
    assert "Everything is in order" in awx.run("verify", **hidden).succeeded().text
    assert "No pool list is given" in awx.run("plan", **hidden).failed()


def test_a_rollback_and_a_removal_have_plans_of_their_own(awx: Awx, east: LocalCluster, planned: Job) -> None:
    """What was approved for one kind of run is no approval of another."""
    error = awx.run("remove", virtpools_remove="all", virtpools_require_approval="true", **planned.artifacts).failed()
    assert "no plan of remove was approved for east" in error
    removal = awx.run("remove", check=True, virtpools_remove="all").succeeded()
    entry = removal.artifacts["virtpools_plan"]["east"]["remove"]
    assert entry["nodes"] == 2
    done = awx.run("remove", virtpools_remove="all", virtpools_require_approval="true", **removal.artifacts).succeeded()
    assert done.artifacts["virtpools_result"]["east"]["digest"] == entry["digest"]
    assert "virtpools.io/pool" not in east.kubectl("get", "nodes", "-o", "yaml")


@pytest.mark.thorough  # starts a second cluster
def test_two_clusters_have_a_digest_each(tmp_path: Path, east: LocalCluster, west: LocalCluster) -> None:
    clusters = {"east": east, "west": west}
    hosts = {
        name: {"virtpools_kubeconfig": str(Account.make(each, "writer").kubeconfig)} for name, each in clusters.items()
    }
    awx = Awx(tmp_path, {}, hosts)
    planned = awx.run("plan").succeeded()
    plans = planned.artifacts["virtpools_plan"]
    assert {name: plans[name]["site"]["server"] for name in plans} == {
        name: _credential(each)["K8S_AUTH_HOST"] for name, each in clusters.items()
    }
    _label(west, "plain-01", "accelerator=a100")
    done = awx.run("site", virtpools_require_approval="true", **planned.artifacts)
    assert "The plan is not the approved one" in done.failed()
    owned = {
        name: each.kubectl("get", "nodes", "-l", "virtpools.io/pool", "-o", "name") for name, each in clusters.items()
    }
    assert owned == {"east": "node/gpu-00\nnode/gpu-01\n", "west": ""}


@pytest.mark.thorough  # test_interruption kills runs, too
def test_a_job_that_is_cancelled_is_continued_by_the_next(awx: Awx, east: LocalCluster) -> None:
    """Cancel is SIGKILL of all of the job's processes."""
    awx.run("remove", virtpools_remove="all").succeeded()
    for node in ("gpu-00", "gpu-01"):
        east.set_node_annotation(node, "agent.virtpools.io/stop-seconds", "5")  # time to cancel the job half-way
    job = awx.start("site")

    def in_transit() -> bool:
        assert job.process.poll() is None, job.output
        return bool(east.get("nodes", "-l", "virtpools.io/pool=in_transit")["items"])

    east.wait(in_transit, 120, "a node in transit")
    for process in _family(job.process.pid):
        os.kill(process, signal.SIGKILL)
    awx.run("site").succeeded()
    assert east.kubectl("get", "nodes", "-l", "virtpools.io/pool=gpu", "-o", "name").count("node/gpu-") == 2


def _family(process: int) -> list[int]:
    """The process and all that it started, which in AWX end together with the job's container."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text("utf-8").split()
    return [process, *(each for child in children for each in _family(int(child)))]
