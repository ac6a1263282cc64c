# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kubevirt import controller
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders


@pytest.mark.parametrize(
    ("command", "arguments", "image"),
    [
        (["virt-controller"], ["--launcher-image", "a:1", "--exporter-image", "b:1"], "a:1"),
        (["virt-controller"], ["--launcher-image=a:1", "-v", "2"], "a:1"),
        (["virt-controller", "--launcher-image", "flag:1"], ["--launcher-image", "a:1"], "a:1"),
        (["virt-controller", "--launcher-image", "flag:1"], [], "flag:1"),
        (["virt-controller"], ["--launcher-image"], None),
        (["virt-controller"], ["--launcher-image="], None),
        (["virt-controller"], ["--exporter-image", "b:1"], None),
    ],
)
def test_the_launcher_image_that_it_gives(command, arguments, image):
    assert controller.launcher_image(builders.controller(*arguments, command=command)) == image


@pytest.mark.parametrize(
    "deployment", [None, {}, {"spec": {"template": {"spec": {"containers": [{"name": "other"}]}}}}]
)
def test_a_deployment_that_says_nothing(deployment):
    assert controller.launcher_image(deployment) is None
