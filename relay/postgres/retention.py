"""
Make room: TRUNCATE the leaves of the outbox whose rows are all published.

Runs in the session that has the active role, between two of its heartbeats. Under the lock, the
database itself verifies what may go (`truncate_leaf`), against the progress that Kafka has
committed. A relay that has lost the role has lost this session, and a late relay knows only older
progress, which lets less go.

Leaves know snapshots. If progress is a place in the write-ahead log, a snapshot is taken, and then
the end of the log is read. Once progress is there, everything that the snapshot sees is published.
"""

import logging
import time
from dataclasses import replace
from typing import Any

import psycopg
from psycopg import errors, sql
from psycopg.rows import class_row

from outbox import schema as outbox_schema
from outbox.errors import first_line
from outbox.postgres.session import hides_rows
from relay.metrics import Metrics
from relay.rules.places.lsn import parse_lsn
from relay.rules.places.progress import Cursor, LogPosition, Place
from relay.rules.places.snapshot import BEGINNING, Moment, Snapshot
from relay.rules.server.leaves import PARENT, Leaf, due, successor

_log = logging.getLogger("dovecote.relay")

_FORBIDDEN = "forbidden"
_UNPUBLISHED_BY = "unpublished by "
_CAUSES = ("locked", "unpublished", "kept")
# After this long, operators get a report of what a leaf waits for.
_PATIENCE = 60.0


class Retention:
    """
    The rotation of one outbox's leaves, in the session for which `begin` was called.

    The publishing thread calls `begin` and `confirmed`; the thread that keeps the role calls
    `beat`.
    """

    def __init__(
        self, schema: str, name: str, metrics: Metrics, *, keep: float, every: float
    ) -> None:
        self._schema, self._name, self._metrics = schema, name, metrics
        self._keep, self._every = keep, every
        self._conn: psycopg.Connection[Any] | None = None
        self._place: Place | None = None
        # The snapshot is published once progress reaches this place in the log.
        self._mark: Moment | None = None
        self._moved = 0.0
        self._due_since: dict[int, float] = {}
        self._reported: set[int] = set()

    def begin(self, conn: psycopg.Connection[Any], place: Place) -> bool:
        """
        Rotate from now on in the session `conn`, at the server from which events are read.

        From here on, no other relay of this outbox empties leaves with events that this one has
        not published. Return whether that is so.
        """
        if conn is self._conn:
            self._place = place
            return True
        self._conn, self._mark, self._moved = None, None, time.monotonic()
        self._due_since.clear()
        try:
            # In a transaction with one snapshot for all statements the server refuses to verify
            # anything.
            conn.execute("SET default_transaction_isolation = 'read committed'")
            self._confirm(conn, _in_table(place))
        except errors.InsufficientPrivilege as error:
            if hides_rows(error):
                raise
            self._metrics.rotation_delayed(_FORBIDDEN, 1.0)
            advice = outbox_schema.advice("relay", conn.info.user, self._schema)
            _log.warning("published rows stay: %s; %s", first_line(error), advice)
            return False
        self._metrics.rotation_delayed(_FORBIDDEN, 0.0)
        self._conn, self._place = conn, place
        return True

    def confirmed(self, place: Place) -> None:
        """Note that the broker has committed progress up to `place`."""
        self._place = place

    def beat(self, conn: psycopg.Connection[Any]) -> None:
        """Empty the leaves that can be emptied, and move writers on if there is room."""
        place = self._place
        if conn is not self._conn or place is None:
            return
        leaves = self._leaves(conn)
        if waiting := due(leaves):
            if isinstance(place, LogPosition):
                self._confirm_log(conn, place)
            else:
                self._confirm(conn, place)
            outcomes = {leaf.number: self._empty(conn, leaf) for leaf in waiting}
            leaves = [
                replace(leaf, heap_bytes=0, total_bytes=0)
                if outcomes.get(leaf.number) == "rotated"
                else leaf
                for leaf in leaves
            ]
            self._report(conn, outcomes)
        else:
            self._report(conn, {})
        self._metrics.stored(
            sum(1 for leaf in leaves if leaf.heap_bytes), sum(leaf.total_bytes for leaf in leaves)
        )
        if time.monotonic() - self._moved >= self._every:
            self._move(conn, leaves)

    def _leaves(self, conn: psycopg.Connection[Any]) -> list[Leaf]:
        query = sql.SQL("SELECT * FROM {}.leaves()").format(sql.Identifier(self._schema))
        with conn.cursor(row_factory=class_row(Leaf)) as cursor:
            return cursor.execute(query).fetchall()

    def _confirm(self, conn: psycopg.Connection[Any], cursor: Cursor) -> None:
        query = sql.SQL("SELECT {}.confirm(%s, %s::text::pg_snapshot, %s::text::pg_snapshot, %s)")
        until = None if cursor.until is None else str(cursor.until)
        conn.execute(
            query.format(sql.Identifier(self._schema)),
            [self._name, str(cursor.since), until, cursor.position],
        )

    def _confirm_log(self, conn: psycopg.Connection[Any], place: LogPosition) -> None:
        if self._mark is not None and place.lsn >= self._mark.lsn:
            self._confirm(conn, Cursor(self._mark.snapshot))
            self._mark = None
        if self._mark is None:
            # A slot made with --accept-gap may have skipped rows: they stay.
            reading = sql.Identifier(self._schema, "reading")
            query = sql.SQL(
                "SELECT pg_current_snapshot()::text FROM {} WHERE before IS NOT NULL"
                " AND NOT EXISTS (SELECT FROM jsonb_each_text(anew) AS slot"
                " WHERE split_part(slot.value, ' ', 1)::pg_lsn > begins_at)"
            )
            taken = conn.execute(query.format(reading)).fetchone()
            # Asked after the snapshot: the commits of all that it sees are in the log already.
            end = conn.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
            if taken and end:
                self._mark = Moment(Snapshot.parse(taken[0]), parse_lsn(end[0]))

    def _empty(self, conn: psycopg.Connection[Any], leaf: Leaf) -> str:
        """Try to empty one leaf; return the outcome."""
        query = sql.SQL("SELECT {}.truncate_leaf(%s, make_interval(secs => %s))")
        try:
            row = conn.execute(
                query.format(sql.Identifier(self._schema)), [leaf.number, self._keep]
            ).fetchone()
        except (errors.LockNotAvailable, errors.DeadlockDetected):
            # Another shard is emptying it. If two shards have read it, one of them gets a deadlock
            # error at once.
            return "locked"
        outcome = str(row[0]) if row else ""
        if outcome == "rotated":
            self._metrics.rotated(leaf.live_rows, leaf.total_bytes)
            _log.debug("emptied leaf %d: %d bytes", leaf.number, leaf.total_bytes)
        return outcome

    def _move(self, conn: psycopg.Connection[Any], leaves: list[Leaf]) -> None:
        following = successor(leaves)
        if following is not None:
            query = sql.SQL("SELECT {}.write_to_leaf(%s)").format(sql.Identifier(self._schema))
            conn.execute(query, [following])
            self._moved = time.monotonic()

    def _report(self, conn: psycopg.Connection[Any], outcomes: dict[int, str]) -> None:
        """Measure how long each leaf has waited, and report the reasons."""
        now = time.monotonic()
        delayed = {leaf: why for leaf, why in outcomes.items() if why != "rotated"}
        self._due_since = {leaf: self._due_since.get(leaf, now) for leaf in delayed}
        self._reported &= delayed.keys()
        age = {leaf: now - since for leaf, since in self._due_since.items()}
        for cause in _CAUSES:
            ages = [age[leaf] for leaf, why in delayed.items() if why.startswith(cause)]
            self._metrics.rotation_delayed(cause, max(ages, default=0.0))
        for leaf in delayed.keys() - self._reported:
            if age[leaf] > _PATIENCE and (reason := self._reason(conn, leaf, delayed[leaf])):
                self._reported.add(leaf)
                _log.warning(
                    "leaf %d could not be emptied for %.0f s: %s. Nothing else waits for that",
                    leaf,
                    age[leaf],
                    reason,
                )

    def _reason(self, conn: psycopg.Connection[Any], leaf: int, outcome: str) -> str | None:
        """Return what an operator should know about a leaf that is not emptied, or None."""
        if outcome == "locked":
            return f"it is in use {self._holder(conn, leaf)}"
        _, _, reader = outcome.partition(_UNPUBLISHED_BY)
        if reader in {"", self._name}:
            return None
        forget = sql.SQL("DELETE FROM {}.relays WHERE name = {}").format(
            sql.Identifier(self._schema), sql.Literal(reader)
        )
        return (
            f"the relay named {reader!r} has not published what it holds; if there is none of "
            f"that name any more: {forget.as_string(conn)}"
        )

    def _holder(self, conn: psycopg.Connection[Any], leaf: int) -> str:
        """Return the session that has locked a leaf for the longest time."""
        table = "events" if leaf == PARENT else f"events_{leaf}"
        row = conn.execute(
            "SELECT l.pid, coalesce(nullif(a.application_name, ''), 'no name') FROM pg_locks l"
            " LEFT JOIN pg_stat_activity a USING (pid) WHERE l.relation = %s::regclass"
            " AND l.granted ORDER BY a.xact_start LIMIT 1",
            [sql.Identifier(self._schema, table).as_string()],
        ).fetchone()
        return "by nobody any more" if row is None else f"by session {row[0]}, {row[1]}"


def _in_table(place: Place) -> Cursor:
    """Return how far the rows of the table are certainly published."""
    return Cursor(place.seen or BEGINNING) if isinstance(place, LogPosition) else place
