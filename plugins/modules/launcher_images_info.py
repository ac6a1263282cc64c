#!/usr/bin/python
# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module launcher_images_info: is every VM on the launcher image and node that the pools give it?"""

from __future__ import annotations

DOCUMENTATION = r"""
module: launcher_images_info
short_description: Verify the launcher image and node of every VM, and everything behind them
version_added: 0.1.0
description:
  - Compares every running VM with what the pools give it, the launcher images of its pod container by container, its node and the node's owner.
    A VM is V(correct), or has the verdict V(outdated), V(wrong_image), V(wrong_node), V(not_covered) or V(pending), with a reason, and says
    whether a restart or a migration would help.
  - Looks at nodes, handlers, DaemonSets and the launcher policy as well.
  - Reads VMs page by page, keeps the counts, and of single VMs only those that have something to tell.
  - Without a pool list, the pools count that the cluster itself records.
  - Needs only the rights of the ClusterRole C(virtpools-reader), with O(probe) those of C(virtpools-writer).
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
  - virtpools.kubevirt.kubevirt
  - virtpools.kubevirt.pools
  - virtpools.kubevirt.attributes
attributes:
  check_mode:
    support: full
    details:
      - This module never changes the cluster. The files of O(reports) are its output, and written in check mode, too.
  diff_mode:
    support: N/A
    details:
      - This module never changes the cluster.
  idempotent:
    support: full
options:
  dump:
    description:
      - A directory of YAML or JSON files with Kubernetes objects, as C(kubectl get -o yaml) writes them, to verify instead of a cluster.
      - Needed are KubeVirt, DaemonSets, nodes, the pods of KubeVirt's namespace, the launcher pods, the VirtualMachineInstances and the
        launcher policy with its binding; namespaces where pools select them by labels.
    type: path
  probe:
    description:
      - Whether to try the launcher policy out, by creating pods in KubeVirt's namespace as server-side dry runs, which stores none.
    type: bool
    default: false
  limit:
    description: Of how many single VMs to tell at most; all are counted.
    type: int
    default: 1000
  fail_on:
    description:
      - What RV(failing) has. V(problems) for all that is wrong; V(any) for what is only listed, too; V(none); or a list of verdicts and codes of
        findings (C(docs/findings.md)).
      - VMs that are merely V(outdated) are listed, not wrong.
    type: raw
    default: problems
  reports:
    description:
      - Files to write the report to, where the module runs. One that is there is replaced at once.
    type: dict
    suboptions:
      json:
        description: The whole report as JSON.
        type: path
      junit:
        description: As JUnit XML, for CI systems.
        type: path
      prometheus:
        description: In Prometheus' text format, for the textfile collector of its node exporter. Counts only, no VM's name.
        type: path
      html:
        description: As one HTML page that needs no network.
        type: path
  cluster_name:
    description:
      - What to call the cluster in O(reports). In Prometheus' format it is the label C(cluster), which is left out without it.
    type: str
seealso:
  - module: virtpools.kubevirt.pool_info
author:
  - the virtpools.kubevirt authors (@virtpools)
"""

EXAMPLES = r"""
- name: Verify all VMs
  virtpools.kubevirt.launcher_images_info:
    reports:
      html: /var/www/html/virtpools.html
  register: verified

- name: Nothing may be wrong
  ansible.builtin.assert:
    that: verified.healthy
    fail_msg: "{{ verified.text | join('\n') }}"
"""

RETURN = r"""
healthy:
  description: Whether nothing is wrong.
  returned: success
  type: bool
summary:
  description: All of it in one sentence.
  returned: success
  type: str
  sample: "Everything is in order: 120 VM(s) on 8 node(s) with 2 pool(s)."
problems:
  description: What is wrong, by verdict or code of a finding, with how many VMs have the verdict or how often the finding was made.
  returned: success
  type: dict
  sample: {wrong_image: 2, no_handler: 1}
listed:
  description: The same of what is told without being wrong.
  returned: success
  type: dict
  sample: {outdated: 5}
failing:
  description: What O(fail_on) picks from these.
  returned: success
  type: dict
counts:
  description: How many V(vms), V(nodes), V(pools), V(problems) and things V(listed) there are; V(unjudged) VMs have no launcher pod yet.
  returned: success
  type: dict
verdicts:
  description: How many VMs have each verdict.
  returned: success
  type: dict
pools:
  description: V(primary) and every pool, with its nodes, images, and VMs by verdict. VMs that match no pool are the primary's.
  returned: success
  type: list
  elements: dict
vms:
  description: The VMs with something to tell, the worst first, at most O(limit).
  returned: success
  type: list
  elements: dict
  contains:
    namespace:
      description: Namespace of the VM.
      type: str
    name:
      description: Name of the VM.
      type: str
    pool:
      description: The pool that should win, or V(primary).
      type: str
    expected_image:
      description: The launcher image that it should have.
      type: str
    images:
      description: The launcher images that its pod has, by place.
      type: dict
    node:
      description: Its node; empty while it has none.
      type: str
    owner:
      description: Who owns that node.
      type: str
    verdict:
      description: V(outdated), V(wrong_image), V(wrong_node), V(not_covered) or V(pending).
      type: str
    reason:
      description: What the verdict rests on.
      type: str
    remedy:
      description: What would help, such as V(restart), V(migration) or V(run site).
      type: str
vms_left_out:
  description: How many more there are.
  returned: success
  type: int
nodes:
  description: The nodes with a problem, as the code of its finding. The report as JSON has all nodes.
  returned: success
  type: list
  elements: dict
daemonsets:
  description: The DaemonSets of all owners, with their problems.
  returned: success
  type: list
  elements: dict
policy:
  description: The launcher policy, with its back end, state and digest.
  returned: success
  type: dict
findings:
  description: What is not as it should be. See M(virtpools.kubevirt.plan_info) for the fields.
  returned: success
  type: list
  elements: dict
text:
  description: The same for a person, as lines.
  returned: success
  type: list
  elements: str
"""

import datetime
import json
import os
import tempfile

from ansible_collections.virtpools.kubevirt.plugins.module_utils import _module
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster import dump, verify
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster._client import Forbidden
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import (
    junit,
    page,
    permissions,
    prometheus,
    report,
    snapshot,
    verification,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.findings import InputErrors
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.live_policy import Policy
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.plan import Plan

_FORMATS = ("json", "junit", "prometheus", "html")

ARGUMENTS = {
    **_module.POOL_ARGUMENTS,
    "dump": {"type": "path"},
    "probe": {"type": "bool", "default": False},
    "limit": {"type": "int", "default": 1000},
    "fail_on": {"type": "raw", "default": "problems"},
    "reports": {"type": "dict", "options": {form: {"type": "path"} for form in _FORMATS}},
    "cluster_name": {"type": "str"},
}


def body(task: _module.Task) -> dict:
    if task.params["limit"] < 0:
        raise InputErrors([f"limit is {task.params['limit']}; give a number from 0."])
    fail_on = verification.read_fail_on(task.params["fail_on"])
    found = _verify(task)
    data = found.to_dict()
    _write(task, data)
    return {
        "changed": False,
        **data,
        "nodes": [node for node in data["nodes"] if node["problem"]],
        "failing": found.failing(fail_on),
        "text": report.verification_lines(found),
    }


def _verify(task: _module.Task) -> verification.Report:
    if task.params["dump"]:
        if task.params["probe"]:
            raise InputErrors(["probe needs a cluster, and dump is given; drop one of them."])
        objects = dump.read_objects(task.params["dump"])
        found = snapshot.from_objects(objects, task.params["kubevirt_namespace"], task.params["kubevirt_name"])
        return verify.of_dump(objects, _verifier(task, task.plan_or_recorded(found)))
    made = task.plan_or_recorded(task.snapshot())
    policy = None
    if task.params["probe"]:
        task.require([permissions.Permission("create", "pods", namespace=made.snapshot.namespace)])
        policy = verify.tried_out(task.cluster, made, task.clock)
    try:
        return verify.of_cluster(task.cluster, _verifier(task, made, policy))
    except Forbidden:
        task.require(permissions.READER)
        raise


def _verifier(task: _module.Task, made: Plan, policy: Policy | None = None) -> verification.Verifier:
    return verification.Verifier(made, policy, allow_skew=task.params["allow_skew"], limit=task.params["limit"])


def _write(task: _module.Task, data: dict) -> None:
    """Write the files that are asked for. Each is there as a whole or not at all."""
    paths = {form: path for form, path in (task.params["reports"] or {}).items() if path}
    if not paths:
        return
    now = datetime.datetime.now(datetime.timezone.utc)
    at, name = now.strftime("%Y-%m-%dT%H:%M:%SZ"), task.params["cluster_name"]
    texts = {
        "json": lambda: json.dumps({"at": at, "cluster": name, **data}, indent=1) + "\n",
        "junit": lambda: junit.render(data, at=at),
        "prometheus": lambda: prometheus.render(
            data, timestamp=now.timestamp(), labels={"cluster": name} if name else None
        ),
        "html": lambda: page.render(data, cluster=name or "", at=f"{now:%Y-%m-%d %H:%M} UTC"),
    }
    for form, path in paths.items():
        try:
            # Beside the file, so that moving it there is one step: collectors read it at any time.
            handle, written = tempfile.mkstemp(dir=os.path.dirname(path) or ".", prefix=f".{os.path.basename(path)}-")
            with open(handle, "w", encoding="utf-8") as file:
                file.write(texts[form]())
        except OSError as error:
            raise InputErrors([f"reports.{form} cannot be written to {path}: {error.strerror}."]) from error
        task.module.atomic_move(written, path)


def main() -> None:
    _module.run(body, ARGUMENTS)


if __name__ == "__main__":
    main()
