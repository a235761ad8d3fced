"""Poll records, hand them to the workers, and commit completed offsets."""

import logging
import random
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaError, TopicPartition

from dedup.health import Health, Levels
from dedup.kafka.absent import Absent
from dedup.kafka.assignment import Assignment
from dedup.kafka.fatal import reason_to_end
from dedup.kafka.membership import Membership
from dedup.kafka.partitions import Partitions
from dedup.kafka.subscribing import Subscribing
from dedup.retries.aside import Partition
from dedup.retries.storm import Amplification
from dedup.rules import unmoved
from dedup.rules.lanes.assigned import Assigned
from dedup.rules.lanes.pace import Pace
from dedup.rules.lanes.pressure import Limits, Pressure
from dedup.serving.messages import Message, weight_of
from dedup.unread.watch import Watch
from dovecote.process.rarely import Rarely
from outbox.kafka_errors import right, told
from outbox.timestamps import milliseconds

if TYPE_CHECKING:
    from dedup.tracing.consuming import ConsumerSpans

_log = logging.getLogger("dovecote.consumer")
_rarely = Rarely(_log, most=2)

_BUSY_SECONDS = 0.02
_PROMPT_SECONDS = 0.002
_ROOM_SECONDS = 0.1
_OBSERVE_SECONDS = 1.0
_LIGHT = 4_096
"""Headers of so many bytes are not counted: `max_records` limits those."""

_LOOKED_AT = 16
"""
One message in so many, by chance, has its headers counted when it is polled: to read them takes
longer than all else. While a large one is in memory, each has.
"""


class Polling:
    """The loop of the poll thread."""

    def __init__(
        self,
        client: Consumer,
        partitions: Partitions,
        assignment: Assignment,
        membership: Membership,
        *,
        subscribing: Subscribing,
        watch: Watch,
        health: Health,
        spans: "ConsumerSpans | None" = None,
    ) -> None:
        settings = partitions.settings
        self._client, self._partitions, self._assigned = client, partitions, partitions.assigned
        self._assignment, self._membership = assignment, membership
        self._subscribing, self._watch = subscribing, watch
        self._handover, self._workers = partitions.handover, partitions.workers
        self._metrics, self._health = partitions.metrics, health
        self._group = right("Read", "group", settings.group)
        self._batch_size = settings.batch_size
        self._by_key = settings.order == "key"
        self._absent = Absent(client, settings.partitions)
        self._amplification = Amplification(settings.retries.amplification_limit)
        self._unmoved = unmoved.Unmoved(settings.stall_after.total_seconds())
        self._limits = Limits(records=settings.max_records, bytes=settings.max_bytes)
        self._pressure = Pressure(self._limits)
        # If somebody waits for commits, do not delay the poll that brings them.
        prompt = partitions.commits.are_awaited
        self._busy = _PROMPT_SECONDS if prompt else _BUSY_SECONDS
        self._pace = Pace(self._batch_size, 0.0) if prompt else Pace(self._batch_size)
        self._spans = spans
        self._closed = False
        self._chance = random.Random()  # noqa: S311  # no secret
        self._observed = 0.0
        self._remembered = 0
        self._outcomes_before = self._metrics.handled_in_all, self._metrics.failed_in_all

    def run(self, stop: threading.Event) -> None:
        """Poll until `stop`, then drain, commit and give up the assigned partitions."""
        try:
            while not stop.is_set():
                self.turn()
        finally:
            self._health.stopped()
        if assigned := list(self._assigned.values()):
            self._assignment.give_up(assigned, at_end=True)

    def turn(self) -> None:
        """Poll once, and do what is due."""
        self._subscribing.tick()
        self._assignment.look()
        began = 0 if self._spans is None else self._spans.now()
        messages = self._poll()
        self._membership.beat(self._assigned.values())
        touched = self._sort(messages) if messages else ()
        if touched and self._spans is not None:
            self._spans.polled(
                began, len(messages), [(each.stretch, each.batch) for each in touched]
            )
        self._assignment.go_on()
        self._watch.go_on()
        self._assignment.open()
        ready, _ = self._handover.release()
        if touched:
            batches = [(each.stretch, each.batch) for each in touched]
            ready = self._handover.offer(batches)
            for each in touched:
                self._amplification.sample(each.batch.items(), each.stretch.read)
                each.batch = {}
        progressed = self._partitions.collect()
        self._partitions.commits.tick(self._assigned.values())
        idle = not self._partitions.in_memory()[0]
        self._health.polled(progressed=progressed or idle, worked=progressed)
        self._observe()
        # Wake workers last: they need the interpreter, which this thread releases when it polls.
        self._workers.wake(ready)
        self._workers.reclaim()
        self._relieve()

    def _poll(self) -> list[Message]:
        if (early := self._pace.early(time.monotonic())) > 0:
            time.sleep(early)
        messages = self._polled()
        self._pace.found(len(messages), time.monotonic())
        return messages

    def _polled(self) -> list[Message]:
        client, size = self._client, self._batch_size
        if not self._closed:
            messages: list[Message] = client.consume(size, 0)
            if messages:
                return messages
        _, due = self._handover.release()
        wait = self._busy if self._partitions.in_memory()[0] else self._idle()
        if due is not None:
            wait = min(wait, max(0.0, due - time.monotonic()))
        # `consume` waits for the requested number of messages; `poll` for the first.
        first = client.poll(wait)
        if first is None:
            return []
        return [first] if self._closed else [first, *client.consume(size - 1, 0)]

    def _idle(self) -> float:
        return self._pace.idle(time.monotonic(), is_stuck=self._watch.is_stuck)

    def _sort(self, messages: list[Message]) -> list[Assigned]:  # noqa: C901  # a call more for each record would cost something
        """Sort a batch by partition and key; return the partitions that got records."""
        touched: list[Assigned] = []
        by_key, phase = self._by_key, self._chance.randrange(_LOOKED_AT)
        topic, partition, found = "", -1, None
        for message in messages:
            error = message.error()
            if error is not None:
                self._noticed(error, message)
                topic, partition = "", -1  # it may be blocked now
                continue
            if message.partition() != partition or message.topic() != topic:
                topic, partition = message.topic(), message.partition()
                found = self._readable(topic, partition)
                if found is not None:
                    found.changed = True
            if found is None:
                continue
            offset = message.offset()
            if offset <= found.offsets.last:
                found = self._assignment.begin_anew(found)
                found.changed = True
            if not found.offsets.polled(offset):
                self._remembered += 1
                continue
            key, value = message.key(), message.value()
            if not found.batch:
                self._absent.read(topic)
                touched.append(found)
                found.begun = True
                found.times.append((offset, _written(message.timestamp()[1])))
            lane = key if by_key else None
            group = found.batch.get(lane)
            if group is None:
                found.batch[lane] = [message]
            else:
                group.append(message)
            found.records += 1
            found.size += (len(value) if value else 0) + (len(key) if key else 0)
            if (offset % _LOOKED_AT == phase or found.heavy) and (
                weight := weight_of(message)
            ) > _LIGHT:
                found.heavy[offset] = weight
                found.size += weight
        return touched

    def _readable(self, topic: str, partition: int) -> Assigned | None:
        """Return a partition, if it is assigned and its records count."""
        found = self._assigned.get((topic, partition))
        # The records of a blocked one come again, after the one that cannot be read.
        return None if found is None or found.blocked else found

    def _noticed(self, error: KafkaError, message: Message) -> None:
        """Handle an error that the client returned in a message's place."""
        found = self._assigned.get((message.topic(), message.partition()))
        if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001  # the client's name for it
            self._absent.read(message.topic())
            if found is not None and not found.blocked:
                found.offsets.reached(message.offset())
                found.changed = True
            return
        if error.code() == KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001  # as above
            if found is None or not found.blocked:
                self._assignment.cannot_read(message.topic(), message.partition())
            return
        if (ended := reason_to_end(error)) is not None:
            raise ended
        topic = message.topic()
        said = told(error, self._group if topic is None else right("Read", "topic", topic))
        if found is not None and not self._absent.is_of_topic(error):
            self._watch.failed((topic, message.partition()), message.offset(), error)
        if found is not None and found.blocked:
            return
        self._health.said(said)
        self._absent.noticed(error, topic)
        _rarely.warning("Kafka says: %s", said)

    def _relieve(self) -> None:
        """Take no more records while there are too many; go on when there is room."""
        records, size = self._partitions.in_memory()
        if not self._closed and (records >= self._limits.records or size >= self._limits.bytes):
            # Handlers mostly make room at once. Pausing makes the client discard what it has
            # fetched, so pause only for those that do not.
            self._handover.wait_for(self._batch_size, _ROOM_SECONDS)
            self._partitions.collect()
            records, size = self._partitions.in_memory()
        before, self._closed = self._closed, self._pressure.at(records, size)
        if self._closed and not before:
            self._metrics.paused("memory")
        for each in self._assigned.values():
            skewed = each.is_skewed()
            pause = (self._closed or skewed or each.blocked) and each.begun
            if pause is not each.paused:
                self._pause(each, pause=pause, skewed=skewed)

    def _pause(self, each: Assigned, *, pause: bool, skewed: bool) -> None:
        partition = [TopicPartition(each.stretch.topic, each.stretch.partition)]
        if pause:
            self._client.pause(partition)
        else:
            self._client.resume(partition)
        each.paused = pause
        if pause and skewed:
            self._metrics.paused("skew")
            _rarely.warning(
                "%s/%d waits: %d records are polled from offset %s on, which is not completed",
                each.stretch.topic,
                each.stretch.partition,
                each.offsets.skew,
                each.offsets.position,
            )

    def _observe(self) -> None:
        """Update the metrics."""
        now = time.monotonic()
        if now - self._observed < _OBSERVE_SECONDS:
            return
        self._observed = now
        if names := self._subscribing.names:
            self._absent.forget(names)
        self._health.expired = self._metrics.expired_in_all
        records, size = self._partitions.in_memory()
        if self._remembered:
            self._metrics.remembered(self._remembered)
            self._remembered = 0
        with self._handover.lock:
            lanes, held = self._handover.lanes.known, self._handover.lanes.held
            waits = self._handover.lanes.only_scheduled
        stretches = [each.stretch for each in self._assigned.values()]
        if waits and not any(each.at_work or each.unopened for each in stretches):
            # No record can be completed before its time has come.
            self._health.polled(progressed=True)
        self._metrics.levels(
            records=records, size=size, lanes=lanes, held=held, oldest=self._workers.oldest
        )
        self._metrics.amplified(self._amplification.report())
        ends = {place: self._end_of(*place) for place in self._assigned}
        known = self._absent.topics
        self._watch.observe(
            {place: end for place, end in ends.items() if end >= 0 or place[0] not in known}
        )
        absent = self._subscribing.lacking, self._absent.report(now)
        lacking, stuck = "; ".join(each for each in absent if each), self._watch.report()
        self._health.lacking = "; ".join(each for each in (lacking, stuck) if each)
        self._health.unmoved = unmoved.summed(self._standing(ends, now))
        self._outcomes(now)
        self._health.levels = Levels(
            lacking=lacking,
            held=stuck,
            barred=self._barred(),
            assigned=len(self._assigned),
            waits=waits,
            in_memory=records,
            oldest=self._workers.oldest,
            lag_rows=self._metrics.rows_behind,
            lag_seconds=self._metrics.longest_lag,
        )
        if self._health.unmoved:
            _rarely.warning("%s", self._health.unmoved)

    def _outcomes(self, now: float) -> None:
        """Note what became of records since the last look."""
        before, metrics = self._outcomes_before, self._metrics
        found = self._outcomes_before = metrics.handled_in_all, metrics.failed_in_all
        self._health.recent.add(now, found[0] - before[0], found[1] - before[1])

    def _end_of(self, topic: str, partition: int) -> int:
        """Return the end of a partition's log, as far as the client knows it."""
        where = TopicPartition(topic, partition)
        _, end = self._client.get_watermark_offsets(where, cached=True)
        return int(end)

    def _standing(self, ends: Mapping[Partition, int], now: float) -> list[str]:
        """Measure the lag, and return which offsets do not move, and why."""
        found: list[str] = []
        self._unmoved.forget(self._assigned.keys())
        for place, each in self._assigned.items():
            position, end = each.offsets.position, ends[place]
            if position is None or end < 0:
                continue
            self._metrics.lag(*place, max(0, end - position), each.age(time.time()))
            due = each.stretch.due.get(position, 0.0)
            seconds = self._unmoved.seconds(place, position, end, now, due=due)
            self._metrics.unmoved(*place, seconds)
            # The watch knows better why nothing comes.
            is_said = not each.offsets.pending and self._watch.says(place)
            if self._unmoved.is_trouble(seconds) and not is_said:
                why = self._why(each)
                found.append(unmoved.standing(place, position, end, seconds=seconds, why=why))
        return found

    def _barred(self) -> str:
        """Return why records are not begun; empty: nothing is known to be in the way."""
        places = sorted(
            (place, each.stretch.barred)
            for place, each in self._assigned.items()
            if each.stretch.barred
        )
        first = next((f"{topic}/{number}: {why}" for (topic, number), why in places), "")
        return self._membership.trouble or first

    def _why(self, each: Assigned) -> str:
        """Return why a partition's offset may stand still."""
        waits = each.stretch.waits.get(each.offsets.position or 0)
        if waits is not None:
            return waits
        if each.offsets.pending:
            return (
                f"its record is handled, or in line; a handler runs {self._workers.oldest:.0f} s"
            )
        if each.paused:
            return "no more is read, because the records in memory are too many"
        if not each.stretch.opened:
            return each.stretch.barred or "its partition is not opened yet"
        return "the client has read nothing from there on"


def _written(timestamp: int) -> int:
    """Return when a record was written, in milliseconds; if it does not say, it was now."""
    since = milliseconds(timestamp)
    return time.time_ns() // 1_000_000 if since is None else since
