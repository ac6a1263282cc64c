# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a module left for the end of its process is done at its own end; what it returned is cleaned as the ansible-core at hand does.

tests/control_plane/runs/test_in_worker.py has the rest.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ANSIBLE_PLAYBOOK = shutil.which("ansible-playbook", path=Path(sys.executable).parent)


@pytest.fixture
def in_worker(on_controller):
    """The action of all modules."""
    return importlib.import_module("ansible_collections.virtpools.kubevirt.plugins.plugin_utils.in_worker")


@pytest.mark.usefixtures("in_worker")
def test_workers_do_not_look_through_what_they_inherit():
    assert gc.get_freeze_count()


class Result:
    """A result as ansible-core has them from 2.21 on."""

    def __init__(self):
        self.keys = {"changed": True, "_ansible_secret": 1}

    def remove_internal_keys(self):
        del self.keys["_ansible_secret"]

    def as_result_dict(self, *, for_round_trip):
        assert for_round_trip
        return self.keys


def test_objects(in_worker, monkeypatch):
    monkeypatch.setattr(in_worker, "remove_internal_keys", None)
    assert in_worker._cleaned(Result()) == {"changed": True}


def test_dictionaries(in_worker):
    if in_worker.remove_internal_keys is None:
        pytest.skip("ansible-core from 2.21 on has no such results")
    assert in_worker._cleaned({"changed": True, "_ansible_secret": 1}) == {"changed": True}


@pytest.mark.parametrize("fails", [False, True])
def test_end_of_a_module(in_worker, fails):
    register, folder = atexit.register, tempfile.tempdir

    def module(done):
        with in_worker._left_for_the_end():
            assert tempfile.gettempdir() == in_worker.constants.DEFAULT_LOCAL_TMP
            atexit.register(done.append, "first")
            assert atexit.register(done.append, "second") == done.append
            assert not done
            if fails:
                raise SystemExit

    for _ in range(2):  # in a loop, one worker runs a module for each item
        done = []
        with contextlib.suppress(SystemExit):
            module(done)
        assert done == ["second", "first"]
        assert (atexit.register, tempfile.tempdir) == (register, folder)


PLAYS = """
- hosts: localhost
  gather_facts: false
  module_defaults:
    group/virtpools.kubevirt.all: {kubeconfig: /nowhere}
  tasks:
    - {virtpools.kubevirt.pool_info: , ignore_errors: true}
- hosts: localhost
  gather_facts: false
  collections: [virtpools.kubevirt]
  module_defaults:
    group/virtpools.kubevirt.kubevirt: {kubeconfig: /nowhere}
  tasks:
    - {pool_info: , ignore_errors: true}
"""
OTHER_PYTHON = Path(sys.executable).with_name("python{}.{}".format(*sys.version_info))
"""The same Python by another name, so modules get a process of their own."""


def ansible_playbook(folder, *arguments, **environment):
    """Run it in a folder, without what the caller's environment says about Ansible and clusters."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("K8S_AUTH_", "ANSIBLE_", "KUBE"))}
    return subprocess.run(
        [ANSIBLE_PLAYBOOK, *arguments],
        cwd=folder,
        env={**own, "ANSIBLE_NOCOLOR": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )


@pytest.mark.skipif(ANSIBLE_PLAYBOOK is None, reason="ansible-test's environments have no ansible-playbook")
@pytest.mark.parametrize("python", [sys.executable, str(OTHER_PYTHON)])
def test_full_and_short_names_and_module_defaults(in_worker, tmp_path, python):
    (tmp_path / "plays.yml").write_text(PLAYS, "utf-8")
    own_process = tmp_path / "archives"
    chosen = ("-e", f"ansible_python_interpreter={python}")
    run = ansible_playbook(tmp_path, "plays.yml", *chosen, ANSIBLE_REMOTE_TMP=str(own_process))
    by_full_name, by_short_name = re.findall(r"^fatal: .*", run.stdout, re.MULTILINE)
    # Only module_defaults set the option kubeconfig.
    assert "the kubeconfig /nowhere does not exist" in by_full_name
    assert "the kubeconfig /nowhere does not exist" in by_short_name
    supported = in_worker.get_module_encoder is not None
    assert own_process.exists() == (python != sys.executable or not supported)


OWN_PLAY = """
- hosts: localhost
  gather_facts: false
  ignore_errors: true
  vars: {virtpools_kubeconfig: /host, virtpools_context: admin}
  tasks:
    - virtpools.kubevirt.pool_info:
    - virtpools.kubevirt.pool_info: {kubeconfig: /nowhere, context: ""}
    - virtpools.kubevirt.verification_info: {dump: /nowhere}
    - virtpools.kubevirt.pool_info:
      environment: {K8S_AUTH_KUBECONFIG: /nowhere}
    - virtpools.kubevirt.pool_info: {kubeconfig: /nowhere}
      vars: {virtpools_context: "{{ '' }}"}
"""


@pytest.mark.skipif(ANSIBLE_PLAYBOOK is None, reason="ansible-test's environments have no ansible-playbook")
def test_a_cluster_that_a_module_would_not_get(tmp_path):
    """It would work on the one of the environment."""
    (tmp_path / "play.yml").write_text(OWN_PLAY, "utf-8")
    refused, *others = re.findall(r"^fatal: .*", ansible_playbook(tmp_path, "play.yml").stdout, re.MULTILINE)
    for variable in ("virtpools_kubeconfig", "virtpools_context"):
        assert f"{variable} is set, but this play does not pass it on" in refused
    assert ["/nowhere" in said for said in others] == [True] * 4


KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: a
contexts: [{name: a, context: {cluster: a, user: a}}]
clusters: [{name: a, cluster: {server: "ftp://NAME"}}]
users: [{name: a, user: {token: x}}]
"""
"""An address that is refused at once, in a message with the name of the folder in which the file is."""
RELATIVE = """
- hosts: localhost
  gather_facts: false
  ignore_errors: true
  vars: {pools: [{name: gpu, nodeSelector: {hw: gpu}, virtHandlerImage: "registry.example/h:1"}]}
  tasks:
    - {virtpools.kubevirt.pool_info: {kubeconfig: config}}
    - {virtpools.kubevirt.pool_info: {kubeconfig: config}, delegate_to: localhost}
    - {virtpools.kubevirt.pool_info: {kubeconfig: config}, environment: {SOME: thing}}
    - {virtpools.kubevirt.pool_info: {kubeconfig: config}, async: 240, poll: 2}
    - {virtpools.kubevirt.pool_info: }
    - {virtpools.kubevirt.pool_info: , environment: {K8S_AUTH_KUBECONFIG: ../project/config, KUBECONFIG: missing}}
    - {virtpools.kubevirt.plan_info: {pools: "{{ pools }}", dump: dump}}
    - {virtpools.kubevirt.pool_info: {kubeconfig: missing}}
    - {virtpools.kubevirt.pool_info: {kubeconfig: config}, loop: [1, 2]}
"""


@pytest.fixture
def project(tmp_path):
    """A folder with a kubeconfig and an empty dump, beside a folder with another kubeconfig, in which Ansible is started."""
    for name in ("project", "elsewhere"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config").write_text(KUBECONFIG.replace("NAME", name), "utf-8")
    (tmp_path / "project" / "dump").mkdir()
    return tmp_path / "project"


def play(project, book, python, *arguments, cwd="elsewhere", **environment):
    """What the failed tasks say."""
    command = (str(book), "-e", f"ansible_python_interpreter={python}", *arguments)
    # ansible-test has another HOME than the user's, in one of which jobs would write what is read in the other.
    archives = {"ANSIBLE_REMOTE_TMP": str(project / "archives"), "ANSIBLE_ASYNC_DIR": str(project / "jobs")}
    run = ansible_playbook(project.with_name(cwd), *command, **archives, **environment)
    return re.findall(r"^(?:fatal|failed): .*", run.stdout, re.MULTILINE)


@pytest.mark.skipif(ANSIBLE_PLAYBOOK is None, reason="ansible-test's environments have no ansible-playbook")
@pytest.mark.parametrize("python", [sys.executable, str(OTHER_PYTHON)])
def test_relative_paths_start_at_the_playbooks_folder(project, python):
    (project / "plays.yml").write_text(RELATIVE, "utf-8")
    *clusters, dump, missing, first, second = play(project, "../project/plays.yml", python, KUBECONFIG="config")
    assert len(clusters) == 6
    of_project = "The address of the API server, 'ftp://project', should be like"
    assert [said for said in (*clusters, first, second) if of_project not in said] == []
    assert "The dump directory dump holds no .yaml, .yml or .json file" in dump
    assert f"does not exist in {project}, where relative paths start" in missing


@pytest.mark.skipif(ANSIBLE_PLAYBOOK is None, reason="ansible-test's environments have no ansible-playbook")
@pytest.mark.parametrize("python", [sys.executable, str(OTHER_PYTHON)])
@pytest.mark.parametrize(
    ("book", "cwd"),
    [("../project/plan.yml", "elsewhere"), ("virtpools.kubevirt.plan", "project")],
    ids=["import", "name"],
)
def test_users_have_no_files_beside_our_playbooks(project, python, book, cwd):
    """Relative paths start at the user's playbook, or where Ansible was started."""
    (project / "plan.yml").write_text("- import_playbook: virtpools.kubevirt.plan\n", "utf-8")
    pools = '{"virtpools_pools": [{"name": "gpu", "nodeSelector": {"hw": "gpu"}, "virtHandlerImage": "a.b/h:1"}]}'
    (said,) = play(project, book, python, "-e", pools, "-e", "virtpools_dump=dump", cwd=cwd)
    assert "The dump directory dump holds no .yaml, .yml or .json file" in said


@pytest.mark.skipif(ANSIBLE_PLAYBOOK is None, reason="ansible-test's environments have no ansible-playbook")
def test_our_playbooks_do_not_become_another_user(project):
    """Who has neither the credentials of this environment nor this kubeconfig."""
    pools = '{"virtpools_pools": [{"name": "gpu", "nodeSelector": {"hw": "gpu"}, "virtHandlerImage": "a.b/h:1"}]}'
    chosen = ("virtpools.kubevirt.plan", sys.executable, "-e", pools, "-e", "virtpools_dump=dump")
    sudo = {"ANSIBLE_BECOME": "true", "ANSIBLE_BECOME_ALLOW_SAME_USER": "true", "ANSIBLE_BECOME_EXE": "/nowhere/sudo"}
    (said,) = play(project, *chosen, cwd="project", **sudo)
    assert "The dump directory dump holds no .yaml, .yml or .json file" in said


PLAYBOOK = """
- hosts: localhost
  gather_facts: false
  strategy: STRATEGY
  module_defaults:
    group/virtpools.kubevirt.all: {kubeconfig: /nowhere}
  tasks:
    - virtpools.kubevirt.FIRST
    - {virtpools.kubevirt.pool_info: , ignore_errors: true}
    - {virtpools.kubevirt.pool_info: , ignore_errors: true}
"""


@pytest.mark.skipif(ANSIBLE_PLAYBOOK is None, reason="ansible-test's environments have no ansible-playbook")
@pytest.mark.parametrize(
    ("strategy", "first"),
    [
        ("linear", "pool_info: "),
        ("free", "pool_info: "),
        ("linear", "cluster_info: "),
        ("linear", "role_options: {role: pools}"),
    ],
)
def test_workers_inherit_what_modules_import(tmp_path, strategy, first):
    """Every playbook begins with cluster_info, every role with role_options, and a user's own play with any module."""
    first = f"{{virtpools.kubevirt.{first}, ignore_errors: true}}"
    play = PLAYBOOK.replace("STRATEGY", strategy).replace("virtpools.kubevirt.FIRST", first)
    (tmp_path / "plays.yml").write_text(play, "utf-8")
    run = ansible_playbook(tmp_path, "plays.yml", PYTHONPROFILEIMPORTTIME="1")
    assert len(re.findall("kubeconfig /nowhere does not exist", run.stdout)) >= 2
    imported = re.findall(r"virtpools\.kubevirt\.(plugins\.module_utils\.\S+)$", run.stderr, re.MULTILINE)
    assert "plugins.module_utils.cluster.api.client" in imported
    assert len(imported) == len(set(imported))
