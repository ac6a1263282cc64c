# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""A kind cluster whose images are made from packages: Debian's, and Go modules. Only what is not ours to write is not here."""

from __future__ import annotations
