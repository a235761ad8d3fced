"""Handlers of events, in all the forms in which they can be called."""

from collections.abc import Awaitable, Callable, Sequence
from inspect import iscoroutinefunction
from typing import Any, TypeAlias

from dedup.retries.aside import Aside, HoldInPlace
from dedup.rules.policies.results import Dead, Done, Early, Result
from dedup.rules.record import Record
from outbox.event import Event

EventHandler: TypeAlias = Callable[[Event], Result | None]
"""Handles an event; None is `Done()`."""

AwaitedEventHandler: TypeAlias = Callable[[Event], Awaitable[Result | None]]
"""As `EventHandler`, awaited."""

RecordHandler: TypeAlias = Callable[[Record], Result | None]
AwaitedRecordHandler: TypeAlias = Callable[[Record], Awaitable[Result | None]]

_DONE = Done()


def is_awaited(handler: object) -> bool:
    """Return whether `handler` is async."""
    call = type(handler).__call__ if callable(handler) else None
    return iscoroutinefunction(handler) or iscoroutinefunction(call)


def of_records(handler: Callable[[Event], Any]) -> Callable[[Record], Any]:
    """Return a handler of records that passes their events to `handler`."""
    if is_awaited(handler):

        async def handle_awaited(record: Record) -> Any:  # noqa: ANN401  # what the handler returns
            return await handler(record.event)

        return handle_awaited

    def handle(record: Record) -> Any:  # noqa: ANN401  # what the handler returns
        return handler(record.event)

    return handle


def of_batches(handler: Callable[[list[Event]], Any]) -> Callable[[Sequence[Record]], Any]:
    """As `of_records`, for a handler of several events."""
    if is_awaited(handler):

        async def handle_awaited(records: Sequence[Record]) -> Any:  # noqa: ANN401  # the handler's
            return await handler([record.event for record in records])

        return handle_awaited

    def handle(records: Sequence[Record]) -> Any:  # noqa: ANN401  # what the handler returns
        return handler([record.event for record in records])

    return handle


def answering(handler: RecordHandler, aside: Aside) -> Callable[[Record], Result]:
    """Return a handler that returns a result, and leaves a record alone that is not due."""
    early = aside.early

    def handle(record: Record) -> Result:
        after = early(record)
        if after is not None:
            return Early("not due", after)
        result = handler(record)
        return _DONE if result is None else checked(result)

    def handle_at_once(record: Record) -> Result:
        result = handler(record)
        return _DONE if result is None else checked(result)

    # HoldInPlace never postpones a record, so skip the check: it would run tens of thousands of
    # times a second.
    return handle_at_once if type(aside) is HoldInPlace else handle


def answering_awaited(
    handler: AwaitedRecordHandler, aside: Aside
) -> Callable[[Record], Awaitable[Result]]:
    """As `answering`, awaited."""
    early = aside.early

    async def handle(record: Record) -> Result:
        after = early(record)
        if after is not None:
            return Early("not due", after)
        result = await handler(record)
        return _DONE if result is None else checked(result)

    return handle


def checked(result: Result) -> Result:
    """Return a handler's answer, if it is one that a consumer can act on."""
    if isinstance(result, Done) and result.outputs is not None:
        return Dead("the handler returned outputs, which a consumer does not write")
    return result
