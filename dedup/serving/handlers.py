"""Handlers of events, in all the forms in which they can be called."""

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

from dedup.rules.policies.departures import leave
from dedup.rules.policies.results import (
    Again,
    Dead,
    Done,
    Result,
    Retry,
    Skip,
    no_result,
)
from dedup.rules.policies.signatures import is_awaited
from dedup.rules.record import Record
from dedup.serving.ways_out import guarded, leave_awaited
from outbox import forks
from outbox.envelope import require_readable
from outbox.event import Event

_event: Callable[[Record], Event] = attrgetter("event")


def of_records(
    handler: Callable[[Event], Any], event_of: Callable[[Record], Event] = _event
) -> Callable[[Record], Any]:
    """Return a guarded handler of records that passes their events to `handler`."""
    # This is `guarded` once more: another call for each record would cost something.
    if is_awaited(handler):

        async def handle_awaited(record: Record) -> Any:  # noqa: ANN401  # what the handler returns
            before = forks.count
            try:
                answer = await handler(event_of(record))
            except BaseException as error:
                forks.stay(before, error)
                leave_awaited(error)
                raise
            forks.stay(before)
            return answer

        return handle_awaited

    def handle(record: Record) -> Any:  # noqa: ANN401  # what the handler returns
        before = forks.count
        try:
            answer = handler(event_of(record))
        except BaseException as error:
            forks.stay(before, error)
            leave(error)
            raise
        forks.stay(before)
        return answer

    return handle


def of_whole_records(
    handler: Callable[[Any], Any], *, together: bool = False
) -> Callable[..., Any]:
    """
    Return a guarded handler that passes a record (or several) to `handler`, if headers are known.
    """
    guarded_handler = guarded(handler)

    def require(given: Any) -> None:  # noqa: ANN401  # a record, or several
        for record in given if together else (given,):
            require_readable(record)

    if is_awaited(handler):

        async def handle_awaited(given: Any) -> Any:  # noqa: ANN401  # what the handler returns
            require(given)
            return await guarded_handler(given)

        return handle_awaited

    def handle(given: Any) -> Any:  # noqa: ANN401  # what the handler returns
        require(given)
        return guarded_handler(given)

    return handle


def of_batches(
    handler: Callable[[list[Event]], Any], event_of: Callable[[Record], Event] = _event
) -> Callable[[Sequence[Record]], Any]:
    """As `of_records`, for a handler of several events."""
    guarded_handler = guarded(handler)
    if is_awaited(handler):

        async def handle_awaited(records: Sequence[Record]) -> Any:  # noqa: ANN401  # the handler's
            return await guarded_handler([event_of(record) for record in records])

        return handle_awaited

    def handle(records: Sequence[Record]) -> Any:  # noqa: ANN401  # what the handler returns
        return guarded_handler([event_of(record) for record in records])

    return handle


def checked(result: Result) -> Result:
    """
    Return a handler's answer, or `Dead` if it is none that a consumer can act on.

    Raises:
        Exits: the handler's code has not run.
    """
    if isinstance(result, Done):
        if result.outputs is None:
            return result
        return Dead("the handler returned outputs, which a consumer does not write")
    if isinstance(result, Again | Skip | Retry | Dead):
        return result
    return no_result(result)


def answers_in(given: object, number: int) -> list[Any]:
    """
    Return the answers of a handler of several events, one for each.

    An answer that does not fit is `Dead` for all of them: another call would repeat its effects.

    Raises:
        Exits: the handler's code has not run.
    """
    if given is None:
        return [None] * number
    if not isinstance(given, Sequence) or isinstance(given, str | bytes):
        refused = no_result(given)
        return [
            Dead(f"for {number} events {refused.error}, in a list with one for each event")
        ] * number
    if len(given) != number:
        return [
            Dead(
                f"the handler answered {len(given)} times for {number} events; it must answer "
                "once for each, or return nothing"
            )
        ] * number
    return list(given)
