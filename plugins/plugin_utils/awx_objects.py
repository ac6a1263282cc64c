# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this plugin util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""The objects that the role awx creates in AWX: which there are, their names, and what refers to what.

It never returns a secret. The role's tasks read credentials and settings of notifications from its variables.
"""

from __future__ import annotations

import contextlib
import typing as t
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from ansible_collections.virtpools.kubevirt.plugins.module_utils.option_table.surveys import (
    ROLLOUT_WORKFLOW,
    UPGRADE_WORKFLOW,
)

from .awx_present import MARK, described

Access = t.Literal["reader", "writer"]
Data = dict[str, t.Any]

POOL_LIST = "virtpools_pools"
LIST_SOURCES = (POOL_LIST, "virtpools_pools_manifest", "virtpools_pools_from_cluster")
"""The variables that a pool list comes from."""
BEARER_TYPE = "OpenShift or Kubernetes API Bearer Token"
"""A credential type of AWX itself."""


@dataclass(frozen=True)
class Template:
    """A job template, which runs one playbook."""

    playbook: str
    access: Access
    """The credential that it runs with."""
    description: str
    variables: t.Mapping[str, t.Any] = field(default_factory=dict)
    notify_success: bool = False
    """Whether notifications are also sent when a job succeeds."""


TEMPLATES = (
    # Notifications of a job that succeeds show what there is to approve: the artifacts of a job in check mode.
    Template("plan", "reader", "What would site do? Changes nothing.", notify_success=True),
    Template("site", "writer", "Give the clusters these pools."),
    Template(
        "rollout",
        "writer",
        "The same in waves, with gates after each. Carries out only an approved plan.",
        {"virtpools_require_approval": True},
        notify_success=True,
    ),
    Template("rollback", "writer", "Go back to an earlier pool list.", notify_success=True),
    Template("remove", "writer", "Remove some or all pools."),
    Template("verify", "reader", "Is every VM on the right image and node? Changes nothing."),
    Template("explain", "reader", "Why does a VM get this image and these nodes? Changes nothing."),
    Template("workload_update", "writer", "Live-migrate VMs whose launcher image is outdated."),
    Template("upgrade_check", "reader", "Can KubeVirt be upgraded? Changes nothing."),
    Template(
        "upgrade",
        "writer",
        "Take the pools over an upgrade of KubeVirt. Carries out only an approved upgrade.",
        {"virtpools_require_approval": True},
        notify_success=True,
    ),
)


@dataclass(frozen=True)
class Approval:
    """A node of a workflow that waits for a person."""

    node: str
    name: str
    description: str


@dataclass(frozen=True)
class Job:
    """A node of a workflow that runs the job template of a playbook."""

    node: str
    playbook: str
    check: bool = False
    """Whether it runs in check mode. Its template must write: only then AWX asks for the job type."""


@dataclass(frozen=True)
class Link:
    """The nodes that follow a node."""

    node: str
    success: tuple[str, ...] = ()
    failure: tuple[str, ...] = ()


@dataclass(frozen=True)
class Workflow:
    """Jobs of several playbooks, with approvals between them."""

    name: str
    """Its name after the prefix."""
    description: str
    survey: str
    approvals: tuple[Approval, ...]
    jobs: tuple[Job, ...]
    links: tuple[Link, ...]


# A job that is to be approved is the one that follows in check mode, so it refuses what that would refuse.
WORKFLOWS = (
    # A plan is approved before it is carried out, and so is the way back. The last job verifies against the approved plan, so the
    # workflow fails where that was not carried out, or was undone.
    Workflow(
        "rollout with approval",
        "Plan, approve, roll out, verify; and go back if that fails",
        ROLLOUT_WORKFLOW,
        (
            Approval(
                "approve",
                "Approve the plan",
                "The job plan shows what rollout will do. A run with another plan is refused.",
            ),
            Approval(
                "approve_rollback",
                "Go back to the previous list",
                "A job failed. The job plan_rollback shows what would be undone, and on how many nodes: nothing if rollout was refused.",
            ),
        ),
        (
            Job("plan", "rollout", check=True),
            Job("rollout", "rollout"),
            Job("verify", "verify"),
            Job("plan_rollback", "rollback", check=True),
            Job("rollback", "rollback"),
            Job("verify_rollback", "verify"),
        ),
        (
            Link("plan", ("approve",)),
            Link("approve", ("rollout",)),
            Link("rollout", ("verify",), ("plan_rollback",)),
            Link("verify", (), ("plan_rollback",)),
            Link("plan_rollback", ("approve_rollback",)),
            Link("approve_rollback", ("rollback",)),
            Link("rollback", ("verify_rollback",)),
        ),
    ),
    # Nothing follows a job that failed: the workflow fails then, and what is prepared harms neither version of KubeVirt.
    Workflow(
        "upgrade with approval",
        "Check, approve, prepare the pools, wait for KubeVirt's upgrade, let the pools follow, verify",
        UPGRADE_WORKFLOW,
        (
            Approval(
                "approve",
                "Approve the upgrade",
                "The job before shows what upgrade will do. A run with another version, list or owner of a node is refused.",
            ),
            Approval(
                "kubevirt_upgraded",
                "KubeVirt has been upgraded",
                "The pools are prepared. Upgrade KubeVirt, then approve, so that the pools follow.",
            ),
        ),
        (
            Job("check", "upgrade", check=True),
            Job("prepare", "upgrade"),
            Job("follow", "upgrade"),
            Job("verify", "verify"),
        ),
        (
            Link("check", ("approve",)),
            Link("approve", ("prepare",)),
            Link("prepare", ("kubevirt_upgraded",)),
            Link("kubevirt_upgraded", ("follow",)),
            Link("follow", ("verify",)),
        ),
    ),
)


@dataclass(frozen=True)
class Team:
    """A team of AWX, and what its members may do."""

    name: str
    """Its name after the prefix, and its key in ``virtpools_awx_teams``."""
    description: str
    grants: tuple[tuple[str, tuple[str, ...], bool], ...]
    """Each role in AWX with the playbooks whose job templates it is for, and whether it is for the workflows, too."""


_ALL = tuple(template.playbook for template in TEMPLATES)
_READING = tuple(template.playbook for template in TEMPLATES if template.access == "reader")
_CHANGING = tuple(template.playbook for template in TEMPLATES if template.access == "writer")
# AWX shows the output of a job only to users who may read its job template, also where a workflow started the job.
TEAMS = (
    Team("readers", "May read the output of all jobs", (("read", _ALL, True),)),
    Team(
        "operators",
        "May start what changes nothing, and the workflows, and read the output of all jobs",
        (("execute", _READING, True), ("read", _CHANGING, False)),
    ),
    Team(
        "approvers",
        "May decide on approvals, and read the output of all jobs",
        (("approval", (), True), ("read", _ALL, False)),
    ),
)

# A kubeconfig for several clusters. AWX writes it to a file while a job runs. Hosts of the inventory choose one of its
# contexts with virtpools_context.
KUBECONFIG_INPUTS = {
    "fields": [{"id": "kubeconfig", "label": "Kubeconfig", "type": "string", "secret": True, "multiline": True}],
    "required": ["kubeconfig"],
}
KUBECONFIG_INJECTORS = {
    "file": {"template.kubeconfig": "{{ kubeconfig }}"},
    "extra_vars": {"virtpools_kubeconfig": "{{ tower.filename.kubeconfig }}"},
}

# Notifications. AWX fills these templates in. It checks them without knowing the keys of the artifacts.
MESSAGE = "{{ job_friendly_name }} {{ job.id }} ({{ job.name }}) is {{ job.status }}: {{ url }}"
APPROVAL_NEEDED = "{{ approval_node_name }}: an approval is needed at {{ workflow_url }}"
APPROVAL_DECIDED = "{{ approval_node_name }}: {{ approval_status }}, see {{ workflow_url }}"
EMAIL_BODY = """\
{{ job_friendly_name }} {{ job.id }} ({{ job.name }}) is {{ job.status }}.

Job: {{ url }}
Started by: {{ ((job.summary_fields | default({})).created_by | default({})).username | default('AWX') }}
Limit: {{ job.limit | default('none', true) }}
Clusters: {{ job.host_status_counts | default({}) }}
Results: {{ job.artifacts | default({}) }}"""
WEBHOOK_BODY = (
    '{"job": {{ job.id }}, "name": {{ job.name | tojson }}, '
    '"status": {{ job.status | tojson }}, "url": {{ url | tojson }}, '
    "\"limit\": {{ job.limit | default('', true) | tojson }}, "
    '"clusters": {{ job.host_status_counts | default({}) | tojson }}, '
    '"results": {{ job.artifacts | default({}) | tojson }}}'
)
WEBHOOK_APPROVAL = (
    '{"approval": {{ approval_node_name | tojson }}, "status": {{ approval_status | tojson }}, '
    '"url": {{ workflow_url | tojson }}}'
)
_JOB_EVENTS = ("started", "success", "error")
_DECISIONS = ("approved", "timed_out", "denied")
WEBHOOK_MESSAGES: Data = {
    **{event: {"body": WEBHOOK_BODY} for event in _JOB_EVENTS},
    "workflow_approval": {event: {"body": WEBHOOK_APPROVAL} for event in ("running", *_DECISIONS)},
}
EMAIL_MESSAGES: Data = {
    **{event: {"message": MESSAGE, "body": EMAIL_BODY} for event in _JOB_EVENTS},
    "workflow_approval": {
        "running": {"message": APPROVAL_NEEDED, "body": APPROVAL_NEEDED},
        **{event: {"message": APPROVAL_DECIDED, "body": APPROVAL_DECIDED} for event in _DECISIONS},
    },
}
# Every setting that AWX has for a kind, so that what it shows equals what was written.
WEBHOOK_DEFAULTS = {
    "http_method": "POST",
    "headers": {},
    "username": "",
    "password": "",
    "disable_ssl_verification": False,
}
EMAIL_DEFAULTS = {"port": 25, "username": "", "password": "", "use_tls": False, "use_ssl": False, "timeout": 30}


WEBHOOK_KEYS = ("url", *WEBHOOK_DEFAULTS)
EMAIL_KEYS = ("host", "sender", "recipients", *EMAIL_DEFAULTS)
NEEDED_KEYS = {"webhook": ("url",), "email": ("host", "sender", "recipients")}
"""The settings without which AWX takes no notification."""
BEARER_KEYS = ("host", "bearer_token", "ssl_ca_cert", "verify_ssl")
"""The inputs of the credential type of AWX itself. AWX may get one from elsewhere, so none must be given."""


@dataclass(frozen=True)
class Secrets:
    """The role's secret variables, of which only the keys matter here."""

    reader: t.Mapping[str, t.Any]
    writer: t.Mapping[str, t.Any]
    webhook: t.Mapping[str, t.Any]
    email: t.Mapping[str, t.Any]


def wrong_variables(options: t.Mapping[str, t.Any], secrets: t.Mapping[str, t.Any]) -> list[str]:
    """A sentence for each mapping that AWX would refuse after the first objects are written, or that would have no effect.

    :param secrets: the role's secret variables as the user gave them, by their names in ``Secrets``.
    """
    wrong = [_wrong_secret(f"virtpools_awx_{name}", name, value) for name, value in secrets.items() if value]
    hosts = [
        f"{name} of virtpools_awx_hosts is not a mapping: write the host's variables as one."
        for name, value in options["awx_hosts"].items()
        if value and not isinstance(value, t.Mapping)
    ]
    return [*filter(None, wrong), *_passwords(options), *hosts, *_wrong_teams(options["awx_teams"])]


def _wrong_secret(variable: str, name: str, value: t.Any) -> str:
    """What is wrong with a secret mapping. It names no key that was given: a key may be a secret by mistake."""
    if not isinstance(value, t.Mapping):
        return f"{variable} is text: write it as a mapping, in a file of variables (-e @settings.yml)."
    missing = [key for key in NEEDED_KEYS.get(name, ()) if not value.get(key)]
    if missing:
        return f"{variable} lacks {' and '.join(missing)}: add what is missing."
    known = {"webhook": WEBHOOK_KEYS, "email": EMAIL_KEYS}.get(name) or (
        ("kubeconfig",) if "kubeconfig" in value else BEARER_KEYS
    )
    if not value.keys() <= {*known}:
        return f"{variable} has a key that is none of {', '.join(known)}: correct it, or leave it out."
    return ""


def _passwords(options: t.Mapping[str, t.Any]) -> t.Iterator[str]:
    """Addresses are displayed, and AWX shows them to every user of the organization."""
    instead = {
        "awx_host": "virtpools_awx_username and virtpools_awx_password",
        "awx_project_url": "virtpools_awx_project_credential",
    }
    for name, place in instead.items():
        with contextlib.suppress(ValueError):  # AWX will refuse it
            if urlsplit(options[name] or "").password:
                yield f"virtpools_{name} contains a password, which would be displayed: take it out, and use {place}."


def _wrong_teams(teams: t.Mapping[str, t.Any]) -> list[str]:
    known = [team.name for team in TEAMS]
    wrong = [
        f"virtpools_awx_teams has the key {key}, which is none of {', '.join(known)}: correct it."
        for key in teams
        if key not in known
    ]
    for key in known:
        names = teams.get(key)
        if names is not None and not (
            isinstance(names, list) and all(isinstance(name, str) and name for name in names)
        ):
            wrong.append(f"{key} of virtpools_awx_teams is not a list of names: write one, such as [ops].")
    return wrong


def objects(options: t.Mapping[str, t.Any], secrets: Secrets) -> Data:
    """Everything that the role's tasks need to know, as data."""
    names = _names(options)
    notifications = _notifications(names, secrets)
    notification_names = [each["name"] for each in notifications.values() if each["create"]]
    credentials = _credentials(names, secrets)
    found: Data = {
        "names": names,
        "mark": MARK,
        "own_names": _own_names(names),
        "credential_type": {"inputs": KUBECONFIG_INPUTS, "injectors": KUBECONFIG_INJECTORS},
        "needs_credential_type": any(each["type"] == names["credential_type"] for each in credentials),
        "credentials": credentials,
        "notifications": notifications,
        "notification_names": notification_names,
        "hosts": [{"name": name, "variables": each or {}} for name, each in options["awx_hosts"].items()],
        "templates": [_template(each, options, names, secrets, notification_names) for each in TEMPLATES],
        **_workflows(names, options, notification_names),
        **_teams(names, options),
    }
    return {**found, "steps": _steps(options, found)}


def asked(survey: Data, options: t.Mapping[str, t.Any]) -> Data:
    """The survey for a template. A list in an answer would be a second one beside the project's."""
    if options["awx_pool_list"] == "survey":
        return survey
    return {**survey, "spec": [question for question in survey["spec"] if question["variable"] != POOL_LIST]}


def _list_sources(options: t.Mapping[str, t.Any]) -> dict[str, str]:
    """Variables of all templates that hide the project's list where lists come from answers. What reads a cluster then takes the
    list that the cluster records, and what brings a list needs an answer."""
    return dict.fromkeys(LIST_SOURCES, "") if options["awx_pool_list"] == "survey" else {}


def two_lists(options: t.Mapping[str, t.Any]) -> list[str]:
    """A sentence about a list for all jobs where lists come from answers."""
    given = [name for name in LIST_SOURCES if name in options["awx_variables"]]
    if not given or options["awx_pool_list"] != "survey":
        return []
    return [
        f"virtpools_awx_pool_list is survey, and virtpools_awx_variables has {given[0]}, a list for all jobs: leave out one of them."
    ]


def with_others(
    links: t.Sequence[Data], workflows: t.Mapping[str, int], nodes: t.Sequence[t.Mapping[str, t.Any]]
) -> list[Data]:
    """What is to follow each node of our workflows: our own nodes, and those that others have linked to it.

    AWX replaces all links of a node at once. A node that lost its link would be a root, which runs at every launch.

    :param links: those of our own nodes.
    :param workflows: the ids of our workflows by name.
    :param nodes: the nodes of these workflows, and of others, as AWX shows them.
    """
    by_id = {node["id"]: node["identifier"] for node in nodes}
    by_place = {(node["workflow_job_template"], node["identifier"]): node for node in nodes}
    own = {job.node for workflow in WORKFLOWS for job in workflow.jobs}
    own |= {approval.node for workflow in WORKFLOWS for approval in workflow.approvals}
    result = []
    for link in links:
        there = by_place.get((workflows.get(link["workflow"]), link["node"]), {})
        kept = {
            what: [by_id[each] for each in there.get(f"{what}_nodes", ()) if by_id[each] not in own]
            for what in ("success", "failure")
        }
        result.append({**link, **{what: [*link[what], *others] for what, others in kept.items()}})
    return result


def _names(options: t.Mapping[str, t.Any]) -> dict[str, str]:
    prefix = options["awx_prefix"]
    return {
        "prefix": prefix,
        "credential_type": f"{prefix} kubeconfig",
        "execution_environment": prefix,
        "project": prefix,
        "inventory": f"{prefix} clusters",
        "schedule": f"{prefix} verify",
        "verify_template": f"{prefix} verify",
        "reader": f"{prefix} reader",
        "writer": f"{prefix} writer",
        "webhook": f"{prefix} webhook",
        "email": f"{prefix} email",
    }


def _prefixed(names: t.Mapping[str, str], name: str) -> str:
    return f"{names['prefix']} {name}"


def _own_names(names: t.Mapping[str, str]) -> dict[str, list[str]]:
    """The names of everything that the role creates, by kind."""
    return {
        "projects": [names["project"]],
        "inventories": [names["inventory"]],
        "credentials": [names["reader"], names["writer"]],
        "notification_templates": [names["webhook"], names["email"]],
        "job_templates": [_prefixed(names, each.playbook) for each in TEMPLATES],
        "workflow_job_templates": [_prefixed(names, each.name) for each in WORKFLOWS],
        "teams": [_prefixed(names, each.name) for each in TEAMS],
        "execution_environments": [names["execution_environment"]],
        "credential_types": [names["credential_type"]],
    }


def written_names(found: Data, options: t.Mapping[str, t.Any]) -> dict[str, list[str]]:
    """The names of what a run with these options writes, by kind."""
    return {
        **found["own_names"],
        "credentials": [each["name"] for each in found["credentials"]],
        "notification_templates": found["notification_names"],
        "execution_environments": found["own_names"]["execution_environments"] if options["awx_image"] else [],
        "credential_types": found["own_names"]["credential_types"] if found["needs_credential_type"] else [],
    }


def _credentials(names: t.Mapping[str, str], secrets: Secrets) -> list[Data]:
    """The credentials that the role creates."""
    kinds = (
        ("reader", secrets.reader, "For jobs that only read, with the ClusterRole virtpools-reader"),
        ("writer", secrets.writer, "For jobs that change clusters, with the ClusterRole virtpools-writer"),
    )
    return [
        {
            "access": access,
            "name": names[access],
            "description": described(description),
            "type": names["credential_type"] if "kubeconfig" in inputs else BEARER_TYPE,
        }
        for access, inputs, description in kinds
        if inputs
    ]


def _notifications(names: t.Mapping[str, str], secrets: Secrets) -> dict[str, Data]:
    """The notifications by kind: whether the role creates it, and whether its settings hold secrets."""
    return {
        "webhook": {
            "name": names["webhook"],
            "create": bool(secrets.webhook),
            # For a chat, who knows the URL may write there.
            "secret": bool(secrets.webhook),
            "defaults": WEBHOOK_DEFAULTS,
            "messages": WEBHOOK_MESSAGES,
        },
        "email": {
            "name": names["email"],
            "create": bool(secrets.email),
            "secret": "password" in secrets.email,
            "defaults": EMAIL_DEFAULTS,
            "messages": EMAIL_MESSAGES,
        },
    }


def _template(
    template: Template,
    options: t.Mapping[str, t.Any],
    names: t.Mapping[str, str],
    secrets: Secrets,
    notification_names: t.Sequence[str],
) -> Data:
    own = names[template.access] if getattr(secrets, template.access) else None
    credential = options[f"awx_{template.access}_credential"] or own
    return {
        "name": _prefixed(names, template.playbook),
        "playbook": template.playbook,
        "description": described(template.description),
        "survey": template.playbook,
        "writes": template.access == "writer",
        "access": template.access,
        "keeps_credentials": credential is None,
        "credentials": [*([credential] if credential else []), *options["awx_extra_credentials"]],
        "variables": {**options["awx_variables"], **_list_sources(options), **template.variables},
        "labels": [*options["awx_labels"]],
        "instance_groups": [*options["awx_instance_groups"]],
        "notification_templates_error": [*notification_names],
        "notification_templates_success": [*notification_names] if template.notify_success else [],
    }


def _teams(names: t.Mapping[str, str], options: t.Mapping[str, t.Any]) -> dict[str, list[Data]]:
    """The teams, and what the roles in AWX give them, and the user's own teams, on templates and workflows."""
    workflows = [_prefixed(names, each.name) for each in WORKFLOWS]
    return {
        "teams": [{"name": _prefixed(names, each.name), "description": described(each.description)} for each in TEAMS],
        "grants": [
            {
                "teams": [_prefixed(names, team.name), *(options["awx_teams"].get(team.name) or ())],
                "role": role,
                "job_templates": [_prefixed(names, playbook) for playbook in playbooks],
                "workflows": workflows if for_workflows else [],
            }
            for team in TEAMS
            for role, playbooks, for_workflows in team.grants
        ],
    }


def _workflows(
    names: t.Mapping[str, str], options: t.Mapping[str, t.Any], notification_names: t.Sequence[str]
) -> dict[str, list[Data]]:
    """The workflows, and the nodes of all of them: AWX knows a node by its workflow and its identifier."""
    found: dict[str, list[Data]] = {"workflows": [], "approvals": [], "jobs": [], "links": []}
    for each in WORKFLOWS:
        name = _prefixed(names, each.name)
        found["workflows"].append(
            {
                "name": name,
                "description": described(each.description),
                "survey": each.survey,
                "labels": [*options["awx_labels"]],
                "notification_templates_error": [*notification_names],
                "notification_templates_success": [*notification_names],
                "notification_templates_approvals": [*notification_names],
            }
        )
        timeout = options["awx_approval_timeout"]
        found["approvals"] += [
            {
                "workflow": name,
                "node": approval.node,
                "approval": {
                    "name": approval.name,
                    "description": approval.description,
                    **({} if timeout is None else {"timeout": timeout}),
                },
            }
            for approval in each.approvals
        ]
        found["jobs"] += [
            {
                "workflow": name,
                "node": job.node,
                "template": _prefixed(names, job.playbook),
                "job_type": "check" if job.check else "",
            }
            for job in each.jobs
        ]
        found["links"] += [
            {"workflow": name, "node": link.node, "success": [*link.success], "failure": [*link.failure]}
            for link in each.links
        ]
    return found


def _steps(options: t.Mapping[str, t.Any], found: Data) -> dict[str, list[str]]:
    """What each step of the role creates, in words.

    A step needs the objects of earlier steps, so check mode may have to list what it would create
    instead of comparing it.
    """
    names = found["names"]
    schedule = options["awx_verify_schedule"] != "none"
    return {
        "base_objects": [
            *(f"label {label}" for label in options["awx_labels"]),
            *([f"credential type {names['credential_type']}"] if found["needs_credential_type"] else []),
            *([f"execution environment {names['execution_environment']}"] if options["awx_image"] else []),
            f"project {names['project']}",
            f"inventory {names['inventory']}",
            *(f"notification {name}" for name in found["notification_names"]),
            *(f"team {each['name']}" for each in found["teams"]),
        ],
        "credentials_and_hosts": [
            *(f"credential {each['name']}" for each in found["credentials"]),
            *([] if found["hosts"] else [f"inventory source {names['project']}"]),
            *(f"host {each['name']}" for each in found["hosts"]),
        ],
        "templates": [
            *(f"job template {each['name']}" for each in found["templates"]),
            *(f"workflow {each['name']}" for each in found["workflows"]),
        ],
        "workflow_nodes": [
            *(f"workflow approval {each['node']} of {each['workflow']}" for each in found["approvals"]),
            *(f"workflow job {each['node']} of {each['workflow']}" for each in found["jobs"]),
            *([f"schedule {names['schedule']}"] if schedule else []),
            *(f"role {each['role']} of {', '.join(each['teams'])}" for each in found["grants"]),
        ],
        "workflow_links": [
            f"what follows workflow node {each['node']} of {each['workflow']}" for each in found["links"]
        ],
    }
