# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which launcher image a VM should have, and whether what its pod has is that one."""

from __future__ import annotations

import typing as t

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.mapping import Table
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools import Pool


class LauncherImages:
    """The launcher images of a mapping table and KubeVirt's own, ``stock``; together they are ``known``."""

    def __init__(self, table: Table, stock: str) -> None:
        self.stock = stock
        self.known = {stock, *table.launcher_images}

    def expected(self, winner: Pool | None) -> str:
        """The image of a VM that this pool, or none, wins."""
        return (winner and winner.virt_launcher_image) or self.stock

    def wrong(self, images: t.Mapping[str, str], expected: str) -> dict[str, str]:
        """Those of a launcher pod's images, by place, that are not the expected one."""
        return {place: image for place, image in images.items() if not self._same(image, expected)}

    def _same(self, image: str, expected: str) -> bool:
        """Whether an image is the expected one, or its copy in another registry, as webhooks for mirrors make them."""
        return image == expected or (image not in self.known and _tail(image) == _tail(expected))


def _tail(image: str) -> str:
    return image.rpartition("/")[2]
