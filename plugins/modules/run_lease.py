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
  - The Lease lasts 30 seconds. The modules of the run renew it while they work. A run that was killed delays the next one by at most that time. When
    C(ansible-playbook) was killed and one of its modules still works, that module renews the Lease until it ends, and the next run waits.
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
      - V(renewed) renews the Lease for O(duration). It fails when the run does not hold the Lease, or no longer.
    type: str
    default: present
    choices:
      - present
      - renewed
      - absent
  run_id:
    description:
      - The run. Needed to release and to renew the Lease. When the Lease is taken, the default is a new id.
    type: str
  timeout:
    description: Seconds to wait for another run to end. V(0) does not wait.
    type: int
    default: 120
  duration:
    description:
      - With O(state=renewed), seconds for which no other run can take the Lease although no module of this run works. Use it for your own tasks between
        those of a run. The next module of the run renews the Lease for 30 seconds again. Less than 30 is treated as 30.
    type: int
    default: 30
author:
  - the virtpools.kubevirt authors (@virtpools)
"""

EXAMPLES = r"""
- name: Take the Lease
  virtpools.kubevirt.run_lease:
  register: run

- name: Change the cluster
  virtpools.kubevirt.primary_exclusion:
    run_id: "{{ run.run_id }}"

- name: Keep other runs out during tasks of your own
  virtpools.kubevirt.run_lease:
    state: renewed
    run_id: "{{ run.run_id }}"
    duration: 600

- name: Release the Lease
  virtpools.kubevirt.run_lease:
    state: absent
    run_id: "{{ run.run_id }}"
"""

RETURN = r"""
run_id:
  description: The run that holds the Lease, or has released it. In check mode no Lease is taken, so other modules do not accept this id.
  returned: success
  type: str
  sample: run-5e2a90c1d7b4
namespace:
  description: KubeVirt's namespace, where the Lease is.
  returned: success
  type: str
  sample: kubevirt
"""

from ansible_collections.virtpools.kubevirt.plugins.module_utils import module_base, option_table
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.lease import DURATION_SECONDS, RunLease
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.reading import live
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.findings import InputErrors

ARGUMENTS: option_table.Arguments = {
    "state": {"type": "str", "default": "present", "choices": ["present", "renewed", "absent"]},
    "run_id": {"type": "str"},
    "timeout": {"type": "int", "default": 120},
    "duration": {"type": "int", "default": DURATION_SECONDS},
}


def body(task: module_base.Task) -> dict:
    state = task.params["state"]
    if state != "present" and not task.params["run_id"]:
        what = "release" if state == "absent" else "renew"
        raise InputErrors([f"run_id is missing: to {what} the Lease, name the run that holds it."])
    kubevirt = live.find_kubevirt(task.cluster, task.params["kubevirt_namespace"], task.params["kubevirt_name"])
    namespace = kubevirt["metadata"]["namespace"]
    run_id = task.params["run_id"] or module_base.new_run_id()
    duration = max(task.params["duration"], DURATION_SECONDS)
    lease = RunLease(task.cluster, namespace, run_id, description=task.run_by, duration_seconds=duration)
    result = {"run_id": run_id, "namespace": namespace}
    if state == "renewed":
        if task.check_mode:
            lease.check()
        else:
            lease.renew()
            task.note_run(lease_seconds=duration)
        return {"changed": False, **result}
    release = state == "absent"
    if task.check_mode:
        return {"changed": lease.is_ours() is release, **result}
    if release:
        task.note_end_of_run()
        return {"changed": lease.release(), **result}
    changed = not lease.is_ours()
    lease.acquire(task.params["timeout"], task.status.say)
    task.note_run(lease_seconds=duration)
    return {"changed": changed, **result}


def main() -> None:
    module_base.run(body, ARGUMENTS)


if __name__ == "__main__":
    main()
