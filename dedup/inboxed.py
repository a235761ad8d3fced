"""The handler, the claims and the housekeeping of a consumer with an inbox."""

from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import Any

import psycopg

from dedup.inbox import schema as inbox_schema
from dedup.inbox.claims import InboxClaims
from dedup.inbox.connections import AsyncConnections, Connections
from dedup.inbox.held import PostgresStates
from dedup.inbox.inbox import Inbox
from dedup.inbox.keeper import Keeper
from dedup.inbox.together import together as in_one
from dedup.inbox.together import together_async as in_one_async
from dedup.metrics import Metrics
from dedup.rules.claim import Claim
from dedup.rules.identity import Identity
from dedup.rules.policies.signatures import is_awaited
from dedup.rules.record import Record
from dedup.serving.ways_out import guarded
from dedup.settings.inbox import InboxSettings
from outbox.errors import DovecoteError


def require(inbox: InboxSettings) -> None:
    """
    Check that the inbox can be used.

    Raises:
        DovecoteError: it cannot; the message says what to do.
    """
    try:
        with (
            closing(Connections(inbox.dsn, patience=inbox.patience, ours=True)) as connections,
            connections.begin() as conn,
        ):
            inbox_schema.require(conn, inbox.schema_name)
    except psycopg.OperationalError as error:
        msg = f"[inbox] cannot connect: {str(error).strip()}"
        raise DovecoteError(msg) from error


def once(
    group: str,
    inbox: InboxSettings,
    handler: Callable[..., Any],
    stack: ExitStack,
    *,
    given: Callable[[Record], Any],
    together: bool,
) -> Callable[[Any], Any]:
    """Return the handler of records (or of several) that runs `handler` in transactions."""
    known, handler = Inbox(group, inbox.schema_name), guarded(handler)

    def known_by(record: Record) -> Identity:
        return record.identity

    def claim_of(record: Record) -> Claim | None:
        return record.claim

    # Each returns what the handler returns, which is to be awaited if the handler is.
    def handle(record: Record, tx: object) -> Any:  # noqa: ANN401  # its answer
        return handler(given(record), tx)

    def several(records: list[Record], tx: object) -> Any:  # noqa: ANN401  # its answers
        return handler([given(record) for record in records], tx)

    if is_awaited(handler):
        on_loop = stack.enter_context(
            closing(AsyncConnections(inbox.dsn, patience=inbox.patience, prepare=inbox.prepare))
        ).begin
        if together:
            return in_one_async(known, several, on_loop, identity=known_by, claim=claim_of)
        return known.once_async(handle, on_loop, identity=known_by, claim=claim_of)
    connections = Connections(inbox.dsn, patience=inbox.patience, prepare=inbox.prepare)
    begin = stack.enter_context(closing(connections)).begin
    if together:
        return in_one(known, several, begin, identity=known_by, claim=claim_of)
    return known.once(handle, begin, identity=known_by, claim=claim_of)


def claims(group: str, inbox: InboxSettings, stack: ExitStack) -> InboxClaims:
    """Return the claims on partitions, which end with `stack`."""
    made = InboxClaims(inbox.dsn, group, inbox.schema_name, patience=inbox.patience)
    return stack.enter_context(closing(made))


def states(group: str, inbox: InboxSettings, stack: ExitStack) -> PostgresStates:
    """Return where retries keep the records that they hold, until `stack` ends."""
    made = PostgresStates(inbox.dsn, group, inbox.schema_name, patience=inbox.patience)
    return stack.enter_context(closing(made))


def keeper(inbox: InboxSettings, metrics: Metrics) -> Keeper:
    """Return what forgets old events of the inbox."""
    return Keeper(
        inbox.dsn,
        inbox.schema_name,
        inbox.retention,
        patience=inbox.patience,
        lag=lambda: metrics.longest_lag,
        exceeded=metrics.beyond_inbox,
    )
