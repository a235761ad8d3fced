"""
Kafka as the protocol sees it: transactions, fencing, and requests that arrive late or never.

A leader that was cut off from the other replicas accepts nothing any more, but still answers
readers from its own log.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto


class Fenced(Exception):
    """The request belongs to an older epoch of its transactional.id."""


class State(Enum):
    """The state of a transaction."""

    OPEN = auto()
    COMMITTED = auto()
    ABORTED = auto()


@dataclass(slots=True)
class Transaction:
    """One transaction; its records share this object, and so its fate."""

    state: State = State.OPEN


@dataclass(frozen=True, slots=True)
class Entry:
    """One record of a log."""

    value: object
    transaction: Transaction


@dataclass(slots=True)
class Request:
    """A producer's request; it may be carried out long after nobody waits for it."""

    carry_out: Callable[[], None]
    done: bool = False
    fenced: bool = False


@dataclass(slots=True)
class _Coordinator:
    epoch: int = 0
    open: Transaction | None = None


@dataclass(slots=True)
class Broker:
    """Logs with one partition each, and the coordinators of transactional ids."""

    logs: dict[str, list[Entry]] = field(default_factory=dict)
    old_leaders: dict[str, list[Entry]] = field(default_factory=dict)
    """The logs of leaders that were cut off, as they were then."""
    _coordinators: dict[str, _Coordinator] = field(default_factory=dict)

    def init(self, transactional_id: str) -> int:
        """
        Begin a new epoch: abort what the last one left open, and refuse that epoch from now on.
        """
        found = self._coordinators.setdefault(transactional_id, _Coordinator())
        if found.open is not None:
            found.open.state, found.open = State.ABORTED, None
        found.epoch += 1
        return found.epoch

    def produce(self, transactional_id: str, epoch: int, log: str, value: object) -> None:
        """
        Append a record to the open transaction, or to a new one.

        A late request of an aborted transaction joins the next one of its epoch (KAFKA-17754).
        """
        found = self._current(transactional_id, epoch)
        if found.open is None:
            found.open = Transaction()
        self.logs.setdefault(log, []).append(Entry(value, found.open))

    def append(self, log: str, value: object) -> None:
        """Append a record that belongs to no transaction."""
        self.logs.setdefault(log, []).append(Entry(value, Transaction(State.COMMITTED)))

    def commit(self, transactional_id: str, epoch: int) -> None:
        found = self._current(transactional_id, epoch)
        if found.open is not None:
            found.open.state, found.open = State.COMMITTED, None

    def time_out(self) -> None:
        """Abort the transactions that have been open for too long."""
        for found in self._coordinators.values():
            if found.open is not None:
                found.open.state, found.open = State.ABORTED, None
                found.epoch += 1

    def cut_off(self, log: str) -> bool:
        """Make another replica lead `log`; return False if the old leader was cut off already."""
        if log in self.old_leaders:
            return False
        self.old_leaders[log] = [
            Entry(each.value, Transaction(each.transaction.state))
            for each in self.logs.get(log, ())
        ]
        return True

    def rejoin(self, log: str) -> None:
        """Make the old leader follow the new one."""
        self.old_leaders.pop(log, None)

    def committed(self, log: str, *, by_old_leader: bool = False) -> list[object]:
        """Return what a `read_committed` consumer reads: nothing beyond an open transaction."""
        return _closed(self._entries(log, by_old_leader=by_old_leader))[0]

    def is_open(self, log: str, *, by_old_leader: bool = False) -> bool:
        """Return whether an open transaction hides a part of the log."""
        return not _closed(self._entries(log, by_old_leader=by_old_leader))[1]

    def uncommitted(self, log: str) -> list[object]:
        """Return all records, whatever became of their transactions."""
        return [entry.value for entry in self.logs.get(log, [])]

    def _entries(self, log: str, *, by_old_leader: bool) -> Sequence[Entry]:
        found = self.logs.get(log, [])
        return self.old_leaders.get(log, found) if by_old_leader else found

    def _current(self, transactional_id: str, epoch: int) -> _Coordinator:
        found = self._coordinators[transactional_id]
        if found.epoch != epoch:
            raise Fenced
        return found


def _closed(entries: Sequence[Entry]) -> tuple[list[object], bool]:
    """Return the committed values before the first open transaction, and whether there is none."""
    values: list[object] = []
    for entry in entries:
        if entry.transaction.state is State.OPEN:
            return values, False
        if entry.transaction.state is State.COMMITTED:
            values.append(entry.value)
    return values, True


@dataclass(slots=True)
class Wire:
    """One producer's connection to the broker: in order, and slow by chance."""

    queue: deque[Request] = field(default_factory=deque)
    held_until: int = 0

    def send(self, carry_out: Callable[[], None]) -> Request:
        request = Request(carry_out)
        self.queue.append(request)
        return request

    def deliver(self) -> None:
        """Carry out the oldest request."""
        request = self.queue.popleft()
        try:
            request.carry_out()
        except Fenced:
            request.fenced = True
        request.done = True
