# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""HTML pages, parsed."""

from __future__ import annotations

import html.parser

_VOID = {"br", "meta", "wbr"}
HOSTILE = "\"><script>alert(1)</script><img src=x onerror='alert(2)'>&amp;\u202e\x00"


class Parsed(html.parser.HTMLParser):
    """A page's elements as (tag, attributes), its text, and the text in every kind of element. Asserts balanced tags."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.texts, self._open = [], [], []
        self.feed(text)
        self.close()
        assert not self._open

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in _VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.texts.append((self._open[-1] if self._open else "", data))

    def all(self, tag, **attributes):
        return [found for name, found in self.elements if name == tag and attributes.items() <= found.items()]

    def text(self, *tags):
        return "".join(data for tag, data in self.texts if tag != "style" and (not tags or tag in tags))
