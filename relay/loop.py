"""
The relay: stand by, become active, publish until something fails, begin again from progress.

The order is the guarantee: fence, then read progress, then publish behind it; after any failure
the producer is dropped and everything starts from what the broker says was committed.
"""

import logging
import random
import threading
import time
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from functools import partial

import psycopg

from relay.ahead import Ahead
from relay.capture.batch import Batch, Capture
from relay.capture.catalog import leave_log
from relay.capture.switching import SwitchingCapture
from relay.capture.wal import Timing
from relay.claims import Claim, claims
from relay.errors import Fenced, Full, LeaseLost, Outage, Refused, Unpublishable
from relay.guardian import BudgetSpent, Guardian
from relay.health import Health
from relay.isolation import Isolation
from relay.lease import Lease, lock_key, try_acquire
from relay.metrics import Metrics
from relay.parked import Parking
from relay.parked_store import ParkedStore
from relay.postgres import first_line, not_allowed, shut_out
from relay.progress import Origin, Place, Progress, at, refusal
from relay.progress_topic import ProgressTopic
from relay.publisher import Publisher
from relay.publishers import make_publisher
from relay.reader import Reader
from relay.retention import Retention
from relay.settings import RelaySettings
from relay.timeline import shared
from relay.tracing import publishing

_log = logging.getLogger("dovecote.relay")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
# How long a broker may take to say where progress stands; then it is asked anew.
_ANSWER = 5.0


class Relay:
    """
    Publish each committed event of one outbox, in order per key.

    `exactly_once`: once, as a `read_committed` consumer sees it. `at_least_once`: a crash may
    repeat the batch in flight, with the same ids.
    """

    def __init__(self, settings: RelaySettings, *, health: Health, metrics: Metrics) -> None:
        self._settings, self._health, self._metrics = settings, health, metrics
        timeout = settings.transaction_timeout.total_seconds()
        self._topic = ProgressTopic(
            settings.progress_topic, settings.kafka, timeout=min(timeout, _ANSWER)
        )
        self._guardian = Guardian(settings, metrics)
        self._progress: Progress | None = None
        self._retention = Retention(
            settings.schema_name,
            settings.name,
            metrics,
            keep=settings.retention.total_seconds(),
            every=settings.rotate_every.total_seconds(),
        )
        self._isolation = Isolation(settings.batch_rows)
        self._parking = Parking(settings, metrics, self._isolation)
        self._let_in, self._attempt = False, 0
        self._failing_since: float | None = None

    def run(self, stop: threading.Event) -> None:
        """
        Relay until `stop` is set; the batch in flight is finished, if the broker answers.

        Raises:
            Refused: going on could lose or repeat events.
        """
        while not stop.is_set():
            try:
                self._stand_by(stop)
            except psycopg.OperationalError as error:
                # Later, a server that is being repaired may say so for a while.
                if not self._let_in and (refused := shut_out(error)):
                    raise refused from error
                self._failed(Outage(f"Postgres: {first_line(error)}"), stop)
            except psycopg.errors.InsufficientPrivilege as error:
                settings = self._settings
                raise not_allowed(error, settings.schema_name, settings.dsn) from error
            except (Fenced, LeaseLost) as error:
                self._failed(error, stop)
        self._health.progressed("stopped")

    def _stand_by(self, stop: threading.Event) -> None:
        """Ask for the active role once, and use it as long as it lasts."""
        settings = self._settings
        key = lock_key(settings.schema_name, settings.name)
        with try_acquire(settings.dsn, key, settings.lease.total_seconds()) as lease:
            self._let_in = True
            if lease is None:
                self._recovered("standby")
            else:
                self._be_active(lease, stop)
        stop.wait(settings.standby_poll.total_seconds())

    def _be_active(self, lease: Lease, stop: threading.Event) -> None:
        _log.info("active: this relay publishes outbox %r", self._settings.name)
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
                    self._failed(error, stop)
                except Unpublishable as error:
                    if self._parking.must_wait(error):
                        self._isolation.waits(error.before)
                        self._failed(error, stop)
        except BudgetSpent:
            raise self._guardian.drop_slot(lease.conn) from None
        finally:
            done.set()
            keeper.join()
            self._metrics.active.set(0)
            _log.info("no longer active")

    def _stream(self, lease: Lease, stop: threading.Event) -> None:
        """Publish until something fails: one run of successes, from what progress says."""
        settings = self._settings
        lease.require()
        with (
            closing(self._open_capture()) as capture,
            closing(make_publisher(settings, self._isolation, stop, self._slow)) as publisher,
        ):
            with lease.undisputed():
                progress, origin = self._take_over(publisher, capture)
            self._retention.begin(lease.conn, origin, progress.cursor)
            store = ParkedStore(lease.conn, settings.schema_name, settings.name)
            self._parking.begin(store, progress)
            _log.info("publishing from %s", progress.cursor)
            reader = Reader(
                capture,
                progress.cursor,
                ahead=Ahead(most_rows=self._isolation.most, most_bytes=settings.batch_bytes),
                poll_min=settings.poll_min.total_seconds(),
                poll_max=settings.poll_max.total_seconds(),
                slow=self._slow,
            )
            with reader:
                for batch in reader.batches(self._isolation.most, settings.batch_bytes, stop):
                    lease.require()
                    self._guardian.require()
                    behind = self._parking.obey(publisher, progress)
                    if behind is None:
                        return
                    self._progress = behind
                    self._publish(publisher, capture, batch, origin)
                    progress = self._progress
                    capture.settle(partial(leave_log, lease.conn, settings.schema_name))
                    if batch.rows:
                        if self._isolation.has_changed():
                            return
                        stop.wait(publisher.rest())

    def _take_over(self, publisher: Publisher, capture: Capture) -> tuple[Progress, Origin]:
        """
        Become the one that publishes, and return where to go on, and in which database.

        Raises:
            Refused: progress is another database's, or no longer there.
        """
        name, known = self._settings.name, self._progress
        if known is None:
            self._topic.ensure()
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
            progress = at(name, origin, place, last=progress)
            publisher.publish([], progress)
        capture.confirm(progress.cursor)
        self._progress = progress
        return progress, origin

    def _begin(self, publisher: Publisher, origin: Origin, place: Place) -> Progress:
        """Publish progress for the first time: from now on the name belongs to this database."""
        progress = at(self._settings.name, origin, place)
        with self._claims() as claim:
            claim.require_none(origin, self._topic.name)
            publisher.publish([], progress)
            # Not before: progress that was never there is not lost.
            claim.note(origin)
        return progress

    def _claims(self) -> AbstractContextManager[Claim]:
        return claims(self._settings.dsn, self._settings.schema_name, self._settings.name)

    def _publish(
        self, publisher: Publisher, capture: Capture, batch: Batch, origin: Origin
    ) -> None:
        # Parked before progress passes them.
        rows, parked, lsn = self._parking.admit(batch.rows, publisher.has_topic)
        origin = replace(origin, lsn=lsn or batch.lsn or origin.lsn)
        last, name = self._progress, self._settings.name
        progress = at(name, origin, batch.cursor, last=last, parked=parked)
        if rows or batch.keep or parked:
            with self._metrics.publish_seconds.time(), publishing(progress.name, rows):
                publisher.publish(rows, progress)
            # Not before: what the server forgets is nowhere else.
            capture.confirm(batch.cursor)
            self._retention.confirmed(batch.cursor)
            self._parking.taken(rows)
            self._metrics.published(rows)
            self._metrics.batches.inc()
        self._progress = progress
        self._metrics.progress_time.set_to_current_time()
        self._recovered("active")

    def _open_capture(self) -> Capture:
        settings = self._settings
        timing = Timing(settings.lease.total_seconds(), settings.wal.heartbeat.total_seconds())
        try:
            return SwitchingCapture(
                settings.dsn,
                settings.schema_name,
                batch_rows=self._isolation.most,
                batch_bytes=settings.batch_bytes,
                timing=timing,
                expected=settings.capture,
            )
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
            raise Refused(reason)

    def _beat(self, conn: psycopg.Connection) -> None:
        """Keep the session that has the role; measure and make room on the way."""
        self._guardian.beat(conn, self._progress)
        self._retention.beat(conn)

    def _failed(self, error: Exception, stop: threading.Event) -> None:
        """Say what is in the way, and wait: longer each time, up to a few seconds."""
        kind = type(error).__name__.lower()
        self._metrics.failed(kind)
        self._health.failing(f"{kind}: {error}")
        self._failing_since = self._failing_since or time.monotonic()
        pause = min(_FIRST_PAUSE * 2**self._attempt, _LONGEST_PAUSE)
        self._attempt = min(self._attempt + 1, 16)
        _log.warning("%s: %s; nothing is lost, trying again in %.1f s", kind, error, pause)
        # Jitter spreads relays that lost the same broker at the same time.
        stop.wait(pause * random.uniform(0.5, 1))  # noqa: S311  # no secret

    def _slow(self, reason: str) -> None:
        """Say that a server takes its time, while it is still being waited for."""
        self._health.failing(f"outage: {reason}")
        if self._failing_since is None:
            self._failing_since = time.monotonic()
            _log.warning("%s; nothing is lost, still waiting", reason)

    def _recovered(self, role: str) -> None:
        if self._failing_since is not None:
            _log.info("going on after %.1f s", time.monotonic() - self._failing_since)
        self._failing_since, self._attempt = None, 0
        self._health.progressed("active" if role == "active" else "standby")
