# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""The launcher policy: admission gives every launcher pod the image and nodes that the mapping table has for it.

It may run several times for one pod, so it notes in two variables of ``compute`` what it did.
docs/design/launcher-policy.md explains this.
"""

from __future__ import annotations

import functools
import typing as t

from ..base import cel, names, objects
from ..base.frozen import thaw
from ..base.kinds import MUTATING_ADMISSION_POLICIES, MUTATING_ADMISSION_POLICY_BINDINGS, Kind
from ..base.objects import KubeObject, Object
from ..base.selectors import integer
from ..kubevirt import health
from ..pools.hypervisors import ARGUMENT, HYPERVISORS
from ..pools.model import Pool
from ..vms import launcher_pods
from ..vms.mapping import Table

_OF_OWNERS = ("volume", "hook-sidecar-")
"""What KubeVirt begins the names of containers with that have an image of the VM's owner: disks, a kernel, and sidecars."""

_EPOCH = "epoch"
"""The variable with the epoch of the pods that a policy admits."""


def derive(
    table: Table, namespace: str, policy: Kind, name: str = names.POLICY, epoch: int = 0
) -> list[tuple[Kind, Object]]:
    """The policy and its binding, in the order to create them.

    :param namespace: where KubeVirt is.
    :param policy: the version of MutatingAdmissionPolicy to write.
    :param name: a policy that is not called ``names.POLICY`` acts on probes for this name alone.
    :param epoch: that of the pods that it admits.
    """
    binding = MUTATING_ADMISSION_POLICY_BINDINGS[MUTATING_ADMISSION_POLICIES.index(policy)]
    policy_object = policy.object(name, spec=spec(table, namespace, name, epoch))
    policy_object["metadata"].update(metadata(table, namespace))
    binding_object = binding.object(name, spec={"policyName": name})
    binding_object["metadata"]["labels"] = {names.MANAGED_BY_LABEL: names.MANAGED_BY}
    return [(policy, policy_object), (binding, binding_object)]


def metadata(table: Table, namespace: str) -> Object:
    """Labels and annotations of a launcher policy of any kind: that it is ours, its mapping table and its digest."""
    annotations = {names.MAPPING_ANNOTATION: table.to_text(), names.POLICY_ANNOTATION: digest_of(table, namespace)}
    return {
        "labels": {names.MANAGED_BY_LABEL: names.MANAGED_BY},
        "annotations": {key: value for key, value in annotations.items() if value},
    }


@functools.lru_cache(maxsize=8)
def digest_of(table: Table, namespace: str) -> str:
    """The digest of what this policy does, which it writes into the annotations of launcher pods."""
    return objects.short_digest(_spec(table, namespace, names.POLICY, digest="", epoch=0))


def spec(table: Table, namespace: str, name: str = names.POLICY, epoch: int = 0) -> Object:
    """The policy's spec."""
    return _spec(table, namespace, name, digest_of(table, namespace), epoch)


def epoch_of(policy: KubeObject) -> int | None:
    """The epoch of the pods that a live policy admits; None for a policy without one."""
    variables = (policy.get("spec") or {}).get("variables") or ()
    expression = next((each["expression"] for each in variables if each["name"] == _EPOCH), None)
    return None if expression is None else integer(str(expression).strip('"'))


def with_epoch(policy: KubeObject, epoch: int) -> Object:
    """A live policy with another epoch."""
    spec = policy["spec"]
    variables = [
        {**each, "expression": cel.literal(str(epoch))} if each["name"] == _EPOCH else each
        for each in spec["variables"]
    ]
    return {**policy, "spec": {**spec, "variables": variables}}


def _spec(table: Table, namespace: str, name: str, digest: str, epoch: int) -> Object:
    return {
        # With Ignore, pods could start unchanged, on the wrong node or with the wrong image, unnoticed.
        "failurePolicy": "Fail",
        "reinvocationPolicy": "IfNeeded",
        "matchConstraints": {
            "matchPolicy": "Equivalent",
            "namespaceSelector": {},
            "objectSelector": {"matchLabels": {names.KUBEVIRT_LABEL: names.LAUNCHER}},
            "resourceRules": [
                {
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "operations": ["CREATE"],
                    "resources": ["pods"],
                    "scope": "Namespaced",
                }
            ],
        },
        "matchConditions": [{"name": "launcher-pods", "expression": _match_condition(namespace, name)}],
        "variables": [{"name": key, "expression": value} for key, value in _variables(table, epoch)],
        # One mutation: between two, something could fail and leave the pod half changed.
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": _patch(table, digest)}}],
    }


def _match_condition(namespace: str, name: str) -> str:
    """Which requests the policy acts on: virt-controller's, and the probes that are for it."""
    key = cel.literal(names.PROBE_LABEL)
    ours = f"object.metadata.labels[?{key}].orValue({cel.literal('')}) == {cel.literal(name)}"
    probe = f"(has(request.dryRun) && request.dryRun && {ours})"
    if name != names.POLICY:
        return probe
    return f"request.userInfo.username == {cel.literal(names.controller_user(namespace))} || {probe}"


# What a pod is and what it should become ------------------------------------------------------------------------------


def _variables(table: Table, epoch: int) -> t.Iterator[tuple[str, str]]:
    """The policy's variables in order: each uses only earlier ones. The API server evaluates them when they are used."""
    yield _EPOCH, cel.literal(str(epoch))
    yield "at", f"object.spec.containers.map(c, c.name).indexOf({cel.literal(names.COMPUTE)})"
    compute = "variables.at >= 0 ? object.spec.containers[variables.at]"
    # A mapping: to look a device up in it costs the least, and that is done for each pool.
    yield "asked", f"{compute}.?resources.?limits.orValue({{}}) : {{}}"
    yield "labels", "object.metadata.?labels.orValue({})"
    yield "selected", "object.spec.?nodeSelector.orValue({})"
    yield "namespaceLabels", "namespaceObject.metadata.?labels.orValue({})"
    yield from _winner(table)
    yield from _canaries(table)

    yield "env", f"{compute}.?env.orValue([]) : []"
    yield "former", _value_in_env(names.POOL_ENV)
    yield "first", 'variables.former == ""'
    yield "moved", "!variables.first && variables.former != variables.pool.name"
    yield "stock", _value_in_env(names.STOCK_IMAGE_ENV)
    yield "now", f'{compute}.?image.orValue("") : ""'
    yield "cameAs", "variables.first ? variables.now : variables.stock"
    if table.upcoming is not None:
        # The pod has the arguments of the version of KubeVirt whose image it has, maybe renamed by a mirror.
        own_end = cel.literal(f"/{health.last_part(table.upcoming.stock)}")
        yield "next", f'!("/" + variables.cameAs).endsWith({own_end})'
    image = _image_of(table, "variables.pool")
    yield "to", f"({_canary(table, 'variables.pool.name')}[{image}])[0]" if table.canaries else image
    former = f"variables.rules.filter(r, r.name == variables.former).map(r, {_image_of(table, 'r')})"
    former = f"{_canary(table, 'variables.former')}{former}"
    # A pool may be removed between two passes. The image that it gave is then the one that compute has now.
    gone = f'variables.former == {cel.literal(names.PRIMARY)} ? "" : variables.now'
    yield "given", f'variables.moved ? ({former} + [dyn({gone})])[0] : ""'
    yield "wrong", _wrong_images()
    yield "right", _right_image()
    yield "wrongEnd", _wrong_end()
    yield "ownEnd", _own_end()

    yield from _requirements(table)
    required = f"object.spec.?affinity.?nodeAffinity.?{names.REQUIRED_AFFINITY}"
    yield "terms", f"{required}.?nodeSelectorTerms.orValue([])"
    present = f"{_same('e', 'wanted')} || e.key == variables.stay.key"
    yield "present", f"variables.terms.map(t, t.?matchExpressions.orValue([]).exists(e, {present}))"
    former = f"{_same('e', 'formerly')} || e.key == {_until('variables.former')}"
    of_former = f"t.?matchExpressions.orValue([]).map(e, {former}).indexOf(true)"
    yield "outdated", f"variables.terms.map(t, variables.moved ? {of_former} : -1)"
    yield "tolerated", f"object.spec.?tolerations.orValue([]).map(t, {_toleration('t')})"
    yield "tolerations", f"variables.pool.tolerations.filter(t, !({_toleration('t')} in variables.tolerated))"
    # Only where a pool needs them: every launcher pod pays for an expression.
    if table.adds_pull_secrets:
        yield "named", 'object.spec.?imagePullSecrets.orValue([]).map(s, s.?name.orValue(""))'
        yield "secrets", "variables.pool.secrets.filter(s, !(s in variables.named))"
    if table.sets_hypervisor:
        yield from _hypervisor(compute)


def _winner(table: Table) -> t.Iterator[tuple[str, str]]:
    """Variable ``pool``: the first rule that matches, with its image (empty: leave images alone) and tolerations.

    The rules are split into several variables, since the time to check an expression grows faster than its length.
    """
    hits, tables = [], []
    for number, shard in enumerate(
        cel.grouped(table.rules, lambda rule: len(f"{_condition(rule)}, {cel.literal(_row(table, rule))}"))
    ):
        yield f"hit{number}", f"[{', '.join(map(_condition, shard))}].indexOf(true)"
        yield f"rules{number}", cel.literal([_row(table, rule) for rule in shard])
        tables.append(f"variables.rules{number}")
        hits.append(f"variables.hit{number} >= 0 ? [variables.rules{number}[variables.hit{number}]] : []")
    nobody = cel.literal(_row(table, None))
    # An empty list has no element type, so without rules this is a list of one from which nothing is left.
    hits = hits or [f"[{nobody}].filter(n, false)"]
    yield "rules", " + ".join(tables) or f"[{nobody}]"
    yield "found", f"[{', '.join(hits)}].filter(f, f.size() > 0)"
    yield "pool", f"variables.found.size() > 0 ? variables.found[0][0] : {nobody}"


def _row(table: Table, rule: Pool | None) -> Object:
    """What launcher pods of a pool get, or those of no pool."""
    row: Object = {
        "name": rule.name if rule else names.PRIMARY,
        "image": (rule and rule.virt_launcher_image) or "",
        "tolerations": [thaw(toleration) for toleration in rule.tolerations] if rule else [],
    }
    if table.upcoming is not None:
        next_image = table.upcoming.images.get(rule.name, rule.virt_launcher_image) if rule else None
        row["nextImage"] = next_image or ""
    if table.adds_pull_secrets:
        row["secrets"] = [secret["name"] for secret in rule.virt_launcher_pull_secrets] if rule else []
    if table.sets_hypervisor:
        row["hypervisor"] = (rule and rule.hypervisor) or ""
    return row


def _image_of(table: Table, row: str) -> str:
    """The image in a row, an expression, for the version of KubeVirt that made the pod."""
    return f"{row}.image" if table.upcoming is None else f"(variables.next ? {row}.nextImage : {row}.image)"


def _canaries(table: Table) -> t.Iterator[tuple[str, str]]:
    """Variable ``canary``: a list with the pool that the VM's label makes it a canary of, and its new image, or empty."""
    shards = []
    rows = (cel.literal({"name": pool, "image": image or ""}) for pool, image in table.canaries.items())
    for number, group in enumerate(cel.shards(rows)):
        yield f"canaries{number}", f"[{', '.join(group)}]"
        shards.append(f"variables.canaries{number}")
    if shards:
        named = f"variables.labels[?{cel.literal(names.CANARY_LABEL)}].orValue({cel.literal('')})"
        yield "canary", f"({' + '.join(shards)}).filter(c, c.name == {named})"


def _canary(table: Table, pool: str) -> str:
    """The first part of a list: the image for canary VMs of ``pool``, an expression, if the VM is one."""
    if not table.canaries:
        return ""
    # The new image of a canary is for the present version of KubeVirt.
    present = "" if table.upcoming is None else " && !variables.next"
    return f"variables.canary.filter(c, c.name == {pool}{present}).map(c, c.image) + "


def _condition(rule: Pool) -> str:
    """Whether a pod is for the pool: what ``matching.matches`` says, in CEL."""
    criteria = cel.any_of(criterion.condition(rule.selection) for criterion in rule.criteria)
    return criteria if rule.namespaces is None else cel.all_of([rule.namespaces.condition(), criteria])


def _value_in_env(variable: str) -> str:
    """The value of an environment variable of ``compute``; empty when there is none."""
    return f'(variables.env.filter(e, e.name == {cel.literal(variable)}).map(e, e.?value.orValue("")) + [""])[0]'


# Images ---------------------------------------------------------------------------------------------------------------


def _wrong_images() -> str:
    """The images that are launcher images and must be changed.

    Not every mirror renames every image: in a pod that moves to another pool, some containers may still have the stock
    image or that of the former pool.
    """
    untouched = 'variables.to == "" && variables.given == ""'
    moved = "variables.moved ? [variables.now, variables.stock, variables.given]"
    again = "[variables.stock]"
    return f'({untouched} ? [] : variables.first ? [variables.now] : {moved} : {again}).filter(image, image != "")'


def _right_image() -> str:
    """What they are changed to. After an earlier pass, others may have renamed the image of ``compute``."""
    again = "!variables.first && !variables.moved"
    return f'{again} ? variables.now : variables.to != "" ? variables.to : variables.stock'


def _wrong_end() -> str:
    """How the stock image ends in containers that were added later, if a mirror renamed the image of ``compute``: it
    renames theirs as well, but keeps the end. Empty where no mirror shows.
    """
    again = '!variables.first && !variables.moved && variables.stock != ""'
    renamed = f'{again} && variables.to != "" && variables.now != variables.to'
    return f'{renamed} ? {_end("variables.stock")} : ""'


def _own_end() -> str:
    """How launcher images end in KubeVirt's own places, where no other image can be. A mirror that acted before the policy may
    have renamed some and not the others, such as those of image volumes. Empty where no image is changed, and when the same
    pool wins again: it has changed them.
    """
    again = "!variables.first && !variables.moved"
    nothing = f'{again} || variables.wrong.size() == 0 || variables.cameAs == ""'
    return f'{nothing} ? "" : {_end("variables.cameAs")}'


def _end(image: str) -> str:
    """The last element of an image's path with its slash: what mirrors keep, with tag or digest."""
    return f'("/" + {image}).substring(("/" + {image}).lastIndexOf("/"))'


def _is_wrong(image: str, own_place: str) -> str:
    """Whether an image must be changed; ``own_place`` tells whether only KubeVirt's launcher image can be in its place."""
    ends = {"wrongEnd": "", "ownEnd": f" && {own_place}"}
    by_end = (
        f'(variables.{end} != ""{where} && ("/" + {image}).endsWith(variables.{end}))' for end, where in ends.items()
    )
    return cel.any_of([f"{image} in variables.wrong", *by_end])


# Hypervisors ----------------------------------------------------------------------------------------------------------


def _hypervisor(compute: str) -> t.Iterator[tuple[str, str]]:
    """Variable ``hypervisor``, what the pod should run on, and what differs: the argument of virt-launcher, and devices.

    Both are looked for on their own: with emulation, pods ask for no device, and the pods that only bind volumes to a node start
    no virt-launcher.
    """
    yield "devices", cel.literal({name: hypervisor.resource for name, hypervisor in HYPERVISORS.items()})
    yield "command", f"{compute}.?command.orValue([]) : []"
    # KubeVirt up to 1.9 has all in the command, and later only the program.
    yield "line", f"variables.command + ({compute}.?args.orValue([]) : [])"
    yield "argument", f"variables.line.indexOf({cel.literal(ARGUMENT)}) + 1"
    named = "variables.argument > 0 && variables.argument < variables.line.size()"
    by_device = '(variables.devices.map(h, h).filter(h, variables.devices[h] in variables.asked) + [""])[0]'
    yield "runsOn", f"{named} ? variables.line[variables.argument] : {by_device}"
    noted = _value_in_env(names.STOCK_HYPERVISOR_ENV)
    yield "cameWith", f'[{noted}, variables.runsOn].filter(h, h != "")'
    yield "hypervisor", '([variables.pool.hypervisor].filter(h, h != "") + variables.cameWith + [""])[0]'
    yield "device", 'variables.devices[?variables.hypervisor].orValue("")'
    others = "variables.devices.map(h, variables.devices[h]).filter(d, d != variables.device)"
    # virt-controller reads the device once, when it starts, and the argument for each pod (1.8.2): what it made of both is not ours.
    stays = 'variables.pool.hypervisor == "" && variables.hypervisor == variables.runsOn'
    yield "wrongDevices", f'variables.device == "" || ({stays}) ? [] : {others}'
    yield "requested", f"{compute}.?resources.?requests.orValue({{}}) : {{}}"
    yield "renamed", f"{named} && variables.hypervisor != variables.runsOn"


def _hypervisor_patches() -> str:
    """The argument is replaced, and the device keeps its count. A pod's requests of a device equal its limits."""
    container = '"/spec/containers/" + string(variables.at) + "'
    in_command = "variables.argument < variables.command.size()"
    index = "variables.argument - variables.command.size()"
    where = f'{container}/" + ({in_command} ? "command/" + string(variables.argument) : "args/" + string({index}))'
    parts = [f"variables.renamed ? [{_operation('replace', where, 'variables.hypervisor')}] : []"]
    for field, present in (("limits", "asked"), ("requests", "requested")):
        above = f'{container}/resources/{field}/" + jsonpatch.escapeKey'
        moved = f'JSONPatch{{op: "move", from: {above}(d), path: {above}(variables.device)}}'
        parts.append(f"variables.wrongDevices.filter(d, d in variables.{present}).map(d, {moved})")
    return " + ".join(f"({part})" for part in parts)


# Nodes ----------------------------------------------------------------------------------------------------------------


def _requirements(table: Table) -> t.Iterator[tuple[str, str]]:
    """Variables ``wanted``, the requirement on a node's owner label that the pod must have, ``stay``, the one that stands in
    its place in a term beside it (see ``epochs``), and ``formerly``, the one that it has from an earlier pass."""
    unmatched = table.requirement(None)
    groups = []
    for number, group in enumerate(cel.shards(map(cel.literal, unmatched.values))):
        yield f"others{number}", f"[{', '.join(group)}]"
        groups.append(f"variables.others{number}")
    yield "others", _requirement(unmatched.operator, " + ".join(groups))
    yield "wanted", f"variables.found.size() > 0 ? {_requirement('In', '[variables.pool.name]')} : variables.others"
    key, values = f'"key": dyn({_until("variables.pool.name")})', '"values": dyn([variables.epoch])'
    yield "stay", f'{{{key}, "operator": dyn("Gt"), {values}}}'
    own = _requirement("In", "[variables.former]")
    yield "formerly", f"variables.former == {cel.literal(names.PRIMARY)} ? variables.others : {own}"


def _requirement(operator: str, values: str) -> str:
    fields = [f'"key": dyn({cel.literal(names.OWNER_LABEL)})', f'"operator": dyn({cel.literal(operator)})']
    if values:
        fields.append(f'"values": dyn({values})')
    return f"{{{', '.join(fields)}}}"


def _until(owner: str) -> str:
    """The key of the label that says until when an owner, an expression, had a node."""
    return f"({cel.literal(names.UNTIL_PREFIX)} + {owner})"


def _same(expression: str, variable: str) -> str:
    """Whether a requirement of the pod's node affinity equals the one in a variable."""
    other = f"variables.{variable}"
    return (
        f"{expression}.key == {other}.key && {expression}.operator == {other}.operator"
        f" && {expression}.?values.orValue([]) == {other}.?values.orValue([])"
    )


def _toleration(toleration: str) -> str:
    """The fields by which tolerations are compared."""
    fields = (("key", ""), ("operator", "Equal"), ("value", ""), ("effect", ""))
    return f"[{', '.join(f'{toleration}.?{field}.orValue({cel.literal(default)})' for field, default in fields)}]"


# The patch ------------------------------------------------------------------------------------------------------------


def _patch(table: Table, digest: str) -> str:
    """The one JSON patch. Its values are plain: an ``Object{}`` inside one crashes API servers before 1.36.5."""
    parts = [
        _image_patches("containers", ".?image", "/image"),
        _image_patches("initContainers", ".?image", "/image"),
        _image_patches("volumes", ".?image.?reference", "/image/reference"),
        _affinity_patches(),
        _appending_patches("tolerations", "tolerations", "item"),
        *([_appending_patches("imagePullSecrets", "secrets", '{"name": item}')] if table.adds_pull_secrets else ()),
        *([_hypervisor_patches()] if table.sets_hypervisor else ()),
        _annotation_patches(digest),
        _env_patches(table),
    ]
    return "\n+ ".join(f"({part})" for part in parts)


def _operation(op: str, path: str, value: str = "") -> str:
    """An operation; ``path`` and ``value`` are expressions."""
    return f'JSONPatch{{op: "{op}", path: {path}{value and f", value: {value}"}}}'


def _image_patches(items: str, field: str, path: str) -> str:
    where = f'"/spec/{items}/" + string(i) + "{path}"'
    image = f'item{field}.orValue("")'
    replaced = _operation("replace", where, "variables.right")
    of_owner = (f"item.name.startsWith({cel.literal(begin)})" for begin in _OF_OWNERS)
    ours = f"!{cel.any_of(of_owner)}"
    helpers, virtiofs = map(cel.literal, (sorted(launcher_pods.HELPER_CONTAINERS), launcher_pods.VIRTIOFS))
    own_place = f"(item.name in {helpers} || item.name.startsWith({virtiofs}))"
    if items == "volumes":
        ours = own_place = f"item.name == {cel.literal(names.LAUNCHER_VOLUME)}"
    is_wrong = _is_wrong(image, own_place)
    return f"object.spec.?{items}.orValue([]).transformList(i, item, {is_wrong} && {ours}, {replaced})"


def _affinity_patches() -> str:
    """Terms are ORed, so every one gets the requirement, except an empty one: it selects no node, and then would. Each gets
    a copy beside it with the requirement by which the pod may stay."""
    path, cases = "object.spec", []
    value = '[{"matchExpressions": [variables.wanted]}, {"matchExpressions": [variables.stay]}]'
    required = names.REQUIRED_AFFINITY
    below = [("affinity", "nodeAffinity"), ("nodeAffinity", required), (required, "nodeSelectorTerms")]
    for level, (field, _next) in enumerate(below):
        path = f"{path}.{field}"
        new = value
        for _field, name in reversed(below[level:]):
            new = f'{{"{name}": {new}}}'
        cases.append(f"!has({path}) ? [{_operation('add', cel.literal(_pointer(path)), new)}]")
    where = f'"{_pointer(path)}/nodeSelectorTerms/" + string(i) + "/matchExpressions'
    which = f"t.matchExpressions[variables.outdated[i]].key == {cel.literal(names.OWNER_LABEL)}"
    one = f"{which} ? variables.wanted : variables.stay"
    replaced = _operation("replace", f'{where}/" + string(variables.outdated[i])', one)
    added = _operation("add", f'{where}/-"', "variables.wanted")
    begun = _operation("add", f'{where}"', "[variables.wanted]")
    needs = (
        "(has(t.matchExpressions) || has(t.matchFields))"
        " && (variables.first || variables.moved || !variables.present[i])"
    )
    change = f"variables.outdated[i] >= 0 ? {replaced} : has(t.matchExpressions) ? {added} : {begun}"
    changes = f"variables.terms.transformList(i, t, {needs}, {change})"
    beside = _operation("add", f'"{_pointer(path)}/nodeSelectorTerms/-"', _STAY_TERM)
    copies = f"variables.terms.transformList(i, t, {needs} && variables.outdated[i] < 0, {beside})"
    return f"{' : '.join(cases)} : {changes} + {copies}"


_EXPRESSION = '{"key": dyn(e.key), "operator": dyn(e.operator), "values": dyn(e.?values.orValue([]))}'
_STAY_TERM = (
    f'{{"matchExpressions": dyn(t.?matchExpressions.orValue([]).map(e, {_EXPRESSION}) + [variables.stay]),'
    f' "matchFields": dyn(t.?matchFields.orValue([]).map(e, {_EXPRESSION}))}}'
)
"""A copy of the term ``t`` with the requirement ``stay``, in plain values."""


def _pointer(path: str) -> str:
    return path.removeprefix("object").replace(".", "/")


def _appending_patches(field: str, variable: str, value: str) -> str:
    """What is in a variable is appended to a list in the pod's spec; ``value`` is an expression of ``item``."""
    begun = _operation("add", cel.literal(f"/spec/{field}"), "[]")
    added = _operation("add", cel.literal(f"/spec/{field}/-"), value)
    return (
        f"variables.{variable}.size() == 0 ? [] : (has(object.spec.{field}) ? [] : [{begun}])"
        f" + variables.{variable}.map(item, {added})"
    )


def _annotation_patches(digest: str) -> str:
    """Always overwritten, since VM owners can set annotations of their pods."""
    begun = _operation("add", cel.literal("/metadata/annotations"), "{}")
    pool = _operation("add", _annotation(names.OWNER_LABEL), "variables.pool.name")
    policy = _operation("add", _annotation(names.POLICY_ANNOTATION), cel.literal(digest))
    return f"(has(object.metadata.annotations) ? [] : [{begun}]) + [{pool}, {policy}]"


def _annotation(key: str) -> str:
    return f'"/metadata/annotations/" + jsonpatch.escapeKey({cel.literal(key)})'


def _env_patches(table: Table) -> str:
    """The notes for the next pass, on ``compute``."""
    env = '"/spec/containers/" + string(variables.at) + "/env'
    former = f'{env}/" + string(variables.env.map(e, e.name).indexOf({cel.literal(names.POOL_ENV)})) + "/value"'
    new_pool = _operation("add", f'{env}/-"', _variable(names.POOL_ENV, "variables.pool.name"))
    new_stock = _operation("add", f'{env}/-"', _variable(names.STOCK_IMAGE_ENV, "variables.now"))
    begun = _operation("add", f'{env}"', "[]")
    replaced = _operation("replace", former, "variables.pool.name")
    notes = (
        f"(variables.env.size() > 0 ? [] : [{begun}])"
        f" + (variables.first ? [{new_pool}, {new_stock}] : variables.moved ? [{replaced}] : [])"
    )
    if table.sets_hypervisor:
        new_hypervisor = _operation("add", f'{env}/-"', _variable(names.STOCK_HYPERVISOR_ENV, "variables.cameWith[0]"))
        noted = f"variables.env.exists(e, e.name == {cel.literal(names.STOCK_HYPERVISOR_ENV)})"
        notes += f" + (variables.cameWith.size() == 0 || {noted} ? [] : [{new_hypervisor}])"
    return f"variables.at < 0 ? [] : {notes}"


def _variable(name: str, value: str) -> str:
    return f'{{"name": {cel.literal(name)}, "value": string({value})}}'
