# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this plugin util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""What AWX already has: what of it is the role's, and what others added, which stays.

An object is the role's if it has one of its names and the mark in its description. What the role wrote into a template (its
variables, questions, labels and so on) is listed at the end of the description of the template's survey. AWX shows that text
nowhere, and gives it to no job. AWX's web pages write it back when questions are edited (updateSurveySpec in TemplateSurvey.js
of ansible/awx, onSubmit in TemplateSurveyForm.tsx of ansible/ansible-ui). It goes only together with the last question.
"""

from __future__ import annotations

import json
import typing as t
from dataclasses import dataclass, field

Data = dict[str, t.Any]
Sentences = list[str]

MARK = "(virtpools.kubevirt)"
WRITTEN = " Written by virtpools.kubevirt: "

KINDS = {
    "projects": "project",
    "inventories": "inventory",
    "credentials": "credential",
    "notification_templates": "notification",
    "job_templates": "job template",
    "workflow_job_templates": "workflow",
    "teams": "team",
    "execution_environments": "execution environment",
    "credential_types": "credential type",
}
"""The kinds of objects that the role creates: AWX's endpoint, and what it is called in a sentence."""
GLOBAL_KINDS = ("execution_environments", "credential_types")
"""Their names are unique in a whole AWX."""

FAILED = ("failed", "error", "canceled")
"""What AWX says of a project whose last update failed."""

_NOTIFICATIONS = ("notification_templates_error", "notification_templates_success")
LISTS = {
    "job_templates": ("credentials", "labels", "instance_groups", *_NOTIFICATIONS),
    "workflow_job_templates": ("labels", *_NOTIFICATIONS, "notification_templates_approvals"),
}
"""The lists of other objects that a template has."""


@dataclass(frozen=True)
class Present:
    """What AWX has, as its API shows it."""

    organization: Data | None = None
    content: t.Mapping[str, t.Sequence[Data]] = field(default_factory=dict)
    """The objects of the organization by kind, and those of ``GLOBAL_KINDS`` with the role's names."""
    templates: t.Mapping[str, t.Mapping[str, t.Any]] = field(default_factory=dict)
    """The lists of each template of the role by the template's name, its ``survey``, and its ``variables`` as a dictionary."""
    nodes: t.Sequence[Data] = ()
    """The nodes of workflows, also of other workflows."""
    hosts: t.Sequence[Data] = ()
    """The hosts of the role's inventory."""
    source_hosts: t.Sequence[Data] = ()
    """Those that come from the project's inventory."""
    source_groups: t.Sequence[Data] = ()
    project_update: t.Mapping[str, t.Any] = field(default_factory=dict)
    """The last update of the project that failed, if its last one did."""
    project_events: t.Sequence[Data] = ()
    """What failed in it."""

    def named(self, kind: str, names: t.Collection[str]) -> list[Data]:
        """The objects of a kind that have one of these names."""
        return [each for each in self.content.get(kind, ()) if each["name"] in names]


def is_ours(found: t.Mapping[str, t.Any]) -> bool:
    """Whether an object with a name of ours was created by the role."""
    return MARK in (found.get("description") or "")


def described(text: str) -> str:
    """The description of an object of the role."""
    return f"{text} {MARK}"


# Objects --------------------------------------------------------------------------------------------------------------


def strangers(
    present: Present, names: t.Mapping[str, t.Sequence[str]], organization: str | None = None
) -> list[tuple[str, str]]:
    """The objects of others that have names of the role, each as its kind in words and its name.

    :param names: the names by kind.
    :param organization: the name of the organization, if the role manages it.
    """
    found = [
        (KINDS[kind], str(each["name"]))
        for kind, own in names.items()
        for each in present.named(kind, own)
        if not is_ours(each)
    ]
    if organization and present.organization and not is_ours(present.organization):
        found.insert(0, ("organization", organization))
    return found


def refused(strangers_found: t.Iterable[tuple[str, str]]) -> Sentences:
    """Sentences for objects of others that the role would overwrite."""
    remedies = {
        "organization": "set virtpools_awx_manage_organization to false, choose another virtpools_awx_organization"
    }
    return [
        f"AWX has the {kind} {name}, which this role did not create: "
        f"{remedies.get(kind, 'choose another virtpools_awx_prefix, rename it')}, "
        f"or write {MARK} into its description to hand it over."
        for kind, name in strangers_found
    ]


def removable(present: Present, names: t.Mapping[str, t.Sequence[str]]) -> dict[str, list[Data]]:
    """The role's objects by kind, each with its name, its id and, for a credential, its type."""
    return {
        kind: [
            {"name": each["name"], "id": each["id"], "type": each.get("credential_type")}
            for each in present.named(kind, own)
            if is_ours(each)
        ]
        for kind, own in names.items()
    }


def others(present: Present, names: t.Mapping[str, t.Sequence[str]]) -> list[str]:
    """The names of what is in the organization and is not the role's."""
    if not present.organization:
        return []
    number = present.organization["id"]
    return [
        each["name"]
        for kind, found in present.content.items()
        for each in found
        if each.get("organization") == number and not (each["name"] in names.get(kind, ()) and is_ours(each))
    ]


# Templates ------------------------------------------------------------------------------------------------------------


def template_with_others(template: Data, survey: Data, kind: str, present: Present) -> tuple[Data, Sentences]:
    """A template as the role writes it, with what others added to it, and sentences about what cannot be on it together.

    :param template: it has the names of the objects in each of its lists, and perhaps ``variables``.
    :param survey: the role's survey for it.
    """
    have = present.templates.get(template["name"], {})
    before = _written(have)
    if template.get("keeps_credentials"):
        before = {**before, "credentials": []}
    wanted = {what: template[what] for what in LISTS[kind]}
    merged = {what: _list(what, wanted[what], have.get(what, ()), before) for what in wanted}
    variables = {**template.get("variables", {})}
    added = {
        key: value
        for key, value in have.get("variables", {}).items()
        if key not in {*variables, *before.get("variables", ())}
    }
    questions = _questions(survey["spec"], have, before)
    now = {
        **{what: sorted(names) for what, names in wanted.items()},
        "variables": sorted(variables),
        "questions": [each["variable"] for each in survey["spec"]],
    }
    result = {
        **template,
        **merged,
        "variables": {**variables, **added},
        "survey": {
            **survey,
            "description": f"{survey['description']}{WRITTEN}{json.dumps(now, sort_keys=True)}",
            "spec": questions,
        },
    }
    return result, _clashes(template["name"], variables, survey["spec"], have, before)


def _written(have: t.Mapping[str, t.Any]) -> Data:
    """What the role wrote into a template last time; nothing if that is not known."""
    description = have.get("survey", {}).get("description", "")
    try:
        found = json.loads(description.partition(WRITTEN)[2] or "{}")
    except ValueError:  # a person has edited it
        return {}
    return found if isinstance(found, dict) else {}


def _list(what: str, wanted: t.Sequence[str], have: t.Iterable[Data], before: Data) -> list[str]:
    """What the role puts into a list of a template, then what others did. AWX finds labels by name, within the organization."""
    own = {*wanted, *before.get(what, ())}
    return [
        *wanted,
        *(each["name"] if what == "labels" else str(each["id"]) for each in have if each["name"] not in own),
    ]


def _questions(wanted: t.Sequence[Data], have: t.Mapping[str, t.Any], before: Data) -> list[Data]:
    """The questions of a survey, in the order that they have if those of the role are as they should be."""
    existing = have.get("survey", {}).get("spec", [])
    own = {*(each["variable"] for each in wanted), *before.get("questions", ())}
    if [each for each in existing if each["variable"] in own] == [*wanted]:
        return [*existing]
    return [*wanted, *(each for each in existing if each["variable"] not in own)]


def _clashes(
    name: str, variables: Data, wanted: t.Sequence[Data], have: t.Mapping[str, t.Any], before: Data
) -> Sentences:
    """What another user has added under a name that the role now needs for something else."""
    if "questions" not in before:
        return []
    existing = {each["variable"]: each for each in have.get("survey", {}).get("spec", [])}
    there = have.get("variables", {})
    return [
        *(
            f"The survey of {name} has a question for {each['variable']} that another user added, and this role asks for it, too: "
            "delete that question in AWX."
            for each in wanted
            if each["variable"] not in before["questions"] and existing.get(each["variable"], each) != each
        ),
        *(
            f"The template {name} has a variable {key} that another user added, and virtpools_awx_variables has another value for "
            "it: delete one of them."
            for key, value in variables.items()
            if key not in before.get("variables", ()) and there.get(key, value) != value
        ),
    ]


def two_of_a_type(template: Data, present: Present, kind: int | None) -> Sentences:
    """Sentences about credentials of others that have the type of the role's credential for clusters.

    :param template: with its list of credentials as the role writes it.
    :param kind: the id of that type.
    """
    have = present.templates.get(template["name"], {}).get("credentials", ())
    return [
        f"The job template {template['name']} has the credential {each['name']}, which another user added, and AWX takes one of a "
        "type: take it off, or name it in virtpools_awx_reader_credential or virtpools_awx_writer_credential."
        for each in have
        if str(each["id"]) in template["credentials"][1:] and each["credential_type"] == kind
    ]


# Inventory and project ------------------------------------------------------------------------------------------------


def hosts_to_remove(present: Present, wanted: t.Collection[str]) -> list[str]:
    """The hosts that the role created, or that came from the project, and that it does not list any more.

    :param wanted: the hosts of ``virtpools_awx_hosts``. Without any, the project has the inventory.
    """
    ours = {each["name"] for each in present.hosts if is_ours(each)}
    sourced = {each["name"] for each in present.source_hosts} if wanted else set()
    return sorted((ours | sourced) - {*wanted})


def project_outdated(present: Present, names: t.Sequence[str]) -> bool:
    """Whether AWX has not read the project. It tries again only when a job starts."""
    return any(each["status"] in (*FAILED, "never updated", "missing") for each in present.named("projects", names))


def project_problem(present: Present, address: str) -> str:
    """Why the last update of the project failed, and where to read more, or nothing."""
    update = present.project_update
    if not update:
        return ""
    told = [each.get("event_data", {}).get("res", {}).get("msg") for each in present.project_events]
    reasons = [*told, update.get("job_explanation"), update.get("result_traceback")]
    reason = next((" ".join(str(each).split()) for each in reasons if each), "AWX gives no reason")
    return (
        f"AWX could not update the project: {reason.rstrip('.')}. Read {address.rstrip('/')}/#/jobs/project/{update['id']}, and look at "
        "virtpools_awx_project_url, virtpools_awx_project_branch, virtpools_awx_project_credential, and at the Galaxy credential of the "
        "organization, with which AWX installs collections/requirements.yml. Then run this playbook again."
    )
