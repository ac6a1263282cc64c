# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The mapping table: which launcher pods belong to which pool. One truth, with several readers: the admission policies,
the matcher that predicts and verifies, and the explanation.
"""

from __future__ import annotations

import base64
import binascii
import json
import typing as t
import zlib
from dataclasses import dataclass, field, replace

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.findings import InputErrors
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.frozen import FrozenMap
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.objects import canonical_json
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools import Pool, restore_pool
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.selectors import Requirement

_LONGEST_PLAIN = 60_000
_LONGEST = 200_000
"""Of characters: an object's annotations together may have 256 KiB."""
_PACKED = "zlib:"


@dataclass(frozen=True)
class Table:
    """What launcher pods are matched with.

    ``rules`` are the active pools that select VMs, in order, reduced to what a launcher pod shows; the first that
    matches wins. ``keep_off`` and ``allow`` are all pools, active or not, by what they say of unmatched VMs. ``canaries``
    are the pools whose new launcher image is in effect for VMs with CANARY_LABEL alone, with that image (None: KubeVirt's
    own).
    """

    rules: tuple[Pool, ...]
    keep_off: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    canaries: t.Mapping[str, str | None] = field(default_factory=FrozenMap)

    @classmethod
    def of(
        cls,
        pools: t.Iterable[Pool],
        images: t.Mapping[str, str | None] | None = None,
        canaries: t.Mapping[str, str | None] | None = None,
    ) -> Table:
        """The table of these pools.

        :param images: the active pools with the launcher image that is in effect for each (None: KubeVirt's own);
            by default all pools are active, with their own images.
        :param canaries: the active pools whose canary VMs get another one, with that.
        """
        pools = tuple(pools)
        if images is None:
            images = {pool.name: pool.virt_launcher_image for pool in pools}
        canaries = canaries or {}
        rules = tuple(
            replace(
                pool,
                node_expressions=(),
                virt_handler_image=None,
                virt_launcher_image=images[pool.name],
                activation="first_node",
                image_pull_secrets=(),
                resources=FrozenMap(),
            )
            for pool in pools
            if pool.selector is not None and pool.name in images
        )
        return cls(
            rules=rules,
            keep_off=tuple(sorted(pool.name for pool in pools if pool.unmatched == "keep_off")),
            allow=tuple(sorted(pool.name for pool in pools if pool.unmatched == "allow")),
            canaries=FrozenMap({rule.name: canaries[rule.name] for rule in rules if rule.name in canaries}),
        )

    def without(self, pools: t.Collection[str]) -> Table:
        """The table that gives these pools no VM; they go on to keep others off."""
        rules = tuple(rule for rule in self.rules if rule.name not in pools)
        canaries = {name: image for name, image in self.canaries.items() if name not in pools}
        return replace(self, rules=rules, canaries=FrozenMap(canaries))

    @property
    def needed(self) -> bool:
        """Whether launcher pods must be changed at all."""
        return bool(self.rules or self.keep_off)

    @property
    def images(self) -> dict[str, str | None]:
        """The launcher image of every rule, by pool; None for KubeVirt's own."""
        return {rule.name: rule.virt_launcher_image for rule in self.rules}

    @property
    def launcher_images(self) -> frozenset[str]:
        """Every launcher image that it gives to some VM."""
        return frozenset(image for image in (*self.images.values(), *self.canaries.values()) if image)

    def requirement(self, winner: Pool | None) -> Requirement:
        """What a launcher pod asks of a node's owner label: the winner's nodes, or none that keep unmatched VMs off."""
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
        }

    def to_text(self) -> str:
        """The table for MAPPING_ANNOTATION: JSON, packed when long; empty when too long even so."""
        text = canonical_json(self.to_object())
        if len(text) > _LONGEST_PLAIN:
            text = _PACKED + base64.b64encode(zlib.compress(text.encode(), 9)).decode()
        return text if len(text) <= _LONGEST else ""


def restore(text: str) -> Table:
    """The table that ``Table.to_text`` wrote.

    :raises InputErrors: when it is none, or not in a form that this release reads.
    """
    try:
        if text.startswith(_PACKED):
            text = zlib.decompress(base64.b64decode(text[len(_PACKED) :], validate=True)).decode()
        found = json.loads(text)
        return Table(
            rules=tuple(restore_pool(rule) for rule in found["rules"]),
            keep_off=tuple(map(str, found["keepOff"])),
            allow=tuple(map(str, found["allow"])),
            canaries=FrozenMap(_images(found.get("canaries", {}))),
        )
    except (ValueError, TypeError, KeyError, zlib.error, binascii.Error) as error:
        raise InputErrors([f"Annotation {names.MAPPING_ANNOTATION} holds no mapping table: {error!r}."]) from error


def _images(found: t.Mapping[str, t.Any]) -> dict[str, str | None]:
    return {pool: None if image is None else str(image) for pool, image in dict(found).items()}
