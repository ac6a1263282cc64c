# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""The command line: python -m kind_cluster WHAT, which makes it and prints where it is.

``images``: the file of variables with which the scenario kind takes images made from packages. ``kind``: the program.
"""

from __future__ import annotations

import functools
import json
import sys
from pathlib import Path

from local_cluster import paths
from local_cluster.errors import ClusterError
from local_cluster.go import Log

from . import images


def main() -> int:
    """Make what the command line asks for."""
    makers = {"images": _variables, "kind": images.kind}
    maker = makers.get(sys.argv[1]) if len(sys.argv) == 2 else None
    if maker is None:
        print(f"usage: python -m kind_cluster {'|'.join(makers)}", file=sys.stderr)
        return 2
    try:
        print(maker(functools.partial(print, file=sys.stderr, flush=True)))
    except ClusterError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _variables(log: Log) -> Path:
    file = paths.cache() / "kind-images.json"
    paths.write_atomically(file, json.dumps(images.make(log), indent=2))
    return file


if __name__ == "__main__":
    sys.exit(main())
