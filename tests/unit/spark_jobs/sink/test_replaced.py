"""A dead letter that its topic refuses is written once more, without what made it too large."""

from collections import OrderedDict

import pytest

from dedup.retries.backoff import Backoff
from dedup.retries.copies import Copy, size_of
from dedup.rules.identity import identity
from dedup.rules.policies.results import Dead
from outbox.envelope import WITHOUT_VALUE, Record
from spark_jobs.errors import Unwritable
from spark_jobs.policy.router import Router
from spark_jobs.sink.markers import Counts, Marker, Turn
from spark_jobs.sink.outgoing import Evaluation, Outgoing, Topics
from spark_jobs.sink.sink import BatchInput, SinkConfig, _Attempt
from spark_jobs.sink.writer import Poisoned

KAFKA = {"bootstrap.servers": "127.0.0.1:1"}
ROUTER = Router(
    topics=Topics(output="out", retry="retry", dead_letter="dead"), backoff=Backoff(), now=1
)


class Narrow:
    """A writer to topics that take records of so many bytes."""

    name, marker = "narrow", None

    def __init__(self, limit: int) -> None:
        self.limit, self.written = limit, list[Outgoing]()

    def commit(self, outgoing: list[Outgoing], _: Marker) -> None:
        sizes = [size_of(Copy(each.key, each.value, each.headers)) for each in outgoing]
        large = {nr: "too large" for nr, size in enumerate(sizes) if size > self.limit}
        if large:
            raise Poisoned(large, "too large")
        self.written = list(outgoing)

    def close(self) -> None:
        """Keep what was written."""


def settled(monkeypatch: pytest.MonkeyPatch, record: Record, limit: int) -> list[Outgoing]:
    """Return what is written for a record that is to be a dead letter."""
    writer = Narrow(limit)
    attempt = _Attempt(
        Turn(query="q", batch=0, partition=0, partitions=1),
        BatchInput(digest="d", ranges={}),
        SinkConfig(kafka=KAFKA, marker_topic="m", transactional_id="t", timeout=1),
        adopt=False,
        newest="",
    )
    monkeypatch.setattr(attempt, "_opened", lambda _: writer)
    monkeypatch.setattr(attempt, "_kept", lambda _: None)
    dead = ROUTER._aside(Dead("no"), record, identity(record))
    monkeypatch.setattr("spark_jobs.sink.sink._writers", OrderedDict())
    attempt.run(lambda: Evaluation([dead], Counts(rows=1, dead=1)), ROUTER.unwritable)
    return writer.written


@pytest.mark.parametrize("value", [b"1", None], ids=["value", "tombstone"])
def test_a_letter_with_large_headers_goes_without_them(
    monkeypatch: pytest.MonkeyPatch, value: bytes | None
) -> None:
    record = Record("in", 0, 7, 1, b"k", value, [("x", b"h" * 3_000)])
    (letter,) = settled(monkeypatch, record, 3_000)
    assert (letter.topic, letter.key, letter.value) == ("dead", b"k", None)
    assert WITHOUT_VALUE in dict(letter.headers)
    assert "x" not in dict(letter.headers)


@pytest.mark.parametrize("value", [b"1", None], ids=["value", "tombstone"])
def test_a_letter_that_is_too_large_even_so_ends_the_job(
    monkeypatch: pytest.MonkeyPatch, value: bytes | None
) -> None:
    record = Record("in", 0, 7, 1, b"k", value, [("x", b"h" * 3_000)])
    with pytest.raises(Unwritable, match="even as a dead letter without its value"):
        settled(monkeypatch, record, 10)
