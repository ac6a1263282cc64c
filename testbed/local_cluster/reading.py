# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""Read objects as ``kubectl get`` does, but in this process: tests ask several times a second, and each kubectl starts anew."""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from kubernetes import client
from urllib3.exceptions import HTTPError

from .errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Iterator

Object = dict[str, Any]

# One answer with all kinds, instead of one for each group and version.
_ALL_KINDS = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

_words = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
_words.add_argument("targets", nargs="+")
_words.add_argument("-n", dest="namespace")
_words.add_argument("-A", dest="everywhere", action="store_true")
_words.add_argument("-l", dest="labelSelector", default="")
_words.add_argument("--field-selector", dest="fieldSelector", default="")


@dataclass(frozen=True)
class _Kind:
    """Where objects of a kind are."""

    root: str
    plural: str
    namespaced: bool

    def path(self, namespace: str) -> str:
        """Return the path of its objects, in a namespace or in all."""
        inside = f"/namespaces/{namespace}" if namespace and self.namespaced else ""
        return f"{self.root}{inside}/{self.plural}"


class Reader:
    """Reads a cluster with one client."""

    def __init__(self, api_client: client.ApiClient) -> None:
        """Take the client of the user who reads."""
        self._client = api_client
        self._kinds: dict[str, _Kind] = {}

    def get(self, *what: str, namespace: str = "default") -> Object:
        """Return the one object that is named, or else a List; ``what`` is as ``kubectl get`` takes it."""
        asked = _words.parse_intermixed_args(what)
        inside = "" if asked.everywhere else asked.namespace or namespace
        selected = {key: getattr(asked, key) for key in ("labelSelector", "fieldSelector") if getattr(asked, key)}
        targets = list(_targets(asked.targets))
        found = [item for target in targets for item in self._read(*target, inside, selected)]
        if len(targets) == 1 and targets[0][1]:
            return found[0]
        return {"apiVersion": "v1", "kind": "List", "items": found}

    def _read(self, kind: str, name: str, namespace: str, selected: dict[str, str]) -> Iterator[Object]:
        path = self._kind(kind).path(namespace)
        if name:
            found = [self._request(f"{path}/{name}")]
        else:
            answer = self._request(path, selected)
            # The API server leaves these out of a list's items.
            kinds = {"apiVersion": answer["apiVersion"], "kind": answer["kind"].removesuffix("List")}
            found = [{**kinds, **item} for item in answer["items"]]
        for item in found:
            item["metadata"].pop("managedFields", None)
            yield item

    def _kind(self, name: str) -> _Kind:
        if name not in self._kinds:
            # Of a name that several have, the first counts, which is of Kubernetes' core or of a group's preferred version.
            for known_as, kind in self._all_kinds():
                self._kinds.setdefault(known_as, kind)
        if name not in self._kinds:
            raise ClusterError(f"The API server has no kind {name}.")
        return self._kinds[name]

    def _all_kinds(self) -> Iterator[tuple[str, _Kind]]:
        """Yield each kind under all names that kubectl takes."""
        for root in ("/api", "/apis"):
            for group in self._request(root, accept=_ALL_KINDS)["items"]:
                group_name = group["metadata"].get("name", "")
                for version in group["versions"]:
                    folder = "/".join(part for part in (root, group_name, version["version"]) if part)
                    for each in version.get("resources", ()):  # a group whose server does not answer has none
                        if "get" not in (each.get("verbs") or ()):  # KubeVirt's group of subresources has none
                            continue
                        kind = _Kind(folder, each["resource"], each["scope"] == "Namespaced")
                        for name in (each["resource"], each["singularResource"], *each.get("shortNames", ())):
                            yield name, kind
                            yield f"{name}.{group_name}", kind

    def _request(self, path: str, query: dict[str, str] | None = None, accept: str = "application/json") -> Object:
        request = self._client.param_serialize(
            "GET",
            path,
            query_params=list((query or {}).items()),
            header_params={"Accept": accept},
            auth_settings=["BearerToken"],
        )
        try:
            answer = self._client.call_api(*request)
            said = dict(json.loads(answer.read()))
        except (HTTPError, ValueError) as error:
            raise ClusterError(f"{path} cannot be read: {error}") from error
        if answer.status != HTTPStatus.OK:
            raise ClusterError(f"{path} cannot be read: {said.get('message')}")
        return said


def _targets(words: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the kinds and names of ``kind/name``, of ``kind,kind``, or of ``kind name name``; no name stands for all objects."""
    if "/" in words[0]:
        for word in words:
            kind, _slash, name = word.partition("/")
            yield kind, name
        return
    kinds, *names = words
    for kind in kinds.split(","):
        for name in names or [""]:
            yield kind, name
