# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How unit tests run: a machine under load makes no property test fail, failures can be repeated, and none hangs."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api import at_once

# Hypothesis looks for new examples only where a person sees them fail. CI repeats the same ones. So does ansible-test,
# which hides the variable CI from them.
REPEATABLE = "CI" in os.environ or "ANSIBLE_TEST_ANSIBLE_LIB_ROOT" in os.environ

# The longest takes 15 s, but at a low priority beside the control-plane tests many times as long.
TIMEOUT_SECONDS = 1200

settings.register_profile(
    "virtpools",
    deadline=None,
    # At a low priority everything is slow, and mutmut runs the tests of a class several times in one process.
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.differing_executors],
    print_blob=True,
    derandomize=REPEATABLE,
)
settings.load_profile("virtpools")


def pytest_itemcollected(item):
    if not item.get_closest_marker("timeout"):
        item.add_marker(pytest.mark.timeout(TIMEOUT_SECONDS))


@pytest.fixture(scope="session", autouse=True)
def _one_request_at_a_time():
    """Requests of a batch come in a fixed order, but for tests that send them side by side."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(at_once, "MOST", 1)
        yield
