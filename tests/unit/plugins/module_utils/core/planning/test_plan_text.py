# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What people read of a plan."""

from __future__ import annotations

from dataclasses import replace

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.observed.snapshot import Admission
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning import plan, plan_text
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.options import Options
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders

GPU, FPGA = builders.pool("gpu"), builders.pool("fpga")


def hw(name, owner=None, former=None, kind="gpu", **fields):
    return builders.node(name, owner, former, {"hw": kind}, **fields)


def planned(nodes, pools=(GPU,), existing=(), snapshot=None, **options):
    found = snapshot or builders.snapshot_of([*nodes, builders.node("stays")], existing)
    return plan.make_plan(found, pools, Options(**options))


class TestPlan:
    def test_of_a_first_run_reads_from_top_to_bottom(self):
        found = plan.make_plan(
            builders.fresh_snapshot([hw("n1"), hw("n2"), builders.node("n3")]), [GPU], Options(max_unavailable=1)
        )
        text = plan_text.plan_lines(found)
        assert text == [
            "NOTE primary_restarts: " + builders.message(found.findings, "primary_restarts"),
            "OWNER    NODES NOW  AFTER THE RUN",
            "primary  3          1",
            "gpu      0          2",
            "First:",
            f"  ~ {found.exclusion}",
            "  + DaemonSet kubevirt/virt-handler-gpu",
            "Batches 1 to 2 of 2: 2 nodes",
            "  primary -> gpu: n1, n2",
            "Plan: every primary virt-handler restarts; 1 DaemonSet changes; 2 nodes in 2 batches (primary -> gpu: 2).",
            f"Plan digest: {found.digest}",
        ]

    def test_says_what_is_in_launcher_images(self):
        image = builders.GPU_LAUNCHER_IMAGE
        pools = [builders.pool("gpu", virtLauncherImage=image, selector={"deviceNames": ["nvidia.com/A100"]})]
        state = builders.snapshot_of([hw("n1", "gpu"), hw("n2"), builders.node("stays")], pools)
        text = plan_text.plan_lines(planned([], pools, snapshot=builders.looked_into(state, image, qemu="10.1.0")))
        assert f"Pool gpu has launcher image {image} (QEMU 10.1.0)." in text
        unchecked = builders.looked_into(state, image, unchecked="it has no /bin/sh")
        text = plan_text.plan_lines(planned([], pools, snapshot=unchecked))
        assert f"Pool gpu: whether {image} (it has no /bin/sh) has all that KubeVirt needs" in "".join(text)

    def test_shows_what_will_change_launcher_pods_and_why(self):
        served = Admission(policy_kind=kinds.MUTATING_ADMISSION_POLICIES[0])
        pools = [builders.pool("gpu", selector={"deviceNames": ["nvidia.com/A100"]})]
        nodes = [hw("n1", "gpu"), builders.node("stays")]
        first = plan.make_plan(builders.snapshot_of(nodes, pools, admission=served), pools, Options())
        text = plan_text.plan_lines(first)
        assert text[text.index("First:") - 1] == (
            "Launcher back end admission_policy: The API server has MutatingAdmissionPolicy "
            "(admissionregistration.k8s.io/v1), which needs nothing else."
        )
        live = {(obj["kind"], obj["metadata"]["name"]): obj for _kind, obj in first.launcher_rollout.policy(0)}
        after = builders.snapshot_of(nodes, pools, admission=replace(served, objects=live))
        for others in (pools, [builders.pool("gpu", selector={"deviceNames": ["nvidia.com/L4"]})]):
            again = plan.make_plan(after, others, Options())
            assert bool(again.launcher_rollout.steps) == (others is not pools)
            assert "Launcher back end" not in "".join(plan_text.plan_lines(again))

    def test_without_a_change_says_so(self):
        text = plan_text.plan_lines(planned([hw("n1", "gpu")], existing=[GPU]))
        assert "No change: everything matches the pools." in text

    def test_without_a_change_does_not_say_that_pools_are_gone(self):
        nodes = [hw("n1", "gpu"), hw("n2", "gpu", ready=False)]
        restored = plan_text.plan_lines(planned(nodes, existing=[GPU], restore_nodes=("n1",)))
        assert "No change: the nodes are as they were before the wave." in restored
        removed = plan_text.plan_lines(planned([hw("n2", "gpu", ready=False)], existing=[GPU], remove_pools=("gpu",)))
        assert "No change: 1 node cannot get another owner now: n2." in removed

    def test_without_a_change_names_nodes_that_wait(self):
        text = plan_text.plan_lines(planned([hw("n1", "gpu"), hw("n2", ready=False)], existing=[GPU]))
        assert "No change: 1 node cannot get another owner now: n2." in text
        assert text[-1].startswith("Plan digest: ")

    def test_with_errors_shows_them_first_and_no_step(self):
        text = plan_text.plan_lines(plan.make_plan(builders.snapshot_of([hw("n1")]), [GPU], Options()))
        assert text[0].startswith("ERROR primary_without_nodes: ")
        assert "A run is refused until its errors are fixed." in text
        assert not [line for line in text if line.startswith(("First", "Batch"))]

    def test_shows_what_an_update_changes_but_not_endlessly(self):
        many = builders.pool(
            "gpu",
            virtHandlerImage=f"{builders.GPU_IMAGE}2",
            resources={"limits": {"cpu": "1", "memory": "1Gi"}},
            tolerations=[{"key": f"k{index}", "operator": "Exists"} for index in range(12)],
        )
        other = builders.pool("other", nodeSelector={"hw": "other"})
        text = plan_text.plan_lines(planned([], [many, other], [GPU]))
        shown = [line for line in text if line.startswith("    virt-handler-gpu: ")]
        assert len(shown) == 11
        first = text.index("  ~ DaemonSet kubevirt/virt-handler-gpu") + 1
        assert text[first : first + 12] == [*shown, "  + DaemonSet kubevirt/virt-handler-other"]
        assert shown[-1].endswith("more differences")

    def test_deletes_at_the_end(self):
        text = plan_text.plan_lines(planned([hw("n1", "fpga", kind="x")], existing=[GPU, FPGA], prune=True))
        end = text.index("At the end:")
        assert text[end + 1] == "  - DaemonSet kubevirt/virt-handler-fpga"
        assert text.index("  fpga -> primary: n1") < end

    def test_shows_where_long_texts_differ_and_no_note_of_our_own(self):
        long = [f"k{index}" for index in range(60)]
        before = builders.pool("gpu", nodeSelector=dict.fromkeys(long, "x"))
        after = builders.pool("gpu", nodeSelector={**dict.fromkeys(long, "x"), "k59": "y"})
        text = "\n".join(plan_text.plan_lines(planned([], [after], [before])))
        assert names.POOL_ANNOTATION not in text
        assert names.TEMPLATE_ANNOTATION not in text

    def test_is_as_long_for_sixty_nodes_as_for_six(self):
        def lines(count):
            nodes = [hw(f"n{index}") for index in range(count)]
            return plan_text.plan_lines(planned(nodes, existing=[GPU], max_unavailable=3))

        few, many = lines(6), lines(60)
        assert len(few) == len(many)
        at = many.index("Batches 1 to 20 of 20: 60 nodes")
        assert many[at + 1] == "  primary -> gpu: n0, n1, n10, n11, n12 and 55 more"

    def test_keeps_batches_that_differ_apart(self):
        nodes = [hw("n1"), hw("n2"), hw("n3", kind="fpga")]
        text = plan_text.plan_lines(planned(nodes, [GPU, FPGA], [GPU, FPGA], max_unavailable=1))
        assert [line for line in text if line.startswith("Batch")] == [
            "Batch 1 of 2: 2 nodes",
            "Batch 2 of 2: 1 node",
        ]

    def test_says_that_it_waits_for_kubevirt(self):
        rolling = builders.primary(desired=3, ready=1)
        text = plan_text.plan_lines(
            planned([], snapshot=builders.snapshot_of([builders.node()], [GPU], of_primary=rolling))
        )
        assert "KubeVirt is still rolling out the exclusion: the run waits for it first." in text


class TestOwners:
    def test_count_nodes_now_and_after(self):
        nodes = [
            hw("n1"),
            hw("n2", names.IN_TRANSIT, "primary"),
            hw("n3", "gpu"),
            hw("n4", ready=False),
            builders.node("n5", "ghost"),
            builders.node("n6", "fpga"),
        ]
        found = planned(nodes, existing=[GPU, FPGA])
        assert found.owners() == {
            "primary": {"now": 3, "after": 3},
            "gpu": {"now": 1, "after": 3},
            "fpga": {"now": 1, "after": 1},
            "ghost": {"now": 1, "after": 0},
            names.IN_TRANSIT: {"now": 1, "after": 0},
        }

    def test_do_not_have_nodes_without_handlers_now_or_after(self):
        taints = [{"key": "gpu", "effect": "NoSchedule"}]
        pods = [builders.handler_pod("n2", "virt-handler-gpu"), builders.handler_pod("n3")]
        nodes = [builders.node(taints=taints), builders.node("n2", "gpu", taints=taints), builders.node("n3")]
        tolerant = replace(GPU, tolerations=({"key": "gpu", "operator": "Exists"},))
        found = planned([], (), snapshot=builders.snapshot_of(nodes, [tolerant], pods=pods), prune=True)
        assert [(move.node, move.target) for move in found.moves] == [("n2", "primary")]
        assert found.owners() == {"primary": {"now": 1, "after": 1}, "gpu": {"now": 1, "after": 0}}

    def test_come_in_the_order_of_the_pools(self):
        assert list(planned([], [GPU, FPGA], [GPU, FPGA]).owners()) == ["primary", "gpu", "fpga"]

    def test_that_finish_or_replace_keep_their_nodes(self):
        found = planned([hw("n1", "gpu", "primary")], existing=[GPU])
        assert [move.action for move in found.moves] == ["finish"]
        assert found.owners()["gpu"] == {"now": 1, "after": 1}
