# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The option of modules that work with collection and with operator pools."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  mode:
    description:
      - 'Who creates the pools'' DaemonSets. V(collection): this collection, on any KubeVirt. V(operator): virt-operator, where KubeVirt
        is a build with pools of its own; C(docs/operator-mode.md) describes these builds and their limits.'
      - V(auto) is V(operator) where the cluster has such pools already, else V(collection). A run in the other mode than the cluster's
        moves all its pools over. A list of the history comes back in the mode that it had.
    type: str
    choices:
      - auto
      - operator
      - collection
    default: auto
"""
