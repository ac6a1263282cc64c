# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options of modules that write: the run they belong to."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  lease_timeout:
    description: Without O(run_id), how many seconds to wait for another run to end.
    type: int
    default: 120
  run_id:
    description:
      - The run that this task belongs to, as returned by M(virtpools.kubevirt.run_lease). When that run does not hold the Lease (any
        more), the task fails and changes nothing.
      - Without it, the module takes the Lease for itself while it writes.
    type: str
"""
