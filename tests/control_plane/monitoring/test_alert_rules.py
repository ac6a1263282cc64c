# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""The alerts on pools: Prometheus' own promtool evaluates them on clusters that are well, ill, or in the middle of a run.

Metrics have the names and labels of kube-state-metrics, API servers and verify. No cluster is started.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.monitoring import alert_rules
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.monitoring.alert_rules import Scope
from metrics import (
    ALWAYS,
    DESIRED,
    ILL,
    MISSCHEDULED,
    MUTATING,
    NEVER,
    NODE_LABELS,
    NODE_READY,
    NODES,
    POD,
    POD_CREATED,
    POD_READY,
    READY,
    SCOPE,
    UPDATED,
    VALIDATING,
    checked,
    daemonset,
    handler,
    handler_ready,
    launcher,
    node_ready,
    owner_label,
    well,
)
from promtool import MINUTES, Evaluation, Promtool, Series, Values, counter, metric, over_time, series

pytestmark = pytest.mark.thorough  # compiling promtool takes minutes, and the rules change rarely

PAGE = Path(__file__).parents[3] / "docs/alerts.md"
FIRING = 'max by (alertname, pool, node, policy, code, verdict) (ALERTS{alertstate="firing"})'


@dataclass(frozen=True)
class Case:
    """What differs from a cluster that is well, and the alerts that fire after minutes, by alert and its main label."""

    changes: Mapping[str, Values]
    firing: Mapping[int, tuple[str, ...]]


def ill(minutes: float | None, well: float | None = 1) -> Values:
    """Return values that are well until something goes wrong."""
    return over_time((well, ILL), then=minutes)


def gone(node: str, owner: str) -> Series:
    return {handler(node, owner): ill(None), handler_ready(node, owner): ill(None)}


def without_policy(minute: int) -> Series:
    """Return what shows that from this minute on, VMs start and nobody counts them."""
    pods = [launcher(number, minute + 5 * number) for number in range(10, 40)]
    return {checked(): over_time((7, 30), then=8), **{name: value for pod in pods for name, value in pod.items()}}


def state(name: str) -> str:
    return series("virtpools_policy_state", backend="admission_policy", state=name)


CASES = {
    "a DaemonSet is deleted": Case(
        {daemonset(status, "rt"): ill(None) for status in (DESIRED, UPDATED, READY)}
        | {daemonset(MISSCHEDULED, "rt"): ill(None, 0)}
        | gone("rt-0", "rt"),
        {ILL + 14: (), ILL + 16: ("VirtPoolsDaemonSetMissing rt", "VirtPoolsNodeLostHandler rt-0")},
    ),
    "a DaemonSet may make no pod on a new node": Case(
        {daemonset(DESIRED, "gpu"): ill(3, 2), node_ready("gpu-2"): ill(1, None)},
        {ILL + 14: (), ILL + 16: ("VirtPoolsHandlersMissing gpu",)},
    ),
    "no handler of a pool can be scheduled, and its nodes are Ready": Case(
        {
            handler("rt-0", "rt"): ill(None),
            handler("rt-0", "rt", waits=True): ill(1, None),
            handler_ready("rt-0", "rt"): ill(0),
            daemonset(READY, "rt"): ill(0),
        },
        {ILL + 14: (), ILL + 16: ("VirtPoolsHandlersMissing rt", "VirtPoolsNodeLostHandler rt-0")},
    ),
    "a handler waits for its new node, and another node dies with its handler": Case(
        {
            handler("gpu-2", "gpu", waits=True): ill(1, None),
            handler_ready("gpu-2", "gpu"): ill(0, None),
            node_ready("gpu-2"): ill(1, None),
            handler_ready("gpu-1", "gpu"): ill(0),
            node_ready("gpu-1"): ill(0),
            daemonset(MISSCHEDULED, "gpu"): ill(1, 0),
            daemonset(READY, "gpu"): ill(1, 2),
        },
        {ILL + 14: (), ILL + 16: ("VirtPoolsHandlersMissing gpu",)},
    ),
    "a handler is not Ready": Case(
        {handler_ready("gpu-1", "gpu"): ill(0), daemonset(READY, "gpu"): ill(1, 2)},
        {ILL + 14: (), ILL + 16: ("VirtPoolsHandlerNotReady gpu gpu-1",)},
    ),
    "no handler of a pool is Ready": Case(
        {handler_ready("rt-0", "rt"): ill(0), daemonset(READY, "rt"): ill(0)},
        {
            ILL + 9: (),
            ILL + 11: ("VirtPoolsNoReadyHandler rt",),
            ILL + 16: ("VirtPoolsHandlerNotReady rt rt-0", "VirtPoolsNoReadyHandler rt"),
        },
    ),
    "a node dies with its handler": Case(
        {
            handler_ready("rt-0", "rt"): ill(0),
            node_ready("rt-0"): ill(0),
            **{daemonset(status, "rt"): ill(0) for status in (DESIRED, UPDATED, READY)},
            daemonset(MISSCHEDULED, "rt"): ill(1, 0),
        },
        {ILL + 16: (), 400: ()},
    ),
    "the primary is ill, which KubeVirt watches itself": Case(
        {
            handler_ready("plain-0", "primary"): ill(0),
            **{daemonset(status, "primary"): ill(0) for status in (UPDATED, READY)},
            daemonset(MISSCHEDULED, "primary"): ill(1, 0),
        },
        {400: (), MINUTES - 1: ()},
    ),
    "the primary starts a second handler": Case(
        {handler("gpu-0", "primary"): ill(1, None)},
        {ILL + 4: (), ILL + 6: ("VirtPoolsTwoHandlers gpu-0",)},
    ),
    "handlers stay behind their template": Case(
        {daemonset(UPDATED, "gpu"): ill(1, 2)},
        {ILL + 24 * 60 - 1: (), ILL + 24 * 60 + 1: ("VirtPoolsHandlersOutdated gpu",)},
    ),
    "a handover is not finished": Case(
        {
            **gone("gpu-0", "gpu"),
            **{daemonset(status, "gpu"): ill(1, 2) for status in (DESIRED, UPDATED, READY)},
            owner_label("gpu-0", "gpu"): ill(None),
            owner_label("gpu-0", "in_transit"): ill(1, None),
        },
        {ILL + 14: (), ILL + 16: ("VirtPoolsNodeInTransit gpu-0",), 800: ("VirtPoolsNodeInTransit gpu-0",)},
    ),
    "a handover is not finished, and owner labels are not known": Case(
        {
            **gone("gpu-0", "gpu"),
            **{daemonset(status, "gpu"): ill(1, 2) for status in (DESIRED, UPDATED, READY)},
            **{owner_label(node, owner): NEVER for node, owner in NODES.items()},
        },
        {ILL + 14: (), ILL + 16: ("VirtPoolsNodeLostHandler gpu-0",), ILL + 6 * 60 + 2: ()},
    ),
    "VMs start and no policy is counted": Case(
        without_policy(30), {40: (), 49: (), 100: ("VirtPoolsLauncherPolicyAbsent",)}
    ),
    "a verification finds no launcher policy": Case(
        {state("live"): ill(0), state("missing"): ill(1, 0)},
        {ILL + 4: (), ILL + 6: ("VirtPoolsLauncherPolicyAbsent",)},
    ),
    "the launcher policy cannot be evaluated": Case(
        {checked(error="out_of_budget"): counter(ILL, end=ILL + 20)},
        {ILL + 5: (), ILL + 7: ("VirtPoolsPolicyFails virtpools-launcher",), ILL + 80: ()},
    ),
    "each API server counts one failure, its first": Case(
        {
            checked(instance=f"api-{server}", error="invalid_error"): over_time((None, 40), then=1)
            for server in range(3)
        },
        {44: (), 46: ("VirtPoolsPolicyFails virtpools-launcher",), 65: ()},
    ),
    "an old failure is seen by a Prometheus that has just started": Case(
        {checked(error="invalid_error"): over_time(then=1)}, {6: (), 19: (), 26: ()}
    ),
    "the guard cannot be evaluated": Case(
        {
            series(VALIDATING, policy="virtpools-guard-owner", error_type="invalid_error"): counter(ILL),
            checked(policy="theirs", error="invalid_error"): counter(),
        },
        {ILL + 5: (), ILL + 7: ("VirtPoolsPolicyFails virtpools-guard-owner",)},
    ),
    "VMs of a pool cannot start": Case(
        {
            **{
                series("virtpools_failed_launchers", pool=pool): ill(count, 0)
                for pool, count in (("gpu", 7), ("rt", 0))
            },
            **{series("virtpools_pool_starts_fail", pool=pool): ill(gpu, 0) for pool, gpu in (("gpu", 1), ("rt", 0))},
        },
        {ILL + 4: (), ILL + 6: ("VirtPoolsVMStartsFail gpu",)},
    ),
    "VMs are wrong": Case(
        {
            series("virtpools_vms", pool="gpu", verdict="wrong_image"): ill(2, 0),
            series("virtpools_vms", pool="gpu", verdict="outdated"): ill(3, 0),
        },
        {ILL + 14: (), ILL + 16: ("VirtPoolsVMsWrong gpu wrong_image",)},
    ),
    "nodes have another owner than the pools say": Case(
        {
            series("virtpools_findings", severity="error", code="wrong_owner"): ill(1, None),
            series("virtpools_findings", severity="warning", code="outdated"): ill(1, None),
        },
        {ILL + 6 * 60 - 1: (), ILL + 6 * 60 + 1: ("VirtPoolsDrift wrong_owner",)},
    ),
    "nobody verifies any more": Case(
        {"virtpools_verification_timestamp_seconds": over_time((None, ILL), then=-2 * 24 * 3600)},
        {ILL + 59: (), ILL + 61: ("VirtPoolsVerificationOld",)},
    ),
}

NEEDS: dict[str, tuple[str, ...]] = {
    "VirtPoolsDaemonSetMissing": (DESIRED,),
    "VirtPoolsHandlersMissing": (DESIRED, MISSCHEDULED, POD),
    "VirtPoolsHandlersOutdated": (DESIRED, UPDATED),
    "VirtPoolsNoReadyHandler": (POD, POD_READY, NODE_READY),
    "VirtPoolsHandlerNotReady": (POD, POD_READY, NODE_READY),
    "VirtPoolsTwoHandlers": (POD,),
    "VirtPoolsNodeInTransit": (NODE_LABELS,),
    "VirtPoolsNodeLostHandler": (POD, NODE_READY),
    "VirtPoolsLauncherPolicyAbsent": (POD, POD_CREATED, MUTATING),
    "VirtPoolsPolicyFails": (MUTATING,),
    "VirtPoolsVMStartsFail": ("virtpools_failed_launchers", "virtpools_pool_starts_fail"),
    "VirtPoolsVMsWrong": ("virtpools_vms",),
    "VirtPoolsDrift": ("virtpools_findings",),
    "VirtPoolsVerificationOld": ("virtpools_verification_timestamp_seconds",),
}
"""The metrics that an alert cannot do without. Where it has two sources, those of the first."""
OTHER_SOURCES = {"VirtPoolsLauncherPolicyAbsent": ("virtpools_policy_state",), "VirtPoolsPolicyFails": (VALIDATING,)}


def example(alert: str) -> tuple[str, int]:
    """Return a case in which an alert fires by its first source, and when."""
    return next(
        (name, minute)
        for name, case in CASES.items()
        for minute, firing in case.firing.items()
        if any(f"{each} ".startswith(f"{alert} ") for each in firing)
    )


@pytest.fixture(scope="module")
def promtool() -> Promtool:
    return Promtool(alert_rules.groups(SCOPE, "https://docs.example/alerts"))


@pytest.fixture(scope="module")
def fires(promtool: Promtool) -> Callable[..., None]:
    """Return a function that fails unless exactly these alerts fire."""

    def check(given: Series, firing: Mapping[int, tuple[str, ...]], expr: str = FIRING) -> None:
        evaluations = [Evaluation(expr, minute, dict.fromkeys(map(labels, each), 1)) for minute, each in firing.items()]
        differences = promtool.differences(given, evaluations)
        assert not differences, differences

    return check


def labels(alert: str) -> str:
    """Return the labels of an alert in CASES, without those that are empty."""
    name, *words = alert.split(" ")
    keys = {
        "VirtPoolsHandlerNotReady": ("pool", "node"),
        "VirtPoolsTwoHandlers": ("node",),
        "VirtPoolsNodeInTransit": ("node",),
        "VirtPoolsNodeLostHandler": ("node",),
        "VirtPoolsPolicyFails": ("policy",),
        "VirtPoolsVMsWrong": ("pool", "verdict"),
        "VirtPoolsDrift": ("code",),
    }.get(name, ("pool",))
    return series("", alertname=name, **dict(zip(keys, words, strict=False)))


# The tests ----------------------------------------------------------------------------------------------------------


def test_a_cluster_that_is_well_has_no_alert(fires: Callable[..., None]) -> None:
    fires(well(), dict.fromkeys((1, 40, 310, 400, MINUTES - 1), ()))


@pytest.mark.parametrize("name", CASES)
def test_what_is_wrong_is_told_in_time_and_nothing_else_is(fires: Callable[..., None], name: str) -> None:
    fires({**well(), **CASES[name].changes}, CASES[name].firing)


def test_every_alert_has_a_case() -> None:
    fired = {alert.split(" ")[0] for case in CASES.values() for firing in case.firing.values() for alert in firing}
    assert fired == set(alert_rules.ALERTS) == set(NEEDS)


@pytest.mark.parametrize(("alert", "missing"), [(alert, each) for alert, needs in NEEDS.items() for each in needs])
def test_an_alert_whose_metric_is_absent_does_not_fire(fires: Callable[..., None], alert: str, missing: str) -> None:
    name, minute = example(alert)
    given = {**well(), **CASES[name].changes}
    left = {each: values for each, values in given.items() if metric(each) != missing}
    fires(left, {minute: ()}, f'ALERTS{{alertname="{alert}", alertstate="firing"}}')


@pytest.mark.parametrize("alert", NEEDS)
def test_an_alert_needs_no_other_metric(fires: Callable[..., None], alert: str) -> None:
    name, minute = example(alert)
    given = {**well(), **CASES[name].changes}
    left = {each: values for each, values in given.items() if metric(each) in NEEDS[alert]}
    told = tuple(each for each in CASES[name].firing[minute] if each.split(" ")[0] == alert)
    keys = "alertname, pool, node, policy, code, verdict"
    fires(left, {minute: told}, f'max by ({keys}) (ALERTS{{alertname="{alert}", alertstate="firing"}})')


def test_without_any_metric_no_alert_fires(fires: Callable[..., None]) -> None:
    fires({}, {400: ()})


@pytest.mark.parametrize("metrics", sorted({metric(each) for each in well()} | {"kube_", "apiserver_", "virtpools_"}))
def test_metrics_that_vanish_or_come_back_make_no_alert(fires: Callable[..., None], metrics: str) -> None:
    absent: Values = [None]
    for until in (100, MINUTES):
        given = {
            name: [*values[:60], *absent * (until - 60), *values[until:]] if name.startswith(metrics) else values
            for name, values in well().items()
        }
        fires(given, dict.fromkeys((59, 70, 76, 101, 107, 117, 140, 200), ()))


def test_a_rollout_that_takes_hours_makes_no_alert(fires: Callable[..., None]) -> None:
    """One node after the other leaves the primary; at every moment some handler is not Ready."""
    given, nodes, each = well(), 50, 6
    desired, ready = [], []
    for number in range(nodes):
        node, begin = f"moving-{number}", ILL + each * number
        given |= {
            node_ready(node): ALWAYS,
            handler(node, "primary"): over_time((1, begin), then=None),
            handler_ready(node, "primary"): over_time((1, begin), then=None),
            owner_label(node, "in_transit"): over_time((None, begin), (1, 2), then=None),
            owner_label(node, "gpu"): over_time((None, begin + 2), then=1),
            handler(node, "gpu"): over_time((None, begin + 2), then=1),
            handler_ready(node, "gpu"): over_time((None, begin + 2), (0, 3), then=1),
        }
        desired += [(2 + number, 2 if number else begin + 2), (3 + number, 4)]
        ready += [(2 + number, 5 if number else begin + 5), (3 + number, 1)]
    given |= {
        daemonset(DESIRED, "gpu"): over_time(*desired, then=2 + nodes),
        daemonset(UPDATED, "gpu"): over_time(*desired, then=2 + nodes),
        daemonset(READY, "gpu"): over_time(*ready, then=2 + nodes),
        series("virtpools_findings", severity="error", code="wrong_owner"): over_time((None, 20), (1, 300), then=None),
        series("virtpools_findings", severity="error", code="in_transit"): over_time((None, 20), (1, 300), then=None),
    }
    fires(given, dict.fromkeys(range(ILL, ILL + each * nodes + 60, 7), ()))


def test_an_api_server_that_restarts_makes_no_alert(fires: Callable[..., None]) -> None:
    pods = [launcher(number, 10 * number) for number in range(5, 60)]
    given = {
        **well(),
        **{name: value for pod in pods for name, value in pod.items()},
        checked("api-0"): over_time((70, 100), (None, 3), (0, 7), (1, 10), then=2),
        checked("api-1"): counter(each_minute=0.1),
    }
    fires(given, dict.fromkeys(range(60, 600, 11), ()))


def test_policies_are_not_missed_with_another_back_end() -> None:
    other = Promtool(alert_rules.groups(Scope("kubevirt", SCOPE.pools), "https://docs.example/alerts"))
    given = {**well(), **without_policy(30)}
    assert other.differences(given, [Evaluation(FIRING, 100)]) == ""


def test_pools_of_others_are_not_watched(fires: Callable[..., None]) -> None:
    foreign = series(DESIRED, namespace="kubevirt", daemonset="virt-handler-gpu-2")
    elsewhere = series(DESIRED, namespace="other", daemonset="virt-handler-gpu")
    misscheduled = {each.replace(DESIRED, MISSCHEDULED): ALWAYS for each in (foreign, elsewhere)}
    fires({**well(), foreign: ALWAYS, elsewhere: ALWAYS, **misscheduled}, {400: ()})


def test_hundreds_of_pools_need_no_more_rules() -> None:
    many = alert_rules.groups(
        Scope("kubevirt", tuple(f"pool-{number}" for number in range(500))), "https://docs.example"
    )
    few = alert_rules.groups(SCOPE, "https://docs.example")
    assert [len(each["rules"]) for each in many] == [len(each["rules"]) for each in few]
    known = Evaluation(f"count({alert_rules.POOLS})", 5, {"{}": 501})
    assert Promtool(many).differences({}, [known]) == ""


def test_the_texts_of_alerts_name_what_they_are_about(promtool: Promtool) -> None:
    """A label that an alert lacks would leave a gap."""
    for alert in alert_rules.alerts(SCOPE):
        name, minute = example(alert.name)
        used = set(re.findall(r"\$labels\.(\w+)", alert.summary + alert.description))
        given = {**well(), **CASES[name].changes}
        gaps = " or ".join(f'ALERTS{{alertname="{alert.name}", alertstate="firing", {label}=""}}' for label in used)
        assert promtool.differences(given, [Evaluation(gaps or "vector(1) > 1", minute)]) == "", alert.name


# The page -----------------------------------------------------------------------------------------------------------


def rows() -> dict[str, list[str]]:
    """Return the cells of the page's table of alerts, by alert."""
    lines = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| [`VirtPools")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {re.findall(r"`(\w+)`", first)[0]: rest for first, *rest in cells}


def test_the_page_says_what_each_alert_needs_and_when_it_fires() -> None:
    found = {alert: re.findall(r"`([a-z_]+)`", cells[-1]) for alert, cells in rows().items()}
    expected = {alert: [*needs, *OTHER_SOURCES.get(alert, ())] for alert, needs in NEEDS.items()}
    assert found == expected
    for alert in alert_rules.alerts(SCOPE):
        assert rows()[alert.name][:2] == [alert.severity, alert.lasts]
