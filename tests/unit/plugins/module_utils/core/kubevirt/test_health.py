# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kubevirt import exclusion
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kubevirt.health import (
    Health,
    hco_findings,
    health_findings,
    last_part,
    primary_is_new,
    primary_rolled_out,
    rank,
    release_of,
    retagged,
    same_version,
    skew,
    tagged,
    unsettled_by_us,
    version_of,
    waits_only_for_unready_nodes,
)


def kubevirt(*, excluded=False, observed=7, conditions=None, metadata=None, **status):
    """A healthy KubeVirt, except for what is given; bad conditions are given as type=message."""
    bad = conditions or {}
    good = {"Available": "True", "Progressing": "False", "Degraded": "False", "Created": "True"}
    other = {"True": "False", "False": "True"}
    item = {
        "kind": "KubeVirt",
        "metadata": {"name": "kubevirt", "namespace": "kv", "generation": 7, **(metadata or {})},
        "spec": {},
        "status": {
            "phase": "Deployed",
            "observedGeneration": observed,
            "conditions": [
                {"type": kind, "status": other[status] if kind in bad else status, "message": bad.get(kind, "ready")}
                for kind, status in good.items()
            ],
            **{
                f"{which}{part}": value
                for which in ("observed", "target")
                for part, value in (("KubeVirtVersion", "v1.9.0"), ("KubeVirtRegistry", "q"), ("DeploymentID", "d0"))
            },
            **status,
        },
    }
    return exclusion.with_exclusion(item, None).after if excluded else item


def ignored():
    """A KubeVirt beside which there is another one."""
    item = kubevirt()
    message = "There is an active KubeVirt deployment"
    stated = {"type": "Synchronized", "status": "False", "reason": "ExistingDeployment", "message": message}
    item["status"]["conditions"].append(stated)
    return item


def rolling_out(**status):
    """A KubeVirt that replaces its deployment by another one of the same version, with the conditions of virt-operator."""
    item = kubevirt(targetDeploymentID="d1", **status)
    for each in item["status"]["conditions"]:
        message = "Transitioning from previous version v1.9.0 with registry q to target version v1.9.0 using registry q"
        each.update(status="True", reason="UpdateInProgress", message=message)
    return item


def primary(*, excluded=False, desired=5, deployment="d0", version="v1.9.0", generation=7, **status):
    spec = {"affinity": _affinity()} if excluded else {}
    annotations = {
        "kubevirt.io/install-strategy-version": version,
        "kubevirt.io/install-strategy-identifier": deployment,
        "kubevirt.io/generation": str(generation),
    }
    return {
        "metadata": {"name": "virt-handler", "generation": 3, "annotations": annotations},
        "spec": {"template": {"spec": spec}},
        "status": {
            "observedGeneration": 3,
            "desiredNumberScheduled": desired,
            "updatedNumberScheduled": desired,
            "numberReady": desired,
            **status,
        },
    }


def _affinity():
    term = {"matchExpressions": [exclusion.REQUIREMENT]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


SETTLING = {"Available": "Deploying version v1.9.0", "Progressing": "Deploying version v1.9.0"}


class TestVersions:
    @pytest.mark.parametrize(
        ("image", "expected"),
        [
            ("stock.example/kubevirt/virt-handler:v1.9.0", "same"),
            ("virt-handler:1.9.0", "same"),
            ("localhost:5000/virt-handler:v1.9.0-gpu", "same"),
            ("r/virt-handler:1.9.0_cuda12", "same"),
            ("r/virt-handler:v1.9.0@sha256:0123", "same"),
            ("r/virt-handler:v1.9.1", "different"),
            ("r/virt-handler:v1.10.0-gpu", "different"),
            ("r/virt-handler:v1.9.0-rc.1", "different"),
            ("localhost:5000/virt-handler", "unknown"),
            ("r/virt-handler", "unknown"),
            ("r/virt-handler:latest", "unknown"),
            ("r/virt-handler:1.9", "unknown"),
            ("r/virt-handler@sha256:0123", "unknown"),
            ("r/virt-handler:gpu-v1.9.0", "unknown"),
        ],
    )
    def test_skew(self, image, expected):
        assert skew(image, "v1.9.0") == expected

    @pytest.mark.parametrize(
        ("stock", "image", "expected"),
        [
            ("r/h:4.20.3", "mine/h:4.20.3", "same"),
            ("r/h:4.20.3", "mine/h:v4.20.3-gpu", "same"),
            ("r/h:4.20.3", "mine/h:v1.6.2-gpu", "same"),
            ("r/h:4.20.3", "mine/h:4.20.4-gpu", "different"),
            ("r/h:4.20.3", "mine/h:gpu", "unknown"),
            ("r/h:2026-11-01", "mine/h:2026-11-01-gpu", "same"),
            ("r/h:2026-11-01", "mine/h:2026-11-012", "unknown"),
            ("r/h@sha256:0123", "mine/h:4.20.3", "different"),
            ("r/h:v1.6.2", "mine/h:v1.6.2-rc.1", "different"),
        ],
    )
    def test_skew_of_a_vendor_that_tags_images_otherwise(self, stock, image, expected):
        assert skew(image, "v1.6.2-45-g0123abc", stock) == expected

    def test_the_tag_of_a_kubevirt_without_a_release(self):
        assert skew("mine/h:4.20.3-gpu", "devel", "r/h:4.20.3") == "same"
        assert skew("mine/h:4.20.4", "devel", "r/h:4.20.3") == "different"

    def test_prereleases_are_versions_of_their_own(self):
        assert skew("r/h:v1.9.0-rc.1-gpu", "v1.9.0-rc.1") == "same"
        assert skew("r/h:v1.9.0", "v1.9.0-rc.1") == "different"

    @pytest.mark.parametrize("version", [None, "", "devel", "v0.0.0-master+$Format:%h$x", "sha256:0123"])
    def test_skew_of_a_kubevirt_without_a_release(self, version):
        assert skew("r/h:v1.9.0", version) == "unknown"
        assert release_of(version) is None

    @pytest.mark.parametrize(
        ("image", "expected"),
        [
            ("r:5000/h:v1.9.0-gpu", "r:5000/h:v1.10.0-rc.1-gpu"),
            ("r/h:1.9.0_cuda12@sha256:01", "r/h:1.10.0-rc.1_cuda12"),
            ("r/v1.9.0/h:v1.9.0", "r/v1.9.0/h:v1.10.0-rc.1"),
            ("r/h:latest", None),
            ("r:5000/h", None),
        ],
    )
    def test_the_image_for_another_version(self, image, expected):
        assert retagged(image, "v1.10.0-rc.1") == expected
        assert retagged(image, "devel") is None

    @pytest.mark.parametrize(
        ("version", "other", "same"),
        [
            ("v1.9.0", "1.9.0", True),
            ("v1.9.0", "v1.9.1", False),
            (None, "v1.9.0", False),
            ("20261101_0123abc", "20261101_0123abc", True),
            ("20261101_0123abc", "20261102_0123abc", False),
            ("v1.9.0-1", "v1.9.0-2", False),
            ("v1.9.0-123-g0123abc", "v1.9.0", True),
        ],
    )
    def test_names_of_the_same_version(self, version, other, same):
        assert same_version(version, other) is same

    @pytest.mark.parametrize(
        ("image", "expected"),
        [
            ("a.example:5000/handler", "a.example:5000/handler:v2.0.0"),
            ("a.example/handler:latest", "a.example/handler:v2.0.0"),
            ("a.example/handler:v1.9.0@sha256:0123", "a.example/handler:v2.0.0"),
        ],
    )
    def test_the_image_with_another_tag(self, image, expected):
        assert tagged(image, "v2.0.0") == expected

    @pytest.mark.parametrize(
        ("image", "expected"),
        [
            ("a.example:5000/b/handler:v1", "handler:v1"),
            ("handler", "handler"),
            ("a.example/handler@sha256:0123", "handler@sha256:0123"),
        ],
    )
    def test_the_part_of_an_image_that_mirrors_keep(self, image, expected):
        assert last_part(image) == expected

    def test_versions_in_order(self):
        order = ["v1.9.1", "v1.10.0-alpha.0", "v1.10.0-beta.2", "v1.10.0-rc.2", "v1.10.0-rc.10", "v1.10.0", "v1.10.1"]
        assert sorted(set(order), key=rank) == order
        assert (rank("devel"), rank("1.9.0"), rank("v1.9.0-12-gabc")) == (None, rank("v1.9.0"), rank("v1.9.0"))

    def test_a_build_after_a_candidate_may_be_newer_than_the_release(self):
        assert rank("v1.9.0-beta.0-1264-g0123abc") is None
        assert skew("r/h:v1.9.0-gpu", "v1.9.0-beta.0-1264-g0123abc") == "unknown"
        assert rank("v1.9.0-beta.0-gpu") < rank("v1.9.0")

    def test_release(self):
        assert release_of("v1.10.2-rc.0") == (1, 10)
        assert release_of("1.9.0") == (1, 9)

    def test_version_of(self):
        assert version_of(kubevirt()) == "v1.9.0"
        assert version_of({"status": {"observedKubeVirtVersion": ""}}) is None
        assert version_of({}) is None


class TestHealth:
    def test_fit(self):
        health = Health.from_kubevirt(kubevirt())
        assert health.settled
        assert health.problems() == ()
        assert health.version == "v1.9.0"

    def test_a_second_kubevirt_leaves_other_conditions_unchanged(self):
        item = ignored()
        assert Health.from_kubevirt(item).problems() == (
            "its operator ignores it (There is an active KubeVirt deployment)",
        )
        item["status"]["conditions"][-1]["reason"] = "DeploymentInProgress"
        assert Health.from_kubevirt(item).settled

    def test_phase_means_nothing(self):
        degraded = Health.from_kubevirt(kubevirt(conditions={"Degraded": "no such path", **SETTLING}, observed=6))
        assert degraded.problems() == (
            "it is degraded (no such path)",
            "its operator has not yet acted on the latest change of the KubeVirt object",
            "it is not available (Deploying version v1.9.0)",
        )

    @pytest.mark.parametrize("item", [{}, {"status": {}}, {"status": {"phase": "Deploying", "conditions": []}}])
    def test_without_conditions_it_is_not_deployed(self, item):
        assert Health.from_kubevirt(item).problems() == ("it is not deployed yet",)

    def test_a_missing_condition_is_not_available(self):
        health = Health.from_kubevirt({"status": {"conditions": [{"type": "Created", "status": "True"}]}})
        assert health.unavailable == "no condition reports it"

    def test_progressing_alone_is_a_problem(self):
        assert Health.from_kubevirt(kubevirt(conditions={"Progressing": ""})).problems() == ("it is still progressing",)

    def test_upgrade(self):
        assert Health.from_kubevirt(kubevirt(targetKubeVirtVersion="v1.9.1")).upgrading == ("v1.9.0", "v1.9.1")

    @pytest.mark.parametrize(
        ("target", "what"),
        [
            ({"targetDeploymentID": "d123456789"}, "deployment d1234567"),
            ({"targetKubeVirtRegistry": "mirror"}, "from registry mirror instead of q"),
            ({"targetKubeVirtVersion": "1.9.0", "targetDeploymentID": "d1"}, "deployment d1"),
            (
                {
                    "targetDeploymentID": "d1",
                    "observedDeploymentConfig": json.dumps({"id": "d0", "virtHandlerImage": "h@sha256:0"}),
                    "targetDeploymentConfig": json.dumps(
                        {
                            "id": "d1",
                            "virtHandlerImage": "h@sha256:1",
                            "additionalProperties": {"VMStatsCollectorEnabled": ""},
                        }
                    ),
                },
                "changed: VMStatsCollectorEnabled, virtHandlerImage",
            ),
            (
                {"targetDeploymentID": "d1", "observedDeploymentConfig": "{", "targetDeploymentConfig": "[]"},
                "deployment d1",
            ),
        ],
    )
    def test_another_deployment_of_the_same_version_is_no_upgrade(self, target, what):
        health = Health.from_kubevirt(kubevirt(**target))
        assert (health.upgrading, health.rolling_out) == (None, what)
        assert health.problems() == (
            f"its operator replaces v1.9.0 by another deployment of the same version ({what})",
        )

    def test_degraded_while_a_deployment_is_replaced_is_no_failure(self):
        item = rolling_out()
        assert Health.from_kubevirt(item).degraded is None
        item["status"]["conditions"][2]["reason"] = "DeploymentFailed"
        assert Health.from_kubevirt(item).degraded is not None

    def test_a_first_install_is_no_upgrade(self):
        nothing = {f"observed{part}": None for part in ("KubeVirtVersion", "KubeVirtRegistry", "DeploymentID")}
        health = Health.from_kubevirt(kubevirt(**nothing))
        assert (health.upgrading, health.rolling_out) == (None, None)


class TestRollout:
    def test_rolled_out(self):
        assert primary_rolled_out(primary())

    @pytest.mark.parametrize(
        "status", [{"observedGeneration": 2}, {"updatedNumberScheduled": 4}, {"numberReady": 4}, {"desired": 0}]
    )
    def test_not_rolled_out(self, status):
        assert not primary_rolled_out(primary(**status))

    def test_without_status(self):
        assert not primary_rolled_out({"metadata": {"generation": 1}})

    def test_dead_nodes_are_not_waited_for(self):
        assert primary_rolled_out(primary(numberReady=4, updatedNumberScheduled=4), on_unready_nodes=1)
        assert not primary_rolled_out(primary(numberReady=3), on_unready_nodes=1)


class TestPrimaryIsNew:
    def test_of_the_target_deployment_and_rolled_out(self):
        assert primary_is_new(rolling_out(), primary(deployment="d1"))
        assert primary_is_new(rolling_out(), primary(deployment="d1", numberReady=4, updatedNumberScheduled=4), 1)

    @pytest.mark.parametrize(
        "other",
        [{}, {"version": "v1.8.2"}, {"generation": 6}, {"deployment": "d1", "numberReady": 4}],
        ids=["deployment", "version", "generation", "handlers"],
    )
    def test_everything_must_be_new(self, other):
        assert not primary_is_new(rolling_out(), primary(**other))

    def test_one_without_annotations_is_not(self):
        item = primary()
        item["metadata"].pop("annotations")
        assert not primary_is_new(kubevirt(), item)


class TestUnsettledByUs:
    @pytest.mark.parametrize(
        ("requested", "live", "status", "expected"),
        [
            (True, False, {}, True),  # requested, not in the primary yet
            (False, True, {}, True),  # no longer requested, still in the primary
            (True, True, {"numberReady": 2}, True),  # being rolled out
            (True, True, {}, False),
            (False, False, {"numberReady": 2}, False),
        ],
    )
    def test_only_while_the_exclusion_is_on_its_way(self, requested, live, status, expected):
        assert unsettled_by_us(kubevirt(excluded=requested), primary(excluded=live, **status)) is expected

    def test_nothing_is_explained_without_a_primary(self):
        assert not unsettled_by_us(kubevirt(excluded=True), None)

    def test_dead_nodes_do_not_make_it_last_for_ever(self):
        assert not unsettled_by_us(kubevirt(excluded=True), primary(excluded=True, numberReady=4), 1)


class TestWaitsOnlyForUnreadyNodes:
    def test_handlers_on_dead_nodes(self):
        health = Health.from_kubevirt(kubevirt(conditions=SETTLING))
        assert waits_only_for_unready_nodes(health, {"virt-handler-x": "n1"}, ["n1", "n2"])
        assert not waits_only_for_unready_nodes(health, {"virt-handler-x": "n3"}, ["n1", "n2"])
        assert not waits_only_for_unready_nodes(health, {}, ["n1"])

    @pytest.mark.parametrize(
        "other", [{"observed": 6}, {"targetKubeVirtVersion": "v1.9.1"}, {"conditions": {**SETTLING, "Degraded": "x"}}]
    )
    def test_nothing_else_may_be_wrong(self, other):
        health = Health.from_kubevirt(kubevirt(**{"conditions": SETTLING, **other}))
        assert not waits_only_for_unready_nodes(health, {"virt-handler-x": "n1"}, ["n1"])


class TestFindings:
    def found(self, *args, **kwargs):
        return [(finding.severity, finding.code) for finding in health_findings(*args, **kwargs)]

    def test_fit(self):
        assert self.found(kubevirt(), primary()) == []
        assert self.found(kubevirt(), primary(numberReady=4), ["n1"], {"virt-handler-x": "n1"}) == []

    @pytest.mark.parametrize(
        ("item", "code"),
        [
            (None, "kubevirt_not_found"),
            (kubevirt(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}), "kubevirt_deleted"),
            ({"kind": "KubeVirt", "metadata": {}}, "kubevirt_not_deployed"),
            (kubevirt(targetKubeVirtVersion="v1.9.1", conditions={"Degraded": "upgrade"}), "kubevirt_upgrading"),
            (ignored(), "kubevirt_ignored"),
            (kubevirt(conditions={"Degraded": "no such path"}), "kubevirt_degraded"),
            (rolling_out(), "kubevirt_rolling_out"),
            (rolling_out(observed=6), "kubevirt_rolling_out"),
            (kubevirt(targetDeploymentID="d1", conditions={"Degraded": "no such path"}), "kubevirt_degraded"),
            (kubevirt(observed=6), "kubevirt_settling"),
            (kubevirt(conditions=SETTLING), "kubevirt_not_available"),
            (kubevirt(conditions={"Progressing": ""}), "kubevirt_settling"),
        ],
    )
    def test_one_error_for_what_is_worst(self, item, code):
        assert self.found(item, primary()) == [("error", code)]

    def test_no_primary_yet(self):
        assert self.found(kubevirt(), None) == [("error", "kubevirt_not_deployed")]

    def test_messages_name_the_object_and_the_reason(self):
        upgrade = health_findings(kubevirt(targetKubeVirtVersion="v1.9.1"), primary())[0].message
        degraded = health_findings(kubevirt(conditions={"Degraded": "no such path"}), primary())[0].message
        assert "KubeVirt kv/kubevirt is being upgraded from v1.9.0 to v1.9.1" in upgrade
        rollout = health_findings(rolling_out(), primary())[0].message
        assert rollout == (
            "KubeVirt kv/kubevirt is not settled: virt-operator replaces v1.9.0 by another deployment of the same version "
            "(deployment d1); wait until that is done, then run again."
        )
        assert "no such path" in degraded

    @pytest.mark.parametrize("bad", [{"conditions": SETTLING}, {"observed": 6}, {"conditions": {"Degraded": "x"}}])
    def test_what_our_own_change_explains_is_only_waited_for(self, bad):
        assert self.found(kubevirt(excluded=True, **bad), primary()) == [("note", "own_change_settling")]

    def test_our_own_change_does_not_explain_an_upgrade(self):
        item = kubevirt(excluded=True, targetKubeVirtVersion="v1.9.1")
        assert self.found(item, primary()) == [("error", "kubevirt_upgrading")]

    @pytest.mark.parametrize("excluded", [True, False])
    def test_dead_nodes_are_a_warning(self, excluded):
        args = kubevirt(excluded=excluded, conditions=SETTLING), primary(excluded=excluded, numberReady=4)
        found = health_findings(*args, ["n1"], {"virt-handler-x": "n1"})
        assert [(finding.severity, finding.code) for finding in found] == [
            ("warning", "kubevirt_waits_for_unready_nodes")
        ]
        assert "1 node" in found[0].message
        assert "(n1)" in found[0].message

    def test_a_rollout_that_waits_only_for_dead_nodes_is_a_warning(self):
        dead = ["n1"], {"virt-handler-x": "n1"}
        new = primary(deployment="d1", numberReady=4, updatedNumberScheduled=4)
        (found,) = health_findings(rolling_out(), new, *dead)
        assert found.code == "kubevirt_waits_for_unready_nodes"
        assert (
            "goes on rolling out another deployment of its version because virt-handler is not Ready on 1 node"
            in found.message
        )
        assert self.found(rolling_out(), primary(numberReady=4), *dead) == [("error", "kubevirt_rolling_out")]


class TestHco:
    def test_stuck(self):
        item = {
            "kind": "HyperConverged",
            "metadata": {"name": "kubevirt-hyperconverged", "namespace": "kv"},
            "status": {"conditions": [{"type": "ReconcileComplete", "status": "False", "message": "bad patch"}]},
        }
        (found,) = hco_findings(item)
        assert found.code == "hco_not_reconciling"
        assert "bad patch" in found.message

    @pytest.mark.parametrize(
        "item", [None, {}, {"status": {"conditions": [{"type": "ReconcileComplete", "status": "True"}]}}]
    )
    def test_fine(self, item):
        assert hco_findings(item) == []
