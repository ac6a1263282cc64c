# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.findings import InputErrors
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.objects import canonical_json
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kubevirt import daemonsets
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders

ZONE = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
TAINT = {"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}


def derived(primary=None, **fields):
    return daemonsets.derive(primary or builders.primary(), builders.pool(**fields))


def template_of(daemonset):
    return daemonset["spec"]["template"]


def pod_spec(daemonset):
    return template_of(daemonset)["spec"]


def container(daemonset, name="virt-handler"):
    spec = pod_spec(daemonset)
    (found,) = [c for c in (*spec["containers"], *spec.get("initContainers", ())) if c["name"] == name]
    return found


class TestHypervisor:
    VALUES = st.sampled_from(["PREFERRED_VIRTTYPE", "HYPERVISOR_DEVICE", "OTHER"])

    def env(self, daemonset):
        return {each["name"]: each["value"] for each in container(daemonset, "virt-launcher").get("env", ())}

    @given(st.lists(VALUES, unique=True))
    def test_is_what_the_init_container_looks_up(self, present):
        primary = builders.primary()
        (init,) = primary["spec"]["template"]["spec"]["initContainers"]
        init["env"] = [{"name": name, "value": "stock"} for name in present]
        found = derived(primary, hypervisor="hyperv-direct", selector={"deviceNames": ["a.example/b"]})
        others = {"OTHER": "stock"} if "OTHER" in present else {}
        assert self.env(found) == {**others, "PREFERRED_VIRTTYPE": "hyperv", "HYPERVISOR_DEVICE": "mshv"}
        assert len(container(found, "virt-launcher")["env"]) == len(self.env(found))
        assert self.env(derived(primary)) == dict.fromkeys(present, "stock")
        assert container(found) == container(derived(primary))


class TestObject:
    def test_is_named_for_the_pool_in_the_namespace_of_the_primary(self):
        found = derived(name="gpu")
        assert found["metadata"]["name"] == "virt-handler-gpu"
        assert found["metadata"]["namespace"] == builders.NAMESPACE
        assert (found["apiVersion"], found["kind"]) == ("apps/v1", "DaemonSet")

    def test_is_not_taken_for_one_of_kubevirts_by_its_components(self):
        labels = derived()["metadata"]["labels"]
        assert "kubevirt.io" not in labels
        assert labels["app.kubernetes.io/managed-by"] == "virtpools"
        assert labels["virtpools.io/pool"] == "gpu"

    def test_has_none_of_the_primarys_annotations(self):
        assert set(derived()["metadata"]["annotations"]) == {names.POOL_ANNOTATION}

    def test_selects_its_own_pods_only(self):
        assert derived()["spec"]["selector"] == {
            "matchLabels": {"kubevirt.io": "virt-handler", "virtpools.io/pool": "gpu"}
        }

    def test_replaces_pods_only_when_told(self):
        assert derived()["spec"]["updateStrategy"] == {"type": "OnDelete"}

    def test_holds_nothing_the_server_sets(self):
        found = derived()
        assert set(found) == {"apiVersion", "kind", "metadata", "spec"}
        assert set(found["metadata"]) == {"name", "namespace", "labels", "annotations"}
        assert None not in list(_leaves(found))

    def test_is_not_mistaken_for_part_of_hco(self):
        primary = builders.primary()
        primary["metadata"]["labels"]["app"] = "kubevirt-hyperconverged"
        primary["spec"]["template"]["metadata"]["labels"]["app"] = "kubevirt-hyperconverged"
        found = derived(primary)
        assert "app" not in found["metadata"]["labels"]
        assert "app" not in template_of(found)["metadata"]["labels"]

    def test_another_version_label_alone_is_no_other_daemonset(self):
        """Each release of HCO changes it on every object of KubeVirt, also with the same KubeVirt (seen on the real one)."""
        later = builders.primary()
        later["metadata"]["labels"]["app.kubernetes.io/version"] = "1.20.1"
        later["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/version"] = "1.20.1"
        assert derived(later) == derived()

    def test_says_which_pool_it_was_derived_for(self):
        pool = builders.pool(
            tolerations=[TAINT], selector={"deviceNames": ["example.com/gpu"]}, activation="50%", unmatched="allow"
        )
        assert daemonsets.pool_of(daemonsets.derive(builders.primary(), pool)) == pool

    @pytest.mark.parametrize(
        "annotation", [None, "", "nonsense", "[]", '{"name": "gpu"}', '{"name": "gpu", "nodeSelector": {"a": 1}}']
    )
    def test_that_does_not_say_its_pool_is_refused(self, annotation):
        live = derived()
        live["metadata"]["annotations"] = {} if annotation is None else {names.POOL_ANNOTATION: annotation}
        with pytest.raises(InputErrors):
            daemonsets.pool_of(live)


class TestTemplate:
    def test_keeps_what_kubevirt_finds_scrapes_and_lets_through(self):
        labels = template_of(derived())["metadata"]["labels"]
        assert labels["kubevirt.io"] == "virt-handler"
        assert labels["prometheus.kubevirt.io"] == "true"
        assert labels["np.kubevirt.io/allow-access-cluster-services"] == "true"
        assert labels["virtpools.io/pool"] == "gpu"
        assert template_of(derived())["metadata"]["name"] == "virt-handler"

    def test_is_no_pod_that_virt_operator_counts_as_its_own(self):
        metadata = template_of(derived())["metadata"]
        assert "app.kubernetes.io/managed-by" not in metadata["labels"]
        assert not [key for key in metadata["annotations"] if key.startswith("kubevirt.io/install-strategy")]

    def test_keeps_the_security_context_constraint(self):
        assert template_of(derived())["metadata"]["annotations"]["openshift.io/required-scc"] == "kubevirt-handler"

    def test_forgets_that_somebody_restarted_the_primary(self):
        primary = builders.primary()
        primary["spec"]["template"]["metadata"]["annotations"]["kubectl.kubernetes.io/restartedAt"] = "now"
        assert derived(primary) == derived()

    @pytest.mark.parametrize(
        "field", ["serviceAccountName", "priorityClassName", "volumes", "hostPID", "terminationGracePeriodSeconds"]
    )
    def test_keeps_the_primarys(self, field):
        assert pod_spec(derived())[field] == pod_spec(builders.primary())[field]

    def test_runs_where_the_pool_owns_the_node(self):
        assert pod_spec(derived())["nodeSelector"] == {"kubernetes.io/os": "linux", "virtpools.io/pool": "gpu"}

    def test_has_the_handler_image_and_else_the_primarys_container(self):
        before, found = container(builders.primary()), container(derived(virtHandlerImage=builders.GPU_IMAGE))
        assert {key for key in before if found[key] != before[key]} == {"image", "readinessProbe"}
        assert found["image"] == builders.GPU_IMAGE
        assert found.keys() - before.keys() == {"startupProbe"}

    def test_has_the_stock_images_where_the_pool_names_none(self):
        assert container(derived(), "virt-launcher")["image"] == builders.LAUNCHER_IMAGE

    def test_all_launcher_containers_have_the_pools_launcher_image(self):
        primary = builders.primary()
        holder = {**container(primary, "virt-launcher"), "name": "virt-launcher-image-holder"}
        pod_spec(primary)["containers"].append(holder)
        found = derived(
            primary, virtLauncherImage=builders.GPU_LAUNCHER_IMAGE, selector={"deviceNames": ["example.com/gpu"]}
        )
        for name in ("virt-launcher", "virt-launcher-image-holder"):
            assert container(found, name)["image"] == builders.GPU_LAUNCHER_IMAGE
        assert container(found)["image"] == f"{builders.HANDLER_IMAGE}-gpu"

    def test_the_launcher_image_goes_to_no_other_container(self):
        primary = builders.primary()
        helper = {"name": "pr-helper", "image": "registry.example/pr-helper:v1.9.0"}
        pod_spec(primary)["containers"].append(helper)
        found = derived(
            primary, virtLauncherImage=builders.GPU_LAUNCHER_IMAGE, selector={"deviceNames": ["example.com/gpu"]}
        )
        assert container(found, "pr-helper") == helper

    @pytest.mark.parametrize("secret", [True, False])
    def test_holds_kubevirts_launcher_image_too_if_it_needs_a_secret(self, secret):
        """Pods that attach hotplugged disks run it, without a secret."""
        primary = builders.primary()
        holder = {**container(primary, "virt-launcher"), "name": "virt-launcher-image-holder"}
        pod_spec(primary)["containers"].append(holder)
        if secret:
            pod_spec(primary)["imagePullSecrets"] = [{"name": "stock"}]
        found = derived(
            primary, virtLauncherImage=builders.GPU_LAUNCHER_IMAGE, selector={"deviceNames": ["example.com/gpu"]}
        )
        held = {each["name"]: each["image"] for each in pod_spec(found)["containers"] if "holder" in each["name"]}
        assert held == {
            "virt-launcher-image-holder": builders.GPU_LAUNCHER_IMAGE,
            **({"virt-launcher-image-holder-stock": builders.LAUNCHER_IMAGE} if secret else {}),
        }

    def test_works_without_init_containers(self):
        primary = builders.primary()
        del pod_spec(primary)["initContainers"]
        assert "initContainers" not in pod_spec(derived(primary))

    def test_has_the_tolerations_of_primary_and_pool_each_once(self):
        critical = {"key": "CriticalAddonsOnly", "operator": "Exists"}
        assert pod_spec(derived(tolerations=[TAINT, critical]))["tolerations"] == [critical, TAINT]

    def test_pulls_with_the_secrets_of_the_pool_too(self):
        primary = builders.primary()
        pod_spec(primary)["imagePullSecrets"] = [{"name": "stock"}]
        found = derived(primary, imagePullSecrets=[{"name": "gpu"}, {"name": "stock"}])
        assert pod_spec(found)["imagePullSecrets"] == [{"name": "stock"}, {"name": "gpu"}]

    def test_resources_of_the_pool_replace_only_the_handlers(self):
        found = derived(resources={"requests": {"cpu": "1"}})
        assert container(found)["resources"] == {"requests": {"cpu": "1"}}
        assert container(found, "virt-launcher")["resources"] == {}


class TestProbes:
    def test_find_the_handler_ready_as_soon_as_it_is(self):
        of_primary = container(builders.primary())
        handler = container(derived())
        probe = handler["startupProbe"]
        assert (probe["periodSeconds"], probe["httpGet"]) == (1, of_primary["readinessProbe"]["httpGet"])
        assert "initialDelaySeconds" not in probe
        assert of_primary["readinessProbe"] == {**handler["readinessProbe"], "initialDelaySeconds": 15}

    def test_restart_a_handler_that_never_answers_when_kubevirt_does(self):
        handler = container(derived())
        of_primary = container(builders.primary())["livenessProbe"]
        assert handler["livenessProbe"] == of_primary
        seconds = of_primary["initialDelaySeconds"] + of_primary["failureThreshold"] * of_primary["periodSeconds"]
        assert handler["startupProbe"]["failureThreshold"] == seconds == 150

    @pytest.mark.parametrize("missing", ["livenessProbe", "readinessProbe"])
    def test_are_kubevirts_where_it_has_others(self, missing):
        primary = builders.primary()
        of_primary = container(primary)
        del of_primary[missing]
        assert container(derived(primary, virtHandlerImage=of_primary["image"])) == of_primary

    def test_are_kubevirts_where_it_has_a_startup_probe(self):
        primary = builders.primary()
        of_primary = container(primary)
        of_primary["startupProbe"] = {**of_primary["readinessProbe"], "periodSeconds": 3}
        assert container(derived(primary, virtHandlerImage=of_primary["image"])) == of_primary


class TestExclusion:
    def test_does_not_reach_the_pool(self):
        assert "affinity" not in pod_spec(derived())

    @pytest.mark.parametrize("terms", [(), (ZONE,), (ZONE, {"matchFields": [{"key": "metadata.name"}]})])
    def test_in_the_primary_makes_no_difference(self, terms):
        with_it = derived(builders.primary(excluded=True, terms=terms))
        assert with_it == derived(builders.primary(excluded=False, terms=terms))

    def test_leaves_the_terms_of_the_users_placement(self):
        assert pod_spec(derived(builders.primary(terms=(ZONE,))))["affinity"] == builders.affinity(ZONE)


class TestDigest:
    def digest(self, *args, **fields):
        return daemonsets.template_of(derived(*args, **fields))

    def test_is_the_same_for_the_same_template(self):
        assert self.digest() == self.digest()
        assert self.digest(virtHandlerImage=f"{builders.GPU_IMAGE}2") != self.digest()

    def test_does_not_depend_on_what_is_no_part_of_the_template(self):
        primary = builders.primary(generation=7)
        primary["metadata"]["resourceVersion"] = "99"
        primary["status"] = {}
        assert self.digest(primary) == self.digest()
        with_selector = self.digest(selector={"deviceNames": ["example.com/gpu"]})
        assert with_selector == self.digest(), "handlers need not restart when only VM matching changes"

    def test_differs_between_pools(self):
        image = {"virtHandlerImage": builders.GPU_IMAGE}
        assert self.digest(name="a", **image) != self.digest(name="b", **image)

    def test_there_is_none_for_the_primary(self):
        assert daemonsets.template_of(builders.primary()) is None


class TestPure:
    def test_the_primary_is_not_modified(self):
        primary = builders.primary(terms=(ZONE,))
        before = copy.deepcopy(primary)
        found = derived(primary, tolerations=[TAINT], resources={"limits": {"cpu": "1"}})
        _ruin(found)
        assert primary == before

    @given(st.randoms(use_true_random=False))
    def test_same_bytes_whatever_the_order_of_keys(self, random):
        primary = builders.primary(terms=(ZONE,))
        assert canonical_json(derived(_shuffled(primary, random))) == canonical_json(derived(primary))

    def test_is_plain_json(self):
        found = derived(tolerations=[TAINT], resources={"limits": {"cpu": "1"}}, imagePullSecrets=[{"name": "a"}])
        assert json.loads(json.dumps(found)) == found


class TestDrift:
    def live(self, **fields):
        return builders.pool_daemonset(builders.pool(**fields))

    def paths(self, live, **fields):
        return [difference.path for difference in daemonsets.drift(derived(**fields), live)]

    def test_there_is_none_in_what_was_just_applied(self):
        assert self.paths(self.live()) == []

    def test_nulls_and_what_others_noted_down_are_none(self):
        live = self.live()
        live["metadata"]["labels"]["team"] = "a"
        live["metadata"]["annotations"]["deprecated.daemonset.template.generation"] = "3"
        live["spec"]["template"]["metadata"]["creationTimestamp"] = None
        live["spec"]["revisionHistoryLimit"] = 10
        assert self.paths(live) == []

    @pytest.mark.parametrize(
        ("managers", "drifted"),
        [
            ({"virtpools": "virt-handler"}, False),
            ({"virtpools": "virt-handler", "kubectl-set": "virt-handler"}, True),
            ({"kubectl-set": "virt-handler"}, True),
            ({"virtpools": "other", "kubectl-set": "other"}, True),
            ({}, True),
        ],
        ids=["by admission", "by both", "by somebody", "of another container", "nobody says"],
    )
    def test_an_image_is_drift_unless_admission_rewrote_it(self, managers, drifted):
        live = self.live()
        container(live)["image"] = "mirror.example/virt-handler:v1.9.0-gpu"
        owned = {
            manager: {
                "f:spec": {"f:template": {"f:spec": {"f:containers": {f'k:{{"name":"{name}"}}': {"f:image": {}}}}}}
            }
            for manager, name in managers.items()
        }
        live["metadata"]["managedFields"] = [
            {"manager": manager, "fieldsV1": fields} for manager, fields in owned.items()
        ]
        assert self.paths(live) == ["spec.template.spec.containers[virt-handler].image"] * drifted
        assert "spec.template.spec.containers[virt-handler].image" in self.paths(
            live, virtHandlerImage="new.example/a:v1.9.0"
        )

    def test_an_image_that_admission_rewrote_is_none_beside_another(self):
        primary = builders.primary()
        pod_spec(primary)["containers"].append({"name": "pr-helper", "image": "registry.example/pr-helper:v1.9.0"})
        live = builders.pool_daemonset(builders.pool(), primary)
        container(live)["image"] = "mirror.example/virt-handler:v1.9.0-gpu"
        fields = {f'k:{{"name":"{name}"}}': {"f:image": {}} for name in ("virt-handler", "pr-helper")}
        owned = {"f:spec": {"f:template": {"f:spec": {"f:containers": fields}}}}
        live["metadata"]["managedFields"] = [{"manager": names.FIELD_MANAGER, "fieldsV1": owned}]
        assert daemonsets.drift(derived(primary), live) == ()

    def test_a_null_in_a_container_is_none(self):
        live = self.live()
        container(live)["lifecycle"] = None
        assert self.paths(live) == []

    def test_an_added_env_variable(self):
        live = self.live()
        container(live)["env"].append({"name": "DEBUG", "value": "1"})
        assert self.paths(live) == ["spec.template.spec.containers[virt-handler].env[DEBUG]"]

    def test_a_changed_toleration(self):
        live = self.live(tolerations=[TAINT])
        pod_spec(live)["tolerations"][1]["effect"] = "NoExecute"
        assert self.paths(live, tolerations=[TAINT]) == ["spec.template.spec.tolerations[1].effect"]

    @pytest.mark.parametrize("label", [names.MANAGED_BY_LABEL, names.OWNER_LABEL])
    def test_a_removed_label(self, label):
        live = self.live()
        del live["metadata"]["labels"][label]
        assert self.paths(live) == [f"metadata.labels[{label}]"]

    def test_all_labels_and_annotations_removed(self):
        live = self.live()
        del live["metadata"]["labels"], live["metadata"]["annotations"]
        assert f"metadata.labels[{names.OWNER_LABEL}]" in self.paths(live)

    def test_another_update_strategy(self):
        live = self.live()
        live["spec"]["updateStrategy"] = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}}
        assert "spec.updateStrategy.type" in self.paths(live)

    def test_another_image(self):
        paths = self.paths(self.live(), virtHandlerImage=builders.GPU_IMAGE + "2")
        assert "spec.template.spec.containers[virt-handler].image" in paths
        assert f"spec.template.metadata.annotations[{names.TEMPLATE_ANNOTATION}]" in paths


class TestImages:
    def test_are_those_of_all_containers(self):
        assert daemonsets.images_of(builders.primary()) == {
            "virt-handler": builders.HANDLER_IMAGE,
            "virt-launcher": builders.LAUNCHER_IMAGE,
        }
        assert daemonsets.handler_image(derived(virtHandlerImage=builders.GPU_IMAGE)) == builders.GPU_IMAGE


def _leaves(value):
    if isinstance(value, dict):
        for item in value.values():
            yield from _leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    else:
        yield value


def _ruin(value):
    """Change everything in place, which shows parts that two objects share."""
    for item in list(value.values()) if isinstance(value, dict) else list(value):
        if isinstance(item, (dict, list)):
            _ruin(item)
    value.clear()


def _shuffled(value, random):
    if isinstance(value, dict):
        keys = list(value)
        random.shuffle(keys)
        return {key: _shuffled(value[key], random) for key in keys}
    if isinstance(value, list):
        return [_shuffled(item, random) for item in value]
    return value
