# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.findings import InputErrors
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.observed.operator_api import OperatorApi
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.observed.snapshot import Admission
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.operator_mode import detection
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.history import History, OperatorRecord
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders, fake_operator_mode

ENTRY = {"name": "gpu", "nodeSelector": {"hw": "gpu"}, "virtHandlerImage": "registry.example/h:v1"}


def stock(**fields):
    return builders.fresh_snapshot([builders.node()], **fields)


def collection(**fields):
    return builders.snapshot_of([builders.node()], [builders.pool()], **fields)


def operator(field="virtHandlerPools", of=builders.build_snapshot, **fields):
    """A cluster with a list in the KubeVirt object."""
    return of(
        fake_operator_mode.kubevirt(entries=[ENTRY], field=field), daemonsets=[fake_operator_mode.primary()], **fields
    )


def failure(asked, snapshot):
    with pytest.raises(InputErrors) as caught:
        detection.choose_build(asked, snapshot)
    return str(caught.value)


def test_collection_on_stock_kubevirt_and_where_pools_are_ours():
    assert detection.choose_build("auto", stock()) is None
    assert detection.choose_build("auto", collection()) is None
    assert detection.choose_build("collection", operator()) is None


@pytest.mark.parametrize("field", ["additionalVirtHandlers", "virtHandlerPools", "workerPools"])
def test_auto_takes_the_list_that_is_in_use(field):
    assert detection.choose_build("auto", operator(field)).name == field


class TestObjects:
    objects = (fake_operator_mode.worker_pool("gpu"),)

    def test_count_where_their_gate_is_on(self):
        found = builders.build_snapshot(
            fake_operator_mode.kubevirt(gates=["WorkerPools"]), operator_api=OperatorApi((), True, self.objects)
        )
        assert detection.choose_build("auto", found).name == "WorkerPool"

    def test_alone_may_be_a_list_to_read_pools_from(self):
        assert detection.choose_build("auto", stock(operator_api=OperatorApi((), True, self.objects))) is None


@pytest.mark.parametrize(
    ("api", "name"),
    [
        (OperatorApi(("virtHandlerPools",), False, ()), "virtHandlerPools"),
        (OperatorApi((), True, ()), "WorkerPool"),
        (OperatorApi(("additionalVirtHandlers",), True, ()), "additionalVirtHandlers"),
    ],
)
def test_operator_takes_what_the_crds_have(api, name):
    assert detection.choose_build("operator", stock(operator_api=api)).name == name


def test_operator_is_refused_where_no_crd_has_pools():
    text = failure("operator", stock())
    assert (
        "its CRD kubevirts.kubevirt.io would have to have one of spec.additionalVirtHandlers, spec.virtHandlerPools"
        in text
    )
    assert "or the cluster the CRD workerpools.worker.kubevirt.io; use virtpools_mode: collection" in text


def test_both_in_use_are_refused():
    def both(of_kubevirt, **fields):
        return collection(of_kubevirt=of_kubevirt)

    for asked in ("auto", "operator"):
        assert "also has collection pools (gpu); remove one of the two" in failure(asked, operator(of=both))


def test_operator_is_refused_where_pools_are_ours():
    cluster = collection(operator_api=OperatorApi(("virtHandlerPools",)))
    assert "has collection pools (gpu)" in failure("operator", cluster)
    assert detection.choose_build("operator", cluster, moving=True).name == "virtHandlerPools"


def test_a_removal_that_was_interrupted_goes_on_natively():
    record = History(operator_record=OperatorRecord("virtHandlerPools", 2)).to_config_map(builders.NAMESPACE)
    admission = Admission(objects={("ConfigMap", names.HISTORY): record})
    assert detection.choose_build("auto", stock(admission=admission)).name == "virtHandlerPools"
