# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""Evaluate rules and expressions with Prometheus' own promtool, on series that a test writes down minute by minute."""

from __future__ import annotations

import itertools
import json
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from local_cluster import programs

MINUTES = 1600
"""How long series last: more than a day."""

Values = list[float | None]
"""The sample of each minute; None: the series is not there."""
Series = dict[str, Values]
"""Values by series, as Prometheus writes these."""


def series(name: str, **labels: str) -> str:
    """Return a series as Prometheus writes it."""
    return f"{name}{{{', '.join(f'{key}={json.dumps(value)}' for key, value in labels.items())}}}"


def metric(of_series: str) -> str:
    """Return the name of the metric that a series is of."""
    return of_series.partition("{")[0]


def over_time(*pieces: tuple[float | None, int], then: float | None) -> Values:
    """Return values that last for so many minutes each, and the one that stays."""
    values = [value for value, minutes in pieces for _minute in range(minutes)]
    return [*values, *[then] * (MINUTES - len(values))]


def counter(begin: int = 0, each_minute: float = 1, end: int = MINUTES) -> Values:
    """Return a counter that appears in a minute, and counts from 1 until another one."""
    return [None if minute < begin else 1 + each_minute * (min(minute, end) - begin) for minute in range(MINUTES)]


def written(values: Values) -> str:
    """Return values in promtool's notation.

    Prometheus notes the end of a series with a marker of its own. Without it, the last value would count for five minutes.
    """
    words, before = [], None
    for value, minutes in ((value, len(list(same))) for value, same in itertools.groupby(values)):
        if value is not None:
            words.append(f"{value}x{minutes - 1}")
        else:
            words += [f"_x{minutes}"] if before is None else ["stale", f"_x{minutes - 1}"]
        before = value
    return " ".join(words)


@dataclass(frozen=True)
class Evaluation:
    """What an expression gives at a minute: the values by labels, both as promtool's test files have them."""

    expr: str
    minute: int
    samples: Mapping[str, float] = field(default_factory=dict)


class Promtool:
    """promtool with the rules that it evaluates once a minute."""

    def __init__(self, groups: Sequence[Mapping[str, Any]]) -> None:
        """Build promtool, if the cache lacks it, and let it check the rules."""
        self._program = programs.build_one("Prometheus", programs.PROMETHEUS) / "promtool"
        self._groups = list(groups)
        assert self.problems() == ""

    def problems(self) -> str:
        """Return what promtool finds wrong with the rules."""
        return self._run("check", {"groups": self._groups})

    def differences(self, given: Series, evaluations: Sequence[Evaluation]) -> str:
        """Return what promtool says where the series do not give what is expected; nothing where they do."""
        tests = [
            {
                "expr": each.expr,
                "eval_time": f"{each.minute}m",
                "exp_samples": [{"labels": labels, "value": value} for labels, value in each.samples.items()],
            }
            for each in evaluations
        ]
        inputs = [{"series": name, "values": written(values)} for name, values in given.items()]
        unit = {"interval": "1m", "input_series": inputs, "promql_expr_test": tests}
        return self._run("test", {"groups": self._groups}, unit)

    def _run(self, command: str, rules: Mapping[str, Any], unit: Mapping[str, Any] | None = None) -> str:
        with tempfile.TemporaryDirectory() as folder:
            # JSON is YAML.
            rule_file, test_file = Path(folder) / "rules.yaml", Path(folder) / "test.yaml"
            rule_file.write_text(json.dumps(rules), "utf-8")
            tests = {"rule_files": [rule_file.name], "evaluation_interval": "1m", "tests": [unit]}
            test_file.write_text(json.dumps(tests), "utf-8")
            chosen = test_file if unit is not None else rule_file
            result = subprocess.run(
                [str(self._program), command, "rules", str(chosen)], capture_output=True, text=True, check=False
            )
        return "" if result.returncode == 0 else result.stdout + result.stderr
