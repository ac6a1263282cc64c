#!/usr/bin/python
# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module explanation_info: why does this VM get this launcher image and these nodes?"""

from __future__ import annotations

DOCUMENTATION = r"""
module: explanation_info
short_description: Explain which launcher image and nodes a VM gets, and why
version_added: 0.1.0
description:
  - Shows for one VM, pool by pool and criterion by criterion, which pools match it and which do not, which pool wins, and the image and nodes that
    follow. For a running VM, also shows what its launcher pod has now, and what its next start and a live migration would give it.
  - A VM that does not run, or is not in the cluster yet, is expanded first, so that the devices of its instancetype are included.
  - Without a pool list, explains the mapping that is in effect in the cluster. With a pool list, explains the mapping after a run of the playbook
    C(virtpools.kubevirt.site) with that list.
  - The launcher pod decides. For a VM that does not run, the module predicts the launcher pod, without the node labels that follow from its machine
    type, Hyper-V, TSC and confidential computing.
  - Needs only the rights of the ClusterRole C(virtpools-reader).
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
  - virtpools.kubevirt.kubevirt
  - virtpools.kubevirt.mode
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
    description: A YAML or JSON file with one VirtualMachine, VirtualMachineInstance, or template of one, which is not in the cluster
      yet. Its instancetype and preference are looked for in the file, then in the cluster (or in O(dump)).
    type: path
  dump:
    description:
      - A directory of YAML or JSON files with Kubernetes objects, as C(kubectl get -o yaml) writes them, to explain from instead of
        a cluster.
      - It must hold KubeVirt, DaemonSets, the Deployment C(virt-controller), nodes, the launcher policy with its binding, and the VM
        with its VirtualMachineInstance, launcher pod, instancetype, ControllerRevisions and NetworkAttachmentDefinitions, where they
        exist; its namespace where pools select namespaces by labels.
    type: path
seealso:
  - module: virtpools.kubevirt.verification_info
author:
  - the virtpools.kubevirt authors (@virtpools)
"""

EXAMPLES = r"""
- name: Why does it not get the GPU pool's launcher?
  virtpools.kubevirt.explanation_info:
    vm: demo/train-7
  register: explained

- name: Show it
  ansible.builtin.debug:
    var: explained.text

- name: What would this one get?
  virtpools.kubevirt.explanation_info:
    manifest: train-8.yaml
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
image_contents:
  description: Versions of QEMU and libvirt in that image, and what it lacks; empty for an image into which no run has looked.
  returned: success
  type: str
  sample: QEMU 10.1.0, libvirt 11.9.0
hypervisor:
  description: The hypervisor of its pool; null when it runs on that of KubeVirt's configuration.
  returned: success
  type: str
  sample: hyperv-direct
pods:
  description: The launcher pods of the VM, first the one with the guest.
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
      description: The launcher image before the launcher policy changed it, as the policy recorded it.
      type: str
    hypervisor:
      description: What virt-launcher is told to run the guest on.
      type: str
    pool:
      description: The pool that the launcher policy gave it.
      type: str
    policy:
      description: Digest of that policy.
      type: str
    webhook_image:
      description: The image that kubevirt-aie-webhook gave its container C(compute), as its annotation says.
      type: str
    migration_target:
      description: Whether it is the target of a live migration that has not ended.
      type: bool
    verdict:
      description: The verdict of M(virtpools.kubevirt.verification_info) on the pod.
      type: str
    reason:
      description: The facts behind the verdict.
      type: str
    remedy:
      description: What would help.
      type: str
cases:
  description: What a launcher pod of the VM gets in each case, with all pools and the reasons. The first case is that of RV(pool).
  returned: success
  type: list
  elements: dict
  contains:
    when:
      description: V(now), V(next start) or V(live migration).
      type: str
    source:
      description: The object that determines what the pod asks for.
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
    image_contents:
      description: What is in it, as RV(image_contents).
      type: str
    hypervisor:
      description: The hypervisor of the pool, as RV(hypervisor).
      type: str
    requirement:
      description: What the pod then requires of a node's owner label.
      type: str
    nodes:
      description: How many nodes fit, their names, and why the others do not.
      type: dict
    advice:
      description: What helps where the VM itself asks only for nodes that the mapping keeps it off; else empty.
      type: str
notes:
  description: Why a next start or a live migration is not explained.
  returned: success
  type: dict
findings:
  description: What could not be known, and with a pool list what forbids a run. See M(virtpools.kubevirt.plan_info) for the fields.
  returned: success
  type: list
  elements: dict
text:
  description: The whole explanation for people, as lines.
  returned: success
  type: list
  elements: str
"""

from dataclasses import replace

from ansible_collections.virtpools.kubevirt.plugins.module_utils import module_base, option_table
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.reading import dump, vm_lookup
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import permissions
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.findings import InputErrors
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.checks import explanation
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.modes.mode import in_results

_SUBJECTS = ("vm", "vmi", "manifest")

ARGUMENTS = option_table.arguments("mode", "pools", "explanation_info")


def body(task: module_base.Task) -> dict:
    given = [name for name in _SUBJECTS if task.params[name]]
    if len(given) != 1:
        said = f"{' and '.join(given)} are given" if given else "none is given"
        raise InputErrors([f"Give exactly one of vm, vmi and manifest; {said}."])
    found, objects = task.observed(handlers=False)
    source = (
        vm_lookup.ClusterSource(task.cluster)
        if objects is None
        else vm_lookup.FileSource(objects, f"the dump {task.params['dump']}")
    )
    mode = task.mode(found)
    subject = _subject(task, source)
    view = task.view(mode, found)
    subject = replace(subject, pods=tuple(map(view.launcher_pod, subject.pods)))
    seen = explanation.explain_vm(subject, view.explain_context())
    return {"changed": False, **in_results(mode), **seen.to_dict(), "text": seen.lines()}


def _subject(task: module_base.Task, source: vm_lookup.Source) -> explanation.Subject:
    with task.naming_rights((*permissions.READER, *permissions.EXPLAIN)):
        if task.params["vm"]:
            return vm_lookup.find_vm(source, task.params["vm"])
        if task.params["vmi"]:
            return vm_lookup.find_vmi(source, task.params["vmi"])
        path = task.params["manifest"]
        return vm_lookup.find_in_manifest(dump.read_file(path), f"The manifest {path}", source)


def main() -> None:
    module_base.run(body, ARGUMENTS)


if __name__ == "__main__":
    main()
