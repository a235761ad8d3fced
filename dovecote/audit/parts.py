"""The audited parts, as plain values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Outbox:
    """One outbox: its table keeps published rows for a while, or its events are in the log."""

    name: str
    """The name in the watch file."""
    relay: str
    """The name of its relays."""
    dsn: str = field(repr=False)
    schema: str
    retention: float
    """How long published rows stay, in seconds; 0: they do not."""
    kafka: Mapping[str, str] = field(repr=False)
    at_least_once: bool = False

    @property
    def part(self) -> str:
        return f"outbox/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Follower:
    """One consumer with an inbox."""

    name: str
    group: str
    topics: tuple[str, ...]
    retries: tuple[str, ...]
    dead: str | None
    dsn: str = field(repr=False)
    schema: str
    kafka: Mapping[str, str] = field(repr=False)
    retention: float = 604_800.0
    selective: bool = False
    """It skips records by a filter, a policy or exceptions: these have no row in the inbox."""

    @property
    def part(self) -> str:
        return f"consumer/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pusher:
    """One push, by its database."""

    name: str
    dsn: str = field(repr=False)
    schema: str
    kafka: Mapping[str, str] = field(repr=False)

    @property
    def part(self) -> str:
        return f"push/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The parts that are compared, and the bounds; durations are seconds."""

    outboxes: tuple[Outbox, ...]
    followers: tuple[Follower, ...] = ()
    pushers: tuple[Pusher, ...] = ()
    topics: tuple[str, ...] = ()
    """Topics that are read from the start, besides those that rows name."""
    grace: float = 60.0
    late: float = 300.0
    window: float = 900.0
    order: bool = True
    foreign: str = "report"
    foreign_sources: tuple[str, ...] = ()
    accepted: frozenset[str] = frozenset()
    """Ids of events that an operator has looked at."""
    partitions_since: int | None = None
    """Milliseconds since 1970."""
    since: int | None = None
    """Milliseconds since 1970."""
    slot_bytes: int = 1_000_000_000
    """How much of the write-ahead log a slot may hold back."""
    state: Path | None = None
    statements: Path | None = None
