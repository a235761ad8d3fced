"""
The seam at which a record leaves its handler unfinished: what takes it, and what it may answer.

A handler's `Retry`, `Dead` and `Again` come here. The record is concluded once it is durably
somewhere else; until then its offset, and with it all that Kafka remembers, stays behind it.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal, Protocol, TypeAlias

from dedup.rules.policies.results import Again, Dead, Retry
from dedup.rules.record import Record
from outbox.errors import DovecoteError

Partition: TypeAlias = tuple[str, int]
"""Topic and partition."""

Unfinished: TypeAlias = Retry | Dead | Again
"""The results after which a record needs a place, or another try."""


class Outage(DovecoteError):
    """The record could not be placed for now; it is asked for again, and its offset held back."""


@dataclass(frozen=True, slots=True)
class Placed:
    """The record is durably elsewhere: its offset may be committed, and its key goes on."""

    where: Literal["retry", "dead_letter", "parked"]
    """What it is counted as."""


@dataclass(frozen=True, slots=True)
class Held:
    """The record stays where it is: it is handled again later, and its key waits behind it."""

    after: timedelta

    attempt: int = field(default=0, compare=False)
    """Which attempt it was, where more is known than its headers tell; 0: not so."""

    given_up: bool = field(default=False, compare=False)
    """It would go to a dead-letter topic, and is held because there is none."""


class Aside(Protocol):
    """
    Takes the records that were not handled to their end.

    Only `early` is called where records are handled, and must not wait for anything. The others
    are called from threads of their own, several at a time, and may take as long as they need;
    whatever raises `Outage` is called again later.
    """

    def assigned(self, partitions: Collection[Partition]) -> None:
        """Make ready for partitions; none of their records is handled before it returns."""

    def early(self, record: Record) -> timedelta | None:
        """Return how long the record must wait before its first try here; None: it is due."""

    def place(self, record: Record, result: Unfinished, attempt: int) -> Placed | Held:
        """
        Put the record where it is safe, or hold its key.

        `attempt` is the try that ended so, from 1: those that its headers tell of included, and
        without those that ended in `Again`.
        """

    def released(self, record: Record) -> None:
        """Forget a record that was `Held` and is concluded now, before its offset goes on."""

    def revoked(self, partitions: Collection[Partition]) -> None:
        """Forget partitions: they are another consumer's, and none of their records is at work."""


class HoldInPlace:
    """
    Hold the key of every record that fails, and try it again until it succeeds.

    What a consumer does that has neither a retry topic nor dead letters: it loses nothing, and
    says which record holds up its key.
    """

    def __init__(
        self,
        base: timedelta = timedelta(seconds=1),
        ceiling: timedelta = timedelta(minutes=1),
    ) -> None:
        self._base, self._ceiling = base, ceiling

    def assigned(self, partitions: Collection[Partition]) -> None:
        """Do nothing: nothing is remembered beyond the offsets."""

    def early(self, record: Record) -> timedelta | None:  # noqa: ARG002  # the same for every record
        return None

    def place(self, record: Record, result: Unfinished, attempt: int) -> Placed | Held:  # noqa: ARG002  # the same for every record
        """Hold it, for twice as long each time."""
        match result:
            case Again(after):
                return Held(after)
            case Retry(_, after) if after is not None:
                return Held(after)
            case _:
                # The power is bounded, or a record that fails for days overflows it.
                return Held(min(self._base * 2 ** min(attempt - 1, 20), self._ceiling))

    def released(self, record: Record) -> None:
        """Do nothing: nothing is remembered beyond the offsets."""

    def revoked(self, partitions: Collection[Partition]) -> None:
        """Do nothing: nothing is remembered beyond the offsets."""
