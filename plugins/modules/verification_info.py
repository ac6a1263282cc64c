#!/usr/bin/python
# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module verification_info: is every VM on the launcher image and node that the pools give it?"""

from __future__ import annotations

DOCUMENTATION = r"""
module: verification_info
short_description: Verify the launcher image and node of every VM, and everything behind them
version_added: 0.1.0
description:
  - Compares every running VM with what the pools give it, the launcher images of its pod container by container, its node and the node's owner.
    A VM is V(correct), or has the verdict V(outdated), V(unknown_image), V(wrong_image), V(wrong_node), V(no_ready_handler), V(at_risk) or V(pending),
    with a reason, and says whether a restart or a migration would help.
  - Looks at nodes, handlers, DaemonSets and the launcher policy as well.
  - Reads VMs page by page, keeps the counts, and of single VMs only those that have something to tell.
  - Without a pool list, compares with the pools that the cluster itself records. So it does with a list that is not the one that a run applied last,
    and reports that as V(list_not_applied).
  - Needs only the rights of the ClusterRole C(virtpools-reader), with O(probe) those of C(virtpools-writer).
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
  - virtpools.kubevirt.kubevirt
  - virtpools.kubevirt.mode
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
      - It must hold KubeVirt, DaemonSets, the Deployment C(virt-controller), nodes, the pods of KubeVirt's namespace, the launcher
        pods, the VirtualMachineInstances and the launcher policy with its binding; namespaces where pools select them by labels.
    type: path
  probe:
    description:
      - Whether to try out the launcher policy by creating pods in KubeVirt's namespace as server-side dry runs, which stores none.
      - This needs the right to create pods there, which the ClusterRole C(virtpools-reader) lacks.
    type: bool
    default: false
  max_listed_vms:
    description: How many single VMs to list at most. All are counted.
    type: int
    default: 1000
  fail_on:
    description:
      - What RV(failing) has. V(problems) is everything that is wrong, V(any) also what is only listed, V(none) nothing. Or a list of
        verdicts and codes of findings (C(docs/findings.md)).
      - VMs that are only V(outdated) are listed, not wrong.
    type: raw
    default: problems
  reports:
    description:
      - Files to write the report to, where the module runs. A file that exists is replaced in one step.
    type: dict
    suboptions:
      json:
        description: The whole report as JSON.
        type: path
      junit:
        description: As JUnit XML, for CI systems.
        type: path
      prometheus:
        description: The counts in Prometheus' text format, for the textfile collector of its node exporter. It names no VM.
        type: path
      html:
        description: As one HTML page that needs no network.
        type: path
      folder:
        description: A folder to write C(report.txt), C(report.json) and C(report.html) to, for M(virtpools.kubevirt.verification_report).
        type: path
  cluster_name:
    description:
      - The name of the cluster in O(reports) and in O(published_plan). In Prometheus' format it is the label C(cluster), which is omitted without this
        option.
    type: str
  published_plan:
    description: The approved plan, as an earlier job of a workflow published it. AWX passes it on. It is a problem when the cluster
      does not have the list that the plan brings.
    type: raw
  run_result:
    description: What the run of an earlier job of a workflow published. AWX passes it on. After a run that stopped where it was asked
      to, the cluster need not have the list of O(published_plan) yet.
    type: raw
seealso:
  - module: virtpools.kubevirt.pool_info
  - module: virtpools.kubevirt.verification_report
author:
  - the virtpools.kubevirt authors (@virtpools)
"""

EXAMPLES = r"""
- name: Verify all VMs
  virtpools.kubevirt.verification_info:
    reports:
      html: /var/www/html/virtpools.html
  register: verified

- name: Nothing may be wrong
  ansible.builtin.assert:
    that: verified.healthy
    fail_msg: "{{ verified.text | join('\n') }}"
"""

RETURN = r"""
mode:
  description: V(collection), or V(operator) where KubeVirt's own operator creates the pools.
  returned: success
  type: str
build:
  description: The build of KubeVirt that creates the pools, as in O(pools_dialect). Empty for collection pools.
  returned: success
  type: str
server:
  description: Address of the API server. Empty with O(dump).
  returned: success
  type: str
  sample: https://east.example:6443
uid:
  description: UID of the namespace C(kube-system). Empty with O(dump), and when the user may not read that namespace.
  returned: success
  type: str
  sample: 0c2f2e6e-6f43-4d2c-9b1c-0d5b6f1b8a52
healthy:
  description: Whether nothing is wrong.
  returned: success
  type: bool
summary:
  description: The report in one sentence.
  returned: success
  type: str
  sample: "Everything is in order: 120 VMs on 8 nodes with 2 pools."
problems:
  description: What is wrong, by verdict or code of a finding, with the number of VMs with that verdict, or of findings with that code.
  returned: success
  type: dict
  sample: {wrong_image: 2, no_handler: 1}
listed:
  description: The same for what is listed without being wrong.
  returned: success
  type: dict
  sample: {outdated: 5}
failing:
  description: What O(fail_on) selects from these. C(approved_list_missing) is always among them.
  returned: success
  type: dict
failure:
  description: Why a check fails because of RV(failing), in a few sentences. Empty when it does not.
  returned: success
  type: str
  sample: "Problems found: 2 wrong_image; checked 120 VMs on 8 nodes with 2 pools. Failed because of: wrong_image (virtpools_fail_on)."
counts:
  description: How many V(vms), V(nodes), V(pools), V(problems) and things V(listed) there are; V(unjudged) VMs have no launcher pod yet.
  returned: success
  type: dict
verdicts:
  description: How many VMs have each verdict.
  returned: success
  type: dict
pools:
  description: V(primary) and every pool, with its nodes, images, what is in the launcher image, and VMs by verdict. VMs that match no
    pool are the primary's. V(starts_fail) tells that no VM of the pool can start, because KubeVirt passes an argument that the launcher
    image refuses, and V(failed_launchers) how many launcher pods have failed for it.
  returned: success
  type: list
  elements: dict
vms:
  description: The VMs with a problem or a remark, the worst first, at most O(max_listed_vms).
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
      description: V(outdated), V(unknown_image), V(wrong_image), V(wrong_node), V(no_ready_handler), V(at_risk) or V(pending).
      type: str
    reason:
      description: The facts behind the verdict.
      type: str
    remedy:
      description: What would help, such as V(restart), V(migration) or V(run site).
      type: str
vms_left_out:
  description: How many more VMs would be in RV(vms).
  returned: success
  type: int
nodes:
  description: The nodes with a problem, as the code of its finding. The report as JSON has all nodes that have a handler or should have one.
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
  description: The same for people, as lines.
  returned: success
  type: list
  elements: str
"""

import datetime
import json
import os
import typing as t

from ansible_collections.virtpools.kubevirt.plugins.module_utils import module_base, option_table
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.reading import vm_verification
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.writing import policies, report_files
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.writing.report_files import ReportFile
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.admission.live_policy import Policy
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import permissions
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.findings import Finding, InputErrors
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.checks import verification
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.modes.mode import ClusterView, Mode, in_results
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.observed.snapshot import Snapshot
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning import (
    approval,
    history,
    list_conflicts,
    outcome,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.approval import ClusterId
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.plan import Plan
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.reports import junit, page, prometheus, terminal

_FORMATS = ("json", "junit", "prometheus", "html")
_IN_FOLDER = {"text": "report.txt", "json": "report.json", "html": "report.html"}

ARGUMENTS = {
    **option_table.arguments("mode", "pools", "verification_info"),
    "reports": {"type": "dict", "options": {form: {"type": "path"} for form in (*_FORMATS, "folder")}},
    "cluster_name": {"type": "str"},
}


def body(task: module_base.Task) -> dict:
    fail_on = verification.read_fail_on(task.params["fail_on"])
    files = _files(task.params["reports"] or {})
    cluster = task.cluster_id()
    report, mode = _verify(task, cluster)
    data = {**in_results(mode), **report.to_dict()}
    text = [*([terminal.cluster_line(cluster)] if cluster.server else ()), *terminal.verification_lines(report)]
    _write(task, files, data, text, *cluster)
    return {
        "changed": False,
        **cluster._asdict(),
        **data,
        "nodes": [node for node in data["nodes"] if node["problem"]],
        "failing": report.failing(fail_on),
        "failure": report.failure(fail_on),
        "text": text,
    }


def _verify(task: module_base.Task, cluster: ClusterId) -> tuple[verification.Report, Mode]:
    if task.params["dump"] and task.params["probe"]:
        raise InputErrors(["probe needs a cluster, and dump is given; drop one of them."])
    found, objects = task.observed()
    mode = task.mode(found)
    if task.params["probe"] and mode.cannot_probe:
        raise InputErrors([mode.cannot_probe])
    host, known = task.params["cluster_name"] or "localhost", history.recorded_in(found)
    pause, published = outcome.read_pause(task.params["run_result"], host), task.params["published_plan"]
    conflict = None if pause else approval.missing_list(published, host, cluster, known)
    if conflict is not None:
        view = task.view(mode, found, recorded=True)
    else:
        view, conflict = _compared(task, mode, found, known, paused=pause is not None)
    verifier = verification.Verifier(
        view.plan,
        _probed(task, view.plan) if task.params["probe"] else view.policy,
        limit=task.params["max_listed_vms"],
        seen=view.launcher_pod,
        conflict=conflict,
        pause=pause,
    )
    if objects is not None:
        return vm_verification.verify_dump(objects, verifier), mode
    with task.naming_rights(permissions.READER):
        return vm_verification.verify_cluster(task.cluster, verifier), mode


def _compared(
    task: module_base.Task, mode: Mode, found: Snapshot, known: history.History, *, paused: bool
) -> tuple[ClusterView, Finding | None]:
    """The cluster compared with the given list or, with an error, with the one that it has: when that is another list, and no run
    is about to bring the given one. Compared with a list that the cluster does not have, everything would be wrong."""
    view = task.view(mode, found)
    if paused:
        return view, None
    given = view.plan.launcher_pools
    conflict = list_conflicts.not_applied(known, given, mode.recorded(found), mode.build_name or None)
    if conflict is None:
        return view, None
    recorded = task.view(mode, found, recorded=True)
    return (view, None) if list_conflicts.is_under_way(given, recorded.plan.moves) else (recorded, conflict)


def _probed(task: module_base.Task, plan: Plan) -> Policy:
    """The launcher policy as probes find it."""
    task.require([permissions.Permission("create", "pods", namespace=plan.snapshot.namespace)])
    return policies.probed_policy(task.cluster, plan, task.clock)


def _files(asked: t.Mapping[str, str | None]) -> list[ReportFile]:
    """The files that are asked for.

    :raises InputErrors: when one cannot be written. A verification may take minutes, so this comes before it.
    """
    folder = asked.get("folder")
    wanted = ((form, path) for form, path in asked.items() if path and form != "folder")
    files = [ReportFile(form, f"virtpools_report_{form}", path) for form, path in wanted]
    in_folder = _IN_FOLDER.items() if folder else ()
    files += [ReportFile(form, "reports.folder", os.path.join(folder or "", file)) for form, file in in_folder]
    report_files.require_writable(files)
    return files


def _write(
    task: module_base.Task, files: list[ReportFile], data: dict, lines: list[str], server: str, uid: str
) -> None:
    """Write the files that are asked for."""
    if not files:
        return
    now = datetime.datetime.now(datetime.timezone.utc)
    at, name = now.strftime("%Y-%m-%dT%H:%M:%SZ"), task.params["cluster_name"]
    texts = {
        "text": lambda: "\n".join((f"Verified at {at}", *lines, "")),
        "json": lambda: json.dumps({"at": at, "cluster": name, "server": server, "uid": uid, **data}, indent=1) + "\n",
        "junit": lambda: junit.render(data, at=at),
        "prometheus": lambda: prometheus.render(
            data, timestamp=now.timestamp(), labels={"cluster": name} if name else None
        ),
        "html": lambda: page.render(
            data, cluster=" · ".join(filter(None, (name, server, uid and f"UID {uid}"))), at=f"{now:%Y-%m-%d %H:%M} UTC"
        ),
    }
    for file in files:
        report_files.write(file, texts[file.form](), task.module.atomic_move)


def main() -> None:
    module_base.run(body, ARGUMENTS)


if __name__ == "__main__":
    main()
