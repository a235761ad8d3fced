"""The state of an aggregation: its keys, and the window of each."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from outbox.envelope import Record
from spark_jobs.operators.alarms import Alarms
from spark_jobs.operators.step import NEVER, Output

NOWHERE = ("", -1, -1)


@dataclass(slots=True)
class Window:
    """The events of a key that have come and were not handed over yet."""

    start: int
    end: int
    opened: int
    """The wall clock when its first event came."""
    touched: int
    """The wall clock when its last event came."""
    events: list[Record] = field(default_factory=list)
    """The events that are in no chunk; none if a script folds."""
    revision: int = 0
    count: int = 0
    """The number of all its events."""
    size: int = 0
    """About how many bytes all its events take; 0 if a script folds them."""
    tail: int = 0
    """About how many bytes `events` take."""
    number: int = 0
    """The number by which its chunks are found; 0: it has none."""
    chunks: int = 0
    folded: Any = None
    """The accumulator, if a script folds."""
    last: tuple[str, int, int] = NOWHERE
    """If a script folds: the topic, the partition and the offset of its last event."""


@dataclass(slots=True)
class WindowsOfKey:
    """The state of one key."""

    clock: int = -NEVER
    """The latest event time so far."""
    arrived: int = 0
    """The wall clock of its last event."""
    window: Window | None = None
    cache: Any = field(default_factory=dict)
    at: str | None = None
    """The time of day in its first event."""
    next: int = NEVER
    """The time at which the daily trigger fires."""
    empty: int = 0
    """The number of firings since its last event."""


class StepContext(NamedTuple):
    """The context of one step."""

    now: int
    outputs: list[Output]
    large: dict[bytes, None]
    """The keys whose windows may have too many events for the state."""
    dropped: list[tuple[int, int]]
    """The windows that are closed and have chunks, by their number and that of their chunks."""


@dataclass(slots=True)
class WindowState:
    """The keys, and when to look at them."""

    keys: dict[bytes, WindowsOfKey] = field(default_factory=dict)
    behind_at: int = -NEVER
    latest: int = -NEVER
    """The latest wall clock of a step."""
    daily: str = ""
    """The trigger by which the daily firings of its keys were computed."""
    windows: int = 0
    """The number of the last window with chunks."""
    waits: Alarms = field(default_factory=Alarms)
