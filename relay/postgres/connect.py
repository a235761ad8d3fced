"""Connect to Postgres so that we soon notice when a server is gone."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import psycopg
from psycopg import errors, sql
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import TupleRow

from outbox import schema as outbox_schema
from outbox.errors import SchemaMissing, SharedSession, first_line
from outbox.postgres import session
from outbox.postgres.away import is_outage
from outbox.postgres.overdue import NOTICE
from outbox.schema import slots
from outbox.schema.belongings import showing
from outbox.secrets import mapped
from relay.errors import LeaseLost, Outage, Refused
from relay.postgres.answers import Attended
from relay.rules.places.instance import ASK, Instance

OLDEST = 14
"""The oldest supported Postgres: the active role needs its `idle_session_timeout`."""

# Errors that waiting does not resolve. libpq passes on no SQLSTATE of a failed connection, so the
# text decides. A server that answers in another language counts as being away.
_SHUT = re.compile(
    r"password authentication failed|no password supplied|database .* does not exist"
    r"|role .* does not exist|is not permitted to log in|permission denied for database"
    r"|no pg_hba\.conf entry|certificate verify failed|root certificate file .* does not exist"
    r"|server does not support SSL|does not match host name"
)
_ATTEMPTS = "All failures were:\n"

# Timeouts that a database or a role sets for other programs' statements, with the version that
# introduced each. Our own code limits what takes long or waits. A timeout in `dsn` itself is
# intended, and stays.
_BOUNDS = {
    "statement_timeout": 0,
    "lock_timeout": 0,
    "idle_in_transaction_session_timeout": 0,
    "idle_session_timeout": 140_000,
    "transaction_timeout": 170_000,
}


def connect(dsn: str, *, purpose: str) -> Attended:
    """
    Return an autocommit connection whose waits end; timeouts in `dsn` apply.

    Raises:
        Refused: the server is too old, or is a pooler that shares sessions.
    """
    try:
        conn = session.connect_as(Attended, dsn, name=_name(purpose), ours=NOTICE)
    except SharedSession as error:
        refused = Refused(str(error))
        raise refused from error
    if conn.info.server_version < OLDEST * 10_000:
        found = conn.info.server_version // 10_000
        conn.close()
        msg = f"Postgres {found} is too old: Dovecote needs Postgres {OLDEST} or newer"
        raise Refused(msg)
    conn.attend(mapped(dsn, partial(parameters, purpose=purpose)))
    _settle(conn, str(conninfo_to_dict(dsn).get("options") or os.environ.get("PGOPTIONS", "")))
    return conn


def _settle(conn: psycopg.Connection[TupleRow], given: str) -> None:
    """Remove the timeouts and the isolation that its role and database set for other programs."""
    version = conn.info.server_version
    names = [name for name, since in _BOUNDS.items() if version >= since and name not in given]
    sets: list[sql.Composable] = [
        sql.SQL("SET {} = 0").format(sql.Identifier(name)) for name in names
    ]
    # With another level, two sessions that ask for a role at once would meet an error.
    sets.append(sql.SQL("SET default_transaction_isolation = 'read committed'"))
    conn.execute(sql.SQL("; ").join(sets))


def instance_of(conn: psycopg.Connection[Any]) -> Instance:
    """Return the running server that a session is at."""
    row = conn.execute(ASK.encode()).fetchone()
    if row is None:
        msg = "a query for one row returned none"
        raise AssertionError(msg)
    return Instance(str(row[0]), int(row[1]))


def require_one(role: Instance, other: Instance, what: str) -> None:
    """
    Check that the session that has the role and `what` are at the same server.

    Raises:
        LeaseLost: they are not; new sessions may be.
    """
    if role != other:
        msg = (
            f"Postgres: the session that holds the active role and {what} are at different "
            "servers: one was promoted in place of the other, or `dsn` leads to several"
        )
        raise LeaseLost(msg)


def parameters(dsn: str, *, purpose: str) -> str:
    """Return `dsn` with our application name and encoding, and with timeouts where it has none."""
    return session.conninfo(dsn, name=_name(purpose), ours=NOTICE)


def _name(purpose: str) -> str:
    return f"dovecote relay ({purpose})"


def shut_out(error: BaseException | None) -> Refused | None:
    """Return why no server that was asked will ever let us in, or None if waiting may help."""
    if not isinstance(error, psycopg.OperationalError):
        return None
    _, _, attempts = str(error).partition(_ATTEMPTS)
    if all(_SHUT.search(attempt) for attempt in (attempts or str(error)).split("\n- ")):
        msg = (
            f"Postgres: {first_line(error)}; waiting does not mend that: correct `dsn` and its "
            "secrets, or the server's roles, databases and pg_hba.conf"
        )
        return Refused(msg)
    return None


def follow_indexes(conn: psycopg.Connection[TupleRow]) -> None:
    """
    Keep the planner from scanning whole tables.

    A plan made while a table was empty is still used when it is full. Without statistics, the
    planner would rather sort everything than follow an index.
    """
    conn.execute("SET enable_seqscan = off; SET enable_bitmapscan = off; SET jit = off")


# A table is not found in a schema that is not there either; a function says it of the schema.
_GONE = (errors.UndefinedTable, errors.UndefinedFunction, errors.InvalidSchemaName)


@contextmanager
def explained(schema: str, dsn: str, *, advice: str | None = None) -> Iterator[None]:
    """
    Turn Postgres's errors into errors that their reader can act on.

    `advice` is for a role that lacks a right, if the usual advice for a relay does not fit.

    Raises:
        Outage: Postgres does not answer, ended the statement, or takes no writes for now.
    """
    try:
        yield
    except errors.InsufficientPrivilege as error:
        raise not_allowed(error, schema, dsn, advice) from error
    except _GONE as error:
        msg = f"Postgres: {first_line(error)}: the outbox in schema {schema!r} was dropped or is "
        msg += f"not whole; {outbox_schema.installing(schema)}"
        raise SchemaMissing(msg) from error
    except psycopg.Error as error:
        if not is_outage(error):
            raise
        msg = f"Postgres: {first_line(error)}"
        raise Outage(msg) from error


def lacks_replication(role: str) -> str:
    """Return the message for a role that cannot follow the log."""
    return f"role {role} cannot read the write-ahead log; {slots.lacks_replication(role)}"


def not_allowed(
    error: errors.InsufficientPrivilege, schema: str, dsn: str, advice: str | None = None
) -> Refused:
    """Return a refusal with the command that grants the missing right, or with `advice`."""
    role = str(conninfo_to_dict(dsn).get("user") or os.environ.get("PGUSER") or "ROLE")
    if session.hides_rows(error):
        advice = showing(schema)
    msg = f"{first_line(error)}; {advice or outbox_schema.advice('relay', role, schema)}"
    return Refused(msg)
