# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Launcher policies that act, in an API server in memory: what a real one would do to probes."""

from __future__ import annotations

import copy
import json

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster._transport import Response
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import kinds, mapping, names, node_policy, probes
from ansible_collections.virtpools.kubevirt.tests.unit import builders

POLICY, BINDING = kinds.MUTATING_ADMISSION_POLICIES[0], kinds.MUTATING_ADMISSION_POLICY_BINDINGS[0]
KYVERNO = kinds.KYVERNO_MUTATING_POLICY
SITE = probes.Site(builders.NAMESPACE, {}, builders.LAUNCHER_IMAGE, builders.HANDLER_IMAGE)


class Admission:
    """Has policies act on the probes that a server is sent.

    ``failing`` are names of policies whose probes are refused, ``idle`` of those that do nothing; ``spoil(pod)`` changes
    what comes out. ``acting`` are the digests of the policies that acted, in order.
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
        made = self._admitted(pod, name)
        self.spoil(made)
        self.acting.append(probes.digest_in(made))
        return Response(200, json.dumps(made).encode())

    def _policy(self, name):
        """The policy of that name that acts: Kyverno's come after the API server's own."""
        bound = self._server.find(BINDING, name)
        return self._server.find(KYVERNO, name) or (bound and self._server.find(POLICY, name))

    def _admitted(self, pod, name):
        annotations = self._policy(name)["metadata"]["annotations"]
        table = mapping.restore(annotations[names.MAPPING_ANNOTATION])
        (probe,) = (each for each in probes.probes(table, SITE, name) if each.pod == pod)
        made = copy.deepcopy(probe.expected)
        made["metadata"]["labels"][names.PROBE_LABEL] = name
        made["metadata"]["annotations"][names.POLICY_ANNOTATION] = annotations[names.POLICY_ANNOTATION]
        if probe.tolerations:
            made["spec"]["tolerations"] = [dict(each) for each in probe.tolerations]
        return made


class NodeAdmission:
    """Has the policy that gives new nodes their owner act in a server, if it is there, as it is made for these pools."""

    def __init__(self, server, pools):
        self._server = server
        self._pools = pools
        self._send = server.send
        server.send = self.send

    def send(self, request):
        if (request.method, request.path) == ("POST", kinds.NODE.path()):
            sent = request.body
            policy = sent["metadata"]["labels"].get(names.PROBE_LABEL)
            if policy and all(self._server.find(kind, policy) for kind in (POLICY, BINDING)):
                made = next((p.expected for p in node_policy.probes(self._pools, policy) if p.pod == sent), sent)
                return Response(200, json.dumps(made).encode())
        return self._send(request)
