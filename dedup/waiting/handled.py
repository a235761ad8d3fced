"""Wait on the caller's connection until a consumer group has handled an event."""

import time
from typing import Any
from uuid import UUID

from dedup.inbox import schema as inbox_schema
from dedup.rules.waiting import Applied, TimedOut, Vigil, require_times, wanted
from dedup.waiting import find
from outbox.event import Event
from outbox.writing.kinds import AsyncConnection, SyncConnection


def handled(
    conn: SyncConnection,
    event: Event[Any] | UUID | str,
    *,
    by: str,
    timeout: float,
    source: str = "dovecote",
    schema: str = inbox_schema.DEFAULT_SCHEMA,
    poll: float | None = None,
) -> Applied | TimedOut:
    """
    Return when the consumer group `by` has handled an event and its effects are committed.

    `event` is the event that was written and committed, or its id; `source` is that of an event
    given by its id. `conn` is as for `write`, outside a transaction, to the database of the inbox;
    nobody else uses it meanwhile. After `timeout` seconds the result is a `TimedOut`. The inbox
    notifies through Postgres. With `poll`, a number of seconds, the inbox is asked at this
    interval instead: for poolers in whose transaction mode notifications are lost.

    A handler that asks for another round (`Again`) has not finished. The handler's `Skip` counts
    as handled, because it commits. A dead letter ends as `TimedOut`.

    Raises:
        BadSettings: an argument is impossible; the message names it.
        OpenTransaction: a transaction is open on `conn`; commit it first.
        UnsupportedConnection: `conn` is no such connection, or has to be awaited.
        SharedSession: a pooler may lose notifications.
        NotAllowed: the role may not wait; the message has the command that lets it.
        SchemaMissing: there is no inbox, or an older one.
    """
    require_times(timeout, poll)
    awaited, began = wanted(event, source, by), time.monotonic()
    vigil = Vigil(began, poll)
    with find.line(conn) as line:
        try:
            if poll is None:
                line.listen()
            while True:
                if vigil.is_to_register(time.monotonic()):
                    line.register(schema, awaited)
                    vigil.registered(time.monotonic())
                found = vigil.seen(line.look(schema, awaited), now := time.monotonic())
                if found is not None:
                    return found
                if now - began >= timeout:
                    return vigil.timed_out(timeout, by)
                line.wait(awaited.payload, min(vigil.due, began + timeout) - now)
        finally:
            line.close()


async def handled_async(
    conn: AsyncConnection,
    event: Event[Any] | UUID | str,
    *,
    by: str,
    timeout: float,  # noqa: ASYNC109  # the result says that it is over
    source: str = "dovecote",
    schema: str = inbox_schema.DEFAULT_SCHEMA,
    poll: float | None = None,
) -> Applied | TimedOut:
    """As `handled`, on a connection that has to be awaited; a cancelled call leaves it usable."""
    require_times(timeout, poll)
    awaited, began = wanted(event, source, by), time.monotonic()
    vigil = Vigil(began, poll)
    async with find.line_async(conn) as line:
        try:
            if poll is None:
                await line.listen()
            while True:
                if vigil.is_to_register(time.monotonic()):
                    await line.register(schema, awaited)
                    vigil.registered(time.monotonic())
                found = vigil.seen(await line.look(schema, awaited), now := time.monotonic())
                if found is not None:
                    return found
                if now - began >= timeout:
                    return vigil.timed_out(timeout, by)
                await line.wait(awaited.payload, min(vigil.due, began + timeout) - now)
        finally:
            await line.close()
