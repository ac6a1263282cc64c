# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""What the HTML pages share: the document around them, and small parts. No page needs a network, a script or another file."""

from __future__ import annotations

import html
import typing as t

from ..base.findings import printable
from .page_style import STYLE

_FINDINGS_ROOM = 80_000
"""In bytes. Every part of a page has a limit: together they keep the page of any cluster below 1 MB."""
_STROKES = {
    "ok": "M6 12.5l4 4 8-9",
    "warn": "M9.5 8v8M14.5 8v8",
    "info": "M12 10.5v7M12 6.5v.4",
    "bad": "M12 6v8M12 17.6v.4",
}
_TONES = {"error": "bad", "warning": "warn", "note": "info"}


def document(
    tone: str,
    headline: str,
    *,
    eyebrow: t.Iterable[object],
    top: str,
    sections: t.Iterable[tuple[str, str]],
    style: str = "",
) -> str:
    """The whole page.

    :param headline: HTML.
    :param eyebrow: what stands above it, as text. What is empty is left out.
    :param top: HTML below the headline.
    :param sections: title and HTML of each section. One without HTML is left out.
    :param style: rules that only this page needs.
    """
    return "".join(
        [
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
            '<meta name="color-scheme" content="light dark">\n',
            # The browser loads nothing, even if the name of an object could inject HTML.
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n",
            f"<title>{headline}</title>\n<style>{STYLE}{style}</style>\n</head>\n<body>\n",
            f'<header class="{tone}"><div class="in">',
            f'<p class="eyebrow">{" · ".join(text(part) for part in eyebrow if part)}</p>',
            f"<h1>{icon(tone)}<span>{headline}</span></h1>",
            top,
            "</div></header>\n<main>\n",
            *(section(title, body) for title, body in sections if body),
            "</main>\n</body>\n</html>\n",
        ]
    )


def text(value: object) -> str:
    """Any value as HTML that shows it."""
    return html.escape(printable(value))


def sentence(words: str) -> str:
    """Words as HTML that begins with a capital letter."""
    return text(words[:1].upper() + words[1:])


def count(number: int, noun: str, nouns: str = "") -> str:
    return f"{number:,} {noun if number == 1 else nouns or f'{noun}s'}"


def words(code: str) -> str:
    return text(code).replace("_", " ").capitalize()


def icon(tone: str) -> str:
    """A tick for ``ok``, a pause for ``warn``, an i for ``info``, an exclamation mark for ``bad``."""
    return f'<svg viewBox="0 0 24 24" aria-hidden="true"><circle cx="12" cy="12" r="11"/><path d="{_STROKES[tone]}"/></svg>'


def badge(tone: str, words: str) -> str:
    return f'<span class="badge {tone}">{words}</span>'


def code(value: object) -> str:
    return f"<code>{text(value)}</code>"


def section(title: str, body: str) -> str:
    return f"<section>\n<h2>{title}</h2>\n{body}\n</section>\n"


def quiet(words: str) -> str:
    return f'<p class="quiet">{words}</p>'


def table(name: str, head: t.Sequence[str], rows: t.Iterable[str]) -> str:
    cells = "".join(f'<th scope="col">{cell}</th>' for cell in head)
    return f'<table class="{name}"><thead><tr>{cells}</tr></thead><tbody>{"".join(rows)}</tbody></table>'


def row(head: t.Sequence[str], cells: t.Sequence[str], tones: t.Sequence[str] = ()) -> str:
    """A row whose first cell is its name. On a narrow screen each other cell follows the title of its column."""
    tones = tones or [""] * len(cells)
    rest = "".join(
        f'<td{f" class={tone}" if tone else ""} data-l="{title}">{cell}</td>'
        for title, cell, tone in zip(head[1:], cells[1:], tones[1:], strict=True)
    )
    return f'<tr><th scope="row">{cells[0]}</th>{rest}</tr>'


def within(room: int, parts: t.Iterable[str]) -> tuple[list[str], int]:
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


def left_out(number: int, noun: str, nouns: str = "") -> str:
    return quiet(f"{count(number, noun, nouns)} more than this page has room for.") if number else ""


def tiles(entries: t.Iterable[tuple[str, str, str, str]]) -> str:
    """The most important numbers: for each its tone, the number, its title and a note."""
    items = "".join(
        f'<li class="{tone}"><span>{title}</span><b>{value}</b><small>{note}</small></li>'
        for tone, value, title, note in entries
    )
    return f'<ul class="tiles">{items}</ul>'


def findings(found: t.Sequence[t.Mapping[str, t.Any]]) -> str:
    if not found:
        return quiet("Nothing to report.")
    rows, missing = within(
        _FINDINGS_ROOM,
        (
            f"<li>{badge(_TONES.get(finding['severity'], 'bad'), text(finding['severity']))}"
            f"<p>{text(finding['message'])} {code(finding['code'])}</p></li>"
            for finding in found
        ),
    )
    return f'<ul class="findings">{"".join(rows)}</ul>{left_out(missing, "finding")}'
