"""The start of a query, with as much of Spark as it needs."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Self

import pytest
from pyspark.errors import StreamingQueryException

from spark_jobs.errors import QueryFailed
from spark_jobs.query import query as module
from spark_jobs.query.progress import BatchLine, Summary
from spark_jobs.query.query import Query
from spark_jobs.sink.markers import Counts
from spark_jobs.source.offsets import Range

SLOW = "[STREAM_FAILED] terminated with exception: Python worker failed to connect back."


class Writer:
    """Starts queries that end with these errors in turn, and then one that is done."""

    def __init__(self, *errors: str) -> None:
        self._errors = [*errors]
        self.started = 0

    def queryName(self, name: str) -> Self:  # noqa: ARG002, N802  # Spark's name
        return self

    def foreachBatch(self, batch: object) -> Self:  # noqa: ARG002, N802  # as above
        return self

    def start(self) -> Any:
        self.started += 1
        return SimpleNamespace(runId="r", awaitTermination=self._end)

    def _end(self, seconds: float) -> bool:  # noqa: ARG002  # as Spark's
        if self._errors:
            raise StreamingQueryException(self._errors.pop(0))
        return True


@pytest.fixture(autouse=True)
def _unheard(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def listening(*_: object) -> Iterator[None]:
        yield

    monkeypatch.setattr(module, "listening", listening)


def _run(writer: Writer) -> None:
    spark: Any = SimpleNamespace()
    stage: Any = SimpleNamespace()
    query = Query(spark, "q", stage, show=lambda _: None)
    query.run(writer, threading.Event())  # type: ignore[arg-type]  # as much of Spark's as it uses


def test_a_query_whose_python_was_too_slow_is_started_again() -> None:
    writer = Writer(SLOW, SLOW)
    _run(writer)
    assert writer.started == 3


def test_it_is_not_started_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_START_SECONDS", -1.0)
    writer = Writer(SLOW)
    with pytest.raises(QueryFailed, match="failed to connect back"):
        _run(writer)
    assert writer.started == 1


def test_a_query_that_fails_otherwise_is_not_started_again() -> None:
    writer = Writer("[STREAM_FAILED] something else")
    with pytest.raises(QueryFailed, match="something else"):
        _run(writer)
    assert writer.started == 1


class Failing(Writer):
    """A query that has failed by itself when it is asked to stop."""

    def start(self) -> Any:
        self.started += 1
        return SimpleNamespace(
            runId="r",
            awaitTermination=lambda _: False,
            exception=lambda: StreamingQueryException("no disk\nand so on"),
            stop=lambda: None,
        )


def test_a_query_that_has_failed_when_it_is_stopped_is_no_success() -> None:
    spark: Any = SimpleNamespace()
    stage: Any = SimpleNamespace()
    stop = threading.Event()
    stop.set()
    writer: Any = Failing()
    with pytest.raises(QueryFailed, match="no disk"):
        Query(spark, "q", stage, show=lambda _: None).run(writer, stop)


class Log:
    """Spark's log of offsets, of one batch."""

    def plan(self, number: int) -> Any:
        return SimpleNamespace(ranges=[Range("orders", 0, number, number + 1)])


@pytest.mark.parametrize(
    ("said", "named"),
    [
        ("[STREAM_FAILED] terminated with exception: No space left on device", False),
        ("[CONCURRENT_STREAM_LOG_UPDATE] Multiple streaming jobs detected for 8.", False),
        ("spark_jobs.errors.StateTooLarge: the state of bucket 3 is too large", True),
        ("Python worker exited unexpectedly (crashed)", True),
        ('Traceback (most recent call last):\n  File "x.py", line 1\nValueError: odd', True),
    ],
)
def test_records_are_named_where_one_may_be_to_blame(said: str, *, named: bool) -> None:
    spark: Any = SimpleNamespace()
    log: Any = Log()
    query = Query(spark, "q", spark, show=lambda _: None, log=log)
    query._number = 7
    writer: Any = Writer(said)

    with pytest.raises(QueryFailed) as failed:
        query.run(writer, threading.Event())

    assert ("source.skip" in str(failed.value)) is named
    assert ("orders/0 from offset 7" in str(failed.value)) is named


def test_a_batch_counts_although_nobody_reads_its_line(caplog: pytest.LogCaptureFixture) -> None:
    counted: list[int] = []
    watch: Any = SimpleNamespace(finished=lambda progress, *_: counted.append(progress["batchId"]))
    spark: Any = SimpleNamespace()

    def show(_: BatchLine) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    query = Query(spark, "q", spark, show=show, watch=watch)
    for number in range(2):
        query._done[number] = Summary(counts=Counts(rows=1, handled=1), replayed=0, newest=0)
        query._finished({"name": "q", "batchId": number, "durationMs": {}, "sources": []})

    assert counted == [0, 1]
    assert query._done == {}
    assert [each.getMessage() for each in caplog.records] == [
        "lines of batches cannot be written, and the job goes on: [Errno 32] Broken pipe"
    ]
