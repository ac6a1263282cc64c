# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rest of a cluster that whole runs need: virt-operator, counts in DaemonSets' status, kubelets that pull images."""

from __future__ import annotations

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import assignment, exclusion, kinds, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.snapshot import Node
from ansible_collections.virtpools.kubevirt.tests.unit import builders
from ansible_collections.virtpools.kubevirt.tests.unit.fake_cluster import World


class OperatedWorld(World):
    """A world whose primary gets and loses the exclusion as the KubeVirt object says, and restarts one by one."""

    def __init__(self, *objects, **others):
        super().__init__(*objects, **others)
        self._generations = {}

    def _tick(self):
        self._operate()
        super()._tick()
        self._restart_outdated()
        for daemonset in self.all(kinds.DAEMON_SET):
            daemonset["status"].update(self._counts(daemonset))
        for pod in self.all(kinds.POD):
            if names.PULL_LABEL in pod["metadata"].get("labels", {}):
                self._pull(pod)

    def _operate(self):
        """virt-operator: late, as all controllers."""
        (kubevirt,) = self.all(kinds.KUBEVIRT)
        live = self._primary()
        kubevirt["status"]["observedGeneration"] = kubevirt["metadata"]["generation"]
        spec = builders.primary(excluded=exclusion.exclusion_requested(kubevirt))["spec"]
        if live["spec"] == spec:
            self._since.pop("operate", None)
        elif self._lasts("operate", self.lag):
            live["spec"] = spec
            live["metadata"]["generation"] += 1
            self.touch(live)

    def _primary(self):
        return self.find(kinds.DAEMON_SET, names.HANDLER, builders.NAMESPACE)

    def _of(self, daemonset):
        owner = daemonset["metadata"]["name"]
        pods = self.all(kinds.POD)
        return [p for p in pods if (p["metadata"].get("ownerReferences") or [{}])[0].get("name") == owner]

    def _create(self, daemonset, node):
        super()._create(daemonset, node)
        for pod in self._of(daemonset):
            self._generations.setdefault(pod["metadata"]["name"], daemonset["metadata"]["generation"])

    def _is_current(self, pod):
        """Pods that were there before are of the first generation."""
        return self._generations.get(pod["metadata"]["name"], 1) == self._primary()["metadata"]["generation"]

    def _restart_outdated(self):
        pods = self._of(self._primary())
        outdated = [pod for pod in pods if not self._is_current(pod)]
        if outdated and all(_ready(pod) and "deletionTimestamp" not in pod["metadata"] for pod in pods):
            outdated[0]["metadata"]["deletionTimestamp"] = "now"

    def _counts(self, daemonset):
        template, pods = daemonset["spec"]["template"], self._of(daemonset)
        selected = template["spec"]["nodeSelector"].get(names.OWNER_LABEL)
        nodes = [Node.of(obj) for obj in self.all(kinds.NODE)]
        wanted = [
            node
            for node in nodes
            if assignment.unfit(template, node) is None and selected in (None, node.labels.get(names.OWNER_LABEL))
        ]
        current = pods if daemonset is not self._primary() else [pod for pod in pods if self._is_current(pod)]
        return {
            "desiredNumberScheduled": len(wanted),
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
        ended = [{"name": f"image-{i}", "image": image, "state": {"terminated": {}}} for i, image in enumerate(images)]
        pod["status"] = {"phase": "Failed", "containerStatuses": ended}


def _ready(pod):
    return pod["status"]["conditions"][0]["status"] == "True"
