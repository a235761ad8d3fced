"""Measure how much waits to be published: events in the table, bytes in the log."""

from typing import Any

import psycopg
from psycopg import sql

from relay.postgres.capture.catalog import Look, look
from relay.postgres.capture.window import after, own, params
from relay.rules.places.progress import Cursor, Lag, LogPosition, Place
from relay.rules.sharding import Shard


def lag_of(
    conn: psycopg.Connection[Any], schema: str, shard: Shard | None, place: Place | None
) -> Lag:
    """Return what waits after `place`, or everything that waits if there is no progress yet."""
    found = look(conn, schema, shard)
    if isinstance(place, LogPosition):
        return Lag(bytes=max(0, found.end - place.lsn))
    rows, seconds = waiting(conn, schema, place or Cursor(), shard)
    return Lag(rows, seconds, _unread(found))


def _unread(found: Look) -> int | None:
    """Return how much of the log waits if nothing of it is published yet."""
    beginning = found.beginning
    return None if beginning is None else max(0, found.end - beginning.lsn)


def waiting(
    conn: psycopg.Connection[Any],
    schema: str,
    cursor: Cursor,
    shard: Shard | None = None,
    *,
    most: int = 100_000,
) -> tuple[int, float]:
    """Return how many events wait after `cursor` (up to `most`), and the age of the oldest."""
    since, until = cursor.since, cursor.until
    query = sql.SQL(
        "SELECT count(*), coalesce(extract(epoch FROM clock_timestamp() - min(appended_at)),"
        " 0)::float8 FROM (SELECT appended_at FROM {}"
        " WHERE (position > %(position)s"
        " OR NOT pg_visible_in_snapshot(xid, %(until)s::text::pg_snapshot))"
        " AND {} LIMIT %(most)s) AS waiting"
    ).format(after(sql.Identifier(schema, "events"), since), own(shard))
    place = {"position": cursor.position, "until": str(until or since), "most": most}
    row = conn.execute(query, {**place, **params(since)}).fetchone()
    rows, age = row if row is not None else (0, 0.0)
    return rows, max(0.0, age)
