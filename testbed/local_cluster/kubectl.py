# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""What every cluster of the test bed does with kubectl."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any


class WithKubectl(ABC):
    """A cluster that runs kubectl as its administrator."""

    @abstractmethod
    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl and return its output."""

    def apply(self, what: dict[str, Any] | Path) -> None:
        """Create or change an object, or those of a file.

        Without kubectl's own validation, which reads the whole OpenAPI document: a new API server with KubeVirt's kinds needs more
        than two seconds to make it. The API server checks objects all the same, but for unknown fields.
        """
        file, stdin = (str(what), None) if isinstance(what, Path) else ("-", json.dumps(what))
        self.kubectl("apply", "--validate=false", "-f", file, stdin=stdin)
