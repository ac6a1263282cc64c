# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.kinds import DAEMON_SET, KUBEVIRT, NODE, POD


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (NODE.path(), "/api/v1/nodes"),
        (NODE.path(name="n/1"), "/api/v1/nodes/n%2F1"),
        (POD.path(), "/api/v1/pods"),
        (DAEMON_SET.path("kubevirt"), "/apis/apps/v1/namespaces/kubevirt/daemonsets"),
        (KUBEVIRT.path("kubevirt", "kv"), "/apis/kubevirt.io/v1/namespaces/kubevirt/kubevirts/kv"),
    ],
)
def test_path(path, expected):
    assert path == expected


def test_a_place_that_cannot_be_is_our_mistake():
    with pytest.raises(ValueError, match="needs a namespace"):
        POD.path(name="p")
    with pytest.raises(ValueError, match="have no namespace"):
        NODE.path("kubevirt", "n")


def test_group():
    assert (NODE.group, DAEMON_SET.group) == ("", "apps")


def test_object():
    assert DAEMON_SET.object("a", "ns", spec={}) == {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "a", "namespace": "ns"},
        "spec": {},
    }
    assert NODE.object("n")["metadata"] == {"name": "n"}
