# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How property tests run: a machine under load makes no test fail, and a failure can be repeated."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("virtpools", deadline=None, print_blob=True)
settings.load_profile("virtpools")
