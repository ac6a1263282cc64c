# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Kubernetes objects as a cluster with KubeVirt serves them, for tests: small, complete, and new with every call."""

from __future__ import annotations

import copy
import dataclasses
import json
import time

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kubevirt import (
    daemonsets,
    exclusion,
    image_contents,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kubevirt.image_contents import Contents
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.observed import snapshot
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning import history
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools.dialects import OWN, read_dialect

NAMESPACE = "kubevirt"
VERSION = "v1.9.0"
HANDLER_IMAGE = f"registry.example/virt-handler:{VERSION}"
LAUNCHER_IMAGE = f"registry.example/virt-launcher:{VERSION}"
GPU_IMAGE = f"registry.example/virt-handler:{VERSION}-gpu"
GPU_LAUNCHER_IMAGE = f"registry.example/virt-launcher:{VERSION}-gpu"

EXCLUSION_TERM = {"matchExpressions": [{"key": names.OWNER_LABEL, "operator": "DoesNotExist"}]}
RAW_POOL = {"name": "gpu", "nodeSelector": {"hw": "gpu"}, "virtHandlerImage": GPU_IMAGE}
"""``pool()`` as users write it."""


def pool(name="gpu", **fields):
    """A pool on the nodes labelled ``hw=<name>``."""
    (parsed,) = read_dialect(
        OWN, [{"name": name, "nodeSelector": {"hw": name}, "virtHandlerImage": f"{HANDLER_IMAGE}-{name}", **fields}]
    )
    return parsed


def kubevirt(*patches, placement=None, conditions=None, generation=2, **status):
    """A KubeVirt object that is deployed and has settled."""
    healthy = {"Available": "True", "Progressing": "False", "Degraded": "False", **(conditions or {})}
    spec = {"customizeComponents": {"patches": list(patches)} if patches else {}}
    if placement is not None:
        spec["workloads"] = {"nodePlacement": placement}
    deployment = {
        f"{which}{part}": value
        for which in ("observed", "target")
        for part, value in (
            ("KubeVirtVersion", VERSION),
            ("KubeVirtRegistry", "registry.example"),
            ("DeploymentID", "d1"),
        )
    }
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "KubeVirt",
        "metadata": {
            "name": "kubevirt",
            "namespace": NAMESPACE,
            "uid": "uid-kubevirt",
            "generation": generation,
            "resourceVersion": "10",
        },
        "spec": spec,
        "status": {
            "conditions": [{"type": kind, "status": value, "message": f"{kind}?"} for kind, value in healthy.items()],
            "observedGeneration": generation,
            "phase": "Deployed",
            **deployment,
            **status,
        },
    }


def excluding_kubevirt(**fields):
    """A KubeVirt object that has the exclusion already."""
    return kubevirt(dict(exclusion.PATCH), **fields)


def under_hco(of_kubevirt, *terms, operations=()):
    """A KubeVirt object that HCO manages, and the HyperConverged. ``terms``: the required ones of its user's placement."""
    managed = copy.deepcopy(of_kubevirt)
    managed["metadata"].setdefault("labels", {})[names.MANAGED_BY_LABEL] = "hco-operator"
    placement = {"workload": {"affinity": affinity(*terms)}} if terms else {}
    hyperconverged = {
        "apiVersion": "hco.kubevirt.io/v1",
        "kind": "HyperConverged",
        "metadata": {
            "name": names.HCO_NAME,
            "namespace": NAMESPACE,
            "annotations": {names.HCO_PATCH_ANNOTATION: json.dumps(list(operations))},
        },
        "spec": {"deployment": {"nodePlacements": placement}},
    }
    return managed, hyperconverged


def hco_exclusion():
    """Our operation in HyperConverged's annotation, where the user's placement has no required terms."""
    requirement = {"key": names.OWNER_LABEL, "operator": "DoesNotExist", "values": []}
    required = affinity({"matchExpressions": [requirement], "matchFields": []})
    return {"op": "add", "path": "/spec/workloads", "value": {"nodePlacement": {"affinity": required}}}


def affinity(*terms):
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}}


def primary(*, excluded=True, terms=(), desired=3, ready=None, generation=1):
    """The virt-handler DaemonSet as virt-operator makes it, with the server's defaults.

    ``excluded``: it has our exclusion, added to each of ``terms`` (the user's nodePlacement) or as its only term.
    """
    shared_labels = {
        "app.kubernetes.io/component": "kubevirt",
        "app.kubernetes.io/managed-by": "virt-operator",
        "app.kubernetes.io/version": VERSION,
        "kubevirt.io": "virt-handler",
    }
    strategy = {
        "kubevirt.io/install-strategy-identifier": "7094f6",
        "kubevirt.io/install-strategy-registry": "registry.example",
        "kubevirt.io/install-strategy-version": VERSION,
    }
    pod_spec = {
        "containers": [_handler_container()],
        "dnsPolicy": "ClusterFirst",
        "hostPID": True,
        "initContainers": [_launcher_container("virt-launcher")],
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "priorityClassName": "kubevirt-cluster-critical",
        "restartPolicy": "Always",
        "schedulerName": "default-scheduler",
        "securityContext": {},
        "serviceAccount": "kubevirt-handler",
        "serviceAccountName": "kubevirt-handler",
        "terminationGracePeriodSeconds": 30,
        "tolerations": [{"key": "CriticalAddonsOnly", "operator": "Exists"}],
        "volumes": [
            {"name": "certs", "secret": {"defaultMode": 420, "optional": True, "secretName": "virt-handler-certs"}},
            {"name": "virt-share-dir", "hostPath": {"path": "/var/run/kubevirt", "type": ""}},
        ],
    }
    required = copy.deepcopy(list(terms))
    if excluded:
        for term in required:
            term.setdefault("matchExpressions", []).extend(copy.deepcopy(EXCLUSION_TERM["matchExpressions"]))
        required = required or [copy.deepcopy(EXCLUSION_TERM)]
    if required:
        pod_spec["affinity"] = affinity(*required)
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {
            "name": "virt-handler",
            "namespace": NAMESPACE,
            "uid": "uid-virt-handler",
            "resourceVersion": "873",
            "generation": generation,
            "creationTimestamp": "2026-01-01T08:00:00Z",
            "labels": {**shared_labels, "kubevirt.io/supports-migration-cn-types": "true"},
            "annotations": {"deprecated.daemonset.template.generation": "1", "kubevirt.io/generation": "2", **strategy},
        },
        "spec": {
            "revisionHistoryLimit": 10,
            "selector": {"matchLabels": {"kubevirt.io": "virt-handler"}},
            "template": {
                "metadata": {
                    "name": "virt-handler",
                    "creationTimestamp": None,
                    "labels": {
                        **shared_labels,
                        "np.kubevirt.io/allow-access-cluster-services": "true",
                        "prometheus.kubevirt.io": "true",
                    },
                    "annotations": {**strategy, "openshift.io/required-scc": "kubevirt-handler"},
                },
                "spec": pod_spec,
            },
            "updateStrategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}, "type": "RollingUpdate"},
        },
        "status": {
            "desiredNumberScheduled": desired,
            "updatedNumberScheduled": desired,
            "numberReady": desired if ready is None else ready,
            "observedGeneration": generation,
        },
    }


def controller(*arguments, command=(names.CONTROLLER,), version=VERSION):
    """virt-controller's Deployment with these arguments."""
    container = {"name": names.CONTROLLER, "command": list(command), "args": list(arguments)}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": names.CONTROLLER,
            "namespace": NAMESPACE,
            "uid": "uid-virt-controller",
            "annotations": {names.VERSION_ANNOTATION: version},
        },
        "spec": {"template": {"spec": {"containers": [container]}}},
    }


def _handler_container():
    health = {
        "httpGet": {"path": "/healthz", "port": 8443, "scheme": "HTTPS"},
        "initialDelaySeconds": 15,
        "failureThreshold": 3,
        "successThreshold": 1,
        "timeoutSeconds": 10,
    }
    return {
        "name": "virt-handler",
        "image": HANDLER_IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["virt-handler"],
        "args": ["--port", "8443", "--hostname-override", "$(NODE_NAME)", "-v", "2"],
        "env": [{"name": "NODE_NAME", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "spec.nodeName"}}}],
        "ports": [{"containerPort": 8443, "name": "metrics", "protocol": "TCP"}],
        "livenessProbe": {**health, "periodSeconds": 45},
        "readinessProbe": {**health, "periodSeconds": 20},
        "resources": {"requests": {"cpu": "10m", "memory": "325Mi"}},
        "securityContext": {"privileged": True, "seLinuxOptions": {"level": "s0"}},
        "volumeMounts": [{"mountPath": "/var/run/kubevirt", "name": "virt-share-dir"}],
    }


def _launcher_container(name):
    return {
        "name": name,
        "image": LAUNCHER_IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/bin/sh", "-c"],
        "args": ["node-labeller.sh"],
        "resources": {},
    }


def pool_daemonset(of_pool, of_primary=None, generation=1, desired=1):
    """The DaemonSet of a pool as the API serves it after a run applied it, and looked into its images."""
    derived = daemonsets.derive(of_primary or primary(), of_pool)
    known = dict.fromkeys(image_contents.roles_of(derived), Contents())
    daemonset = copy.deepcopy(image_contents.with_record(derived, known))
    daemonset["metadata"].update(uid=f"uid-{daemonset['metadata']['name']}", resourceVersion="5", generation=generation)
    daemonset["status"] = {
        "observedGeneration": generation,
        "desiredNumberScheduled": desired,
        "numberReady": desired,
        "updatedNumberScheduled": desired,
    }
    return daemonset


STARTED = 900
"""When handlers started that were there before the clock of a World began, in seconds since 1970."""


def heartbeat(seconds):
    """What virt-handler, and the kubelet, write for this time, in seconds since 1970."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


MACHINE_TYPE = {"machine-type.node.kubevirt.io/q35": "true"}
"""What KubeVirt labels a node of amd64 with, and asks for in launcher pods."""


def node(
    name="n1",
    owner=None,
    former=None,
    labels=None,
    *,
    ready=True,
    taints=(),
    images=(),
    heartbeat="1970-01-01T00:16:00Z",
    schedulable=True,
    version="1",
):
    """A node with ``owner`` in its owner label and ``former`` in its annotation for the former owner.

    Its handler reported a little before the clock of a World begins.
    """
    all_labels = {"kubernetes.io/os": "linux", "kubernetes.io/hostname": name, **MACHINE_TYPE, **(labels or {})}
    all_labels[names.SCHEDULABLE_LABEL] = "true" if schedulable else "false"
    if owner is not None:
        all_labels[names.OWNER_LABEL] = owner
    annotations = {}
    if heartbeat is not None:
        annotations[names.HEARTBEAT_ANNOTATION] = heartbeat
    if former is not None:
        annotations[names.FORMER_OWNER_ANNOTATION] = former
    metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": version, "labels": all_labels}
    if annotations:
        metadata["annotations"] = annotations
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": metadata,
        "spec": {"taints": list(taints)} if taints else {},
        "status": {
            "conditions": [{"type": "Ready", "status": "True" if ready else "Unknown"}],
            "images": [{"names": [image]} for image in images],
        },
    }


def node_created_again(name="n1", owner=None, **fields):
    """Another machine that has a name which a deleted one had."""
    made = node(name, owner, **fields)
    made["metadata"]["uid"] = f"another-{name}"
    return made


def migrated_vmi(node, name="migrated", **state):
    """A VM that came to the node by live migration, of which its handler may have no record any more."""
    state = {"completed": True, "targetNode": node, "migrationUid": f"uid-{name}", **state}
    vmi = kinds.VIRTUAL_MACHINE_INSTANCE.object(
        name, "vms", status={"phase": "Running", "nodeName": node, "migrationState": state}
    )
    vmi["metadata"]["labels"] = {names.NODE_NAME_LABEL: node}
    return vmi


def joins_with_a_migrated_vm(world):
    """A node joins the cluster, and a VM comes to it."""
    world.put(node("joined", labels={"kubernetes.io/arch": "amd64"}))
    world.put(handler_pod("joined"))
    world.put(migrated_vmi("joined"))


def migrating_vmi(source, target, **state):
    """A VM in the middle of a live migration, of which handlers take care."""
    state = {"sourceNode": source, "targetNode": target, **state}
    vmi = kinds.VIRTUAL_MACHINE_INSTANCE.object(
        "moving", "vms", status={"phase": "Running", "nodeName": source, "migrationState": state}
    )
    vmi["metadata"]["labels"] = {names.NODE_NAME_LABEL: source, names.MIGRATION_TARGET_LABEL: target}
    return vmi


def reminders(writes):
    """After how many other writes, but for those of Leases and records, each patch of the VM came."""
    relevant = [path for _verb, path in writes if "/leases" not in path and "/configmaps" not in path]
    return [index for index, path in enumerate(relevant) if path.endswith("/virtualmachineinstances/migrated")]


def handler_pod(on, of="virt-handler", *, template=None, ready=True, name=None, terminating=False, waiting=None):
    """A handler pod on node ``on``, created by the DaemonSet ``of``; ``waiting``: why its container waits."""
    name = name or f"{of}-{on}"
    metadata = {
        "name": name,
        "namespace": NAMESPACE,
        "uid": f"uid-{name}",
        "labels": {names.KUBEVIRT_LABEL: names.HANDLER},
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": of, "controller": True}],
    }
    if template is not None:
        metadata["annotations"] = {names.TEMPLATE_ANNOTATION: template}
    if terminating:
        metadata["deletionTimestamp"] = "2026-01-01T09:00:00Z"
    state = {"waiting": {"reason": waiting or "ContainerCreating", "message": "it says why"}}
    if ready and not waiting:
        state = {"running": {"startedAt": heartbeat(STARTED)}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"nodeName": on},
        "status": {
            "phase": "Running" if ready else "Pending",
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
            "containerStatuses": [{"name": "virt-handler", "state": state}],
        },
    }


def broken(pod):
    """The handler pod, whose handler ends again and again."""
    ended = {"exitCode": 1, "reason": "Error", "message": "no such CPU"}
    (container,) = pod["status"]["containerStatuses"]
    container.update(state={"waiting": {"reason": "CrashLoopBackOff"}}, lastState={"terminated": ended}, restartCount=5)
    return pod


PULL_POD = "virtpools-pull-676b8bb84ce7267d"
"""The name of the pod that pulls images to node n1."""


def looked_into(state, image, **contents):
    """A snapshot after a run has noted what is in an image, on the DaemonSet that has the image."""
    sets = {
        name: image_contents.with_record(live, {image: Contents(**contents)})
        if image in image_contents.roles_of(live)
        else live
        for name, live in state.daemonsets.items()
    }
    return dataclasses.replace(state, daemonsets=sets)


def pulled(pod, *, looks="qemu 10.1.0\nlibvirt 11.9.0\nlooked\n"):
    """The status of a pull pod whose containers have ended; ``looks``: what they found in their images."""
    ended = {"exitCode": 0, "reason": "Completed", "message": looks}
    statuses = [
        {"name": each["name"], "image": each["image"], "state": {"terminated": ended}}
        for each in pod["spec"]["containers"]
    ]
    return {"phase": "Succeeded", "containerStatuses": statuses}


def pull_pod(on="n1", **labels):
    """What a run left behind that was killed while it pulled images to node ``on``."""
    pod = handler_pod(on, name=names.pull_pod_name(names.PULL, on))
    pod["metadata"]["labels"] = {names.PULL_LABEL: "true", names.MANAGED_BY_LABEL: names.MANAGED_BY, **labels}
    return pod


def handlers_of(nodes, of_daemonsets):
    """One handler per node, created from its owner's DaemonSet as that is now; it is Ready where the node is."""
    by_owner = {ds["metadata"]["labels"].get(names.OWNER_LABEL, names.PRIMARY): ds for ds in of_daemonsets}
    pods = []
    for item in nodes:
        owner = item["metadata"]["labels"].get(names.OWNER_LABEL, names.PRIMARY)
        if owner in by_owner:
            daemonset = by_owner[owner]
            pods.append(
                handler_pod(
                    item["metadata"]["name"],
                    daemonset["metadata"]["name"],
                    template=daemonsets.template_of(daemonset),
                    ready=item["status"]["conditions"][0]["status"] == "True",
                )
            )
    return pods


def snapshot_of(nodes=(), pools=(), *, of_kubevirt=None, of_primary=None, more=(), pods=None, **others):
    """A snapshot of a settled cluster that has the exclusion and the DaemonSets of ``pools``."""
    stock = of_primary or primary()
    sets = [stock, *(pool_daemonset(found, stock) for found in pools), *more]
    return build_snapshot(
        of_kubevirt or excluding_kubevirt(),
        daemonsets=sets,
        nodes=nodes,
        pods=handlers_of(nodes, sets) if pods is None else pods,
        **others,
    )


def build_snapshot(of_kubevirt=None, *, admission=None, monitoring=None, operator_api=None, complete=True, **objects):
    """A snapshot of exactly these objects."""
    parts = snapshot.ClusterObjects(**objects)
    read = {"admission": admission, "monitoring": monitoring, "operator_api": operator_api, "complete": complete}
    return snapshot.build(of_kubevirt or kubevirt(), parts, **read)


def history_of(pools, options):
    """The ConfigMap of the history after a run of these pools with these options."""
    entry = history.entry_of(pools, (), options, "2026-11-01T12:00:00Z", "me")
    return history.History((entry,)).to_config_map(NAMESPACE)


def fresh_snapshot(nodes=(), **others):
    """A snapshot of stock KubeVirt, before any run."""
    return snapshot_of(nodes, of_kubevirt=kubevirt(), of_primary=primary(excluded=False), **others)


def codes(findings, severity=None):
    return [finding.code for finding in findings if severity in (None, finding.severity)]


def message(findings, code):
    (text,) = [finding.message for finding in findings if finding.code == code]
    return text


def after_moves(nodes, moves):
    """The nodes once these moves have been carried out."""
    nodes = copy.deepcopy(nodes)
    by_name = {node["metadata"]["name"]: node["metadata"] for node in nodes}
    for move in moves:
        metadata = by_name[move.node]
        metadata["labels"].pop(names.OWNER_LABEL, None)
        if move.target != names.PRIMARY:
            metadata["labels"][names.OWNER_LABEL] = move.target
        metadata.get("annotations", {}).pop(names.FORMER_OWNER_ANNOTATION, None)
    return nodes
