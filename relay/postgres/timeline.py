"""Ask a promoted server how much it has of its predecessor's log."""

from typing import Any

import psycopg

from outbox.postgres.session import conninfo
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
    except (psycopg.OperationalError, psycopg.errors.InsufficientPrivilege):
        may_ask, promoted_at = _seen_without_replication(dsn, at)
        # Only if no other promotion lies between the two.
        if promoted_at is not None and new == old + 1:
            return parse_lsn(promoted_at)
        if may_ask:
            raise
        return None


def left_at(history: str, timeline: int) -> int:
    """Return where a server left `timeline`, by its history file; 0: it never was on it."""
    for line in history.splitlines():
        match line.split():
            case [number, lsn, *_] if number == str(timeline):
                return parse_lsn(lsn)
    return 0


def _history(dsn: str, timeline: int, at: Instance | None) -> str:
    with connect(conninfo(dsn, ours={"replication": "database"}), purpose="history") as conn:
        _require_at(conn, at)
        row = conn.execute(f"TIMELINE_HISTORY {timeline:d}".encode()).fetchone()
    content = row[1] if row else ""
    return content.decode() if isinstance(content, bytes) else str(content)


def _require_at(conn: psycopg.Connection[Any], at: Instance | None) -> None:
    if at is not None:
        require_one(at, instance_of(conn), "the one that reports the history of the server")


def _seen_without_replication(dsn: str, at: Instance | None) -> tuple[bool, str | None]:
    """Return whether we may ask for the history, and where the server stopped being a standby."""
    query = (
        "SELECT rolsuper OR rolreplication,"
        # A crash makes the server forget what it received; otherwise this would be the end of its
        # recovery.
        " CASE WHEN pg_last_wal_receive_lsn() IS NOT NULL THEN pg_last_wal_replay_lsn()::text END"
        " FROM pg_roles WHERE rolname = session_user"
    )
    with connect(dsn, purpose="history") as conn:
        _require_at(conn, at)
        row = conn.execute(query).fetchone()
    return (row[0], row[1]) if row else (False, None)
