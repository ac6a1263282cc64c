# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The launcher policy: admission gives every launcher pod its pool's image and nodes, as the mapping table says.

The policy can run several times for a pod, with other policies and webhooks in between: they rename images to a mirror,
add containers, and add the devices that make another pool win. So it must know what it did before. Annotations and labels
of the pod come from the VM's owner; environment variables of ``compute`` do not, so the policy keeps its notes there, on
every launcher pod: ``POOL_ENV`` with the pool (or primary), and ``STOCK_IMAGE_ENV`` with the image that the pod came with.

- First time (no POOL_ENV): whatever has the image of ``compute`` is a reference to the launcher image, and is changed.
- Again, the same pool: what came later with the stock image gets the image that ``compute`` has by now.
- Again, another pool: its image and its requirement of nodes replace the former pool's.
"""

from __future__ import annotations

import functools
import typing as t

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import cel, names, objects
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.frozen import thaw
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kinds import (
    MUTATING_ADMISSION_POLICIES,
    MUTATING_ADMISSION_POLICY_BINDINGS,
    Kind,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.mapping import Table
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.matching import ARCHITECTURE_LABEL
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools import Namespaces, Pool
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.selectors import Requirement, Term

Object = dict[str, t.Any]

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_DIGITS = 12


def derive(table: Table, namespace: str, policy: Kind, name: str = names.POLICY) -> list[tuple[Kind, Object]]:
    """The policy and its binding, in the order to create them.

    :param namespace: where KubeVirt is.
    :param policy: the version of MutatingAdmissionPolicy to write.
    :param name: with another name than ``names.POLICY`` it acts on probes of that name alone.
    """
    binding = MUTATING_ADMISSION_POLICY_BINDINGS[MUTATING_ADMISSION_POLICIES.index(policy)]
    made = policy.object(name, spec=spec(table, namespace, name))
    made["metadata"].update(metadata(table, namespace))
    bound = binding.object(name, spec={"policyName": name})
    bound["metadata"]["labels"] = {names.MANAGED_BY_LABEL: names.MANAGED_BY}
    return [(policy, made), (binding, bound)]


def metadata(table: Table, namespace: str) -> Object:
    """Labels and annotations of a launcher policy of whatever kind: whose it is, and what it was made from."""
    annotations = {names.MAPPING_ANNOTATION: table.to_text(), names.POLICY_ANNOTATION: digest_of(table, namespace)}
    return {
        "labels": {names.MANAGED_BY_LABEL: names.MANAGED_BY},
        "annotations": {key: value for key, value in annotations.items() if value},
    }


@functools.lru_cache(maxsize=8)
def digest_of(table: Table, namespace: str) -> str:
    """What tells this policy from any other that does something else. Pods carry it."""
    return objects.digest(_spec(table, namespace, names.POLICY, digest=""))[:_DIGITS]


def spec(table: Table, namespace: str, name: str = names.POLICY) -> Object:
    """The policy's spec."""
    return _spec(table, namespace, name, digest_of(table, namespace))


def _spec(table: Table, namespace: str, name: str, digest: str) -> Object:
    return {
        # Ignore would leave pods half changed, on the wrong node or with the wrong image, and nobody would know.
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
        "matchConditions": [{"name": "launcher-pods", "expression": _concerned(namespace, name)}],
        "variables": [{"name": key, "expression": value} for key, value in _variables(table)],
        # One mutation: what is between two could fail, and the pod would be half changed.
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": _patch(digest)}}],
    }


def _concerned(namespace: str, name: str) -> str:
    """Which requests the policy acts on. Probes of another policy are none of its business."""
    key = cel.literal(names.PROBE_LABEL)
    ours = f"object.metadata.labels[?{key}].orValue({cel.literal('')}) == {cel.literal(name)}"
    probe = f"(has(request.dryRun) && request.dryRun && {ours})"
    if name != names.POLICY:
        return probe
    return f"request.userInfo.username == {cel.literal(names.controller_user(namespace))} || {probe}"


# What a pod is and what it should become ------------------------------------------------------------------------------


def _variables(table: Table) -> t.Iterator[tuple[str, str]]:
    """The policy's variables in order: each uses only earlier ones, and is worked out when it is first used."""
    yield "at", f"object.spec.containers.map(c, c.name).indexOf({cel.literal(names.COMPUTE)})"
    compute = "variables.at >= 0 ? object.spec.containers[variables.at]"
    yield "asked", f"{compute}.?resources.?limits.orValue({{}}).map(k, k) : []"
    yield "labels", "object.metadata.?labels.orValue({})"
    yield "selected", "object.spec.?nodeSelector.orValue({})"
    yield "namespaceLabels", "namespaceObject.metadata.?labels.orValue({})"
    yield from _winner(table)
    yield from _canaries(table)
    image = "variables.pool.image"
    yield "to", f"({_canary(table, 'variables.pool.name')}[{image}])[0]" if table.canaries else image

    yield "env", f"{compute}.?env.orValue([]) : []"
    yield "former", _value_in_env(names.POOL_ENV)
    yield "first", 'variables.former == ""'
    yield "moved", "!variables.first && variables.former != variables.pool.name"
    yield "stock", _value_in_env(names.STOCK_IMAGE_ENV)
    yield "now", f'{compute}.?image.orValue("") : ""'
    former = "variables.rules.filter(r, r.name == variables.former).map(r, r.image)"
    former = f"{_canary(table, 'variables.former')}{former}"
    # A pool may go between two passes: nobody knows then what it gave, but that it is there now.
    gone = f'variables.former == {cel.literal(names.PRIMARY)} ? "" : variables.now'
    yield "given", f'variables.moved ? ({former} + [dyn({gone})])[0] : ""'
    yield "wrong", _wrong_images()
    yield "right", _right_image()
    yield "wrongEnd", _wrong_end()

    yield from _requirements(table)
    required = f"object.spec.?affinity.?nodeAffinity.?{_REQUIRED}"
    yield "terms", f"{required}.?nodeSelectorTerms.orValue([])"
    yield "present", f"variables.terms.map(t, t.?matchExpressions.orValue([]).exists(e, {_same('e', 'wanted')}))"
    of_former = f"t.?matchExpressions.orValue([]).map(e, {_same('e', 'formerly')}).indexOf(true)"
    yield "outdated", f"variables.terms.map(t, variables.moved ? {of_former} : -1)"
    yield "tolerated", f"object.spec.?tolerations.orValue([]).map(t, {_toleration('t')})"
    yield "tolerations", f"variables.pool.tolerations.filter(t, !({_toleration('t')} in variables.tolerated))"


def _winner(table: Table) -> t.Iterator[tuple[str, str]]:
    """Variable ``pool``: the first rule that matches, with its image (empty: leave images alone) and tolerations.

    The rules are in several variables, since the time to check an expression grows faster than its length.
    """
    found, tables = [], []
    for number, shard in enumerate(
        cel.grouped(table.rules, lambda rule: len(f"{_condition(rule)}, {cel.literal(_row(rule))}"))
    ):
        yield f"hit{number}", f"[{', '.join(map(_condition, shard))}].indexOf(true)"
        yield f"rules{number}", cel.literal([_row(rule) for rule in shard])
        tables.append(f"variables.rules{number}")
        found.append(f"variables.hit{number} >= 0 ? [variables.rules{number}[variables.hit{number}]] : []")
    nobody = cel.literal({"name": names.PRIMARY, "image": "", "tolerations": []})
    # Without any rule the list must still say what it would hold, or its type is anybody's guess.
    found = found or [f"[{nobody}].filter(n, false)"]
    yield "rules", " + ".join(tables) or f"[{nobody}]"
    yield "found", f"[{', '.join(found)}].filter(f, f.size() > 0)"
    yield "pool", f"variables.found.size() > 0 ? variables.found[0][0] : {nobody}"


def _row(rule: Pool) -> Object:
    image = rule.virt_launcher_image or ""
    return {"name": rule.name, "image": image, "tolerations": [thaw(toleration) for toleration in rule.tolerations]}


def _canaries(table: Table) -> t.Iterator[tuple[str, str]]:
    """Variable ``canary``: the pool that the VM's owner names it a canary of, with the image for those; none or one."""
    shards = []
    rows = (cel.literal({"name": pool, "image": image or ""}) for pool, image in table.canaries.items())
    for number, group in enumerate(cel.shards(rows)):
        yield f"canaries{number}", f"[{', '.join(group)}]"
        shards.append(f"variables.canaries{number}")
    if shards:
        named = f"variables.labels[?{cel.literal(names.CANARY_LABEL)}].orValue({cel.literal('')})"
        yield "canary", f"({' + '.join(shards)}).filter(c, c.name == {named})"


def _canary(table: Table, pool: str) -> str:
    """The image that canary VMs of a pool, an expression, get: the beginning of a list that others end."""
    return f"variables.canary.filter(c, c.name == {pool}).map(c, c.image) + " if table.canaries else ""


def _condition(rule: Pool) -> str:
    """Whether a pod is for the pool: what ``matching.matches`` says, in CEL."""
    selector = rule.selector
    if selector is None:
        return "false"
    criteria = []
    if selector.device_names:
        criteria.append(f"variables.asked.exists(k, k in {cel.literal(selector.device_names)})")
    if selector.labels is not None:
        criteria.append(cel.meets_term(selector.labels, "variables.labels"))
    if selector.match_node_selector:
        criteria.append(cel.meets_term(Term.of_labels(rule.node_selector), "variables.selected"))
    if selector.architectures:
        criteria.append(cel.meets(Requirement(ARCHITECTURE_LABEL, "In", selector.architectures), "variables.selected"))
    if selector.namespaces is None:
        return cel.any_of(criteria)
    return cel.all_of([_in_namespaces(selector.namespaces), cel.any_of(criteria)])


def _in_namespaces(namespaces: Namespaces) -> str:
    either = []
    if namespaces.names:
        either.append(f"request.namespace in {cel.literal(namespaces.names)}")
    if namespaces.match_labels:
        either.append(cel.meets_term(Term.of_labels(namespaces.match_labels), "variables.namespaceLabels"))
    return cel.any_of(either)


def _value_in_env(variable: str) -> str:
    """The value of an environment variable of ``compute``; empty when there is none."""
    return f'(variables.env.filter(e, e.name == {cel.literal(variable)}).map(e, e.?value.orValue("")) + [""])[0]'


# Images ---------------------------------------------------------------------------------------------------------------


def _wrong_images() -> str:
    """The images that stand for the launcher and are to be changed.

    Not every mirror renames every image: of a pod that moves, some may still have the stock or the former pool's image.
    """
    untouched = 'variables.to == "" && variables.given == ""'
    moved = "variables.moved ? [variables.now, variables.stock, variables.given]"
    again = "[variables.stock]"
    return f'({untouched} ? [] : variables.first ? [variables.now] : {moved} : {again}).filter(image, image != "")'


def _right_image() -> str:
    """What they are changed to. Where images were changed before, others may have renamed ``compute``'s since."""
    again = "!variables.first && !variables.moved"
    return f'{again} ? variables.now : variables.to != "" ? variables.to : variables.stock'


def _wrong_end() -> str:
    """A mirror that renamed ``compute``'s image renames the stock image of later containers as well: to something that
    ends like it. Empty where no mirror shows.
    """
    again = '!variables.first && !variables.moved && variables.stock != ""'
    stock = '("/" + variables.stock)'
    renamed = f'{again} && variables.to != "" && variables.now != variables.to'
    return f'{renamed} ? {stock}.substring({stock}.lastIndexOf("/")) : ""'


def _is_wrong(image: str) -> str:
    return f'({image} in variables.wrong || (variables.wrongEnd != "" && ("/" + {image}).endsWith(variables.wrongEnd)))'


# Nodes ----------------------------------------------------------------------------------------------------------------


def _requirements(table: Table) -> t.Iterator[tuple[str, str]]:
    """Variables ``wanted``, what the pod must ask of a node's owner label, and ``formerly``, what it asked before."""
    unmatched = table.requirement(None)
    groups = []
    for number, group in enumerate(cel.shards(map(cel.literal, unmatched.values))):
        yield f"others{number}", f"[{', '.join(group)}]"
        groups.append(f"variables.others{number}")
    yield "others", _requirement(unmatched.operator, " + ".join(groups))
    yield "wanted", f"variables.found.size() > 0 ? {_requirement('In', '[variables.pool.name]')} : variables.others"
    own = _requirement("In", "[variables.former]")
    yield "formerly", f"variables.former == {cel.literal(names.PRIMARY)} ? variables.others : {own}"


def _requirement(operator: str, values: str) -> str:
    fields = [f'"key": dyn({cel.literal(names.OWNER_LABEL)})', f'"operator": dyn({cel.literal(operator)})']
    if values:
        fields.append(f'"values": dyn({values})')
    return f"{{{', '.join(fields)}}}"


def _same(expression: str, variable: str) -> str:
    """Whether a requirement of the pod's node affinity is exactly the one in a variable."""
    other = f"variables.{variable}"
    return (
        f"{expression}.key == {other}.key && {expression}.operator == {other}.operator"
        f" && {expression}.?values.orValue([]) == {other}.?values.orValue([])"
    )


def _toleration(toleration: str) -> str:
    """What makes two tolerations the same."""
    fields = (("key", ""), ("operator", "Equal"), ("value", ""), ("effect", ""))
    return f"[{', '.join(f'{toleration}.?{field}.orValue({cel.literal(default)})' for field, default in fields)}]"


# The patch ------------------------------------------------------------------------------------------------------------


def _patch(digest: str) -> str:
    """The one JSON patch. Its values are plain: an ``Object{}`` inside one crashes API servers before 1.36.5."""
    parts = [
        _image_patches("containers", ".?image", "/image"),
        _image_patches("initContainers", ".?image", "/image"),
        _image_patches("volumes", ".?image.?reference", "/image/reference"),
        _affinity_patches(),
        _toleration_patches(),
        _annotation_patches(digest),
        _env_patches(),
    ]
    return "\n+ ".join(f"({part})" for part in parts)


def _operation(op: str, path: str, value: str = "") -> str:
    """An operation; ``path`` and ``value`` are expressions."""
    return f'JSONPatch{{op: "{op}", path: {path}{value and f", value: {value}"}}}'


def _image_patches(items: str, field: str, path: str) -> str:
    where = f'"/spec/{items}/" + string(i) + "{path}"'
    image = f'item{field}.orValue("")'
    replaced = _operation("replace", where, "variables.right")
    return f"object.spec.?{items}.orValue([]).transformList(i, item, {_is_wrong(image)}, {replaced})"


def _affinity_patches() -> str:
    """Terms are ORed, so every one must require it. An empty term selects no node, and would select many with it."""
    path, cases = "object.spec", []
    value = '[{"matchExpressions": [variables.wanted]}]'
    below = [("affinity", "nodeAffinity"), ("nodeAffinity", _REQUIRED), (_REQUIRED, "nodeSelectorTerms")]
    for level, (field, _next) in enumerate(below):
        path = f"{path}.{field}"
        new = value
        for _field, name in reversed(below[level:]):
            new = f'{{"{name}": {new}}}'
        cases.append(f"!has({path}) ? [{_operation('add', cel.literal(_pointer(path)), new)}]")
    where = f'"{_pointer(path)}/nodeSelectorTerms/" + string(i) + "/matchExpressions'
    replaced = _operation("replace", f'{where}/" + string(variables.outdated[i])', "variables.wanted")
    added = _operation("add", f'{where}/-"', "variables.wanted")
    begun = _operation("add", f'{where}"', "[variables.wanted]")
    needs = (
        "(has(t.matchExpressions) || has(t.matchFields))"
        " && (variables.first || variables.moved || !variables.present[i])"
    )
    change = f"variables.outdated[i] >= 0 ? {replaced} : has(t.matchExpressions) ? {added} : {begun}"
    return f"{' : '.join(cases)} : variables.terms.transformList(i, t, {needs}, {change})"


def _pointer(path: str) -> str:
    return path.removeprefix("object").replace(".", "/")


def _toleration_patches() -> str:
    begun = _operation("add", cel.literal("/spec/tolerations"), "[]")
    added = _operation("add", cel.literal("/spec/tolerations/-"), "t")
    return (
        f"variables.tolerations.size() == 0 ? [] : (has(object.spec.tolerations) ? [] : [{begun}])"
        f" + variables.tolerations.map(t, {added})"
    )


def _annotation_patches(digest: str) -> str:
    """Always written: VM owners can set annotations of their pods."""
    begun = _operation("add", cel.literal("/metadata/annotations"), "{}")
    pool = _operation("add", _annotation(names.OWNER_LABEL), "variables.pool.name")
    policy = _operation("add", _annotation(names.POLICY_ANNOTATION), cel.literal(digest))
    return f"(has(object.metadata.annotations) ? [] : [{begun}]) + [{pool}, {policy}]"


def _annotation(key: str) -> str:
    return f'"/metadata/annotations/" + jsonpatch.escapeKey({cel.literal(key)})'


def _env_patches() -> str:
    """What the next time must know, on ``compute``."""
    env = '"/spec/containers/" + string(variables.at) + "/env'
    former = f'{env}/" + string(variables.env.map(e, e.name).indexOf({cel.literal(names.POOL_ENV)})) + "/value"'
    new_pool = _operation("add", f'{env}/-"', _variable(names.POOL_ENV, "variables.pool.name"))
    new_stock = _operation("add", f'{env}/-"', _variable(names.STOCK_IMAGE_ENV, "variables.now"))
    begun = _operation("add", f'{env}"', "[]")
    replaced = _operation("replace", former, "variables.pool.name")
    return (
        f"variables.at < 0 ? [] : (variables.env.size() > 0 ? [] : [{begun}])"
        f" + (variables.first ? [{new_pool}, {new_stock}] : variables.moved ? [{replaced}] : [])"
    )


def _variable(name: str, value: str) -> str:
    return f'{{"name": {cel.literal(name)}, "value": string({value})}}'
