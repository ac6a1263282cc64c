# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.nodes import images, next_images
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.admission import launcher_policy
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools.dialects import OWN, read_dialect
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms.mapping import Table
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders
from ansible_collections.virtpools.kubevirt.tests.unit.support.admission import POLICY, Admission

NEXT = "v2.0.0"


def raw(version=builders.VERSION):
    return {
        **builders.RAW_POOL,
        "virtHandlerImage": f"registry.example/virt-handler:{version}-gpu",
        "virtLauncherImage": f"registry.example/virt-launcher:{version}-gpu",
        "selector": {"vmLabels": {"matchLabels": {"class": "gpu"}}},
    }


NOW, LATER = raw(), raw(NEXT)
STOCK = builders.LAUNCHER_IMAGE
REQUIRED = {"require_approval": True, "cluster_name": "west"}


@pytest.fixture(autouse=True)
def admission(world):
    return Admission(world)


@pytest.fixture(autouse=True)
def pulls(monkeypatch):
    """The calls that would pull images; ``test_next_images`` has what they do."""
    calls = []
    monkeypatch.setattr(next_images, "pull", lambda *arguments: calls.append(arguments))
    return calls


@pytest.fixture
def pooled(run, world, excluded):
    """A cluster with the pool, its node and its launcher policy."""
    world.put(builders.node("n1", labels={"hw": "gpu"}, images=[NOW["virtHandlerImage"], NOW["virtLauncherImage"]]))
    world.put(builders.pool_daemonset(builders.pool(**NOW), desired=0))
    run("pool_nodes", pools=[NOW])
    run("run_part", part="launcher_policy", pools=[NOW])
    world.writes.clear()
    return world


def prepare(run, pools=(LATER,), version=NEXT, **options):
    return run("upgrade_preparation", pools=list(pools), version=version, **options)


def upcoming(world):
    return json.loads(world.find(POLICY, names.POLICY)["metadata"]["annotations"][names.MAPPING_ANNOTATION]).get(
        "upcoming"
    )


def upgrade(world, version=NEXT):
    """What virt-operator leaves."""
    kubevirt = world.find(kinds.KUBEVIRT, "kubevirt", builders.NAMESPACE)
    for which in ("observed", "target"):
        kubevirt["status"][f"{which}KubeVirtVersion"] = version
    world.put(kubevirt)
    world.put(json.loads(json.dumps(builders.primary(desired=0)).replace(builders.VERSION, version)))


@pytest.mark.usefixtures("pooled")
class TestPrepares:
    def test_the_policy_for_both_versions(self, run, world, pulls):
        done = prepare(run)
        assert (done["changed"], done["upgraded"]) == (True, False)
        assert upcoming(world)["images"] == {"gpu": LATER["virtLauncherImage"]}
        assert [path for verb, path in world.writes if "/nodes/" in path or "daemonsets" in path] == []
        assert len(pulls) == 1
        assert done["text"][-1] == (
            f"VMs start during the upgrade from KubeVirt {builders.VERSION} to {NEXT}. Upgrade KubeVirt to {NEXT} now, then run "
            "this again with the same list."
        )
        assert world.all(kinds.LEASE) == [], "the Lease is given back"

    def test_check_mode_predicts_and_writes_nothing(self, run, world, pulls):
        predicted = prepare(run, check=True)
        assert (world.writes, pulls) == ([], [])
        done = prepare(run)
        assert [predicted[key] for key in ("changes", "diff", "changed")] == [
            done[key] for key in ("changes", "diff", "changed")
        ]

    def test_twice_changes_nothing_and_takes_no_lease(self, run, world):
        prepare(run)
        world.writes.clear()
        again = prepare(run)
        assert (again["changed"], again["changes"], again["diff"], world.writes) == (False, [], [], [])

    def test_without_pulls_where_nodes_get_images_in_another_way(self, run, pulls):
        assert prepare(run, prepull=False)["changed"]
        assert pulls == []

    def test_site_with_the_present_list_leaves_it(self, run, world):
        prepare(run)
        before = upcoming(world)
        assert run("run_part", part="launcher_policy", pools=[NOW])["changed"] is False
        assert upcoming(world) == before

    def test_nothing_when_an_image_is_missing(self, run, world, monkeypatch):
        def missing(*_arguments):
            raise images.ImagesMissing("KubeVirt must not be upgraded yet.")

        monkeypatch.setattr(next_images, "pull", missing)
        message = run.failure("upgrade_preparation", pools=[LATER], version=NEXT)
        assert message == "KubeVirt must not be upgraded yet."
        assert upcoming(world) is None

    def test_what_another_run_wrote_since_stays(self, run, world, monkeypatch):
        """Images take long to pull; a colleague's run before that may have ended while this one waited for the Lease."""
        other = {
            **NOW,
            "name": "rt",
            "nodeSelector": {"hw": "rt"},
            "selector": {"vmLabels": {"matchLabels": {"c": "rt"}}},
        }

        def pull(*_arguments):
            monkeypatch.setattr(next_images, "pull", lambda *_arguments: None)
            objects = launcher_policy.derive(
                Table.for_pools(read_dialect(OWN, [NOW, other])), builders.NAMESPACE, POLICY
            )
            for obj in (builders.pool_daemonset(builders.pool(**other), desired=0), *(obj for _kind, obj in objects)):
                world.put(obj)

        monkeypatch.setattr(next_images, "pull", pull)
        assert prepare(run)["changed"]
        table = json.loads(world.find(POLICY, names.POLICY)["metadata"]["annotations"][names.MAPPING_ANNOTATION])
        assert [rule["name"] for rule in table["rules"]] == ["gpu", "rt"]
        assert upcoming(world)["images"] == {"gpu": LATER["virtLauncherImage"]}

    def test_pulls_to_the_nodes_that_another_run_brought(self, run, world, pulls, other_run):
        node = builders.node("n2", "gpu", labels={"hw": "gpu"}, images=world.node().images)
        world.at[world.now + 1] = lambda: world.put(node)
        other_run(lambda: None)
        assert prepare(run)["changed"]
        ((_cluster, plan, *_options),) = pulls
        assert plan.snapshot.nodes["n2"].owner == "gpu"

    def test_what_site_would_refuse_after_the_upgrade(self, run, world):
        """Afterwards the old handlers could not follow, and it would be too late."""
        misspelt = {**LATER, "nodeSelector": {"hw": "gpus"}}
        for check in (True, False):
            message = run.failure("upgrade_preparation", pools=[misspelt], version=NEXT, check=check)
            assert "Pool gpu would lose" in message
        assert world.writes == []

    def test_what_the_upgrade_check_refuses(self, run, world):
        message = run.failure("upgrade_preparation", pools=[NOW], version=NEXT)
        assert "is of another version than v2.0.0" in message
        assert world.writes == []


@pytest.mark.usefixtures("pooled")
class TestMigrations:
    """A VM of a pool that is being migrated or evicted comes first."""

    def put(self, world, phase="Running", node="n1", evacuated=None):
        status = {"phase": "Running", "nodeName": node, "evacuationNodeName": evacuated}
        vmi = kinds.VIRTUAL_MACHINE_INSTANCE.object("vm", "vms", status=status)
        vmi["metadata"].update(labels={names.NODE_NAME_LABEL: node})
        world.put(vmi)
        kind = kinds.VIRTUAL_MACHINE_INSTANCE_MIGRATION
        world.put(kind.object("m1", "vms", spec={"vmiName": "vm"}, status={"phase": phase}))

    def refused(self, run, world, pulls):
        message = run.failure("upgrade_preparation", pools=[LATER], version=NEXT, migration_timeout=30)
        assert (upcoming(world), pulls) == (None, [])
        assert [path for _verb, path in world.writes if "/leases" not in path] == []
        return message

    def test_that_does_not_end_is_named(self, run, world, pulls):
        self.put(world)
        assert self.refused(run, world, pulls) == (
            "KubeVirt must not be upgraded yet, and nothing was changed, because within 30 s live migrations of VMs on nodes of pools "
            "did not end: VM vms/vm (migration m1, Running). Wait for them, or cancel them (`kubectl delete vmim m1 -n vms`), then run again."
        )

    def test_of_an_evicted_vm_may_have_failed_just_now(self, run, world, pulls):
        self.put(world, phase="Failed", evacuated="n1")
        message = self.refused(run, world, pulls)
        assert (
            "within 30 s evicted VMs did not leave their nodes: VM vms/vm on n1. See why its migrations fail" in message
        )

    def test_that_has_ended_makes_the_handler_record_its_vm(self, run, world):
        world.put(builders.migrated_vmi("n1"))
        world.writes.clear()
        assert prepare(run)["changed"]
        assert builders.reminders(world.writes) == [0, 1]

    def test_that_ends_on_a_node_that_joined_does_so_too(self, run, world):
        self.put(world)

        def join():
            builders.joins_with_a_migrated_vm(world)
            self.put(world, phase="Succeeded")

        world.at[world.now + 20] = join
        assert prepare(run)["changed"]
        assert builders.reminders(world.writes) == [0, 1]

    def test_that_ends_is_waited_for(self, run, world):
        self.put(world)
        world.at[world.now + 20] = lambda: self.put(world, phase="Succeeded")
        assert prepare(run)["changed"]

    @pytest.mark.parametrize("fields", [{"node": "n9"}, {"phase": "Failed", "evacuated": "n8"}], ids=str)
    def test_elsewhere_does_not_matter(self, run, world, fields):
        self.put(world, **fields)
        assert prepare(run, migration_timeout=0)["changed"]

    def test_does_not_keep_a_preparation_from_being_taken_back(self, run, world):
        prepare(run)
        self.put(world)
        assert prepare(run, [NOW], builders.VERSION, migration_timeout=0)["changed"]


@pytest.mark.usefixtures("pooled")
class TestApproval:
    def plan(self, run, **options):
        """What a job in check mode publishes."""
        return prepare(run, check=True, cluster_name="west", **options)["published"]

    def refusal(self, run, pools=(LATER,), version=NEXT, **options):
        return run.failure("upgrade_preparation", pools=list(pools), version=version, **REQUIRED, **options)

    def test_what_a_person_approves_is_published(self, run):
        found = prepare(run, check=True, cluster_name="west")
        entry = found["published"]["west"]["upgrade"]
        assert (entry["digest"], entry["pending"], entry["nodes"]) == (found["digest"], True, 1)
        assert entry["summary"].startswith(
            f"before the upgrade the launcher policy also serves KubeVirt {NEXT}; after it 1 node in 1 batch (new handlers in gpu: 1)"
        )
        assert found["text"][-1] == f"Plan digest: {found['digest']}"

    def test_one_approval_holds_over_the_whole_upgrade(self, run, world):
        planned = self.plan(run)
        first = prepare(run, published_plan=planned, **REQUIRED)
        again = prepare(run, published_plan=planned, **REQUIRED)
        upgrade(world)
        after = prepare(run, published_plan=planned, **REQUIRED)
        assert [each["changed"] for each in (first, again)] == [True, False]
        assert after["upgraded"] is True
        assert {each["digest"] for each in (first, again, after)} == {planned["west"]["upgrade"]["digest"]}

    def test_without_one_nothing_is_changed(self, run, world, pulls):
        assert "no plan of upgrade was approved for west: run upgrade --check" in self.refusal(run)
        of_site = {"west": {"site": {"digest": "0" * 12, "server": "https://west", "uid": ""}}}
        assert "no plan of upgrade was approved for west" in self.refusal(run, published_plan=of_site)
        assert (world.writes, pulls) == ([], [])

    @pytest.mark.parametrize(
        ("options", "changed"),
        [
            ({"version": "v2.0.1", "pools": [raw("v2.0.1")]}, "the version, the pools and their images"),
            ({"pools": [{**LATER, "virtLauncherImage": f"other.example/virt-launcher:{NEXT}"}]}, "the pools and their"),
            ({"outdated": "correct"}, "virtpools_outdated"),
            ({"max_unavailable": 2}, "the options (overlap"),
            ({"feature_gates_present": ["LiveMigration"]}, "the options (overlap"),
        ],
        ids=["version", "image", "outdated", "option", "gates"],
    )
    def test_another_upgrade_is_refused(self, run, world, pulls, options, changed):
        planned = self.plan(run)
        text = self.refusal(run, published_plan=planned, **options)
        assert text.startswith("The plan is not the approved one: ")
        assert changed in text
        assert (world.writes, pulls) == ([], [])

    def test_that_of_another_cluster_is_refused(self, run, world):
        planned = self.plan(run)
        kubevirt = world.find(kinds.KUBEVIRT, "kubevirt", builders.NAMESPACE)
        kubevirt["metadata"]["uid"] = "another"
        world.put(kubevirt)
        assert "the cluster (it is another one, or KubeVirt was installed again) changed" in self.refusal(
            run, published_plan=planned
        )
        assert world.writes == []

    def test_a_node_that_joined_during_the_wait_is_refused(self, run, world):
        planned = self.plan(run)

        def join():
            upgrade(world)
            world.put(builders.node("n2", labels={"hw": "gpu"}))
            world.put(builders.handler_pod("n2"))

        world.at[world.now + 600] = join
        assert "the owners of nodes" in self.refusal(run, published_plan=planned, wait=3600)

    def test_a_list_that_was_edited_during_the_wait_is_refused(self, run, world, tmp_path):
        """The run that follows reads the list again, without an approval."""
        manifest = tmp_path / "pools.yml"
        manifest.write_text(json.dumps({"virtpools_pools": [LATER]}))
        given = {"cluster_name": "west", "version": NEXT, "pools_manifest": str(manifest)}
        planned = run("upgrade_preparation", check=True, **given)["published"]

        def edit():
            upgrade(world)
            edited = {**LATER, "virtLauncherImage": f"other.example/virt-launcher:{NEXT}"}
            manifest.write_text(json.dumps({"virtpools_pools": [edited]}))

        world.at[world.now + 600] = edit
        text = run.failure("upgrade_preparation", published_plan=planned, require_approval=True, wait=3600, **given)
        assert "the pools and their" in text

    def test_a_node_that_joined_since_is_refused(self, run, world):
        planned = self.plan(run)
        prepare(run, published_plan=planned, **REQUIRED)
        upgrade(world)
        world.put(builders.node("n2", labels={"hw": "gpu"}))
        world.put(builders.handler_pod("n2"))
        world.writes.clear()
        assert "the owners of nodes" in self.refusal(run, published_plan=planned)
        assert world.writes == []


@pytest.mark.usefixtures("pooled")
class TestWaits:
    def test_until_kubevirt_is_upgraded(self, run, world):
        world.at[world.now + 600] = lambda: upgrade(world)
        done = prepare(run, wait=3600)
        assert (done["upgraded"], done["changed"]) == (True, True)
        assert done["text"][-1].startswith(f"KubeVirt {NEXT} is deployed now.")

    def test_and_says_so_when_nobody_did(self, run, world):
        began = world.now
        done = prepare(run, wait=60)
        assert done["upgraded"] is False
        assert done["text"][-1].endswith("It was not there within 60 s.")
        assert world.now - began >= 60

    def test_goes_on_in_the_middle_of_the_upgrade(self, run, world):
        prepare(run)
        kubevirt = world.find(kinds.KUBEVIRT, "kubevirt", builders.NAMESPACE)
        kubevirt["status"]["targetKubeVirtVersion"] = NEXT
        world.put(kubevirt)
        world.at[world.now + 60] = lambda: upgrade(world)
        world.writes.clear()
        done = prepare(run, wait=600)
        assert (done["upgraded"], done["changed"], world.writes) == (True, False, [])


@pytest.mark.usefixtures("pooled")
class TestInTheMiddleOfAnUpgrade:
    @pytest.mark.parametrize("primary", [builders.VERSION, NEXT])
    def test_a_pool_that_came_after_the_preparation_is_added(self, run, world, primary):
        prepare(run)
        prepared = upcoming(world)
        second, later = (
            {
                **pool,
                "name": "rt",
                "nodeSelector": {"hw": "rt"},
                "selector": {"vmLabels": {"matchLabels": {"class": "rt"}}},
            }
            for pool in (NOW, LATER)
        )
        images = [second["virtHandlerImage"], second["virtLauncherImage"]]
        world.put(builders.node("n2", "rt", labels={"hw": "rt"}, images=images))
        world.put(builders.pool_daemonset(builders.pool(**second), desired=0))
        run("run_part", part="launcher_policy", pools=[NOW, second])
        assert upcoming(world) == prepared
        found = world.find(kinds.KUBEVIRT, "kubevirt", builders.NAMESPACE)
        found["status"]["targetKubeVirtVersion"] = NEXT
        world.put(found)
        if primary == NEXT:
            world.put(json.loads(json.dumps(builders.primary(desired=0)).replace(builders.VERSION, NEXT)))
        table = json.loads(world.find(POLICY, names.POLICY)["metadata"]["annotations"][names.MAPPING_ANNOTATION])
        done = prepare(run, [LATER, later])
        assert (done.get("msg"), done["changed"]) == (None, True)
        assert upcoming(world) == {
            **prepared,
            "images": {"gpu": LATER["virtLauncherImage"], "rt": later["virtLauncherImage"]},
        }
        now = json.loads(world.find(POLICY, names.POLICY)["metadata"]["annotations"][names.MAPPING_ANNOTATION])
        assert now["rules"] == table["rules"]
        assert prepare(run, [LATER, later])["changed"] is False


class TestInTheMiddleOfAnUpgradeThatWasNotPrepared:
    @pytest.fixture(autouse=True)
    def upgrading(self, pooled):
        world = pooled
        found = world.find(kinds.KUBEVIRT, "kubevirt", builders.NAMESPACE)
        found["status"]["targetKubeVirtVersion"] = NEXT
        world.put(found)

    @pytest.fixture
    def replaced(self, world):
        """The primary is the one of the new version already; virt-controller may be of either."""
        primary = world.find(kinds.DAEMON_SET, names.HANDLER, builders.NAMESPACE)
        primary["metadata"]["annotations"] = {names.VERSION_ANNOTATION: NEXT}
        primary["spec"]["template"]["spec"]["initContainers"][0]["image"] = STOCK.replace(builders.VERSION, NEXT)
        world.put(primary)
        return primary

    def test_vms_of_both_versions_start_from_now_on(self, run, world):
        done = prepare(run)
        assert done["changed"]
        assert done["text"][-1].endswith(
            "It is under way: wait until it is done, then run this again with the same list."
        )
        assert upcoming(world) == {"stock": STOCK, "version": NEXT, "images": {"gpu": LATER["virtLauncherImage"]}}
        assert prepare(run)["changed"] is False

    def test_waits_for_no_migration_that_only_the_image_can_help(self, run, world):
        status = {"phase": "Running", "nodeName": "n1", "evacuationNodeName": "n1"}
        vmi = kinds.VIRTUAL_MACHINE_INSTANCE.object("vm", "vms", status=status)
        vmi["metadata"].update(labels={names.NODE_NAME_LABEL: "n1"})
        world.put(vmi)
        assert prepare(run, migration_timeout=0)["changed"]

    def test_goes_on_when_it_is_done(self, run, world):
        world.at[world.now + 60] = lambda: upgrade(world)
        done = prepare(run, wait=600)
        assert (done["upgraded"], done["changed"]) == (True, True)

    @pytest.mark.usefixtures("replaced")
    def test_also_when_the_primary_is_new_already(self, run, world):
        assert prepare(run)["changed"]
        assert upcoming(world)["stock"] == STOCK
        assert prepare(run)["changed"] is False

    def test_is_refused_when_the_former_image_is_not_known(self, run, world, replaced):
        digest = STOCK.partition(":")[0] + "@sha256:0123"
        replaced["spec"]["template"]["spec"]["initContainers"][0]["image"] = digest
        world.put(replaced)
        message = run.failure("upgrade_preparation", pools=[LATER], version=NEXT)
        assert "launcher image of the version before is not known any more" in message
        assert upcoming(world) is None

    def test_is_refused_for_another_version(self, run):
        message = run.failure("upgrade_preparation", pools=[raw("v99.1.0")], version="v99.1.0")
        assert f"is being upgraded from {builders.VERSION} to {NEXT}" in message


@pytest.mark.usefixtures("pooled")
class TestDone:
    def test_nothing_is_prepared_for_the_version_that_is_there(self, run, world):
        done = prepare(run, [NOW], builders.VERSION)
        assert (done["upgraded"], done["changed"], world.writes) == (True, False, [])
        assert done["text"][0] == f"KubeVirt {builders.VERSION} is deployed already."
        assert prepare(run, [NOW], builders.VERSION.lstrip("v"))["upgraded"] is True

    def test_what_was_prepared_for_another_is_taken_back(self, run, world):
        prepare(run)
        assert prepare(run, [NOW], builders.VERSION)["changed"] is True
        assert upcoming(world) is None


def test_without_pools_there_is_nothing_to_prepare(run, world):
    done = prepare(run)
    assert (done["changed"], world.writes) == (False, [])
