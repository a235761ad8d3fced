"""What is looked at in a diagnosis, and what is said of it."""

from dataclasses import dataclass
from typing import Literal

from relay.rules.places.progress import Lag, Origin, Progress
from relay.rules.server.slot import Beginning, Budget, Slot

Level = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of a diagnosis; `resolve` is empty where there is nothing to do."""

    level: Level
    what: str
    resolve: str = ""

    def __str__(self) -> str:
        text = f"{self.level:4}  {self.what}"
        return f"{text}; {self.resolve}" if self.resolve else text


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the relay's settings ask for."""

    name: str
    capture: str
    progress_topic: str
    transaction_timeout_ms: int
    budget: Budget
    stall_after: float


@dataclass(frozen=True, slots=True)
class Server:
    """What Postgres says."""

    version: int
    wal_level: str
    origin: Origin
    shared: int | None
    """The end of the log that it has of progress's timeline, if that is another."""
    state: str
    slot_name: str
    database: str
    began_at: int | None
    beginning: Beginning | None
    slot: Slot | None
    other_slots: frozenset[str]
    """Of the same outbox, and of none of its shards."""
    retained: int
    leaving_behind: int
    """Transactions that may still write to the log, where it is being left."""
    role: str
    lacks: tuple[str, ...]
    """Rights that it lacks, and can publish without."""
    active: str | None
    claimed: bool
    """A relay of this name has published from this database."""
    put_back: str | None
    """Why this database is not in the state that progress was made of."""
    other_cluster: str | None
    """Why this is not the Kafka that the outbox is published to."""
    gone: tuple[str, ...]
    """Names besides this outbox's that published from here, and under which no relay is active."""
    has_fsync: bool
    standbys: str
    """What commits wait for."""
    parked: int
    """Events that cannot be published, and those that wait behind them."""
    lag: Lag


@dataclass(frozen=True, slots=True)
class Broker:
    """What Kafka says."""

    has_topic: bool
    progress: Progress | None
    longest_transaction_ms: int | None
    """None: we may not know."""
    later: Progress | None
    """
    Progress as it was after the server had been looked at.

    What the server was told to forget is in this one, and what it has is ahead of the other one.
    """
    cluster: str = ""


def of_message(text: str) -> Finding:
    """Return the finding that a refusal is; behind the first `; ` it says what resolves it."""
    what, _, resolve = text.partition("; ")
    return Finding("fail", what, resolve)
