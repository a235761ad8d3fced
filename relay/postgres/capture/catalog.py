"""Ask Postgres for the state of an outbox's slot and of the transactions around it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, LiteralString

import psycopg
from psycopg import sql

from outbox.errors import SchemaMissing
from outbox.schema import capture as outbox_capture
from outbox.schema import holds
from outbox.schema import slots as outbox_slots
from relay.rules.places.lsn import NOWHERE, parse_lsn
from relay.rules.places.snapshot import Moment, Snapshot
from relay.rules.server.slot import Beginning, Slot
from relay.rules.sharding import Shard, divided


@dataclass(frozen=True, slots=True)
class Look:
    """The server's answers at one moment, as far as they concern one shard."""

    installed: outbox_capture.Capture
    number: int
    slot_name: str
    slot: Slot | None
    end: int
    """The current end of the log."""
    standbys: str = ""
    """The value of `synchronous_standby_names`: whom commits wait for."""
    has_fsync: bool = True
    others: frozenset[str] = frozenset()
    """Slots of this outbox that belong to another number of shards, and were left over."""

    @property
    def state(self) -> outbox_capture.State:
        """Where the shard's events are read; it may be back in the table before the others are."""
        installed = self.installed
        back = installed.state == "leaving" and self.number in installed.departed
        return "table" if back else installed.state

    @property
    def beginning(self) -> Beginning | None:
        """Where the slot begins, None if events are read from the table."""
        installed = self.installed
        if self.state == "table" or installed.begins_at is None:
            return None
        begins_at, (anew, passed) = parse_lsn(installed.begins_at), self._anew
        if anew >= begins_at:
            is_alone = anew > begins_at and installed.before is not None and passed is not None
            return Beginning(anew, None, passed, begins_in_table=is_alone)
        before = None if installed.before is None else Snapshot.parse(installed.before)
        return Beginning(begins_at, before)

    @property
    def began_at(self) -> int | None:
        """Where this database's newest slot began, whether or not it still exists."""
        installed, (anew, _) = self.installed, self._anew
        begins_at = installed.begins_at if installed.begins_here else None
        return max(parse_lsn(begins_at) if begins_at else 0, anew) or None

    @property
    def _anew(self) -> tuple[int, Snapshot | None]:
        """Where the slot began after the last accepted gap, and what was committed by then."""
        lsn, _, passed = self.installed.anew.get(self.slot_name, "0/0").partition(" ")
        return parse_lsn(lsn), Snapshot.parse(passed) if passed else None

    @property
    def retained(self) -> int:
        """Bytes of the log that the server retains for the slot."""
        restart = self.slot.restart if self.slot else None
        return 0 if restart is None else max(0, self.end - restart)


def look(conn: psycopg.Connection[Any], schema: str, shard: Shard | None = None) -> Look:
    """Return the state of the slot of the outbox in `schema`, or of one of its shards."""
    number, of = (0, 1) if shard is None else (shard.number, shard.of)
    installed = outbox_capture.installed(conn, schema)
    name = outbox_slots.slot_name(installed.slot, number, of)
    described, standbys, has_fsync = _one(
        conn,
        "SELECT (SELECT to_jsonb(s) FROM pg_replication_slots s WHERE slot_name = %s),"
        " current_setting('synchronous_standby_names'), current_setting('fsync')::bool",
        [name],
    )
    end = NOWHERE
    if described or installed.state != "table":
        # Not earlier: reading the table does not need it, and not every server has the function.
        (end,) = _one(conn, "SELECT pg_current_wal_lsn()::text", [])
    return Look(
        installed,
        number,
        name,
        Slot.from_catalog(described) if described else None,
        parse_lsn(end),
        standbys,
        has_fsync,
        frozenset(outbox_slots.existing(conn, installed.slot))
        - frozenset(outbox_slots.slot_names(installed.slot, of)),
    )


def orphans(conn: psycopg.Connection[Any]) -> list[str]:
    """Return the slots in this database whose outbox was dropped, so nobody will read them."""
    rows = conn.execute(
        "SELECT s.slot_name::text FROM pg_replication_slots s, pg_database d"
        " WHERE d.datname = current_database() AND s.database = d.datname"
        " AND s.slot_name ~ ('^dovecote_' || d.oid || '_[0-9]+(_[0-9]+_of_[0-9]+)?$')"
        " AND NOT EXISTS (SELECT FROM pg_class c WHERE c.relname = 'reading'"
        " AND c.relnamespace::text = split_part(s.slot_name, '_', 3)) ORDER BY 1"
    ).fetchall()
    return [row[0] for row in rows]


def outbox_id(conn: psycopg.Connection[Any], schema: str) -> str:
    """Return the id of the outbox in `schema`."""
    query = sql.SQL("SELECT id::text FROM {}").format(sql.Identifier(schema, "identity"))
    row = conn.execute(query).fetchone()
    if row is None:
        raise SchemaMissing(without_row(schema))
    return str(row[0])


def without_row(schema: str) -> str:
    """Return the message for an outbox whose id was not restored with it."""
    return (
        f"{schema}.identity is empty: the outbox was restored without its data; restore its row, "
        "or, if there is nothing in it to keep, drop the schema and install it anew"
    )


def _one(
    conn: psycopg.Connection[Any], query: LiteralString, params: Sequence[object]
) -> tuple[Any, ...]:
    row: tuple[Any, ...] | None = conn.execute(query, params).fetchone()
    if row is None:
        msg = "a query for one row returned none"
        raise AssertionError(msg)
    return row


def moment(conn: psycopg.Connection[Any]) -> Moment:
    """Return what is visible now, and a position after all of it."""
    # One statement takes its snapshot first, and reads the position afterwards.
    row = conn.execute(
        "SELECT pg_current_snapshot()::text, pg_current_wal_insert_lsn()::text"
    ).fetchone()
    if row is None:
        msg = "a query for one row returned none"
        raise AssertionError(msg)
    return Moment(Snapshot.parse(row[0]), parse_lsn(row[1]))


def running(conn: psycopg.Connection[Any]) -> frozenset[str]:
    """Return the other transactions of this database that may write."""
    rows = conn.execute(
        "SELECT l.virtualtransaction FROM pg_locks l JOIN pg_stat_activity a USING (pid)"
        " WHERE l.locktype = 'virtualxid' AND l.granted AND l.virtualxid = l.virtualtransaction"
        " AND a.datname = current_database() AND l.pid <> pg_backend_pid()"
        " AND coalesce(a.backend_type, '') <> 'autovacuum worker'"
        # A walsender that follows a slot writes nothing; any other replication connection may.
        " AND NOT EXISTS (SELECT FROM pg_replication_slots s WHERE s.active_pid = l.pid)"
    ).fetchall()
    return frozenset(row[0] for row in rows)


def prepared(conn: psycopg.Connection[Any]) -> frozenset[str]:
    """Return the prepared transactions of this database."""
    rows = conn.execute(
        "SELECT transaction::text FROM pg_prepared_xacts WHERE database = current_database()"
    ).fetchall()
    return frozenset(row[0] for row in rows)


def number_of_shards(conn: psycopg.Connection[Any], schema: str, shard: Shard) -> int | None:
    """
    Return the number of shards that publish the outbox of `shard`; a new outbox takes `shard.of`.

    None if there are several shards but no slots for them in the log.
    """
    names = [each.name for each in divided(shard.outbox, shard.of)]
    query = sql.SQL("SELECT {}(%s, %s)").format(sql.Identifier(schema, "settle_shards"))
    row = conn.execute(query, [shard.outbox, names]).fetchone()
    return row[0] if row else None


def leave_log(
    conn: psycopg.Connection[Any], schema: str, asked: str, *, number: int, of: int
) -> bool:
    """Record that a shard is back in the table; return whether that is still wanted."""
    query = sql.SQL("SELECT {}(%s::text::xid8, %s, %s)").format(
        sql.Identifier(schema, "leave_log")
    )
    row = conn.execute(query, [asked, number, of]).fetchone()
    return row is not None and bool(row[0])


def drop_left_slots(conn: psycopg.Connection[Any], schema: str, shard: Shard) -> bool:
    """Drop the slots that no shard of the outbox of `shard` needs; return False if one stays."""
    had = holds.is_mine(conn, schema, holds.CAPTURE)
    if not holds.hold(conn, schema, holds.CAPTURE):
        return False
    try:
        installed = outbox_capture.installed(conn, schema)
        needed: list[str] = []
        if installed.state != "table":
            # A relay that slept through a change of the number would take the new slots for old
            # ones.
            if number_of_shards(conn, schema, shard) != shard.of:
                return False
            needed = outbox_slots.slot_names(installed.slot, shard.of)
        left = set(outbox_slots.existing(conn, installed.slot)) - set(needed)
        rows = conn.execute(
            "SELECT pg_drop_replication_slot(slot_name), slot_name FROM pg_replication_slots"
            " WHERE slot_name = ANY (%s) AND NOT active",
            [sorted(left)],
        ).fetchall()
        return len(rows) == len(left)
    finally:
        if not had:
            holds.let_go(conn, schema, holds.CAPTURE)
