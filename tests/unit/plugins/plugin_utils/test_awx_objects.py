# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the role awx creates follows from its options. tests/unit/roles/test_awx.py checks it against AWX's rules."""

from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils import option_table
from ansible_collections.virtpools.kubevirt.plugins.plugin_utils.awx_objects import (
    BEARER_TYPE,
    Secrets,
    objects,
    with_others,
    wrong_variables,
)

NONE = Secrets({}, {}, {}, {})
ALL = Secrets({"host": "h"}, {"kubeconfig": "k"}, {"url": "u"}, {"host": "m"})


def _objects(secrets=NONE, **variables):
    return objects(
        option_table.resolve("awx", {f"virtpools_awx_{name}": value for name, value in variables.items()}), secrets
    )


def test_all_names_begin_with_the_prefix():
    found = _objects(ALL, prefix="east")
    assert all(
        name.startswith("east")
        for name in [*found["names"].values(), *(name for names in found["own_names"].values() for name in names)]
    )
    named = [each["name"] for kind in ("credentials", "templates", "workflows", "teams") for each in found[kind]]
    assert all(name.startswith("east ") for name in named)


def test_objects_of_the_organization_are_known_as_its_own():
    """A name that is missing would keep the organization when the rest is removed."""
    found = _objects(ALL)
    kinds = ("credentials", "templates", "workflows", "teams")
    created = {each["name"] for kind in kinds for each in found[kind]} | {*found["notification_names"]}
    created |= {found["names"][kind] for kind in ("project", "inventory", "execution_environment", "credential_type")}
    assert {*(name for names in found["own_names"].values() for name in names)} == created


@pytest.mark.parametrize(
    ("secrets", "variables", "reader", "writer"),
    [
        (NONE, {}, [], []),
        (ALL, {}, ["virtpools reader"], ["virtpools writer"]),
        (NONE, {"reader_credential": "theirs"}, ["theirs"], []),
        (ALL, {"writer_credential": "theirs"}, ["virtpools reader"], ["theirs"]),
    ],
)
def test_a_template_has_the_credential_of_its_access(secrets, variables, reader, writer):
    found = {each["playbook"]: each for each in _objects(secrets, **variables)["templates"]}
    assert found["verify"]["credentials"] == reader
    assert found["site"]["credentials"] == writer
    assert (found["verify"]["writes"], found["site"]["writes"]) == (False, True)


def test_the_type_of_a_credential_follows_from_its_inputs():
    found = {each["access"]: each["type"] for each in _objects(ALL)["credentials"]}
    assert found == {"reader": BEARER_TYPE, "writer": "virtpools kubeconfig"}
    assert _objects()["credentials"] == []


def test_variables_of_a_template_override_those_for_all():
    found = {
        each["playbook"]: each["variables"]
        for each in _objects(variables={"virtpools_require_approval": False, "virtpools_prune": True})["templates"]
    }
    assert found["rollout"] == {"virtpools_require_approval": True, "virtpools_prune": True}
    assert found["verify"] == {"virtpools_require_approval": False, "virtpools_prune": True}


def test_lists_of_surveys_hide_that_of_the_inventory():
    hidden = {"virtpools_pools": "", "virtpools_pools_manifest": "", "virtpools_pools_from_cluster": ""}
    for each in _objects(pool_list="survey")["templates"]:
        assert hidden.items() <= each["variables"].items()
    assert not any(hidden.keys() & each["variables"].keys() for each in _objects()["templates"])


@pytest.mark.parametrize(
    ("kind", "settings", "secret"),
    [
        ("webhook", {"url": "u"}, True),
        ("webhook", {"url": "u", "password": "p"}, True),
        ("webhook", {"url": "u", "headers": {"a": "b"}}, True),
        ("email", {"host": "m"}, False),
        ("email", {"host": "m", "password": "p"}, True),
    ],
)
def test_settings_of_a_notification_with_secrets_are_hidden(kind, settings, secret):
    secrets = Secrets({}, {}, **{"webhook": {}, "email": {}, kind: settings})
    assert _objects(secrets)["notifications"][kind]["secret"] is secret


def test_only_notifications_with_settings_are_created_and_sent():
    found = _objects(Secrets({}, {}, {}, {"host": "m"}))
    assert {kind: each["create"] for kind, each in found["notifications"].items()} == {"webhook": False, "email": True}
    assert found["notification_names"] == ["virtpools email"]
    success = "notification_templates_success"
    on_success = {each["playbook"]: each[success] for each in found["templates"] if each[success]}
    assert on_success == {playbook: ["virtpools email"] for playbook in ("plan", "rollout", "rollback", "upgrade")}


def test_no_value_of_a_secret_is_returned():
    secret = "the-secret"
    values = Secrets({"bearer_token": secret}, {"kubeconfig": secret}, {"password": secret}, {"password": secret})
    assert secret not in json.dumps(_objects(values))


def _wrong(teams=None, hosts=None, others=None, **secrets):
    options = {"virtpools_awx_teams": teams or {}, "virtpools_awx_hosts": hosts or {}, **(others or {})}
    return wrong_variables(option_table.resolve("awx", options), secrets)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("reader", {"host": "h", "bearer_token": "t", "ssl_ca_cert": "c", "verify_ssl": True}),
        ("writer", {"kubeconfig": "k"}),
        ("webhook", {"url": "u", "headers": {"a": "b"}, "http_method": "PUT", "disable_ssl_verification": True}),
        ("webhook", {"url": "u", "username": "n", "password": "p"}),
        ("email", {"host": "m", "sender": "s", "recipients": ["r"], "port": 587, "use_tls": True, "timeout": 5}),
        ("email", {}),
    ],
)
def test_mappings_that_awx_takes_are_right(name, value):
    assert _wrong(**{name: value}) == []


@pytest.mark.parametrize("name", ["reader", "writer", "webhook", "email"])
@pytest.mark.parametrize("text", ['{"url": "the-secret"}', "url=the-secret"])
def test_a_secret_mapping_that_is_text_is_refused(name, text):
    """role_options takes text for a mapping, but the tasks would read the text."""
    (message,) = _wrong(**{name: text})
    assert message.startswith(f"virtpools_awx_{name} is text: write it as a mapping")
    assert "the-secret" not in message


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("webhook", {"the-secret": None}, "virtpools_awx_webhook lacks url:"),
        ("webhook", {"url": ""}, "virtpools_awx_webhook lacks url:"),
        (
            "webhook",
            {"url": "u", "the-secret": "u"},
            "virtpools_awx_webhook has a key that is none of url, http_method",
        ),
        ("email", {"host": "m"}, "virtpools_awx_email lacks sender and recipients:"),
        (
            "reader",
            {"hots": "h", "bearer_token": "t"},
            "virtpools_awx_reader has a key that is none of host, bearer_token",
        ),
        ("writer", {"kubeconfig": "k", "host": "h"}, "virtpools_awx_writer has a key that is none of kubeconfig:"),
    ],
)
def test_keys_of_a_secret_mapping_are_checked(name, value, told):
    (message,) = _wrong(**{name: value})
    assert told in message
    assert "the-secret" not in message


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("host", "virtpools_awx_username and virtpools_awx_password"),
        ("project_url", "virtpools_awx_project_credential"),
    ],
)
def test_a_password_in_an_address_is_refused(name, told):
    (message,) = _wrong(others={f"virtpools_awx_{name}": "https://me:the-secret@git.example/pools.git"})
    assert message.startswith(f"virtpools_awx_{name} contains a password")
    assert told in message
    assert "the-secret" not in message


@pytest.mark.parametrize(
    "address",
    [
        "https://git.example/pools.git",
        "https://org@git.example/org/pools",
        "git@git.example:pools.git",
        "http://[pools",
    ],
)
def test_other_addresses_are_left_to_awx(address):
    assert _wrong(others={"virtpools_awx_project_url": address}) == []


def test_variables_of_a_host_that_are_text_are_refused():
    (message,) = _wrong(hosts={"east": "virtpools_context=e", "west": None, "north": {"virtpools_context": "n"}})
    assert message.startswith("east of virtpools_awx_hosts is not a mapping:")


def test_a_misspelt_key_of_teams_is_refused():
    (message,) = _wrong(teams={"reader": ["ops"], "operators": ["ops"]})
    assert "virtpools_awx_teams has the key reader, which is none of readers, operators, approvers" in message


@pytest.mark.parametrize("names", ["ops", [5], [""], {"ops": True}])
def test_teams_that_are_no_list_of_names_are_refused(names):
    (message,) = _wrong(teams={"readers": names})
    assert message == "readers of virtpools_awx_teams is not a list of names: write one, such as [ops]."


def test_a_team_without_names_gets_no_others():
    assert _wrong(teams={"readers": None, "approvers": ["ops"]}) == []
    grants = _objects(teams={"readers": None, "approvers": ["ops"]})["grants"]
    assert [each["teams"] for each in grants if each["role"] == "approval"] == [["virtpools approvers", "ops"]]
    assert grants[0]["teams"] == ["virtpools readers"]


def test_the_steps_list_what_is_created():
    steps = _objects(ALL, image="i", labels=["a", "b"], hosts={"east": None})["steps"]
    assert steps["base_objects"][:2] == ["label a", "label b"]
    assert "execution environment virtpools" in steps["base_objects"]
    assert steps["credentials_and_hosts"] == ["credential virtpools reader", "credential virtpools writer", "host east"]
    assert "schedule virtpools verify" in steps["workflow_nodes"]
    assert {f"workflow job verify of virtpools {name} with approval" for name in ("rollout", "upgrade")} < {
        *steps["workflow_nodes"]
    }
    steps = _objects(verify_schedule="none")["steps"]
    assert steps["credentials_and_hosts"] == ["inventory source virtpools"]
    assert "schedule virtpools verify" not in steps["workflow_nodes"]


def test_a_node_names_its_workflow_and_the_template_of_its_job():
    found = _objects(prefix="east")
    assert [each["name"] for each in found["workflows"]] == ["east rollout with approval", "east upgrade with approval"]
    upgrade = {each["node"]: each for each in found["jobs"] if each["workflow"] == "east upgrade with approval"}
    assert {node: (job["template"], job["job_type"]) for node, job in upgrade.items()} == {
        "check": ("east upgrade", "check"),
        "prepare": ("east upgrade", ""),
        "follow": ("east upgrade", ""),
        "verify": ("east verify", ""),
    }
    nodes = [(each["workflow"], each["node"]) for kind in ("approvals", "jobs") for each in found[kind]]
    assert len({*nodes}) == len(nodes)
    assert {(each["workflow"], each["node"]) for each in found["links"]} < {*nodes}


def test_hosts_of_the_inventory():
    assert _objects(hosts={"east": {"virtpools_context": "e"}, "west": None})["hosts"] == [
        {"name": "east", "variables": {"virtpools_context": "e"}},
        {"name": "west", "variables": {}},
    ]


class TestNodesOfOthers:
    WORKFLOW = "virtpools rollout with approval"
    OURS: t.ClassVar = [{"workflow": WORKFLOW, "node": "verify", "success": [], "failure": ["plan_rollback"]}]

    @staticmethod
    def node(number, identifier, workflow=7, success=(), failure=()):
        return {
            "id": number,
            "identifier": identifier,
            "workflow_job_template": workflow,
            "success_nodes": [*success],
            "failure_nodes": [*failure],
        }

    def linked(self, *nodes):
        (link,) = with_others(self.OURS, {self.WORKFLOW: 7}, nodes)
        return link["success"], link["failure"]

    def test_stay_behind_ours(self):
        nodes = (self.node(1, "verify", success=[2], failure=[3, 2]), self.node(2, "ticket"), self.node(3, "rollback"))
        assert self.linked(*nodes) == (["ticket"], ["plan_rollback", "ticket"])

    def test_of_another_workflow_do_not_count(self):
        assert self.linked(self.node(1, "verify", 8, success=[2]), self.node(2, "ticket", 8)) == ([], ["plan_rollback"])

    def test_in_a_workflow_that_is_new_there_are_none(self):
        assert self.linked() == ([], ["plan_rollback"])


def test_a_credential_type_is_created_only_for_a_kubeconfig():
    """Only administrators of the whole AWX may create one."""
    assert not _objects(Secrets({"host": "h"}, {"host": "h"}, {}, {}))["needs_credential_type"]
    assert _objects(ALL)["needs_credential_type"]


def test_a_timeout_of_approvals_is_written_only_if_given():
    assert all("timeout" not in each["approval"] for each in _objects()["approvals"])
    assert {each["approval"]["timeout"] for each in _objects(approval_timeout=0)["approvals"]} == {0}


class TestTeams:
    READ: t.ClassVar = {"read", "execute", "approval"}

    @staticmethod
    def allowed(team, roles, what):
        return {
            name
            for grant in _objects(teams={"approvers": ["chiefs"]})["grants"]
            if team in grant["teams"] and grant["role"] in roles
            for name in grant[what]
        }

    @pytest.mark.parametrize("team", ["virtpools readers", "virtpools operators", "virtpools approvers", "chiefs"])
    def test_may_read_the_output_of_every_job(self, team):
        found = _objects()
        assert self.allowed(team, self.READ, "job_templates") == {each["name"] for each in found["templates"]}
        assert self.allowed(team, self.READ, "workflows") == {each["name"] for each in found["workflows"]}

    def test_may_not_start_what_needs_an_approval(self):
        started = self.allowed("virtpools operators", {"execute"}, "job_templates")
        assert started == {f"virtpools {playbook}" for playbook in ("plan", "verify", "explain", "upgrade_check")}
        for team in ("virtpools readers", "virtpools approvers"):
            assert not self.allowed(team, {"execute"}, "job_templates") | self.allowed(team, {"execute"}, "workflows")

    def test_only_approvers_approve(self):
        for team, workflows in (("operators", 0), ("readers", 0), ("approvers", 2)):
            assert len(self.allowed(f"virtpools {team}", {"approval"}, "workflows")) == workflows
