"""The place in the table or in the log where an outbox's old shards end and its new ones begin."""

import time
from collections.abc import Sequence

import psycopg

from outbox.schema import capture as outbox_capture
from outbox.schema import slots as outbox_slots
from relay.errors import Outage, Refused
from relay.postgres.capture.catalog import drop_left_slots, moment
from relay.postgres.capture.durable import write_through
from relay.postgres.capture.table import TableCapture
from relay.rules.places.progress import Cursor, LogPosition, Place
from relay.rules.places.snapshot import BEGINNING
from relay.rules.sharding import Shard
from relay.settings import RelaySettings

_PATIENCE = 5.0


def in_table(table: TableCapture, places: Sequence[Place], *, began_at: int) -> Cursor:
    """
    Return a place after all of `places` up to which every event is there to be published.

    Without any places, nothing in the log concerns the shards; the log's newest slot `began_at`.
    """
    cursors = [place for place in places if isinstance(place, Cursor)]
    snapshots = [each.until or each.since for each in cursors]
    end = table.end(max(snapshots, key=lambda each: each.xmax, default=BEGINNING))
    if len(cursors) < len(places):
        msg = (
            "a shard has not come back from the write-ahead log yet, or has published under "
            "another `name` meanwhile: start the relays with the old number of shards, and see "
            "what they say; nothing was changed"
        )
        raise Refused(msg)
    if not all(end.covers(each) for each in snapshots):
        # The shard's relay has published a commit that waits for a standby, and not every session
        # sees it yet.
        msg = (
            "Postgres: a commit that is published waits for a standby; try again when it has ended"
        )
        raise Outage(msg)
    return Cursor(end, log=max((each.log for each in cursors), default=began_at))


def in_log(conn: psycopg.Connection[tuple[object, ...]]) -> LogPosition:
    """Return a place after everything that is published; readers of the log soon hear of more."""
    end = moment(conn).lsn
    write_through(conn)
    return LogPosition(end)


def make_slots(
    conn: psycopg.Connection[tuple[object, ...]],
    settings: RelaySettings,
    source: Shard,
    after: Sequence[Shard],
) -> None:
    """
    Make a slot for each new shard, which begins where an old shard's slot stands: further back.
    """
    if len(after) == source.of:
        # An interrupted change that is taken back has not touched the slots.
        return
    base = outbox_capture.installed(conn, settings.schema_name).slot
    names = outbox_slots.slot_names(base, len(after))
    # The slots of an interrupted change still hold back the log.
    for name in set(names) & set(outbox_slots.existing(conn, base)):
        outbox_slots.drop(conn, name)
    held = outbox_slots.slot_name(base, source.number, source.of)
    outbox_slots.copy(settings.dsn, conn, held, names)


def drop_old_slots(
    conn: psycopg.Connection[tuple[object, ...]], schema: str, shard: Shard
) -> bool:
    """Drop the slots of other numbers of shards than `shard`'s; return False if one is in use."""
    # The server may take a moment to notice that its reader is gone.
    deadline = time.monotonic() + _PATIENCE
    while not (done := _dropped(conn, schema, shard)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return done


def _dropped(conn: psycopg.Connection[tuple[object, ...]], schema: str, shard: Shard) -> bool:
    try:
        return drop_left_slots(conn, schema, shard)
    except psycopg.errors.ObjectInUse:
        # Nobody was reading the slot when it was chosen, but somebody is now.
        return False
