# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""The mapping table: which launcher pods belong to which pool. Admission policies, the matcher (for prediction and
verification) and explanations all follow this table.
"""

from __future__ import annotations

import base64
import binascii
import functools
import json
import typing as t
import zlib
from dataclasses import dataclass, field, replace

from ..base import names
from ..base.findings import InputErrors
from ..base.frozen import FrozenMap
from ..base.objects import canonical_json
from ..base.selectors import Requirement
from ..kubevirt import health
from ..pools.criteria import PodAttributes, Trait
from ..pools.model import Pool, restore_pool

_LONGEST_PLAIN = 60_000
_LONGEST = 200_000
"""In characters. All annotations of an object together may have 256 KiB."""
_PACKED = "zlib:"


@dataclass(frozen=True)
class Upcoming:
    """The launcher images for the next version of KubeVirt, prepared before the upgrade.

    virt-controller writes the arguments of a launcher for its own version, and its own launcher image into the pod (KubeVirt). So
    that image says which version a pod is for, at every instant of an upgrade and of one that is taken back. Its name in a mirror
    is that of the same version: only the last part of the path is compared, which has the tag or digest.
    """

    stock: str
    """KubeVirt's own launcher image at the time: pods that have another one are for the next version."""
    version: str
    """The next version."""
    images: t.Mapping[str, str | None]
    """The launcher image of each pool for that version; None for KubeVirt's own."""

    def begun(self, stock: str | None) -> bool:
        """Whether a launcher image of KubeVirt's is one of the next version; None, not known, is taken for the present one."""
        return stock is not None and health.last_part(stock) != health.last_part(self.stock)

    @property
    def next_stock(self) -> str:
        """KubeVirt's own launcher image of the next version, if its registry and name stay the same."""
        # KubeVirt tags its images with its version; that of a build has more in it than the release.
        retagged = None if health.build_of(self.version) else health.retagged(self.stock, self.version)
        return retagged or health.tagged(self.stock, self.version)

    def to_object(self) -> dict[str, t.Any]:
        return {"stock": self.stock, "version": self.version, "images": dict(self.images)}

    @classmethod
    def from_object(cls, obj: t.Mapping[str, t.Any]) -> Upcoming:
        images = {str(pool): image and str(image) for pool, image in dict(obj["images"]).items()}
        return cls(str(obj["stock"]), str(obj["version"]), FrozenMap(images))


@dataclass(frozen=True)
class Table:
    """What decides the pool of a launcher pod, its image and its nodes."""

    rules: tuple[Pool, ...]
    """The active pools that select VMs, in order and with the fields of ``_rule``; the first that matches wins."""
    keep_off: tuple[str, ...] = ()
    """All pools, active or not, that keep unmatched VMs off."""
    allow: tuple[str, ...] = ()
    """All pools, active or not, that allow unmatched VMs."""
    canaries: t.Mapping[str, str | None] = field(default_factory=FrozenMap)
    """The pools whose new launcher image only VMs with CANARY_LABEL get for now, with that image (None: KubeVirt's
    own)."""
    upcoming: Upcoming | None = None
    """What pods get that the next version of KubeVirt makes; None where no upgrade is prepared."""

    @classmethod
    def for_pools(
        cls,
        pools: t.Iterable[Pool],
        images: t.Mapping[str, str | None] | None = None,
        canaries: t.Mapping[str, str | None] | None = None,
        upcoming: Upcoming | None = None,
    ) -> Table:
        """The table of these pools.

        :param images: the active pools with the launcher image that is in effect for each (None: KubeVirt's own);
            by default all pools are active, with their own images.
        :param canaries: the active pools whose canary VMs get another image, with that image.
        :param upcoming: what is prepared for an upgrade; pools that are not active have no part in it.
        """
        pools = tuple(pools)
        if images is None:
            images = {pool.name: pool.virt_launcher_image for pool in pools}
        canaries = canaries or {}
        rules = tuple(
            _rule(pool, images[pool.name]) for pool in pools if pool.selector is not None and pool.name in images
        )
        return cls(
            rules=rules,
            keep_off=tuple(sorted(pool.name for pool in pools if pool.unmatched == "keep_off")),
            allow=tuple(sorted(pool.name for pool in pools if pool.unmatched == "allow")),
            canaries=FrozenMap({rule.name: canaries[rule.name] for rule in rules if rule.name in canaries}),
            upcoming=_limited(upcoming, [rule.name for rule in rules]),
        )

    def as_of(self, stock: str | None) -> Table:
        """The table for pods that have this launcher image of KubeVirt, without what it holds for others.

        :param stock: None when it is not known; then the image at the time of the preparation is assumed.
        """
        if self.upcoming is None:
            return self
        plain = replace(self, upcoming=None)
        if not self.upcoming.begun(stock):
            return plain
        images = self.upcoming.images
        rules = tuple(
            replace(rule, virt_launcher_image=images.get(rule.name, rule.virt_launcher_image)) for rule in self.rules
        )
        return replace(plain, rules=rules, canaries=FrozenMap())

    def prepared(self, upcoming: Upcoming) -> Table:
        """The table with what pods of the next version of KubeVirt get besides."""
        return replace(self, upcoming=_limited(upcoming, self.images))

    def without_pools(self, pools: t.Collection[str]) -> Table:
        """The table without the rules of these pools; they still keep other VMs off."""
        rules = tuple(rule for rule in self.rules if rule.name not in pools)
        canaries = {name: image for name, image in self.canaries.items() if name not in pools}
        upcoming = _limited(self.upcoming, [rule.name for rule in rules])
        return replace(self, rules=rules, canaries=FrozenMap(canaries), upcoming=upcoming)

    @property
    def needed(self) -> bool:
        """Whether launcher pods must be changed."""
        return bool(self.rules or self.keep_off)

    def candidates(self, attributes: PodAttributes) -> t.Iterator[Pool]:
        """The rules that could take a VM, in order. The others certainly do not."""
        filed, keys, others = self._index
        found = set(others)
        for trait in attributes.traits(keys):
            found.update(filed.get(trait, ()))
        return (self.rules[number] for number in sorted(found))

    @functools.cached_property
    def _index(self) -> tuple[dict[Trait, list[int]], tuple[tuple[str, str], ...], list[int]]:
        """The numbers of rules by the traits that their criteria need, the keys of these traits, and the numbers of rules with a
        criterion that needs none."""
        filed: dict[Trait, list[int]] = {}
        others = []
        for number, rule in enumerate(self.rules):
            needs = [criterion.needs(rule.selection) for criterion in rule.criteria]
            if not all(needs):
                others.append(number)
                continue
            for trait in {trait for of_criterion in needs for trait in of_criterion}:
                filed.setdefault(trait, []).append(number)
        keys = {(trait[0], trait[1]) for trait in filed if trait[0] != "device"}
        return filed, tuple(sorted(keys)), others

    @property
    def images(self) -> dict[str, str | None]:
        """The launcher image of every rule, by pool; None for KubeVirt's own."""
        return {rule.name: rule.virt_launcher_image for rule in self.rules}

    @property
    def pools(self) -> dict[str, Pool]:
        """What the table holds of every pool, by name: of one that takes no VMs only what becomes of unmatched VMs."""
        kept = {name: Pool(name, {}, unmatched="keep_off") for name in self.keep_off}
        allowed = {name: Pool(name, {}, unmatched="allow") for name in self.allow}
        return {**kept, **allowed, **{rule.name: rule for rule in self.rules}}

    @property
    def adds_pull_secrets(self) -> bool:
        """Whether launcher pods of some pool get pull secrets."""
        return any(rule.virt_launcher_pull_secrets for rule in self.rules)

    @property
    def sets_hypervisor(self) -> bool:
        """Whether launcher pods of some pool get another hypervisor than KubeVirt's configuration says."""
        return any(rule.hypervisor for rule in self.rules)

    @property
    def launcher_images(self) -> frozenset[str]:
        """Every launcher image that the table gives to some VM, without KubeVirt's own."""
        upcoming = self.upcoming.images.values() if self.upcoming is not None else ()
        return frozenset(image for image in (*self.images.values(), *self.canaries.values(), *upcoming) if image)

    def requirement(self, winner: Pool | None) -> Requirement:
        """The requirement on a node's owner label: the winner's nodes, or for unmatched VMs all that do not keep them off."""
        if winner is not None:
            return Requirement(names.OWNER_LABEL, "In", (winner.name,))
        if not self.allow:
            return Requirement(names.OWNER_LABEL, "DoesNotExist")
        return Requirement(names.OWNER_LABEL, "NotIn", (*self.keep_off, names.IN_TRANSIT))

    def to_object(self) -> dict[str, t.Any]:
        return {
            "rules": [rule.to_object() for rule in self.rules],
            "keepOff": list(self.keep_off),
            "allow": list(self.allow),
            **({"canaries": dict(self.canaries)} if self.canaries else {}),
            **({"upcoming": self.upcoming.to_object()} if self.upcoming is not None else {}),
        }

    def to_text(self) -> str:
        """The table for MAPPING_ANNOTATION: JSON, packed when it is long, and empty when that is still too long."""
        text = canonical_json(self.to_object())
        if len(text) > _LONGEST_PLAIN:
            text = _PACKED + base64.b64encode(zlib.compress(text.encode(), 9)).decode()
        return text if len(text) <= _LONGEST else ""


def _limited(upcoming: Upcoming | None, pools: t.Collection[str]) -> Upcoming | None:
    """What of it concerns these pools; None when nothing does."""
    if upcoming is None:
        return None
    images = {pool: image for pool, image in upcoming.images.items() if pool in pools}
    return replace(upcoming, images=FrozenMap(images)) if images else None


def _rule(pool: Pool, image: str | None) -> Pool:
    """A pool with only the fields that decide what launcher pods get. The launcher policy and its annotation hold these,
    and change when one of them does; a field that is not listed here stays out.
    """
    return Pool(
        name=pool.name,
        node_selector=pool.node_selector,
        virt_launcher_image=image,
        hypervisor=pool.hypervisor,
        selector=pool.selector,
        unmatched=pool.unmatched,
        tolerations=pool.tolerations,
        virt_launcher_pull_secrets=pool.virt_launcher_pull_secrets,
    )


def restore(text: str) -> Table:
    """The table that ``Table.to_text`` wrote.

    :raises InputErrors: when the text is not a table that this release can read.
    """
    try:
        if text.startswith(_PACKED):
            text = zlib.decompress(base64.b64decode(text[len(_PACKED) :], validate=True)).decode()
        obj = json.loads(text)
        return Table(
            rules=tuple(restore_pool(rule) for rule in obj["rules"]),
            keep_off=tuple(map(str, obj["keepOff"])),
            allow=tuple(map(str, obj["allow"])),
            canaries=FrozenMap({pool: image and str(image) for pool, image in dict(obj.get("canaries", {})).items()}),
            upcoming=Upcoming.from_object(obj["upcoming"]) if "upcoming" in obj else None,
        )
    except (ValueError, TypeError, KeyError, zlib.error, binascii.Error) as error:
        raise InputErrors([f"Annotation {names.MAPPING_ANNOTATION} holds no mapping table: {error!r}."]) from error
