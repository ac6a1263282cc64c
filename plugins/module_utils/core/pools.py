# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pools: the one model, and the one validation that every form of writing them goes through.

A ``Form`` says where in a form each field of the model stands. The table drives reading, unknown fields, the paths in
messages, and writing; what a field's value must be like is the same in every form.
"""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass, field, replace
from dataclasses import fields as dataclass_fields

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import inputs, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.frozen import FrozenMap, freeze, thaw
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.inputs import Place, Problems
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.selectors import (
    LABEL_OPERATORS,
    NODE_OPERATORS,
    Requirement,
    Term,
    device_name_problem,
    dns_label_problem,
    example_labels,
)

Unmatched = t.Literal["keep_off", "allow"]
Activation: t.TypeAlias = "t.Literal['first_node', 'all_moved'] | int"

MOST_NAME = 48
"""Of characters in a pool's name: with ``virt-handler-`` before and a hash after it is still a valid pod's name."""

MOST_POOLS = 1000
"""Pools are compared with each other: a list by mistake (80,000 in 10 MB) would take hours."""


# The model ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Namespaces:
    """The namespaces with one of these names, and those with all of these labels."""

    names: tuple[str, ...] = ()
    match_labels: t.Mapping[str, str] = field(default_factory=FrozenMap)

    def __post_init__(self) -> None:
        _freeze(self, sets=("names",))

    def match(self, name: str, labels: t.Mapping[str, str]) -> bool:
        by_labels = bool(self.match_labels) and Term.of_labels(self.match_labels).matches(labels)
        return name in self.names or by_labels

    def to_object(self) -> dict[str, t.Any]:
        given = {"names": list(self.names), "matchLabels": dict(self.match_labels)}
        return {key: value for key, value in given.items() if value}


@dataclass(frozen=True)
class VmSelector:
    """Which VMs a pool is for: any criterion is enough, and ``namespaces`` restricts them all.

    ``match_labels`` and ``match_expressions`` together are one criterion. ``match_node_selector``: the VM's
    ``nodeSelector`` has all of the pool's. Labels are those of the VM instance.
    """

    device_names: tuple[str, ...] = ()
    match_labels: t.Mapping[str, str] = field(default_factory=FrozenMap)
    match_expressions: tuple[Requirement, ...] = ()
    match_node_selector: bool = False
    architectures: tuple[str, ...] = ()
    namespaces: Namespaces | None = None

    def __post_init__(self) -> None:
        _freeze(self, sets=("device_names", "match_expressions", "architectures"))

    @property
    def labels(self) -> Term | None:
        """What the VM's labels must be like to match; None when they are no criterion."""
        term = Term((*Term.of_labels(self.match_labels).requirements, *self.match_expressions))
        return term if term.requirements else None


@dataclass(frozen=True)
class Pool:
    """Nodes with their own virt-handler, and the VMs that get its launcher. Mappings and lists given are frozen.

    ``tolerations``, ``image_pull_secrets`` and ``resources`` are as the API serves them. ``activation`` as a number
    is a percentage of the pool's nodes.
    """

    name: str
    node_selector: t.Mapping[str, str]
    node_expressions: tuple[Requirement, ...] = ()
    virt_handler_image: str | None = None
    virt_launcher_image: str | None = None
    selector: VmSelector | None = None
    unmatched: Unmatched = "keep_off"
    activation: Activation = "first_node"
    tolerations: tuple[t.Mapping[str, t.Any], ...] = ()
    image_pull_secrets: tuple[t.Mapping[str, str], ...] = ()
    resources: t.Mapping[str, t.Mapping[str, str]] = field(default_factory=FrozenMap)

    def __post_init__(self) -> None:
        _freeze(self, sets=("node_expressions", "tolerations"))

    @property
    def nodes(self) -> Term:
        """The nodes that the pool asks for."""
        return Term((*Term.of_labels(self.node_selector).requirements, *self.node_expressions))

    def to_object(self) -> dict[str, t.Any]:
        """The pool in our form: plain, canonical, and read back as the same pool by ``restore_pool``."""
        written = _write(FORM.fields, self)
        if isinstance(self.activation, int):
            written["activation"] = f"{self.activation}%"
        return written


def parse_pools(raw: object) -> tuple[Pool, ...]:
    """The pools of a list in our form, in its order.

    :raises InputErrors: with every problem of every pool.
    """
    problems = Problems()
    pools = read_pools(FORM, listed(problems, "pools", raw), problems)
    problems.raise_if_any()
    return pools


def restore_pool(obj: object) -> Pool:
    """The pool that ``Pool.to_object`` wrote, whatever form it once came from.

    :raises InputErrors: when it is no such object.
    """
    problems = Problems()
    pools = read_pools(STORED_FORM, [("The stored pool", obj)], problems)
    problems.raise_if_any()
    return pools[0]


# Forms --------------------------------------------------------------------------------------------------------------

Fields: t.TypeAlias = "t.Mapping[str, str | Fields]"
"""The fields of a mapping: the name of the model's field that each one holds, or the fields below it."""

IGNORED = ""
"""In place of a model's field: whatever is here is not ours to read."""
OTHERS = "*"
"""As a field, with ``IGNORED``: further fields are ignored, not refused."""


@dataclass(frozen=True)
class Form:
    """A way of writing a pool.

    ``item``: what messages call a pool. ``selector``: the path of the fields that make the VmSelector, empty when the
    form has none; then every pool takes the VMs whose ``nodeSelector`` has all of its own.
    """

    item: str
    fields: Fields
    selector: str = "selector"
    image_required: bool = True

    def path(self, attribute: str) -> str:
        """Where a field of the model stands in this form (the first place when there are several)."""
        return next(path for path, found in _leaves(self.fields) if found == attribute)

    def has(self, attribute: str) -> bool:
        return any(found == attribute for _path, found in _leaves(self.fields))


FORM = Form(
    item="Pool",
    fields={
        "name": "name",
        "nodeSelector": "node_selector",
        "nodeExpressions": "node_expressions",
        "virtHandlerImage": "virt_handler_image",
        "virtLauncherImage": "virt_launcher_image",
        "selector": {
            "deviceNames": "device_names",
            "vmLabels": {"matchLabels": "match_labels", "matchExpressions": "match_expressions"},
            "matchNodeSelector": "match_node_selector",
            "architectures": "architectures",
            "namespaces": "namespaces",
        },
        "unmatched": "unmatched",
        "activation": "activation",
        "tolerations": "tolerations",
        "imagePullSecrets": "image_pull_secrets",
        "resources": "resources",
    },
)
"""Our own form. ``selector.namespaces`` is ``{names, matchLabels}`` (see ``Namespaces``) or a plain list of names."""

STORED_FORM = replace(FORM, image_required=False)
"""What ``Pool.to_object`` writes: our form, with which a pool from a form that needs no image can be written too."""

_CRITERIA = ("device_names", "match_labels", "match_expressions", "match_node_selector", "architectures")
_SELECTOR_FIELDS = (*_CRITERIA, "namespaces")
_IMAGES = ("virt_handler_image", "virt_launcher_image")


def listed(problems: Problems, name: str, raw: object) -> list[tuple[str, object]]:
    """The entries of a list of pools, each with what messages call it until its name is known."""
    place = Place(problems, name)
    if raw is None:
        place.say("is missing; give a list of pools")
    elif not isinstance(raw, (list, tuple)):
        place.refuse(raw, "; give a list of pools")
    elif not raw:
        place.say("is an empty list, which is refused because a mistake looks the same; give at least one pool")
    elif len(raw) > MOST_POOLS:
        place.say(f"has {len(raw)} entries, at most {MOST_POOLS} are allowed; is it the right list?")
    else:
        return [(f"{name}[{index}]", entry) for index, entry in enumerate(raw)]
    return []


def read_pools(form: Form, entries: t.Iterable[tuple[str, object]], problems: Problems) -> tuple[Pool, ...]:
    """The pools among ``entries`` (what messages call each one, and its value) that nothing is wrong with."""
    pools = []
    first_with: dict[str, str] = {}
    for title, raw in entries:
        name = _name_in(form, raw)
        before = problems.count
        if name is not None and first_with.setdefault(name, title) != title:
            Place(problems, title, form.path("name")).refuse(
                name, f", as is that of {first_with[name]}; give every pool a name of its own"
            )
        pool = _read_pool(form, Place(problems, f"{form.item} {name}" if name else title), raw)
        if pool is not None and problems.count == before:
            pools.append(pool)
    return tuple(pools)


def _leaves(fields: Fields, above: str = "") -> t.Iterator[tuple[str, str]]:
    """Paths of a form and the model's fields that stand there."""
    for name, below in fields.items():
        path = f"{above}.{name}" if above else name
        if isinstance(below, str):
            yield path, below
        else:
            yield from _leaves(below, path)


def _name_in(form: Form, raw: object) -> str | None:
    """The name of a pool, if it is one that messages can use."""
    for step in form.path("name").split("."):
        raw = raw.get(step) if isinstance(raw, t.Mapping) else None
    return raw if isinstance(raw, str) and _name_problem(raw) is None else None


# Reading ------------------------------------------------------------------------------------------------------------


class _Reading:
    """What was found of one pool: where each of the model's fields was given, and the values that were good."""

    def __init__(self) -> None:
        self.given: dict[str, str] = {}
        self.values: dict[str, t.Any] = {}

    def has(self, *attributes: str) -> bool:
        return any(attribute in self.given for attribute in attributes)

    def good(self, *attributes: str) -> dict[str, t.Any]:
        return {attribute: self.values[attribute] for attribute in attributes if attribute in self.values}


def _read_pool(form: Form, place: Place, raw: object) -> Pool | None:
    before = place.problems.count
    if not isinstance(raw, t.Mapping):
        place.refuse(raw, f"; give a mapping with {form.path('name')}, {form.path('node_selector')} and so on")
        return None
    reading = _Reading()
    _read_fields(form.fields, place, raw, reading)
    _check_required(form, place, reading)
    _check_nodes(form, place, reading)
    _check_selector(form, place, reading)
    if place.problems.count != before:
        return None
    selected = reading.has(*_SELECTOR_FIELDS)
    selector = VmSelector(**reading.good(*_SELECTOR_FIELDS)) if selected else None
    if not form.selector:
        selector = VmSelector(match_node_selector=True)
    own = {key: value for key, value in reading.values.items() if key not in _SELECTOR_FIELDS}
    # Without a launcher of its own and without a say in which VMs run there, a pool only changes the handler.
    own.setdefault("unmatched", "keep_off" if selected or "virt_launcher_image" in own else "allow")
    return Pool(selector=selector, **own)


def _read_fields(fields: Fields, place: Place, raw: object, reading: _Reading) -> None:
    before = place.problems.count
    known = None if OTHERS in fields else fields.keys()
    given = inputs.mapping(place, raw, known)
    for name, below in fields.items():
        if given is None or name not in given or below == IGNORED:
            continue
        if isinstance(below, str):
            _read_field(below, place.field(name), given[name], reading)
        else:
            _read_fields(below, place.field(name), given[name], reading)
    if given or not place.path or (given is not None and known is None):
        return
    if place.problems.count == before:
        place.say(f"is empty; give {'at least one of ' if len(fields) > 1 else ''}{', '.join(fields)}")
    # What could not be read was meant to be given: nobody should be told that it is missing, too.
    for path, attribute in _leaves(fields, place.path):
        reading.given.setdefault(attribute, path)


def _read_field(attribute: str, place: Place, raw: object, reading: _Reading) -> None:
    if attribute in reading.given:
        place.say(f"says the same as {reading.given[attribute]}; keep one of them")
        return
    reading.given[attribute] = place.path
    value = _READERS[attribute](place, raw)
    if value is not None:
        reading.values[attribute] = value


def _check_required(form: Form, place: Place, reading: _Reading) -> None:
    if not reading.has("name"):
        place.field(form.path("name")).say("is missing; give the pool a name of its own, such as gpu")
    if not reading.has("node_selector"):
        place.field(form.path("node_selector")).say("is missing; a pool owns nodes: add a label that only they have")
    if form.image_required and not reading.has(*_IMAGES):
        paths = [form.path(attribute) for attribute in _IMAGES if form.has(attribute)]
        place.say(f"has no image; give {' or '.join(paths)}")


def _check_nodes(form: Form, place: Place, reading: _Reading) -> None:
    labels = Term.of_labels(reading.values.get("node_selector", {}))
    expressions = Term(reading.values.get("node_expressions", ()))
    if expressions.requirements and example_labels(labels, expressions) is None:
        place.say(
            f"can have no node, its {form.path('node_selector')} and {form.path('node_expressions')} contradict each "
            "other; change one of them"
        )


def _check_selector(form: Form, place: Place, reading: _Reading) -> None:
    if not form.selector:
        return
    if not reading.has(*_SELECTOR_FIELDS):
        if reading.has("virt_launcher_image"):
            place.field(form.path("virt_launcher_image")).say(
                f"is set but {form.selector} is missing: no VM would get it; say in {form.selector} which VMs do"
            )
        return
    if not reading.has(*(a for a in _CRITERIA if reading.values.get(a) is not False)):
        known = [form.path(a).removeprefix(f"{form.selector}.") for a in _CRITERIA if form.has(a)]
        place.field(form.selector).say(f"selects no VM; give at least one of {', '.join(known)}")
    labels = VmSelector(**reading.good("match_labels", "match_expressions")).labels
    if labels is not None and example_labels(labels) is None:
        path = reading.given.get("match_expressions", form.selector)
        place.field(path).say(
            "can match no VM, what it asks of labels contradicts itself; change one of the requirements"
        )


def _name_problem(name: str) -> str | None:
    if len(name) > MOST_NAME:
        return f"has {len(name)} characters, at most {MOST_NAME} are allowed"
    if name == names.PRIMARY:
        return f"is what the stock virt-handler is called; choose another name than {names.PRIMARY}"
    return dns_label_problem(name)


def _node_selector(place: Place, value: object) -> dict[str, str] | None:
    if isinstance(value, t.Mapping) and names.OWNER_LABEL in value:
        _refuse_owner_label(place)
    return inputs.labels(place, value)


def _node_expressions(place: Place, value: object) -> tuple[Requirement, ...] | None:
    for index, item in enumerate(value if isinstance(value, (list, tuple)) else ()):
        if isinstance(item, t.Mapping) and item.get("key") == names.OWNER_LABEL:
            _refuse_owner_label(place.nth(index))
    return inputs.requirements(place, value, NODE_OPERATORS)


def _refuse_owner_label(place: Place) -> None:
    place.say(f"asks for {names.OWNER_LABEL}, which this collection sets itself; select by a label of your own")


def _device_names(place: Place, value: object) -> tuple[str, ...] | None:
    found = inputs.each(place, value, "device names", inputs.checked(device_name_problem))
    return tuple(found) if found is not None else None


_OTHER_WORDS_FOR = {"x86_64": "amd64", "x86-64": "amd64", "aarch64": "arm64"}
_ARCHITECTURE = re.compile(r"[a-z0-9]+", re.ASCII)


def _architecture_problem(name: str) -> str | None:
    if name in _OTHER_WORDS_FOR:
        return f"Kubernetes calls {_OTHER_WORDS_FOR[name]}; write it so"
    return None if _ARCHITECTURE.fullmatch(name[:32]) else "is no architecture like amd64, arm64 or s390x"


def _architectures(place: Place, value: object) -> tuple[str, ...] | None:
    found = inputs.each(place, value, "architectures", inputs.checked(_architecture_problem))
    return tuple(found) if found is not None else None


def _namespaces(place: Place, value: object) -> Namespaces | None:
    if isinstance(value, (list, tuple)):
        listed_names = _namespace_names(place, value)
        return Namespaces(listed_names) if listed_names is not None else None
    before = place.problems.count
    given = inputs.mapping(place, value, ("names", "matchLabels"))
    if given is None:
        return None
    if not given and place.problems.count == before:
        place.refuse(value, "; give a list of names, or a mapping with names or matchLabels")
    found = _namespace_names(place.field("names"), given["names"]) if "names" in given else ()
    labels = inputs.labels(place.field("matchLabels"), given["matchLabels"]) if "matchLabels" in given else {}
    return Namespaces(found or (), labels or {}) if place.problems.count == before else None


def _namespace_names(place: Place, value: object) -> tuple[str, ...] | None:
    found = inputs.each(place, value, "names of namespaces", inputs.checked(dns_label_problem))
    return tuple(found) if found is not None else None


_WORDS_FOR_ACTIVATION = ("first_node", "all_moved")
_PERCENT = re.compile(r"([0-9]{1,3})%", re.ASCII)


def _activation(place: Place, value: object) -> Activation | None:
    number = value
    if isinstance(value, str):
        if value in _WORDS_FOR_ACTIVATION:
            return t.cast("Activation", value)
        percent = _PERCENT.fullmatch(value)
        number = int(percent[1]) if percent else None
    if isinstance(number, int) and not isinstance(number, bool) and 1 <= number <= 100:
        return number
    hint = inputs.suggestion(value, _WORDS_FOR_ACTIVATION) if isinstance(value, str) else ""
    place.refuse(value, f"; give first_node, all_moved, or a percentage from 1% to 100%{hint}")
    return None


def _unmatched(place: Place, value: object) -> str | None:
    return inputs.choice(place, value, ("keep_off", "allow"))


_READERS: dict[str, t.Callable[[Place, object], object | None]] = {
    "name": inputs.checked(_name_problem),
    "node_selector": _node_selector,
    "node_expressions": _node_expressions,
    "virt_handler_image": inputs.checked(inputs.image_problem),
    "virt_launcher_image": inputs.checked(inputs.image_problem),
    "device_names": _device_names,
    "match_labels": inputs.labels,
    "match_expressions": lambda place, value: inputs.requirements(place, value, LABEL_OPERATORS),
    "match_node_selector": inputs.boolean,
    "architectures": _architectures,
    "namespaces": _namespaces,
    "unmatched": _unmatched,
    "activation": _activation,
    "tolerations": inputs.tolerations,
    "image_pull_secrets": inputs.pull_secrets,
    "resources": inputs.resources,
}
"""How the value of each of the model's fields is read. What is None was refused."""


# Writing ------------------------------------------------------------------------------------------------------------


def _write(fields: Fields, pool: Pool) -> dict[str, t.Any]:
    """The fields of a form that have a value."""
    written = {}
    for name, below in fields.items():
        value = _plain(_value(pool, below)) if isinstance(below, str) else _write(below, pool)
        if value:
            written[name] = value
    return written


def _value(pool: Pool, attribute: str) -> object:
    return getattr(pool.selector, attribute, None) if attribute in _SELECTOR_FIELDS else getattr(pool, attribute)


def _plain(value: object) -> object:
    if isinstance(value, (Requirement, Namespaces)):
        return value.to_object()
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return thaw(value)


def _freeze(instance: object, sets: t.Collection[str]) -> None:
    """Make the fields of a frozen dataclass immutable; those in ``sets`` have no order, so they are sorted."""
    for each in dataclass_fields(t.cast("t.Any", instance)):
        value = freeze(getattr(instance, each.name))
        if each.name in sets:
            value = tuple(sorted(set(value), key=repr))
        object.__setattr__(instance, each.name, value)
