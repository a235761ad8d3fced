"""
Report to services what is published: a snapshot whose transactions have left the outbox.

Services ask rarely: after sending events through the outbox while Kafka was away, a service wants
to send to Kafka directly again. So the snapshot is written only then, in the session that has the
active role.
"""

import logging
import time
from collections.abc import Callable
from typing import Any

import psycopg
from psycopg import errors, sql

from outbox import schema as outbox_schema
from outbox.errors import first_line
from outbox.postgres.session import hides_rows
from relay.postgres.capture.window import after, params
from relay.rules.places.lsn import parse_lsn
from relay.rules.places.progress import Cursor, LogPosition, Place
from relay.rules.places.snapshot import Moment, Snapshot

_log = logging.getLogger("dovecote.relay")

# While somebody asks, look this often; and go on for this long after a question, in seconds.
_PACE, _ATTENTION = 0.1, 3.0
_NEVER = float("inf")


class Drains:
    """
    The published and parked events of one outbox, or of one shard.

    The publishing thread calls `begin` and `reached`; the thread that keeps the role calls `beat`.
    """

    def __init__(
        self, schema: str, name: str, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._schema, self._name, self._clock = schema, name, clock
        self._events = sql.Identifier(schema, "events")
        self._reading = sql.Identifier(schema, "reading")
        self._conn: psycopg.Connection[Any] | None = None
        self._place: Place | None = None
        self._asked: int | None = None
        self._attentive_until = 0.0
        self._said: Snapshot | None = None
        # The snapshot is published once progress reaches this place in the log.
        self._mark: Moment | None = None

    def begin(self, conn: psycopg.Connection[Any] | None, place: Place) -> None:
        """Answer in the session `conn`, if it is at the server from which events are read."""
        self._place = place
        if conn is not self._conn:
            self._conn, self._mark, self._said = conn, None, None

    def reached(self, place: Place) -> None:
        """Note that everything up to `place` is published or parked."""
        self._place = place

    def beat(self, conn: psycopg.Connection[Any]) -> float:
        """
        Report what is published if somebody has asked; return when to look again, in seconds.
        """
        place = self._place
        if conn is not self._conn or place is None:
            return _NEVER
        attentive = self._clock() < self._attentive_until
        seen = self._seen(conn, place) if attentive else None
        try:
            asked = self._confirm(conn, None if seen == self._said else seen)
        except errors.InsufficientPrivilege as error:
            if hides_rows(error):
                raise
            advice = outbox_schema.advice("relay", conn.info.user, self._schema)
            _log.warning("producers stay with the outbox: %s; %s", first_line(error), advice)
            self._conn = None
            return _NEVER
        self._said = seen or self._said
        if asked != self._asked:
            # At the first look, the time of the question is unknown.
            self._asked, self._attentive_until = asked, self._clock() + _ATTENTION
        return _PACE if self._clock() < self._attentive_until else _NEVER

    def _confirm(self, conn: psycopg.Connection[Any], seen: Snapshot | None) -> int:
        query = sql.SQL("SELECT {}(%s, %s::text::pg_snapshot)").format(
            sql.Identifier(self._schema, "confirm_drained")
        )
        row = conn.execute(query, [self._name, None if seen is None else str(seen)]).fetchone()
        return int(row[0]) if row else 0

    def _seen(self, conn: psycopg.Connection[Any], place: Place) -> Snapshot | None:
        """Return the newest known snapshot whose transactions are all published."""
        if isinstance(place, LogPosition):
            return self._in_log(conn, place)
        self._mark = None
        return self._idle(conn, place) or place.since

    def _idle(self, conn: psycopg.Connection[Any], cursor: Cursor) -> Snapshot | None:
        """
        Return what the server sees now, if nothing of it lies after `cursor`.

        The cursor stays at the newest event, but the service that asks may have written none. A
        crash that makes the server reuse transaction ids does no harm here: the answer is
        committed under a higher id than all of them, and is forgotten with them.
        """
        query = sql.SQL(
            # Tables are locked in the order of the query, and an upgrade locks the events' table
            # first.
            "SELECT pg_current_snapshot()::text WHERE NOT EXISTS (SELECT FROM {after})"
            " AND EXISTS (SELECT FROM {reading} WHERE state = 'table')"
        ).format(reading=self._reading, after=after(self._events, cursor.since))
        row = conn.execute(query, params(cursor.since)).fetchone()
        return Snapshot.parse(row[0]) if row else None

    def _in_log(self, conn: psycopg.Connection[Any], place: LogPosition) -> Snapshot | None:
        """Return a snapshot that was taken when the log ended at `place` or before it."""
        seen = None
        if self._mark is not None and place.lsn >= self._mark.lsn:
            seen, self._mark = self._mark.snapshot, None
        if self._mark is None:
            row = conn.execute("SELECT pg_current_snapshot()::text").fetchone()
            # Asked after the snapshot: `append` makes sure that every visible commit is on disk.
            end = conn.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone()
            if row and end:
                self._mark = Moment(Snapshot.parse(row[0]), parse_lsn(end[0]))
        return seen
