# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the role awx leaves to others in AWX, and what it refuses."""

from __future__ import annotations

import json

import pytest

from ansible_collections.virtpools.kubevirt.plugins.plugin_utils import awx_present
from ansible_collections.virtpools.kubevirt.plugins.plugin_utils.awx_present import MARK, Present, template_with_others

ASKED = {"variable": "virtpools_prune", "type": "text"}
THEIRS = {"variable": "ticket", "type": "text"}
SURVEY = {"name": "plan", "description": "Questions.", "spec": [ASKED]}
TEMPLATE = {
    "name": "virtpools plan",
    "credentials": ["virtpools reader"],
    "labels": ["virtpools"],
    "instance_groups": [],
    "notification_templates_error": ["virtpools webhook"],
    "notification_templates_success": [],
    "variables": {"virtpools_prune": True},
}


def _written(template=TEMPLATE, survey=SURVEY, have=None):
    present = Present(templates={"virtpools plan": have} if have else {})
    return template_with_others(template, survey, "job_templates", present)


def _awx(added=()):
    """What AWX has of the template after a run, and what another user has added."""
    written = _written()[0]
    lists = {
        what: [{"name": name, "id": number, "credential_type": 1} for number, name in enumerate(written[what], 1)]
        for what in awx_present.LISTS["job_templates"]
    }
    return {**lists, "survey": written["survey"], "variables": written["variables"], **dict(added)}


def test_what_others_added_to_a_template_stays():
    have = _awx()
    have["credentials"].append({"name": "vault", "id": 8, "credential_type": 3})
    have["labels"].append({"name": "night", "id": 9})
    have["variables"]["team"] = "ops"
    have["survey"]["spec"].insert(0, THEIRS)
    written, clashes = _written(have=have)
    assert clashes == []
    assert (written["credentials"], written["labels"]) == (["virtpools reader", "8"], ["virtpools", "night"])
    assert written["variables"] == {"virtpools_prune": True, "team": "ops"}
    assert written["survey"]["spec"] == [THEIRS, ASKED]


def test_what_the_role_does_not_write_any_more_goes():
    survey = {**SURVEY, "spec": [{**ASKED, "variable": "virtpools_drain"}]}
    template = {**TEMPLATE, "labels": ["pools"], "variables": {}, "notification_templates_error": []}
    written, clashes = _written(template, survey, _awx())
    assert clashes == []
    assert (written["labels"], written["variables"], written["notification_templates_error"]) == (["pools"], {}, [])
    assert [each["variable"] for each in written["survey"]["spec"]] == ["virtpools_drain"]


def test_questions_edited_in_awx_leave_the_roles_list_as_it_is():
    """AWX's web pages post the survey's name and description as they found them, with other questions."""
    have = _awx()
    found = have["survey"]
    have["survey"] = {"name": found["name"], "description": found["description"], "spec": [THEIRS, *found["spec"]]}
    written, clashes = _written({**TEMPLATE, "labels": []}, {**SURVEY, "spec": []}, have)
    assert clashes == []
    assert (written["labels"], written["survey"]["spec"]) == ([], [THEIRS])


def test_a_template_without_a_credential_keeps_what_it_has():
    template = {**TEMPLATE, "credentials": [], "keeps_credentials": True}
    assert _written(template, have=_awx())[0]["credentials"] == ["1"]


@pytest.mark.parametrize("description", ["", f"Questions.{awx_present.WRITTEN}not json", f"x{awx_present.WRITTEN}[]"])
def test_without_its_list_the_role_removes_nothing(description):
    have = _awx()
    have["survey"] = {**have["survey"], "description": description, "spec": [THEIRS]}
    have["labels"].append({"name": "night", "id": 9})
    written, clashes = _written(have=have)
    assert clashes == []
    assert written["labels"] == ["virtpools", "night"]
    assert written["survey"]["spec"] == [ASKED, THEIRS]


def test_a_second_run_writes_the_same():
    have = _awx()
    written = _written(have=have)[0]
    assert (written["survey"], written["variables"]) == (have["survey"], have["variables"])


def test_a_name_that_another_user_took_is_refused():
    have = _awx({"variables": {"virtpools_prune": True, "virtpools_drain": "wait"}})
    have["survey"]["spec"].append({"variable": "virtpools_drain", "type": "textarea"})
    survey = {**SURVEY, "spec": [ASKED, {"variable": "virtpools_drain", "type": "text"}]}
    template = {**TEMPLATE, "variables": {"virtpools_prune": True, "virtpools_drain": "leave"}}
    asked, variable = _written(template, survey, have)[1]
    assert "a question for virtpools_drain that another user added" in asked
    assert "a variable virtpools_drain that another user added" in variable


def test_two_credentials_of_a_type_are_refused():
    have = _awx()
    have["credentials"].append({"name": "theirs", "id": 8, "credential_type": 1})
    written = _written(have=have)[0]
    present = Present(templates={"virtpools plan": have})
    (error,) = awx_present.two_of_a_type(written, present, 1)
    assert "has the credential theirs, which another user added" in error
    assert awx_present.two_of_a_type(written, present, 2) == []


def test_objects_of_others_are_neither_written_nor_removed():
    theirs, ours = (
        {"name": "virtpools", "id": 1, "description": "Ours"},
        {"name": "virtpools x", "id": 2, "description": MARK},
    )
    present = Present({"id": 7, "description": ""}, {"projects": [theirs, {**ours, "organization": 7}]})
    names = {"projects": ["virtpools", "virtpools x"]}
    found = awx_present.strangers(present, names, "ops")
    assert found == [("organization", "ops"), ("project", "virtpools")]
    organization, project = awx_present.refused(found)
    assert "set virtpools_awx_manage_organization to false" in organization
    assert "choose another virtpools_awx_prefix" in project
    assert [each["id"] for each in awx_present.removable(present, names)["projects"]] == [2]


def test_a_cluster_that_is_not_listed_any_more_goes():
    ours, theirs = {"name": "east", "description": MARK}, {"name": "lab", "description": ""}
    sourced = {"name": "west", "description": "imported"}
    present = Present(hosts=[ours, theirs, sourced], source_hosts=[sourced])
    assert awx_present.hosts_to_remove(present, ["east"]) == ["west"]
    assert awx_present.hosts_to_remove(present, ["west"]) == ["east"]
    assert awx_present.hosts_to_remove(present, []) == ["east"]  # the project has the inventory


def test_a_failed_update_of_the_project_names_reason_and_link():
    events = [{"event_data": {"res": {"msg": "Could not read\n from remote."}}}]
    problem = awx_present.project_problem(
        Present(project_update={"id": 42}, project_events=events), "https://awx.example/"
    )
    assert "Could not read from remote. Read https://awx.example/#/jobs/project/42" in problem
    assert "Galaxy credential" in problem
    assert awx_present.project_problem(Present(), "") == ""


@pytest.mark.parametrize(
    ("status", "outdated"), [("successful", False), ("failed", True), ("never updated", True), ("running", False)]
)
def test_a_project_that_was_not_read_is_updated(status, outdated):
    present = Present(content={"projects": [{"name": "virtpools", "status": status}]})
    assert awx_present.project_outdated(present, ["virtpools"]) is outdated


def test_the_list_of_what_was_written_is_json():
    description = _written()[0]["survey"]["description"]
    assert json.loads(description.partition(awx_present.WRITTEN)[2])["questions"] == ["virtpools_prune"]
