"""
A server's report on its write-ahead log, or nothing if it gives none.

Managed servers lack these functions (Aurora), or keep them from roles that are no superusers.
Reading the table needs none of them; unknown values are 0 then.
"""

from typing import Any, LiteralString

import psycopg
from psycopg import errors

from relay.rules.places.lsn import NOWHERE

# The errors of a server that lacks the function, denies it to the role, or never had it.
_DENIED = (errors.FeatureNotSupported, errors.InsufficientPrivilege, errors.UndefinedFunction)


def end_of_log(conn: psycopg.Connection[Any]) -> str:
    """
    Return how far the log is on disk, over an autocommit connection; `NOWHERE`: not reported.
    """
    row = _asked(conn, "SELECT pg_current_wal_flush_lsn()::text")
    return NOWHERE if row is None else str(row[0])


def log_of(conn: psycopg.Connection[Any]) -> tuple[int, str]:
    """
    Return the timeline as well, over an autocommit connection; 0 and `NOWHERE`: not reported.
    """
    row = _asked(
        conn,
        "SELECT pg_walfile_name(pg_current_wal_lsn()), pg_current_wal_flush_lsn()::text,"
        " pg_current_wal_insert_lsn()",
    )
    # A WAL file's name begins with its timeline; pg_control lags after a promotion.
    return (0, NOWHERE) if row is None else (int(row[0][:8], 16), str(row[1]))


def _asked(conn: psycopg.Connection[Any], query: LiteralString) -> tuple[Any, ...] | None:
    try:
        row: tuple[Any, ...] | None = conn.execute(query).fetchone()
    except _DENIED:
        return None
    return row
