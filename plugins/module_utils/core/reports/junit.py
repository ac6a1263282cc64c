# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""A verification as JUnit XML for CI systems: a problem is a failure, and what is only listed is a skipped test."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass
from xml.sax.saxutils import escape, quoteattr

from ..base.findings import counted, printable
from ..checks.verdicts import FAILING
from ..checks.verification import ReportDict, code_counts

_MOST_NODES = 5_000


@dataclass(frozen=True)
class _Case:
    """One test."""

    name: str
    problem: str | None = None
    """Why it failed or, if ``listed``, why it was skipped."""
    code: str = ""
    """The code of the problem."""
    listed: bool = False
    lines: tuple[str, ...] = ()


def render(report: ReportDict, *, at: str = "") -> str:
    """The XML text. It has failures only when the report is not healthy, and then always.

    :param at: when the verification took place, as ISO 8601.
    """
    errors = {finding["code"] for finding in report["findings"] if finding["severity"] == "error"}
    suites = {
        "verification": [_overall(report)],
        "policy": [_policy(report["policy"])],
        "daemonsets": [_daemonset(daemonset) for daemonset in report["daemonsets"]],
        "nodes": _nodes(report["nodes"], errors),
        "pools": [_pool(pool) for pool in report["pools"]],
    }
    for vm in report["vms"]:
        suites.setdefault(f"VMs in namespace {vm['namespace']}", []).append(_vm(vm))
    all_cases = [case for cases in suites.values() for case in cases]
    body = "".join(_suite(name, cases, at) for name, cases in suites.items() if cases)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites name="virtpools"{_totals(all_cases)}>\n{body}</testsuites>\n'


def _overall(report: ReportDict) -> _Case:
    findings = [f"{finding['severity']} {finding['code']}: {finding['message']}" for finding in report["findings"]]
    if report["vms_left_out"]:
        findings.append(f"{counted(report['vms_left_out'], 'more VM')} with a problem not in this file.")
    return _Case(
        "Everything matches the pools",
        None if report["healthy"] else report["summary"],
        "unhealthy",
        lines=(report["summary"], *findings),
    )


def _policy(policy: t.Mapping[str, t.Any]) -> _Case:
    lines = (f"{policy['backend']} {policy['name']} is {policy['state']}, digest {policy['digest']}",)
    return _Case("launcher policy", policy["problem"], f"policy_{policy['state']}", lines=lines)


def _daemonset(daemonset: t.Mapping[str, t.Any]) -> _Case:
    lines = (f"{daemonset['ready']} of {counted(daemonset['desired'], 'pod')} Ready",)
    return _Case(daemonset["name"], "; ".join(daemonset["problems"]) or None, "daemonset", lines=lines)


def _nodes(nodes: t.Sequence[t.Mapping[str, t.Any]], errors: t.Collection[str]) -> list[_Case]:
    """The tests of nodes, those with a problem first: a large cluster has more nodes than the file has room for."""
    shown = sorted(nodes, key=lambda node: not node["problem"])[:_MOST_NODES]
    return [
        _Case(
            node["name"],
            f"{node['problem']}: owner {node['owner']}, wanted {node['wanted']}, {counted(node['handlers'], 'handler')}"
            if node["problem"]
            else None,
            node["problem"] or "",
            listed=node["problem"] not in errors,
        )
        for node in shown
    ]


def _pool(pool: t.Mapping[str, t.Any]) -> _Case:
    counts = {verdict: number for verdict, number in pool["vms"].items() if number}
    failing = {verdict: number for verdict, number in counts.items() if verdict in FAILING}
    return _Case(
        pool["name"],
        f"VMs with a problem: {code_counts(failing)}" if failing else None,
        next(iter(failing), ""),
        lines=(f"VMs: {code_counts(counts) or 'none'}", f"launcher image {pool['launcher_image']}{_contents(pool)}"),
    )


def _contents(pool: t.Mapping[str, t.Any]) -> str:
    return f" ({pool['launcher_contents']})" if pool["launcher_contents"] else ""


def _vm(vm: t.Mapping[str, t.Any]) -> _Case:
    return _Case(
        vm["name"],
        vm["reason"],
        vm["verdict"],
        listed=vm["verdict"] not in FAILING,
        lines=(
            f"pool {vm['pool']}, expected image {vm['expected_image']}",
            *(f"{place}: {image}" for place, image in vm["images"].items()),
            f"node {vm['node'] or 'none'}, owner {vm['owner'] or 'none'}",
            f"remedy: {vm['remedy']}",
        ),
    )


# XML -----------------------------------------------------------------------------------------------------------------


def _suite(name: str, cases: t.Sequence[_Case], at: str) -> str:
    timestamp = f" timestamp={_attribute(at)}" if at else ""
    body = "".join(_case(name, case) for case in cases)
    return f"<testsuite name={_attribute(name)}{_totals(cases)}{timestamp}>\n{body}</testsuite>\n"


def _totals(cases: t.Sequence[_Case]) -> str:
    skipped = [case.listed for case in cases if case.problem is not None]
    return (
        f' tests="{len(cases)}" failures="{skipped.count(False)}" errors="0" skipped="{skipped.count(True)}" time="0"'
    )


def _case(suite: str, case: _Case) -> str:
    lines = "\n".join(escape(printable(line)) for line in case.lines)
    result = f"<system-out>{lines}</system-out>" if lines else ""
    if case.problem is not None and case.listed:
        result = f"<skipped message={_attribute(f'{case.code}: {case.problem}')}/>{result}"
    elif case.problem is not None:
        result = f"<failure type={_attribute(case.code)} message={_attribute(case.problem)}>{lines}</failure>"
    return f'<testcase classname={_attribute(f"virtpools.{suite}")} name={_attribute(case.name)} time="0">{result}</testcase>\n'


def _attribute(text: object) -> str:
    return quoteattr(printable(text))
