"""Ask what became of records that a deduplicating job took, and wrote nowhere under their ids."""

import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple

from confluent_kafka import Consumer, TopicPartition

from dedup.rules.identity import identity
from dedup.rules.unread import Place
from dovecote.observe.find import batches
from dovecote.observe.find.matching import matcher
from dovecote.observe.find.rules.facts import Batch, Outcome, Taker, place_of, written_at
from dovecote.observe.find.rules.outcome import POLICIES, Known, Rival, is_result, outcome
from dovecote.observe.find.rules.plan import Target
from dovecote.observe.find.rules.query import Query, Span
from dovecote.observe.find.searching import Search, reader
from dovecote.observe.sources import SparkSource
from outbox.envelope import Record
from spark_jobs.sink.markers import Marker

_SECONDS = 5.0
_POLL_SECONDS = 0.1
_MOST_MARKERS = 5_000
"""How many records of each partition of the marker topic are read, from its end backwards."""
_MOST_RIVALS = 1_000
_NEAR = timedelta(minutes=10)
"""How far apart in time records of one batch are looked for."""


class Job(NamedTuple):
    """A job, as far as this is asked of it."""

    source: SparkSource
    taker: Taker
    topics: frozenset[str]
    """The topics that it reads."""
    ids: Mapping[str, str]
    """Kafka's ids of topics."""

    @property
    def is_known(self) -> bool:
        return self.source.operator.type in POLICIES and bool(self.source.spark.query)


def ask(job: Job, taken: Mapping[Place, tuple[Record, Batch]]) -> dict[Place, Outcome]:
    """
    Return what became of each record that a batch took.

    Raises:
        KafkaException: Kafka does not answer.
        DovecoteError: the job's stores cannot be read.
    """
    source, found = job.source, dict[Place, Outcome]()
    with reader(source.kafka) as consumer:
        markers = list(_markers(consumer, f"dovecote.markers.{source.spark.query}"))
        outputs = [each for each in (*job.taker.outputs, job.taker.dead) if each]
        whole = all(_is_whole(consumer, each) for each in outputs)
    operator = source.operator
    for place, (record, batch) in taken.items():
        rivals, results = _of_key(job, record, place)
        found[place] = outcome(
            Known(
                place,
                identity(record).name,
                batch.number,
                _counts(markers, place, batch.number),
                whole,
                operator.type,
                operator.handler is not None,
                operator.remember is not None,
                rivals,
                results,
            )
        )
    return found


def _counts(markers: Collection[Marker], place: Place, batch: int) -> Counter[str]:
    """Return what a batch did with the records among which one was."""
    found: Counter[str] = Counter()
    for marker in markers:
        first, last = marker.ranges.get(place.topic, {}).get(place.partition, (0, -1))
        if marker.batch == batch and first <= place.offset <= last:
            counts = marker.counts
            found += Counter(counts.skipped)
            found += Counter(handled=counts.handled, retried=counts.retried, dead=counts.dead)
    return found


def _markers(consumer: Consumer, topic: str) -> Iterator[Marker]:
    """Yield the newest markers that compaction has left."""
    numbers = consumer.list_topics(topic, timeout=_SECONDS).topics[topic].partitions
    places: list[TopicPartition] = []
    for number in numbers:
        first, end = consumer.get_watermark_offsets(
            TopicPartition(topic, number), timeout=_SECONDS
        )
        if end > first:
            places.append(TopicPartition(topic, number, max(first, end - _MOST_MARKERS)))
    if not places:
        return
    consumer.assign(places)
    deadline, ended = time.monotonic() + _SECONDS, set[int | None]()
    while len(ended) < len(places) and time.monotonic() < deadline:
        for message in consumer.consume(1_000, _POLL_SECONDS):
            if message.error() is not None:
                ended.add(message.partition())
                continue
            try:
                yield Marker.decode(message.value() or b"")
            except ValueError:  # the record of a fence lies beside them
                continue
    consumer.unassign()


def _is_whole(consumer: Consumer, topic: str) -> bool:
    """Return whether a topic still has all that was written to it, by its first offsets."""
    numbers = consumer.list_topics(topic, timeout=_SECONDS).topics[topic].partitions
    firsts = [
        consumer.get_watermark_offsets(TopicPartition(topic, each), timeout=_SECONDS)[0]
        for each in numbers
    ]
    return bool(firsts) and not any(firsts)


def _of_key(job: Job, record: Record, place: Place) -> tuple[list[Rival] | None, list[Place]]:
    """
    Return the other records of the key, and the results of this one under ids of their own.

    None: they are not known.
    """
    if not record.key:
        return ([] if record.key is None else None), []
    at = written_at(record)
    if at is None:
        return None, []
    query = Query(key=record.key, since=at - _NEAR, until=at + _NEAR)
    span = Span(record.timestamp - _ms(_NEAR), record.timestamp + _ms(_NEAR))
    outputs = [each for each in job.taker.outputs if each not in job.topics]
    targets = [
        Target(each, "home", (span,), first=False, key=record.key) for each in sorted(job.topics)
    ]
    targets += [Target(each, "output", (span,), first=False, needed=False) for each in outputs]
    search = Search(
        job.source.kafka, matcher(query, set()), seconds=_SECONDS, most=_MOST_RIVALS, ids=job.ids
    )
    searched = search.run(targets)
    if searched.failures or searched.left_out:
        return None, []
    home = [each for each in searched.records if each.topic in job.topics]
    written = [each for each in searched.records if each.topic in outputs]
    own = identity(record)
    results = [place_of(each) for each in written if is_result(own.id, identity(each).id)]
    return _named(job, home, written, place), results


def _named(
    job: Job, home: Sequence[Record], written: Sequence[Record], place: Place
) -> list[Rival]:
    """Return the records of a key, each with its batch and with where it was written."""
    taken = batches.ask(job.source, [place_of(each) for each in home])
    # A record keeps its time where it is written. One of an id and time may be there twice.
    where = {(identity(each).name, each.timestamp): place_of(each) for each in written}
    found: list[Rival] = []
    for each in sorted(home, key=lambda each: each[:3]):
        at, name = place_of(each), identity(each).name
        if at != place:
            batch = taken.get(at)
            number = None if batch is None else batch.number
            found.append(Rival(at, number, name, where.get((name, each.timestamp))))
    return found


def _ms(time: timedelta) -> int:
    return int(time.total_seconds() * 1000)
