# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Reports in a ConfigMap, where they outlive the job that wrote them.

A ConfigMap holds 1 MiB, so large reports are compressed.
"""

from __future__ import annotations

import base64
import gzip
import typing as t

from ..base import kinds, names
from ..base.findings import InputErrors
from ..base.objects import KubeObject, Object, field
from ..base.selectors import dns_label_problem, subdomain_problem

_LARGE = 64 * 1024
"""Reports with more bytes are compressed. Smaller ones can be read with ``kubectl get -o yaml``."""
_ROOM = 1024 * 1024
"""Bytes of all reports together (``ValidateConfigMap`` in Kubernetes, which counts keys and decoded values)."""

_TOO_LARGE = (
    "The reports have {size:,} bytes even when compressed, and a ConfigMap holds {room:,}; lower "
    "virtpools_max_listed_vms, or write files."
)
_FOREIGN = (
    "ConfigMap {namespace}/{name} exists and has no reports of ours (it lacks the annotation {annotation}); give another "
    "name in virtpools_report_configmap."
)


def parse(text: str) -> tuple[str | None, str]:
    """Read ``[namespace/]name``. The namespace is None when there is none.

    :raises InputErrors: when it is something else.
    """
    namespace, slash, name = text.rpartition("/")
    problem = subdomain_problem(name)
    if problem is None and slash:
        problem = dns_label_problem(namespace)
    if problem is not None:
        raise InputErrors(
            [f"virtpools_report_configmap is {text}, of which a part {problem}; give a ConfigMap as namespace/name."]
        )
    return namespace or None, name


def content(reports: t.Mapping[str, bytes]) -> dict[str, dict[str, str]]:
    """The fields ``data`` and ``binaryData`` of a ConfigMap with these reports, which are UTF-8 texts by their names.

    A large one is compressed with gzip, and its key ends in ``.gz``. The same reports give the same bytes.

    :raises InputErrors: when they are too large even so.
    """
    large = {name for name, report in reports.items() if len(report) > _LARGE}
    packed = {f"{name}.gz": gzip.compress(reports[name], mtime=0) for name in sorted(large)}
    plain = {name: report for name, report in reports.items() if name not in large}
    size = sum(len(key) + len(value) for stored in (packed, plain) for key, value in stored.items())
    if size > _ROOM:
        raise InputErrors([_TOO_LARGE.format(size=size, room=_ROOM)])
    fields = {
        "data": {name: report.decode() for name, report in plain.items()},
        "binaryData": {name: base64.b64encode(value).decode() for name, value in packed.items()},
    }
    return {key: values for key, values in fields.items() if values}


def written(live: KubeObject | None, namespace: str, name: str, reports: t.Mapping[str, bytes], by: str) -> Object:
    """The ConfigMap with these reports and no others. ``live``: the present one. ``by``: who wrote them.

    :raises InputErrors: when ``live`` is something else than reports of ours, or the reports are too large.
    """
    if live is not None and field(live, "metadata", "annotations", names.REPORTED_BY_ANNOTATION) is None:
        raise InputErrors([_FOREIGN.format(namespace=namespace, name=name, annotation=names.REPORTED_BY_ANNOTATION)])
    obj = dict(live) if live is not None else kinds.CONFIG_MAP.object(name, namespace)
    for key in ("data", "binaryData"):
        obj.pop(key, None)
    metadata = dict(obj["metadata"])
    metadata["labels"] = {**(metadata.get("labels") or {}), names.MANAGED_BY_LABEL: names.MANAGED_BY}
    metadata["annotations"] = {**(metadata.get("annotations") or {}), names.REPORTED_BY_ANNOTATION: by}
    return {**obj, "metadata": metadata, **content(reports)}
