"""
Publish batches to Kafka: in one transaction with their progress, or only idempotently.

A publisher serves one unbroken run of successes. After any failure it is closed and a new one is
opened, which bumps the epoch at the broker and reads progress again: librdkafka has no KIP-890,
and late produces of an aborted transaction could join the next one (KAFKA-17754).
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from itertools import cycle
from typing import Protocol, TypeAlias

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from outbox.kafka import Credentials, kafka_logger, number, reach
from outbox.kafka_errors import (
    CLIENT_ERRORS,
    FORBIDDEN,
    refusal_of,
    right,
    said_by_client,
    told,
)
from outbox.tokens.source import client_of, for_client
from relay.decoding.headers import headers
from relay.errors import Fenced, Outage, Refused, RelayError, Unpublishable
from relay.kafka.errors import BROKEN, CLOCK, FENCED, POISON, of_clocks, refusal
from relay.kafka.undelivered import Undelivered
from relay.rules.parking import OWN_TOPIC, Scope
from relay.rules.places.progress import Progress
from relay.rules.row import KEY, TOPIC, VALUE, Key, Row, content_of, key_of, size_of, topic_of
from relay.rules.topics import Ask, no_answer

_log = kafka_logger("dovecote.relay.kafka")

# The longest wait in one call into librdkafka, so that a stop is noticed.
_SLICE = 1.0
# An answer that takes longer is reported to the operator.
_PATIENCE = 2.0
# After this long, and then from time to time, a wait checks whether the topics still exist.
_DOUBT, _NEXT_DOUBT = 0.5, 5.0
# How long a broker may take to answer; then everything begins anew.
_ANSWER = 5.0
# librdkafka's limit if nobody sets another.
_MESSAGE_MAX_BYTES = 1_000_000

# The pause between two looks where nothing wakes the waiting thread.
_MOMENT = 0.005

_ANY_PARTITION, _NOW = -1, 0

# librdkafka sends nothing of a transaction before the coordinator knows its partitions, and asks
# it a millisecond after the first record. Until it answers, more events may be read.
_UNSENT = 0.0012

# The most keys remembered of an idempotent producer; then they are forgotten, which costs a batch
# one more round trip.
_MOST_KEYS = 100_000
_LONGEST_KEY = 1_000

More: TypeAlias = Callable[[float], tuple[Sequence[Row], Progress] | None]
"""Returns what has come since, and the progress after it; may take the given seconds."""


def no_more(_: float) -> None:
    """Leave what has come since to the next batch."""


Ready: TypeAlias = Callable[[], None]
"""Called before anything becomes visible; returns when it may, or raises why it may not."""


def at_once() -> None:
    """Let it become visible at once."""


class Publisher(Protocol):
    """Makes batches of events durable at the broker, together with the progress after them."""

    def open(self) -> None:
        """Become the publishing relay; with transactions, fence any older one."""

    def mark(self, key: bytes, value: str) -> None:
        """
        Write a record of its own to the progress topic; return when it is durable.

        A reader of the topic up to that record knows everything that was committed before `open`.

        Raises:
            Outage: the broker did not confirm in time.
            Fenced: another relay has taken over.
        """

    def publish(
        self, rows: Sequence[Row], progress: Progress, more: More = no_more, ready: Ready = at_once
    ) -> None:
        """
        Publish `rows` in their order, then `progress`; return when everything is durable.

        If `more` is called at all, its events follow `rows` as a part of the same batch. Nothing
        becomes visible before `ready` returns.

        Raises:
            Outage: the broker did not confirm in time; whether the batch was published is unknown.
        """

    def close(self) -> None:
        """Drop what is in flight; wait a second for the broker at most."""


class _KafkaPublisher:
    """
    The common part of both publishers: the producer, and the events on their way into it.

    `slow` gets the reason when the broker takes its time; `ask` returns whether the topics of the
    batch still exist.
    """

    def __init__(
        self,
        properties: Mapping[str, object],
        progress_topic: str,
        *,
        timeout: float,
        grace: float,
        stopped: Callable[[], bool],
        slow: Callable[[str], None],
        ask: Ask = no_answer,
        require_role: Callable[[], object] = lambda: None,
    ) -> None:
        self._progress_topic, self._timeout, self._ask = progress_topic, timeout, ask
        self._require_role = require_role
        self._grace, self._stopped, self._slow = grace, stopped, slow
        self._transactional_id = str(properties.get("transactional.id", ""))
        self._rows: list[Row] = []
        self._undelivered = Undelivered()
        self._most_bytes = number(properties.get("message.max.bytes", _MESSAGE_MAX_BYTES))
        self._one_by_one = properties.get("batch.num.messages") == "1"
        # librdkafka's latest error about its brokers, for the operator.
        self._said: deque[KafkaError] = deque(maxlen=1)
        # Bound methods of this publisher would make a reference cycle with the producer. It would
        # then stay, with its threads and sockets, until Python looks for cycles, which a relay
        # rarely does.
        self._credentials = Credentials(properties, self._said.append)
        callbacks = {
            "on_delivery": self._undelivered.reported,
            "error_cb": self._credentials.heard,
        }
        self._producer = client_of(Producer, {**for_client(properties), **callbacks}, _log)
        self._credentials.keep(self._producer)

    def close(self) -> None:
        self._producer.purge(in_queue=True, in_flight=True, blocking=False)
        self._serve()
        # The producer ends with its last reference, and an exception may hold this publisher for
        # long.
        self._credentials.let_go()
        del self._producer

    def _serve(self, wait: float = 0.0) -> None:
        """Let librdkafka run its callbacks."""
        try:
            self._producer.poll(wait)
        except CLIENT_ERRORS as error:
            # Fatal errors are raised here, and again by any other call.
            _log.debug("%s", error)

    def _forget(self) -> None:
        """Release the events of a durable batch, as this publisher's next turn may come late."""
        self._rows.clear()

    def _produce(self, rows: Sequence[Row]) -> None:
        self._rows += rows
        self._send(rows)

    def _send(self, rows: Sequence[Row]) -> None:
        produce, alone = self._producer.produce, self._one_by_one
        report: Callable[[KafkaError | None, Message], None] | None = None
        if self._progress_topic in map(topic_of, rows):
            row = next(row for row in rows if row[TOPIC] == self._progress_topic)
            raise Unpublishable(row, OWN_TOPIC, before=self._rows.index(row))
        for row, of_row in zip(rows, headers(rows), strict=True):
            topic, key, value = row[TOPIC], row[KEY], row[VALUE]
            if alone:
                report = partial(self._undelivered.reported, row=row)
            # Positional arguments: matching names takes a tenth of the call's time.
            try:
                produce(topic, value, key, _ANY_PARTITION, report, None, _NOW, of_row)
            except BufferError:
                self._when_there_is_room(
                    partial(produce, topic, value, key, on_delivery=report, headers=of_row)
                )
            except KafkaException as error:
                if error.args[0].code() in POISON:
                    raise self._too_large(row, error.args[0]) from error
                raise

    def _produce_progress(self, progress: Progress) -> None:
        self._produce_own(progress.key, progress.encode())

    def _produce_own(self, key: bytes, value: bytes) -> None:
        topic = self._progress_topic
        self._when_there_is_room(partial(self._producer.produce, topic, value, key, partition=0))

    def _when_there_is_room(self, produce: Callable[[], None]) -> None:
        """Call `produce` until the producer's queue accepts its record."""

        def produced(_: float) -> bool:
            try:
                produce()
            except BufferError:
                self._producer.poll(_MOMENT)  # nothing wakes it: deliveries are not reported
                return False
            return True

        self._until(produced)

    def _until(self, done: Callable[[float], object]) -> None:
        """Call `done` with a time to wait until it returns something true, or time is up."""
        began = time.monotonic()
        doubts = _DOUBT
        while not done(_SLICE):
            bound = self._grace if self._stopped() else self._timeout
            waited = time.monotonic() - began
            if waited > doubts and not self._stopped():
                doubts = waited + _NEXT_DOUBT
                self._require_topics()
            said = f" ({self._said[0].str()})" if self._said else ""
            reason = f"Kafka: a batch is not confirmed after {waited:.0f} s{said}"
            if waited > bound:
                raise Outage(reason)
            if waited > _PATIENCE:
                self._slow(reason)

    def _require_topics(self) -> None:
        """
        Check that no topic of the batch is gone: librdkafka would wait for it until time is up.
        """
        for topic, reason in self._ask(set(map(topic_of, self._rows))).items():
            if reason is not None:
                places = (n for n, each in enumerate(self._rows) if topic_of(each) == topic)
                place = next(places)
                raise Unpublishable(self._rows[place], reason, scope=Scope.TOPIC, before=place)

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        """
        Turn errors of librdkafka into the relay's.

        They lose their frames: confluent_kafka never releases a fatal error, whose frames would
        keep the producer, with its threads and sockets.
        """
        try:
            yield
        except CLIENT_ERRORS as error:
            said = said_by_client(error, self._refusal)
            if said is None:
                raise
            if error.__cause__ is not None:
                error.__cause__.with_traceback(None)
            raise self._explain(said, what) from error.with_traceback(None)

    def _refusal(self) -> KafkaError | None:
        """Return why the producer is broken, from a call or a report that tells."""
        first = self._undelivered.first
        return first and first[0]

    def _explain(self, error: KafkaError, what: str) -> RelayError:
        """Return the exception that `error` means for the relay."""
        self._serve()
        if error.code() in BROKEN:
            # A refused record breaks the producer before it is reported.
            end = time.monotonic() + _SLICE
            reported = self._undelivered
            while not (reported.poison() or reported.of_clocks()) and time.monotonic() < end:
                self._serve(_MOMENT)
        late = self._undelivered.of_clocks()
        if late is not None or error.code() in CLOCK:
            # If a request has several such records, each is reported as an invalid record.
            return Outage(of_clocks(late and late[1].topic(), error.str(), time.time()))
        if (refused := self._undelivered.poison()) is not None:
            cause, message, row = refused
            topic = message.topic()
            lost = (topic, message.key(), message.value())
            # A report has no headers, so only a producer that sent one event alone knows whose it
            # is.
            row = row or next((each for each in self._rows if lost == content_of(each)), None)
            if row is not None:
                return self._unpublishable(row, cause, is_known=self._one_by_one)
            if topic == self._progress_topic and cause.code() in FORBIDDEN:
                said = told(cause, right("Write", "topic", self._progress_topic))
                msg = f"not allowed to write progress: {said}"
                return Refused(msg)
            return Outage(f"Kafka: topic {topic}: {cause.str()}")
        if error.code() in FENCED:
            return Fenced(f"{what}: another relay has taken over ({error.str()})")
        return refusal(
            error,
            self._timeout,
            progress_topic=self._progress_topic,
            transactional_id=self._transactional_id,
        ) or Outage(f"Kafka: {what}: {error.name()}: {error.str()}")

    def _too_large(self, row: Row, cause: KafkaError) -> Unpublishable:
        """Return librdkafka's refusal of `row`, with all others that it would refuse."""
        refused = self._unpublishable(row, cause, is_known=True)
        refused.alike = [each for each in self._rows if size_of(each) > self._most_bytes]
        return refused

    def _unpublishable(self, row: Row, cause: KafkaError, *, is_known: bool) -> Unpublishable:
        return self._undelivered.unpublishable(self._rows, row, cause, is_known=is_known)


class TransactionalPublisher(_KafkaPublisher):
    """Exactly once: each batch and its progress are one Kafka transaction."""

    _unfinished = False

    def open(self) -> None:
        with self._explained("init_transactions"):
            reach(self._producer, self._progress_topic, min(self._timeout, _ANSWER))
            self._until(self._init)

    def _init(self, wait: float) -> bool:
        try:
            self._producer.init_transactions(wait)
        except KafkaException as error:
            # It goes on in the background, and may be called again.
            if error.args[0].retriable():
                return False
            raise
        return True

    def mark(self, key: bytes, value: str) -> None:
        with self._explained("transaction"):
            self._producer.begin_transaction()
            self._unfinished = True
            self._produce_own(key, value.encode())
            self._until(self._commit)
            self._unfinished = False

    def publish(
        self, rows: Sequence[Row], progress: Progress, more: More = no_more, ready: Ready = at_once
    ) -> None:
        with self._explained("transaction"):
            began = time.monotonic()
            self._producer.begin_transaction()
            self._unfinished = True
            self._produce(rows)
            # Now, even if progress is sent once more: its partition, too, must be known in time.
            self._produce_progress(progress)
            left = began + _UNSENT - time.monotonic()
            if rows and left > 0 and (later := more(left)) is not None:
                rows, progress = later
                self._produce(rows)
                self._produce_progress(progress)
            ready()
            self._until(self._commit)
            self._unfinished = False
        self._forget()

    def close(self) -> None:
        if self._unfinished:
            try:
                # Left open, it would hide later records from readers until it times out.
                self._producer.abort_transaction(_SLICE)
            except CLIENT_ERRORS as error:
                _log.debug("not aborted: %s", error)
        super().close()

    def _refusal(self) -> KafkaError | None:
        refused = refusal_of(partial(self._producer.abort_transaction, _SLICE))
        return refused or super()._refusal()

    def _commit(self, wait: float) -> bool:
        try:
            self._producer.commit_transaction(wait)
        except KafkaException as error:
            # Safe to call again, as intended: the commit goes on in the background.
            if error.args[0].retriable():
                return False
            raise
        return True


class PublisherInTurn:
    """
    Exactly once, with transactional publishers that take turns.

    Kafka answers a commit before its markers are written, and rejects a new transaction of the
    same transactional.id until they are: librdkafka then waits 20 ms. Another id need not wait. A
    batch begins when the one before it is committed, so the order is that of a single publisher.
    """

    def __init__(self, publishers: Sequence[Publisher]) -> None:
        self._publishers, self._turns = publishers, cycle(publishers)

    def open(self) -> None:
        """Fence every user of one of the ids; after that, none of their transactions is open."""
        for publisher in self._publishers:
            publisher.open()

    def mark(self, key: bytes, value: str) -> None:
        # All are fenced by now, so one of them can mark the end for all.
        self._publishers[0].mark(key, value)

    def publish(
        self, rows: Sequence[Row], progress: Progress, more: More = no_more, ready: Ready = at_once
    ) -> None:
        next(self._turns).publish(rows, progress, more, ready)

    def close(self) -> None:
        for publisher in self._publishers:
            publisher.close()


class IdempotentPublisher(_KafkaPublisher):
    """
    At least once: progress follows its batch, so a crash may repeat the batch in between.

    Nothing fences an older relay. It checks the role before a batch and before its progress; if
    its progress comes late all the same, the lower term gives it away.

    The first event of each key is awaited before the others follow. A broker that does not know a
    producer accepts a second request although it has refused the first. Once it has accepted
    anything for the key's partition, it refuses whatever would leave a gap.
    """

    _keys: set[Key]
    """The keys of which the broker has accepted an event."""

    def open(self) -> None:
        """Forget all keys. Nothing is fenced: two relays may overlap until the old one notices."""
        self._keys = set()

    def mark(self, key: bytes, value: str) -> None:
        with self._explained("produce"):
            self._produce_own(key, value.encode())
            self._flush()

    def publish(
        self, rows: Sequence[Row], progress: Progress, more: More = no_more, ready: Ready = at_once
    ) -> None:
        del more  # what was produced is on its way already
        # Before and after the batch: a relay that was paused sends no batch beyond the one in
        # flight.
        self._require_role()
        ready()
        with self._explained("produce"):
            self._rows += rows
            for part in self._parts(rows):
                self._send(part)
                self._flush()
        self._require_role()
        with self._explained("produce"):
            self._produce_progress(progress)
            self._flush()
        self._forget()

    def _parts(self, rows: Sequence[Row]) -> Sequence[Sequence[Row]]:
        """Divide a batch into the first events of their keys, if there are any, and the others."""
        keys, first, others = self._keys, list[Row](), list[Row]()
        if len(keys) > _MOST_KEYS:
            keys.clear()
        for row, key in zip(rows, map(remembered, rows), strict=True):
            if key in keys or key[1] is None:
                others.append(row)
            else:
                keys.add(key)
                first.append(row)
        return (first, others) if first else (others,)

    def _flush(self) -> None:
        self._until(
            lambda wait: self._undelivered.first is not None or self._producer.flush(wait) == 0
        )
        if self._undelivered.first is not None:
            raise self._explain(self._undelivered.first[0], "produce")


def remembered(row: Row) -> Key:
    """Return the key of an event; for a long one, a digest that is as good to know it by."""
    topic, key = found = key_of(row)
    return found if key is None or len(key) <= _LONGEST_KEY else (topic, sha256(key).digest())
