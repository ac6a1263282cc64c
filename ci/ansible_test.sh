#!/usr/bin/env bash
# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# ansible-test with --local in the copy made by copy.sh: ansible_test.sh sanity|units [option...]
#
# For its own virtual environments ansible-test downloads pip's installer from a project server, which is out of reach
# behind a package mirror. Where it caches that file we put a stand-in that does the same with pip's wheel from PyPI.
# The cache is under HOME, so HOME is a folder of ours: the user's own ansible-test keeps the original.
set -euo pipefail

cd "$(dirname "$0")/.."
venv=$PWD/.venv
home=$PWD/.build/ansible-test
cache=$home/.ansible/test/cache

version=$("$venv/bin/python" - <<'EOF'
import re
from pathlib import Path

import ansible_test._internal

source = Path(ansible_test._internal.__file__).with_name("python_requirements.py").read_text()
print(*re.findall(r"^ +pip='([\d.]+)',", source, re.MULTILINE))
EOF
)
[[ $version =~ ^[0-9.]+$ ]] || {
    echo "ansible_test.sh: which pip this ansible-test installs is not where it used to be: '$version'" >&2
    exit 1
}

stub=$cache/get_pip_${version//./_}.py
if [[ ! -e $stub ]]; then
    mkdir -p "$cache"
    "$venv/bin/pip" download --quiet --disable-pip-version-check --no-deps --dest "$cache" "pip==$version"
    cat > "$stub" <<'EOF'
import sys
from pathlib import Path

sys.path[:0] = [str(wheel) for wheel in Path(__file__).parent.glob("pip-*.whl")]
from pip._internal.cli.main import main

sys.exit(main(["install", *(arg for arg in sys.argv[1:] if arg not in ("--no-setuptools", "--no-wheel"))]))
EOF
fi

# A package mirror set up for the user stays in force.
mkdir -p "$home/.config"
ln -sfn "${XDG_CONFIG_HOME:-$HOME/.config}/pip" "$home/.config/pip"

# Only with the Python of .venv: whichever others are on the machine need not work.
python=$("$venv/bin/python" -c 'import sys; print("{}.{}".format(*sys.version_info))')

cd .build/collection/ansible_collections/virtpools/kubevirt
HOME=$home PATH=$venv/bin:$PATH "$venv/bin/ansible-test" "$1" --local --python "$python" --color no "${@:2}"
