#!/usr/bin/python
# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module run_lease: one run at a time."""

from __future__ import annotations

DOCUMENTATION = r"""
module: run_lease
short_description: Take or release the Lease that lets one run at a time change virt-handler pools
version_added: 0.1.0
description:
  - Takes the Lease C(virtpools) in KubeVirt's namespace for a run, or releases it. The other modules of the collection that write take the
    run's id as C(run_id) and change nothing when the Lease is not theirs.
  - The Lease lasts 30 seconds and is renewed by the modules of the run while they work. A run that died delays the next one by at most that
    time. A module of a dead C(ansible-playbook) that is still working renews it until it ends, and the next run waits for it.
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
  - virtpools.kubevirt.kubevirt
  - virtpools.kubevirt.attributes
  - virtpools.kubevirt.attributes.writes
attributes:
  idempotent:
    support: full
    details:
      - Taking the Lease again for the same run renews it.
options:
  state:
    description:
      - V(present) takes the Lease, V(absent) releases it.
      - V(renewed) renews the Lease for O(duration), and fails when the run does not hold it, or no longer.
    type: str
    default: present
    choices:
      - present
      - renewed
      - absent
  run_id:
    description:
      - The run. Needed to release and to renew; when taking, a new id is made by default.
    type: str
  timeout:
    description: How many seconds to wait for another run to end. V(0) does not wait.
    type: int
    default: 120
  duration:
    description:
      - For O(state=renewed), for how many seconds no other run may take the Lease, though no module of this one works. For tasks of yours between
        those of a run. It holds until the next module of the run renews the Lease, which is then as long as ever. Less than 30 is 30.
    type: int
    default: 30
author:
  - the virtpools.kubevirt authors (@virtpools)
"""

EXAMPLES = r"""
- name: Begin
  virtpools.kubevirt.run_lease:
  register: run

- name: Change something
  virtpools.kubevirt.primary_exclusion:
    run_id: "{{ run.run_id }}"

- name: Keep other runs out while something else is done
  virtpools.kubevirt.run_lease:
    state: renewed
    run_id: "{{ run.run_id }}"
    duration: 600

- name: End
  virtpools.kubevirt.run_lease:
    state: absent
    run_id: "{{ run.run_id }}"
"""

RETURN = r"""
run_id:
  description: The run that holds the Lease, or has released it. In check mode nothing is taken, and the id is none that a module would accept.
  returned: success
  type: str
  sample: run-5e2a90c1d7b4
namespace:
  description: KubeVirt's namespace, where the Lease is.
  returned: success
  type: str
  sample: kubevirt
"""

from ansible_collections.virtpools.kubevirt.plugins.module_utils import _module
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster import live
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.lease import DURATION_SECONDS, RunLease
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.findings import InputErrors

ARGUMENTS: _module.Arguments = {
    "state": {"type": "str", "default": "present", "choices": ["present", "renewed", "absent"]},
    "run_id": {"type": "str"},
    "timeout": {"type": "int", "default": 120},
    "duration": {"type": "int", "default": DURATION_SECONDS},
}


def body(task: _module.Task) -> dict:
    state = task.params["state"]
    if state != "present" and not task.params["run_id"]:
        what = "release" if state == "absent" else "renew"
        raise InputErrors([f"run_id is missing: to {what} the Lease, say which run holds it."])
    found = live.find_kubevirt(task.cluster, task.params["kubevirt_namespace"], task.params["kubevirt_name"])
    namespace = found["metadata"]["namespace"]
    run_id = task.params["run_id"] or _module.new_run_id()
    duration = max(task.params["duration"], DURATION_SECONDS)
    lease = RunLease(task.cluster, namespace, run_id, description=_module.description(), duration_seconds=duration)
    result = {"run_id": run_id, "namespace": namespace}
    if state == "renewed":
        if task.check_mode:
            lease.check()
        else:
            lease.renew()
        return {"changed": False, **result}
    release = state == "absent"
    if task.check_mode:
        return {"changed": lease.held() is release, **result}
    if release:
        return {"changed": lease.release(), **result}
    changed = not lease.held()
    lease.acquire(task.params["timeout"])
    return {"changed": changed, **result}


def main() -> None:
    _module.run(body, ARGUMENTS)


if __name__ == "__main__":
    main()
