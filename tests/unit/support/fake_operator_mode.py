# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""virt-operator of the three builds of KubeVirt with pools of their own, written from what the real ones do, not from our code.

``A``: additionalVirtHandlers, ``B``: virtHandlerPools, ``C``: WorkerPool objects. Their unsafe sides are here, too.
"""

from __future__ import annotations

import copy
import json

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.objects import is_managed
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders
from ansible_collections.virtpools.kubevirt.tests.unit.support.fake_cluster import Refused
from ansible_collections.virtpools.kubevirt.tests.unit.support.fake_operator import GENERATION, OperatedWorld

FIELDS = {"A": "additionalVirtHandlers", "B": "virtHandlerPools", "C": None}
GATES = {"A": "AdditionalVirtHandlers", "B": "VirtHandlerPools", "C": "WorkerPools"}
LABELS = {"A": "kubevirt.io/handler-pool", "B": "kubevirt.io/handler-pool", "C": "kubevirt.io/worker-pool"}
HOLDER = "virt-launcher-image-holder"


def crd(*fields):
    """The KubeVirt CRD with these fields in its spec."""
    schema = {"properties": {"spec": {"properties": {name: {"type": "array"} for name in ("infra", *fields)}}}}
    version = {"name": "v1", "served": True, "schema": {"openAPIV3Schema": schema}}
    return kinds.CUSTOM_RESOURCE_DEFINITION.object("kubevirts.kubevirt.io", spec={"versions": [version]})


def kubevirt(*, entries=None, field=None, gates=None, **fields):
    obj = builders.kubevirt(**fields)
    if gates is not None:
        obj["spec"]["configuration"] = {"developerConfiguration": {"featureGates": list(gates)}}
    if entries is not None:
        obj["spec"][field] = entries
    return obj


def worker_pool(name, **spec):
    return kinds.WORKER_POOL.object(name, spec=spec)


def primary(**fields):
    """The primary with the container that keeps the launcher image, as KubeVirt 1.9 has it."""
    daemonset = builders.primary(excluded=False, **fields)
    holder = {"name": HOLDER, "image": builders.LAUNCHER_IMAGE}
    daemonset["spec"]["template"]["spec"]["containers"].append(holder)
    return daemonset


class OperatorModeWorld(OperatedWorld):
    """A cluster of one build. ``pace``: seconds between what the operator notices and what it does."""

    def __init__(self, build, *objects, fields=None, **others):
        self.build = build
        own = [FIELDS[build]] if FIELDS[build] else []
        unserved = set(others.pop("unserved", ())) | (set() if build == "C" else {"WorkerPool"})
        super().__init__(crd(*(own if fields is None else fields)), *objects, unserved=unserved, **others)
        self.synced = None
        self.gated = False
        self.bare = {}
        """Ticks in which a node had no handler, by node."""
        self.rewritten = lambda daemonset: daemonset
        """What admission makes of a pool's DaemonSet."""
        for pod in self.all(kinds.POD):
            pod["spec"].setdefault("containers", self._containers(self._primary()))

    # The webhooks

    def _wanted(self, live, request, applied):
        wanted = super()._wanted(live, request, applied)
        if wanted.get("kind") == "KubeVirt" and self.build == "B":
            entries = wanted["spec"].get("virtHandlerPools") or []
            if entries and GATES["B"] not in self._gates(wanted):
                raise _denied("virtHandlerPools requires the VirtHandlerPools feature gate")
            for entry in entries:
                _check(entry, entry.get("nodeSelector"))
            if len({entry["name"] for entry in entries}) != len(entries):
                raise _denied("duplicate pool name")
        if wanted.get("kind") == "WorkerPool":
            _check(wanted["spec"], wanted["spec"].get("nodeSelector"))
        return wanted

    # The operator

    def _gates(self, obj):
        configuration = obj["spec"].get("configuration") or {}
        return (configuration.get("developerConfiguration") or {}).get("featureGates") or []

    def _wanted_pools(self, obj):
        """Name and spec of each pool that the operator knows of."""
        if GATES[self.build] not in self._gates(obj):
            return {}
        if self.build == "C":
            return {each["metadata"]["name"]: each["spec"] for each in self.all(kinds.WORKER_POOL)}
        return {entry["name"]: entry for entry in obj["spec"].get(FIELDS[self.build]) or []}

    def _operate(self):
        (obj,) = self.all(kinds.KUBEVIRT)
        pools, generation = self._wanted_pools(obj), obj["metadata"]["generation"]
        live = {self._pool_of(ds): ds for ds in self.all(kinds.DAEMON_SET) if self._pool_of(ds)}
        if self.synced is None:
            self.synced = generation if not pools else generation - 1
            self.gated = GATES[self.build] in self._gates(obj)
        if self.build == "C" and GATES["C"] in self._gates(obj):
            # A WorkerPool event makes and deletes DaemonSets, and changes none. While the gate has just been turned on, the primary
            # comes first.
            for name in pools.keys() - live.keys() if self.gated else ():
                if self._lasts(("made", name), self.lag):
                    self.put(self._daemonset(name, pools[name], obj))
            for name in live.keys() - pools.keys():
                self._delete(live[name])
        if generation != self.synced and self._lasts(("sync", generation), self.lag):
            self._sync(obj, pools, live)
        if self.build == "A":  # the list and its gate are in the deployment's ID
            obj["status"]["targetDeploymentID"] = self._deployment(obj, pools)
        if self._settled(obj):
            obj["status"]["observedGeneration"] = generation
            obj["status"]["observedDeploymentID"] = obj["status"]["targetDeploymentID"]
        if self.build == "A":
            self._note_deployment(obj["status"])

    def _deployment(self, obj, pools):
        """What is rolled out, with the list and the gate."""
        return json.dumps(pools, sort_keys=True) if GATES["A"] in self._gates(obj) else "d1"

    def _note_deployment(self, status):
        """While one deployment replaces another, Progressing and Degraded are True (seen on the real build)."""
        replacing = status["observedDeploymentID"] != status["targetDeploymentID"]
        for each in status["conditions"]:
            is_so = replacing or each["type"] == "Available"
            reason = "UpdateInProgress" if replacing else "AllComponentsReady"
            each.update(status="True" if is_so else "False", reason=reason)

    def _sync(self, obj, pools, live):
        """One pass: the primary, and only when its rollout has ended the pools; what is too much goes last."""
        self._patch(self._primary(), self._primary_spec(obj, pools))
        if not self._rolled_out(self._primary()):
            return
        for name, spec in pools.items():
            wanted = self._daemonset(name, spec, obj)
            if name in live:
                self._patch(live[name], wanted["spec"])
                live[name]["metadata"]["annotations"] = self._written_for(obj)
            else:
                self.put(wanted)
                return
            if not self._rolled_out(live[name]):
                return
        if self.build != "C":
            for name in live.keys() - pools.keys():
                self._delete(live[name])
        self.synced = obj["metadata"]["generation"]
        self.gated = GATES[self.build] in self._gates(obj)

    def _settled(self, obj):
        """B and C claim to be done before the DaemonSets of pools exist, or are rolled out; not while one has no node."""
        generation = obj["metadata"]["generation"]
        if self.build == "A":
            return self.synced == generation and all(map(self._rolled_out, self._handler_sets()))
        primary = self._primary()
        written = self.synced == generation or self._lasts(("primary", generation), self.lag + 1)
        desired = (self._counts(each)["desiredNumberScheduled"] for each in self._handler_sets())
        return written and self._rolled_out(primary) and all(desired)

    def _handler_sets(self):
        """Its own; it does not see ours."""
        handlers = (ds for ds in self.all(kinds.DAEMON_SET) if ds["metadata"]["name"].startswith(names.HANDLER))
        return [ds for ds in handlers if not is_managed(ds)]

    def _rolled_out(self, daemonset):
        status = self._counts(daemonset)
        desired = status["desiredNumberScheduled"]
        return desired == status["updatedNumberScheduled"] == status["numberReady"] and desired > 0

    def _patch(self, live, spec):
        if live["spec"] != spec:
            live["spec"] = copy.deepcopy(spec)
            live["metadata"]["generation"] = live["metadata"].get("generation", 1) + 1
            self.touch(live)

    def _delete(self, daemonset):
        for pod in self._of(daemonset):
            pod["metadata"].setdefault("deletionTimestamp", "now")
        self.drop(kinds.DAEMON_SET, daemonset["metadata"]["name"], builders.NAMESPACE)

    def _pool_of(self, daemonset):
        return (daemonset["metadata"].get("labels") or {}).get(LABELS[self.build])

    # What it makes

    def _placement(self, obj):
        return ((obj["spec"].get("workloads") or {}).get("nodePlacement")) or {}

    def _terms(self, obj):
        required = self._placement(obj).get("affinity", {}).get("nodeAffinity", {}).get(names.REQUIRED_AFFINITY, {})
        return [_without_empty(term) for term in required.get("nodeSelectorTerms", [])]

    def _base(self, obj):
        spec = primary()["spec"]
        placement = self._placement(obj)
        pod = spec["template"]["spec"]
        pod["nodeSelector"].update(placement.get("nodeSelector") or {})
        pod["tolerations"] += placement.get("tolerations") or []
        return spec

    def _primary_spec(self, obj, pools):
        spec, terms = self._base(obj), self._terms(obj)
        for patch in (obj["spec"].get("customizeComponents") or {}).get("patches") or ():
            patched = json.loads(patch["patch"])["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
            terms = [*patched[names.REQUIRED_AFFINITY]["nodeSelectorTerms"], *terms]
        exclusion = [
            {"key": key, "operator": "NotIn", "values": [value]}
            for pool in pools.values()
            for key, value in sorted(pool["nodeSelector"].items())
        ]
        if exclusion and self.build == "A":
            for term in terms:
                term.setdefault("matchExpressions", []).extend(exclusion)
            terms = terms or [{"matchExpressions": exclusion}]
        elif exclusion:
            terms = [{"matchExpressions": exclusion}, *terms]
        if terms:
            spec["template"]["spec"]["affinity"] = builders.affinity(*terms)
        return self._identified(spec, obj, pools)

    def _identified(self, spec, obj, pools):
        """The spec of a DaemonSet with the deployment for which it is written, which rolls it out."""
        if self.build == "A" and GATES["A"] in self._gates(obj):
            metadata = spec["template"].setdefault("metadata", {})
            others = metadata.get("annotations") or {}
            metadata["annotations"] = {**others, names.DEPLOYMENT_ANNOTATION: self._deployment(obj, pools)}
        return spec

    def _daemonset(self, name, pool, obj):
        spec = primary()["spec"] if self.build == "A" else self._base(obj)
        pod = spec["template"]["spec"]
        if self.build == "A":
            pod["tolerations"] = []
        elif self._terms(obj):
            pod["affinity"] = builders.affinity(*self._terms(obj))
        pod["nodeSelector"] = {
            **(pod["nodeSelector"] if self.build == "B" else {"kubernetes.io/os": "linux"}),
            **pool["nodeSelector"],
        }
        for place in ("initContainers", "containers"):
            for number, container in enumerate(pod[place]):
                if self.build == "C" and (place, number) != ("containers", 0):
                    continue
                field = "virtHandlerImage" if container["name"] == names.HANDLER else "virtLauncherImage"
                container["image"] = pool.get(field) or container["image"]
        spec = self._identified(spec, obj, self._wanted_pools(obj))
        labels = {LABELS[self.build]: name, "app.kubernetes.io/managed-by": "virt-operator"}
        daemonset = kinds.DAEMON_SET.object(names.pool_daemonset_name(name), builders.NAMESPACE, spec=spec)
        daemonset["metadata"].update(labels=labels, generation=1, annotations=self._written_for(obj))
        return self.rewritten(daemonset)

    def _written_for(self, obj):
        return {names.GENERATION_ANNOTATION: str(obj["metadata"]["generation"])}

    # Its pods

    def _containers(self, daemonset):
        spec = daemonset["spec"]["template"]["spec"]
        return [
            {"name": each["name"], "image": each["image"]} for each in (*spec["initContainers"], *spec["containers"])
        ]

    def _create(self, daemonset, node):
        pod = super()._create(daemonset, node)
        pod["spec"]["containers"] = self._containers(daemonset)
        return pod

    def _current(self, daemonset, pod):
        return pod["metadata"]["labels"].get(GENERATION, "1") == str(daemonset["metadata"].get("generation", 1))

    def _restart_outdated(self):
        for daemonset in self._handler_sets():
            pods = self._of(daemonset)
            outdated = [pod for pod in pods if not self._current(daemonset, pod)]
            if outdated and all(self._is_ready(p) and "deletionTimestamp" not in p["metadata"] for p in pods):
                outdated[0]["metadata"]["deletionTimestamp"] = "now"
        for node in self.all(kinds.NODE):
            name = node["metadata"]["name"]
            if not self.pods(name):
                self.bare[name] = self.bare.get(name, 0) + 1

    def _counts(self, daemonset):
        counts = super()._counts(daemonset)
        pods = [pod for pod in self._of(daemonset) if self._current(daemonset, pod)]
        return {**counts, "updatedNumberScheduled": len(pods)}


def _without_empty(value):
    """A copy without empty fields, which no API server stores."""
    if isinstance(value, dict):
        return {key: _without_empty(item) for key, item in value.items() if item not in ([], {}, None)}
    return [_without_empty(item) for item in value] if isinstance(value, list) else value


def _check(spec, node_selector):
    if not (spec.get("virtHandlerImage") or spec.get("virtLauncherImage")):
        raise _denied("at least one image must be set")
    selector = spec.get("selector") or {}
    if not (selector.get("deviceNames") or (selector.get("vmLabels") or {}).get("matchLabels")):
        raise _denied("selector must have at least one criterion")
    if not node_selector:
        raise _denied("nodeSelector must not be empty")


def _denied(message):
    return Refused(
        403, "Forbidden", f'admission webhook "kubevirt-update-validator.kubevirt.io" denied the request: {message}'
    )
