# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import epochs, selectors

LABELS = {"until.virtpools.io/gpu": "7", "until.virtpools.io/primary": "12", "virtpools.io/pool": "rt"}


def test_labels_of_a_node():
    assert epochs.until_labels(LABELS) == {"until.virtpools.io/gpu": "7", "until.virtpools.io/primary": "12"}
    assert epochs.newest(LABELS) == 12
    assert epochs.newest({"virtpools.io/pool": "rt"}) == 0
    assert epochs.newest({"until.virtpools.io/gpu": "by hand"}) == 0


@pytest.mark.parametrize("owner", ["primary", "gpu", "p" * 63])
def test_every_owner_has_a_valid_label(owner):
    assert selectors.label_key_problem(epochs.until_label(owner)) is None


@given(st.integers(0, 2**40), st.integers(0, 2**40))
def test_only_pods_from_before_may_stay(admitted, left):
    requirement = epochs.stay_requirement("gpu", admitted)
    assert requirement.matches({epochs.until_label("gpu"): str(left)}) == (left > admitted)
    assert not requirement.matches({epochs.until_label("rt"): str(left)})
    assert not requirement.matches({})


def test_stay_terms():
    stay = {"matchExpressions": [epochs.stay_requirement("gpu", 6).to_object()]}
    own = {"matchExpressions": [{"key": "virtpools.io/pool", "operator": "In", "values": ["gpu"]}]}
    assert epochs.is_stay_term(stay)
    assert not epochs.is_stay_term(own)
    assert not epochs.is_stay_term({"matchFields": []})
    assert (epochs.until_keys(stay), epochs.stay_epochs(stay)) == ({"until.virtpools.io/gpu"}, {6})
    assert (epochs.until_keys(own), epochs.stay_epochs(own)) == (set(), set())
