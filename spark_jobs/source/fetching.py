"""
Read ranges of offsets in a task, with librdkafka.

A range is at its end when its last offset has come, or a record after it, or the partition's end.
Nothing else tells: control records, aborted transactions and compacted records leave gaps.
"""

import logging
import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as Received

from dedup.rules.unread import Place
from dedup.unread.notes import summary
from dedup.unread.probing import CHECKED, OF_RECORD, noted, unread
from outbox.errors import DovecoteError
from outbox.kafka import Credentials, kafka_logger
from outbox.kafka_errors import OF_GROUP, right, told
from spark_jobs.errors import KafkaUnavailable, SourceChanged
from spark_jobs.rows.records import Message
from spark_jobs.sink import kafka_options
from spark_jobs.source.config import SourceConfig
from spark_jobs.source.offsets import Range

_log = kafka_logger("dovecote.spark.librdkafka")
_steps = logging.getLogger("dovecote.spark")

# Records that are fetched after the end of a range are thrown away. So a range of few records
# takes small fetches, and a large one takes large fetches, which a network with a delay needs.
_MANY_RECORDS = 5_000
_SMALL = {"fetch.message.max.bytes": 65_536, "queued.max.messages.kbytes": 1_024}
_LARGE = {"fetch.message.max.bytes": 1_048_576, "queued.max.messages.kbytes": 8_192}
_AT_ONCE = 20_000
_POLL_SECONDS = 0.1
_WATERMARK_SECONDS = 10.0
_PATIENCE_SECONDS = 60.0
# A worker keeps the consumers that it used last: a small and a large one of a few queries.
_KEPT = 4
_consumers: OrderedDict[tuple[object, ...], Consumer] = OrderedDict()
_EXPIRED = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}  # noqa: SLF001  # librdkafka's name
_END = KafkaError._PARTITION_EOF  # noqa: SLF001  # as above


class Fetched(NamedTuple):
    """The records of a range."""

    range: Range
    messages: list[Message]
    """In the order of their offsets. The list is the caller's."""
    expired: int = 0
    """The number of offsets that the topic had deleted before they were read."""


def fetch(plan: Sequence[Range], config: SourceConfig) -> list[Fetched]:
    """
    Return the records of each range, in the order of `plan`.

    Raises:
        SourceChanged: the topic no longer has records of a range.
        KafkaUnavailable: for a minute, no broker has sent anything.
    """
    large = [each for each in plan if each.end - each.start >= _MANY_RECORDS]
    small = [each for each in plan if each.end - each.start < _MANY_RECORDS]
    found: dict[Range, Fetched] = {}
    if small:  # at once: each one alone would wait for an answer of its own
        found |= _with_consumer(config, small, is_large=False)
    for each in large:  # in turn: at once, they would fill the queue with later records
        found |= _with_consumer(config, [each], is_large=True)
    return [found[each] for each in plan]


def forget() -> None:
    """Close this process's consumers."""
    while _consumers:
        _consumers.popitem()[1].close()


def _with_consumer(
    config: SourceConfig, plan: Sequence[Range], *, is_large: bool
) -> dict[Range, Fetched]:
    key = (config.group, is_large, *sorted(config.kafka.items()), *sorted(config.options.items()))
    consumer = _consumers.pop(key, None) or _made(config, is_large=is_large)
    try:
        found = _Fetching(consumer, plan, config).run()
    except BaseException:
        consumer.close()
        raise
    _consumers[key] = consumer
    while len(_consumers) > _KEPT:
        _consumers.popitem(last=False)[1].close()
    return found


def _made(config: SourceConfig, *, is_large: bool) -> Consumer:
    return kafka_options.made(
        Consumer,
        lambda: {
            **kafka_options.connected(config.kafka),
            # Otherwise the broker holds a request at the end of a partition, and the consumer's
            # next one with it.
            "fetch.wait.max.ms": 10,
            "fetch.queue.backoff.ms": 5,
            "fetch.error.backoff.ms": 50,
            "queued.min.messages": 1_000,
            **CHECKED,
            **(_LARGE if is_large else _SMALL),
            **config.options,
            "group.id": config.group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
        },
        _log,
    )


class _Fetching:
    """One use of a consumer."""

    def __init__(self, consumer: Consumer, plan: Sequence[Range], config: SourceConfig) -> None:
        self._consumer, self._config = consumer, config
        self._left = {(each.topic, each.partition): each for each in plan}
        self._messages: dict[tuple[str, int], list[Message]] = {key: [] for key in self._left}
        self._plan = plan
        self._expired: dict[tuple[str, int], int] = {}
        found = {key: config.skipped(*key) for key in self._left} if config.skip else {}
        self._skip = {key: offsets for key, offsets in found.items() if offsets}
        self._begun: dict[tuple[str, int], int] = {}
        """Where partitions go on that were stepped over in part."""
        self._moved: set[tuple[str, int]] = set()
        """Partitions for which the rest of what the client has returned does not count."""
        self._heard = time.monotonic()
        self._credentials = Credentials(config.kafka)
        self._credentials.keep(consumer)
        self._refused_at: float | None = None

    def run(self) -> dict[Range, Fetched]:
        consumer = self._consumer
        consumer.assign([TopicPartition(t, p, start) for t, p, start, _ in self._plan])
        try:
            while self._left:
                # Not consume(n, seconds), which waits for all of n.
                first = consumer.poll(_POLL_SECONDS)
                if first is None:
                    self._require_patience()
                    continue
                done = self._take([first, *consumer.consume(_AT_ONCE, 0)])
                if done and self._left:
                    consumer.incremental_unassign([TopicPartition(*each) for each in done])
        except KafkaException as error:
            raise KafkaUnavailable(self._text(error.args[0])) from error
        finally:
            consumer.unassign()
        for key, offsets in self._skip.items():
            messages = self._messages[key]
            messages[:] = [each for each in messages if each.offset() not in offsets]
        return {
            each: Fetched(each, self._messages[key], self._expired.get(key, 0))
            for each in self._plan
            for key in [(each.topic, each.partition)]
        }

    def _take(self, messages: Sequence[Received]) -> list[tuple[str, int]]:
        """Take in what has come; return the partitions whose ranges are at their ends."""
        self._heard = time.monotonic()
        self._moved.clear()
        if len(self._plan) == 1 and self._took_all(messages):
            return []
        done: list[tuple[str, int]] = []
        key: tuple[str, int] = ("", -1)
        end, append = -1, self._messages.get
        for message in messages:
            error = message.error()
            if error is not None:
                if self._is_over(error, message):
                    done.append((message.topic() or "", message.partition() or 0))
                end = -1
                key = ("", -1)
                continue
            partition, topic = message.partition(), message.topic()
            if partition != key[1] or topic != key[0]:
                key = (topic or "", partition or 0)
                found = None if key in self._moved else self._left.get(key)
                end = -1 if found is None else found.end
                into = append(key)
            offset = message.offset() or 0
            if offset < end:
                into.append(message)  # type: ignore[union-attr]  # with an end there is a list
            if offset + 1 >= end >= 0:
                del self._left[key]
                done.append(key)
                end = -1
        return done

    def _took_all(self, messages: Sequence[Received]) -> bool:
        """Take in all records of the only range, if its end is not among them."""
        ((key, left),) = self._left.items()
        # Records of a partition come in order, so the last one says whether all belong here.
        if any(each.error() for each in messages) or (messages[-1].offset() or 0) + 1 >= left.end:
            return False
        self._messages[key] += messages
        return True

    def _is_over(self, error: KafkaError, message: Received) -> bool:
        """Return whether an event of a partition means that its range is at its end."""
        key = (message.topic() or "", message.partition() or 0)
        left = self._left.get(key)
        if key in self._moved or (left is None and key in self._messages):
            return False
        if error.code() == _END:
            if left is None or (message.offset() or 0) < left.end:
                return False
        elif error.code() in _EXPIRED and left is not None:
            if not self._skipped(left):
                return False
        elif error.code() in OF_RECORD and left is not None:
            if not self._set_aside(left, error, message.offset()):
                return False
        elif self._is_passing(error):
            self._require_patience()
            return False
        else:
            raise KafkaException(error)
        del self._left[key]
        return True

    def _is_passing(self, error: KafkaError) -> bool:
        """Return whether waiting may help; after a refusal, read the password again."""
        if error.code() != KafkaError._AUTHENTICATION:  # noqa: SLF001  # librdkafka's name
            return error.retriable() or error.code() in {OF_GROUP, *kafka_options.CONNECTION}
        now = time.monotonic()
        if self._refused_at is None:
            self._refused_at = now
        self._credentials.heard(error)
        return self._credentials.change and now - self._refused_at < _PATIENCE_SECONDS

    def _set_aside(self, left: Range, error: KafkaError, said: int | None) -> bool:
        """
        Go on after a batch that cannot be read; return whether the whole rest of the range is.

        Raises:
            KafkaUnavailable: neither the settings nor a note of an operator skip it.
        """
        at = self._next(left)
        # The client names the first record of a batch, if it names any.
        base = at if said is None or not 0 <= said < at else said
        until = self._until(Place(left.topic, left.partition, at), base)
        if until is None:
            msg = (
                f"cannot read {left.topic}/{left.partition} at offset {at}: {error.str()}. If it "
                f"stays so, and to go on without that record, run `dovecote spark skip "
                f"{left.topic}/{left.partition}/{at}` with the job's settings, or add "
                f'"{left.topic}/{left.partition}/{at}" to source.skip (in a flow, to its skip). '
                "Nothing of the batch is written that was not read"
            )
            raise KafkaUnavailable(msg)
        if until >= left.end:
            return True
        self._seek(left, until)
        return False

    def _until(self, place: Place, base: int) -> int | None:
        """Return up to where a batch is stepped over that cannot be read; None: it is not."""
        kafka = {**kafka_options.client(self._config.kafka), **self._config.options}
        try:
            if any(base <= each for each in self._skip.get(place[:2], ())):
                _, first, until = unread(kafka, place)
                if any(first <= each < until for each in self._skip[place[:2]]):
                    _steps.warning(
                        "%s: the offsets up to %d cannot be read, and are stepped over as "
                        "source.skip says",
                        place,
                        until - 1,
                    )
                    return until
            note = noted(kafka, self._config.group, {place: None}).get(place)
        except DovecoteError as error:
            raise KafkaUnavailable(str(error)) from error
        if note is None:
            return None
        _steps.warning("%s", summary(note))
        return note.until

    def _seek(self, left: Range, offset: int) -> None:
        place = TopicPartition(left.topic, left.partition)
        self._consumer.incremental_unassign([place])
        self._consumer.incremental_assign([TopicPartition(left.topic, left.partition, offset)])
        self._begun[left.topic, left.partition] = offset
        self._moved.add((left.topic, left.partition))

    def _next(self, left: Range) -> int:
        """Return the offset that is to be read next."""
        key = left.topic, left.partition
        messages = self._messages[key]
        read = (messages[-1].offset() or 0) + 1 if messages else left.start
        return max(read, self._begun.get(key, 0))

    def _skipped(self, left: Range) -> bool:
        """Go on after records that are gone; return whether the whole rest of the range is."""
        place = TopicPartition(left.topic, left.partition)
        low, high = self._consumer.get_watermark_offsets(place, _WATERMARK_SECONDS, cached=False)
        key = (left.topic, left.partition)
        read = self._next(left)
        if low <= read < high and key in self._begun:
            # With a wrong checksum the client goes astray; that may reach us after the seek.
            self._seek(left, read)
            return False
        if low <= read:
            msg = (
                f"{left.topic}/{left.partition} ends at {high}, and the batch reads up to "
                f"{left.end}: the topic has lost records, or was made anew. Start the job again; "
                "it says more if that is still so"
            )
            raise SourceChanged(msg)
        if self._config.expired == "refuse":
            msg = (
                f"offsets {read} to {min(low, left.end) - 1} of {left.topic}/{left.partition} are "
                "deleted (retention), and the job has not read them: raise retention.ms there. To "
                'go on without them, set source.expired = "skip"; each batch says how many'
            )
            raise SourceChanged(msg)
        self._expired[key] = self._expired.get(key, 0) + min(low, left.end) - read
        if low >= left.end:
            return True
        self._seek(left, low)
        return False

    def _require_patience(self) -> None:
        if time.monotonic() - self._heard > _PATIENCE_SECONDS:
            raise KafkaUnavailable(self._text(None))

    def _text(self, error: KafkaError | None) -> str:
        first = next(iter(self._left.values()), self._plan[0])
        why = f"nothing came for {_PATIENCE_SECONDS:g} s"
        if error is not None:
            why = told(error, right("Read", "topic", first.topic))
        return (
            f"cannot read {first.topic}/{first.partition} from offset {first.start} up to "
            f"{first.end}: {why}. Nothing of the batch is written that was not read; the job "
            "goes on from here when it is started again"
        )
