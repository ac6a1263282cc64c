# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.kubeconfig import Kubeconfig, Unusable

TITLE = "user jane of the kubeconfig /west"


def context(user=None, cluster=None, options=None, environment=None, folder=""):
    return Kubeconfig(
        cluster=cluster or {},
        user=user or {},
        cluster_title="cluster west of the kubeconfig /west",
        user_title=TITLE,
        folder=folder,
        options=options or {},
        environment=environment or {},
    )


WHOLE = {"as": "ops", "as-uid": "7", "as-groups": ["a", "b"], "as-user-extra": {"example.org/Scope": ["x", "y"]}}


def test_impersonation_as_kubectl_sends_it():
    assert context(WHOLE).impersonation() == {
        "Impersonate-User": "ops",
        "Impersonate-Uid": "7",
        "Impersonate-Group": ["a", "b"],
        "Impersonate-Extra-example.org%2FScope": ["x", "y"],
    }
    assert context({"token": "x"}).impersonation() == {}


@pytest.mark.parametrize(
    ("options", "environment"),
    [({"impersonate_user": "other"}, {}), ({}, {"K8S_AUTH_IMPERSONATE_USER": "other"})],
)
def test_an_option_overrides_its_field_alone(options, environment):
    headers = context(WHOLE, options=options, environment=environment).impersonation()
    assert "Impersonate-User" not in headers
    assert headers["Impersonate-Group"] == ["a", "b"]


@pytest.mark.parametrize("key", ["as-uid", "as-groups", "as-user-extra"])
def test_impersonation_without_a_user_is_refused(key):
    with pytest.raises(Unusable, match=f"^The {TITLE} has as-uid, as-groups or as-user-extra, but no user in as"):
        context({key: WHOLE[key]}).impersonation()


@pytest.mark.parametrize("wrong", [{"as": ["a"]}, {"as-groups": "a"}, {"as-user-extra": {"a": "b"}}], ids=str)
def test_impersonation_in_another_form_is_refused(wrong):
    (key,) = wrong
    with pytest.raises(Unusable, match=f"^The field {key} of the {TITLE} does not have the form"):
        context({"as": "ops", **wrong}).impersonation()


def test_a_token_file_is_relative_to_the_kubeconfig(tmp_path):
    (tmp_path / "token").write_text("abc\n")
    assert context({"tokenFile": "token", "token": "old"}, folder=str(tmp_path)).token() == "abc"
    assert context({"tokenFile": "token"}, options={"api_key": "mine"}, folder=str(tmp_path)).token() is None
    with pytest.raises(Unusable, match=rf"^The tokenFile .*/none of the {TITLE} cannot be read \(No such file"):
        context({"tokenFile": "none"}, folder=str(tmp_path)).token()


@pytest.mark.parametrize(
    ("user", "named"),
    [
        ({"exec": {"command": "login"}}, "The command in exec of the"),
        ({"auth-provider": {"name": "oidc"}}, "The auth-provider of the"),
        ({"username": "jane"}, f"The {TITLE} has only one of username and password"),
    ],
    ids=str,
)
def test_credentials_that_were_not_had_are_refused(user, named):
    with pytest.raises(Unusable, match=named):
        context(user).check_user(authenticated=False)
    context(user).check_user(authenticated=True)


def test_nobody_is_a_user_too():
    context({}).check_user(authenticated=False)


def test_an_auth_provider_that_is_not_known_is_refused():
    with pytest.raises(Unusable, match=f"^The auth-provider azure of the {TITLE} is not supported"):
        context({"auth-provider": {"name": "azure"}}).check_user(authenticated=True)


def test_fields_that_an_old_library_ignores_are_refused():
    given = context(cluster={"proxy-url": "http://proxy", "tls-server-name": "api"})
    with pytest.raises(Unusable, match="^The cluster west of the kubeconfig /west has proxy-url and tls-server-name"):
        given.check_cluster(proxy=None, tls_server_name=None)
    given.check_cluster(proxy="http://proxy", tls_server_name="api")
