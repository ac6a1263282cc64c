# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Forms: where each field of a pool stands in a way of writing pools, and how every form is read, checked and written.

A ``Form`` drives reading, unknown fields, the paths in messages, and writing. What the value of a field must be like is
the same in every form.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, replace

from ..base import names
from ..base.frozen import thaw
from ..base.selectors import NODE_OPERATORS, Requirement, Term, dns_label_problem, example_labels
from . import inputs
from .criteria import SELECTOR_FORM, SELECTOR_READERS, Fields, Namespaces, Readers, Selection, VmSelector
from .hypervisors import HYPERVISORS
from .inputs import FieldPath, Problems
from .quantities import percentage

MOST_NAME = 48
"""Of characters in a pool's name: with ``virt-handler-`` before and a hash after it is still a valid pod's name."""

MOST_POOLS = 1000
"""Pools are compared with each other: 80,000 (10 MB) given by mistake would take hours."""

IGNORED = ""
"""In place of a model's field: whatever stands here is not ours to read."""
OTHERS = "*"
"""As a field, with ``IGNORED``: further fields are ignored, not refused."""


@dataclass(frozen=True)
class Form:
    """A way of writing a pool."""

    item: str
    """What messages call a pool."""
    fields: Fields
    """Where each field of a pool stands. Of several places for one field, any is read."""
    selector: str = "selector"
    """The path of the fields that make the VmSelector. Empty when the form has none: then every pool takes the VMs
    whose ``nodeSelector`` has all of its own."""
    image_required: bool = True
    written: Fields | None = None
    """Where the fields of a pool are written, for a form that is read in more ways than it is written."""

    @property
    def written_fields(self) -> Fields:
        """Where the fields of a pool are written."""
        return self.fields if self.written is None else self.written

    def path(self, attribute: str) -> str:
        """Where a field of the model stands in this form (the first place when there are several)."""
        return next(path for path, leaf in _leaves(self.fields) if leaf == attribute)

    @property
    def attributes(self) -> tuple[str, ...]:
        """The model's fields that it has, in its order."""
        return tuple(leaf for _path, leaf in _leaves(self.fields) if leaf != IGNORED)

    def has(self, attribute: str) -> bool:
        return any(leaf == attribute for _path, leaf in _leaves(self.fields))


FORM = Form(
    item="Pool",
    fields={
        "name": "name",
        "nodeSelector": "node_selector",
        "nodeExpressions": "node_expressions",
        "virtHandlerImage": "virt_handler_image",
        "virtLauncherImage": "virt_launcher_image",
        "hypervisor": "hypervisor",
        "selector": SELECTOR_FORM,
        "unmatched": "unmatched",
        "activation": "activation",
        "tolerations": "tolerations",
        "imagePullSecrets": "image_pull_secrets",
        "virtLauncherPullSecrets": "virt_launcher_pull_secrets",
        "resources": "resources",
        "allowSkew": "allow_skew",
    },
)
"""Our own form. ``selector.namespaces`` is ``{names, matchLabels}`` (see ``Namespaces``) or a plain list of names."""

STORED_FORM = replace(FORM, image_required=False)
"""What ``Pool.to_object`` writes: our form, in which a pool from a form that needs no image can be written too."""

_IMAGES = ("virt_handler_image", "virt_launcher_image")


def _leaves(fields: Fields, above: str = "") -> t.Iterator[tuple[str, str]]:
    """Paths of a form and the model's fields that stand there."""
    for name, below in fields.items():
        path = f"{above}.{name}" if above else name
        if isinstance(below, str):
            yield path, below
        else:
            yield from _leaves(below, path)


def leaf_names(fields: Fields) -> frozenset[str]:
    """The model's fields that stand anywhere in a form."""
    return frozenset(leaf for _path, leaf in _leaves(fields))


# Reading ------------------------------------------------------------------------------------------------------------


def entries_of(problems: Problems, name: str, raw: object) -> list[tuple[str, object]]:
    """The entries of a list of pools, each with what messages call it until its name is known."""
    place = FieldPath(problems, name)
    if raw is None:
        place.error("is missing; give a list of pools")
    elif not isinstance(raw, (list, tuple)):
        place.invalid(raw, "; give a list of pools")
    elif not raw:
        place.error("is an empty list, which is refused because a mistake looks the same; give at least one pool")
    elif len(raw) > MOST_POOLS:
        place.error(f"has {len(raw)} entries, at most {MOST_POOLS} are allowed; is it the right list?")
    else:
        return [(f"{name}[{index}]", entry) for index, entry in enumerate(raw)]
    return []


def read(form: Form, entries: t.Iterable[tuple[str, object]], problems: Problems) -> list[dict[str, t.Any]]:
    """The fields of the model, by name, of each pool among ``entries`` that nothing is wrong with.

    :param entries: what messages call each pool, and its value.
    """
    pools = []
    first_with: dict[str, str] = {}
    for title, raw in entries:
        name = _name_in(form, raw)
        before = problems.count
        if name is not None and first_with.setdefault(name, title) != title:
            FieldPath(problems, title, form.path("name")).invalid(
                name, f", as is that of {first_with[name]}; give every pool a name of its own"
            )
        values = _read_pool(form, FieldPath(problems, f"{form.item} {name}" if name else title), raw)
        if problems.count == before:
            pools.append(values)
    return pools


def _name_in(form: Form, raw: object) -> str | None:
    """The name of a pool, if it is one that messages can use."""
    for step in form.path("name").split("."):
        raw = raw.get(step) if isinstance(raw, t.Mapping) else None
    return raw if isinstance(raw, str) and _name_problem(raw) is None else None


class _Reading:
    """What one pool gives: where each of the model's fields stands, and the values that are good."""

    def __init__(self) -> None:
        self.given: dict[str, str] = {}
        self.values: dict[str, t.Any] = {}

    def has(self, *attributes: str) -> bool:
        return any(attribute in self.given for attribute in attributes)


def _read_pool(form: Form, place: FieldPath, raw: object) -> dict[str, t.Any]:
    reading = _Reading()
    if not isinstance(raw, t.Mapping):
        place.invalid(raw, f"; give a mapping with {form.path('name')}, {form.path('node_selector')} and so on")
        return reading.values
    _read_fields(form.fields, place, raw, reading)
    _check_required(form, place, reading)
    _check_nodes(form, place, reading)
    _check_selector(form, place, reading)
    return reading.values


def _read_fields(fields: Fields, place: FieldPath, raw: object, reading: _Reading) -> None:
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
        place.error(f"is empty; give {'at least one of ' if len(fields) > 1 else ''}{', '.join(fields)}")
    # These fields were meant to be given: no message should say as well that they are missing.
    for path, attribute in _leaves(fields, place.path):
        reading.given.setdefault(attribute, path)


def _read_field(attribute: str, place: FieldPath, raw: object, reading: _Reading) -> None:
    if attribute in reading.given:
        place.error(f"repeats {reading.given[attribute]}; keep one of them")
        return
    reading.given[attribute] = place.path
    value = _READERS[attribute](place, raw)
    if value is not None:
        reading.values[attribute] = value


# What the fields must be like together ------------------------------------------------------------------------------


def _check_required(form: Form, place: FieldPath, reading: _Reading) -> None:
    if not reading.has("name"):
        place.field(form.path("name")).error("is missing; give the pool a name of its own, such as gpu")
    if not reading.has("node_selector"):
        place.field(form.path("node_selector")).error("is missing; a pool owns nodes: add a label that only they have")
    if form.image_required and not reading.has(*_IMAGES):
        paths = [form.path(attribute) for attribute in _IMAGES if form.has(attribute)]
        place.error(f"has no image; give {' or '.join(paths)}")


def _check_nodes(form: Form, place: FieldPath, reading: _Reading) -> None:
    labels = Term.from_labels(reading.values.get("node_selector", {}))
    expressions = Term(reading.values.get("node_expressions", ()))
    if expressions.requirements and example_labels(labels, expressions) is None:
        place.error(
            f"can have no node because its {form.path('node_selector')} and {form.path('node_expressions')} contradict "
            "each other; change one of them"
        )


def _check_selector(form: Form, place: FieldPath, reading: _Reading) -> None:
    if not form.selector:
        return
    if reading.has("virt_launcher_pull_secrets") and not reading.has("virt_launcher_image"):
        image = form.path("virt_launcher_image")
        place.field(form.path("virt_launcher_pull_secrets")).error(
            f"is set but {image} is missing: launcher pods would pull nothing with it; give {image} or remove it"
        )
    if not reading.has(*SELECTOR_READERS):
        for attribute in ("virt_launcher_image", "hypervisor"):
            if reading.has(attribute):
                place.field(form.path(attribute)).error(
                    f"is set but {form.selector} is missing: no VM would get it; specify in {form.selector} which VMs do"
                )
        return
    criteria = [attribute for attribute in SELECTOR_READERS if attribute != "namespaces"]
    if not reading.has(*(attribute for attribute in criteria if reading.values.get(attribute) is not False)):
        known = [
            form.path(attribute).removeprefix(f"{form.selector}.") for attribute in criteria if form.has(attribute)
        ]
        place.field(form.selector).error(f"selects no VM; give at least one of {', '.join(known)}")
    selector = VmSelector(**{name: value for name, value in reading.values.items() if name in SELECTOR_READERS})
    for criterion in selector.criteria:
        if not criterion.examples(Selection(selector, reading.values.get("node_selector", {}))):
            paths = [reading.given[attribute] for attribute in criterion.readers if reading.has(attribute)]
            place.field(paths[-1]).error(
                "can match no VM because its requirements contradict each other; change one of them"
            )


# The values of single fields ----------------------------------------------------------------------------------------


def _name_problem(name: str) -> str | None:
    if len(name) > MOST_NAME:
        return f"has {len(name)} characters, at most {MOST_NAME} are allowed"
    if name == names.PRIMARY:
        return f"is the name of the stock virt-handler; choose another name than {names.PRIMARY}"
    return dns_label_problem(name)


def _node_selector(place: FieldPath, value: object) -> dict[str, str] | None:
    if isinstance(value, t.Mapping) and names.OWNER_LABEL in value:
        _refuse_owner_label(place)
    return inputs.labels(place, value)


def _node_expressions(place: FieldPath, value: object) -> tuple[Requirement, ...] | None:
    for index, item in enumerate(value if isinstance(value, (list, tuple)) else ()):
        if isinstance(item, t.Mapping) and item.get("key") == names.OWNER_LABEL:
            _refuse_owner_label(place.nth(index))
    return inputs.requirements(place, value, NODE_OPERATORS)


def _refuse_owner_label(place: FieldPath) -> None:
    place.error(f"asks for {names.OWNER_LABEL}, which this collection sets itself; select by a label of your own")


_ACTIVATIONS = ("first_node", "all_moved")


def _activation(place: FieldPath, value: object) -> str | int | None:
    number = value
    if isinstance(value, str):
        if value in _ACTIVATIONS:
            return value
        # Up to three digits, leading zeros included.
        number = percentage(value.lstrip("0")) if len(value) <= len("100%") else None
    if isinstance(number, int) and not isinstance(number, bool) and 1 <= number <= 100:
        return number
    hint = inputs.suggestion(value, _ACTIVATIONS) if isinstance(value, str) else ""
    place.invalid(value, f"; give first_node, all_moved, or a percentage from 1% to 100%{hint}")
    return None


_READERS: Readers = {
    "name": inputs.checked(_name_problem),
    "node_selector": _node_selector,
    "node_expressions": _node_expressions,
    "virt_handler_image": inputs.checked(inputs.image_problem),
    "virt_launcher_image": inputs.checked(inputs.image_problem),
    "hypervisor": lambda place, value: inputs.choice(place, value, tuple(HYPERVISORS)),
    **SELECTOR_READERS,
    "unmatched": lambda place, value: inputs.choice(place, value, ("keep_off", "allow")),
    "activation": _activation,
    "tolerations": inputs.tolerations,
    "image_pull_secrets": inputs.pull_secrets,
    "virt_launcher_pull_secrets": inputs.pull_secrets,
    "resources": inputs.resources,
    "allow_skew": inputs.boolean,
}
"""How each of the model's fields is read."""


# Writing ------------------------------------------------------------------------------------------------------------


def write(fields: Fields, value_of: t.Callable[[str], object]) -> dict[str, t.Any]:
    """The fields of a form that have a value. ``value_of``: the value of a field of the model."""
    written = {}
    for name, below in fields.items():
        value = _plain(value_of(below)) if isinstance(below, str) else write(below, value_of)
        if value:
            written[name] = value
    return written


def _plain(value: object) -> object:
    if isinstance(value, (Requirement, Namespaces)):
        return value.to_object()
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return thaw(value)
