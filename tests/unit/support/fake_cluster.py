# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An in-memory API server for the real client, and a cluster around it: a clock, a DaemonSet controller, kubelets."""

from __future__ import annotations

import copy
import json
import re
import threading
from collections import Counter, UserDict, defaultdict
from dataclasses import dataclass, replace

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.client import Cluster
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.transport import NoAnswer, Response
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.waiting import Clock, StatusLines
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.watch import Event
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kubevirt import handler_fit
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.observed.nodes import Node
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders

LOST = NoAnswer("Connection reset by peer", sent=True)

_PATH = re.compile(
    r"/(?:api|apis)/(?P<version>v1|[^/]+/[^/]+)(?:/namespaces/(?P<namespace>[^/]+))?(?:/(?P<plural>[-a-z]+))?"
    r"(?:/(?P<name>[^/]+)(?:/expand-spec)?)?"
)
_CONSTANTS = [value if isinstance(value, tuple) else (value,) for value in vars(kinds).values()]
_KINDS = {
    (kind.api_version, kind.plural): kind
    for constant in _CONSTANTS
    for kind in constant
    if isinstance(kind, kinds.Kind)
}
_PATCH_REFUSED = "the server rejected our request due to an error in our request"


class Refused(Exception):
    """The answer to a request that the server refuses; ``before`` may raise it, too."""

    def __init__(self, status, reason, message="it said so", details=None):
        super().__init__(message)
        body = {"kind": "Status", "code": status, "reason": reason, "message": message, "details": details or {}}
        self.response = Response(status, json.dumps(body).encode())


class _Objects(UserDict):
    """Objects by API version, plural, namespace and name; those of one kind are found without a look at all others."""

    def __init__(self):
        self._of = defaultdict(dict)
        super().__init__()

    def __setitem__(self, key, obj):
        super().__setitem__(key, obj)
        self._of[key[:2]][key] = obj

    def __delitem__(self, key):
        super().__delitem__(key)
        del self._of[key[:2]][key]

    def of(self, kind):
        return list(self._of[kind.api_version, kind.plural].values())


class ApiServer:
    """A transport that stores objects. ``writes`` lists verb and path of each stored write, ``requests`` every request.

    ``before(request)`` and ``after(request)`` are called around each request. When ``after`` raises NoAnswer, the
    request was carried out but the client gets no answer. Requests of several threads are answered one after the other.
    """

    server = "https://api.example:6443"

    def __init__(self, *objects, unserved=(), denied=()):
        self.objects = _Objects()
        self.unserved = {kinds.SECURITY_CONTEXT_CONSTRAINTS.name, *unserved}
        self.denied = set(denied)
        self.writes = []
        self.requests = []
        self.before = lambda request: None
        self.after = lambda request: None
        self.alone = threading.RLock()
        self._version = 1000
        for obj in objects:
            self.put(obj)

    def client(self, **options):
        return Cluster(self, **options)

    # For tests

    def put(self, obj):
        kind = next(k for k in _KINDS.values() if (k.api_version, k.name) == (obj["apiVersion"], obj["kind"]))
        stored = _served(copy.deepcopy(obj))
        metadata = stored["metadata"]
        self._version += 1
        metadata["resourceVersion"] = str(self._version)
        metadata.setdefault("uid", f"uid-{metadata['name']}-{self._version}")
        self.objects[kind.api_version, kind.plural, metadata.get("namespace"), metadata["name"]] = stored
        return stored

    def all(self, kind):
        return self.objects.of(kind)

    def find(self, kind, name, namespace=None):
        return self.objects.get((kind.api_version, kind.plural, namespace, name))

    def drop(self, kind, name, namespace=None):
        return self.objects.pop((kind.api_version, kind.plural, namespace, name), None)

    def touch(self, obj):
        self._version += 1
        obj["metadata"]["resourceVersion"] = str(self._version)

    def end_pulls(self, **looks):
        """End the pods that pull images, as kubelets do. For ``looks`` see ``builders.pulled``."""
        for pod in self.all(kinds.POD):
            if names.PULL_LABEL in pod["metadata"]["labels"]:
                pod["status"] = builders.pulled(pod, **looks)

    # The transport

    def send(self, request):
        with self.alone:
            self.requests.append(request)
            try:
                self.before(request)
                answer = self._answer(request)
            except Refused as refused:
                return refused.response
            self.after(request)
            return Response(200, json.dumps(answer).encode())

    def open(self, request):
        """Nothing can be followed here."""
        raise NoAnswer("status 403", sent=True)

    def _answer(self, request):
        if request.path == "/version":
            return {"gitVersion": "v1.36.3"}
        if request.path == "/apis":
            versions = {kind.api_version for kind in _KINDS.values() if kind.name not in self.unserved}
            return {"groups": [{"versions": [{"groupVersion": version}]} for version in sorted(versions)]}
        match = _PATH.fullmatch(request.path)
        assert match, request.path
        version, plural, namespace, name = match.group("version", "plural", "namespace", "name")
        if namespace is not None and plural is None:
            plural, namespace, name = "namespaces", None, namespace
        if plural == "selfsubjectrulesreviews":
            return {"status": {"incomplete": True}}
        if plural == "selfsubjectaccessreviews":
            attributes = request.body["spec"]["resourceAttributes"]
            return {"status": {"allowed": (attributes["verb"], attributes["resource"]) not in self.denied}}
        if plural == "selfsubjectreviews":
            return {"status": {"userInfo": {"username": "tester"}}}
        kind = _KINDS.get((version, plural))
        if plural is None:
            served = [k.plural for k in _KINDS.values() if k.api_version == version and k.name not in self.unserved]
            return {"resources": [{"name": each} for each in served]}
        if kind is None or kind.name in self.unserved:
            raise Refused(404, "NotFound", "404 page not found")
        verb = {"GET": "get" if name else "list", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}.get(
            request.method, "create"
        )
        if (verb, plural) in self.denied:
            raise Refused(403, "Forbidden", f"cannot {verb} {plural}")
        if verb == "list":
            metadata = {"resourceVersion": str(self._version)}
            return {"metadata": metadata, "items": self._selected(kind, namespace, dict(request.query))}
        dry = ("dryRun", "All") in request.query or bool((request.body or {} if verb == "delete" else {}).get("dryRun"))
        return self._object_answer(verb, kind, namespace, name, request, dry)

    def _object_answer(self, verb, kind, namespace, name, request, dry):
        name = name or request.body["metadata"]["name"]
        key = (kind.api_version, kind.plural, namespace, name)
        live = self.objects.get(key)
        if verb == "create" and live is not None:
            raise Refused(409, "AlreadyExists")
        applied = request.content_type == "application/apply-patch+yaml"
        if live is None and verb != "create" and not applied:
            raise Refused(404, "NotFound", f'{kind.plural} "{name}" not found', {"name": name})
        if verb == "get":
            return live
        if not dry:
            self.writes.append((verb, request.path))
        if verb == "delete":
            return self._deleted(kind, key, live, request.body, dry)
        wanted = self._wanted(live, request, applied)
        return self._stored(key, live, wanted, dry)

    def _wanted(self, live, request, applied):
        if applied:
            return _merged(live or {}, request.body)
        if request.content_type == "application/json-patch+json":
            return _patched(live, request.body)
        wanted = copy.deepcopy(request.body)
        version = wanted["metadata"].get("resourceVersion")
        if live is not None and version not in (None, live["metadata"]["resourceVersion"]):
            raise Refused(409, "Conflict", "the object has been modified")
        return wanted

    def _stored(self, key, live, wanted, dry):
        wanted = _served(wanted)
        if live is not None:
            for field in ("uid", "generation"):
                wanted["metadata"][field] = live["metadata"].get(field)
        if live is None or wanted.get("spec") != live.get("spec"):
            wanted["metadata"]["generation"] = (wanted["metadata"].get("generation") or 0) + 1
        if dry:
            return wanted
        if live is None:
            return self.put(wanted)
        live.clear()
        live.update(wanted)
        self.touch(live)
        return live

    def _deleted(self, kind, key, live, options, dry):
        wanted_uid = (options.get("preconditions") or {}).get("uid")
        if wanted_uid not in (None, live["metadata"]["uid"]):
            raise Refused(409, "Conflict", "the UID in the precondition does not match")
        if dry:
            return live
        if kind is kinds.POD and names.KUBEVIRT_LABEL in live["metadata"]["labels"]:
            live["metadata"].setdefault("deletionTimestamp", "now")
            self.touch(live)
        else:
            del self.objects[key]
        return live

    def _selected(self, kind, namespace, query):
        selected = []
        for obj in self.all(kind):
            metadata = obj["metadata"]
            if namespace is not None and metadata.get("namespace") != namespace:
                continue
            if not _meets_label_selector(metadata.get("labels") or {}, query.get("labelSelector", "")):
                continue
            if not _meets_field_selector(obj, query.get("fieldSelector", "")):
                continue
            selected.append({k: v for k, v in obj.items() if k not in ("apiVersion", "kind")})
        return selected


def _meets_label_selector(labels, selector):
    """Whether labels meet a selector made of ``key``, ``key=value``, ``key in (...)`` and ``key notin (...)``."""
    wanted = [_REQUIREMENT.fullmatch(part).groups() for part in re.findall(r"(?:[^,(]|\([^)]*\))+", selector)]
    return all(_meets(labels.get(key), operator, values or "") for key, operator, values in wanted)


_REQUIREMENT = re.compile(r"([^ =]+)(?:(=| in | notin )\(?([^)]*)\)?)?")


def _meets(value, operator, values):
    if operator is None:
        return value is not None
    return (value in values.split(",")) is (operator != " notin ")


def _meets_field_selector(obj, selector):
    """Whether an object meets a field selector with at most one field."""
    path, _equals, value = selector.partition("=")
    for part in path.split(".") if path else ():
        obj = obj.get(part) or {}
    return not path or obj == value


def _served(obj):
    """The object as the API server serves it: without empty labels and annotations."""
    for field in ("labels", "annotations"):
        if not obj["metadata"].get(field):
            obj["metadata"].pop(field, None)
    return obj


def _merged(live, applied):
    if not isinstance(live, dict) or not isinstance(applied, dict):
        return copy.deepcopy(applied)
    return {**copy.deepcopy(live), **{key: _merged(live.get(key), value) for key, value in applied.items()}}


def _patched(live, operations):
    """Apply a JSON patch (RFC 6902) as far as we use it; a test for null passes on an absent value, as there."""
    changed = copy.deepcopy(live)
    for operation in operations:
        *above, last = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].lstrip("/").split("/")]
        holder = changed
        for part in above:
            holder = holder.get(part)
            if not isinstance(holder, dict):
                raise Refused(422, "Invalid", _PATCH_REFUSED)
        if operation["op"] == "test":
            if holder.get(last) != operation["value"]:
                raise Refused(422, "Invalid", _PATCH_REFUSED)
        elif operation["op"] == "add":
            holder[last] = copy.deepcopy(operation["value"])
        elif last not in holder:
            raise Refused(422, "Invalid", _PATCH_REFUSED)
        else:
            del holder[last]
    return changed


# A cluster whose time passes -----------------------------------------------------------------------------------------


@dataclass
class Behaviour:
    """How the pods of a DaemonSet behave on a node. Times are in seconds; None means never."""

    stop: float | None = 2.0
    start: float | None = 3.0
    heartbeat: float | None = 1.0
    broken: str | None = None
    """Why the container waits for ever, as in ImagePullBackOff; None: it starts."""
    killed: bool = False
    """The handler ends without marking its node unschedulable."""


@dataclass(frozen=True)
class _Fit:
    """Whether a DaemonSet has a pod on a node with these labels and taints."""

    labels: dict
    taints: list
    wanted: bool
    """Whether there should be a pod."""
    kept: bool
    """Whether a pod that is there stays: a NoSchedule taint only keeps new ones off."""

    @classmethod
    def of(cls, template, obj):
        node = Node.from_object(obj)
        selected = template["spec"].get("nodeSelector", {}).get(names.OWNER_LABEL)
        owned = selected in (None, node.labels.get(names.OWNER_LABEL))
        lasting = tuple(taint for taint in node.taints if taint["effect"] != "NoSchedule")
        wanted, kept = (
            owned and handler_fit.unfit(template, replace(node, taints=taints)) is None
            for taints in (node.taints, lasting)
        )
        return cls(node.labels, copy.deepcopy(list(node.taints)), wanted, kept)

    def holds(self, obj):
        return self.labels == obj["metadata"].get("labels", {}) and self.taints == obj.get("spec", {}).get("taints", [])


class World(ApiServer):
    """A cluster with a clock, a DaemonSet controller that sees changes after ``lag`` seconds, and kubelets.

    ``behave[daemonset, node]`` (or ``[daemonset, None]``) says how pods behave; ``at`` maps times to functions to call
    then. ``doubled`` records each time and node with two handler pods that have not ended.
    """

    TICK = 0.25
    FOLLOWED = True
    """Whether clients can follow handler pods. None: they can, but a proxy keeps all events back."""

    def __init__(self, *objects, lag=0.5, **others):
        super().__init__(*objects, **others)
        self.now = 1000.0
        self.lag = lag
        self.behave = {}
        self.at = {}
        self.doubled = []
        self.beat = lambda: None
        self.shown = []
        self._since = {}
        self._fits = {}
        self._count = 0

    def clock(self):
        def beat():  # looked up at each beat: a test may set another one
            self.beat()

        status = StatusLines(self.shown.append, lambda: self.now)
        return Clock(beat=beat, now=lambda: self.now, sleep=self.sleep, status=status)

    def client(self, **options):
        return (Cluster if self.FOLLOWED is False else _FollowedCluster)(
            self, clock=lambda: self.now, sleep=self.sleep, **options
        )

    def sleep(self, seconds):
        with self.alone:
            until = self.now + seconds
            while self.now < until:
                self.now = min(until, self.now + self.TICK)
                for moment in sorted(moment for moment in self.at if moment <= self.now):
                    self.at.pop(moment)()
                self._tick()

    def node(self, name="n1"):
        return Node.from_object(self.find(kinds.NODE, name))

    def handler_pods(self):
        return [pod for pod in self.all(kinds.POD) if _is_handler(pod)]

    def pods(self, node="n1"):
        return [pod for pod in self.handler_pods() if pod["spec"].get("nodeName") == node]

    def handlers(self, node="n1"):
        """The DaemonSets of the Ready handler pods on a node."""
        ready = [p for p in self.pods(node) if self._is_ready(p)]
        return [pod["metadata"]["ownerReferences"][0]["name"] for pod in ready]

    @staticmethod
    def _is_ready(pod):
        return pod["status"]["conditions"][0]["status"] == "True"

    def behaviour(self, pod):
        daemonset = pod["metadata"]["ownerReferences"][0]["name"]
        default = self.behave.get((daemonset, None), Behaviour())
        return self.behave.get((daemonset, pod["spec"]["nodeName"]), default)

    def _tick(self):
        self._control()
        for pod in self.handler_pods():
            self._run(pod)
        running = (pod for pod in self.handler_pods() if pod["status"]["phase"] not in ("Succeeded", "Failed"))
        count = Counter(pod["spec"].get("nodeName") for pod in running)
        for node in self.all(kinds.NODE):
            if count[node["metadata"]["name"]] > 1:
                self.doubled.append((self.now, node["metadata"]["name"]))

    def _lasts(self, key, seconds):
        """Whether the state called ``key`` has lasted this long; it begins with the first call."""
        return seconds is not None and self.now - self._since.setdefault(key, self.now) >= seconds

    def _control(self):
        """The DaemonSet controller. A terminating pod still counts, but only for its own DaemonSet."""
        pods = defaultdict(list)
        for pod in self.handler_pods():
            pods[pod["metadata"]["ownerReferences"][0]["name"], pod["spec"].get("nodeName")].append(pod)
        for daemonset in self.all(kinds.DAEMON_SET):
            name = daemonset["metadata"]["name"]
            daemonset.setdefault("status", {})["observedGeneration"] = daemonset["metadata"].get("generation", 1)
            self._keep_template(daemonset)
            for node, fit in self.fits(daemonset).items():
                self._control_node(daemonset, node, fit, pods[name, node])
        for pod in self.handler_pods():
            if self.find(kinds.NODE, pod["spec"]["nodeName"]) is None:
                self.drop(kinds.POD, pod["metadata"]["name"], pod["metadata"]["namespace"])

    def _keep_template(self, daemonset):
        """The revision of the DaemonSet's template, which gets the highest number."""
        metadata, template = daemonset["metadata"], daemonset["spec"]["template"]
        digest = (template["metadata"].get("annotations") or {}).get(names.TEMPLATE_ANNOTATION)
        if digest is None:
            return
        numbers = {
            each["metadata"]["name"]: each["revision"]
            for each in self.all(kinds.CONTROLLER_REVISION)
            if each["metadata"]["ownerReferences"][0]["uid"] == metadata["uid"]
        }
        name, newest = f"{metadata['name']}-{digest}", max(numbers.values(), default=0)
        if numbers.get(name) not in (None, newest) or name not in numbers:
            revision = kinds.CONTROLLER_REVISION.object(name, metadata["namespace"], revision=newest + 1)
            revision["metadata"]["ownerReferences"] = [{"uid": metadata["uid"]}]
            revision["data"] = {"spec": {"template": {**copy.deepcopy(template), "$patch": "replace"}}}
            self.put(revision)

    def fits(self, daemonset):
        """By node, whether a DaemonSet has a pod there.

        Decided again only when something has changed by which it is decided: four times a second, it would be much of the work of
        the tests.
        """
        name, template = daemonset["metadata"]["name"], daemonset["spec"]["template"]
        seen, known = self._fits.get(name, (None, {}))
        if seen != template:
            seen, known = copy.deepcopy(template), {}
        fits = {}
        for node in self.all(kinds.NODE):
            fit = known.get(node["metadata"]["name"])
            fits[node["metadata"]["name"]] = fit if fit and fit.holds(node) else _Fit.of(template, node)
        self._fits[name] = seen, fits
        return fits

    def _control_node(self, daemonset, node, fit, there):
        key = ("control", daemonset["metadata"]["name"], node)
        if fit.wanted == bool(there) or (there and fit.kept):
            self._since.pop(key, None)
        elif self._lasts(key, self.lag):
            self._since.pop(key)
            for pod in there:
                pod["metadata"].setdefault("deletionTimestamp", "now")
            if not there:
                self._create(daemonset, node)

    def _create(self, daemonset, node):
        self._count += 1
        while self.find(kinds.POD, f"{daemonset['metadata']['name']}-{self._count}", builders.NAMESPACE):
            self._count += 1  # the name is taken: this world continues an earlier one
        annotations = daemonset["spec"]["template"]["metadata"].get("annotations") or {}
        pod = builders.handler_pod(
            node,
            daemonset["metadata"]["name"],
            template=annotations.get(names.TEMPLATE_ANNOTATION),
            ready=False,
            name=f"{daemonset['metadata']['name']}-{self._count}",
        )
        return self.put(pod)

    def _run(self, pod):
        """The kubelet, and the handler inside the pod."""
        name, behaviour = pod["metadata"]["name"], self.behaviour(pod)
        node = self.find(kinds.NODE, pod["spec"]["nodeName"])
        if pod["metadata"].get("deletionTimestamp"):
            if self._lasts(("stop", name), behaviour.stop):
                self.drop(kinds.POD, name, pod["metadata"]["namespace"])
                if not behaviour.killed:
                    node["metadata"]["labels"][names.SCHEDULABLE_LABEL] = "false"
            return
        if behaviour.broken:
            waiting = {"reason": behaviour.broken, "message": "it says why"}
            pod["status"]["containerStatuses"] = [{"name": "virt-handler", "state": {"waiting": waiting}}]
        elif (self._is_ready(pod) or not Node.from_object(node).pressure) and self._lasts(
            ("start", name), behaviour.start
        ):
            (container,) = pod["status"]["containerStatuses"]
            container["state"].pop("waiting", None)
            container["state"].setdefault("running", {"startedAt": builders.heartbeat(self.now)})
            pod["status"].update(phase="Running", conditions=[{"type": "Ready", "status": "True"}])
            if self._lasts(("heartbeat", name), behaviour.heartbeat):
                node["metadata"]["labels"][names.SCHEDULABLE_LABEL] = "true"
                annotations = node["metadata"].setdefault("annotations", {})
                annotations[names.HEARTBEAT_ANNOTATION] = builders.heartbeat(self.now)


class _FollowedCluster(Cluster):
    """The client of a World where handler pods can be followed."""

    def follow(self, *_what, **_how):
        return _FakeWatch(self._transport)


class _FakeWatch:
    """What happens to the handler pods of a World, in whose time it waits."""

    def __init__(self, world):
        self._world = world
        self._known = {}
        self._events()

    def _events(self):
        before = self._known
        live = {pod["metadata"]["uid"]: pod for pod in self._world.handler_pods()}
        changed = {uid: copy.deepcopy(pod) for uid, pod in live.items() if pod != before.get(uid)}
        self._known = {uid: changed.get(uid) or before[uid] for uid in live}
        ended = [pod for uid, pod in before.items() if uid not in live]
        return [*(Event(pod, gone=False) for pod in changed.values()), *(Event(pod, gone=True) for pod in ended)]

    def wait(self, seconds):
        until = self._world.now + seconds
        while not (events := self._events()) and self._world.now < until:
            self._world.sleep(World.TICK)
        return events if self._world.FOLLOWED else []

    def close(self):
        pass


def _is_handler(pod):
    return pod["metadata"].get("labels", {}).get(names.KUBEVIRT_LABEL) == names.HANDLER
