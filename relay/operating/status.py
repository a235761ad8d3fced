"""An outbox's state, as seen from outside: progress in Kafka, lag and relays in Postgres."""

import threading
from dataclasses import dataclass

from dovecote.process.states import MINUTE, State
from dovecote.process.topics import KafkaAway, topics
from outbox import schema as outbox_schema
from relay.errors import Outage
from relay.kafka.progress_topic import ProgressTopic
from relay.postgres.capture.catalog import look
from relay.postgres.capture.lag import lag_of
from relay.postgres.connect import connect, explained
from relay.postgres.desk import Desk
from relay.postgres.lease import active, role_of
from relay.postgres.shard_count import require_noted
from relay.rules.condition import OutsideSeen, outside
from relay.rules.places.progress import Cursor, LogPosition
from relay.rules.sharding import Shard
from relay.settings import RelaySettings

# Seconds between two looks at the progress of a relay that is late.
_AGAIN = 2.0


@dataclass(frozen=True, slots=True)
class Status:
    """
    One look at an outbox.

    If events are read from the table, the lag is in events (counted up to 100,000) and seconds. If
    they are read from the write-ahead log, it is in bytes of the log, of all writers. It is in
    both while the events in the table are still to be published first.
    """

    name: str
    active: str | None
    """The address of the active relay, None if there is none."""
    since: str
    """The snapshot, or the position in the log, up to which everything is published."""
    lag_rows: int | None = None
    lag_seconds: float | None = None
    lag_bytes: int | None = None
    parked: int = 0
    """Events that cannot be published, and events that wait for those."""
    state: State = State.UNKNOWN
    reason: str = ""


def status(
    settings: RelaySettings, shard: Shard | None = None, *, timeout: float = 10.0
) -> Status:
    """
    Return the state of the outbox that `settings` name, or of one shard of it.

    Raises:
        Outage: Kafka or Postgres does not answer.
        SchemaMissing: the outbox is not installed.
        Refused: the outbox is published in another number of shards.
    """
    whole = shard or Shard(settings.name, of=settings.shards)
    if shard is not None:
        settings = settings.of(shard)
    try:
        topics(settings.kafka, timeout=timeout)
    except KafkaAway as error:
        raise Outage(str(error)) from error
    topic = ProgressTopic(settings.progress_topic, settings.kafka, timeout=timeout)
    progress = topic.peek(settings.name) if topic.exists() else None
    place = progress.cursor if progress else Cursor()
    schema, dsn = settings.schema_name, settings.dsn
    with explained(schema, dsn), connect(dsn, purpose="status") as conn:
        outbox_schema.require(conn, schema)
        require_noted(conn, schema, whole)
        parked = Desk(conn, schema, settings.name).count()
        holder = active(conn, role_of(schema, settings.name))
        lag = lag_of(conn, schema, shard, place)
        slot = look(conn, schema, whole).slot
    is_log = isinstance(place, LogPosition)
    moved = True
    if holder is not None and lag.rows and lag.seconds > MINUTE:
        # Only a second look shows whether a relay that is late goes on.
        threading.Event().wait(_AGAIN)
        again = topic.peek(settings.name)
        moved = again is None or again.cursor != place
    state, reason = outside(
        OutsideSeen(
            active=holder is not None,
            moved=moved,
            slot_lost=is_log and (slot is None or slot.is_lost),
            lag_rows=0 if is_log else lag.rows,
            lag_seconds=lag.seconds,
            behind_after=settings.behind_after.total_seconds(),
            lag_bytes=lag.bytes or 0 if is_log else 0,
            warn_bytes=settings.wal.warn_bytes,
            parked=parked,
        )
    )
    since = str(place if isinstance(place, LogPosition) else place.since)
    rows = None if isinstance(place, LogPosition) else lag.rows
    seconds = None if rows is None else round(lag.seconds, 3)
    return Status(settings.name, holder, since, rows, seconds, lag.bytes, parked, state, reason)
