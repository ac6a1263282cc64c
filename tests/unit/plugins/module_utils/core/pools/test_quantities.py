# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The canonical spelling of quantities: the table was checked against Kubernetes 1.36's own Go package."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools.quantities import Quantity, percentage


@pytest.mark.parametrize(
    ("text", "served"),
    [
        ("0", "0"),
        ("0.0", "0"),
        ("0Gi", "0"),
        ("1000m", "1"),
        ("1500m", "1500m"),
        ("0.5", "500m"),
        (".5", "500m"),
        ("5.", "5"),
        ("1.5", "1500m"),
        ("+2", "2"),
        ("1000", "1k"),
        ("1500", "1500"),
        ("2000000", "2M"),
        ("0.1", "100m"),
        ("100u", "1m"),
        ("1n", "1m"),
        ("1.0001", "1001m"),
        ("1024Mi", "1Gi"),
        ("1000Mi", "1000Mi"),
        ("1.5Gi", "1536Mi"),
        ("0.5Ki", "512"),
        ("1023", "1023"),
        ("1Ki", "1Ki"),
        ("1.1Ki", "1126400m"),
        ("1024Ki", "1Mi"),
        ("1024", "1024"),
        ("128974848", "128974848"),
        ("129e6", "129e6"),
        ("129M", "129M"),
        ("1e3", "1e3"),
        ("1E3", "1e3"),
        ("1e-3", "1e-3"),
        ("12e1", "120"),
        ("1E", "1E"),
        ("7Ei", "7Ei"),
        ("9223372036854775807", "9223372036854775807"),
    ],
)
def test_what_the_api_server_serves(text: str, served: str) -> None:
    assert str(Quantity.parse(text)) == served


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "-1",
        "1K",
        "1 Gi",
        "1gi",
        "1e",
        "e3",
        "Gi",
        "1_000",
        "0x10",
        "1,5",
        "٣",
        "1e100",
        "9E19",
        "16E",
        "8Ei",
        "1" * 65,
    ],
)
def test_what_is_no_quantity_for_a_container(text: str) -> None:
    assert Quantity.parse(text) is None


SUFFIXES = ("", "m", "k", "M", "Ki", "Mi", "Gi", "e3", "E-2", "u", "n")


@given(st.integers(0, 10**9), st.sampled_from(("", ".5", ".25", ".001", ".0009")), st.sampled_from(SUFFIXES))
@example(19559781, ".25", "Ki")
def test_the_canonical_spelling_is_its_own(number: int, part: str, suffix: str) -> None:
    quantity = Quantity.parse(f"{number}{part}{suffix}")
    assert quantity is not None
    again = Quantity.parse(str(quantity))
    assert again is not None
    assert again.thousandths == quantity.thousandths
    assert str(again) == str(quantity)


@pytest.mark.parametrize(("text", "number"), [("1%", 1), ("10%", 10), ("99%", 99), ("100%", 100)])
def test_percentages(text: str, number: int) -> None:
    assert percentage(text) == number


@pytest.mark.parametrize(
    "text", ["", "%", "0%", "101%", "10", "050%", "-1%", "+1%", "1.5%", " 1%", "1 %", "1%\n", "٣%"]
)
def test_what_is_no_percentage(text: str) -> None:
    assert percentage(text) is None
