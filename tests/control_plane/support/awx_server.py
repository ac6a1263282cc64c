# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""A small HTTP server that plays the API of AWX, as far as the role awx needs it.

The requests are real: they come from the modules of the collection awx.awx. The answers are ours, written from the
modules' code and AWX's own source, so they prove nothing about AWX itself: no job runs, and no project is read from git.

It does as AWX does: lists come in pages, filters name fields, secrets are stored and never shown, names are unique in
their place (a credential's with its type), references must exist, surveys and rules of schedules are checked, and a label is
deleted when it is taken off the last object that has it, but not together with that object
(awx/main/models/label.py, awx/api/templates/api/job_template_label_list.md). Two users have tokens: one of the system, and
an administrator of organizations, who may not write credential types or organizations (awx/main/access.py). Teams have roles
(awx/main/models/workflow.py and jobs.py say which role contains which). It is stricter in two points. AWX ignores a field
that it does not know, this server refuses it. AWX empties or deletes what refers to a deleted object; this server refuses
to delete an object that is still needed, so that the order matters.
"""

from __future__ import annotations

import base64
import itertools
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from ansible_collections.virtpools.kubevirt.tests.unit.support.awx_rules import (
    NOTIFICATIONS,
    messages_error,
    rule_error,
    survey_error,
)

Object = dict[str, Any]

ROOT = "/api/v2/"
ENCRYPTED = "$encrypted$"
PAGE_SIZE = 3
"""Far fewer than AWX's 25, so that a few objects already need several pages."""
BEARER_TYPE = "OpenShift or Kubernetes API Bearer Token"
_ON_EVENTS = ("notification_templates_started", "notification_templates_success", "notification_templates_error")


class Refused(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: int, body: Object) -> None:
        super().__init__(f"{status} {body}")
        self.status = status
        self.body = body


@dataclass(frozen=True)
class Kind:
    """One kind of object.

    :param fields: what may be written, with the values that a new object has.
    :param required: what a new object must have.
    :param refers: fields with the id of another object, and that object's kind.
    :param unique: the fields that together are unique.
    :param lists: lists of other objects that belong to an object, each with the kind of these.
    :param ignored: fields that awx.awx sends and AWX ignores.
    :param parent: the field that names the object with which AWX deletes this one.
    """

    type: str
    fields: Object
    required: tuple[str, ...] = ("name",)
    refers: dict[str, str] = field(default_factory=dict)
    unique: tuple[str, ...] = ("name",)
    lists: dict[str, str] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    parent: str = ""


def _template(*more: str) -> Object:
    asked = ("variables", "limit", "tags", "skip_tags", "labels", "inventory", "scm_branch", *more)
    return {
        "name": "",
        "description": "",
        "extra_vars": "",
        "limit": "",
        "inventory": None,
        "survey_enabled": False,
        "allow_simultaneous": False,
        **{f"ask_{what}_on_launch": False for what in asked},
    }


_CONTAINED = {
    "read": ("read", "execute", "approval", "admin"),
    "execute": ("execute", "admin"),
    "approval": ("approval", "admin"),
}
"""What a right follows from: the parents of AWX's roles on job templates and workflows."""
_ROLES = ("admin", "execute", "read", "approval")
_SUPERUSER_ONLY = ("credential_types", "organizations")


def _notified(*more: str) -> dict[str, str]:
    return dict.fromkeys((*_ON_EVENTS, *more), "notification_templates")


KINDS: dict[str, Kind] = {
    "organizations": Kind(
        "organization",
        {"name": "", "description": "", "max_hosts": 0, "default_environment": None},
        lists={"galaxy_credentials": "credentials", **_notified("notification_templates_approvals")},
    ),
    "credential_types": Kind(
        "credential_type",
        {"name": "", "description": "", "kind": "cloud", "inputs": {}, "injectors": {}, "managed": False},
        unique=("name", "kind"),
    ),
    "credentials": Kind(
        "credential",
        {"name": "", "description": "", "organization": None, "credential_type": None, "inputs": {}},
        required=("name", "credential_type"),
        refers={"organization": "organizations", "credential_type": "credential_types"},
        unique=("organization", "name", "credential_type"),
    ),
    "execution_environments": Kind(
        "execution_environment",
        {"name": "", "description": "", "image": "", "pull": "", "organization": None, "credential": None},
        required=("name", "image"),
        refers={"organization": "organizations", "credential": "credentials"},
    ),
    "teams": Kind(
        "team",
        {"name": "", "description": "", "organization": None},
        required=("name", "organization"),
        refers={"organization": "organizations"},
        unique=("organization", "name"),
    ),
    "labels": Kind(
        "label",
        {"name": "", "organization": None},
        required=("name", "organization"),
        refers={"organization": "organizations"},
        unique=("name", "organization"),
    ),
    "notification_templates": Kind(
        "notification_template",
        {
            "name": "",
            "description": "",
            "organization": None,
            "notification_type": "",
            "notification_configuration": {},
            "messages": dict.fromkeys(("started", "success", "error", "workflow_approval")),
        },
        required=("name", "organization", "notification_type"),
        refers={"organization": "organizations"},
        unique=("organization", "name"),
    ),
    "projects": Kind(
        "project",
        {
            "name": "",
            "description": "",
            "organization": None,
            "scm_type": "",
            "scm_url": "",
            "scm_branch": "",
            "scm_clean": False,
            "scm_update_on_launch": False,
            "scm_update_cache_timeout": 0,
            "credential": None,
            "status": "never updated",
        },
        refers={"organization": "organizations", "credential": "credentials"},
        unique=("organization", "name"),
    ),
    "instance_groups": Kind("instance_group", {"name": ""}),
    "inventories": Kind(
        "inventory",
        {"name": "", "description": "", "organization": None, "kind": "", "host_filter": None, "variables": ""},
        required=("name", "organization"),
        refers={"organization": "organizations"},
        unique=("organization", "name"),
    ),
    "inventory_sources": Kind(
        "inventory_source",
        {
            "name": "",
            "description": "",
            "inventory": None,
            "source": None,
            "source_path": "",
            "source_project": None,
            "overwrite": False,
            "overwrite_vars": False,
            "update_on_launch": False,
            "update_cache_timeout": 0,
        },
        required=("name", "inventory", "source"),
        refers={"inventory": "inventories", "source_project": "projects"},
        unique=("inventory", "name"),
        lists={"hosts": "hosts", "groups": "groups"},
        parent="inventory",
    ),
    "hosts": Kind(
        "host",
        {"name": "", "description": "", "inventory": None, "enabled": True, "variables": ""},
        required=("name", "inventory"),
        refers={"inventory": "inventories"},
        unique=("name", "inventory"),
        parent="inventory",
    ),
    "groups": Kind(
        "group",
        {"name": "", "description": "", "inventory": None, "variables": ""},
        required=("name", "inventory"),
        refers={"inventory": "inventories"},
        unique=("name", "inventory"),
        parent="inventory",
    ),
    "job_templates": Kind(
        "job_template",
        {
            **_template("diff_mode", "job_type", "verbosity", "credential", "execution_environment"),
            "job_type": "run",
            "project": None,
            "playbook": "",
            "execution_environment": None,
            "diff_mode": False,
            "verbosity": 0,
            "forks": 0,
            "timeout": 0,
        },
        required=("name", "project", "playbook"),
        refers={
            "inventory": "inventories",
            "project": "projects",
            "execution_environment": "execution_environments",
            "organization": "organizations",
        },
        unique=("organization", "name"),
        lists={
            "credentials": "credentials",
            "labels": "labels",
            "instance_groups": "instance_groups",
            **_notified(),
        },
        ignored=("organization",),
    ),
    "workflow_job_templates": Kind(
        "workflow_job_template",
        {**_template(), "organization": None},
        refers={"organization": "organizations", "inventory": "inventories"},
        unique=("organization", "name"),
        lists={"labels": "labels", **_notified("notification_templates_approvals")},
    ),
    "workflow_job_template_nodes": Kind(
        "workflow_job_template_node",
        {
            "identifier": "",
            "workflow_job_template": None,
            "unified_job_template": None,
            "all_parents_must_converge": False,
            "extra_data": {},
            "limit": None,
            "job_type": None,
        },
        required=("workflow_job_template",),
        refers={"workflow_job_template": "workflow_job_templates", "unified_job_template": "unified_job_templates"},
        unique=("identifier", "workflow_job_template"),
        lists=dict.fromkeys(("success_nodes", "failure_nodes", "always_nodes"), "workflow_job_template_nodes"),
        ignored=("type",),
        parent="workflow_job_template",
    ),
    "workflow_approval_templates": Kind(
        "workflow_approval_template",
        {"name": "", "description": "", "timeout": 0, "node": None},
        refers={"node": "workflow_job_template_nodes"},
        unique=("node",),
        parent="node",
    ),
    "schedules": Kind(
        "schedule",
        {
            "name": "",
            "description": "",
            "rrule": "",
            "unified_job_template": None,
            "extra_data": {},
            "enabled": True,
        },
        required=("name", "rrule", "unified_job_template"),
        refers={"unified_job_template": "unified_job_templates"},
        unique=("unified_job_template", "name"),
        parent="unified_job_template",
    ),
}
UNIFIED = ("projects", "inventory_sources", "job_templates", "workflow_job_templates", "workflow_approval_templates")
"""What AWX also lists as unified job templates; their ids are different from each other."""


@dataclass(frozen=True)
class Write:
    """One request that wrote, or was to write.

    :param changed: whether anything is different since.
    """

    method: str
    path: str
    data: Object
    status: int
    changed: bool


class Awx:
    """What this AWX has, and what was written to it."""

    def __init__(self, playbooks: tuple[str, ...], token: str) -> None:
        self.playbooks = playbooks
        """What the repository of every project holds."""
        self.token = token
        """Of an administrator of the system."""
        self.organization_token = f"{token}-of-an-organization"
        """Of an administrator of organizations."""
        self.project_error = ""
        """Why updates of projects fail."""
        self.updates: list[Object] = []
        """The updates of projects."""
        self.granted: set[tuple[int, str, int]] = set()
        """The roles of teams: an object, the role, and the team."""
        self.writes: list[Write] = []
        self.objects: dict[str, dict[int, Object]] = {kind: {} for kind in KINDS}
        self._surveys: dict[int, Object] = {}
        self._related: dict[tuple[int, str], list[int]] = {}
        self._ids = itertools.count(1)
        self._lock = threading.Lock()
        self._furnish()

    def _furnish(self) -> None:
        """What every AWX has from the beginning."""
        field_ids = {"host": False, "bearer_token": True, "verify_ssl": False, "ssl_ca_cert": True}
        fields = [{"id": name, "type": "string", "secret": secret} for name, secret in field_ids.items()]
        self._store(
            "credential_types",
            {
                "name": BEARER_TYPE,
                "kind": "kubernetes",
                "managed": True,
                "inputs": {"fields": fields, "required": ["host", "bearer_token"]},
            },
        )
        galaxy = self._store("credential_types", {"name": "Ansible Galaxy/Automation Hub API Token", "kind": "galaxy"})
        self._store("credentials", {"name": "Ansible Galaxy", "credential_type": galaxy["id"]})
        self._store("organizations", {"name": "Default"})
        self._store("instance_groups", {"name": "default"})
        self._store("execution_environments", {"name": "AWX EE (latest)", "image": "registry.example/awx-ee"})

    # What tests ask ---------------------------------------------------------------------------------------------------

    def snapshot(self) -> str:
        """Everything as text, to compare it."""
        related = {f"{key[0]} {key[1]}": value for key, value in sorted(self._related.items()) if value}
        return json.dumps([self.objects, self._surveys, related, sorted(self.granted)], sort_keys=True)

    @property
    def changes(self) -> list[Write]:
        """The writes that changed something."""
        return [write for write in self.writes if write.changed]

    def names(self, kind: str) -> list[str]:
        """The names of all objects of a kind, sorted."""
        return sorted(each.get("name") or each.get("identifier", "") for each in self.objects[kind].values())

    def one(self, kind: str, name: str) -> Object:
        """The object of a kind with a name, or with an identifier that no other has."""
        (found,) = (each for each in self.objects[kind].values() if name in (each.get("name"), each.get("identifier")))
        return found

    def nodes(self, workflow: str) -> dict[str, Object]:
        """The nodes of a workflow by identifier, with what they run and what follows them by identifier."""
        number, kind = self.one("workflow_job_templates", workflow)["id"], "workflow_job_template_nodes"
        kept = self.objects[kind]
        templates = {number: each["name"] for other in UNIFIED for number, each in self.objects[other].items()}
        return {
            each["identifier"]: {
                "runs": templates[each["unified_job_template"]],
                "job_type": each["job_type"],
                **{
                    what: [kept[other]["identifier"] for other in self._related.get((each["id"], what), [])]
                    for what in KINDS[kind].lists
                },
            }
            for each in kept.values()
            if each["workflow_job_template"] == number
        }

    def survey(self, kind: str, name: str) -> Object:
        """The survey of a template."""
        return self._surveys[self.one(kind, name)["id"]]

    def related(self, kind: str, name: str, what: str) -> list[str]:
        """The names of the objects in one of an object's lists, in order."""
        ids = self._related.get((self.one(kind, name)["id"], what), [])
        others = self.objects[KINDS[kind].lists[what]]
        return [others[each].get("name") or others[each]["identifier"] for each in ids]

    def add(self, kind: str, **fields: Any) -> Object:
        """Make an object that is somebody else's."""
        return self._store(kind, fields)

    def relate(self, kind: str, name: str, what: str, other: int) -> None:
        """Put an object into the list of another one, as somebody else does."""
        self._related.setdefault((self.one(kind, name)["id"], what), []).append(other)

    def ask(self, kind: str, name: str, question: Object) -> None:
        """Add a question to the survey of a template, as AWX's web page does: it keeps the survey's name and description."""
        survey = self.survey(kind, name)
        self._surveys[self.one(kind, name)["id"]] = {**survey, "spec": [*survey["spec"], question]}

    def may(self, team: str, right: str, kind: str, name: str) -> bool:
        """Whether the members of a team have a right on a template: to read it, and its jobs, to start it, to approve."""
        number, target = self.one("teams", team)["id"], self.one(kind, name)["id"]
        return any((target, role, number) in self.granted for role in _CONTAINED[right])

    def launched(self, kind: str, name: str, **answers: Any) -> Object:
        """The extra variables of a job that is launched with these answers.

        By AWX's order (awx/main/models/mixins.py): variables of the template, defaults of the survey, answers. A survey's default
        is sent whether the survey is shown or not.
        """
        template, survey = self.one(kind, name), self.survey(kind, name)
        defaults = {each["variable"]: each["default"] for each in survey["spec"] if each.get("default")}
        return {**json.loads(template["extra_vars"] or "{}"), **defaults, **answers}

    def link(self, workflow: str, node: str, what: str, other: str, *, away: bool = False) -> None:
        """Let a node of a workflow follow another one, as somebody else does, or take that link away."""
        kind, number = "workflow_job_template_nodes", self.one("workflow_job_templates", workflow)["id"]
        nodes = {
            each["identifier"]: each["id"]
            for each in self.objects[kind].values()
            if each["workflow_job_template"] == number
        }
        status, _body = self._associated(
            "POST", kind, nodes[node], what, "", {}, {"id": nodes[other], "disassociate": away}
        )
        assert status == 204

    # Requests ---------------------------------------------------------------------------------------------------------

    def answer(self, method: str, target: str, data: Object, *, superuser: bool = True) -> tuple[int, Object | None]:
        """The status and body of the answer to a request."""
        if (
            method != "GET"
            and not superuser
            and urlsplit(target).path.removeprefix(ROOT).split("/")[0] in _SUPERUSER_ONLY
        ):
            return 403, {"detail": "You do not have permission to perform this action."}
        if target.startswith(f"{ROOT}tokens/"):  # what awx.awx does first with a user name, and takes back in the end
            return (201, {"id": 1, "token": self.token}) if method == "POST" else (204, None)
        with self._lock:
            before = "" if method == "GET" else self.snapshot()
            try:
                status, body = self._route(method, target, data)
            except Refused as refused:
                status, body = refused.status, refused.body
            if method != "GET":
                self.writes.append(Write(method, target, data, status, self.snapshot() != before))
            return status, body

    def _route(self, method: str, target: str, data: Object) -> tuple[int, Object | None]:
        url = urlsplit(target)
        query = dict(parse_qsl(url.query, keep_blank_values=True))
        match url.path.removeprefix(ROOT).strip("/").split("/"):
            case ["project_updates", number]:
                return 200, next(each for each in self.updates if each["id"] == int(number))
            case ["project_updates", number, "events"]:
                failed = {"event": "runner_on_failed", "event_data": {"res": {"msg": self.project_error}}}
                return 200, {"count": 1, "next": None, "results": [failed] if self.project_error else []}
            case ["projects", number, "project_updates"]:
                found = [each for each in self.updates if each["project"] == int(number)]
                return 200, {"count": len(found), "next": None, "results": found}
            case ["projects", number, "update"] if method == "POST":
                return 202, self._update_project(self._found("projects", int(number)))
            case ["roles", role, "teams"]:
                return self._role(method, role, data)
            case [kind] if kind in KINDS or kind == "unified_job_templates":
                return self._list(kind, url.path, query) if method == "GET" else self._create(kind, data)
            case [kind, number]:
                return self._detail(method, kind, int(number), data)
            case [kind, number, "survey_spec"]:
                return self._survey(method, kind, int(number), data)
            case ["workflow_job_template_nodes", number, "create_approval_template"]:
                return self._approval(int(number), data)
            case [kind, number, what]:
                return self._associated(method, kind, int(number), what, url.path, query, data)
        raise Refused(404, {"detail": "The requested resource could not be found."})

    def _detail(self, method: str, kind: str, number: int, data: Object) -> tuple[int, Object | None]:
        found = self._found(kind, number)
        if method == "DELETE":
            return self._delete(kind, found), None
        if method == "PATCH":
            known = {**data}
            self._validate(kind, known, found)
            found.update(known)
        return 200, self._shown(kind, found)

    def _list(self, kind: str, path: str, query: dict[str, str]) -> tuple[int, Object]:
        page = int(query.pop("page", 1))
        query.pop("page_size", None)
        kinds = UNIFIED if kind == "unified_job_templates" else (kind,)
        found = [
            (each, kept) for each in kinds for kept in self.objects[each].values() if self._meets(each, kept, query)
        ]
        return self._page(found, path, query, page)

    def _page(self, found: list[tuple[str, Object]], path: str, query: dict[str, str], page: int) -> tuple[int, Object]:
        last = page * PAGE_SIZE
        following = f"{path}?{urlencode({**query, 'page': page + 1})}" if last < len(found) else None
        shown = [self._shown(kind, each) for kind, each in found[last - PAGE_SIZE : last]]
        return 200, {"count": len(found), "next": following, "previous": None, "results": shown}

    def _meets(self, kind: str, kept: Object, query: dict[str, str]) -> bool:
        either = {key.removeprefix("or__"): value for key, value in query.items() if key.startswith("or__")}
        all_of = {key: value for key, value in query.items() if not key.startswith("or__")}
        known = {"id", "type", "organization", *KINDS[kind].fields}
        if unknown := {*either, *all_of} - known:
            raise Refused(400, {"detail": f"{KINDS[kind].type} has no field named {sorted(unknown)}"})
        shown = self._shown(kind, kept)
        return all(str(shown.get(key)) == value for key, value in all_of.items()) and (
            not either or any(str(shown.get(key)) == value for key, value in either.items())
        )

    def _create(self, kind: str, data: Object) -> tuple[int, Object]:
        if kind == "unified_job_templates":
            raise Refused(405, {"detail": "Method not allowed."})
        data = {**data}
        self._validate(kind, data, None)
        made = self._store(kind, data)
        shown = self._shown(kind, made)
        if kind == "projects":  # AWX reads the repository at once
            shown["summary_fields"]["current_update"] = {"id": self._update_project(made)["id"]}
        return 201, shown

    def _update_project(self, project: Object) -> Object:
        """Read the repository of a project, which takes no time here."""
        number = next(self._ids)
        project["status"] = "failed" if self.project_error else "successful"
        update = {
            "id": number,
            "project": project["id"],
            "url": f"{ROOT}project_updates/{number}/",
            "name": project["name"],
            "type": "project_update",
            "status": project["status"],
            "failed": bool(self.project_error),
            "finished": "2026-01-01T00:00:00Z",
            "event_processing_finished": True,
            "scm_revision": "1" * 40,
        }
        self.updates.append(update)
        return update

    def _role(self, method: str, role: str, data: Object) -> tuple[int, Object | None]:
        """The teams that have a role on an object, and one that gets it or loses it."""
        number, name = divmod(int(role), len(_ROLES))
        if method == "GET":
            found = [
                self.objects["teams"][team]
                for target, what, team in self.granted
                if (target, what) == (number, _ROLES[name])
            ]
            return 200, {"count": len(found), "next": None, "results": found}
        grant = (number, _ROLES[name], data["id"])
        (self.granted.discard if data.get("disassociate") else self.granted.add)(grant)
        return 204, None

    def _store(self, kind: str, data: Object) -> Object:
        number = next(self._ids)
        made = {"id": number, **KINDS[kind].fields, **data}
        self.objects[kind][number] = made
        return made

    def _found(self, kind: str, number: int) -> Object:
        if kind in KINDS and number in self.objects[kind]:
            return self.objects[kind][number]
        raise Refused(404, {"detail": "Not found."})

    # What is refused --------------------------------------------------------------------------------------------------

    def _validate(self, kind: str, data: Object, existing: Object | None) -> None:
        """Refuse what cannot be written, and take out of ``data`` what AWX ignores."""
        what = KINDS[kind]
        for name in what.ignored:
            data.pop(name, None)
        if unknown := sorted({*data} - {*what.fields}):
            raise Refused(400, {name: [f"{what.type} has no such field."] for name in unknown})
        merged = {**what.fields, **(existing or {}), **data}
        if missing := [name for name in what.required if merged.get(name) in ("", None)]:
            raise Refused(400, {name: ["This field is required."] for name in missing})
        for name, default in what.fields.items():
            if (
                name in data
                and default is not None
                and data[name] is not None
                and type(data[name]) is not type(default)
            ):
                raise Refused(400, {name: [f"Not a valid {type(default).__name__}."]})
        for name, other in what.refers.items():
            if data.get(name) is not None and not self._exists(other, data[name]):
                raise Refused(400, {name: [f'Invalid pk "{data[name]}" - object does not exist.']})
        self._refuse_a_second(kind, merged, existing)
        check = getattr(self, f"_validate_{kind}", None)
        if check:
            check(merged, data)

    def _exists(self, kind: str, number: int) -> bool:
        return any(number in self.objects[each] for each in (UNIFIED if kind == "unified_job_templates" else (kind,)))

    def _refuse_a_second(self, kind: str, merged: Object, existing: Object | None) -> None:
        def place(each: Object) -> list[Any]:
            return [self._shown_field(kind, each, name) for name in KINDS[kind].unique]

        number = existing["id"] if existing else None
        if any(place(each) == place(merged) for each in self.objects[kind].values() if each["id"] != number):
            raise Refused(400, {"__all__": [f"{KINDS[kind].type} with these {KINDS[kind].unique} already exists."]})

    def _validate_job_templates(self, merged: Object, data: Object) -> None:
        if (
            merged["playbook"] not in self.playbooks
            or self.objects["projects"][merged["project"]]["status"] != "successful"
        ):
            raise Refused(400, {"playbook": ["Playbook not found for project."]})
        if merged["inventory"] is None and not merged["ask_inventory_on_launch"]:
            raise Refused(400, {"inventory": ["Job Template must provide 'inventory' or allow prompting for it."]})

    def _validate_credentials(self, merged: Object, data: Object) -> None:
        inputs = self.objects["credential_types"][merged["credential_type"]]["inputs"]
        if unknown := sorted({*merged["inputs"]} - {each["id"] for each in inputs.get("fields", [])}):
            raise Refused(400, {"inputs": [f"Additional properties are not allowed: {unknown}"]})
        if missing := [name for name in inputs.get("required", []) if not merged["inputs"].get(name)]:
            raise Refused(400, {"inputs": {name: ["required for this type."] for name in missing}})

    def _validate_credential_types(self, merged: Object, data: Object) -> None:
        if merged["kind"] not in ("net", "cloud"):
            raise Refused(400, {"kind": ["must be 'cloud' or 'net'"]})
        names = {each["id"] for each in merged["inputs"].get("fields", [])} | {"tower"}
        used = {*re.findall(r"{{ *(\w+)", json.dumps(merged["injectors"]))}
        if used - names:
            raise Refused(400, {"injectors": [f"undefined: {sorted(used - names)}"]})

    def _validate_notification_templates(self, merged: Object, data: Object) -> None:
        fields: Object = NOTIFICATIONS[merged["notification_type"]]
        configuration = {**fields, **merged["notification_configuration"]}
        if missing := [name for name, value in configuration.items() if value is None]:
            raise Refused(400, {"__all__": [f"Missing required fields for Notification Configuration: {missing}."]})
        if "notification_configuration" in data:
            data["notification_configuration"] = configuration
        if data.get("messages") and (error := messages_error(data["messages"])):
            raise Refused(400, {"messages": [error]})

    def _validate_workflow_job_template_nodes(self, merged: Object, data: Object) -> None:
        """A node may only answer what its template asks (AWX: _accept_or_ignore_job_kwargs of a job template)."""
        template = self.objects["job_templates"].get(merged["unified_job_template"])
        if merged["job_type"] is not None and not (template and template["ask_job_type_on_launch"]):
            raise Refused(400, {"job_type": ["Field is not configured to prompt on launch."]})

    def _validate_schedules(self, merged: Object, data: Object) -> None:
        if error := rule_error(merged["rrule"]):
            raise Refused(400, {"rrule": [error]})

    # What is deleted --------------------------------------------------------------------------------------------------

    def _delete(self, kind: str, found: Object) -> int:
        if kind == "labels":
            raise Refused(405, {"detail": "Method not allowed."})
        if found.get("managed"):
            raise Refused(403, {"detail": "Deletion not allowed for managed credential types"})
        children = list(self._children(kind, found))
        gone = {found["id"], *(child["id"] for _kind, child in children)}
        if needed := sorted(self._needed_by(gone)):
            raise Refused(409, {"error": f"{KINDS[kind].type} {found['name']} is still needed by {needed}."})
        for each_kind, each in [*children, (kind, found)]:
            del self.objects[each_kind][each["id"]]
            self._surveys.pop(each["id"], None)
            self._related = {
                key: [other for other in ids if other != each["id"] or key[1] not in ("hosts", "groups")]
                for key, ids in self._related.items()
                if key[0] != each["id"]
            }
        self.granted = {grant for grant in self.granted if not gone & {grant[0], grant[2]}}
        return 202 if kind == "inventories" else 204

    def _children(self, kind: str, found: Object) -> Iterator[tuple[str, Object]]:
        for other, what in KINDS.items():
            target = what.refers.get(what.parent)
            if target == kind or (target == "unified_job_templates" and kind in UNIFIED):
                for each in list(self.objects[other].values()):
                    if each[what.parent] == found["id"]:
                        yield other, each
                        yield from self._children(other, each)
        if kind == "organizations":
            yield from (
                ("labels", each) for each in self.objects["labels"].values() if each["organization"] == found["id"]
            )

    def _needed_by(self, gone: set[int]) -> Iterator[str]:
        for kind, objects in self.objects.items():
            for each in objects.values():
                if each["id"] not in gone and any(
                    self._shown_field(kind, each, name) in gone for name in KINDS[kind].refers
                ):
                    yield f"{KINDS[kind].type} {each.get('name') or each.get('identifier')}"
        for (number, what), ids in self._related.items():
            if number not in gone and gone & {*ids} and what not in ("hosts", "groups"):
                yield f"{what} of {number}"

    def _drop_unused_label(self, label: int) -> None:
        if not any(what == "labels" and label in ids for (_number, what), ids in self._related.items()):
            self.objects["labels"].pop(label, None)

    # What belongs to an object ----------------------------------------------------------------------------------------

    def _survey(self, method: str, kind: str, number: int, data: Object) -> tuple[int, Object]:
        self._found(kind, number)
        if method == "POST":
            if error := survey_error(data):
                raise Refused(400, {"error": error})
            self._surveys[number] = data
            return 200, {}
        return 200, self._surveys.get(number, {})

    def _approval(self, node: int, data: Object) -> tuple[int, Object]:
        found = self._found("workflow_job_template_nodes", node)
        if unknown := sorted({*data} - {"name", "description", "timeout"}):
            raise Refused(400, {name: ["no such field."] for name in unknown})
        made = self._store("workflow_approval_templates", {**data, "node": node})
        found["unified_job_template"] = made["id"]
        return 201, self._shown("workflow_approval_templates", made)

    def _associated(
        self, method: str, kind: str, number: int, what: str, path: str, query: dict[str, str], data: Object
    ) -> tuple[int, Object | None]:
        self._found(kind, number)
        if what not in KINDS[kind].lists:
            return self._within(kind, number, what, path, query)
        other = KINDS[kind].lists[what]
        ids = self._related.setdefault((number, what), [])
        if method == "GET":
            found = [(other, self.objects[other][each]) for each in ids]
            return self._page(found, path, query, int(query.pop("page", 1)))
        if data.get("disassociate"):
            ids.remove(data["id"])
            if what == "labels":
                self._drop_unused_label(data["id"])
            return 204, None
        new = self._found(other, data["id"])
        if what == "credentials":
            self._refuse_two_of_a_type(new, ids)
        if what.endswith("_nodes"):
            self._refuse_a_cycle(number, new["id"])
        ids.append(new["id"])
        return 204, None

    def _within(self, kind: str, number: int, what: str, path: str, query: dict[str, str]) -> tuple[int, Object]:
        """What an organization holds."""
        if kind != "organizations" or "organization" not in KINDS.get(what, KINDS["hosts"]).refers:
            raise Refused(404, {"detail": "Not found."})
        page = int(query.pop("page", 1))
        kept = self.objects[what].values()
        return self._page(
            [(what, each) for each in kept if self._shown_field(what, each, "organization") == number],
            path,
            query,
            page,
        )

    def _refuse_two_of_a_type(self, new: Object, ids: list[int]) -> None:
        if new["credential_type"] in [self.objects["credentials"][each]["credential_type"] for each in ids]:
            raise Refused(400, {"error": "Cannot assign multiple credentials of one type."})

    def _refuse_a_cycle(self, parent: int, child: int) -> None:
        reached, todo = set(), [child]
        while todo:
            node = todo.pop()
            reached.add(node)
            todo += [each for (start, _what), ids in self._related.items() if start == node for each in ids]
        if parent in reached:
            raise Refused(400, {"error": "Cycle detected."})

    # What is shown ----------------------------------------------------------------------------------------------------

    def _shown_field(self, kind: str, each: Object, name: str) -> Any:
        if kind == "job_templates" and name == "organization":
            return self.objects["projects"][each["project"]]["organization"]
        return each.get(name)

    def _shown(self, kind: str, each: Object) -> Object:
        url = f"{ROOT}{kind}/{each['id']}/"
        related = {"survey_spec": f"{url}survey_spec/", "update": f"{url}update/"}
        if kind == "workflow_job_template_nodes" and each["unified_job_template"]:
            (where,) = (other for other in UNIFIED if each["unified_job_template"] in self.objects[other])
            related["unified_job_template"] = f"{ROOT}{where}/{each['unified_job_template']}/"
        if kind == "workflow_job_template_nodes":
            each = {**each, **{what: self._related.get((each["id"], what), []) for what in KINDS[kind].lists}}
        shown = {**each, "type": KINDS[kind].type, "url": url, "related": related, "summary_fields": {}}
        if "organization" in KINDS[kind].refers:
            shown["organization"] = self._shown_field(kind, each, "organization")
        if kind in ("job_templates", "workflow_job_templates"):
            shown["summary_fields"]["object_roles"] = {
                f"{role}_role": {"id": each["id"] * len(_ROLES) + place}
                for place, role in enumerate(_ROLES)
                if role != "approval" or kind == "workflow_job_templates"
            }
        if kind == "projects":
            shown["scm_revision"] = "0" * 40
        if kind == "credentials":
            shown["inputs"] = self._without_secrets(each)
        if kind == "notification_templates" and each["notification_configuration"].get("password"):
            shown["notification_configuration"] = {**each["notification_configuration"], "password": ENCRYPTED}
        return shown

    def _without_secrets(self, credential: Object) -> Object:
        fields = self.objects["credential_types"][credential["credential_type"]]["inputs"].get("fields", [])
        secret = {each["id"] for each in fields if each.get("secret")}
        return {name: ENCRYPTED if name in secret else value for name, value in credential["inputs"].items()}


def _handler(awx: Awx) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        wbufsize = -1  # headers and body leave together

        def _handle(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            data = json.loads(self.rfile.read(length) or b"{}")
            if self._allowed():
                superuser = awx.organization_token not in self.headers.get("Authorization", "")
                status, body = awx.answer(self.command, self.path, data, superuser=superuser)
            else:
                status, body = 401, {"detail": "Authentication credentials were not provided."}
            content = b"" if body is None else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.send_header("X-API-Product-Name", "AWX")
            self.send_header("X-API-Product-Version", "24.6.1")
            self.end_headers()
            self.wfile.write(content)

        def _allowed(self) -> bool:
            given = self.headers.get("Authorization", "")
            basic = base64.b64encode(f"admin:{awx.token}".encode()).decode()
            return given in (f"Bearer {awx.token}", f"Bearer {awx.organization_token}", f"Basic {basic}")

        do_GET = do_POST = do_PATCH = do_DELETE = _handle  # noqa: N815  http.server's names

        def log_message(self, format: str, *args: Any) -> None:
            """Print nothing."""

    return Handler


@contextmanager
def serving(awx: Awx) -> Iterator[str]:
    """Serve an AWX on the loopback, and give its URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(awx))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
