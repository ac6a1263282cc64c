# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What whole runs need besides a World: HCO, virt-operator, counts in a DaemonSet's status, kubelets that pull images."""

from __future__ import annotations

import copy
import json
import typing as t

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kubevirt import exclusion
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders
from ansible_collections.virtpools.kubevirt.tests.unit.support.fake_cluster import World

GENERATION = "pod-template-generation"
"""As the DaemonSet controller labels pods."""


class OperatedWorld(World):
    """A world with virt-operator: it keeps the exclusion as the KubeVirt object says, and restarts pods one by one.

    ``rendered``: the KubeVirt spec that HCO renders, without its annotation.
    ``hco_works``: whether HCO's operator runs.
    """

    rendered: t.ClassVar = builders.kubevirt()["spec"]
    hco_works = True

    def _tick(self):
        self._render()
        self._operate()
        super()._tick()
        self._restart_outdated()
        for daemonset in self.all(kinds.DAEMON_SET):
            daemonset["status"].update(self._counts(daemonset))
        self._report_broken()
        for pod in self.all(kinds.POD):
            if names.PULL_LABEL in pod["metadata"].get("labels", {}):
                self._pull(pod)

    def _render(self):
        """HCO, if it is there: the KubeVirt object has what it renders, with the operations of its annotation.

        Seen on the real one: it undoes any other change, accepts an annotation that lacks our operation, takes up operations that
        build on earlier ones, stops at one that cannot be applied, and is TaintedConfiguration while there is any.
        """
        for hyperconverged in self.all(kinds.HYPER_CONVERGED) if self.hco_works else ():
            operations = (hyperconverged["metadata"].get("annotations") or {}).get(names.HCO_PATCH_ANNOTATION, "[]")
            (kubevirt,) = self.all(kinds.KUBEVIRT)
            try:
                spec = _patched(self.rendered, json.loads(operations))
            except (LookupError, ValueError) as error:
                hyperconverged["status"] = {
                    "conditions": [_condition("ReconcileComplete", on=False, message=str(error))]
                }
                continue
            degraded = _is(kubevirt, "Degraded")
            hyperconverged["status"] = {
                "conditions": [
                    _condition("ReconcileComplete", on=True),
                    _condition("Degraded", on=degraded),
                    _condition("Upgradeable", on=not degraded),
                    *([_condition("TaintedConfiguration", on=True)] if json.loads(operations) else []),
                ]
            }
            if kubevirt["spec"] == spec:
                self._since.pop("render", None)
            elif self._lasts("render", self.lag):
                kubevirt["spec"] = spec
                kubevirt["metadata"]["generation"] += 1
                self.touch(kubevirt)

    def _operate(self):
        """virt-operator, which sees changes late, like every controller. The guard refuses a primary without the exclusion, and
        KubeVirt is then Degraded with the guard's sentence (seen on the real one)."""
        (kubevirt,) = self.all(kinds.KUBEVIRT)
        live = self._primary()
        kubevirt["status"]["observedGeneration"] = kubevirt["metadata"]["generation"]
        wanted = exclusion.exclusion_requested(kubevirt)
        spec = builders.primary(excluded=wanted)["spec"]
        version = kubevirt["status"]["targetKubeVirtVersion"]
        if version != builders.VERSION:
            spec = json.loads(json.dumps(spec).replace(builders.VERSION, version))
        guarded = self.find(kinds.VALIDATING_ADMISSION_POLICY_BINDING, names.EXCLUSION_GUARD) is not None
        refused = live["spec"] != spec and guarded and not wanted
        self._report(kubevirt, refused)
        if live["spec"] == spec:
            self._since.pop("operate", None)
        elif self._lasts("operate", self.lag) and not refused:
            live["spec"] = spec
            live["metadata"]["annotations"][names.VERSION_ANNOTATION] = version
            live["metadata"]["generation"] += 1
            self.touch(live)

    def _report(self, kubevirt, refused):
        """What virt-operator reports once in a sync, so also for some time after the guard was deleted."""
        reported = any(names.EXCLUSION_GUARD in each["message"] for each in kubevirt["status"]["conditions"])
        if reported == refused or not self._lasts(("degraded", refused), 5.0):
            return
        self._since.pop(("degraded", refused))
        sentence = (
            f"ValidatingAdmissionPolicy '{names.EXCLUSION_GUARD}' denied request: every required node-affinity term"
        )
        for condition in kubevirt["status"]["conditions"]:
            if condition["type"] in ("Available", "Degraded"):
                condition["status"] = str((condition["type"] == "Degraded") == refused)
                condition["message"] = sentence if refused else ""

    def _report_broken(self):
        """KubeVirt is available only while each of its handlers is Ready."""
        if not any(daemonset == names.HANDLER and each.broken for (daemonset, _node), each in self.behave.items()):
            return
        (kubevirt,) = self.all(kinds.KUBEVIRT)
        for condition in kubevirt["status"]["conditions"]:
            if condition["type"] == "Available":
                condition["status"] = str(all(map(_ready, self._of(self._primary()))))

    def _primary(self):
        return self.find(kinds.DAEMON_SET, names.HANDLER, builders.NAMESPACE)

    def _of(self, daemonset):
        owner = daemonset["metadata"]["name"]
        pods = self.all(kinds.POD)
        return [p for p in pods if (p["metadata"].get("ownerReferences") or [{}])[0].get("name") == owner]

    def _create(self, daemonset, node):
        pod = super()._create(daemonset, node)
        pod["metadata"]["labels"][GENERATION] = str(daemonset["metadata"]["generation"])
        return pod

    def _is_current(self, pod):
        """Whether a pod has the primary's current template; a pod that the test put there has the first one."""
        return pod["metadata"]["labels"].get(GENERATION, "1") == str(self._primary()["metadata"]["generation"])

    def _restart_outdated(self):
        pods = self._of(self._primary())
        outdated = [pod for pod in pods if not self._is_current(pod)]
        if outdated and all(_ready(pod) and "deletionTimestamp" not in pod["metadata"] for pod in pods):
            outdated[0]["metadata"]["deletionTimestamp"] = "now"

    def _counts(self, daemonset):
        pods = self._of(daemonset)
        current = pods if daemonset is not self._primary() else [pod for pod in pods if self._is_current(pod)]
        return {
            "desiredNumberScheduled": sum(fit.wanted for fit in self.fits(daemonset).values()),
            "updatedNumberScheduled": len(current),
            "numberReady": sum(map(_ready, pods)),
        }

    def _pull(self, pod):
        if not self._lasts(("pull", pod["metadata"]["uid"]), 1.0):
            return
        images = [container["image"] for container in pod["spec"]["containers"]]
        node = self.find(kinds.NODE, pod["spec"]["nodeName"])
        had = [each["names"] for each in node["status"]["images"]]
        node["status"]["images"] += [{"names": [image]} for image in images if [image] not in had]
        pod["status"] = builders.pulled(pod)


def _ready(pod):
    return pod["status"]["conditions"][0]["status"] == "True"


def _condition(kind, *, on, message=""):
    return {"type": kind, "status": str(on), "message": message}


def _is(obj, kind):
    return any(each["type"] == kind and each["status"] == "True" for each in obj["status"].get("conditions", ()))


def _patched(spec, operations):
    """A KubeVirt spec with operations of HyperConverged's annotation."""
    document = {"spec": copy.deepcopy(spec)}
    for operation in operations:
        *above, last = operation["path"].lstrip("/").split("/")
        target = document
        for part in above:
            target = target[part]
        if isinstance(target, list):
            assert (operation["op"], last) == ("add", "-"), operation
            target.append(operation["value"])
        else:
            assert operation["op"] in ("add", "replace"), operation
            if operation["op"] == "replace":
                target[last]
            target[last] = copy.deepcopy(operation["value"])
    return document["spec"]
