# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""What is recorded of virt-launcher's arguments, and what the collection knows of them, is what the programs accept."""

from __future__ import annotations

from itertools import combinations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kubevirt import launcher_arguments
from local_cluster import launchers, programs

GATES = {argument.gate for argument in launcher_arguments._ARGUMENTS if argument.gate}


@pytest.mark.thorough  # to build a launcher takes minutes
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("version", programs.VERSIONS["Launcher"])
def test_the_record_is_what_the_program_accepts(version: str) -> None:
    assert launchers.known_to(programs.build_one("Launcher", version) / "virt-launcher") == launchers.known(version)


def test_every_version_of_kubevirt_has_a_record() -> None:
    assert launchers.VERSIONS == programs.KUBEVIRT_VERSIONS


@pytest.mark.parametrize(("older", "newer"), list(combinations(launchers.VERSIONS, 2)))
def test_the_collection_knows_every_new_argument(older: str, newer: str) -> None:
    """With all feature gates on, virt-controller passes each of them."""
    refused = launcher_arguments.refused(f"registry.example/virt-launcher:{older}", newer, {}, GATES)
    assert {argument.name for argument in refused} == launchers.known(newer) - launchers.known(older)
