"""
Publish batches to Kafka: in one transaction with their progress, or merely idempotently.

A publisher is used for one unbroken run of successes. After any failure it is closed and a new
one is opened, which bumps the epoch at the broker and reads progress again: librdkafka has no
KIP-890, and late produces of an aborted transaction could join the next one (KAFKA-17754).
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Literal, Protocol

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from outbox.envelope import ID, SUBJECT, TIME, kind_headers
from outbox.errors import BadSettings
from relay.capture.table import Row
from relay.errors import Fenced, Outage, RelayError, Unpublishable
from relay.progress import Progress

Mode = Literal["exactly_once", "at_least_once"]

_log = logging.getLogger("dovecote.relay.kafka")

# One call into librdkafka waits at most so long, so that a stop is noticed.
_SLICE = 1.0

# A transaction that begins while the broker still writes the markers of the one before is turned
# away, and librdkafka waits 20 ms before it asks again. A pause as long as the markers take is
# shorter; it doubles after a collision and shrinks slowly.
_COLLISION = 0.02
_SHORTEST_REST, _LONGEST_REST = 0.001, 0.016

_POSTGRES_EPOCH = 946_684_800

_FENCED = {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}  # noqa: SLF001  # the name librdkafka gives it
# What the broker can never take, however long one waits.
_POISON = {
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.INVALID_MSG_SIZE,
    KafkaError.RECORD_LIST_TOO_LARGE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001  # the name librdkafka gives it
    KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001  # the name librdkafka gives it
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.INVALID_RECORD,
    KafkaError.INVALID_TIMESTAMP,
    KafkaError.POLICY_VIOLATION,
}


class Publisher(Protocol):
    """Makes batches of events durable at the broker, together with the progress behind them."""

    def open(self) -> None:
        """Become the one that publishes; with transactions, fence any older one."""

    def publish(self, rows: Iterable[Row], progress: Progress) -> None:
        """
        Publish `rows` in their order, then `progress`; return when all is durable.

        Raises:
            Outage: the broker did not confirm in time; what became of the batch is unknown.
            Unpublishable: the broker refuses an event.
            Fenced: another relay has taken over.
        """

    def rest(self) -> float:
        """Return the seconds to wait before the next batch is worth beginning."""

    def close(self) -> None:
        """Drop what is in flight; never waits for the broker."""


class _KafkaPublisher:
    """What both publishers share: the producer, and events on their way into it."""

    def __init__(
        self,
        properties: Mapping[str, object],
        progress_topic: str,
        *,
        timeout: float,
        grace: float,
        stopped: Callable[[], bool],
    ) -> None:
        self._progress_topic, self._timeout = progress_topic, timeout
        self._grace, self._stopped = grace, stopped
        self._failure: tuple[KafkaError, Message] | None = None
        try:
            self._producer = Producer({**properties, "on_delivery": self._reported}, logger=_log)
        except KafkaException as error:
            msg = f"[kafka]: {error.args[0].str()}"
            raise BadSettings(msg) from error

    def close(self) -> None:
        self._producer.purge(in_queue=True, in_flight=True, blocking=False)
        self._producer.poll(0)

    def _produce(self, rows: Iterable[Row]) -> None:
        produce = self._producer.produce
        for row in rows:
            _, id_, at, topic, key, value, type_, source, subject, media, names, values = row
            headers = [(ID, id_), (TIME, format_time(at)), *kind_headers(type_, source, media)]
            if subject is not None:
                headers.append((SUBJECT, subject))
            if names:
                headers.extend(zip(names, values, strict=True))
            try:
                produce(topic, value, key, headers=headers)
            except BufferError:
                self._make_room()
                produce(topic, value, key, headers=headers)
            except KafkaException as error:
                raise self._explain(error.args[0], f"event {id_} for topic {topic!r}") from error

    def _produce_progress(self, progress: Progress) -> None:
        self._producer.produce(
            self._progress_topic,
            progress.encode(),
            progress.name.encode(),
            partition=0,
        )

    def _make_room(self) -> None:
        """Wait until the producer's queue takes more."""
        full = len(self._producer)
        self._until(lambda left: self._producer.poll(left) or len(self._producer) < full)

    def _until(self, done: Callable[[float], object]) -> None:
        """Call `done` with a time to wait until it returns something true, or time is up."""
        began = time.monotonic()
        while not done(_SLICE):
            bound = self._grace if self._stopped() else self._timeout
            if time.monotonic() - began > bound:
                msg = f"the broker did not answer within {self._timeout:g} s"
                raise Outage(msg)

    def _reported(self, error: KafkaError | None, message: Message) -> None:
        """Keep the first event that could not be delivered (successes are not reported)."""
        if error is not None and self._failure is None:
            self._failure = (error, message)

    def _explain(self, error: KafkaError, what: str) -> RelayError:
        """Return the exception that says what `error` means for the relay."""
        if self._failure is not None:
            failed, message = self._failure
            if failed.code() in _POISON:
                return Unpublishable(_poison(failed, message))
        if error.code() in _FENCED:
            return Fenced(f"{what}: another relay has taken over ({error.str()})")
        if error.code() in _POISON:
            return Unpublishable(f"{what}: the broker refuses it ({error.str()})")
        return Outage(f"{what}: {error.name()}: {error.str()}")


class TransactionalPublisher(_KafkaPublisher):
    """Exactly once: each batch and its progress are one Kafka transaction."""

    _rest = _SHORTEST_REST

    def open(self) -> None:
        try:
            self._producer.init_transactions(self._timeout)
        except KafkaException as error:
            raise self._explain(error.args[0], "init_transactions") from error

    def publish(self, rows: Iterable[Row], progress: Progress) -> None:
        began = time.monotonic()
        try:
            self._producer.begin_transaction()
            self._produce(rows)
            self._produce_progress(progress)
            self._until(self._commit)
        except KafkaException as error:
            self._producer.poll(0)
            raise self._explain(error.args[0], "transaction") from error
        collided = time.monotonic() - began > _COLLISION
        self._rest = (
            min(self._rest * 2, _LONGEST_REST)
            if collided
            else max(self._rest * 0.9, _SHORTEST_REST)
        )

    def rest(self) -> float:
        return self._rest

    def _commit(self, wait: float) -> bool:
        try:
            self._producer.commit_transaction(wait)
        except KafkaException as error:
            # Safe to call again, and meant to be: the commit goes on in the background.
            if error.args[0].retriable():
                return False
            raise
        return True


class IdempotentPublisher(_KafkaPublisher):
    """At least once: progress follows its batch, so a crash may repeat the batch in between."""

    def open(self) -> None:
        """Nothing fences here: two relays may overlap until the old one notices."""

    def rest(self) -> float:
        return 0.0

    def publish(self, rows: Iterable[Row], progress: Progress) -> None:
        try:
            self._produce(rows)
            self._flush()
            self._produce_progress(progress)
            self._flush()
        except KafkaException as error:
            raise self._explain(error.args[0], "produce") from error

    def _flush(self) -> None:
        self._until(lambda wait: self._failure is not None or self._producer.flush(wait) == 0)
        if self._failure is not None:
            error, message = self._failure
            raise self._explain(error, f"event for topic {message.topic()!r}")


def producer_properties(
    given: Mapping[str, str], *, mode: Mode, transactional_id: str, transaction_timeout: float
) -> dict[str, str | bool]:
    """
    Return the producer's configuration: our defaults, `given` on top, guarantees above both.

    What a guarantee rests on cannot be set otherwise; `RelaySettings` refuses to.
    """
    timeout = str(int(transaction_timeout * 1000))
    defaults: dict[str, str] = {
        "compression.type": "lz4",
        # A commit flushes at once; lingering only spares the broker thread many small requests.
        "linger.ms": "20",
        "batch.size": "1000000",
        # The broker's own default; librdkafka's, 1000000, is below what `outbox.Limits` let in.
        "message.max.bytes": "1048588",
        "queue.buffering.max.messages": "1000000",
        "queue.buffering.max.kbytes": "1048576",
        "message.timeout.ms": timeout,
        "retry.backoff.ms": "5",
        "retry.backoff.max.ms": "500",
        "reconnect.backoff.ms": "50",
        "reconnect.backoff.max.ms": "2000",
        "client.id": "dovecote-relay",
    }
    fixed: dict[str, str | bool] = {
        "acks": "all",
        "enable.idempotence": "true",
        # librdkafka's own default differs from Java's, and a key would change its partition.
        "partitioner": "murmur2_random",
        "delivery.report.only.error": True,
    }
    if mode == "exactly_once":
        fixed |= {"transactional.id": transactional_id, "transaction.timeout.ms": timeout}
    return {**defaults, **given, **fixed}


FIXED = frozenset(
    {"acks", "enable.idempotence", "partitioner", "delivery.report.only.error"}
    | {"transactional.id", "transaction.timeout.ms", "isolation.level", "enable.gapless.guarantee"}
)
"""Properties that a guarantee rests on; settings that name one are refused."""


def format_time(microseconds: int) -> str:
    """Return the RFC 3339 text of a time in microseconds since 2000-01-01 UTC."""
    seconds, rest = divmod(microseconds, 1_000_000)
    return f"{_second(seconds)}.{rest:06d}Z"


@lru_cache(maxsize=4096)
def _second(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds + _POSTGRES_EPOCH))


def _poison(error: KafkaError, message: Message) -> str:
    headers = dict(message.headers() or ())
    id_ = headers.get(ID, b"?")
    text = id_.decode() if isinstance(id_, bytes) else id_
    return (
        f"event {text} for topic {message.topic()!r} cannot be published "
        f"({error.name()}: {error.str()}); create the topic, raise its max.message.bytes or "
        "grant access. Everything behind the event waits, nothing is lost"
    )
