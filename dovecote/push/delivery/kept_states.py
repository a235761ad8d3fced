"""Drop only stored states: most records that waited a moment have none."""

from collections.abc import Collection, Mapping

from dedup.retries.aside import Partition
from dedup.retries.held_states import Place, State, States
from dedup.rules.record import Record
from outbox.envelope import Delivery


class KeptStates:
    """`States` that pass on only drops of states that are stored."""

    def __init__(self, states: States) -> None:
        self._states = states
        self._kept: set[Place] = set()

    def load(self, partitions: Collection[Partition]) -> Mapping[Place, State]:
        found = self._states.load(partitions)
        self._kept.update(found)
        return found

    def keep(self, record: Record, state: Delivery) -> None:
        self._kept.add(record[:3])
        self._states.keep(record, state)

    def drop(self, record: Record) -> None:
        if record[:3] in self._kept:
            self._states.drop(record)
            self._kept.discard(record[:3])
