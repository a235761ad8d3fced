"""Report on a query while it runs: metrics, health, and its offsets for Kafka's tools."""

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from dedup.rules.unmoved import Unmoved, standing, summed
from dovecote.process.health import HealthReport
from dovecote.process.http.state import serve
from dovecote.process.settings import Duration, HttpSettings
from spark_jobs.query.metrics import Metrics
from spark_jobs.query.progress import BatchLine, Summary, ends, lags
from spark_jobs.query.settings import SourceSettings, SparkSettings
from spark_jobs.query.source import Reading
from spark_jobs.sink.group import GroupOffsets
from spark_jobs.source.cluster import Cluster
from spark_jobs.source.held_back import Held, HeldBack

_log = logging.getLogger("dovecote.spark")


class Watched(Protocol):
    """The settings of a job that say how it is watched."""

    @property
    def kafka(self) -> dict[str, str]: ...
    @property
    def spark(self) -> SparkSettings: ...
    @property
    def http(self) -> HttpSettings: ...
    @property
    def source(self) -> SourceSettings: ...
    @property
    def stall_after(self) -> Duration: ...


class Watch:
    """Receives each batch of a query."""

    def __init__(self, settings: Watched, kafka: Mapping[str, str]) -> None:
        spark = settings.spark
        self.metrics = Metrics(spark.query)
        # Nothing is done between two triggers, and Spark reports nothing.
        self.health = Health(settings.stall_after.total_seconds() + spark.pause().total_seconds())
        self._group = GroupOffsets(kafka, spark.query, self.metrics.committed)
        self._buckets: dict[str, Sequence[int]] = {}

    def idle(self) -> None:
        """Note that there was nothing to do."""
        self.health.progressed()
        self.metrics.progressed()

    def finished(self, progress: Mapping[str, Any], done: Summary, line: BatchLine) -> None:
        """Note that a batch is done and recorded; `progress` is Spark's JSON."""
        self.idle()
        self.metrics.batch(line, done.counts)
        behind, ended = lags(progress), ends(progress)
        self.metrics.lag(behind)
        self.health.reached(ended, behind)
        self._group.report(ended)
        self._buckets.update(done.buckets)
        if self._buckets:
            keys, opened, sizes = zip(*self._buckets.values(), strict=True)
            self.metrics.state(
                keys=sum(keys), opened=sum(opened), size=sum(sizes), largest=max(sizes)
            )

    def held(self, found: Held) -> None:
        """Note what open transactions hold back."""
        self.metrics.held_back(found.partitions)
        self.health.held(found.text)

    def close(self) -> None:
        self.health.stopped()
        self._group.close()


@contextmanager
def watching(settings: Watched, *, reads: Reading | None = None) -> Iterator[Watch]:
    """
    Yield a watch for the job's batches, and serve its metrics meanwhile.

    `reads` says what is read, if the job's own settings do not.

    Raises:
        BadSettings: `http.port` cannot be listened on.
    """
    read = settings if reads is None else reads
    watch = Watch(settings, read.kafka)
    http = settings.http
    with ExitStack() as stack:
        stack.callback(watch.close)
        after = settings.stall_after.total_seconds()
        topics = tuple(read.source.topics)
        held = HeldBack(Cluster(read.kafka), topics, after=after, found=watch.held)
        stack.enter_context(held.at_work())
        if http.port is not None:
            port = stack.enter_context(
                serve(http.host, http.port, watch.health, watch.metrics.registry, hosts=http.hosts)
            )
            _log.info("serving /metrics, /healthz, /readyz on %s:%d", http.host, port)
        yield watch


Role = Literal["starting", "running", "stopped"]


@dataclass(slots=True)
class Health:
    """
    Facts that Spark reports and the HTTP server reads.

    Ready: within `stall_after` seconds a batch was done and recorded, or Spark has looked and
    found nothing to do. A query that runs but finishes nothing is not ready.
    """

    stall_after: float
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _role: Role = "starting"
    _progressed: float = field(default_factory=time.monotonic)
    _unmoved: Unmoved = field(init=False, repr=False)
    _standing: str = ""
    _held: str = ""
    _next: str = ""

    def __post_init__(self) -> None:
        self._unmoved = Unmoved(self.stall_after)

    def reached(
        self,
        ended: Mapping[str, Mapping[int, int]],
        behind: Mapping[tuple[str, int], int],
    ) -> None:
        """Record up to where a batch has read, and how much each partition has after that."""
        now, found = time.monotonic(), list[str]()
        places = [(place, ended.get(place[0], {}).get(place[1], 0)) for place in sorted(behind)]
        for place, offset in places:
            end = offset + behind[place]
            seconds = self._unmoved.seconds(place, offset, end, now)
            if self._unmoved.is_trouble(seconds):
                why = "batches are finished, and none has read from there"
                found.append(standing(place, offset, end, seconds=seconds, why=why))
        first = [f"{topic}/{number} at offset {at}" for (topic, number), at in places if at]
        with self._lock:
            self._standing = summed(found)
            self._next = f"; the next one reads from {summed(first)} on" if first else ""

    def held(self, text: str) -> None:
        """Record what open transactions hold back; empty: nothing."""
        with self._lock:
            self._held = text

    def progressed(self) -> None:
        """Record that a batch is done, or that there was none to do."""
        with self._lock:
            self._role, self._progressed = "running", time.monotonic()

    def stopped(self) -> None:
        with self._lock:
            self._role = "stopped"

    def ready(self) -> HealthReport:
        """Return whether batches get done, or would be if there were any."""
        with self._lock:
            role, idle = self._role, time.monotonic() - self._progressed
            from_here = self._next
            but = "; ".join(each for each in (self._held, self._standing) if each)
        if role == "stopped":
            return HealthReport(ok=False, role=role, reason="stopped")
        if idle > self.stall_after:
            reason = f"no batch was finished for {idle:.0f} s{from_here}"
            return HealthReport(ok=False, role=role, reason=reason)
        if role == "starting":
            return HealthReport(ok=False, role=role, reason="no batch was finished yet")
        reason = f"progressing, but {but}" if but else "progressing"
        return HealthReport(ok=True, role=role, reason=reason)


Progress = Callable[[Mapping[str, Any]], None]
"""Gets Spark's report on a finished batch."""
Idle = Callable[[str], None]
"""Gets the run of a query that had nothing to do."""


@contextmanager
def listening(spark: SparkSession, progress: Progress, idle: Idle) -> Iterator[None]:
    """
    Call `progress` and `idle` for all queries of `spark` meanwhile, in a thread of their own.

    PySpark's own listeners make an object for each number of an event, with a call to Java for
    each. For a batch that has nothing to do, that is most of the work.
    """
    ensure_callback_server_started(spark.sparkContext._gateway)  # type: ignore[no-untyped-call]  # it has no types  # noqa: SLF001  # no public way
    streaming = spark.sparkContext._jvm.org.apache.spark.sql.streaming  # type: ignore[union-attr]  # it is there  # noqa: SLF001  # as above
    listener = streaming.PythonStreamingQueryListenerWrapper(_Listener(progress, idle))
    queries = spark.streams._jsqm  # noqa: SLF001  # as above
    queries.addListener(listener)
    try:
        yield
    finally:
        queries.removeListener(listener)


class _Listener:
    """The object that Java calls."""

    def __init__(self, progress: Progress, idle: Idle) -> None:
        self._progress, self._idle = progress, idle

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802, ANN401  # Spark's name and object
        """Do nothing."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802, ANN401  # as above
        self._progress(json.loads(event.progress().json()))

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802, ANN401  # as above
        self._idle(event.runId().toString())

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802, ANN401  # as above
        """Do nothing: the thread that waits for the query hears of its end."""

    class Java:
        """Names the interface for py4j."""

        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)
