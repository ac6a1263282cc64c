# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""The errors that users of the local control plane see."""

from __future__ import annotations


class ClusterError(Exception):
    """A problem that the user must know of or can solve; its text is one sentence, perhaps with the end of a log."""
