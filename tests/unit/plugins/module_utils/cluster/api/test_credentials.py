# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.credentials import (
    contradiction,
    read_from_kubeconfig,
    secrets,
)

EAST, WEST = "https://east.example:6443", "https://west.example:6443"
TOKEN = {"api_key": "secret"}
OF_AWX = {"K8S_AUTH_HOST": EAST, "K8S_AUTH_API_KEY": "secret", "K8S_AUTH_VERIFY_SSL": "False"}


@pytest.mark.parametrize(
    ("options", "environment"),
    [
        ({}, {}),
        ({}, OF_AWX),
        ({"kubeconfig": "/west"}, {}),
        ({"kubeconfig": "/west", "context": "admin"}, {}),
        ({"kubeconfig": "/west"}, {"K8S_AUTH_KUBECONFIG": "/east"}),
        ({"kubeconfig": "/west"}, {"K8S_AUTH_CONTEXT": "admin"}),
        ({"context": "west"}, {"K8S_AUTH_KUBECONFIG": "/all"}),
        ({"kubeconfig": "/west"}, {"KUBECONFIG": "/east"}),
        ({"host": WEST, **TOKEN}, {}),
        ({"host": WEST, **TOKEN}, OF_AWX),
        ({"host": WEST}, {"K8S_AUTH_API_KEY": "secret"}),
        ({"host": f"{EAST}/"}, OF_AWX),
        ({"kubeconfig": "", "context": None}, OF_AWX),
        ({"kubeconfig": "/west"}, {"K8S_AUTH_HOST": ""}),
    ],
    ids=str,
)
def test_one_cluster_is_meant(options, environment):
    assert contradiction(options, environment) is None


@pytest.mark.parametrize(
    ("options", "environment", "named"),
    [
        (
            {"kubeconfig": "/west"},
            OF_AWX,
            ["the option kubeconfig, /west, but also", f"K8S_AUTH_HOST in the environment, {EAST}"],
        ),
        ({"context": "west"}, OF_AWX, ["the option context, west", f"K8S_AUTH_HOST in the environment, {EAST}"]),
        ({"kubeconfig": {"users": "secret"}}, OF_AWX, ["the option kubeconfig, but also"]),
        ({"kubeconfig": '{"users": "secret"}'}, OF_AWX, ["the option kubeconfig, but also"]),
        ({"kubeconfig": "/w", "context": "c"}, OF_AWX, ["the option kubeconfig, /w and the option context, c, but"]),
        ({}, {**OF_AWX, "K8S_AUTH_KUBECONFIG": "/west"}, ["K8S_AUTH_KUBECONFIG in the environment, /west", EAST]),
        ({}, {**OF_AWX, "K8S_AUTH_CONTEXT": "west"}, ["K8S_AUTH_CONTEXT in the environment, west", EAST]),
        ({"host": WEST, **TOKEN}, {"K8S_AUTH_KUBECONFIG": "/east"}, ["K8S_AUTH_KUBECONFIG", f"option host, {WEST}"]),
        (
            {"host": WEST, **TOKEN, "kubeconfig": "/east"},
            {},
            ["option kubeconfig, /east, but also", f"option host, {WEST}"],
        ),
        ({"host": WEST}, OF_AWX, [f"the option host, {WEST}", f"are for K8S_AUTH_HOST, {EAST}"]),
    ],
    ids=str,
)
def test_two_clusters_may_be_meant(options, environment, named):
    sentence = contradiction(options, environment)
    for each in named:
        assert each in sentence
    assert "secret" not in sentence


@pytest.mark.parametrize(
    ("options", "environment", "read"),
    [
        ({}, {}, True),
        ({"host": WEST}, {}, True),
        ({"host": WEST, **TOKEN}, {}, False),
        ({}, OF_AWX, False),
        ({"host": WEST, "username": "jane"}, {"K8S_AUTH_PASSWORD": "secret"}, False),
        ({"host": WEST, "client_cert": "/c"}, {"K8S_AUTH_KEY_FILE": "/k"}, False),
    ],
    ids=str,
)
def test_when_a_kubeconfig_is_read(options, environment, read):
    assert read_from_kubeconfig(options, environment) is read


EXEC = {"apiVersion": "client.authentication.k8s.io/v1", "command": "aws", "args": ["--region", "east"]}


@pytest.mark.parametrize(
    ("user", "hidden"),
    [
        ({"token": "t"}, ["t"]),
        ({"username": "jane", "password": 42}, ["42"]),
        ({"client-certificate-data": "c", "client-key-data": "k"}, ["c", "k"]),
        ({"client-certificate": "/cert", "client-key": "/key", "tokenFile": "/token"}, []),
        ({"token": "t", "as": "ops", "as-groups": ["a"], "as-user-extra": {"scope": ["x"]}}, ["t"]),
        ({"auth-provider": {"name": "oidc", "config": {"id-token": "i", "refresh-token": "r"}}}, ["i", "r"]),
        ({"exec": {**EXEC, "env": [{"name": "KEY", "value": "e"}], "provideClusterInfo": False}}, ["e"]),
        ({"of-a-later-kubectl": "l", "token": None}, ["l"]),
    ],
    ids=str,
)
def test_of_a_kubeconfig_only_the_users_secrets_are_hidden(user, hidden):
    cluster = {"name": "n1", "cluster": {"server": EAST}}
    config = {"apiVersion": "v1", "kind": "Config", "clusters": [cluster], "users": [{"name": "n1", "user": user}]}
    assert sorted(secrets(config)) == hidden


@pytest.mark.parametrize("path", ["n1", "~/.kube/east", None])
def test_a_path_is_no_secret(path):
    assert set(secrets(path)) == set()


@pytest.mark.parametrize("text", ["users:\n- user: {token: t}\n", '{"users": []}'])
def test_the_text_of_a_kubeconfig_is_a_secret(text):
    assert set(secrets(text)) == {text}


@pytest.mark.parametrize(
    "wrong", [{"users": "t"}, {"users": {"user": {"token": "t"}}}, {"users": ["t"]}, ["t"]], ids=str
)
def test_an_invalid_kubeconfig_has_secrets_too(wrong):
    assert set(secrets(wrong)) == {"t"}
