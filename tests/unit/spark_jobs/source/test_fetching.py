"""A record that cannot be read is named, and skipped if the settings or a note say so."""

from collections.abc import Sequence
from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition

from dedup.rules.unread import Place, SkipNote, covering
from spark_jobs.errors import KafkaUnavailable
from spark_jobs.source import fetching
from spark_jobs.source.config import SourceConfig
from spark_jobs.source.fetching import fetch
from spark_jobs.source.offsets import Range

PLAN = [Range("orders", 0, 40, 45)]


class _Message:
    def __init__(self, offset: int, error: int | None = None) -> None:
        self._offset, self._error = offset, error

    def topic(self) -> str:
        return "orders"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def error(self) -> KafkaError | None:
        return None if self._error is None else KafkaError(self._error)


class _Consumer:
    """A client for which a batch is broken, which ends before the offset `until`."""

    def __init__(self, broken: int, code: int, *, says: bool, until: int) -> None:
        self._broken, self._until = broken, until
        self._code, self._says, self._at = code, says, 0

    def assign(self, places: Sequence[TopicPartition]) -> None:
        self._at = places[0].offset

    def incremental_assign(self, places: Sequence[TopicPartition]) -> None:
        self._at = places[0].offset

    def incremental_unassign(self, _: object) -> None:
        pass

    def unassign(self) -> None:
        pass

    def close(self) -> None:
        pass

    def poll(self, _: float) -> _Message:
        if self._broken <= self._at < self._until:
            return _Message(self._broken if self._says else -1001, self._code)
        self._at += 1
        return _Message(self._at - 1)

    def consume(self, *_: Any) -> list[_Message]:
        if self._broken <= self._at < self._until:  # it goes astray after a wrong checksum
            wild = 8_680_820_740_569_200_760
            return [_Message(wild, self._code), _Message(self._until + 1)]
        return []


@pytest.fixture(autouse=True)
def _closed() -> Any:
    yield
    fetching.forget()


def _fetched(monkeypatch: pytest.MonkeyPatch, broken: int, *skip: str, **how: Any) -> list[Any]:
    given: dict[str, Any] = {
        "code": KafkaError._BAD_MSG,
        "says": True,
        "until": broken + 1,
        **how,
    }
    notes = given.pop("notes", [])
    monkeypatch.setattr(fetching, "_made", lambda *_, **__: _Consumer(broken, **given))
    monkeypatch.setattr(
        fetching,
        "noted",
        lambda _, __, places: {
            place: note for place in places if (note := covering(notes, place)) is not None
        },
    )
    probed = lambda _, place: ("broken", min(broken, place.offset), given["until"])  # noqa: E731  # one line
    monkeypatch.setattr(fetching, "unread", probed)
    fetching.forget()
    config = SourceConfig(kafka={}, group="g", topics=("orders",), skip=skip)
    (found,) = fetch(PLAN, SourceConfig.decode(config.encode()))
    return [each.offset() for each in found.messages]


@pytest.mark.parametrize("says", [True, False])
@pytest.mark.parametrize(
    "code", [KafkaError._BAD_MSG, KafkaError._BAD_COMPRESSION, KafkaError.MSG_SIZE_TOO_LARGE]
)
def test_a_record_that_cannot_be_read_is_named_and_then_skipped(
    monkeypatch: pytest.MonkeyPatch, code: int, *, says: bool
) -> None:
    for broken in (40, 42, 44):
        how = {"code": code, "says": says}
        with pytest.raises(KafkaUnavailable, match=f"orders/0 at offset {broken}: .*source.skip"):
            _fetched(monkeypatch, broken, "orders/0/41", "other/0/42", **how)
        found = _fetched(monkeypatch, broken, f"orders/0/{broken}", **how)
        assert found == [offset for offset in range(40, 45) if offset != broken]


@pytest.mark.parametrize("broken", [38, 40, 42])
@pytest.mark.parametrize("until", [43, 45, 50])
def test_a_batch_that_cannot_be_read_is_stepped_over_whole(
    monkeypatch: pytest.MonkeyPatch, broken: int, until: int
) -> None:
    named = max(broken, 40)
    left = [offset for offset in range(40, 45) if not broken <= offset < until]
    note = SkipNote(
        group="g",
        topic="orders",
        partition=0,
        first=broken,
        until=until,
        topic_id=None,
        error="broken",
        by="ann",
        at="2026-02-01T09:30:00+00:00",
        why="a test",
    )
    for places in ([f"orders/0/{named}"], [f"orders/0/{min(until, 45) - 1}"]):
        assert _fetched(monkeypatch, broken, *places, until=until) == left
    assert _fetched(monkeypatch, broken, until=until, notes=[note]) == left
    assert note.covers(Place("orders", 0, named), None)
    with pytest.raises(KafkaUnavailable, match=f"orders/0/{named}` with the job's settings"):
        _fetched(monkeypatch, broken, "orders/0/50", until=until)


def test_a_record_that_can_be_read_is_skipped_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _fetched(monkeypatch, -1, "orders/0/40", "orders/0/44") == [41, 42, 43]


def test_what_is_no_records_fault_says_nothing_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    denied = {"code": KafkaError.TOPIC_AUTHORIZATION_FAILED}
    with pytest.raises(KafkaUnavailable, match="from offset 40 up to 45") as caught:
        _fetched(monkeypatch, 42, "orders/0/42", **denied)
    assert "source.skip" not in str(caught.value)
