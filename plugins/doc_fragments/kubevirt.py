# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options that say which KubeVirt is meant."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  kubevirt_namespace:
    description:
      - Namespace of the KubeVirt object.
      - Without it, the only KubeVirt object of the cluster is used, in any namespace. Several are an error.
    type: str
  kubevirt_name:
    description: Name of the KubeVirt object, where its namespace holds several.
    type: str
  run_by:
    description:
      - Who runs this, for people who read the Lease, the history, or the API server's audit log. There it is a part of the user agent.
      - By default the job, the template and the user of AWX, or else the user and the machine.
    type: str
  run_record:
    description: The record of a run, a file that M(virtpools.kubevirt.run_report) began. The module appends what it did, and how it
      ended. A record that does not exist (any more) is ignored.
    type: path
requirements:
  - python >= 3.10
  - kubernetes >= 24.2.0 (the Python package)
  - PyYAML
"""
