# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import sys

import pytest
from ansible.module_utils import basic  # noqa: F401  # loads what the fixture restores


@pytest.fixture
def on_controller(monkeypatch):
    """For tests that import Ansible's own code for the controller: that makes this process one, where modules that run in it
    print their warnings instead of returning them."""
    internal = sys.modules.get("ansible.module_utils._internal")  # ansible-core from 2.19 on
    if internal:
        monkeypatch.setattr(internal, "is_controller", internal.is_controller)
