# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.writing import image_record
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kubevirt import image_contents
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kubevirt.image_contents import Contents
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders
from ansible_collections.virtpools.kubevirt.tests.unit.support.fake_cluster import World

NAME = "virt-handler-gpu"
FOUND = {builders.GPU_IMAGE: Contents(qemu="10.1.0")}


@pytest.fixture
def world():
    made = World(builders.primary(), builders.pool_daemonset(builders.pool("gpu")))
    made.writes.clear()
    return made


def live(world):
    return copy.deepcopy(world.find(kinds.DAEMON_SET, NAME, builders.NAMESPACE))


def test_changes_nothing_but_the_note(world):
    before = live(world)
    image_record.write(world.client(), live(world), FOUND)
    assert image_contents.recorded(live(world))[builders.GPU_IMAGE] == Contents(qemu="10.1.0")
    assert live(world)["spec"] == before["spec"]
    assert live(world)["metadata"]["labels"] == before["metadata"]["labels"]


@pytest.mark.parametrize("twice", [False, True])
def test_writes_nothing_without_news(world, twice):
    if twice:
        image_record.write(world.client(), live(world), FOUND)
        world.writes.clear()
    image_record.write(world.client(), live(world), FOUND if twice else {})
    assert world.writes == []


def test_leaves_out_images_that_the_daemonset_does_not_have(world):
    image_record.write(world.client(), live(world), {f"{builders.GPU_IMAGE}-other": Contents()})
    assert world.writes == []
