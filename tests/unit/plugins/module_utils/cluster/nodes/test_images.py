# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import contextlib
import re

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.client import ClusterError
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.lease import LeaseLost
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.waiting import StatusLines
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.nodes import images
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kubevirt import image_contents
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kubevirt.image_contents import Contents
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.observed.leftovers import Leftover
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.observed.nodes import Node
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders
from ansible_collections.virtpools.kubevirt.tests.unit.support.fake_cluster import ApiServer, Refused

HANDLER, LAUNCHER = f"{builders.HANDLER_IMAGE}-gpu", f"{builders.LAUNCHER_IMAGE}-gpu"
GPU = builders.pool_daemonset(builders.pool("gpu", imagePullSecrets=[{"name": "gpu"}]))
UNKNOWN = builders.pool_daemonset(
    builders.pool(
        "gpu", virtHandlerImage=HANDLER, virtLauncherImage=LAUNCHER, selector={"deviceNames": ["a.example/gpu"]}
    )
)
del UNKNOWN["metadata"]["annotations"][names.CONTENTS_ANNOTATION]
NO_SHELL = 'exec: "/bin/sh": stat /bin/sh: no such file or directory'
BOTH = (f"{builders.HANDLER_IMAGE}-gpu", builders.LAUNCHER_IMAGE)


class Kubelets(ApiServer):
    """Nodes that pull images within some seconds. ``say[node]`` is the state of the containers after that."""

    def __init__(self, *objects, seconds=5.0):
        super().__init__(*objects)
        self.now = 0.0
        self.seconds = seconds
        self.say = {}
        self.most = 0

    def sleep(self, seconds):
        self.now += seconds
        pods = self.all(kinds.POD)
        self.most = max(self.most, len(pods))
        for pod in pods:
            state = {"waiting": {"reason": "ContainerCreating"}}
            if self.now >= self.seconds:
                state = self.say.get(pod["spec"]["nodeName"], {"terminated": {"exitCode": 127}})
            pod["status"] = (
                state
                if "phase" in state
                else {
                    "phase": "Pending",
                    "containerStatuses": [
                        {"name": c["name"], "image": c["image"], "state": state} for c in pod["spec"]["containers"]
                    ],
                }
            )

    def pull(self, *nodes, timeout=60.0, daemonset=GPU):
        clock = images.Clock(now=lambda: self.now, sleep=self.sleep)
        known = image_contents.recorded(daemonset)
        pulls = [images.Pull(Node.from_object(node), daemonset, known) for node in nodes]
        return images.pull(self.client(), builders.NAMESPACE, pulls, timeout, clock)

    def look(self, *nodes, **options):
        """Pull images into which no run has looked."""
        return self.pull(*nodes, daemonset=UNKNOWN, **options)

    def start(self, *nodes, secrets=(), timeout=60.0):
        clock = images.Clock(now=lambda: self.now, sleep=self.sleep)
        starts = [images.Start(Node.from_object(node), builders.GPU_LAUNCHER_IMAGE, secrets) for node in nodes]
        return images.start(self.client(), builders.NAMESPACE, starts, timeout, clock)

    @property
    def created(self):
        return [request.body for request in self.requests if request.method == "POST"]


def waiting(reason, message=None):
    return {"waiting": {"reason": reason, **({"message": message} if message else {})}}


def ended(message):
    return {"terminated": {"exitCode": 0, "reason": "Completed", "message": message}}


class TestPull:
    def test_on_all_nodes_side_by_side(self):
        world = Kubelets()
        assert world.pull(*(builders.node(f"n{index}") for index in range(4))).problems == {}
        assert world.most == 4
        assert world.now < 10
        assert world.all(kinds.POD) == []

    def test_asks_no_oftener_for_many_nodes(self):
        few, many = Kubelets(), Kubelets()
        few.pull(builders.node())
        many.pull(*(builders.node(f"n{index}") for index in range(20)))
        looks = [[request for request in world.requests if request.method == "GET"] for world in (few, many)]
        assert len(looks[0]) == len(looks[1]) > 1

    def test_makes_no_pod_where_the_images_are(self):
        world = Kubelets()
        assert world.pull(builders.node(images=BOTH)) == images.Pulled()
        assert world.requests == []

    def test_pulls_only_what_is_missing(self):
        world = Kubelets()
        world.pull(builders.node(images=BOTH[1:]))
        (pod,) = world.created
        assert [container["image"] for container in pod["spec"]["containers"]] == [BOTH[0]]

    def test_that_takes_long_says_which_node_pulls_what(self):
        world, shown = Kubelets(seconds=45), []
        status = StatusLines(shown.append, lambda: world.now)
        clock = images.Clock(now=lambda: world.now, sleep=world.sleep, status=status)
        pulls = [images.Pull(Node.from_object(builders.node(images=BOTH[1:])), GPU, image_contents.recorded(GPU))]
        images.pull(world.client(), builders.NAMESPACE, pulls, 60, clock)
        (line,) = shown
        assert re.fullmatch(
            rf"Waiting, 3\d s of at most 60 s: 1 node pulls images: n1: {re.escape(BOTH[0])} \(ContainerCreating\)",
            line,
        )

    def test_of_nothing(self):
        world = Kubelets()
        assert world.pull() == images.Pulled()
        assert world.requests == []

    @pytest.mark.parametrize(
        "state",
        [
            {"running": {}},
            {"terminated": {"exitCode": 127}},
            waiting("RunContainerError"),
            waiting("CreateContainerError", "no such file"),
            waiting("CrashLoopBackOff"),
        ],
        ids=str,
    )
    def test_an_image_is_there_whatever_became_of_the_command(self, state):
        world = Kubelets()
        world.say["n1"] = state
        assert world.pull(builders.node()).problems == {}


class TestLook:
    @pytest.mark.parametrize("on_node", [(), (HANDLER, LAUNCHER)], ids=["pulled", "there before"])
    def test_finds_what_is_in_images(self, on_node):
        world = Kubelets()
        world.say["n1"] = ended("qemu QEMU emulator version 10.1.0\nlibvirt 11.9.0\nlooked")
        found = world.look(builders.node(images=on_node))
        assert (found.problems, found.lacking) == ({}, {})
        assert found.contents == dict.fromkeys((HANDLER, LAUNCHER), Contents("10.1.0", "11.9.0"))

    def test_finds_what_they_lack(self):
        world = Kubelets()
        world.say["n1"] = ended("missing virt-chroot\nmissing qemu:107 in /etc/group\nlooked")
        found = world.look(builders.node())
        assert found.lacking == dict.fromkeys((HANDLER, LAUNCHER), ("virt-chroot", "qemu:107 in /etc/group"))
        assert found.contents == {}

    def test_once_where_images_are_on_all_nodes(self):
        world = Kubelets()
        world.say = dict.fromkeys(("n1", "n2", "n3"), ended("looked"))
        world.look(*(builders.node(name, images=(HANDLER, LAUNCHER)) for name in ("n1", "n2")), builders.node("n3"))
        assert [pod["spec"]["nodeName"] for pod in world.created] == ["n1", "n3"]

    def test_not_into_kubevirts_own_images(self):
        world = Kubelets()
        clock = images.Clock(now=lambda: world.now, sleep=world.sleep)
        pull = images.Pull(Node.from_object(builders.node()), UNKNOWN, known=(), stock={HANDLER, LAUNCHER})
        assert images.pull(world.client(), builders.NAMESPACE, [pull], 60, clock) == images.Pulled()
        assert {tuple(each["command"]) for each in world.created[0]["spec"]["containers"]} == {("true",)}

    def test_as_the_user_of_launcher_pods(self):
        world = Kubelets()
        world.look(builders.node())
        (pod,) = world.created
        assert pod["spec"]["securityContext"]["runAsUser"] == 107
        assert {each["image"]: each["command"][:2] for each in pod["spec"]["containers"]} == {
            image: ["/bin/sh", "-c"] for image in (HANDLER, LAUNCHER)
        }

    @pytest.mark.parametrize(
        ("state", "why"),
        [
            (
                {"terminated": {"reason": "StartError", "exitCode": 128, "message": f"exec: {NO_SHELL}: unknown"}},
                "it has no /bin/sh",
            ),
            (
                {"terminated": {"reason": "StartError", "exitCode": 128, "message": "exec format error"}},
                "its shell did not run: StartError, exit code 128, exec format error",
            ),
            ({"terminated": {"reason": "Error", "exitCode": 2}}, "its shell did not run: Error, exit code 2"),
            ({"running": {}}, "its shell did not end"),
        ],
    )
    def test_an_image_that_cannot_be_looked_into_is_unchecked(self, state, why):
        world = Kubelets()
        world.say["n1"] = state
        found = world.look(builders.node())
        assert (found.problems, found.lacking) == ({}, {})
        assert found.contents[LAUNCHER] == Contents(unchecked=why)

    def test_by_the_names_that_the_pool_has(self):
        """A webhook sends pods to a mirror; the DaemonSet has the images that we asked for."""
        world = Kubelets()
        world.say["n1"] = ended("looked")

        def mirror(_request):
            for pod in world.all(kinds.POD):
                for container in pod["spec"]["containers"]:
                    container["image"] = container["image"].replace("registry.example", "mirror.example")

        world.after = mirror
        assert world.look(builders.node()).contents.keys() == {HANDLER, LAUNCHER}

    def test_waits_for_its_end(self):
        world = Kubelets()
        world.say["n1"] = {"running": {}}

        def end(_request):
            if world.now > 20:
                world.say["n1"] = ended("missing virt-chroot\nlooked")

        world.before = end
        assert world.look(builders.node()).lacking
        assert 20 < world.now < 30


class TestFailure:
    @pytest.mark.parametrize("reason", ["ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"])
    def test_an_image_that_cannot_be_pulled(self, reason):
        world = Kubelets()
        world.say["bad"] = waiting(reason, "manifest unknown")
        found = world.pull(builders.node("good"), builders.node("bad")).problems
        assert found == {"bad": f"image {BOTH[0]} cannot be pulled: {reason} (manifest unknown)"}
        assert world.now < 15
        assert world.all(kinds.POD) == []

    @pytest.mark.parametrize("reason", ["ErrImagePull", "ContainerCreating", "PodInitializing", ""])
    def test_an_image_that_is_not_pulled_in_time(self, reason):
        world = Kubelets()
        world.say["n1"] = waiting(reason)
        assert world.pull(builders.node()).problems == {"n1": "images were not pulled within 60 s"}
        assert world.all(kinds.POD) == []

    @pytest.mark.parametrize("reason", ["SignatureValidationFailed", "RegistryUnavailable", "SomethingNew"])
    def test_a_reason_that_is_not_known_is_no_success(self, reason):
        world = Kubelets()
        world.say["n1"] = waiting(reason, "no trusted signature")
        said = f"; the kubelet says of image {BOTH[0]}: {reason} (no trusted signature)"
        assert world.pull(builders.node()).problems == {"n1": f"images were not pulled within 60 s{said}"}

    def test_a_node_that_refuses_the_pod(self):
        world = Kubelets()
        world.say["n1"] = {"phase": "Failed", "reason": "OutOfpods", "message": "Node didn't have enough pods"}
        assert world.pull(builders.node()).problems == {
            "n1": "the node refused the pod that pulls its images: Node didn't have enough pods"
        }

    def test_a_pod_that_somebody_deletes(self):
        world = Kubelets(seconds=30)
        world.after = lambda request: (
            world.now > 3
            and [world.drop(kinds.POD, pod["metadata"]["name"], builders.NAMESPACE) for pod in world.all(kinds.POD)]
        )
        assert (
            "the pod that pulls its images was deleted by another client" in world.pull(builders.node()).problems["n1"]
        )

    @pytest.mark.parametrize("error", [ClusterError("no"), LeaseLost("lost"), KeyboardInterrupt()], ids=repr)
    def test_pods_are_removed_whatever_happens(self, error):
        world = Kubelets(seconds=30)

        def fail(request):
            if request.method == "GET" and world.now > 2:
                raise error

        world.before = fail
        with pytest.raises(type(error)):
            world.pull(builders.node("n1"), builders.node("n2"))
        assert world.all(kinds.POD) == []

    def test_pods_made_before_one_was_refused_are_removed(self):
        world = Kubelets()

        def refuse_second(request):
            if request.method == "POST" and len(world.created) == 2:
                raise ClusterError("refused")

        world.before = refuse_second
        with pytest.raises(ClusterError):
            world.pull(builders.node("n1"), builders.node("n2"))
        assert world.all(kinds.POD) == []


class TestPod:
    @pytest.fixture
    def pod(self):
        world = Kubelets()
        world.pull(builders.node(taints=[{"key": "a", "effect": "NoExecute"}]))
        (pod,) = world.created
        return pod

    def test_is_no_handler_and_is_found_by_the_next_run(self, pod):
        assert pod["metadata"]["labels"] == {names.PULL_LABEL: "true", names.MANAGED_BY_LABEL: names.MANAGED_BY}
        assert pod["metadata"]["namespace"] == builders.NAMESPACE

    def test_goes_to_its_node_whatever_its_taints(self, pod):
        assert pod["spec"]["nodeName"] == "n1"
        assert pod["spec"]["tolerations"] == [{"operator": "Exists"}]

    def test_pulls_as_the_handler_would(self, pod):
        assert pod["spec"]["serviceAccountName"] == "kubevirt-handler"
        assert pod["spec"]["imagePullSecrets"] == [{"name": "gpu"}]
        assert {container["imagePullPolicy"] for container in pod["spec"]["containers"]} == {"IfNotPresent"}

    def test_may_do_nothing(self, pod):
        spec = pod["spec"]
        assert spec["automountServiceAccountToken"] is False
        assert spec["securityContext"]["runAsNonRoot"]
        assert not [key for key in ("hostPID", "hostNetwork", "volumes") if key in spec]
        nothing = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
        assert [container["securityContext"] for container in spec["containers"]] == [nothing, nothing]

    def test_has_a_valid_name_for_any_node(self):
        world = Kubelets()
        world.pull(builders.node("a." * 120 + "node"), builders.node("b"))
        found = [pod["metadata"]["name"] for pod in world.created]
        assert len(set(found)) == 2
        assert all(len(name) <= 63 for name in found)

    def test_has_the_same_name_in_every_run(self):
        first, second = Kubelets(), Kubelets()
        first.pull(builders.node())
        second.pull(builders.node())
        assert first.created[0]["metadata"]["name"] == second.created[0]["metadata"]["name"]


class TestOpenShift:
    """KubeVirt's SecurityContextConstraints for handlers allow any user but no seccomp profile; restricted-v2, the only ones
    for ``default``, choose the user themselves."""

    @pytest.fixture
    def world(self):
        world = Kubelets()
        world.unserved.remove(kinds.SECURITY_CONTEXT_CONSTRAINTS.name)
        return world

    def test_a_pull_pod_looks_as_107_without_a_seccomp_profile(self, world):
        world.look(builders.node())
        (pod,) = world.created
        assert pod["spec"]["securityContext"] == {"runAsNonRoot": True, "runAsUser": 107}

    def test_a_start_pod_leaves_its_user_to_openshift(self, world):
        world.start(builders.node())
        (pod,) = world.created
        profile = {"type": "RuntimeDefault"}
        assert pod["spec"]["securityContext"] == {"runAsNonRoot": True, "seccompProfile": profile}

    def test_is_asked_for_once_however_many_nodes(self, world):
        world.start(*(builders.node(f"n{index}") for index in range(4)))
        paths = [request.path for request in world.requests if request.method == "GET" and "pods" not in request.path]
        assert paths == ["/apis", "/apis/security.openshift.io/v1"]


class TestStart:
    """A kubelet may refuse launcher pods an image that is on its node: only a pod that has no more than they can tell."""

    def test_is_tried_where_the_image_is(self):
        world = Kubelets()
        assert world.start(builders.node("n1", images=[builders.GPU_LAUNCHER_IMAGE]), builders.node("n2")) == {}
        assert [pod["spec"]["nodeName"] for pod in world.created] == ["n1", "n2"]
        assert world.all(kinds.POD) == []

    @pytest.mark.parametrize("secrets", [(), ("launchers",)])
    def test_has_what_a_launcher_pod_has(self, secrets):
        world = Kubelets()
        world.start(builders.node(), secrets=secrets)
        (pod,) = world.created
        spec = pod["spec"]
        assert spec.get("imagePullSecrets", []) == [{"name": name} for name in secrets]
        assert spec["serviceAccountName"] == "default"
        assert [container["image"] for container in spec["containers"]] == [builders.GPU_LAUNCHER_IMAGE]

    def test_says_why_it_failed(self):
        world = Kubelets()
        world.say["bad"] = waiting("ImagePullBackOff", "unauthorized")
        assert world.start(builders.node("good"), builders.node("bad")) == {
            "bad": f"image {builders.GPU_LAUNCHER_IMAGE} cannot be pulled: ImagePullBackOff (unauthorized)"
        }


def test_remove_does_not_mind_what_is_gone():
    world = Kubelets()
    images.remove(world.client(), [Leftover(builders.NAMESPACE, "virtpools-pull-1", "1")])
    assert world.requests[0].body["gracePeriodSeconds"] == 0


def test_a_pod_of_another_client_with_the_name_stays():
    world = Kubelets()
    theirs = world.put(builders.pull_pod("n2", **{names.MANAGED_BY_LABEL: "another"}))
    with pytest.raises(ClusterError, match="already exists"):
        world.pull(builders.node("n1"), builders.node("n2"))
    assert world.all(kinds.POD) == [theirs]


class TestPulling:
    """Pulls that go on while something else is done."""

    @contextlib.contextmanager
    def pulling(self, world, *nodes, daemonset=GPU):
        clock = images.Clock(now=lambda: world.now, sleep=world.sleep)
        pulls = [images.Pull(Node.from_object(node), daemonset, image_contents.recorded(daemonset)) for node in nodes]
        with images.pulling(world.client(), builders.NAMESPACE, pulls, 60.0, clock) as wait:
            yield wait

    def test_goes_on_while_something_else_is_done(self):
        world = Kubelets()
        with self.pulling(world, builders.node()) as wait:
            assert len(world.all(kinds.POD)) == 1
            world.sleep(world.seconds)
            assert wait().problems == {}
        assert world.now == world.seconds
        assert world.all(kinds.POD) == []

    def test_waits_for_what_is_left(self):
        world = Kubelets()
        with self.pulling(world, builders.node()) as wait:
            wait()
        assert world.now > world.seconds

    def test_returns_what_was_found(self):
        world = Kubelets()
        world.say["n1"] = ended("qemu 10.1.0\nlooked")
        with self.pulling(world, builders.node(), daemonset=UNKNOWN) as wait:
            assert wait().contents[HANDLER] == Contents(qemu="10.1.0")

    @pytest.mark.parametrize("verb", ["POST", "GET", "DELETE"])
    def test_no_error_ends_what_is_done_meanwhile(self, verb):
        world, meanwhile = Kubelets(), []

        def refuse(request):
            if request.method == verb:
                raise Refused(403, "Forbidden")

        world.before = refuse
        with self.pulling(world, builders.node()) as wait:
            wait()
            meanwhile.append("done")
        assert meanwhile == ["done"]

    def test_an_error_of_that_deletes_the_pods(self):
        world = Kubelets()
        with pytest.raises(LeaseLost), self.pulling(world, builders.node()):
            raise LeaseLost("another run has the Lease")
        assert world.all(kinds.POD) == []
