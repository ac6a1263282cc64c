# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""The model of a pool."""

from __future__ import annotations

import functools
import typing as t
from dataclasses import dataclass, field

from ..base.frozen import FrozenMap
from ..base.selectors import Requirement, Term
from . import forms
from .criteria import SELECTOR_READERS, Criterion, Fields, Namespaces, Selection, VmSelector, freeze_fields
from .forms import Form
from .inputs import Problems

Unmatched = t.Literal["keep_off", "allow"]
Activation: t.TypeAlias = "t.Literal['first_node', 'all_moved'] | int"


@dataclass(frozen=True)
class Pool:
    """Nodes with their own virt-handler, and the VMs that get its launcher. Mappings and lists given are frozen.

    ``tolerations``, ``resources`` and both pull secrets are as the API serves them: those of the pool's handlers, and those
    of its VMs' launcher pods. ``activation`` as a number is a percentage of the pool's nodes.
    """

    name: str
    node_selector: t.Mapping[str, str]
    node_expressions: tuple[Requirement, ...] = ()
    virt_handler_image: str | None = None
    virt_launcher_image: str | None = None
    hypervisor: str | None = None
    """What its VMs run on, by KubeVirt's name; None: what KubeVirt's configuration says."""
    selector: VmSelector | None = None
    unmatched: Unmatched = "keep_off"
    activation: Activation = "first_node"
    tolerations: tuple[t.Mapping[str, t.Any], ...] = ()
    image_pull_secrets: tuple[t.Mapping[str, str], ...] = ()
    virt_launcher_pull_secrets: tuple[t.Mapping[str, str], ...] = ()
    resources: t.Mapping[str, t.Mapping[str, str]] = field(default_factory=FrozenMap)
    allow_skew: bool = False
    """Whether its images may be of another version than KubeVirt. It changes nothing in the cluster but what is recorded of the
    pool, so every run, rollback and verification of the same list judges the images alike."""

    def __post_init__(self) -> None:
        freeze_fields(self, sets=("node_expressions", "tolerations"))

    @property
    def nodes(self) -> Term:
        """The label requirements of the pool's nodes."""
        return Term((*Term.from_labels(self.node_selector).requirements, *self.node_expressions))

    @property
    def criteria(self) -> tuple[Criterion, ...]:
        """The criteria of the selector, any of which is enough; none without a selector."""
        return self.selection.selector.criteria

    @functools.cached_property
    def selection(self) -> Selection:
        """What the criteria are about."""
        return Selection(self.selector or VmSelector(), self.node_selector)

    @property
    def namespaces(self) -> Namespaces | None:
        """The namespaces whose VMs alone the selector takes; None for all."""
        return self.selection.selector.namespaces

    def to_object(self) -> dict[str, t.Any]:
        """The pool in our form: plain, canonical, and read back as the same pool by ``restore_pool``."""
        written = self.to_fields(forms.FORM.fields)
        if isinstance(self.activation, int):
            written["activation"] = f"{self.activation}%"
        return written

    def to_fields(self, fields: Fields) -> dict[str, t.Any]:
        """The pool in these fields; what has no field there is left out."""
        return forms.write(fields, self.value)

    def value(self, attribute: str) -> object:
        """One field of the pool, or of its selector; None without one."""
        if attribute in SELECTOR_READERS:
            return getattr(self.selector, attribute, None)
        return getattr(self, attribute)


def restore_pool(obj: object) -> Pool:
    """The pool that ``Pool.to_object`` wrote, whatever form it once came from.

    :raises InputErrors: when it is another kind of object.
    """
    return read_pools(forms.STORED_FORM, [("The stored pool", obj)], Problems())[0]


def read_pools(form: Form, entries: t.Iterable[tuple[str, object]], problems: Problems) -> tuple[Pool, ...]:
    """The pools that ``entries`` are: what messages call each one, and its value.

    :raises InputErrors: with ``problems``, if there are any.
    """
    pools = forms.read(form, entries, problems)
    problems.raise_if_any()
    return tuple(_pool(form, values) for values in pools)


def _pool(form: Form, values: dict[str, t.Any]) -> Pool:
    selecting = {attribute: values.pop(attribute) for attribute in SELECTOR_READERS if attribute in values}
    selector = VmSelector(**selecting) if selecting else None
    if not form.selector:
        selector = VmSelector(match_node_selector=True)
    # A pool without a launcher image and without a selector only changes the handler: then every VM may run there.
    values.setdefault("unmatched", "keep_off" if selecting or "virt_launcher_image" in values else "allow")
    return Pool(selector=selector, **values)
