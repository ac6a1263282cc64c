# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""The playbook awx, with the modules of the collection awx.awx, against a server of ours that plays AWX's API.

No AWX takes part: see awx_server.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ansible_collections.kubernetes.core as kubernetes_core
import pytest
import yaml

import playbooks
from ansible_collections.virtpools.kubevirt.plugins.module_utils.option_table.surveys import PLAYBOOKS
from ansible_collections.virtpools.kubevirt.plugins.plugin_utils.awx_present import MARK
from awx_server import BEARER_TYPE, Awx, Object, serving
from playbooks import Run

ROOT = Path(__file__).parents[3]
SURVEYS = yaml.safe_load((ROOT / "roles/awx/vars/main/surveys.yml").read_text("utf-8"))["__awx_surveys"]
POOLS = "virtpools_pools"
LIST_BRINGERS = ("plan", "site", "rollout", "upgrade", "upgrade_check")
TEMPLATES = sorted(f"virtpools {playbook}" for playbook in PLAYBOOKS)
ROLLOUT, UPGRADE = WORKFLOWS = ("virtpools rollout with approval", "virtpools upgrade with approval")
NODES = {
    ROLLOUT: {
        "plan": ("virtpools rollout", ["approve"], []),
        "approve": ("Approve the plan", ["rollout"], []),
        "rollout": ("virtpools rollout", ["verify"], ["plan_rollback"]),
        "verify": ("virtpools verify", [], ["plan_rollback"]),
        "plan_rollback": ("virtpools rollback", ["approve_rollback"], []),
        "approve_rollback": ("Go back to the previous list", ["rollback"], []),
        "rollback": ("virtpools rollback", ["verify_rollback"], []),
        "verify_rollback": ("virtpools verify", [], []),
    },
    UPGRADE: {
        "check": ("virtpools upgrade", ["approve"], []),
        "approve": ("Approve the upgrade", ["prepare"], []),
        "prepare": ("virtpools upgrade", ["kubevirt_upgraded"], []),
        "kubevirt_upgraded": ("KubeVirt has been upgraded", ["follow"], []),
        "follow": ("virtpools upgrade", ["verify"], []),
        "verify": ("virtpools verify", [], []),
    },
}
"""The nodes of each workflow: what each runs, what follows it when that succeeds, and what when it fails."""
TEAMS = {
    "virtpools readers": ("read",),
    "virtpools operators": ("execute", "read"),
    "virtpools approvers": ("approval", "read"),
}
TICKET = {"variable": "ticket", "question_name": "Ticket", "type": "text", "required": False, "default": ""}
"""A question that an administrator adds."""
DAILY = "DTSTART:20260101T030000Z RRULE:FREQ=DAILY;INTERVAL=1"
NOTIFICATIONS = ["virtpools email", "virtpools webhook"]
SECRETS = (
    "the-token-of-awx",
    "the-token-of-east",
    "the-kubeconfig-of-all",
    "the-secret-of-the-hook",
    "the-next-kubeconfig",
)

VARIABLES: dict[str, Any] = {
    "virtpools_awx_project_url": "https://git.example/pools.git",
    "virtpools_awx_image": "registry.example/virtpools-ee:1",
    "virtpools_awx_reader": {"host": "https://east.example:6443", "bearer_token": SECRETS[1], "verify_ssl": True},
    "virtpools_awx_writer": {"kubeconfig": SECRETS[2]},
    "virtpools_awx_variables": {"virtpools_waves": [{"per": "platform"}]},
    "virtpools_awx_webhook": {"url": "https://hooks.example/1", "headers": {"Authorization": SECRETS[3]}},
    "virtpools_awx_email": {"host": "mail.example", "sender": "awx@example.com", "recipients": ["ops@example.com"]},
}
EVERYTHING = {
    "label virtpools",
    "credential type virtpools kubeconfig",
    "execution environment virtpools",
    "project virtpools",
    "inventory virtpools clusters",
    "notification virtpools webhook",
    "notification virtpools email",
    *(f"team {team}" for team in TEAMS),
    "credential virtpools reader",
    "credential virtpools writer",
    "inventory source virtpools",
    *(f"job template {name}" for name in TEMPLATES),
    *(f"workflow {workflow}" for workflow in WORKFLOWS),
    *(
        f"workflow {'job' if runs.startswith('virtpools ') else 'approval'} {node} of {workflow}"
        for workflow, nodes in NODES.items()
        for node, (runs, _success, _failure) in nodes.items()
    ),
    "schedule virtpools verify",
    *(f"role {role} of {team}" for team in TEAMS for role in TEAMS[team]),
    *(
        f"what follows workflow node {node} of {workflow}"
        for workflow, nodes in NODES.items()
        for node, (_runs, success, failure) in nodes.items()
        if success or failure
    ),
}
"""What check mode lists when not even the organization exists."""


@dataclass
class Server:
    """An AWX, and runs of the playbook with it."""

    awx: Awx
    url: str

    def run(self, *arguments: str, **variables: Any) -> Run:
        connection = {"virtpools_awx_host": self.url, "virtpools_awx_token": self.awx.token}
        return playbooks.run("awx", Path("/dev/null"), None, *arguments, **{**VARIABLES, **connection, **variables})


def _new() -> Awx:
    return Awx(tuple(f"{playbook}.yml" for playbook in PLAYBOOKS), SECRETS[0])


@pytest.fixture
def server() -> Iterator[Server]:
    """Return an AWX as it is after its installation."""
    awx = _new()
    with serving(awx) as url:
        yield Server(awx, url)


@pytest.fixture(scope="module")
def made() -> Iterator[tuple[Server, Run]]:
    """Return an AWX in which the playbook has run, and that run. The tests with it follow each other."""
    awx = _new()
    with serving(awx) as url:
        server = Server(awx, url)
        yield server, server.run("-vvv").succeeded()


def _items(run: Run, name: str) -> list[str]:
    """The items of a loop that were reported as changed."""
    (task,) = (task for task in run.tasks if task.name.endswith(name) and "results" in task.result)
    return [result["item"] for result in task.result["results"] if result["changed"]]


def _questions(survey: str) -> list[dict[str, Any]]:
    """The questions of a survey where the pool list is the project's."""
    return [question for question in SURVEYS[survey]["spec"] if question["variable"] != POOLS]


def _listed(run: Run) -> set[str]:
    """What check mode lists instead of comparing it."""
    listed = [task for task in run.tasks if "List what would be created" in task.name]
    return {result["msg"] for task in listed for result in task.result["results"]}


# An AWX that has nothing --------------------------------------------------------------------------------------------


def test_check_mode_lists_what_it_would_create_and_only_reads(server: Server) -> None:
    before = server.awx.snapshot()
    run = server.run("--check").succeeded()
    (organization,) = (task for task in run.tasks if task.name.endswith(": Create the organization"))
    assert organization.status == "changed"
    assert _listed(run) == EVERYTHING
    assert server.awx.writes == []
    assert server.awx.snapshot() == before


@pytest.mark.thorough  # one more whole run
def test_check_mode_compares_what_it_can_and_lists_the_rest(server: Server) -> None:
    """In an organization of somebody else, which stays as it is."""
    organization = server.awx.add("organizations", name="ops", description="Operations")
    server.awx.add("labels", name="virtpools", organization=organization["id"])
    run = server.run("--check", virtpools_awx_manage_organization=False, virtpools_awx_organization="ops").succeeded()
    changed = {task.name.partition(" : ")[2] for task in run.tasks if task.status == "changed"}
    assert {"Create the project", "Create the inventory", "Create the notification by webhook"} <= changed
    assert not {"Create the labels", "Create the organization"} & changed
    assert "credential virtpools reader" in _listed(run)
    assert "project virtpools" not in _listed(run)
    assert server.awx.writes == []


def test_a_project_must_be_named(server: Server) -> None:
    assert "virtpools_awx_project_url is missing" in server.run(virtpools_awx_project_url="").refused()
    assert server.awx.writes == []


def test_an_organization_of_somebody_else_is_not_made(server: Server) -> None:
    refused = server.run(virtpools_awx_manage_organization=False, virtpools_awx_organization="ops").refused()
    assert "AWX has no organization ops, and virtpools_awx_manage_organization is false" in refused
    assert server.awx.writes == []


def test_without_awx_awx_one_sentence_says_what_to_install(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, folder in (("virtpools/kubevirt", ROOT), ("kubernetes/core", Path(kubernetes_core.__path__[0]))):
        link = tmp_path / "ansible_collections" / name
        link.parent.mkdir(parents=True)
        link.symlink_to(folder)
    # playbooks.run leaves out the variables of Ansible, which are a developer's own.
    environment = playbooks._environment()
    monkeypatch.setattr(
        playbooks,
        "_environment",
        lambda: {
            **environment,
            "ANSIBLE_COLLECTIONS_PATH": str(tmp_path),
            "ANSIBLE_COLLECTIONS_SCAN_SYS_PATH": "false",
            "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.default",
        },
    )
    run = server.run()
    assert run.rc != 0
    assert "The collection awx.awx is missing: ansible-galaxy collection install awx.awx" in run.stdout + run.stderr
    assert "Traceback" not in run.stdout + run.stderr
    assert "couldn't resolve module" not in run.stdout + run.stderr


# Accounts, clusters and a project that change ------------------------------------------------------------------------

BEARERS = {
    f"virtpools_awx_{access}": {"host": "https://east.example:6443", "bearer_token": SECRETS[1], "verify_ssl": True}
    for access in ("reader", "writer")
}
KUBECONFIGS = {f"virtpools_awx_{access}": {"kubeconfig": SECRETS[2]} for access in ("reader", "writer")}


@pytest.mark.thorough  # three more whole runs
def test_an_administrator_of_an_organization_needs_no_other(server: Server) -> None:
    """Also where AWX could not read the project at first."""
    awx = server.awx
    awx.add("organizations", name="ops", description="Operations")
    ours = {
        "virtpools_awx_token": awx.organization_token,
        "virtpools_awx_manage_organization": False,
        "virtpools_awx_organization": "ops",
    }
    awx.project_error = "Failed to download the collection virtpools.kubevirt"
    for number in (1, 2):
        refused = server.run(**ours, **BEARERS).refused()
        assert f"AWX could not update the project: {awx.project_error}." in refused
        assert f"Read {server.url}/#/jobs/project/{awx.updates[-1]['id']}" in refused
        assert "the Galaxy credential of the organization" in refused
        assert len(awx.updates) == number  # each run tries again
    awx.project_error = ""
    server.run(**ours, **BEARERS).succeeded()
    assert len(awx.updates) == 3
    assert awx.names("job_templates") == TEMPLATES
    assert {write.status for write in awx.writes} <= {200, 201, 202, 204}
    refused = server.run(**ours, **KUBECONFIGS).refused()
    assert "The credential type virtpools kubeconfig cannot be written" in refused
    assert "let one of them run this playbook once, or give virtpools_awx_reader and virtpools_awx_writer" in refused


@pytest.mark.thorough  # three whole runs, each of some hundred tasks of awx.awx; unit tests compare both forms with AWX
@pytest.mark.timeout(1800)
def test_one_cluster_becomes_several_and_one_again(server: Server) -> None:
    """Credentials keep their names and change their type, and a cluster that is no longer listed leaves the inventory."""
    awx = server.awx
    server.run(**BEARERS).succeeded()
    inventory = awx.one("inventories", "virtpools clusters")["id"]
    for name in ("east", "north"):
        host = awx.add("hosts", name=name, inventory=inventory, description="imported")
        awx.relate("inventory_sources", "virtpools", "hosts", host["id"])
    lab = awx.add("hosts", name="lab", inventory=inventory)
    contexts = {name: {"virtpools_context": name} for name in ("east", "west")}
    several, one = {**KUBECONFIGS, "virtpools_awx_hosts": contexts}, {**BEARERS, "virtpools_awx_hosts": {"east": {}}}
    for variables, kind, hosts in (
        (several, "virtpools kubeconfig", ["east", "lab", "west"]),
        (one, BEARER_TYPE, ["east", "lab"]),
    ):
        server.run(**variables).succeeded()
        assert awx.names("credentials") == ["Ansible Galaxy", "virtpools reader", "virtpools writer"]
        for access, playbook in (("reader", "verify"), ("writer", "site")):
            credential = awx.one("credentials", f"virtpools {access}")
            assert credential["credential_type"] == awx.one("credential_types", kind)["id"]
            assert credential["inputs"] == variables[f"virtpools_awx_{access}"]
            assert awx.related("job_templates", f"virtpools {playbook}", "credentials") == [f"virtpools {access}"]
        assert awx.names("hosts") == hosts
    assert awx.one("hosts", "lab") == lab


@pytest.mark.thorough  # two more whole runs
def test_only_what_is_marked_is_taken_away(server: Server) -> None:
    awx = server.awx
    organization = awx.add("organizations", name="virtpools", description=MARK)["id"]
    awx.add("projects", name="virtpools", organization=organization, description=MARK)
    awx.add("execution_environments", name="virtpools", image="registry.example/theirs")
    awx.add("credential_types", name="virtpools kubeconfig")
    assert "AWX has the execution environment virtpools, which this role did not create" in server.run().refused()
    run = server.run(virtpools_awx_state="absent").succeeded()
    assert "virtpools" in awx.names("execution_environments")
    assert "virtpools kubeconfig" in awx.names("credential_types")
    assert (awx.names("projects"), awx.names("organizations")) == ([], ["Default"])
    (stays,) = (task for task in run.tasks if task.name.endswith("Report what stays") and task.status == "ok")
    assert [line for result in stays.result["results"] for line in result["lines"]] == [
        f"The {what} stays, since this role did not create it."
        for what in ("execution environment virtpools", "credential type virtpools kubeconfig")
    ]


# An AWX in which everything is made -----------------------------------------------------------------------------------


def test_no_secret_is_shown_however_verbose_the_run_is(made: tuple[Server, Run]) -> None:
    _server, run = made
    for secret in SECRETS:
        assert secret not in run.stdout + run.stderr


def test_organization_project_and_execution_environment(made: tuple[Server, Run]) -> None:
    awx = made[0].awx
    organization = awx.one("organizations", "virtpools")
    assert awx.related("organizations", "virtpools", "galaxy_credentials") == ["Ansible Galaxy"]
    project = awx.one("projects", "virtpools")
    assert (project["organization"], project["scm_url"]) == (organization["id"], "https://git.example/pools.git")
    image = awx.one("execution_environments", "virtpools")
    assert (image["organization"], image["image"]) == (organization["id"], "registry.example/virtpools-ee:1")


def test_credentials(made: tuple[Server, Run]) -> None:
    awx = made[0].awx
    ours = awx.one("credential_types", "virtpools kubeconfig")
    assert ours["injectors"] == {
        "file": {"template.kubeconfig": "{{ kubeconfig }}"},
        "extra_vars": {"virtpools_kubeconfig": "{{ tower.filename.kubeconfig }}"},
    }
    reader, writer = (awx.one("credentials", f"virtpools {access}") for access in ("reader", "writer"))
    assert reader["credential_type"] == awx.one("credential_types", BEARER_TYPE)["id"]
    assert writer["credential_type"] == ours["id"]
    assert reader["inputs"] == VARIABLES["virtpools_awx_reader"]
    assert writer["inputs"] == VARIABLES["virtpools_awx_writer"]


def test_the_inventory_is_the_projects(made: tuple[Server, Run]) -> None:
    awx = made[0].awx
    source = awx.one("inventory_sources", "virtpools")
    assert source["inventory"] == awx.one("inventories", "virtpools clusters")["id"]
    assert source["source_project"] == awx.one("projects", "virtpools")["id"]
    assert (source["source"], source["source_path"], source["update_on_launch"]) == (
        "scm",
        "inventory/clusters.yml",
        True,
    )


@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_job_template(made: tuple[Server, Run], playbook: str) -> None:
    awx, name = made[0].awx, f"virtpools {playbook}"
    template = awx.one("job_templates", name)
    writes = playbook in ("site", "rollout", "rollback", "remove", "workload_update", "upgrade")
    assert template["playbook"] == f"{playbook}.yml"
    assert template["project"] == awx.one("projects", "virtpools")["id"]
    assert template["inventory"] == awx.one("inventories", "virtpools clusters")["id"]
    assert template["execution_environment"] == awx.one("execution_environments", "virtpools")["id"]
    assert awx.related("job_templates", name, "credentials") == ["virtpools writer" if writes else "virtpools reader"]
    assert awx.related("job_templates", name, "labels") == ["virtpools"]
    assert sorted(awx.related("job_templates", name, "notification_templates_error")) == NOTIFICATIONS
    told = NOTIFICATIONS if playbook in ("plan", "rollout", "rollback", "upgrade") else []
    assert sorted(awx.related("job_templates", name, "notification_templates_success")) == told
    assert template["survey_enabled"]
    assert awx.survey("job_templates", name)["spec"] == _questions(playbook)
    assert template["ask_limit_on_launch"]
    assert template["ask_job_type_on_launch"] == writes
    approval = {"virtpools_require_approval": True} if playbook in ("rollout", "upgrade") else {}
    assert json.loads(template["extra_vars"]) == {"virtpools_waves": [{"per": "platform"}], **approval}


@pytest.mark.parametrize(("workflow", "survey"), [(ROLLOUT, "rollout_workflow"), (UPGRADE, "upgrade_workflow")])
def test_a_workflow(made: tuple[Server, Run], workflow: str, survey: str) -> None:
    awx, kind = made[0].awx, "workflow_job_templates"
    assert awx.survey(kind, workflow)["spec"] == _questions(survey)
    assert awx.one(kind, workflow)["ask_limit_on_launch"]
    for when in ("success", "error", "approvals"):
        assert sorted(awx.related(kind, workflow, f"notification_templates_{when}")) == NOTIFICATIONS
    nodes = awx.nodes(workflow)
    found = {name: (each["runs"], each["success_nodes"], each["failure_nodes"]) for name, each in nodes.items()}
    assert found == NODES[workflow]
    checks = {name for name, each in nodes.items() if each["job_type"]}
    assert checks == ({"check"} if workflow == UPGRADE else {"plan", "plan_rollback"})


def test_the_schedule(made: tuple[Server, Run]) -> None:
    awx = made[0].awx
    schedule = awx.one("schedules", "virtpools verify")
    assert schedule["unified_job_template"] == awx.one("job_templates", "virtpools verify")["id"]
    assert schedule["rrule"] == DAILY


def test_who_may_do_and_see_what(made: tuple[Server, Run]) -> None:
    """As the table in docs/awx.md has it. The jobs of a workflow show their output to who may read their templates."""
    awx = made[0].awx
    reading = {"plan", "verify", "explain", "upgrade_check"}
    for team, started, workflows in (
        ("readers", set(), {"read"}),
        ("operators", reading, {"read", "execute"}),
        ("approvers", set(), {"read", "approval"}),
    ):
        name = f"virtpools {team}"
        assert all(awx.may(name, "read", "job_templates", template) for template in TEMPLATES)
        may = {each for each in PLAYBOOKS if awx.may(name, "execute", "job_templates", f"virtpools {each}")}
        assert may == started
        for workflow in WORKFLOWS:
            rights = ("read", "execute", "approval")
            assert {each for each in rights if awx.may(name, each, "workflow_job_templates", workflow)} == workflows


def test_an_approver_may_read_what_is_to_be_approved(made: tuple[Server, Run]) -> None:
    awx = made[0].awx
    for workflow, nodes in NODES.items():
        for node, (_runs, success, failure) in nodes.items():
            if any(nodes[each][0] not in TEMPLATES for each in (*success, *failure)):
                assert awx.may("virtpools approvers", "read", "job_templates", awx.nodes(workflow)[node]["runs"])


def test_notifications(made: tuple[Server, Run]) -> None:
    awx = made[0].awx
    webhook, email = (awx.one("notification_templates", f"virtpools {kind}") for kind in ("webhook", "email"))
    assert webhook["notification_configuration"]["headers"] == {"Authorization": SECRETS[3]}
    assert email["notification_configuration"]["recipients"] == ["ops@example.com"]
    assert "{{ job.artifacts | default({}) }}" in email["messages"]["error"]["body"]
    assert "{{ workflow_url }}" in email["messages"]["workflow_approval"]["running"]["message"]


def test_a_launch_that_answers_nothing_sends_no_answer(made: tuple[Server, Run]) -> None:
    """A default would hide the inventory's variable, also in schedules and workflows that never show the survey."""
    awx = made[0].awx
    for playbook in PLAYBOOKS:
        name = f"virtpools {playbook}"
        assert awx.launched("job_templates", name) == json.loads(awx.one("job_templates", name)["extra_vars"])


# The same AWX after an administrator has added to it -------------------------------------------------------------------


@pytest.fixture(scope="module")
def added(made: tuple[Server, Run]) -> Server:
    """Return the AWX in which the playbook has run, with credentials, labels, questions and nodes of an administrator."""
    awx, kind = made[0].awx, "workflow_job_template_nodes"
    organization = awx.one("organizations", "virtpools")["id"]
    vault = awx.add("credential_types", name="Vault")["id"]
    secrets = awx.add("credentials", name="secrets", organization=organization, credential_type=vault)
    night = awx.add("labels", name="night", organization=organization)
    for what, thing in (("credentials", secrets), ("labels", night)):
        awx.relate("job_templates", "virtpools verify", what, thing["id"])
    awx.ask("job_templates", "virtpools verify", TICKET)
    template = awx.one("job_templates", "virtpools verify")["id"]
    workflow = awx.one("workflow_job_templates", ROLLOUT)["id"]
    for name in ("ticket", "page"):
        awx.add(kind, workflow_job_template=workflow, identifier=name, unified_job_template=template)
    awx.link(ROLLOUT, "verify", "success_nodes", "ticket")
    awx.link(ROLLOUT, "verify", "failure_nodes", "page")
    awx.link(ROLLOUT, "rollback", "always_nodes", "page")
    return made[0]


@pytest.fixture(scope="module")
def changed(added: Server) -> tuple[Run, list[Object]]:
    """Return a run with other variables in an AWX where somebody took a link of ours away, and the templates before it."""
    awx = added.awx
    awx.link(ROLLOUT, "verify", "failure_nodes", "plan_rollback", away=True)
    templates = json.loads(json.dumps(list(awx.objects["job_templates"].values())))
    run = added.run(
        virtpools_awx_token="",
        virtpools_awx_username="admin",
        virtpools_awx_password=awx.token,
        virtpools_awx_hosts={"east": {"virtpools_context": "east"}, "west": {}},
        virtpools_awx_verify_schedule="none",
        virtpools_awx_labels=["pools"],
        virtpools_awx_pool_list="survey",
        virtpools_awx_writer={"kubeconfig": SECRETS[4]},
        virtpools_awx_update_secrets=True,
    )
    return run.succeeded(), templates


@pytest.mark.thorough  # a whole run; unit tests compare what is there with what is wanted
def test_a_second_run_changes_nothing(added: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of what was added. With awx.awx's own environment variables this time."""
    awx = added.awx
    monkeypatch.setenv("CONTROLLER_HOST", added.url)
    monkeypatch.setenv("CONTROLLER_OAUTH_TOKEN", awx.token)
    before, written = awx.snapshot(), len(awx.writes)
    run = added.run(virtpools_awx_host="", virtpools_awx_token="").succeeded()
    assert run.changed == 0
    assert awx.writes[written:] == []
    assert awx.snapshot() == before


@pytest.mark.thorough  # with the next three one more whole run
def test_other_variables_change_what_they_are_about(added: Server, changed: tuple[Run, list[Object]]) -> None:
    """With a user name and a password this time."""
    awx, (run, templates) = added.awx, changed
    assert awx.names("hosts") == ["east", "west"]
    assert json.loads(awx.one("hosts", "east")["variables"]) == {"virtpools_context": "east"}
    assert awx.names("inventory_sources") == []
    assert awx.names("schedules") == []
    assert awx.one("credentials", "virtpools writer")["inputs"] == {"kubeconfig": SECRETS[4]}
    # The variables of the templates hide the list of the inventory, now that jobs ask for one.
    now = awx.objects["job_templates"].values()
    assert [{**each, "extra_vars": ""} for each in now] == [{**each, "extra_vars": ""} for each in templates]
    assert all(secret not in run.stdout for secret in SECRETS)


@pytest.mark.thorough  # see above
def test_what_was_added_stays_beside_what_is_new(added: Server, changed: tuple[Run, list[Object]]) -> None:
    awx, verify = added.awx, "virtpools verify"
    assert sorted(awx.related("job_templates", verify, "labels")) == ["night", "pools"]
    assert awx.related("job_templates", verify, "credentials") == ["virtpools reader", "secrets"]
    assert awx.survey("job_templates", verify)["spec"] == [*_questions("verify"), TICKET]


@pytest.mark.thorough  # see above
def test_a_link_of_ours_comes_back_and_no_other_goes(added: Server, changed: tuple[Run, list[Object]]) -> None:
    """Without its link, a node would run at every launch, before any approval."""
    linked = [(item["workflow"], item["node"]) for item in _items(changed[0], "Link the nodes of the workflows")]
    assert linked == [(ROLLOUT, "verify")]
    verify = added.awx.nodes(ROLLOUT)["verify"]
    assert set(verify["failure_nodes"]) == {"page", "plan_rollback"}
    assert verify["success_nodes"] == ["ticket"]


@pytest.mark.thorough  # see above
def test_lists_of_answers_hide_that_of_the_inventory(added: Server, changed: tuple[Run, list[Object]]) -> None:
    """So there is one list, whatever the project has."""
    awx = added.awx
    asking = {
        name
        for kind, names in (("job_templates", TEMPLATES), ("workflow_job_templates", WORKFLOWS))
        for name in names
        if POOLS in [question["variable"] for question in awx.survey(kind, name)["spec"]]
    }
    assert asking == {*(f"virtpools {playbook}" for playbook in LIST_BRINGERS), *WORKFLOWS}
    hidden = {POOLS: "", "virtpools_pools_manifest": "", "virtpools_pools_from_cluster": ""}
    for name in TEMPLATES:
        assert hidden.items() <= awx.launched("job_templates", name).items()
    assert awx.launched("job_templates", "virtpools rollout", virtpools_pools="[]")[POOLS] == "[]"
    refused = added.run(virtpools_awx_pool_list="survey", virtpools_awx_variables={POOLS: []}).refused()
    assert "virtpools_awx_pool_list is survey, and virtpools_awx_variables has virtpools_pools" in refused


def test_everything_is_taken_away_but_what_somebody_else_made(added: Server) -> None:
    awx = added.awx
    organization = awx.one("organizations", "virtpools")["id"]
    awx.add("teams", name="ops", organization=organization)
    # AWX deletes a schedule with its template, and a source with its inventory.
    verify, clusters = awx.one("job_templates", "virtpools verify"), awx.one("inventories", "virtpools clusters")
    awx.add("schedules", name="virtpools verify", unified_job_template=verify["id"], rrule=DAILY)
    awx.add("inventory_sources", name="virtpools", inventory=clusters["id"], source="scm")
    run = added.run(virtpools_awx_state="absent", virtpools_awx_labels=["pools"]).succeeded()
    assert _items(run, "Remove the job templates")
    assert {kind: awx.names(kind) for kind in awx.objects if awx.names(kind)} == {
        **_untouched(),
        "organizations": ["Default", "virtpools"],
        "teams": ["ops"],
        "labels": ["night"],
        "credentials": ["Ansible Galaxy", "secrets"],
        "credential_types": sorted([*_untouched()["credential_types"], "Vault"]),
    }
    (stays,) = (
        task for task in run.tasks if task.name.endswith("Report why the organization stays") and task.status == "ok"
    )
    assert "stays, since it has objects that this role did not create: secrets, ops." in stays.result["lines"][0]


@pytest.mark.thorough  # two more whole runs; the test before shows why an organization stays
def test_an_organization_in_which_nothing_is_left_goes_too(made: tuple[Server, Run]) -> None:
    """And then nothing is taken away from an AWX that has nothing."""
    awx = made[0].awx
    awx.objects["teams"].clear()
    for kind, name in (("credentials", "secrets"), ("credential_types", "Vault")):
        del awx.objects[kind][awx.one(kind, name)["id"]]
    written = len(awx.writes)
    made[0].run(virtpools_awx_state="absent").succeeded()
    assert [write.method for write in awx.writes[written:]] == ["DELETE"]
    assert {kind: awx.names(kind) for kind in awx.objects if awx.names(kind)} == _untouched()
    again = made[0].run(virtpools_awx_state="absent").succeeded()
    assert again.changed == 0
    assert len(awx.writes) == written + 1


def _untouched() -> dict[str, list[str]]:
    awx = _new()
    return {kind: awx.names(kind) for kind in awx.objects if awx.names(kind)}
