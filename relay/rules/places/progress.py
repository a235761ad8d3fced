"""The contents of a relay's progress record, and whether to believe it."""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self, TypeAlias

from relay.rules.places.instance import Instance
from relay.rules.places.lsn import format_lsn, parse_lsn
from relay.rules.places.snapshot import BEGINNING, Snapshot

_FORMAT = 1
_ENCODER = json.JSONEncoder(separators=(",", ":"))

# The most topics in a progress record; more would make it large.
_MOST_TOPICS = 100

_WAY_OUT = (
    "`dovecote relay reconcile` reports what is missing where, and goes on with "
    "`--accept-restored`"
)

ACCEPT = "dovecote init outbox --capture wal --accept-gap"
"""The command that makes the slot anew: later events are captured, and the rest is given up."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """
    A place in the stream of committed events.

    `since` is the last snapshot whose events are all published. While a window is under way,
    `until` is its other end and `position` the last published position within it.
    """

    since: Snapshot = BEGINNING
    until: Snapshot | None = None
    position: int = 0
    log: int = 0
    """How far the write-ahead log was published when it was last left for the table; 0: never."""

    def __str__(self) -> str:
        """Return it in the form for a log message."""
        if self.until is not None:
            return f"position {self.position} on the way from {self.since} to {self.until}"
        return "the beginning" if self.since == BEGINNING else f"snapshot {self.since}"


@dataclass(frozen=True, slots=True)
class LogPosition:
    """
    A place in the write-ahead log.

    Every transaction whose commit record begins before `lsn` is published, and the first `index`
    events of the transaction whose commit begins there.
    """

    lsn: int
    index: int = 0
    seen: Snapshot | None = None
    """Rows that this snapshot sees were published from the table, and come again in the log …"""
    seen_to: int = 0
    """… before this position."""

    def __str__(self) -> str:
        """Return it in the form for a log message."""
        lsn = format_lsn(self.lsn)
        return f"{lsn}, {self.index} events into its transaction" if self.index else lsn


Place: TypeAlias = Cursor | LogPosition
"""The place that a relay has reached: in the table, or in the write-ahead log."""


class Newest(NamedTuple):
    """
    An event or transaction that a database lacks if it was restored to an earlier state.

    In the table it is the position and id of an event of the newest transaction; in the log, where
    the newest transaction committed and which one it was.
    """

    at: int
    which: str


@dataclass(frozen=True, slots=True)
class Origin:
    """The outbox and the database server that events come from."""

    system_identifier: str
    database: int
    """The database's oid; a restored dump has another one."""
    schema: int
    """The schema's oid."""
    timeline: int
    """0: the server does not report it."""
    lsn: str
    snapshot: Snapshot
    """The transactions that the server sees now: progress can't lie ahead of them."""
    outbox: str = ""
    """The outbox's own id, which a dump contains."""
    started: int = 0
    """When the server that reported all this was started, see `instance`."""

    @property
    def instance(self) -> Instance:
        """The running server that this is."""
        return Instance(self.system_identifier, self.started)


@dataclass(frozen=True, slots=True)
class Progress:
    """The newest committed progress record of one outbox."""

    name: str
    capture: str
    cursor: Place
    system_identifier: str
    database: int
    schema: int
    timeline: int
    lsn: str
    shards: int = 1
    parked: int = 0
    """The highest number of a parked event that this progress passes."""
    last_command: int = 0
    """The newest command by which parked events were requeued …"""
    requeued: int = 0
    """… and the highest number among its events that are published."""
    outbox: str = ""
    """The outbox's own id."""
    term: int = 0
    """
    How many times a relay had taken over. The record with the higher term counts.
    """
    nonce: str = ""
    """One of the last two that the database has for this name, unless it was restored."""
    topics: tuple[str, ...] = ()
    """
    The topics of published events, if they are few; a restored database is compared with these.
    """
    newest: Newest | None = None
    """Published since the nonce was written, and in the database unless that was restored."""

    @property
    def key(self) -> bytes:
        """The key of the progress record."""
        return key_of(self.name, self.outbox)

    @property
    def reached(self) -> int:
        """The end of the log that holds the commits of everything published."""
        match self.cursor:
            case LogPosition(lsn=lsn, seen_to=seen_to):
                return max(lsn, seen_to)
            case Cursor() as cursor:
                return 0 if cursor == Cursor() else parse_lsn(self.lsn)

    def encode(self) -> bytes:
        """Return the value of the progress record."""
        # Not asdict(), which makes copies: this runs for each batch, and twice for some.
        held = {name: getattr(self, name) for name in self.__slots__}
        fields = {"format": _FORMAT, **held, "cursor": _written(self.cursor)}
        return _ENCODER.encode(fields).encode()

    @classmethod
    def decode(cls, value: bytes) -> Self:
        """
        Return the progress in a record's value.

        Raises:
            ValueError: this version does not understand the value.
        """
        msg = f"not a progress record: {value[:200]!r}"
        try:
            fields = json.loads(value)
            form = fields.pop("format")
        except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
            raise ValueError(msg) from error
        if form != _FORMAT:
            msg = f"progress record of another format: {value[:200]!r}"
            raise ValueError(msg)
        try:
            cursor, newest = fields.pop("cursor"), fields.pop("newest", None)
            topics = tuple(fields.pop("topics", ()))
            place = _READERS[fields["capture"]](cursor)
            newest = None if newest is None else Newest(*newest)
            return cls(cursor=place, newest=newest, topics=topics, **fields)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(msg) from error


def _written(place: Place) -> dict[str, object]:
    match place:
        case Cursor():
            return {
                "since": str(place.since),
                "until": None if place.until is None else str(place.until),
                "position": place.position,
                "log": format_lsn(place.log),
            }
        case LogPosition():
            return {
                "lsn": format_lsn(place.lsn),
                "index": place.index,
                "seen": None if place.seen is None else str(place.seen),
                "seen_to": format_lsn(place.seen_to),
            }


def _read_cursor(cursor: Mapping[str, Any]) -> Cursor:
    until = cursor["until"]
    return Cursor(
        Snapshot.parse(cursor["since"]),
        None if until is None else Snapshot.parse(until),
        int(cursor["position"]),
        parse_lsn(cursor.get("log", "0/0")),
    )


def _read_log_position(cursor: Mapping[str, Any]) -> LogPosition:
    seen = cursor["seen"]
    return LogPosition(
        parse_lsn(cursor["lsn"]),
        int(cursor["index"]),
        None if seen is None else Snapshot.parse(seen),
        parse_lsn(cursor["seen_to"]),
    )


_READERS: Mapping[str, Callable[[Mapping[str, Any]], Place]] = {
    "table": _read_cursor,
    "wal": _read_log_position,
}


def at(
    name: str,
    origin: Origin,
    cursor: Place,
    *,
    shards: int = 1,
    last: Progress | None = None,
    parked: int = 0,
    newest: Newest | None = None,
) -> Progress:
    """
    Return the progress of outbox `name` when everything up to `cursor` is published or parked.

    The commands in `last` stay in force; `parked` is the highest number of a parked event.
    """
    capture = "table" if isinstance(cursor, Cursor) else "wal"
    if newest is None and last is not None and last.capture == capture:
        newest = last.newest
    return Progress(
        name=name,
        capture=capture,
        cursor=cursor,
        system_identifier=origin.system_identifier,
        database=origin.database,
        schema=origin.schema,
        timeline=origin.timeline,
        lsn=origin.lsn,
        shards=shards,
        parked=max(parked, last.parked if last else 0),
        last_command=last.last_command if last else 0,
        requeued=last.requeued if last else 0,
        outbox=origin.outbox,
        newest=newest,
        topics=last.topics if last else (),
    )


def widened(known: tuple[str, ...], topics: Collection[str]) -> tuple[str, ...]:
    """Return the `known` topics and the others, of which the newest stay."""
    if not (new := set(topics).difference(known)):
        return known
    return (*known, *sorted(new))[-_MOST_TOPICS:]


def key_of(name: str, outbox: str) -> bytes:
    """Return the key of an outbox's progress records: no other program has it by chance."""
    return f"{name}/{outbox}".encode() if outbox else name.encode()


@dataclass(frozen=True, slots=True)
class Lag:
    """
    The events of the table and the bytes of the log (if it is read) that wait after progress.
    """

    rows: int = 0
    seconds: float = 0.0
    bytes: int | None = None


def refusal(progress: Progress, origin: Origin, shared: int | None = None) -> str | None:
    """
    Return why this database must not go on from `progress`, or None if it may.

    If progress was made on an earlier timeline, `shared` is the end of this server's log of that
    timeline, None if we cannot find it out.
    """
    if reason := origin_refusal(progress, origin):
        return reason
    # 0: not reported, by the server of that time or by this one.
    is_reported = progress.timeline > 0 and origin.timeline > 0
    if (
        is_reported
        and progress.timeline != origin.timeline
        and (reason := _timeline_refusal(progress, origin, shared))
    ):
        return reason
    if ahead := _ahead(progress.cursor, origin):
        return (
            f"the progress of outbox {progress.name!r} lies ahead of this server ({ahead}): it "
            "was restored to an earlier point, and events may be published that it no longer "
            f"has; {_WAY_OUT}"
        )
    return None


def origin_refusal(progress: Progress, origin: Origin) -> str | None:
    """Return why `progress` belongs to another outbox, or None if it is this one's."""
    if progress.system_identifier != origin.system_identifier:
        return (
            f"the progress of outbox {progress.name!r} was made by another database server "
            f"(system identifier {progress.system_identifier}, here {origin.system_identifier}); "
            "if this is a clone or a restored dump, give its relay a `name` of its own, "
            "so that it can't fence the original"
        )
    if (progress.database, progress.schema) != (origin.database, origin.schema):
        return (
            f"the progress of outbox {progress.name!r} was made by another database or schema of "
            "this server (one was dropped and made again, or two outboxes share a name); give "
            "this relay a `name` of its own"
        )
    if progress.outbox != origin.outbox:
        return (
            f"the progress of outbox {progress.name!r} was made by an outbox with the id "
            f"{progress.outbox or 'of an earlier version'}, and the one in this database has the "
            f"id {origin.outbox}: it was dropped and made again, or two outboxes share a name; "
            "give this relay a `name` of its own"
        )
    return None


def _timeline_refusal(progress: Progress, origin: Origin, shared: int | None) -> str | None:
    """Return why a server on another timeline must not go on from `progress`."""
    if progress.timeline > origin.timeline:
        return (
            f"the progress of outbox {progress.name!r} is of timeline {progress.timeline}, this "
            f"server is on timeline {origin.timeline}: another server was promoted in its place; "
            "connect to that one"
        )
    reached = progress.reached
    if shared is not None and reached > shared:
        return (
            f"commits were lost: the progress of outbox {progress.name!r} is of timeline "
            f"{progress.timeline} and reaches to {format_lsn(reached)}, and this server was "
            f"promoted or restored to timeline {origin.timeline} with no more of it than "
            f"{format_lsn(shared)}. Events may be published that it does not have, and new "
            f"transactions may have the numbers of lost ones; {_WAY_OUT}"
        )
    if shared is None and reached > 0:
        return (
            f"the progress of outbox {progress.name!r} is of timeline {progress.timeline}, this "
            f"server was promoted to timeline {origin.timeline}, and only a role with REPLICATION "
            "can learn now whether commits were lost: give the relay's role REPLICATION until it "
            f"has started once; or {_WAY_OUT}"
        )
    return None


def _ahead(place: Place, origin: Origin) -> str | None:
    """Return how far `place` lies ahead of the server's state, or None."""
    if isinstance(place, LogPosition):
        if place.lsn <= parse_lsn(origin.lsn):
            return None
        return f"position {format_lsn(place.lsn)}, the server is at {origin.lsn}"
    newest = place.until or place.since
    if newest.xmax <= origin.snapshot.xmax:
        return None
    return f"transaction {newest.xmax}, the server is at {origin.snapshot.xmax}"
