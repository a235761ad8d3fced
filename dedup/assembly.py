"""Extend a consumer's handler with the features of the tables `[retries]` and `[inbox]`."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from dedup.kafka.letters import Letters
from dedup.metrics import Metrics
from dedup.retries.aside import Aside
from dedup.rules.annotations import typed
from dedup.rules.record import Record
from dedup.serving.handlers import of_batches, of_records, of_whole_records
from dedup.serving.retries import Retries
from dedup.settings.consumer import ConsumerSettings
from outbox import envelope
from outbox.event import Event

if TYPE_CHECKING:
    from dedup.inbox.claims import InboxClaims
    from dedup.inbox.held import PostgresStates
    from dedup.tracing.consuming import ConsumerSpans

Handler = Callable[[Any], Any]


class Assembled(NamedTuple):
    """
    A handler of records (or of several), and the `Aside` for records that it does not finish.
    """

    handle: Handler
    aside: Aside
    claims: "InboxClaims | None"
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
            # It loads psycopg, which a consumer without an inbox does not need.
            from dedup import inboxed

            inboxed.require(settings.inbox)
            handle = inboxed.once(
                settings.group,
                settings.inbox,
                handler,
                stack,
                given=_itself if takes_records else events_for(handler, settings),
                together=together,
            )
            stack.enter_context(inboxed.keeper(settings.inbox, metrics).at_work())
            if settings.partitions is None:
                claims = inboxed.claims(settings.group, settings.inbox, stack)
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


def _states(settings: ConsumerSettings, stack: ExitStack) -> "PostgresStates | None":
    if settings.inbox is None:
        return None
    from dedup import inboxed  # as above

    return inboxed.states(settings.group, settings.inbox, stack)
