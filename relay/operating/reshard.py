"""
Change the number of shards of an outbox whose relays have ended.

Each old shard is published up to one place, by a relay like any other. Then each new shard gets
progress there (in the log, a slot before that). Last, the change is recorded in the database,
which is when it happens. A failure before that leaves the old number in force, and the same
command finishes or repeats the change.
"""

import logging
import math
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import NamedTuple
from uuid import uuid4

import psycopg

from outbox import schema as outbox_schema
from outbox.schema import capture as outbox_capture
from outbox.schema import holds
from relay.errors import LeaseLost, Refused
from relay.health import Health, Trouble
from relay.kafka.progress_topic import ProgressTopic
from relay.kafka.publisher import Publisher
from relay.metrics import Metrics
from relay.operating import boundary
from relay.postgres.capture.catalog import look, outbox_id
from relay.postgres.capture.switching import SwitchingCapture
from relay.postgres.capture.table import TableCapture
from relay.postgres.capture.up_to import LogUpTo, UpTo
from relay.postgres.capture.wal import Timing
from relay.postgres.claims import Claim
from relay.postgres.connect import connect, explained, follow_indexes
from relay.postgres.desk import Desk
from relay.postgres.lease import Lease, role_of, try_lock
from relay.postgres.shard_count import RESHARD, change, in_force, settling
from relay.publishing import make_publisher
from relay.relay import Relay
from relay.rules.batch import Capture
from relay.rules.isolation import Isolation
from relay.rules.places.progress import Cursor, Origin, Place, Progress, at, refusal
from relay.rules.places.search import fence_key
from relay.rules.places.snapshot import BEGINNING
from relay.rules.sharding import Shard, divided
from relay.settings import RelaySettings

_log = logging.getLogger("dovecote.relay")

# Seconds that a broker may take to return progress.
_ANSWER = 10.0
_PATIENCE = 2.0

_OWNER = (
    "run it as a role that owns the schema, and has REPLICATION if events are in the write-ahead "
    "log: give its connection string as DOVECOTE_RELAY_DSN"
)


def reshard(settings: RelaySettings) -> bool:
    """
    Publish the outbox in `settings.shards` shards from now on; return whether that is new.

    Raises:
        Refused: a relay is active, or the outbox is on its way out of the write-ahead log.
        Outage: a server is away; nothing is lost, and nothing is changed yet.
        NotFree: another command changes the capture or the number of shards.
    """
    schema, name = settings.schema_name, settings.name
    after = divided(name, settings.shards)
    with (
        explained(schema, settings.dsn, advice=_OWNER),
        connect(settings.dsn, purpose="reshard") as conn,
    ):
        outbox_schema.require(conn, schema)
        follow_indexes(conn)
        # Until the end of the session, so that the capture does not change.
        holds.hold_soon(conn, schema, holds.CAPTURE)
        state = _settled_state(conn, schema)
        found = in_force(conn, schema, name)
        # In the log, an outbox begins with one slot, for one piece.
        first = after[0] if state == "table" else Shard(name)
        with settling(conn, schema, first, is_new=found is None):
            if found is None and first.of == len(after):
                return True
            found = found or first.of
            before = divided(name, found)
            _keep_out(conn, schema, [*before, *after])
            outbox = outbox_id(conn, schema)
            is_of = all(_is_of(settings.of(each), outbox, found) for each in before)
            is_new = len(after) != found or not is_of
            if is_new:
                _carry_over(conn, settings, before, after)
        if state == "wal" and not boundary.drop_old_slots(conn, schema, after[0]):
            _log.warning("slots of the old shards are in use; a running relay drops them")
        return is_new


def _settled_state(conn: psycopg.Connection[tuple[object, ...]], schema: str) -> str:
    """Return where events are; it must be one place."""
    state = outbox_capture.installed(conn, schema).state
    if state == "leaving":
        msg = (
            "the relays of this outbox are on their way from the write-ahead log into the table: "
            "start them with the old number of shards, and wait until `dovecote relay doctor` "
            "finds that events are read from the table; nothing was changed"
        )
        raise Refused(msg)
    return state


def _keep_out(
    conn: psycopg.Connection[tuple[object, ...]], schema: str, shards: Sequence[Shard]
) -> None:
    """Take the active role of every shard for the rest of the session."""
    # The session of a relay that has just ended may take a moment to disappear.
    deadline = time.monotonic() + _PATIENCE
    for name in dict.fromkeys(shard.name for shard in shards):
        while not try_lock(conn, role_of(schema, name)):
            if time.monotonic() < deadline:
                time.sleep(0.1)
                continue
            msg = (
                f"a relay publishes {name!r}: end all relays of this outbox, then run "
                f"`{RESHARD}` again; nothing was changed"
            )
            raise Refused(msg)


def _is_of(settings: RelaySettings, outbox: str, shards: int) -> bool:
    """
    Return whether a shard's progress is for `shards` shards; a change may have been interrupted.
    """
    topic = _topic(settings)
    progress = topic.peek(settings.name, outbox) if topic.exists() else None
    return progress is None or progress.shards == shards


class Ending(NamedTuple):
    """The place where the old shards end, and its database."""

    origin: Origin
    place: Place
    is_old: bool
    """The shard that begins there has the name of one that ends there."""


def _fenced(role: Lease, settings: RelaySettings, origin: Origin) -> Progress | None:
    """
    Return a shard's progress, once no relay that does not know of us can publish it any more.
    """
    topic, claim = _topic(settings), Claim(role.conn, settings.schema_name, settings.name)
    topic.ensure(lambda: claim.require_none(origin, topic.name))
    with closing(_publisher(settings, origin)) as own:
        progress = _read_fenced(role, own, settings, origin)
    if progress is not None and (reason := claim.misfit(progress, claim.read(origin))):
        raise Refused(outbox_schema.about(settings.schema_name, reason))
    return progress


def _read_fenced(
    role: Lease, own: Publisher, settings: RelaySettings, origin: Origin
) -> Progress | None:
    own.open()
    # A relay that had the role while this process was paused is fenced now, and has gone further.
    role.require_at(origin.instance)
    fence = uuid4().hex
    own.mark(fence_key(settings.name, origin.outbox), fence)
    return _topic(settings).read(settings.name, origin.outbox, fence=fence)


def _topic(settings: RelaySettings) -> ProgressTopic:
    return ProgressTopic(settings.progress_topic, settings.kafka, timeout=_ANSWER)


def _publisher(settings: RelaySettings, origin: Origin) -> Publisher:
    isolation = Isolation(settings.batch_rows)
    return make_publisher(
        settings,
        origin.outbox,
        isolation,
        threading.Event(),
        slow=_log.warning,
        require_role=lambda: None,
    )


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
    schema = settings.schema_name
    _require_none_parked(conn, schema, before)
    installed = outbox_capture.installed(conn, schema)
    end: Place
    # Nobody keeps this lease: a command may wait for long, and checks before it writes.
    role = Lease(conn, math.inf)
    with closing(_table(settings, None, settings.batch_rows)) as table:
        role.require_at(table.instance)
        if installed.state == "table":
            table.require_own_events()
        origin = table.origin()
        known = [_fenced(role, settings.of(shard), origin) for shard in before]
        if installed.state == "table":
            began_at = look(conn, schema, before[0]).began_at or 0
            places = [each.cursor for each in known if each]
            end = boundary.in_table(table, places, began_at=began_at)
        else:
            end = boundary.in_log(conn)
        # Asked again, since what lies after this place in the log must lie after the end.
        origin = table.origin()
    for shard in before:
        _log.info("publishing %s up to %s", shard, end)
        _publish_up_to(conn, settings, shard, end)
    _require_none_parked(conn, schema, before)
    if installed.state != "table":
        boundary.make_slots(conn, settings, before[0], after)
    old = {shard.name for shard in before}
    for shard in after:
        ending = Ending(origin, end, is_old=shard.name in old)
        _begin(role, settings.of(shard), shard, ending)
    # Rows of the table do not matter to readers of the log, but to the relays that empty leaves.
    published = end.since if isinstance(end, Cursor) else BEGINNING
    change(conn, schema, before, after, published=published)


def _require_none_parked(
    conn: psycopg.Connection[tuple[object, ...]], schema: str, shards: Sequence[Shard]
) -> None:
    """Check that no key is held: the next relay to publish it would not know of that."""
    parked = sum(Desk(conn, schema, shard.name).count() for shard in shards)
    if parked:
        msg = (
            f"{parked} events are parked: start the relays with the old number of shards, run "
            f"`dovecote relay parked` to requeue or drop them, and `{RESHARD}` again; nothing was "
            "changed"
        )
        raise Refused(msg)


def _publish_up_to(
    conn: psycopg.Connection[tuple[object, ...]],
    settings: RelaySettings,
    shard: Shard,
    end: Place,
) -> None:
    """Publish the rest of a shard; this fences a relay of it that does not know of its end."""
    reached = threading.Event()

    def opened(batch_rows: int) -> Capture:
        if isinstance(end, Cursor):
            return UpTo(_table(settings, shard, batch_rows), end, reached)
        return LogUpTo(_log_up_to(settings, shard, batch_rows, end.lsn), end, reached)

    relay = Relay(
        settings.of(shard),
        shard,
        trouble=Trouble(Health()),
        metrics=Metrics(shard.name),
        open_capture=opened,
    )
    relay.be_active(Lease(conn, settings.lease.total_seconds()), reached)


def _log_up_to(
    settings: RelaySettings, shard: Shard, batch_rows: int, end: int
) -> SwitchingCapture:
    timing = Timing(settings.lease.total_seconds(), settings.wal.heartbeat.total_seconds())
    return SwitchingCapture(
        settings.dsn,
        settings.schema_name,
        shard,
        batch_rows=batch_rows,
        batch_bytes=settings.batch_bytes,
        timing=timing,
        end=end,
    )


def _begin(role: Lease, settings: RelaySettings, shard: Shard, ending: "Ending") -> None:
    """Give a new shard its progress, whatever a former shard of this name had."""
    topic, claim = _topic(settings), Claim(role.conn, settings.schema_name, settings.name)
    origin, place = ending.origin, ending.place
    topic.ensure()
    with role.undisputed():
        # For progress that was given up, only its origin matters.
        _require_own(topic.peek(settings.name, origin.outbox), settings, origin)
    with closing(_publisher(settings, origin)) as own:
        found = _read_fenced(role, own, settings, origin)
        _require_own(found, settings, origin)
        if ending.is_old and (found is None or found.cursor != place):
            where = "nowhere" if found is None else found.cursor
            msg = f"{settings.name!r} was published up to {place}, and stands at {where} by now"
            raise LeaseLost(msg)
        progress = at(settings.name, origin, place, shards=shard.of)
        term = claim.take(claim.read(origin), topic.cluster(), found, begins=progress)
        nonce = term.nonce(place, origin.lsn)
        own.publish([], replace(progress, term=term.number, nonce=nonce))
    claim.begin()


def _require_own(found: Progress | None, settings: RelaySettings, origin: Origin) -> None:
    if found is None:
        return
    timeline = max(found.timeline, origin.timeline)
    if reason := refusal(replace(found, timeline=timeline), origin):
        raise Refused(outbox_schema.about(settings.schema_name, reason))
