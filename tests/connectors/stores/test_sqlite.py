"""The stores of one file: what they keep, what they refuse, and how they fail."""

import sqlite3
from pathlib import Path

import pytest

from autoscaler.connectors.engines.ledger import LoadEntry
from autoscaler.connectors.stores.database import Database
from autoscaler.connectors.stores.decisions import SqliteDecisions
from autoscaler.connectors.stores.proposals import ProposalState
from autoscaler.connectors.stores.schema import VERSION
from autoscaler.connectors.stores.sqlite import SqliteStores
from autoscaler.domain.decisions import DecisionRecord, Reason, Step
from autoscaler.domain.fleet import Override, PauseMode, Tier
from autoscaler.planner.approval import Proposal
from autoscaler.ports import ConflictError, PermanentError, TemporaryError
from tests.connectors.conftest import SetClock


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture
def stores(path: Path, clock: SetClock) -> SqliteStores:
    return SqliteStores(path, clock.now_s)


def override(tenant: str = "acme", tier: Tier = Tier.HOT, reason: str = "launch") -> Override:
    return Override(tenant, tier, reason, "ann", 1000.0, 2000.0)


def record(number: int, subject: str = "tenant/acme") -> DecisionRecord:
    return DecisionRecord(
        id=f"p1/{number}",
        at_s=1000.0,
        fleet="f",
        step="tiers",
        subject=subject,
        reason=Reason.FORECAST_HOT,
        before="warm",
        after="hot",
        message='said "so" \u2603',
        trail=(Step(Reason.FORECAST_HOT, 1.5, "1.5 > 1"), Step(Reason.BOUNDS, "hot", "fits")),
        data={"p90": 1.5, "dwell": True, "n": 3, "who": "x"},
    )


def proposal(key: str) -> Proposal:
    return Proposal(key, "group/warm", "2", "3", "queue")


def test_overrides_survive_closing(stores: SqliteStores, path: Path, clock: SetClock) -> None:
    stores.overrides.put("f", override("zoe"))
    kept = stores.overrides.put("f", override())
    stores.close()
    assert SqliteStores(path, clock.now_s).overrides.overrides("f") == (kept, override("zoe"))


def test_fleets_do_not_see_each_other(stores: SqliteStores) -> None:
    stores.overrides.put("f", override())
    assert stores.overrides.overrides("g") == ()


def test_an_override_changes_only_over_the_revision_that_was_read(stores: SqliteStores) -> None:
    first = stores.overrides.put("f", override(), if_revision=0)
    assert first.revision == 1
    second = stores.overrides.put("f", override(reason="again"), if_revision=1)
    assert second.revision == 2
    with pytest.raises(ConflictError, match="at revision 2, not 1") as conflict:
        stores.overrides.put("f", override(), if_revision=1)
    assert conflict.value.current_revision == 2
    assert stores.overrides.overrides("f") == (second,)


def test_a_cleared_override_never_gives_its_revision_again(stores: SqliteStores) -> None:
    stores.overrides.put("f", override())
    assert stores.overrides.clear("f", "acme", "bob", if_revision=1) == override()
    assert stores.overrides.clear("f", "acme", "bob") is None
    with pytest.raises(ConflictError, match="at revision 0, not 1"):
        stores.overrides.clear("f", "acme", "bob", if_revision=1)
    assert stores.overrides.put("f", override(), if_revision=0).revision == 3


def test_pauses_are_set_and_ended(stores: SqliteStores) -> None:
    stores.overrides.pause("f", "warm", PauseMode.SCALE_IN, "load test", 1500.0, "ann")
    assert stores.overrides.pauses("f") == {"warm": (PauseMode.SCALE_IN, "load test", 1500.0)}
    stores.overrides.pause("f", "warm", PauseMode.NONE, "", 0.0, "bob")
    assert stores.overrides.pauses("f") == {}


def test_every_change_is_in_the_audit_with_before_and_after(stores: SqliteStores) -> None:
    stores.overrides.put("f", override())
    stores.overrides.put("f", override(tier=Tier.COLD, reason="over"))
    stores.overrides.clear("f", "acme", "bob")
    stores.overrides.pause("f", "warm", PauseMode.ALL, "fire", 1500.0, "eve")
    told = [(e.actor, e.action, e.subject, e.before, e.after) for e in stores.audit.read("f")]
    assert told == [
        ("eve", "pause.set", "group/warm", "none", "all until 1500: fire"),
        ("bob", "override.clear", "tenant/acme", "cold until 2000: over", ""),
        ("ann", "override.put", "tenant/acme", "hot until 2000: launch", "cold until 2000: over"),
        ("ann", "override.put", "tenant/acme", "", "hot until 2000: launch"),
    ]
    assert stores.audit.reaches_back_to_s() == 1000.0


def test_a_refused_change_leaves_no_audit(stores: SqliteStores) -> None:
    with pytest.raises(ConflictError):
        stores.overrides.put("f", override(), if_revision=4)
    assert stores.audit.read() == ()
    assert stores.audit.reaches_back_to_s() is None


def test_the_audit_cannot_be_changed(stores: SqliteStores, path: Path) -> None:
    stores.audit.add("f", "ann", "detach", "fleet/f")
    with sqlite3.connect(path) as other, pytest.raises(sqlite3.IntegrityError, match="append-only"):
        other.execute("UPDATE audit SET actor = 'nobody'")


def test_decisions_come_back_as_they_were(stores: SqliteStores) -> None:
    stores.decisions.append([record(1), record(2, "group/warm")])
    stores.decisions.append([record(2, "group/warm"), record(10)])
    assert stores.decisions.read("f") == (record(1), record(2, "group/warm"), record(10))
    assert stores.decisions.read("f", since="p1/2") == (record(10),)
    assert stores.decisions.read("f", subject="group/warm") == (record(2, "group/warm"),)
    assert stores.decisions.read("f", limit=1) == (record(10),)
    assert stores.decisions.read("f", since="p1/1", limit=1) == (record(2, "group/warm"),)


def test_old_decisions_go_first(path: Path, clock: SetClock) -> None:
    decisions = SqliteDecisions(Database(path, clock.now_s), most=3)
    decisions.append([record(n) for n in range(5)])
    assert [r.id for r in decisions.read("f", since="p1/0")] == ["p1/2", "p1/3", "p1/4"]


def test_a_checkpoint_is_replaced(stores: SqliteStores) -> None:
    assert stores.checkpoints.load("f") is None
    stores.checkpoints.save("f", "{1}")
    stores.checkpoints.save("f", "{2}")
    assert stores.checkpoints.load("f") == "{2}"


def test_loads_are_remembered_by_process(stores: SqliteStores) -> None:
    stores.loads.remember_load("f", LoadEntry("r1", 5.0, "a", "1"))
    stores.loads.remember_load("f", LoadEntry("r1", 5.0, "a", "2"))
    stores.loads.remember_load("f", LoadEntry("r1", 5.0, "b", ""))
    stores.loads.remember_load("f", LoadEntry("r2", 6.0, "a", ""))
    stores.loads.forget_loads("f", "r1", "b")
    stores.loads.forget_loads("f", "r2")
    assert stores.loads.loads("f") == [LoadEntry("r1", 5.0, "a", "2")]


def test_an_approval_holds_for_a_while_and_then_the_change_is_proposed_anew(
    stores: SqliteStores, clock: SetClock
) -> None:
    stores.proposals.propose("f", [proposal("k1"), proposal("k2")])
    second, first = stores.proposals.list("f")
    assert (first.key, first.state) == ("k1", ProposalState.WAITING)
    approved = stores.proposals.decide("f", first.id, "ann", approve=True, ttl_s=60.0)
    assert approved is not None
    assert (approved.state, approved.actor, approved.until_s) == (ProposalState.APPROVED, "ann", 1060.0)
    assert stores.proposals.decide("f", first.id, "bob", approve=False) is None
    assert stores.proposals.approvals("f") == {"k1"}
    stores.proposals.propose("f", [])
    assert stores.proposals.approvals("f") == {"k1"}
    again = stores.proposals.read("f", second.id)
    assert again is not None
    assert again.state is ProposalState.ENDED
    clock.at_s += 61
    assert stores.proposals.approvals("f") == frozenset()
    stores.proposals.propose("f", [proposal("k1")])
    assert [p.key for p in stores.proposals.list("f", ProposalState.WAITING)] == ["k1"]
    assert [(e.actor, e.action) for e in stores.audit.read()] == [("ann", "proposal.approve")]


def test_a_rejected_change_is_not_asked_again_at_once(stores: SqliteStores) -> None:
    stores.proposals.propose("f", [proposal("k1")])
    assert stores.proposals.decide("f", stores.proposals.list("f")[0].id, "ann", approve=False) is not None
    stores.proposals.propose("f", [proposal("k1")])
    assert stores.proposals.list("f", ProposalState.WAITING) == ()


@pytest.mark.parametrize("wrong", ["", "0", "-1", "x", "9" * 30, "1; DROP TABLE proposals", "\u0661"])
def test_an_id_that_is_no_proposals_is_none(stores: SqliteStores, wrong: str) -> None:
    assert stores.proposals.decide("f", wrong, "ann", approve=True) is None
    assert stores.proposals.read("f", wrong) is None


def test_a_newer_file_is_refused(stores: SqliteStores, path: Path, clock: SetClock) -> None:
    stores.close()
    with sqlite3.connect(path) as other:
        other.execute("PRAGMA user_version = 99")
    with pytest.raises(PermanentError, match=f"schema version 99, this program knows up to {VERSION}: run the newer"):
        SqliteStores(path, clock.now_s)


def test_an_older_file_is_migrated_step_by_step(path: Path, clock: SetClock) -> None:
    Database(path, clock.now_s, [("CREATE TABLE t (a)", "INSERT INTO t VALUES (1)")]).close()
    later = Database(path, clock.now_s, [("no longer run",), ("ALTER TABLE t ADD b", "UPDATE t SET b = 2")])
    assert later.read("SELECT a, b FROM t") == [(1, 2)]


def test_a_migration_that_fails_changes_nothing(path: Path, clock: SetClock) -> None:
    Database(path, clock.now_s, [("CREATE TABLE t (a)",)]).close()
    with pytest.raises(PermanentError, match="nonsense"):
        Database(path, clock.now_s, [(), ("DROP TABLE t", "nonsense")])
    assert Database(path, clock.now_s, [()]).read("SELECT * FROM t") == []


def test_another_programs_database_is_left_alone(path: Path, clock: SetClock) -> None:
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE theirs (a)")
    with pytest.raises(PermanentError, match="another program"):
        SqliteStores(path, clock.now_s)


@pytest.mark.parametrize("damage", ["head", "middle", "text"])
def test_a_damaged_file_is_set_aside_and_said(path: Path, clock: SetClock, damage: str) -> None:
    stores = SqliteStores(path, clock.now_s)
    for tenant in range(300):
        stores.overrides.put("f", override(f"t{tenant}"))
    stores.close()
    content = bytearray(path.read_bytes())
    if damage == "text":
        content = bytearray(b"not a database at all" * 300)
    else:
        start = 0 if damage == "head" else 4096
        content[start : start + 8192] = b"\xa5" * 8192
    path.write_bytes(bytes(content))
    again = SqliteStores(path, clock.now_s)
    assert again.overrides.overrides("f") == ()
    assert path.with_name("state.db.damaged-1").read_bytes() == bytes(content)
    assert "begin anew" in again.conditions["StoreSetAside"]
    again.overrides.put("f", override())


def test_a_full_disk_loses_nothing_that_was_saved(stores: SqliteStores, path: Path) -> None:
    stores.overrides.put("f", override())
    database = stores._database
    pages = database.read("PRAGMA page_count")[0][0]
    database.read(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(TemporaryError, match="is full: free some space"):
        stores.checkpoints.save("f", "x" * 1_000_000)
    database.read("PRAGMA max_page_count = 1000000")
    stores.checkpoints.save("f", "y")
    assert stores.overrides.overrides("f") == (override(),)


def test_a_read_only_file_says_the_remedy(stores: SqliteStores) -> None:
    stores._database.read("PRAGMA query_only = 1")
    with pytest.raises(PermanentError, match="is read-only: let this user write"):
        stores.overrides.put("f", override())


def test_a_file_locked_by_another_is_temporary(stores: SqliteStores, path: Path) -> None:
    stores._database.read("PRAGMA busy_timeout = 1")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(TemporaryError, match="locked by another process"):
        stores.overrides.put("f", override())
    other.execute("ROLLBACK")
    other.close()
    stores.overrides.put("f", override())


def test_a_folder_that_is_gone_is_named(tmp_path: Path, clock: SetClock) -> None:
    with pytest.raises(PermanentError, match="cannot be opened: name a file in a folder that exists"):
        SqliteStores(tmp_path / "gone" / "state.db", clock.now_s)


def test_a_detached_fleet_stays_detached_after_a_restart_and_both_ways_are_audited(
    stores: SqliteStores, path: Path, clock: SetClock
) -> None:
    first = stores.detachments.detach("f", "ann", "uninstalling")
    assert stores.detachments.detach("f", "bob", "again") == first, "the first word stands"
    stores.close()
    again = SqliteStores(path, clock.now_s)
    found = again.detachments.read("f")
    assert found is not None
    assert (found.actor, found.reason) == ("ann", "uninstalling")
    assert again.detachments.read("g") is None
    assert again.detachments.attach("f", "bob") == found
    assert again.detachments.attach("f", "bob") is None
    assert [(e.actor, e.action) for e in again.audit.read("f")] == [("bob", "fleet.attach"), ("ann", "fleet.detach")]
    again.close()
