# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whole runs on a cluster in memory that begins as a test wants it: their pools, the cluster, and what a user could see of it."""

from __future__ import annotations

import contextlib
import copy
import functools
import json
import os
import pickle
from dataclasses import dataclass, replace

from ansible_collections.virtpools.kubevirt.plugins.module_utils import module_base
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.client import Cluster
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.lease import RunLease
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.waiting import Clock
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.admission import launcher_policy
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms.launcher_pods import LauncherPod
from ansible_collections.virtpools.kubevirt.plugins.modules import run_lease
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders, fake_vms
from ansible_collections.virtpools.kubevirt.tests.unit.support.admission import Admission, GuardAdmission, NodeAdmission
from ansible_collections.virtpools.kubevirt.tests.unit.support.disturbance import Disturbance, is_write
from ansible_collections.virtpools.kubevirt.tests.unit.support.fake_migrations import MIGRATION, Kubevirt
from ansible_collections.virtpools.kubevirt.tests.unit.support.fake_operator import GENERATION, OperatedWorld
from ansible_collections.virtpools.kubevirt.tests.unit.support.roles import Play, TaskFailed

NEW = f"{builders.VERSION}-new"
STOCK = builders.LAUNCHER_IMAGE
GPU = {
    **builders.RAW_POOL,
    "virtLauncherImage": builders.GPU_LAUNCHER_IMAGE,
    "selector": {"vmLabels": {"matchLabels": {"class": "gpu"}}},
}
RT = {"name": "rt", "nodeSelector": {"hw": "rt"}, "virtHandlerImage": f"{builders.HANDLER_IMAGE}-rt"}
NEXT_GPU = {
    **GPU,
    "virtHandlerImage": f"registry.example/virt-handler:{NEW}",
    "virtLauncherImage": f"registry.example/virt-launcher:{NEW}",
}
ALL = bool(os.environ.get("VIRTPOOLS_TEST_ALL"))
"""Each fault at each write, and each build with a field of its own; else each write meets one fault, each fault many writes, and
moves between the modes one build. The power fails at each write."""


@dataclass(frozen=True)
class Run:
    """A role with its variables, on a cluster of that kind that earlier runs have brought where it is."""

    role: str
    variables: dict
    after: Run | None = None
    cluster: str = "stock"
    kubevirt: str = builders.VERSION
    """The version that KubeVirt has by then."""

    def then(self, role, **variables):
        return Run(role, variables, self, self.cluster, self.kubevirt)

    def with_kubevirt(self, version):
        return replace(self, kubevirt=version)


FIRST = Run("pools", {"virtpools_pools": [GPU, RT]})
NEXT_VERSION = "v1.10.0"
FOR_NEXT_VERSION = [
    {field: value.replace(builders.VERSION, NEXT_VERSION) if "Image" in field else value for field, value in of.items()}
    for of in (GPU, RT)
]
PREPARED = FIRST.then("upgrade", virtpools_pools=FOR_NEXT_VERSION, virtpools_upgrade_to=NEXT_VERSION)
FOLLOWED = PREPARED.then("upgrade", **PREPARED.variables).with_kubevirt(NEXT_VERSION)
TAKEN_BACK = PREPARED.then("upgrade", virtpools_pools=[GPU, RT], virtpools_upgrade_to=builders.VERSION)
"""An upgrade of KubeVirt: before it, after it, and when it does not take place."""
LIVELY = (names.HEARTBEAT_ANNOTATION, names.SCHEDULABLE_LABEL, names.CONTENTS_ANNOTATION)
"""What handlers report, and which images runs have looked into."""


class Stage:
    """Makes runs on clusters that begin as they are told."""

    def __init__(self, runner, monkeypatch):
        # Once for all clusters: monkeypatch keeps what it replaced, and with it each of thousands of clusters.
        self._runner = runner

        def sleep(seconds):
            runner.world.sleep(seconds)

        clocked = {"clock": lambda: runner.world.now, "sleep": sleep}
        lease = functools.partial(RunLease, clock=Clock(now=clocked["clock"], sleep=sleep))
        monkeypatch.setattr(module_base, "RunLease", lease)
        monkeypatch.setattr(run_lease, "RunLease", lease)
        monkeypatch.setattr(Cluster, "connect", lambda params: Cluster(runner.world, **clocked))

    def on(self, objects, number=0, fault="", migrated=None, cuts=None):
        """A cluster, and what disturbs it from now on; ``migrated``: what migrations make of VMs.

        ``cuts``: a list that gets the objects as each write left them, which is what a power cut leaves.
        """
        world = OperatedWorld(*objects)
        world.now = self._runner.world.now  # the time goes on: epochs follow it
        admission = self.admission = Admission(world)
        NodeAdmission(world, [GPU, RT])
        GuardAdmission(world)
        Kubevirt(world, **(migrated or {}))
        fake_vms.Kubevirt(world, on=None, admitted=admission.admitted)
        self._runner.world = world
        disturbance = Disturbance(number, fault, clock=lambda: world.now, sleep=world.sleep)
        send = world.send

        def disturbed(request):
            answer = disturbance(request, lambda: send(request))
            if cuts is not None and is_write(request):
                cuts.append(pickle.loads(pickle.dumps([*world.objects.values()])))  # deepcopy takes four times as long
            return answer

        world.send = disturbed
        return world, disturbance

    def run(self, role, variables):
        """Run a role, and return the lines that people see."""
        play = Play(self._runner)
        play.role(role, **{**variables, "virtpools_max_unavailable": 2})
        return play.shown

    def job(self, role, variables, *, check=False):
        """Run a role as a job template of AWX does, and return the artifacts. The error of a job that fails has them, too."""
        play = Play(self._runner, check=check)
        try:
            play.role(role, **{"virtpools_max_unavailable": 2, **variables})
        except TaskFailed as error:
            error.artifacts = play.stats
            raise
        return play.stats


def stock(cluster=""):
    """A cluster without pools: ``HCO`` owns its KubeVirt object, or KubeVirt is ``updating`` VMs."""
    found = {"n1": {"hw": "gpu"}, "n2": {"hw": "gpu", "disk": "big"}, "n3": {"hw": "rt"}, "n4": {}}
    nodes = [builders.node(name, labels={"kubernetes.io/arch": "amd64", **labels}) for name, labels in found.items()]
    sets = [builders.primary(excluded=False, desired=4)]
    kubevirt, others = builders.kubevirt(), [kinds.NAMESPACE.object("default")]
    if cluster == "updating":
        kubevirt["spec"]["workloadUpdateStrategy"] = {"workloadUpdateMethods": ["LiveMigrate"]}
    if cluster == "HCO":
        kubevirt["metadata"]["labels"] = {names.MANAGED_BY_LABEL: "hco-operator"}
        others.append(kinds.HYPER_CONVERGED.object(names.HCO_NAME, builders.NAMESPACE, spec={}))
    return [kubevirt, *others, *sets, *nodes, *builders.handlers_of(nodes, sets)]


def at_version(objects, version):
    """The same cluster once virt-operator has brought it to this version of KubeVirt."""
    objects = copy.deepcopy(objects)
    (kubevirt,) = (obj for obj in objects if obj["kind"] == kinds.KUBEVIRT.name)
    former = kubevirt["status"]["observedKubeVirtVersion"]
    if former == version:
        return objects
    for which in ("observed", "target"):
        kubevirt["status"][f"{which}KubeVirtVersion"] = version
    (primary,) = (obj for obj in objects if _is_primary(obj))
    primary.update(json.loads(json.dumps(primary).replace(former, version)))
    primary["metadata"]["generation"] += 1
    primary["status"]["observedGeneration"] = primary["metadata"]["generation"]
    for pod in (obj for obj in objects if _owner_of(obj) == names.HANDLER):
        pod["metadata"]["labels"][GENERATION] = str(primary["metadata"]["generation"])
    return objects


def _is_primary(obj):
    return (obj["kind"], obj["metadata"]["name"]) == (kinds.DAEMON_SET.name, names.HANDLER)


def _owner_of(obj):
    return (obj["metadata"].get("ownerReferences") or [{}])[0].get("name")


def state(world):
    """All that a user could see afterwards, but not what changes by itself."""
    return {"/".join(map(str, key)): _lasting(obj) for key, obj in world.objects.items() if not _comes_and_goes(obj)}


def _comes_and_goes(obj):
    if obj["kind"] == kinds.CONTROLLER_REVISION.name:
        return True
    return obj["kind"] == MIGRATION.name or (obj["kind"] == "Pod" and names.PULL_LABEL not in obj["metadata"]["labels"])


def _lasting(obj):
    if launcher_policy.epoch_of(obj) is not None:
        obj = launcher_policy.with_epoch(obj, 0)  # epochs follow the time, and the number of tries
    metadata = {
        part: {key: value for key, value in (obj["metadata"].get(part) or {}).items() if key not in LIVELY}
        for part in ("labels", "annotations")
    }
    data = obj.get("data")
    if (obj["kind"], obj["metadata"]["name"]) == (kinds.CONFIG_MAP.name, names.HISTORY):
        newest = json.loads(data["entries"])[-1:]
        data = {
            **{key: data.get(key) for key in ("goingTo", "openWaves")},
            "options": [each["options"] for each in newest],
        }
    return {**metadata, "spec": obj.get("spec"), "data": data}


def handlers(world):
    return {node["metadata"]["name"]: world.handlers(node["metadata"]["name"]) for node in world.all(kinds.NODE)}


def guests(world):
    """Where VMs run, with which launcher image."""
    pods = (
        pod for pod in world.all(kinds.POD) if pod["metadata"]["labels"].get(names.KUBEVIRT_LABEL) == names.LAUNCHER
    )
    return [
        (pod["spec"]["nodeName"], *LauncherPod.from_object(pod).launcher_images.values())
        for pod in pods
        if pod["status"]["phase"] == "Running"
    ]


def outcome(world):
    return {**state(world), "handlers": handlers(world), "guests": guests(world)}


@contextlib.contextmanager
def told(where):
    try:
        yield
    except (AssertionError, TaskFailed) as error:
        raise AssertionError(f"{where}: {error}") from error
