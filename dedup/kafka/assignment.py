"""The partitions assigned to this consumer: how it takes them up and gives them up."""

import logging
import threading
import time
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Executor

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from dedup.kafka.claiming import Claiming
from dedup.kafka.partitions import Partitions
from dedup.kafka.starting import Starts, beginning
from dedup.kafka.topic_ids import Topics
from dedup.retries.aside import Aside, Partition
from dedup.rules.claim import Claim
from dedup.rules.identity import of_topic
from dedup.rules.lanes.assigned import Assigned, assigned
from dedup.rules.lanes.lanes import Stretch, bar
from dedup.rules.lanes.offsets import Offsets
from dedup.rules.record import Record
from dedup.rules.starting import is_of_another, onward
from dedup.serving.messages import reads
from dovecote.process.rarely import Rarely

_log = logging.getLogger("dovecote.consumer")
_rarely = Rarely(_log)

_COMMITTED_SECONDS = 10.0
_PAUSE_SECONDS = 0.1
# The group's coordinator is not found yet, or is moving.
_MOVING = {
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError._WAIT_COORD,  # noqa: SLF001  # the client's name for it
}
_FIRST_OUTAGE_SECONDS = 0.5
_LONGEST_OUTAGE_SECONDS = 30.0


class Assignment:
    """
    Takes and gives up partitions within the client's callbacks, when the group says so.

    Used by the poll thread only. Giving up partitions waits for as long as `drain` for running
    handlers: otherwise another consumer could handle the same records at the same time. The poll
    thread waits nowhere else.
    """

    def __init__(
        self,
        partitions: Partitions,
        aside: Aside,
        threads: Executor,
        *,
        starts: Starts,
        topics: Topics,
        record: type[Record],
        retry_topics: Collection[str],
        claiming: Claiming | None = None,
    ) -> None:
        settings = partitions.settings
        self._starts, self._topics, self._record = starts, topics, record
        self._retry_topics = retry_topics
        self._partitions, self._assigned = partitions, partitions.assigned
        self._handover, self._metrics = partitions.handover, partitions.metrics
        self._aside, self._threads, self._claiming = aside, threads, claiming
        self._drain = settings.drain.total_seconds()
        self._incremental = settings.incremental
        self._unreadable: set[Partition] = set()
        """Partitions that the client cannot read where they stand."""
        self._not_before = 0.0
        self._opened: deque[Stretch[Record]] = deque()
        self._closed = threading.Event()

    def assign(self, client: Consumer, partitions: list[TopicPartition]) -> None:
        """
        Take partitions, with their committed offsets and metadata.

        A partition for which the group has committed nothing begins at its beginning: at a first
        start with `latest`, the ends are committed before. So does one whose offset was committed
        for an earlier topic of the same name.
        """
        ids = self._topics.ids(each.topic for each in partitions)
        others = [_standing(each) for each in self._assigned.values()]
        found, unknown = self._committed(client, partitions)
        known = _without_others(found, ids)
        stretches = [self._begin(each, known.get(_place(each)), ids) for each in partitions]
        starting = [
            beginning(each, known.get(_place(each)), is_known=_place(each) not in unknown)
            for each in partitions
        ]
        # The client remembers that they were paused in an earlier assignment. If they were resumed
        # afterwards, it might take the assignment for outdated, and never read (librdkafka 5591).
        client.resume(partitions)
        if self._incremental:
            client.incremental_assign(starting)
        else:
            client.assign([*others, *starting])
        if stretches:
            self._metrics.rebalanced("assigned")
            _log.info("assigned %s", _names((s.topic, s.partition) for s in stretches))
            self._threads.submit(self._make_ready, stretches)
        self._metrics.has(self._assigned)

    def revoke(self, client: Consumer, partitions: list[TopicPartition]) -> None:  # noqa: ARG002  # as the client calls it
        """Give up partitions: wait for handlers at work, and commit."""
        given = self._have(partitions)
        if given:
            self._metrics.rebalanced("revoked")
            self.give_up(given)

    def lose(self, client: Consumer, partitions: list[TopicPartition]) -> None:  # noqa: ARG002  # as the client calls it
        """Forget partitions that another consumer may have already: commit nothing."""
        gone = self._have(partitions)
        if gone:
            self._metrics.rebalanced("lost")
            _log.warning("lost %s", _names(_partition(each) for each in gone))
            self._partitions.workers.reclaim(everything=True)
            self._handover.drain([each.stretch for each in gone], 0)
            self._forget(gone)

    def give_up(self, given: list[Assigned], *, at_end: bool = False) -> None:
        """
        Drain partitions, commit completed records, and forget them.

        `at_end` has the meaning that it has for `Commits.finally_`.
        """
        began = time.monotonic()
        self._partitions.workers.reclaim(everything=True)
        stretches = [each.stretch for each in given]
        if not self._handover.drain(stretches, self._drain):
            late = sum(stretch.at_work for stretch in stretches)
            _log.warning(
                "%d handlers did not return within %.0f s; their records will be handled again",
                late,
                self._drain,
            )
        self._partitions.collect()
        self._partitions.commits.finally_(given, at_end=at_end)
        _log.info(
            "gave up %s after %.1f s",
            _names(_partition(each) for each in given),
            time.monotonic() - began,
        )
        self._forget(given)

    def begin_anew(self, old: Assigned) -> Assigned:
        """Restart a partition whose log is not the same as before."""
        stretch = old.stretch
        _log.warning(
            "%s/%d continues at an earlier offset than before: its log was reset",
            stretch.topic,
            stretch.partition,
        )
        ids = self._topics.ids([stretch.topic])
        begun = self._restart(old, ids.get(stretch.topic, old.offsets.topic_id))
        begun.paused, begun.begun = old.paused, old.begun
        return begun

    def look(self) -> None:
        """Begin partitions at their beginning whose topics were made anew meanwhile."""
        others = self._topics.made_anew(self._assigned.values())
        if not others:
            return
        starting = [TopicPartition(*_partition(each), OFFSET_BEGINNING) for each in others]
        rest = [_standing(each) for each in self._assigned.values() if each not in others]
        try:
            self._starts.read_from(starting, rest)
        except KafkaException as error:
            _rarely.warning("topics that were made anew wait: %s", error.args[0].str())
            return
        for each, id_ in others.items():
            _say_anew(*_partition(each))
            self._restart(each, id_)

    def _restart(self, old: Assigned, topic_id: str | None) -> Assigned:
        topic, partition = _partition(old)
        self._handover.drain([old.stretch], 0)
        ids = {} if topic_id is None else {topic: topic_id}
        new = self._begin(TopicPartition(topic, partition), None, ids)
        self._threads.submit(self._make_ready, [new])
        return self._assigned[topic, partition]

    def read_from(self, places: Mapping[Partition, int]) -> None:
        """
        Let the client read partitions from other offsets.

        Raises:
            KafkaException: the assignment is changing; ask again.
        """
        starting = [TopicPartition(*place, offset) for place, offset in places.items()]
        rest = [_standing(each) for place, each in self._assigned.items() if place not in places]
        self._starts.read_from(starting, rest)
        for place in places:
            self._assigned[place].paused = self._assigned[place].begun = False

    def cannot_read(self, topic: str, partition: int) -> None:
        """Take note that the log has nothing at the offset at which a partition stands."""
        self._unreadable.add((topic, partition))

    def go_on(self) -> None:
        """Let partitions go on that stand where their logs have nothing."""
        if not self._unreadable or time.monotonic() < self._not_before:
            return
        self._unreadable &= self._assigned.keys()
        if not self._unreadable:
            return
        try:
            self._read_on(self._starts.bounds(self._unreadable))
        except KafkaException as error:
            _rarely.warning(
                "where %s can go on is not known yet: %s",
                _names(self._unreadable),
                error.args[0].str(),
            )
        # The same answer, if it comes again, must not be asked for without a pause.
        self._not_before = time.monotonic() + _PAUSE_SECONDS

    def _read_on(self, bounds: dict[Partition, tuple[int, int]]) -> None:
        found = {
            place: onward(self._assigned[place].offsets.next, *log)
            for place, log in bounds.items()
        }
        self.read_from({place: each.offset for place, each in found.items()})
        self._unreadable.clear()
        for place, each in found.items():
            assigned_ = self._assigned[place]
            if each.is_other:
                self.begin_anew(assigned_)
            if each.expired:
                assigned_.offsets.pass_over(each.offset)
                assigned_.changed = True
                self._metrics.expired(place[0], each.expired)
                _log.warning(
                    "%s/%d: offsets %d to %d were deleted before they were read; it goes on at "
                    "%d. %d are lost: raise retention.ms of the topic",
                    *place,
                    each.offset - each.expired,
                    each.offset - 1,
                    each.offset,
                    each.expired,
                )

    def open(self) -> None:
        """Let the records of partitions be handled once everything is ready for them."""
        if self._claiming is not None:
            self._opened += self._claiming.claimed(self._assigned.values())
        while self._opened:
            stretch = self._opened.popleft()
            with self._handover.lock:
                self._handover.lanes.open(stretch)

    def close(self) -> None:
        """Stop waiting for anything."""
        self._closed.set()

    def _begin(
        self, partition: TopicPartition, known: TopicPartition | None, ids: Mapping[str, str]
    ) -> Stretch[Record]:
        with self._handover.lock:
            stretch = self._handover.lanes.begin(partition.topic, partition.partition)
        if self._claiming is not None:
            stretch.claim = Claim()
        at = () if known is None else (known.offset, known.metadata)
        offsets = Offsets(*at, topic_id=ids.get(partition.topic))
        most = self._partitions.settings.max_skew
        self._assigned[partition.topic, partition.partition] = assigned(
            stretch, offsets, max_skew=most
        )
        stretch.read = reads(
            of_topic(self._record, offsets.topic_id),
            partition.topic,
            partition.partition,
            retry=partition.topic in self._retry_topics,
        )
        return stretch

    def _committed(
        self, client: Consumer, partitions: list[TopicPartition]
    ) -> tuple[dict[Partition, TopicPartition], set[Partition]]:
        """
        Return the offsets that the group has committed for partitions, and those without answer.

        The client fetches offsets without an answer by itself. Only the metadata, for records
        beyond them, is lost.
        """
        if not partitions:
            return {}, set()
        deadline = time.monotonic() + _COMMITTED_SECONDS
        while True:
            try:
                found = client.committed(partitions, timeout=_COMMITTED_SECONDS)
                break
            except KafkaException as error:
                told: KafkaError = error.args[0]
                if time.monotonic() > deadline or not (told.retriable() or told.code() in _MOVING):
                    _log.warning("committed offsets could not be read: %s", told.str())
                    return {}, {_place(each) for each in partitions}
                self._closed.wait(_PAUSE_SECONDS)
        failed = {_place(each): each.error.str() for each in found if each.error is not None}
        if failed:
            # Their beginnings would be taken otherwise, once they can be read again.
            why = next(iter(failed.values()))
            _log.warning("committed offsets of %s could not be read: %s", _names(failed), why)
        known = {_place(each): each for each in found if each.error is None and each.offset >= 0}
        return known, {*failed}

    def _have(self, partitions: Iterable[TopicPartition]) -> list[Assigned]:
        wanted = [(each.topic, each.partition) for each in partitions]
        return [self._assigned[each] for each in wanted if each in self._assigned]

    def _forget(self, gone: Sequence[Assigned]) -> None:
        names = [_partition(each) for each in gone]
        for name in names:
            del self._assigned[name]
        self._metrics.has(self._assigned)
        self._metrics.gone(names)
        self._threads.submit(self._report_revoked, names)

    # These run in threads of their own.

    def _make_ready(self, stretches: list[Stretch[Record]]) -> None:
        names = [(stretch.topic, stretch.partition) for stretch in stretches]
        wait = _FIRST_OUTAGE_SECONDS
        while not self._closed.is_set() and any(stretch.live for stretch in stretches):
            try:
                self._aside.assigned(names)
            except Exception as error:  # noqa: BLE001  # it is logged, and tried again
                _log.warning("%s cannot be started yet: %s", _names(names), error)
                bar(stretches, "it cannot be started yet", error)
                self._closed.wait(wait)
                wait = min(2 * wait, _LONGEST_OUTAGE_SECONDS)
            else:
                if self._claiming is None:
                    self._opened.extend(stretches)
                else:
                    self._claiming.want(stretches)
                return

    def _report_revoked(self, names: list[Partition]) -> None:
        try:
            self._aside.revoked(names)
        except Exception as error:  # noqa: BLE001  # nothing depends on it
            _log.warning("%s could not be forgotten: %s", _names(names), error)


def _without_others(
    known: dict[Partition, TopicPartition], ids: Mapping[str, str]
) -> dict[Partition, TopicPartition]:
    """Return the committed offsets without those of earlier topics of the same names."""
    others = {
        place for place, each in known.items() if is_of_another(each.metadata, ids.get(place[0]))
    }
    for place in sorted(others):
        _say_anew(*place)
    return {place: each for place, each in known.items() if place not in others}


def _say_anew(topic: str, partition: int) -> None:
    _log.warning(
        "%s/%d begins at its beginning: the topic was deleted and made anew since the group has "
        "read it",
        topic,
        partition,
    )


def _place(partition: TopicPartition) -> Partition:
    return partition.topic, partition.partition


def _standing(each: Assigned) -> TopicPartition:
    """Return the partition with the offset that is polled next."""
    following = each.offsets.next
    return TopicPartition(*_partition(each), OFFSET_BEGINNING if following is None else following)


def _partition(each: Assigned) -> Partition:
    return each.stretch.topic, each.stretch.partition


def _names(partitions: Iterable[Partition]) -> str:
    return ", ".join(f"{topic}/{partition}" for topic, partition in sorted(partitions))
