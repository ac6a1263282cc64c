#!/usr/bin/env bash
# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Build what execution-environment.yml describes, and start a playbook in it with ansible-runner, as AWX does. Where podman or
# docker runs this is an image, virtpools-ee, on top of BASE_IMAGE. Elsewhere it is a venv with the same packages, .build/ee, in
# which the whole way of a user is gone on the local Kubernetes.
set -euo pipefail

cd "$(dirname "$0")/.."

die() {
    printf 'ee.sh: %s\n' "$1" >&2
    exit 1
}

engine=
for candidate in podman docker; do
    if "$candidate" info >/dev/null 2>&1; then
        engine=$candidate
        break
    fi
done

# The playbook needs a cluster. It is enough to see that it gets as far as saying so.
runner=$PWD/.build/ee-runner
rm -rf "$runner"
mkdir -p "$runner/project" "$runner/env"
cp examples/verify.yml "$runner/project/"
echo '{"K8S_AUTH_HOST": "http://127.0.0.1:1", "K8S_AUTH_API_KEY": "none", "ANSIBLE_NOCOLOR": "1"}' > "$runner/env/envvars"

if [[ -n $engine ]]; then
    [[ -n ${BASE_IMAGE:-} ]] || die "which image is it to be built on? make ee BASE_IMAGE=..."
    .venv/bin/ansible-builder build --container-runtime "$engine" --tag virtpools-ee --context .build/ee-context \
        --build-arg "EE_BASE_IMAGE=$BASE_IMAGE"
    # As ansible-runner starts containers: with the user of this machine, to whom the folder belongs.
    user=(--user "$(id -u):0")
    [[ $engine == docker ]] || user=(--userns=keep-id)
    collection=/usr/share/ansible/collections/ansible_collections/virtpools/kubevirt
    run=("$engine" run --rm "${user[@]}" --volume "$runner:/runner:Z" --volume "$PWD:$collection:ro" virtpools-ee ansible-runner run /runner)
    what="the image virtpools-ee"
else
    echo "Neither podman nor docker runs here: building a venv with the same packages instead."
    ci/venv.sh ee
    PATH=$PWD/.build/ee/bin:$PATH
    run=(ansible-runner run "$runner")
    what="the venv .build/ee"
fi

output=$("${run[@]}" --playbook verify.yml 2>&1) && die "verify ended well without a cluster: $output"
if [[ $output != *"http://127.0.0.1:1"* || $output == *Traceback* ]]; then
    die "verify did not say that it cannot reach its cluster: $output"
fi
echo "A playbook starts in $what."

# The image would need a way to this machine's loopback; what is in it is the same.
[[ -n $engine ]] || ci/user_journey.sh .build/ee
