"""Kafka as the protocol sees it: transactions, fencing, and requests that arrive late or never."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto


class Fenced(Exception):
    """The request is of an older epoch of its transactional.id."""


class State(Enum):
    """What has become of a transaction."""

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
    """What a producer has sent; it may be carried out long after nobody waits for it."""

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
    _coordinators: dict[str, _Coordinator] = field(default_factory=dict)

    def init(self, transactional_id: str) -> int:
        """Begin a new epoch: abort what the last one left open, and refuse it from now on."""
        found = self._coordinators.setdefault(transactional_id, _Coordinator())
        if found.open is not None:
            found.open.state, found.open = State.ABORTED, None
        found.epoch += 1
        return found.epoch

    def produce(self, transactional_id: str, epoch: int, log: str, value: object) -> None:
        """
        Append a record to the transaction that is open, or to a new one.

        A late request of an aborted transaction joins the next one of its epoch (KAFKA-17754).
        """
        found = self._current(transactional_id, epoch)
        if found.open is None:
            found.open = Transaction()
        self.logs.setdefault(log, []).append(Entry(value, found.open))

    def commit(self, transactional_id: str, epoch: int) -> None:
        found = self._current(transactional_id, epoch)
        if found.open is not None:
            found.open.state, found.open = State.COMMITTED, None

    def end(self, log: str) -> int:
        """Return the high watermark."""
        return len(self.logs.get(log, []))

    def committed(self, log: str) -> list[object]:
        """Return what a `read_committed` consumer reads: nothing beyond an open transaction."""
        return _closed(self.logs.get(log, []))[0]

    def committed_up_to(self, log: str, end: int) -> list[object] | None:
        """Return the same up to `end`; None: a transaction that is open hides something of it."""
        values, whole = _closed(self.logs.get(log, [])[:end])
        return values if whole else None

    def uncommitted(self, log: str) -> list[object]:
        """Return all records, whatever has become of them."""
        return [entry.value for entry in self.logs.get(log, [])]

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
    """The way from one producer to the broker: in order, and as slowly as chance will have it."""

    queue: deque[Request] = field(default_factory=deque)

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
