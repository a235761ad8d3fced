"""Run one streaming query, from its first batch to the end of the one in progress."""

import logging
import threading
import time
from collections import ChainMap
from collections.abc import Callable, Collection, Mapping
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has no types
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from dovecote.process.logs import one_line
from outbox.tracing.gate import is_on
from spark_jobs.errors import JobError, QueryFailed
from spark_jobs.failures import SPARKS, failure, may_be_a_records, told
from spark_jobs.query.batch import Batch, BatchReport, Stage
from spark_jobs.query.progress import (
    BatchLine,
    Summary,
    ends,
    lacks_ends_of_topics,
    line,
    summary,
    with_ends_of_topics,
)
from spark_jobs.query.resting import Rest
from spark_jobs.query.tracing import batch_span
from spark_jobs.query.watching import Watch, listening
from spark_jobs.sink.admission import admit
from spark_jobs.sink.group import Ends
from spark_jobs.sink.markers import Counts, Turn
from spark_jobs.source import offsets
from spark_jobs.source.log import BatchLog
from spark_jobs.source.sizes import Sizes

_log = logging.getLogger("dovecote.spark")

_POLL_SECONDS = 0.2
# Recording that a batch is done takes Spark milliseconds.
_COMMIT_SECONDS = 10.0
# Spark starts a Python process for a query's source and waits ten seconds for it, which cannot be
# set. On a busy machine the start may take longer.
_TOO_SLOW = "Python worker failed to connect back"
_START_SECONDS = 180.0
_INTERRUPTED = (
    "py4j.protocol.Py4JJavaError: An error occurred while calling the batch: "
    "java.lang.InterruptedException"
)

Show = Callable[[BatchLine], None]
Latest = Callable[[Collection[str]], Mapping[str, Any]]
"""Returns where topics end; gets those that were read."""


class Query:
    """A streaming query whose batches run one stage."""

    def __init__(
        self,
        spark: SparkSession,
        name: str,
        config: Stage,
        *,
        show: Show,
        watch: Watch | None = None,
        rest: Rest | None = None,
        sizes: Sizes | None = None,
        log: BatchLog | None = None,
        latest: Latest | None = None,
        adopt: bool = False,
    ) -> None:
        """
        Make a query that does not run yet.

        `log` is Spark's log of offsets, for a message that says what a failed batch reads;
        `latest` returns where topics end, for the lag of a batch that Spark did not plan anew.
        """
        self._sizes, self._log, self._latest = sizes, log, latest
        self._spark, self._name, self._config = spark, name, config
        self._show, self._watch, self._rest, self._adopt = show, watch, rest, adopt
        self._run = ""
        self._running = threading.Lock()
        self._asked_to_stop = threading.Event()
        self._admitted = self._is_mute = False
        self._failure: JobError | None = None
        self._number: int | None = None
        self._writers: dict[int, str] = {}
        """The name of each shuffle partition's latest writer."""
        self._done: dict[int, Summary] = {}
        """Batches that are written, until Spark has recorded that."""
        self._ends: Ends = {}
        """How far the newest batch that Spark has reported has read."""
        self._heard = threading.Condition()

    def run(self, writer: DataStreamWriter, stop: threading.Event) -> None:
        """
        Run the query of `writer` until it ends by itself or `stop` is set.

        The batch in progress is always finished.

        Raises:
            JobError: a batch could not be written, or Spark gave up.
        """
        self._asked_to_stop = stop
        with listening(self._spark, self._finished, self._idle):
            last = time.monotonic() + _START_SECONDS
            while True:
                try:
                    self._run_once(writer, stop)
                except StreamingQueryException as error:
                    is_slow = not self._admitted and _TOO_SLOW in str(error)
                    if is_slow and time.monotonic() < last and not stop.is_set():
                        _log.warning("Spark's Python took too long to start: starting it again")
                        continue
                    raise self._named(self._failure or failure(str(error))) from error
                return

    def _run_once(self, writer: DataStreamWriter, stop: threading.Event) -> None:
        query = writer.queryName(self._name).foreachBatch(self._batch).start()
        self._run = str(query.runId)
        while not query.awaitTermination(_POLL_SECONDS):  # type: ignore[arg-type]  # part of a second
            if stop.is_set():
                self._stop(query)
                return
        self._await_spark()

    def _named(self, error: JobError) -> JobError:
        """Return a failure for which a record may be to blame with the places of its records."""
        if self._log is None or self._number is None or not may_be_a_records(error):
            return error
        try:
            plan = self._log.plan(self._number).ranges
        except (JobError, Py4JError) as unknown:
            _log.warning("what batch %d reads is not known: %s", self._number, unknown)
            return error
        msg = (
            f"{error} (batch {self._number} reads {offsets.shown(plan)}; if one record is to "
            "blame, source.skip sets it aside, or skip in a flow)"
        )
        return QueryFailed(msg)

    def _stop(self, query: StreamingQuery) -> None:
        """Stop between two batches."""
        with self._running:
            pass  # the batch in progress is done
        self._await_spark()
        # A query that has failed by itself is no success, even if it was asked to stop meanwhile.
        failed = query.exception()
        query.stop()
        if self._failure is not None or failed is not None:
            raise self._named(self._failure or failure(str(failed)))

    def _await_spark(self) -> None:
        """Wait until Spark has reported that it recorded all batches that are done."""
        with self._heard:
            self._heard.wait_for(lambda: not self._done, _COMMIT_SECONDS)

    def _batch(self, rows: DataFrame, number: int) -> None:
        with self._running:
            if not self._asked_to_stop.is_set():
                self._handle(rows, number)
                return
        self._wait_to_be_stopped()

    def _wait_to_be_stopped(self) -> None:
        """
        Hold a batch that must neither begin nor look as if it was done.

        Spark's own thread can be interrupted while it sleeps in the JVM. Stopping the query does
        that, and Spark does not count an exception that says so as a failure.
        """
        jvm = self._spark.sparkContext._jvm  # noqa: SLF001  # no public way to this thread
        try:
            jvm.java.lang.Thread.sleep(2**40)  # type: ignore[union-attr]  # it is there
        except Py4JError:
            # A short message: Spark matches it with a regular expression for which a long stack
            # trace causes a stack overflow.
            raise RuntimeError(_INTERRUPTED) from None

    def _handle(self, rows: DataFrame, number: int) -> None:
        self._number = number
        if self._watch is not None:
            self._watch.health.begun()
        try:
            with batch_span(self._name, number) as told_of:
                reports = self._reports(rows, number)
                told_of(reports)
        except JobError as error:
            self._failure = error
            raise
        except SPARKS as error:
            self._failure = told(error)
            raise
        except Exception as error:
            self._failure = QueryFailed(one_line(f"{type(error).__name__}: {error}"))
            raise
        held = self._hold(reports, number)
        with self._heard:
            self._done[number] = summary(reports, held=held)

    def _hold(self, reports: list[BatchReport], number: int) -> float:
        """Let a batch without anything to do last for as long as there is nothing."""
        if self._rest is None:
            return 0.0
        self._rest.stepped(number, dict(ChainMap(*(dict(each.alarms) for each in reports))))
        return 0.0 if reports else self._rest.hold(self._ends, self._asked_to_stop, self._look)

    def _look(self) -> None:
        if self._watch is not None:
            self._watch.idle()

    def _reports(self, rows: DataFrame, number: int) -> list[BatchReport]:
        query = self._spark.sparkContext.getLocalProperty("sql.streaming.queryId") or ""
        adopt = self._adopt and not self._admitted
        way = None if self._admitted else self._admit(query, number)
        now = time.time_ns() // 1_000_000
        writers = dict(self._writers)
        batch = Batch(
            query=query,
            number=number,
            now=now,
            adopt=adopt,
            way=way or None,
            writers=writers,
            traced=is_on(),
        )
        reports = self._config.run(rows, batch)
        for report in reports:
            if (error := report.exception()) is not None:
                raise error
            if report.writer:
                self._writers[report.partition] = report.writer
        self._admitted = True
        if self._sizes is not None:
            read = [report for report in reports if report.size]
            self._sizes.took(
                sum(each.counts.rows for each in read), sum(each.size for each in read)
            )
        return reports

    def _admit(self, query: str, number: int) -> str | None:
        """Let the query go on; return how an earlier run has begun to write its first batch."""
        turn = Turn(query=query, batch=number, partition=0, partitions=self._config.partitions)
        admitted = admit(turn, self._config.sink, adopt=self._adopt)
        for marker in admitted.taken:
            _log.warning(
                "took over marker partition %d: query %s was at batch %d",
                marker.partition,
                marker.query,
                marker.batch,
            )
        return admitted.way

    def _finished(self, progress: Mapping[str, Any]) -> None:
        """Show a batch that Spark has recorded as done."""
        if progress["name"] != self._name:
            return  # another query of this Spark
        done = self._done.get(progress["batchId"])
        if done is None:
            return
        self._ends = ends(progress)
        try:
            self._tell(self._with_ends_of_topics(progress), done)
        finally:
            with self._heard:
                del self._done[progress["batchId"]]
                self._heard.notify_all()

    def _tell(self, progress: Mapping[str, Any], done: Summary) -> None:
        told = line(self._name, progress, done, now=time.time_ns() // 1_000_000)
        if self._watch is not None:
            self._watch.finished(progress, done, told)
        if done.counts == Counts():  # a batch that only looked at the clock is not worth a line
            return
        try:
            self._show(told)
        except OSError as error:  # the reader has left, or the disk is full
            if not self._is_mute:
                _log.warning("lines of batches cannot be written, and the job goes on: %s", error)
            self._is_mute = True

    def _with_ends_of_topics(self, progress: Mapping[str, Any]) -> Mapping[str, Any]:
        """Ask for the ends of the topics if Spark has not: it plans no batch that comes again."""
        if self._latest is None or not lacks_ends_of_topics(progress):
            return progress
        try:
            return with_ends_of_topics(progress, self._latest(self._ends.keys()))
        except JobError as error:
            _log.warning("the lag of batch %d is not known: %s", progress["batchId"], error)
            return progress

    def _idle(self, run: str) -> None:
        if run == self._run:
            self._look()
