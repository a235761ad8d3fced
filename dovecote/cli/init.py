"""`dovecote init`: install or upgrade the outbox, inbox or push, or print the SQL that does."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

import psycopg
import typer
from psycopg.conninfo import conninfo_to_dict

from dedup.inbox import schema as inbox_schema
from dovecote.process.settings import without_secrets
from dovecote.push.store import schema as push_schema
from outbox import schema as outbox_schema
from outbox.errors import BadSettings, DovecoteError, first_line
from outbox.postgres import session
from outbox.schema import capture as outbox_capture


@dataclass(frozen=True, slots=True)
class _Part:
    """What can be installed."""

    name: str
    thing: str
    module: Any
    argument: str
    """What its `install` calls the roles that may use it."""


_PARTS = {
    part.name: part
    for part in (
        _Part("outbox", "outbox is", outbox_schema, "roles"),
        _Part("inbox", "inbox is", inbox_schema, "consumers"),
        _Part("push", "tables of push are", push_schema, "roles"),
    )
}


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
        typer.Option(help="Postgres schema [default: outbox, inbox or push]"),
    ] = None,
    inbox: Annotated[
        bool, typer.Option("--inbox", help="install what consumers need instead: the inbox")
    ] = False,
    push: Annotated[
        bool, typer.Option("--push", help="install what `dovecote push` needs instead")
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
    push_role: Annotated[
        list[str] | None,
        typer.Option(help="with --push: let this role push, and no more (can be repeated)"),
    ] = None,
    capture: Annotated[
        CaptureMode | None,
        typer.Option(help="where events are written: a table, or the write-ahead log alone"),
    ] = None,
    max_event_bytes: Annotated[
        int | None,
        typer.Option(
            help="the largest event that is let in, in bytes [default: 16777216]",
            min=1_000,
            max=1_000_000_000,
        ),
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

    For `dovecote push`: dovecote init --push --push-role pusher

    Without a table: dovecote init --capture wal

    For another migration tool: dovecote init --print-sql > 0042_outbox.sql
    """
    _require_sense(capture, print_sql=print_sql, since=since, accept_gap=accept_gap, shard=shard)
    roles = outbox_schema.Roles(writer_role or [], relay_role or [])
    consumers, pushers = consumer_role or [], push_role or []
    part = _part(inbox=inbox, push=push)
    _require_one(part, roles, consumers, pushers, capture=capture)
    place = schema or part.module.DEFAULT_SCHEMA
    given: dict[str, Any] = {"outbox": roles, "inbox": consumers, "push": pushers}
    users = {part.argument: given[part.name]}
    if max_event_bytes is not None and (print_sql or part.name != "outbox"):
        msg = "--max-event-bytes is the outbox's, and needs the server: it is in no --print-sql"
        raise BadSettings(msg)
    if print_sql:
        typer.echo(part.module.script(place, since=since, **users), nl=False)
        return
    with _connected(dsn) as conn:
        applied = part.module.install(conn, place, **users)
        if roles.relays:
            outbox_capture.let_relays_read(conn, place)
        if max_event_bytes is not None:
            outbox_schema.limit_events(conn, place, max_event_bytes)
        where = f"schema {place!r} of {without_secrets(conn.info.dsn)}"
    for step in applied:
        typer.echo(f"applied {step.version:04d} {step.name}")
    granted = [
        ("writer", roles.writers),
        ("relay", roles.relays),
        ("consumer", consumers),
        ("process that pushes", pushers),
    ]
    for duty, names in granted:
        for name in names:
            typer.echo(f"granted {name} what a {duty} needs")
    typer.echo(f"the {part.thing} up to date in {where}")
    if capture is not None:
        with _explained():
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
        conn = session.connect(dsn, autocommit=False)
    except psycopg.OperationalError as error:
        advice = "is --dsn or DOVECOTE_DSN right?" if dsn else "give --dsn or set DOVECOTE_DSN"
        msg = f"cannot connect: {first_line(error)}; {advice}"
        raise DovecoteError(msg) from error
    with _explained(), conn:
        yield conn


@contextmanager
def _explained() -> Iterator[None]:
    """Say what an operator can do about what a server refuses that was reached."""
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


def _part(*, inbox: bool, push: bool) -> _Part:
    if inbox and push:
        msg = "--inbox and --push are two installations: run it twice"
        raise BadSettings(msg)
    return _PARTS["inbox" if inbox else "push" if push else "outbox"]


def _require_one(  # who may be named, of each part
    part: _Part,
    roles: outbox_schema.Roles,
    consumers: list[str],
    pushers: list[str],
    *,
    capture: CaptureMode | None,
) -> None:
    """Refuse options of one part for another."""
    of_outbox = bool(roles.writers or roles.relays or capture is not None)
    if part.name == "inbox" and of_outbox:
        msg = "--inbox takes --consumer-role; writers, relays and --capture are the outbox's"
        raise BadSettings(msg)
    if part.name == "push" and of_outbox:
        msg = "--push takes --push-role; writers, relays and --capture are the outbox's"
        raise BadSettings(msg)
    if consumers and part.name != "inbox":
        msg = "--consumer-role goes with --inbox"
        raise BadSettings(msg)
    if pushers and part.name != "push":
        msg = "--push-role goes with --push"
        raise BadSettings(msg)


def _require_sense(
    capture: CaptureMode | None,
    *,
    print_sql: bool,
    since: int,
    accept_gap: bool,
    shard: int | None,
) -> None:
    if since and not print_sql:
        msg = "--since goes with --print-sql: what is installed, an installation finds out itself"
        raise BadSettings(msg)
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
        if accept_gap:
            typer.echo(
                "if there was a slot before, the events that no relay had read from it are given "
                "up; those that the table has, too, stay there, and are not published"
            )
    else:
        leaving = outbox_capture.use_table(dsn, schema)
        typer.echo("events are written to the table")
        if leaving:
            typer.echo(
                "the relay reads the write-ahead log on until no transaction is left that began "
                "before, then the table, and drops the slot"
            )
