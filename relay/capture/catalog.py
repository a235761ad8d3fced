"""Ask Postgres for the state of an outbox's slot, and of the transactions around it."""

from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from outbox import capture as outbox_capture
from relay.capture.slot import Beginning, Slot
from relay.lsn import parse_lsn
from relay.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Look:
    """What the server said at one moment."""

    installed: outbox_capture.Capture
    slot: Slot | None
    end: int
    """Where the log ends now."""

    @property
    def beginning(self) -> Beginning | None:
        """Where the slot begins, None if events are in the table."""
        if self.installed.state == "table" or self.installed.begins_at is None:
            return None
        before = self.installed.before
        return Beginning(
            parse_lsn(self.installed.begins_at), None if before is None else Snapshot.parse(before)
        )

    @property
    def began_at(self) -> int | None:
        """Where the newest slot began, whether or not there is still one."""
        begins_at = self.installed.begins_at
        return None if begins_at is None else parse_lsn(begins_at)

    @property
    def retained(self) -> int:
        """Bytes of the log that the server keeps for the slot."""
        restart = self.slot.restart if self.slot else None
        return 0 if restart is None else max(0, self.end - restart)


def look(conn: psycopg.Connection[Any], schema: str) -> Look:
    """Return how the slot of the outbox in `schema` is doing."""
    installed = outbox_capture.installed(conn, schema)
    row = conn.execute(
        "SELECT (SELECT to_jsonb(s) FROM pg_replication_slots s WHERE slot_name = %s),"
        " pg_current_wal_lsn()::text",
        [installed.slot],
    ).fetchone()
    if row is None:
        msg = "a query for one row returned none"
        raise AssertionError(msg)
    described, end = row
    return Look(installed, Slot.from_catalog(described) if described else None, parse_lsn(end))


def moment(conn: psycopg.Connection[Any]) -> tuple[Snapshot, int]:
    """Return what is visible now, and a position behind everything that is."""
    # One statement takes its snapshot first, and asks for the position afterwards.
    row = conn.execute(
        "SELECT pg_current_snapshot()::text, pg_current_wal_insert_lsn()::text"
    ).fetchone()
    if row is None:
        msg = "a query for one row returned none"
        raise AssertionError(msg)
    return Snapshot.parse(row[0]), parse_lsn(row[1])


def write_through(conn: psycopg.Connection[Any]) -> None:
    """
    Have all of the log that there is now written to disk, and sent to whoever follows it.

    A commit of its own does that; with it, no crash gives out a transaction id again that was
    known before.
    """
    with conn.transaction():
        conn.execute("SET LOCAL synchronous_commit = local")
        conn.execute("SELECT pg_logical_emit_message(true, 'dovecote', '')")


def running(conn: psycopg.Connection[Any]) -> frozenset[str]:
    """Return the transactions of this database, others than our own, that may write."""
    rows = conn.execute(
        "SELECT l.virtualtransaction FROM pg_locks l JOIN pg_stat_activity a USING (pid)"
        " WHERE l.locktype = 'virtualxid' AND l.granted AND l.virtualxid = l.virtualtransaction"
        " AND a.datname = current_database() AND l.pid <> pg_backend_pid()"
        " AND coalesce(a.backend_type, '') NOT IN ('walsender', 'autovacuum worker')"
    ).fetchall()
    return frozenset(row[0] for row in rows)


def prepared(conn: psycopg.Connection[Any]) -> frozenset[str]:
    """Return the prepared transactions of this database."""
    rows = conn.execute(
        "SELECT transaction::text FROM pg_prepared_xacts WHERE database = current_database()"
    ).fetchall()
    return frozenset(row[0] for row in rows)


def leave_log(conn: psycopg.Connection[Any], schema: str, asked: str) -> bool:
    """Say that the relay is back in the table; return whether that is still wanted."""
    query = sql.SQL("SELECT {}(%s::text::xid8)").format(sql.Identifier(schema, "leave_log"))
    row = conn.execute(query, [asked]).fetchone()
    return row is not None and bool(row[0])


def drop_left_slot(conn: psycopg.Connection[Any], schema: str) -> bool:
    """Drop the slot if events are in the table; return False if it is not the time to."""
    lock = outbox_capture.LOCK
    row = conn.execute("SELECT pg_try_advisory_lock(%s)", [lock]).fetchone()
    if row is None or not row[0]:
        return False
    try:
        found = look(conn, schema)
        if found.slot is None or found.installed.state != "table":
            return True
        if found.slot.active_pid is not None:
            return False
        conn.execute("SELECT pg_drop_replication_slot(%s)", [found.slot.name])
        return True
    finally:
        conn.execute("SELECT pg_advisory_unlock(%s)", [lock])
