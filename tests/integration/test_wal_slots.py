"""A slot that is not the one that progress belongs to is never passed over in silence."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing

import psycopg
import pytest

from dovecote.devstack import Stack
from dovecote.devstack.places import temporary_directory
from dovecote.devstack.postgres.postgres import Postgres, server_user
from outbox import schema
from outbox.errors import DovecoteError
from outbox.schema.capture import use_wal
from relay.errors import Refused
from relay.postgres.capture.replication import Stream
from relay.postgres.capture.switching import Expected, SwitchingCapture
from relay.postgres.capture.wal import Timing
from relay.rules.places.progress import Cursor, LogPosition
from tests.support.fix_stack import new_database
from tests.support.relaying import installed
from tests.support.waiting import patient, until
from tests.support.wal_capturing import (
    append,
    capturing,
    drop_slot,
    progress_of_one,
    read,
    said,
    seen_by,
)


@pytest.fixture
def dsn(database: str) -> str:
    """A database whose outbox is written to the log."""
    return installed(database, "wal")


def test_a_missing_slot_is_refused_until_the_gap_is_accepted(dsn: str) -> None:
    progress = progress_of_one(dsn)
    append(dsn, 2)
    drop_slot(dsn)
    with (
        capturing(dsn) as capture,
        pytest.raises(
            Refused, match=r"is missing.*dovecote init outbox --capture wal --accept-gap"
        ),
    ):
        capture.resume(progress)
    with pytest.raises(DovecoteError, match=r"is missing.*--accept-gap"):
        use_wal(dsn, "outbox")
    use_wal(dsn, "outbox", accept_gap=True)
    append(dsn, 3)
    with capturing(dsn) as capture:
        assert read(capture, capture.resume(progress), 1)[0] == [3]


def test_a_slot_made_anew_behind_our_back_is_refused(dsn: str) -> None:
    progress = progress_of_one(dsn)
    append(dsn, 2)
    drop_slot(dsn)
    with psycopg.connect(dsn, autocommit=True) as conn:
        name = seen_by(dsn).installed.slot
        conn.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [name])
    with capturing(dsn) as capture:
        for found in (progress, None):
            with pytest.raises(Refused, match=r"begins at|was read up to"):
                capture.resume(found)
    use_wal(dsn, "outbox", accept_gap=True)
    append(dsn, 3)
    with capturing(dsn) as capture:
        assert read(capture, capture.resume(progress), 1)[0] == [3]


def test_a_slot_without_its_progress_is_refused(dsn: str) -> None:
    append(dsn, 1)
    with capturing(dsn) as capture:
        _, place = read(capture, capture.resume(None), 1)
        assert isinstance(place, LogPosition)
        until(said(capture, place, dsn, place.lsn), within=10, what="the confirmation")
        with pytest.raises(Refused, match=r"was read up to .*, but there is no progress"):
            capture.resume(None)


def test_a_slot_of_another_database_is_refused(dsn: str, stack: Stack) -> None:
    drop_slot(dsn)
    name = seen_by(dsn).installed.slot
    with new_database(stack) as other:
        with psycopg.connect(other, autocommit=True) as conn:
            conn.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [name])
        with (
            capturing(dsn) as capture,
            pytest.raises(Refused, match="is another one: plugin pgoutput, database test_"),
        ):
            capture.resume(None)


def test_a_relay_that_is_to_read_one_capture_reads_no_other(database: str) -> None:
    installed(database)
    with closing(expecting(database, "wal")) as capture:
        with pytest.raises(Refused, match=r"are in the table.*dovecote init outbox --capture wal"):
            capture.resume(None)
        use_wal(database, "outbox")
        assert capture.resume(None) == Cursor()
    with (
        closing(expecting(database, "table")) as capture,
        pytest.raises(Refused, match=r'are in the write-ahead log.*set `capture = "auto"`'),
    ):
        capture.resume(None)


def expecting(dsn: str, expected: Expected) -> SwitchingCapture:
    timing = Timing(10, 10)
    return SwitchingCapture(
        dsn, "outbox", batch_rows=1, batch_bytes=1, timing=timing, expected=expected
    )


@pytest.fixture
def own_server() -> Iterator[Postgres]:
    """A Postgres of the test's own, which soon gives slots up."""
    folder = temporary_directory(server_user())
    settings = {"max_slot_wal_keep_size": "2MB", "wal_keep_size": "0", "max_wal_size": "32MB"}
    with Postgres(folder, fsync=False, temporary=True, settings=settings) as server:
        with psycopg.connect(server.dsn) as conn:
            schema.install(conn)
        yield server


def test_an_invalidated_slot_is_refused_until_the_gap_is_accepted(own_server: Postgres) -> None:
    dsn = own_server.dsn
    use_wal(dsn, "outbox")
    progress = progress_of_one(dsn)
    with psycopg.connect(dsn, autocommit=True) as conn:

        def lost() -> bool:
            conn.execute("SELECT pg_logical_emit_message(true, 'x', repeat('x', 1000000))")
            conn.execute("SELECT pg_switch_wal()")
            conn.execute("CHECKPOINT")
            slot = seen_by(dsn).slot
            return slot is not None and slot.is_lost

        until(lost, within=30, what="an invalidated slot")
    with (
        capturing(dsn) as capture,
        pytest.raises(Refused, match=r"was invalidated .*--accept-gap"),
    ):
        capture.resume(progress)
    use_wal(dsn, "outbox", accept_gap=True)
    append(dsn, 2)
    with capturing(dsn) as capture:
        assert read(capture, capture.resume(progress), 1)[0] == [2]


def test_it_goes_on_after_a_promotion_that_lost_nothing(own_server: Postgres) -> None:
    dsn = own_server.dsn
    use_wal(dsn, "outbox")
    progress = progress_of_one(dsn)
    assert isinstance(progress.cursor, LogPosition)
    own_server.stop()
    own_server.directory.joinpath("data", "standby.signal").touch()
    own_server.start()
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("SELECT pg_promote()")
    append(dsn, 2)
    with capturing(dsn) as capture:
        assert capture.origin().timeline == progress.timeline + 1
        found, _ = read(capture, capture.resume(progress), 1)
        assert found == [2]


@pytest.mark.parametrize(("lease", "timeout"), [(2.0, "2s"), (86_400.0, "20s")])
def test_the_server_speaks_sooner_than_its_silence_counts_however_long_the_lease_is(
    dsn: str, lease: float, timeout: str
) -> None:
    stream = Stream(dsn, timeout=lease)
    with closing(stream):
        assert stream._conn.execute("SHOW wal_sender_timeout").fetchone() == (timeout,)


def test_a_server_that_stands_still_is_not_called_idle(own_server: Postgres) -> None:
    use_wal(own_server.dsn, "outbox")
    append(own_server.dsn, 1)
    with capturing(own_server.dsn) as capture, ThreadPoolExecutor(1) as pool:
        _, place = read(capture, capture.resume(None), 1)
        assert isinstance(place, LogPosition)
        stream, _ = capture._log._open(place)
        own_server.pause()
        try:
            # Earlier messages of the server, perhaps a keepalive, are read first.
            *_, rest = capture._log.batches(place)
            place = rest.cursor
            assert isinstance(place, LogPosition)
            until(lambda: stream.silence() > 2, within=10, what="a silence")
            asked = pool.submit(list, capture._log.batches(place))
            assert wait([asked], timeout=1).not_done, "it was called idle"
            capture.interrupt()
            assert [len(batch.rows) for batch in asked.result(patient(10))] == [0]
        finally:
            own_server.resume()
        append(own_server.dsn, 2)
        assert read(capture, place, 1)[0] == [2]
