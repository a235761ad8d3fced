"""Extend a consumer's handler with the features of the tables `[retries]` and `[inbox]`."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg

from dedup.inbox import schema as inbox_schema
from dedup.inbox.claims import InboxClaims
from dedup.inbox.connections import AsyncConnections, Connections
from dedup.inbox.held import PostgresStates
from dedup.inbox.inbox import Inbox
from dedup.inbox.keeper import Keeper
from dedup.inbox.together import together as in_one
from dedup.inbox.together import together_async as in_one_async
from dedup.kafka.letters import Letters
from dedup.metrics import Metrics
from dedup.retries.aside import Aside
from dedup.rules.annotations import typed
from dedup.rules.claim import Claim
from dedup.rules.identity import Identity
from dedup.rules.policies.signatures import is_awaited
from dedup.rules.record import Record
from dedup.serving.handlers import of_batches, of_records, of_whole_records
from dedup.serving.retries import Retries
from dedup.serving.ways_out import guarded
from dedup.settings.consumer import ConsumerSettings
from dedup.settings.inbox import InboxSettings
from outbox import envelope
from outbox.errors import DovecoteError
from outbox.event import Event

if TYPE_CHECKING:
    from dedup.tracing.consuming import ConsumerSpans

Handler = Callable[[Any], Any]


class Assembled(NamedTuple):
    """
    A handler of records (or of several), and the `Aside` for records that it does not finish.
    """

    handle: Handler
    aside: Aside
    claims: InboxClaims | None
    """
    The claims on partitions, made before their records are handled; None: nothing is claimed.
    """


@contextmanager
def assembled(
    settings: ConsumerSettings,
    handler: Callable[..., Any],
    *,
    aside: Aside | None,
    takes_records: bool,
    metrics: Metrics,
    spans: "ConsumerSpans | None" = None,
) -> Iterator[Assembled]:
    """
    Yield the handler that the consumer runs, for as long as it runs.

    With `spans`, each record is handled inside one.

    Raises:
        DovecoteError: the inbox cannot be used; the message says what to do.
    """
    together, claims = settings.handler_batch > 1, None
    with ExitStack() as stack:
        if settings.inbox is not None:
            _require_inbox(settings.inbox)
            handle = _once(
                settings.group,
                settings.inbox,
                handler,
                stack,
                given=_itself if takes_records else events_for(handler, settings),
                together=together,
            )
            stack.enter_context(_keeper(settings.inbox, metrics).at_work())
            if settings.partitions is None:
                claims = InboxClaims(
                    settings.inbox.dsn,
                    settings.group,
                    settings.inbox.schema_name,
                    patience=settings.inbox.patience,
                )
                stack.enter_context(closing(claims))
        elif takes_records:
            handle = of_whole_records(handler, together=together)
        else:
            wrap = of_batches if together else of_records
            handle = wrap(handler, events_for(handler, settings))
        if spans is not None:
            handle = spans.handling(handle, together=together)
        if aside is not None:
            yield Assembled(handle, aside, claims)
            return
        letters = stack.enter_context(Letters(settings.kafka))
        retries = Retries(
            settings.retries.plan(),
            letters,
            states=_states(settings, stack),
            group=settings.group,
            failed=metrics.attempt_failed,
            spans=spans,
        )
        handling = retries.handling_batch if together else retries.handling
        yield Assembled(handling(handle), retries, claims)


def _once(
    group: str,
    inbox: InboxSettings,
    handler: Callable[..., Any],
    stack: ExitStack,
    *,
    given: Callable[[Record], Any],
    together: bool,
) -> Handler:
    """Return the handler of records (or of several) that runs `handler` in transactions."""
    once, handler = Inbox(group, inbox.schema_name), guarded(handler)

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
            return in_one_async(once, several, on_loop, identity=known_by, claim=claim_of)
        return once.once_async(handle, on_loop, identity=known_by, claim=claim_of)
    connections = Connections(inbox.dsn, patience=inbox.patience, prepare=inbox.prepare)
    begin = stack.enter_context(closing(connections)).begin
    if together:
        return in_one(once, several, begin, identity=known_by, claim=claim_of)
    return once.once(handle, begin, identity=known_by, claim=claim_of)


def events_for(
    handler: Callable[..., Any], settings: ConsumerSettings
) -> Callable[[Record], Event]:
    """
    Return what makes the event that a handler is given from a record.

    Raises:
        BadSettings: the handler's annotation names classes that cannot be had.
    """
    found = typed(handler, value=settings.value, several=settings.handler_batch > 1)
    return attrgetter("event") if found is None else found.event


def _itself(record: Record) -> Record:
    envelope.require_readable(record)
    return record


def _states(settings: ConsumerSettings, stack: ExitStack) -> PostgresStates | None:
    inbox = settings.inbox
    if inbox is None:
        return None
    states = PostgresStates(inbox.dsn, settings.group, inbox.schema_name, patience=inbox.patience)
    return stack.enter_context(closing(states))


def _keeper(inbox: InboxSettings, metrics: Metrics) -> Keeper:
    return Keeper(
        inbox.dsn,
        inbox.schema_name,
        inbox.retention,
        patience=inbox.patience,
        lag=lambda: metrics.longest_lag,
        exceeded=metrics.beyond_inbox,
    )


def _require_inbox(inbox: InboxSettings) -> None:
    try:
        with (
            closing(Connections(inbox.dsn, patience=inbox.patience, ours=True)) as connections,
            connections.begin() as conn,
        ):
            inbox_schema.require(conn, inbox.schema_name)
    except psycopg.OperationalError as error:
        msg = f"[inbox] cannot connect: {str(error).strip()}"
        raise DovecoteError(msg) from error
