# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the role awx writes to AWX follows AWX's rules: surveys, the schedule, the messages of notifications."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils import option_table
from ansible_collections.virtpools.kubevirt.plugins.module_utils.option_table import surveys
from ansible_collections.virtpools.kubevirt.plugins.module_utils.option_table.surveys import PLAYBOOKS
from ansible_collections.virtpools.kubevirt.plugins.plugin_utils import awx_objects
from ansible_collections.virtpools.kubevirt.plugins.plugin_utils.awx_objects import TEMPLATES, WORKFLOWS
from ansible_collections.virtpools.kubevirt.tests.unit.support import awx_rules

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[3]
VARIABLES = ROOT / "roles/awx/vars/main"
OPTIONS = {option.variable: option for option in option_table.TABLE if option.roles}


SURVEYS = yaml.safe_load((VARIABLES / "surveys.yml").read_text("utf-8"))["__awx_surveys"]
QUESTIONS = {
    f"{survey}-{question['variable']}": (survey, question)
    for survey, found in SURVEYS.items()
    for question in found["spec"]
}
CHOICES = {name: each for name, each in QUESTIONS.items() if "choices" in each[1]}
TEXTS_OF_USERS = {name: each for name, each in QUESTIONS.items() if each[1]["type"] in ("text", "textarea")}
NUMBERS = {name: each for name, each in QUESTIONS.items() if each[1]["type"] == "integer"}


def _roles(survey):
    return surveys.roles_of(survey)


# Surveys ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("survey", SURVEYS)
def test_awx_takes_every_survey(survey):
    assert awx_rules.survey_error(SURVEYS[survey]) == ""


@pytest.mark.parametrize("survey", SURVEYS)
def test_questions_of_a_survey_differ(survey):
    texts = [question["question_name"] for question in SURVEYS[survey]["spec"]]
    assert len({*texts}) == len(texts)


@pytest.mark.parametrize("survey", SURVEYS)
def test_what_must_be_answered_is_asked_first(survey):
    required = [question["required"] for question in SURVEYS[survey]["spec"]]
    assert required == sorted(required, reverse=True)


@pytest.mark.parametrize("survey", SURVEYS)
def test_ansible_evaluates_nothing_in_a_survey(survey):
    assert not re.search(r"\{[{%#]", json.dumps(SURVEYS[survey]))


@pytest.mark.parametrize("survey", SURVEYS)
def test_a_survey_asks_for_what_a_role_needs(survey):
    needed = {option.variable for role in _roles(survey) for option in option_table.of_role(role) if option.required}
    assert needed <= {question["variable"] for question in SURVEYS[survey]["spec"]}


@pytest.mark.parametrize(("survey", "question"), QUESTIONS.values(), ids=QUESTIONS)
def test_a_question_is_short_and_explained(survey, question):
    assert 0 < len(question["question_name"]) <= 50
    assert question["question_description"].endswith(".")
    assert not re.search(r"\b[A-Z]\(|  |\n", question["question_description"])


@pytest.mark.parametrize(("survey", "question"), QUESTIONS.values(), ids=QUESTIONS)
def test_a_question_is_about_a_variable_of_the_playbook(survey, question):
    roles = [role for role in _roles(survey) if role in OPTIONS[question["variable"]].roles]
    assert roles
    option = OPTIONS[question["variable"]].of_role(roles[-1])
    assert question["required"] == option.required


@pytest.mark.parametrize(("survey", "question"), QUESTIONS.values(), ids=QUESTIONS)
def test_choices_are_those_of_the_option(survey, question):
    option = OPTIONS[question["variable"]]
    choices = ("true", "false") if option.type == "bool" else option.choices
    assert question["type"] == "multiplechoice" if choices else question["type"] in ("text", "textarea", "integer")
    assert tuple(question.get("choices", ())) == choices


def test_a_question_has_choices_or_is_a_text_or_a_number():
    """Each kind has questions, and tests of its own below."""
    kinds = (CHOICES, TEXTS_OF_USERS, NUMBERS)
    assert all(kinds)
    assert sorted(name for kind in kinds for name in kind) == sorted(QUESTIONS)


@pytest.mark.parametrize(("survey", "question"), TEXTS_OF_USERS.values(), ids=TEXTS_OF_USERS)
def test_a_text_may_be_empty_where_an_answer_may_be_missing(survey, question):
    assert 0 <= question["min"] < question["max"]
    assert (question["min"] > 0) == question["required"]


@pytest.mark.parametrize(("survey", "question"), NUMBERS.values(), ids=NUMBERS)
def test_limits_of_a_number_are_no_obstacle(survey, question):
    assert 0 <= question["min"] < question["max"]
    assert awx_rules.launch_error(question, question["max"]) == ""
    assert awx_rules.launch_error(question, question["max"] + 1) != ""


@pytest.mark.parametrize(("survey", "question"), TEXTS_OF_USERS.values(), ids=TEXTS_OF_USERS)
def test_a_text_that_is_left_open_sends_nothing(survey, question):
    """AWX sends a default that it would take as an answer, and would hide the inventory's variable with it."""
    assert "default" not in question


@pytest.mark.parametrize(("survey", "question"), {**CHOICES, **NUMBERS}.values(), ids={**CHOICES, **NUMBERS})
def test_a_default_that_awx_would_refuse_is_not_sent(survey, question):
    assert question["default"] == ""
    assert awx_rules.launch_error(question, "") != ""


@pytest.mark.parametrize(("survey", "question"), CHOICES.values(), ids=CHOICES)
def test_every_choice_can_be_given(survey, question):
    assert "min" not in question
    option = OPTIONS[question["variable"]]
    role = next(role for role in _roles(survey) if role in option.roles)
    needed = {each.variable: "v1.9.1" for each in option_table.of_role(role) if each.required}
    assert len(question["choices"]) > 1
    for choice in question["choices"]:
        option_table.resolve(role, {**needed, option.variable: choice})


def test_who_breaks_a_rule_is_refused():
    good = {"question_name": "How?", "variable": "how", "type": "text", "required": False}
    survey = {"name": "x", "description": "", "spec": [good]}
    assert awx_rules.survey_error(survey) == ""
    for change in (
        {"type": "boolean"},
        {"type": "integer", "default": "1"},
        {"type": "multiplechoice"},
        {"type": "multiplechoice", "choices": ["a"], "default": "b"},
        {"type": "multiplechoice", "choices": ["a", "b"], "default": "a\nb"},
        {"min": ""},
        {"question_name": None},
        {"required": "yes"},
    ):
        assert awx_rules.survey_error({**survey, "spec": [{**good, **change}]}) != "", change
    assert awx_rules.survey_error({**survey, "spec": [good, good]}) != ""
    assert awx_rules.survey_error({**survey, "spec": []}) != ""


# Playbooks ----------------------------------------------------------------------------------------------------------


def _roles_of(tasks):
    for task in tasks:
        for action, arguments in task.items():
            if action.rpartition(".")[2] in ("import_role", "include_role"):
                yield arguments["name"].removeprefix("virtpools.kubevirt.")


def test_every_playbook_for_clusters_has_a_template_and_a_survey():
    playbooks = {file.stem for file in (ROOT / "playbooks").glob("*.yml")} - {"find_clusters", "awx"}
    assert {*PLAYBOOKS} == playbooks
    assert {*SURVEYS} == {*playbooks, *surveys.WORKFLOWS}
    assert {template.playbook for template in TEMPLATES} == playbooks


@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_a_survey_knows_the_roles_of_its_playbook(playbook):
    plays = yaml.safe_load((ROOT / f"playbooks/{playbook}.yml").read_text("utf-8"))
    used = {role for play in plays for role in _roles_of(play.get("tasks", []))}
    included = {
        role
        for name in used
        for role in _roles_of(yaml.safe_load((ROOT / f"roles/{name}/tasks/main.yml").read_text("utf-8")))
    }
    assert {*PLAYBOOKS[playbook]} == used | included


def test_who_reads_only_has_the_credential_that_reads():
    """As docs/security.md says which playbooks the two ClusterRoles are for."""
    page = (ROOT / "docs/security.md").read_text("utf-8")
    for access in ("reader", "writer"):
        (row,) = re.findall(rf"^\| `virtpools-{access}` \| (.*?) \|", page, re.MULTILINE)
        assert {*re.findall(r"`(\w+)`", row)} == {
            template.playbook for template in TEMPLATES if template.access == access
        }


# Workflows ----------------------------------------------------------------------------------------------------------

ACCESS = {template.playbook: template.access for template in TEMPLATES}
every_workflow = pytest.mark.parametrize("workflow", WORKFLOWS, ids=[each.survey for each in WORKFLOWS])


def _parents(workflow):
    """The node before each node."""
    found = [(each, link.node) for link in workflow.links for each in (*link.success, *link.failure)]
    return dict(found), found


@every_workflow
def test_nodes_of_a_workflow_exist(workflow):
    nodes = [*(job.node for job in workflow.jobs), *(approval.node for approval in workflow.approvals)]
    assert len({*nodes}) == len(nodes)
    linked = _parents(workflow)[0]
    assert {link.node for link in workflow.links} < {*nodes}
    assert {*nodes} - linked.keys() == {workflow.jobs[0].node}  # where it begins
    assert {job.playbook for job in workflow.jobs} <= ACCESS.keys()
    assert workflow.survey in SURVEYS


@every_workflow
def test_nothing_is_changed_without_an_approval(workflow):
    approvals = {approval.node for approval in workflow.approvals}
    parents = _parents(workflow)[1]
    changing = {job.node for job in workflow.jobs if ACCESS[job.playbook] == "writer" and not job.check}
    assert changing
    assert {parent for node, parent in parents if node in changing} <= approvals


@pytest.mark.parametrize("playbook", ["rollout", "upgrade"])
def test_a_template_carries_out_only_what_was_approved(playbook):
    (template,) = (template for template in TEMPLATES if template.playbook == playbook)
    assert template.variables["virtpools_require_approval"] is True
    assert "virtpools_expected_plan" in [question["variable"] for question in SURVEYS[playbook]["spec"]]


@every_workflow
def test_awx_asks_for_the_job_type_of_what_runs_in_check_mode(workflow):
    assert {ACCESS[job.playbook] for job in workflow.jobs if job.check} <= {"writer"}


def test_the_picture_shows_the_workflow():
    """docs/awx.svg, and the sentence for those who do not see it."""
    (workflow,) = (each for each in WORKFLOWS if each.survey == surveys.ROLLOUT_WORKFLOW)
    picture = (ROOT / "docs/awx.svg").read_text("utf-8")
    shown = re.findall(r"<text[^>]*>([^<]+)</text>", picture)
    nodes = [*(job.node for job in workflow.jobs), *(approval.name for approval in workflow.approvals)]
    assert {*nodes} <= {*shown}
    arrows = sum(len(link.success) + len(link.failure) for link in workflow.links)
    assert picture.count('marker-end="url(#tip)"') == arrows
    (sentence,) = re.findall(r"!\[(.*)\]\(awx\.svg\)", (ROOT / "docs/awx.md").read_text("utf-8"))
    assert all(f"the job {job.node} " in sentence.lower() for job in workflow.jobs)


def test_an_upgrade_that_fails_leads_nowhere():
    """So the workflow fails, too, and neither a job that was refused nor one that was cancelled undoes anything."""
    (workflow,) = (each for each in WORKFLOWS if each.survey == surveys.UPGRADE_WORKFLOW)
    assert [link.failure for link in workflow.links if link.failure] == []
    first, *later = [job for job in workflow.jobs if job.playbook == "upgrade"]
    assert (first.check, [job.check for job in later]) == (True, [False, False])
    last = {job.node for job in workflow.jobs} - {link.node for link in workflow.links}
    assert last == {"verify"}


# Schedules and notifications ----------------------------------------------------------------------------------------


def test_awx_takes_the_schedule():
    assert awx_rules.rule_error(OPTIONS["virtpools_awx_verify_schedule"].default) == ""
    assert awx_rules.rule_error("DTSTART:20260101T030000 RRULE:FREQ=DAILY;INTERVAL=1") != ""


TEXTS = {
    "message": awx_objects.MESSAGE,
    "approval_needed": awx_objects.APPROVAL_NEEDED,
    "approval_decided": awx_objects.APPROVAL_DECIDED,
    "email_body": awx_objects.EMAIL_BODY,
    "webhook_body": awx_objects.WEBHOOK_BODY,
    "webhook_approval": awx_objects.WEBHOOK_APPROVAL,
}


@pytest.mark.parametrize("messages", [awx_objects.WEBHOOK_MESSAGES, awx_objects.EMAIL_MESSAGES])
def test_awx_takes_the_messages(messages):
    assert awx_rules.messages_error(messages) == ""
    wrong = {"workflow_approval": {"running": {"body": "{{ job.nothing }}"}}}
    assert awx_rules.messages_error({**messages, **wrong}) != ""


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize(
    "without", [(), ("artifacts", "limit", "summary_fields", "host_status_counts")], ids=["job", "workflow"]
)
def test_a_message_can_be_sent(name, without):
    job = {key: value for key, value in awx_rules.JOB.items() if key not in without}
    told = awx_rules.rendered(TEXTS[name], job)
    assert "{{" not in told
    if name.startswith("webhook"):
        assert isinstance(json.loads(told), dict)


def test_messages_say_what_happened():
    email = awx_rules.rendered(awx_objects.EMAIL_BODY, awx_rules.JOB)
    for part in ("virtpools verify", "failed", "https://awx.example", "alice", "virtpools_problems"):
        assert part in email
    webhook = json.loads(awx_rules.rendered(awx_objects.WEBHOOK_BODY, awx_rules.JOB))
    assert webhook["results"] == {"virtpools_problems": 3}
    assert (webhook["job"], webhook["status"]) == (42, "failed")
