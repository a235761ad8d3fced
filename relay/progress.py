"""How far a relay has come: what its progress record says, and whether to believe it."""

import json
from dataclasses import asdict, dataclass
from typing import Self

from relay.snapshot import BEGINNING, Snapshot

_FORMAT = 1


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

    def __str__(self) -> str:
        """Return it as a log tells it."""
        if self.until is not None:
            return f"position {self.position} on the way from {self.since} to {self.until}"
        return "the beginning" if self.since == BEGINNING else f"snapshot {self.since}"


@dataclass(frozen=True, slots=True)
class Origin:
    """Which outbox of which database server events come from."""

    system_identifier: str
    database: int
    """The database's oid: a restored dump is another one."""
    schema: int
    """The schema's oid."""
    timeline: int
    lsn: str
    snapshot: Snapshot
    """What the server sees now: progress can't lie ahead of it."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The newest committed progress record of one outbox."""

    name: str
    capture: str
    cursor: Cursor
    system_identifier: str
    database: int
    schema: int
    timeline: int
    lsn: str
    shards: int = 1
    last_command: int = 0

    def encode(self) -> bytes:
        """Return the value of the progress record."""
        fields = asdict(self)
        fields["cursor"] = {
            "since": str(self.cursor.since),
            "until": None if self.cursor.until is None else str(self.cursor.until),
            "position": self.cursor.position,
        }
        return json.dumps({"format": _FORMAT, **fields}, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, value: bytes) -> Self:
        """
        Return the progress that a record's value holds.

        Raises:
            ValueError: it holds none that this version understands.
        """
        msg = f"not a progress record: {value[:200]!r}"
        try:
            fields = json.loads(value)
            form = fields.pop("format")
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(msg) from error
        if form != _FORMAT:
            msg = f"progress record of another format: {value[:200]!r}"
            raise ValueError(msg)
        try:
            cursor = fields.pop("cursor")
            until = cursor["until"]
            place = Cursor(
                Snapshot.parse(cursor["since"]),
                None if until is None else Snapshot.parse(until),
                int(cursor["position"]),
            )
            return cls(cursor=place, **fields)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(msg) from error


def start(name: str, origin: Origin) -> Progress:
    """Return the progress of an outbox of which nothing was published yet."""
    return at(name, origin, Cursor())


def at(name: str, origin: Origin, cursor: Cursor) -> Progress:
    """Return the progress of outbox `name` when everything up to `cursor` is published."""
    return Progress(
        name=name,
        capture="table",
        cursor=cursor,
        system_identifier=origin.system_identifier,
        database=origin.database,
        schema=origin.schema,
        timeline=origin.timeline,
        lsn=origin.lsn,
    )


def refusal(progress: Progress, origin: Origin) -> str | None:
    """Return why this database must not go on from `progress`, or None if it may."""
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
    newest = progress.cursor.until or progress.cursor.since
    if newest.xmax > origin.snapshot.xmax:
        return (
            f"the progress of outbox {progress.name!r} lies ahead of this server (transaction "
            f"{newest.xmax}, the server is at {origin.snapshot.xmax}): it was restored to an "
            "earlier point, and events may be published that it no longer has; give this relay "
            "a `name` of its own to publish everything it holds again"
        )
    return None
