# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.findings import InputErrors
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.monitoring.alerts import Settings
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning import history
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.history import History, OpenWave
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.options import Options
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools import dialects
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders, vms


def entry(*pools, applied="2026-11-21T19:30:00Z", recorded=(), **options):
    made = [builders.pool(pool) if isinstance(pool, str) else pool for pool in pools]
    return history.entry_of(made, recorded, Options(**options), applied, "somebody on host")


def read_back(known):
    return history.read(known.to_config_map(builders.NAMESPACE))


A, B, C = entry("a"), entry("b"), entry("a", "b")


class TestEntries:
    def test_the_same_list_always_has_the_same_digest(self):
        assert entry("a", applied="2027-01-01T00:00:00Z").digest == A.digest
        assert len({found.digest for found in (A, B, C, entry("b", "a"), entry("a", overlap="first_wins"))}) == 5

    @pytest.mark.parametrize("option", [{"prune": True}, {"max_unavailable": 3}, {"prepull": False}])
    def test_options_that_say_how_to_get_there_do_not_count(self, option):
        assert entry("a", **option).digest == A.digest

    def test_kept_pools_come_after_those_of_the_list(self):
        edited = builders.pool("a", activation="all_moved")
        found = entry(edited, recorded=[builders.pool("z"), builders.pool("a"), builders.pool("b")])
        assert found.pools == (edited, builders.pool("z"), builders.pool("b"))


class TestStored:
    def test_is_read_back_as_it_was(self):
        rich = builders.pool("rich", selector={"deviceNames": ["x/y"]}, tolerations=[{"operator": "Exists"}])
        (bare,) = dialects.read_dialect("additionalVirtHandlers", [{"name": "bare", "nodeSelector": {"hw": "bare"}}])
        settings = Settings("monitoring", {"release": "prom"})
        options = {"overlap": "first_wins", "assign_new_nodes": True, "guard": True, "alerts": settings}
        known = History((A, entry(rich, bare, **options)), A.digest, opened=True)
        assert read_back(known) == known
        assert [found.run_options["alerts"] for found in read_back(known).entries] == [None, settings]

    def test_one_without_alerts_is_read_and_keeps_its_digest(self):
        options = {"overlap": "error", "launcher_backend": "auto", "outdated": "refuse"}
        assert A.to_object()["options"] == {**options, "assign_new_nodes": False, "guard": None}
        assert A.digest == "f76777f0546f", "as release 0.1.0 has it"

    def test_ten_entries_at_most_and_the_oldest_goes_first(self):
        known = History()
        for number in range(12):
            known = known.completed(entry(f"p{number}"))
        assert [found.pools[0].name for found in read_back(known).entries] == [f"p{n}" for n in range(2, 12)]

    def test_large_lists_push_out_the_oldest_but_never_the_newest(self):
        def large(name, size):
            return entry(
                builders.pool(
                    name, selector={"namespaces": ["n" * 58 + str(n) for n in range(size)], "architectures": ["amd64"]}
                )
            )

        known = History((large("a", 6000), large("b", 6000), large("c", 6000)))
        data = known.to_data()
        assert len(data["entries"].encode()) < history.MOST_BYTES
        assert [found.pools[0].name for found in read_back(known).entries] == ["b", "c"]
        assert len(read_back(History((A, large("huge", 16000)))).entries) == 1

    def test_what_cannot_be_read_is_left_out(self):
        made = History((A, B)).to_config_map(builders.NAMESPACE)
        entries = json.loads(made["data"]["entries"])
        broken = [{"pools": []}, None, 7, {**entries[0], "pools": [{"name": "?"}]}, {**entries[0], "options": {}}]
        broken += [{**entries[0], "options": {**entries[0]["options"], "alerts": x}} for x in (7, {"namespace": "A"})]
        made["data"]["entries"] = json.dumps([*broken, *entries])
        found = history.read(made)
        assert (found.entries, found.unreadable) == ((A, B), tuple(f"data.entries[{n}]" for n in range(len(broken))))
        for text, unreadable in (("{", ("data.entries",)), ("7", ("data.entries",)), ("", ()), (None, ())):
            made["data"]["entries"] = text
            found = history.read(made)
            assert (found.entries, found.unreadable) == ((), unreadable)

    @pytest.mark.parametrize("later", [{"launcher_backend": "later"}, {"guard": "later"}, {"later": True}])
    def test_an_option_of_a_later_release_is_not_dropped_unseen(self, later):
        made = History((A,)).to_config_map(builders.NAMESPACE)
        (written,) = json.loads(made["data"]["entries"])
        made["data"]["entries"] = json.dumps([{**written, "options": {**written["options"], **later}}])
        found = history.read(made)
        assert (found.entries, found.unreadable) == ((), ("data.entries[0]",))
        for act in (lambda: found.find(A.digest), lambda: found.rollback_target([])):
            with pytest.raises(InputErrors, match=r"and data.entries\[0\] cannot be read by this release"):
                act()

    def test_somebody_elses_config_map_is_not_touched(self):
        made = History((A,)).to_config_map(builders.NAMESPACE)
        del made["metadata"]["labels"]
        with pytest.raises(InputErrors, match=f"ConfigMap kubevirt/{names.HISTORY} exists but is not ours"):
            history.read(made)


class TestCompleted:
    def test_the_newest_list_again_adds_no_entry(self):
        known = History((A, B))
        assert known.completed(entry("b", applied="later")) == known
        assert known.completed(A).entries == (A, B, A)

    def test_ends_the_rollback(self):
        assert History((A, B)).begun(A.digest, ()).completed(A) == History((A, B, A))
        assert History((A, B)).begun(B.digest, ()).completed(B) == History((A, B))


class TestIsCurrent:
    def test_the_newest_list_in_any_order(self):
        known = History((A, C))
        assert known.is_current(entry("b", "a", overlap="first_wins"))
        assert not known.is_current(entry("a", "b", assign_new_nodes=True))
        assert not known.is_current(entry("a", "b", alerts=Settings()))
        assert History((entry("a", alerts=Settings()),)).is_current(entry("a", alerts=Settings()))
        assert not known.is_current(A)
        assert not History().is_current(A)

    def test_not_while_a_rollback_is_under_way(self):
        assert not History((A, B)).begun(B.digest, ()).is_current(B)


class TestFallback:
    """Where a run of a list goes back to when a wave fails."""

    def test_is_the_newest_list_after_an_interrupted_run(self):
        assert [History((A, B)).fallback(C, pools) for pools in (B.pools, C.pools, ())] == [B.digest] * 3

    def test_a_first_run_goes_back_to_no_pools(self):
        assert History().fallback(A, ()) == history.NO_POOLS
        assert read_back(History().begun(None, ())).fallback(A, A.pools) == history.NO_POOLS

    def test_pools_without_a_history_have_none(self):
        assert not History().begun(None, A.pools).opened
        with pytest.raises(InputErrors, match="does not record which list created them"):
            History().fallback(A, A.pools)

    def test_the_newest_list_again_has_none(self):
        with pytest.raises(InputErrors, match="the run applies the list that was applied last"):
            History((A, B)).fallback(entry("b", applied="later"), B.pools)

    def test_only_a_first_run_is_marked_as_opening_the_history(self):
        assert not History((A,)).begun(None, ()).opened


class TestRollbackTarget:
    def test_is_the_list_before_the_one_that_the_cluster_has(self):
        assert History((A, B)).rollback_target(B.pools) == A

    def test_a_rollback_of_a_rollback_returns(self):
        assert History((A, B, A)).rollback_target(A.pools) == B

    def test_is_the_newest_where_a_run_did_not_complete(self):
        assert History((A, B)).rollback_target(C.pools) == B
        assert History((A,)).rollback_target(C.pools) == A

    def test_is_the_newest_where_a_run_began_and_pools_do_not_tell(self):
        """It has only taken nodes from a pool that it removes, for example."""
        begun = read_back(History((A, B)).begun(None, B.pools))
        assert begun.rollback_target(B.pools) == B
        assert not begun.is_current(B)
        assert begun.completed(B) == History((A, B))

    def test_is_the_newest_where_a_removal_began(self):
        begun = read_back(History((A, B)).removal_begun())
        assert begun.rollback_target(B.pools) == B
        assert begun.completed(B) == History((A, B))
        assert History().removal_begun() == History()

    @pytest.mark.parametrize("asked", [["b"], None], ids=["one", "all"])
    def test_is_the_list_with_the_pools_after_a_removal(self, asked):
        removed = History((A, C)).removal_begun().pools_removed(asked, ["a"], A.applied, A.by)
        assert removed == History((A, C, A))
        assert removed.rollback_target(A.pools) == C

    @pytest.mark.parametrize("asked", [["b"], None], ids=["one", "all"])
    def test_is_the_newest_while_a_removed_pool_cannot_go(self, asked):
        begun = History((A, C)).removal_begun()
        assert begun.pools_removed(asked, ["a", "b"], A.applied, A.by) == begun

    def test_is_the_list_before_where_the_newest_is_applied_again(self):
        """It drew in a node that has joined, for example."""
        again = History((A, B)).begun(None, B.pools, brings=B.digest)
        assert again.rollback_target(B.pools) == A
        assert again.is_current(B)

    @pytest.mark.parametrize("other", [{"digest": None, "brings": C.digest}, {"digest": A.digest}])
    def test_is_the_newest_where_that_follows_a_run_of_another_list(self, other):
        begun = History((A, B)).begun(recorded=B.pools, **other)
        assert begun.begun(None, B.pools, brings=B.digest).rollback_target(B.pools) == B

    def test_is_the_newest_after_a_run_that_ended_a_rollback(self):
        begun = History((A, B)).begun(A.digest, B.pools).begun(None, B.pools)
        assert begun.rollback_target(B.pools) == B

    def test_the_order_of_pools_on_the_cluster_does_not_matter(self):
        assert History((A, C)).rollback_target(reversed(C.pools)) == A

    def test_of_the_same_pools_in_the_other_mode_is_the_newest_list(self):
        operator = history.entry_of(A.pools, (), Options(), "", "", "WorkerPool")
        assert History((A, operator)).rollback_target(A.pools) == operator
        assert History((A, operator)).rollback_target(A.pools, "WorkerPool") == A
        with pytest.raises(InputErrors, match="one of the other mode"):
            History((operator,)).fallback(A, ())

    def test_an_interrupted_rollback_keeps_its_target(self):
        begun = History((A, B)).begun(A.digest, ())
        assert [begun.rollback_target(pools) for pools in (B.pools, C.pools, A.pools)] == [A, A, A]

    def test_no_earlier_list(self):
        with pytest.raises(InputErrors, match=r"no earlier pool list .* has 0 lists"):
            History().rollback_target(())
        with pytest.raises(InputErrors, match=r"has 1 list"):
            History((A,)).rollback_target(A.pools)

    @pytest.mark.parametrize("after", [B, A], ids=["that was carried out", "that was refused"])
    def test_of_an_approved_plan_is_the_list_before_it(self, after):
        assert History((A, B, after)).undo_target(B.digest, A.digest) == A

    @pytest.mark.parametrize(
        ("entries", "lists", "problem"),
        [
            ((A, B, C), (B, A), f"Another run has applied list {C.digest} since"),
            ((), (B, A), f"Another run has applied list {history.NO_POOLS} since"),
            ((A, B), (B, B), "which the cluster had already"),
            ((A,), (A, None), "Before the approved plan the cluster had no pools"),
        ],
        ids=["another run", "removed", "no change", "first"],
    )
    def test_of_an_approved_plan_that_cannot_be_undone(self, entries, lists, problem):
        digests = [found.digest if found else history.NO_POOLS for found in lists]
        with pytest.raises(InputErrors, match=problem):
            History(entries).undo_target(*digests)

    def test_an_unknown_digest_is_refused(self):
        known = ", ".join(sorted([A.digest, B.digest]))
        with pytest.raises(InputErrors, match=f"has no pool list 'abc'; it has: {known}"):
            History((A, B)).find("abc")
        with pytest.raises(InputErrors, match="it has: none"):
            History().begun("abc", ())


class TestOpenWaves:
    CANARY = OpenWave("canary", ("n1", "n2"), ("no_heartbeat n2",))
    BACK = OpenWave("canary", ("n1", "n2"), (), A.digest)

    def test_is_read_back_as_it_was(self):
        known = History((A,), A.digest, waves=(self.CANARY, self.BACK))
        assert read_back(known) == known
        assert read_back(History(waves=(self.CANARY,))).opened is False

    def test_one_that_begins_again_keeps_its_baseline(self):
        known = History().wave_begun(self.CANARY)
        later = OpenWave("canary", ("n2", "n1"), ("no_heartbeat n1",))
        assert known.wave_begun(later) == known
        assert known.open_wave(later.id).baseline == ("no_heartbeat n2",)

    def test_is_gone_when_it_is_done(self):
        known = History().wave_begun(self.CANARY).wave_begun(self.BACK)
        assert known.wave_done(self.CANARY.id).waves == (self.BACK,)
        with pytest.raises(InputErrors, match="has no open wave 'nope'; plan again"):
            known.open_wave("nope")

    def test_a_run_that_leads_elsewhere_drops_it(self):
        known = History((A, B), waves=(self.CANARY, self.BACK))
        assert known.begun(None, ()).waves == (self.CANARY,)
        assert known.begun(A.digest, ()).waves == (self.BACK,)
        assert known.begun(B.digest, ()).waves == ()
        assert known.begun(None, (), afresh=True).waves == ()

    def test_a_run_that_completes_has_none(self):
        assert History((A,), waves=(self.CANARY,)).completed(A).waves == ()
        assert History((A,), waves=(self.CANARY,)).completed(B).waves == ()

    def test_a_list_with_an_open_wave_is_not_current(self):
        assert History((A,)).is_current(A)
        assert not History((A,), waves=(self.CANARY,)).is_current(A)

    def test_more_than_five_are_not_kept(self):
        known = History()
        for number in range(7):
            known = known.wave_begun(OpenWave(f"w{number}", (f"n{number}",)))
        assert [wave.name for wave in known.waves] == ["w2", "w3", "w4", "w5", "w6"]

    def test_they_push_old_entries_out_and_fit_with_the_newest(self):
        large = OpenWave("all", tuple(f"{'n' * 200}{number}" for number in range(3000)))
        stored = read_back(History((A, B), waves=(large,)))
        assert (stored.entries, stored.waves) == ((A, B), (large,))
        larger = OpenWave("more", tuple(f"{'n' * 200}{number}" for number in range(4000)))
        stored = read_back(History((A, B), waves=(large, larger)))
        assert (stored.entries, stored.waves) == ((B,), (larger,))

    def test_what_cannot_be_read_is_left_out(self):
        made = History((A,), waves=(self.CANARY,)).to_config_map(builders.NAMESPACE)
        (written,) = json.loads(made["data"]["openWaves"])
        made["data"]["openWaves"] = json.dumps([None, 7, {}, {**written, "nodes": None}, written])
        found = history.read(made)
        assert (found.waves, found.unreadable) == ((self.CANARY,), tuple(f"data.openWaves[{n}]" for n in range(4)))
        made["data"]["openWaves"] = "{"
        assert (history.read(made).waves, history.read(made).unreadable) == ((), ("data.openWaves",))


class TestMove:
    def move(self, *, former=None):
        to = entry("other")
        return history.PendingMove(to, former or A, "digest", "virtHandlerPools")

    def test_is_read_back_as_it_was(self):
        known = History((B,)).move_begun(self.move())
        assert read_back(known) == known

    def test_what_it_takes_down_is_in_the_history_once(self):
        former = A
        assert History().move_begun(self.move(former=former)).entries == (former,)
        assert History((former,)).move_begun(self.move(former=former)).entries == (former,)

    def test_what_it_takes_down_follows_the_lists_before(self):
        assert History((B,)).move_begun(self.move(former=A)).entries == (B, A)

    def test_in_a_rollback_adds_no_list(self):
        going = replace(History((A, B)), going_to=A.digest)
        assert going.move_begun(self.move(former=entry("a", "half"))).entries == (A, B)

    @pytest.mark.parametrize("begun", ["applying", "removing"])
    def test_after_an_interrupted_run_adds_no_half_list(self, begun):
        interrupted = replace(History((A, B)), **{begun: True})
        assert interrupted.move_begun(self.move(former=entry("a", "half"))).entries == (A, B)

    def test_one_that_begins_again_adds_no_entry(self):
        known = History().move_begun(self.move())
        half = self.move(former=entry("a", "half"))
        assert known.move_begun(half).entries == known.entries

    def test_its_list_can_be_brought_back(self):
        move = self.move()
        assert History().move_begun(move).find(move.to.digest) == move.to

    def test_ends_with_the_next_run_that_completes(self):
        known = History((B,)).move_begun(self.move())
        assert not known.is_current(known.entries[-1])
        assert known.completed(known.entries[-1]).moving is None

    def test_what_cannot_be_read_is_left_out(self):
        for written in ("nonsense", "[]", '{"to": 1}', "null"):
            config_map = History().to_config_map("kubevirt")
            config_map["data"]["moving"] = written
            found = history.read(config_map)
            assert (found.moving, found.unreadable) == (None, () if written == "null" else ("data.moving",))


class TestFindings:
    def found(self, *, lists="", begun="", **asked):
        made = History((A,)).to_config_map(builders.NAMESPACE)
        made["data"].update({"entries": lists or made["data"]["entries"], "openWaves": begun})
        snapshot = builders.snapshot_of([builders.node("n1")], admission=vms.admission(made))
        findings = history.unreadable_findings(history.recorded_in(snapshot), snapshot.namespace, **asked)
        return [(each.severity, each.message) for each in findings]

    def test_without_any(self):
        assert self.found() == []

    def test_of_lists_only_warn(self):
        ((severity, message),) = self.found(lists="{")
        assert severity == "warning"
        assert message.startswith("ConfigMap kubevirt/virtpools-history: data.entries cannot be read by this release")

    @pytest.mark.parametrize("accepted", [{}, {"undoing": True}, {"skip_pending_gates": True}])
    def test_of_what_a_run_began_forbid_another_run(self, accepted):
        ((severity, message),) = self.found(begun="[7]", **accepted)
        assert severity == ("warning" if accepted else "error")
        assert "cannot read data.openWaves[0], by which a run goes on with what another one began" in message
