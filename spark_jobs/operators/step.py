"""
What every operator takes and gives: records in, outputs out, and when to look again.

An operator is a value with one method, `step(state, records, now, behind=…)`. It has no clock and
no thread, and does nothing but compute: the same steps give the same outputs. The state that goes
in is spent; go on with the one that comes out. `now` never goes back.
"""

from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

S = TypeVar("S")

NEVER = 2**62
"""A moment that does not come."""


class Input(NamedTuple):
    """A record as an operator sees it."""

    key: bytes | None
    """What it is grouped by: the record's key, or the JSON list of the fields that stand in."""

    time: int
    """Event time in milliseconds; for `delay`, the moment before which it must not go out."""

    value: Any
    """What the operator works on."""

    topic: str
    partition: int
    offset: int

    raw: bytes | None = None
    """The value as it came, to know it again."""

    row: Any = None
    """Whatever the caller wants to find in the outputs about this record."""


class Session(NamedTuple):
    """A session: closed (`result`), changed (`update`), or gone into another (`retract`)."""

    kind: str
    key: bytes
    start: int
    end: int
    value: Any
    revision: int


class Paired(NamedTuple):
    """The one result of a call."""

    key: bytes
    time: int
    """The earliest of its events."""

    fields: dict[str, Any]
    """What each side says; None where it is missing."""

    sides: dict[str, int | list[int]]
    """The offset of each side's event by its topic; several where all of them are kept."""


class Released(NamedTuple):
    """A record whose time has come."""

    value: Any


class Made(NamedTuple):
    """A record that an aggregation makes of the events of a window, or lets through."""

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
    """How often the window has fired."""
    number: int
    """Of those made together."""
    origin: tuple[str, int, int]
    """The last event of the window: topic, partition and offset."""
    window: bytes
    """The key of the window."""
    shown: Any
    """What people see of the value; of a record that goes on as it is, None."""
    is_passed: bool
    """It goes on as it is."""


class Late(NamedTuple):
    """A record that came after what it belongs to was closed."""

    record: Input
    reason: str
    close_time: int | None = None
    """Sessions of its key that end before this moment are closed."""


class Skipped(NamedTuple):
    """A record that changes nothing."""

    key: bytes | None
    topic: str
    partition: int
    offset: int
    reason: str


class Failed(NamedTuple):
    """A record that the operator can make nothing of."""

    record: Input
    reason: str


Output: TypeAlias = Session | Paired | Released | Made | Late | Skipped | Failed


class Step(NamedTuple, Generic[S]):
    """What a step came to."""

    state: S
    outputs: list[Output]

    deadline: int | None
    """There is nothing to do before this moment unless a record comes; None: nothing at all."""


class Operator(Protocol[S]):
    """One of the operators, with its settings."""

    def start(self) -> S:
        """Return the state before any record."""

    def step(
        self, state: S, records: Sequence[Input], now: int, *, behind: bool = False
    ) -> Step[S]:
        """
        Take `records`, in this order, at the wall clock time `now`.

        `behind`: the source has old records waiting, so that what is missing may just not have
        been read yet; nothing is closed by the wall clock until that is over.
        """


def skipped(record: Input, reason: str) -> Skipped:
    """Return what is said of a record that changes nothing."""
    return Skipped(record.key, record.topic, record.partition, record.offset, reason)
