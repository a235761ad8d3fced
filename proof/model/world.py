"""The world of relays and operators, the steps of the protocol, and the ways to get them wrong."""

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import count
from typing import NamedTuple, TypeAlias, TypeVar

from proof.model.kafka import Broker, Wire
from proof.model.postgres import Database
from relay.rules.places.progress import Cursor

EVENTS, PROGRESS = "events", "progress"
TRANSACTIONAL_ID = "outbox"
COMMITS_LOST, PUT_BACK = "commits were lost", "put back to an earlier state"

_BY_OLD_LEADER, _BY_OLD_PRIMARY = 0.7, 0.3

T = TypeVar("T")


class Point(StrEnum):
    """The steps of the protocol."""

    LOCK = "1 take the active role"
    CONNECT = "2 open the session that reads"
    PEEK = "3 read progress, for what an operator wants"
    FENCE = "4 init_transactions"
    MARK = "5 commit a record that nobody has sent before"
    PROGRESS = "6 read progress until that record is found"
    CLAIM = "7 hold progress against the database"
    RENEW = "8 write a new nonce into the database"
    READ = "9 read a batch and its snapshot, in one statement"
    PARK = "10 set an event aside"
    PRODUCE = "11 send a record"
    PRODUCE_PROGRESS = "12 send the progress record"
    COMMIT = "13 send the commit"
    AWAIT = "14 wait for the broker's answer"
    ROLE = "15 ask for the role, between a batch and its progress, where nothing fences"
    CONFIRM = "16 let the server forget what is published"
    FAILED = "17 make a new producer"
    GIVE_UP = "18 give up the active role"


Steps: TypeAlias = Generator["Point", None, T]


class Bug(StrEnum):
    """A mistake that the simulations must find; most of these were really made."""

    PROGRESS_BEFORE_FENCE = "reads progress before it fences"
    NO_FENCE = "has transactional.ids of its own in each process"
    HALF_A_FENCE = "fences one of its two transactional.ids"
    DOES_NOT_WAIT = "begins a transaction before the one before it is committed"
    UNCOMMITTED_PROGRESS = "reads progress that was never committed"
    PROGRESS_AFTER = "sends progress in a transaction after that of the records"
    PROGRESS_BEFORE = "sends progress in a transaction before that of the records"
    SAME_PRODUCER = "uses the producer again after an answer that did not come"
    BELIEVES_IN_SUCCESS = "goes on from memory, as if what is in doubt was committed"
    BELIEVES_IN_FAILURE = "goes on from memory, as if what is in doubt was aborted"
    GOES_ON_WHEN_FENCED = "skips the batch that it was fenced in, and goes on"
    SEQUENCE = "takes the position for the order of commits"
    TWO_STATEMENTS = "reads the rows in one statement and the snapshot in the next"
    NEW_WINDOW = "goes on in the middle of a window that ends elsewhere"
    BEYOND_THE_NEWEST = "lets the cursor reach beyond the newest event"
    STALE_PROGRESS = "sends no progress of what it read while the transaction was open"
    CONFIRMS_FIRST = "lets the server forget a batch before the broker has committed it"
    RESUMES_WHERE_CONFIRMED = "goes on from what the server was told, and not from progress"

    STALE_READ = "takes the end that a broker tells for the end of progress"
    LATE_COMMAND = "writes what it read before it fenced, in an operator's command"
    SPLIT_SERVER = "does not ask whether its sessions are at one server"
    OTHER_SESSION = "writes its nonce in another session than that which has the role"
    NUMBERS_ALONE = "goes by numbers, and not by nonces"
    RENEWS_FIRST = "writes its nonce before it holds progress against the one before it"
    FORGETS_CARRIED = "keeps the nonce before its own, whether progress carries that or not"
    NONCE_TOO_EARLY = "lets progress carry a nonce before it reaches beyond its commit"
    ACCEPTED_EARLY = "accepts in the database what progress does not say yet"

    # For relays that nothing fences.
    LAST_COUNTS = "believes the last progress, and not that of the highest term"
    NEVER_ASKS = "does not ask for the role between a batch and its progress"
    RENEWS_BEFORE_TERM = "writes its nonce before progress has its term"


AT_LEAST_ONCE = (Bug.LAST_COUNTS, Bug.NEVER_ASKS, Bug.RENEWS_BEFORE_TERM)
"""Mistakes that are none, or not possible, if a transaction is fenced."""


class Mark(NamedTuple):
    """A record of the progress topic that is committed in order to be found again."""

    number: int


class Progress(NamedTuple):
    """A progress record."""

    cursor: Cursor
    term: int = 0
    nonce: int = 0
    lsn: int = 0
    timeline: int = 0
    given_up: frozenset[int] = frozenset()
    """The ids of which the operator who accepted this was told."""
    put_back: int = 0
    """The server's own count, which a relay does not know; it is used to judge refusals."""


NOTHING = Progress(Cursor())


@dataclass(slots=True)
class World:
    """Kafka, Postgres, and the things that chance decides."""

    bug: Bug | None
    happens: Callable[[float], bool]
    """Returns whether something with this likelihood happens."""
    database: Database = field(default_factory=Database)
    """The primary."""
    old_primaries: list[Database] = field(default_factory=list)
    """Old primaries that do not know it."""
    broker: Broker = field(default_factory=Broker)
    wires: list[Wire] = field(default_factory=list)
    numbers: "count[int]" = field(default_factory=lambda: count(1))
    """Numbers that nobody has used before, wherever they are written."""
    is_refused: bool = False
    """A party was refused, and no operator has dealt with it yet."""
    false_refusals: int = 0
    accepted: int = 0
    may_repeat: int = 0
    """The number of events, where nothing fences."""

    def server(self) -> Database:
        """Return the server to which a balancer connects new sessions."""
        if self.old_primaries and self.happens(_BY_OLD_PRIMARY):
            return self.old_primaries[-1]
        return self.database

    def by_old_leader(self) -> bool:
        """Return whether a leader that was cut off, if there is one, answers the next question."""
        return self.happens(_BY_OLD_LEADER)


class InDoubt(Exception):
    """The answer did not come."""


class ShutOut(Exception):
    """Another relay has taken over, or the session with the role is not what it should be."""


class Refused(Exception):
    """Going on could lose or repeat events."""


def misfit(progress: Progress, database: Database) -> str | None:
    """
    Return why `progress` was not made from `database`, or None if it was.

    Raises:
        ShutOut: another server was promoted in its place.
    """
    if progress.timeline > database.timeline:
        raise ShutOut
    if progress.cursor == Cursor():
        return None
    if (
        progress.timeline < database.timeline
        and progress.lsn > database.left_at[progress.timeline]
    ):
        return COMMITS_LOST
    if progress.nonce not in {database.claim.nonce, database.claim.previous}:
        return PUT_BACK
    return None
