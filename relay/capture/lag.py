"""Count what waits in the table to be published."""

from typing import Any

import psycopg
from psycopg import sql

from relay.capture.window import behind, own, params
from relay.progress import Cursor
from relay.sharding import Shard


def waiting(
    conn: psycopg.Connection[Any],
    schema: str,
    cursor: Cursor,
    shard: Shard | None = None,
    *,
    most: int = 100_000,
) -> tuple[int, float]:
    """Return how many events wait behind `cursor` (counted up to `most`), and the oldest's age."""
    since, until = cursor.since, cursor.until
    query = sql.SQL(
        "SELECT count(*), coalesce(extract(epoch FROM clock_timestamp() - min(appended_at)),"
        " 0)::float8 FROM (SELECT appended_at FROM {}"
        " WHERE (position > %(position)s"
        " OR NOT pg_visible_in_snapshot(xid, %(until)s::text::pg_snapshot))"
        " AND {} LIMIT %(most)s) AS waiting"
    ).format(behind(sql.Identifier(schema, "events"), since), own(shard))
    place = {"position": cursor.position, "until": str(until or since), "most": most}
    row = conn.execute(query, {**place, **params(since)}).fetchone()
    rows, age = row if row is not None else (0, 0.0)
    return rows, max(0.0, age)
