"""Wait until the relay has published an event."""

import asyncio
import json
import time
from functools import lru_cache
from typing import Any

import psycopg

from outbox import schema as outbox_schema
from outbox.errors import DovecoteError, NotAllowed, SchemaMissing, first_line
from outbox.event import Event
from outbox.postgres.session import hides_rows
from outbox.schema.belongings import showing
from outbox.schema.templates import fill
from outbox.waiting import connections, results
from outbox.waiting.asking import ask, ask_async, role
from outbox.waiting.results import Lane, Parked, Published, TimedOut
from outbox.writing.declared import to_event
from outbox.writing.kinds import AsyncConnection, SyncConnection
from outbox.writing.statements import Statement

# The codes for a missing function and schema.
_MISSING = frozenset({"42883", "3F000"})
_NO_RIGHT, _READ_ONLY = "42501", "25006"

_TOKEN = Statement(b"SELECT pg_catalog.textout(pg_catalog.pg_current_xact_id()::text)", [])
# The setting lasts until the end of the statement's transaction. If row-level security hid rows,
# they would seem published.
_DRAINED = (
    "SELECT pg_catalog.textout(pg_catalog.array_to_json("
    "{schema}.drained(%t::text[]::xid8[], %b::bytea[]))::text)"
    " FROM pg_catalog.set_config('row_security', 'off', true)"
)


def published(
    conn: SyncConnection,
    event: Event[Any] | object,
    *,
    timeout: float,
    schema: str = outbox_schema.DEFAULT_SCHEMA,
) -> Published | Parked | TimedOut:
    """
    Return when the relay has published an event that was committed before this call.

    `event` is the one that was written, with a key. `conn` is as for `write`, outside a
    transaction, to the primary server of the outbox; nobody else uses it meanwhile. After
    `timeout` seconds the result is a `TimedOut`.

    The call waits until every relay has published or parked all events that were committed before
    it; it does not ask whether the event was ever there. The relay reports within a quarter of its
    `lease`, and after that ten times a second. The result is `Parked` if an event of the same key
    is parked. An event that an operator has dropped is no longer parked, and counts as published.

    Raises:
        BadSettings: the event has no key, or `timeout` is impossible.
        InvalidEvent: `event` is neither an `Event` nor an object of a declared class.
        OpenTransaction: a transaction is open on `conn`; commit it first.
        UnsupportedConnection: `conn` is no such connection, or has to be awaited.
        NotAllowed: the role may not write events; the message has the command that lets it.
        SchemaMissing: the outbox is not installed in this database.
    """
    results.require_timeout(timeout)
    lane, began, pause = results.lane_of(to_event(event)), time.monotonic(), results.FIRST
    with connections.driver(conn) as driver:
        try:
            asked = _drained(schema, ask(driver, _TOKEN), lane)
            while True:
                left, free = json.loads(*ask(driver, asked))
                after = time.monotonic() - began
                if found := results.told(lane, left=left, free=free, after=after):
                    return found
                if after >= timeout:
                    return results.timed_out(timeout)
                time.sleep(min(pause, timeout - after))
                pause = results.next_pause(pause)
        except psycopg.Error as error:
            if explained := _explained(error, schema, role(driver)):
                raise explained from error
            raise


async def published_async(
    conn: AsyncConnection,
    event: Event[Any] | object,
    *,
    timeout: float,  # noqa: ASYNC109  # the result says that it is over
    schema: str = outbox_schema.DEFAULT_SCHEMA,
) -> Published | Parked | TimedOut:
    """As `published`, on a connection that has to be awaited; a cancelled call lets it go."""
    results.require_timeout(timeout)
    lane, began, pause = results.lane_of(to_event(event)), time.monotonic(), results.FIRST
    async with connections.driver_async(conn) as driver:
        try:
            asked = _drained(schema, await ask_async(driver, _TOKEN), lane)
            while True:
                left, free = json.loads(*await ask_async(driver, asked))
                after = time.monotonic() - began
                if found := results.told(lane, left=left, free=free, after=after):
                    return found
                if after >= timeout:
                    return results.timed_out(timeout)
                await asyncio.sleep(min(pause, timeout - after))
                pause = results.next_pause(pause)
        except Exception as error:  # asyncpg may not be installed
            if explained := _explained(error, schema, role(driver)):
                raise explained from error
            raise


def _drained(schema: str, token: list[str], lane: Lane) -> Statement:
    """
    Return the question whether all before a new transaction has left, and besides all of a lane.

    A snapshot that sees the new transaction sees all that were committed before it.
    """
    nr = str(json.loads(*token))
    return Statement(_filled(_DRAINED, schema), [[nr, nr], [None, lane.digest]])


def _explained(error: BaseException, schema: str, by: str) -> DovecoteError | None:
    """Return the error to raise in place of the server's, or None if there is nothing to add."""
    match getattr(error, "sqlstate", None):
        case state if state in _MISSING:
            return SchemaMissing(
                f"the outbox is not installed in schema {schema!r} of this database; "
                f"{outbox_schema.installing(schema)}"
            )
        case state if state == _NO_RIGHT:
            hidden = hides_rows(error)
            advice = showing(schema) if hidden else outbox_schema.advice("writer", by, schema)
            return NotAllowed(f"{first_line(error)}; {advice}")
        case state if state == _READ_ONLY:
            return NotAllowed(
                f"{first_line(error)}: a caller takes the number of a transaction and asks the "
                "relay, so it needs a connection to the primary server that may write"
            )
    return None


@lru_cache(maxsize=64)
def _filled(text: str, schema: str) -> bytes:
    return fill(text, schema).encode()
