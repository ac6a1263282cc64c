# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The transport against a small HTTP server: options, kubeconfig, headers and failures."""

from __future__ import annotations

import contextlib
import http.server
import importlib.util
import json
import sys
import threading
import types
from concurrent import futures

import pytest

pytest.importorskip("kubernetes")

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api import at_once, transport
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.client import Cluster, Unreachable
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.transport import (
    CannotConnect,
    NoAnswer,
    Request,
    connect,
)

TOKEN = "very-secret-token"


class Server:
    """Answers every request with an empty object, or with what a test sets, and keeps the requests."""

    def __init__(self, answer=None):
        self.requests = []
        answer = answer or self.empty_object
        kept = self.requests

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                kept.append((self.command, self.path, self.headers, body))
                answer(self)

            do_PATCH = do_GET  # noqa: N815 (the base class's name)

            def log_message(self, *args):
                """Keep quiet."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    @staticmethod
    def empty_object(handler):
        handler.send_response(200)
        handler.send_header("X-Test", "Yes")
        handler.end_headers()
        handler.wfile.write(b"{}")

    @staticmethod
    def hang_up(handler):
        handler.close_connection = True
        handler.connection.close()

    @contextlib.contextmanager
    def running(self):
        thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            thread.join()
            self._server.server_close()


@pytest.fixture(autouse=True)
def nowhere(monkeypatch, tmp_path):
    """The environment of the tests names no cluster."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "none"))


@pytest.fixture
def server():
    with Server().running() as running:
        yield running


def test_one_request_with_the_credentials_and_no_discovery(server):
    transport = connect({"host": f"{server.url}/", "api_key": TOKEN, "unknown": "ignored"})
    assert transport.server == server.url
    response = transport.send(
        Request("PATCH", "/api/v1/nodes/n1", (("a", "b c"),), [{"op": "x"}], "application/json-patch+json")
    )
    assert (response.status, response.body, response.headers["x-test"]) == (200, b"{}", "Yes")
    ((method, path, headers, body),) = server.requests
    assert (method, path, json.loads(body)) == ("PATCH", "/api/v1/nodes/n1?a=b+c", [{"op": "x"}])
    assert headers["Authorization"] == f"Bearer {TOKEN}"
    assert headers["Content-Type"] == "application/json-patch+json"
    assert headers["Accept"] == "application/json"


@pytest.mark.parametrize(
    ("run_by", "agent"),
    [
        (None, "virtpools.kubevirt"),
        ("AWX job 7, started by alice", "virtpools.kubevirt (AWX job 7, started by alice)"),
        ("J\u00fcrgen\nX-Other: 1", "virtpools.kubevirt (J\\xfcrgen X-Other: 1)"),
    ],
)
def test_the_audit_log_shows_who_runs(server, run_by, agent):
    connect({"host": server.url, "api_key": TOKEN, "run_by": run_by}).send(Request("GET", "/"))
    ((_, _, headers, _),) = server.requests
    assert headers["User-Agent"] == agent


def test_every_impersonated_group_is_sent(server):
    transport = connect(
        {"host": server.url, "api_key": "x", "impersonate_user": "jane", "impersonate_groups": ["a", "b"]}
    )
    transport.send(Request("GET", "/"))
    transport.send(Request("PATCH", "/", body={}))
    assert [method for method, *_ in server.requests] == ["GET", "PATCH"]
    for _, _, headers, _ in server.requests:
        assert headers.get_all("Impersonate-User") == ["jane"]
        assert sorted(headers.get_all("Impersonate-Group")) == ["a", "b"]


def config(server, user, **cluster):
    """A kubeconfig for the user a of the cluster a."""
    return {
        "current-context": "a",
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "clusters": [{"name": "a", "cluster": {"server": server.url, **cluster}}],
        "users": [{"name": "a", "user": user}],
    }


def test_a_kubeconfig_impersonates(server, tmp_path):
    kubeconfig = tmp_path / "config"
    user = {
        "token": TOKEN,
        "as": "jane",
        "as-uid": "7",
        "as-groups": ["a", "b"],
        "as-user-extra": {"scopes": ["x", "y"]},
    }
    kubeconfig.write_text(json.dumps(config(server, user)))
    connect({"kubeconfig": str(kubeconfig)}).send(Request("GET", "/"))
    connect({"kubeconfig": config(server, user), "impersonate_groups": ["c"]}).send(Request("GET", "/"))
    (_, _, first, _), (_, _, second, _) = server.requests
    assert first.get_all("Impersonate-User") == second.get_all("Impersonate-User") == ["jane"]
    assert first.get_all("Impersonate-Uid") == ["7"]
    assert first.get_all("Impersonate-Group") == ["a", "b"]
    assert second.get_all("Impersonate-Group") == ["c"]
    assert first.get_all("Impersonate-Extra-scopes") == ["x", "y"]


def test_a_token_file_is_read_again(server, tmp_path):
    (tmp_path / "token").write_text("first\n")
    (tmp_path / "config").write_text(json.dumps(config(server, {"tokenFile": "token"})))
    connection = connect({"kubeconfig": str(tmp_path / "config")})
    connection.send(Request("GET", "/"))
    (tmp_path / "token").write_text("second\n")
    connection.send(Request("GET", "/"))
    (tmp_path / "token").unlink()
    connection.send(Request("GET", "/"))
    tokens = [headers["Authorization"] for _, _, headers, _ in server.requests]
    assert tokens == ["Bearer first", "Bearer second", "Bearer second"]


def test_an_option_overrides_the_token_of_a_kubeconfig(server):
    connect({"kubeconfig": config(server, {"token": "theirs"}), "api_key": TOKEN}).send(Request("GET", "/"))
    ((_, _, headers, _),) = server.requests
    assert headers.get_all("Authorization") == [f"Bearer {TOKEN}"]


def test_username_and_password_are_sent(server):
    connect({"host": server.url, "username": "jane", "password": "x"}).send(Request("GET", "/"))
    connect({"kubeconfig": config(server, {"username": "jane", "password": "x"})}).send(Request("GET", "/"))
    assert [headers["Authorization"] for _, _, headers, _ in server.requests] == ["Basic amFuZTp4"] * 2


def test_an_exec_command_that_fails_is_named(server, tmp_path):
    user = {"exec": {"command": "false", "apiVersion": "client.authentication.k8s.io/v1"}}
    path = tmp_path / "config"
    path.write_text(json.dumps(config(server, user)))
    with pytest.raises(CannotConnect, match=f"^The command in exec of the user a of the kubeconfig {path} gave no"):
        connect({"kubeconfig": str(path)})


def test_a_user_that_a_kubeconfig_lacks_is_named(server):
    without = {**config(server, {}), "users": [{"name": "b", "user": {}}]}
    with pytest.raises(CannotConnect, match=r"^There is no user a in the kubeconfig given as an option"):
        connect({"kubeconfig": without})


def test_a_context_that_a_kubeconfig_lacks_is_named(server, tmp_path):
    path = tmp_path / "config"
    path.write_text(json.dumps(config(server, {})))
    lacks = f"^The kubeconfig {path} has no context prod; it has: a. Correct the context, or name another kubeconfig.$"
    with pytest.raises(CannotConnect, match=lacks):
        connect({"kubeconfig": str(path), "context": "prod"})
    unset = {**config(server, {}), "current-context": ""}
    with pytest.raises(CannotConnect, match=r"^The kubeconfig given as an option has no current-context: name one of"):
        connect({"kubeconfig": unset})
    (tmp_path / "other").write_text(
        json.dumps({**config(server, {}), "contexts": [{"name": "b", "context": {"cluster": "a"}}]})
    )
    with pytest.raises(CannotConnect, match=r"has no context prod; it has: a, b\."):
        connect({"kubeconfig": f"{path}:{tmp_path / 'other'}", "context": "prod"})


@pytest.mark.parametrize(
    ("cluster", "options", "named"),
    [
        ({"proxy-url": "socks5://me:pw@proxy:1"}, {}, "The proxy-url of the cluster a of the kubeconfig given as an"),
        ({}, {"proxy": "socks5://me:pw@proxy:1"}, "The proxy is a SOCKS proxy"),
    ],
)
def test_a_socks_proxy_without_its_library(monkeypatch, server, cluster, options, named):
    monkeypatch.setitem(sys.modules, "socks", None)
    monkeypatch.delitem(sys.modules, "urllib3.contrib.socks", raising=False)
    with pytest.raises(CannotConnect, match=rf"^{named}.*needs the Python package PySocks") as caught:
        connect({"kubeconfig": config(server, {"token": TOKEN}, **cluster), **options})
    assert "pw" not in str(caught.value)


def test_credentials_of_an_earlier_connection_are_forgotten(server, tmp_path):
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(json.dumps(config(server, {"token": "earlier"})))
    for params in {"kubeconfig": str(kubeconfig)}, {"host": server.url, "api_key": "later"}:
        connect(params).send(Request("GET", "/"))
    assert [headers["Authorization"] for _, _, headers, _ in server.requests] == ["Bearer earlier", "Bearer later"]


def test_a_kubernetes_core_without_its_private_parts_still_works(monkeypatch, tmp_path):
    def discovery(handler):
        handler.send_response(200)
        handler.end_headers()
        handler.wfile.write(json.dumps({"kind": "APIGroupList", "groups": [], "resources": []}).encode())

    newer = types.SimpleNamespace(get_api_client=transport.kubernetes_core.get_api_client)
    monkeypatch.setattr(transport, "kubernetes_core", newer)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))  # its discovery cache
    with Server(discovery).running() as server:
        connect({"host": server.url, "api_key": TOKEN}).send(Request("GET", "/mine"))
    _, path, headers, _ = server.requests[-1]
    assert (path, headers["Authorization"]) == ("/mine", f"Bearer {TOKEN}")
    with pytest.raises(
        CannotConnect, match=r"^The impersonation \(as\) of the user a of the kubeconfig given as an option"
    ):
        connect({"kubeconfig": config(server, {"token": TOKEN, "as": "jane"})})


def test_connections_of_requests_side_by_side_are_kept(caplog):
    """urllib3 warns about connections that it cannot keep, on stderr where nobody has configured logging."""
    together = threading.Barrier(transport.CONNECTIONS, timeout=60)

    def answer(handler):
        together.wait()
        Server.empty_object(handler)

    with Server(answer).running() as server, futures.ThreadPoolExecutor(transport.CONNECTIONS) as threads:
        connection = connect({"host": server.url, "api_key": TOKEN})
        sent = [threads.submit(connection.send, Request("GET", "/")) for _each in range(transport.CONNECTIONS)]
        assert {each.result(60).status for each in sent} == {200}
    assert not caplog.records
    assert at_once.MOST < transport.CONNECTIONS


def test_a_broken_connection_is_not_repeated_behind_our_back():
    with Server(Server.hang_up).running() as server:
        with pytest.raises(NoAnswer) as caught:
            connect({"host": server.url, "api_key": TOKEN}).send(Request("GET", "/"))
        assert caught.value.sent
        assert len(server.requests) == 1


def test_a_refused_connection_was_never_sent():
    with Server().running() as server:
        url = server.url
    with pytest.raises(NoAnswer, match=r"^Connection refused$") as caught:
        connect({"host": url, "api_key": TOKEN}).send(Request("GET", "/"))
    assert not caught.value.sent


def test_a_server_that_does_not_answer_in_time():
    done = threading.Event()
    with Server(lambda handler: done.wait(5)).running() as server:
        try:
            with pytest.raises(NoAnswer, match=r"^no answer within 0 s$") as caught:
                connect({"host": server.url, "api_key": TOKEN}).send(Request("GET", "/", timeout_seconds=0.1))
            assert caught.value.sent
        finally:
            done.set()


def test_an_answer_cut_short():
    def half(handler):
        handler.send_response(200)
        handler.send_header("Content-Length", "100")
        handler.end_headers()
        handler.wfile.write(b"{")
        handler.close_connection = True

    with Server(half).running() as server, pytest.raises(NoAnswer) as caught:
        connect({"host": server.url, "api_key": TOKEN}).send(Request("GET", "/"))
    assert caught.value.sent


def test_no_cluster_is_named():
    with pytest.raises(CannotConnect, match="give kubeconfig, or host and api_key"):
        connect({})


def test_an_address_without_scheme():
    with pytest.raises(CannotConnect, match=r"'api.example:6443', should be like https://HOST:6443"):
        connect({"host": "api.example:6443", "api_key": TOKEN})


def test_a_certificate_that_cannot_be_read(server, tmp_path):
    url = server.url.replace("http://", "https://")
    transport = connect({"host": url, "api_key": TOKEN, "ca_cert": str(tmp_path / "missing")})
    with pytest.raises(CannotConnect, match="the CA file, or the client's certificate or key, cannot be read"):
        transport.send(Request("GET", "/"))


@pytest.mark.parametrize(
    "content",
    [
        f"users: [{{user: {{token: {TOKEN}}}}}]\n - broken",
        f"users: [{{name: a, user: {{token: {TOKEN}}}}}]",
        f"current-context: {{token: {TOKEN}}}",
        TOKEN,
        f"[{TOKEN}]",
    ],
)
def test_a_broken_kubeconfig_is_not_quoted(tmp_path, content):
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(content)
    with pytest.raises(CannotConnect) as caught:
        connect({"kubeconfig": str(kubeconfig)})
    assert TOKEN not in str(caught.value)
    assert "give kubeconfig" in str(caught.value)


@pytest.mark.parametrize(
    ("without", "named"),
    [
        ("kubernetes", "the Python package kubernetes"),
        ("urllib3", "the Python package kubernetes"),
        ("ansible_collections.kubernetes.core.plugins.module_utils.args_common", "the collection kubernetes.core"),
    ],
)
def test_what_is_missing_is_named(monkeypatch, without, named):
    """The module must still know the options, else it would only complain about them."""
    monkeypatch.setitem(sys.modules, without, None)
    crippled = importlib.util.module_from_spec(importlib.util.find_spec(transport.__name__))
    monkeypatch.setitem(sys.modules, crippled.__name__, crippled)
    crippled.__spec__.loader.exec_module(crippled)
    assert crippled.AUTH_ARGUMENTS["api_key"]["no_log"]
    with pytest.raises(crippled.CannotConnect, match=f"without {named}: install it for the Python that runs"):
        crippled.connect({})


def test_the_client_says_so_too(monkeypatch):
    monkeypatch.setattr(transport, "_MISSING", "the Python package kubernetes")
    with pytest.raises(Unreachable, match="without the Python package kubernetes"):
        Cluster.connect({})
