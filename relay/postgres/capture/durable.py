"""
See to it that neither a crash of the server nor a promotion takes back what was read.

What is visible need not be on disk: a session whose `synchronous_commit` is off commits first. But
its commit lies in the log before every position that is asked for after the snapshot. Nor need it
be at the synchronous standbys, for a session may choose not to wait for them.
"""

import threading
import time
from types import TracebackType
from typing import Any, Self

import psycopg

# Of Postgres 17 and newer; it is no transaction, and uses up no id.
_FLUSH = b"SELECT pg_logical_emit_message(false, 'dovecote', '', true)::text"
_FLUSHES = 170_000

# One message, and hence one transaction: it waits for the disk, and for no standby.
_COMMIT = (
    b"SET LOCAL synchronous_commit = local;"
    b" SELECT pg_logical_emit_message(true, 'dovecote', '')::text"
)

# This one waits for the standbys, too, if commits do so there.
_REPLICATED_COMMIT = _COMMIT.replace(b"local", b"on")


# Writers flush what they commit: as a rule it is there after the first of these rests, in seconds.
_RESTS = (0.0002, 0.0004, 0.0008)


class Pending:
    """What is handed over before it is known to be on disk: it is, when the block ends well."""

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
        """Tell, within so many seconds, whether it is on disk."""
        return self._done.wait(seconds) and not self._failed


def keep(conn: psycopg.Connection[Any], lsn: str) -> None:
    """Return when the write-ahead log is on disk up to `lsn`, which is not beyond its end."""
    for rest in _RESTS:
        if _is_on_disk(conn, lsn):
            return
        time.sleep(rest)
    if not _is_on_disk(conn, lsn):
        # A transaction may have written, and not end. Not at once: a reader of others gets it.
        keep_all(conn)


def keep_all(conn: psycopg.Connection[Any]) -> str:
    """
    Have all that is visible written to disk, and return a position in the log that is behind it.

    One statement, which the server answers when the disk has it; where writers flush at the same
    time, they do it together.
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
