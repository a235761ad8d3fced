"""Others drop or change the publication of an outbox that is in the write-ahead log."""

import re
from pathlib import Path

import psycopg
import pytest

from outbox.errors import DovecoteError
from outbox.schema import capture as outbox_capture
from outbox.schema.capture import use_table, use_wal
from relay.errors import Refused
from relay.postgres.capture.switching import SwitchingCapture
from relay.rules.places.progress import LogPosition, Place
from relay.rules.server.leaves import TABLES
from tests.support.audited import Shop
from tests.support.audited_log import drop_by_command, drop_slot, relayed
from tests.support.commands import doctor, init
from tests.support.fix_stack import MakeTopic, Servers
from tests.support.relaying import Relays, commit, event, installed, published
from tests.support.wal_capturing import append, capturing, progress_at, read, read_on

FILTERS, PASSES_OVER = 150_000, 180_000
"""The first versions with filters of rows, and that read on without a publication."""


@pytest.fixture
def dsn(database: str) -> str:
    """A database whose outbox is written to the log."""
    return installed(database, "wal")


@pytest.fixture
def version(dsn: str) -> int:
    with psycopg.connect(dsn) as conn:
        return conn.info.server_version


BY_OTHERS = [
    "DROP PUBLICATION {}",
    "ALTER PUBLICATION {} SET (publish = 'update')",
    "ALTER PUBLICATION {} DROP TABLE ONLY outbox.events_0",
    "ALTER PUBLICATION {} SET TABLE outbox.events WHERE (position < 0)",
]


@pytest.fixture(params=BY_OTHERS)
def change(request: pytest.FixtureRequest, version: int) -> str:
    if "WHERE" in request.param and version < FILTERS:
        pytest.skip("this Postgres has no filters of rows")
    return str(request.param)


def is_unreadable(change: str, version: int) -> bool:
    return "DROP PUBLICATION" in change and version < PASSES_OVER


def test_no_row_is_lost_on_the_way_back_whatever_others_did_to_the_publication(
    dsn: str, change: str, version: int
) -> None:
    with capturing(dsn) as capture:
        append(dsn, 1)
        found, place = read(capture, capture.resume(None), 1)
        changed_by_others(dsn, change)
        with psycopg.connect(dsn) as late:
            late.execute("SELECT 1")
            use_table(dsn, "outbox")
            # The relay is in the log as long as that transaction may write there.
            append(dsn, 2, 3)
            if is_unreadable(change, version):
                with pytest.raises(Refused, match=r"dropped by others.*--accept-gap"):
                    read(capture, place, 2)
                return
            more, place = read(capture, place, 2)
        assert found + more == [1, 2, 3]
        assert read_on(capture, place, dsn)[0] == []


def test_rows_that_others_kept_out_of_the_log_on_the_way_back_are_not_passed_over(
    dsn: str, change: str
) -> None:
    says = "was dropped (or changed )?by others.*--accept-gap"
    with capturing(dsn) as capture:
        append(dsn, 1)
        _, place = read(capture, capture.resume(None), 1)
        kept = progress_at(place, capture)
        with psycopg.connect(dsn) as late:
            late.execute("SELECT 1")
            use_table(dsn, "outbox")
            changed_by_others(dsn, change)
            append(dsn, 2, 3)
            use_table(dsn, "outbox")
        with pytest.raises(Refused, match=says):
            read_until_left(capture, place, dsn)
    with pytest.raises(DovecoteError, match=says):
        use_wal(dsn, "outbox")
    # The logs of all shards lack them.
    with pytest.raises(DovecoteError, match=says):
        use_wal(dsn, "outbox", accept_gap=True, shard=0)
    use_wal(dsn, "outbox", accept_gap=True)
    with capturing(dsn) as capture:
        assert read_on(capture, capture.resume(kept), dsn)[0] == []


def test_a_publication_that_others_changed_is_made_anew_on_the_way_into_the_log(
    dsn: str, change: str
) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        ours = "SELECT tablename, to_jsonb(t) ->> 'rowfilter', pubinsert FROM pg_publication JOIN"
        ours += " pg_publication_tables AS t USING (pubname) ORDER BY 1"
        before = conn.execute(ours.encode()).fetchall()
        assert [name for name, *_ in before] == sorted(TABLES)
        changed_by_others(dsn, change)
        assert conn.execute(ours.encode()).fetchall() != before
        use_wal(dsn, "outbox")
        assert conn.execute(ours.encode()).fetchall() == before


def read_until_left(capture: SwitchingCapture, place: Place, dsn: str) -> None:
    while isinstance(place, LogPosition):
        _, place = read_on(capture, place, dsn)


def changed_by_others(dsn: str, change: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        name = outbox_capture.installed(conn, "outbox").publication
        conn.execute(change.format(name).encode())


def in_a_shop(dsn: str) -> None:
    """Write a row to a table of others."""
    with psycopg.connect(dsn) as conn:
        conn.execute("CREATE TABLE IF NOT EXISTS shop (item text)")
        conn.execute("INSERT INTO shop VALUES ('pear')")


def test_a_relay_in_the_log_goes_on_without_it_or_says_why_it_cannot(
    fleet: Relays, topic: MakeTopic, dsn: str, version: int
) -> None:
    name = topic(1)
    relay = fleet.active(capture="wal")
    commit(dsn, event(name, 0))
    published(fleet, name, 1)
    assert relay.terminate() == 0
    commit(dsn, event(name, 1))
    changed_by_others(dsn, "DROP PUBLICATION {}")
    in_a_shop(dsn)
    commit(dsn, event(name, 2))
    relay = fleet.start(capture="wal")
    if version >= PASSES_OVER:
        published(fleet, name, 3)
        assert relay.terminate() == 0
        return
    # The server still reads all that was written before.
    published(fleet, name, 2)
    assert relay.wait() == 1
    (said,) = relay.log.splitlines()[-1:]
    assert re.search(r"cannot be read on \(.*\): the publication was dropped by others", said)
    assert "Traceback" not in relay.log
    assert re.search(
        "fail  publication dovecote_[0-9]+ was dropped by others", doctor(fleet).stdout
    )
    done = init("--capture", "wal", DOVECOTE_DSN=dsn)
    assert re.search(
        "publication dovecote_[0-9]+ was dropped .*: it is made anew now", done.stderr
    )
    assert "was dropped by others" not in doctor(fleet).stdout
    assert fleet.start(capture="wal").wait() == 1
    assert init("--capture", "wal", "--accept-gap", DOVECOTE_DSN=dsn).returncode == 0
    again = fleet.active(capture="wal")
    commit(dsn, event(name, 3))
    found = [int(message.value() or b"") for message in published(fleet, name, 3)]
    assert found == [0, 1, 3]
    assert again.terminate() == 0


def test_an_auditor_of_the_log_goes_on_without_it_or_says_why_it_cannot(
    stack: Servers, topic: MakeTopic, tmp_path: Path, dsn: str, version: int
) -> None:
    shop = Shop(dsn, stack.kafka.bootstrap, topic(3), tmp_path)
    shop.extra["state"] = str(tmp_path / "audit.sqlite3")
    shop.extra["partitions_since"] = "2020-01-01T00:00:00Z"
    try:
        shop.audit(status=3)
        changed_by_others(dsn, "DROP PUBLICATION {}")
        in_a_shop(dsn)
        shop.publish(shop.write(20))
        relayed(dsn)
        if version >= PASSES_OVER:
            assert shop.audit(status=0)["topics"][shop.topic]["matched"] == 20
            return
        troubles = shop.audit(status=3)["troubles"]
        assert any("the publication was dropped by others" in each for each in troubles), troubles
        assert init("--capture", "wal", DOVECOTE_DSN=dsn).returncode == 0
        drop_by_command(shop)
        shop.audit(status=3)
        shop.publish(shop.write(20))
        relayed(dsn)
        assert shop.audit(status=0)["topics"][shop.topic]["matched"] == 20
    finally:
        drop_slot(dsn)
