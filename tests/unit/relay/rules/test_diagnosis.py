"""Each state of an outbox is one finding, with what resolves it."""

from dataclasses import replace

import pytest

from relay.rules.crowding import Census, Limits
from relay.rules.diagnosis import (
    Broker,
    Finding,
    Server,
    Wanted,
    of_both,
    of_broker,
    of_message,
    of_server,
)
from relay.rules.places.progress import Cursor, Lag, LogPosition, Origin, Place, at
from relay.rules.places.snapshot import Snapshot
from relay.rules.server.slot import Beginning, Budget, Slot

HERE = Origin("7", 5, 6, 1, "0/FFFF", Snapshot(90, 100))
WANTED = Wanted(
    "shop",
    "auto",
    "dovecote.progress.shop",
    60_000,
    Budget(1_000, None),
    10.0,
    Limits(100_000, 10_000),
)
SLOT = Slot(
    name="dovecote_5_6",
    plugin="pgoutput",
    database="shop",
    confirmed=100,
    restart=96,
    wal_status="reserved",
    invalidation=None,
    failover=True,
    active_pid=42,
)
TABLE = Server(
    version=180_000,
    wal_level="logical",
    role="shop_relay",
    lacks=(),
    origin=HERE,
    shared=None,
    state="table",
    slot_name=SLOT.name,
    database="shop",
    began_at=None,
    beginning=None,
    slot=None,
    other_slots=frozenset(),
    retained=0,
    leaving_open=0,
    active="10.0.0.7 (session 42)",
    claimed=True,
    put_back=None,
    other_cluster=None,
    gone=(),
    has_fsync=True,
    standbys="",
    parked=Census(),
    lag=Lag(),
)
LOG = replace(
    TABLE, state="wal", began_at=100, beginning=Beginning(100, Snapshot(7, 9)), slot=SLOT
)
LOG = replace(LOG, retained=500, lag=Lag(bytes=200))


def broker(place: Place | None, later: Place | None = None) -> Broker:
    """Return a broker whose progress is at `place`, and at `later` when it is asked again."""
    progress, again = (
        None if each is None else at("shop", HERE, each) for each in (place, later or place)
    )
    return Broker(has_topic=True, progress=progress, longest_transaction_ms=900_000, later=again)


def bad(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.level != "ok"]


def diagnose(server: Server, place: Place | None, wanted: Wanted = WANTED) -> list[Finding]:
    known = broker(place)
    return [
        *of_broker(known, wanted),
        *of_server(server, wanted, place),
        *of_both(server, known, wanted),
    ]


@pytest.mark.parametrize(
    ("server", "place"), [(TABLE, Cursor()), (LOG, LogPosition(150)), (LOG, Cursor())]
)
def test_an_outbox_in_order_has_nothing_but_good_findings(server: Server, place: Place) -> None:
    found = diagnose(server, place)
    assert bad(found) == []
    assert len(found) > 5


@pytest.mark.parametrize(
    ("server", "place", "level", "what", "resolve"),
    [
        (
            replace(TABLE, active=None),
            Cursor(),
            "warn",
            "no relay is active",
            "dovecote relay run",
        ),
        (
            replace(TABLE, parked=Census(3, 2)),
            Cursor(),
            "warn",
            "events parked: 3, of which 2 only wait",
            "`dovecote relay parked list`",
        ),
        (TABLE, None, "fail", "knows nothing of it", "restore the topic"),
        (TABLE, LogPosition(5), "fail", "under another `name`", "`progress_topic` of that time"),
        (
            replace(TABLE, lag=Lag(3, 11.0)),
            Cursor(),
            "warn",
            "events waiting: 3, the oldest for 11.0 s",
            "what does its log say",
        ),
        (replace(TABLE, slot=SLOT), Cursor(), "warn", "is not needed any more", "REPLICATION"),
        (
            replace(LOG, other_slots=frozenset({"dovecote_5_6_0_of_3"})),
            LogPosition(150),
            "warn",
            "slot dovecote_5_6_0_of_3 holds back",
            "a running relay drops it",
        ),
        (
            replace(TABLE, origin=replace(HERE, system_identifier="8")),
            Cursor(),
            "fail",
            "another database server",
            "`name` of its own",
        ),
        (
            replace(TABLE, origin=replace(HERE, timeline=2), shared=100),
            Cursor(Snapshot(1, 100)),
            "fail",
            "commits were lost",
            "--accept-restored",
        ),
        (
            TABLE,
            Cursor(Snapshot(1, 101)),
            "fail",
            "lies ahead of this server",
            "--accept-restored",
        ),
        (
            replace(LOG, wal_level="replica"),
            LogPosition(150),
            "fail",
            "wal_level = replica",
            "restart the server",
        ),
        (
            replace(LOG, slot=None),
            LogPosition(150),
            "fail",
            "events committed after 0/96 cannot be read",
            "--accept-gap",
        ),
        (
            replace(LOG, slot=replace(SLOT, wal_status="lost")),
            LogPosition(150),
            "fail",
            "was invalidated",
            "--accept-gap",
        ),
        (
            replace(LOG, slot=replace(SLOT, wal_status="unreserved")),
            LogPosition(150),
            "warn",
            "about to be invalidated",
            "in the way?",
        ),
        (
            replace(LOG, slot=replace(SLOT, confirmed=200)),
            LogPosition(150),
            "fail",
            "somebody made it anew or moved it",
            "--accept-gap",
        ),
        (
            replace(LOG, slot=replace(SLOT, active_pid=None)),
            LogPosition(150),
            "warn",
            "holds back 500 bytes, and the active relay does not read it",
            "the relay's log",
        ),
        (
            replace(LOG, retained=1_001),
            LogPosition(150),
            "warn",
            "more than wal.warn_bytes (1,000)",
            "in the way?",
        ),
        (
            replace(LOG, slot=replace(SLOT, failover=False)),
            LogPosition(150),
            "warn",
            "after a failover it is missing",
            "--accept-gap",
        ),
        (
            replace(TABLE, lacks=("EXECUTE on confirm", "EXECUTE on leaves")),
            Cursor(),
            "warn",
            "role shop_relay lacks EXECUTE on confirm, EXECUTE on leaves: published rows may stay",
            "`dovecote init outbox --relay-role shop_relay`",
        ),
        (
            replace(TABLE, gone=("old", "older")),
            Cursor(),
            "warn",
            "no relay runs under old, older, which has published",
            "delete its line",
        ),
        (
            replace(LOG, state="leaving", leaving_open=2),
            LogPosition(150),
            "warn",
            "2 transactions that are open may still write to the log",
            "pg_prepared_xacts",
        ),
        (
            replace(LOG, unpublished="publication dovecote_1 was dropped by others"),
            LogPosition(150),
            "fail",
            "publication dovecote_1 was dropped by others",
            "run `dovecote init outbox --capture wal`",
        ),
        (
            replace(LOG, state="leaving", unpublished="publication dovecote_1 was dropped"),
            LogPosition(150),
            "fail",
            "publication dovecote_1 was dropped",
            "run `dovecote init outbox --capture table`",
        ),
        (
            replace(TABLE, has_fsync=False),
            Cursor(),
            "warn",
            "a crash of it can take back what is published",
            "set it to on",
        ),
        (
            replace(LOG, standbys="ANY 1 (*)"),
            LogPosition(150),
            "fail",
            "synchronous_standby_names is 'ANY 1 (*)', by which the relay itself",
            "name the real standbys there",
        ),
    ],
)
def test_what_is_wrong_is_told_with_what_resolves_it(
    server: Server, place: Place | None, level: str, what: str, resolve: str
) -> None:
    (found,) = bad(diagnose(server, place))
    assert found.level == level
    assert what in found.what
    assert resolve in found.resolve
    assert str(found).startswith(f"{level}  ")


@pytest.mark.parametrize(
    ("before", "later"),
    [
        (LogPosition(150), LogPosition(0x1_0000)),
        (None, LogPosition(200)),
        (Cursor(), LogPosition(200)),
    ],
)
def test_what_a_relay_confirms_in_between_is_no_fault(before: Place | None, later: Place) -> None:
    busy = replace(LOG, slot=replace(SLOT, confirmed=200))
    assert bad(list(of_both(busy, broker(before, later), WANTED))) == []


def test_a_relay_of_the_table_is_no_standby_whatever_it_is_called() -> None:
    assert bad(diagnose(replace(TABLE, standbys="*"), Cursor())) == []


def test_a_slot_without_failover_is_no_fault_where_there_is_none() -> None:
    older = replace(LOG, version=160_000, slot=replace(SLOT, failover=None))
    assert bad(diagnose(older, LogPosition(150))) == []


def test_a_name_that_has_published_nothing_is_told_of_what_others_hold() -> None:
    others = frozenset({"dovecote_5_6_0_of_3"})
    found = bad(diagnose(replace(LOG, claimed=False, slot=None, other_slots=others), None))
    (slot,) = (each for each in found if "slot" in each.what)
    assert "published in 3 shards" in slot.what
    assert slot.resolve == "set `name`, `progress_topic` and `shards` to what its relays have"


def test_a_name_that_has_not_published_yet_is_no_fault() -> None:
    assert bad(diagnose(replace(TABLE, claimed=False), None)) == []


def test_settings_that_do_not_fit_are_told() -> None:
    insists = replace(WANTED, capture="wal")
    (found,) = bad(diagnose(TABLE, Cursor(), insists))
    assert found.what.startswith("events of this outbox are in the table")
    slow = replace(WANTED, transaction_timeout_ms=1_000_000)
    (found,) = bad(diagnose(TABLE, Cursor(), slow))
    assert "longer than the broker's transaction.max.timeout.ms (900000)" in found.what


def test_a_refusal_is_a_finding_whose_resolution_comes_behind() -> None:
    assert of_message("it is broken; mend it; soon") == Finding(
        "fail", "it is broken", "mend it; soon"
    )
    assert of_message("it is away") == Finding("fail", "it is away")


@pytest.mark.parametrize("which", ["put_back", "other_cluster"])
def test_a_database_that_was_put_back_and_another_cluster_are_findings(which: str) -> None:
    said = "it is not what it was; do that"
    server = (
        replace(TABLE, put_back=said)
        if which == "put_back"
        else replace(TABLE, other_cluster=said)
    )
    (found,) = bad(diagnose(server, Cursor(Snapshot(7, 9))))
    assert str(found) == "fail  it is not what it was; do that"
