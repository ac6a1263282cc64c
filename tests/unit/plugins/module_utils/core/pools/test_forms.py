# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.findings import InputErrors
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools import forms
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools.inputs import Problems
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders

RAW = builders.RAW_POOL


def read(*entries, form=forms.FORM):
    problems = Problems()
    found = forms.read(form, forms.entries_of(problems, "pools", list(entries)), problems)
    problems.raise_if_any()
    return found


def refusal(raw):
    problems = Problems()
    forms.read(forms.FORM, forms.entries_of(problems, "pools", raw), problems)
    with pytest.raises(InputErrors) as raised:
        problems.raise_if_any()
    return " ".join(raised.value.messages)


class TestEntries:
    @pytest.mark.parametrize(
        ("raw", "why"),
        [(None, "is missing"), ("x", "give a list of pools"), ([], "is an empty list"), ([RAW] * 1001, "1001 entries")],
    )
    def test_that_are_no_list_of_pools_are_refused(self, raw, why):
        assert why in refusal(raw)


class TestRead:
    def test_has_the_fields_of_the_model(self):
        (pool,) = read(RAW)
        assert (pool["name"], pool["node_selector"]) == ("gpu", {"hw": "gpu"})
        assert pool["virt_handler_image"] == builders.GPU_IMAGE

    def test_refuses_a_name_that_two_pools_have(self):
        assert "give every pool a name of its own" in refusal([RAW, RAW])

    @pytest.mark.parametrize("name", ["primary", "Gpu", "x" * 49])
    def test_refuses_a_name_that_no_daemonset_could_have(self, name):
        assert f'name is "{name}"' in refusal([{**RAW, "name": name}])

    def test_refuses_an_unknown_field_and_suggests_one(self):
        assert "perhaps you mean nodeSelector" in refusal([{**RAW, "nodeselector": {}}])

    def test_refuses_a_selector_for_the_label_of_owners(self):
        assert "which this collection sets itself" in refusal([{**RAW, "nodeSelector": {"virtpools.io/pool": "gpu"}}])

    def test_needs_an_image_unless_the_pool_is_stored(self):
        plain = {key: value for key, value in RAW.items() if key != "virtHandlerImage"}
        assert "virtHandlerImage" in refusal([plain])
        assert read(plain, form=forms.STORED_FORM)[0]["name"] == "gpu"


def test_what_is_written_is_read_as_the_same_pool():
    (fields,) = read({**RAW, "tolerations": [{"key": "gpu", "operator": "Exists"}], "activation": 50})
    written = forms.write(forms.FORM.written_fields, fields.get)
    assert read(written) == [fields]
