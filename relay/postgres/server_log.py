"""
What a server says of its write-ahead log, and nothing where it does not say it.

Managed servers do not have these functions (Aurora), or keep them from roles that are no
superusers. To read the table takes none of them: what is not known is 0 then.
"""

from typing import Any, LiteralString

import psycopg
from psycopg import errors

from relay.rules.places.lsn import NOWHERE

# By a server that has it not, by one that keeps it from the role, and by one that never had it.
_NOT_TOLD = (errors.FeatureNotSupported, errors.InsufficientPrivilege, errors.UndefinedFunction)


def end_of_log(conn: psycopg.Connection[Any]) -> str:
    """Return up to where the log is on disk, by an autocommit connection; `NOWHERE`: not told."""
    row = _asked(conn, "SELECT pg_current_wal_flush_lsn()::text")
    return NOWHERE if row is None else str(row[0])


def log_of(conn: psycopg.Connection[Any]) -> tuple[int, str]:
    """Return its timeline, too, by an autocommit connection; 0 and `NOWHERE`: not told."""
    row = _asked(
        conn,
        "SELECT pg_walfile_name(pg_current_wal_lsn()), pg_current_wal_flush_lsn()::text,"
        " pg_current_wal_insert_lsn()",
    )
    # A WAL file's name begins with its timeline; pg_control lags behind after a promotion.
    return (0, NOWHERE) if row is None else (int(row[0][:8], 16), str(row[1]))


def _asked(conn: psycopg.Connection[Any], query: LiteralString) -> tuple[Any, ...] | None:
    try:
        row: tuple[Any, ...] | None = conn.execute(query).fetchone()
    except _NOT_TOLD:
        return None
    return row
