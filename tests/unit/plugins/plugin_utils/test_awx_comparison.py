# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the role writes to an AWX that has something already, and what it refuses."""

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils import option_table
from ansible_collections.virtpools.kubevirt.plugins.plugin_utils.awx_comparison import compared
from ansible_collections.virtpools.kubevirt.plugins.plugin_utils.awx_objects import BEARER_TYPE, Secrets, objects
from ansible_collections.virtpools.kubevirt.plugins.plugin_utils.awx_present import MARK, Present

BEARER, KUBECONFIG = {"host": "h"}, {"kubeconfig": "k"}
TYPES = [{"name": BEARER_TYPE, "id": 1}, {"name": "virtpools kubeconfig", "id": 2, "description": MARK}]
PRUNE, POOLS = {"variable": "virtpools_prune"}, {"variable": "virtpools_pools"}
SURVEY = {"description": "", "spec": [POOLS, PRUNE]}


def _compared(reader, credentials, **variables):
    options = option_table.resolve("awx", {f"virtpools_awx_{name}": value for name, value in variables.items()})
    found = objects(options, Secrets(reader, {}, {}, {}))
    content = {"credential_types": TYPES, "credentials": credentials}
    present = Present({"id": 7, "description": MARK}, content)
    surveys = {each["survey"]: SURVEY for each in (*found["templates"], *found["workflows"])}
    return compared(found, options, present, surveys, "")


def _credential(number, kind, name="virtpools reader"):
    return {"name": name, "id": number, "credential_type": kind, "description": MARK, "organization": 7}


@pytest.mark.parametrize(("reader", "used", "outdated"), [(BEARER, 11, 12), (KUBECONFIG, 12, 11)])
def test_a_credential_of_another_type_is_replaced(reader, used, outdated):
    """Both have one name, by which AWX would find two."""
    result = _compared(reader, [_credential(11, 1), _credential(12, 2)])
    (verify,) = (each for each in result["templates"] if each["playbook"] == "verify")
    assert verify["credentials"] == [str(used)]
    assert [each["id"] for each in result["outdated_credentials"]] == [outdated]
    assert result["refusals"] == []


@pytest.mark.parametrize(("pool_list", "spec"), [("project", [PRUNE]), ("survey", [POOLS, PRUNE])])
def test_surveys_ask_for_a_list_only_if_it_comes_from_them(pool_list, spec):
    result = _compared({}, [], pool_list=pool_list)
    asked = [each["survey"]["spec"] for each in (*result["templates"], *result["workflows"])]
    assert asked == [spec] * 12


def test_a_list_for_all_jobs_beside_those_of_surveys_is_refused():
    (refusal,) = _compared({}, [], pool_list="survey", variables={"virtpools_pools": []})["refusals"]
    assert refusal.startswith("virtpools_awx_pool_list is survey, and virtpools_awx_variables has virtpools_pools")
    assert _compared({}, [], variables={"virtpools_pools": []})["refusals"] == []
