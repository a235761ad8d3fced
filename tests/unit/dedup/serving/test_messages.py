"""Records are made of messages when they are begun, and are what the client has polled."""

from collections.abc import Sequence
from typing import Any

from confluent_kafka import Message

from dedup.rules.identity import of_topic
from dedup.rules.lanes.lanes import Lanes
from dedup.rules.record import Record
from dedup.serving.messages import reads, weight_of
from dedup.serving.runs import next_run
from outbox.envelope import ATTEMPT, ID, NOT_BEFORE, ORIGIN, ROUND, Pair

TOPIC_ID = "PolNg21HQi6d_zBlsLuZrA"
HISTORY: list[Pair] = [(ATTEMPT, b"2"), (ROUND, b"1"), (ORIGIN, b"orders/0/1"), (NOT_BEFORE, b"9")]


def message(offset: int, *headers: Pair, value: bytes | None = b"v") -> Message:
    return Message(
        topic="orders",
        partition=3,
        offset=offset,
        key=b"k",
        value=value,
        headers=[*headers],
        timestamp=(1, 1_000 + offset),
    )


def test_a_record_has_all_that_its_message_has() -> None:
    read = reads(Record, "orders", 3, retry=False)
    found = read([message(7, (ID, b"e1")), message(9, value=None)])
    assert [tuple(each) for each in found] == [
        ("orders", 3, 7, 1_007, b"k", b"v", [(ID, b"e1")]),
        ("orders", 3, 9, 1_009, b"k", None, ()),
    ]
    assert {type(each) for each in found} == {Record}


def test_a_history_that_is_not_ours_does_not_count() -> None:
    on_a_topic, on_a_retry_topic = (
        reads(Record, "orders", 3, retry=retry)([message(7, (ID, b"e1"), *HISTORY)])[0]
        for retry in (False, True)
    )
    assert [name for name, _ in on_a_topic.headers] == [ID, "dovecote_hops"]
    assert [*on_a_retry_topic.headers] == [(ID, b"e1"), *HISTORY]


def test_records_know_the_id_of_their_topic() -> None:
    places = [
        reads(of_topic(Record, id_), "orders", 3, retry=False)([message(7)])[0].identity.id
        for id_ in (TOPIC_ID, "b" * 22, None)
    ]
    assert places == [f"{TOPIC_ID}/3/7", f"{'b' * 22}/3/7", "orders/3/7"]


def test_records_are_made_once_when_their_run_is_begun() -> None:
    lanes: Lanes[Any] = Lanes()
    stretch = lanes.begin("orders", 3)
    read = reads(Record, "orders", 3, retry=False)
    made: list[int] = []

    def counted(messages: Sequence[Any]) -> list[Record]:
        made.append(1)
        return read(messages)

    stretch.read = counted
    lanes.open(stretch)
    lanes.offer(stretch, {b"k": [message(7), message(8)]})
    (lane,) = lanes.take(10)
    assert not made
    for _ in range(2):  # as after a record that held the lane
        run = next_run(lane)
        assert run is not None
        assert [record.offset for record in run.records] == [7, 8]
    assert made == [1]


def test_the_weight_of_headers_is_what_python_takes_for_them() -> None:
    assert weight_of(message(1)) == 0
    assert weight_of(message(1, ("a", b"x" * 1_000), ("b", None))) == 2 * 150 + 1_000
