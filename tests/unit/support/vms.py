# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A cluster with a pool, its launcher policy and VMs. Nothing is wrong with it unless a test makes it so."""

from __future__ import annotations

import copy
import json

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.admission import launcher_policy
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.observed import snapshot
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning import plan
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.options import Options
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms.mapping import Table
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders, launcher_cases
from ansible_collections.virtpools.kubevirt.tests.unit.support.aie_webhook import webhook_of

IMAGE, STOCK = builders.GPU_LAUNCHER_IMAGE, builders.LAUNCHER_IMAGE
DEVICE = launcher_cases.A100
POLICY_MADE, LATER, EARLIER = "2026-11-01T12:00:00Z", "2026-11-02T12:00:00Z", "2026-10-31T12:00:00Z"


def gpu(name="gpu", **fields):
    """A pool for VMs with the device, on the nodes labelled ``hw=gpu``."""
    return builders.pool(
        name,
        **{
            "nodeSelector": {"hw": "gpu"},
            "virtHandlerImage": builders.GPU_IMAGE,
            "virtLauncherImage": IMAGE,
            "selector": {"deviceNames": [DEVICE]},
            **fields,
        },
    )


def policy(pool=None, created=POLICY_MADE):
    """The launcher policy of a pool and its binding, as the API serves them."""
    table = Table.for_pools([gpu() if pool is None else pool])
    objects = [obj for _kind, obj in launcher_policy.derive(table, builders.NAMESPACE, _kind())]
    for obj in objects:
        obj["metadata"]["creationTimestamp"] = created
    return copy.deepcopy(objects)


def beside_webhook(*rules):
    """The launcher policy, and the ConfigMap of kubevirt-aie-webhook with these rules of its owner."""
    text = json.dumps({"rules": rules})
    return [*policy(), kinds.CONFIG_MAP.object(names.AIE_CONFIG, builders.NAMESPACE, data={"config.yaml": text})]


def by_webhook(pod, image):
    """The pod after kubevirt-aie-webhook has changed it: after the policy, and in the container ``compute`` alone (seen)."""
    next(each for each in pod["spec"]["containers"] if each["name"] == names.COMPUTE)["image"] = image
    pod["metadata"].setdefault("annotations", {})["kubevirt.io/alternative-launcher-image"] = image
    return pod


def canary_vm(name="virt-canary-gpu", namespace="team-a", **labels):
    """The canary VM of pool gpu, or a copy of it under another name."""
    vm = kinds.VIRTUAL_MACHINE.object(name, namespace, spec={"template": {"metadata": {"labels": {}}, "spec": {}}})
    vm["metadata"]["labels"] = {names.MANAGED_BY_LABEL: names.MANAGED_BY, names.CANARY_LABEL: "gpu", **labels}
    return vm


def digest(pool=None):
    return launcher_policy.digest_of(Table.for_pools([gpu() if pool is None else pool]), builders.NAMESPACE)


def admission(*objects, **fields):
    """The admission part of a snapshot, with these live objects."""
    by_name = {(obj["kind"], obj["metadata"]["name"]): obj for obj in objects}
    webhook = by_name.get(("ConfigMap", names.AIE_CONFIG))
    fields.setdefault("webhook", webhook and webhook_of(webhook))
    return snapshot.Admission(**{"policy_kind": _kind(), "version": "v1.36.3", "objects": by_name, **fields})


def node(name, owner=None, **fields):
    """A node; one whose name begins with gpu has the label and the device of the pool."""
    labels = {"kubernetes.io/arch": "amd64", **({"hw": "gpu"} if name.startswith("gpu") else {})}
    obj = builders.node(name, owner, labels=labels, **fields)
    obj["status"]["allocatable"] = {DEVICE: "8"} if name.startswith("gpu") else {}
    return obj


def nodes():
    """Two nodes of the pool and one of the primary."""
    return [*(node(f"gpu-{number}", "gpu") for number in (0, 1)), node("rest")]


def plan_of(pool=None, *, of_nodes=None, objects=None, **fields):
    """The plan of a cluster that has this pool and, unless ``objects`` says otherwise, its launcher policy."""
    pool = gpu() if pool is None else pool
    live = policy(pool) if objects is None else objects
    cluster = builders.snapshot_of(
        nodes() if of_nodes is None else of_nodes, [pool], admission=admission(*live), **fields
    )
    return plan.make_plan(cluster, [pool], Options())


def launcher(name="vm", on="gpu-0", pool="gpu", *, device=True, image=None, made_by=None, **fields):
    """The launcher pod of a VM that the policy assigned to ``pool``; None: the policy never saw the pod.

    ``made_by`` is the policy's digest. ``labels``, ``node_selector``, ``tolerations``, ``kind`` and ``namespace`` go to
    ``launcher_cases.launcher_pod``; other fields go into the pod's metadata.
    """
    of_case = {
        key: fields.pop(key) for key in ("labels", "node_selector", "tolerations", "kind", "namespace") if key in fields
    }
    requirement = {"key": names.OWNER_LABEL, "operator": "In", "values": [pool]}
    if pool in (None, names.PRIMARY):
        requirement = {"key": names.OWNER_LABEL, "operator": "DoesNotExist"}
    pod = launcher_cases.launcher_pod(
        name=f"virt-launcher-{name}",
        devices={DEVICE: 1} if device else None,
        affinity=None if pool is None else builders.affinity({"matchExpressions": [requirement]}),
        stock=image or (IMAGE if pool == "gpu" else STOCK),
        **of_case,
    )
    metadata, spec = pod["metadata"], pod["spec"]
    reference = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": name, "controller": True}
    metadata.update(
        uid=f"uid-pod-{name}-{on}",
        creationTimestamp=fields.pop("created", LATER),
        ownerReferences=[{**reference, "uid": f"uid-{name}"}],
    )
    if pool is not None:
        metadata["annotations"].update({names.OWNER_LABEL: pool, names.POLICY_ANNOTATION: made_by or digest()})
        spec["containers"][0]["env"].append({"name": names.POOL_ENV, "value": pool})
    if on:
        spec["nodeName"] = on
    pod["status"] = {"phase": fields.pop("phase", "Running" if on else "Pending"), **fields.pop("status", {})}
    metadata.update(fields)
    return pod


def unschedulable(message="0/3 nodes are available: 3 Insufficient nvidia.com/x."):
    """The status of a pod for which the scheduler finds no node."""
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return {"conditions": [condition]}


def vmi(name="vm", on="gpu-0", *, migratable=True, phase="Running", namespace="plain", **status):
    """A VMI; ``migratable`` is None as long as KubeVirt has not said."""
    conditions = [] if migratable is None else [{"type": "LiveMigratable", "status": str(migratable)}]
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}"},
        "spec": {},
        "status": {"phase": phase, "nodeName": on, "conditions": conditions, **status},
    }


def _kind():
    return kinds.MUTATING_ADMISSION_POLICIES[0]
