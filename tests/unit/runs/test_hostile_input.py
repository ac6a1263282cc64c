# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whatever comes in, a module succeeds or fails with a sentence: no error that nobody expected, and nothing written.

Each test spoils valid input at one or several random places. VIRTPOOLS_TEST_INPUTS=<number> makes as many inputs in each test,
VIRTPOOLS_TEST_SEED=<number> the same as in an earlier run.
"""

from __future__ import annotations

import copy
import json
import os
import random

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import names
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders, vms
from ansible_collections.virtpools.kubevirt.tests.unit.support.fake_cluster import World

INPUTS = int(os.environ.get("VIRTPOOLS_TEST_INPUTS", "60"))
pytestmark = pytest.mark.timeout(600 + INPUTS)
HOSTILE = (
    *(
        None,
        True,
        0,
        -1,
        1.5,
        2**70,
        "",
        " ",
        "x" * 5000,
        "\x00",
        "\n",
        "../..",
        "{{ 7 * 7 }}",
        "é🚀",
        "NaN",
        "100%",
        "0x10",
    ),
    *(
        "In",
        "all",
        "primary",
        "in_transit",
        "sha256:?",
        "zlib:AAAA",
        "2026-13-45T99:99:99Z",
        "kubevirt.io/v1",
        "[",
        "{",
    ),
    *([], {}, [None], [[]], [{}], {"a": None}, {"": ""}, {"name": 7}, ["a", "a"]),
)
TEXTS = tuple(each for each in HOSTILE if isinstance(each, str))
POOLS = [
    {
        "name": "gpu",
        "nodeSelector": {"hw": "gpu"},
        "nodeExpressions": [{"key": "rack", "operator": "In", "values": ["1", "2"]}],
        "virtHandlerImage": builders.GPU_IMAGE,
        "virtLauncherImage": vms.IMAGE,
        "selector": {
            "deviceNames": [vms.DEVICE],
            "vmLabels": {"matchLabels": {"class": "gpu"}},
            "namespaces": ["plain"],
            "matchNodeSelector": True,
        },
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "imagePullSecrets": [{"name": "registry"}],
        "resources": {"requests": {"cpu": "100m"}},
        "unmatched": "keep_off",
        "activation": "50%",
    },
    {"name": "rt", "nodeSelector": {"hw": "rt"}, "virtHandlerImage": f"{builders.HANDLER_IMAGE}-rt"},
]
OPTIONS = {
    "overlap": "first_wins",
    "prune": True,
    "max_unavailable": "30%",
    "waves": [{"name": "canary", "match": {"role": "canary"}, "per": "zone"}, {"nodes": ["gpu-0"]}],
    "canary_vm": {"metadata": {"labels": {"a": "b"}}, "spec": {"domain": {"devices": {}}}},
    "outdated": "correct",
    "drain": "migrate",
    "guard": True,
    "expected_plan": "000000000000-000000000000-000000000000-000000000000-000000000000",
}
MANIFEST = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "VirtualMachine",
    "metadata": {"name": "new", "namespace": "plain", "labels": {"a": "b"}},
    "spec": {
        "runStrategy": "Always",
        "instancetype": {"kind": "VirtualMachineInstancetype", "name": "big"},
        "template": {
            "metadata": {"labels": {"class": "gpu"}},
            "spec": {
                "nodeSelector": {"hw": "gpu"},
                "tolerations": [{"key": "gpu", "operator": "Exists"}],
                "domain": {
                    "cpu": {
                        "cores": 2,
                        "model": "host-passthrough",
                        "features": [{"name": "vmx", "policy": "require"}],
                    },
                    "memory": {"guest": "64Mi"},
                    "devices": {"gpus": [{"name": "g", "deviceName": vms.DEVICE}], "hostDevices": []},
                },
                "volumes": [{"name": "root", "containerDisk": {"image": "disk"}}],
                "networks": [{"name": "net", "multus": {"networkName": "plain/net"}}],
            },
        },
    },
}


def objects():
    """Everything in a cluster with a pool, its policy, and a VM that runs."""
    nodes = vms.nodes()
    sets = [builders.primary(desired=1), builders.pool_daemonset(vms.gpu(), desired=2)]
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "plain", "labels": {"a": "b"}}}
    vm = {**copy.deepcopy(MANIFEST), "metadata": {"name": "vm", "namespace": "plain"}}
    del vm["spec"]["instancetype"]
    running, pod = {**vms.vmi(), "spec": vm["spec"]["template"]["spec"]}, vms.launcher()
    running["metadata"]["ownerReferences"] = [{"kind": "VirtualMachine", "name": "vm", "controller": True}]
    pod["metadata"]["labels"]["kubevirt.io/created-by"] = running["metadata"]["uid"]
    migration = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstanceMigration",
        "metadata": {"name": "m", "namespace": "plain", "uid": "m"},
        "spec": {"vmiName": "vm"},
        "status": {"phase": "Running", "migrationState": {"sourceNode": "gpu-0", "targetNode": "gpu-1"}},
    }
    handlers = builders.handlers_of(nodes, sets)
    return [
        builders.excluding_kubevirt(),
        *sets,
        *nodes,
        *handlers,
        *vms.policy(),
        namespace,
        vm,
        running,
        pod,
        migration,
    ]


@pytest.fixture
def rng():
    seed = int(os.environ.get("VIRTPOOLS_TEST_SEED", "0")) or random.SystemRandom().randrange(10**6)
    print(f"VIRTPOOLS_TEST_SEED={seed}")
    return random.Random(seed)


def places(value, path=()):
    """The path of everything inside a value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from places(inner, (*path, key))


def spoiled(rng, value):
    """A copy that is wrong at one to three places: another value, nothing there, or a key that does not belong."""
    result = copy.deepcopy(value)
    for _change in range(rng.randint(1, 3)):
        *way, last = rng.choice([*places(result)] or [(0,)])
        inner = result
        for key in way:
            inner = inner[key]
        how = rng.choice(("replace", "replace", "remove", "add"))
        if how == "remove":
            del inner[last]
        elif how == "add" and isinstance(inner, dict):
            inner[rng.choice(TEXTS)] = copy.deepcopy(rng.choice(HOSTILE))
        else:
            inner[last] = copy.deepcopy(rng.choice(HOSTILE))
        if not result:
            return result
    return result


def judged(run, name, given, **arguments):
    """Run a module; it may refuse what is given, in one sentence that somebody wrote."""
    try:
        found = run(name, **arguments)
    except Exception as error:
        raise AssertionError(f"{name} raised {error!r} with {json.dumps(given)}") from error
    message = found.get("msg", "")
    assert "does not expect" not in message, f"{message}\n{json.dumps(given)}"
    assert bool(message) == bool(found.get("failed"))
    assert run.world.writes == []


def test_pools(run, rng):
    for _input in range(INPUTS):
        run.world = World(*objects())
        pools = spoiled(rng, POOLS)
        judged(run, rng.choice(("plan_info", "verification_info")), pools, pools=pools)


def test_options(run, rng):
    for _input in range(INPUTS):
        run.world = World(*objects())
        options = {key: value for key, value in spoiled(rng, OPTIONS).items() if key in OPTIONS}
        judged(run, "plan_info", options, pools=POOLS, **options)


def test_dumps(run, rng, tmp_path):
    for _input in range(INPUTS):
        given = spoiled(rng, objects())
        (tmp_path / "all.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": given}), "utf-8")
        name, more = rng.choice(
            (
                ("plan_info", {"pools": POOLS}),
                ("verification_info", {}),
                ("explanation_info", {"vm": "plain/vm"}),
                ("upgrade_info", {"version": "v1.9.1", "pools": POOLS}),
            )
        )
        judged(run, name, given, dump=str(tmp_path), **more)


def test_manifests(run, rng, tmp_path):
    for _input in range(INPUTS):
        run.world = World(*objects())
        given = spoiled(rng, MANIFEST)
        (tmp_path / "vm.json").write_text(json.dumps(given), "utf-8")
        judged(run, "explanation_info", given, manifest=str(tmp_path / "vm.json"))


KEYS = (
    *(
        names.OWNER_LABEL,
        names.FORMER_OWNER_ANNOTATION,
        names.TEMPLATE_ANNOTATION,
        names.POOL_ANNOTATION,
        names.HEARTBEAT_ANNOTATION,
    ),
    *(
        names.MAPPING_ANNOTATION,
        names.POLICY_ANNOTATION,
        names.CANARY_LABEL,
        names.MANAGED_BY_LABEL,
        names.SCHEDULABLE_LABEL,
    ),
    *(names.MIGRATION_LABEL, "kubevirt.io/created-by", "vm.kubevirt.io/name", "app"),
)


def test_labels_and_annotations_in_the_cluster(run, rng):
    """The API server holds their values to be strings, and no more."""
    for _input in range(INPUTS):
        given = objects()
        history = {
            "entries": rng.choice(TEXTS),
            "goingTo": rng.choice(TEXTS),
            "openWaves": rng.choice((*TEXTS, '[{"name": 1}]')),
        }
        labels = {names.MANAGED_BY_LABEL: names.MANAGED_BY}
        metadata = {"name": names.HISTORY, "namespace": builders.NAMESPACE, "labels": labels}
        given.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": history})
        for _change in range(rng.randint(1, 3)):
            metadata = rng.choice(given)["metadata"]
            metadata.setdefault(rng.choice(("labels", "annotations")), {})[rng.choice(KEYS)] = rng.choice(TEXTS)
        run.world = World(*given)
        name, more = rng.choice(
            (
                ("pool_info", {}),
                ("plan_info", {"pools": POOLS}),
                ("verification_info", {}),
                ("explanation_info", {"vm": "plain/vm"}),
                ("pool_history", {}),
                ("plan_info", {"remove_pools": "all"}),
            )
        )
        judged(run, name, given, **more)
