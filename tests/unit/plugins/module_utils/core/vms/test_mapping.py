# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import random
import string

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.findings import InputErrors
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.selectors import Requirement
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools.model import Pool
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms import mapping
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms.mapping import Table, Upcoming
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders

SELECTING = {"selector": {"deviceNames": ["example.com/gpu"]}}
GPU = builders.pool("gpu", virtLauncherImage=builders.GPU_LAUNCHER_IMAGE, **SELECTING)
RT = builders.pool("rt", selector={"vmLabels": {"matchExpressions": [{"key": "class", "operator": "Exists"}]}})
HANDLER_ONLY = builders.pool("arm")
OPEN = builders.pool("open", unmatched="allow", **SELECTING)


class TestRules:
    def test_keep_the_order_and_only_pools_that_select_vms(self):
        table = Table.for_pools([RT, HANDLER_ONLY, GPU])
        assert [rule.name for rule in table.rules] == ["rt", "gpu"]
        assert table.images == {"rt": None, "gpu": builders.GPU_LAUNCHER_IMAGE}

    def test_are_those_of_active_pools_with_the_images_in_effect(self):
        assert Table.for_pools([RT, GPU], {"gpu": "registry.example/old"}).images == {"gpu": "registry.example/old"}

    def test_do_not_change_with_what_launcher_pods_do_not_show(self):
        other = builders.pool(
            "gpu",
            virtLauncherImage=builders.GPU_LAUNCHER_IMAGE,
            activation="all_moved",
            resources={"requests": {"cpu": "1"}},
            imagePullSecrets=[{"name": "pull"}],
            nodeExpressions=[{"key": "zone", "operator": "Exists"}],
            **SELECTING,
        )
        assert Table.for_pools([other]) == Table.for_pools([GPU])

    def test_hold_only_the_fields_that_launcher_pods_depend_on(self):
        """The table stands in an annotation that many may read: a new field of Pool must not get there by itself."""
        pool = builders.pool(
            "gpu",
            virtHandlerImage=builders.GPU_LAUNCHER_IMAGE,
            virtLauncherImage=builders.GPU_LAUNCHER_IMAGE,
            nodeExpressions=[{"key": "zone", "operator": "Exists"}],
            unmatched="allow",
            activation="all_moved",
            tolerations=[{"key": "gpu", "operator": "Exists"}],
            imagePullSecrets=[{"name": "pull"}],
            virtLauncherPullSecrets=[{"name": "pull"}],
            resources={"requests": {"cpu": "1"}},
            allowSkew=True,
            hypervisor="hyperv-direct",
            **SELECTING,
        )
        plain = Pool("gpu", pool.node_selector)
        fields = [field.name for field in dataclasses.fields(Pool) if field.name not in ("name", "node_selector")]
        for field in fields:
            assert getattr(pool, field) != getattr(plain, field), (
                f"give the pool above another {field} than the default"
            )
        (rule,) = Table.for_pools([pool]).rules
        held = {field for field in fields if getattr(rule, field) != getattr(plain, field)}
        of_pods = {"virt_launcher_image", "hypervisor", "tolerations", "virt_launcher_pull_secrets"}
        assert held == {*of_pods, "selector", "unmatched"}


class TestUnmatched:
    def test_keeps_off_every_owned_node_when_all_pools_say_so(self):
        assert Table.for_pools([GPU, RT]).requirement(None) == Requirement(names.OWNER_LABEL, "DoesNotExist")

    def test_keeps_off_pools_and_transit_although_another_allows_all(self):
        wanted = Requirement(names.OWNER_LABEL, "NotIn", ("gpu", names.IN_TRANSIT))
        assert Table.for_pools([GPU, OPEN]).requirement(None) == wanted

    def test_keeps_off_pools_that_are_not_active_too(self):
        assert Table.for_pools([GPU, OPEN], {}) == Table((), ("gpu",), ("open",))

    def test_a_winner_asks_for_its_own_nodes(self):
        table = Table.for_pools([GPU, OPEN])
        assert table.requirement(table.rules[1]) == Requirement(names.OWNER_LABEL, "In", ("open",))


@pytest.mark.parametrize(
    ("pools", "needed"), [([], False), ([HANDLER_ONLY], False), ([OPEN], True), ([HANDLER_ONLY, GPU], True)]
)
def test_nothing_is_needed_where_no_pool_selects_or_keeps_off(pools, needed):
    assert Table.for_pools(pools).needed is needed


class TestText:
    @pytest.mark.parametrize("pools", [[], [GPU], [GPU, RT, HANDLER_ONLY, OPEN]])
    def test_is_read_back(self, pools):
        assert mapping.restore(Table.for_pools(pools).to_text()) == Table.for_pools(pools)

    def test_is_packed_when_it_is_long(self):
        devices = [f"example.com/device-{number}" for number in range(5000)]
        table = Table.for_pools([builders.pool("gpu", selector={"deviceNames": devices})])
        assert len(table.to_text()) < 60_000
        assert mapping.restore(table.to_text()) == table

    def test_is_left_out_when_an_annotation_cannot_hold_it(self):
        noise = random.Random(1)
        devices = ["example.com/" + "".join(noise.choices(string.ascii_letters, k=60)) for _ in range(6000)]
        assert Table.for_pools([builders.pool("gpu", selector={"deviceNames": devices})]).to_text() == ""

    @pytest.mark.parametrize(
        "text", ["", "[]", "{}", '{"rules": [1], "keepOff": [], "allow": []}', "zlib:?", "zlib:AAAA"]
    )
    def test_that_is_no_table_is_refused(self, text):
        with pytest.raises(InputErrors, match=r"virtpools.io/mapping holds no mapping table|The stored pool"):
            mapping.restore(text)


class TestCanaries:
    TABLE = Table.for_pools([GPU, RT, HANDLER_ONLY], canaries={"gpu": "registry.example/new", "rt": None, "arm": "x"})

    def test_are_those_of_pools_that_take_vms(self):
        assert self.TABLE.canaries == {"gpu": "registry.example/new", "rt": None}
        assert self.TABLE.launcher_images == {"registry.example/new", builders.GPU_LAUNCHER_IMAGE}

    def test_are_read_back(self):
        assert mapping.restore(self.TABLE.to_text()) == self.TABLE

    def test_are_absent_in_the_text_of_a_table_without_any(self):
        assert "canaries" not in Table.for_pools([GPU]).to_text()

    def test_that_are_no_mapping_are_refused(self):
        with pytest.raises(InputErrors, match=r"holds no mapping table"):
            mapping.restore('{"rules": [], "keepOff": [], "allow": [], "canaries": [1]}')


class TestUpgrade:
    STOCK, LATER = "registry.example/virt-launcher:v1.8.2", "registry.example/virt-launcher:v1.9.0"
    UPCOMING = Upcoming(STOCK, "v1.9.0", {"gpu": "registry.example/gpu:v1.9.0", "gone": "registry.example/gone:v1.9.0"})

    def table(self, **fields):
        return Table.for_pools([RT, GPU], upcoming=self.UPCOMING, **fields)

    def test_pods_of_the_present_version_get_what_they_got(self):
        for stock in (self.STOCK, "mirror.example/a/virt-launcher:v1.8.2", None):
            assert self.table().as_of(stock) == Table.for_pools([RT, GPU])

    @pytest.mark.parametrize(
        "stock", [LATER, "mirror.example/virt-launcher@sha256:0123", "registry.example/xvirt-launcher:v1.8.2", ""]
    )
    def test_all_others_get_the_images_of_the_next(self, stock):
        table = self.table(canaries={"gpu": "registry.example/canary"}).as_of(stock)
        assert table.images == {"rt": None, "gpu": "registry.example/gpu:v1.9.0"}
        assert (dict(table.canaries), table.upcoming) == ({}, None)

    def test_a_table_without_one_is_the_same_for_all(self):
        table = Table.for_pools([GPU])
        assert table.as_of(self.LATER) is table

    def test_holds_only_pools_that_the_table_has(self):
        assert dict(self.table().upcoming.images) == {"gpu": "registry.example/gpu:v1.9.0"}
        assert Table.for_pools([RT], upcoming=self.UPCOMING).upcoming is None
        assert self.table().without_pools(["gpu"]).upcoming is None
        assert Table.for_pools([GPU]).prepared(self.UPCOMING) == Table.for_pools([GPU], upcoming=self.UPCOMING)

    def test_its_images_are_launcher_images(self):
        assert "registry.example/gpu:v1.9.0" in self.table().launcher_images

    def test_survives_the_annotation(self):
        assert mapping.restore(self.table().to_text()) == self.table()

    @pytest.mark.parametrize(
        ("stock", "later"),
        [
            (STOCK, LATER),
            ("registry.example:5000/virt-launcher", "registry.example:5000/virt-launcher:v1.9.0"),
            ("registry.example/virt-launcher:nightly", LATER),
            ("registry.example/virt-launcher@sha256:0123", LATER),
            ("registry.example/virt-launcher:v1.8.2@sha256:0123", LATER),
        ],
    )
    def test_kubevirts_own_image_of_the_next_version(self, stock, later):
        assert Upcoming(stock, "v1.9.0", {}).next_stock == later

    @pytest.mark.parametrize("stock", ["r/virt-launcher:v1.9.0-1", "r/virt-launcher:v1.8.2-7"])
    def test_kubevirts_own_image_of_a_build(self, stock):
        assert Upcoming(stock, "v1.9.0-2", {}).next_stock == "r/virt-launcher:v1.9.0-2"
