# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest

from ansible_collections.virtpools.kubevirt.tests.unit.support import builders, vms
from ansible_collections.virtpools.kubevirt.tests.unit.support.fake_cluster import World

NEXT = {
    "name": "gpu",
    "nodeSelector": {"hw": "gpu"},
    "virtHandlerImage": "registry.example/virt-handler:v1.9.1-gpu",
    "selector": {"deviceNames": [vms.DEVICE]},
}


def objects():
    nodes, sets = vms.nodes(), [builders.primary(desired=1), builders.pool_daemonset(vms.gpu(), desired=2)]
    return [builders.excluding_kubevirt(), *sets, *nodes, *builders.handlers_of(nodes, sets), *vms.policy()]


@pytest.fixture
def world():
    return World(*objects())


def test_of_the_recorded_pools(run, world):
    found = run("upgrade_info", version="v1.9.1")
    assert (found["changed"], found["verdict"], found["kubevirt_version"]) == (False, "prepare", "v1.9.0")
    assert [image["needed"] for image in found["images"]] == [
        "registry.example/virt-handler:v1.9.1-gpu",
        "registry.example/virt-launcher:v1.9.1-gpu",
    ]
    assert found["text"][0] == found["summary"]
    assert world.writes == []


def test_of_pools_for_the_new_version(run):
    found = run("upgrade_info", version="v1.9.1", pools=[NEXT])
    assert (found["verdict"], [finding["code"] for finding in found["findings"]]) == ("ready", ["upgrade_site_after"])
    found = run("upgrade_info", version="v1.9.2", pools=[NEXT], check=True)
    assert (found["verdict"], found["findings"][0]["code"]) == ("blocked", "upgrade_image_skew")


def test_of_a_dump(run, tmp_path):
    for number, obj in enumerate(objects()):
        (tmp_path / f"{number:03}.json").write_text(json.dumps(obj))
    online, offline = (run("upgrade_info", version="v1.9.1", **where) for where in ({}, {"dump": str(tmp_path)}))
    assert {**offline, "invocation": None} == {**online, "invocation": None}


def test_bad_input(run, world):
    assert "virtpools_upgrade_to is 'next'; give the version" in run.failure("upgrade_info", version="next")
    assert "name" in run.failure("upgrade_info", version="v1.9.1", pools=[{"nodeSelector": {"hw": "gpu"}}])
    world.denied = {("list", "kubevirts")}
    assert "list kubevirts.kubevirt.io" in run.failure("upgrade_info", version="v1.9.1")
