# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How property tests run: a machine under load makes no test fail, and a failure can be repeated."""

from __future__ import annotations

import os

from hypothesis import settings

# New examples are sought where a person sees them fail. CI repeats the same ones, and so does ansible-test, whose second
# run is about imports (it also hides CI's variable from us).
REPEATABLE = "CI" in os.environ or "ANSIBLE_TEST_ANSIBLE_LIB_ROOT" in os.environ

settings.register_profile("virtpools", deadline=None, print_blob=True, derandomize=REPEATABLE)
settings.load_profile("virtpools")
