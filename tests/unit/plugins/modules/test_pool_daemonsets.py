# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy
import typing as t

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kubevirt import daemonsets, image_contents
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders

RAW = builders.RAW_POOL
OTHER = {**RAW, "name": "other", "nodeSelector": {"hw": "other"}}


def live(world, pool="gpu"):
    return world.find(kinds.DAEMON_SET, f"virt-handler-{pool}", builders.NAMESPACE)


def begin_rollout(world, meanwhile):
    """Have virt-operator replace the deployment by another of the same version, while something else happens."""
    settled = world.find(kinds.KUBEVIRT, "kubevirt", builders.NAMESPACE)
    world.put({**settled, "status": {**settled["status"], "targetDeploymentID": "d2"}})

    def end():
        meanwhile()
        world.put(settled)

    world.at[world.now + 60] = end


class TestNewImage:
    """The pool has a node, and gets an image that the node does not have."""

    NEXT: t.ClassVar = {**RAW, "virtHandlerImage": f"{builders.HANDLER_IMAGE}-next"}

    @pytest.fixture(autouse=True)
    def served(self, world, excluded):
        world.put(builders.node("n1", "gpu", labels={"hw": "gpu"}, images=[builders.GPU_IMAGE]))
        for pod in world.pods("n1"):
            world.drop(kinds.POD, pod["metadata"]["name"], builders.NAMESPACE)
        world.put(builders.handler_pod("n1", "virt-handler-gpu", template=daemonsets.template_of(live(world))))

    def test_that_cannot_be_pulled_leaves_the_daemonset_as_it_was(self, run, world):
        before = copy.deepcopy(live(world)["spec"])
        found = run("pool_daemonsets", pools=[self.NEXT], pull_timeout=5)
        assert found["failed"]
        assert "DaemonSet kubevirt/virt-handler-gpu was not changed, because 1 of 1 node cannot get" in found["msg"]
        assert not found.get("changed")
        assert live(world)["spec"] == before
        assert not world.find(kinds.POD, builders.PULL_POD, builders.NAMESPACE)
        (pod,) = world.pods("n1")
        world.drop(kinds.POD, pod["metadata"]["name"], builders.NAMESPACE)
        world.sleep(10)
        (pod,) = world.pods("n1")
        assert pod["metadata"]["annotations"][names.TEMPLATE_ANNOTATION] == daemonsets.template_of({"spec": before})

    def test_is_not_pulled_without_prepull_or_where_it_is(self, run, world):
        images = [builders.GPU_IMAGE, builders.LAUNCHER_IMAGE, self.NEXT["virtHandlerImage"]]
        for number, arguments in enumerate(({"prepull": False}, {})):
            world.writes.clear()
            pools = [{**self.NEXT, "resources": {"requests": {"cpu": str(number + 1)}}}]
            assert run("pool_daemonsets", pools=pools, **arguments)["changed"]
            assert not [path for verb, path in world.writes if "/pods" in path]
            known = {self.NEXT["virtHandlerImage"]: image_contents.Contents()}
            world.put(image_contents.with_record(live(world), known))
            world.put(builders.node("n1", "gpu", labels={"hw": "gpu"}, images=images))

    @pytest.mark.parametrize("created_again", [False, True])
    def test_does_not_wait_for_a_node_that_was_deleted(self, run, world, created_again):
        def delete():
            world.drop(kinds.NODE, "n1")
            if created_again:
                world.put(builders.node_created_again("n1", labels={"hw": "gpu"}))

        world.at[world.now + 1] = delete
        assert run("pool_daemonsets", pools=[self.NEXT], pull_timeout=5)["changed"]


class TestNewPool:
    """The pool has no DaemonSet yet, and a node that will get one of its handlers."""

    def test_is_not_created_when_its_images_do_not_come(self, run, world):
        found = run("pool_daemonsets", pools=[RAW], pull_timeout=5)
        assert found["failed"]
        assert found["msg"].startswith(
            "DaemonSet kubevirt/virt-handler-gpu was not created, because 1 of 1 node cannot get its images. n1: images were not pulled "
            "within 5 s"
        )
        assert live(world) is None
        assert not world.find(kinds.POD, builders.PULL_POD, builders.NAMESPACE)

    def test_is_not_created_when_its_images_lack_something(self, run, world):
        world.after = lambda request: world.end_pulls(looks="missing virt-chroot\nlooked")
        text = run.failure("pool_daemonsets", pools=[RAW])
        what = f"DaemonSet kubevirt/virt-handler-gpu was not created, because image {builders.GPU_IMAGE} lacks virt-chroot."
        assert text.startswith(what)
        assert live(world) is None

    def test_none_is_created_and_all_problems_are_told(self, run, world):
        """The third would be all right."""
        world.put(builders.node("n2", labels={"hw": "other"}))
        world.put(builders.node("n3", labels={"hw": "third"}))
        third = {**RAW, "name": "third", "nodeSelector": {"hw": "third"}, "virtHandlerImage": builders.HANDLER_IMAGE}

        def pull(_request):
            world.end_pulls()
            for pod in world.all(kinds.POD):
                if names.PULL_LABEL in pod["metadata"]["labels"] and pod["spec"]["nodeName"] != "n3":
                    del pod["status"]

        world.after = pull
        text = run.failure("pool_daemonsets", pools=[RAW, OTHER, third], pull_timeout=5)
        assert text.count("was not created, because 1 of 1 node cannot get its images") == 2
        assert text.count("set virtpools_prepull: false") == 1
        assert "virt-handler-third" not in text
        assert [live(world, pool) for pool in ("gpu", "other", "third")] == [None] * 3

    def test_has_a_note_of_what_its_images_contain(self, run, world):
        world.after = lambda request: world.end_pulls()
        (diff,) = run("pool_daemonsets", pools=[RAW])["diff"]
        assert image_contents.recorded(live(world)) == {builders.GPU_IMAGE: image_contents.Contents("10.1.0", "11.9.0")}
        assert names.CONTENTS_ANNOTATION not in str(diff)

    def test_does_not_wait_for_images_where_no_node_gets_it(self, run, world):
        assert run("pool_daemonsets", pools=[OTHER])["changed"]
        assert not [path for verb, path in world.writes if "/pods" in path]


class TestDuringThePull:
    """Pulls take a minute. What happens in it counts."""

    @pytest.fixture(autouse=True)
    def slow(self, world):
        world.at[world.now + 60] = world.end_pulls

    def test_an_upgrade_of_kubevirt_is_followed(self, run, world):
        later = builders.primary(desired=2)
        later["spec"]["template"]["spec"]["priorityClassName"] = "later"
        world.at[world.now + 30] = lambda: world.put(later)
        assert run("pool_daemonsets", pools=[RAW])["changes"] == ["DaemonSet kubevirt/virt-handler-gpu: create"]
        assert live(world)["spec"]["template"]["spec"]["priorityClassName"] == "later"

    def test_a_daemonset_of_another_client_is_left_alone(self, run, world):
        foreign = builders.pool_daemonset(builders.pool("gpu"))
        del foreign["metadata"]["labels"]
        world.at[world.now + 30] = lambda: world.put(foreign)
        assert "virt-handler-gpu" in run.failure("pool_daemonsets", pools=[RAW])
        assert not live(world)["metadata"].get("labels")


class TestPulled:
    """What the first run does before KubeVirt restarts its handlers."""

    def test_tells_what_is_in_the_images_and_writes_no_daemonset(self, run, world):
        world.after = lambda request: world.end_pulls()
        found = run("pool_daemonsets", state="pulled", pools=[RAW])
        assert found["contents"] == {builders.GPU_IMAGE: {"qemu": "10.1.0", "libvirt": "11.9.0"}}
        assert (found["changed"], found["changes"]) == (False, [])
        assert live(world) is None
        assert not world.find(kinds.POD, builders.PULL_POD, builders.NAMESPACE)

    def test_what_it_told_is_noted_without_a_second_look(self, run, world):
        world.after = lambda request: world.end_pulls()
        contents = run("pool_daemonsets", state="pulled", pools=[RAW])["contents"]
        world.put(builders.node("n1", labels={"hw": "gpu"}, images=[builders.GPU_IMAGE, builders.LAUNCHER_IMAGE]))
        world.writes.clear()
        assert run("pool_daemonsets", pools=[RAW], contents=contents)["changed"]
        assert not [path for verb, path in world.writes if "/pods" in path]
        assert image_contents.recorded(live(world)) == {builders.GPU_IMAGE: image_contents.Contents("10.1.0", "11.9.0")}

    def test_looks_again_where_what_it_gets_is_no_contents(self, run, world):
        world.after = lambda request: world.end_pulls()
        run("pool_daemonsets", pools=[RAW], contents={builders.GPU_IMAGE: "10.1.0"})
        assert image_contents.recorded(live(world)) == {builders.GPU_IMAGE: image_contents.Contents("10.1.0", "11.9.0")}

    def test_fails_like_the_change(self, run, world):
        text = run.failure("pool_daemonsets", state="pulled", pools=[RAW], pull_timeout=5)
        assert text.startswith(
            "DaemonSet kubevirt/virt-handler-gpu was not created, because 1 of 1 node cannot get its images."
        )

    def test_does_nothing_once_there_is_a_pool(self, run, world, excluded):
        """A lost exclusion must not wait for the images of another pool."""
        world.put(builders.kubevirt())
        world.put(builders.node("n2", labels={"hw": "other"}))
        assert run("pool_daemonsets", state="pulled", pools=[RAW, OTHER], pull_timeout=5)["contents"] == {}
        assert not [path for verb, path in world.writes if "/pods" in path]

    @pytest.mark.parametrize("how", [{"check": True}, {"prepull": False}])
    def test_starts_no_pod_in_check_mode_or_without_prepull(self, run, world, how):
        assert run("pool_daemonsets", state="pulled", pools=[RAW], **how)["contents"] == {}
        assert not [path for verb, path in world.writes if "/pods" in path]


class TestPresent:
    @pytest.fixture(autouse=True)
    def pulled(self, world):
        world.after = lambda request: world.end_pulls()

    def test_makes_what_is_missing(self, run, world):
        found = run("pool_daemonsets", pools=[RAW])
        assert (found["changed"], found["changes"]) == (True, ["DaemonSet kubevirt/virt-handler-gpu: create"])
        assert daemonsets.drift(daemonsets.derive(builders.primary(), builders.pool("gpu")), live(world)) == ()

    def test_diff_of_a_new_one_is_from_the_primary(self, run, world):
        """The headers name both, and it is the same in check mode, where the primary has no exclusion yet."""
        (predicted,) = run("pool_daemonsets", pools=[RAW], check=True)["diff"]
        primary = builders.primary(desired=2)
        primary["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"] = "10%"
        world.put(primary)
        (diff,) = run("pool_daemonsets", pools=[RAW])["diff"]
        assert diff == predicted
        assert (diff["before_header"], diff["after_header"]) == (
            "DaemonSet/kubevirt/virt-handler, which stays",
            "DaemonSet/kubevirt/virt-handler-gpu, which is new",
        )
        sides = (diff["before"], diff["after"])
        assert [side["metadata"]["name"] for side in sides] == ["virt-handler", "virt-handler-gpu"]
        pods = [side["spec"]["template"]["spec"] for side in sides]
        assert [[each["image"] for each in pod["containers"]] for pod in pods] == [
            [builders.HANDLER_IMAGE],
            [builders.GPU_IMAGE],
        ]
        assert [pod.get("nodeSelector") for pod in pods] == [{}, {names.OWNER_LABEL: "gpu"}]
        assert pods[1].keys() == {"containers", "nodeSelector"}, "the rest is as in the primary"

    def test_diff_of_an_updated_one_is_from_itself(self, run, world, excluded):
        (diff,) = run("pool_daemonsets", pools=[{**RAW, "virtHandlerImage": f"{builders.GPU_IMAGE}2"}])["diff"]
        assert diff["before_header"] == diff["after_header"] == "DaemonSet/kubevirt/virt-handler-gpu"
        images = [side["spec"]["template"]["spec"]["containers"] for side in (diff["before"], diff["after"])]
        assert [each["image"] for (each,) in images] == [builders.GPU_IMAGE, f"{builders.GPU_IMAGE}2"]

    def test_repairs_what_was_edited(self, run, world, excluded):
        live(world)["spec"]["template"]["spec"]["containers"][0]["image"] = "other"
        assert run("pool_daemonsets", pools=[RAW])["changes"] == ["DaemonSet kubevirt/virt-handler-gpu: update"]
        assert daemonsets.handler_image(live(world)) == builders.GPU_IMAGE

    def test_check_mode_predicts_and_writes_nothing(self, run, world):
        predicted = run("pool_daemonsets", pools=[RAW], check=True)
        assert world.writes == []
        assert live(world) is None
        assert predicted["changes"] == run("pool_daemonsets", pools=[RAW])["changes"]

    def test_twice_changes_nothing_and_takes_no_lease(self, run, world):
        run("pool_daemonsets", pools=[RAW])
        world.writes.clear()
        assert run("pool_daemonsets", pools=[RAW])["changed"] is False
        assert world.writes == []

    def test_never_takes_over_somebody_elses(self, run, world):
        foreign = builders.pool_daemonset(builders.pool("gpu"))
        del foreign["metadata"]["labels"][names.MANAGED_BY_LABEL]
        del foreign["spec"]["template"]["metadata"]["annotations"]
        world.put(foreign)
        assert "this collection did not create it" in run.failure("pool_daemonsets", pools=[RAW])
        assert world.writes == []

    def test_an_unavailable_kubevirt_is_refused_only_outside_a_run(self, run, world):
        lease = run("run_lease")
        world.put(builders.kubevirt(conditions={"Available": "False"}))
        assert "is not available" in run.failure("pool_daemonsets", pools=[RAW])
        assert run("pool_daemonsets", pools=[RAW], run_id=lease["run_id"])["changed"]

    def test_a_short_degradation_is_refused_only_outside_a_run(self, run, world):
        """As virt-operator is when the API server restarts."""
        lease = run("run_lease")
        world.put(builders.kubevirt(conditions={"Degraded": "True"}))
        assert "is degraded" in run.failure("pool_daemonsets", pools=[RAW])
        world.at[world.now + 5] = lambda: world.put(builders.kubevirt())
        assert run("pool_daemonsets", pools=[RAW], run_id=lease["run_id"])["changed"]

    def test_a_new_deployment_within_a_run_is_followed(self, run, world):
        """The run waits until virt-operator has rolled it out, and the primary is another by then."""
        lease = run("run_lease")
        later = builders.primary(desired=2)
        later["spec"]["template"]["spec"]["priorityClassName"] = "later"
        begin_rollout(world, lambda: world.put(later))
        assert run("pool_daemonsets", pools=[RAW], run_id=lease["run_id"])["changed"]
        assert live(world)["spec"]["template"]["spec"]["priorityClassName"] == "later"

    def test_a_lasting_degradation_is_refused_within_a_run_too(self, run, world):
        lease = run("run_lease")
        world.put(builders.kubevirt(conditions={"Degraded": "True"}))
        assert "stays degraded" in run.failure("pool_daemonsets", pools=[RAW], run_id=lease["run_id"])
        assert [path for _verb, path in world.writes if "daemonsets" in path] == []


class TestAbsent:
    def absent(self, run, **options):
        return run("pool_daemonsets", pools=[OTHER], state="absent", prune=True, **options)

    @pytest.fixture(autouse=True)
    def another_pool(self, excluded):
        excluded.put(builders.pool_daemonset(builders.pool("other"), desired=0))

    def test_deletes_what_is_gone_from_the_list_and_owns_no_node(self, run, world):
        assert self.absent(run)["changes"] == ["DaemonSet kubevirt/virt-handler-gpu: delete"]
        assert live(world) is None
        assert live(world, "other") is not None

    def test_diff_says_which_pool_goes_without_its_long_spec(self, run):
        (diff,) = self.absent(run)["diff"]
        assert diff["before"].keys() == {"apiVersion", "kind", "metadata"}
        assert '"name":"gpu"' in diff["before"]["metadata"]["annotations"][names.POOL_ANNOTATION]
        assert diff["after"] == {}

    def test_check_mode_writes_nothing(self, run, world):
        assert self.absent(run, check=True)["changes"] == ["DaemonSet kubevirt/virt-handler-gpu: delete"]
        assert live(world) is not None
        assert world.writes == []

    @pytest.mark.parametrize(("owner", "former"), [("gpu", None), (names.IN_TRANSIT, "gpu"), (None, "gpu")])
    def test_refuses_while_a_node_has_still_to_leave(self, run, world, owner, former):
        """Passed over in silence, the run would end well with the pool still there."""
        world.put(builders.node("n2", owner, former))
        text = run.failure("pool_daemonsets", pools=[OTHER], state="absent", prune=True)
        assert "Pool gpu still owns n2" in text
        assert "run again" in text
        assert world.writes == []

    def test_refuses_when_a_node_came_to_the_pool_during_a_wait(self, run, world):
        """Without its DaemonSet, the node would have no handler."""
        lease = run("run_lease")
        begin_rollout(world, lambda: world.put(builders.node("n2", "gpu")))
        with_lease = {"run_id": lease["run_id"], "state": "absent", "prune": True}
        assert "Pool gpu still owns n2" in run.failure("pool_daemonsets", pools=[OTHER], **with_lease)
        assert live(world) is not None

    def test_leaves_alone_what_a_dead_node_cannot_leave(self, run, world):
        world.put(builders.node("n2", "gpu", ready=False))
        assert self.absent(run)["changed"] is False
        assert live(world) is not None

    def test_not_without_prune(self, run, world):
        assert run("pool_daemonsets", pools=[OTHER], state="absent")["changed"] is False

    def test_deletes_many_side_by_side(self, run, world):
        for number in range(9):
            world.put(builders.pool_daemonset(builders.pool(f"gone-{number}"), desired=0))

        def end(kind, name):
            world.drop(kind, name, builders.NAMESPACE)

        def deleted(kind, key, obj, options, dry):
            name = obj["metadata"]["name"]
            world.at[world.now + 5 + len(world.at) / 100] = lambda: end(kind, name)
            return obj

        world._deleted = deleted
        began = world.now
        assert len(self.absent(run)["changes"]) == 10
        assert world.now - began < 10

    def test_says_when_pods_do_not_end(self, run, world):
        world._deleted = lambda kind, key, obj, options, dry: obj
        text = run.failure("pool_daemonsets", pools=[OTHER], state="absent", prune=True, timeout=30)
        assert "still exists after 30 s" in text
