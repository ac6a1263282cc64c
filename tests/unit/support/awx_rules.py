# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What AWX's API refuses of surveys, schedules and notifications, what it makes of the latter's messages, and how the jobs of a
workflow follow each other."""

from __future__ import annotations

import re

import pytest

jinja2 = pytest.importorskip("jinja2")  # ansible-test's environment for modules need not have it
sandbox = pytest.importorskip("jinja2.sandbox")

NOTIFICATIONS = {
    "webhook": {
        "url": None,
        "http_method": "POST",
        "disable_ssl_verification": False,
        "username": "",
        "password": "",
        "headers": None,
    },
    "email": {
        "host": None,
        "port": None,
        "username": None,
        "password": None,
        "use_tls": None,
        "use_ssl": None,
        "sender": None,
        "recipients": None,
        "timeout": 30,
    },
}
"""The configuration of notifications: what it must have is None."""


def survey_error(spec):
    """Say what AWX refuses of a survey, or nothing; by the rules of its API for survey specifications."""
    for name, kind in (("name", str), ("description", str), ("spec", list)):
        if not isinstance(spec.get(name), kind):
            return f"Field '{name}' is missing from survey spec, or of another type."
    if not spec["spec"]:
        return "'spec' doesn't contain any items."
    variables = [question.get("variable") for question in spec["spec"]]
    if len({*variables}) < len(variables):
        return "'variable' is duplicated."
    return next((error for question in spec["spec"] if (error := _question_error(question))), "")


_SURVEY_TYPES = {
    "text": str,
    "textarea": str,
    "password": str,
    "multiplechoice": str,
    "multiselect": str,
    "integer": int,
    "float": float,
}


def _question_error(question):
    where = f"survey question {question.get('variable')}"
    for name in ("type", "question_name", "variable", "required"):
        if not isinstance(question.get(name), bool if name == "required" else str):
            return f"'{name}' missing from {where}, or of another type."
    if question["type"] not in _SURVEY_TYPES:
        return f"The type of {where} is not one of the allowed question types."
    default = question.get("default", "")
    if default != "" and type(default) is not _SURVEY_TYPES[question["type"]]:
        return f"The default value of {where} is of another type."
    if any(question.get(limit) is not None and type(question[limit]) is not int for limit in ("min", "max")):
        return f"The limits of {where} must be integers."
    if question["type"].startswith("multi"):
        if "choices" not in question:
            return f"{where} must specify choices."
        chosen = default.splitlines()
        if question["type"] == "multiplechoice" and len(chosen) > 1:
            return f"{where} can only have one default value."
        if any(choice not in question["choices"] for choice in chosen):
            return "Default choice must be answered from the choices listed."
    return ""


def launch_error(question, answer):
    """Say what AWX refuses of an answer, or nothing."""
    variable = question["variable"]
    if question["type"] in ("text", "textarea", "integer"):
        integer = question["type"] == "integer"
        if type(answer) is not (int if integer else str):
            return f"Value {answer!r} for {variable} is of another type."
        size = answer if integer else len(answer)
        if not question["min"] <= size <= question["max"]:
            return f"{variable} value {answer!r} is too small or too large."
    elif question["type"] == "multiplechoice" and answer not in question["choices"]:
        return f"Value {answer!r} for {variable} expected to be one of {question['choices']}."
    return ""


def rule_error(rule):
    """Say what AWX refuses of the rule of a schedule, or nothing."""
    starts = re.findall(r"DTSTART(?:;[^:]+)?:[0-9]+T[0-9]+Z?", rule)
    if len(starts) != 1:
        return "One valid DTSTART required in rrule."
    if re.search(r"DTSTART:[0-9]+T[0-9]+ ", rule):
        return "DTSTART cannot be a naive datetime."
    rules = re.findall(r"RRULE:\S*", rule)
    if not rules:
        return "One or more rule required in rrule."
    if any("INTERVAL" not in each or "SECONDLY" in each for each in rules):
        return "INTERVAL required in rrule, and SECONDLY is not supported."
    return ""


JOB = {
    "id": 42,
    "name": "virtpools verify",
    "status": "failed",
    "limit": "",
    "artifacts": {"virtpools_problems": 3},
    "host_status_counts": {"ok": 1, "failures": 1},
    "summary_fields": {"created_by": {"username": "alice"}},
}
"""What a message may know of a job. AWX checks messages with a job that has no artifacts."""
_AROUND = {
    "job_friendly_name": "Job",
    "url": "https://awx.example/#/jobs/playbook/42",
    "approval_node_name": "Approve the plan",
    "approval_status": "approved",
    "workflow_url": "https://awx.example/#/jobs/workflow/7",
}


def rendered(message, job):
    """A message as AWX sends it. What it does not know is an error only when it looks into it."""
    return sandbox.ImmutableSandboxedEnvironment().from_string(message).render(job=job, **_AROUND)


def messages_error(messages):
    """Say what AWX refuses of the messages of a notification, or nothing."""
    events = {"started", "success", "error", "workflow_approval"}
    if {*messages} != events:
        return f"AWX would add to the messages what they lack of {sorted(events)}."
    told = [messages[event] for event in sorted(events - {"workflow_approval"})]
    approvals = messages["workflow_approval"]
    if {*approvals} - {"running", "approved", "timed_out", "denied"}:
        return "Workflow Approval event invalid."
    for parts in [*told, *approvals.values()]:
        if {*parts} - {"message", "body"} or "\n" in parts.get("message", ""):
            return "Messages are message or body, and a message has one line."
        if error := next((error for text in parts.values() if (error := _text_error(text))), ""):
            return error
    return ""


def _text_error(text):
    environment = sandbox.ImmutableSandboxedEnvironment(undefined=jinja2.StrictUndefined)
    try:
        environment.from_string(text).render(job={**JOB, "artifacts": {}}, **_AROUND)
    except jinja2.UndefinedError as error:
        return f"Field unavailable: {error}"
    return ""


def run_workflow(workflow, run, variables):
    """Run the nodes of a workflow one after the other, as AWX does. Returns the workflow's status, and that of each node that ran.

    Known from ansible/awx. A job that failed, was canceled or could not start goes on by its node's failure links, and the
    workflow has failed where such a node has none (bfs_nodes_to_run and has_workflow_failed in awx/main/scheduler/dag_workflow.py).
    So a failure whose branch ends well is a success. A denied approval is a failed node. A job gets the artifacts of all jobs before
    it, however they ended: of a variable that several publish, the last value as a whole. The workflow's own variables override them
    (get_job_kwargs in awx/main/models/workflow.py).

    :param run: carries out the node with this name and these variables; says whether it succeeded, and its artifacts.
    :param variables: those of the workflow job, such as the answers to its survey.
    """
    links, statuses = {link.node: link for link in workflow.links}, {}

    def go(node, artifacts):
        succeeded, published = run(node, {**artifacts, **variables})
        statuses[node] = "successful" if succeeded else "failed"
        if node in links:
            for follower in links[node].success if succeeded else links[node].failure:
                go(follower, {**artifacts, **published})

    go(workflow.jobs[0].node, {})
    failed = {node for node, status in statuses.items() if status == "failed"}
    unhandled = {node for node in failed if node not in links or not links[node].failure}
    return "failed" if unhandled else "successful", statuses
