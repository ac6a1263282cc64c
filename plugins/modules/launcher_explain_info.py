#!/usr/bin/python
# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module launcher_explain_info: why does this VM get this launcher image and these nodes?"""

from __future__ import annotations

DOCUMENTATION = r"""
module: launcher_explain_info
short_description: Explain which launcher image and nodes a VM gets, and why
version_added: 0.1.0
description:
  - Says for one VM, pool by pool and criterion by criterion, which pools match it and which do not, which one wins, and the image and nodes that
    follow. For a running VM also what its launcher pod has now, and what its next start and a live migration would give it.
  - A VM that does not run, or is not in the cluster yet, is expanded first, so that a device counts that comes from an instancetype.
  - Without a pool list, the mapping is explained that is in effect in the cluster. With one, that which a run of the playbook
    C(virtpools.kubevirt.site) would bring about.
  - What decides is the launcher pod. The one of a VM that does not run is predicted, without the node labels that follow from its machine type,
    Hyper-V, TSC and confidential computing.
  - Needs only the rights of the ClusterRole C(virtpools-reader).
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
  - virtpools.kubevirt.kubevirt
  - virtpools.kubevirt.pools
  - virtpools.kubevirt.attributes
  - virtpools.kubevirt.attributes.reads
options:
  vm:
    description:
      - A VirtualMachine, as V(namespace/name). It need not run.
      - Exactly one of O(vm), O(vmi) and O(manifest) is needed.
    type: str
  vmi:
    description: A VirtualMachineInstance, as V(namespace/name), with or without a VirtualMachine.
    type: str
  manifest:
    description:
      - A YAML or JSON file with one VirtualMachine, VirtualMachineInstance, or template of one, which is not in the cluster yet. Its instancetype and
        preference are looked for in the file, then in the cluster (or in O(dump)).
    type: path
  dump:
    description:
      - A directory of YAML or JSON files with Kubernetes objects, as C(kubectl get -o yaml) writes them, to explain from instead of a cluster.
      - Needed are KubeVirt, DaemonSets, nodes, the launcher policy with its binding, and the VM with its VirtualMachineInstance, launcher pod,
        instancetype, ControllerRevisions and NetworkAttachmentDefinitions, as far as there are any; its namespace where pools select
        namespaces by labels.
    type: path
seealso:
  - module: virtpools.kubevirt.launcher_images_info
author:
  - the virtpools.kubevirt authors (@virtpools)
"""

EXAMPLES = r"""
- name: Why does it not get the GPU pool's launcher?
  virtpools.kubevirt.launcher_explain_info:
    vm: demo/train-7
  register: explained

- name: Show it
  ansible.builtin.debug:
    var: explained.text

- name: What would this one get?
  virtpools.kubevirt.launcher_explain_info:
    manifest: train-8.yaml
"""

RETURN = r"""
vm:
  description: The VM, with its kind.
  returned: success
  type: str
  sample: VirtualMachine demo/train-7
state:
  description: Whether and where it runs.
  returned: success
  type: str
  sample: Running on node gpu-0
mapping:
  description: Which mapping is explained.
  returned: success
  type: str
pool:
  description: The pool that wins, or V(primary) for none. For a running VM by its launcher pod, else by the pod to come.
  returned: success
  type: str
image:
  description: The launcher image that follows.
  returned: success
  type: str
pods:
  description: The launcher pods there are, first the one that has the guest.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Name of the pod.
      type: str
    phase:
      description: Phase of the pod.
      type: str
    node:
      description: Its node; empty while it has none.
      type: str
    owner:
      description: Who owns that node.
      type: str
    images:
      description: The launcher images that it has, by place.
      type: dict
    stock_image:
      description: The launcher image it came with, as the launcher policy noted it.
      type: str
    pool:
      description: The pool that the launcher policy took it for.
      type: str
    policy:
      description: Digest of that policy.
      type: str
    migration_target:
      description: Whether it is the target of a live migration that has not ended.
      type: bool
    verdict:
      description: The verdict of M(virtpools.kubevirt.launcher_images_info) on it.
      type: str
    reason:
      description: What the verdict rests on.
      type: str
    remedy:
      description: What would help.
      type: str
cases:
  description: What a launcher pod gets, each with all pools and the reasons. The first is the one of RV(pool).
  returned: success
  type: list
  elements: dict
  contains:
    when:
      description: V(now), V(next start) or V(live migration).
      type: str
    source:
      description: Which object says what the pod asks for.
      type: str
    asked:
      description: What the pod asks for, with V(namespace), V(devices), V(labels) and V(node_selector).
      type: dict
    pools:
      description:
        - Every pool with its V(state), which is V(wins), V(matches) (but another comes first), V(no match), V(not active) or V(no selector),
          with a reason and its criteria.
      type: list
      elements: dict
    pool:
      description: The pool that wins, or V(primary).
      type: str
    image:
      description: The launcher image that follows.
      type: str
    requirement:
      description: What the pod then asks of a node's owner label.
      type: str
    nodes:
      description: How many nodes fit, names, and why not the others.
      type: dict
notes:
  description: Why there is no next start or live migration to explain.
  returned: success
  type: dict
findings:
  description: What could not be known, and with a pool list what forbids a run. See M(virtpools.kubevirt.plan_info) for the fields.
  returned: success
  type: list
  elements: dict
text:
  description: All of it for a person, as lines.
  returned: success
  type: list
  elements: str
"""

from ansible_collections.virtpools.kubevirt.plugins.module_utils import _module
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster import dump, explain
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster._client import Forbidden
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import outlook, permissions, plan, snapshot
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.findings import InputErrors

_SUBJECTS = ("vm", "vmi", "manifest")

ARGUMENTS = {
    **_module.POOL_ARGUMENTS,
    "vm": {"type": "str"},
    "vmi": {"type": "str"},
    "manifest": {"type": "path"},
    "dump": {"type": "path"},
}


def body(task: _module.Task) -> dict:
    given = [name for name in _SUBJECTS if task.params[name]]
    if len(given) != 1:
        said = f"{' and '.join(given)} are given" if given else "none is given"
        raise InputErrors([f"Exactly one of vm, vmi and manifest says which VM to explain; {said}."])
    found, source = _read(task)
    subject = _subject(task, source)
    seen = outlook.look(subject, _mapping(task, task.plan_or_recorded(found)))
    return {"changed": False, **seen.to_dict(), "text": seen.lines()}


def _mapping(task: _module.Task, made: plan.Plan) -> outlook.Mapping:
    if task.pools_given:
        return outlook.Mapping.after(made, task.pools())
    return outlook.Mapping.in_effect(made)


def _read(task: _module.Task) -> tuple[snapshot.Snapshot, explain.Source]:
    path = task.params["dump"]
    if not path:
        return task.snapshot(), explain.Live(task.cluster)
    objects = dump.read_objects(path)
    found = snapshot.from_objects(objects, task.params["kubevirt_namespace"], task.params["kubevirt_name"])
    return found, explain.Files(objects, f"the dump {path}")


def _subject(task: _module.Task, source: explain.Source) -> outlook.Subject:
    try:
        if task.params["vm"]:
            return explain.find_vm(source, task.params["vm"])
        if task.params["vmi"]:
            return explain.find_vmi(source, task.params["vmi"])
        path = task.params["manifest"]
        return explain.find_in_manifest(dump.read_file(path), f"The manifest {path}", source)
    except Forbidden:
        task.require((*permissions.READER, *permissions.EXPLAIN))
        raise


def main() -> None:
    _module.run(body, ARGUMENTS)


if __name__ == "__main__":
    main()
