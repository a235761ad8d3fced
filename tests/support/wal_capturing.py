"""Capture events from the log, and write numbered ones."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import psycopg

from outbox import write
from outbox.schema.capture import prefix
from relay.postgres.capture.catalog import Look, look
from relay.postgres.capture.switching import SwitchingCapture
from relay.postgres.capture.wal import Timing
from relay.rules.batch import Capture
from relay.rules.places.progress import Place, Progress, at
from tests.support.relaying import event
from tests.support.rows import numbers
from tests.support.waiting import until


@contextmanager
def capturing(
    dsn: str, *, rows: int = 10_000, size: int = 16_000_000, heartbeat: float = 60.0
) -> Iterator[SwitchingCapture]:
    timing = Timing(lease=10.0, heartbeat=heartbeat)
    with closing(
        SwitchingCapture(dsn, "outbox", batch_rows=rows, batch_bytes=size, timing=timing)
    ) as capture:
        yield capture


def progress_at(place: Place, capture: Capture) -> Progress:
    """Return the progress record as the next relay finds it."""
    return Progress.decode(at("shop", capture.origin(), place).encode())


def progress_of_one(dsn: str) -> Progress:
    """Write the event 1, read it, and return the progress record after it."""
    append(dsn, 1)
    with capturing(dsn) as capture:
        _, place = read(capture, capture.resume(None), 1)
        return progress_at(place, capture)


def read(
    capture: Capture, place: Place, count: int, *, confirm: bool = True
) -> tuple[list[int], Place]:
    """Return the numbers of the next `count` events, and the capture's place then."""
    found: list[int] = []

    def enough() -> bool:
        nonlocal place
        for batch in capture.batches(place):
            place = batch.cursor
            found.extend(numbers(batch.rows))
            if confirm and (batch.rows or batch.keep):
                capture.confirm(place)
        return len(found) >= count

    until(enough, within=20, what=f"{count} events")
    return found, place


def read_on(capture: Capture, place: Place, dsn: str) -> tuple[list[int], Place]:
    """Return everything that was committed so far, up to an event that is committed now."""
    append(dsn, -1)
    found: list[int] = []
    while -1 not in found:
        more, place = read(capture, place, 1)
        found += more
    return [number for number in found if number != -1], place


def append(dsn: str, *numbers: int) -> None:
    with psycopg.connect(dsn) as conn:
        write_numbers(conn, *numbers)


def write_numbers(conn: psycopg.Connection, *numbers: int) -> None:
    write(conn, *[event("t", number) for number in numbers])


def seen_by(dsn: str) -> Look:
    with psycopg.connect(dsn) as conn:
        return look(conn, "outbox")


def secret(dsn: str) -> str:
    with psycopg.connect(dsn) as conn:
        return prefix(conn, "outbox")


def confirmed(dsn: str) -> int:
    slot = seen_by(dsn).slot
    return slot.confirmed or 0 if slot else 0


MODE = (
    "CREATE OR REPLACE FUNCTION outbox.writes_to_wal() RETURNS boolean LANGUAGE sql"
    " IMMUTABLE AS 'SELECT %'"
)


def said(capture: SwitchingCapture, place: Place, dsn: str, lsn: int) -> Callable[[], bool]:
    """
    Return a function that keeps the stream going and tells whether the slot is confirmed to `lsn`.
    """

    def confirmed_so_far() -> bool:
        for _ in capture.batches(place):
            pass
        return confirmed(dsn) >= lsn

    return confirmed_so_far


def drop_slot(dsn: str) -> None:
    name = seen_by(dsn).installed.slot
    with psycopg.connect(dsn, autocommit=True) as conn:

        def dropped() -> bool:
            try:
                conn.execute("SELECT pg_drop_replication_slot(%s)", [name])
            except psycopg.errors.ObjectInUse:
                return False  # the session of a moment ago
            return True

        until(dropped, within=10, what="the slot dropped")
