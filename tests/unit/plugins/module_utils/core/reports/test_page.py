# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.findings import printable
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.reports import page
from ansible_collections.virtpools.kubevirt.tests.unit.support import reports
from ansible_collections.virtpools.kubevirt.tests.unit.support.pages import HOSTILE, Parsed


def parsed(report, **about):
    return Parsed(page.render(report, **about))


def finding(severity, code):
    return {"severity": severity, "code": code, "message": f"This is {code}."}


class TestVerdict:
    def test_is_the_title_and_the_heading(self):
        report = reports.report([reports.vm()])
        found = parsed(report, cluster="prod & co", at="2026-11-21")
        summary = report["summary"].replace("_", " ")
        assert found.text("title") == summary
        assert summary in found.text("span")
        assert "prod & co · 2026-11-21" in found.text("p")
        assert found.all("header", **{"class": "bad"})

    def test_has_words_in_place_of_codes(self):
        found = page.render(reports.report(summary="Problems found: 3 wrong_image, 1 no_ready_handler."))
        assert "Problems found: 3 wrong image, 1 no ready handler." in found

    def test_an_image_breaks_between_its_parts(self):
        assert page._image("registry.example/kubevirt/virt-launcher:v1.9.0-gpu") == (
            "<code>registry.example/<wbr>kubevirt/<wbr>virt-launcher<wbr>:v1.9.0-gpu</code>"
        )

    def test_of_a_healthy_cluster_shows_no_problem_at_all(self):
        found = parsed(reports.report(nodes=[reports.node("n1")]))
        assert found.all("header", **{"class": "ok"})
        assert "Nothing to report." in found.text()
        assert "every VM has the image and the nodes that the pools give it" in found.text()
        assert not [attrs for _tag, attrs in found.elements if "bad" in (attrs.get("class") or "").split()]
        assert found.text().count("None") == found.text().count("None: every VM") == 1
        said = [value for _tag, attrs in found.elements for value in attrs.values()]
        assert said
        assert not [value for value in said if value is None or "None" in value]

    def test_of_a_cluster_without_pools_names_no_policy(self):
        unused = {"backend": "none", "name": None, "state": "unused", "digest": None, "problem": None}
        found = parsed(reports.report(nodes=[reports.node("n1")], pools=(), policy=unused))
        assert found.text().count("None") == found.text().count("None: every VM") == 1

    def test_an_empty_cluster_has_a_page_too(self):
        empty = reports.report(correct=0, pools=(), daemonsets=[])
        assert "No nodes." in parsed(empty).text()


class TestVms:
    def test_that_share_everything_are_shown_together(self):
        vms = [reports.vm(f"web-{number}") for number in range(3)]
        other = reports.vm("db", images={"container compute": "registry.example/other:1"}, remedy="migration")
        found = parsed(reports.report([*vms, other]))
        assert len(found.all("details")) == 2
        assert "3 VMs" in found.text("small")
        for name in ("web-0", "web-1", "web-2", "db"):
            assert found.text("th").count(name) == 1
        assert found.text("code").count(reports.STOCK) == 1
        assert found.text("code").count("registry.example/other:1") == 1

    def test_what_differs_within_a_group_is_a_column(self):
        found = parsed(reports.report([reports.vm("a", reason="it moved"), reports.vm("b", reason="it stayed")]))
        assert len(found.all("details")) == 1
        assert "It moved" in found.text("td")
        assert "It stayed" in found.text("td")
        assert found.text("dd").count("restart") == 1

    def test_failing_ones_come_before_those_that_are_only_listed(self):
        vms = [reports.vm(f"old-{number}", verdict="outdated") for number in range(3)]
        found = parsed(reports.report([*vms, reports.vm("wrong", verdict="wrong_node", owner="primary")]))
        badges = [data for tag, data in found.texts if tag == "span" and data in ("Wrong node", "Outdated")]
        assert badges[-2:] == ["Wrong node", "Outdated"]
        assert "of primary" in found.text("td", "small")

    def test_those_that_are_not_in_the_report_are_counted(self):
        assert (
            "417 VMs more than this page has room for." in parsed(reports.report([reports.vm()], left_out=417)).text()
        )

    def test_those_that_have_no_launcher_pod_yet_are_counted(self):
        report = reports.report()
        assert "launcher pod yet" not in parsed(report).text()
        report["counts"]["unjudged"] = 4
        assert "0 with a problem, 4 more without a launcher pod yet" in parsed(report).text("small")

    def test_are_counted_by_pool_and_verdict(self):
        vms = [reports.vm(f"v{number}", verdict="pending", node="", images={}) for number in range(1234)]
        found = parsed(reports.report(vms, pools=("gpu", "fpga")))
        assert found.all("td", **{"class": "bad", "data-l": "Pending"})
        assert "1,234" in found.text("td")


class TestNodes:
    NODES = (
        reports.node("good", "gpu"),
        reports.node("doubled", "gpu", "two_handlers", handlers=2),
        reports.node("held", "primary", "node_held_back", wanted="gpu"),
        reports.node("asleep", ready=False),
    )
    FINDINGS = (finding("error", "two_handlers"), finding("warning", "node_held_back"))

    def test_are_drawn_by_what_is_wrong_and_named_in_words(self):
        found = parsed(reports.report(nodes=self.NODES, findings=self.FINDINGS))
        kinds = {attrs["title"]: attrs.get("class") for attrs in found.all("i") if "title" in attrs}
        kinds = {title: kind for title, kind in kinds.items() if not title.startswith("Correct")}
        assert kinds == {
            "good": None,
            "doubled: two handlers": "x",
            "held: node held back": "t",
            "asleep: not Ready": "off",
        }
        assert "2" in found.text("b")
        assert found.text("code").count("doubled") == 1
        labels = [attrs["aria-label"] for attrs in found.all("div", role="img")]
        assert labels == ["primary: 2 nodes, 1 with a problem", "gpu: 2 nodes, 1 with a problem"]

    @pytest.mark.parametrize("count", [3, 48, 49, 600, 601, 3000])
    def test_are_all_there_however_many(self, count):
        nodes = [reports.node(f"node-{number}", ("primary", "gpu")[number % 2]) for number in range(count)]
        found = parsed(reports.report(nodes=nodes))
        titles = {attrs.get("title") for attrs in found.all("i")}
        assert {node["name"] for node in nodes} <= titles

    def test_of_owners_that_no_pool_explains_are_shown(self):
        found = parsed(reports.report(nodes=[reports.node("lost", "in_transit")]))
        assert "in_transit" in found.text("h3")


class TestHandlersAndPolicy:
    def test_problems_are_shown(self):
        report = reports.report()
        report["daemonsets"][0].update(ready=1, problems=["It drifted.", "It is not ready."])
        report["policy"].update(state="edited", problem="spec.failurePolicy is 'Ignore'")
        found = parsed(report)
        assert "1 of 2" in found.text("td")
        assert "It drifted.It is not ready.spec.failurePolicy" not in found.text("p")
        for words in ("It drifted.", "It is not ready.", "spec.failurePolicy is 'Ignore'"):
            assert words in found.text("p")
        assert found.all("span", **{"class": "badge bad"})

    def test_findings_are_shown_with_their_codes(self):
        found = parsed(reports.report(findings=[finding("error", "no_handler"), finding("note", "migrations_running")]))
        assert "This is no_handler. This is migrations_running." in re.sub(r"\s+", " ", found.text("p"))
        assert "no_handler" in found.text("code")


class TestSafety:
    def hostile(self, text):
        return reports.report(
            [reports.vm(text, text, text, images={text: text}, reason=text, remedy=text, node=text, owner=text)],
            [reports.node(text, text, text, wanted=text)],
            pools=(text,),
            summary=text,
            findings=[{"severity": text, "code": text, "message": text}],
            policy={"backend": text, "name": text, "state": text, "digest": text, "problem": text},
        )

    def test_hostile_text_stays_text(self):
        rendered = page.render(self.hostile(HOSTILE), cluster=HOSTILE, at=HOSTILE)
        found = Parsed(rendered)
        assert not found.all("script")
        assert not found.all("img")
        assert "\u202e" not in rendered
        assert "\x00" not in rendered
        assert printable(HOSTILE) in found.text("h3")

    @given(st.text(max_size=40))
    @example("two_handlers")
    def test_any_text_comes_out_as_it_is(self, text):
        found = parsed(self.hostile(text))
        # The summary counts codes, and the page writes those in words.
        assert found.text("title").replace("_", " ") == printable(text).replace("_", " ")
        assert {attrs["title"].partition(":")[0] for attrs in found.all("i") if "title" in attrs} >= {
            printable(text).partition(":")[0]
        }

    def test_nothing_is_loaded_and_nothing_runs(self):
        rendered = page.render(reports.report([reports.vm()], [reports.node("n1")]))
        found = Parsed(rendered)
        assert {tag for tag, _attrs in found.elements}.isdisjoint({"script", "link", "img", "iframe", "object", "a"})
        assert not [
            name for _tag, attrs in found.elements for name in attrs if name in ("src", "href") or name[:2] == "on"
        ]
        assert not re.search(r"url\(|@import|https?:", rendered)
        policy = found.all("meta", **{"http-equiv": "Content-Security-Policy"})[0]["content"]
        assert policy == "default-src 'none'; style-src 'unsafe-inline'"


class TestSize:
    def test_stays_below_a_megabyte(self):
        long = "x" * 200
        vms = [
            reports.vm(f"{long}{number}", reason=f"{long * 5}{number}", images={f"container {long}": f"{long}{number}"})
            for number in range(1000)
        ]
        nodes = [reports.node(f"{long}{number}", "gpu", "no_handler", handlers=0) for number in range(3000)]
        findings = [finding("error", f"{long}{number}") for number in range(1000)]
        pools = [f"{number}{long}" for number in range(300)]
        report = reports.report(vms, nodes, pools=pools, findings=findings)
        rendered = page.render(report)
        assert len(rendered.encode()) < 1_000_000
        found = Parsed(rendered)
        shown = len([text for tag, text in found.texts if tag == "th" and text.startswith(long)])
        assert 0 < shown < 1000
        assert f"{1000 - shown} VMs more than this page has room for." in found.text()

    def test_a_thousand_failing_vms_have_room(self):
        vms = [reports.vm(f"vm-{number:04}", f"team-{number % 7}") for number in range(1000)]
        found = parsed(reports.report(vms))
        assert all(f"vm-{number:04}" in found.text("th") for number in (0, 500, 999))
        assert "more than this page" not in found.text()


class TestEverybodyCanReadIt:
    def test_tables_name_their_columns_and_rows(self):
        nodes = [reports.node("n1", problem="no_handler", handlers=0)]
        found = parsed(reports.report([reports.vm()], nodes))
        assert found.all("html", lang="en")
        assert all(attrs.get("scope") in ("col", "row") for attrs in found.all("th"))
        assert len(found.all("h1")) == 1

    @pytest.mark.parametrize("palette", [0, 1], ids=["light", "dark"])
    @pytest.mark.parametrize(
        ("text", "ground"),
        [
            *((text, "card") for text in ("text", "quiet", "ok", "bad", "warn")),
            *((text, "bg") for text in ("text", "quiet")),
            *((text, "soft") for text in ("text", "quiet")),
            *((tone, f"{tone}-bg") for tone in ("ok", "bad", "warn", "info")),
            *(("card", tone) for tone in ("bad", "warn")),
        ],
    )
    def test_text_has_contrast(self, palette, text, ground):
        colours = dict(
            re.findall(r"--([a-z-]+):(#[0-9a-f]+)", page.render(reports.report()).split(":root{")[palette + 1])
        )
        lighter, darker = sorted((self.luminance(colours[text]), self.luminance(colours[ground])), reverse=True)
        assert (lighter + 0.05) / (darker + 0.05) >= 4.5  # WCAG 2 AA

    @staticmethod
    def luminance(colour):
        digits = colour[1:] if len(colour) == 7 else "".join(digit * 2 for digit in colour[1:])
        parts = [int(digits[start : start + 2], 16) / 255 for start in (0, 2, 4)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
