"""The history of held records, for the next owner of their partition."""

from collections.abc import Collection, Mapping
from typing import NamedTuple, Protocol, TypeAlias

from dedup.retries.aside import Partition
from dedup.rules.identity import stored, stored_before
from dedup.rules.record import Record
from outbox.envelope import Delivery
from outbox.errors import DovecoteError

Place: TypeAlias = tuple[str, int, int]
"""Topic, partition and offset."""


class NotKept(DovecoteError):
    """The history of a record cannot be stored, and never will be."""


class State(NamedTuple):
    """The history of a held record, and the event that it belongs to."""

    event: str
    """Its identity, as `stored` has it."""
    delivery: Delivery


class States(Protocol):
    """May outlive the consumer; otherwise attempts are counted from the start again."""

    def load(self, partitions: Collection[Partition]) -> Mapping[Place, State]: ...
    def keep(self, record: Record, state: Delivery) -> None:
        """
        Store the state of a record.

        Raises:
            NotKept: it cannot be stored, and never will be.
        """

    def drop(self, record: Record) -> None: ...


class Forgetful:
    """Remembers nothing."""

    def load(self, partitions: Collection[Partition]) -> Mapping[Place, State]:  # noqa: ARG002  # whichever they are
        return {}

    def keep(self, record: Record, state: Delivery) -> None:
        """Do nothing: the consumer that holds the record knows."""

    def drop(self, record: Record) -> None:
        """Do nothing: nothing is stored."""


def is_of(state: State, record: Record) -> bool:
    """Return whether a state belongs to the event in `record`."""
    return state.event in {stored(record.identity), stored_before(record.identity)}
