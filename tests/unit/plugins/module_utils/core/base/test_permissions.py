# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pathlib

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import permissions
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.permissions import Permission

yaml = pytest.importorskip("yaml")

CLUSTER_ROLES = pathlib.Path(__file__).resolve().parents[6] / "playbooks" / "files" / "clusterroles.yml"


def cluster_roles():
    documents = yaml.safe_load_all(CLUSTER_ROLES.read_text(encoding="utf-8"))
    return [item for document in documents for item in document.get("items", [document])]


def granted(role):
    """The rights that a shipped ClusterRole grants."""
    (found,) = [item for item in cluster_roles() if item["metadata"]["name"] == f"virtpools-{role}"]
    assert all(set(rule) == {"apiGroups", "resources", "verbs"} for rule in found["rules"])
    return [
        Permission(verb, resource, group, subresource=subresource)
        for rule in found["rules"]
        for group in rule["apiGroups"]
        for resource, _slash, subresource in (name.partition("/") for name in rule["resources"])
        for verb in rule["verbs"]
    ]


def needed(role):
    """Everything that modules and playbooks ask for, for any cluster and any options."""
    # The pool list itself may be read from the cluster.
    workerpools = Permission("list", "workerpools", "worker.kubevirt.io")
    rights = {*permissions.READER, *permissions.LIST_POLICIES, *permissions.EXPLAIN, workerpools}
    if role == "writer":
        rights.update(
            permissions.for_run(hco=True),
            permissions.FOLLOW,
            permissions.ASSIGN_NEW_NODES,
            permissions.GUARD,
            permissions.ALERTS,
            permissions.CANARY_VM,
            permissions.LEFTOVERS,
            permissions.WORKLOAD_UPDATE,
            permissions.for_operator_run(hco=True, objects=True),
            *permissions.WRITER_OF_BACKEND.values(),
        )
    return sorted(rights)


@pytest.mark.parametrize("role", ["reader", "writer"])
def test_the_cluster_role_grants_exactly_what_modules_ask_for(role):
    rights = granted(role)
    assert sorted(rights) == needed(role)
    assert len(set(rights)) == len(rights)


def test_there_are_no_other_cluster_roles():
    assert [item["metadata"]["name"] for item in cluster_roles()] == ["virtpools-reader", "virtpools-writer"]


def test_a_reader_changes_nothing():
    assert {right.verb for right in needed("reader")} <= {"get", "list", "watch"}


def test_a_writer_may_do_what_a_reader_may():
    assert set(permissions.READER) <= set(permissions.for_run(hco=False)) < set(permissions.for_run(hco=True))


def test_only_a_run_that_migrates_vms_needs_the_right_to():
    create = Permission("create", "virtualmachineinstancemigrations", "kubevirt.io")
    assert create not in permissions.for_run(hco=True, parts=permissions.ASSIGN_NEW_NODES)
    assert create in permissions.for_run(hco=False, migrates=True)


def test_only_a_run_with_the_guard_needs_to_assign_owners():
    assert permissions.ASSIGN_OWNERS not in permissions.for_run(hco=True, parts=permissions.ASSIGN_NEW_NODES)
    assert permissions.ASSIGN_OWNERS in permissions.for_run(hco=False, parts=permissions.GUARD)


def test_nothing_is_granted_by_wildcard():
    for role in ("reader", "writer"):
        assert not [right for right in granted(role) if "*" in (right.verb, right.resource, right.group)]


@pytest.mark.parametrize(
    ("right", "text"),
    [
        (Permission("get", "nodes"), "get nodes"),
        (Permission("patch", "daemonsets", "apps", "kubevirt"), "patch daemonsets.apps in namespace kubevirt"),
        (Permission("update", "nodes", subresource="status"), "update nodes/status"),
        (
            Permission("get", "leases", "coordination.k8s.io", "kv", "x"),
            "get leases.coordination.k8s.io x in namespace kv",
        ),
    ],
)
def test_as_words(right, text):
    assert str(right) == text


RULE = {"verbs": ["get", "patch"], "apiGroups": ["", "apps"], "resources": ["nodes", "pods/log", "*/status"]}


@pytest.mark.parametrize(
    "right",
    [
        Permission("get", "nodes"),
        Permission("patch", "nodes", "apps"),
        Permission("get", "nodes", namespace="kubevirt", name="n1"),
        Permission("get", "pods", subresource="log"),
        Permission("get", "daemonsets", "apps", subresource="status"),
    ],
    ids=str,
)
def test_a_rule_grants(right):
    assert right.is_granted_by(RULE)
    assert right.is_granted_by({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]})


@pytest.mark.parametrize(
    "right",
    [
        Permission("delete", "nodes"),
        Permission("get", "nodes", "metrics.k8s.io"),
        Permission("get", "pods"),
        Permission("get", "nodes", subresource="proxy"),
        Permission("get", "pods", subresource="exec"),
        Permission("get", "status"),
    ],
    ids=str,
)
def test_a_rule_does_not_grant(right):
    assert not right.is_granted_by(RULE)


def test_a_rule_for_one_name_grants_no_other():
    rule = {**RULE, "resourceNames": ["n1"]}
    assert Permission("get", "nodes", name="n1").is_granted_by(rule)
    assert not Permission("get", "nodes", name="n2").is_granted_by(rule)
    assert not Permission("get", "nodes").is_granted_by(rule)


def test_a_rule_without_resources_grants_nothing():
    assert not Permission("get", "nodes").is_granted_by({"verbs": ["*"]})
