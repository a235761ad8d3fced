"""
The interface of every operator: records in, outputs out, and when to look again.

An operator has one method, `step(state, records, now, behind=…)`. It has no clock and no thread
and only computes, so the same steps give the same outputs. A state may be used only once: go on
with the one that comes out. If `now` goes back, the clock was wrong before: no moment that a state
keeps stays later than `now`, and no stream time stays where only that clock let it come.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar, overload

S = TypeVar("S")

NEVER = 2**62
"""A moment that never comes."""


class Input(NamedTuple):
    """A record as an operator sees it."""

    key: bytes | None
    """The key for grouping: the record's key, or the JSON list of the fields in its place."""

    time: int
    """Event time in milliseconds; for `delay`, the moment before which it must not go out."""

    value: Any
    """The part of the record on which the operator works."""

    topic: str
    partition: int
    offset: int

    raw: bytes | None = None
    """The original value, to recognise a duplicate."""

    row: Any = None
    """Anything that the caller wants to find in the outputs about this record."""


# Calls tuple's own constructor; the named tuple's takes three times as long.
_input: Callable[[Iterable[Any]], Input] = partial(tuple.__new__, Input)


@dataclass(frozen=True, slots=True)
class Inputs(Sequence[Input]):
    """
    Records with a key, by columns; each becomes an `Input` when it is asked for.

    Their rows are their numbers.
    """

    keys: Sequence[bytes]
    times: Sequence[int]
    values: Sequence[Any]
    topics: Sequence[str]
    partitions: Sequence[int]
    offsets: Sequence[int]
    raws: Sequence[bytes | None]
    rows: Sequence[int]

    def __len__(self) -> int:
        return len(self.keys)

    def __iter__(self) -> Iterator[Input]:
        return map(_input, zip(*self._columns(), strict=True))

    @overload
    def __getitem__(self, row: int) -> Input: ...
    @overload
    def __getitem__(self, row: slice) -> Sequence[Input]: ...
    def __getitem__(self, row: int | slice) -> Input | Sequence[Input]:
        if isinstance(row, slice):
            return Inputs(*(each[row] for each in self._columns()))
        return Input(*(each[row] for each in self._columns()))

    def at(self, numbers: Sequence[int]) -> "Inputs":
        """Return the records with these numbers, in this order."""
        return Inputs(*([each[number] for number in numbers] for each in self._columns()))

    def _columns(self) -> tuple[Sequence[Any], ...]:
        places = self.topics, self.partitions, self.offsets
        return self.keys, self.times, self.values, *places, self.raws, self.rows


class Session(NamedTuple):
    """A session: closed (`result`), changed (`update`), or merged into another (`retract`)."""

    kind: str
    key: bytes
    start: int
    end: int
    value: Any
    revision: int


class Closed(NamedTuple):
    """Many sessions that were closed, by columns, in the order in which they closed."""

    keys: Sequence[bytes]
    starts: Sequence[int]
    ends: Sequence[int]
    values: Sequence[Any]
    revisions: Sequence[int]

    def sessions(self) -> Iterator[Session]:
        """Yield each as an output of its own."""
        return map(Session, repeat("result"), *self)


class Paired(NamedTuple):
    """The one result of a call."""

    key: bytes
    time: int
    """The time of its earliest event."""

    fields: dict[str, Any]
    """The field of each side; None if the side is missing."""

    sides: dict[str, int | list[int]]
    """The offset of each side's event by its topic; several if all of them are kept."""


class Released(NamedTuple):
    """A record whose time has come."""

    value: Any


class Made(NamedTuple):
    """A record that an aggregation makes of a window's events, or lets through."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    time: int
    reason: str
    """Why its window fired: count, gap, first_timeout, script, time or end_of_input."""
    start: int
    end: int
    """Event times of the first and the last event of the window."""
    events: int
    revision: int
    """How many times the window has fired."""
    number: int
    """Its index among the records made together."""
    origin: tuple[str, int, int]
    """The last event of the window: topic, partition and offset."""
    window: bytes
    """The key of the window."""
    shown: Any
    """The value in readable form; None for a record that goes on unchanged."""
    is_passed: bool
    """It goes on unchanged."""


class Late(NamedTuple):
    """A record that came after its session, call or window was closed."""

    record: Input
    reason: str
    close_time: int | None = None
    """Sessions of its key that end before this moment are closed."""


class Ahead(NamedTuple):
    """A record whose time is so far ahead of the wall clock that it must be wrong."""

    record: Input
    reason: str


class Skipped(NamedTuple):
    """A record that changes nothing."""

    key: bytes | None
    topic: str
    partition: int
    offset: int
    reason: str
    events: int = 1
    """If the record is the last of several: their number."""


class Failed(NamedTuple):
    """A record that the operator cannot use."""

    record: Input
    reason: str


Output: TypeAlias = Session | Closed | Paired | Released | Made | Late | Ahead | Skipped | Failed


class StepResult(NamedTuple, Generic[S]):
    """The result of a step."""

    state: S
    outputs: list[Output]

    deadline: int | None
    """Nothing needs to be done before this moment unless a record comes; None: nothing at all."""


class Operator(Protocol[S]):
    """One of the operators, with its settings."""

    def start(self) -> S:
        """Return the state before any record."""

    def step(
        self, state: S, records: Sequence[Input], now: int, *, behind: bool = False
    ) -> StepResult[S]:
        """
        Take `records`, in this order, at the wall clock time `now`.

        `behind`: the source has old records waiting, so a missing record may just not have been
        read yet. The wall clock closes nothing until that is over.
        """


def believed(clock: int, now: int, max_ahead: int) -> int:
    """Return a stream time after the wall clock has gone back to `now`."""
    return now if clock > now + max_ahead else clock


def skipped(record: Input, reason: str) -> Skipped:
    """Return the output for a record that changes nothing."""
    return Skipped(record.key, record.topic, record.partition, record.offset, reason)
