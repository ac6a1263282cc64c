# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kubevirt import handler_fit
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.observed.nodes import Node
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders

TAINT = {"key": "special", "value": "yes", "effect": "NoSchedule"}
OWNED = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}


def template(*, terms=(), **fields):
    spec = {"containers": [{"name": "virt-handler"}], **fields}
    return {"spec": {**spec, "affinity": builders.affinity(*terms)} if terms else spec}


def node(**fields):
    return Node.from_object(builders.node(**fields))


def with_status(**status):
    obj = builders.node()
    obj["status"].update(status)
    return Node.from_object(obj)


def asking(**requests):
    return template(containers=[{"name": "virt-handler", "resources": {"requests": requests}}])


class TestUnfit:
    def test_is_none_where_selector_affinity_and_taints_fit(self):
        fitting = template(nodeSelector={"zone": "a"}, terms=[OWNED], tolerations=[{"key": "special"}])
        assert handler_fit.unfit(fitting, node(labels={"zone": "a"})) is None

    def test_names_the_selector_that_does_not_fit(self):
        assert handler_fit.unfit(template(nodeSelector={"zone": "a"}), node()) == "its DaemonSet selects zone=a"

    def test_ignores_the_owner_label_which_a_handover_changes(self):
        assert handler_fit.unfit(template(nodeSelector={"virtpools.io/pool": "gpu"}), node()) is None

    def test_needs_one_required_term_of_the_affinity(self):
        assert "no required node-affinity term" in handler_fit.unfit(template(terms=[OWNED]), node())

    def test_names_the_taint_that_is_not_tolerated(self):
        assert handler_fit.unfit(template(), node(taints=[TAINT])) == "taint special=yes:NoSchedule is not tolerated"

    @pytest.mark.parametrize("key", ["not-ready", "unreachable", "disk-pressure", "unschedulable"])
    def test_tolerates_what_every_pod_of_a_daemonset_tolerates(self, key):
        assert (
            handler_fit.unfit(template(), node(taints=[{"key": f"node.kubernetes.io/{key}", "effect": "NoSchedule"}]))
            is None
        )


class TestRefusal:
    def test_is_none_on_a_ready_node_that_fits(self):
        assert handler_fit.refusal(template(), node()) is None

    def test_of_a_node_that_is_not_ready(self):
        assert handler_fit.refusal(template(), node(ready=False)) == "the node is not Ready"

    def test_of_a_node_under_disk_pressure_names_the_condition(self):
        ready, pressure = ({"type": kind, "status": "True"} for kind in ("Ready", "DiskPressure"))
        assert "DiskPressure" in handler_fit.refusal(template(), with_status(conditions=[ready, pressure]))

    @pytest.mark.parametrize(("offered", "fits"), [("325Mi", True), ("324Mi", False)])
    def test_of_a_node_that_is_too_small_for_a_handler(self, offered, fits):
        refused = handler_fit.refusal(asking(memory="325Mi"), with_status(allocatable={"memory": offered}))
        assert (refused is None) == fits

    def test_takes_a_limit_for_a_request_that_is_missing(self):
        resources = {"requests": {"memory": "325Mi"}, "limits": {"cpu": "8", "memory": "1Ti"}}
        limited = template(containers=[{"name": "virt-handler", "resources": resources}])
        refused = handler_fit.refusal(limited, with_status(allocatable={"cpu": "4", "memory": "1Gi"}))
        assert refused == "a handler requests more cpu than the node can give to pods (4)"

    def test_knows_the_disk_that_a_node_can_give(self):
        asked = asking(**{"ephemeral-storage": "1Ti"})
        refused = handler_fit.refusal(asked, with_status(allocatable={"ephemeral-storage": "100Gi"}))
        assert "ephemeral-storage" in refused


def test_the_primarys_template_comes_without_our_exclusion():
    template = handler_fit.primary_template(builders.primary())
    assert handler_fit.unfit(template, node(owner="gpu")) is None
    assert handler_fit.unfit(builders.primary()["spec"]["template"], node(owner="gpu")) is not None
