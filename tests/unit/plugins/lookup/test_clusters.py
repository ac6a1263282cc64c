# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""On which hosts the playbooks work, and which inventories they refuse."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from ansible.errors import AnsibleError
from ansible.parsing.dataloader import DataLoader

from ansible_collections.virtpools.kubevirt.plugins.lookup.clusters import DEFAULT_INVENTORY, LookupModule

ROOT = Path(__file__).parents[4]
ANSIBLE_PLAYBOOK = Path(sys.executable).parent / "ansible-playbook"
TWO = {"all": ["east", "west"], "ungrouped": ["east", "west"]}


def clusters(source=DEFAULT_INVENTORY, asked="", groups=None, limit=None):
    """The pattern for an inventory of one source."""
    variables = {"ansible_inventory_sources": [str(source)], "groups": groups or {"all": [], "ungrouped": []}}
    if limit:
        variables["ansible_limit"] = limit
    (pattern,) = LookupModule(loader=DataLoader()).run([asked], variables)
    return pattern


def refusal(*arguments, **options):
    with pytest.raises(AnsibleError) as refused:
        clusters(*arguments, **options)
    return str(refused.value)


@pytest.fixture
def inventory(tmp_path):
    """An inventory that exists."""
    file = tmp_path / "clusters.ini"
    file.write_text("east\nwest\n")
    return file


@pytest.fixture(params=["warning", "error"], autouse=True)
def host_pattern_mismatch(request, monkeypatch):
    """What Ansible does with a pattern that matches nothing, by a setting of the user's."""
    monkeypatch.setattr("ansible.constants.HOST_PATTERN_MISMATCH", request.param)


def test_without_an_inventory_localhost_is_the_cluster():
    assert clusters() == "localhost"


def test_every_host_of_an_inventory_is_a_cluster(inventory):
    assert clusters(inventory, groups=TWO) == "all"


@pytest.mark.parametrize("asked", ["west", ["west"], "all:!east", "localhost"])
def test_hosts_that_are_asked_for_are_the_clusters(inventory, asked):
    assert clusters(inventory, asked, TWO, limit="west" if asked != "localhost" else None) == asked


@pytest.mark.parametrize("source", ["east,west", "east,", "@controller_inventory"])
def test_a_source_that_is_not_a_file_may_have_the_hosts(source):
    assert clusters(source, groups=TWO) == "all"


@pytest.mark.parametrize("groups", [None, TWO], ids=["alone", "beside another one"])
@pytest.mark.parametrize("limit", [None, "east"])
def test_an_inventory_that_does_not_exist_is_refused(tmp_path, groups, limit):
    misspelt = tmp_path / "inventry.yml"
    assert f"The inventory {misspelt} does not exist: correct -i" in refusal(misspelt, groups=groups, limit=limit)


def test_an_inventory_without_hosts_is_refused(inventory):
    assert refusal(inventory) == (
        f"The inventory {inventory} has no host that matches all: add a host for every cluster, or correct virtpools_hosts."
    )


def test_a_pattern_without_hosts_is_refused(inventory):
    assert "has no host that matches wset: add a host" in refusal(inventory, "wset", TWO)


@pytest.mark.parametrize(("asked", "limit"), [("west", "east"), ("", "localhost"), ("all", "!all")])
def test_a_limit_that_leaves_no_host_is_refused(inventory, asked, limit):
    message = refusal(inventory, asked, TWO, limit)
    assert f"has no host that matches {asked or 'all'} and the limit {limit}: correct virtpools_hosts" in message


def test_a_limit_without_an_inventory_is_refused():
    assert refusal(limit="east").startswith("The limit east leaves out localhost, on which this playbook runs:")


def test_every_playbook_asks_the_lookup():
    plays, asked = [], set()
    for file in (ROOT / "playbooks").glob("*.yml"):
        of_file = [play for play in yaml.safe_load(file.read_text("utf-8")) if "hosts" in play]
        asked |= {(file.stem == "awx", play["hosts"]) for play in of_file}
        plays += of_file if file.stem != "awx" else ()
    lookup = "{{ lookup('virtpools.kubevirt.clusters', %s) }}"
    assert asked == {(False, lookup % "virtpools_hosts | default('')"), (True, lookup % "'localhost'")}
    on_controller = yaml.safe_load((ROOT / "examples/inventory/group_vars/all.yml").read_text("utf-8"))
    here = {name: value for name, value in on_controller.items() if name.startswith("ansible_")}
    assert [play["name"] for play in plays if play["vars"] != here] == []


@pytest.mark.skipif(not ANSIBLE_PLAYBOOK.exists(), reason="ansible-test has no ansible-playbook of its own")
class TestWithAnsible:
    def play(self, folder, *arguments):
        """What the playbook that the others import first does, without a cluster."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
        command = [ANSIBLE_PLAYBOOK, "virtpools.kubevirt.find_clusters", "-e", "virtpools_dump=none", *arguments]
        ended = subprocess.run(command, cwd=folder, env=kept, capture_output=True, text=True, check=False, timeout=900)
        return ended.returncode, " ".join((ended.stdout + ended.stderr).split())

    def test_a_misspelt_inventory_fails(self, inventory):
        code, output = self.play(inventory.parent, "-i", "inventry.ini")
        assert code != 0
        assert f"The inventory {inventory.parent / 'inventry.ini'} does not exist" in output
        assert "PLAY [" not in output

    def test_a_limit_beside_the_hosts_fails(self, inventory):
        code, output = self.play(inventory.parent, "-i", inventory.name, "-e", "virtpools_hosts=west", "-l", "east")
        assert code != 0
        assert "has no host that matches west and the limit east" in output

    def test_a_limit_skips_no_check(self, inventory):
        code, output = self.play(inventory.parent, "-i", inventory.name, "-l", "west")
        assert code == 0, output
        assert "no hosts matched" not in output
