"""
The interface for records that their handler did not finish: who takes them, and with what result.

A handler's `Retry`, `Dead` and `Again` come here. The record is completed once it is durably
somewhere else. Until then its offset stays uncommitted, and Kafka remembers nothing beyond it.
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
"""The results that leave a record in need of another place, or another attempt."""


class Outage(DovecoteError):
    """
    The record could not be placed for now; the call is repeated, and the offset is held back.
    """


@dataclass(frozen=True, slots=True)
class Placed:
    """The record is durably elsewhere: its offset may be committed, and its key goes on."""

    where: Literal["retry", "dead_letter", "parked"]
    """The kind of place, as metrics count it."""


@dataclass(frozen=True, slots=True)
class Held:
    """The record stays where it is: it is handled again later, and its key waits for it."""

    after: timedelta

    attempt: int = field(default=0, compare=False)
    """
    Number of the attempt, if it is known better than from the record's headers; 0: it is not.
    """

    given_up: bool = field(default=False, compare=False)
    """The record should go to a dead-letter topic, and is held because there is none."""


class Aside(Protocol):
    """
    Takes the records that were not handled to their end.

    Only `early` is called in the thread that handles records, and it must not block. Other threads
    call the rest, several at a time, and these calls may take as long as they need. A call that
    raises `Outage` is repeated later.
    """

    def assigned(self, partitions: Collection[Partition]) -> None:
        """Prepare for partitions; none of their records is handled before this returns."""

    def early(self, record: Record) -> timedelta | None:
        """Return how long the record must wait before its first try here; None: it is due."""

    def place(self, record: Record, result: Unfinished, attempt: int) -> Placed | Held:
        """
        Put the record where it is safe, or hold its key.

        `attempt` is the number of the attempt that ended this way, from 1. It includes the
        attempts that the record's headers count, but not those that ended in `Again`.
        """

    def released(self, record: Record) -> None:
        """Forget a record that was `Held` and is completed now, before its offset moves on."""

    def revoked(self, partitions: Collection[Partition]) -> None:
        """
        Forget partitions that another consumer has now; none of their records is being handled.
        """


class HoldInPlace:
    """
    Hold the key of every record that fails, and try it again until it succeeds.

    This is the default of a consumer with neither retry topics nor dead letters: it loses nothing,
    and reports which record holds up its key.
    """

    def __init__(
        self,
        base: timedelta = timedelta(seconds=1),
        ceiling: timedelta = timedelta(minutes=1),
    ) -> None:
        self._base, self._ceiling = base, ceiling

    def assigned(self, partitions: Collection[Partition]) -> None:
        """Do nothing: only the offsets are remembered."""

    def early(self, record: Record) -> timedelta | None:  # noqa: ARG002  # the same for every record
        return None

    def place(self, record: Record, result: Unfinished, attempt: int) -> Placed | Held:  # noqa: ARG002  # the same for every record
        """Hold it, each time twice as long."""
        match result:
            case Again(after):
                return Held(after)
            case Retry(_, after) if after is not None:
                return Held(after)
            case _:
                # The power is bounded: a record that fails for days would overflow it.
                return Held(min(self._base * 2 ** min(attempt - 1, 20), self._ceiling))

    def released(self, record: Record) -> None:
        """Do nothing: only the offsets are remembered."""

    def revoked(self, partitions: Collection[Partition]) -> None:
        """Do nothing: only the offsets are remembered."""
