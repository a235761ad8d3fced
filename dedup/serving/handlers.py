"""Handlers of events, in all the forms in which they can be called."""

from collections.abc import Callable, Sequence
from inspect import iscoroutinefunction
from typing import Any

from dedup.rules.policies.results import Dead, Done, Result
from dedup.rules.record import Record
from outbox.event import Event


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


def checked(result: Result) -> Result:
    """Return a handler's answer, if it is one that a consumer can act on."""
    if isinstance(result, Done) and result.outputs is not None:
        return Dead("the handler returned outputs, which a consumer does not write")
    return result
