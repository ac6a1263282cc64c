# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.operator_mode.builds import BUILDS
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools.dialects import DIALECTS
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders

LIST, OBJECTS = BUILDS["virtHandlerPools"], BUILDS["WorkerPool"]


def test_builds_are_those_of_the_dialects_for_operator_pools():
    assert set(BUILDS) < set(DIALECTS)
    assert [build.name for build in BUILDS.values()] == list(BUILDS)


@pytest.mark.parametrize("build", BUILDS.values(), ids=str)
def test_pools_are_either_a_field_or_objects(build):
    assert (build.field is None) != (build.kind is None)
    assert build.place == (f"{build.kind} objects" if build.kind else f"spec.{build.field} of the KubeVirt object")


@pytest.mark.parametrize("build", BUILDS.values(), ids=str)
def test_every_build_can_give_a_pool_its_name_and_nodes(build):
    assert build.supports("name")
    assert build.supports("node_selector")


def test_a_form_lacks_the_fields_that_its_build_does_not_know():
    assert not BUILDS["additionalVirtHandlers"].supports("device_names")


def test_images_go_to_the_containers_that_the_build_replaces():
    assert LIST.images("h", "l") == {names.HANDLER: "h", "virt-launcher": "l", "virt-launcher-image-holder": "l"}
    assert LIST.images("h", None) == {names.HANDLER: "h"}


def test_the_pool_of_an_object_is_the_one_its_label_names():
    daemonset = builders.primary()
    assert LIST.pool_of(daemonset) is None
    daemonset["metadata"]["labels"][LIST.pool_label] = "gpu"
    assert LIST.pool_of(daemonset) == "gpu"
