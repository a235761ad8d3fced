"""Read the committed rows of an outbox in windows of snapshots, and ask what the relay says."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import psycopg
from psycopg import Connection, errors, sql
from psycopg.rows import TupleRow

from dovecote.audit.away import Away, away
from dovecote.audit.parts import Outbox
from dovecote.audit.rules.ids import DIGEST_SQL
from dovecote.audit.rules.matching import Read
from dovecote.audit.rules.promoted import Reach
from outbox.errors import DovecoteError
from outbox.postgres.session import connect

_ANSWER_MILLISECONDS = 60_000
_CURSOR_ROUNDS = 60
_COLUMNS = sql.SQL(
    "position, (extract(epoch FROM appended_at) * 1000)::bigint, topic, source, uuid_send(id), "
    + DIGEST_SQL
)


# Managed servers lack these functions, or keep them from roles.
_DENIED = (errors.FeatureNotSupported, errors.InsufficientPrivilege, errors.UndefinedFunction)
# The name of a file of the log begins with the timeline. Until it is restarted, a server that was
# promoted knows what it had of its predecessor's log.
_REACH = sql.SQL(
    "SELECT ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint,"
    " (pg_current_wal_flush_lsn() - '0/0')::bigint, CASE WHEN pg_last_wal_receive_lsn()"
    " IS NOT NULL THEN (pg_last_wal_replay_lsn() - '0/0')::bigint END"
    " WHERE NOT pg_is_in_recovery()"
)


class Window(NamedTuple):
    """How far an outbox is read: snapshots as Postgres writes them."""

    since: str | None
    until: str | None = None
    position: int = -1


class Chunk(NamedTuple):
    """The next rows of an outbox, and where that is."""

    rows: Sequence[Read]
    window: Window
    complete: bool
    """All that was committed when this was asked for, or when `until` was taken, is read."""


class Evidence(NamedTuple):
    """The answer of Postgres about one row."""

    there: bool
    passed: bool | None
    """A relay's own table says that it published the row; None: no relay has written there."""
    parked: bool
    id: str
    key: bytes | None
    xid: str


class Reader:
    """The rows of one outbox, in an order in which each comes once, with two sessions."""

    def __init__(self, outbox: Outbox) -> None:
        self.outbox = outbox
        self._reading: Connection[TupleRow] | None = None
        self._asking: Connection[TupleRow] | None = None
        self._cursor: Any = None
        self._rounds = 0
        self._says_reach = True
        self._events = sql.Identifier(outbox.schema, "events")

    def close(self) -> None:
        self._cursor = None
        for conn in (self._reading, self._asking):
            if conn is not None:
                with suppress(psycopg.Error):
                    conn.close()
        self._reading = self._asking = None

    @property
    def is_connected(self) -> bool:
        """Whether the sessions are those of the last answer; others may be of another server."""
        return self._asking is not None and not self._asking.closed

    def _connect(self) -> Connection[TupleRow]:
        conn = connect(self.outbox.dsn, name="dovecote-audit")
        conn.execute(
            "SELECT set_config('enable_seqscan', 'off', false),"
            " set_config('statement_timeout', %s, false)",
            [str(_ANSWER_MILLISECONDS)],
        )
        return conn

    def identity(self) -> str:
        """
        Return what tells this outbox and database from others.

        Raises:
            Away: Postgres does not say.
        """
        query = sql.SQL(
            "SELECT i.id || '/' || d.oid FROM {} AS i, pg_database AS d"
            " WHERE d.datname = current_database()"
        ).format(sql.Identifier(self.outbox.schema, "identity"))
        return str(self._ask(query)[0][0])

    def snapshot(self) -> str:
        """Return what the server sees now."""
        return str(self._ask(sql.SQL("SELECT pg_current_snapshot()::text"))[0][0])

    def reach(self) -> Reach:
        """Return how far the server's log reaches now, if it says so."""
        try:
            found = self._ask(_REACH) if self._says_reach else []
        except Away as error:
            if not isinstance(error.__cause__, _DENIED):
                raise
            self._says_reach, found = False, []
        return Reach(*found[0]) if found else Reach()

    def is_behind(self, window: Window) -> bool:
        """Return whether the server has not come as far as the window: it was put back."""
        at = window.until or window.since
        if at is None:
            return False
        found = self._ask(
            sql.SQL(
                "SELECT pg_snapshot_xmax(pg_current_snapshot())"
                " < pg_snapshot_xmax({}::pg_snapshot)"
            ).format(sql.Literal(at))
        )
        return bool(found[0][0])

    def read(self, window: Window, most: int, since_ms: int | None) -> Chunk:
        """
        Return the next rows after a window.

        Raises:
            Away: Postgres does not answer, or refuses.
        """
        try:
            if self._reading is None or self._reading.closed:
                self._cursor, self._reading = None, self._connect()
            return self._next(self._reading, window, most, since_ms)
        except (psycopg.Error, DovecoteError) as error:
            self.close()
            raise away(self.outbox.part, error) from error

    def _next(
        self, conn: Connection[TupleRow], window: Window, most: int, since_ms: int | None
    ) -> Chunk:
        if window.until is None:
            until = str(conn.execute("SELECT pg_current_snapshot()::text").fetchone()[0])  # type: ignore[index]  # one row
            if until == window.since:
                return Chunk((), window, complete=True)
            window = Window(window.since, until, -1)
            if window.since is not None:
                query = sql.SQL("SELECT {} FROM ({}) AS w LIMIT {}").format(
                    _COLUMNS, self._few(window), most + 1
                )
                rows: Any = conn.execute(query, binary=True).fetchall()
                if len(rows) <= most:
                    rows.sort()
                    return Chunk(rows, Window(until), complete=True)
        if self._cursor is None:
            self._begin(conn, window, since_ms)
        rows = self._cursor.fetchmany(most)
        self._rounds += 1
        if len(rows) < most:
            self._end(conn)
            return Chunk(rows, Window(window.until), complete=True)
        if self._rounds >= _CURSOR_ROUNDS:
            # The relay empties tables that no snapshot looks at.
            self._end(conn)
        return Chunk(rows, window._replace(position=rows[-1][0]), complete=False)

    def _few(self, window: Window) -> sql.Composed:
        """Return the rows between two snapshots, each arm by the index on xid."""
        since, until = window.since or "", window.until or ""
        arm = sql.SQL(
            "SELECT * FROM {} WHERE xid >= {}::text::xid8 AND xid < {}::text::xid8"
            " AND pg_visible_in_snapshot(xid, {}::pg_snapshot)"
        ).format(self._events, _xmax(since), _xmax(until), sql.Literal(until))
        if not _running(since):
            return arm
        return sql.SQL(
            "{} UNION ALL SELECT * FROM {} WHERE xid = ANY ({}::text[]::xid8[])"
            " AND pg_visible_in_snapshot(xid, {}::pg_snapshot)"
        ).format(arm, self._events, sql.Literal(_running(since)), sql.Literal(until))

    def _begin(self, conn: Connection[TupleRow], window: Window, since_ms: int | None) -> None:
        conn.autocommit = False
        cursor = psycopg.ServerCursor(conn, "dovecote_audit")
        wanted = [
            sql.SQL("position > {}").format(sql.Literal(window.position)),
            sql.SQL("pg_visible_in_snapshot(xid, {}::pg_snapshot)").format(
                sql.Literal(window.until)
            ),
        ]
        if window.since is not None:
            wanted.append(
                sql.SQL("(xid >= {}::text::xid8 OR xid = ANY ({}::text[]::xid8[]))").format(
                    _xmax(window.since), sql.Literal(_running(window.since))
                )
            )
        elif since_ms is not None:
            wanted.append(
                sql.SQL("appended_at >= to_timestamp({}::float8 / 1000)").format(
                    sql.Literal(since_ms)
                )
            )
        query = sql.SQL("SELECT {} FROM {} WHERE {} ORDER BY position").format(
            _COLUMNS, self._events, sql.SQL(" AND ").join(wanted)
        )
        cursor.execute(query, binary=True)
        self._cursor, self._rounds = cursor, 0

    def _end(self, conn: Connection[TupleRow]) -> None:
        self._cursor.close()
        self._cursor = None
        conn.rollback()
        conn.autocommit = True

    def _ask(self, query: sql.SQL | sql.Composed, values: Sequence[Any] = ()) -> list[TupleRow]:
        try:
            if self._asking is None or self._asking.closed:
                self._asking = self._connect()
            return self._asking.execute(query, values).fetchall()
        except (psycopg.Error, DovecoteError) as error:
            self.close()
            raise away(self.outbox.part, error) from error

    def evidence(self, positions: Sequence[int]) -> dict[int, Evidence]:
        """
        Return what Postgres says of rows; those that are not there are missing.

        Raises:
            Away: Postgres does not answer.
        """
        schema, relay = self.outbox.schema, self.outbox.relay
        query = sql.SQL(
            "SELECT e.position, (SELECT bool_and(pg_visible_in_snapshot(e.xid, r.since))"
            " FROM {relays} AS r WHERE r.name = {name} OR starts_with(r.name, {shard})),"
            " EXISTS (SELECT FROM {parked} AS p WHERE p.id = e.id AND p.topic = e.topic),"
            " e.id::text, e.key, e.xid::text FROM {events} AS e WHERE e.position = ANY (%s)"
        ).format(
            relays=sql.Identifier(schema, "relays"),
            parked=sql.Identifier(schema, "parked"),
            events=self._events,
            name=sql.Literal(relay),
            shard=sql.Literal(f"{relay}.shard-"),
        )
        return {
            position: Evidence(True, passed, parked, id_, key, xid)  # noqa: FBT003  # it is there
            for position, passed, parked, id_, key, xid in self._ask(query, [list(positions)])
        }

    def has_successor(self, topic: str, key: bytes, position: int) -> bool:
        """Return whether a later row of this key of this topic is there."""
        query = sql.SQL(
            "SELECT EXISTS (SELECT FROM {} WHERE position > %s AND topic = %s AND key = %s)"
        ).format(self._events)
        return bool(self._ask(query, [position, topic, key])[0][0])

    def known_ids(self, ids: Iterable[str]) -> set[tuple[str, str]]:
        """Return which of these ids rows have, each with its topic. This reads the table."""
        query = sql.SQL("SELECT id::text, topic FROM {} WHERE id = ANY (%s::uuid[])").format(
            self._events
        )
        return {(id_, topic) for id_, topic in self._ask(query, [list(ids)])}

    def parked(self, after: str | None) -> tuple[list[tuple[str, str, bytes]], str | None]:
        """Return topic, source and id of events that were parked after a time, and the newest."""
        query = sql.SQL(
            "SELECT topic, source, uuid_send(id), parked_at::text FROM {}"
            " WHERE parked_at > coalesce(%s::timestamptz, '-infinity') - interval '5 seconds'"
            " ORDER BY parked_at LIMIT 50000"
        ).format(sql.Identifier(self.outbox.schema, "parked"))
        found = self._ask(query, [after])
        return [each[:3] for each in found], (found[-1][3] if found else after)

    def parked_among(self, ids: Iterable[str]) -> set[tuple[str, str]]:
        """Return which of these ids are parked, each with its topic."""
        query = sql.SQL("SELECT id::text, topic FROM {} WHERE id = ANY (%s::uuid[])").format(
            sql.Identifier(self.outbox.schema, "parked")
        )
        return {(id_, topic) for id_, topic in self._ask(query, [list(ids)])}

    def relays(self) -> list[str]:
        """Return the names under which relays have confirmed anything."""
        query = sql.SQL("SELECT name FROM {} ORDER BY name").format(
            sql.Identifier(self.outbox.schema, "relays")
        )
        return [each[0] for each in self._ask(query)]


def _xmax(snapshot: str) -> sql.Literal:
    return sql.Literal(snapshot.split(":")[1])


def _running(snapshot: str) -> list[str]:
    return [each for each in snapshot.split(":")[2].split(",") if each]
