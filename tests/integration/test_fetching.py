"""Ranges of offsets, read to their ends."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from spark_jobs.errors import KafkaUnavailable, SourceChanged
from spark_jobs.source import fetching
from spark_jobs.source.config import SourceConfig
from spark_jobs.source.fetching import fetch
from spark_jobs.source.offsets import Range
from tests.support.compacting import compacted
from tests.support.fix_stack import MakeTopic, Servers
from tests.support.waiting import consume, patient, until

SECONDS = patient(20)


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """No test leaves a consumer behind."""
    yield
    fetching.forget()


@pytest.fixture
def config(stack: Servers) -> SourceConfig:
    return _config(stack.kafka.bootstrap)


def _config(bootstrap: str, **more: Any) -> SourceConfig:  # any of its fields
    return SourceConfig(
        kafka={"bootstrap.servers": bootstrap}, group=f"test-{uuid4().hex}", topics=(), **more
    )


def _producer(config: SourceConfig, **more: str) -> Producer:
    return Producer({**config.kafka, "message.max.bytes": 5_000_000, **more})


def _fill(config: SourceConfig, topic: str, count: int, partition: int = 0) -> None:
    producer = _producer(config)
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=partition)
        producer.poll(0)
    assert producer.flush(SECONDS) == 0


def _transact(config: SourceConfig, topic: str, count: int, *, commit: bool) -> None:
    producer = _producer(config, **{"transactional.id": f"{topic}-t"})
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    for number in range(count):
        producer.produce(topic, b"t%d" % number, partition=0)
    producer.flush(SECONDS)
    if commit:
        producer.commit_transaction(SECONDS)
    else:
        producer.abort_transaction(SECONDS)


def _read(config: SourceConfig, *plan: Range) -> list[list[int]]:
    return [[each.offset() or 0 for each in found.messages] for found in fetch(plan, config)]


def test_ranges_are_read_from_their_first_offset_to_their_last(
    topic: MakeTopic, config: SourceConfig
) -> None:
    name = topic(2)
    for partition in range(2):
        _fill(config, name, 100, partition)

    found = _read(config, Range(name, 1, 10, 20), Range(name, 0, 0, 100))

    assert found == [list(range(10, 20)), list(range(100))]


def test_a_large_range_is_read_in_order(topic: MakeTopic, config: SourceConfig) -> None:
    name = topic()
    _fill(config, name, 12_000)

    (found,) = fetch([Range(name, 0, 500, 11_500)], config)

    assert [each.offset() for each in found.messages] == list(range(500, 11_500))
    assert found.messages[0].value() == b"500"


def test_many_small_ranges_come_at_once(topic: MakeTopic, config: SourceConfig) -> None:
    name = topic(16)
    for partition in range(16):
        _fill(config, name, 3, partition)
    plan = [Range(name, partition, 1, 3) for partition in range(16)]

    assert _read(config, *plan) == [[1, 2]] * 16
    assert _read(config, *plan) == [[1, 2]] * 16  # with the same consumer


def test_nothing_is_read_of_control_records_and_aborted_transactions(
    topic: MakeTopic, config: SourceConfig
) -> None:
    name = topic()
    _transact(config, name, 3, commit=True)  # 0 to 2, and a control record at 3
    _transact(config, name, 2, commit=False)  # 4, 5; 6
    _fill(config, name, 1)  # 7
    _transact(config, name, 1, commit=False)  # 8; 9

    def read(start: int, end: int) -> list[int]:
        (found,) = _read(config, Range(name, 0, start, end))
        return found

    assert read(0, 10) == [0, 1, 2, 7]  # an aborted transaction at the end
    assert read(3, 4) == []  # a control record alone, in the middle
    assert read(4, 7) == []  # an aborted transaction alone
    assert read(8, 10) == []  # the same at the end of the topic
    assert read(2, 8) == [2, 7]


def test_ranges_with_gaps_of_compaction_end(tmp_path: Path) -> None:
    with compacted(tmp_path) as (bootstrap, name):
        config = _config(bootstrap)

        def offsets() -> list[int]:
            return [each.offset() or 0 for each in consume(bootstrap, name)]

        def is_read_right() -> bool:
            there = offsets()
            end = there[-1] + 1
            gap = next(offset for offset in range(there[0], end) if offset not in there)
            bounds = [(0, end), (0, gap + 1), (gap, gap + 1), (gap, end)]
            found = [_read(config, Range(name, 0, *each)) for each in bounds]
            right = [[[at for at in there if first <= at < last]] for first, last in bounds]
            if there != offsets():  # the broker has gone on with it meanwhile
                return False
            assert found == right
            return True

        until(is_read_right, within=SECONDS, what="a topic that stays the same while it is read")
        fetching.forget()  # its broker ends here


def test_an_open_transaction_after_the_range_does_not_matter(
    topic: MakeTopic, config: SourceConfig
) -> None:
    name = topic()
    _fill(config, name, 5)
    producer = _producer(config, **{"transactional.id": f"{name}-open"})
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    producer.produce(name, b"open", partition=0)
    producer.flush(SECONDS)

    assert _read(config, Range(name, 0, 0, 5)) == [[0, 1, 2, 3, 4]]
    producer.abort_transaction(SECONDS)


def test_a_record_larger_than_a_fetch_is_read(topic: MakeTopic, config: SourceConfig) -> None:
    name = topic(max_message_bytes="6000000")
    producer = _producer(config)
    for _ in range(3):
        producer.produce(name, b"x" * 3_000_000, partition=0)
    assert producer.flush(SECONDS) == 0

    (found,) = fetch([Range(name, 0, 0, 3)], config)

    assert [len(each.value() or b"") for each in found.messages] == [3_000_000] * 3


def test_any_time_can_be_read(topic: MakeTopic, config: SourceConfig) -> None:
    name = topic(message_timestamp_after_max_ms=str(2**63 - 1))
    producer = _producer(config)
    times = [1, 1_700_000_000_000, 1_700_000_000_000_000_000]
    for time in times:
        producer.produce(name, b"x", partition=0, timestamp=time)
    assert producer.flush(SECONDS) == 0

    (found,) = fetch([Range(name, 0, 0, 3)], config)

    assert [each.timestamp()[1] for each in found.messages] == times


def _trimmed(topic: MakeTopic, config: SourceConfig, count: int, at: int) -> str:
    name = topic()
    _fill(config, name, count)
    place = TopicPartition(name, 0, at)
    admin = AdminClient(dict(config.kafka))  # kept: a client takes its requests with it
    admin.delete_records([place])[place].result(SECONDS)
    return name


def test_records_that_are_deleted_are_refused_by_their_offsets(
    topic: MakeTopic, config: SourceConfig
) -> None:
    name = _trimmed(topic, config, 10, 4)

    with pytest.raises(SourceChanged, match=rf"offsets 1 to 3 of {name}/0 are deleted"):
        fetch([Range(name, 0, 1, 8)], config)


def test_records_that_are_deleted_may_be_skipped_and_are_counted(
    topic: MakeTopic, stack: Servers
) -> None:
    config = _config(stack.kafka.bootstrap, expired="skip")
    name = _trimmed(topic, config, 10, 4)

    (part,) = fetch([Range(name, 0, 1, 8)], config)
    (none,) = fetch([Range(name, 0, 0, 3)], config)

    assert ([each.offset() for each in part.messages], part.expired) == ([4, 5, 6, 7], 3)
    assert (none.messages, none.expired) == ([], 3)


def test_a_topic_that_ends_before_the_range_has_lost_records(
    topic: MakeTopic, config: SourceConfig
) -> None:
    name = topic()
    _fill(config, name, 5)

    with pytest.raises(SourceChanged, match="lost records"):
        fetch([Range(name, 0, 10, 20)], config)


def test_a_cluster_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "_PATIENCE_SECONDS", 0.5)

    with pytest.raises(KafkaUnavailable, match="cannot read t/0 from offset 0 up to 5"):
        fetch([Range("t", 0, 0, 5)], _config("127.0.0.1:9"))


def test_a_topic_that_is_not_there_is_named(
    config: SourceConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "_PATIENCE_SECONDS", 2.0)

    with pytest.raises(KafkaUnavailable, match="nowhere/0"):
        fetch([Range("nowhere", 0, 0, 5)], config)
