"""Read the rows that were written to an outbox."""

from typing import Any, TypeAlias

import psycopg
from psycopg import Connection

Conn: TypeAlias = Connection[Any]


def stored(dsn: str, columns: str = "value") -> list[Any]:
    """Return the rows that another session sees, in order of position."""
    with psycopg.connect(dsn) as other:
        query = f"SELECT {columns} FROM outbox.events ORDER BY position"  # noqa: S608  # our own
        rows = other.execute(query.encode())
        return [row[0] if len(row) == 1 else row for row in rows]
