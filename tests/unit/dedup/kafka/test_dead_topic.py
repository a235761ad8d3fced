"""The results for letters are written in transactions, which never stay open."""

import gc
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from weakref import ref

import pytest
from confluent_kafka import KafkaError, KafkaException

from dedup.kafka.dead_topic import DeadTopic, kafka_errors
from dedup.kafka.moving import Mover, SizeLimits
from dedup.retries.letter import Letter, Which, letter
from outbox.envelope import ID, RESOLVES, UNREAD_HEADERS, Record
from outbox.errors import DovecoteError, NoClient

RECORDS = [Record("dead", 0, n, 0, b"k", b"v", [(ID, b"e%d" % n)]) for n in range(3)]


class Producing:
    """A producer that records its calls."""

    calls: list[str]

    def __init__(self, _: object, **__: object) -> None:
        Producing.calls = []

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: self.calls.append(name)


class Unknown(SizeLimits):
    def of(self, topic: str) -> int | None:  # noqa: ARG002  # nobody to ask
        return None


class Losing(DeadTopic):
    """The second of its letters is gone when it is looked for, and the third cannot be read."""

    def __init__(self, *, fails: bool = False) -> None:
        super().__init__({}, "dead")
        self.fails = fails
        self._limits = Unknown({})

    def _records(self, which: Which, nonce: bytes | None) -> Iterator[Record]:  # noqa: ARG002  # all of them
        return iter(RECORDS)

    def _fence(self, mover: object) -> bytes:  # noqa: ARG002  # it fences nobody
        return b""

    def _after(self, nonce: bytes, which: Which, most: int | None = None) -> list[Letter]:  # noqa: ARG002  # all of them
        return [letter(record) for record in RECORDS]

    def _whole(self, letters: Sequence[Letter]) -> Iterator[tuple[Letter, Record | None]]:
        for number, (each, record) in enumerate(zip(letters, RECORDS, strict=True)):
            if self.fails and number:
                msg = "the broker is silent"
                raise DovecoteError(msg)
            unread = record._replace(headers=UNREAD_HEADERS)
            yield each, [record, None, unread][number]


def test_a_letter_that_cannot_go_stays_and_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dedup.kafka.moving.Producer", Producing)

    done, left = Losing().resolve(Which(), "requeued", lambda _: "orders")

    assert [each.id for each in done] == ["e0"]
    assert [each.id for each, _ in left] == ["e1", "e2"]
    assert "no longer keeps it" in left[0][1]
    assert Producing.calls[-1] == "commit_transaction"


def test_what_was_begun_is_aborted_when_the_broker_is_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dedup.kafka.moving.Producer", Producing)
    monkeypatch.setattr("dedup.kafka.moving._CHUNK", 1)

    with pytest.raises(DovecoteError, match="silent"):
        Losing(fails=True).resolve(Which(), "requeued", lambda _: "orders")

    # Nothing was begun when it became known.
    assert "begin_transaction" not in Producing.calls


def test_without_trouble_it_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dedup.kafka.moving.Producer", Producing)

    assert len(Losing().resolve(Which(), "dropped", lambda _: "").done) == len(RECORDS)

    assert Producing.calls[-1] == "commit_transaction"
    assert "abort_transaction" not in Producing.calls


class Moving:
    """A consumer whose broker does not lead one of two partitions any more."""

    def list_topics(self, topic: str, **_: object) -> Any:
        return SimpleNamespace(
            topics={topic: SimpleNamespace(error=None, partitions={0: None, 1: None})}
        )

    def offsets_for_times(self, places: Sequence[Any], **_: object) -> list[Any]:
        moved = KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION)
        return [
            SimpleNamespace(topic=each.topic, partition=each.partition, offset=-1, error=error)
            for each, error in zip(places, (None, moved), strict=True)
        ]


def test_letters_since_a_time_are_not_passed_over_where_kafka_does_not_say_which() -> None:
    moving: Any = Moving()

    with pytest.raises(KafkaException, match="NOT_LEADER"):
        DeadTopic({}, "dead").begins(moving, datetime(2026, 1, 1, tzinfo=UTC))


def test_the_first_letters_are_found_behind_many_that_are_resolved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    letters = [Record("dead", 0, n, 0, b"k", b"v", [(ID, b"e%d" % n)]) for n in range(9)]
    gone = [Record("dead", 0, 9 + n, 0, b"k", None, [(RESOLVES, b"%d x" % n)]) for n in range(5)]
    topic = DeadTopic({}, "dead")
    monkeypatch.setattr(topic, "_records", lambda *_: iter([*letters, *gone]))
    found, total = topic.first(Which(), 3)
    assert ([each.id for each in found], total) == (["e5", "e6", "e7"], 4)
    found, total = topic.first(Which(), 9)
    assert (len(found), total) == (4, 4)


def test_a_process_that_has_no_room_for_a_client_of_letters_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*_: object, **__: object) -> None:
        msg = "Failed to initialize thread local storage"
        raise RuntimeError(msg)

    monkeypatch.setattr("dedup.kafka.dead_topic.Consumer", full)
    monkeypatch.setattr("dedup.kafka.moving.Producer", full)
    with pytest.raises(NoClient), DeadTopic({}, "dead").consumer():
        pass
    with pytest.raises(NoClient):
        Mover({}, "dead", Unknown({}))


def test_an_error_of_the_client_keeps_no_producer() -> None:
    class Client:
        """Something that must go with the frame that made it."""

    kept: list[ref[Client]] = []

    def moving() -> None:
        client = Client()
        kept.append(ref(client))
        error = KafkaError(KafkaError._ALL_BROKERS_DOWN)
        raise KafkaException(error)

    def asked() -> None:
        with pytest.raises(DovecoteError, match="Kafka: "), kafka_errors("dead"):
            moving()

    gc.disable()
    try:
        asked()
        assert kept[0]() is None
    finally:
        gc.enable()
