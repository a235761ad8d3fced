"""The inbox for handlers of several events, which share one transaction."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from dedup.inbox.inbox import (
    Begin,
    BeginAsync,
    ClaimOf,
    Inbox,
    identity_of,
    nobodys,
)
from dedup.inbox.taken import Taken, TakenBack
from dedup.rules.identity import Identity
from dedup.rules.policies.results import Again, Dead, Done, Result, Retry, Skip, result_of
from dedup.serving.handlers import answers_in

E = TypeVar("E")
T = TypeVar("T")


class OneByOne(Exception):
    """One of several events was not finished, so none has had effects; retry them one by one."""


def together(
    inbox: Inbox,
    handle: Callable[[list[E], T], Sequence[Result | None] | None],
    begin: Begin[T],
    *,
    identity: Callable[[E], Identity] | None = None,
    claim: ClaimOf[E] | None = None,
) -> Callable[[Sequence[E]], Sequence[Result]]:
    """
    As `Inbox.once`, for a handler of several events in one transaction.

    The handler gets the events that are new. Its answers stand or fall together: if one is `Retry`
    or `Dead`, the transaction rolls back and `OneByOne` is raised, so that the caller passes each
    event alone.
    """
    known_by, claim_of = identity or identity_of, claim or nobodys

    def handler(events: Sequence[E]) -> Sequence[Result]:
        known, taken = list(map(known_by, events)), Taken(map(claim_of, events))
        try:
            with begin() as tx:
                before, taken.line = inbox.taken(tx, known, taken.numbers)
                new = [event for event, told in zip(events, before, strict=True) if not told]
                with taken:
                    results = _settled(before, handle(new, tx) if new else None)
                    taken.require_whole()
                for who, again in _to_come_again(known, before, results):
                    inbox.again(tx, who, again)
                return results
        except Exception as error:  # noqa: BLE001  # `answer` raises it again, or what it means
            return [taken.answer(error)]

    return handler


def together_async(
    inbox: Inbox,
    handle: Callable[[list[E], T], Awaitable[Sequence[Result | None] | None]],
    begin: BeginAsync[T],
    *,
    identity: Callable[[E], Identity] | None = None,
    claim: ClaimOf[E] | None = None,
) -> Callable[[Sequence[E]], Awaitable[Sequence[Result]]]:
    """As `together`, for async handlers and connections."""
    known_by, claim_of = identity or identity_of, claim or nobodys

    async def handler(events: Sequence[E]) -> Sequence[Result]:
        known, taken = list(map(known_by, events)), Taken(map(claim_of, events))
        try:
            async with begin() as tx:
                before, taken.line = await inbox.taken_async(tx, known, taken.numbers)
                new = [event for event, told in zip(events, before, strict=True) if not told]
                with taken:
                    results = _settled(before, await handle(new, tx) if new else None)
                    taken.require_whole()
                for who, again in _to_come_again(known, before, results):
                    await inbox.again_async(tx, who, again)
                return results
        except Exception as error:  # noqa: BLE001  # `answer` raises it again, or what it means
            return [taken.answer(error)]

    return handler


def _settled(before: Sequence[Again | Skip | None], answers: object) -> list[Result]:
    """
    Return the result of each event if the transaction may commit; otherwise roll back by raising.
    """
    new = before.count(None)
    given = [each if each is None else result_of(each) for each in answers_in(answers, new)]
    failed = next((each for each in given if isinstance(each, Retry | Dead)), None)
    if failed is not None:
        raise TakenBack(failed) if len(before) == 1 else OneByOne
    following = iter(given)
    return [told or next(following) or Done() for told in before]


def _to_come_again(
    known: Sequence[Identity], before: Sequence[object], results: Sequence[Result]
) -> list[tuple[Identity, Again]]:
    """Return which of the new events are to come again, and when."""
    return [
        (who, result)
        for who, told, result in zip(known, before, results, strict=True)
        if told is None and isinstance(result, Again)
    ]
