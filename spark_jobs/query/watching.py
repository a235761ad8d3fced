"""Report on a query while it runs: metrics, health, and its offsets for Kafka's tools."""

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from dedup.rules.unmoved import Unmoved, standing, summed
from dovecote.process.health import HealthReport
from dovecote.process.http.state import serve
from dovecote.process.proof import Proof
from dovecote.process.settings.models import HttpSettings
from dovecote.process.settings.values import Duration
from spark_jobs.checkpoint.runs import Runs
from spark_jobs.query.condition import QuerySeen, Role, condition
from spark_jobs.query.metrics import Metrics
from spark_jobs.query.progress import BatchLine, Summary, ends, lags
from spark_jobs.query.settings import SourceSettings, SparkSettings
from spark_jobs.query.source import Reading
from spark_jobs.sink.group import GroupOffsets
from spark_jobs.source.cluster import Cluster
from spark_jobs.source.held_back import Held, HeldBack
from spark_jobs.source.proofs import kafka_proof

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
    @property
    def behind_after(self) -> Duration: ...


class Watch:
    """Receives each batch of a query."""

    def __init__(self, settings: Watched, kafka: Mapping[str, str], runs: Runs) -> None:
        spark = settings.spark
        self.metrics = Metrics(spark.query)
        self.metrics.failed_runs(lambda: runs.restarts().failed)
        # Nothing is done between two triggers, and Spark reports nothing.
        pause = spark.pause().total_seconds()
        self.health = Health(
            settings.stall_after.total_seconds() + pause,
            pause=pause,
            behind_after=settings.behind_after.total_seconds(),
            proof=kafka_proof(kafka),
            runs=runs,
        )
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
        self.health.took(line.rows, line.lag_rows, line.lag_seconds)
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
def watching(
    settings: Watched, *, runs: Runs | None = None, reads: Reading | None = None
) -> Iterator[Watch]:
    """
    Yield a watch for the job's batches, and serve its metrics meanwhile.

    `reads` says what is read, if the job's own settings do not; `runs` are those of the query.

    Raises:
        BadSettings: `http.port` cannot be listened on.
    """
    read = settings if reads is None else reads
    watch = Watch(settings, read.kafka, runs or Runs())
    http = settings.http
    with ExitStack() as stack:
        stack.callback(watch.close)
        after = settings.stall_after.total_seconds()
        topics = tuple(read.source.topics)
        held = HeldBack(Cluster(read.kafka), topics, after=after, found=watch.held)
        stack.enter_context(held.at_work())
        if watch.health.proof is not None:
            stack.enter_context(watch.health.proof.at_work())
        if http.port is not None:
            port = stack.enter_context(
                serve(
                    http.host,
                    http.port,
                    watch.health,
                    watch.metrics.registry,
                    hosts=http.hosts,
                    part="spark",
                    labels={"query": settings.spark.query},
                )
            )
            _log.info("serving /metrics, /healthz, /readyz on %s:%d", http.host, port)
        yield watch


@dataclass(slots=True)
class Health:
    """
    Facts that Spark reports and the HTTP server reads.

    Ready: within `stall_after` seconds a batch was done and recorded, or Spark has looked and
    found nothing to do. A query that runs but finishes nothing is not ready.
    """

    stall_after: float
    pause: float = 0.0
    """The trigger, in seconds: nothing is done in between."""
    behind_after: float = 300.0
    """How old the newest record may be that was read, in seconds, while others wait."""
    proof: Proof | None = field(default=None, repr=False)
    """Whether Kafka answers."""
    runs: Runs = field(default_factory=Runs, repr=False)
    """The present run of the query, and those before it."""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _role: Role = "starting"
    _progressed: float = field(default_factory=time.monotonic)
    _unmoved: Unmoved = field(init=False, repr=False)
    _standing: str = ""
    _held: str = ""
    _next: str = ""
    _batch: float | None = None
    _worked: float | None = None
    _lag: tuple[int, float] = 0, 0.0

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
            self._role, self._progressed, self._batch = "running", time.monotonic(), None
        if self.proof is not None:
            # Kafka has said what there is to read. On a busy machine our own question may have
            # got no answer in time.
            self.proof.heard()

    def stopped(self) -> None:
        with self._lock:
            self._role = "stopped"

    def begun(self) -> None:
        """Record that a batch has begun."""
        with self._lock:
            self._batch = time.monotonic()

    def took(self, rows: int, lag_rows: int, lag_seconds: float) -> None:
        """Record how many records a batch had, and how many wait after it."""
        with self._lock:
            self._lag = lag_rows, lag_seconds
            if rows:
                self._worked = time.monotonic()

    def ready(self) -> HealthReport:
        """Return whether batches get done, or would be if there were any."""
        trouble = "" if self.proof is None else self.proof.seen().trouble
        restarts = self.runs.restarts().text(time.time())
        with self._lock:
            now = time.monotonic()
            seen = QuerySeen(
                role=self._role,
                progressed=now - self._progressed,
                stall_after=self.stall_after,
                pause=self.pause,
                batch=None if self._batch is None else now - self._batch,
                worked=None if self._worked is None else now - self._worked,
                trouble=trouble,
                restarts=restarts,
                held=self._held,
                standing=self._standing,
                next=self._next,
                lag_rows=self._lag[0],
                lag_seconds=self._lag[1],
                behind_after=self.behind_after,
            )
        state, reason = condition(seen)
        ok = seen.role == "running" and seen.progressed <= seen.stall_after
        return HealthReport(ok=ok, role=seen.role, reason=reason, state=state)


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
