# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""The image of the execution environment, where a container engine runs: the example project in it, as AWX and as ansible-navigator
start it, on a local cluster.

It is built by execution-environment.yml on a base image of Debian's packages, since registries may be out of reach, and so may
Galaxy and, inside the engine, PyPI: the collection comes from this machine, and wheels from what pip of this machine downloads.
VIRTPOOLS_TEST_BASE_IMAGE names another base image.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import ansible_collections.kubernetes.core as kubernetes_core
import pytest
import yaml

from kind_cluster import engine, images
from local_cluster import ClusterError, Fleet, LocalCluster, Nodes
from playbooks import Account

pytestmark = [
    pytest.mark.thorough,  # builds an image
    pytest.mark.timeout(3600),
]

ROOT = Path(__file__).parents[3]
BIN = Path(sys.executable).parent
NAVIGATOR = Path(os.environ.get("VIRTPOOLS_TEST_NAVIGATOR", ROOT / ".build/navigator/bin/ansible-navigator"))
BASE_IMAGE = os.environ.get("VIRTPOOLS_TEST_BASE_IMAGE", "")
IMAGE = "virtpools-test/ee:latest"
PYTHON = "3.11"
"""The version in the base image of Debian's packages."""
ON_THE_HOSTS_NETWORK = "--network=host"
"""The cluster's API server is on this machine's loopback."""
POOLS = [
    {
        "name": "gpu",
        "nodeSelector": {"accelerator": "a100"},
        "virtHandlerImage": "registry.example/virt-handler:v1.9.0-gpu",
    }
]


def _run(*command: str | Path, cwd: Path | None = None, environment: dict[str, str] | None = None) -> str:
    """The output of a command that must succeed."""
    ended = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout
    return ended.stdout


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the image of the execution environment."""
    try:
        engine.require()
        base = BASE_IMAGE or images.make_python()
    except ClusterError as error:
        pytest.skip(f"The image of the execution environment cannot be built here. {error}")
    folder = tmp_path_factory.mktemp("image")
    definition = folder / "execution-environment.yml"
    definition.write_text(yaml.safe_dump(_definition(folder)), "utf-8")
    arguments = {"EE_BASE_IMAGE": base, "ANSIBLE_GALAXY_CLI_COLLECTION_OPTS": "--offline"}
    _run(
        *(BIN / "ansible-builder", "build", "--container-runtime", "docker", "--tag", IMAGE),
        *("--file", definition, "--context", folder / "context"),
        *(part for name, value in arguments.items() for part in ("--build-arg", f"{name}={value}")),
    )
    return IMAGE


def _definition(folder: Path) -> dict[str, Any]:
    """The project's definition, built from what this machine has."""
    definition: dict[str, Any] = yaml.safe_load((ROOT / "execution-environment.yml").read_text("utf-8"))
    dependencies = definition["dependencies"]
    python = ROOT / dependencies["python"]
    _run(
        *(BIN / "pip", "download", "--quiet", "--dest", folder / "wheels", "--only-binary", ":all:"),
        *("--python-version", PYTHON, "--requirement", python, "--constraint", ROOT / "requirements/constraints.txt"),
        *(dependencies[part]["package_pip"] for part in ("ansible_core", "ansible_runner")),
        *("bindep", "pyyaml", "packaging", "dumb-init==1.2.5"),  # what ansible-builder installs
    )
    shutil.copytree(Path(kubernetes_core.__path__[0]), folder / "kubernetes.core", symlinks=True)
    dependencies |= {
        "python": str(python),
        "galaxy": {"collections": [{"name": "/build/kubernetes.core", "type": "dir"}]},
    }
    definition["additional_build_files"] = [
        {"src": str(folder / name), "dest": name} for name in ("kubernetes.core", "wheels")
    ]
    definition["additional_build_steps"] = {
        "prepend_base": [
            "COPY _build/wheels /wheels",
            "ENV PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheels PATH=/usr/local/bin:$PATH",
        ]
    }
    # Debian has pip as a package, and no dnf; nothing of the system is to be installed.
    definition["options"] = {"skip_pip_install": True, "package_manager_path": "/usr/bin/true"}
    return definition


@pytest.fixture(scope="module")
def cluster(start_cluster: Any) -> LocalCluster:
    return start_cluster(
        Fleet.from_groups(
            Nodes(prefix="gpu-", count=2, labels={"accelerator": "a100"}), Nodes(prefix="plain-", count=1)
        )
    )


@pytest.fixture
def project(tmp_path: Path, cluster: LocalCluster) -> Path:
    """Return the example project as AWX checks it out, with the collection, and this cluster in its inventory."""
    folder = tmp_path / "project"
    shutil.copytree(ROOT / "examples", folder)
    (folder / "pools.yml").write_text(yaml.safe_dump({"virtpools_pools": POOLS}), "utf-8")
    collection = folder / "collections/ansible_collections/virtpools/kubevirt"
    for part in ("galaxy.yml", "meta", "playbooks", "plugins", "roles"):
        copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
        collection.mkdir(parents=True, exist_ok=True)
        copy(ROOT / part, collection / part)
    shutil.copy(Account.make(cluster, "writer").kubeconfig, folder / "kubeconfig")
    hosts = {"east": {"virtpools_kubeconfig": "{{ ansible_config_file | dirname }}/kubeconfig"}}
    (folder / "inventory/clusters.yml").write_text(yaml.safe_dump({"all": {"hosts": hosts}}), "utf-8")
    return folder


def _owned(cluster: LocalCluster) -> str:
    return cluster.kubectl("get", "nodes", "-l", "virtpools.io/pool=gpu", "-o", "name")


def test_the_image_has_the_tested_versions(image: str) -> None:
    installed = json.loads(engine.run("run", "--rm", image, "python3", "-m", "pip", "list", "--format", "json"))
    versions = {each["name"].lower(): each["version"] for each in installed}
    core = yaml.safe_load((ROOT / "execution-environment.yml").read_text("utf-8"))["dependencies"]["ansible_core"]
    assert f"ansible-core=={versions['ansible-core']}" == core["package_pip"]


def test_ansible_runner_runs_the_project_as_awx_does(image: str, project: Path, cluster: LocalCluster) -> None:
    shutil.copytree(project / "inventory", project.parent / "inventory")
    settings = project.parent / "env/settings"
    settings.parent.mkdir()
    settings.write_text(json.dumps({"pexpect_timeout": 60}), "utf-8")  # seconds for the end of a container, else 5
    for number, playbook in enumerate(("plan", "site", "verify")):
        output = _run(
            *(BIN / "ansible-runner", "run", project.parent, "--playbook", f"{playbook}.yml", "--ident", str(number)),
            *("--process-isolation", "--process-isolation-executable", "docker", "--container-image", image),
            f"--container-option={ON_THE_HOSTS_NETWORK}",
        )
        assert "Traceback" not in output
    assert "Everything is in order: 0 VMs on 3 nodes with 1 pool." in output
    assert _owned(cluster).count("node/gpu-") == 2


def test_ansible_navigator_runs_the_project(image: str, project: Path, cluster: LocalCluster) -> None:
    if not NAVIGATOR.exists():
        pytest.skip(f"{NAVIGATOR} does not exist: make test-image installs ansible-navigator.")
    for playbook in ("plan", "site", "verify"):
        output = _run(
            *(NAVIGATOR, "run", f"{playbook}.yml", "--mode", "stdout", "--container-engine", "docker"),
            *("--execution-environment-image", image, "--pull-policy", "never"),
            *(f"--container-options={ON_THE_HOSTS_NETWORK}", "--inventory", "inventory"),
            cwd=project,
        )
        assert "Traceback" not in output
    assert "Everything is in order: 0 VMs on 3 nodes with 1 pool." in output
    assert _owned(cluster).count("node/gpu-") == 2
    assert list(project.glob("verify-artifact-*.json"))
