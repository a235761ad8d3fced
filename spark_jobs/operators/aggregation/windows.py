"""What an aggregation holds: its keys, and the window of each."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from outbox.envelope import Record
from spark_jobs.operators.alarms import Alarms
from spark_jobs.operators.step import NEVER, Output


@dataclass(slots=True)
class Window:
    """What has come for a key and was not handed over."""

    start: int
    end: int
    opened: int
    """Wall clock when its first event came."""
    touched: int
    """Wall clock when its last event came."""
    events: list[Record] = field(default_factory=list)
    revision: int = 0


@dataclass(slots=True)
class Held:
    """A key."""

    clock: int = -NEVER
    """The latest event time seen."""
    arrived: int = 0
    """Wall clock of its last event."""
    window: Window | None = None
    cache: Any = field(default_factory=dict)
    at: str | None = None
    """The time of day that its first event said."""
    next: int = NEVER
    """When the daily trigger fires."""
    empty: int = 0
    """Firings since its last event."""


class Turn(NamedTuple):
    """What a step goes on with."""

    now: int
    outputs: list[Output]


@dataclass(slots=True)
class State:
    """The keys, and when to look at them."""

    keys: dict[bytes, Held] = field(default_factory=dict)
    behind_at: int = -NEVER
    waits: Alarms = field(default_factory=Alarms)
