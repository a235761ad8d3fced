"""The results for letters are written in one transaction, which never stays open."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from dedup.kafka.dead_topic import DeadTopic
from dedup.retries.letter import Letter, Which, letter
from outbox.envelope import ID, Record
from outbox.errors import DovecoteError

RECORDS = [Record("dead", 0, n, 0, b"k", b"v", [(ID, b"e%d" % n)]) for n in range(3)]


class Producing:
    """A producer that records its calls."""

    calls: list[str]

    def __init__(self, _: object) -> None:
        Producing.calls = []

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: self.calls.append(name)


class Losing(DeadTopic):
    """The second of its letters is gone when it is looked for."""

    def _fence(self, producer: object) -> bytes:  # noqa: ARG002  # it fences nobody
        return b""

    def _after(self, nonce: bytes, which: Which) -> list[Letter]:  # noqa: ARG002  # all of them
        return [letter(record) for record in RECORDS]

    def _whole(self, letters: Sequence[Letter]) -> Iterator[Record]:  # noqa: ARG002  # all of them
        yield RECORDS[0]
        msg = "letter e1 is gone"
        raise DovecoteError(msg)


def test_a_letter_that_is_gone_aborts_what_was_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dedup.kafka.dead_topic.Producer", Producing)

    with pytest.raises(DovecoteError, match="is gone"):
        Losing({}, "dead").resolve(Which(), "requeued", lambda _: "orders")

    asked = [name for name in Producing.calls if name not in {"produce", "poll"}]
    assert asked == ["init_transactions", "begin_transaction", "abort_transaction"]


def test_without_trouble_it_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dedup.kafka.dead_topic.Producer", Producing)

    assert len(Losing({}, "dead").resolve(Which(), "dropped", lambda _: "")) == len(RECORDS)

    assert Producing.calls[-1] == "commit_transaction"
    assert "abort_transaction" not in Producing.calls
