# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""kubevirt-aie-webhook as HCO's annotation ``hco.kubevirt.io/deployAIE`` installs it, called by a real API server.

Each behaviour was seen on the real program, or read in its source; ``tests/unit/support/aie_webhook.py`` says which.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from scenario import Scenario
    from webhooks import Patch, Webhooks

Object = dict[str, Any]
NAME, CONFIG, KEY = "kubevirt-aie-webhook", "kubevirt-aie-launcher-config", "config.yaml"
TRACE = "kubevirt.io/alternative-launcher-image"
SEED = "rules:\n"


def service_name(namespace: str) -> str:
    """Return the name by which API servers know it."""
    return f"{NAME}.{namespace}.svc"


class AieWebhook:
    """The webhook's objects, and what it does with launcher pods."""

    def __init__(self, scenario: Scenario, webhooks: Webhooks) -> None:
        """Install it."""
        self._scenario = scenario
        namespace = scenario.namespace
        labels = {"app": NAME}
        metadata = {"name": NAME, "namespace": namespace, "labels": labels}
        pod = {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "webhook", "image": "registry.example/kubevirt-aie-webhook:1"}]},
        }
        deployment = {"replicas": 1, "selector": {"matchLabels": labels}, "template": pod}
        service = {"clusterIP": "None", "ports": [{"port": 443, "targetPort": webhooks.port}]}
        # The server runs on this machine, and the API server looks for it here.
        endpoints = {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {**metadata, "labels": {"kubernetes.io/service-name": NAME}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [_own_address()], "conditions": {"ready": True}}],
            "ports": [{"name": "", "port": webhooks.port}],
        }
        config = {"name": CONFIG, "namespace": namespace}
        for each in (
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": config, "data": {KEY: SEED}},
            {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": service},
            endpoints,
            {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": deployment},
        ):
            scenario.apply(each)
        self.await_pods(1)
        reached = webhooks.answer("mutate-pods", self._change)
        hook = {
            "name": "virt-launcher-mutator.kubevirt.io",
            "admissionReviewVersions": ["v1"],
            "clientConfig": {
                "service": {"name": NAME, "namespace": namespace, "path": "/mutate-pods", "port": 443},
                "caBundle": reached["caBundle"],
            },
            "failurePolicy": "Fail",
            "reinvocationPolicy": "Never",
            "objectSelector": {"matchLabels": {"kubevirt.io": "virt-launcher"}},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
            "sideEffects": "None",
            "timeoutSeconds": 10,
        }
        kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration"}
        scenario.apply({**kind, "metadata": {"name": NAME}, "webhooks": [hook]})

    @property
    def text(self) -> str:
        """The rules as their owner reads them."""
        return str(self._scenario.get("configmap", CONFIG)["data"][KEY])

    def edit(self, text: str) -> None:
        """Write the rules as ``kubectl edit`` does."""
        self._scenario.patch(f"configmap/{CONFIG}", merge={"data": {KEY: text}})

    def scale(self, replicas: int) -> None:
        """Stop the webhook, or start it again."""
        self._scenario.cluster.kubectl(
            "scale", "-n", self._scenario.namespace, "deployment", NAME, f"--replicas={replicas}"
        )
        self.await_pods(replicas)

    def await_pods(self, replicas: int) -> None:
        def ready() -> bool:
            status = self._scenario.get("deployment", NAME).get("status", {})
            return int(status.get("readyReplicas", 0)) == replicas

        self._scenario.cluster.wait(ready, 60, f"{replicas} pods of the webhook")

    def _change(self, pod: Object) -> Patch:
        """The first rule that takes the pod's VM gives the first container another image, and leaves an annotation."""
        if not self._scenario.get("deployment", NAME).get("status", {}).get("readyReplicas"):
            raise ConnectionAbortedError("no pod answers")
        owners = pod["metadata"].get("ownerReferences") or ()
        owner = next((each["name"] for each in owners if each["kind"] == "VirtualMachineInstance"), None)
        if owner is None:
            return []
        vmi = self._scenario.get("vmi", owner, "-n", pod["metadata"]["namespace"])
        for rule in (yaml.safe_load(self.text) or {}).get("rules") or ():
            if _takes(rule.get("selector") or {}, vmi):
                trace = f"/metadata/annotations/{TRACE.replace('/', '~1')}"
                return [
                    {"op": "replace", "path": "/spec/containers/0/image", "value": rule["image"]},
                    {"op": "add", "path": trace, "value": rule["image"]},
                ]
        return []


def _own_address() -> str:
    """Return this machine's address; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])


def _takes(selector: Object, vmi: Object) -> bool:
    devices = vmi["spec"]["domain"].get("devices", {})
    names = {each["deviceName"] for key in ("gpus", "hostDevices") for each in devices.get(key, ())}
    labels = (selector.get("vmLabels") or {}).get("matchLabels") or {}
    own = vmi["metadata"].get("labels") or {}
    by_labels = bool(labels) and all(own.get(key) == value for key, value in labels.items())
    return by_labels or not names.isdisjoint(selector.get("deviceNames") or ())
