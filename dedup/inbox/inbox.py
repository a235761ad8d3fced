"""
The inbox: it remembers an event in its handler's transaction, so effects happen once.

A handler `handle(event, tx)` makes its rows on `tx`; before it runs, the event's identity (its
source, id and round) is inserted there. If the transaction commits, both are there, and a later
duplicate is not handled. If it does not commit, neither is there, and the event is handled when it
comes again.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar

from dedup.inbox import schema as inbox_schema
from dedup.inbox.taken import Taken
from dedup.inbox.transactions import Answer, Question, ask, ask_async
from dedup.rules.claim import Claim
from dedup.rules.identity import Identity, stored
from dedup.rules.policies.results import Again, Result, Skip
from outbox import envelope
from outbox.errors import BadSettings
from outbox.schema.templates import fill

E = TypeVar("E")
T = TypeVar("T")

ClaimOf: TypeAlias = Callable[[E], Claim | None]
"""Returns the claim under which a record is taken: its `claim`."""

Begin: TypeAlias = Callable[[], AbstractContextManager[T]]
"""
Opens a transaction that commits at the end of the block, and rolls back if it raises.

`pool.connection` of psycopg, `Session.begin` of a `sessionmaker`, `engine.begin` of SQLAlchemy.
"""

BeginAsync: TypeAlias = Callable[[], AbstractAsyncContextManager[T]]
"""The same, to be awaited."""


@dataclass(frozen=True, slots=True)
class Inbox:
    """The events that one consumer has handled, in one schema of a database."""

    consumer: str
    """The consumer group that this memory belongs to. Each has its own."""

    schema: str = inbox_schema.DEFAULT_SCHEMA

    def __post_init__(self) -> None:
        if not self.consumer or "\0" in self.consumer:
            msg = f"{self.consumer!r} is not the name of a consumer"
            raise BadSettings(msg)

    def once(
        self,
        handle: Callable[[E, T], Result | None],
        begin: Begin[T],
        *,
        identity: Callable[[E], Identity] | None = None,
        claim: ClaimOf[E] | None = None,
    ) -> Callable[[E], Result]:
        """
        Return a handler that has the effects of `handle` once, however often an event comes.

        Each event is handled in a transaction of `begin`. It commits with `Done`, `Again` and
        `Skip`, and rolls back with `Retry`, `Dead` and any exception. If the handler was not
        called, or its transaction failed because the database is away, it raises `Unavailable`.

        `identity` returns the key to remember, if the handler takes something other than an event.
        `claim` returns the claim of the record's partition. Once another member has claimed that
        partition, nothing is committed, and `TakenOver` is raised.
        """
        known_by, claim_of = identity or identity_of, claim or nobodys

        def handler(event: E) -> Result:
            known, taken = known_by(event), Taken((claim_of(event),))
            try:
                with begin() as tx:
                    told, taken.line = self.told(tx, known, *taken.numbers)
                    if (before := _before(told, known)) is not None:
                        return before
                    with taken:
                        result = taken.finished(handle(event, tx))
                    if isinstance(result, Again):
                        self.again(tx, known, result)
                    return result
            except Exception as error:  # noqa: BLE001  # `answer` raises it again, or what it means
                return taken.answer(error)

        return handler

    def once_async(
        self,
        handle: Callable[[E, T], Awaitable[Result | None]],
        begin: BeginAsync[T],
        *,
        identity: Callable[[E], Identity] | None = None,
        claim: ClaimOf[E] | None = None,
    ) -> Callable[[E], Awaitable[Result]]:
        """As `once`, for async handlers and connections."""
        known_by, claim_of = identity or identity_of, claim or nobodys

        async def handler(event: E) -> Result:
            known, taken = known_by(event), Taken((claim_of(event),))
            try:
                async with begin() as tx:
                    told, taken.line = await self.told_async(tx, known, *taken.numbers)
                    if (before := _before(told, known)) is not None:
                        return before
                    with taken:
                        result = taken.finished(await handle(event, tx))
                    if isinstance(result, Again):
                        await self.again_async(tx, known, result)
                    return result
            except Exception as error:  # noqa: BLE001  # `answer` raises it again, or what it means
                return taken.answer(error)

        return handler

    def take(
        self, tx: object, identity: Identity, claim: int | None = None
    ) -> Again | Skip | None:
        """
        Take the event for this transaction: None if it is new.

        Otherwise it was handled before, and the result is the one for this duplicate. While
        another transaction has the event, this waits for that transaction to end. `claim` is the
        number of the claim under which the event is taken: once there is a newer claim, the
        transaction fails, now or when it commits.
        """
        return _before(self.told(tx, identity, claim).value, identity)

    async def take_async(
        self, tx: object, identity: Identity, claim: int | None = None
    ) -> Again | Skip | None:
        """As `take`, on an async connection."""
        return _before((await self.told_async(tx, identity, claim)).value, identity)

    def told(self, tx: object, identity: Identity, claim: int | None) -> Answer:
        """Take the event, and return the database's answer: None if it is new."""
        return ask(tx, self._taking(identity, claim))

    async def told_async(self, tx: object, identity: Identity, claim: int | None) -> Answer:
        """As `told`, on an async connection."""
        return await ask_async(tx, self._taking(identity, claim))

    def take_many(
        self, tx: object, known: Sequence[Identity], claims: Sequence[int | None] = ()
    ) -> list[Again | Skip | None]:
        """As `take`, for several events in one statement; of equal ones the first is new."""
        return self.taken(tx, known, claims)[0]

    async def take_many_async(
        self, tx: object, known: Sequence[Identity], claims: Sequence[int | None] = ()
    ) -> list[Again | Skip | None]:
        """As `take_many`, on an async connection."""
        return (await self.taken_async(tx, known, claims))[0]

    def taken(
        self, tx: object, known: Sequence[Identity], claims: Sequence[int | None]
    ) -> tuple[list[Again | Skip | None], object]:
        """As `take_many`, with psycopg's `pgconn` of the connection that was asked."""
        told, line = ask(tx, self._taking_many(known, claims))
        return _all_before(told, known), line

    async def taken_async(
        self, tx: object, known: Sequence[Identity], claims: Sequence[int | None]
    ) -> tuple[list[Again | Skip | None], object]:
        """As `taken`, on an async connection."""
        told, line = await ask_async(tx, self._taking_many(known, claims))
        return _all_before(told, known), line

    def again(self, tx: object, identity: Identity, result: Again) -> None:
        """Remember that an event is to come again, in the transaction that has taken it."""
        ask(tx, self._asking_again(identity, result))

    async def again_async(self, tx: object, identity: Identity, result: Again) -> None:
        """As `again`, on an async connection."""
        await ask_async(tx, self._asking_again(identity, result))

    def _taking(self, identity: Identity, claim: int | None) -> Question:
        if claim is None:
            call = "{schema}.take(%s::text, %s::text, %s::int)"
            return self._question(call, identity, read=int)
        call = "{schema}.take_claimed(%s::text, %s::text, %s::int, %s::bigint)"
        return self._question(call, identity, claim, read=int)

    def _taking_many(self, known: Sequence[Identity], claims: Sequence[int | None]) -> Question:
        ids, rounds = [stored(each) for each in known], [each.round for each in known]
        if all(claim is None for claim in claims):
            call = _filled("{schema}.take_many(%s::text, %s::text[], %s::int[])", self.schema)
            return Question(self.schema, call, (self.consumer, ids, rounds), _numbers)
        # In binary: in text, NULL is just a word if `array_nulls` is off.
        call = _filled(
            "{schema}.take_many_claimed(%s::text, %s::text[], %s::int[], %b::bigint[])",
            self.schema,
        )
        return Question(self.schema, call, (self.consumer, ids, rounds, list(claims)), _numbers)

    def _asking_again(self, identity: Identity, result: Again) -> Question:
        after = round(result.after.total_seconds() * 1000)
        call = "{schema}.again(%s::text, %s::text, %s::int, %s::bigint)"
        return self._question(call, identity, after)

    def _question(
        self,
        call: str,
        identity: Identity,
        *more: object,
        read: Callable[[str], object] | None = None,
    ) -> Question:
        params = (self.consumer, stored(identity), identity.round, *more)
        return Question(self.schema, _filled(call, self.schema), params, read)


def identity_of(event: Any) -> Identity:  # noqa: ANN401  # an event, unless stated otherwise
    """Return the identity of an event that was decoded from a record."""
    # `delivery` reads only headers, and an event keeps those of its record.
    return Identity(event.source, event.id, envelope.delivery(event).round)


def nobodys(event: object) -> Claim | None:  # noqa: ARG001  # the same for every event
    """Return None: the event is taken without a claim."""
    return None


@lru_cache(maxsize=64)
def _filled(text: str, schema: str) -> str:
    return fill(text, schema)


def _numbers(text: str) -> list[int | None]:
    """Return the array of numbers that Postgres writes so."""
    return [None if each == "NULL" else int(each) for each in text[1:-1].split(",") if each]


def _before(told: int | None, identity: Identity) -> Again | Skip | None:
    if told is None:
        return None
    if told < 0:
        return Skip(f"duplicate of {identity.id}")
    # It was handled and committed, but perhaps not yet written to its retry topic.
    return Again(timedelta(milliseconds=told))


def _all_before(
    told: Sequence[int | None], known: Sequence[Identity]
) -> list[Again | Skip | None]:
    return [_before(each, identity) for each, identity in zip(told, known, strict=True)]
