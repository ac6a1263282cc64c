# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""A verification as a single HTML page that needs no network, no script and no other file."""

from __future__ import annotations

import html
import re
import typing as t

from ..base import names
from ..base.findings import printable
from ..checks.verdicts import FAILING, VERDICTS
from ..checks.verification import ReportDict
from .page_style import STYLE

Row = t.Mapping[str, t.Any]

_MOST_NAMED = 48
"""Node count up to which the map shows names."""
_MOST_LARGE = 600
"""Node count up to which it shows large squares."""

# In bytes. Together they keep the page of any cluster below 1 MB.
_MAP_ROOM = 240_000
_NODES_ROOM = 60_000
_VMS_ROOM = 440_000
_FINDINGS_ROOM = 80_000
_TABLES_ROOM = 60_000

_MOST_OPEN = 40
"""Rows of VMs that are visible at first; later groups open with a click."""

_COLUMNS = tuple(reversed(VERDICTS))
"""The verdict correct first, the worst last."""
_CODE = re.compile(r"[a-z]+(?:_[a-z]+)+")
_TONES = {"error": "bad", "warning": "warn", "note": "info"}


def render(report: ReportDict, *, cluster: str = "", at: str = "") -> str:
    """The page.

    :param cluster: what names the cluster.
    :param at: when the verification took place, as the user wrote it.
    """
    context = " · ".join(_text(part) for part in (cluster, at) if part)
    tone = "ok" if report["healthy"] else "bad"
    headline = _headline(report)
    return "".join(
        [
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
            '<meta name="color-scheme" content="light dark">\n',
            # The browser loads nothing, even if the name of an object could inject HTML.
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n",
            f"<title>{headline}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n",
            f'<header class="{tone}"><div class="in">',
            f'<p class="eyebrow">KubeVirt launcher images{" · " if context else ""}{context}</p>',
            f"<h1>{_icon(tone)}<span>{headline}</span></h1>",
            _bar(report["verdicts"]),
            _tiles(report),
            "</div></header>\n<main>\n",
            _section("Findings", _findings(report["findings"])),
            _section("VMs to look at", _vms(report)),
            _section("VMs by pool and verdict", _pools(report["pools"])),
            _section("Nodes by owner", _nodes(report)),
            _section("Handlers and launcher policy", _machinery(report)),
            "</main>\n</body>\n</html>\n",
        ]
    )


# Words and small parts ----------------------------------------------------------------------------------------------


def _text(value: object) -> str:
    return html.escape(printable(value))


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _words(code: str) -> str:
    return _text(code).replace("_", " ").capitalize()


def _headline(report: ReportDict) -> str:
    """The summary with words in place of codes."""
    text = _text(report["summary"])
    codes = {*VERDICTS, *(finding["code"] for finding in report["findings"])}
    return _CODE.sub(lambda found: found[0].replace("_", " ") if found[0] in codes else found[0], text)


def _tone(verdict: str) -> str:
    if verdict == "correct":
        return "ok"
    return "bad" if verdict in FAILING else "warn"


def _errors(report: ReportDict) -> set[str]:
    """The codes of errors, unlike those of what is only listed."""
    return {finding["code"] for finding in report["findings"] if finding["severity"] == "error"}


def _icon(tone: str) -> str:
    stroke = "M6 12.5l4 4 8-9" if tone == "ok" else "M12 6v8M12 17.6v.4"
    return f'<svg viewBox="0 0 24 24" aria-hidden="true"><circle cx="12" cy="12" r="11"/><path d="{stroke}"/></svg>'


def _badge(tone: str, words: str) -> str:
    return f'<span class="badge {tone}">{words}</span>'


def _code(value: object) -> str:
    return f"<code>{_text(value)}</code>"


def _section(title: str, body: str) -> str:
    return f"<section>\n<h2>{title}</h2>\n{body}\n</section>\n"


def _quiet(words: str) -> str:
    return f'<p class="quiet">{words}</p>'


def _table(name: str, head: t.Sequence[str], rows: t.Iterable[str]) -> str:
    cells = "".join(f'<th scope="col">{cell}</th>' for cell in head)
    return f'<table class="{name}"><thead><tr>{cells}</tr></thead><tbody>{"".join(rows)}</tbody></table>'


def _row(head: t.Sequence[str], cells: t.Sequence[str], tones: t.Sequence[str] = ()) -> str:
    """A row whose first cell is its name. On a narrow screen each other cell follows the title of its column."""
    tones = tones or [""] * len(cells)
    rest = "".join(
        f'<td{f" class={tone}" if tone else ""} data-l="{title}">{cell}</td>'
        for title, cell, tone in zip(head[1:], cells[1:], tones[1:], strict=True)
    )
    return f'<tr><th scope="row">{cells[0]}</th>{rest}</tr>'


def _within(room: int, parts: t.Iterable[str]) -> tuple[list[str], int]:
    """The first parts that fit into ``room`` bytes, and how many did not."""
    kept: list[str] = []
    left_out = 0
    for part in parts:
        room -= len(part.encode())
        if room < 0:
            left_out += 1
        else:
            kept.append(part)
    return kept, left_out


def _left_out(number: int, noun: str) -> str:
    return _quiet(f"{_count(number, noun)} more than this page has room for.") if number else ""


# The top ------------------------------------------------------------------------------------------------------------


def _bar(verdicts: t.Mapping[str, int]) -> str:
    """The share of each verdict. It is hidden from screen readers, since a table has the numbers."""
    parts = "".join(
        f'<i class="{_tone(verdict)}" style="flex-grow:{number}" title="{_words(verdict)}: {number:,}"></i>'
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
            _words(policy["state"]),
            "Policy",
            _text(policy["backend"]).replace("_", " "),
        ),
    ]
    items = "".join(
        f'<li class="{tone}"><span>{title}</span><b>{value}</b><small>{note}</small></li>'
        for tone, value, title, note in tiles
    )
    return f'<ul class="tiles">{items}</ul>'


def _findings(findings: t.Sequence[Row]) -> str:
    if not findings:
        return _quiet("Nothing to report.")
    rows, left_out = _within(
        _FINDINGS_ROOM,
        (
            f"<li>{_badge(_TONES.get(finding['severity'], 'bad'), _text(finding['severity']))}"
            f"<p>{_text(finding['message'])} {_code(finding['code'])}</p></li>"
            for finding in findings
        ),
    )
    return f'<ul class="findings">{"".join(rows)}</ul>{_left_out(left_out, "finding")}'


# Pools ---------------------------------------------------------------------------------------------------------------


def _pools(pools: t.Sequence[Row]) -> str:
    head = ["Pool", *(_words(verdict) for verdict in _COLUMNS), "Launcher image"]
    rows, left_out = _within(_TABLES_ROOM, (_pool(head, pool) for pool in pools))
    return _table("stack pools", head, rows) + _left_out(left_out, "pool")


def _pool(head: t.Sequence[str], pool: Row) -> str:
    name = _text(pool["name"])
    if not pool["active"] and pool["name"] != names.PRIMARY:
        name += f" {_badge('info', 'maps no VMs')}"
    numbers = {verdict: pool["vms"].get(verdict, 0) for verdict in _COLUMNS}
    return _row(
        head,
        [
            f"{name}<small>{_count(pool['nodes'], 'node')}</small>",
            *(f"{number:,}" for number in numbers.values()),
            _image(pool["launcher_image"]) + _contents(pool),
        ],
        ["", *(_tone(verdict) if number else "zero" for verdict, number in numbers.items()), "image"],
    )


def _contents(pool: Row) -> str:
    return f"<small>{_text(pool['launcher_contents'])}</small>" if pool["launcher_contents"] else ""


def _image(image: str | None) -> str:
    if not image:
        return "KubeVirt's own"
    # On a narrow screen a name breaks between its parts.
    parts = _text(image).replace("/", "/<wbr>").replace(":", "<wbr>:").replace("@", "<wbr>@")
    return f"<code>{parts}</code>"


# Nodes ---------------------------------------------------------------------------------------------------------------


def _nodes(report: ReportDict) -> str:
    errors = _errors(report)
    nodes = [{**node, "kind": _kind(node, errors)} for node in report["nodes"]]
    groups: dict[str, list[Row]] = {pool["name"]: [] for pool in report["pools"]}
    for node in nodes:
        groups.setdefault(node["owner"], []).append(node)
    if not nodes:
        return _quiet("No nodes.")
    size = "chips" if len(nodes) <= _MOST_NAMED else "squares" if len(nodes) <= _MOST_LARGE else "squares many"
    room = _MAP_ROOM
    parts = []
    for owner, members in groups.items():
        part = _owner(owner, members, size, room)
        room -= len(part.encode())
        parts.append(part)
    shown, left_out = _within(_MAP_ROOM, parts)
    return f'{_legend(nodes)}<div class="map">{"".join(shown)}</div>{_left_out(left_out, "owner")}{_bad_nodes(nodes)}'


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
    label = f"{_text(owner)}: {_count(len(nodes), 'node')}, {bad:,} with a problem"
    ordered = sorted(nodes, key=lambda node: (not node["problem"], node["ready"], node["name"]))
    # This leaves some room for the owners that follow.
    squares, left_out = _within(room - 2_000, (_square(node, size == "chips") for node in ordered))
    return (
        f'<div class="owner"><h3>{_text(owner)} <small>{_count(len(nodes), "node")}'
        f"{f', <em>{bad:,} with a problem</em>' if bad else ''}</small></h3>"
        f'<div class="{size}" role="img" aria-label="{label}">{"".join(squares)}</div>'
        f"{_left_out(left_out, 'node')}</div>"
    )


def _square(node: Row, named: bool) -> str:
    name = about = _text(node["name"])
    if node["problem"]:
        about += f": {_words(node['problem']).lower()}"
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
    rows, left_out = _within(
        _NODES_ROOM,
        (
            _row(
                head,
                [
                    _code(node["name"]),
                    _words(node["problem"]),
                    _text(node["owner"]),
                    _text(node["wanted"]),
                    str(node["handlers"]),
                ],
            )
            for node in bad
        ),
    )
    return _table("stack", head, rows) + _left_out(left_out, "node")


# DaemonSets and policy ---------------------------------------------------------------------------------------------------


def _machinery(report: ReportDict) -> str:
    head = ["DaemonSet", "Pool", "Ready", "State"]
    rows, left_out = _within(_TABLES_ROOM, (_daemonset(head, daemonset) for daemonset in report["daemonsets"]))
    return _policy(report["policy"]) + _table("stack", head, rows) + _left_out(left_out, "DaemonSet")


def _daemonset(head: t.Sequence[str], daemonset: Row) -> str:
    problems = "".join(f"<p>{_text(problem)}</p>" for problem in daemonset["problems"])
    short = daemonset["ready"] < daemonset["desired"]
    return _row(
        head,
        [
            _code(daemonset["name"]),
            _text(daemonset["pool"]),
            f"{daemonset['ready']:,} of {daemonset['desired']:,}",
            problems or _badge("ok", "in order"),
        ],
        ["", "", "bad" if short else "", "bad" if problems else ""],
    )


def _policy(policy: Row) -> str:
    name = f" {_code(policy['name'])}" if policy["name"] else ""
    digest = f" <small>digest {_code(policy['digest'])}</small>" if policy["digest"] else ""
    problem = f"<p>{_text(policy['problem'])}</p>" if policy["problem"] else ""
    badge = _badge("bad" if problem else "ok", _words(policy["state"]).lower())
    backend = _text(policy["backend"]).replace("_", " ")
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
        return _quiet("None: every VM has the image and the nodes that the pools give it.")
    return "".join(parts) + _left_out(left_out, "VM")


def _group(vms: t.Sequence[Row], room: int, is_open: bool) -> tuple[str, int]:
    """A group of VMs, and how many of them did not fit. Facts that all of them share are shown once."""
    first = vms[0]
    facts = [("Expected image", _image(first["expected_image"]))]
    places: dict[str, list[str]] = {}
    for place, image in first["images"].items():
        places.setdefault(image, []).append(place)
    facts += [(", ".join(map(_text, with_image)), _image(image)) for image, with_image in places.items()]
    columns: list[tuple[str, t.Callable[[Row], str]]] = [("VM", _name), ("Node", _where)]
    for title, value in (("Reason", _reason), ("Remedy", _remedy)):
        if len({value(vm) for vm in vms}) == 1:
            facts.append((title, value(first)))
        else:
            columns.append((title, value))
    head = [title for title, _value in columns]
    top = (
        f"<details{' open' if is_open else ''}><summary>{_badge(_tone(first['verdict']), _words(first['verdict']))}"
        f" <b>{_text(first['pool'] or names.PRIMARY)}</b> <small>{_count(len(vms), 'VM')}</small></summary>"
        f"<dl>{''.join(f'<div><dt>{title}</dt><dd>{value}</dd></div>' for title, value in facts)}</dl>"
    )
    rows, left_out = _within(
        room - len(top.encode()), (_row(head, [value(vm) for _title, value in columns]) for vm in vms)
    )
    if not rows:
        return "", len(vms)
    return f"{top}{_table('stack', head, rows)}</details>", left_out


def _name(vm: Row) -> str:
    return f"{_text(vm['namespace'])}/<wbr>{_text(vm['name'])}"


def _where(vm: Row) -> str:
    if not vm["node"]:
        return "none"
    elsewhere = vm["owner"] and vm["owner"] != (vm["pool"] or names.PRIMARY)
    owner = f" <small>of {_text(vm['owner'])}</small>" if elsewhere else ""
    return f"{_text(vm['node'])}{owner}"


def _reason(vm: Row) -> str:
    return _text(vm["reason"][:1].upper() + vm["reason"][1:])


def _remedy(vm: Row) -> str:
    return "neither restart nor migration" if vm["remedy"] == "none" else _text(vm["remedy"])
