"""
Consume topics with a handler: in order per key, keys in parallel, and complete each record.
"""

import json
import logging
import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import KafkaError, TopicPartition

from dedup import proofs
from dedup.assembly import Assembled, assembled, events_for
from dedup.decoders import decoder
from dedup.health import Health
from dedup.kafka.assignment import Assignment
from dedup.kafka.claiming import Claiming, GroupClaims
from dedup.kafka.committing import RENEWED_SECONDS, Commits, Committed
from dedup.kafka.fatal import StillUsed, reason_to_end
from dedup.kafka.membership import Membership, patience
from dedup.kafka.partitions import Partitions
from dedup.kafka.polling import Polling
from dedup.kafka.starting import Starts
from dedup.kafka.subscribing import Subscribing
from dedup.kafka.topic_ids import Topics, topic_ids
from dedup.metrics import Metrics
from dedup.retries.aside import Aside
from dedup.rules.lanes.lanes import Lanes
from dedup.rules.policies.departures import reason_of
from dedup.rules.policies.expressions import compile_filter
from dedup.rules.policies.signatures import require_takes
from dedup.rules.policies.wording import plain
from dedup.rules.record import read_with
from dedup.rules.topics import reads_own
from dedup.serving.certainty import Certainty
from dedup.serving.direct import BeginsRecords
from dedup.serving.handover import Handover, Workers
from dedup.serving.runs import skips
from dedup.serving.tasks import Loop
from dedup.serving.within import within
from dedup.settings.consumer import ConsumerSettings
from dedup.settings.properties import check_properties
from dedup.tracing.gate import consumer_spans
from dedup.unread.probing import noted, refused
from dedup.unread.stable import stable_ends
from dedup.unread.watch import Watch
from dedup.workers import workers_for
from outbox.errors import BadSettings, DovecoteError
from outbox.kafka import kafka_logger
from outbox.kafka_errors import CLIENT_ERRORS, said_by_client
from outbox.threads import require_threads
from outbox.tokens.identity import KEY
from outbox.tokens.polled import PolledConsumer
from outbox.tokens.source import await_token, lasting

_log = logging.getLogger("dovecote.consumer")
_client_log = kafka_logger("dovecote.consumer.kafka")

_STATISTICS_MILLISECONDS = 2_000
_ASIDE_THREADS = 8
# librdkafka takes 5 s to leave a group whose coordinator is silent, if no commit is pending.
_LEAVE_SECONDS = 7.0
# A broker gives a member of the protocol `consumer` a session of 45 s, or of 60 s at most, unless
# its own settings say otherwise.
_SESSION_SECONDS, _AGAIN_SECONDS = 65.0, 2.0


class Consumer:
    """
    One member of a consumer group, with one handler.

    A record is completed when it was handled, skipped with a reason, or durably set aside; only
    then is its offset committed. Records with the same key are handled one after the other. Up to
    `concurrency` records with different keys are handled at the same time.

    `handler` takes an event and returns a `Result`, or None for `Done()`. With `takes_records` it
    takes the record, whose `event` is decoded on first use. With `handler_batch` it takes a list,
    and returns a list of results or None. An async function runs on its own event loop, any other
    in threads.

    `traced` False: the handler makes the spans of its records itself, if there are any.

    `begins` takes the usual records in place of an async `handler`, without a task for each.

    A consumer made before a fork may `run` in the child: until then it has neither threads nor
    connections.
    """

    def __init__(
        self,
        settings: ConsumerSettings,
        handler: Callable[..., Any],
        *,
        aside: Aside | None = None,
        takes_records: bool = False,
        metrics: Metrics | None = None,
        health: Health | None = None,
        loop: Loop | None = None,
        committed: Committed | None = None,
        claims: GroupClaims | None = None,
        proves: bool = True,
        traced: bool = True,
        begins: BeginsRecords | None = None,
    ) -> None:
        check_properties(settings.client_properties())
        self._settings = settings
        settings.retries.plan()  # raises now, and not when a record fails
        require_takes(handler, _handed(settings, takes_records=takes_records), duty="handler")
        if not takes_records:
            events_for(handler, settings)  # raises now, too
        self._given, self._takes_records = handler, takes_records
        self._set_aside, self._loop, self._report = aside, loop, committed
        self._begins = begins
        # The retry topics of a plan in code are named among the topics; nothing else names them.
        named = {*settings.topics} & {*getattr(aside, "retry_topics", ())}
        own = dict.fromkeys({*getattr(aside, "written", ())} - named, "failed records")
        if (problem := reads_own(settings.topics, own)) is not None:
            raise BadSettings(problem)
        self._claims, self._proves, self._traced = claims, proves, traced
        self._passes = compile_filter(settings.filter) if settings.filter else None
        self._record = read_with(decoder(settings))
        self.metrics = metrics or Metrics(settings.group)
        self.health = health or Health(
            stall_after=settings.stall_after.total_seconds(),
            behind_after=settings.behind_after.total_seconds(),
        )
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._commits: Commits | None = None
        self._watch: Watch | None = None
        self._silent = 0

    def stop(self) -> None:
        """Make `run` end; from any thread and from signal handlers."""
        self._stop.set()

    def commit_soon(self) -> None:
        """Commit completed records at once; from any thread."""
        if self._commits is not None:
            self._commits.hurry()

    def run(self) -> None:
        """
        Consume until `stop` is called; this thread polls.

        Raises:
            HandlerExited: the handler asked to end the process, or its code was not run.
            DovecoteError: Kafka refuses a request for good, or gave this member's place away.
            NoThreads: the threads here are greenlets, of gevent or eventlet.
        """
        require_threads(
            "a consumer", "run it in a process of its own, as `dovecote consume run` does"
        )
        await_token(self._settings.kafka, self._stop, self.health.failing)
        if self._stop.is_set():
            return
        self.health.failing("")
        # Asked here: a service may set its SDK up after it has made the consumer.
        self._spans = consumer_spans(self._settings.group)
        with assembled(
            self._settings,
            self._given,
            aside=self._set_aside,
            takes_records=self._takes_records,
            metrics=self.metrics,
            spans=self._spans if self._traced else None,
        ) as parts:
            self._consume(parts)
        if self._failure is not None:
            raise self._failure

    def _consume(self, parts: Assembled) -> None:
        handover = Handover(Lanes(self._settings.lane_of_no_key()))
        self._aside = parts.aside
        if self._claims is None:
            self._claims = parts.claims
        self._certainty = Certainty(doubted=self.metrics.doubted)
        with ThreadPoolExecutor(_ASIDE_THREADS, "aside") as threads:
            workers = workers_for(
                self._settings,
                parts.handle,
                handover,
                aside=parts.aside,
                passes=self._passes,
                threads=threads,
                failed=self._failed,
                loop=self._loop,
                certainty=self._certainty,
                begins=self._begins,
            )
            try:
                self._poll_once_free(handover, workers, threads)
            finally:
                workers.close()
                skips.tell(at_once=True)

    def _poll_once_free(
        self, handover: Handover, workers: Workers, threads: ThreadPoolExecutor
    ) -> None:
        """
        Poll, once the group has no other member with our `instance`.

        With the protocol `consumer`, a group keeps a process that was killed until the end of its
        session, and refuses the one that is started in its place.
        """
        until = time.monotonic() + _SESSION_SECONDS
        while True:
            try:
                self._poll(handover, workers, threads)
            except StillUsed:
                if self.health.was_member or time.monotonic() > until:
                    raise
                self.health.starting()
                said = (
                    f"the group still has a member with the `instance` {self._settings.instance}"
                )
                self.health.said(said)
                _log.warning("%s: waiting for the end of its session", said)
                if self._stop.wait(_AGAIN_SECONDS):
                    return
            else:
                return

    def _poll(self, handover: Handover, workers: Workers, threads: ThreadPoolExecutor) -> None:
        settings = self._settings
        client = self._client()
        commits = Commits(
            client,
            every=settings.commit_every.total_seconds(),
            counted=self.metrics.committed,
            report=self._report,
            # An active group keeps the offsets of what it is subscribed to.
            renewed=math.inf if settings.partitions is None else RENEWED_SECONDS,
            spans=self._spans,
        )
        self._commits = commits
        membership = Membership(
            commits,
            self._certainty,
            patience=None if settings.partitions is not None else patience(settings.kafka),
        )
        claiming = None
        if self._claims is not None and settings.partitions is None:
            claiming = Claiming(
                self._claims, membership, threads=threads, refused=self.metrics.refused
            )
        partitions = Partitions(
            settings, handover, workers, commits, self.metrics, spans=self._spans
        )
        starts = Starts(client, incremental=settings.incremental)
        retry_topics = self._retry_topics()
        assignment = Assignment(
            partitions,
            self._aside,
            threads,
            starts=starts,
            topics=Topics(topic_ids(settings.kafka), every=settings.refresh),
            record=self._record,
            retry_topics=retry_topics,
            claiming=claiming,
        )
        self._subscribing = subscribing = Subscribing(
            client, settings, assignment, starts, own=retry_topics, said=self.health.said
        )
        self._watch = watch = Watch(
            partitions.assigned,
            read_from=assignment.read_from,
            noted=partial(noted, settings.kafka, settings.group),
            stable=partial(stable_ends, settings.kafka),
            refused=partial(refused, settings.kafka),
            threads=threads,
            metrics=self.metrics,
            stall_after=settings.stall_after.total_seconds(),
        )
        polling = Polling(
            client,
            partitions,
            assignment,
            membership,
            subscribing=subscribing,
            watch=watch,
            health=self.health,
            spans=self._spans,
        )
        if self._proves:
            self.health.shared = proofs.shared(settings, self.health, lambda: subscribing.names)
            self.health.inbox = proofs.inbox(settings, self.health.worked)
        try:
            with self.health.proving():
                polling.run(self._stop)
        except CLIENT_ERRORS as error:
            said = said_by_client(error)
            if said is None:
                raise
            raise reason_to_end(said) or DovecoteError(f"Kafka: {said.str()}") from error
        finally:
            assignment.close()
            self._leave(client)

    def _retry_topics(self) -> frozenset[str]:
        """Return the topics whose records may have a history: the settings' and a plan's."""
        tiers = frozenset(tier.topic for tier in self._settings.retries.tiers)
        return tiers | frozenset(getattr(self._aside, "retry_topics", ()))

    def _leave(self, client: KafkaConsumer) -> None:
        try:
            within(_LEAVE_SECONDS, client.close)
        except TimeoutError:
            _client_log.warning(
                "Kafka does not answer: leaving group %s without notice; the group notices at "
                "the end of the session",
                self._settings.group,
            )
        else:
            _log.info("left group %s", self._settings.group)

    def _failed(self, error: BaseException) -> None:
        """End because something broke that is not a record's fault; the first reason counts."""
        if self._failure is None:
            self._failure = reason_of(error)
            _log.error("the consumer ends: %s", plain(self._failure))
        self._stop.set()

    def _client(self) -> KafkaConsumer:
        properties = {
            **self._settings.client_properties(),
            "statistics.interval.ms": _STATISTICS_MILLISECONDS,
            "stats_cb": self._statistics,
            "on_commit": self._committed,
        }
        return lasting(PolledConsumer, properties, _client_log, also=self._error)

    def _committed(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        if self._commits is not None:
            self._commits.answered(error, partitions)

    def _error(self, error: KafkaError) -> None:
        # The client logs it as well; while a server is away, many times a second.
        _client_log.debug("%s", error.str())
        if error.code() == KafkaError._BAD_MSG and self._watch is not None:  # noqa: SLF001  # the client's name for it
            self._watch.broker_failed(error.str())

    def _statistics(self, text: str) -> None:
        skips.tell()
        told = json.loads(text)
        up = [b for b in told["brokers"].values() if b["nodeid"] >= 0 and b["state"] == "UP"]
        group = told.get("cgrp", {})
        self._silent = 0 if up else self._silent + 1
        # A broker that is shown another token is not up for a moment.
        if not up and self._silent < (2 if KEY in self._settings.kafka else 1):
            return
        if not up:
            self.health.failing("no Kafka broker answers")
            _client_log.warning(
                "Kafka does not answer at %s: waiting; is `bootstrap.servers` right?",
                self._settings.kafka.get("bootstrap.servers"),
            )
        elif group.get("state") != "up":
            self.health.failing("the group's coordinator does not answer")
        else:
            self.health.failing("")
            # In microseconds: heartbeats and questions for records come every few seconds.
            self.health.answered(min(each.get("rxidle", 0) for each in up) / 1e6)
            if self._subscribing.is_alone or group.get("join_state") == "steady":
                self.health.joined()


def _handed(settings: ConsumerSettings, *, takes_records: bool) -> list[str]:
    """Return the arguments of the handler, in words."""
    one = "a record" if takes_records else "an event"
    if settings.handler_batch > 1:
        one = f"a list of {one.split()[1]}s"
    return [one] if settings.inbox is None else [one, "the inbox's transaction"]
