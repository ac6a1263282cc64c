# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.observed.handlers import HandlerPod, has_ended
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.observed.nodes import Node
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders


class TestHandlerPod:
    def test_belongs_to_the_daemonset_that_controls_it(self):
        obj = builders.handler_pod("n1", "virt-handler-gpu", template="abc")
        obj["metadata"]["ownerReferences"].insert(0, {"kind": "DaemonSet", "name": "another"})
        found = HandlerPod.from_object(obj)
        assert (found.node, found.daemonset, found.template) == ("n1", "virt-handler-gpu", "abc")

    def test_has_the_images_of_its_containers(self):
        obj = builders.handler_pod("n1")
        obj["spec"].update(
            initContainers=[{"name": "first", "image": "a:1"}], containers=[{"name": "c", "image": "b:2"}]
        )
        assert HandlerPod.from_object(obj).images == {"first": "a:1", "c": "b:2"}

    def test_of_nobody(self):
        obj = builders.handler_pod("n1")
        del obj["metadata"]["ownerReferences"]
        assert HandlerPod.from_object(obj).daemonset is None

    def test_is_ready_when_it_runs_and_says_so(self):
        assert HandlerPod.from_object(builders.handler_pod("n1")).ready
        assert not HandlerPod.from_object(builders.handler_pod("n1", ready=False)).ready
        ended = builders.handler_pod("n1")
        ended["status"]["phase"] = "Succeeded"
        assert not HandlerPod.from_object(ended).ready

    def test_is_terminating_from_when_it_is_deleted(self):
        assert HandlerPod.from_object(builders.handler_pod("n1", terminating=True)).terminating

    @pytest.mark.parametrize(
        ("phase", "terminating", "ended"),
        [("Failed", True, True), ("Succeeded", True, True), ("Running", True, False), ("Failed", False, False)],
    )
    def test_has_ended_once_it_is_deleted_and_does_not_run(self, phase, terminating, ended):
        obj = builders.handler_pod("n1", terminating=terminating)
        obj["status"]["phase"] = phase
        assert has_ended(obj) is ended

    @pytest.mark.parametrize("reason", ["ContainerCreating", "PodInitializing"])
    def test_that_just_starts_has_no_problem(self, reason):
        assert HandlerPod.from_object(builders.handler_pod("n1", ready=False, waiting=reason)).problem is None

    @pytest.mark.parametrize("statuses", ["containerStatuses", "initContainerStatuses"])
    def test_says_what_its_kubelet_says(self, statuses):
        obj = builders.handler_pod("n1", ready=False)
        waiting = {"reason": "ImagePullBackOff", "message": "no such tag"}
        obj["status"] = {statuses: [{"name": "c", "state": {"waiting": waiting}}]}
        assert HandlerPod.from_object(obj).problem == "container c: ImagePullBackOff (no such tag)"

    @pytest.mark.parametrize(
        ("ended", "said"),
        [
            ({"exitCode": 1, "reason": "Error"}, "ended with exit code 1"),
            ({"exitCode": 137, "reason": "OOMKilled"}, "ended with exit code 137 (OOMKilled)"),
            (
                {"exitCode": 2, "reason": "Error", "message": "begun\nunknown flag: --hypervisor\n\n"},
                "ended with exit code 2 and said 'unknown flag: --hypervisor'",
            ),
            (
                {"exitCode": 1, "message": '{"level":"error","msg":"no domain","reason":"EOF","pos":"a.go:1"}'},
                "ended with exit code 1 and said 'no domain: EOF'",
            ),
            (
                {"exitCode": 3, "message": 'no licence\n{"component":"virt-launcher-monitor","msg":"Exiting..."}\n'},
                "ended with exit code 3 and said 'no licence'",
            ),
            (
                {"exitCode": 3, "message": '{"component":"virt-launcher-monitor","msg":"Exiting..."}'},
                "ended with exit code 3 and said 'Exiting...'",
            ),
            ({"exitCode": 1, "message": "[1]"}, "ended with exit code 1 and said '[1]'"),
            ({"exitCode": 1, "message": "\x1b[31mred"}, "ended with exit code 1 and said '\\\\x1b[31mred'"),
        ],
    )
    def test_says_how_a_container_ended(self, ended, said):
        obj = builders.handler_pod("n1", ready=False)
        obj["status"] = {"containerStatuses": [{"name": "c", "state": {"terminated": ended}}]}
        assert HandlerPod.from_object(obj).problem == f"container c {said}"
        waiting = {"waiting": {"reason": "CrashLoopBackOff"}}
        obj["status"] = {"containerStatuses": [{"name": "c", "state": waiting, "lastState": {"terminated": ended}}]}
        assert HandlerPod.from_object(obj).problem == f"container c: CrashLoopBackOff, it {said}"

    def test_says_how_a_container_ended_that_runs_again(self):
        obj = builders.broken(builders.handler_pod("n1", ready=False))
        obj["status"]["containerStatuses"][0]["state"] = {"running": {}}
        pod = HandlerPod.from_object(obj)
        assert pod.problem is None
        assert pod.last_end == "container virt-handler ended with exit code 1 and said 'no such CPU', and was restarted"
        assert HandlerPod.from_object(builders.handler_pod("n1")).last_end is None

    def test_a_container_that_did_its_work_is_no_problem(self):
        obj = builders.handler_pod("n1", ready=False)
        obj["status"] = {"initContainerStatuses": [{"name": "c", "state": {"terminated": {"exitCode": 0}}}]}
        assert HandlerPod.from_object(obj).problem is None

    @pytest.mark.parametrize(
        ("heartbeat", "reported"),
        [
            (builders.heartbeat(builders.STARTED - 1), False),
            (builders.heartbeat(builders.STARTED), True),
            (f'"{builders.heartbeat(builders.STARTED + 1)}"', True),
            ("1970-01-01T03:00:00", False),  # in which time zone?
            (None, False),
        ],
    )
    def test_has_reported_unless_the_heartbeat_is_older_than_it(self, heartbeat, reported):
        node = Node.from_object(builders.node(heartbeat=heartbeat))
        assert HandlerPod.from_object(builders.handler_pod("n1")).has_reported(node) == reported

    @pytest.mark.parametrize("state", [{"waiting": {"reason": "CrashLoopBackOff"}}, {"running": {}}, {}, None])
    def test_whose_container_does_not_run_has_not_reported(self, state):
        obj = builders.handler_pod("n1")
        obj["status"]["containerStatuses"][0]["state"] = state
        assert not HandlerPod.from_object(obj).has_reported(Node.from_object(builders.node()))

    @pytest.mark.parametrize(
        ("why", "told"),
        [
            ({"reason": "Evicted", "message": "out of disk"}, "Evicted"),
            ({"message": "out of disk"}, "out of disk"),
            ({}, "no reason given"),
        ],
    )
    def test_that_failed_says_why(self, why, told):
        obj = builders.handler_pod("n1")
        obj["status"] = {"phase": "Failed", **why}
        assert HandlerPod.from_object(obj).problem == f"pod failed: {told}"
