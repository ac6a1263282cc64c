# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a module left for the end of its process is done at its own end; what it returned is cleaned as the ansible-core at hand does.

tests/control_plane/test_in_worker.py has the rest.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import sys
import tempfile

import pytest
from ansible.module_utils import basic  # noqa: F401  # loads what the fixture restores


@pytest.fixture
def in_worker(monkeypatch):
    """The plugin. Its import makes this process a controller, where modules that run in it print their warnings."""
    internal = sys.modules.get("ansible.module_utils._internal")  # ansible-core from 2.19 on
    if internal:
        monkeypatch.setattr(internal, "is_controller", internal.is_controller)
    return importlib.import_module("ansible_collections.virtpools.kubevirt.plugins.action.in_worker")


@pytest.mark.usefixtures("in_worker")
def test_workers_do_not_look_through_what_they_inherit():
    assert gc.get_freeze_count()


class Result:
    """A result as ansible-core has them from 2.21 on."""

    def __init__(self):
        self.keys = {"changed": True, "_ansible_secret": 1}

    def remove_internal_keys(self):
        del self.keys["_ansible_secret"]

    def as_result_dict(self, *, for_round_trip):
        assert for_round_trip
        return self.keys


def test_objects(in_worker, monkeypatch):
    monkeypatch.setattr(in_worker, "remove_internal_keys", None)
    assert in_worker._cleaned(Result()) == {"changed": True}


def test_dictionaries(in_worker):
    if in_worker.remove_internal_keys is None:
        pytest.skip("ansible-core from 2.21 on has no such results")
    assert in_worker._cleaned({"changed": True, "_ansible_secret": 1}) == {"changed": True}


@pytest.mark.parametrize("fails", [False, True])
def test_end_of_a_module(in_worker, fails):
    register, folder = atexit.register, tempfile.tempdir

    def module(done):
        with in_worker._left_for_the_end():
            assert tempfile.gettempdir() == in_worker.constants.DEFAULT_LOCAL_TMP
            atexit.register(done.append, "first")
            assert atexit.register(done.append, "second") == done.append
            assert not done
            if fails:
                raise SystemExit

    for _ in range(2):  # in a loop, one worker runs a module for each item
        done = []
        with contextlib.suppress(SystemExit):
            module(done)
        assert done == ["second", "first"]
        assert (atexit.register, tempfile.tempdir) == (register, folder)
