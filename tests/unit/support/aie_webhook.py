# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""kubevirt-aie-webhook in an in-memory API server, as HCO's annotation ``hco.kubevirt.io/deployAIE`` installs it.

Each behaviour is marked: "seen" on the real program (March 2026, under HCO 1.20.0), or "read" in its source. Nothing of this is
taken from the collection.
"""

from __future__ import annotations

import copy
import json

import yaml

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.transport import Response
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.reading import webhook_config
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.observed.webhook import Webhook

NAME, CONFIG, KEY = "kubevirt-aie-webhook", "kubevirt-aie-launcher-config", "config.yaml"
TRACE = "kubevirt.io/alternative-launcher-image"
SEED = "rules:\n"
"""What HCO seeds the key with, once: it never overwrites rules or annotations (seen)."""


def webhook_of(config_map, configurations=None):
    """The part of a snapshot for this ConfigMap, on a cluster without its Deployment."""
    return Webhook.from_objects(config_map, webhook_config.read, configurations, lambda namespace, name: None)


class AieWebhook:
    """Changes the launcher pods that a server receives while it is registered there."""

    def __init__(self, server, namespace, *, text=SEED):
        self._server, self._namespace = server, namespace
        self._rules = []
        data = {} if text is None else {KEY: text}
        labels = {"app": "kubevirt-hyperconverged", "app.kubernetes.io/managed-by": "hco-operator"}
        self.put(kinds.CONFIG_MAP.object(CONFIG, namespace, data=data), labels)
        service = {"name": NAME, "namespace": namespace, "path": "/mutate-pods", "port": 443}
        hook = {
            "name": "virt-launcher-mutator.kubevirt.io",
            "clientConfig": {"service": service, "caBundle": "Y2E="},
            "failurePolicy": "Fail",  # seen
            "reinvocationPolicy": "Never",  # seen
            "objectSelector": {"matchLabels": {"kubevirt.io": "virt-launcher"}},  # read; all namespaces (seen)
        }
        self.put(kinds.MUTATING_WEBHOOK_CONFIGURATION.object(NAME, webhooks=[hook]), labels)
        self.put(kinds.DEPLOYMENT.object(NAME, namespace, status={"readyReplicas": 1}), labels)
        self._send, server.send = server.send, self.send

    def put(self, obj, labels):
        obj["metadata"]["labels"] = dict(labels)
        self._server.put(obj)

    # What its owner sees and does

    @property
    def objects(self):
        """What is left of its objects."""
        named = ((kinds.CONFIG_MAP, CONFIG, self._namespace), (kinds.MUTATING_WEBHOOK_CONFIGURATION, NAME, None))
        found = (self._server.find(*each) for each in (*named, (kinds.DEPLOYMENT, NAME, self._namespace)))
        return [obj for obj in found if obj is not None]

    @property
    def config_map(self):
        return self._server.find(kinds.CONFIG_MAP, CONFIG, self._namespace)

    @property
    def text(self):
        return self.config_map["data"].get(KEY)

    @property
    def rules(self):
        return yaml.safe_load(self.text)["rules"] or []

    def edit(self, text):
        """Write the rules as ``kubectl edit`` does; annotations stay."""
        live = copy.deepcopy(self.config_map)
        live["data"][KEY] = text
        self._server.put(live)

    def take_ca_bundle(self):
        """What HCO installs on plain Kubernetes, where no service CA adds the bundle (seen)."""
        live = self._server.find(kinds.MUTATING_WEBHOOK_CONFIGURATION, NAME)
        del live["webhooks"][0]["clientConfig"]["caBundle"]

    def stop(self):
        """Its Deployment has no ready pod any more."""
        self._server.find(kinds.DEPLOYMENT, NAME, self._namespace)["status"] = {}

    def unregister(self):
        self._server.drop(kinds.MUTATING_WEBHOOK_CONFIGURATION, NAME)

    # What API servers and the program do

    def send(self, request):
        if request.method != "POST" or not request.path.endswith("/pods"):
            return self._send(request)
        registered = self._server.find(kinds.MUTATING_WEBHOOK_CONFIGURATION, NAME)
        if not registered or request.body["metadata"].get("labels", {}).get("kubevirt.io") != "virt-launcher":
            return self._send(request)
        ready = (
            (self._server.find(kinds.DEPLOYMENT, NAME, self._namespace) or {}).get("status", {}).get("readyReplicas")
        )
        if not ready or "caBundle" not in registered["webhooks"][0]["clientConfig"]:
            # Dry runs as well: its sideEffects are None (read). Every VM start in the cluster fails (seen).
            message = (
                'Internal error occurred: failed calling webhook "virt-launcher-mutator.kubevirt.io": failed to call '
                f'webhook: Post "https://{NAME}.{self._namespace}.svc:443/mutate-pods?timeout=10s": no endpoints available'
            )
            status = {"kind": "Status", "code": 500, "reason": "InternalError", "message": message}
            return Response(500, json.dumps(status).encode())
        answer = self._send(request)  # Admission policies act before webhooks (seen).
        if answer.status != 200:
            return answer
        return Response(200, json.dumps(self.mutated(json.loads(answer.body))).encode())

    def mutated(self, pod):
        """The pod as the program changes it."""
        self._read()
        owners = pod["metadata"].get("ownerReferences") or ()
        owner = next((ref for ref in owners if ref["kind"] == "VirtualMachineInstance"), None)
        if owner is None:  # read: such pods are allowed unchanged
            return pod
        vmi = self._server.find(kinds.VIRTUAL_MACHINE_INSTANCE, owner["name"], pod["metadata"]["namespace"])
        rule = next((rule for rule in self._rules if self._takes(rule.get("selector") or {}, vmi)), None)
        if rule is None:
            return pod
        changed = copy.deepcopy(pod)
        changed["spec"]["containers"][0]["image"] = rule["image"]  # seen: only the first container
        changed["metadata"].setdefault("annotations", {})[TRACE] = rule["image"]  # seen
        return changed

    def _read(self):
        """Read the rules again (seen: within seconds). It keeps those that it has when ConfigMap or key are missing, or the text
        cannot be parsed (read)."""
        text = ((self.config_map or {}).get("data") or {}).get(KEY)
        if text is None:
            return
        try:
            self._rules = (yaml.safe_load(text) or {}).get("rules") or []
        except yaml.YAMLError:
            return

    @staticmethod
    def _takes(selector, vmi):
        """Criteria of a rule are ORed, and the first rule wins (seen). Labels are all of matchLabels, devices any (read)."""
        devices = vmi["spec"]["domain"].get("devices", {})
        names = {each["deviceName"] for key in ("gpus", "hostDevices") for each in devices.get(key, ())}
        labels = (selector.get("vmLabels") or {}).get("matchLabels") or {}
        own = vmi["metadata"].get("labels") or {}
        return not names.isdisjoint(selector.get("deviceNames") or ()) or (
            bool(labels) and all(own.get(key) == value for key, value in labels.items())
        )
