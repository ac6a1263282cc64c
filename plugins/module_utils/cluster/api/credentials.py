# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Which cluster credentials lead to, when options and the environment both name one.

kubernetes.core takes each value from the options, else from ``K8S_AUTH_*``. It prefers a host with a token to a kubeconfig,
wherever they come from. So the host in the environment, which a credential of AWX sets there, would win over the
kubeconfig of an inventory host, and the run would work on the wrong cluster.
"""

from __future__ import annotations

import typing as t

PREFIX = "K8S_AUTH_"
_PROVE_IDENTITY = ("api_key", "username", "client_cert")
"""Options that say who we are. Others, such as the CA, only go with them."""

_ALIASES = {"client_cert": "cert_file", "client_key": "key_file"}

_NO_SECRETS = (
    *("username", "client-certificate", "client-key", "tokenFile", "as", "as-uid", "as-groups", "as-user-extra"),
    *("name", "apiVersion", "command", "args", "installHint", "interactiveMode"),
)
"""Fields of a kubeconfig's user, and of its ``exec`` and ``auth-provider``, that hold names, paths and what each user of the machine
sees of a program. Nodes may have such names, as those of EKS have the region."""


def contradiction(options: t.Mapping[str, t.Any], environment: t.Mapping[str, str]) -> str | None:
    """Why the credentials may lead to another cluster than is meant, as a sentence, or None.

    :param options: a module's options to reach a cluster, by kubernetes.core's names.
    :param environment: the variables of this process.
    """
    kubeconfig, context, host = (_source(name, options, environment) for name in ("kubeconfig", "context", "host"))
    if host and (kubeconfig or context):
        both = " and ".join(each for each in (kubeconfig, context) if each)
        return f"Two clusters may be meant: {both}, but also {host}. Keep one of them."
    theirs = environment.get(f"{PREFIX}HOST", "").rstrip("/")
    ours = str(options.get("host") or "").rstrip("/")
    if ours and theirs and ours != theirs and not any(options.get(name) for name in _PROVE_IDENTITY):
        return (
            f"Two clusters may be meant: {host}, but the credentials in the environment are for {PREFIX}HOST, {theirs}. "
            "Give api_key together with host, or keep one of them."
        )
    return None


def value(name: str, options: t.Mapping[str, t.Any], environment: t.Mapping[str, str]) -> t.Any:
    """What kubernetes.core takes for an option: the option itself, else ``K8S_AUTH_*`` by its name or its alias."""
    if options.get(name) is not None:
        return options[name]
    variables = (f"{PREFIX}{each.upper()}" for each in (name, _ALIASES.get(name)) if each)
    return next((environment[variable] for variable in variables if environment.get(variable)), None)


def read_from_kubeconfig(options: t.Mapping[str, t.Any], environment: t.Mapping[str, str]) -> bool:
    """Whether kubernetes.core reads a kubeconfig, unless it runs in a cluster: without a host and a proof of who we are."""

    def given(*names: str) -> bool:
        return all(value(name, options, environment) for name in names)

    return not any(
        given("host", *proof) for proof in (["api_key"], ["username", "password"], ["client_cert", "client_key"])
    )


def kubeconfig_path(given: t.Any) -> str | None:
    """The option ``kubeconfig`` if it is a path: neither a dictionary nor, by mistake, the text of a file."""
    return given if isinstance(given, str) and not {"\n", "{"} & set(given) else None


def secrets(kubeconfig: t.Any) -> t.Iterator[str]:
    """What in the option ``kubeconfig`` must not be shown: of a dictionary, the tokens, passwords and keys of its users."""
    if isinstance(kubeconfig, dict):
        users = kubeconfig.get("users")
        for user in users if isinstance(users, list) else [users]:
            yield from _secrets_of(user.get("user") if isinstance(user, dict) else user)
    elif kubeconfig_path(kubeconfig) is None:
        yield from _secrets_of(kubeconfig)


def _secrets_of(value: t.Any) -> t.Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            if name not in _NO_SECRETS:
                yield from _secrets_of(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _secrets_of(inner)
    elif value is not None and not isinstance(value, bool) and value != "":
        yield str(value)


def _source(name: str, options: t.Mapping[str, t.Any], environment: t.Mapping[str, str]) -> str | None:
    """What names the cluster, for a person. A kubeconfig may hold secrets, unless it is a path."""
    given = options.get(name)
    if given:
        secret = name == "kubeconfig" and kubeconfig_path(given) is None
        return "the option kubeconfig" if secret else f"the option {name}, {given}"
    given = environment.get(f"{PREFIX}{name.upper()}")
    return f"{PREFIX}{name.upper()} in the environment, {given}" if given else None
