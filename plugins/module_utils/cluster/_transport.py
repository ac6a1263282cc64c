# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""HTTP to the API server. The only file that knows kubernetes.core, the kubernetes library and urllib3.

kubernetes.core reads the credentials (module options, ``K8S_AUTH_*``, kubeconfig, in-cluster). Requests are then made
on plain REST paths over the kubernetes library's connection pool: kubernetes.core's dynamic client asks the server for
its API on every cold start, keeps the answer in a file that goes stale, never pages its lists, does not retry, and
builds slow objects where plain dicts will do.
"""

from __future__ import annotations

import copy
import json
import os
import sys
import typing as t
from dataclasses import dataclass, field
from urllib.parse import urlencode, urlsplit

_MISSING = ""
"""What to install, when something is missing."""

try:
    import kubernetes
    import urllib3
except ImportError:
    _MISSING = "the Python package kubernetes"

try:
    from ansible_collections.kubernetes.core.plugins.module_utils.args_common import AUTH_ARG_SPEC
    from ansible_collections.kubernetes.core.plugins.module_utils.k8s import client as kubernetes_core
except ImportError:
    _MISSING = "the collection kubernetes.core"
    # Enough for the module to come to the point where it says so.
    AUTH_ARG_SPEC = {
        name: {"type": "raw", "no_log": True}
        for name in [
            "kubeconfig",
            "context",
            "host",
            "api_key",
            "validate_certs",
            "ca_cert",
            "client_cert",
            "client_key",
            "proxy",
        ]
    }

AUTH_ARGUMENTS: dict[str, t.Any] = copy.deepcopy(AUTH_ARG_SPEC)
"""kubernetes.core's options to reach a cluster, for an argument spec; documented by its ``k8s_auth_options``."""

JSON = "application/json"

_CONNECT_TIMEOUT_SECONDS = 5.0


@dataclass(frozen=True)
class Request:
    """One HTTP request; ``body`` is any JSON value, None for no body."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    body: t.Any = None
    content_type: str = JSON
    timeout_seconds: float = 30.0


@dataclass(frozen=True)
class Response:
    """One HTTP answer; names of headers are in lower case."""

    status: int
    body: bytes
    headers: t.Mapping[str, str] = field(default_factory=dict)


class NoAnswer(Exception):
    """A request got no answer; the message says why in a few words. Another attempt makes sense.

    ``sent`` is false when the server certainly never saw the request.
    """

    def __init__(self, problem: str, *, sent: bool) -> None:
        super().__init__(problem)
        self.sent = sent


class CannotConnect(Exception):
    """There is no way to talk to the server until somebody mends something; the message is a sentence for a person."""


class Transport(t.Protocol):
    """What carries requests to the API server; tests have their own."""

    @property
    def server(self) -> str:
        """The URL of the API server."""

    def send(self, request: Request) -> Response:
        """One attempt, whatever the status of the answer. Raises NoAnswer or CannotConnect."""


def _without_file(params: t.Mapping[str, t.Any]) -> str | None:
    """That the kubeconfig which was named is not there: the library only says that there is no configuration."""
    for path in (params.get("kubeconfig"), os.environ.get("K8S_AUTH_KUBECONFIG"), os.environ.get("KUBECONFIG")):
        if isinstance(path, str) and path:
            # KUBECONFIG may be a list of files, of which some may be missing.
            there = any(os.path.exists(os.path.expanduser(each)) for each in path.split(os.pathsep))
            return None if there else f"the kubeconfig {path} does not exist"
    return None


def connect(params: t.Mapping[str, t.Any]) -> Transport:
    """The way to the cluster that a module's options (AUTH_ARGUMENTS) name. Sends no request.

    Raises CannotConnect when a library is missing, or the options, environment and kubeconfig name no cluster. The
    message never quotes a credential.
    """
    if _MISSING:
        raise CannotConnect(
            f"Cannot talk to Kubernetes without {_MISSING}: install it for the Python that runs this module, "
            f"{sys.executable}, or name another one as ansible_python_interpreter."
        )
    try:
        api_client = _api_client({name: params[name] for name in AUTH_ARGUMENTS if params.get(name) is not None})
    except kubernetes.config.ConfigException as error:
        # Its messages name files, contexts and keys of the kubeconfig, never their values.
        problem = _without_file(params) or " ".join(str(error).split()).rstrip(".")
    except OSError as error:
        problem = _words(error)
    except Exception as error:  # noqa: BLE001 (a parser's for one: its message would quote the kubeconfig)
        problem = f"{type(error).__name__} while reading what is given"
    else:
        return _checked(_KubernetesTransport(api_client))
    raise CannotConnect(
        f"No way to reach a cluster was found ({problem}): give kubeconfig, or host and api_key, as options or in "
        "K8S_AUTH_* variables."
    )


def _api_client(given: t.Mapping[str, t.Any]) -> t.Any:
    """The kubernetes library's ApiClient for these options, without a request to the server if possible.

    ``get_api_client`` is what kubernetes.core offers to others, but it cannot do without discovery: some ten requests
    that we need no answer to. Its parts are private; where one is missing, a newer release, we use it after all.
    """
    parts = ("_create_auth_spec", "_create_configuration", "_create_headers", "_set_header")
    if not all(hasattr(kubernetes_core, part) for part in parts):
        return kubernetes_core.get_api_client(**given).client.client
    create_auth_spec, create_configuration, create_headers, set_header = (getattr(kubernetes_core, p) for p in parts)
    # Reading a kubeconfig leaves its credentials behind as the library's default, stronger than what is given next.
    kubernetes.client.Configuration.set_default(None)
    api_client = kubernetes.client.ApiClient(create_configuration(create_auth_spec(None, **given)))
    for name, value in create_headers(None, **given).items():
        set_header(api_client, name, value)
    return api_client


def _checked(transport: Transport) -> Transport:
    """Refuse an address without a scheme now: urllib3 would take it for a host name and look for it."""
    url = urlsplit(transport.server)
    if url.scheme not in ("http", "https") or not url.hostname:
        raise CannotConnect(f"The address of the API server, {transport.server!r}, should be like https://HOST:6443.")
    return transport


class _KubernetesTransport:
    """Requests over the connection pool and with the credentials of the kubernetes library's ApiClient."""

    def __init__(self, api_client: t.Any) -> None:
        self._configuration = api_client.configuration
        self._pool = api_client.rest_client.pool_manager
        self._headers = api_client.default_headers

    @property
    def server(self) -> str:
        return str(self._configuration.host).rstrip("/")

    def send(self, request: Request) -> Response:
        url = self.server + request.path
        if request.query:
            url += "?" + urlencode(request.query)
        try:
            response = self._pool.request(
                request.method,
                url,
                body=None if request.body is None else json.dumps(request.body).encode(),
                headers=self._request_headers(request),
                timeout=urllib3.Timeout(connect=_CONNECT_TIMEOUT_SECONDS, read=request.timeout_seconds),
                retries=False,  # urllib3 would repeat without limit of time, and never say so
            )
        except urllib3.exceptions.HTTPError as error:
            raise self._failure(error, request) from error
        return Response(response.status, response.data, {key.lower(): value for key, value in response.headers.items()})

    def _request_headers(self, request: Request) -> dict[str, str]:
        headers = dict(self._headers)  # kubernetes.core has one key per impersonated group here: equal, not identical
        headers["User-Agent"] = "virtpools.kubevirt"
        headers["Accept"] = JSON
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        for setting in self._configuration.auth_settings().values():  # refreshes a token that expires
            if setting["in"] == "header" and setting["value"]:
                headers[setting["key"]] = setting["value"]
        return headers

    def _failure(self, error: Exception, request: Request) -> NoAnswer | CannotConnect:
        cause = _innermost(error)
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            return CannotConnect(
                f"The certificate of the API server at {self.server} is not trusted ({_words(cause)}): give the "
                "certificate of the authority that signed it as ca_cert, or in the kubeconfig."
            )
        if isinstance(cause, (FileNotFoundError, PermissionError)):
            return CannotConnect(
                f"Cannot talk to the API server at {self.server}: the CA file, or the client's certificate or key, "
                f"cannot be read ({_words(cause)})."
            )
        if isinstance(error, urllib3.exceptions.ReadTimeoutError):
            return NoAnswer(f"no answer within {request.timeout_seconds:.0f} s", sent=True)
        never_connected = (urllib3.exceptions.NewConnectionError, urllib3.exceptions.ConnectTimeoutError)
        return NoAnswer(_words(cause), sent=not isinstance(error, never_connected))


def _innermost(error: BaseException) -> BaseException:
    """The first cause: urllib3 wraps what the socket said, as the cause (2), the context (1.26) or an argument."""
    while True:
        inner = error.__cause__ or error.__context__
        inner = inner or next((arg for arg in error.args if isinstance(arg, BaseException)), None)
        if inner is None:
            return error
        error = inner


def _words(error: BaseException) -> str:
    """What a low-level error has to say."""
    return str(getattr(error, "strerror", None) or str(error) or type(error).__name__)
