# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""A pool's virt-handler DaemonSet, derived from the live primary.

docs/design/pool-daemonsets.md describes what is kept and dropped, and why.
"""

from __future__ import annotations

import json
import typing as t

from ..base import names, objects
from ..base.findings import InputErrors
from ..base.objects import Difference, KubeObject, canonical_json, differences, short_digest
from ..pools.hypervisors import HYPERVISORS
from ..pools.model import Pool, restore_pool
from .exclusion import without_exclusion_terms

_IMAGE_HOLDER = "virt-launcher-image-holder"
LAUNCHER_CONTAINERS = ("virt-launcher", _IMAGE_HOLDER)
"""Containers of the handler pod that run the launcher image; KubeVirt's version decides which of them exist."""

_HCO_APP_LABEL = "app"
"""HCO watches objects by ``app=kubevirt-hyperconverged``; ours must not look like its own."""

_VERSION_LABEL = "app.kubernetes.io/version"
"""The product's version (under HCO, HCO's), which no handler reads: each release of HCO changes it, also with the same KubeVirt."""

_VOLATILE_ANNOTATIONS = ("kubevirt.io/install-strategy-", "kubectl.kubernetes.io/")


def derive(primary: KubeObject, pool: Pool) -> dict[str, t.Any]:
    """The DaemonSet of ``pool``: the primary with the pool's name, nodes, images, tolerations and pull secrets.

    ``resources`` of the pool replace all resources of the ``virt-handler`` container.
    """
    template = _template(primary["spec"]["template"], pool)
    template["metadata"].setdefault("annotations", {})[names.TEMPLATE_ANNOTATION] = short_digest(template)
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


def origin(primary: KubeObject) -> dict[str, t.Any]:
    """The primary as pools begin with it, to show how a pool's DaemonSet differs. It lacks what changes between a plan and the
    creation of DaemonSets: our exclusion, virt-operator's notes, and the pace of its rollouts."""
    template = primary["spec"]["template"]
    metadata = {**(template.get("metadata") or {}), "annotations": _lasting_annotations(template)}
    spec = {
        **primary["spec"],
        "updateStrategy": {"type": objects.field(primary, "spec", "updateStrategy", "type")},
        "template": {"metadata": metadata, "spec": without_exclusion_terms(dict(template["spec"]))},
    }
    return {
        **t.cast("dict[str, t.Any]", _without_nulls({**primary, "spec": spec})),
        "metadata": {key: value for key, value in primary["metadata"].items() if key != "annotations"},
    }


def pool_of(daemonset: KubeObject) -> Pool:
    """The pool of a DaemonSet of ours.

    :raises InputErrors: when the DaemonSet does not say, or in a form that this release cannot read.
    """
    text = (daemonset["metadata"].get("annotations") or {}).get(names.POOL_ANNOTATION) or "null"
    try:
        return restore_pool(json.loads(text))
    except ValueError as error:
        raise InputErrors([f"Annotation {names.POOL_ANNOTATION}: {error}"]) from error


def drift(desired: KubeObject, live: KubeObject) -> tuple[Difference, ...]:
    """What must change to make ``live`` like ``desired``.

    The spec is compared exactly: it comes from the live primary and contains the server's defaults. Labels and
    annotations are compared only where we set them: the server and others add their own. Images that admission rewrote while
    it stored what we asked for, as a registry mirror's webhook does, are not drift.
    """
    live = _with_images_asked_for(desired, live)
    drifted: list[Difference] = []
    for field in ("labels", "annotations"):
        wanted = desired["metadata"][field]
        actual = live["metadata"].get(field) or {}
        present = {key: actual[key] for key in wanted if key in actual}
        drifted += differences(wanted, present, f"metadata.{field}")
    for field in ("selector", "template", "updateStrategy"):
        wanted = desired["spec"][field]
        drifted += differences(wanted, _without_nulls(live["spec"].get(field)), f"spec.{field}")
    return tuple(drifted)


def _with_images_asked_for(desired: KubeObject, live: KubeObject) -> KubeObject:
    """``live`` with the desired image in each container whose image only we wrote, when the template is the one that we asked
    for last."""
    if template_of(desired) != template_of(live):
        return live
    spec = live["spec"]["template"]["spec"]
    asked, changed = images_of(desired), {}
    for place in ("initContainers", "containers"):
        containers = spec.get(place) or ()
        if any(each["image"] != asked.get(each["name"]) for each in containers):
            kept = _not_only_ours(live, place)
            changed[place] = [
                each if each["name"] in kept else {**each, "image": asked.get(each["name"], each["image"])}
                for each in containers
            ]
    if not changed:
        return live
    template = {**live["spec"]["template"], "spec": {**spec, **changed}}
    return {**live, "spec": {**live["spec"], "template": template}}


def _not_only_ours(live: KubeObject, containers: str) -> set[str]:
    """The containers whose image another client wrote, or whose writer the object does not record.

    What a webhook makes of a request is recorded as written by the sender of the request (Kubernetes' managedFields).
    """
    path = ("f:spec", "f:template", "f:spec", f"f:{containers}")
    ours, theirs = set[str](), set[str]()
    for entry in live["metadata"].get("managedFields") or ():
        owned = [key for key, fields in (objects.field(entry, "fieldsV1", *path) or {}).items() if "f:image" in fields]
        names_owned = {str(json.loads(key[2:])["name"]) for key in owned if key.startswith("k:")}
        (ours if entry.get("manager") == names.FIELD_MANAGER else theirs).update(names_owned)
    all_names = {each["name"] for each in live["spec"]["template"]["spec"].get(containers) or ()}
    return theirs | (all_names - ours)


def template_of(daemonset: KubeObject) -> str | None:
    """The digest of a DaemonSet's template, which its pods have as annotation; None for the primary."""
    metadata = daemonset["spec"]["template"].get("metadata") or {}
    value = (metadata.get("annotations") or {}).get(names.TEMPLATE_ANNOTATION)
    return str(value) if value is not None else None


def images_of(daemonset: KubeObject) -> dict[str, str]:
    """The images that a node needs to run this DaemonSet's pod, by container name."""
    spec = daemonset["spec"]["template"]["spec"]
    return {c["name"]: c["image"] for c in (*(spec.get("initContainers") or ()), *spec["containers"])}


def pull_secrets_of(daemonset: KubeObject) -> tuple[KubeObject, ...]:
    """The pull secrets that this DaemonSet's pods have."""
    return tuple(daemonset["spec"]["template"]["spec"].get("imagePullSecrets") or ())


def handler_image(daemonset: KubeObject) -> str:
    """The image of the container ``virt-handler``."""
    return images_of(daemonset)[names.HANDLER]


def _template(template: KubeObject, pool: Pool) -> dict[str, t.Any]:
    metadata = template.get("metadata") or {}
    labels = _labels(metadata.get("labels") or {}, pool)
    derived: dict[str, t.Any] = {
        "metadata": {"labels": labels, "annotations": _lasting_annotations(template)},
        "spec": _pod_spec(template["spec"], pool),
    }
    if metadata.get("name"):
        derived["metadata"]["name"] = metadata["name"]
    return derived


def _lasting_annotations(template: KubeObject) -> dict[str, str]:
    annotations = (template.get("metadata") or {}).get("annotations") or {}
    return {key: value for key, value in annotations.items() if not key.startswith(_VOLATILE_ANNOTATIONS)}


def _pod_spec(spec: KubeObject, pool: Pool) -> dict[str, t.Any]:
    derived = t.cast("dict[str, t.Any]", _without_nulls(without_exclusion_terms(dict(spec))))
    derived["nodeSelector"] = {**(derived.get("nodeSelector") or {}), names.OWNER_LABEL: pool.name}
    derived["containers"] = [*(_container(c, pool) for c in derived["containers"]), *_stock_holders(derived, pool)]
    if derived.get("initContainers"):
        derived["initContainers"] = [_container(c, pool) for c in derived["initContainers"]]
    for field, added in (("tolerations", pool.tolerations), ("imagePullSecrets", pool.image_pull_secrets)):
        if added:
            derived[field] = _joined(derived.get(field) or [], added)
    return derived


def _stock_holders(spec: KubeObject, pool: Pool) -> t.Iterator[dict[str, t.Any]]:
    """A container that keeps KubeVirt's own launcher image on the node, next to the one that keeps the pool's.

    Pods that attach hotplugged disks run KubeVirt's image and have no pull secret (KubeVirt): where that image needs one, it must
    be there already.
    """
    if pool.virt_launcher_image and spec.get("imagePullSecrets"):
        for container in spec["containers"]:
            if container["name"] == _IMAGE_HOLDER:
                yield {**container, "name": f"{_IMAGE_HOLDER}-stock"}


def _container(container: dict[str, t.Any], pool: Pool) -> dict[str, t.Any]:
    changed = dict(container)
    if container["name"] in LAUNCHER_CONTAINERS and pool.virt_launcher_image:
        changed["image"] = pool.virt_launcher_image
    if container["name"] == names.LAUNCHER and pool.hypervisor:
        # It looks up what the node can do with its hypervisor.
        hypervisor = HYPERVISORS[pool.hypervisor]
        own = {"PREFERRED_VIRTTYPE": hypervisor.virt_type, "HYPERVISOR_DEVICE": hypervisor.device}
        kept = [variable for variable in container.get("env") or () if variable["name"] not in own]
        changed["env"] = [*kept, *({"name": name, "value": value} for name, value in own.items())]
    if container["name"] == names.HANDLER:
        if pool.virt_handler_image:
            changed["image"] = pool.virt_handler_image
        if pool.resources:
            changed["resources"] = _without_nulls(pool.resources)
        changed.update(_probes(container))
    return changed


def _probes(container: KubeObject) -> dict[str, t.Any]:
    """Probes that find the handler Ready within a second or two of being so.

    KubeVirt asks first after 15 s, and after a failure every 20 s. A startup probe asks every second, and once it succeeds the
    kubelet asks the readiness probe at once (Kubernetes 1.23 and later), unless an initial delay forbids it. A handler that
    never answers is restarted when KubeVirt's liveness probe would have restarted it. From then on both probes are KubeVirt's.
    """
    readiness, liveness = container.get("readinessProbe"), container.get("livenessProbe")
    if not readiness or not liveness or container.get("startupProbe"):
        return {}
    patience = liveness.get("initialDelaySeconds", 0) + liveness["failureThreshold"] * liveness["periodSeconds"]
    readiness = {key: value for key, value in readiness.items() if key != "initialDelaySeconds"}
    return {
        "startupProbe": {**readiness, "periodSeconds": 1, "failureThreshold": patience, "successThreshold": 1},
        "readinessProbe": readiness,
    }


def _labels(labels: t.Mapping[str, str], pool: Pool) -> dict[str, str]:
    others = (names.MANAGED_BY_LABEL, _HCO_APP_LABEL, _VERSION_LABEL)
    kept = {key: value for key, value in labels.items() if key not in others}
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
