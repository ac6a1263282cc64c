# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""The dialects: the ways of writing pools that KubeVirt's own proposals and tools have, and ours, read into our model.

To add a dialect, add an entry to ``DIALECTS``. Its form is a table for the one validation in ``forms``, so messages name
the fields that the user wrote. The forms and their rules come from the text and drafts of KubeVirt's enhancement 200
(virt-handler pools, later worker pools), the draft ``additionalVirtHandlers`` before it, and kubevirt-aie-webhook.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..base import kinds, names
from ..base.findings import InputErrors, listed
from ..base.kinds import Kind
from ..base.objects import KubeObject, field, flat
from . import inputs
from .criteria import Fields
from .forms import FORM, IGNORED, OTHERS, Form, entries_of
from .inputs import FieldPath, Problems
from .model import Pool, read_pools

Entries = list[tuple[str, object]]
LoadYaml = t.Callable[[str], object]


# Where pools are written --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Variable:
    """A list in a file of variables, under the first of these names or one of the others."""

    names: tuple[str, ...]

    def __str__(self) -> str:
        return f"the variable {self.names[0]}"

    def find(self, documents: t.Sequence[KubeObject], _load: LoadYaml | None) -> t.Iterator[tuple[str, object]]:
        variables = [document for document in documents if not document.get("kind")]
        return ((name, document[name]) for document in variables for name in self.names if name in document)

    def entries(self, raw: object, problems: Problems) -> Entries:
        return entries_of(problems, self.names[0], raw)


@dataclass(frozen=True)
class KubeVirtField:
    """A list in ``spec`` of the KubeVirt object, which a build of KubeVirt with this feature gate reads."""

    name: str
    gate: str

    def __str__(self) -> str:
        return f"a KubeVirt object with spec.{self.name}"

    def find(self, documents: t.Sequence[KubeObject], _load: LoadYaml | None) -> t.Iterator[tuple[str, object]]:
        lists = (field(document, "spec", self.name) for document in documents if _is_of_kubevirt(document, "KubeVirt"))
        return ((f"spec.{self.name} of a KubeVirt object", raw) for raw in lists if raw is not None)

    def entries(self, raw: object, problems: Problems) -> Entries:
        return entries_of(problems, f"spec.{self.name}", raw)


@dataclass(frozen=True)
class CustomResources:
    """An object for each pool, in any of KubeVirt's API groups: drafts change theirs."""

    kind: Kind

    def __str__(self) -> str:
        return f"{self.kind} objects"

    def find(self, documents: t.Sequence[KubeObject], _load: LoadYaml | None) -> t.Iterator[tuple[str, object]]:
        objects = [document for document in documents if _is_of_kubevirt(document, self.kind.name)]
        if objects:
            yield str(self), objects

    def entries(self, raw: object, problems: Problems) -> Entries:
        return entries_of(problems, self.kind.name, [*flat([raw])] if isinstance(raw, t.Mapping) else raw)


@dataclass(frozen=True)
class ConfigMapKey:
    """A list in the YAML under a key of a ConfigMap."""

    config_map: str
    key: str
    list_field: str

    def __str__(self) -> str:
        return f"the ConfigMap {self.config_map}"

    def find(self, documents: t.Sequence[KubeObject], load: LoadYaml | None) -> t.Iterator[tuple[str, object]]:
        for document in documents:
            if document.get("kind") == "ConfigMap" and field(document, "metadata", "name") == self.config_map:
                yield f"ConfigMap {self.config_map}", self._parsed(field(document, "data", self.key), load)

    def entries(self, raw: object, problems: Problems) -> Entries:
        config = inputs.mapping(FieldPath(problems, self.key), raw, (self.list_field,))
        return (
            []
            if config is None or problems.count
            else entries_of(problems, self.list_field, config.get(self.list_field))
        )

    def _parsed(self, text: object, load: LoadYaml | None) -> object:
        if not isinstance(text, str) or load is None:
            return text
        try:
            return load(text)
        except ValueError as exc:
            raise InputErrors(
                [f"ConfigMap {self.config_map}: data[{self.key}] is not YAML: {inputs.shown(str(exc))}."]
            ) from exc


def _is_of_kubevirt(document: KubeObject, kind: str) -> bool:
    group = str(document.get("apiVersion")).partition("/")[0]
    return document.get("kind") == kind and group.endswith("kubevirt.io")


# The dialects -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Dialect:
    """A way of writing pools."""

    description: str
    """One line for the documentation, in Ansible's markup."""
    source: Variable | KubeVirtField | CustomResources | ConfigMapKey
    form: Form
    by_name: bool = False
    """Whether the order of the pools is that of their names, not that in which they are written."""


_NODES_AND_IMAGES: Fields = {
    "nodeSelector": "node_selector",
    "virtHandlerImage": "virt_handler_image",
    "virtLauncherImage": "virt_launcher_image",
}
_SELECTOR: Fields = {"deviceNames": "device_names", "vmLabels": {"matchLabels": "match_labels"}}
_LABEL_SELECTOR: Fields = {"matchLabels": "match_labels", "matchExpressions": "match_expressions"}

_POOL_IN_KUBEVIRT = Form("Pool", {"name": "name", **_NODES_AND_IMAGES, "selector": _SELECTOR})

OWN = "virtpools"
AIE = names.AIE_CONFIG

DIALECTS: t.Mapping[str, Dialect] = {
    OWN: Dialect("This collection's own form.", Variable(("virtpools_pools", "pools")), FORM),
    "additionalVirtHandlers": Dialect(
        "A list in the KubeVirt object, without selectors: a pool takes the VMs whose node selector has all its labels.",
        KubeVirtField("additionalVirtHandlers", gate="AdditionalVirtHandlers"),
        Form("Pool", {"name": "name", **_NODES_AND_IMAGES}, selector="", image_required=False),
    ),
    "virtHandlerPools": Dialect(
        "A list in the KubeVirt object, the first form in KubeVirt's enhancement 200.",
        KubeVirtField("virtHandlerPools", gate="VirtHandlerPools"),
        _POOL_IN_KUBEVIRT,
    ),
    "workerPools": Dialect(
        "The list virtHandlerPools under its later name.",
        KubeVirtField("workerPools", gate="WorkerPools"),
        _POOL_IN_KUBEVIRT,
    ),
    "WorkerPool": Dialect(
        "Cluster-scoped objects, the last form in enhancement 200, in the order of their names.",
        CustomResources(kinds.WORKER_POOL),
        Form(
            "WorkerPool",
            {
                "apiVersion": IGNORED,
                "kind": IGNORED,
                "metadata": {"name": "name", OTHERS: IGNORED},
                "spec": {
                    **_NODES_AND_IMAGES,
                    # The later text of the proposal, and the earlier one.
                    "vmiSelector": {"deviceNames": "device_names", "vmiLabels": _LABEL_SELECTOR},
                    "selector": {"deviceNames": "device_names", "vmLabels": _LABEL_SELECTOR},
                },
                "status": IGNORED,
            },
            selector="spec.vmiSelector",
            written={"metadata": {"name": "name"}, "spec": {**_NODES_AND_IMAGES, "selector": _SELECTOR}},
        ),
        by_name=True,  # the API server serves them so, and their controller takes the first that matches
    ),
    AIE: Dialect(
        "The ConfigMap of kubevirt-aie-webhook: rules with a launcher image. They need node labels, as a pool owns nodes.",
        ConfigMapKey(AIE, key="config.yaml", list_field="rules"),
        Form(
            "Rule",
            {
                "name": "name",
                "image": "virt_launcher_image",
                "selector": _SELECTOR,
                # The webhook does not ask for it: there, a rule may be only about an image.
                "nodeSelector": {"matchLabels": "node_selector"},
            },
        ),
    ),
}
"""Every dialect we read, by the name that users know it by."""


def read_dialect(dialect: str, raw: object) -> tuple[Pool, ...]:
    """The pools of one dialect, in its own order.

    :param raw: for the dialects in the KubeVirt object, and ours, the list; for custom resources the objects (or one of
        them); for ``kubevirt-aie-launcher-config`` the parsed ``config.yaml``.
    :raises InputErrors: with every problem of every pool.
    """
    if dialect not in DIALECTS:
        hint = inputs.suggestion(dialect, DIALECTS)
        raise InputErrors([f"The dialect is {inputs.shown(dialect)}; give {inputs.either([*DIALECTS])}{hint}."])
    entry, problems = DIALECTS[dialect], Problems()
    pools = read_pools(entry.form, entry.source.entries(raw, problems), problems)
    return tuple(sorted(pools, key=lambda pool: pool.name)) if entry.by_name else pools


def read_manifest(
    documents: t.Iterable[object], load_yaml: LoadYaml | None = None, file: str = ""
) -> tuple[str, tuple[Pool, ...]]:
    """The dialect that parsed documents (of a manifest, a variables file) are written in, and their pools.

    Objects that have nothing to do with pools are ignored; the items of a ``kind: List`` are read.

    :param load_yaml: parses the text in the ConfigMap of kubevirt-aie-webhook, and raises ValueError if it cannot.
    :param file: where the documents are from, for messages.
    :raises InputErrors: when there is no dialect in the documents or more than one, and as ``read_dialect`` does.
    """
    mappings = [document for document in flat(documents) if isinstance(document, t.Mapping)]
    lists = [
        (name, place, raw)
        for name, dialect in DIALECTS.items()
        for place, raw in dialect.source.find(mappings, load_yaml)
    ]
    if not lists:
        sources = [str(dialect.source) for dialect in DIALECTS.values()]
        raise InputErrors([f"No pools were found{f' in {file}' if file else ''}; give {inputs.either(sources)}."])
    if len(lists) > 1:
        places = ", ".join(place for _name, place, _raw in lists)
        raise InputErrors(
            [f"Pools were found in several places{f' of {file}' if file else ''} ({places}); keep one of them."]
        )
    ((name, _place, raw),) = lists
    _refuse_other_variables(mappings)
    return name, read_dialect(name, raw)


def _refuse_other_variables(mappings: t.Iterable[KubeObject]) -> None:
    """A manifest is read for its pools alone, so a variable of ours beside them would have no effect."""
    known = {
        name for dialect in DIALECTS.values() if isinstance(dialect.source, Variable) for name in dialect.source.names
    }
    others = sorted(
        {key for each in mappings for key in each if str(key).startswith("virtpools_") and key not in known}
    )
    if others:
        message = (
            f"The file of the pools is read for its pools alone, and {listed(others)} would have no effect there: set it in the "
            "inventory (group_vars), or give the file as variables with -e @FILE."
        )
        raise InputErrors([message])
