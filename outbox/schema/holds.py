"""Hold what only one session may, by functions that no other role may call."""

import time
from typing import Any

from psycopg import Connection, errors, sql

from outbox.errors import NotFree
from outbox.postgres.ours import cursor

CAPTURE = "capture"
"""The turn to make or drop slots: of operators' commands, and of a relay that has left the log."""

# How long to wait for what another session holds, in seconds, and the pause between two questions.
_PATIENCE, _PAUSE = 20.0, 0.05


def hold(conn: Connection[Any], schema: str, what: str) -> bool:
    """
    Take `what` for the session, unless another session has it or is just taking it.

    It ends with the session. In an open transaction, others are kept out until its end.
    """
    query = sql.SQL("SELECT {}(%s)").format(sql.Identifier(schema, "hold"))
    row = cursor(conn).execute(query, [what]).fetchone()
    return bool(row and row[0])


def hold_soon(
    conn: Connection[Any], schema: str, what: str, *, seconds: float = _PATIENCE
) -> None:
    """
    Take `what` for the session, and wait for it if another session has it.

    Raises:
        NotFree: another session still has it after `seconds`; the message names it.
    """
    end = time.monotonic() + seconds
    while not hold(conn, schema, what):
        if time.monotonic() > end:
            holder = held_by(conn, schema, what)
            msg = (
                f"the turn for {what!r} in schema {schema!r} is not free after {seconds:.0f} s: "
                f"{holder or 'another session is just taking it'}; run it again when that has "
                "ended, or end that session with pg_terminate_backend()"
            )
            raise NotFree(msg)
        time.sleep(_PAUSE)


def let_go(conn: Connection[Any], schema: str, what: str) -> None:
    """Let go of what the session holds."""
    query = sql.SQL("SELECT {}(%s)").format(sql.Identifier(schema, "let_go"))
    cursor(conn).execute(query, [what])


def is_mine(conn: Connection[Any], schema: str, what: str) -> bool:
    """Return whether this session holds `what`."""
    query = sql.SQL(
        "SELECT EXISTS (SELECT FROM {}() AS h WHERE h.what = %s AND h.pid = pg_backend_pid())"
    ).format(sql.Identifier(schema, "holding"))
    row = cursor(conn).execute(query, [what]).fetchone()
    return bool(row and row[0])


def held_by(conn: Connection[Any], schema: str, what: str) -> str | None:
    """Return which session holds `what`; None if none does."""
    query = sql.SQL(
        "SELECT h.pid, a.usename::text, a.application_name FROM {}() AS h"
        " LEFT JOIN pg_stat_activity AS a USING (pid) WHERE h.what = %s"
    ).format(sql.Identifier(schema, "holding"))
    row = cursor(conn).execute(query, [what]).fetchone()
    return None if row is None else f"session {row[0]} of role {row[1]} ({row[2]}) has it"


def has_functions(conn: Connection[Any], schema: str) -> bool:
    """Return whether the schema has these functions; an older one lacks them."""
    query = sql.SQL("SELECT {}()").format(sql.Identifier(schema, "holding"))
    try:
        with conn.transaction():
            cursor(conn).execute(query)
    except (errors.UndefinedFunction, errors.InvalidSchemaName):
        return False
    return True


def lockers(conn: Connection[Any], schema: str) -> str:
    """Return which sessions have locks on tables of the schema."""
    row = (
        cursor(conn)
        .execute(
            "SELECT string_agg(DISTINCT format('session %%s of role %%s (%%s)', l.pid, a.usename,"
            " a.application_name), ', ') FROM pg_locks AS l"
            " JOIN pg_class AS c ON c.oid = l.relation"
            " JOIN pg_namespace AS n ON n.oid = c.relnamespace"
            " LEFT JOIN pg_stat_activity AS a ON a.pid = l.pid"
            " WHERE l.granted AND n.nspname = %s AND l.pid <> pg_backend_pid()",
            [schema],
        )
        .fetchone()
    )
    return str(row[0]) if row and row[0] else "sessions that have ended"
