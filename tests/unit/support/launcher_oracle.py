# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The judge of launcher policies: it knows the pod that a policy has to make, and finds what is wrong with another one.

It is written from the design alone and shares no code with the policies that it judges or the matcher that predicts them:
pools are plain mappings in our own form, and it checks node by node where a pod can land.
"""

from __future__ import annotations

import copy
from collections import Counter

OWNER = "virtpools.io/pool"
UNTIL = "until.virtpools.io/"
IN_TRANSIT = "in_transit"
UNMATCHED = "primary"
CANARY = "virtpools.io/canary"
POOL_ANNOTATION = "virtpools.io/pool"
POLICY_ANNOTATION = "virtpools.io/policy"
STOCK_VARIABLE = "VIRTPOOLS_STOCK_IMAGE"
POOL_VARIABLE = "VIRTPOOLS_POOL"
HYPERVISOR_VARIABLE = "VIRTPOOLS_STOCK_HYPERVISOR"
OURS = (STOCK_VARIABLE, POOL_VARIABLE, HYPERVISOR_VARIABLE)
HYPERVISOR_DEVICES = {"kvm": "devices.kubevirt.io/kvm", "hyperv-direct": "devices.kubevirt.io/mshv"}

SET_BY_THE_SERVER = ("creationTimestamp", "generation", "managedFields", "resourceVersion", "uid")


# Which pool should win ----------------------------------------------------------------------------------------------


def winner(pools, images, pod, namespace_labels):
    """The first of ``pools`` that is active (has its image in effect, or None, in ``images``) and takes the pod."""
    active = (pool for pool in pools if pool["name"] in images)
    return next((pool for pool in active if _takes(pool, pod, namespace_labels)), None)


def image(won, images, canaries, pod, upcoming=None):
    """The launcher image of a pod that this pool wins, or None for the stock image: a canary has its own.

    ``upcoming``: the stock image before an upgrade, and the images of pools for pods with another one. A mirror's name of the
    stock image is not another one.
    """
    if not won:
        return None
    if upcoming and _end(compute(pod)["image"]) != _end(upcoming[0]):
        return upcoming[1].get(won["name"], images[won["name"]])
    named = pod["metadata"].get("labels", {}).get(CANARY)
    return canaries[named] if named == won["name"] and named in canaries else images[won["name"]]


def _end(image):
    """What mirrors keep of an image's name."""
    return image.split("/")[-1]


def _takes(pool, pod, namespace_labels):
    selector = pool.get("selector", {})
    if "namespaces" in selector and not _in_namespaces(selector["namespaces"], pod, namespace_labels):
        return False
    labels = pod["metadata"].get("labels", {})
    selected = pod["spec"].get("nodeSelector", {})
    limits = compute(pod).get("resources", {}).get("limits", {})
    vm_labels = selector.get("vmLabels", {})
    return (
        any(name in limits for name in selector.get("deviceNames", ()))
        or (bool(vm_labels) and _has_labels(vm_labels, labels))
        or (selector.get("matchNodeSelector", False) and pool["nodeSelector"].items() <= selected.items())
        or any(
            selected.get("kubernetes.io/arch") == name or selected.get(f"kubevirt.io/vm-arch-{name}") == "true"
            for name in selector.get("architectures", ())
        )
    )


def _in_namespaces(wanted, pod, namespace_labels):
    if isinstance(wanted, list):
        wanted = {"names": wanted}
    by_labels = wanted.get("matchLabels", {})
    return pod["metadata"]["namespace"] in wanted.get("names", ()) or (
        bool(by_labels) and by_labels.items() <= namespace_labels.items()
    )


def _has_labels(vm_labels, labels):
    return vm_labels.get("matchLabels", {}).items() <= labels.items() and all(
        _meets(labels, expression) for expression in vm_labels.get("matchExpressions", ())
    )


# What is right ------------------------------------------------------------------------------------------------------


def admitted(pools, images, before, *, namespace_labels, digest, canaries=None, epoch=0, upcoming=None):
    """The pod that a policy without fault makes of ``before``; the parameters are those of ``faults``."""
    won = winner(pools, images, before, namespace_labels)
    after = copy.deepcopy(before)
    stock = compute(before)["image"]
    owner = won["name"] if won else UNMATCHED
    after["metadata"].setdefault("annotations", {}).update({POOL_ANNOTATION: owner, POLICY_ANNOTATION: digest})
    target = image(won, images, canaries or {}, before, upcoming)
    if target:
        _replace_image(after["spec"], stock, target)
    kept = [variable for variable in compute(after).get("env", ()) if variable["name"] not in OURS]
    ours = _variables(won, pools, images, before)
    compute(after)["env"] = [*kept, *({"name": name, "value": value} for name, value in ours.items())]
    if won and won.get("hypervisor"):
        _run_on(compute(after), won["hypervisor"])
    had = before["spec"].get("tolerations", [])
    known = set(map(_toleration, had))
    missing = {_toleration(each): each for each in (won or {}).get("tolerations", ()) if _toleration(each) not in known}
    if missing:
        after["spec"]["tolerations"] = [*had, *missing.values()]
    stay = {"key": UNTIL + owner, "operator": "Gt", "values": [str(epoch)]}
    _require(after["spec"], _owner_requirement(won, pools), stay)
    secrets = before["spec"].get("imagePullSecrets", [])
    secrets = [*secrets, *(each for each in (won or {}).get("virtLauncherPullSecrets", ()) if each not in secrets)]
    if secrets:
        after["spec"]["imagePullSecrets"] = secrets
    return after


def _replace_image(spec, stock, target):
    for container in (*spec["containers"], *spec.get("initContainers", ())):
        if _is_launcher_image(container["image"], stock, f"containers/{container['name']}"):
            container["image"] = target
    for volume in spec.get("volumes", ()):
        if _is_launcher_image(volume.get("image", {}).get("reference"), stock, f"volumes/{volume['name']}"):
            volume["image"]["reference"] = target


def _is_launcher_image(image, stock, place):
    """Whether an image is KubeVirt's launcher image, which ``compute`` has as ``stock``. A mirror may have renamed one of them
    and not the other: then only KubeVirt's own places count."""
    which, name = place.split("/", 1)
    volume = which == "volumes" and name == "launcher-volume"
    if image == stock:
        return volume or (which != "volumes" and not _is_owners(name))
    helper = which != "volumes" and (
        name in ("guest-console-log", "container-disk-binary") or name.startswith("virtiofs-")
    )
    return bool(image) and (volume or helper) and _end(image) == _end(stock)


def _is_owners(container):
    """Whether the VM's owner chose the image of this container: a disk, a kernel or a sidecar."""
    return container.startswith(("volume", "hook-sidecar-"))


def _variables(won, pools, images, before):
    """The variables that a policy adds. Only where an active pool has a hypervisor, it notes that of the pod."""
    ours = {POOL_VARIABLE: won["name"] if won else UNMATCHED, STOCK_VARIABLE: compute(before)["image"]}
    if any(pool.get("hypervisor") and pool["name"] in images for pool in pools) and hypervisor(before):
        ours[HYPERVISOR_VARIABLE] = hypervisor(before)
    return ours


def hypervisor(pod):
    """What the guest is to run on, by the argument or, in a pod that starts no virt-launcher, the device; None: nothing tells."""
    limits = compute(pod).get("resources", {}).get("limits", {})
    for words in (compute(pod).get("command", ()), compute(pod).get("args", ())):
        if "--hypervisor" in words:
            return words[words.index("--hypervisor") + 1]
    return next((name for name, device in HYPERVISOR_DEVICES.items() if device in limits), None)


def _run_on(container, wanted):
    for part in ("command", "args"):
        words = container.get(part, [])
        if "--hypervisor" in words:
            at = words.index("--hypervisor") + 1
            container[part] = [*words[:at], wanted, *words[at + 1 :]]
    for which, counts in container.get("resources", {}).items():
        moved = {
            HYPERVISOR_DEVICES[wanted] if key in HYPERVISOR_DEVICES.values() else key: count
            for key, count in counts.items()
        }
        container["resources"][which] = moved


def _owner_requirement(won, pools):
    if won:
        return {"key": OWNER, "operator": "In", "values": [won["name"]]}
    kept_off = sorted(pool["name"] for pool in pools if _unmatched(pool) == "keep_off")
    if len(kept_off) == len(pools):
        return {"key": OWNER, "operator": "DoesNotExist"}
    return {"key": OWNER, "operator": "NotIn", "values": [*kept_off, IN_TRANSIT]}


def _require(spec, requirement, stay):
    """Add a requirement to each term, and a copy with the other one; a term that is empty selects no node and stays so."""
    of_nodes = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    if required not in of_nodes:
        of_nodes[required] = {"nodeSelectorTerms": [{"matchExpressions": [requirement]}, {"matchExpressions": [stay]}]}
        return
    terms = of_nodes[required]["nodeSelectorTerms"]
    for term in tuple(terms):
        if term.get("matchExpressions") or term.get("matchFields"):
            own = term.get("matchExpressions") or ()
            terms.append({**term, "matchExpressions": [*own, stay]})
            term["matchExpressions"] = [*own, requirement]


# What is wrong ------------------------------------------------------------------------------------------------------


def faults(pools, images, before, after, *, namespace_labels, digest, nodes, former=(), canaries=None, upcoming=None):
    """Everything that is wrong with ``after``, which a policy made of ``before``; a sentence each.

    ``before`` is the pod as the server returns it without the policy. ``former`` are pools that may have won before the pod
    asked for more, whose tolerations and pull secrets may be left. ``canaries`` has the images of pools for their canaries,
    ``upcoming`` what ``image`` says.
    """
    tolerations_left = [each for pool in former for each in pool.get("tolerations", ())]
    won = winner(pools, images, before, namespace_labels)
    return [
        *_wrong_annotations(won, after, digest),
        *_wrong_images(image(won, images, canaries or {}, before, upcoming), before, after),
        *_wrong_variables(_variables(won, pools, images, before), after),
        *_wrong_hypervisor(won, before, after),
        *_wrong_tolerations(won, before, after, tolerations_left),
        *_wrong_pull_secrets(won, before, after, former),
        *_wrong_nodes(won, pools, before, after, nodes, tolerations_left),
        *differences(_rest(before), _rest(after)),
    ]


def _wrong_annotations(won, after, digest):
    expected = {POOL_ANNOTATION: won["name"] if won else UNMATCHED, POLICY_ANNOTATION: digest}
    found = after["metadata"].get("annotations", {})
    for key, value in expected.items():
        if found.get(key) != value:
            yield f"annotation {key} is {found.get(key)!r}, not {value!r}"


def _wrong_images(target, before, after):
    stock = compute(before)["image"]
    now = dict(references(after))
    for place, had in references(before):
        expected = target if target and _is_launcher_image(had, stock, place) else had
        if now.get(place) != expected:
            yield f"{place} has the image {now.get(place)!r}, not {expected!r}"


def _wrong_hypervisor(won, before, after):
    expected = copy.deepcopy(compute(before))
    if won and won.get("hypervisor"):
        _run_on(expected, won["hypervisor"])
    for part in ("command", "args", "resources"):
        if compute(after).get(part) != expected.get(part):
            yield f"compute has the {part} {compute(after).get(part)}, not {expected.get(part)}"


def _wrong_variables(expected, after):
    ours = [variable for variable in compute(after).get("env", ()) if variable["name"] in OURS]
    found = {variable["name"]: variable.get("value") for variable in ours}
    if found != expected or len(ours) != len(found):
        yield f"compute has the variables {ours}, not {expected}"


def _wrong_tolerations(won, before, after, former):
    had = [_toleration(each) for each in before["spec"].get("tolerations", ())]
    has = [_toleration(each) for each in after["spec"].get("tolerations", ())]
    wanted = [_toleration(each) for each in (won or {}).get("tolerations", ())]
    if has[: len(had)] != had:
        yield f"the tolerations {had} became {has}"
        return
    added = has[len(had) :]
    for each, times in Counter(added).items():
        if each not in wanted and each not in map(_toleration, former):
            yield f"{each} is tolerated for no reason"
        if times > 1 or each in had:
            yield f"{each} is tolerated more than once"
    for each in wanted:
        if each not in has:
            yield f"{each} is not tolerated"


def _wrong_pull_secrets(won, before, after, former):
    had, has = (pod["spec"].get("imagePullSecrets", []) for pod in (before, after))
    wanted = [] if won is None else won.get("virtLauncherPullSecrets", [])
    allowed = [*wanted, *(each for pool in former for each in pool.get("virtLauncherPullSecrets", ()))]
    added = has[len(had) :]
    if has[: len(had)] != had:
        yield f"the pull secrets {had} became {has}"
    for each in added:
        if each not in allowed or each in had or added.count(each) > 1:
            yield f"the pull secret {each} is added for no reason"
    for each in wanted:
        if each not in has:
            yield f"the pull secret {each} is missing"


def _wrong_nodes(won, pools, before, after, nodes, former):
    has = [_toleration(each) for each in after["spec"].get("tolerations", ())]
    left = [each for each in former if _toleration(each) in has]
    tolerations = [*before["spec"].get("tolerations", ()), *(won or {}).get("tolerations", ()), *left]
    for node in nodes:
        could = lands(before["spec"], node, tolerations)
        expected = could and _may_own(won, pools, node["labels"].get(OWNER))
        if lands(after["spec"], node, after["spec"].get("tolerations", ())) != expected:
            yield f"the pod can{'not' if expected else ''} land on {node}"


def _may_own(won, pools, owner):
    """Whether the pod belongs on nodes with this owner label, None for those without."""
    if won:
        return owner == won["name"]
    kept_off = [pool["name"] for pool in pools if _unmatched(pool) == "keep_off"]
    if len(kept_off) == len(pools):
        return owner is None
    return owner not in (*kept_off, IN_TRANSIT)


def _unmatched(pool):
    return pool.get("unmatched") or ("keep_off" if "selector" in pool or "virtLauncherImage" in pool else "allow")


def _rest(pod):
    """The pod without everything that a policy may change, and without what differs between two creates."""
    pod = copy.deepcopy(pod)
    metadata, spec = pod["metadata"], pod["spec"]
    for key in SET_BY_THE_SERVER:
        metadata.pop(key, None)
    annotations = metadata.pop("annotations", {})
    metadata["annotations"] = {k: v for k, v in annotations.items() if k not in (POOL_ANNOTATION, POLICY_ANNOTATION)}
    for container in (*spec["containers"], *spec.get("initContainers", ())):
        container["image"] = "judged"
    for volume in spec.get("volumes", ()):
        if "image" in volume:
            volume["image"]["reference"] = "judged"
    kept = [variable for variable in compute(pod).pop("env", ()) if variable["name"] not in OURS]
    compute(pod)["env"] = kept
    for part in ("command", "args", "resources"):
        compute(pod).pop(part, None)
    spec.pop("tolerations", None)
    spec.pop("imagePullSecrets", None)
    affinity = spec.pop("affinity", {})
    node_affinity = affinity.pop("nodeAffinity", {})
    node_affinity.pop("requiredDuringSchedulingIgnoredDuringExecution", None)
    spec["affinity"] = {**affinity, **({"nodeAffinity": node_affinity} if node_affinity else {})}
    return pod


def differences(before, after, path=""):
    """Where two values differ, as sentences."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted(before.keys() | after.keys()):
            yield from differences(before.get(key), after.get(key), f"{path}/{key}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from differences(one, other, f"{path}/{index}")
    elif before != after:
        yield f"{path} was {before!r} and is {after!r}"


# Pods ---------------------------------------------------------------------------------------------------------------


def compute(pod):
    """The container that runs the VM."""
    (found,) = (container for container in pod["spec"]["containers"] if container["name"] == "compute")
    return found


def references(pod):
    """Every image of a pod and where it stands."""
    spec = pod["spec"]
    for which in ("containers", "initContainers"):
        for container in spec.get(which, ()):
            yield f"{which}/{container['name']}", container["image"]
    for volume in spec.get("volumes", ()):
        if "image" in volume:
            yield f"volumes/{volume['name']}", volume["image"].get("reference")


# Nodes --------------------------------------------------------------------------------------------------------------


def node_owner(pools, labels):
    """The first of ``pools`` that selects a node with these labels, or None."""
    return next((pool["name"] for pool in pools if _owns(pool, labels)), None)


def _owns(pool, labels):
    return pool.get("nodeSelector", {}).items() <= labels.items() and all(
        _meets(labels, expression) for expression in pool.get("nodeExpressions", ())
    )


# Scheduling, as its documentation has it ----------------------------------------------------------------------------


def lands(spec, node, tolerations):
    """Whether a pod with this spec and these tolerations can be scheduled to the node."""
    return (
        spec.get("nodeSelector", {}).items() <= node["labels"].items()
        and _affine(spec, node)
        and all(_tolerated(taint, tolerations) for taint in node["taints"] if taint["effect"] != "PreferNoSchedule")
    )


def _affine(spec, node):
    node_affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return True
    return any(_selects(term, node) for term in required["nodeSelectorTerms"])


def _selects(term, node):
    by_labels, by_fields = term.get("matchExpressions") or [], term.get("matchFields") or []
    if not by_labels and not by_fields:
        return False
    fields = {"metadata.name": node["name"]}
    return all(_meets(node["labels"], each) for each in by_labels) and all(_meets(fields, each) for each in by_fields)


def _meets(labels, expression):
    value, wanted = labels.get(expression["key"]), expression.get("values") or []
    operator = expression["operator"]
    if operator in ("Gt", "Lt"):
        if value is None or not value.isdecimal():
            return False
        return int(value) > int(wanted[0]) if operator == "Gt" else int(value) < int(wanted[0])
    return {
        "In": value is not None and value in wanted,
        "NotIn": value is None or value not in wanted,
        "Exists": value is not None,
        "DoesNotExist": value is None,
    }[operator]


def _tolerated(taint, tolerations):
    return any(
        each.get("effect") in (None, "", taint["effect"])
        and (each.get("key") == taint["key"] or not each.get("key"))
        and (each.get("operator") == "Exists" or each.get("value", "") == taint.get("value", ""))
        for each in tolerations
    )


def _toleration(toleration):
    """The fields by which Kubernetes compares tolerations (``Toleration.MatchToleration``)."""
    defaults = {"key": "", "operator": "Equal", "value": "", "effect": ""}
    return tuple(toleration.get(field) or default for field, default in defaults.items())
