# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this plugin util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""What the role awx writes, refuses and removes: its objects, compared with what AWX has."""

from __future__ import annotations

import typing as t

from . import awx_present
from .awx_objects import asked, two_lists, with_others, written_names
from .awx_present import Present

Data = dict[str, t.Any]


def compared(found: Data, options: Data, present: Present, surveys: Data, address: str) -> Data:
    """What the role creates, with what others added, and what it refuses or removes."""
    managed = options["awx_organization"] if options["awx_manage_organization"] else None
    refusals = two_lists(options)
    refusals += awx_present.refused(awx_present.strangers(present, written_names(found, options), managed))
    kept = awx_present.strangers(present, found["own_names"], managed)
    workflows = {each["name"]: each["id"] for each in present.content.get("workflow_job_templates", ())}
    credentials, outdated = _credentials(found, options, present)
    organization = present.organization
    result: Data = {
        **found,
        "organization_id": organization["id"] if organization else None,
        "organization_is_ours": organization is not None and awx_present.is_ours(organization),
        "kept": [" ".join(each) for each in kept],
        "project_outdated": awx_present.project_outdated(present, found["own_names"]["projects"]),
        "links": with_others(found["links"], workflows, present.nodes),
        "removable": awx_present.removable(present, found["own_names"]),
        "others": awx_present.others(present, found["own_names"]),
        "hosts_to_remove": awx_present.hosts_to_remove(present, options["awx_hosts"]),
        "groups_to_remove": sorted(each["name"] for each in present.source_groups) if options["awx_hosts"] else [],
        "outdated_credentials": outdated,
        "project_problem": awx_present.project_problem(present, address),
    }
    for what, kind in (("templates", "job_templates"), ("workflows", "workflow_job_templates")):
        result[what] = []
        for template in found[what]:
            survey = asked(surveys[template["survey"]], options)
            merged, clashes = awx_present.template_with_others(template, survey, kind, present)
            refusals += clashes
            if what == "templates":
                merged["credentials"] = [credentials.get(each, each) for each in merged["credentials"]]
                kind_of_own = _type(found, options, present, template["access"])
                refusals += awx_present.two_of_a_type(merged, present, kind_of_own)
            result[what].append(merged)
    return {**result, "refusals": refusals}


def _type(found: Data, options: Data, present: Present, access: str) -> int | None:
    """The id of the type of the credential for clusters that job templates with this access get."""
    chosen = options[f"awx_{access}_credential"]
    types = {each["name"]: int(each["id"]) for each in present.content["credential_types"]}
    for each in present.named("credentials", [chosen]) if chosen else ():
        return int(each["credential_type"])
    own = [each["type"] for each in found["credentials"] if each["access"] == access and not chosen]
    return types.get(own[0]) if own else None


def _credentials(found: Data, options: Data, present: Present) -> tuple[dict[str, str], list[Data]]:
    """The ids of the role's credentials by name, and those of another type that they replace.

    A name is unique only for a type: after a move from one cluster to several there are two for a while.
    """
    ids: dict[str, str] = {}
    outdated = []
    for own in found["credentials"]:
        kind = _type(found, {**options, f"awx_{own['access']}_credential": None}, present, own["access"])
        for each in present.named("credentials", [own["name"]]):
            if each["credential_type"] == kind:
                ids[own["name"]] = str(each["id"])
            elif awx_present.is_ours(each):
                outdated.append({"name": each["name"], "id": each["id"], "type": each["credential_type"]})
    return ids, outdated
