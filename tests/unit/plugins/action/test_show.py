# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What people see of lines that the action show displays, with ansible-playbook and ansible-runner themselves."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

BIN = Path(sys.executable).parent
LINES = [
    "NODE   OWNER",
    "n1, n2 gpu: 'x' \"y\"",
    "  + DaemonSet kubevirt/virt-handler-gpu",
    "WARNING skew: It differs.",
]
LONG = "word " * 60


def play(lines=LINES, hosts="localhost"):
    """A play that shows lines."""
    return [
        {
            "hosts": hosts,
            "gather_facts": False,
            "vars": {"ansible_connection": "local", "ansible_python_interpreter": sys.executable},
            "tasks": [{"name": "Show it", "virtpools.kubevirt.show": {"lines": lines}}],
        }
    ]


def environment(**settings):
    ours = {"ANSIBLE_LOCALHOST_WARNING": "false", "ANSIBLE_INVENTORY_UNPARSED_WARNING": "false"}
    kept = {key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_") and key != "NO_COLOR"}
    return {**kept, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", **ours, **settings}


def run(tmp_path, *arguments, plays=None, **settings):
    """Run a playbook without a terminal; return its standard output and its standard error."""
    (tmp_path / "play.yml").write_text(yaml.safe_dump(plays or play()))
    command = [str(BIN / "ansible-playbook"), "play.yml", *arguments]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment(**settings), capture_output=True, text=True, check=True
    )
    return done.stdout, done.stderr


def on_a_terminal(tmp_path, columns, **settings):
    """Run a playbook on a pseudo-terminal of this width; return what it prints there."""
    (tmp_path / "play.yml").write_text(yaml.safe_dump(play([*LINES, LONG])))
    command = [str(BIN / "ansible-playbook"), "play.yml"]
    ours, theirs = pty.openpty()
    env = environment(COLUMNS=str(columns), TERM="xterm", **settings)
    with subprocess.Popen(command, cwd=tmp_path, env=env, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        printed = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # how Linux tells that the other side is closed
                break
            if not part:
                break
            printed += part
    os.close(ours)
    assert process.returncode == 0, printed
    return printed.decode().replace("\r\n", "\n")


def test_lines_are_shown_as_they_are(tmp_path):
    out, _err = run(tmp_path)
    assert "\n".join(LINES) in out


def test_one_text_is_shown_as_it_is(tmp_path):
    out, _err = run(tmp_path, plays=play("one, two: 'three'\nfour"))
    assert "\none, two: 'three'\nfour\n" in out


def test_with_several_hosts_each_line_names_its_host(tmp_path):
    out, _err = run(tmp_path, "-i", "east,west", plays=play(hosts="all"))
    shown = [line for line in out.splitlines() if line.startswith("[")]
    assert sorted(shown) == sorted(f"[{host}] {line}" for host in ("east", "west") for line in LINES)


@pytest.mark.parametrize("columns", [80, 160])
def test_on_a_terminal_changes_have_a_color_and_lines_stay_whole(tmp_path, columns):
    printed = on_a_terminal(tmp_path, columns)
    assert "\x1b[0;32m  + DaemonSet kubevirt/virt-handler-gpu\x1b[0m" in printed
    assert f"\n{LONG}\n" in printed


@pytest.mark.parametrize("setting", ["NO_COLOR", "ANSIBLE_NOCOLOR"])
def test_without_colors_there_are_none(tmp_path, setting):
    printed = on_a_terminal(tmp_path, 80, **{setting: "1"})
    assert "\x1b[" not in printed
    assert "\n".join(LINES) in printed


def test_json_stays_json(tmp_path):
    out, err = run(tmp_path, ANSIBLE_STDOUT_CALLBACK="ansible.posix.json")
    assert json.loads(out)["stats"]["localhost"]["failures"] == 0
    assert "\n".join(LINES) in err


def test_a_log_file_has_the_same_lines(tmp_path):
    run(tmp_path, ANSIBLE_LOG_PATH=str(tmp_path / "log"))
    log = (tmp_path / "log").read_text()
    assert all(line in log for line in LINES)


def test_no_log_hides_them(tmp_path):
    plays = play()
    plays[0]["tasks"][0]["no_log"] = True
    out, err = run(tmp_path, "-vvv", plays=plays)
    assert "virt-handler-gpu" not in out + err


def test_ansible_runner_has_them_in_its_events_and_its_output(tmp_path):
    """AWX shows the events of ansible-runner."""
    (tmp_path / "project").mkdir()
    (tmp_path / "project/play.yml").write_text(yaml.safe_dump(play()))
    command = [str(BIN / "ansible-runner"), "run", str(tmp_path), "-p", "play.yml", "-i", "1"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True)
    events = [json.loads(path.read_text()) for path in sorted((tmp_path / "artifacts/1/job_events").glob("*.json"))]
    shown = "\n".join(event["stdout"].replace("\r\n", "\n") for event in events)
    for whole in (shown, done.stdout.replace("\r\n", "\n")):
        assert all(f"{line}" in whole for line in LINES)
    assert any(event["event"] == "verbose" and "NODE   OWNER" in event["stdout"] for event in events)
