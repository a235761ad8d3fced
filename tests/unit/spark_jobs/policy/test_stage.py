"""A turn's counts say what became of its rows, also where topics refuse their records."""

import json
from collections.abc import Iterable

import pytest

from dedup.retries.backoff import Backoff
from dedup.settings.policy import ExactSettings
from spark_jobs.policy.stage import StageConfig, Taken, settle
from spark_jobs.query.batch import Batch
from spark_jobs.sink import sink
from spark_jobs.sink.markers import Counts, Marker
from spark_jobs.sink.outgoing import Outgoing, Topics
from spark_jobs.sink.sink import BatchInput, SinkConfig
from spark_jobs.sink.writer import Poisoned
from tests.unit.spark_jobs.made_rows import record, rows


class Refusing:
    """A writer whose broker takes dead letters alone."""

    name, marker = "writer", None

    def __init__(self, *_: object, **__: object) -> None:
        self.committed: Marker | None = None

    def open(self) -> None: ...

    def commit(self, outgoing: Iterable[Outgoing], marker: Marker) -> None:
        refused = {n: "too large" for n, each in enumerate(outgoing) if each.topic != "dead"}
        if refused:
            raise Poisoned(refused, "too large")
        self.committed = marker

    def close(self) -> None: ...


@pytest.mark.parametrize("do", ["nothing", "retry", "again", "split", "dead"])
def test_a_row_whose_records_are_refused_is_dead_and_nothing_else(
    do: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink.forget()
    monkeypatch.setattr(sink, "Writer", Refusing)
    config = StageConfig(
        operator=ExactSettings(handler="tests.unit.spark_jobs.handlers:by_value"),
        topics=Topics(output="out", retry="retry", dead_letter="dead"),
        backoff=Backoff(),
        sink=SinkConfig(
            kafka={"bootstrap.servers": "127.0.0.1:1"},
            marker_topic="markers",
            transactional_id="id",
            timeout=1,
        ),
        partitions=1,
    )
    found = settle(
        config,
        Batch(query="q", number=0, now=1_800_000_000_000),
        0,
        given=BatchInput(digest="d", ranges={}),
        take=lambda: Taken(
            rows=rows(record(0, id_="a", value=json.dumps({"do": do}).encode())), newest=0
        ),
    )
    sink.forget()

    assert (found.error, found.counts) == (None, Counts(rows=1, dead=1))
