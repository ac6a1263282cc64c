# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.frozen import FrozenMap, freeze, thaw


class TestFrozenMap:
    def test_equals_a_dict_with_the_same_items_in_any_order(self):
        assert FrozenMap({"b": 1, "a": 2}) == {"a": 2, "b": 1}

    def test_is_ordered_by_key(self):
        assert list(FrozenMap({"b": 1, "a": 2})) == ["a", "b"]

    def test_of_equal_items_has_the_same_hash(self):
        assert hash(FrozenMap({"b": 1, "a": 2})) == hash(FrozenMap({"a": 2, "b": 1}))

    def test_cannot_be_changed(self):
        with pytest.raises(TypeError):
            FrozenMap({"a": 1})["a"] = 2

    def test_is_asked_like_a_dict(self):
        frozen = FrozenMap({"b": None, "a": 1})
        assert ("a" in frozen, "b" in frozen, "c" in frozen) == (True, True, False)
        assert (frozen.get("a"), frozen.get("b", 2), frozen.get("c"), frozen.get("c", 2)) == (1, None, None, 2)
        assert list(frozen.items()) == [("a", 1), ("b", None)]
        assert frozen.items() >= {("a", 1)}

    def test_does_not_follow_the_dict_it_was_made_from(self):
        source = {"a": 1}
        frozen = FrozenMap(source)
        source["a"] = 2
        assert frozen == {"a": 1}


NESTED = {"a": [{"b": [1, "x"]}, None], "c": {}}


def test_a_frozen_value_is_hashable_at_any_depth():
    assert hash(freeze(NESTED)) == hash(freeze({"c": {}, "a": ({"b": (1, "x")}, None)}))


def test_a_frozen_value_thaws_to_what_it_was():
    thawed = thaw(freeze(NESTED))
    assert thawed == NESTED
    assert (type(thawed["a"]), type(thawed["a"][0])) == (list, dict)
