# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Notes on a pool's DaemonSet what a run found in its images, so that the next run need not look again."""

from __future__ import annotations

import typing as t

from ...core.base import kinds
from ...core.base.objects import KubeObject, Object
from ...core.kubevirt import image_contents
from ...core.kubevirt.image_contents import Contents
from ..api.client import Cluster


def write(cluster: Cluster, daemonset: KubeObject, contents: t.Mapping[str, Contents]) -> None:
    """Note the contents of the DaemonSet's own images that are among these, beside those of its other images.

    Neither the pod template nor the spec changes, so no handler restarts.

    :raises ClusterError: when the DaemonSet cannot be read or written.
    """
    own = image_contents.roles_of(daemonset)
    found = {image: each for image, each in contents.items() if image in own}
    if not found:
        return

    def change(now: Object) -> Object:
        return dict(image_contents.with_record(now, found))

    metadata = daemonset["metadata"]
    cluster.edit(kinds.DAEMON_SET, metadata["name"], metadata["namespace"], change, dry_run=False)
