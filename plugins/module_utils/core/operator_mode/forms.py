# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Our pools in a build's own form and back. What the build cannot say is refused by the names of pool and field."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ..base import names
from ..base.findings import Finding, error, in_order, listed, warning
from ..base.objects import KubeObject, Object
from ..pools import dialects, forms
from ..pools.criteria import SELECTOR_READERS
from ..pools.model import Pool
from .builds import Build

_NEUTRAL: t.Mapping[str, object] = {"unmatched": "allow", "activation": "first_node"}
"""Values that ask for nothing which a build does not do anyway."""

_INSTEAD: t.Mapping[str, str] = {
    "node_expressions": "give these nodes one label of their own, and select by it in nodeSelector",
    "match_expressions": "select by matchLabels",
    "match_node_selector": "select by deviceNames or vmLabels.matchLabels",
    "device_names": "let VMs ask for the pool's nodes in their nodeSelector",
    "match_labels": "let VMs ask for the pool's nodes in their nodeSelector",
    "unmatched": "write unmatched: allow (without it, a pool with a selector keeps other VMs off)",
    "activation": "remove it, since VMs get the pool's image at once",
    "tolerations": "remove it, and see which nodes the pool's handlers then do not tolerate",
}


_OURS = frozenset({"allow_skew"})
"""Fields that ask nothing of a build: only our own record has them."""


def without_unmatched(pools: t.Iterable[Pool], dialect: str) -> tuple[Pool, ...]:
    """The pools of a dialect that cannot say what VMs without a pool may do. No build keeps them off, so they may do all."""
    given = tuple(pools)
    if dialects.DIALECTS[dialect].form.has("unmatched"):
        return given
    return tuple(replace(pool, unmatched="allow") for pool in given)


def problems(build: Build, pools: t.Iterable[Pool]) -> tuple[Finding, ...]:
    """An error for each field of a pool that the build cannot say, and for what it needs and the pool lacks."""
    return in_order(finding for pool in pools for finding in _problems(build, pool))


def _problems(build: Build, pool: Pool) -> t.Iterator[Finding]:
    for attribute in forms.FORM.attributes:
        value = pool.value(attribute)
        implied = attribute == "match_node_selector" and not build.dialect.form.selector
        if not value or implied or attribute in _OURS or build.supports(attribute) or value == _NEUTRAL.get(attribute):
            continue
        instead = _INSTEAD.get(attribute, "remove it")
        yield _cannot_say(
            f"Pool {pool.name}: {forms.FORM.path(attribute)} is set, and {build.place} has no such field; {instead}, or use "
            "collection pools."
        )
    if build.dialect.form.selector and not any(pool.value(name) for name in SELECTOR_READERS):
        yield _cannot_say(
            f"Pool {pool.name}: selector is missing, and is required in {build.place}; specify in selector which VMs the pool takes."
        )
    if build.dialect.form.image_required and not (pool.virt_handler_image or pool.virt_launcher_image):
        yield _cannot_say(
            f"Pool {pool.name} has no image, and virtHandlerImage or virtLauncherImage is required in {build.place}."
        )


_LABELS_OF_PODS = frozenset({names.KUBEVIRT_LABEL, "vm.kubevirt.io/name", "vmi.kubevirt.io/id"})
"""Labels that KubeVirt gives launcher pods only."""


def labels_of_pods(pools: t.Iterable[Pool]) -> t.Iterator[Finding]:
    """A warning for each pool that selects VMs by labels which builds do not look at."""
    for pool in pools:
        keys = sorted(_LABELS_OF_PODS & (pool.selector.match_labels.keys() if pool.selector is not None else set()))
        if keys:
            yield warning(
                "operator_label_of_pod",
                f"Pool {pool.name} selects VMs by {listed(keys)}, which KubeVirt gives launcher pods but not VM instances, and this build "
                "looks at these: the label matches no VM that does not have it itself. Give the VMs a label of your own in "
                "spec.template.metadata.labels.",
            )


def _cannot_say(message: str) -> Finding:
    return error("operator_cannot_say", message)


def to_build(build: Build, pool: Pool) -> Object:
    """The pool as an entry of the build's list or, without kind and apiVersion, as one of its objects."""
    return pool.to_fields(build.fields)


def from_build(build: Build, raw: t.Sequence[KubeObject]) -> tuple[Pool, ...]:
    """The pools of a build's list or objects, in the order in which it asks them.

    :raises InputErrors: when one of them is nothing that we can read.
    """
    if not raw:
        return ()
    return without_unmatched(dialects.read_dialect(build.name, list(raw)), build.name)


def with_record(build: Build, pools: t.Iterable[Pool], recorded: t.Iterable[Pool]) -> tuple[Pool, ...]:
    """The pools of a build with what only our record of the same pools knows.

    :param recorded: the pools of the newest list in the history.
    """
    known = {pool.name: pool for pool in recorded}
    return tuple(
        replace(pool, allow_skew=known[pool.name].allow_skew)
        if pool.name in known and same(build, known[pool.name], pool)
        else pool
        for pool in pools
    )


def same(build: Build, one: Pool, other: Pool) -> bool:
    """Whether the build cannot tell two pools apart."""
    return to_build(build, one) == to_build(build, other)
