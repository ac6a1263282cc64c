# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""What virt-controller's Deployment says: the launcher image that KubeVirt gives to VMs.

virt-operator writes that image, as the one of the handlers' init container, but patches in ``spec.customizeComponents`` may
change either of them alone.
"""

from __future__ import annotations

from ..base import names
from ..base.objects import KubeObject, field

_LAUNCHER_IMAGE = "--launcher-image"


def launcher_image(deployment: KubeObject | None) -> str | None:
    """The launcher image that virt-controller writes into pods, and by which it calls VMs outdated; None when it does not say."""
    image = None
    for container in field(deployment, "spec", "template", "spec", "containers") or ():
        if container.get("name") != names.CONTROLLER:
            continue
        words = [str(word) for key in ("command", "args") for word in container.get(key) or ()]
        for word, following in zip(words, [*words[1:], ""], strict=True):
            flag, equals, value = word.partition("=")
            if flag == _LAUNCHER_IMAGE:
                # The last one wins (pflag). KubeVirt puts spec.customizeComponents.flags before its own arguments.
                image = value if equals else following
    return image or None
