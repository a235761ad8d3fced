"""`dovecote init`: install or upgrade the outbox or inbox, or print the SQL that does."""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Annotated

import psycopg
import typer
from psycopg.conninfo import conninfo_to_dict

from dedup import inbox_schema
from outbox import capture as outbox_capture
from outbox import schema as outbox_schema
from outbox.errors import BadSettings, DovecoteError
from outbox.settings import without_secrets


class CaptureMode(StrEnum):
    """Where writers write events."""

    TABLE = "table"
    WAL = "wal"


def init(
    *,
    dsn: Annotated[
        str,
        typer.Option(
            envvar="DOVECOTE_DSN", help="libpq connection string; PG* variables hold too"
        ),
    ] = "",
    schema: Annotated[
        str | None,
        typer.Option(help="Postgres schema [default: outbox; with --inbox: inbox]"),
    ] = None,
    inbox: Annotated[
        bool, typer.Option("--inbox", help="install what consumers need instead: the inbox")
    ] = False,
    print_sql: Annotated[
        bool, typer.Option("--print-sql", help="print the SQL instead of running it")
    ] = False,
    since: Annotated[
        int, typer.Option(help="with --print-sql: only what came after this version", min=0)
    ] = 0,
    writer_role: Annotated[
        list[str] | None,
        typer.Option(help="let this role write events, and no more (can be repeated)"),
    ] = None,
    relay_role: Annotated[
        list[str] | None,
        typer.Option(help="let this role run `dovecote relay`, and no more (can be repeated)"),
    ] = None,
    consumer_role: Annotated[
        list[str] | None,
        typer.Option(help="with --inbox: let this role consume, and no more (can be repeated)"),
    ] = None,
    capture: Annotated[
        CaptureMode | None,
        typer.Option(help="where events are written: a table, or the write-ahead log alone"),
    ] = None,
    accept_gap: Annotated[
        bool,
        typer.Option(
            "--accept-gap",
            help="with --capture wal: make the slot anew, without the events it had not sent",
        ),
    ] = False,
    shard: Annotated[
        int | None,
        typer.Option(help="with --accept-gap: the slot of this shard alone", min=0),
    ] = None,
) -> None:
    """
    Install the outbox, or upgrade it to this version; a second run changes nothing.

    Example: dovecote init --dsn "host=db.internal dbname=shop user=owner"

    With roles: dovecote init --writer-role shop --relay-role shop_relay

    For consumers: dovecote init --inbox --consumer-role billing

    Without a table: dovecote init --capture wal

    For another migration tool: dovecote init --print-sql > 0042_outbox.sql
    """
    _require_sense(capture, print_sql=print_sql, accept_gap=accept_gap, shard=shard)
    roles = outbox_schema.Roles(writer_role or [], relay_role or [])
    consumers = consumer_role or []
    _require_one(roles, consumers, inbox=inbox, capture=capture)
    place = schema or (inbox_schema if inbox else outbox_schema).DEFAULT_SCHEMA
    if print_sql:
        text = (
            inbox_schema.script(place, since=since, consumers=consumers)
            if inbox
            else outbox_schema.script(place, since=since, roles=roles)
        )
        typer.echo(text, nl=False)
        return
    with _connected(dsn) as conn:
        applied = (
            inbox_schema.install(conn, place, consumers=consumers)
            if inbox
            else outbox_schema.install(conn, place, roles=roles)
        )
        where = f"schema {place!r} of {without_secrets(conn.info.dsn)}"
    for step in applied:
        typer.echo(f"applied {step.version:04d} {step.name}")
    granted = [("writer", roles.writers), ("relay", roles.relays), ("consumer", consumers)]
    for duty, names in granted:
        for name in names:
            typer.echo(f"granted {name} what a {duty} needs")
    typer.echo(f"the {'inbox' if inbox else 'outbox'} is up to date in {where}")
    if capture is not None:
        _switch(dsn, place, capture, accept_gap=accept_gap, shard=shard)


@contextmanager
def _connected(dsn: str) -> Iterator[psycopg.Connection]:
    """Give a connection that commits at the end; say what an operator can do if it fails."""
    try:
        conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        # What libpq says of it quotes it, and it may hold a password.
        msg = "--dsn or DOVECOTE_DSN is not a connection string that libpq can read (not shown)"
        raise BadSettings(msg) from None
    try:
        with psycopg.connect(dsn) as conn:
            yield conn
    except psycopg.errors.LockNotAvailable as error:
        raise DovecoteError(str(error.diag.message_primary)) from error
    except psycopg.OperationalError as error:
        msg = f"cannot connect: {str(error).strip()}; give --dsn or set DOVECOTE_DSN"
        raise DovecoteError(msg) from error
    except psycopg.errors.InsufficientPrivilege as error:
        msg = f"{str(error).strip()}; run it as the database's owner, or use --print-sql"
        raise DovecoteError(msg) from error


def _require_one(
    roles: outbox_schema.Roles,
    consumers: list[str],
    *,
    inbox: bool,
    capture: CaptureMode | None,
) -> None:
    """Refuse options of the outbox for the inbox, and the other way round."""
    if inbox and (roles.writers or roles.relays or capture is not None):
        msg = "--inbox takes --consumer-role; writers, relays and --capture are the outbox's"
        raise BadSettings(msg)
    if consumers and not inbox:
        msg = "--consumer-role goes with --inbox"
        raise BadSettings(msg)


def _require_sense(
    capture: CaptureMode | None, *, print_sql: bool, accept_gap: bool, shard: int | None
) -> None:
    if accept_gap and capture is not CaptureMode.WAL:
        msg = "--accept-gap goes with --capture wal"
        raise BadSettings(msg)
    if shard is not None and not accept_gap:
        msg = "--shard goes with --accept-gap"
        raise BadSettings(msg)
    if print_sql and capture is not None:
        msg = "--capture needs the server: run it after what --print-sql shows"
        raise BadSettings(msg)


def _switch(
    dsn: str, schema: str, capture: CaptureMode, *, accept_gap: bool, shard: int | None
) -> None:
    """Have writers write where `capture` says, and say so."""
    if capture is CaptureMode.WAL:
        slots = outbox_capture.use_wal(dsn, schema, accept_gap=accept_gap, shard=shard)
        held = f"slot {slots[0]} holds" if len(slots) == 1 else f"slots {', '.join(slots)} hold"
        typer.echo(f"events are written to the write-ahead log, which {held} back")
    else:
        leaving = outbox_capture.use_table(dsn, schema)
        typer.echo("events are written to the table")
        if leaving:
            typer.echo(
                "the relay reads the write-ahead log on until no transaction is left that began "
                "before, then the table, and drops the slot"
            )
