# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""The command line: python -m kind_cluster images, which prints the file of variables for the scenario kind."""

from __future__ import annotations

import functools
import json
import sys

from local_cluster import paths
from local_cluster.errors import ClusterError

from . import images


def main() -> int:
    """Make the images."""
    if sys.argv[1:] != ["images"]:
        print("usage: python -m kind_cluster images", file=sys.stderr)
        return 2
    log = functools.partial(print, file=sys.stderr, flush=True)
    try:
        variables = images.make(log)
    except ClusterError as error:
        print(error, file=sys.stderr)
        return 1
    file = paths.cache() / "kind-images.json"
    paths.write_atomically(file, json.dumps(variables, indent=2))
    print(file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
