"""One turn is written once, even if several tasks try to write it."""

import threading
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from dedup.retries.backoff import Backoff
from dovecote.devstack import Stack
from outbox.envelope import Record
from spark_jobs.errors import KafkaUnavailable, MarkerRefused
from spark_jobs.policy.router import Router
from spark_jobs.sink import marker_topic, sink
from spark_jobs.sink.marker_topic import MarkerTopic
from spark_jobs.sink.markers import Counts, Marker, Turn
from spark_jobs.sink.outgoing import Evaluation, Outgoing, Topics
from spark_jobs.sink.sink import BatchInput, Settled, SinkConfig
from spark_jobs.sink.writer import Fenced, Writer
from tests.spark.fix_spark import as_record
from tests.support.fix_stack import MakeTopic
from tests.support.stale import Cut
from tests.support.waiting import consume, patient

RECORD = Record("in", 0, 5, 1_700_000_000_000, b"k", b"v", [])
INPUT = BatchInput(digest="d", ranges={"in": {0: (5, 5)}})


class Sink:
    """The sink of one query, with one output topic."""

    def __init__(
        self, bootstrap: str, output: str, *, timeout: float = 20.0, dead: str = "none"
    ) -> None:
        self.bootstrap, self.output = bootstrap, output
        self.kafka = {"bootstrap.servers": bootstrap}
        self.topic = MarkerTopic(f"dovecote.markers.{output}", self.kafka, timeout=timeout)
        self.config = SinkConfig(
            kafka=self.kafka,
            marker_topic=self.topic.name,
            transactional_id=f"dovecote.{output}",
            timeout=timeout,
        )
        self.router = Router(
            topics=Topics(output=output, retry="none", dead_letter=dead),
            backoff=Backoff(base=timedelta(1), ceiling=timedelta(1)),
            now=0,
        )
        self.evaluations = 0
        self.times: dict[bytes, int] = {}
        self.topic.ensure(2)

    def outgoing(self, *values: bytes) -> list[Outgoing]:
        """Return a record for each of `values`; its time is in `times`, or that of writing."""
        return [
            Outgoing(
                self.output,
                None if each == b"keyless" else b"k",
                each,
                [],
                self.times.get(each, 0),
                RECORD,
            )
            for each in values
        ]

    def settle(
        self,
        batch: int,
        *values: bytes,
        query: str = "q",
        partitions: int = 2,
        digest: str = "d",
        adopt: bool = False,
        newest: str = "",
    ) -> Settled:
        def evaluate() -> Evaluation:
            self.evaluations += 1
            return Evaluation(self.outgoing(*values), Counts(rows=len(values)))

        return sink.settle(
            Turn(query=query, batch=batch, partition=1, partitions=partitions),
            BatchInput(digest=digest, ranges=INPUT.ranges),
            config=self.config,
            evaluate=evaluate,
            replace_poison=self.router.unwritable,
            adopt=adopt,
            newest=newest,
        )

    def writer(self) -> Writer:
        return Writer(
            self.kafka,
            transactional_id=f"{self.config.transactional_id}.1",
            partition=1,
            topic=self.topic,
            timeout=self.config.timeout,
        )

    def written(self) -> list[bytes | None]:
        return [message.value() for message in consume(self.bootstrap, self.output)]


def _marker(batch: int, query: str = "q") -> Marker:
    return Marker(query=query, batch=batch, partition=1, partitions=2, digest="d")


@pytest.fixture
def kafka(stack: Stack, topic: MakeTopic) -> Iterator[Sink]:
    yield Sink(stack.kafka.bootstrap, topic())
    sink.forget()


def test_turns_are_written_one_after_the_other(kafka: Sink) -> None:
    for batch in range(3):
        settled = kafka.settle(batch, b"%d" % batch)
        assert settled == Settled(Counts(rows=1), replayed=False)

    assert kafka.written() == [b"0", b"1", b"2"]
    assert kafka.topic.read([0, 1]) == {
        1: Marker(
            query="q",
            batch=2,
            partition=1,
            partitions=2,
            digest="d",
            ranges=INPUT.ranges,
            counts=Counts(rows=1),
        )
    }


def test_a_record_whose_time_its_topic_refuses_gets_the_time_of_writing(
    stack: Stack, topic: MakeTopic
) -> None:
    now = time.time_ns() // 1_000_000
    narrow = topic(message_timestamp_before_max_ms="60000")
    kafka = Sink(stack.kafka.bootstrap, narrow)
    kafka.times = {b"ahead": now + 3 * 3_600_000, b"old": now - 120_000, b"fine": now - 30_000}
    many = [b"%d" % n for n in range(200)]
    kafka.times |= dict.fromkeys(many, now + 2 * 3_600_000)
    try:
        first = kafka.settle(0, b"fine", b"ahead", b"old", *many)
        again = kafka.settle(1, b"fine", b"ahead")
    finally:
        sink.forget()

    found = consume(stack.kafka.bootstrap, narrow)
    assert (first.counts.restamped, again.counts.restamped) == (202, 1)
    assert (first.counts.dead, again.counts.dead) == (0, 0)
    assert len(found) == 205
    for message in found:
        value, stamp = message.value() or b"", message.timestamp()[1]
        told = [pair[1] for pair in as_record(message).headers if pair[0] == "ce_time"]
        if value == b"fine":
            assert (stamp, told) == (now - 30_000, [])
        else:
            happened = datetime.fromtimestamp(kafka.times[value] / 1000, UTC)
            assert now <= stamp <= time.time_ns() // 1_000_000
            assert told == [happened.strftime("%Y-%m-%dT%H:%M:%S.%fZ").encode()]


def test_a_record_that_the_broker_refuses_among_others_is_a_dead_letter_and_counted(
    stack: Stack, topic: MakeTopic
) -> None:
    dead = topic()
    kafka = Sink(stack.kafka.bootstrap, topic(cleanup_policy="compact"), dead=dead)
    try:
        settled = kafka.settle(0, b"1", b"keyless", b"2", b"keyless")
    finally:
        sink.forget()

    assert {*kafka.written()} == {b"1", b"2"}
    assert settled.counts == Counts(rows=4, dead=2)
    letters = consume(stack.kafka.bootstrap, dead)
    assert [each.value() for each in letters] == [RECORD.value] * 2
    for each in letters:
        assert f"{kafka.output} refuses it" in str(dict(each.headers() or [])["dovecote_error"])


@pytest.mark.parametrize("other_worker", [False, True])
def test_a_turn_that_is_committed_is_neither_written_nor_evaluated_again(
    kafka: Sink, *, other_worker: bool
) -> None:
    kafka.settle(7, b"once")
    if other_worker:
        sink.forget()

    settled = kafka.settle(7, b"twice")

    assert settled == Settled(Counts(rows=1), replayed=True)
    assert kafka.evaluations == 1
    assert kafka.written() == [b"once"]


def test_a_zombie_is_fenced_and_what_it_had_in_flight_is_gone(kafka: Sink) -> None:
    zombie = kafka.writer()
    zombie.open()
    kafka.settle(0, b"alive")

    with pytest.raises(Fenced):
        zombie.commit(kafka.outgoing(b"undead"), _marker(0))
    zombie.close()

    assert kafka.written() == [b"alive"]


def test_a_kept_producer_that_was_fenced_is_a_cache_miss(kafka: Sink) -> None:
    kafka.settle(0, b"0")
    elsewhere = kafka.writer()
    elsewhere.open()
    elsewhere.commit(kafka.outgoing(b"1"), _marker(1))
    elsewhere.close()

    settled = kafka.settle(2, b"2")

    assert not settled.replayed
    assert kafka.evaluations == 2
    assert kafka.written() == [b"0", b"1", b"2"]


def test_a_kept_producer_that_is_known_to_be_fenced_is_not_tried(
    kafka: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = kafka.settle(0, b"0").writer
    assert kafka.settle(1, b"1", newest=first).writer == first
    elsewhere = kafka.writer()
    elsewhere.open()
    elsewhere.commit(kafka.outgoing(b"2"), _marker(2))
    elsewhere.close()
    tried: list[str] = []
    commit = Writer.commit

    def told(writer: Writer, outgoing: Iterable[Outgoing], marker: Marker) -> None:
        tried.append(writer.name)
        commit(writer, outgoing, marker)

    monkeypatch.setattr(Writer, "commit", told)

    assert kafka.settle(3, b"3", newest=elsewhere.name).writer not in {first, elsewhere.name}

    assert len(tried) == 1
    assert kafka.written() == [b"0", b"1", b"2", b"3"]


def test_who_comes_late_finds_the_turn_written(kafka: Sink) -> None:
    kafka.settle(0, b"0")
    elsewhere = kafka.writer()
    elsewhere.open()
    elsewhere.commit(kafka.outgoing(b"1"), _marker(1))
    elsewhere.close()

    settled = kafka.settle(1, b"1 again")

    assert settled.replayed
    assert kafka.written() == [b"0", b"1"]


@pytest.fixture
def cut(monkeypatch: pytest.MonkeyPatch) -> Cut:
    cut = Cut()
    monkeypatch.setattr(marker_topic, "Consumer", cut.consumer)
    return cut


def test_a_broker_that_was_cut_off_and_lacks_the_newest_marker_is_not_believed(
    kafka: Sink, cut: Cut
) -> None:
    kafka.settle(6, b"before")
    cut.off(kafka.kafka, kafka.topic.name)
    elsewhere = kafka.writer()
    elsewhere.open()
    elsewhere.commit(kafka.outgoing(b"once"), _marker(7))
    elsewhere.close()
    cut.answers(times=2)
    sink.forget()

    settled = kafka.settle(7, b"twice")

    assert settled.replayed
    assert kafka.written() == [b"before", b"once"]
    assert cut.asked == 2


@pytest.mark.parametrize(
    "other", [{"query": "another"}, {"partitions": 3}, {"digest": "of other rows"}]
)
def test_a_marker_that_is_not_this_turns_is_refused_until_it_is_adopted(
    kafka: Sink, other: dict[str, str]
) -> None:
    kafka.settle(4, b"theirs")

    with pytest.raises(MarkerRefused, match="--adopt"):
        kafka.settle(4, b"ours", **other)  # type: ignore[arg-type]  # fields of several types
    assert kafka.evaluations == 1
    kafka.settle(4, b"ours", adopt=True, **other)  # type: ignore[arg-type]  # as above

    assert kafka.written() == [b"theirs", b"ours"]


def test_the_newest_marker_is_found_behind_many_others(kafka: Sink) -> None:
    writer = kafka.writer()
    writer.open()
    for batch in range(120):
        writer.commit([], _marker(batch))
    writer.close()

    assert kafka.topic.read([0, 1]) == {1: _marker(119)}
    behind = kafka.writer()
    behind.open()
    assert behind.marker == _marker(119)
    behind.close()


def test_the_marker_topic_is_compacted_and_grows(kafka: Sink) -> None:
    kafka.topic.ensure(5, dry_run=True)
    assert kafka.topic.partitions() == 2

    kafka.topic.ensure(5)

    assert kafka.topic.partitions() == 5


def test_a_transaction_may_last_longer_than_any_request_to_kafka(kafka: Sink) -> None:
    topic = MarkerTopic(f"{kafka.topic.name}.slow", kafka.kafka, timeout=7_200)

    topic.ensure(1)
    topic.ensure(2)

    assert topic.partitions() == 2


def test_a_broker_that_pauses_loses_and_doubles_nothing_and_one_that_is_gone_is_told(
    own_stack: Stack,
) -> None:
    output = "out"
    admin = AdminClient({"bootstrap.servers": own_stack.kafka.bootstrap})
    admin.create_topics([NewTopic(output, 1, 1)])[output].result(patient(30))
    timeout = patient(0.7)
    paused = Sink(own_stack.kafka.bootstrap, output, timeout=timeout)
    paused.settle(0, b"0")
    own_stack.kafka.pause()
    back = threading.Timer(1.5 * timeout, own_stack.kafka.resume)
    back.start()

    paused.settle(1, b"1")

    back.join()
    paused.settle(2, b"2")
    assert paused.written() == [b"0", b"1", b"2"]
    assert paused.evaluations == 3
    own_stack.kafka.kill()
    with pytest.raises(KafkaUnavailable, match="Nothing of it is visible"):
        paused.settle(3, b"3")
    sink.forget()
