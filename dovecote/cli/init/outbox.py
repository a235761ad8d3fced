"""`dovecote init outbox`: install or upgrade the outbox, or print the SQL that does."""

import sys
from datetime import timedelta
from enum import StrEnum
from functools import partial
from typing import Annotated

from dovecote.cli.flags import Flag
from dovecote.cli.init.installing import (
    DsnOption,
    PrintSqlOption,
    SchemaOption,
    SinceVersionOption,
    connected,
    explained,
    report,
    require_printing,
    whereabouts,
)
from outbox import schema as outbox_schema
from outbox.errors import BadSettings
from outbox.schema import capture as outbox_capture
from outbox.schema.open_transactions import WITHIN


class CaptureMode(StrEnum):
    """Where writers write events."""

    TABLE = "table"
    WAL = "wal"


def outbox(
    *,
    dsn: DsnOption = "",
    schema: SchemaOption = outbox_schema.DEFAULT_SCHEMA,
    print_sql: PrintSqlOption = False,
    since: SinceVersionOption = 0,
    writer_role: Annotated[
        list[str] | None,
        Flag(metavar="ROLE", help="Let this role write events, and no more; can be repeated."),
    ] = None,
    topics: Annotated[
        list[str] | None,
        Flag(
            metavar="PATTERN",
            help="With --writer-role: the topics that these roles may write to, and no others "
            "(orders, 'orders*'); can be repeated. '*' lifts the restriction.",
        ),
    ] = None,
    relay_role: Annotated[
        list[str] | None,
        Flag(metavar="ROLE", help="Let this role run a relay, and no more; can be repeated."),
    ] = None,
    capture: Annotated[
        CaptureMode | None,
        Flag(
            metavar="table|wal",
            help="Write events to a table, or to the write-ahead log alone.",
        ),
    ] = None,
    max_event_bytes: Annotated[
        int | None,
        Flag(
            metavar="N",
            help="The largest event that the outbox accepts, in bytes; 16777216 by default.",
            min=1_000,
            max=1_000_000_000,
        ),
    ] = None,
    accept_gap: Annotated[
        bool,
        Flag(
            help="With --capture wal: make the slot again, without the events it had not sent.",
        ),
    ] = False,
    within: Annotated[
        timedelta | None,
        Flag(
            metavar="DURATION",
            help="With --capture wal: how long to wait for open transactions; 60s by default.",
        ),
    ] = None,
    shard: Annotated[
        int | None,
        Flag(metavar="N", help="With --accept-gap: only the slot of this shard.", min=0),
    ] = None,
) -> None:
    """
    Install the outbox, or upgrade it.

    The upgrade is to this version of Dovecote; a second run changes nothing.

    Example: dovecote init outbox --dsn "host=db.internal dbname=shop user=owner"

    With roles: dovecote init outbox --writer-role shop --relay-role shop_relay

    With topics: dovecote init outbox --writer-role shop --topics 'orders*'

    Without a table: dovecote init outbox --capture wal

    For another migration tool: dovecote init outbox --print-sql > 0042_outbox.sql
    """
    require_printing(since, print_sql=print_sql)
    _require_sense(capture, print_sql=print_sql, accept_gap=accept_gap, shard=shard)
    if within is not None and capture is not CaptureMode.WAL:
        msg = "--within goes with --capture wal"
        raise BadSettings(msg)
    if max_event_bytes is not None and print_sql:
        msg = "--max-event-bytes needs the server: run it after the SQL that --print-sql shows"
        raise BadSettings(msg)
    roles = outbox_schema.Roles(writer_role or [], relay_role or [], topics or [])
    if print_sql:
        print(outbox_schema.script(schema, since=since, roles=roles), end="")
        return
    with connected(dsn) as conn:
        applied = outbox_schema.install(conn, schema, roles=roles)
        if roles.relays:
            outbox_capture.let_relays_read(conn, schema)
        if max_event_bytes is not None:
            outbox_schema.limit_events(conn, schema, max_event_bytes)
        where = whereabouts(conn, schema)
    granted = {"writer": writer_role or [], "relay": relay_role or []}
    report(applied, granted, f"the outbox is up to date in {where}")
    if capture is not None:
        with explained():
            _switch(dsn, schema, capture, accept_gap=accept_gap, shard=shard, within=within)


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
        msg = "--capture needs the server: run it after the SQL that --print-sql shows"
        raise BadSettings(msg)


def _switch(
    dsn: str,
    schema: str,
    capture: CaptureMode,
    *,
    accept_gap: bool,
    shard: int | None,
    within: timedelta | None,
) -> None:
    """Let writers write where `capture` says, and report it."""
    if capture is CaptureMode.WAL:
        slots = outbox_capture.use_wal(
            dsn,
            schema,
            accept_gap=accept_gap,
            shard=shard,
            within=WITHIN if within is None else within.total_seconds(),
            say=partial(print, file=sys.stderr),
        )
        held = f"slot {slots[0]} holds" if len(slots) == 1 else f"slots {', '.join(slots)} hold"
        print(f"events are written to the write-ahead log, which {held} back")
        if accept_gap:
            print(
                "if there was a slot before, the events that no relay had read from it are given "
                "up; those that the table has, too, stay there, and are not published"
            )
    else:
        leaving = outbox_capture.use_table(dsn, schema)
        print("events are written to the table")
        if leaving:
            print(
                "the relay reads the write-ahead log on until no transaction is left that began "
                "before, then the table, and drops the slot"
            )
