# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.writing import writes
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kubevirt import exclusion
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning import plan
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.options import Options
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.plan import DaemonSetChange
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders
from ansible_collections.virtpools.kubevirt.tests.unit.support.fake_cluster import ApiServer

GPU = builders.pool("gpu")


def no_sleep(seconds):
    """Retries do not wait in these tests."""


def change_of(snapshot):
    (change,) = plan.make_plan(snapshot, [GPU], Options()).daemonsets
    return change


class TestDaemonSet:
    def applied(self, *objects):
        server = ApiServer(*objects)
        sets = [obj for obj in objects if obj["kind"] == "DaemonSet"]
        snapshot = builders.snapshot_of([builders.node()], more=sets)
        change = change_of(snapshot)
        return server, writes.apply_daemonset(server.client(), change, dry_run=False)

    def test_is_created(self):
        server, stored = self.applied()
        assert server.writes == [("patch", "/apis/apps/v1/namespaces/kubevirt/daemonsets/virt-handler-gpu")]
        assert plan.daemonsets.drift(plan.daemonsets.derive(builders.primary(), GPU), stored) == ()

    def test_loses_what_others_added(self):
        live = builders.pool_daemonset(GPU)
        live["spec"]["template"]["spec"]["hostNetwork"] = True
        server, stored = self.applied(live)
        assert [verb for verb, _path in server.writes] == ["patch", "update"]
        assert "hostNetwork" not in stored["spec"]["template"]["spec"]
        assert stored["metadata"]["uid"] == live["metadata"]["uid"]

    def test_loses_it_although_its_status_changes_at_once(self):
        live = builders.pool_daemonset(GPU)
        live["spec"]["template"]["spec"]["hostNetwork"] = True
        server = ApiServer(live)
        notes = ["observedGeneration"]

        def note(request):
            if request.method == "PUT" and notes:
                notes.pop()
                server.touch(server.find(kinds.DAEMON_SET, "virt-handler-gpu", builders.NAMESPACE))

        server.before = note
        change = change_of(builders.snapshot_of([builders.node()], more=[live]))
        stored = writes.apply_daemonset(server.client(sleep=lambda _seconds: None), change, dry_run=False)
        assert "hostNetwork" not in stored["spec"]["template"]["spec"]

    def test_dry_run_stores_nothing(self):
        server = ApiServer()
        change = change_of(builders.snapshot_of([builders.node()]))
        stored = writes.apply_daemonset(server.client(), change, dry_run=True)
        assert stored["metadata"]["name"] == "virt-handler-gpu"
        assert (server.writes, server.objects) == ([], {})

    def test_is_deleted_with_its_pods_only_if_it_is_unchanged(self):
        live = builders.pool_daemonset(GPU)
        server = ApiServer(live)
        change = DaemonSetChange("gpu", "delete", builders.NAMESPACE, live=live)
        assert writes.delete_daemonset(server.client(), change, dry_run=False)
        body = server.requests[0].body
        assert body["propagationPolicy"] == "Foreground"
        assert body["preconditions"] == {"uid": live["metadata"]["uid"]}
        assert not writes.delete_daemonset(server.client(), change, dry_run=False)

    def test_that_somebody_made_anew_is_not_deleted(self):
        live = builders.pool_daemonset(GPU)
        server = ApiServer({**copy.deepcopy(live), "metadata": {**live["metadata"], "uid": "another"}})
        change = DaemonSetChange("gpu", "delete", builders.NAMESPACE, live=live)
        assert not writes.delete_daemonset(server.client(), change, dry_run=False)
        assert server.find(kinds.DAEMON_SET, "virt-handler-gpu", builders.NAMESPACE)


class TestEdit:
    def test_keeps_what_others_write_meanwhile(self):
        server = ApiServer(builders.kubevirt())
        edit = exclusion.with_exclusion(builders.kubevirt(), None)
        theirs = {"patch": "{}", "resourceName": "virt-api", "resourceType": "Deployment", "type": "merge"}
        live = server.find(kinds.KUBEVIRT, "kubevirt", builders.NAMESPACE)
        live["spec"]["customizeComponents"]["patches"] = [theirs]
        _before, after = writes.edit_object(
            server.client(), edit, lambda obj: exclusion.with_exclusion(obj, None), dry_run=False
        )
        assert after["spec"]["customizeComponents"]["patches"] == [theirs, exclusion.PATCH]

    def test_that_somebody_did_meanwhile_writes_nothing(self):
        server = ApiServer(builders.excluding_kubevirt())
        edit = exclusion.with_exclusion(builders.kubevirt(), None)
        before, after = writes.edit_object(
            server.client(), edit, lambda obj: exclusion.with_exclusion(obj, None), dry_run=False
        )
        assert before == after
        assert server.writes == []

    @pytest.mark.parametrize("version", ["v1", "v1beta1"])
    def test_of_hyperconverged_in_the_version_it_was_read_in(self, version):
        hco = {
            "apiVersion": f"hco.kubevirt.io/{version}",
            "kind": "HyperConverged",
            "metadata": {"name": names.HCO_NAME, "namespace": builders.NAMESPACE},
            "spec": {},
        }
        server = ApiServer(hco)
        kubevirt = builders.kubevirt()
        edit = exclusion.with_exclusion(kubevirt, hco)
        writes.edit_object(server.client(), edit, lambda obj: exclusion.with_exclusion(kubevirt, obj), dry_run=False)
        assert {path.split("/")[3] for _verb, path in server.writes} == {version}
