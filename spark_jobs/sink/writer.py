"""One Kafka transaction per turn: its records and its marker, by a fenced producer."""

import logging
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from dovecote.process.memory import keep_freed
from dovecote.process.topics import without_write
from outbox.kafka import reach
from outbox.kafka_errors import CLIENT_ERRORS, refusal_of, right, said_by_client, told
from spark_jobs.errors import JobError, KafkaUnavailable
from spark_jobs.sink import kafka_options
from spark_jobs.sink.marker_topic import MarkerTopic, fence
from spark_jobs.sink.markers import Marker
from spark_jobs.sink.outgoing import Outgoing, Written, written

# librdkafka logs every fencing and lost connection; we get over all of them, or report them.
_silent = logging.getLogger("dovecote.spark.librdkafka")
_silent.setLevel(logging.CRITICAL + 1)

_POISON = {
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.INVALID_MSG_SIZE,
    KafkaError.RECORD_LIST_TOO_LARGE,
    KafkaError.INVALID_RECORD,
    KafkaError.INVALID_TIMESTAMP,
    KafkaError.POLICY_VIOLATION,
    KafkaError._INVALID_DIFFERENT_RECORD,  # noqa: SLF001  # librdkafka's name
}
"""Errors for records that the broker can never take because of their content."""

_FENCED = {
    KafkaError._FENCED,  # noqa: SLF001  # librdkafka's name
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
}

# Errors of records that were dropped with their transaction or request; the cause was another one.
_DROPPED = {
    KafkaError._PURGE_QUEUE,  # noqa: SLF001  # librdkafka's names
    KafkaError._PURGE_INFLIGHT,  # noqa: SLF001  # as above
    KafkaError._INVALID_DIFFERENT_RECORD,  # noqa: SLF001  # as above
}

_POLL_SECONDS = 0.1
_CLOSE_SECONDS = 5.0


class NotCommitted(JobError):
    """A transaction failed, or its result is unknown: only the marker can show it."""


class Fenced(NotCommitted):
    """
    Another writer of this partition has been opened since.

    Mostly it is in another worker of the same job: Spark gives a partition to any worker, and each
    worker keeps its writers.
    """


class Poisoned(JobError):
    """
    The broker does not take some records of a transaction, because of their content.

    `rejected` has their positions and the reasons; it is empty if a request of many records was
    rejected as one. `for_time`: the broker refuses their timestamps.
    """

    def __init__(
        self, rejected: Mapping[int, str], reason: str, *, for_time: bool = False
    ) -> None:
        super().__init__(reason)
        self.rejected, self.for_time = dict(rejected), for_time


class Writer:
    """
    Writes one shuffle partition of one query, from its fence to its first failure.

    After a failure it cannot be used any more: librdkafka does not know the result of a
    transaction, and late produces of an aborted one could join the next (KAFKA-17754).
    """

    def __init__(
        self,
        properties: Mapping[str, str],
        *,
        transactional_id: str,
        partition: int,
        topic: MarkerTopic,
        timeout: float,
        one_by_one: bool = False,
    ) -> None:
        """`one_by_one`: one record per request, so that a rejected one rejects no others."""
        config = kafka_options.producer(
            properties, transactional_id=transactional_id, timeout=timeout
        )
        if one_by_one:
            config["batch.num.messages"] = 1
        self._partition, self._topic, self._timeout = partition, topic, timeout
        self._one_by_one = one_by_one
        self._rejected: dict[int, str] = {}
        self._topics_written: set[str] = set()
        self._client = kafka_options.client(properties)
        # The number of the shuffle partition follows.
        self._transactional_ids = transactional_id.rpartition(".")[0] + "."
        self._failure: KafkaError | None = None
        self._report = self._reported  # a new bound method for each record takes a while
        # Writers are in Spark's worker processes, which do nothing else.
        keep_freed()
        self._producer = kafka_options.made(
            Producer,
            lambda: {**kafka_options.with_token(config), "error_cb": self._ended},
            _silent,
        )
        self.marker: Marker | None = None
        self.name = secrets.token_hex(8)
        """Distinguishes it from all other writers."""

    def open(self) -> None:
        """
        Fence every older writer of this partition, then read its marker up to a nonce.

        Until then, the broker from which we read may not be the leader; see
        `MarkerTopic.read_after`.

        Raises:
            NotCommitted: the broker does not answer in time.
        """
        self._call(partial(reach, self._producer, self._topic.name), "reach the brokers")
        self._call(self._producer.init_transactions, "fence older writers")
        self._transact([], *fence(self.name.encode()))
        try:
            self.marker = self._topic.read_after(self._partition, self.name.encode())
        except KafkaUnavailable as error:
            raise NotCommitted(str(error)) from error

    def commit(self, outgoing: Iterable[Outgoing], marker: Marker) -> None:
        """
        Write the records and the marker in one transaction.

        Raises:
            Poisoned: the broker does not take some of the records.
            NotCommitted: the transaction failed, or its result is unknown.
        """
        self._transact(outgoing, marker.encode(), str(self._partition).encode())
        self.marker = marker

    def close(self) -> None:
        """
        Drop the records that were not sent yet; the next writer's fence aborts those that were.
        """
        self._producer.purge()
        # Each record that is not reported holds this writer, and with it the producer, for ever.
        with suppress(*CLIENT_ERRORS):
            self._producer.flush(_CLOSE_SECONDS)

    def _transact(self, outgoing: Iterable[Outgoing], value: bytes, key: bytes) -> None:
        """Commit the records, and one more to our partition of the marker topic."""
        try:
            self._producer.begin_transaction()
            for position, record in enumerate(written(outgoing)):
                self._produce(position, record)
            if self._rejected:
                raise Poisoned(self._rejected, "too large for this client")
            self._producer.produce(
                self._topic.name,
                value,
                key,
                partition=self._partition,
                on_delivery=self._reported,
            )
            self._deliver()
        except CLIENT_ERRORS as error:
            if (said := self._said(error)) is None:
                raise
            raise self._explained(said, "write") from error
        self._call(self._producer.commit_transaction, "commit")

    def _produce(self, position: int, record: Written) -> None:
        topic, key, value, headers, timestamp = record
        self._topics_written.add(topic)
        report = self._reporter(position) if self._one_by_one else self._report
        deadline: float | None = None
        while True:
            try:
                self._producer.produce(
                    topic,
                    value,
                    key,
                    headers=headers,  # type: ignore[arg-type]  # invariant, only read
                    timestamp=max(0, timestamp),
                    on_delivery=report,
                )
            except BufferError:
                now = time.monotonic()
                deadline = now + self._timeout if deadline is None else deadline
                if now > deadline:
                    msg = f"write: the broker took nothing for {self._timeout:g} s"
                    raise NotCommitted(msg) from None
                self._producer.poll(_POLL_SECONDS)
            except KafkaException as error:
                # The client checks a record's size before it takes it.
                if error.args[0].code() != KafkaError.MSG_SIZE_TOO_LARGE:
                    raise
                self._rejected[position] = error.args[0].str()
                return
            else:
                return

    def _deliver(self) -> None:
        """
        Wait until the broker has every record, or refuses one.

        The commit would wait for all records. After a refused record the next sequence numbers are
        wrong, and librdkafka retries those records until they time out.
        """
        deadline = time.monotonic() + self._timeout
        while self._producer.flush(_POLL_SECONDS):
            if self._failure is not None:
                raise self._explained(self._failure, "write")
            if time.monotonic() > deadline:
                msg = f"write: the broker did not take all within {self._timeout:g} s"
                raise NotCommitted(msg)

    def _ended(self, error: KafkaError) -> None:
        # librdkafka gets over errors that are not fatal; fatal ones are only called "fatal" by the
        # next call.
        if error.fatal():
            self._failure = error

    def _reported(self, error: KafkaError | None, _: Message) -> None:
        # The first error that says why; the others were dropped because of it.
        if error is not None and (self._failure is None or self._failure.code() in _DROPPED):
            self._failure = error

    def _reporter(self, position: int) -> Callable[[KafkaError | None, Message], None]:
        def reported(error: KafkaError | None, message: Message) -> None:
            self._reported(error, message)
            if error is not None and error.code() in _POISON - _DROPPED:
                self._rejected[position] = error.str()

        return reported

    def _call(self, step: Callable[[float], object], what: str) -> None:
        """Call `step` until it is done: a call that timed out goes on in the background."""
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                step(max(_POLL_SECONDS, deadline - time.monotonic()))
            except CLIENT_ERRORS as error:
                if (said := self._said(error)) is None:
                    raise
                if said.retriable() and time.monotonic() < deadline:
                    continue
                raise self._explained(said, what) from error
            else:
                return

    def _said(self, error: Exception) -> KafkaError | None:
        """Return what the client says in an error; if that tells nothing, in refusing an abort."""
        abort = partial(self._producer.abort_transaction, _POLL_SECONDS)
        return said_by_client(error, partial(refusal_of, abort))

    def _needed(self, error: KafkaError) -> list[str]:
        """Return the rights that are missing, if an error is about rights."""
        if error.code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            return [right("Write", "transactional id", self._transactional_ids) + ", prefixed"]
        if error.code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return []
        lacking = without_write(self._client, {self._topic.name, *self._topics_written})
        return [right("Write", "topic", topic) for topic in lacking]

    def _explained(self, error: KafkaError, what: str) -> NotCommitted | Poisoned:
        with suppress(*CLIENT_ERRORS):  # a fenced producer raises again here; `error` has it
            self._producer.poll(0)  # serves the broker's reports on single records
        failed = self._failure
        text = f"{what}: {error.name()}: {told(error, *self._needed(error))}"
        if failed is not None and failed.code() not in _DROPPED:
            text = f"{text} ({failed.name()}: {told(failed, *self._needed(failed))})"
        code = error.code()
        if failed is not None and (failed.code() not in _DROPPED or code not in _POISON):
            code = failed.code()
        if self._rejected or code in _POISON:
            of_time = code == KafkaError.INVALID_TIMESTAMP
            return Poisoned(self._rejected, text, for_time=of_time)
        return Fenced(text) if {code, error.code()} & _FENCED else NotCommitted(text)
