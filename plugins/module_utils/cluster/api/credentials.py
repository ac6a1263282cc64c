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


def _source(name: str, options: t.Mapping[str, t.Any], environment: t.Mapping[str, str]) -> str | None:
    """What names the cluster, for a person. Ansible hides the value of the option kubeconfig, which may hold secrets."""
    given = options.get(name)
    if given:
        return "the option kubeconfig" if name == "kubeconfig" else f"the option {name}, {given}"
    given = environment.get(f"{PREFIX}{name.upper()}")
    return f"{PREFIX}{name.upper()} in the environment, {given}" if given else None
