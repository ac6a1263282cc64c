# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs modules in this process, from their arguments to the JSON that they print."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
from unittest import mock

import pytest
from ansible.module_utils import basic

MODULES = "ansible_collections.virtpools.kubevirt.plugins.modules"


def run_module(name, *, check=False, guarded=False, **arguments):
    """Run a module and return its result.

    It writes no guard unless a test asks for one; ``guard=None`` is what users have, and also the default when ``guarded``.
    """
    module = importlib.import_module(f"{MODULES}.{name}")
    if "guard" in getattr(module, "ARGUMENTS", {}):
        arguments.setdefault("guard", None if guarded else False)
    output = io.StringIO()
    with (
        contextlib.redirect_stdout(output),
        _warnings_in_the_result(),
        _arguments({**arguments, "_ansible_check_mode": check}),
        pytest.raises(SystemExit) as caught,
    ):
        module.main()
    result = json.loads(output.getvalue())
    assert bool(result.get("failed")) == bool(caught.value.code)
    assert "Traceback" not in result.get("msg", "")
    return result


def _warnings_in_the_result():
    """As where a module runs alone. Tests of a lookup load Ansible's controller into this process, which shows them itself."""
    try:
        from ansible.module_utils import _internal
    except ImportError:  # ansible-core before 2.19
        return contextlib.nullcontext()
    return mock.patch.object(_internal, "is_controller", False)


def _arguments(arguments):
    try:
        from ansible.module_utils.testing import patch_module_args
    except ImportError:  # ansible-core before 2.18
        monkeypatch = pytest.MonkeyPatch()
        monkeypatch.setattr(basic, "_ANSIBLE_ARGS", json.dumps({"ANSIBLE_MODULE_ARGS": arguments}).encode())
        return contextlib.closing(type("Undo", (), {"close": staticmethod(monkeypatch.undo)}))
    return patch_module_args(arguments)
