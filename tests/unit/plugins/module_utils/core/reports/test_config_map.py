# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import base64
import gzip
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.findings import InputErrors
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.reports import config_map

LARGE = b"the same line\n" * 10_000


def read(content):
    """The reports as one gets them out of a ConfigMap."""
    found = {key: value.encode() for key, value in content.get("data", {}).items()}
    for key, value in content.get("binaryData", {}).items():
        assert key.endswith(".gz")
        found[key.removesuffix(".gz")] = gzip.decompress(base64.b64decode(value))
    return found


@pytest.mark.parametrize(("text", "read"), [("report", (None, "report")), ("a-b/c.d", ("a-b", "c.d"))])
def test_a_name(text, read):
    assert config_map.parse(text) == read


@pytest.mark.parametrize("text", ["Report", "a/b/c", "/report", "ns/", "a.b/c", "", "re port"])
def test_a_wrong_name(text):
    with pytest.raises(InputErrors, match="virtpools_report_configmap is .*; give a ConfigMap as namespace/name"):
        config_map.parse(text)


def test_only_large_reports_are_compressed():
    content = config_map.content({"report.txt": b"short", "report.html": LARGE})
    assert content["data"] == {"report.txt": "short"}
    assert set(content["binaryData"]) == {"report.html.gz"}
    assert read(content) == {"report.txt": b"short", "report.html": LARGE}


@given(st.dictionaries(st.sampled_from(["report.txt", "report.json", "report.html"]), st.text()), st.booleans())
def test_what_is_written_can_be_read_again(reports, large):
    given = {name: text.encode() + (LARGE if large else b"") for name, text in reports.items()}
    content = config_map.content(given)
    assert read(content) == given
    assert content == config_map.content(given)


def test_reports_that_no_compression_makes_small_are_refused():
    noise = random.Random(1).randbytes(1_100_000)
    with pytest.raises(InputErrors, match="a ConfigMap holds 1,048,576; lower virtpools_max_listed_vms"):
        config_map.content({"report.json": noise})


def test_what_others_added_stays_but_for_reports():
    live = config_map.written(None, "ns", "name", {"report.html": LARGE}, "a user")
    live["metadata"]["labels"]["team"] = "blue"
    live["metadata"]["annotations"]["note"] = "kept"
    live["data"] = {"mine": "text"}
    after = config_map.written(live, "ns", "name", {"report.txt": b"short"}, "another")
    assert after["metadata"]["labels"] == {"team": "blue", names.MANAGED_BY_LABEL: names.MANAGED_BY}
    assert after["metadata"]["annotations"] == {"note": "kept", names.REPORTED_BY_ANNOTATION: "another"}
    assert after["data"] == {"report.txt": "short"}
    assert "binaryData" not in after
    assert set(live["data"]) == {"mine"}


def test_what_is_no_report_is_refused():
    history = kinds.CONFIG_MAP.object(names.HISTORY, "kubevirt")
    history["metadata"]["labels"] = {names.MANAGED_BY_LABEL: names.MANAGED_BY}
    with pytest.raises(InputErrors, match="ConfigMap kubevirt/virtpools-history exists and has no reports of ours"):
        config_map.written(history, "kubevirt", names.HISTORY, {}, "a user")
