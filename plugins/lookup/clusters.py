# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lookup clusters: the hosts of a play that works on clusters. Ansible evaluates it before --limit can leave out the play."""

from __future__ import annotations

DOCUMENTATION = """
name: clusters
short_description: Check the inventory, and return the pattern of the hosts that are clusters
version_added: 0.1.0
description:
  - For C(hosts) of the playbooks of this collection only. It may change at any time.
  - Refuses an inventory that does not exist, and a run without a host. Ansible itself reports success when no host matches, and works on
    localhost when an inventory does not exist.
options:
  _terms:
    description: The variable C(virtpools_hosts), a pattern of hosts. Without it, every host of the inventory, or localhost without an inventory.
    type: list
    elements: raw
    required: true
author:
  - the virtpools.kubevirt authors (@virtpools)
"""

EXAMPLES = """
- name: Verify every VM
  hosts: "{{ lookup('virtpools.kubevirt.clusters', virtpools_hosts | default('')) }}"
"""

RETURN = """
_raw:
  description: The pattern.
  type: list
  elements: raw
"""

import os
import typing as t

from ansible.errors import AnsibleError
from ansible.inventory.manager import InventoryManager
from ansible.plugins.lookup import LookupBase

DEFAULT_INVENTORY = "/etc/ansible/hosts"
"""Where Ansible looks for an inventory when it is given none."""


class LookupModule(LookupBase):  # type: ignore[misc]  # Ansible has no types
    def run(
        self, terms: t.Sequence[t.Any], variables: t.Mapping[str, t.Any] | None = None, **_options: t.Any
    ) -> list[t.Any]:
        found = variables or {}
        sources = [str(source) for source in found.get("ansible_inventory_sources") or ()]
        _require_sources(sources)
        groups, (asked,) = found.get("groups") or {}, terms
        given = groups.get("all") or any(os.path.exists(source) for source in sources)
        pattern, limit = asked or ("all" if given else "localhost"), found.get("ansible_limit")
        if not self._hosts(groups, pattern, limit):
            raise AnsibleError(_no_host(sources, pattern, limit))
        return [pattern]

    def _hosts(self, groups: t.Mapping[str, t.Sequence[str]], pattern: t.Any, limit: str | None) -> t.Sequence[t.Any]:
        """The hosts that a play has with this pattern. A host is in the inventory of a lookup only by its name and groups."""
        inventory = InventoryManager(self._loader, parse=False)
        for group, hosts in groups.items():
            inventory.add_group(group)
            for host in hosts:
                inventory.add_host(host, group=group)
        inventory.subset(limit)
        try:
            return t.cast("t.Sequence[t.Any]", inventory.get_hosts(pattern))
        except AnsibleError:  # with host_pattern_mismatch = error, as ansible-test sets it
            return ()


def _require_sources(sources: t.Sequence[str]) -> None:
    """Refuse files that are missing. A list of hosts is not a file, nor is what has an @: plugins read that."""
    missing = [
        source
        for source in sources
        if "," not in source and "@" not in source and source != DEFAULT_INVENTORY and not os.path.exists(source)
    ]
    if missing:
        raise AnsibleError(
            f"The inventory {', '.join(missing)} does not exist: correct -i, ANSIBLE_INVENTORY or inventory in ansible.cfg. "
            "To name a host instead of a file, add a comma: -i east,"
        )


def _no_host(sources: t.Sequence[str], pattern: t.Any, limit: str | None) -> str:
    inventory, matches = f"The inventory {', '.join(sources)} has no host that matches", pattern
    if limit and pattern == "localhost":
        return f"The limit {limit} leaves out localhost, on which this playbook runs: correct --limit, or leave it out."
    if limit:
        return f"{inventory} {matches} and the limit {limit}: correct virtpools_hosts, the inventory or --limit."
    return f"{inventory} {matches}: add a host for every cluster, or correct virtpools_hosts."
