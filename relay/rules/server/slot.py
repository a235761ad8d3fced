"""Judge the state of a replication slot: whether to go on from it, and when to warn."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Self

from relay.rules.places.lsn import format_lsn, parse_lsn
from relay.rules.places.progress import ACCEPT, Cursor, LogPosition, Place
from relay.rules.places.snapshot import BEGINNING, Snapshot

PLUGIN = "pgoutput"

INIT = "dovecote init outbox --capture wal"

_SHARD = re.compile(r"_([0-9]+)_of_([0-9]+)$")


def accept(name: str) -> str:
    """Return the command that makes this slot anew, and gives up what the old one had not sent."""
    found = _SHARD.search(name)
    return f"{ACCEPT} --shard {found[1]}" if found else ACCEPT


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where the installed slot begins, as `dovecote init outbox` recorded it."""

    lsn: int
    before: Snapshot | None
    """The events committed by then. The table has their rows, and the log lacks them."""
    passed: Snapshot | None = None
    """
    The events committed by the time a gap was accepted. A relay that has not come from the table
    into the log yet publishes their rows; nobody publishes those that were in the log.
    """
    begins_in_table: bool = False
    """A relay without progress publishes these rows too, as if it went on from the lost slot."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A row of pg_replication_slots. None stands for a column that an older server lacks."""

    name: str
    plugin: str | None
    database: str | None
    confirmed: int | None
    restart: int | None
    wal_status: str | None
    invalidation: str | None
    failover: bool | None
    active_pid: int | None
    safe: int | None = None
    """Bytes that may still be written before the server drops the log that the slot needs."""

    @classmethod
    def from_catalog(cls, row: Mapping[str, Any]) -> Self:
        """Return the slot that a row, as JSON, describes; its columns differ between versions."""
        lsns = {
            name: None if row.get(column) is None else parse_lsn(row[column])
            for name, column in (("confirmed", "confirmed_flush_lsn"), ("restart", "restart_lsn"))
        }
        return cls(
            name=row["slot_name"],
            plugin=row.get("plugin"),
            database=row.get("database"),
            wal_status=row.get("wal_status"),
            invalidation=row.get("invalidation_reason"),
            failover=row.get("failover"),
            active_pid=row.get("active_pid"),
            safe=row.get("safe_wal_size"),
            **lsns,
        )

    @property
    def is_lost(self) -> bool:
        return self.wal_status == "lost" or self.invalidation is not None or self.restart is None


@dataclass(frozen=True, slots=True)
class Fault:
    """Why the relay must not go on, and what resolves it."""

    what: str
    resolve: str

    def __str__(self) -> str:
        return f"{self.what}; {self.resolve}"


def _missing(name: str, at: int) -> Fault:
    return Fault(
        f"replication slot {name} is missing: it was dropped, or a standby that did not have it "
        f"was promoted; events committed after {format_lsn(at)} cannot be read from the log",
        f"`{accept(name)}` makes a new one and goes on from there, without them",
    )


def _of_others(name: str, others: Collection[str]) -> Fault:
    """Return what to say if others have slots, and this relay has neither a slot nor progress."""
    found = _SHARD.search(min(others))
    shards = f"{found[2]} shards" if found else "one piece"
    return Fault(
        f"there is no replication slot {name}, but {', '.join(sorted(others))}: this outbox is "
        f"published in {shards}, and nothing of it was ever published under this `name`",
        "set `name`, `progress_topic` and `shards` to what its relays have",
    )


def mismatch(expected: str, state: str) -> Fault | None:
    """
    Return why a relay bound to one capture must not go on where events are read now, or None.
    """
    if expected == "table" and state != "table":
        return Fault(
            "events of this outbox are in the write-ahead log, not in the table",
            'set `capture = "auto"`, or run `dovecote init outbox --capture table`',
        )
    if expected == "wal" and state == "table":
        return Fault(
            "events of this outbox are in the table, not in the write-ahead log",
            f'set `capture = "auto"`, or run `{INIT}`',
        )
    return None


def fault(
    slot: Slot | None,
    name: str,
    database: str,
    beginning: Beginning,
    *,
    place: Place | None,
    others: Collection[str] = (),
) -> Fault | None:
    """
    Return what is wrong with the slot itself, or None; `place` is the place in progress.

    `others` are slots of this outbox for another number of shards.
    """
    if slot is None and place is None and others:
        # Accepting a gap makes the slots of all shards anew.
        return _of_others(name, others)
    if slot is None:
        # Published events are not missing, even if they too lie after the slot's beginning.
        return _missing(name, max(beginning.lsn, in_log(place)))
    if slot.plugin != PLUGIN or slot.database != database:
        return Fault(
            f"replication slot {name} is another one: plugin {slot.plugin}, database "
            f"{slot.database}",
            f"drop it, then `{accept(name)}`",
        )
    if slot.is_lost:
        why = slot.invalidation or "the log it needs was removed, see max_slot_wal_keep_size"
        return Fault(
            f"replication slot {name} was invalidated ({why}): the events it had not sent are "
            "lost to it",
            f"`{accept(name)}` makes a new one and goes on from there, without them",
        )
    return None


def place_fault(slot: Slot, beginning: Beginning, place: Place | None) -> Fault | None:
    """Return why a sound slot does not fit the place in progress, or None."""
    confirmed, published = slot.confirmed or 0, in_log(place)
    if isinstance(place, LogPosition) and published < beginning.lsn and beginning.before:
        return Fault(
            f"progress is at {place} of the log, and slot {slot.name} was made at "
            f"{format_lsn(beginning.lsn)}, after the log had been left for the table under "
            "another `name`",
            f"`{accept(slot.name)}` goes on with what is committed from then on",
        )
    if isinstance(place, LogPosition) and confirmed > max(published, beginning.lsn):
        return Fault(
            f"replication slot {slot.name} begins at {format_lsn(confirmed)}, beyond "
            f"what is published ({place}): somebody made it anew or moved it, and events "
            "in between cannot be read",
            f"`{accept(slot.name)}` makes a new one and goes on from there, without them",
        )
    if confirmed > max(published, beginning.lsn):
        return Fault(
            f"replication slot {slot.name} was read up to {format_lsn(confirmed)}, but there is "
            "no progress that says so: it was deleted, or another `name` read the slot",
            f"set `name` and `progress_topic` to what they were; or `{accept(slot.name)}`, which "
            "goes on with what is committed from then on",
        )
    known = beginning.before or beginning.passed
    if isinstance(place, Cursor) and published < beginning.lsn and known is None:
        return Fault(
            f"the progress of this outbox is that of the table, and slot {slot.name} was made "
            "without regard to the table",
            f"`{accept(slot.name)}` makes one that goes on after what the table holds, without "
            "what this one has not sent",
        )
    return None


def in_log(place: Place | None) -> int:
    """Return up to where the log is published, 0 if none of it is."""
    match place:
        case LogPosition():
            return place.lsn
        case Cursor():
            return place.log
        case None:
            return 0


def table_fault(began_at: int | None, place: Place | None) -> Fault | None:
    """Return why a relay must not go on in a table that was left for the log at `began_at`."""
    if place is None or (isinstance(place, Cursor) and place.log >= (began_at or 0)):
        return None
    return Fault(
        f"progress is at {place}, and since then events were in the write-ahead log and were "
        "published from there under another `name`",
        "give this relay the `name` and `progress_topic` of that time, or a `name` of its own, "
        "to publish what the table holds",
    )


def resume(beginning: Beginning, place: Place | None) -> Place:
    """Return where to go on if the slot is sound: in the table first, if that comes first."""
    if isinstance(place, LogPosition):
        # A beginning after progress is a gap that the operator has accepted.
        return place if place.lsn >= beginning.lsn else LogPosition(beginning.lsn)
    if place is None and beginning.before is None and not beginning.begins_in_table:
        return LogPosition(beginning.lsn)
    return place or Cursor(BEGINNING)


def entered(beginning: Beginning, cursor: Cursor, now: int) -> LogPosition:
    """
    Return where the log goes on after `cursor`, once everything before the slot is published.
    """
    # A relay of the table may have gone on after the slot was made; those rows come again. A relay
    # that left this slot's log goes on where it left.
    return LogPosition(max(beginning.lsn, cursor.log), 0, cursor.since, now)


@dataclass(frozen=True, slots=True)
class Budget:
    """How much of the log the slot may hold back, in bytes; None: any amount."""

    warn: int | None
    stop: int | None

    def warning(self, slot: Slot, retained: int) -> str | None:
        """Return a warning for the operator, or None while the slot holds back little."""
        if slot.wal_status == "unreserved":
            return (
                f"replication slot {slot.name} is about to be invalidated: it holds back "
                f"{retained:,} bytes, more than max_slot_wal_keep_size allows"
            )
        if self.warn is not None and retained > self.warn:
            return (
                f"replication slot {slot.name} holds back {retained:,} bytes of the write-ahead "
                f"log, more than wal.warn_bytes ({self.warn:,})"
            )
        return None

    def limit(self, slot: Slot, retained: int) -> int | None:
        """
        Return with how many bytes held back the slot is lost, or None: nobody sets a limit.

        The server has one with `max_slot_wal_keep_size`, and the relay with `wal.stop_bytes`.
        """
        server = None if slot.safe is None else retained + slot.safe
        return min((each for each in (self.stop, server) if each is not None), default=None)

    def is_spent(self, retained: int) -> bool:
        return self.stop is not None and retained > self.stop
