#!/usr/bin/env bash
# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Print the Python that make uses unless it gets PYTHON: the first python3 on PATH that can make .venv and was built with
# optimizations, else just python3, and venv.sh says what is wrong with it.
#
# pyenv builds without optimizations unless it is told otherwise. Such a Python takes a fifth to a half longer, and most of the
# work of tests and gates is Python's.
set -euo pipefail

while IFS= read -r python; do
    if "$python" - 2>/dev/null <<'EOF_PYTHON'
import ensurepip, sys, sysconfig, venv

# Distributions optimize, but their sysconfig does not tell.
optimized = sys.base_prefix == "/usr" or "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or "")
sys.exit(not (optimized and (3, 11) <= sys.version_info < (3, 14)))
EOF_PYTHON
    then
        echo "$python"
        exit
    fi
done < <(type -aP python3)
echo python3
