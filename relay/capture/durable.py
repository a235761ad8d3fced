"""
See to it that neither a crash of the server nor a promotion takes back what was read.

What is visible need not be on disk: a session whose `synchronous_commit` is off commits first. But
its commit lies in the log before every position that is asked for after the snapshot. Nor need it
be at the synchronous standbys, for a session may choose not to wait for them.
"""

from typing import Any

import psycopg

# One message, and hence one transaction: it waits for the disk, and for no standby.
_COMMIT = (
    b"SET LOCAL synchronous_commit = local; SELECT pg_logical_emit_message(true, 'dovecote', '')"
)

# This one waits for the standbys, too, if commits do so there.
_REPLICATED_COMMIT = _COMMIT.replace(b"local", b"on")


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


def replicate(conn: psycopg.Connection[Any]) -> None:
    """
    Return when the synchronous standbys have all of the log that there was before.

    Progress says how far the log must be there for nothing to be lost: without this, it would say
    more than what the standby has, and a promotion that lost nothing would be refused.

    Raises:
        psycopg.OperationalError: somebody ended the wait.
    """
    said: list[str] = []

    def heard(notice: psycopg.errors.Diagnostic) -> None:
        said.append(notice.message_primary or "")

    conn.add_notice_handler(heard)
    try:
        conn.execute(_REPLICATED_COMMIT, prepare=False)
    finally:
        conn.remove_notice_handler(heard)
    if said:
        # The server answers as if all were well.
        raise psycopg.OperationalError(said[0])


def _is_on_disk(conn: psycopg.Connection[Any], lsn: str) -> bool:
    row = conn.execute("SELECT pg_current_wal_flush_lsn() >= %s::pg_lsn", [lsn]).fetchone()
    return row is not None and bool(row[0])
