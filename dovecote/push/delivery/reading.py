"""Read the records of one subscription with its own consumer, and deliver them."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, closing
from functools import partial

import uvloop
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from dedup.consumer import Consumer
from dedup.kafka.letters import Letters
from dedup.retries.aside import Held, Partition, Placed, Unfinished
from dedup.retries.held_states import Place, States
from dedup.retries.held_states import State as HeldState
from dedup.rules.record import Record
from dedup.serving.retries import Retries
from dedup.serving.tasks import Loop
from dedup.settings.consumer import ConsumerSettings
from dedup.tracing.gate import consumer_spans
from dovecote.process.states import State
from dovecote.push.delivery import shape
from dovecote.push.delivery.delivery import DeliveryHandler
from dovecote.push.delivery.windows import Windows
from dovecote.push.http.client import Client, Patience
from dovecote.push.http.guard import Guard
from dovecote.push.metrics import SubscriptionMetrics
from dovecote.push.rules.condition import Condition
from dovecote.push.rules.condition import delivery as condition
from dovecote.push.rules.sending.addresses import Network
from dovecote.push.rules.sending.ports import Book, DeliveryReport
from dovecote.push.rules.subscription.sections import PerPartition
from dovecote.push.rules.subscription.subscription import Subscription
from dovecote.push.store.lease import Lease
from outbox import envelope
from outbox.errors import DovecoteError
from outbox.kafka import kafka_logger
from outbox.kafka_errors import right, told
from outbox.tokens.source import client_of, for_client

_log = logging.getLogger("dovecote.push")
_client_log = kafka_logger("dovecote.push.kafka")

_TOPIC_SECONDS = 10.0
# A process can have some thousand clients, and each subscription keeps one: others must be few.
_AT_ONCE = 8
_making: dict[str, threading.BoundedSemaphore] = {}
"""By broker: one that is away holds each of its subscriptions for long."""


class Reading:
    """One running subscription: from `run`, in the thread that polls, to `stop`."""

    def __init__(
        self,
        subscription: Subscription,
        kafka: Mapping[str, str],
        *,
        book: Book,
        numbers: SubscriptionMetrics,
        states: AbstractContextManager[States],
        allowed: tuple[Network, ...] = (),
        ca_file: str | None = None,
        origin: str = "dovecote",
        lease: Lease | None = None,
        readers: int = 1,
    ) -> None:
        """`readers`: how many subscriptions this process has."""
        self._subscription, self._kafka, self._lease = subscription, kafka, lease
        self._states, self._numbers = states, numbers
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = self._ending = False
        self._windows: Windows | None = None
        if isinstance(order := subscription.order, PerPartition):
            self._windows = Windows(partial(shape.window, order), self._commit_soon)
        endpoint = subscription.endpoint
        self._client = Client(
            shape.form(subscription),
            Guard(allowed),
            Patience(
                connect=endpoint.connect_timeout.total_seconds(),
                whole=endpoint.timeout.total_seconds(),
                most_bytes=endpoint.max_response_bytes,
            ),
            ca_file=ca_file,
        )
        self._delivery = DeliveryHandler(
            subscription,
            self._client,
            numbers,
            book,
            windows=self._windows,
            origin=origin,
        )
        self._settings = ConsumerSettings.model_validate(
            shape.consumer_settings(subscription, kafka, readers)
        )
        self._consumer: Consumer | None = None

    def run(self) -> None:
        """
        Deliver until `stop`.

        Raises:
            DovecoteError, KafkaException: delivery is not possible; the message says why.
        """
        if self._lease is not None:
            if not self._lease.take(self._lost):
                return
            with closing(self._lease):
                self._read()
            if not self._stopped:
                msg = "Postgres does not answer, and another process may have its partitions"
                raise DovecoteError(msg)
        else:
            self._read()

    def _read(self) -> None:
        plan = shape.plan(self._subscription)
        self._make_topics()
        with self._states as states, Letters(self._kafka) as letters:
            aside = _Retries(
                plan,
                letters,
                states=_KeptStates(states),
                group=self._settings.group,
                spans=consumer_spans(self._settings.group, "push"),
            )
            aside.reading = self
            delivery = self._delivery
            self._consumer = consumer = Consumer(
                self._settings,
                aside.handling(delivery.deliver),
                begins=aside.beginning(delivery.begin) if delivery.is_direct else None,
                aside=aside,
                takes_records=True,
                traced=False,  # its requests have spans
                loop=Loop(make=self._make_loop, end=self._client.close),
                committed=None if self._windows is None else self._committed,
                # There may be thousands of them, and other questions are of no use to them.
                proves=False,
            )
            self._numbers.in_flight.set_function(lambda: self._delivery.gate.in_flight)
            self._numbers.pace.set_function(lambda: self._delivery.gate.pace.found or 0.0)
            self._numbers.expired.set_function(lambda: consumer.metrics.expired_in_all)
            self._numbers.stuck.set_function(lambda: len(consumer.metrics.stuck_partitions))
            held_back = self._numbers.held_back
            held_back.set_function(lambda: len(consumer.metrics.held_back_partitions))
            self._numbers.lag.set_function(lambda: consumer.metrics.rows_behind)
            if self._ending:
                consumer.stop()
            consumer.run()

    def stop(self) -> None:
        """Make `run` return, once requests in flight are answered or `drain` is over."""
        self._stopped = True
        if self._lease is not None and self._consumer is None:
            self._lease.give_up()
        self._end()

    def _lost(self) -> None:
        self._end()

    def _end(self) -> None:
        self._ending = True
        self._on_loop(self._delivery.end)
        if self._consumer is not None:
            self._consumer.stop()

    def begins_anew(self, partitions: Collection[Partition]) -> None:
        """Forget work in partitions: another process may have had them meanwhile."""
        if self._windows is not None:
            self._on_loop(self._windows.forget, list(partitions))

    def gave_up(self, record: Record) -> None:
        """Count a record as a dead letter."""
        self._on_loop(self._delivery.gave_up, record)

    def snapshot(self) -> DeliveryReport:
        delivery, noted = self._delivery, self._delivery.noted
        p = noted.percentiles()
        trouble, lag, expired = delivery.trouble, None, 0
        if self._consumer is not None:
            health = self._consumer.health.ready()
            trouble = trouble or ("" if health.ok else health.reason)
            trouble = trouble or self._consumer.health.lacking or self._consumer.health.unmoved
            lag = self._consumer.metrics.rows_behind
            expired = self._consumer.metrics.expired_in_all
            seen = delivery.seen(health.state, health.reason, lag)
            found = condition(seen, time.time())
        elif self._ending:
            found = Condition(State.DRAINING, "stopped")
        elif self._lease is not None:
            found = Condition(State.STANDBY, "another process reads its partitions")
        else:
            found = Condition(State.STARTING, "it has not begun to read yet")
        return DeliveryReport(
            running=self._consumer is not None,
            trouble=trouble,
            in_flight=delivery.gate.in_flight,
            delivered=noted.delivered,
            failed=noted.failed,
            dead=noted.dead,
            lag=lag,
            expired=expired,
            p50_ms=p[0],
            p99_ms=p[1],
            circuit=delivery.circuit,
            last_minute=delivery.last_minute,
            state=found.state,
            reason=found.reason,
            since=found.since,
        )

    def _make_loop(self) -> asyncio.AbstractEventLoop:
        self._loop = uvloop.new_event_loop()
        return self._loop

    def _on_loop(self, call: Callable[..., object], *args: object) -> None:
        """Run a call on the loop, if there is one."""
        loop = self._loop
        if loop is None or loop.is_closed():
            return
        try:
            loop.call_soon_threadsafe(call, *args)
        except RuntimeError:
            _log.debug("the loop of %s has ended meanwhile", self._subscription.id)

    def _commit_soon(self) -> None:
        if self._consumer is not None:
            self._consumer.commit_soon()

    def _committed(self, topic: str, partition: int, position: int) -> None:
        if self._windows is not None:
            self._on_loop(self._windows.committed, topic, partition, position)

    def _make_topics(self) -> None:
        """Create the topics for dead letters and for requeued ones, if they do not exist."""
        broker = self._subscription.broker
        with _making.setdefault(broker, threading.BoundedSemaphore(_AT_ONCE)):
            if self._ending:
                return
            admin = client_of(AdminClient, for_client(self._kafka), _client_log)
            make_topics(admin, self._subscription)


def make_topics(admin: AdminClient, subscription: Subscription) -> None:
    """
    Create a subscription's topics for dead letters and for requeued ones, if they do not exist.

    Another process that begins at the same time may create them first. A topic that cannot be
    created is a warning.
    """
    try:
        there = admin.list_topics(timeout=_TOPIC_SECONDS).topics
    except KafkaException as error:
        _log.warning("%s: Kafka does not answer: %s", subscription.id, error.args[0].str())
        return
    missing = {subscription.dead_letters, subscription.requeued} - there.keys()
    if not missing:
        return
    config = {"cleanup.policy": "delete"}
    asked = admin.create_topics(
        [NewTopic(name, num_partitions=1, config=config) for name in sorted(missing)],
        request_timeout=_TOPIC_SECONDS,
    )
    for name, made in asked.items():
        try:
            made.result()
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                continue
            _log.warning(
                "%s: topic %r is not there and cannot be made: %s",
                subscription.id,
                name,
                told(error.args[0], right("Create", "topic", name)),
            )


class _Retries(Retries):
    """Notifies a reading of assigned partitions, and of records that are given up."""

    reading: Reading

    def assigned(self, partitions: Collection[Partition]) -> None:
        super().assigned(partitions)
        self.reading.begins_anew(partitions)

    def place(self, record: Record, result: Unfinished, attempt: int) -> Placed | Held:
        answer = super().place(record, result, attempt)
        if isinstance(answer, Placed):
            self.reading.gave_up(record)
        return answer


class _KeptStates:
    """
    `States` that pass on only drops of states that are stored.

    Most records that waited a moment have none.
    """

    def __init__(self, states: States) -> None:
        self._states = states
        self._kept: set[Place] = set()

    def load(self, partitions: Collection[Partition]) -> Mapping[Place, HeldState]:
        found = self._states.load(partitions)
        self._kept.update(found)
        return found

    def keep(self, record: Record, state: envelope.Delivery) -> None:
        self._kept.add(record[:3])
        self._states.keep(record, state)

    def drop(self, record: Record) -> None:
        if record[:3] in self._kept:
            self._states.drop(record)
            self._kept.discard(record[:3])
