#!/usr/bin/env bash
# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Run the full user journey on the local Kubernetes, with the ansible-playbook of another venv: user_journey.sh .build/core-2.16
set -euo pipefail

cd "$(dirname "$0")/.."
venv=$PWD/${1:?which venv, as in .build/core-2.16}
# Tests read what a run did from a callback, which that venv lacks.
posix=$(.venv/bin/python -c 'import ansible_collections.ansible.posix as posix; print(posix.__path__[0])')
mkdir -p "$venv/callback/ansible_collections/ansible"
ln -sfn "$posix" "$venv/callback/ansible_collections/ansible/posix"
VIRTPOOLS_TEST_VENV=$venv .venv/bin/pytest tests/control_plane/runs/test_user_journey.py
