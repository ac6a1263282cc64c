# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Immutable mappings for frozen dataclasses."""

from __future__ import annotations

import typing as t

V_co = t.TypeVar("V_co", covariant=True)


class FrozenMap(t.Mapping[str, V_co]):
    """An immutable mapping, ordered by key, hashable if its values are, and equal to a dict with the same items."""

    __slots__ = ("_items",)

    def __init__(self, items: t.Mapping[str, V_co] | None = None) -> None:
        self._items: dict[str, V_co] = dict(sorted((items or {}).items()))

    def __getitem__(self, key: str) -> V_co:
        return self._items[key]

    # Mapping has the next three, too, but in Python: a verification of 100,000 VMs calls them millions of times.

    def __contains__(self, key: object) -> bool:
        return key in self._items

    def get(self, key: str, default: t.Any = None) -> t.Any:
        return self._items.get(key, default)

    def items(self) -> t.ItemsView[str, V_co]:
        return self._items.items()

    def __iter__(self) -> t.Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(tuple(self._items.items()))

    def __repr__(self) -> str:
        return f"FrozenMap({self._items!r})"


def freeze(value: t.Any) -> t.Any:
    """``value`` with all mappings, at any depth, as FrozenMaps and all lists as tuples."""
    if isinstance(value, t.Mapping):
        return FrozenMap({key: freeze(item) for key, item in value.items()})
    if isinstance(value, (list, tuple)):
        return tuple(freeze(item) for item in value)
    return value


def thaw(value: t.Any) -> t.Any:
    """A frozen value as plain dicts and lists, for JSON and the API."""
    if isinstance(value, t.Mapping):
        return {key: thaw(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [thaw(item) for item in value]
    return value
