# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The forms in which KubeVirt's own proposals and tools write pools, read into our model.

Each form is a table for the one validation in ``pools``, so that messages speak of the fields that the user wrote.
The forms and their rules come from the text and drafts of KubeVirt's enhancement 200 (virt-handler pools, later worker
pools), the draft ``additionalVirtHandlers`` before it, and ``kubevirt-aie-webhook``.
"""

from __future__ import annotations

import typing as t

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import inputs
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.findings import InputErrors
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.inputs import Place, Problems
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools import (
    FORM,
    IGNORED,
    OTHERS,
    Fields,
    Form,
    Pool,
    listed,
    read_pools,
)

OWN = "virtpools"
WORKER_POOL = "WorkerPool"
AIE = "kubevirt-aie-launcher-config"

_NODES_AND_IMAGES: Fields = {
    "nodeSelector": "node_selector",
    "virtHandlerImage": "virt_handler_image",
    "virtLauncherImage": "virt_launcher_image",
}
_SELECTOR: Fields = {"deviceNames": "device_names", "vmLabels": {"matchLabels": "match_labels"}}
_LABEL_SELECTOR: Fields = {"matchLabels": "match_labels", "matchExpressions": "match_expressions"}

_POOL_IN_KUBEVIRT = Form("Pool", {"name": "name", **_NODES_AND_IMAGES, "selector": _SELECTOR})

DIALECTS: t.Mapping[str, Form] = {
    OWN: FORM,
    # A VM chooses the pool by its nodeSelector; images that are not given are KubeVirt's own.
    "additionalVirtHandlers": Form("Pool", {"name": "name", **_NODES_AND_IMAGES}, selector="", image_required=False),
    "virtHandlerPools": _POOL_IN_KUBEVIRT,
    "workerPools": _POOL_IN_KUBEVIRT,
    WORKER_POOL: Form(
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
    ),
    AIE: Form(
        "Rule",
        {
            "name": "name",
            "image": "virt_launcher_image",
            "selector": _SELECTOR,
            # Optional there, where a rule is only about an image; a pool owns nodes.
            "nodeSelector": {"matchLabels": "node_selector"},
        },
    ),
}
"""Every form we read, by the name that users know it by."""

_KUBEVIRT_FIELDS = ("additionalVirtHandlers", "virtHandlerPools", "workerPools")
"""The dialects that are a list in ``spec`` of the KubeVirt object."""
_OWN_KEYS = ("virtpools_pools", "pools")
_AIE_KEY = "config.yaml"

_Found = tuple[str, str, object]
"""A dialect, where it was found (as messages name it), and what ``read_dialect`` takes."""


def read_dialect(dialect: str, raw: object) -> tuple[Pool, ...]:
    """The pools of one dialect, in its own order.

    :param raw: for the dialects in the KubeVirt object, and ours, the list; for ``WorkerPool`` the objects (or one of
        them); for ``kubevirt-aie-launcher-config`` the parsed ``config.yaml``.
    :raises InputErrors: with every problem of every pool.
    """
    if dialect not in DIALECTS:
        hint = inputs.suggestion(dialect, DIALECTS)
        raise InputErrors([f"The form is {inputs.shown(dialect)}; give {inputs.either([*DIALECTS])}{hint}."])
    problems = Problems()
    pools = read_pools(DIALECTS[dialect], _entries(dialect, raw, problems), problems)
    problems.raise_if_any()
    # The API server serves WorkerPools by name, and their controller takes the first that matches.
    return tuple(sorted(pools, key=lambda pool: pool.name)) if dialect == WORKER_POOL else pools


def read_manifest(
    documents: t.Sequence[object], load_yaml: t.Callable[[str], object] | None = None
) -> tuple[str, tuple[Pool, ...]]:
    """The dialect that parsed documents (of a manifest, a variables file) are written in, and their pools.

    Objects that have nothing to do with pools are passed over; ``kind: List`` is looked into.

    :param load_yaml: parses the text in the ConfigMap of kubevirt-aie-webhook, and raises ValueError if it cannot.
    :raises InputErrors: when there is no dialect in the documents or more than one, and as ``read_dialect`` does.
    """
    found = [item for document in _flat(documents) for item in _find(document, load_yaml)]
    worker_pools = [raw for dialect, _where, raw in found if dialect == WORKER_POOL]
    others = [item for item in found if item[0] != WORKER_POOL]
    places = [where for _dialect, where, _raw in others] + (["WorkerPool objects"] if worker_pools else [])
    if not places:
        raise InputErrors([f"No pools were found; give {inputs.either(_places())}."])
    if len(places) > 1:
        raise InputErrors([f"Pools were found in several places ({', '.join(places)}); keep one of them."])
    dialect, raw = (WORKER_POOL, worker_pools) if worker_pools else (others[0][0], others[0][2])
    return dialect, read_dialect(dialect, raw)


def _entries(dialect: str, raw: object, problems: Problems) -> list[tuple[str, object]]:
    if dialect in _KUBEVIRT_FIELDS:
        return listed(problems, f"spec.{dialect}", raw)
    if dialect == WORKER_POOL:
        return listed(problems, WORKER_POOL, _flat([raw]) if isinstance(raw, t.Mapping) else raw)
    if dialect == AIE:
        config = inputs.mapping(Place(problems, _AIE_KEY), raw, ("rules",))
        return [] if config is None or problems.count else listed(problems, "rules", config.get("rules"))
    return listed(problems, "pools", raw)


def _flat(documents: t.Iterable[object]) -> list[object]:
    """The documents, with the objects of a ``List`` in its place. A List within a List is none that an API serves."""
    flat: list[object] = []
    for document in documents:
        items = (
            document.get("items")
            if isinstance(document, t.Mapping) and _text(document, "kind").endswith("List")
            else None
        )
        flat.extend(items if isinstance(items, (list, tuple)) else [document])
    return flat


def _find(document: object, load_yaml: t.Callable[[str], object] | None) -> list[_Found]:
    """What one document holds of pools."""
    if not isinstance(document, t.Mapping):
        return []
    kind = _text(document, "kind")
    of_kubevirt = _text(document, "apiVersion").partition("/")[0].endswith("kubevirt.io")
    if kind == "KubeVirt" and of_kubevirt:
        spec = document.get("spec")
        fields = [name for name in _KUBEVIRT_FIELDS if isinstance(spec, t.Mapping) and spec.get(name) is not None]
        return [(name, f"spec.{name} of a KubeVirt object", t.cast("t.Any", spec)[name]) for name in fields]
    if kind == WORKER_POOL and of_kubevirt:
        return [(WORKER_POOL, "", document)]
    if kind == "ConfigMap" and _name(document) == AIE:
        return [(AIE, f"ConfigMap {AIE}", _aie_config(document, load_yaml))]
    if not kind:
        return [(OWN, key, document[key]) for key in _OWN_KEYS if key in document]
    return []


def _aie_config(config_map: t.Mapping[str, t.Any], load_yaml: t.Callable[[str], object] | None) -> object:
    data = config_map.get("data")
    config = data.get(_AIE_KEY) if isinstance(data, t.Mapping) else None
    if not isinstance(config, str) or load_yaml is None:
        return config
    try:
        return load_yaml(config)
    except ValueError as exc:
        raise InputErrors([f"ConfigMap {AIE}: data[{_AIE_KEY}] is not YAML: {inputs.shown(str(exc))}."]) from exc


def _text(document: t.Mapping[str, t.Any], field: str) -> str:
    value = document.get(field)
    return value if isinstance(value, str) else ""


def _name(document: t.Mapping[str, t.Any]) -> object:
    metadata = document.get("metadata")
    return metadata.get("name") if isinstance(metadata, t.Mapping) else None


def _places() -> list[str]:
    """Where pools can be, for a message."""
    return [
        "the variable virtpools_pools",
        *(f"a KubeVirt object with spec.{name}" for name in _KUBEVIRT_FIELDS),
        "WorkerPool objects",
        f"the ConfigMap {AIE}",
    ]
