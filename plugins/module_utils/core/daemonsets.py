# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A pool's virt-handler DaemonSet, derived from the live primary.

What must be dropped and what must be kept follows from what KubeVirt does with such a DaemonSet:

* virt-operator deletes every DaemonSet that carries its ``managed-by`` label and is not its own, and counts pods that
  carry it as its own: neither the object nor the template keeps it, nor the install-strategy annotations.
* virt-controller stops failing VMs over from dead nodes when two DaemonSet *objects* carry
  ``kubevirt.io=virt-handler``: the object drops it. virt-api finds the handler *pod* by it: the template keeps it.
* A pod is found, scraped and let through network policies by its other labels and by its name's prefix: kept.
"""

from __future__ import annotations

import json
import typing as t

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.exclusion import without_exclusion_terms
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.findings import InputErrors
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.objects import (
    Difference,
    canonical_json,
    differences,
    digest,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools import Pool, restore_pool

KubeObject = t.Mapping[str, t.Any]

_LAUNCHER_CONTAINERS = ("virt-launcher", "virt-launcher-image-holder")
"""Containers of the handler pod that run the launcher image (which of them exist depends on KubeVirt's version)."""

_HCO_APP_LABEL = "app"
"""HCO watches objects by ``app=kubevirt-hyperconverged``; ours must not look like its own."""

_VOLATILE_ANNOTATIONS = ("kubevirt.io/install-strategy-", "kubectl.kubernetes.io/")


def derive(primary: KubeObject, pool: Pool) -> dict[str, t.Any]:
    """The DaemonSet of ``pool``: the primary's, with the pool's name, nodes, images, tolerations and pull secrets.

    ``resources`` of the pool replace those of the ``virt-handler`` container as a whole.
    """
    template = _template(primary["spec"]["template"], pool)
    template["metadata"].setdefault("annotations", {})[names.TEMPLATE_ANNOTATION] = digest(template)[:16]
    spec = {
        "selector": {"matchLabels": {names.KUBEVIRT_LABEL: names.HANDLER, names.OWNER_LABEL: pool.name}},
        "template": template,
        "updateStrategy": {"type": "OnDelete"},
    }
    for field in ("minReadySeconds", "revisionHistoryLimit"):
        if field in primary["spec"]:
            spec[field] = primary["spec"][field]
    labels = _labels(primary["metadata"].get("labels") or {}, pool)
    labels.pop(names.KUBEVIRT_LABEL, None)
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {
            "name": names.pool_daemonset_name(pool.name),
            "namespace": primary["metadata"]["namespace"],
            "labels": {**labels, names.MANAGED_BY_LABEL: names.MANAGED_BY},
            "annotations": {names.POOL_ANNOTATION: canonical_json(pool.to_object())},
        },
        "spec": spec,
    }


def pool_of(daemonset: KubeObject) -> Pool:
    """The pool that a DaemonSet of ours was derived for.

    :raises InputErrors: when it does not say, or not in a form that this release reads.
    """
    text = (daemonset["metadata"].get("annotations") or {}).get(names.POOL_ANNOTATION) or "null"
    try:
        return restore_pool(json.loads(text))
    except ValueError as error:
        raise InputErrors([f"Annotation {names.POOL_ANNOTATION}: {error}"]) from error


def drift(desired: KubeObject, live: KubeObject) -> tuple[Difference, ...]:
    """What must change for ``live`` to be as ``desired``.

    The spec is compared exactly (it comes from the primary, so the server's defaults are in it); labels and
    annotations only where we set them, since the server and others add their own.
    """
    found: list[Difference] = []
    for field in ("labels", "annotations"):
        wanted = desired["metadata"][field]
        actual = live["metadata"].get(field) or {}
        present = {key: actual[key] for key in wanted if key in actual}
        found += differences(wanted, present, f"metadata.{field}")
    for field in ("selector", "template", "updateStrategy"):
        wanted = desired["spec"][field]
        found += differences(wanted, _without_nulls(live["spec"].get(field)), f"spec.{field}")
    return tuple(found)


def template_of(daemonset: KubeObject) -> str | None:
    """The digest that tells which template a handler pod was made from; None for the primary."""
    metadata = daemonset["spec"]["template"].get("metadata") or {}
    value = (metadata.get("annotations") or {}).get(names.TEMPLATE_ANNOTATION)
    return str(value) if value is not None else None


def images_of(daemonset: KubeObject) -> dict[str, str]:
    """The images a node needs to run this DaemonSet's pod, by container name."""
    spec = daemonset["spec"]["template"]["spec"]
    return {c["name"]: c["image"] for c in (*(spec.get("initContainers") or ()), *spec["containers"])}


def handler_image(daemonset: KubeObject) -> str:
    """The image of the container ``virt-handler``."""
    return images_of(daemonset)[names.HANDLER]


def _template(template: KubeObject, pool: Pool) -> dict[str, t.Any]:
    metadata = template.get("metadata") or {}
    annotations = {
        key: value
        for key, value in (metadata.get("annotations") or {}).items()
        if not key.startswith(_VOLATILE_ANNOTATIONS)
    }
    derived: dict[str, t.Any] = {
        "metadata": {"labels": _labels(metadata.get("labels") or {}, pool), "annotations": annotations},
        "spec": _pod_spec(template["spec"], pool),
    }
    if metadata.get("name"):
        derived["metadata"]["name"] = metadata["name"]
    return derived


def _pod_spec(spec: KubeObject, pool: Pool) -> dict[str, t.Any]:
    derived = t.cast("dict[str, t.Any]", _without_nulls(without_exclusion_terms(dict(spec))))
    derived["nodeSelector"] = {**(derived.get("nodeSelector") or {}), names.OWNER_LABEL: pool.name}
    derived["containers"] = [_container(c, pool) for c in derived["containers"]]
    if derived.get("initContainers"):
        derived["initContainers"] = [_container(c, pool) for c in derived["initContainers"]]
    for field, added in (("tolerations", pool.tolerations), ("imagePullSecrets", pool.image_pull_secrets)):
        if added:
            derived[field] = _joined(derived.get(field) or [], added)
    return derived


def _container(container: dict[str, t.Any], pool: Pool) -> dict[str, t.Any]:
    changed = dict(container)
    if container["name"] in _LAUNCHER_CONTAINERS and pool.virt_launcher_image:
        changed["image"] = pool.virt_launcher_image
    if container["name"] == names.HANDLER:
        if pool.virt_handler_image:
            changed["image"] = pool.virt_handler_image
        if pool.resources:
            changed["resources"] = _without_nulls(pool.resources)
    return changed


def _labels(labels: t.Mapping[str, str], pool: Pool) -> dict[str, str]:
    kept = {key: value for key, value in labels.items() if key not in (names.MANAGED_BY_LABEL, _HCO_APP_LABEL)}
    return {**kept, names.OWNER_LABEL: pool.name}


def _joined(present: t.Sequence[t.Any], added: t.Iterable[t.Any]) -> list[t.Any]:
    joined = list(present)
    for item in added:
        plain = _without_nulls(item)
        if plain not in joined:
            joined.append(plain)
    return joined


def _without_nulls(value: t.Any) -> t.Any:
    """A deep copy as plain dicts and lists, without the nulls that only some servers and tools write."""
    if isinstance(value, t.Mapping):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, (list, tuple)):
        return [_without_nulls(item) for item in value]
    return value
