"""
The active relay: publish until something fails, then begin again from progress.

The order is the guarantee: fence, then read progress, then publish what comes after it. After any
failure the producer is dropped, and everything starts from what the broker has committed.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from uuid import uuid4

import psycopg

from outbox.errors import NoClient, first_line
from outbox.schema import about
from relay.candidacy import KafkaWatch
from relay.crowding import Crowding
from relay.errors import LeaseLost, Outage, Refused, Unpublishable
from relay.guardian import BudgetSpent, Guardian
from relay.health import KINDS, Trouble
from relay.kafka.asking import Asking
from relay.kafka.progress_topic import ProgressTopic
from relay.kafka.publisher import More, Publisher, Ready, at_once, no_more
from relay.metrics import Metrics
from relay.parking import Admitted, Parking
from relay.postgres.capture.catalog import leave_log
from relay.postgres.capture.shard import ShardCapture
from relay.postgres.capture.switching import SwitchingCapture
from relay.postgres.capture.wal import Timing
from relay.postgres.claims import Claim, Term
from relay.postgres.drains import Drains
from relay.postgres.lease import Lease, active, candidates_of
from relay.postgres.parked import ParkedStore
from relay.postgres.retention import Retention
from relay.postgres.shard_count import settle
from relay.postgres.timeline import shared
from relay.publishing import make_publisher, paced
from relay.reader import Ahead, Reader
from relay.rules.batch import Batch, Capture
from relay.rules.isolation import Isolation
from relay.rules.pace import Pace
from relay.rules.places.fit import cluster_refusal
from relay.rules.places.lsn import GRANT, NOT_REPORTED
from relay.rules.places.progress import Newest, Origin, Place, Progress, at, refusal, widened
from relay.rules.places.search import fence_key
from relay.rules.row import Row
from relay.rules.sharding import Shard
from relay.settings import RelaySettings
from relay.tracing import publishing

_log = logging.getLogger("dovecote.relay")

# Seconds that a broker may take to return progress; then it is asked again.
_ANSWER = 5.0


class Relay:
    """
    Publish each committed event of one shard of an outbox, in order per key.

    `exactly_once`: once, for a `read_committed` consumer. `at_least_once`: a crash may repeat the
    batch in flight, with the same ids.
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
        Publish `shard`; `settings` have its names and topics.

        `open_capture` gets the most rows of a batch. By default, the settings decide what to open.
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
        self._term: Term | None = None
        self._forgotten: Place | None = None
        """How far the database was told to forget."""
        self._retention = Retention(
            settings.schema_name,
            settings.name,
            metrics,
            keep=settings.retention.total_seconds(),
            every=settings.rotate_every.total_seconds(),
        )
        self._drains = Drains(settings.schema_name, settings.name)
        self._beat_at = self._well_at = 0.0
        self._watch: KafkaWatch | None = None
        self._is_warned = False
        self._isolation = Isolation(settings.batch_rows)
        self._asking = Asking(settings.kafka)
        self._pace = Pace(settings.batch_bytes, timeout)
        self._parking = Parking(
            settings,
            metrics,
            (self._isolation, self._pace),
            self._asking.ask,
            noted=trouble.health.parked,
        )
        self._crowding = Crowding(settings, metrics, lambda: self._parking.count)

    def be_active(self, lease: Lease, stop: threading.Event) -> None:
        """
        Publish until `stop` is set; then finish the batch in flight, if the broker answers.

        Raises:
            Fenced: another relay has taken over.
            LeaseLost: Postgres gave the active role away.
            Refused: going on could lose or repeat events.
        """
        self._is_well()
        _log.info("active: this relay alone may publish %s", self._shard)
        self._metrics.active.set(1)
        done = threading.Event()
        keeper = threading.Thread(target=lease.keep, args=(done, self._beat), name="lease")
        keeper.start()
        try:
            with self._crowding.at_work():
                self._go_on(lease, stop)
        finally:
            done.set()
            keeper.join()
            self._asking.close()
            self._is_well()
            self._metrics.active.set(0)
            self._metrics.unknown()
            _log.info("no longer active")

    def _go_on(self, lease: Lease, stop: threading.Event) -> None:
        while not stop.is_set():
            try:
                self._guardian.require()
                self._stream(lease, stop)
            except (Outage, NoClient) as error:
                # The settings were sound at the start, so a certificate may just be replaced.
                outage = error if isinstance(error, Outage) else Outage(str(error))
                self._leave_to_another(lease, str(outage))
                self._trouble.failed(outage, self._metrics, stop)
            except Unpublishable as error:
                self._metrics.failed(KINDS[type(error)])
                self._parking.learn(error)
            except BudgetSpent:
                if (dropped := self._guardian.drop_slot(lease.conn)) is not None:
                    raise dropped from None

    def _stream(self, lease: Lease, stop: threading.Event) -> None:
        """Publish until something fails: one run of successes, beginning from progress."""
        settings = self._settings
        lease.require()
        with (
            closing(self._open_capture()) as capture,
            closing(self._make_publisher(lease, capture, stop)) as publisher,
        ):
            # A relay that was cut off may by now read from another server than the one with its
            # role.
            lease.require_at(capture.origin().instance)
            with lease.undisputed():
                settle(lease.conn, settings.schema_name, self._shard)
                progress, origin = self._take_over(lease, publisher, capture)
            may_confirm = self._retention.begin(lease.conn, progress.cursor)
            self._drains.begin(lease.conn if may_confirm else None, progress.cursor)
            self._parking.begin(self._open_store(lease), progress)
            _log.info("publishing from %s", progress.cursor)
            if not origin.timeline and not self._is_warned:
                self._is_warned = True
                _log.warning("%s; %s", NOT_REPORTED, GRANT)
            reader = Reader(
                capture,
                progress.cursor,
                ahead=Ahead(most_rows=self._isolation.most, most_bytes=settings.batch_bytes),
                poll_min=settings.poll_min.total_seconds(),
                poll_max=settings.poll_max.total_seconds(),
                slow=self._trouble.slow,
            )
            with reader:
                for batch in reader.batches(self._most, stop):
                    lease.require()
                    self._guardian.require()
                    after = self._obey(publisher, progress)
                    if after is None:
                        return
                    self._progress = after
                    self._publish(publisher, capture, batch, origin, more=reader.more)
                    progress = self._progress
                    capture.settle(partial(leave_log, lease.conn, settings.schema_name))
                    if batch.rows and self._isolation.has_changed():
                        return

    def _open_store(self, lease: Lease, elsewhere: Collection[str] = ()) -> ParkedStore:
        settings = self._settings
        return ParkedStore(
            lease.conn,
            settings.schema_name,
            settings.name,
            largest=settings.largest(),
            elsewhere=elsewhere,
        )

    def _obey(self, publisher: Publisher, progress: Progress) -> Progress | None:
        """Carry out what operators ask for; None: the publisher is of no use any more."""
        return self._parking.obey(_Marking(publisher, self._own_term), progress)

    def _most(self) -> tuple[int, int]:
        """Return how many rows and bytes the next batch may have."""
        return self._isolation.most, self._pace.most

    def _make_publisher(self, lease: Lease, capture: Capture, stop: threading.Event) -> Publisher:
        return make_publisher(
            self._settings,
            capture.origin().outbox,
            self._isolation,
            stop,
            slow=partial(self._wait_for_kafka, lease),
            require_role=lease.ask,
            ask=self._asking.ask,
        )

    def _take_over(  # noqa: C901  # steps whose order is the guarantee
        self, lease: Lease, publisher: Publisher, capture: Capture
    ) -> tuple[Progress, Origin]:
        """
        Become the publishing relay; return the progress to go on from, and its database.

        Raises:
            Refused: progress was made from another database or from an earlier state of it, or it
                is missing.
        """
        if self._term is not None:
            self._term.end()
        name, known = self._settings.name, self._progress
        claim = Claim(lease.conn, self._settings.schema_name, name)
        origin = capture.origin()
        outbox = origin.outbox
        cluster = self._topic.cluster()
        if reason := cluster_refusal(claim.read(origin), name, cluster):
            raise Refused(reason)
        if known is None:
            # A topic created anew would hide that progress was lost.
            self._topic.ensure(lambda: claim.require_none(origin, self._topic.name))
        # The server is asked again after each read of the topic, because a relay that is not
        # fenced yet moves both. The first check comes before the fence: a clone of production must
        # not fence production. The slot is not checked yet, as it may be ahead of what the topic
        # had a moment ago.
        self._believe(self._topic.peek(name, outbox), capture.origin())
        publisher.open()
        fence = uuid4().hex
        publisher.mark(fence_key(name, outbox), fence)
        origin = capture.origin()
        # A relay that was paused before its fence may have fenced the one that has the role now.
        lease.require_at(origin.instance)
        progress = self._topic.read(name, outbox, fence=fence)
        origin = capture.origin()
        self._believe(progress, origin)
        held = claim.read(origin)
        if progress is None:
            if known is not None:
                msg = (
                    f"progress topic {self._topic.name} lost the progress of outbox {name!r}, "
                    f"last known at {known.cursor}; beginning anew would publish everything "
                    "again: give this relay a `name` of its own if that is wanted"
                )
                raise Refused(msg)
            claim.require_none(origin, self._topic.name)
        elif reason := claim.misfit(progress, held):
            raise Refused(about(self._settings.schema_name, reason))
        place = capture.resume(progress)
        if progress is not None and self._settings.mode == "at_least_once":
            # Nothing fences here. A record that an earlier relay writes late carries a nonce that
            # is about to become void, so it must not count once there is a new one.
            progress = replace(progress, term=claim.raise_term(held, cluster, progress))
            publisher.publish([], progress)
        term = self._term = claim.take(held, cluster, progress)
        # Asked again, because progress with the nonce must lie after the nonce's commit.
        origin = capture.origin()
        if progress is None:
            progress = self._at(origin, place)
            publisher.publish([], progress)
            self._is_durable(progress)
        if held is None or not held.began:
            # Only now: progress that never existed cannot be lost.
            claim.begin()
        if place != progress.cursor:
            progress = self._at(origin, place, last=progress)
            publisher.publish([], progress)
            self._is_durable(progress)
        capture.confirm(progress.cursor, term.safe)
        self._progress = progress
        return progress, origin

    def _is_durable(self, progress: Progress, *, rows: bool = False) -> None:
        term = self._own_term
        term.published(progress, rows=rows)
        if term.has_switched:
            # The slot is gone where the table is read, and the other way round, so an old mark is
            # useless.
            term.renew(at_once=True)

    def _at(
        self,
        origin: Origin,
        place: Place,
        *,
        last: Progress | None = None,
        parked: int = 0,
        newest: Newest | None = None,
    ) -> Progress:
        name, shards, term = self._settings.name, self._shard.of, self._own_term
        progress = at(name, origin, place, shards=shards, last=last, parked=parked, newest=newest)
        return replace(progress, term=term.number, nonce=term.nonce(place, origin.lsn))

    @property
    def _own_term(self) -> Term:
        if self._term is None:
            msg = "progress is made before a term has begun"
            raise AssertionError(msg)
        return self._term

    def _publish(
        self,
        publisher: Publisher,
        capture: Capture,
        batch: Batch,
        origin: Origin,
        *,
        more: Callable[[float], Batch | None],
    ) -> None:
        admitted, progress = self._admit(batch, origin, self._progress)
        rows, cursor, size = list(admitted.rows), batch.cursor, batch.size
        are_kept = [batch.is_kept]

        def later(seconds: float) -> tuple[Sequence[Row], Progress] | None:
            nonlocal progress, cursor, size
            if (part := more(seconds)) is None:
                return None
            admitted, progress = self._admit(part, origin, progress)
            rows.extend(admitted.rows)
            are_kept.append(part.is_kept)
            cursor, size = part.cursor, size + part.size
            return admitted.rows, progress

        if rows or batch.keep or admitted.number or self._own_term.is_due(progress):
            with (
                paced(self._pace, lambda: size),
                self._metrics.publish_seconds.time(),
                publishing(progress.name, rows),
            ):
                publisher.publish(admitted.rows, progress, later, partial(_require_kept, are_kept))
            self._is_durable(progress, rows=bool(rows or admitted.number))
            # Only now, because what the server forgets exists nowhere else.
            capture.confirm(cursor, self._own_term.safe)
            self._parking.taken(rows)
            self._metrics.published(rows)
            self._metrics.batches.inc()
            if rows:
                self._trouble.health.published()
        self._progress = progress
        if (safe := self._own_term.safe) is not self._forgotten:
            capture.confirm(progress.cursor, safe)
            self._retention.confirmed(safe)
            self._forgotten = safe
        self._drains.reached(cursor)
        self._metrics.progress_time.set_to_current_time()
        self._is_well()
        self._trouble.recovered("active")

    def _is_well(self) -> None:
        self._well_at = time.monotonic()
        if self._watch is not None:
            self._watch.end()
            self._watch = None

    def _wait_for_kafka(self, lease: Lease, reason: str) -> None:
        self._trouble.slow(reason)
        self._leave_to_another(lease, reason)

    def _leave_to_another(self, lease: Lease, reason: str) -> None:
        """
        Give the role up after a lease without progress if another relay can reach Kafka.

        Raises:
            LeaseLost: another relay can reach Kafka, and we cannot.
        """
        watch = self._watch = self._watch or KafkaWatch(self._settings)
        key = candidates_of(self._settings.schema_name, self._shard.name)
        if (
            time.monotonic() - self._well_at > self._settings.lease.total_seconds()
            and watch.has_failed
            and (other := active(lease.conn, key)) is not None
        ):
            msg = f"{reason}; {other} stands by and can reach Kafka: the role is left to it"
            raise LeaseLost(msg)

    def _admit(
        self, batch: Batch, origin: Origin, last: Progress | None
    ) -> tuple[Admitted, Progress]:
        """Park what cannot be published; return the rest, and the progress after all of it."""
        # They must be parked before progress passes them.
        admitted = self._parking.admit(batch.rows, has_large=batch.has_large)
        origin = replace(origin, lsn=admitted.lsn or batch.lsn or origin.lsn)
        number, newest = admitted.number, batch.newest
        progress = self._at(origin, batch.cursor, last=last, parked=number, newest=newest)
        if batch.rows:
            progress = replace(progress, topics=widened(progress.topics, admitted.topics))
        return admitted, progress

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
                largest=settings.largest(),
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
        if 0 < old < new:
            known = shared(self._settings.dsn, old=old, new=new, at=origin.instance)
        if reason := refusal(progress, origin, known):
            raise Refused(about(self._settings.schema_name, reason))

    def _beat(self, conn: psycopg.Connection) -> float:
        """
        Keep the session that has the role; on the way measure, make room and answer producers.
        """
        every = self._settings.lease.total_seconds() / 4
        if time.monotonic() >= self._beat_at:
            if self._term is not None:
                self._term.renew()
            self._guardian.beat(conn, self._progress)
            self._trouble.health.measured(self._guardian.lag, self._parking.count)
            self._retention.beat(conn)
            self._beat_at = time.monotonic() + every / 2
        return min(self._drains.beat(conn), every)


def _require_kept(are_kept: Sequence[Callable[[float], bool] | None]) -> None:
    """
    Wait until a crash of Postgres can no longer take back what is to be published.

    Raises:
        Outage: that is not known in time.
    """
    if not all(is_kept is None or is_kept(_ANSWER) for is_kept in are_kept):
        msg = f"Postgres: what was read is not known to be on disk after {_ANSWER:.0f} s"
        raise Outage(msg)


class _Marking:
    """
    A publisher that leaves a mark in the database after each batch, before anything else happens.

    Requeued events are deleted afterwards, so a restored database does not look for them in Kafka.
    """

    def __init__(self, publisher: Publisher, term: Term) -> None:
        self._publisher, self._term = publisher, term

    def open(self) -> None:
        self._publisher.open()

    def mark(self, key: bytes, value: str) -> None:
        self._publisher.mark(key, value)

    def publish(
        self, rows: Sequence[Row], progress: Progress, more: More = no_more, ready: Ready = at_once
    ) -> None:
        self._publisher.publish(rows, progress, more, ready)
        self._term.published(progress, rows=True)
        self._term.renew(at_once=True)

    def close(self) -> None:
        self._publisher.close()
