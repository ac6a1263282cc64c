# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a module returned is cleaned as the ansible-core at hand cleans it. tests/control_plane/test_in_worker.py has the rest."""

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.plugin_utils import in_worker


class Result:
    """A result as ansible-core has them from 2.21 on."""

    def __init__(self):
        self.keys = {"changed": True, "_ansible_secret": 1}

    def remove_internal_keys(self):
        del self.keys["_ansible_secret"]

    def as_result_dict(self, *, for_round_trip):
        assert for_round_trip
        return self.keys


def test_objects(monkeypatch):
    monkeypatch.setattr(in_worker, "remove_internal_keys", None)
    assert in_worker._cleaned(Result()) == {"changed": True}


@pytest.mark.skipif(in_worker.remove_internal_keys is None, reason="ansible-core from 2.21 on has no such results")
def test_dictionaries():
    assert in_worker._cleaned({"changed": True, "_ansible_secret": 1}) == {"changed": True}
