# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""HTTP to the API server. Only this file knows kubernetes.core, the kubernetes library and urllib3.

kubernetes.core reads the credentials; requests go to plain REST paths. docs/design/http-client.md explains this.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import sys
import typing as t
from dataclasses import dataclass, field
from urllib.parse import urlencode, urlsplit

from ...core.base.findings import printable
from . import credentials, kubeconfig

_MISSING = ""
"""The library that is missing; empty when all are there."""

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
    # Enough options for the module to start and report what is missing.
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

CONNECTIONS = 16
"""How many connections are kept: more than requests are under way at once. urllib3 warns about each that it cannot keep."""


@dataclass(frozen=True)
class Request:
    """One HTTP request."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    body: t.Any = None
    """Any JSON value; None for no body."""
    content_type: str = JSON
    timeout_seconds: float = 30.0


@dataclass(frozen=True)
class Response:
    """One HTTP answer; names of headers are in lower case."""

    status: int
    body: bytes
    headers: t.Mapping[str, str] = field(default_factory=dict)


class NoAnswer(Exception):
    """A request got no answer; the message gives the reason in a few words. Another attempt may succeed.

    ``sent`` is false when the server certainly never saw the request.
    """

    def __init__(self, problem: str, *, sent: bool) -> None:
        super().__init__(problem)
        self.sent = sent


class CannotConnect(Exception):
    """We cannot talk to the server until a person repairs something; the message is a sentence for a person."""


class Transport(t.Protocol):
    """Carries requests to the API server; tests have their own."""

    @property
    def server(self) -> str:
        """The URL of the API server."""

    def send(self, request: Request) -> Response:
        """Send a request once and return the answer, whatever its status. Raises NoAnswer or CannotConnect."""

    def open(self, request: Request) -> Stream:
        """Send a request whose answer goes on. Raises NoAnswer, also when the server refuses it, or CannotConnect."""


class Stream(t.Protocol):
    """An answer that goes on until the server ends it."""

    def lines(self) -> t.Iterator[bytes]:
        """Its lines, as they come. Raises NoAnswer when the connection breaks."""

    def close(self) -> None:
        """End it, from any thread."""


def _without_file(params: t.Mapping[str, t.Any]) -> str | None:
    """A clause when the named kubeconfig does not exist: the library only says that there is no configuration."""
    for path in (params.get("kubeconfig"), os.environ.get("K8S_AUTH_KUBECONFIG"), os.environ.get("KUBECONFIG")):
        if isinstance(path, str) and path:
            # KUBECONFIG may be a list of files, of which some may be missing.
            files = [os.path.expanduser(each) for each in path.split(os.pathsep)]
            if any(map(os.path.exists, files)):
                return None
            where = "" if all(map(os.path.isabs, files)) else f" in {os.getcwd()}, where relative paths start"
            return f"the kubeconfig {path} does not exist{where}"
    return None


def connect(params: t.Mapping[str, t.Any]) -> Transport:
    """The transport to the cluster that a module's options (AUTH_ARGUMENTS) name. Sends no request. The option ``run_by``
    becomes a part of the user agent, which the API server's audit log has.

    Raises CannotConnect when a library is missing, or when options, environment and kubeconfig name no cluster. The
    message never quotes a credential.
    """
    if _MISSING:
        raise CannotConnect(
            f"Cannot talk to Kubernetes without {_MISSING}: install it for the Python that runs this module, "
            f"{sys.executable}, or name another one as ansible_python_interpreter."
        )
    problem = credentials.contradiction(params, os.environ)
    if problem:
        raise CannotConnect(problem)
    given = {name: params[name] for name in AUTH_ARGUMENTS if params.get(name) is not None}
    context = None
    try:
        context = _context(given)
        api_client = _api_client(given, context)
    except kubeconfig.Unusable as error:
        raise CannotConnect(f"{error}") from error
    except ImportError as error:
        raise CannotConnect(_without_socks(context)) from error
    except kubernetes.config.ConfigException as error:
        # Its messages name files, contexts and keys of the kubeconfig, never their values.
        problem = _without_file(params) or " ".join(str(error).split()).rstrip(".")
    except OSError as error:
        problem = _words(error)
    except Exception as error:  # noqa: BLE001 (a parser's message, for example, would quote the kubeconfig)
        problem = f"{type(error).__name__} while reading what is given"
    else:
        return _checked(_KubernetesTransport(api_client, str(params.get("run_by") or "")))
    raise CannotConnect(
        f"No way to reach a cluster was found ({problem}): give kubeconfig, or host and api_key, as options or in "
        "K8S_AUTH_* variables."
    )


def _context(given: t.Mapping[str, t.Any]) -> kubeconfig.Kubeconfig | None:
    """The context of the kubeconfig in use, with the options that override it; None when no kubeconfig is read."""
    if not credentials.read_from_kubeconfig(given, os.environ):
        return None
    source, name = (credentials.value(each, given, os.environ) for each in ("kubeconfig", "context"))
    if not (source or name) and _in_cluster():
        return None
    library = kubernetes.config.kube_config
    if isinstance(source, dict):
        config = library.ConfigNode("kubeconfig", source)
    else:
        config = library.KubeConfigMerger(source or library.KUBE_CONFIG_DEFAULT_LOCATION).config
    if config is None:
        return None  # the library reports it
    _require_context(config, name)
    context = config["contexts"].get_with_name(name or config["current-context"])["context"]
    cluster = config["clusters"].get_with_name(context["cluster"])
    named = context.safe_get("user")
    user = config["users"].get_with_name(named, safe=True) if named and config.safe_get("users") else None
    if named and user is None:
        raise kubeconfig.Unusable(f"There is no user {named} in {_file_of(config)}, but the context in use names it.")
    return kubeconfig.Kubeconfig(
        cluster=cluster["cluster"].value,
        user=user.value.get("user") or {} if user is not None else {},
        cluster_title=f"cluster {context['cluster']} of {_file_of(cluster)}",
        user_title=f"user {named} of {_file_of(user)}" if user is not None else "",
        folder=os.path.abspath(os.path.dirname(user.path)) if user is not None and user.path else "",
        options=given,
        environment=os.environ,
    )


def _require_context(config: t.Any, name: str | None) -> None:
    """Require the context of this name, or else the current one. The library's error names neither what there is nor what to do. It
    reports a kubeconfig without contexts."""
    found = [each["name"] for each in config.safe_get("contexts") or () if "name" in each]
    wanted = name or config.safe_get("current-context") or ""
    if not found or not all(isinstance(each, str) for each in (*found, wanted)) or wanted in found:
        return
    known, file = ", ".join(found), _file_of(config).replace("the", "The", 1)
    if not wanted:
        raise kubeconfig.Unusable(f"{file} has no current-context: name one of its contexts, which are {known}.")
    raise kubeconfig.Unusable(
        f"{file} has no context {wanted}; it has: {known}. Correct the context, or name another kubeconfig."
    )


def _file_of(node: t.Any) -> str:
    return f"the kubeconfig {node.path}" if node.path else "the kubeconfig given as an option"


def _in_cluster() -> bool:
    """Whether this process runs in a pod with an account of its own, which kubernetes.core prefers to the default kubeconfig."""
    try:
        kubernetes.config.load_incluster_config(kubernetes.client.Configuration())
    except kubernetes.config.ConfigException:
        return False
    return True


def _without_socks(context: kubeconfig.Kubeconfig | None) -> str:
    """The error when a library is missing that the kubernetes library only needs for SOCKS. A proxy's URL may hold a password."""
    source = "The proxy"
    if context is not None and context.cluster.get("proxy-url") and not context.overridden("proxy"):
        source = f"The proxy-url of the {context.cluster_title}"
    return (
        f"{source} is a SOCKS proxy, which needs the Python package PySocks: install it for the Python that runs this module, "
        f"{sys.executable}, or use an HTTP proxy."
    )


def _api_client(given: t.Mapping[str, t.Any], context: kubeconfig.Kubeconfig | None) -> t.Any:
    """The kubernetes library's ApiClient for these options, without a request to the server if possible.

    kubernetes.core's public ``get_api_client`` always does discovery: some ten requests whose answers we do not need.
    So we use its private parts, and ``get_api_client`` itself when a newer release lacks one of them.
    """
    parts = ("_create_auth_spec", "_create_configuration", "_create_headers", "_set_header")
    impersonation = context.impersonation() if context is not None else {}
    if not all(hasattr(kubernetes_core, part) for part in parts):
        if context is not None and impersonation:
            raise kubeconfig.Unusable(
                f"The impersonation (as) of the {context.user_title} does not work with this release of kubernetes.core: take it out of "
                "the kubeconfig, and give impersonate_user and impersonate_groups."
            )
        return _completed(kubernetes_core.get_api_client(**given).client.client, context)
    create_auth_spec, create_configuration, create_headers, set_header = (getattr(kubernetes_core, p) for p in parts)
    # The library keeps the credentials of a kubeconfig that it has read as a default, which would override later ones.
    kubernetes.client.Configuration.set_default(None)
    api_client = kubernetes.client.ApiClient(create_configuration(create_auth_spec(None, **given)))
    for name, value in {**impersonation, **create_headers(None, **given)}.items():
        set_header(api_client, name, value)
    return _completed(api_client, context)


def _completed(api_client: t.Any, context: kubeconfig.Kubeconfig | None) -> t.Any:
    """The ApiClient, after a check that it uses what the kubeconfig specifies, with the token of a token file."""
    if context is None:
        return api_client
    configuration = api_client.configuration
    if context.overridden("api_key"):
        configuration.refresh_api_key_hook = None  # it would put the kubeconfig's token over the option's
    elif context.user.get("tokenFile"):
        _follow_token_file(configuration, context)
    authenticated = (
        configuration.api_key or configuration.cert_file or (configuration.username and configuration.password)
    )
    context.check_user(authenticated=bool(authenticated))
    context.check_cluster(proxy=configuration.proxy, tls_server_name=getattr(configuration, "tls_server_name", None))
    return api_client


def _follow_token_file(configuration: t.Any, context: kubeconfig.Kubeconfig) -> None:
    """Read the token now and before each request: it is replaced in the file before it expires."""

    def read(configuration: t.Any) -> None:
        with contextlib.suppress(kubeconfig.Unusable):  # the last token may still be valid
            configuration.api_key["BearerToken"] = f"Bearer {context.token()}"

    configuration.api_key["BearerToken"] = f"Bearer {context.token()}"
    configuration.refresh_api_key_hook = read


def _checked(transport: Transport) -> Transport:
    """Refuse an address without a scheme now: urllib3 would take it for a host name and try to resolve it."""
    url = urlsplit(transport.server)
    if url.scheme not in ("http", "https") or not url.hostname:
        raise CannotConnect(f"The address of the API server, {transport.server!r}, should be like https://HOST:6443.")
    return transport


class _KubernetesTransport:
    """Requests over the connection pool and with the credentials of the kubernetes library's ApiClient."""

    def __init__(self, api_client: t.Any, run_by: str) -> None:
        # Headers hold ASCII alone.
        agent = printable(run_by).encode("ascii", "backslashreplace").decode()[:200]
        self._user_agent = f"virtpools.kubevirt ({agent})" if agent else "virtpools.kubevirt"
        self._configuration = api_client.configuration
        self._pool = api_client.rest_client.pool_manager
        self._pool.connection_pool_kw["maxsize"] = CONNECTIONS
        self._headers = api_client.default_headers

    @property
    def server(self) -> str:
        return str(self._configuration.host).rstrip("/")

    def send(self, request: Request) -> Response:
        response = self._request(request)
        return Response(response.status, response.data, {key.lower(): value for key, value in response.headers.items()})

    def open(self, request: Request) -> Stream:
        response = self._request(request, preload_content=False)
        if response.status != 200:
            response.close()
            raise NoAnswer(f"status {response.status}", sent=True)
        return _KubernetesStream(response, lambda error: self._failure(error, request))

    def _request(self, request: Request, **options: t.Any) -> t.Any:
        url = self.server + request.path
        if request.query:
            url += "?" + urlencode(request.query)
        try:
            return self._pool.request(
                request.method,
                url,
                body=None if request.body is None else json.dumps(request.body).encode(),
                headers=self._request_headers(request),
                timeout=urllib3.Timeout(connect=_CONNECT_TIMEOUT_SECONDS, read=request.timeout_seconds),
                retries=False,  # urllib3 would repeat without a time limit, and silently
                **options,
            )
        except urllib3.exceptions.HTTPError as error:
            raise self._failure(error, request) from error

    def _request_headers(self, request: Request) -> dict[str, str]:
        headers = dict(self._headers)  # kubernetes.core has one key per impersonated group here: equal, not identical
        headers["User-Agent"] = self._user_agent
        headers["Accept"] = JSON
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        for setting in self._configuration.auth_settings().values():  # refreshes a token that expires
            if setting["in"] == "header" and setting["value"]:
                headers[setting["key"]] = setting["value"]
        if self._configuration.username and not self._configuration.api_key:  # the library has no use for these options
            headers["Authorization"] = self._configuration.get_basic_auth_token()
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


class _KubernetesStream:
    """A stream over a connection of its own."""

    def __init__(self, response: t.Any, failure: t.Callable[[Exception], Exception]) -> None:
        self._response = response
        self._failure = failure

    def lines(self) -> t.Iterator[bytes]:
        rest = b""
        try:
            for chunk in self._response.stream():
                *lines, rest = (rest + chunk).split(b"\n")
                yield from lines
        except urllib3.exceptions.HTTPError as error:
            raise self._failure(error) from error

    def close(self) -> None:
        # Wakes the thread that reads; urllib3 can do that from 2.3 on. With an older one the server ends the stream.
        shutdown = getattr(self._response, "shutdown", None)
        if shutdown is not None:
            with contextlib.suppress(OSError, RuntimeError, ValueError):  # it has ended already
                shutdown()


def _innermost(error: BaseException) -> BaseException:
    """The first cause: urllib3 wraps the socket's error as the cause (2), the context (1.26) or an argument."""
    while True:
        inner = error.__cause__ or error.__context__
        inner = inner or next((arg for arg in error.args if isinstance(arg, BaseException)), None)
        if inner is None:
            return error
        error = inner


def _words(error: BaseException) -> str:
    """The message of a low-level error."""
    return str(getattr(error, "strerror", None) or str(error) or type(error).__name__)
