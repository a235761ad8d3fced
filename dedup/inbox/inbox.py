"""
The inbox: an event is remembered in its handler's own transaction, so its effects happen once.

A handler `handle(event, tx)` makes its rows on `tx`; the event's identity (its id and round) is
inserted there before it runs. If the transaction commits, both are there, and a copy that comes
later is not handled; if it does not, neither is, and the event is handled when it comes again.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from hashlib import sha256
from typing import Any, TypeAlias, TypeVar

import psycopg

from dedup.inbox import schema as inbox_schema
from dedup.inbox.transactions import Question, ask, ask_async
from dedup.rules.claim import Claim
from dedup.rules.policies.policies import Identity
from dedup.rules.policies.results import (
    Again,
    Dead,
    Done,
    Result,
    Retry,
    Skip,
    TakenOver,
    Unavailable,
)
from outbox import envelope
from outbox.errors import BadSettings
from outbox.schema.templates import fill

# An index takes no more than 2704 bytes.
_LONGEST_ID = 500

# The server is going, coming, or takes no more connections.
_AWAY = ("08", "57P", "53")
# The inbox's own: the partition was claimed by another member.
_TAKEN = "TAKEN"
# Another transaction was first: serialization_failure, deadlock_detected.
_COLLISIONS = frozenset({"40001", "40P01"})

E = TypeVar("E")
T = TypeVar("T")

ClaimOf: TypeAlias = Callable[[E], Claim | None]
"""Returns in whose name a record is taken: what it has as `claim`."""

Begin: TypeAlias = Callable[[], AbstractContextManager[T]]
"""
Opens a transaction that commits at the end of the block, and rolls back if it raises.

`pool.connection` of psycopg, `Session.begin` of a `sessionmaker`, `engine.begin` of SQLAlchemy.
"""

BeginAsync: TypeAlias = Callable[[], AbstractAsyncContextManager[T]]
"""The same, to be awaited."""


class TakenBack(Exception):
    """Rolls the transaction back; its handler has said what became of the record."""

    def __init__(self, result: Result) -> None:
        super().__init__(result)
        self.result = result


@dataclass(frozen=True, slots=True)
class Inbox:
    """The events that one consumer has handled, in one schema of a database."""

    consumer: str
    """Whose memory it is: the consumer group. Each has its own."""

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
        `Skip`, and rolls back with `Retry`, `Dead` and any exception. While the database is away
        it raises `Unavailable`. `identity` says what is known by what, where it is no event that
        is handled. `claim` says in whose name: then nothing is committed, and `TakenOver` raised,
        once another member has claimed the partition.
        """
        known_by, claim_of = identity or identity_of, claim or nobodys

        def handler(event: E) -> Result:
            taken = Taken((claim_of(event),))
            try:
                with begin() as tx:
                    known = known_by(event)
                    if (before := self.take(tx, known, *taken.numbers)) is not None:
                        return before
                    result = _finished(handle(event, tx))
                    if isinstance(result, Again):
                        self.again(tx, known, result)
                    return result
            except TakenBack as taken_back:
                return taken_back.result
            except Exception as error:
                if (gone := taken.refused(error)) is not None:
                    raise gone from error
                raise

        return handler

    def once_async(
        self,
        handle: Callable[[E, T], Awaitable[Result | None]],
        begin: BeginAsync[T],
        *,
        identity: Callable[[E], Identity] | None = None,
        claim: ClaimOf[E] | None = None,
    ) -> Callable[[E], Awaitable[Result]]:
        """As `once`, for handlers and connections that are awaited."""
        known_by, claim_of = identity or identity_of, claim or nobodys

        async def handler(event: E) -> Result:
            taken = Taken((claim_of(event),))
            try:
                async with begin() as tx:
                    known = known_by(event)
                    if (before := await self.take_async(tx, known, *taken.numbers)) is not None:
                        return before
                    result = _finished(await handle(event, tx))
                    if isinstance(result, Again):
                        await self.again_async(tx, known, result)
                    return result
            except TakenBack as taken_back:
                return taken_back.result
            except Exception as error:
                if (gone := taken.refused(error)) is not None:
                    raise gone from error
                raise

        return handler

    def take(
        self, tx: object, identity: Identity, claim: int | None = None
    ) -> Again | Skip | None:
        """
        Take the event for this transaction: None if it is new.

        Else it was handled before, and what is returned is what is to become of this copy. While
        another transaction has it, this waits for what becomes of that. `claim` is the number of
        the claim in whose name it is taken: the transaction fails, now or when it commits, once
        there is a newer one.
        """
        return _before(ask(tx, self._taking(identity, claim)), identity)

    async def take_async(
        self, tx: object, identity: Identity, claim: int | None = None
    ) -> Again | Skip | None:
        """As `take`, on a connection that is awaited."""
        return _before(await ask_async(tx, self._taking(identity, claim)), identity)

    def take_many(
        self, tx: object, known: Sequence[Identity], claims: Sequence[int | None] = ()
    ) -> list[Again | Skip | None]:
        """As `take`, for several events in one statement; of equal ones the first is new."""
        return _all_before(ask(tx, self._taking_many(known, claims)), known)

    async def take_many_async(
        self, tx: object, known: Sequence[Identity], claims: Sequence[int | None] = ()
    ) -> list[Again | Skip | None]:
        """As `take_many`, on a connection that is awaited."""
        return _all_before(await ask_async(tx, self._taking_many(known, claims)), known)

    def again(self, tx: object, identity: Identity, result: Again) -> None:
        """Remember, in the transaction that has taken it, that an event is to come again."""
        ask(tx, self._asking_again(identity, result))

    async def again_async(self, tx: object, identity: Identity, result: Again) -> None:
        """As `again`, on a connection that is awaited."""
        await ask_async(tx, self._asking_again(identity, result))

    def _taking(self, identity: Identity, claim: int | None) -> Question:
        if claim is None:
            return self._question("SELECT {schema}.take(%s, %s, %s)", identity)
        return self._question("SELECT {schema}.take_claimed(%s, %s, %s, %s)", identity, claim)

    def _taking_many(self, known: Sequence[Identity], claims: Sequence[int | None]) -> Question:
        ids, rounds = [_stored(id_) for id_, _ in known], [round_ for _, round_ in known]
        if all(claim is None for claim in claims):
            query = _query("SELECT {schema}.take_many(%s, %s, %s)", self.schema)
            return Question(query, (self.consumer, ids, rounds))
        query = _query("SELECT {schema}.take_many_claimed(%s, %s, %s, %s)", self.schema)
        return Question(query, (self.consumer, ids, rounds, list(claims)))

    def _asking_again(self, identity: Identity, result: Again) -> Question:
        after = round(result.after.total_seconds() * 1000)
        return self._question("SELECT {schema}.again(%s, %s, %s, %s)", identity, after)

    def _question(self, text: str, identity: Identity, *more: object) -> Question:
        return Question(
            _query(text, self.schema), (self.consumer, _stored(identity[0]), identity[1], *more)
        )


def identity_of(event: Any) -> Identity:  # noqa: ANN401  # an event, where nothing else is said
    """Return the id and round of an event as it came from a record."""
    # Headers are all it looks at, and an event keeps those of its record.
    return event.id, envelope.delivery(event).round


class Taken:
    """In whose names events are taken, by the numbers that the claims have now."""

    __slots__ = ("_claims", "numbers")

    def __init__(self, claims: Iterable[Claim | None]) -> None:
        self._claims = tuple(claims)
        self.numbers = [None if each is None else each.number for each in self._claims]

    def refused(self, error: Exception) -> Unavailable | None:
        """As `away`; and note that there is a newer claim, if that is what the error says."""
        gone = away(error)
        if isinstance(gone, TakenOver):
            for claim, number in zip(self._claims, self.numbers, strict=True):
                if claim is not None and number is not None:
                    claim.refused = number
        return gone


def nobodys(event: object) -> Claim | None:  # noqa: ARG001  # the same for every event
    """Return that an event is taken in nobody's name."""
    return None


@lru_cache(maxsize=64)
def _query(text: str, schema: str) -> str:
    return fill(text, schema)


def _stored(id_: str) -> str:
    """Return an id as the index takes it: a digest of one that is too long, or no text."""
    if len(id_) <= _LONGEST_ID and "\0" not in id_:
        return id_
    return "sha256/" + sha256(id_.encode()).hexdigest()


def _before(told: int | None, identity: Identity) -> Again | Skip | None:
    if told is None:
        return None
    if told < 0:
        return Skip(f"duplicate of {identity[0]}")
    # It was handled and committed, but perhaps not put where it comes from again.
    return Again(timedelta(milliseconds=told))


def _all_before(
    told: Sequence[int | None], known: Sequence[Identity]
) -> list[Again | Skip | None]:
    return [_before(each, identity) for each, identity in zip(told, known, strict=True)]


def away(error: Exception) -> Unavailable | None:
    """Return what to raise for an error that is not the event's fault."""
    # SQLAlchemy has the driver's own as `orig`.
    cause = getattr(error, "orig", error)
    if isinstance(cause, psycopg.Error) and cause.sqlstate == _TAKEN:
        return TakenOver(str(cause).partition("\n")[0])
    if not isinstance(cause, psycopg.OperationalError | psycopg.InterfaceError):
        return None
    state = cause.sqlstate
    if state is None or state.startswith(_AWAY) or state in _COLLISIONS:
        return Unavailable(f"Postgres: {str(cause).strip()}")
    return None


def _finished(result: Result | None) -> Result:
    """Return what the transaction commits with; roll it back by raising else."""
    if isinstance(result, Retry | Dead):
        raise TakenBack(result)
    return Done() if result is None else result
