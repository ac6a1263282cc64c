#!/usr/bin/python
# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module verification_report: the report of a verification in a ConfigMap."""

from __future__ import annotations

DOCUMENTATION = r"""
module: verification_report
short_description: Store the report of a verification in a ConfigMap
version_added: 0.1.0
description:
  - Writes the files that M(virtpools.kubevirt.verification_info) wrote to a folder to a ConfigMap, where they outlive the job.
  - A file of more than 64 KiB is compressed with gzip, and its key ends in C(.gz). A ConfigMap holds 1 MiB.
  - The ConfigMap has the latest report only. Its annotation C(virtpools.io/reported-by) names who wrote it.
  - Needs the rights to get, create and update the ConfigMap.
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
  - virtpools.kubevirt.kubevirt
  - virtpools.kubevirt.attributes
  - virtpools.kubevirt.attributes.writes
attributes:
  diff_mode:
    support: full
    details:
      - Shows the report as text.
  idempotent:
    support: full
    details:
      - A report contains the time of the verification, so a new one is always a change.
options:
  configmap:
    description:
      - The ConfigMap, as V(namespace/name), or as V(name) in KubeVirt's namespace. It is created if it is missing, its namespace is not.
      - A ConfigMap that holds something else is refused.
    type: str
    required: true
  folder:
    description: The folder with the report, O(virtpools.kubevirt.verification_info#module:reports.folder).
    type: path
    required: true
seealso:
  - module: virtpools.kubevirt.verification_info
author:
  - the virtpools.kubevirt authors (@virtpools)
"""

EXAMPLES = r"""
- name: Verify all VMs
  virtpools.kubevirt.verification_info:
    reports:
      folder: /tmp/virtpools

- name: Keep the report
  virtpools.kubevirt.verification_report:
    configmap: monitoring/virtpools-report
    folder: /tmp/virtpools
"""

RETURN = r"""
configmap:
  description: The ConfigMap, as C(namespace/name).
  returned: success
  type: str
  sample: monitoring/virtpools-report
keys:
  description: Its keys.
  returned: success
  type: list
  elements: str
  sample: [report.html.gz, report.json, report.txt]
"""

from pathlib import Path

from ansible_collections.virtpools.kubevirt.plugins.module_utils import module_base
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.writing import reports
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.findings import InputErrors
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.objects import field
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.reports import config_map

ARGUMENTS = {
    "configmap": {"type": "str", "required": True},
    "folder": {"type": "path", "required": True},
}
_SHOWN = "report.txt"


def body(task: module_base.Task) -> dict:
    namespace, name = config_map.parse(task.params["configmap"])
    found = _read(task.params["folder"])
    namespace = namespace or task.namespace()
    before, after = reports.put(task.cluster, namespace, name, found, by=task.run_by, dry_run=task.check_mode)
    title = f"ConfigMap/{namespace}/{name}/{_SHOWN}"
    return {
        "changed": before != after,
        "configmap": f"{namespace}/{name}",
        "keys": sorted({**after.get("data", {}), **after.get("binaryData", {})}),
        "diff": [
            {
                "before_header": title,
                "after_header": title,
                "before": field(before, "data", _SHOWN) or "",
                "after": field(after, "data", _SHOWN) or "",
            }
        ],
    }


def _read(folder: str) -> dict[str, bytes]:
    try:
        found = {path.name: path.read_bytes() for path in sorted(Path(folder).glob("report.*"))}
    except OSError as error:
        raise InputErrors([f"The report in {folder} cannot be read: {error.strerror}."]) from error
    if not found:
        raise InputErrors(
            [f"The folder {folder} has no report; let verification_info write one (its option reports.folder)."]
        )
    return found


def main() -> None:
    module_base.run(body, ARGUMENTS)


if __name__ == "__main__":
    main()
