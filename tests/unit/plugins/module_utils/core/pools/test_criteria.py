# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What holds for every criterion. A new criterion needs an entry in SELECTORS."""

from __future__ import annotations

import dataclasses
import re

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.admission import launcher_policy, probes
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools.criteria import (
    CRITERIA,
    SELECTOR_READERS,
    PodAttributes,
    VmSelector,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms import matching, prediction
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms.mapping import Table
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms.rendering import Defaults
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders
from ansible_collections.virtpools.kubevirt.tests.unit.support.admission import SITE

SELECTORS = {
    "selector.deviceNames": {"deviceNames": ["example.com/a", "example.com/b"]},
    "selector.vmLabels": {"vmLabels": {"matchExpressions": [{"key": "class", "operator": "Exists"}]}},
    "selector.matchNodeSelector": {"matchNodeSelector": True},
    "selector.architectures": {"architectures": ["arm64", "s390x"]},
}
EVERY = pytest.mark.parametrize("path", [criterion.path for criterion in CRITERIA])


def only(path):
    pool = builders.pool(selector=SELECTORS[path])
    (criterion,) = pool.criteria
    assert criterion.path == path
    return pool, criterion


def test_every_field_of_the_selector_is_read():
    assert list(SELECTOR_READERS) == [field.name for field in dataclasses.fields(VmSelector)]


@EVERY
def test_every_criterion_can_be_told_from_a_launcher_pod(path):
    """Its probes show it, and a launcher pod that shows nothing does not meet it."""
    pool, criterion = only(path)
    found = {probe.name: probe.pod for probe in probes.probes(Table.for_pools([pool]), SITE)}
    assert criterion.met(pool.selection, PodAttributes.from_pod(found[f"for {path} of pool gpu"], {}))
    assert not criterion.met(pool.selection, PodAttributes.from_pod(found["for no pool"], {}))


@EVERY
def test_every_example_meets_its_criterion_as_predicted(path):
    pool, criterion = only(path)
    examples = list(criterion.examples(pool.selection))
    assert examples
    for example in examples:
        device = {"hostDevices": [{"name": "d", "deviceName": example.device}]} if example.device else {}
        template = {
            "metadata": {"labels": dict(example.labels)},
            "spec": {**example.spec, "nodeSelector": dict(example.node_selector), "domain": {"devices": device}},
        }
        attributes = prediction.predict(template, "team").attributes
        assert matching.matches(pool, attributes)
        assert [result.met for result in matching.criteria(pool, attributes)] == [True]


@pytest.mark.parametrize(("architecture", "taken"), [("arm64", True), ("amd64", False)])
def test_an_architecture_may_be_emulated(architecture, taken):
    pool, criterion = only("selector.architectures")
    defaults = Defaults(gates=frozenset({"CrossArchitectureVirtualization"}))
    attributes = prediction.predict({"spec": {"architecture": architecture}}, "team", defaults=defaults).attributes
    assert (matching.winner(Table.for_pools([pool]), attributes) is not None) is taken
    assert criterion.present(pool.selection, attributes) == architecture


@EVERY
def test_every_criterion_says_what_it_wants_and_what_is_there(path):
    pool, criterion = only(path)
    assert criterion.wanted(pool.selection)
    assert criterion.present(pool.selection, PodAttributes("team"))


@EVERY
def test_the_policy_has_every_variable_that_a_criterion_reads(path):
    pool, criterion = only(path)
    condition = criterion.condition(pool.selection)
    spec = launcher_policy.spec(Table.for_pools([pool]), "kubevirt")
    assert set(re.findall(r"variables\.(\w+)", condition)) <= {v["name"] for v in spec["variables"]}
    assert any(condition in variable["expression"] for variable in spec["variables"])
