# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""What a user of the local control plane may be told."""

from __future__ import annotations


class ClusterError(Exception):
    """Something the user must know or can mend; its text is one clear sentence, perhaps followed by a log's tail."""
