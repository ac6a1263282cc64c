#!/usr/bin/python
# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module run_report: the record of a run, and the HTML page of it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: run_report
short_description: Keep the record of a run, and write an HTML page of it
version_added: 0.1.0
description:
  - Begins the record of a run. Every module of the run that is given its path as O(run_record) appends what it did, and how it ended.
  - Then writes what the record tells as one HTML page that needs no network. How the run ended and how to go on, its plan, when each node was handed over
    and how long it had no Ready handler, gates, canary VMs and findings.
  - The module itself reads nothing from the cluster.
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
  - virtpools.kubevirt.kubevirt
  - virtpools.kubevirt.attributes
  - virtpools.kubevirt.attributes.reads
attributes:
  check_mode:
    support: full
    details:
      - This module never changes the cluster. The record and the page are its output, and written in check mode, too.
options:
  state:
    description:
      - V(begun) checks that O(path) can be written, and begins a record. With O(run_record) it goes on with that one.
      - V(written) writes the page and deletes the record.
    type: str
    choices:
      - begun
      - written
    required: true
  path:
    description: The file to write the page to. Its folder must exist.
    type: path
    required: true
  cluster_name:
    description: The cluster's name in the inventory.
    type: str
    default: localhost
  completed:
    description: With O(state=written), whether all tasks of the run succeeded.
    type: bool
    default: false
  only_plan:
    description: With O(state=begun), whether the run only plans, as in check mode.
    type: bool
    default: false
author:
  - the virtpools.kubevirt authors (@virtpools)
"""

EXAMPLES = r"""
- name: Begin the record of a run
  virtpools.kubevirt.run_report:
    state: begun
    path: /tmp/run.html
  register: report

- name: Hand the nodes over
  virtpools.kubevirt.pool_nodes:
    pools: "{{ virtpools_pools }}"
    run_record: "{{ report.run_record }}"

- name: Write the page
  virtpools.kubevirt.run_report:
    state: written
    path: /tmp/run.html
    run_record: "{{ report.run_record }}"
    completed: true
"""

RETURN = r"""
run_record:
  description: The record, for the modules of the run.
  returned: with O(state=begun)
  type: str
  sample: /home/admin/.ansible/tmp/ansible-local-4711/virtpools-run-x7k2
path:
  description: The page.
  returned: success
  type: str
  sample: /tmp/run.html
verdict:
  description: How the run ended, in words.
  returned: with O(state=written)
  type: str
  sample: "Finished: 60 nodes changed"
events:
  description: Where the page is, for people.
  returned: with O(state=written)
  type: list
  elements: str
  sample: ["The page of this run: /tmp/run.html"]
"""

import time

from ansible_collections.virtpools.kubevirt.plugins.module_utils import module_base, option_table
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.writing import record_file, report_files
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.writing.report_files import ReportFile
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.findings import InputErrors
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.reports import run_page, run_record
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.reports.run_story import RunStory

ARGUMENTS: option_table.Arguments = {
    "state": {"type": "str", "choices": ["begun", "written"], "required": True},
    "path": {"type": "path", "required": True},
    "cluster_name": {"type": "str", "default": "localhost"},
    "completed": {"type": "bool", "default": False},
    "only_plan": {"type": "bool", "default": False},
}


def body(task: module_base.Task) -> dict:
    page = ReportFile("html", "virtpools_report_html", task.params["path"])
    report_files.require_writable([page])
    if task.params["state"] == "begun":
        return {"changed": False, "path": page.path, "run_record": task.params["run_record"] or _begin(task)}
    story = _story(task)
    report_files.write(page, run_page.render(story), task.module.atomic_move)
    task.status.say(f"The page of this run: {page.path}")
    return {"changed": False, "path": page.path, "verdict": story.verdict.words}


def _begin(task: module_base.Task) -> str:
    only_plan = task.check_mode or task.params["only_plan"]
    opened = run_record.RunRecord(round(time.time(), 1), task.run_by, task.params["cluster_name"], only_plan)
    try:
        return record_file.begin(opened.opening)
    except OSError as error:
        raise InputErrors(
            [f"The record of the run cannot be written to {error.filename}: {error.strerror}."]
        ) from error


def _story(task: module_base.Task) -> RunStory:
    path = task.params["run_record"]
    if not path:
        raise InputErrors(["run_record is missing: give the one that this module began."])
    try:
        record = run_record.read(record_file.take(path))
    except (OSError, ValueError) as error:
        raise InputErrors([f"The record of the run, {path}, cannot be read: {error}."]) from error
    return RunStory(record, time.time(), task.params["completed"])


def main() -> None:
    module_base.run(body, ARGUMENTS)


if __name__ == "__main__":
    main()
