"""The steps that `dovecote init` has in common for the outbox, the inbox and push."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, TypeAlias

import psycopg

from dovecote.cli.flags import Flag
from outbox.errors import BadSettings, DovecoteError, first_line
from outbox.postgres import session
from outbox.schema.migrations import Migration

DsnOption: TypeAlias = Annotated[
    str,
    Flag(
        metavar="DSN",
        envvar="DOVECOTE_DSN",
        hide_default=True,
        help="The libpq connection string; the variables PG* count too.",
    ),
]
SchemaOption: TypeAlias = Annotated[
    str, Flag(metavar="NAME", help="The Postgres schema to install into.")
]
PrintSqlOption: TypeAlias = Annotated[bool, Flag(help="Print the SQL instead of running it.")]
SinceVersionOption: TypeAlias = Annotated[
    int,
    Flag(metavar="N", min=0, help="With --print-sql: only the steps after this version."),
]


def require_printing(since: int, *, print_sql: bool) -> None:
    """
    Refuse `--since` where no SQL is printed.

    Raises:
        BadSettings: it is given.
    """
    if since and not print_sql:
        msg = "--since goes with --print-sql: an installation finds its version out by itself"
        raise BadSettings(msg)


def whereabouts(conn: psycopg.Connection, schema: str) -> str:
    """Return where a schema is, without passwords."""
    return f"schema {schema!r} of {session.without_secrets(conn.info.dsn)}"


def report(applied: Sequence[Migration], granted: Mapping[str, Sequence[str]], end: str) -> None:
    """Print the steps that were applied, and the roles that got rights, by their duty."""
    for step in applied:
        print(f"applied {step.version:04d} {step.name}")
    for duty, names in granted.items():
        for name in names:
            print(f"granted {name} what a {duty} needs")
    print(end)


@contextmanager
def connected(dsn: str) -> Iterator[psycopg.Connection]:
    """Yield a connection that commits at the end; explain what an operator can do if it fails."""
    try:
        session.parsed(dsn)
    except ValueError as error:
        msg = f"--dsn or DOVECOTE_DSN: {error}"
        raise BadSettings(msg) from None
    try:
        conn = session.connect(dsn, autocommit=False)
    except psycopg.OperationalError as error:
        advice = "is --dsn or DOVECOTE_DSN right?" if dsn else "give --dsn or set DOVECOTE_DSN"
        msg = f"cannot connect: {first_line(error)}; {advice}"
        raise DovecoteError(msg) from error
    with explained(), conn:
        yield conn


@contextmanager
def explained() -> Iterator[None]:
    """Explain what an operator can do when the server refuses something."""
    try:
        yield
    except psycopg.errors.LockNotAvailable as error:
        raise DovecoteError(str(error.diag.message_primary)) from error
    except psycopg.OperationalError as error:
        msg = (
            f"Postgres: {first_line(error)}; run the same command again once that is over or "
            "mended: what is done already is not done twice"
        )
        raise DovecoteError(msg) from error
    except psycopg.errors.InsufficientPrivilege as error:
        msg = (
            f"{first_line(error)}; run it as the owner of the schema, or of the database where "
            "the schema is not there yet, or use --print-sql"
        )
        raise DovecoteError(msg) from error
