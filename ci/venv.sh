#!/usr/bin/env bash
# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Build or update .venv: the pinned tools, and the collection itself, linked into site-packages so that Ansible and
# pytest find it from any folder. Called by make, which knows when.
set -euo pipefail

cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
venv=$PWD/.venv

die() {
    printf 'make venv: %s\n' "$1" >&2
    exit 1
}

command -v "$python" >/dev/null || die "$python not found: install Python 3.11, 3.12 or 3.13, or name one: make venv PYTHON=..."
"$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' ||
    die "ansible-core 2.19 runs on Python 3.11 to 3.13, $python is $("$python" --version): make venv PYTHON=python3.12"
"$python" -c 'import ensurepip, venv' 2>/dev/null ||
    die "$python has no venv module: install it (Debian and Ubuntu: apt-get install python3-venv)."

# A venv whose interpreter went away (an upgraded system, a moved checkout) is made anew.
if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1 || ! "$venv/bin/pip" --version >/dev/null 2>&1; then
    echo "Creating .venv with $("$python" --version)"
    "$python" -m venv --clear "$venv"
fi

"$venv/bin/pip" install --disable-pip-version-check --progress-bar off \
    -r requirements.txt -r requirements/dev.txt -c requirements/constraints.txt |
    sed -u '/^Requirement already satisfied/d'

site_packages=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
mkdir -p "$site_packages/ansible_collections/virtpools"
ln -sfn "$PWD" "$site_packages/ansible_collections/virtpools/kubevirt"
