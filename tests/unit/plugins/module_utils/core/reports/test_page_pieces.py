# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.reports import page_pieces as pieces
from ansible_collections.virtpools.kubevirt.tests.unit.support.pages import HOSTILE, Parsed


def document(**fields):
    given = {"eyebrow": ("west", ""), "top": "", "sections": (), **fields}
    return pieces.document("ok", "Well", **given)


def test_a_page_loads_nothing():
    found = Parsed(document())
    (policy,) = found.all("meta", **{"http-equiv": "Content-Security-Policy"})
    assert policy["content"] == "default-src 'none'; style-src 'unsafe-inline'"


def test_what_is_empty_is_left_out():
    found = Parsed(document(eyebrow=("west", "", HOSTILE), sections=[("Full", "<p>x</p>"), ("Empty", "")]))
    assert found.text("h2") == "Full"
    assert found.text("p").startswith("west · ")
    assert not found.all("img")


def test_a_page_has_rules_of_its_own_below_those_of_all():
    assert "body{" in document().partition("</style>")[0]
    assert document(style=".mine{}").partition("</style>")[0].endswith(".mine{}")


@pytest.mark.parametrize(
    ("number", "nouns", "words"),
    [(0, "", "0 batchs"), (1, "batches", "1 batch"), (1234, "batches", "1,234 batches")],
)
def test_numbers_have_their_nouns(number, nouns, words):
    assert pieces.count(number, "batch", nouns) == words


def test_what_does_not_fit_is_counted():
    kept, missing = pieces.within(5, ["äa", "bb", "c"])
    assert (kept, missing) == (["äa", "bb"], 1)
    assert "1 node more" in pieces.left_out(missing, "node")
    assert pieces.left_out(0, "node") == ""


def test_every_tone_has_an_icon_of_its_own():
    assert len({pieces.icon(tone) for tone in ("ok", "warn", "info", "bad")}) == 4
