"""The facts about one event, as its parts say them."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal, NamedTuple, TypeAlias

from dedup.retries import copies
from dedup.rules.unread import Place
from outbox.envelope import Record
from outbox.timestamps import time_of

Role: TypeAlias = Literal["home", "retry", "dead", "output"]
"""How a topic belongs to the event: its own, one for copies, for dead letters, or for results."""


class Row(NamedTuple):
    """An event that an outbox's table holds."""

    part: str
    id: str
    source: str
    topic: str
    key: bytes | None
    type: str
    position: int
    at: datetime
    """When it was appended."""
    published: bool | None
    """Whether progress passes it; None: progress is not known."""
    relay: str | None
    """Where the active relay runs; None: there is none, or nothing says so."""
    progress: str
    """How far the relay has come, in words."""
    ahead: int = 0
    """Rows that were appended before it and are not published."""


class Parked(NamedTuple):
    """An event that a relay has put aside."""

    part: str
    id: str
    source: str
    topic: str
    key: bytes | None
    type: str
    code: str
    reason: str
    at: datetime
    after: str | None
    """The parked event of its key that it waits for; None: it waits for none."""


class Taker(NamedTuple):
    """A part that reads topics as a consumer group."""

    part: str
    kind: Literal["consumer", "spark", "push"]
    group: str
    topics: tuple[str, ...]
    """Names, and patterns, which begin with `^`."""
    retries: tuple[str, ...] = ()
    """Topics that only copies for it come to."""
    dead: str | None = None
    outputs: tuple[str, ...] = ()
    paused: str = ""
    """Why it stands still, if an operator or an endpoint stopped it."""


class Reach(NamedTuple):
    """How a group's committed offset lies to a record."""

    completed: bool
    behind: int | None
    """Offsets between the committed one and the record; None: nothing is committed."""
    begun: bool
    """Whether later records are completed already."""
    members: int | None
    """Members of the group; None: Kafka does not say."""


class Handled(NamedTuple):
    """A line of an inbox."""

    round: int
    at: datetime


class Held(NamedTuple):
    """A record that holds its key until it is tried again."""

    attempt: int
    due: datetime | None
    error: str


class Attempt(NamedTuple):
    """One request of a subscription."""

    number: int
    at: datetime
    outcome: str
    status: int | None
    detail: str


class Batch(NamedTuple):
    """The batch of a Spark job that has taken a record."""

    number: int
    finished: bool


class Outcome(NamedTuple):
    """The end of a record that a Spark job took and wrote nowhere under its id."""

    kind: str
    """`filtered`, `superseded`, `duplicate`, `handler`, `handled`, or `taken`: it is not known."""
    why: str


class DeadCopy(NamedTuple):
    """A dead letter of the event, and its fate."""

    owner: str
    record: Record
    fate: str
    """`requeued`, `dropped` or nothing."""
    fate_at: datetime | None

    @property
    def reason(self) -> str:
        return copies.delivery(self.record).error or "no reason is given"

    @property
    def attempts(self) -> int:
        return copies.delivery(self.record).attempt

    @property
    def group(self) -> str | None:
        return copies.delivery(self.record).group


class Copy(NamedTuple):
    """A copy of the event on a topic of a part."""

    owner: str
    record: Record


At: TypeAlias = tuple[str, Place]
"""A part, and the place of a record that it reads."""


@dataclass(slots=True)
class Facts:
    """All that is known of one event."""

    id: str
    source: str
    rows: list[Row] = field(default_factory=list)
    parked: list[Parked] = field(default_factory=list)
    home: list[Record] = field(default_factory=list)
    copies: list[Copy] = field(default_factory=list)
    letters: list[DeadCopy] = field(default_factory=list)
    outputs: list[Copy] = field(default_factory=list)
    reaches: dict[At, Reach] = field(default_factory=dict)
    handled: dict[str, list[Handled]] = field(default_factory=dict)
    held: dict[At, Held] = field(default_factory=dict)
    skips: dict[At, str] = field(default_factory=dict)
    attempts: dict[str, list[Attempt]] = field(default_factory=dict)
    batches: dict[At, Batch] = field(default_factory=dict)
    outcomes: dict[At, Outcome] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)
    """Why nothing is known of what a part has done, by its name."""

    @property
    def name(self) -> str:
        """`id@source`, as an inbox and dead letters have it."""
        from dedup.rules.identity import Identity

        return Identity(self.source, self.id).name

    def read_by(self, reader: Taker, topics: frozenset[str]) -> list[Record]:
        """Return the records of the event that a reader gets, the oldest first."""
        found = [each for each in self.home if each.topic in topics]
        found += [each.record for each in self.copies if each.owner == reader.part]
        return sorted(found, key=lambda each: (each.timestamp, each[:3]))


def place_of(record: Record) -> Place:
    """Return where a record is."""
    return Place(*record[:3])


def written_at(record: Record) -> datetime | None:
    """Return when a record was written; None: its timestamp is no time."""
    return time_of(record.timestamp)


def moment(milliseconds: int | None) -> datetime | None:
    """Return the time of milliseconds since 1970."""
    return None if milliseconds is None else datetime.fromtimestamp(milliseconds / 1000, UTC)
