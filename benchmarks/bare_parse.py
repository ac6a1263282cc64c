# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""The least that a check of a dump must do: parse its files.

As in ``bare_list.py``, Python does not look for unreachable cycles meanwhile.

Usage: bare_parse.py DIRECTORY
"""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path


def main() -> int:
    """Print how many objects there are."""
    gc.disable()
    found = [json.loads(path.read_text("utf-8")) for path in sorted(Path(sys.argv[1]).iterdir())]
    print(sum(len(each["items"]) for each in found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
