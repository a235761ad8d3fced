"""Ask a promoted server how much it has of its predecessor's log."""

from typing import Any

import psycopg

from relay.errors import Refused
from relay.postgres.capture.replication import replicating
from relay.postgres.connect import connect, instance_of, require_one
from relay.rules.places.instance import Instance
from relay.rules.places.lsn import parse_lsn


def shared(dsn: str, *, old: int, new: int, at: Instance | None = None) -> int | None:
    """
    Return the end of timeline `old` in the log of the server, which is on timeline `new`.

    0 if the server never was on `old`; None if we cannot find it out.

    Raises:
        LeaseLost: a server other than `at` answers.
    """
    try:
        return left_at(_history(dsn, new, at), old)
    except (psycopg.OperationalError, psycopg.errors.InsufficientPrivilege, Refused) as error:
        promoted_at = _seen_without_replication(dsn, at)
        # Only if no other promotion lies between the two.
        if promoted_at is not None and new == old + 1:
            return parse_lsn(promoted_at)
        if isinstance(error, psycopg.OperationalError):
            raise  # the server may let us ask later
        return None


def left_at(history: str, timeline: int) -> int:
    """Return where a server left `timeline`, by its history file; 0: it never was on it."""
    for line in history.splitlines():
        match line.split():
            case [number, lsn, *_] if number == str(timeline):
                return parse_lsn(lsn)
    return 0


def _history(dsn: str, timeline: int, at: Instance | None) -> str:
    with replicating(dsn, "history") as conn:
        _require_at(conn, at)
        row = conn.execute(f"TIMELINE_HISTORY {timeline:d}".encode()).fetchone()
    content = row[1] if row else ""
    return content.decode() if isinstance(content, bytes) else str(content)


def _require_at(conn: psycopg.Connection[Any], at: Instance | None) -> None:
    if at is not None:
        require_one(at, instance_of(conn), "the one that reports the history of the server")


def _seen_without_replication(dsn: str, at: Instance | None) -> str | None:
    """Return where the server stopped being a standby, None if it does not know it."""
    query = (
        # A crash makes the server forget what it received; otherwise this would be the end of its
        # recovery.
        "SELECT CASE WHEN pg_last_wal_receive_lsn() IS NOT NULL"
        " THEN pg_last_wal_replay_lsn()::text END"
    )
    with connect(dsn, purpose="history") as conn:
        _require_at(conn, at)
        row = conn.execute(query).fetchone()
    return row[0] if row else None
