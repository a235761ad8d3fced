"""
Make sure that neither a crash of the server nor a promotion takes back what was read.

Visible is not the same as on disk: a session with `synchronous_commit` off makes its commit
visible first. But that commit lies in the log before every position that is read after the
snapshot. Nor need it be at the synchronous standbys, since a session may choose not to wait for
them.
"""

import threading
import time
from types import TracebackType
from typing import Any, Self

import psycopg

# Needs Postgres 17. It is not a transaction, and uses no transaction id.
_FLUSH = b"SELECT pg_logical_emit_message(false, 'dovecote', '', true)::text"
_FLUSHES = 170_000

# One message, hence one transaction: it waits for the disk but for no standby.
_COMMIT = (
    b"SET LOCAL synchronous_commit = local;"
    b" SELECT pg_logical_emit_message(true, 'dovecote', '')::text"
)

# This one waits for the standbys too, if the server's commits do.
_REPLICATED_COMMIT = _COMMIT.replace(b"local", b"on")


# Writers flush what they commit, so as a rule it is on disk after the first of these pauses (s).
_RESTS = (0.0002, 0.0004, 0.0008)


class Pending:
    """A batch handed over before it is known to be on disk. It is there if the block ends well."""

    def __init__(self) -> None:
        self._done, self._failed = threading.Event(), False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._failed = kind is not None
        self._done.set()

    def wait(self, seconds: float) -> bool:
        """Wait up to `seconds`; return whether it is on disk."""
        return self._done.wait(seconds) and not self._failed


def keep(conn: psycopg.Connection[Any], lsn: str) -> None:
    """Return when the write-ahead log is on disk up to `lsn`, which is not beyond its end."""
    for rest in _RESTS:
        if _is_on_disk(conn, lsn):
            return
        time.sleep(rest)
    if not _is_on_disk(conn, lsn):
        # A transaction may have written without having ended. We do not flush at once, because a
        # reader of other events would pay for it.
        keep_all(conn)


def keep_all(conn: psycopg.Connection[Any]) -> str:
    """
    Flush everything that is visible to disk, and return a position in the log after it.

    This is one statement, which the server answers when the data is on disk. If writers flush at
    the same time, the server combines the flushes.
    """
    if conn.info.server_version >= _FLUSHES:
        row = conn.execute(_FLUSH).fetchone()
    else:
        cursor = conn.execute(_COMMIT, prepare=False)
        cursor.nextset()
        row = cursor.fetchone()
    if row is None:
        msg = "a query for one row returned none"
        raise AssertionError(msg)
    return str(row[0])


def write_through(conn: psycopg.Connection[Any]) -> None:
    """
    Write the whole log so far to disk, and have it sent to everyone who follows it.

    A commit does that. It also keeps a crash from reusing a transaction id that we already know.
    """
    conn.execute(_COMMIT, prepare=False)


def replicate(conn: psycopg.Connection[Any]) -> None:
    """
    Return when the synchronous standbys have all of the log so far.

    Progress records how far the log must reach for nothing to be lost. Without this wait it would
    record more than the standby has, and a promotion that lost nothing would be refused.

    Raises:
        psycopg.OperationalError: somebody cancelled the wait.
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
        # The server reports success all the same.
        raise psycopg.OperationalError(said[0])


def _is_on_disk(conn: psycopg.Connection[Any], lsn: str) -> bool:
    row = conn.execute("SELECT pg_current_wal_flush_lsn() >= %s::pg_lsn", [lsn]).fetchone()
    return row is not None and bool(row[0])
