# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sphinx: one site from the Markdown pages (MyST) and the documentation of modules and roles (antsibull-docs)."""

from __future__ import annotations

import os
import typing as t
from pathlib import Path, PurePosixPath

import yaml
from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.transforms import SphinxTransform

if t.TYPE_CHECKING:
    from sphinx.application import Sphinx

REPOSITORY = Path(__file__).resolve().parents[2]
GALAXY = yaml.safe_load((REPOSITORY / "galaxy.yml").read_text("utf-8"))

# The side bar. A page that no list names, or that is not there, is an error.
CONTENTS = {
    "Use it": [
        "docs/pools", "docs/pool-images", "docs/launcher-images", "docs/rollout", "docs/verify", "docs/operations", "docs/operator-mode", "docs/alerts",
        "docs/awx", "docs/clusters", "docs/gitops", "docs/openshift", "docs/air-gapped", "docs/security",
    ],
    "Look it up": [
        "docs/variables", "docs/findings", "docs/glossary", "reference/playbooks", "Modules and roles <reference/index>", "CHANGELOG",
    ],
    "Work on it": [
        "CONTRIBUTING", "docs/architecture", "docs/design/README", "docs/developing", "docs/testing", "testbed/README",
        "testbed/agent/README",
        "benchmarks/README", "benchmarks/history", "benchmarks/test-runs", "docs/releasing",
    ],
    "Design": [
        "docs/design/constant-exclusion", "docs/design/pool-daemonsets", "docs/design/handover", "docs/design/epochs", "docs/design/launcher-policy",
        "docs/design/aie-config-map", "docs/design/guard", "docs/design/stateless-planning", "docs/design/lease",
        "docs/design/http-client", "docs/design/modules-in-worker", "docs/design/output", "docs/design/operator-wait",
        "docs/design/upgrades",
    ],
}  # fmt: skip

project = f"{GALAXY['namespace']}.{GALAXY['name']}"
author = project_copyright = GALAXY["authors"][0]
release = version = GALAXY["version"]

extensions = ["myst_parser", "sphinx_antsibull_ext"]
root_doc = "README"
myst_heading_anchors = 6
myst_enable_extensions = ["html_image"]

# sphinx-build --nitpicky: every reference must have a target. These lead to Ansible's own site, and we build without a network.
nitpick_ignore_regex = [
    ("std:ref", r"ansible_configuration_settings|common_return_values|ansible_collections\.(?!virtpools\.).*")
]

html_theme = "alabaster"
html_theme_options = {"description": GALAXY["description"], "page_width": "80rem", "sidebar_width": "16rem"}
html_copy_source = False
html_show_sphinx = False


class LinksIntoTheRepository(SphinxTransform):
    """Links to files that are no pages lead to the repository, if the file is there; else Sphinx warns of them."""

    default_priority = 500

    def apply(self, **_options: t.Any) -> None:
        folder = PurePosixPath(self.env.docname).parent
        for node in list(self.document.findall(pending_xref)):
            target = os.path.normpath(folder / node["reftarget"])
            if node["reftype"] == "myst" and node["refdomain"] is None and (REPOSITORY / target).exists():
                link = nodes.reference(
                    "", "", *node.children[0].children, refuri=f"{GALAXY['repository']}/blob/main/{target}"
                )
                node.replace_self(link)


def add_contents(_app: Sphinx, docname: str, source: list[str]) -> None:
    """The start page lists all pages; GitHub shows it without."""
    if docname == root_doc:
        for caption, pages in CONTENTS.items():
            source[0] += "\n\n" + "\n".join(["```{toctree}", ":hidden:", f":caption: {caption}", "", *pages, "```"])


def copy_start_page(app: Sphinx, exception: Exception | None) -> None:
    """A browser looks for index.html."""
    if exception is None:
        Path(app.outdir, "index.html").write_bytes(Path(app.outdir, f"{root_doc}.html").read_bytes())


def setup(app: Sphinx) -> None:
    app.add_transform(LinksIntoTheRepository)
    app.connect("source-read", add_contents)
    app.connect("build-finished", copy_start_page)
