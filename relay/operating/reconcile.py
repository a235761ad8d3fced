"""
Go on with a restored database or with another cluster, without losing or repeating events.

Without the operator's consent nothing is changed; the command only reports what it would do. With
it, the shard's relay publishes from the mark on, as it would have then, but skips events that are
already in Kafka. Meanwhile its progress forbids other relays to go on from it, so a failed run is
repeated.
"""

import logging
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from uuid import UUID, uuid4

import psycopg
from psycopg import sql

from outbox import schema as outbox_schema
from outbox.schema import about
from outbox.schema import capture as outbox_capture
from relay.errors import Refused
from relay.health import Health, Trouble
from relay.kafka.looking_back import LookingBack
from relay.kafka.progress_topic import ProgressTopic
from relay.kafka.publisher import Publisher
from relay.metrics import Metrics
from relay.postgres.capture.switching import SwitchingCapture
from relay.postgres.capture.wal import Timing
from relay.postgres.claims import Claim, Term
from relay.postgres.connect import connect, explained
from relay.postgres.lease import Lease, role_of, try_lock
from relay.postgres.parked import ParkedStore
from relay.postgres.shard_count import settle
from relay.postgres.timeline import shared
from relay.relay import Relay
from relay.rules.batch import Batch, Capture, Leave
from relay.rules.places.fit import RECONCILE, UNFINISHED, Held, cluster_refusal
from relay.rules.places.lsn import parse_lsn
from relay.rules.places.progress import (
    Cursor,
    LogPosition,
    Origin,
    Place,
    Progress,
    origin_refusal,
    refusal,
)
from relay.rules.places.search import fence_key
from relay.rules.reconciliation import Account, Doubts, Sent, account
from relay.rules.sharding import Shard, shard_of
from relay.settings import RelaySettings

_log = logging.getLogger("dovecote.relay")

_ANSWER = 10.0
# A relay that a supervisor restarts again and again has the role for a moment each time.
_PATIENCE = 20.0
# How far the clocks of relays may differ, in milliseconds; and the margin after a change of the
# cluster, because services may set the times of their events.
_MARGIN, _LONG_MARGIN = 120_000, 86_400_000
_CHUNK = 10_000


@dataclass(frozen=True, slots=True)
class Accepted:
    """The operator's consent; without any, the command only reports."""

    restored: bool = False
    cluster: bool = False

    def __bool__(self) -> bool:
        return self.restored or self.cluster


@dataclass(frozen=True, slots=True)
class Reconciled:
    """The report or the result for one shard."""

    name: str
    done: bool
    reason: str | None
    """Why its relay does not go on by itself; None: it does."""
    account: Account


def reconcile(settings: RelaySettings, accepted: Accepted) -> Iterator[Reconciled]:
    """
    Yield how the database and Kafka differ, shard by shard; resolve it if that is accepted.

    Raises:
        Refused: a relay is active, or the consent is for another case.
    """
    schema = settings.schema_name
    for shard in settings.own_shards():
        own = settings.of(shard)
        with (
            explained(schema, settings.dsn),
            connect(settings.dsn, purpose="reconcile") as conn,
        ):
            outbox_schema.require(conn, schema)
            _keep_out(conn, own)
            settle(conn, schema, shard)
            if outbox_capture.installed(conn, schema).state == "leaving":
                msg = (
                    "the outbox is on its way out of the write-ahead log: run `dovecote init "
                    "outbox --capture wal` and then this again, and leave the log when the relay "
                    "runs; nothing was changed"
                )
                raise Refused(msg)
            if accepted:
                yield _Reconciler(own, shard, accepted).run(conn)
            else:
                yield _reported(conn, own, shard)


def _keep_out(conn: psycopg.Connection, settings: RelaySettings) -> None:
    """Take the active role for the rest of the session."""
    deadline = time.monotonic() + _PATIENCE
    while not try_lock(conn, role_of(settings.schema_name, settings.name)):
        if time.monotonic() > deadline:
            msg = (
                f"a relay publishes {settings.name!r}: end it, then run `{RECONCILE}` again; "
                "nothing was changed"
            )
            raise Refused(msg)
        time.sleep(0.05)


def _reported(conn: psycopg.Connection, settings: RelaySettings, shard: Shard) -> Reconciled:
    """Report the differences without fencing: this may be a copy whose original is at work."""
    topic = ProgressTopic(settings.progress_topic, settings.kafka, timeout=_ANSWER)
    claim = Claim(conn, settings.schema_name, settings.name)
    with closing(_capture(settings, shard)) as capture:
        origin = capture.origin()
        progress = topic.peek(settings.name, origin.outbox) if topic.exists() else None
        if progress and (reason := origin_refusal(progress, origin)):
            raise Refused(about(settings.schema_name, reason))
        held = claim.read(origin)
        reason = cluster_refusal(held, settings.name, topic.cluster())
        view = _View(conn, settings, shard, is_mirror=reason is not None)
        reason = reason or _misfit(claim, settings.dsn, progress, origin=origin, held=held)
        found = view.look(capture, held, progress, fenced=False)
        return Reconciled(settings.name, done=False, reason=reason, account=found)


def _misfit(
    claim: Claim, dsn: str, progress: Progress | None, *, origin: Origin, held: Held | None
) -> str | None:
    """Return why a relay does not go on from `progress`, or None if it does."""
    if progress is None:
        return None
    old, new = progress.timeline, origin.timeline
    kept = shared(dsn, old=old, new=new) if old < new else None
    return refusal(progress, origin, kept) or claim.misfit(progress, held)


class _View:
    """The differences between the database and Kafka, looked at repeatedly."""

    def __init__(
        self, conn: psycopg.Connection, settings: RelaySettings, shard: Shard, *, is_mirror: bool
    ) -> None:
        self._conn, self._settings, self._shard = conn, settings, shard
        self._is_mirror, self._back = is_mirror, None
        self._topics: set[str] | None = None
        self._strangers: list[Sent] | None = None
        self._read: tuple[Doubts, Place] | None = None
        """The events in doubt that were read, and where the next ones begin."""

    _back: LookingBack | None

    def look(
        self,
        capture: SwitchingCapture,
        held: Held | None,
        progress: Progress | None,
        *,
        fenced: bool,
    ) -> Account:
        """Look once; meanwhile, no relay may publish that has not published yet."""
        doubts = self._doubts(capture, held)
        back = self._back = self._back or self._looking_back(held)
        mark = held.mark if held else None
        # Both take long, and are done once: nothing is added while nobody else may publish.
        if self._topics is None:
            self._topics = {*self._known_topics(), *(mark.topics if mark else ())}
        topics = doubts.topics() | self._topics | set(progress.topics if progress else ())
        back.read(doubts, topics, fenced=fenced)
        if self._strangers is None:
            self._strangers = [] if self._is_mirror else self._without_rows(back.strangers)
        return account(doubts, back.found, self._strangers, compacted=back.compacted)

    def start(self, held: Held | None) -> Progress | None:
        """Return the place after which events are in doubt; None: all events that there are."""
        mark = held.mark if held else None
        # The new cluster may lack what the old one had, so the whole table is checked.
        return None if mark is None or (self._is_mirror and mark.capture == "table") else mark

    def _doubts(self, capture: SwitchingCapture, held: Held | None) -> Doubts:
        installed = outbox_capture.installed(self._conn, self._settings.schema_name)
        row = self._conn.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone()
        end = parse_lsn(row[0]) if row and installed.state != "table" else None
        place, events = capture.resume(self.start(held), verified=False), Doubts()
        if self._read is not None and isinstance(self._read[1], type(place)):
            # A look after the first one reads what was committed since.
            events, place = self._read
        doubts = Doubts(events.by_topic)
        while True:
            for batch in capture.batches(place):
                place = batch.cursor
                for event in batch.rows:
                    doubts.add(event[3], event[1], event[4])
            if end is None or (isinstance(place, LogPosition) and place.lsn >= end):
                break
            capture.wait(0.05)
        self._read = doubts, place
        query = "SELECT topic, id::text, key, holds FROM {} WHERE name = %s ORDER BY number"
        for topic, id_, key, holds in self._conn.execute(
            self._filled(query, "parked"), [self._settings.name]
        ):
            doubts.add_parked(topic, id_, key, holds=holds)
        return doubts

    def _looking_back(self, held: Held | None) -> LookingBack:
        since = held.marked_at if held else None
        if since is None:
            # Nothing was published from here before this outbox was installed.
            since = self._milliseconds("SELECT min(applied_at) AS at FROM {}", "migrations")
        start = since - _MARGIN
        if self._is_mirror:
            oldest = self._milliseconds('SELECT min("time") AS at FROM {}', "events")
            start = min(since, oldest) - _LONG_MARGIN
        return LookingBack(
            self._settings.kafka,
            start=start,
            since=since,
            timeout=self._settings.transaction_timeout.total_seconds(),
        )

    def _milliseconds(self, query: str, table: str) -> int:
        filled = sql.SQL(
            "SELECT (1000 * extract(epoch FROM coalesce(at, now())))::bigint FROM ({}) AS asked"
        ).format(self._filled(query, table))
        row = self._conn.execute(filled).fetchone()
        return int(row[0]) if row else 0

    def _known_topics(self) -> Collection[str]:
        found = self._conn.execute(self._filled("SELECT DISTINCT topic FROM {}", "events"))
        return [row[0] for row in found]

    def _without_rows(self, sent: list[Sent]) -> list[Sent]:
        """Return the shard's records that have no rows; older published events may have some."""
        own = self._shard
        sent = [each for each in sent if shard_of(each.key, each.id, own.of) == own.number]
        known: set[str] = set()
        query = self._filled("SELECT id::text FROM {} WHERE id = ANY (%s::uuid[])", "events")
        for first in range(0, len(sent), _CHUNK):
            part = [each.id for each in sent[first : first + _CHUNK]]
            known.update(row[0] for row in self._conn.execute(query, [part]))
        return [each for each in sent if each.id not in known]

    def _filled(self, query: str, table: str) -> sql.Composed:
        return sql.SQL(query).format(sql.Identifier(self._settings.schema_name, table))


class _Reconciler(Relay):
    """A relay that publishes those events in doubt which Kafka lacks, and ends."""

    def __init__(self, settings: RelaySettings, shard: Shard, accepted: Accepted) -> None:
        self._missing: dict[str, set[bytes]] = {}
        self._published: dict[str, Collection[bytes]] = {}
        self._requeued: Collection[str] = ()
        """The ids of parked events that Kafka has: they were requeued after the snapshot."""
        self._reached = threading.Event()
        super().__init__(
            settings,
            shard,
            trouble=Trouble(Health()),
            metrics=Metrics(shard.name),
            open_capture=self._opened,
        )
        self._accepted = accepted
        # No relay goes on from progress with such a nonce.
        self._token = UNFINISHED + uuid4().hex
        self._view: _View | None = None
        self._account: Account | None = None
        self._reason: str | None = None

    def run(self, conn: psycopg.Connection) -> Reconciled:
        """Publish in the session that has the role, and return the result."""
        lease = Lease(conn, self._settings.lease.total_seconds())
        self.be_active(lease, self._reached)
        lease.ask()
        self._finish(lease)
        if self._account is None:
            msg = "nothing was looked at"
            raise AssertionError(msg)
        name, reason = self._settings.name, self._reason
        return Reconciled(name, done=True, reason=reason, account=self._account)

    def _opened(self, batch_rows: int) -> Capture:
        del batch_rows
        return _Passing(self._capture(), self)

    def _capture(self) -> SwitchingCapture:
        return _capture(self._settings, self._shard)

    def _take_over(
        self, lease: Lease, publisher: Publisher, capture: Capture
    ) -> tuple[Progress, Origin]:
        settings, name = self._settings, self._settings.name
        claim = Claim(lease.conn, settings.schema_name, name)
        origin = capture.origin()
        self._topic.ensure()
        cluster = self._topic.cluster()
        held = claim.read(origin)
        is_mirror = self._is_mirror(cluster_refusal(held, name, cluster))
        self._check(claim, self._topic.peek(name, origin.outbox), origin, held)
        lease.ask()
        publisher.open()
        fence = uuid4().hex
        publisher.mark(fence_key(name, origin.outbox), fence)
        progress = self._topic.read(name, origin.outbox, fence=fence)
        self._check(claim, progress, capture.origin(), held)
        view = self._view = self._view or _View(
            lease.conn, settings, self._shard, is_mirror=is_mirror
        )
        with closing(self._capture()) as looked:
            found = view.look(looked, held, progress, fenced=True)
        self._account = self._account or found
        self._missing = {topic: set(ids) for topic, ids in self._in_doubt(found).items()}
        self._published = dict(found.published)
        self._requeued = [str(UUID(bytes=id_)) for id_ in found.requeued]
        start = view.start(held)
        place = capture.resume(start)
        # The old cluster stays the outbox's own until all is done: a second run would otherwise
        # take the new one for complete up to the mark.
        own = held.cluster if held and held.cluster else cluster
        term = claim.take(held, own, progress, keep=True)
        self._term = _Accepting(claim, cluster, term, start=start, token=self._token)
        begun = self._at(capture.origin(), place, last=start)
        publisher.publish([], replace(begun, newest=None))
        self._progress = begun
        return begun, capture.origin()

    def _obey(self, publisher: Publisher, progress: Progress) -> Progress:
        """Leave requests about parked events to the relay: each refusal would cost a look back."""
        del publisher
        return progress

    def _is_mirror(self, reason: str | None) -> bool:
        if reason is None:
            return False
        self._reason = self._reason or reason
        if not self._accepted.cluster:
            raise Refused(reason)
        return True

    def _check(
        self, claim: Claim, progress: Progress | None, origin: Origin, held: Held | None
    ) -> None:
        schema = self._settings.schema_name
        if progress is None:
            return
        if reason := origin_refusal(progress, origin):
            raise Refused(about(schema, reason))
        dsn = self._settings.dsn
        if reason := _misfit(claim, dsn, progress, origin=origin, held=held):
            self._reason = self._reason or reason
            if not self._accepted.restored and not self._accepted.cluster:
                raise Refused(about(schema, reason))

    @staticmethod
    def _in_doubt(found: Account) -> dict[str, set[bytes]]:
        return {
            topic: {*found.published.get(topic, ()), *found.unpublished.get(topic, ())}
            for topic in found.published.keys() | found.unpublished.keys()
        }

    def _open_store(self, lease: Lease, elsewhere: Collection[str] = ()) -> ParkedStore:
        return super()._open_store(lease, elsewhere or self._requeued)

    def _finish(self, lease: Lease) -> None:
        """Let relays go on, if nobody has done anything since."""
        with (
            closing(self._capture()) as capture,
            closing(self._make_publisher(lease, capture, threading.Event())) as publisher,
        ):
            self._release(lease, publisher, capture.origin())

    def _release(self, lease: Lease, publisher: Publisher, origin: Origin) -> None:
        name, topic = self._settings.name, self._topic
        claim = Claim(lease.conn, self._settings.schema_name, name)
        fence = uuid4().hex
        publisher.open()
        publisher.mark(fence_key(name, origin.outbox), fence)
        progress = topic.read(name, origin.outbox, fence=fence)
        if progress is None or progress.nonce != self._token:
            msg = f"somebody else has published {name!r} meanwhile; run `{RECONCILE}` once more"
            raise Refused(msg)
        claim.begin()
        held = claim.read(origin)
        if held is None or held.nonce is None:
            msg = f"somebody else has taken over {name!r} meanwhile; run `{RECONCILE}` once more"
            raise Refused(msg)
        cluster, store = topic.cluster(), self._open_store(lease)
        if held.cluster in (None, cluster):
            # A relay may go on as soon as its nonce is there.
            store.remove(self._requeued)
        publisher.publish([], replace(progress, nonce=held.nonce, newest=None))
        with lease.conn.transaction():
            # The old cluster may lack these events, and until now the move can be given up.
            store.remove(self._requeued)
            claim.move(held, cluster)

    # Methods for the capture.

    def is_published(self, topic: str, id_: str) -> bool:
        """Return whether Kafka has an event."""
        return UUID(id_).bytes in self._published.get(topic, ())

    def is_met(self, rows: Collection[tuple[str, str]]) -> None:
        """Note which of the events in doubt lie before durable progress."""
        for topic, id_ in rows:
            self._missing.get(topic, set()).discard(UUID(id_).bytes)
        if not any(self._missing.values()):
            self._reached.set()


class _Accepting(Term):
    """A term from whose progress nobody goes on, and which leaves the mark where it is."""

    def __init__(
        self, claim: Claim, cluster: str, term: Term, *, start: Progress | None, token: str
    ) -> None:
        super().__init__(
            claim, cluster, term.mark, number=term.number, carried=token, nonce=token, lsn=0
        )
        self._token = token
        self._place: Place = start.cursor if start else Cursor()

    @property
    def safe(self) -> Place:
        return self._place

    @property
    def has_switched(self) -> bool:
        return False

    def nonce(self, place: Place, lsn: str) -> str:
        del place, lsn
        return self._token

    def is_due(self, progress: Progress) -> bool:
        del progress
        return False

    def published(self, progress: Progress, *, rows: bool) -> None:
        del progress, rows

    def renew(self, *, at_once: bool = False) -> None:
        del at_once


class _Passing:
    """A capture that leaves out what Kafka has, and reports which events were met."""

    def __init__(self, capture: SwitchingCapture, plan: _Reconciler) -> None:
        self._capture, self._plan = capture, plan
        self._met: list[tuple[Place, list[tuple[str, str]]]] = []
        self._lock = threading.Lock()

    def origin(self) -> Origin:
        return self._capture.origin()

    def resume(self, progress: Progress | None) -> Place:
        return self._capture.resume(progress, verified=False)

    def batches(self, cursor: Place) -> Iterator[Batch]:
        is_published = self._plan.is_published
        for batch in self._capture.batches(cursor):
            with self._lock:
                self._met.append((batch.cursor, [(row[3], row[1]) for row in batch.rows]))
            rows = [row for row in batch.rows if not is_published(row[3], row[1])]
            # Even if no rows are left: progress records how far the batches were met.
            yield replace(batch, rows=rows, keep=True)

    def confirm(self, cursor: Place, forget: Place | None = None) -> None:
        with self._lock:
            last = max((n for n, (at, _) in enumerate(self._met) if at == cursor), default=-1)
            met, self._met = self._met[: last + 1], self._met[last + 1 :]
        self._plan.is_met([row for _, rows in met for row in rows])
        self._capture.confirm(cursor, forget)

    def wait(self, seconds: float) -> None:
        self._capture.wait(seconds)

    def settle(self, leave: Leave) -> None:
        self._capture.settle(leave)

    def stay(self) -> None:
        self._capture.stay()

    def interrupt(self) -> None:
        self._capture.interrupt()

    def close(self) -> None:
        self._capture.close()


def _capture(settings: RelaySettings, shard: Shard) -> SwitchingCapture:
    return SwitchingCapture(
        settings.dsn,
        settings.schema_name,
        shard,
        batch_rows=settings.batch_rows,
        batch_bytes=settings.batch_bytes,
        timing=Timing(settings.lease.total_seconds(), settings.wal.heartbeat.total_seconds()),
        expected=settings.capture,
    )
