# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""What a kubeconfig specifies and the kubernetes library drops without a word.

The library ignores impersonation, most authentication providers, and a program (``exec``) that fails: a run would then act as
another user, or without credentials. What this file does not name is used by the library as kubectl uses it. ``disable-compression`` needs
nothing: this collection never asks for compressed answers.
"""

from __future__ import annotations

import os
import typing as t
from dataclasses import dataclass, field
from urllib.parse import quote

from . import credentials

_HEADERS = {"as": "Impersonate-User", "as-uid": "Impersonate-Uid", "as-groups": "Impersonate-Group"}
_OPTIONS = {"as": "impersonate_user", "as-groups": "impersonate_groups"}
_EXTRA_HEADER = "Impersonate-Extra-"
_LEGAL_IN_HEADERS = "!#$&'*+-.^_`|~"
_PROVIDERS = ("oidc", "gcp")
"""The authentication providers that the library knows."""


class Unusable(Exception):
    """A kubeconfig specifies what cannot be used; the message is a sentence that names the field and the file."""


@dataclass(frozen=True)
class Kubeconfig:
    """The cluster and the user of its context in use."""

    cluster: t.Mapping[str, t.Any]
    user: t.Mapping[str, t.Any]
    cluster_title: str = "cluster of the kubeconfig"
    """With its name and the file, for messages."""
    user_title: str = "user of the kubeconfig"
    folder: str = ""
    """Where relative paths of the user start."""
    options: t.Mapping[str, t.Any] = field(default_factory=dict)
    """A module's options to reach a cluster, which override the kubeconfig's."""
    environment: t.Mapping[str, str] = field(default_factory=dict)

    def overridden(self, option: str) -> bool:
        return bool(credentials.value(option, self.options, self.environment))

    def impersonation(self) -> dict[str, str | list[str]]:
        """The headers for the impersonation of the kubeconfig that no option overrides, each by itself as in kubectl.

        :raises Unusable: when it is not as kubectl reads it, or names groups or more without a user.
        """
        headers: dict[str, str | list[str]] = {}
        for key, header in _HEADERS.items():
            value = self.user.get(key)
            if value and not (key in _OPTIONS and self.overridden(_OPTIONS[key])):
                self._require(key, _is_texts(value) if key == "as-groups" else isinstance(value, str))
                headers[header] = value
        extra = self.user.get("as-user-extra") or {}
        self._require("as-user-extra", isinstance(extra, dict) and all(map(_is_texts, extra.values())))
        headers.update({f"{_EXTRA_HEADER}{quote(str(key), _LEGAL_IN_HEADERS)}": list(extra[key]) for key in extra})
        if headers and "Impersonate-User" not in headers and not self.overridden("impersonate_user"):
            raise Unusable(f"The {self.user_title} has as-uid, as-groups or as-user-extra, but no user in as.")
        return headers

    def _require(self, key: str, valid: bool) -> None:
        if not valid:
            raise Unusable(f"The field {key} of the {self.user_title} does not have the form that kubectl asks for.")

    def token(self) -> str | None:
        """The token in tokenFile, which overrides a token in the kubeconfig; None when there is no such file or an option overrides it.

        :raises Unusable: when the file cannot be read.
        """
        name = self.user.get("tokenFile")
        if not name or self.overridden("api_key"):
            return None
        path = os.path.join(self.folder, str(name))
        try:
            with open(path, encoding="utf-8") as file:
                return file.read().strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not text"
            raise Unusable(f"The tokenFile {path} of the {self.user_title} cannot be read ({reason}).") from error

    def check_user(self, *, authenticated: bool) -> None:
        """Check that the user's way to authenticate was used.

        :param authenticated: whether the library has found a token, a certificate or a password.
        :raises Unusable: when it was not.
        """
        provider = self.user.get("auth-provider")
        name = provider.get("name") if isinstance(provider, dict) else None
        if provider and name not in _PROVIDERS:
            raise Unusable(
                f"The auth-provider {name} of the {self.user_title} is not supported: use exec, as kubectl since 1.26 requires too."
            )
        if not authenticated:
            self._explain_failure()

    def _explain_failure(self) -> None:
        if self.user.get("exec"):
            raise Unusable(
                f"The command in exec of the {self.user_title} gave no credentials: run it by hand as the user that runs Ansible, to see why."
            )
        if self.user.get("auth-provider"):
            raise Unusable(
                f"The auth-provider of the {self.user_title} gave no token: renew it with kubectl, or use exec."
            )
        if self.user.get("username") or self.user.get("password"):
            raise Unusable(f"The {self.user_title} has only one of username and password.")

    def check_cluster(self, *, proxy: str | None, tls_server_name: str | None) -> None:
        """Check that the library uses these fields, which older ones do not know.

        :raises Unusable: when it does not.
        """
        unused = []
        if self.cluster.get("proxy-url") and not proxy:
            unused.append("proxy-url")
        if self.cluster.get("tls-server-name") and not tls_server_name:
            unused.append("tls-server-name")
        if unused:
            raise Unusable(
                f"The {self.cluster_title} has {' and '.join(unused)}, which this version of the Python package kubernetes ignores: "
                "install a newer one."
            )


def _is_texts(value: t.Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)
