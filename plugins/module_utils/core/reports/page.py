# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""A verification as a single HTML page that needs no network, no script and no other file."""

from __future__ import annotations

import re
import typing as t

from ..base import names
from ..checks.verdicts import FAILING, VERDICTS
from ..checks.verification import ReportDict
from . import page_pieces as pieces

Row = t.Mapping[str, t.Any]

_MOST_NAMED = 48
"""Node count up to which the map shows names."""
_MOST_LARGE = 600
"""Node count up to which it shows large squares."""

# In bytes. Together they keep the page of any cluster below 1 MB.
_MAP_ROOM = 240_000
_NODES_ROOM = 60_000
_VMS_ROOM = 440_000
_TABLES_ROOM = 60_000

_MOST_OPEN = 40
"""Rows of VMs that are visible at first; later groups open with a click."""

_COLUMNS = tuple(reversed(VERDICTS))
"""The verdict correct first, the worst last."""
_CODE = re.compile(r"[a-z]+(?:_[a-z]+)+")


def render(report: ReportDict, *, cluster: str = "", at: str = "") -> str:
    """The page.

    :param cluster: what names the cluster.
    :param at: when the verification took place, as the user wrote it.
    """
    tone = "ok" if report["healthy"] else "bad"
    return pieces.document(
        tone,
        _headline(report),
        eyebrow=("KubeVirt launcher images", cluster, at),
        top=_bar(report["verdicts"]) + _tiles(report),
        sections=(
            ("Findings", pieces.findings(report["findings"])),
            ("VMs to look at", _vms(report)),
            ("VMs by pool and verdict", _pools(report["pools"])),
            ("Nodes by owner", _nodes(report)),
            ("Handlers and launcher policy", _machinery(report)),
        ),
    )


# Words --------------------------------------------------------------------------------------------------------------


def _headline(report: ReportDict) -> str:
    """The summary with words in place of codes."""
    text = pieces.text(report["summary"])
    codes = {*VERDICTS, *(finding["code"] for finding in report["findings"])}
    return _CODE.sub(lambda found: found[0].replace("_", " ") if found[0] in codes else found[0], text)


def _tone(verdict: str) -> str:
    if verdict == "correct":
        return "ok"
    return "bad" if verdict in FAILING else "warn"


def _errors(report: ReportDict) -> set[str]:
    """The codes of errors, unlike those of what is only listed."""
    return {finding["code"] for finding in report["findings"] if finding["severity"] == "error"}


# The top ------------------------------------------------------------------------------------------------------------


def _bar(verdicts: t.Mapping[str, int]) -> str:
    """The share of each verdict. It is hidden from screen readers, since a table has the numbers."""
    parts = "".join(
        f'<i class="{_tone(verdict)}" style="flex-grow:{number}" title="{pieces.words(verdict)}: {number:,}"></i>'
        for verdict in _COLUMNS
        if (number := verdicts.get(verdict, 0))
    )
    return f'<div class="bar" aria-hidden="true">{parts}</div>' if parts else ""


def _tiles(report: ReportDict) -> str:
    counts = report["counts"]
    bad_nodes = sum(1 for node in report["nodes"] if node["problem"])
    policy = report["policy"]
    verdicts = report["verdicts"]
    failing = sum(verdicts.get(verdict, 0) for verdict in FAILING)
    starting = f", {counts['unjudged']:,} more without a launcher pod yet" if counts["unjudged"] else ""
    active = sum(1 for pool in report["pools"] if pool["active"] and pool["name"] != names.PRIMARY)
    tiles = [
        ("bad" if failing else "", f"{counts['vms']:,}", "VMs", f"{failing:,} with a problem{starting}"),
        ("", f"{verdicts.get('outdated', 0):,}", "Outdated", "get new images at their next start"),
        ("bad" if bad_nodes else "", f"{counts['nodes']:,}", "Nodes", f"{bad_nodes:,} with a problem"),
        ("", f"{counts['pools']:,}", "Pools", f"{active:,} active"),
        (
            "bad" if policy["problem"] else "",
            pieces.words(policy["state"]),
            "Policy",
            pieces.text(policy["backend"]).replace("_", " "),
        ),
    ]
    return pieces.tiles(tiles)


# Pools ---------------------------------------------------------------------------------------------------------------


def _pools(pools: t.Sequence[Row]) -> str:
    head = ["Pool", *(pieces.words(verdict) for verdict in _COLUMNS), "Launcher image"]
    rows, left_out = pieces.within(_TABLES_ROOM, (_pool(head, pool) for pool in pools))
    return pieces.table("stack pools", head, rows) + pieces.left_out(left_out, "pool")


def _pool(head: t.Sequence[str], pool: Row) -> str:
    name = pieces.text(pool["name"])
    if not pool["active"] and pool["name"] != names.PRIMARY:
        name += f" {pieces.badge('info', 'maps no VMs')}"
    numbers = {verdict: pool["vms"].get(verdict, 0) for verdict in _COLUMNS}
    return pieces.row(
        head,
        [
            f"{name}<small>{pieces.count(pool['nodes'], 'node')}</small>",
            *(f"{number:,}" for number in numbers.values()),
            _image(pool["launcher_image"]) + _contents(pool),
        ],
        ["", *(_tone(verdict) if number else "zero" for verdict, number in numbers.items()), "image"],
    )


def _contents(pool: Row) -> str:
    return f"<small>{pieces.text(pool['launcher_contents'])}</small>" if pool["launcher_contents"] else ""


def _image(image: str | None) -> str:
    if not image:
        return "KubeVirt's own"
    # On a narrow screen a name breaks between its parts.
    parts = pieces.text(image).replace("/", "/<wbr>").replace(":", "<wbr>:").replace("@", "<wbr>@")
    return f"<code>{parts}</code>"


# Nodes ---------------------------------------------------------------------------------------------------------------


def _nodes(report: ReportDict) -> str:
    errors = _errors(report)
    nodes = [{**node, "kind": _kind(node, errors)} for node in report["nodes"]]
    groups: dict[str, list[Row]] = {pool["name"]: [] for pool in report["pools"]}
    for node in nodes:
        groups.setdefault(node["owner"], []).append(node)
    if not nodes:
        return pieces.quiet("No nodes.")
    size = "chips" if len(nodes) <= _MOST_NAMED else "squares" if len(nodes) <= _MOST_LARGE else "squares many"
    room = _MAP_ROOM
    parts = []
    for owner, members in groups.items():
        part = _owner(owner, members, size, room)
        room -= len(part.encode())
        parts.append(part)
    shown, left_out = pieces.within(_MAP_ROOM, parts)
    return f'{_legend(nodes)}<div class="map">{"".join(shown)}</div>{pieces.left_out(left_out, "owner")}{_bad_nodes(nodes)}'


def _kind(node: Row, errors: t.Collection[str]) -> str:
    """How a node is drawn: in order, not Ready, only listed (t), wrong (x)."""
    if node["problem"]:
        return "x" if node["problem"] in errors else "t"
    return "" if node["ready"] else "off"


def _mark(node: Row) -> str:
    """The mark in the square of a node with a problem: the number of its handlers, unless it has one as it should."""
    return "!" if node["handlers"] == 1 else str(node["handlers"])


def _legend(nodes: t.Sequence[Row]) -> str:
    meanings = {"off": "not Ready", "t": "listed", "x": "problem"}
    kinds = {node["kind"] for node in nodes}
    entries = ["<li><i></i>in order</li>"]
    for kind, words in meanings.items():
        if kind in kinds:
            entries.append(f"<li><i class={kind}>{'' if kind == 'off' else '!'}</i>{words}</li>")
    if any(node["problem"] and node["handlers"] != 1 for node in nodes):
        entries.append("<li>a number: how many handlers the node has instead of one</li>")
    return f'<ul class="legend">{"".join(entries)}</ul>'


def _owner(owner: str, nodes: t.Sequence[Row], size: str, room: int) -> str:
    """The nodes of one owner, those with a problem first."""
    bad = sum(1 for node in nodes if node["problem"])
    label = f"{pieces.text(owner)}: {pieces.count(len(nodes), 'node')}, {bad:,} with a problem"
    ordered = sorted(nodes, key=lambda node: (not node["problem"], node["ready"], node["name"]))
    # This leaves some room for the owners that follow.
    squares, left_out = pieces.within(room - 2_000, (_square(node, size == "chips") for node in ordered))
    return (
        f'<div class="owner"><h3>{pieces.text(owner)} <small>{pieces.count(len(nodes), "node")}'
        f"{f', <em>{bad:,} with a problem</em>' if bad else ''}</small></h3>"
        f'<div class="{size}" role="img" aria-label="{label}">{"".join(squares)}</div>'
        f"{pieces.left_out(left_out, 'node')}</div>"
    )


def _square(node: Row, named: bool) -> str:
    name = about = pieces.text(node["name"])
    if node["problem"]:
        about += f": {pieces.words(node['problem']).lower()}"
    elif not node["ready"]:
        about += ": not Ready"
    mark = _mark(node) if node["problem"] else ""
    content = (f"<b>{mark}</b>" if mark else "") + name if named else mark
    kind = f" class={node['kind']}" if node["kind"] else ""
    return f'<i{kind} title="{about}">{content}</i>'


def _bad_nodes(nodes: t.Sequence[Row]) -> str:
    bad = sorted((node for node in nodes if node["problem"]), key=lambda node: node["kind"] != "x")
    if not bad:
        return ""
    head = ["Node", "Problem", "Owner", "Should belong to", "Handlers"]
    rows, left_out = pieces.within(
        _NODES_ROOM,
        (
            pieces.row(
                head,
                [
                    pieces.code(node["name"]),
                    pieces.words(node["problem"]),
                    pieces.text(node["owner"]),
                    pieces.text(node["wanted"]),
                    str(node["handlers"]),
                ],
            )
            for node in bad
        ),
    )
    return pieces.table("stack", head, rows) + pieces.left_out(left_out, "node")


# DaemonSets and policy ---------------------------------------------------------------------------------------------------


def _machinery(report: ReportDict) -> str:
    head = ["DaemonSet", "Pool", "Ready", "State"]
    rows, left_out = pieces.within(_TABLES_ROOM, (_daemonset(head, daemonset) for daemonset in report["daemonsets"]))
    return _policy(report["policy"]) + pieces.table("stack", head, rows) + pieces.left_out(left_out, "DaemonSet")


def _daemonset(head: t.Sequence[str], daemonset: Row) -> str:
    problems = "".join(f"<p>{pieces.text(problem)}</p>" for problem in daemonset["problems"])
    short = daemonset["ready"] < daemonset["desired"]
    return pieces.row(
        head,
        [
            pieces.code(daemonset["name"]),
            pieces.text(daemonset["pool"]),
            f"{daemonset['ready']:,} of {daemonset['desired']:,}",
            problems or pieces.badge("ok", "in order"),
        ],
        ["", "", "bad" if short else "", "bad" if problems else ""],
    )


def _policy(policy: Row) -> str:
    name = f" {pieces.code(policy['name'])}" if policy["name"] else ""
    digest = f" <small>digest {pieces.code(policy['digest'])}</small>" if policy["digest"] else ""
    problem = f"<p>{pieces.text(policy['problem'])}</p>" if policy["problem"] else ""
    badge = pieces.badge("bad" if problem else "ok", pieces.words(policy["state"]).lower())
    backend = pieces.text(policy["backend"]).replace("_", " ")
    return f'<div class="policy"><p>{badge} {backend}{name}{digest}</p>{problem}</div>'


# VMs -----------------------------------------------------------------------------------------------------------------


def _vms(report: ReportDict) -> str:
    """The VMs that are not correct, in groups that share verdict, pool and images: failing ones and large groups first."""
    groups: dict[tuple[t.Any, ...], list[Row]] = {}
    for vm in report["vms"]:
        shared = (vm["verdict"], vm["pool"] or "", vm["expected_image"] or "", tuple(sorted(vm["images"].items())))
        groups.setdefault(shared, []).append(vm)
    ordered = sorted(groups.values(), key=lambda vms: (_tone(vms[0]["verdict"]) != "bad", -len(vms), vms[0]["name"]))
    room, shown, left_out = _VMS_ROOM, 0, report["vms_left_out"]
    parts = []
    for vms in ordered:
        part, missing = _group(vms, room, is_open=shown < _MOST_OPEN)
        room -= len(part.encode())
        shown += len(vms)
        left_out += missing
        parts.append(part)
    if not parts and not left_out:
        return pieces.quiet("None: every VM has the image and the nodes that the pools give it.")
    return "".join(parts) + pieces.left_out(left_out, "VM")


def _group(vms: t.Sequence[Row], room: int, is_open: bool) -> tuple[str, int]:
    """A group of VMs, and how many of them did not fit. Facts that all of them share are shown once."""
    first = vms[0]
    facts = [("Expected image", _image(first["expected_image"]))]
    places: dict[str, list[str]] = {}
    for place, image in first["images"].items():
        places.setdefault(image, []).append(place)
    facts += [(", ".join(map(pieces.text, with_image)), _image(image)) for image, with_image in places.items()]
    columns: list[tuple[str, t.Callable[[Row], str]]] = [("VM", _name), ("Node", _where)]
    for title, value in (("Reason", _reason), ("Remedy", _remedy)):
        if len({value(vm) for vm in vms}) == 1:
            facts.append((title, value(first)))
        else:
            columns.append((title, value))
    head = [title for title, _value in columns]
    top = (
        f"<details{' open' if is_open else ''}><summary>{pieces.badge(_tone(first['verdict']), pieces.words(first['verdict']))}"
        f" <b>{pieces.text(first['pool'] or names.PRIMARY)}</b> <small>{pieces.count(len(vms), 'VM')}</small></summary>"
        f"<dl>{''.join(f'<div><dt>{title}</dt><dd>{value}</dd></div>' for title, value in facts)}</dl>"
    )
    rows, left_out = pieces.within(
        room - len(top.encode()), (pieces.row(head, [value(vm) for _title, value in columns]) for vm in vms)
    )
    if not rows:
        return "", len(vms)
    return f"{top}{pieces.table('stack', head, rows)}</details>", left_out


def _name(vm: Row) -> str:
    return f"{pieces.text(vm['namespace'])}/<wbr>{pieces.text(vm['name'])}"


def _where(vm: Row) -> str:
    if not vm["node"]:
        return "none"
    elsewhere = vm["owner"] and vm["owner"] != (vm["pool"] or names.PRIMARY)
    owner = f" <small>of {pieces.text(vm['owner'])}</small>" if elsewhere else ""
    return f"{pieces.text(vm['node'])}{owner}"


def _reason(vm: Row) -> str:
    return pieces.sentence(vm["reason"])


def _remedy(vm: Row) -> str:
    return "neither restart nor migration" if vm["remedy"] == "none" else pieces.text(vm["remedy"])
