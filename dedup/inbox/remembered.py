"""An inbox in memory, for tests: it forgets what a transaction that rolled back has taken."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from dedup.inbox.inbox import Begin, BeginAsync, ClaimOf, E, Inbox, T
from dedup.inbox.transactions import Answer
from dedup.rules.identity import Identity
from dedup.rules.policies.results import Again, Result


@dataclass(frozen=True, slots=True)
class Remembered(Inbox):
    """As `Inbox`, for transactions that need not be of a database."""

    handled: dict[Identity, int] = field(default_factory=dict)
    """The events of committed transactions: -1, or the milliseconds until another round."""
    pending: dict[Identity, int] = field(default_factory=dict)
    """The events of the transaction that is open."""

    def once(
        self,
        handle: Callable[[E, T], Result | None],
        begin: Begin[T],
        *,
        identity: Callable[[E], Identity] | None = None,
        claim: ClaimOf[E] | None = None,
    ) -> Callable[[E], Result]:
        @contextmanager
        def remembering() -> Iterator[T]:
            self.pending.clear()
            with begin() as tx:
                yield tx
            self.handled.update(self.pending)

        # Not super(): a dataclass with slots is another class than the one that is being defined.
        return Inbox.once(self, handle, remembering, identity=identity, claim=claim)

    def once_async(
        self,
        handle: Callable[[E, T], Awaitable[Result | None]],
        begin: BeginAsync[T],
        *,
        identity: Callable[[E], Identity] | None = None,
        claim: ClaimOf[E] | None = None,
    ) -> Callable[[E], Awaitable[Result]]:
        @asynccontextmanager
        async def remembering() -> AsyncIterator[T]:
            self.pending.clear()
            async with begin() as tx:
                yield tx
            self.handled.update(self.pending)

        return Inbox.once_async(self, handle, remembering, identity=identity, claim=claim)

    def told(self, tx: object, identity: Identity, claim: int | None) -> Answer:  # noqa: ARG002  # nobody claims
        before = self.handled.get(identity)
        if before is None:
            self.pending[identity] = -1
        return Answer(before, _line_of(tx))

    async def told_async(self, tx: object, identity: Identity, claim: int | None) -> Answer:
        return self.told(tx, identity, claim)

    def again(self, tx: object, identity: Identity, result: Again) -> None:  # noqa: ARG002  # in memory
        self.pending[identity] = round(result.after.total_seconds() * 1000)

    async def again_async(self, tx: object, identity: Identity, result: Again) -> None:
        self.again(tx, identity, result)


def _line_of(tx: Any) -> object:  # noqa: ANN401  # any transaction
    """Return psycopg's `pgconn`, which shows an aborted transaction; without one, any object."""
    found = getattr(tx, "pgconn", None)
    # That there is one means that the event was taken.
    return object() if found is None else found
