"""The facts that a diagnosis examines, and its findings."""

from dataclasses import dataclass
from typing import Literal

from relay.rules.places.progress import Lag, Origin, Progress
from relay.rules.server.slot import Beginning, Budget, Slot

Level = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of a diagnosis; `resolve` is empty if there is nothing to do."""

    level: Level
    what: str
    resolve: str = ""

    def __str__(self) -> str:
        text = f"{self.level:4}  {self.what}"
        return f"{text}; {self.resolve}" if self.resolve else text


@dataclass(frozen=True, slots=True)
class Wanted:
    """The relay's settings, as far as a diagnosis compares them."""

    name: str
    capture: str
    progress_topic: str
    transaction_timeout_ms: int
    budget: Budget
    stall_after: float


@dataclass(frozen=True, slots=True)
class Server:
    """Postgres's answers."""

    version: int
    wal_level: str
    origin: Origin
    shared: int | None
    """The end of this server's log of progress's timeline, if the server is on another one."""
    state: str
    slot_name: str
    database: str
    began_at: int | None
    beginning: Beginning | None
    slot: Slot | None
    other_slots: frozenset[str]
    """Slots of the same outbox that belong to none of its shards."""
    retained: int
    leaving_behind: int
    """Transactions that may still write to the log while it is being left."""
    role: str
    lacks: tuple[str, ...]
    """Rights that the role lacks and can publish without."""
    active: str | None
    claimed: bool
    """A relay of this name has published from this database."""
    put_back: str | None
    """Why this database is not in the state from which progress was made."""
    other_cluster: str | None
    """Why this is not the Kafka to which the outbox is published."""
    gone: tuple[str, ...]
    """Other names that have published from here, and under which no relay is active."""
    has_fsync: bool
    standbys: str
    """The standbys that commits wait for."""
    parked: int
    """Events that cannot be published, and events that wait for those."""
    lag: Lag


@dataclass(frozen=True, slots=True)
class Broker:
    """Kafka's answers."""

    has_topic: bool
    progress: Progress | None
    longest_transaction_ms: int | None
    """None: we may not know it."""
    later: Progress | None
    """
    Progress as it was after the look at the server.

    It covers all that the server was told to forget. The server's state is newer than `progress`.
    """
    cluster: str = ""


def of_message(text: str) -> Finding:
    """Return a refusal as a finding; the text after the first `; ` says how to resolve it."""
    what, _, resolve = text.partition("; ")
    return Finding("fail", what, resolve)
