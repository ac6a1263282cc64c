# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which back end a cluster gets and why, which objects it has, and how live ones are read and compared."""

from __future__ import annotations

import copy
import dataclasses
from typing import get_args

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.admission import (
    launcher_backends,
    launcher_policy,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.admission.launcher_backends import choose
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.objects import ABSENT
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.observed.snapshot import Admission
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.observed.webhook import KEY
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms.mapping import Table
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders
from ansible_collections.virtpools.kubevirt.tests.unit.support.aie_webhook import webhook_of

V1, V1BETA1, V1ALPHA1 = kinds.MUTATING_ADMISSION_POLICIES
POLICY, BINDING = "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"
KYVERNO, CONFIG_MAP = "MutatingPolicy", "ConfigMap"

GPU = {"virtLauncherImage": builders.GPU_LAUNCHER_IMAGE, "selector": {"deviceNames": ["nvidia.com/A100"]}}
TABLE = Table.for_pools([builders.pool("gpu", **GPU)])
OTHER = Table.for_pools([builders.pool("gpu", **GPU), builders.pool("rt", unmatched="keep_off")])
DEVICES_ONLY = Table.for_pools([builders.pool("gpu", unmatched="allow", **GPU)])
NOTHING = Table.for_pools([builders.pool("handlers-only")])


def config_map(text=""):
    metadata = {"name": names.AIE_CONFIG, "namespace": builders.NAMESPACE, "resourceVersion": "7"}
    return {"apiVersion": "v1", "kind": CONFIG_MAP, "metadata": metadata, "data": {KEY: text}}


def admission(*objects, policy=None, kyverno=False, version=None, assumed=False):
    found = {(obj["kind"], obj["metadata"]["name"]): obj for obj in objects}
    webhook = found.get((CONFIG_MAP, names.AIE_CONFIG))
    return Admission(
        webhook=webhook and webhook_of(webhook),
        policy_kind=policy,
        kyverno=kyverno,
        version=version,
        objects=found,
        assumed=assumed,
    )


def written(backend, table, server):
    """The objects of a back end as a server stores them."""
    stored = []
    for _kind, obj in launcher_backends.desired(backend, table, builders.NAMESPACE, server):
        live = copy.deepcopy(obj)
        live["metadata"].update(resourceVersion="9", uid="u", generation=1)
        stored.append(live)
    return stored


def drift_of(live, table=TABLE, backend="admission_policy", **server):
    there = admission(*live, **(server or {"policy": V1}))
    return launcher_backends.drift(launcher_backends.desired(backend, table, builders.NAMESPACE, there), there)


# The choice ---------------------------------------------------------------------------------------------------------


def test_auto_takes_the_api_servers_own_policies_first():
    choice = choose("auto", admission(config_map(), policy=V1BETA1, kyverno=True), TABLE)
    assert (choice.backend, choice.findings) == ("admission_policy", ())
    assert str(choice) == (
        "Launcher back end admission_policy: The API server has MutatingAdmissionPolicy "
        "(admissionregistration.k8s.io/v1beta1), which needs nothing else."
    )


def test_auto_takes_kyverno_last_and_reports_its_limits():
    choice = choose("auto", admission(config_map(), kyverno=True), TABLE)
    assert choice.backend == "kyverno"
    assert "Kyverno is installed" in choice.reason
    assert builders.codes(choice.findings) == ["launcher_backend_kyverno"]
    assert builders.codes(choice.findings, "error") == []


def test_auto_never_takes_the_webhook():
    choice = choose("auto", admission(config_map()), DEVICES_ONLY)
    assert builders.codes(choice.findings) == ["launcher_backend_missing"]


def test_a_dump_does_not_say_what_is_served():
    choice = choose("auto", admission(policy=V1, assumed=True), TABLE)
    assert choice.backend == "admission_policy"
    assert "A dump" in choice.reason


@pytest.mark.parametrize("wanted", get_args(launcher_backends.BackendOption))
def test_a_table_that_asks_for_nothing_needs_nothing(wanted):
    choice = choose(wanted, admission(version="v1.30.1"), NOTHING)
    assert (choice.backend, choice.findings) == ("none", ())


@pytest.mark.parametrize(
    ("version", "enable"),
    [
        ("v1.36.3", "stop turning off admissionregistration.k8s.io/v1 with --runtime-config"),
        ("v1.35.4", "--runtime-config=admissionregistration.k8s.io/v1beta1=true, upgrade to 1.36"),
        ("v1.34.1+k3s1", "--runtime-config=admissionregistration.k8s.io/v1beta1=true, upgrade to 1.36"),
        ("v1.33.0-eks-1a2b3c", "--runtime-config=admissionregistration.k8s.io/v1alpha1=true, upgrade to 1.36"),
        ("v1.32.9", "--feature-gates=MutatingAdmissionPolicy=true and"),
        ("v1.31.2", "not served; upgrade to 1.36 or later, or install Kyverno 1.18"),
        (None, "use Kubernetes 1.36 or later"),
    ],
)
@pytest.mark.parametrize("wanted", ["auto", "admission_policy"])
def test_a_server_without_any_is_told_what_to_enable(wanted, version, enable):
    choice = choose(wanted, admission(version=version), TABLE)
    assert builders.codes(choice.findings, "error") == ["launcher_backend_missing"]
    message = builders.message(choice.findings, "launcher_backend_missing")
    assert enable in message
    assert (version or "This cluster") in message
    assert message.endswith("or install Kyverno 1.18 or later.")


def test_what_was_asked_for_must_be_there():
    for wanted, words in (("kyverno", "install Kyverno 1.18"), ("aie_webhook", "install kubevirt-aie-webhook")):
        choice = choose(wanted, admission(policy=V1), DEVICES_ONLY)
        assert choice.backend == wanted
        assert words in builders.message(choice.findings, "launcher_backend_missing")
    choice = choose("admission_policy", admission(kyverno=True, version="v1.35.0"), TABLE)
    assert builders.codes(choice.findings) == ["launcher_backend_missing"]


@pytest.mark.parametrize("wanted", ["admission_policy", "kyverno", "aie_webhook"])
def test_what_was_asked_for_is_taken_over_what_auto_would_take(wanted):
    choice = choose(wanted, admission(config_map(), policy=V1, kyverno=True), DEVICES_ONLY)
    assert choice.backend == wanted
    assert choice.reason == f"virtpools_launcher_backend is {wanted}."
    assert builders.codes(choice.findings, "error") == []


def test_the_webhook_is_refused_where_it_would_put_vms_wrong():
    theirs = "rules: [{name: theirs, image: i, selector: {deviceNames: [nvidia.com/A100]}}]"
    choice = choose("aie_webhook", admission(config_map(theirs)), TABLE)
    assert builders.codes(choice.findings, "error") == ["aie_rules_foreign", "aie_cannot_keep_off"]


def test_none_is_taken_at_its_word_with_what_it_means():
    choice = choose("none", admission(policy=V1), OTHER)
    assert choice.backend == "none"
    assert builders.codes(choice.findings, "error") == []
    message = builders.message(choice.findings, "launcher_backend_none")
    assert "VMs of gpu start with KubeVirt's own launcher image on any node" in message
    assert "nothing keeps other VMs off the nodes of gpu, rt" in message
    keeping = Table.for_pools([builders.pool("rt", unmatched="keep_off")])
    message = builders.message(choose("none", admission(), keeping).findings, "launcher_backend_none")
    assert "so nothing keeps other VMs off the nodes of rt;" in message


def registered(*hooks, text="rules:\n", **server):
    """A cluster with kubevirt-aie-webhook's ConfigMap and these webhooks, but not its Deployment."""
    live = config_map(text)
    configuration = {
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "aie"},
        "webhooks": [{"name": "virt-launcher-mutator.kubevirt.io", "clientConfig": hook} for hook in hooks],
    }
    made = admission(live, **server)
    return dataclasses.replace(made, webhook=webhook_of(live, [configuration]))


SERVICE = {"name": "aie", "namespace": builders.NAMESPACE}


@pytest.mark.parametrize(
    ("hooks", "code", "words"),
    [
        ((), "launcher_backend_missing", "no MutatingWebhookConfiguration calls kubevirt-aie-webhook"),
        (({"service": SERVICE},), "aie_webhook_down", "MutatingWebhookConfiguration aie has no caBundle"),
        (({"service": SERVICE, "caBundle": "Y2E="},), "aie_webhook_down", "there is no Deployment kubevirt/aie"),
        (
            ({"service": {**SERVICE, "namespace": "a"}},),
            "aie_webhook_down",
            "its Service a/aie is in another namespace",
        ),
    ],
)
def test_a_webhook_that_cannot_work_is_refused(hooks, code, words):
    choice = choose("aie_webhook", registered(*hooks), DEVICES_ONLY)
    assert builders.codes(choice.findings, "error") == [code]
    assert words in builders.message(choice.findings, code)
    beside = choose("auto", registered(*hooks, policy=V1), DEVICES_ONLY)
    assert builders.codes(beside.findings) == (["aie_webhook_down"] if hooks else [])
    assert builders.codes(beside.findings, "error") == []


def test_a_webhook_at_a_url_needs_no_deployment():
    assert builders.codes(choose("aie_webhook", registered({"url": "https://a"}), DEVICES_ONLY).findings, "error") == []


def test_rules_beside_another_back_end_are_named():
    def found(rule, *hooks):
        server = registered(*hooks, text=f"rules: [{rule}]", policy=V1)
        return builders.codes(choose("auto", server, DEVICES_ONLY).findings)

    url = {"url": "https://a"}
    assert found("{name: r, image: i, selector: {deviceNames: [nvidia.com/A100]}}", url) == [
        "aie_rule_meets_pool",
        "aie_rules_beside",
    ]
    assert found("{name: r, image: i, selector: {deviceNames: [b]}}", url) == ["aie_rules_beside"]
    assert found("{name: r, image: i, selector: {deviceNames: [b]}}") == [], "nobody calls the webhook"
    assert found("5", url) == ["aie_config_unreadable"]


# The objects --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [V1, V1BETA1, V1ALPHA1])
def test_admission_policies_are_written_in_the_served_version(version):
    made = launcher_backends.desired("admission_policy", TABLE, builders.NAMESPACE, admission(policy=version))
    assert made == launcher_policy.derive(TABLE, builders.NAMESPACE, version)
    assert [kind.api_version for kind, _obj in made] == [version.api_version] * 2


def test_each_back_end_has_its_objects():
    server = admission(config_map(), policy=V1, kyverno=True)
    made = {
        backend: [(kind.name, obj["metadata"]["name"]) for kind, obj in objects]
        for backend in ("admission_policy", "kyverno", "aie_webhook", "none")
        for objects in [launcher_backends.desired(backend, TABLE, builders.NAMESPACE, server)]
    }
    assert made == {
        "admission_policy": [(POLICY, names.POLICY), (BINDING, names.POLICY)],
        "kyverno": [(KYVERNO, names.POLICY)],
        "aie_webhook": [(CONFIG_MAP, names.AIE_CONFIG)],
        "none": [],
    }
    for backend in made:
        assert launcher_backends.desired(backend, NOTHING, builders.NAMESPACE, server) == []


def test_candidates_have_their_own_names_except_for_the_webhook():
    server = admission(config_map(), policy=V1, kyverno=True)
    made = {
        backend: [obj["metadata"]["name"] for _kind, obj in objects]
        for backend in ("admission_policy", "kyverno", "aie_webhook")
        for objects in [launcher_backends.desired(backend, TABLE, builders.NAMESPACE, server, names.CANDIDATE_POLICY)]
    }
    assert made == {
        "admission_policy": [names.CANDIDATE_POLICY] * 2,
        "kyverno": [names.CANDIDATE_POLICY],
        "aie_webhook": [],
    }


@pytest.mark.parametrize("backend", ["admission_policy", "kyverno", "aie_webhook"])
def test_the_table_in_effect_is_read_back_from_what_is_live(backend):
    server = admission(config_map(), policy=V1, kyverno=True)
    assert launcher_backends.recorded_table(server) is None
    live = admission(*written(backend, OTHER, server))
    assert launcher_backends.recorded_table(live) == OTHER
    assert launcher_backends.rules_object(live)["kind"] in (POLICY, KYVERNO, CONFIG_MAP)


def test_of_two_back_ends_the_api_servers_counts():
    server = admission(config_map(), policy=V1, kyverno=True)
    live = admission(*written("kyverno", TABLE, server), *written("admission_policy", OTHER, server))
    assert launcher_backends.recorded_table(live) == OTHER


def test_foreign_or_unreadable_objects_record_nothing():
    policy, binding = written("admission_policy", TABLE, admission(policy=V1))
    foreign = copy.deepcopy(policy)
    del foreign["metadata"]["labels"]
    assert launcher_backends.recorded_table(admission(foreign, binding)) is None
    for text in ("{}", "zlib:AAAA", "no JSON", ""):
        edited = copy.deepcopy(policy)
        edited["metadata"]["annotations"][names.MAPPING_ANNOTATION] = text
        assert launcher_backends.recorded_table(admission(edited, binding)) is None
        assert launcher_backends.rules_object(admission(edited, binding)) == edited
    del edited["metadata"]["annotations"]
    assert launcher_backends.recorded_table(admission(edited, binding)) is None


@pytest.mark.parametrize("backend", ["admission_policy", "kyverno", "aie_webhook"])
def test_what_was_written_does_not_drift(backend):
    server = admission(config_map(), policy=V1, kyverno=True)
    live = written(backend, TABLE, server)
    for obj in live:
        if "matchConstraints" in obj.get("spec", {}):  # as servers write them, whether or not they were given
            obj["spec"]["matchConstraints"].update(namespaceSelector={}, excludeResourceRules=[])
        obj["metadata"].setdefault("labels", {})["theirs"] = "1"
        obj["metadata"].setdefault("annotations", {})["theirs"] = "1"
    assert drift_of(live, backend=backend, policy=V1, kyverno=True) == ()


def test_every_edit_of_ours_is_drift():
    policy, binding = written("admission_policy", TABLE, admission(policy=V1))

    def after(edit):
        edited = copy.deepcopy(policy)
        edit(edited)
        return [found.path for found in drift_of([edited, binding])]

    title = f"{POLICY} {names.POLICY}"
    assert after(lambda p: p["spec"].update(failurePolicy="Ignore")) == [f"{title} spec.failurePolicy"]
    added = {"name": "never", "expression": "false"}
    assert after(lambda p: p["spec"]["matchConditions"].append(added)) == [f"{title} spec.matchConditions[never]"]
    assert after(lambda p: p["spec"]["variables"].reverse()) == [f"{title} spec.variables"], "their order matters"
    assert after(lambda p: p["metadata"]["annotations"].clear()) == [
        f"{title} metadata.annotations[{names.MAPPING_ANNOTATION}]",
        f"{title} metadata.annotations[{names.POLICY_ANNOTATION}]",
    ]
    assert after(lambda p: p["metadata"].pop("labels")) == [f"{title} metadata.labels[{names.MANAGED_BY_LABEL}]"]


def test_what_is_missing_or_of_another_table_is_drift():
    policy, binding = written("admission_policy", TABLE, admission(policy=V1))
    assert [(found.path, found.live) for found in drift_of([policy])] == [(f"{BINDING} {names.POLICY}", ABSENT)]
    assert len(drift_of([])) == 2
    paths = [found.path for found in drift_of([policy, binding], DEVICES_ONLY)]
    assert f"{POLICY} {names.POLICY} metadata.annotations[{names.POLICY_ANNOTATION}]" in paths
    other = [*written("aie_webhook", TABLE, admission(config_map()))]
    other[0]["data"][KEY] = "rules: []"
    (found,) = drift_of(other, backend="aie_webhook", policy=V1)
    assert found.path == f"{CONFIG_MAP} {names.AIE_CONFIG} data[{KEY}]"


def test_a_change_of_the_back_end_leaves_nothing_of_ours_behind():
    server = admission(config_map(), policy=V1, kyverno=True)
    policy, binding = written("admission_policy", TABLE, server)
    (kyverno,), (webhook,) = written("kyverno", TABLE, server), written("aie_webhook", TABLE, server)
    live = admission(policy, binding, kyverno, webhook)
    left = {
        backend: [change.before["kind"] for change in launcher_backends.removals_of_other_backends(backend, live)]
        for backend in get_args(launcher_backends.Backend)
    }
    assert left == {
        "admission_policy": [KYVERNO, CONFIG_MAP],
        "kyverno": [BINDING, POLICY, CONFIG_MAP],
        "aie_webhook": [BINDING, POLICY, KYVERNO],
        "none": [BINDING, POLICY, KYVERNO, CONFIG_MAP],
    }
    changes = launcher_backends.removals_of_other_backends("none", live)
    assert [change.after and change.after["data"] for change in changes] == [None, None, None, {KEY: ""}]
    del kyverno["metadata"]["labels"]
    theirs = admission(kyverno, config_map("rules: [{name: theirs}]"))
    assert launcher_backends.removals_of_other_backends("none", theirs) == [], "what is not ours stays"
