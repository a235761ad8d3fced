"""Report on a query while it runs: metrics, health, and its offsets for Kafka's tools."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol

from dedup.settings.consumer import HttpSettings
from dovecote.process.http import serve
from dovecote.process.settings import Duration
from spark_jobs.query.health import Health
from spark_jobs.query.metrics import Metrics
from spark_jobs.query.progress import BatchLine, Summary, ends, lags
from spark_jobs.query.settings import SparkSettings
from spark_jobs.sink.group import GroupOffsets

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
        self.metrics.lag(lags(progress))
        self._group.tell(ends(progress))
        self._buckets.update(done.buckets)
        if self._buckets:
            keys, opened, sizes = zip(*self._buckets.values(), strict=True)
            self.metrics.state(
                keys=sum(keys), opened=sum(opened), size=sum(sizes), largest=max(sizes)
            )

    def close(self) -> None:
        self.health.stopped()
        self._group.close()


@contextmanager
def watching(settings: Watched, *, reads: Mapping[str, str] | None = None) -> Iterator[Watch]:
    """
    Yield a watch for the job's batches, and serve its metrics meanwhile.

    `reads` is how to reach the cluster that is read, if it is another one.

    Raises:
        BadSettings: `http.port` cannot be listened on.
    """
    watch = Watch(settings, settings.kafka if reads is None else reads)
    http = settings.http
    with ExitStack() as stack:
        stack.callback(watch.close)
        if http.port is not None:
            port = stack.enter_context(
                serve(http.host, http.port, watch.health, watch.metrics.registry)
            )
            _log.info("serving /metrics, /healthz, /readyz on %s:%d", http.host, port)
        yield watch
