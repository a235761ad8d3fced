"""
The active relay: publish until something fails, begin again from progress.

The order is the guarantee: fence, then read progress, then publish behind it; after any failure
the producer is dropped and everything starts from what the broker says was committed.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from functools import partial

import psycopg

from outbox.errors import first_line
from outbox.schema import about
from relay.ahead import Ahead
from relay.capture.batch import Batch, Capture, Row
from relay.capture.catalog import leave_log
from relay.capture.shard import ShardCapture
from relay.capture.switching import SwitchingCapture
from relay.capture.wal import Timing
from relay.claims import Claim, claims
from relay.drains import Drains
from relay.errors import Full, Outage, Refused, Unpublishable
from relay.guardian import BudgetSpent, Guardian
from relay.isolation import Isolation
from relay.lease import Lease
from relay.metrics import Metrics
from relay.parked import Admitted, Parking
from relay.parked_store import ParkedStore
from relay.progress import Origin, Place, Progress, at, refusal
from relay.progress_topic import ProgressTopic
from relay.publisher import Publisher
from relay.publishers import make_publisher
from relay.reader import Reader
from relay.retention import Retention
from relay.settings import RelaySettings
from relay.shard_count import settle
from relay.sharding import Shard
from relay.timeline import shared
from relay.tracing import publishing
from relay.trouble import Trouble

_log = logging.getLogger("dovecote.relay")

# How long a broker may take to say where progress stands; then it is asked anew.
_ANSWER = 5.0


class Relay:
    """
    Publish each committed event of one shard of an outbox, in order per key.

    `exactly_once`: once, as a `read_committed` consumer sees it. `at_least_once`: a crash may
    repeat the batch in flight, with the same ids.
    """

    def __init__(
        self,
        settings: RelaySettings,
        shard: Shard,
        *,
        trouble: Trouble,
        metrics: Metrics,
        open_capture: Callable[[int], Capture] | None = None,
    ) -> None:
        """
        Publish `shard`; its names and topics are those of `settings`.

        `open_capture` is given the most rows of a batch. By default, the settings say what it is.
        """
        self._settings, self._shard = settings, shard
        self._trouble, self._metrics = trouble, metrics
        self._given_capture = open_capture
        timeout = settings.transaction_timeout.total_seconds()
        self._topic = ProgressTopic(
            settings.progress_topic, settings.kafka, timeout=min(timeout, _ANSWER)
        )
        self._guardian = Guardian(settings, shard, metrics)
        self._progress: Progress | None = None
        self._retention = Retention(
            settings.schema_name,
            settings.name,
            metrics,
            keep=settings.retention.total_seconds(),
            every=settings.rotate_every.total_seconds(),
        )
        self._drains = Drains(settings.schema_name, settings.name)
        self._beat_at = 0.0
        self._isolation = Isolation(settings.batch_rows)
        self._parking = Parking(settings, metrics, self._isolation)

    def be_active(self, lease: Lease, stop: threading.Event) -> None:
        """
        Publish until `stop` is set; the batch in flight is finished, if the broker answers.

        Raises:
            Fenced: another relay has taken over.
            LeaseLost: Postgres gave the active role away.
            Refused: going on could lose or repeat events.
        """
        _log.info("active: this relay alone may publish %s", self._shard)
        self._metrics.active.set(1)
        done = threading.Event()
        keeper = threading.Thread(target=lease.keep, args=(done, self._beat), name="lease")
        keeper.start()
        try:
            while not stop.is_set():
                try:
                    self._guardian.require()
                    self._stream(lease, stop)
                except (Outage, Full) as error:
                    self._trouble.failed(error, self._metrics, stop)
                except Unpublishable as error:
                    if self._parking.must_wait(error):
                        self._isolation.waits(error.before)
                        self._trouble.failed(error, self._metrics, stop)
                except BudgetSpent:
                    if (dropped := self._guardian.drop_slot(lease.conn)) is not None:
                        raise dropped from None
        finally:
            done.set()
            keeper.join()
            self._metrics.active.set(0)
            self._metrics.unknown()
            _log.info("no longer active")

    def _stream(self, lease: Lease, stop: threading.Event) -> None:
        """Publish until something fails: one run of successes, from what progress says."""
        settings = self._settings
        lease.require()
        with (
            closing(self._open_capture()) as capture,
            closing(
                make_publisher(settings, self._isolation, stop, self._trouble.slow)
            ) as publisher,
        ):
            with lease.undisputed():
                settle(lease.conn, settings.schema_name, self._shard)
                progress, origin = self._take_over(publisher, capture)
            may_confirm = self._retention.begin(lease.conn, origin, progress.cursor)
            self._drains.begin(lease.conn if may_confirm else None, progress.cursor)
            store = ParkedStore(lease.conn, settings.schema_name, settings.name)
            self._parking.begin(store, progress)
            _log.info("publishing from %s", progress.cursor)
            reader = Reader(
                capture,
                progress.cursor,
                ahead=Ahead(most_rows=self._isolation.most, most_bytes=settings.batch_bytes),
                poll_min=settings.poll_min.total_seconds(),
                poll_max=settings.poll_max.total_seconds(),
                slow=self._trouble.slow,
            )
            with reader:
                for batch in reader.batches(self._isolation.most, settings.batch_bytes, stop):
                    lease.require()
                    self._guardian.require()
                    behind = self._parking.obey(publisher, progress)
                    if behind is None:
                        return
                    self._progress = behind
                    self._publish(publisher, capture, batch, origin, more=reader.more)
                    progress = self._progress
                    capture.settle(partial(leave_log, lease.conn, settings.schema_name))
                    if batch.rows and self._isolation.has_changed():
                        return

    def _take_over(self, publisher: Publisher, capture: Capture) -> tuple[Progress, Origin]:
        """
        Become the one that publishes, and return where to go on, and in which database.

        Raises:
            Refused: progress is another database's, or no longer there.
        """
        name, known = self._settings.name, self._progress
        if known is None:
            # A topic that is made anew would look as if nothing had been lost.
            self._topic.ensure(lambda: self._require_new(capture.origin()))
        # Each time the server is asked after the topic: a relay that is not fenced yet moves both.
        # Before the fence: a clone of production must not fence production. What the slot says is
        # no reason yet: it may be ahead of what the topic said a moment ago.
        self._believe(self._topic.peek(name), capture.origin())
        publisher.open()
        progress = self._topic.read(name)
        origin = capture.origin()
        self._believe(progress, origin)
        if progress is None and known is not None:
            msg = (
                f"progress topic {self._topic.name} lost the progress of outbox {name!r}, "
                f"last known at {known.cursor}; beginning anew would publish everything "
                "again: give this relay a `name` of its own if that is wanted"
            )
            raise Refused(msg)
        place = capture.resume(progress)
        if progress is None:
            progress = self._begin(publisher, origin, place)
        elif known is None:
            with self._claims() as claim:
                claim.note(origin)
        if place != progress.cursor:
            progress = self._at(origin, place, last=progress)
            publisher.publish([], progress)
        capture.confirm(progress.cursor)
        self._progress = progress
        return progress, origin

    def _require_new(self, origin: Origin) -> None:
        with self._claims() as claim:
            claim.require_none(origin, self._topic.name)

    def _begin(self, publisher: Publisher, origin: Origin, place: Place) -> Progress:
        """Publish progress for the first time: from now on the name belongs to this database."""
        progress = self._at(origin, place)
        with self._claims() as claim:
            claim.require_none(origin, self._topic.name)
            publisher.publish([], progress)
            # Not before: progress that was never there is not lost.
            claim.note(origin)
        return progress

    def _at(
        self, origin: Origin, place: Place, *, last: Progress | None = None, parked: int = 0
    ) -> Progress:
        name, shards = self._settings.name, self._shard.of
        return at(name, origin, place, shards=shards, last=last, parked=parked)

    def _claims(self) -> AbstractContextManager[Claim]:
        return claims(self._settings.dsn, self._settings.schema_name, self._settings.name)

    def _publish(
        self,
        publisher: Publisher,
        capture: Capture,
        batch: Batch,
        origin: Origin,
        *,
        more: Callable[[float], Batch | None],
    ) -> None:
        admitted, progress = self._admit(publisher, batch, origin, self._progress)
        rows, cursor = list(admitted.rows), batch.cursor

        def later(seconds: float) -> tuple[Sequence[Row], Progress] | None:
            nonlocal progress, cursor
            if (part := more(seconds)) is None:
                return None
            admitted, progress = self._admit(publisher, part, origin, progress)
            rows.extend(admitted.rows)
            cursor = part.cursor
            return admitted.rows, progress

        if rows or batch.keep or admitted.number:
            with self._metrics.publish_seconds.time(), publishing(progress.name, rows):
                publisher.publish(admitted.rows, progress, later)
            # Not before: what the server forgets is nowhere else.
            capture.confirm(cursor)
            self._retention.confirmed(cursor)
            self._parking.taken(rows)
            self._metrics.published(rows)
            self._metrics.batches.inc()
        self._progress = progress
        self._drains.reached(cursor)
        self._metrics.progress_time.set_to_current_time()
        self._trouble.recovered("active")

    def _admit(
        self, publisher: Publisher, batch: Batch, origin: Origin, last: Progress | None
    ) -> tuple[Admitted, Progress]:
        """Park what cannot be published; return the rest, and the progress behind it all."""
        # Parked before progress passes them.
        admitted = self._parking.admit(batch.rows, publisher.has_topic)
        origin = replace(origin, lsn=admitted.lsn or batch.lsn or origin.lsn)
        return admitted, self._at(origin, batch.cursor, last=last, parked=admitted.number)

    def _open_capture(self) -> Capture:
        settings = self._settings
        timing = Timing(settings.lease.total_seconds(), settings.wal.heartbeat.total_seconds())
        try:
            if self._given_capture is not None:
                return self._given_capture(self._isolation.most)
            capture = SwitchingCapture(
                settings.dsn,
                settings.schema_name,
                self._shard,
                batch_rows=self._isolation.most,
                batch_bytes=settings.batch_bytes,
                timing=timing,
                expected=settings.capture,
            )
            return capture if self._shard.of == 1 else ShardCapture(capture, self._shard)
        except psycopg.OperationalError as error:
            msg = f"Postgres: {first_line(error)}"
            raise Outage(msg) from error

    def _believe(self, progress: Progress | None, origin: Origin) -> None:
        if progress is None:
            return
        known, old, new = None, progress.timeline, origin.timeline
        if old < new:
            known = shared(self._settings.dsn, old=old, new=new)
        if reason := refusal(progress, origin, known):
            raise Refused(about(self._settings.schema_name, reason))

    def _beat(self, conn: psycopg.Connection) -> float:
        """Keep the session that has the role; measure, make room and answer on the way."""
        every = self._settings.lease.total_seconds() / 4
        if time.monotonic() >= self._beat_at:
            self._guardian.beat(conn, self._progress)
            self._retention.beat(conn)
            self._beat_at = time.monotonic() + every / 2
        return min(self._drains.beat(conn), every)
