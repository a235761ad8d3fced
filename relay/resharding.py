"""
Change the number of shards of an outbox whose relays have ended.

Each old shard is published up to one snapshot, by a relay like any other; then each new one gets
progress there, and last the database is told, which is when the change happens. Whatever fails
before leaves the old number in force, and the same command finishes or repeats it.
"""

import logging
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace

import psycopg

from outbox import schema as outbox_schema
from relay.capture.table import TableCapture
from relay.capture.up_to import UpTo
from relay.claims import claims
from relay.errors import Outage, Refused
from relay.health import Health
from relay.isolation import Isolation
from relay.lease import Lease, lock_key, try_lock
from relay.loop import Relay
from relay.metrics import Metrics
from relay.parked_requests import Desk
from relay.postgres import connect, first_line, follow_indexes
from relay.progress import Cursor, Origin, Place, Progress, at, refusal
from relay.progress_topic import ProgressTopic
from relay.publisher import Publisher
from relay.publishers import make_publisher
from relay.settings import RelaySettings
from relay.shard_count import LOG_HAS_ONE, RESHARD, change, in_force, settle
from relay.sharding import Shard, divided
from relay.snapshot import BEGINNING
from relay.trouble import Trouble

_log = logging.getLogger("dovecote.relay")

# How long a broker may take to say where progress stands.
_ANSWER = 10.0
_PATIENCE = 2.0


def reshard(settings: RelaySettings) -> bool:
    """
    Publish the outbox in `settings.shards` shards from now on; return whether that is new.

    Raises:
        Refused: a relay is active, or the outbox is read from the write-ahead log.
        Outage: a server is away; nothing is lost, and nothing is changed yet.
    """
    schema, name = settings.schema_name, settings.name
    after = divided(name, settings.shards)
    try:
        with connect(settings.dsn, purpose="reshard") as conn:
            outbox_schema.require(conn, schema)
            follow_indexes(conn)
            found = in_force(conn, schema, name)
            if found is None:
                settle(conn, schema, after[0])
                return True
            before = divided(name, found)
            _keep_out(conn, schema, [*before, *after])
            if len(after) == found and all(_is_of(settings.of(each), found) for each in before):
                return False
            _carry_over(conn, settings, before, after)
    except psycopg.OperationalError as error:
        msg = f"Postgres: {first_line(error)}"
        raise Outage(msg) from error
    return True


def _keep_out(
    conn: psycopg.Connection[tuple[object, ...]], schema: str, shards: Sequence[Shard]
) -> None:
    """Take the active role of every shard, for the rest of the session."""
    # The session of a relay that has just ended may take a moment to be gone.
    deadline = time.monotonic() + _PATIENCE
    for name in dict.fromkeys(shard.name for shard in shards):
        while not try_lock(conn, lock_key(schema, name)):
            if time.monotonic() < deadline:
                time.sleep(0.1)
                continue
            msg = (
                f"a relay publishes {name!r}: end all relays of this outbox, then run "
                f"`{RESHARD}` again; nothing was changed"
            )
            raise Refused(msg)


def _is_of(settings: RelaySettings, shards: int) -> bool:
    """Tell whether the progress of a shard is that of so many: not if a change was interrupted."""
    topic = _topic(settings)
    progress = topic.peek(settings.name) if topic.exists() else None
    return progress is None or progress.shards == shards


def _fenced(settings: RelaySettings) -> Progress | None:
    """Return where a shard stands, once nobody can publish it any more who does not know of us."""
    topic = _topic(settings)
    topic.ensure()
    with closing(_publisher(settings)) as own:
        own.open()
    return topic.read(settings.name)


def _topic(settings: RelaySettings) -> ProgressTopic:
    return ProgressTopic(settings.progress_topic, settings.kafka, timeout=_ANSWER)


def _publisher(settings: RelaySettings) -> Publisher:
    isolation = Isolation(settings.batch_rows)
    return make_publisher(settings, isolation, threading.Event(), _log.warning)


def _table(settings: RelaySettings, shard: Shard | None, batch_rows: int) -> TableCapture:
    return TableCapture(
        settings.dsn,
        settings.schema_name,
        shard,
        batch_rows=batch_rows,
        batch_bytes=settings.batch_bytes,
    )


def _carry_over(
    conn: psycopg.Connection[tuple[object, ...]],
    settings: RelaySettings,
    before: Sequence[Shard],
    after: Sequence[Shard],
) -> None:
    _require_none_parked(conn, settings.schema_name, before)
    known = [_fenced(settings.of(shard)) for shard in before]
    with closing(_table(settings, None, settings.batch_rows)) as table:
        end, origin = _end(table, [each.cursor for each in known if each]), table.origin()
    for shard in before:
        _log.info("publishing %s up to %s", shard, end)
        _publish_up_to(conn, settings, shard, end)
    _require_none_parked(conn, settings.schema_name, before)
    for shard in after:
        own = settings.of(shard)
        _begin(own, origin, end, shard)
        with claims(own.dsn, own.schema_name, own.name) as claim:
            claim.note(origin)
    change(conn, settings.schema_name, before, after, published=end.since)


def _require_none_parked(
    conn: psycopg.Connection[tuple[object, ...]], schema: str, shards: Sequence[Shard]
) -> None:
    """Check that no key waits: who would publish it next would not know of that."""
    parked = sum(Desk(conn, schema, shard.name).count() for shard in shards)
    if parked:
        msg = (
            f"{parked} events are parked: start the relays with the old number of shards, run "
            f"`dovecote parked` to requeue or drop them, and `{RESHARD}` again; nothing was "
            "changed"
        )
        raise Refused(msg)


def _end(table: TableCapture, places: Sequence[Place]) -> Cursor:
    """Return a place behind all of `places`, up to which all events are there to be published."""
    cursors = [place for place in places if isinstance(place, Cursor)]
    snapshots = [each.until or each.since for each in cursors]
    end = table.end(max(snapshots, key=lambda each: each.xmax, default=BEGINNING))
    if table.is_left or len(cursors) < len(places):
        raise Refused(LOG_HAS_ONE)
    if not all(end.covers(each) for each in snapshots):
        # A commit that waits for a standby is published by one, and not seen by all yet.
        msg = (
            "Postgres: a commit that is published waits for a standby; try again when it has ended"
        )
        raise Outage(msg)
    return Cursor(end, log=max((each.log for each in cursors), default=0))


def _publish_up_to(
    conn: psycopg.Connection[tuple[object, ...]],
    settings: RelaySettings,
    shard: Shard,
    end: Cursor,
) -> None:
    """Publish what is left of a shard; fences a relay of it that has not heard of its end."""
    reached = threading.Event()

    def opened(batch_rows: int) -> UpTo:
        return UpTo(_table(settings, shard, batch_rows), end, reached)

    relay = Relay(
        settings.of(shard),
        shard,
        trouble=Trouble(Health()),
        metrics=Metrics(shard.name),
        open_capture=opened,
    )
    relay.be_active(Lease(conn, settings.lease.total_seconds()), reached)


def _begin(settings: RelaySettings, origin: Origin, place: Cursor, shard: Shard) -> None:
    """Give a new shard its progress, whatever it was when there was one of this name before."""
    topic = _topic(settings)
    topic.ensure()
    found = topic.peek(settings.name)
    # Of one that was given up only matters whose it was.
    if found and (reason := refusal(replace(found, timeline=origin.timeline), origin)):
        raise Refused(reason)
    with closing(_publisher(settings)) as own:
        own.open()
        own.publish([], at(settings.name, origin, place, shards=shard.of))
