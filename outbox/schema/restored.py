"""
Rows that were restored from another server and carry that server's transaction ids.

A row is published like any other if its id belongs to a transaction that is over on this server.
If that transaction is open here or still to come, the id belongs to somebody else as well, and
until it is over nobody can say that the row was seen.
"""

from typing import Any

from psycopg import Connection, sql

from outbox.postgres.ours import cursor


def foreign(conn: Connection[Any], events: sql.Identifier) -> str | None:
    """Return the id of a transaction with rows in `events` that is not over on this server."""
    query = sql.SQL(
        "(SELECT xid::text FROM {events} WHERE xid >= pg_snapshot_xmax(pg_current_snapshot())"
        " LIMIT 1) UNION ALL (SELECT xid::text FROM {events}"
        " WHERE xid = ANY (ARRAY(SELECT pg_snapshot_xip(pg_current_snapshot()))) LIMIT 1)"
    )
    row = cursor(conn).execute(query.format(events=events)).fetchone()
    return None if row is None else str(row[0])


def remedy(events: sql.Identifier) -> str:
    """Return the statement that assigns all such rows to the transaction that it runs in."""
    return (
        sql.SQL(
            "UPDATE {} SET xid = pg_current_xact_id()"
            " WHERE NOT pg_visible_in_snapshot(xid, pg_current_snapshot())"
        )
        .format(events)
        .as_string()
    )
