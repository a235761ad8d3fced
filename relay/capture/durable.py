"""
See to it that a crash of the server takes back nothing of what was read.

What is visible need not be on disk: a session whose `synchronous_commit` is off commits first. But
its commit lies in the log before every position that is asked for after the snapshot.
"""

from typing import Any

import psycopg

# One message, and hence one transaction: it waits for the disk, and for no standby.
_COMMIT = (
    b"SET LOCAL synchronous_commit = local; SELECT pg_logical_emit_message(true, 'dovecote', '')"
)


def keep(conn: psycopg.Connection[Any], lsn: str) -> None:
    """Return when the write-ahead log is on disk up to `lsn`."""
    # As a rule the writers themselves have seen to it by now.
    while not _is_on_disk(conn, lsn):
        write_through(conn)


def keep_all(conn: psycopg.Connection[Any]) -> str:
    """Return a position in the log that nothing visible lies behind, once it is on disk."""
    (lsn,) = conn.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone() or ("0/0",)
    keep(conn, lsn)
    return str(lsn)


def write_through(conn: psycopg.Connection[Any]) -> None:
    """
    Have all of the log that there is now written to disk, and sent to whoever follows it.

    A commit of its own does that; with it, no crash gives out a transaction id again that was
    known before.
    """
    conn.execute(_COMMIT, prepare=False)


def _is_on_disk(conn: psycopg.Connection[Any], lsn: str) -> bool:
    row = conn.execute("SELECT pg_current_wal_flush_lsn() >= %s::pg_lsn", [lsn]).fetchone()
    return row is not None and bool(row[0])
