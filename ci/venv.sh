#!/usr/bin/env bash
# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Build or update a venv, with the collection itself linked into it, so that Ansible and pytest find it from any folder.
# make knows when to call it:
#   venv.sh run             what running the collection needs, in .venv
#   venv.sh dev             that and the tools of tests and gates, in .venv
#   venv.sh core VERSION    what the unit tests need, with another ansible-core (as in 2.18), in .build/core-VERSION
#   venv.sh ee              what the image of execution-environment.yml has, in .build/ee
set -euo pipefail

cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
kind=$1
venv=$PWD/.venv
# The tools need 3.11; of what the collection supports, ansible-core 2.16 and 2.17 also run with 3.10.
oldest="3, 11"
# Where the tools are installed already, they are updated together.
if [[ $kind == run && -e .venv/.stamp ]]; then kind=dev; fi

die() {
    printf 'venv.sh: %s\n' "$1" >&2
    exit 1
}

case $kind in
run | dev)
    requirements=(-r requirements.txt -r "requirements/$kind.txt" -c requirements/constraints.txt)
    ;;
core)
    # Without constraints.txt and run.txt: their versions fit the ansible-core and the Python of .venv, and others need others.
    core=${2:?which ansible-core, as in 2.18}
    venv=$PWD/.build/core-$core
    oldest="3, 10"
    mkdir -p .build
    cat requirements.txt requirements/test.txt > .build/core.txt
    requirements=("ansible-core==$core.*" -r .build/core.txt)
    ;;
ee)
    venv=$PWD/.build/ee
    mapfile -t ansible < <(sed -n 's/^ *package_pip: //p' execution-environment.yml)
    requirements=("${ansible[@]}" -r requirements/ee.txt -c requirements/constraints.txt)
    ;;
*) die "expected run, dev, core VERSION, or ee" ;;
esac

command -v "$python" >/dev/null || die "$python not found: install Python, or name one: make PYTHON=python3.12 ..."
"$python" -c "import sys; sys.exit(not ($oldest) <= sys.version_info < (3, 14))" ||
    die "Python ${oldest/, /.} to 3.13 is needed, $python is $("$python" --version): make PYTHON=python3.12 ..."
"$python" -c 'import ensurepip, venv' 2>/dev/null ||
    die "$python has no venv module: install it (Debian and Ubuntu: apt-get install python3-venv)."

# A venv whose interpreter went away (an upgraded system, a moved checkout) is made anew, and one of another Python than PYTHON.
build='import sys; print(sys.version, sys.base_prefix)'
if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1 || ! "$venv/bin/pip" --version >/dev/null 2>&1 ||
    [[ $("$venv/bin/python" -c "$build") != $("$python" -c "$build") ]]; then
    echo "Creating ${venv#"$PWD/"} with $("$python" --version), $("$python" -c "import sys; print(sys.base_prefix)")"
    "$python" -m venv --clear "$venv"
fi

pip=("$venv/bin/python" -m pip --disable-pip-version-check)
echo "Installing requirements into ${venv#"$PWD/"} ($kind)"
# Python compiles what it imports. pip would compile all collections of the ansible package, in half of the time of an installation.
"${pip[@]}" install --no-compile --progress-bar off "${requirements[@]}" |
    sed -Eu '/^(Requirement already satisfied|Looking in|Collecting|  Downloading|  Using cached|Installing collected)/d'
collections=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/ansible_collections

# The ansible package is half a gigabyte of collections, and we need one of them, tests three. They work with Pythons that its
# ansible-core does not.
if [[ $kind != dev ]]; then
    wheel=$(mktemp -d)
    trap 'rm -rf "$wheel"' EXIT
    "${pip[@]}" download --quiet --no-deps --ignore-requires-python --dest "$wheel" "$(sed -n 's/^\(ansible==[0-9.]*\).*/\1/p' requirements/dev.txt)"
    wanted=(kubernetes/core)
    if [[ $kind == core ]]; then wanted+=(awx/awx ansible/posix); fi
    "$venv/bin/python" - "$wheel"/ansible-*.whl "${collections%/*}" "${wanted[@]}" <<'EOF'
import sys
import zipfile

with zipfile.ZipFile(sys.argv[1]) as wheel:
    wanted = tuple(f"ansible_collections/{collection}/" for collection in sys.argv[3:])
    wheel.extractall(sys.argv[2], [name for name in wheel.namelist() if name.startswith(wanted)])
EOF
fi

mkdir -p "$collections/virtpools"
ln -sfn "$PWD" "$collections/virtpools/kubevirt"
# make compares these with the requirements.
touch "$venv/.run"
if [[ $kind == dev ]]; then touch "$venv/.stamp"; fi
