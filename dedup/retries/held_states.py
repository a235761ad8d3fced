"""What held records went through, for whoever has their partition next."""

from collections.abc import Collection, Mapping
from typing import NamedTuple, Protocol, TypeAlias

from dedup.retries.aside import Partition
from dedup.rules.record import Record
from outbox.envelope import Delivery

Place: TypeAlias = tuple[str, int, int]
"""Topic, partition and offset."""


class State(NamedTuple):
    """What a held record went through, and of which event it is."""

    id: str
    delivery: Delivery


class States(Protocol):
    """Outlives the consumer, or does not: then attempts are counted anew."""

    def load(self, partitions: Collection[Partition]) -> Mapping[Place, State]: ...
    def keep(self, record: Record, state: Delivery) -> None: ...
    def drop(self, record: Record) -> None: ...


class Forgetful:
    """Remembers nothing."""

    def load(self, partitions: Collection[Partition]) -> Mapping[Place, State]:  # noqa: ARG002  # whichever they are
        return {}

    def keep(self, record: Record, state: Delivery) -> None:
        """Do nothing: the consumer that holds the record knows."""

    def drop(self, record: Record) -> None:
        """Do nothing: there is nothing."""


def is_of(state: State, record: Record) -> bool:
    """Tell whether a state is that of the event in `record`."""
    return state.id == event_id(record)


def event_id(record: Record) -> str:
    """Return the id of the event as Postgres takes it."""
    return record.identity[0].replace("\0", "")
