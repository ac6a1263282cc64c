#!/usr/bin/env bash
# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Build the collection from the copy made by copy.sh and import it as Galaxy and Automation Hub do. A warning counts.
set -euo pipefail

cd "$(dirname "$0")/.."
work=$PWD/.build/galaxy
bin=$PWD/.venv/bin

rm -rf "$work"
mkdir -p "$work/tmp"
"$bin/ansible-galaxy" collection build --output-path "$work" .build/collection/ansible_collections/virtpools/kubevirt

cd "$work"  # it leaves its result there
# make lint-ansible runs the same ansible-lint, with the same settings.
PATH=$bin:$PATH \
    GALAXY_IMPORTER_RUN_ANSIBLE_LINT=false \
    GALAXY_IMPORTER_CHECK_REQUIRED_TAGS=true \
    GALAXY_IMPORTER_ANSIBLE_LOCAL_TMP=$work/tmp \
    "$bin/python" -m galaxy_importer.main virtpools-kubevirt-*.tar.gz | tee importer.log

if grep -E '^(WARNING|ERROR|CRITICAL)' importer.log || [[ ! -s importer_result.json ]]; then
    echo "import_as_galaxy.sh: the importer has objections, see above" >&2
    exit 1
fi
