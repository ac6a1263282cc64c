#!/usr/bin/env bash
# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Copy what git knows or would add to .build/collection/ansible_collections/virtpools/kubevirt. Tools that judge a
# collection by its path (ansible-test, mypy, galaxy-importer) get a real folder there: no links, no leftovers.
set -euo pipefail

cd "$(dirname "$0")/.."
root=.build/collection/ansible_collections
copy=$root/virtpools/kubevirt

mkdir -p "$copy" "$root/kubernetes"
list=$(mktemp)
trap 'rm -f "$list"' EXIT
git ls-files -z --cached --others --exclude-standard --deduplicate |
    while IFS= read -r -d '' file; do
        # A file that was deleted but not yet committed is still listed.
        if [[ -e $file ]]; then printf '%s\0' "$file"; fi
    done > "$list"
tar --create --null --files-from="$list" | tar --extract --directory="$copy"

# ansible-test asks git which files there are; without a repository of its own it would ask ours, which ignores .build.
# The same repository tells what is left over from the last copy. The folder itself stays, and with it the footing of
# whoever works in it at the moment.
git -C "$copy" init --quiet
git -C "$copy" read-tree --empty
git -C "$copy" update-index --add -z --stdin < "$list"
git -C "$copy" clean --quiet --force -d -x --exclude=/tests/output

# Documentation fragments and imports of our only dependency, from the ansible package.
ln -sfn "$(echo "$PWD"/.venv/lib/python3*/site-packages/ansible_collections/kubernetes/core)" "$root/kubernetes/core"
