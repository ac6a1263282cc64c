# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api import lease, waiting
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.transport import CannotConnect
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.admission import launcher_policy
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms.mapping import Table
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders
from ansible_collections.virtpools.kubevirt.tests.unit.support.fake_cluster import LOST, Refused
from ansible_collections.virtpools.kubevirt.tests.unit.support.fake_migrations import MIGRATION, VMI, Kubevirt, vm

STOCK, GPU = builders.LAUNCHER_IMAGE, builders.GPU_LAUNCHER_IMAGE
POOL = builders.pool("gpu", virtLauncherImage=GPU, selector={"vmLabels": {"matchLabels": {"for": "gpu"}}})
FOR_GPU = {"labels": {"for": "gpu"}}
POLICY = (kinds.MUTATING_ADMISSION_POLICIES[0], names.POLICY)


@pytest.fixture
def world(world):
    """A pool with two nodes and a launcher policy."""
    world.put(builders.excluding_kubevirt())
    world.put(builders.primary(desired=1))
    world.put(builders.pool_daemonset(POOL, desired=2))
    world.drop(kinds.POD, "virt-handler-n1", builders.NAMESPACE)
    for name in ("n1", "n2"):
        world.put(builders.node(name, "gpu", labels={"hw": "gpu", "kubernetes.io/arch": "amd64"}))
        world.put(builders.handler_pod(name, "virt-handler-gpu"))
    world.put(kinds.NAMESPACE.object("plain"))
    for _kind, obj in launcher_policy.derive(
        Table.for_pools([POOL]), builders.NAMESPACE, kinds.MUTATING_ADMISSION_POLICIES[0]
    ):
        world.put(obj)
    return world


@pytest.fixture
def add(world):
    def add(name, **fields):
        for obj in vm(name, **{"image": STOCK, **FOR_GPU, **fields}):
            world.put(obj)

    return add


def results(found):
    return {each["name"]: each["result"] for each in found["vms"]}


def migrations(world):
    return [m["spec"]["vmiName"] for m in world.all(MIGRATION)]


def pod_of(world, name):
    return world.find(kinds.POD, f"virt-launcher-{name}", "plain")


class TestLaunchersThatRefuseWhatKubeVirtPasses:
    OLD = "registry.example/virt-launcher:v1.7.0-gpu"

    @pytest.fixture(autouse=True)
    def policy(self, world):
        pool = builders.pool("gpu", virtLauncherImage=self.OLD, selector={"vmLabels": {"matchLabels": {"for": "gpu"}}})
        table = Table.for_pools([pool])
        for _kind, obj in launcher_policy.derive(table, builders.NAMESPACE, kinds.MUTATING_ADMISSION_POLICIES[0]):
            world.put(obj)

    def test_are_no_target_of_a_migration(self, run, world, add):
        add("old")
        text = run.failure("workload_update")
        assert text.startswith("VMs of pool gpu cannot start or be migrated: KubeVirt v1.9.0 passes --hypervisor")
        assert migrations(world) == []

    def test_do_not_keep_vms_of_others_from_theirs(self, run, world, add):
        for name in ("n3", "n4"):
            world.put(builders.node(name, labels={"kubernetes.io/arch": "amd64"}))
            world.put(builders.handler_pod(name))
        add("plain", image=f"{STOCK}-old", labels={}, on="n3")
        assert run("workload_update", check=True)["changes"] == [f"VM plain/plain: migrate for {STOCK} of primary"]


def test_migrates_what_can_be_migrated_and_lists_the_rest(run, world, add):
    Kubevirt(world)
    add("old")
    add("pinned", migratable=False)
    add("new", image=GPU)
    found = run("workload_update")
    assert (found["changed"], found["changes"]) == (True, [f"VM plain/old: migrate for {GPU} of gpu"])
    assert results(found) == {"old": "done"}
    assert found["vms"][0]["seconds"] > 0
    (restart,) = found["restarts"]
    assert (restart["name"], restart["reason"]) == ("pinned", "it cannot be migrated (because of its GPU)")
    assert found["counts"] == {
        "outdated": 2, "migrate": 1, "restart": 1, "done": 1, "gone": 0, "failed": 0, "not_started": 0
    }  # fmt: skip
    assert migrations(world) == ["old"]
    (migration,) = world.all(MIGRATION)
    assert migration["metadata"]["labels"] == {names.MANAGED_BY_LABEL: names.MANAGED_BY}
    assert world.all(kinds.LEASE) == []


@pytest.mark.parametrize("image", [GPU, STOCK], ids=["done", "migrated, but outdated"])
def test_handlers_record_migrated_vms_again(run, world, add, image):
    Kubevirt(world, image=image)
    add("old")
    world.put(builders.migrated_vmi("n2"))
    found = run("workload_update")
    assert found["events"][-1].startswith("Handlers were made to record ")
    (*migrated, first, last) = [path.rsplit("/", 1)[-1] for _verb, path in world.writes if "/leases" not in path]
    assert migrated[0] == "virtualmachineinstancemigrations"
    assert (first, last) == ("migrated", "migrated")


def test_also_the_handler_of_a_node_that_joined_since(run, world, add):
    Kubevirt(world)
    add("old")
    world.at[world.now + 1] = lambda: builders.joins_with_a_migrated_vm(world)
    assert results(run("workload_update")) == {"old": "done"}
    assert [path.rsplit("/", 1)[-1] for _verb, path in world.writes if "/leases" not in path][1:] == ["migrated"] * 2


def test_a_second_run_finds_nothing(run, world, add):
    Kubevirt(world)
    add("old")
    run("workload_update")
    world.writes.clear()
    found = run("workload_update")
    assert (found["changed"], found["counts"]["outdated"], world.writes) == (False, 0, [])
    assert found["text"] == ["0 VMs are outdated: 0 to migrate, 0 to restart."]


def test_check_mode_predicts_and_writes_nothing(run, world, add):
    Kubevirt(world)
    for name in ("a", "b"):
        add(name)
    add("pinned", migratable=False)
    predicted = run("workload_update", check=True)
    assert (world.writes, predicted["vms"]) == ([], [])
    done = run("workload_update")
    for key in ("changed", "changes", "restarts", "diff"):
        assert predicted[key] == done[key]
    assert done["diff"]["before"] == {"plain/a": [STOCK], "plain/b": [STOCK]}


def test_only_restarts_need_no_lease(run, world, add):
    add("pinned", migratable=False)
    found = run("workload_update")
    assert (found["changed"], found["counts"]["restart"], world.writes) == (False, 1, [])


def test_keeps_the_lease_of_its_run_while_it_looks(run, world, add):
    """A list of 100,000 pods takes longer than the Lease lasts."""
    add("one")
    held = run("run_lease")["run_id"]
    world.requests.clear()
    assert run("workload_update", run_id=held)["changed"]
    asked = [request.path for request in world.requests if request.method == "PUT" or request.path.endswith("/v1/pods")]
    assert names.LEASE_NAME in asked[0]


@pytest.mark.parametrize("batch", [1, 3])
def test_never_more_than_a_batch_at_once(run, world, add, batch):
    kubevirt = Kubevirt(world)
    for number in range(7):
        add(f"vm-{number}")
    found = run("workload_update", batch=batch)
    assert set(results(found).values()) == {"done"}
    assert kubevirt.most_at_once == batch


def test_of_each_pool_one_vm_goes_first(run, world, add):
    """What breaks the migrations of a pool meets one VM of it, however many may be migrated at once."""
    Kubevirt(world, fail={"vm-0", "vm-1", "vm-2", "vm-3"})
    for number in range(4):
        add(f"vm-{number}")
    found = run("workload_update", batch=10)
    assert [*results(found).values()] == ["failed", "not_started", "not_started", "not_started"]


def test_only_the_namespaces_asked_for(run, world, add):
    add("old")
    assert run("workload_update", namespaces=["other"])["counts"]["outdated"] == 0
    assert run("workload_update", namespaces=["plain"], check=True)["counts"]["outdated"] == 1


class TestFailures:
    def test_stop_at_the_limit_and_are_told_with_the_reason(self, run, world, add):
        Kubevirt(world, fail={"vm-0"})
        for number in range(5):
            add(f"vm-{number}")
        found = run("workload_update", batch=2)
        assert found["failed"]
        assert found["msg"].startswith("1 of 5 updates failed, and 4 were not begun. VM plain/vm-0: ")
        assert "failed: the target ran out of memory" in found["msg"]
        assert results(found) == {
            "vm-0": "failed", "vm-1": "not_started", "vm-2": "not_started", "vm-3": "not_started", "vm-4": "not_started"
        }  # fmt: skip
        assert world.all(kinds.LEASE) == []

    def test_a_right_that_was_taken_away_is_told_in_whole_sentences(self, run, world, add):
        Kubevirt(world)
        add("vm")

        def before(request):
            if request.method == "POST" and "migrations" in request.path:
                raise Refused(403, "Forbidden")

        world.before = before
        assert run.failure("workload_update").endswith(" or use other credentials.")

    def test_below_the_limit_others_go_on(self, run, world, add):
        Kubevirt(world, fail={"vm-0"})
        for number in range(4):
            add(f"vm-{number}")
        found = run("workload_update", max_failures=2)
        assert [*results(found).values()].count("done") == 3

    def test_a_migration_that_takes_too_long_is_cancelled(self, run, world, add):
        Kubevirt(world, stick={"vm"})
        add("vm")
        message = run.failure("workload_update", timeout=20)
        assert (
            "did not end within 20 s and was cancelled: it is Scheduling, and the scheduler reports: 0/4 nodes are"
            in message
        )
        assert migrations(world) == []

    def test_are_told_also_when_handlers_cannot_be_reminded(self, run, world, add):
        Kubevirt(world, image=STOCK)
        add("vm")
        world.put(builders.migrated_vmi("n2"))

        def before(request):
            if request.method == "PATCH" and request.path.endswith("/migrated"):
                raise Refused(403, "Forbidden")

        world.before = before
        message = run.failure("workload_update")
        assert message.startswith("Not allowed to patch VirtualMachineInstance migrated ")
        assert message.endswith(f"but its pod virt-launcher-vm-x has {STOCK} again.")

    def test_a_migration_whose_pods_are_hidden_is_cancelled(self, run, world, add):
        Kubevirt(world, stick={"vm"})
        add("vm")

        def before(request):
            if world.all(MIGRATION) and request.path == "/api/v1/namespaces/plain/pods":
                raise Refused(403, "Forbidden", "cannot list pods")

        world.before = before
        message = run.failure("workload_update", timeout=60)
        assert "and was cancelled: it is Scheduling, and what it waits for could not be read: Not allowed" in message
        assert migrations(world) == []

    def test_a_reason_is_that_of_the_migration_itself(self, run, world, add):
        """A VM keeps the state of its last migration."""
        Kubevirt(world, fail={"vm"}, reason=None)
        add("vm")
        state = {"migrationUid": "former", "failureReason": "long ago"}
        world.find(VMI, "vm", "plain")["status"]["migrationState"] = state
        assert "failed: KubeVirt gives no reason" in run.failure("workload_update")

    @pytest.mark.parametrize(
        ("others", "conditions", "reason"),
        [
            (0, [], "it is Pending, and it has no target pod, see its events."),
            (
                3,
                [],
                "it is Pending, and it has no target pod while 3 other migrations run (KubeVirt's limits: spec.conf",
            ),
            (
                3,
                [{"type": "migrationRejectedByResourceQuota", "status": "True", "message": "exceeded quota: memory."}],
                "it is Pending, and KubeVirt reports exceeded quota: memory.",
            ),
        ],
        ids=["no reason known", "limits", "quota"],
    )
    def test_a_migration_that_stays_pending_says_why(self, run, world, add, others, conditions, reason):
        add("vm")
        world.after = lambda request: [
            migration.update(status={"phase": "Pending", "conditions": conditions})
            for migration in world.all(MIGRATION)
        ]
        former = json.loads(json.dumps(pod_of(world, "vm")))
        former["metadata"].update(name="target-of-a-former-migration", uid="former")
        former["metadata"]["labels"][names.MIGRATION_LABEL] = "former"
        condition = {"type": "PodScheduled", "status": "False", "message": "no room"}
        world.put({**former, "status": {"phase": "Pending", "conditions": [condition]}})
        for number in range(others):
            elsewhere = MIGRATION.object(f"m{number}", "elsewhere", spec={"vmiName": f"vm-{number}"})
            world.put({**elsewhere, "status": {"phase": "Running"}})
            vmi = kinds.VIRTUAL_MACHINE_INSTANCE.object(f"vm-{number}", "elsewhere", status={"nodeName": "stays"})
            world.put(vmi)
        assert reason in run.failure("workload_update", timeout=20)

    def test_a_pod_that_comes_out_wrong(self, run, world, add):
        Kubevirt(world, image=STOCK)
        add("vm")
        message = run.failure("workload_update")
        assert f"but its pod virt-launcher-vm-x has {STOCK} again" in message

    def test_a_pod_that_comes_out_on_the_wrong_node(self, run, world, add):
        Kubevirt(world, to="stays")
        add("vm")
        assert "but it is on node stays, which is not of gpu" in run.failure("workload_update")

    def test_a_migration_that_kubevirt_refuses(self, run, world, add):
        add("vm")
        world.denied.add(("create", MIGRATION.plural))
        message = run.failure("workload_update")
        assert "lacks 1 permission " in message
        assert "create virtualmachineinstancemigrations.kubevirt.io" in message

    @pytest.mark.parametrize("how", ["at once", "with a finalizer", "and creates one of its name"])
    def test_another_client_deletes_the_migration(self, run, world, add, how):
        """KubeVirt fails a migration that is deleted, and lets it go right after that."""
        Kubevirt(world, stick={"vm"})
        add("vm")

        def delete():
            (migration,) = world.all(MIGRATION)
            if how == "with a finalizer":
                migration["metadata"]["deletionTimestamp"] = "now"
                migration["status"]["phase"] = "Failed"
                return
            world.drop(MIGRATION, migration["metadata"]["name"], "plain")
            if how != "at once":
                metadata = {**migration["metadata"], "uid": "theirs", "labels": {}}
                world.put({**migration, "metadata": metadata, "status": {"phase": "Failed"}})

        world.at[world.now + 5] = delete
        assert "was deleted by another client" in run.failure("workload_update")

    @pytest.mark.parametrize("message", ["has lost its Lease", "cannot connect"])
    def test_that_concern_all_vms_are_no_failures_of_theirs(self, run, world, add, monkeypatch, message):
        monkeypatch.setattr(lease, "Clock", lambda now: waiting.Clock(now=lambda: world.now, sleep=world.sleep))
        Kubevirt(world)
        for name in ("a", "b"):
            add(name)

        def before(request):
            if not request.path.endswith(f"/plain/{MIGRATION.plural}"):
                return
            if message == "cannot connect":
                raise CannotConnect(message)
            world.sleep(11)
            world.drop(kinds.LEASE, names.LEASE_NAME, builders.NAMESPACE)

        world.before = before
        found = run("workload_update")
        assert message in found["msg"]
        assert (found["vms"], migrations(world)) == ([], [])


class TestMeanwhile:
    def other(self, world, name="vm", ours=False):
        labels = {names.MANAGED_BY_LABEL: names.MANAGED_BY} if ours else {}
        migration = MIGRATION.object("other", "plain", spec={"vmiName": name})
        migration["metadata"]["labels"] = labels
        world.put(migration)

    def test_another_migration_of_the_vm_is_waited_for(self, run, world, add):
        Kubevirt(world, image=STOCK)
        add("vm")
        self.other(world)
        message = run.failure("workload_update")
        assert len(migrations(world)) == 2, "first the other one, then ours"
        assert f"has {STOCK} again" in message

    def test_that_may_have_updated_it(self, run, world, add):
        Kubevirt(world)
        add("vm")
        self.other(world)
        (outcome,) = run("workload_update")["vms"]
        assert (outcome["result"], outcome["message"]) == ("done", "it was updated since")
        assert migrations(world) == ["vm"]

    def test_that_was_faster_than_ours(self, run, world, add, monkeypatch):
        Kubevirt(world)
        add("vm")
        answer = world._answer

        def refuse(request):
            if request.method == "POST" and request.path.endswith(MIGRATION.plural):
                self.other(world)
                raise Refused(400, "BadRequest", "in-flight migration detected")
            return answer(request)

        monkeypatch.setattr(world, "_answer", refuse)
        assert run("workload_update")["vms"][0]["message"] == "it was updated since"

    def test_that_was_faster_than_ours_for_kubevirt_alone(self, run, world, add):
        """Its webhook lets two through that come at once, and virt-controller fails the one that it sees later."""
        Kubevirt(world)
        add("vm")

        def after(request):
            if request.method == "POST" and request.path.endswith(MIGRATION.plural):
                (ours,) = world.all(MIGRATION)
                ours["status"] = {"phase": "Failed"}
                self.other(world)

        world.after = after
        assert run("workload_update")["vms"][0]["message"] == "it was updated since"
        assert migrations(world) == ["vm", "vm"]

    def test_a_refusal_for_another_reason_is_told(self, run, world, add, monkeypatch):
        add("vm")
        answer = world._answer

        def refuse(request):
            if request.method == "POST" and request.path.endswith(MIGRATION.plural):
                raise Refused(400, "BadRequest", "no migration on Sundays")
            return answer(request)

        monkeypatch.setattr(world, "_answer", refuse)
        assert "no migration on Sundays" in run.failure("workload_update")

    def test_one_that_never_ends(self, run, world, add):
        Kubevirt(world, stick={"vm"})
        add("vm")
        self.other(world)
        assert "another migration of it, other (Scheduling), does not end; cancel that one" in run.failure(
            "workload_update", timeout=10
        )
        assert migrations(world) == ["vm"], "it is not ours to cancel"

    def test_one_whose_other_half_never_comes(self, run, world, add):
        add("vm")
        sender = MIGRATION.object("other", "plain", spec={"vmiName": "vm", "sendTo": {"migrationID": "x"}})
        world.put({**sender, "status": {"phase": "Synchronizing"}})
        message = run.failure("workload_update", timeout=10)
        assert (
            "other (Synchronizing), which waits for its other half in another cluster or namespace, does not end"
            in message
        )
        assert "`kubectl delete vmim other -n plain`" in message

    def test_a_killed_runs_migration_is_taken_up(self, run, world, add):
        Kubevirt(world, seconds=8)
        add("vm")
        self.other(world, ours=True)
        assert results(run("workload_update")) == {"vm": "done"}
        assert migrations(world) == ["vm"]

    def test_a_migration_that_is_being_cancelled_is_waited_for(self, run, world, add):
        """By the former run, whose time for it was up."""
        kubevirt = Kubevirt(world, stick={"vm"})
        add("vm")
        self.other(world, ours=True)
        (cancelled,) = world.all(MIGRATION)
        cancelled["metadata"]["deletionTimestamp"] = "now"

        def end():
            world.drop(MIGRATION, "other", "plain")
            kubevirt.stick = ()

        world.at[world.now + 5] = end
        assert results(run("workload_update")) == {"vm": "done"}

    def test_a_create_whose_answer_was_lost_is_made_once(self, run, world, add):
        Kubevirt(world)
        add("vm")
        lost = []

        def lose(request):
            if request.method == "POST" and request.path.endswith(MIGRATION.plural) and not lost:
                lost.append(request)
                raise LOST

        world.after = lose
        assert results(run("workload_update")) == {"vm": "done"}
        assert (migrations(world), len(lost)) == (["vm"], 1)

    @pytest.mark.parametrize(
        ("change", "result"),
        [
            (lambda world: world.drop(VMI, "b", "plain"), "gone"),
            (lambda world: world.find(VMI, "b", "plain")["status"].update(conditions=[]), "restart"),
            (lambda world: pod_of(world, "b")["metadata"].update(deletionTimestamp="now"), "restart"),
        ],
        ids=["gone", "no longer migratable", "pod is ending"],
    )
    @pytest.mark.parametrize("after_look", [False, True])
    def test_a_vm_that_changes_before_its_turn(self, run, world, add, change, result, after_look):
        Kubevirt(world)
        for name in ("a", "b"):
            add(name)

        def refuse(request):
            if request.method == "POST" and (request.body.get("spec") or {}).get("vmiName") == "b":
                change(world)
                raise Refused(400, "BadRequest", "Cannot migrate VMI")

        if after_look:
            world.before = refuse
        else:
            world.at[world.now + 1] = lambda: change(world)
        assert results(run("workload_update", batch=1)) == {"a": "done", "b": result}

    @pytest.mark.parametrize("lasts", [True, False], ids=["lasts", "passes"])
    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            (lambda world: world.put(builders.excluding_kubevirt(targetKubeVirtVersion="v1.9.1")), "is being upgraded"),
            (lambda world: world.drop(*POLICY), "no launcher policy is in force"),
        ],
        ids=["KubeVirt is upgraded", "policy is deleted"],
    )
    def test_what_forbids_an_update_begins_between_two(self, run, world, add, change, reason, lasts):
        """Updates may take hours."""
        Kubevirt(world, seconds=15)
        for name in ("a", "b"):
            add(name)
        before = [world.find(*POLICY), world.find(kinds.KUBEVIRT, "kubevirt", builders.NAMESPACE)]
        world.at[world.now + 5] = lambda: change(world)
        if not lasts:
            world.at[world.now + 20] = lambda: [world.put(obj) for obj in before]
        found = run("workload_update", batch=1)
        assert results(found) == {"a": "done", "b": "failed" if lasts else "done"}
        assert (reason in found.get("msg", ""), migrations(world)) == (lasts, ["a"] if lasts else ["a", "b"])

    def test_kubevirt_is_upgraded_during_a_migration(self, run, world, add):
        """The VM has the new version's image then."""
        new = STOCK.replace("1.9.0", "1.9.1")
        upgraded = [builders.excluding_kubevirt(), builders.primary(desired=1)]
        upgraded = json.loads(json.dumps(upgraded).replace("1.9.0", "1.9.1"))
        Kubevirt(world, image=new, to="n4", seconds=15)
        for name in ("n3", "n4"):
            world.put(builders.node(name, labels={"kubernetes.io/arch": "amd64"}))
            world.put(builders.handler_pod(name))
        add("a", image=f"{STOCK}-old", labels={}, on="n3")
        world.at[world.now + 5] = lambda: [world.put(obj) for obj in upgraded]
        assert results(run("workload_update")) == {"a": "done"}

    @pytest.mark.parametrize("phase", ["Failed", None, "Succeeded"], ids=["failed", "deleted", "succeeded"])
    def test_a_vm_that_ends_during_its_migration(self, run, world, add, phase):
        """KubeVirt fails the migration of a VM that has ended, and deletes that of one that is deleted."""
        Kubevirt(world, stick={"a"})
        add("a")
        add("b")

        def end():
            world.drop(VMI, "a", "plain")
            for migration in world.all(MIGRATION):
                if migration["spec"]["vmiName"] == "a":
                    name = migration["metadata"]["name"]
                    if phase is None:
                        world.drop(MIGRATION, name, "plain")
                    else:
                        migration["status"]["phase"] = phase

        world.at[world.now + 3] = end
        assert results(run("workload_update", batch=1)) == {"a": "gone", "b": "done"}


class TestInput:
    @pytest.mark.parametrize("option", ["batch", "max_failures", "timeout"])
    def test_numbers_below_one(self, run, world, option):
        assert run.failure("workload_update", **{option: 0}) == f"virtpools_update_{option} is 0; give a number from 1."

    def test_a_policy_that_is_not_in_order_is_refused(self, run, world, add):
        add("vm")
        world.drop(kinds.MUTATING_ADMISSION_POLICIES[0], names.POLICY)
        assert "no launcher policy is in force" in run.failure("workload_update")
        assert world.writes == []
