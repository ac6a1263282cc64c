# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One table of options: what follows from it is up to date, and an empty option was not given, wherever it is set."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils import module_base, option_table
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.findings import InputErrors
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.options import DIGEST_OPTIONS, Options
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools.dialects import DIALECTS
from ansible_collections.virtpools.kubevirt.tests.unit.support.in_process import MODULES, run_module

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[2]
ROLES = sorted(folder.name for folder in (ROOT / "roles").iterdir())
NAMES = sorted(file.stem for file in (ROOT / "plugins/modules").glob("*.py") if file.stem != "__init__")
OF_CLUSTERS = ("cluster_info",)
"""The modules that are not about a KubeVirt object."""
FIELDS = ("type", "elements", "choices", "default", "required")


def _generator():
    spec = importlib.util.spec_from_file_location("options_generator", ROOT / "ci/options.py")
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def test_what_follows_from_the_table_is_up_to_date():
    assert sorted(_generator().outdated()) == [], "run make options"


def test_the_generator_finds_a_difference(monkeypatch):
    option = option_table.Option("probe_timeout", "int", "Seconds.", roles=("pools",), modules=("plan_info",))
    monkeypatch.setattr(option_table, "TABLE", (*option_table.TABLE, option))
    assert sorted(_generator().outdated()) == [
        "docs/variables.md",
        "plugins/modules/plan_info.py",
        "roles/pools/defaults/main.yml",
        "roles/pools/meta/argument_specs.yml",
    ]


def test_the_page_describes_what_differs_by_role():
    generator = _generator()
    page = (ROOT / generator.VARIABLES).read_text("utf-8")
    for option in option_table.TABLE:
        section = page.partition(f"### {option.variable}\n")[2].partition("###")[0]
        told = {generator._markdown(text) for role in option.roles for text in option.of_role(role).paragraphs}
        assert [text for text in told if text not in section] == [], option.name


def test_names_of_options_and_variables_are_unique():
    for names in ([option.name for option in option_table.TABLE], [option.variable for option in option_table.TABLE]):
        assert len(set(names)) == len(names)


def test_the_table_knows_the_roles_and_the_modules():
    places = {name for option in option_table.TABLE for name in option.modules} - {*option_table.FRAGMENTS}
    assert places < {*NAMES}
    assert {role for option in option_table.TABLE for role in option.roles} == {*ROLES}


def test_variants_are_of_places_that_have_the_option():
    """A variant of another place would be lost without a word."""
    for option in option_table.TABLE:
        assert {*option.role_variants} <= {*option.roles}, option.name
        assert {*option.module_variants} <= {*option.modules}, option.name


def test_every_dialect_can_be_chosen():
    (option,) = (option for option in option_table.TABLE if option.name == "pools_dialect")
    assert option.choices == tuple(DIALECTS)


def test_options_that_a_digest_covers_exist():
    assert {*DIGEST_OPTIONS} <= {option.name for option in option_table.TABLE}
    elsewhere = {"on_non_migratable", "feature_gates_present", "feature_gates_absent"}
    assert {*DIGEST_OPTIONS} - elsewhere <= {*Options.__dataclass_fields__}


# Modules ------------------------------------------------------------------------------------------------------------


def _documented(module):
    """The options of a module by its documentation and fragments of ours, without those to reach the cluster."""
    documentation = yaml.safe_load(importlib.import_module(f"{MODULES}.{module}").DOCUMENTATION)
    options = {}
    for fragment in documentation["extends_documentation_fragment"]:
        if fragment.startswith("virtpools.kubevirt.") and "attributes" not in fragment:
            name = fragment.removeprefix("virtpools.kubevirt.")
            found = importlib.import_module(f"{MODULES.removesuffix('modules')}doc_fragments.{name}")
            options.update(yaml.safe_load(found.ModuleDocFragment.DOCUMENTATION)["options"])
    return {**options, **documentation.get("options", {})}


def _spec(module):
    return {
        **(option_table.arguments("kubevirt") if module not in OF_CLUSTERS else {}),
        **getattr(importlib.import_module(f"{MODULES}.{module}"), "ARGUMENTS", {}),
    }


@pytest.mark.parametrize("module", NAMES)
def test_a_module_takes_what_its_documentation_says(module):
    def fields(options):
        return {name: {key: each.get(key) for key in FIELDS} for name, each in options.items()}

    assert fields(_documented(module)) == fields(_spec(module))


def test_an_option_of_one_module_agrees_with_the_table():
    """A module may have an option of the same name for itself, as canary_vm has; it is then of the same type."""
    table = {option.name: option for option in option_table.TABLE}
    for module in NAMES:
        for name in {*_spec(module)} & {*table}:
            ours, theirs = table[name].argument, _spec(module)[name]
            assert [ours.get(key) for key in ("type", "elements", "choices")] == [
                theirs.get(key) for key in ("type", "elements", "choices")
            ], (module, name)


def _cases():
    for module in NAMES:
        for name, option in _spec(module).items():
            yield module, (name,), option
            for inner in option.get("options", {}):
                yield module, (name, inner), option["options"][inner]


CASES = {f"{module}-{'.'.join(path)}": (module, path, option) for module, path, option in _cases()}


@pytest.mark.parametrize("empty", ["", None], ids=["empty", "null"])
@pytest.mark.parametrize(("module", "path", "option"), CASES.values(), ids=CASES)
def test_an_empty_option_of_a_module_was_not_given(monkeypatch, module, path, option, empty):
    seen = []

    def body(task):
        seen.append(task.params)
        return {}

    found = importlib.import_module(f"{MODULES}.{module}")
    monkeypatch.setattr(found, "body", body)
    needed = {name: each.get("choices", [["given"]])[0] for name, each in _spec(module).items() if each.get("required")}
    arguments = {path[0]: empty} if len(path) == 1 else {path[0]: {path[1]: empty}}
    result = run_module(module, **{**needed, **arguments})
    if option.get("required"):
        assert f"missing required arguments: {path[0]}" in result["msg"]
        return
    assert not result.get("failed"), result
    value = seen[0][path[0]] if len(path) == 1 else seen[0][path[0]][path[1]]
    assert value == option.get("default")


@pytest.mark.parametrize("empty", ["", None], ids=["empty", "null"])
@pytest.mark.parametrize("option", sorted(module_base.AUTH_ARGUMENTS))
def test_an_empty_way_to_the_cluster_was_not_given(monkeypatch, option, empty):
    seen = []
    monkeypatch.setattr(
        importlib.import_module(f"{MODULES}.pool_info"), "body", lambda task: seen.append(task.params) or {}
    )
    assert not run_module("pool_info", **{option: empty}).get("failed")
    assert seen[0][option] == module_base.AUTH_ARGUMENTS[option].get("default")


# Roles --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("role", "name", "text", "value"),
    [
        (
            "pools",
            "pools",
            "- name: gpu\n  nodeSelector: {hw: gpu}\n",
            [{"name": "gpu", "nodeSelector": {"hw": "gpu"}}],
        ),
        ("pools", "pools", " \n", None),
        ("pools", "waves", "[{per: platform}]", [{"per": "platform"}]),
        ("pools", "canary_vm", "true", True),
        ("pools", "published_plan", '{"west": {}}', {"west": {}}),
        ("pools", "gates", "/a.yml\n/b.yml\n", ["/a.yml", "/b.yml"]),
        ("pools", "prune", "true", True),
        ("pools", "soak_seconds", "60", 60),
        ("remove", "remove_pools", "gpu\nfpga", ["gpu", "fpga"]),
        ("remove", "remove_pools", "gpu, fpga,", ["gpu", "fpga"]),
        ("pools", "gates", ' ["/a.yml", "/b.yml"]', ["/a.yml", "/b.yml"]),
        ("remove", "remove_pools", '["gpu","fpga"]', ["gpu", "fpga"]),
        ("remove", "remove_pools", "all\n", "all"),
        ("verify", "fail_on", "wrong_image\nno_handler", ["wrong_image", "no_handler"]),
        ("verify", "fail_on", "any", "any"),
        ("workload_update", "update_namespaces", "a\r\nb", ["a", "b"]),
    ],
)
def test_what_a_survey_can_only_send_as_text(role, name, text, value):
    variable = next(option.variable for option in option_table.of_role(role) if option.name == name)
    assert option_table.resolve(role, {**_needed(role), variable: text})[name] == value


def test_a_file_of_variables_pasted_as_pools_is_read():
    pools = [{"name": "gpu"}]
    for text in (yaml.safe_dump(pools), yaml.safe_dump({"virtpools_pools": pools})):
        assert option_table.resolve("pools", {"virtpools_pools": text})["pools"] == pools


def test_text_that_is_not_yaml_is_refused_with_its_variable():
    with pytest.raises(InputErrors, match="virtpools_pools is text that is not valid YAML: .* line 1"):
        option_table.resolve("pools", {"virtpools_pools": "- {name: gpu"})


@pytest.mark.parametrize("role", ROLES)
def test_empty_variables_of_a_role_have_their_defaults(role):
    options = option_table.of_role(role)
    needed = {option.variable: "v1.9.1" for option in options if option.required}
    expected = {option.name: "v1.9.1" if option.required else option.default for option in options} | {
        option.name: option.default for option in option_table.TABLE if role in option.internal_roles
    }
    assert option_table.resolve(role, needed) == expected
    for empty in ("", None):
        variables = {option.variable: empty for option in options}
        assert option_table.resolve(role, {**variables, **needed}) == expected


def test_variables_have_their_type():
    given = {"virtpools_prune": "yes", "virtpools_node_timeout": "60", "virtpools_gates": "/a.yml,/b.yml", "other": 1}
    found = option_table.resolve("pools", given)
    assert (found["prune"], found["node_timeout"], found["gates"]) == (True, 60, ["/a.yml", "/b.yml"])
    assert "other" not in found


def test_all_wrong_variables_are_told_together():
    with pytest.raises(InputErrors) as caught:
        option_table.resolve(
            "pools", {"virtpools_soak_seconds": "soon", "virtpools_overlap": "both", "virtpools_node_timeout": 0}
        )
    soak, overlap, timeout = sorted(caught.value.messages)
    assert "virtpools_node_timeout is 0" in timeout
    assert "virtpools_soak_seconds" in soak
    assert "value of virtpools_overlap must be one of: error, first_wins, got: both" in overlap


@pytest.mark.parametrize(
    ("role", "variable", "value", "lowest"),
    [
        ("pools", "virtpools_gate_timeout", -1, 0),
        ("pools", "virtpools_soak_seconds", "-5", 0),
        ("pools", "virtpools_node_timeout", 0, 1),
        ("remove", "virtpools_remove_batch", 0, 1),
        ("workload_update", "virtpools_update_timeout", 0, 1),
        ("verify", "virtpools_max_listed_vms", -1, 0),
        ("awx", "virtpools_awx_verbosity", -1, 0),
        ("upgrade", "virtpools_upgrade_wait", True, 0),
    ],
)
def test_numbers_too_low_and_booleans_are_refused(role, variable, value, lowest):
    needed = {option.variable: "all" for option in option_table.of_role(role) if option.required}
    with pytest.raises(InputErrors) as caught:
        option_table.resolve(role, {**needed, variable: value})
    shown = "true" if value is True else value
    assert list(caught.value.messages) == [f"{variable} is {shown}; give a number from {lowest}."]


@pytest.mark.parametrize("role", ROLES)
def test_the_lowest_numbers_are_accepted(role):
    numbers = {option.variable: option.minimum for option in option_table.of_role(role) if option.is_number}
    needed = {option.variable: "v1.9.1" for option in option_table.of_role(role) if option.required}
    assert set(numbers.items()) <= {
        (option.variable, value)
        for option in option_table.of_role(role)
        if isinstance(value := option_table.resolve(role, {**numbers, **needed})[option.name], int)
    }


def test_numbers_of_modules_are_checked_by_the_same_table():
    spec = {**option_table.arguments("pool_nodes", "run"), "soak": {"type": "int"}, "first_batch": {"type": "float"}}
    option_table.check_numbers({"node_timeout": 1, "lease_timeout": 0, "soak": 0, "first_batch": None}, spec)
    with pytest.raises(InputErrors) as caught:
        option_table.check_numbers({"node_timeout": 0, "lease_timeout": -1, "soak": -1, "first_batch": -0.5}, spec)
    assert list(caught.value.messages) == [
        "node_timeout is 0; give a number from 1.",
        "lease_timeout is -1; give a number from 0.",
        "soak is -1; give a number from 0.",
        "first_batch is -0.5; give a number from 0.",
    ]


def test_an_override_counts_instead_of_a_variable():
    given = {"virtpools_pools_from_history": "", "virtpools_soak_seconds": 60, "virtpools_prune": True}
    found = option_table.resolve("pools", given, {"pools_from_history": "abc", "soak_seconds": ""})
    assert (found["pools_from_history"], found["soak_seconds"], found["prune"]) == ("abc", 0, True)


def test_an_option_that_only_roles_set_is_not_a_variable():
    given = {"virtpools_remove": "all", "virtpools_restore_nodes": ["n1"]}
    assert option_table.resolve("pools", given)["remove_pools"] is None
    found = option_table.resolve("pools", given, {"remove_pools": "all", "restore_nodes": ["n2"]})
    assert (found["remove_pools"], found["restore_nodes"], found["keep_history"]) == ("all", ["n2"], False)


def test_options_become_arguments_of_modules_by_action_group():
    given = {"virtpools_pools": [{"name": "gpu"}], "virtpools_stop_after_wave": "", "virtpools_kubevirt_name": None}
    arguments = option_table.module_args(option_table.resolve("pools", given))
    assert arguments["pools"]["pools"] == [{"name": "gpu"}]
    assert arguments["kubevirt"] == {}, "what is not set is not passed"
    assert "stop_after_wave" not in arguments["plan_info"]
    assert arguments["run"] == {"lease_timeout": 120}
    assert arguments["primary_exclusion"] == {"migration_timeout": 900, "settle_timeout": 1800}
    assert "settle_timeout" not in arguments["pool_nodes"], "the module has a default of its own"


@pytest.mark.parametrize(
    ("override", "sources"),
    [
        ({}, {"pools": [{"name": "gpu"}], "pools_from_cluster": False}),
        ({"pools_from_history": "abc"}, {"pools_from_history": "abc"}),
        ({"remove_pools": "all", "pools_from_history": "abc"}, {"remove_pools": "all"}),
    ],
)
def test_a_removal_or_an_earlier_list_overrides_the_pool_list(override, sources):
    names = ("pools", "pools_manifest", "pools_from_cluster", "pools_from_history", "remove_pools")
    options = option_table.resolve("pools", {"virtpools_pools": [{"name": "gpu"}]}, override)
    passed = option_table.module_args(options)["pools"]
    assert {name: passed[name] for name in names if name in passed} == sources


def test_modules_of_an_action_group_have_the_options_passed():
    groups = yaml.safe_load((ROOT / "meta/runtime.yml").read_text("utf-8"))["action_groups"]
    for group, arguments in option_table.module_args({option.name: "x" for option in option_table.TABLE}).items():
        for module in groups[group]:
            assert {*arguments} <= {*_spec(module)}, (group, module)


def test_a_role_uses_variables_only_as_its_first_task_sets_them():
    variables = {option.variable for option in option_table.TABLE if option.roles}
    for file in (ROOT / "roles").glob("*/tasks/*.yml"):
        used = [
            found
            for line in re.findall(r"\{\{.*?\}\}|when:.*", file.read_text("utf-8"))
            for found in re.findall(r"virtpools_\w+", line)
        ]
        assert {*used} & variables == set(), file
    for role in ROLES:
        first = yaml.safe_load((ROOT / "roles" / role / "tasks/main.yml").read_text("utf-8"))[0]
        assert first["virtpools.kubevirt.role_options"]["role"] == role


ANSIBLE_PLAYBOOK = shutil.which("ansible-playbook", path=os.path.dirname(sys.executable))


def _play(role, tasks_from, variables):
    task = {
        "name": role,
        "ansible.builtin.import_role": {"name": f"virtpools.kubevirt.{role}", "tasks_from": tasks_from},
    }
    python = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    return {"hosts": "localhost", "gather_facts": False, "vars": {**python, **variables}, "tasks": [task]}


def _check_variables(folder, plays, *arguments):
    """What Ansible and the first task say of the roles' variables: tagged "always", they are all that runs."""
    (folder / "plays.json").write_text(json.dumps(plays), "utf-8")
    return _run(folder, "plays.json", "--tags", "nothing_else", *arguments)


def _run(folder, *arguments):
    # ansible-test has an inventory of its own.
    environment = {name: value for name, value in os.environ.items() if name != "ANSIBLE_INVENTORY"}
    ended = subprocess.run(
        [ANSIBLE_PLAYBOOK, *arguments],
        cwd=folder,
        env={**environment, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_LOCALHOST_WARNING": "false"},
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    return ended.returncode, ended.stdout + ended.stderr


def _needed(role):
    return {option.variable: "v1.9.1" for option in option_table.of_role(role) if option.required}


def _entries():
    for role in ROLES:
        specs = yaml.safe_load((ROOT / "roles" / role / "meta/argument_specs.yml").read_text("utf-8"))
        yield from ((role, entry) for entry in specs["argument_specs"])


@pytest.mark.skipif(
    ANSIBLE_PLAYBOOK is None, reason="ansible-test's environments have no ansible-playbook of their own"
)
def test_ansible_lets_empty_variables_pass(tmp_path):
    plays = [
        _play(role, entry, {option.variable: None for option in option_table.of_role(role)} | _needed(role))
        for role, entry in _entries()
    ]
    code, output = _check_variables(tmp_path, plays)
    assert code == 0, output
    checks = 2 * len(plays) - 1  # tasks_from plan_only includes the first task, and with it the tag
    assert f"ok={checks} " in output, output
    # From a survey, which takes precedence over every other place of a variable.
    variables = {
        option.variable: ""
        for option in option_table.TABLE
        if option.roles and not option.name.startswith(("remove_pools", "upgrade_to"))
    }
    code, output = _check_variables(
        tmp_path, [_play(role, entry, _needed(role)) for role, entry in _entries()], "-e", json.dumps(variables)
    )
    assert code == 0, output


@pytest.mark.skipif(
    ANSIBLE_PLAYBOOK is None, reason="ansible-test's environments have no ansible-playbook of their own"
)
@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        ("virtpools_node_timeout", "soon", "virtpools_node_timeout"),
        ("virtpools_prune", "perhaps", "virtpools_prune"),
        ("virtpools_overlap", "both", "value of virtpools_overlap must be one of: error, first_wins"),
    ],
)
def test_a_wrong_variable_is_refused_before_anything_else(tmp_path, variable, value, told):
    code, output = _check_variables(tmp_path, [_play("pools", "main", {variable: value})])
    assert code != 0
    assert told in output
    assert "Traceback" not in output


@pytest.mark.skipif(
    ANSIBLE_PLAYBOOK is None, reason="ansible-test's environments have no ansible-playbook of their own"
)
def test_empty_variables_of_the_playbooks_were_not_given(tmp_path):
    variables = dict.fromkeys(("virtpools_hosts", "virtpools_kubeconfig", "virtpools_context"), "")
    for option in option_table.TABLE:
        if option.roles:
            required = any(option.of_role(role).required for role in option.roles)
            variables[option.variable] = "v1.9.1" if required else ""
    playbooks = sorted(file.stem for file in (ROOT / "playbooks").glob("*.yml"))
    named = [f"virtpools.kubevirt.{playbook}" for playbook in playbooks]
    for inventory in ([], ["-i", "one-cluster,"]):
        code, output = _run(tmp_path, *named, "--tags", "nothing_else", *inventory, "-e", json.dumps(variables))
        assert code == 0, output
        assert ("localhost" if not inventory else "one-cluster") + " " in output.partition("PLAY RECAP")[2]
        without_cluster = json.dumps({**variables, "virtpools_dump": "files"})
        code, output = _run(tmp_path, "virtpools.kubevirt.find_clusters", *inventory, "-e", without_cluster)
        assert code == 0, output


def test_every_playbook_first_refuses_an_ansible_that_is_too_old():
    """Else it would end in a traceback: AWX's own execution environment has Python 3.9."""
    oldest = yaml.safe_load((ROOT / "meta/runtime.yml").read_text("utf-8"))["requires_ansible"]
    checking = set()
    for file in (ROOT / "playbooks").glob("*.yml"):
        first = yaml.safe_load(file.read_text("utf-8"))[0]
        if first.get("ansible.builtin.import_playbook") == "find_clusters.yml":
            continue
        check = first["tasks"][0]
        assert oldest == ">=2.16.0"
        assert check["when"] == "ansible_version.full is version('2.16', '<')", file
        assert "needs ansible-core 2.16 or later" in check["ansible.builtin.fail"]["msg"]
        checking.add(file.stem)
    assert checking == {"find_clusters", "awx"}


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("virtpools_expectd_plan", "perhaps you mean virtpools_expected_plan"),
        ("virtpools_drian", "perhaps you mean virtpools_drain"),
        ("virtpools_soak_second", "perhaps you mean virtpools_soak_seconds"),
        ("virtpools_wave", "perhaps you mean virtpools_waves"),
        ("virtpools_xyz", "docs/variables.md lists all"),
        ("virtpool_expected_plan", "perhaps you mean virtpools_expected_plan"),
        ("vitrpools_drain", "perhaps you mean virtpools_drain"),
        ("VIRTPOOLS_DRAIN", "perhaps you mean virtpools_drain"),
        ("virtpools-drain", "perhaps you mean virtpools_drain"),
    ],
)
def test_a_variable_that_nothing_knows_is_refused(name, hint):
    given = {"virtpools_pools": [], "ansible_host": "a", "mine": 1, name: "1"}
    with pytest.raises(InputErrors) as refused:
        option_table.check_names(given)
    (message,) = refused.value.messages
    free = "a name that does not begin with virtpools_" if name.startswith("virtpools_") else "another name"
    assert message == f"There is no variable {name}: {hint}. Give a variable of your own {free}."


@pytest.mark.parametrize(
    "name", ["virtpool_size", "kvm_pools", "our_virtpools_drain", "ourvirtpools_drain", "virtualpools_drain"]
)
def test_variables_with_another_prefix_are_the_users_own(name):
    option_table.check_names({name: 1})


def test_a_file_without_its_sign_is_refused():
    with pytest.raises(InputErrors, match="-e pools.yml sets no variable: write -e @pools.yml"):
        option_table.check_names({"_raw_params": "pools.yml"})


def test_what_roles_and_playbooks_use_themselves_is_known():
    """Variables that roles hand on, that playbooks read, and the wave that gates of users find."""
    files = [*(ROOT / "roles").glob("*/tasks/*.yml"), *(ROOT / "playbooks").glob("*.yml")]
    used = {name for file in files for name in re.findall(r"(?<![\w.])virtpools_\w+", file.read_text("utf-8"))}
    assert {"virtpools_plan", "virtpools_updated_vms", "virtpools_context", "virtpools_wave"} <= used
    option_table.check_names(
        {**dict.fromkeys(used, "1"), "virtpools_wave": {"name": "first", "number": 1, "nodes": []}}
    )
