# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which HyperConverged object manages a KubeVirt."""

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.observed.hyperconverged import hco_of

LABELS = {"app.kubernetes.io/managed-by": "hco-operator"}
OWNERS = [{"kind": "HyperConverged", "name": names.HCO_NAME, "controller": True}]


def kubevirt(**metadata):
    return {"kind": "KubeVirt", "metadata": {"name": "kubevirt-kubevirt-hyperconverged", "namespace": "kv", **metadata}}


def hyperconverged(**metadata):
    metadata = {"name": names.HCO_NAME, "namespace": "kv", **metadata}
    return {"apiVersion": "hco.kubevirt.io/v1", "kind": "HyperConverged", "metadata": metadata}


class TestWhoOwnsKubeVirt:
    @pytest.mark.parametrize("metadata", [{"labels": LABELS}, {"ownerReferences": OWNERS}])
    def test_hco_does_by_label_or_by_reference(self, metadata):
        owner = hyperconverged()
        assert hco_of(kubevirt(**metadata), [owner]) is owner

    @pytest.mark.parametrize(
        "metadata",
        [
            {},
            {"labels": {"app.kubernetes.io/managed-by": "Helm"}},
            {"ownerReferences": [{**OWNERS[0], "controller": False}]},
            {"ownerReferences": [{**OWNERS[0], "kind": "Deployment"}]},
        ],
    )
    def test_nobody_does_without_them(self, metadata):
        assert hco_of(kubevirt(**metadata), [hyperconverged()]) is None

    @pytest.mark.parametrize("metadata", [{"namespace": "elsewhere"}, {"name": "another"}])
    def test_another_hyperconverged_does_not(self, metadata):
        assert hco_of(kubevirt(labels=LABELS), [hyperconverged(**metadata)]) is None
