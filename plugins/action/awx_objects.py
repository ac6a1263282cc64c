# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action awx_objects: what the role awx creates in AWX, and what is there. Documented in plugins/modules/awx_objects.yml."""

from __future__ import annotations

import os
import typing as t

import yaml
from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase
from ansible.plugins.loader import lookup_loader

from ansible_collections.virtpools.kubevirt.plugins.plugin_utils import awx_present
from ansible_collections.virtpools.kubevirt.plugins.plugin_utils.awx_comparison import compared
from ansible_collections.virtpools.kubevirt.plugins.plugin_utils.awx_objects import (
    BEARER_TYPE,
    Secrets,
    objects,
    wrong_variables,
)
from ansible_collections.virtpools.kubevirt.plugins.plugin_utils.awx_present import GLOBAL_KINDS, KINDS, LISTS, Present

Data = dict[str, t.Any]


class ActionModule(ActionBase):  # type: ignore[misc]  # Ansible has no types
    """An action and not a module, because it reads the role's secret variables, and must not return or log them."""

    TRANSFERS_FILES = False
    _requires_connection = False
    _VALID_ARGS = frozenset({"options"})

    def run(self, tmp: None = None, task_vars: Data | None = None) -> Data:
        result: Data = super().run(tmp, task_vars)
        variables, options = task_vars or {}, self._task.args["options"]
        secrets = {
            name: self._templar.template(variables.get(f"virtpools_awx_{name}")) or {}
            for name in ("reader", "writer", "webhook", "email")
        }
        wrong = wrong_variables(options, secrets)
        if wrong:
            return {**result, "failed": True, "msg": "\n".join(wrong)}
        found = objects(options, Secrets(**secrets))
        reader = _Reader(self._lookup(options, variables))
        try:
            present = reader.present(options["awx_organization"], found)
        except AnsibleError as error:
            return {**result, "failed": True, "msg": f"AWX cannot be read: {error}"}
        surveys = self._templar.template(variables["__awx_surveys"])
        address = options["awx_host"] or os.environ.get("CONTROLLER_HOST") or ""
        return {**result, "changed": False, **compared(found, options, present, surveys, address)}

    def _lookup(self, options: Data, variables: Data) -> t.Callable[..., list[Data]]:
        """A function that reads from AWX. What is null comes from awx.awx's own environment variables and files."""
        connection = {
            "host": options["awx_host"],
            "username": options["awx_username"],
            "verify_ssl": options["awx_verify_ssl"],
            "oauth_token": self._templar.template(variables.get("virtpools_awx_token")) or None,
            "password": self._templar.template(variables.get("virtpools_awx_password")) or None,
        }

        def lookup(endpoint: str, **query: t.Any) -> list[Data]:
            plugin = lookup_loader.get("awx.awx.controller_api", loader=self._loader, templar=self._templar)
            read: list[Data] = plugin.run(
                [endpoint], variables, query_params=query, return_all=True, max_objects=100000, **connection
            )
            return read

        return lookup


class _Reader:
    """Reads from AWX what the role must know of it."""

    def __init__(self, lookup: t.Callable[..., list[Data]]) -> None:
        self._lookup = lookup

    def present(self, organization: str, found: Data) -> Present:
        content = {kind: self._named(kind, found["own_names"][kind]) for kind in GLOBAL_KINDS}
        content["credential_types"] += self._lookup("credential_types", name=BEARER_TYPE)
        for the_organization in self._lookup("organizations", name=organization):
            return self._in_organization(the_organization, found, content)
        return Present(content=content)

    def _named(self, kind: str, names: t.Sequence[str]) -> list[Data]:
        return [each for name in names for each in self._lookup(kind, name=name)]

    def _in_organization(self, organization: Data, found: Data, content: dict[str, list[Data]]) -> Present:
        for kind in KINDS:
            if kind not in GLOBAL_KINDS:
                content[kind] = self._lookup(f"organizations/{organization['id']}/{kind}")
        own = Present(content=content)
        # An execution environment of another organization, too, keeps the role from using its name.
        ids = {each["id"] for each in content["execution_environments"]}
        inside = self._lookup(f"organizations/{organization['id']}/execution_environments")
        content["execution_environments"] += [each for each in inside if each["id"] not in ids]
        inventories = own.named("inventories", found["own_names"]["inventories"])
        sources = [source for each in inventories for source in self._lookup("inventory_sources", inventory=each["id"])]
        sources = [each for each in sources if each["name"] == found["names"]["project"]]
        return Present(
            organization,
            content,
            {
                each["name"]: self._template(kind, each)
                for kind in LISTS
                for each in own.named(kind, found["own_names"][kind])
            },
            self._lookup("workflow_job_template_nodes"),
            [host for each in inventories for host in self._lookup("hosts", inventory=each["id"])],
            [host for each in sources for host in self._lookup(f"inventory_sources/{each['id']}/hosts")],
            [group for each in sources for group in self._lookup(f"inventory_sources/{each['id']}/groups")],
            *self._project_update(own.named("projects", found["own_names"]["projects"])),
        )

    def _template(self, kind: str, template: Data) -> Data:
        place = f"{kind}/{template['id']}"
        survey: list[Data] = self._lookup(f"{place}/survey_spec")
        return {
            **{what: self._lookup(f"{place}/{what}") for what in LISTS[kind]},
            "survey": survey[0] if survey else {},
            "variables": yaml.safe_load(template["extra_vars"] or "{}") or {},
        }

    def _project_update(self, projects: t.Sequence[Data]) -> tuple[Data, list[Data]]:
        """The last update of the project with what failed in it, if its last one failed."""
        if not any(each["status"] in awx_present.FAILED for each in projects):
            return {}, []
        updates = self._lookup(f"projects/{projects[0]['id']}/project_updates")
        last = max(updates, key=lambda each: int(each["id"]), default={})
        if not last:
            return {}, []
        return last, self._lookup(f"project_updates/{last['id']}/events", event="runner_on_failed")
