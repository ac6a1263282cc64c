# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import gc
import json

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders


def test_names_the_cluster_by_its_address_and_uid(run, world):
    world.put(kinds.NAMESPACE.object("kube-system"))
    uid = world.find(kinds.NAMESPACE, "kube-system")["metadata"]["uid"]
    found = run("cluster_info")
    assert (found["changed"], found["uid"], found["identity"]) == (False, uid, uid)
    assert found["text"] == f"Cluster {found['server']}, UID {uid}"


def test_without_access_to_the_namespace_the_address_is_used(run, world):
    world.denied = {("get", "namespaces")}
    found = run("cluster_info")
    assert (found["uid"], found["identity"]) == ("", found["server"])
    assert "UID unknown: the user may not read namespace kube-system" in found["text"]


def test_needs_no_kubevirt(run, world):
    world.put(kinds.NAMESPACE.object("kube-system"))
    for kubevirt in world.all(kinds.KUBEVIRT):
        world.drop(kinds.KUBEVIRT, kubevirt["metadata"]["name"], kubevirt["metadata"]["namespace"])
    assert run("cluster_info")["uid"]


def test_the_garbage_collector_is_rarer_only_while_a_module_runs(run, world):
    usual = gc.get_threshold()
    during = []
    world.before = lambda request: during.append(gc.get_threshold())
    run("cluster_info")
    assert during
    assert min(during)[0] == 100_000 > usual[0]  # which is 700, from Python 3.13 on 2,000
    assert gc.get_threshold() == usual
    world.denied = {("get", "namespaces"), ("list", "kubevirts")}
    assert run("pool_info")["failed"]
    assert gc.get_threshold() == usual


def kubeconfig(**user):
    return {"apiVersion": "v1", "kind": "Config", "users": [{"name": "n1", "user": user}]}


@pytest.mark.parametrize("given", ["n1", kubeconfig(username="n1", token="s3cret")], ids=["path", "dictionary"])
def test_a_kubeconfig_hides_no_names(run, given):
    run.world.put(builders.excluding_kubevirt())
    run.world.put(builders.primary(desired=2))
    run.world.put(builders.pool_daemonset(builders.pool("n1"), desired=0))
    found = run("pool_info", kubeconfig=given)
    assert "n1" in json.dumps(found)
    assert "***" not in json.dumps(found)


@pytest.mark.parametrize("given", [kubeconfig(token="s3cret"), kubeconfig(password="s3cret")], ids=str)
def test_a_kubeconfigs_secrets_stay_hidden(run, given):
    """Wherever they occur, as here in another option of the result's invocation."""
    assert "s3cret" not in json.dumps(run("cluster_info", kubeconfig=given, context="s3cret"))


def test_a_password_that_is_also_the_path_stays_hidden(run, world):
    world.put(kinds.NAMESPACE.object("kube-system"))
    assert "n1" not in json.dumps(run("cluster_info", kubeconfig="n1", password="n1", context="n1"))
