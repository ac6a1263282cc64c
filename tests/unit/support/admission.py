# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Launcher and node policies that act in an in-memory API server: they treat probes as a real server would.

What they make of a probe comes from the judge, so that a probe that expects something else comes out wrong.
"""

from __future__ import annotations

import copy
import json

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.transport import Response
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.admission import launcher_policy, probes
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders, launcher_oracle

POLICY, BINDING = kinds.MUTATING_ADMISSION_POLICIES[0], kinds.MUTATING_ADMISSION_POLICY_BINDINGS[0]
GUARD_KINDS = (kinds.VALIDATING_ADMISSION_POLICY, kinds.VALIDATING_ADMISSION_POLICY_BINDING)
KYVERNO = kinds.KYVERNO_MUTATING_POLICY
SITE = probes.Site(builders.NAMESPACE, {}, builders.LAUNCHER_IMAGE, builders.HANDLER_IMAGE)


class Admission:
    """Applies a server's launcher policies to the probes that the server receives.

    The server refuses the probes of the policies named in ``failing``. Policies named in ``idle`` change nothing.
    ``spoil(pod)`` changes a policy's result. ``acting`` lists the digests of the policies that acted, in order.
    """

    def __init__(self, server):
        self.failing = set()
        self.idle = set()
        self.acting = []
        self.spoil = lambda pod: None
        self._server = server
        self._send = server.send
        server.send = self.send
        server.put(kinds.NAMESPACE.object(SITE.namespace))

    def admitted(self, pod):
        """What the live policy makes of a launcher pod."""
        return self._admitted(pod, names.POLICY) if self._policy(names.POLICY) else pod

    def send(self, request):
        if (request.method, request.path) != ("POST", kinds.POD.path(SITE.namespace)):
            return self._send(request)
        if names.PULL_LABEL in request.body["metadata"]["labels"]:
            return self._send(request)
        assert ("dryRun", "All") in request.query, "probes are never stored"
        pod = copy.deepcopy(request.body)
        name = pod["metadata"]["labels"].get(names.PROBE_LABEL)
        if name is None or name in self.idle or self._policy(name) is None:
            return Response(200, json.dumps(pod).encode())
        if name in self.failing:
            message = f"policy '{name}' with binding '{name}' denied request: no such key: afinity"
            status = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": message}
            return Response(403, json.dumps(status).encode())
        admitted = self._admitted(pod, name)
        self.spoil(admitted)
        self.acting.append(probes.digest_in(admitted))
        return Response(200, json.dumps(admitted).encode())

    def _policy(self, name):
        """The policy of that name; Kyverno's has precedence, because it acts after the API server's own."""
        bound = self._server.find(BINDING, name)
        return self._server.find(KYVERNO, name) or (bound and self._server.find(POLICY, name))

    def _admitted(self, pod, name):
        annotations = self._policy(name)["metadata"]["annotations"]
        table = json.loads(annotations[names.MAPPING_ANNOTATION])
        rules = {rule["name"]: rule for rule in table["rules"]}
        others = {key: [name for name in table[key] if name not in rules] for key in ("keepOff", "allow")}
        namespace = self._server.find(kinds.NAMESPACE, pod["metadata"]["namespace"])
        return launcher_oracle.admitted(
            [
                *rules.values(),
                *({"name": name, "unmatched": "keep_off"} for name in others["keepOff"]),
                *({"name": name, "unmatched": "allow"} for name in others["allow"]),
            ],
            {name: rule.get("virtLauncherImage") for name, rule in rules.items()},
            pod,
            namespace_labels=namespace["metadata"].get("labels", {}),
            digest=annotations[names.POLICY_ANNOTATION],
            canaries=table.get("canaries"),
            epoch=launcher_policy.epoch_of(self._policy(name)),
            upcoming=(table["upcoming"]["stock"], table["upcoming"]["images"]) if "upcoming" in table else None,
        )


class NodeAdmission:
    """Applies a node policy of these pools, given as users write them, to a server's probe nodes if it has that policy."""

    def __init__(self, server, pools):
        self._server = server
        self._pools = pools
        self._send = server.send
        server.send = self.send

    def send(self, request):
        if (request.method, request.path) == ("POST", kinds.NODE.path()):
            node = copy.deepcopy(request.body)
            labels = node["metadata"]["labels"]
            policy, binding = (self._server.find(kind, labels.get(names.PROBE_LABEL)) for kind in (POLICY, BINDING))
            if policy and binding:
                if names.OWNER_LABEL not in labels:
                    owner = launcher_oracle.node_owner(self._pools, labels)
                    labels.update({names.OWNER_LABEL: owner} if owner else {})
                    digest = policy["metadata"]["annotations"][names.POLICY_ANNOTATION]
                    node["metadata"]["annotations"] = {names.POLICY_ANNOTATION: digest}
                return Response(200, json.dumps(node).encode())
        return self._send(request)


class GuardAdmission:
    """Has a server's guard, while it is there, refuse what it should. ``others_refuse``: somebody refuses all its probes."""

    def __init__(self, server):
        self.others_refuse = False
        self._server = server
        self._send = server.send
        server.send = self.send

    def send(self, request):
        sent = request.body if isinstance(request.body, dict) else {}
        name = ((sent.get("metadata") or {}).get("labels") or {}).get(names.PROBE_LABEL)
        if request.method != "POST" or name not in names.GUARDS:
            return self._send(request)
        assert ("dryRun", "All") in request.query, "probes are never stored"
        guarded = all(self._server.find(kind, name) for kind in GUARD_KINDS)
        if self.others_refuse:
            return self._refusal("others")
        return self._refusal(name) if guarded and self._wrong(sent) else self._send(request)

    @staticmethod
    def _wrong(sent):
        if sent["kind"] == kinds.NODE.name:
            return launcher_oracle.OWNER in sent["metadata"]["labels"]
        pool_node = {"name": "n", "labels": {launcher_oracle.OWNER: "any", "kubernetes.io/os": "linux"}, "taints": []}
        return launcher_oracle.lands(sent["spec"]["template"]["spec"], pool_node, ())

    @staticmethod
    def _refusal(by):
        message = f"ValidatingAdmissionPolicy '{by}' with binding '{by}' denied request: no"
        status = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": message}
        return Response(403, json.dumps(status).encode())
