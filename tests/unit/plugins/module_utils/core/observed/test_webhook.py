# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether API servers can call kubevirt-aie-webhook, on a cluster and in a dump."""

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.reading import webhook_config
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.observed.snapshot import Admission
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders
from ansible_collections.virtpools.kubevirt.tests.unit.support.aie_webhook import AieWebhook
from ansible_collections.virtpools.kubevirt.tests.unit.support.fake_cluster import World


@pytest.fixture
def webhook():
    return AieWebhook(World(), builders.NAMESPACE)


def found(webhook, *without):
    """The webhook in a dump of everything that HCO installs for it, without these kinds."""
    dump = [obj for obj in webhook.objects if obj["kind"] not in {str(kind) for kind in without}]
    return Admission.from_dump(dump, builders.NAMESPACE, webhook_config.read).webhook


def test_that_works_has_no_problem(webhook):
    here = found(webhook)
    assert (here.registered, here.problem, here.config.rules, here.former) == (True, None, (), None)


@pytest.mark.parametrize(
    ("fault", "problem"),
    [("take_ca_bundle", "has no caBundle"), ("stop", "Deployment kubevirt/kubevirt-aie-webhook has no ready pod")],
)
def test_that_cannot_be_called_has_one(webhook, fault, problem):
    getattr(webhook, fault)()
    assert problem in found(webhook).problem


def test_that_nobody_calls_is_not_registered(webhook):
    webhook.unregister()
    other = kinds.MUTATING_WEBHOOK_CONFIGURATION.object("other", webhooks=[{"name": "a.example"}])
    dump = [*webhook.objects, other]
    assert Admission.from_dump(dump, builders.NAMESPACE, webhook_config.read).webhook.registered is False


@pytest.mark.parametrize("missing", [kinds.MUTATING_WEBHOOK_CONFIGURATION, kinds.DEPLOYMENT])
def test_a_dump_without_it_says_nothing_of_it(webhook, missing):
    here = found(webhook, missing)
    assert (here.registered, here.problem) == (None, None)


def test_without_its_config_map_there_is_none(webhook):
    assert found(webhook, kinds.CONFIG_MAP) is None
