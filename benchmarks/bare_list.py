# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""The least that a check of all VMs must do: list VMIs and launcher pods in pages, and parse them.

Python does not look for unreachable cycles meanwhile: by default that takes longer than parsing, and none of the objects is in one.

Usage: bare_list.py KUBECONFIG
"""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path

from endpoint import LISTS, Endpoint


def main() -> int:
    """Print how many objects there are."""
    gc.disable()
    endpoint = Endpoint.of(Path(sys.argv[1]))
    connection = endpoint.connect()
    counts = []
    for path in LISTS.values():
        count, token = 0, ""
        while token is not None:
            connection.request("GET", f"{path}&continue={token}" if token else path, headers=endpoint.headers)
            page = json.loads(connection.getresponse().read())
            count += len(page["items"])
            token = page["metadata"].get("continue")
        counts.append(count)
    print(json.dumps(counts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
