# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The HTML pages in a real browser, on wide and narrow screens, light and dark: nothing overflows, and everything has a size.

A page runs no script. So a page around it, which has it in frames, measures it.
"""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.reports import page, run_page
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.reports.run_story import RunStory
from ansible_collections.virtpools.kubevirt.tests.unit.support import reports, run_records

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="there is no Chromium here")

SECONDS = 300
"""The browser takes some, at the lowest priority beside other tests many."""
WIDTHS = (1280, 400)
SCHEMES = {"light": 1, "dark": 0}
"""Their numbers in Chromium's settings."""
LONG = "node-0123456789.a-long-zone-of-a-data-center.example.com"

MEASURE = """
function measured(frame) {
  const page = frame.contentDocument, view = frame.contentWindow;
  const box = each => each.getBoundingClientRect();
  const name = each => each.tagName.toLowerCase() + "." + (each.getAttribute("class") || "");
  const all = selector => [...page.querySelectorAll(selector)];
  const shown = "header h1, .tiles li, section, h2, .plot, .plot svg, .plot rect, .tag:not(.roomy), .y, .times span:nth-child(odd), .names span, " +
    ".legend li, .gaps li, .gaps > li > span, .gaps > li > i > i, .gaps b, table, tbody tr, pre, .why, .findings li, .squares i, .chips i";
  return {
    width: view.innerWidth,
    overflow: page.documentElement.scrollWidth - page.documentElement.clientWidth,
    outside: all("body *").filter(each => box(each).right > view.innerWidth + 1 || box(each).left < -1).map(name),
    empty: all(shown).filter(each => box(each).width <= 0 || box(each).height <= 0).map(name),
    sections: all("h2").map(each => each.textContent),
    tags: all(".tag").filter(each => box(each).width > 0).map(each => each.textContent),
    points: all(".plot .p").length,
    rows: all(".gaps li").length,
    background: view.getComputedStyle(page.body).backgroundColor,
    meeting: all(".tag").some((a, i) => all(".tag").some((b, j) => i < j && box(a).top < box(b).bottom && box(b).top < box(a).bottom
      && box(a).left < box(b).right && box(b).left < box(a).right)),
    heights: box(all(".plot")[0] || page.body).height,
  };
}
window.onload = () => {
  const found = [...document.querySelectorAll("iframe")].map(frame => [frame.name, measured(frame)]);
  document.body.textContent = JSON.stringify(Object.fromEntries(found));
};
"""


def pages():
    def of_run(recorder, completed=True):
        return run_page.render(RunStory(recorder.record, recorder.now, completed))

    check = run_records.Recorder(check=True)
    check.ran("plan_info", **run_records.plan(60))
    named = run_records.Recorder()
    named.ran("plan_info", **run_records.plan(2))
    nodes = [run_records.node(f"{number}-{LONG}", named.now, gap) for number, gap in enumerate((9.0, 8.0, 7.0, 300.0))]
    named.ran("pool_nodes", 320, nodes=nodes)
    node = reports.node("n1", "gpu", "no_handler", handlers=0)
    return {
        "60": of_run(run_records.rollout(60, slow=(17, 40))),
        "3000": of_run(run_records.rollout(3000, batch=10, slow=(700, 2222, 2500))),
        "failed": of_run(run_records.rollout(60, failing=26), completed=False),
        "plan": of_run(check),
        "names": of_run(named),
        "verification": page.render(reports.report([reports.vm()], [node])),
    }


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What the browser measured, by color scheme and then by page and width."""
    folder = tmp_path_factory.mktemp("pages")
    frames = []
    for name, text in pages().items():
        (folder / f"{name}.html").write_text(text, "utf-8")
        frames += [
            f'<iframe name="{name} {width}" src="{name}.html" style="border:0;width:{width}px;height:900px"></iframe>'
            for width in WIDTHS
        ]
    around = folder / "around.html"
    around.write_text(f"<!DOCTYPE html><body>{''.join(frames)}<script>{MEASURE}</script></body>", "utf-8")
    return {scheme: _measured(around, folder / scheme, number) for scheme, number in SCHEMES.items()}


def _measured(around, profile, scheme):
    command = (
        BROWSER,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        f"--user-data-dir={profile}",
    )
    settings = ("--allow-file-access-from-files", f"--blink-settings=preferredColorScheme={scheme}", "--dump-dom")
    ran = subprocess.run(
        [*command, *settings, around.as_uri()], capture_output=True, timeout=SECONDS, text=True, check=False
    )
    dumped = re.search(r"<body>(\{.*\})</body>", ran.stdout, re.DOTALL)
    assert dumped, ran.stderr[-2000:]
    return json.loads(html.unescape(dumped[1]))


CASES = [(name, width, scheme) for name in pages() for width in WIDTHS for scheme in SCHEMES]


@pytest.mark.parametrize(("name", "width", "scheme"), CASES)
def test_a_page_fits_its_screen(found, name, width, scheme):
    seen = found[scheme][f"{name} {width}"]
    assert seen["width"] == width
    assert seen["overflow"] <= 0
    assert seen["outside"] == []
    assert seen["empty"] == []
    assert not seen["meeting"]


@pytest.mark.parametrize("width", WIDTHS)
def test_a_rollout_shows_all_its_sections_and_nodes(found, width):
    seen = found["light"][f"60 {width}"]
    assert seen["sections"] == ["Handovers", "Waves and gates", "Findings", "What the run was to change", "What it did"]
    assert (seen["points"], seen["rows"]) == (60, 60)
    assert seen["heights"] >= 150
    named = ["gpu-017", "gpu-040"] if width > 720 else ["gpu-017"]
    assert [tag.partition(" ")[0] for tag in seen["tags"]] == named


def test_dark_is_dark(found):
    colors = {scheme: found[scheme]["60 1280"]["background"] for scheme in SCHEMES}
    brightness = {scheme: sum(map(int, re.findall(r"\d+", color)[:3])) for scheme, color in colors.items()}
    assert brightness["dark"] < 150
    assert brightness["light"] > 600
