"""Name the numbers that a Spark job exposes."""

import time
from collections import deque
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from spark_jobs.query.progress import BatchLine
from spark_jobs.sink.markers import Counts

_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)


class Metrics:
    """One job's metrics. Each has its own registry, so two jobs in one process keep apart."""

    def __init__(self, query: str) -> None:
        self.registry = CollectorRegistry()
        self._query = query
        self._recent = Recent()
        self._rows = self._counter("rows_total", "Rows read in finished batches.")
        self._records = self._counter(
            "records_total",
            "Rows by outcome: handled (of a stateful job: results), skipped, retry, dead_letter.",
            "result",
        )
        self._skipped = self._counter(
            "records_skipped_total",
            "Records skipped, by reason: filtered, duplicate, superseded, handler, late, ….",
            "reason",
        )
        self._batches = self._counter("batches_total", "Batches finished and written down.")
        self._replayed = self._counter(
            "partitions_replayed_total",
            "Shuffle partitions that an earlier run of their batch had written already.",
        )
        self._commits = self._counter(
            "offset_commits_total",
            "Commits of offsets to the consumer group, by outcome: ok, failed.",
            "outcome",
        )
        self._misplaced = self._counter(
            "misplaced_total",
            "Records in a partition where Kafka's partitioner does not put their key.",
        )
        self._expired = self._counter(
            "expired_total", "Offsets that topics had deleted before they were read."
        )
        self._restamped = self._counter(
            "restamped_total",
            "Records that got the time of writing, because their topic refuses their own.",
        )
        self._seconds = Histogram(
            "dovecote_spark_batch_seconds",
            "From the trigger of a batch to its end, without what it only waited.",
            ["query"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._last_seconds = self._gauge(
            "last_batch_seconds", "The same, of the newest batch alone."
        )
        self._rate = self._gauge(
            "rows_per_second", "Rows read in the last minute, or since the start, per second."
        )
        self._rate.labels(query).set_function(lambda: self._recent.rate(time.monotonic()))
        self._lag = self._gauge(
            "lag_rows",
            "Records that a partition held beyond the newest batch when that began.",
            "topic",
            "partition",
        )
        self._held_back = self._gauge(
            "held_back",
            "1 for a partition whose next records wait for the end of a producer's transaction.",
            "topic",
            "partition",
        )
        self._held_places: AbstractSet[tuple[str, int]] = frozenset()
        self._lag_seconds = self._gauge(
            "lag_seconds", "Age of the newest record read; 0 where no more were waiting."
        )
        self._progress_time = self._gauge(
            "last_progress_timestamp_seconds",
            "When a batch was last finished, or there was nothing to do.",
        )
        self._keys = self._gauge(
            "state_keys", "Keys in the buckets that were stepped since the start."
        )
        self._open = self._gauge(
            "state_open",
            "Open sessions, open windows, unpaired events or waiting records in those buckets.",
        )
        self._bytes = self._gauge(
            "state_bytes",
            "Size of the states of those buckets, without the chunks of large windows.",
        )
        self._largest = self._gauge("largest_bucket_bytes", "Size of the largest of them.")
        self._limit = self._gauge(
            "bucket_limit_bytes", "`state.max_bucket_bytes`: a larger one stops the job."
        )

        self._failed_runs = self._gauge(
            "failed_runs",
            "Runs that failed in the last half hour; 0 once one has gone on for ten minutes.",
        )

        self._from_zero()

    def _from_zero(self) -> None:
        """Show counters before their first batch: `increase` does not see a first value."""
        for counter in (self._rows, self._batches, self._replayed, self._misplaced):
            counter.labels(self._query)
        for counter in (self._expired, self._restamped):
            counter.labels(self._query)
        for result in ("handled", "skipped", "retry", "dead_letter"):
            self._records.labels(self._query, result)
        for reason in ("late", "ahead"):
            self._skipped.labels(self._query, reason)
        for outcome in ("ok", "failed"):
            self._commits.labels(self._query, outcome)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"dovecote_spark_{name}", text, ["query", *labels], registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"dovecote_spark_{name}", text, ["query", *labels], registry=self.registry)

    def batch(self, line: BatchLine, counts: Counts) -> None:
        """Count a finished batch."""
        query = self._query
        self._batches.labels(query).inc()
        self._rows.labels(query).inc(line.rows)
        self._recent.add(time.monotonic(), line.rows)
        for result, records in (
            ("handled", counts.handled),
            ("skipped", sum(counts.skipped.values())),
            ("retry", counts.retried),
            ("dead_letter", counts.dead),
        ):
            self._records.labels(query, result).inc(records)
        for reason, records in counts.skipped.items():
            self._skipped.labels(query, reason).inc(records)
        self._replayed.labels(query).inc(line.replayed)
        self._misplaced.labels(query).inc(line.misplaced)
        self._expired.labels(query).inc(line.expired)
        self._restamped.labels(query).inc(line.restamped)
        self._seconds.labels(query).observe(line.seconds)
        self._last_seconds.labels(query).set(line.seconds)
        self._lag_seconds.labels(query).set(line.lag_seconds)

    def lag(self, lags: Mapping[tuple[str, int], int]) -> None:
        """Record how many records wait in each partition."""
        for (topic, partition), rows in lags.items():
            self._lag.labels(self._query, topic, str(partition)).set(rows)

    def held_back(self, found: AbstractSet[tuple[str, int]]) -> None:
        """Record which partitions an open transaction holds back."""
        before, self._held_places = self._held_places, found
        for topic, partition in found - before:
            self._held_back.labels(self._query, topic, str(partition)).set(1)
        for topic, partition in before - found:
            with suppress(KeyError):  # older clients raise it for a series that there is not
                self._held_back.remove(self._query, topic, str(partition))

    def progressed(self) -> None:
        self._progress_time.labels(self._query).set_to_current_time()

    def state(self, *, keys: int, opened: int, size: int, largest: int) -> None:
        """Record the contents of a stateful job's buckets."""
        self._keys.labels(self._query).set(keys)
        self._open.labels(self._query).set(opened)
        self._bytes.labels(self._query).set(size)
        self._largest.labels(self._query).set(largest)

    def limit(self, size: int) -> None:
        """Record how large a bucket may become."""
        self._limit.labels(self._query).set(size)

    def failed_runs(self, count: Callable[[], int]) -> None:
        """Show how many of the runs before this one failed, as `count` says when it is asked."""
        self._failed_runs.labels(self._query).set_function(count)

    def committed(self, outcome: Literal["ok", "failed"]) -> None:
        self._commits.labels(self._query, outcome).inc()


_WINDOW_SECONDS = 60.0
_SHORTEST_SECONDS = 1.0


class Recent:
    """The rows of the last minute."""

    def __init__(self) -> None:
        self._rows: deque[tuple[float, int]] = deque()
        self._since: float | None = None

    def add(self, now: float, rows: int) -> None:
        """Count the rows of a batch that ended at `now`."""
        if self._since is None:
            self._since = now
        self._rows.append((now, rows))
        self._forget(now)

    def rate(self, now: float) -> float:
        """Return the rows per second in the last minute, or since the first batch."""
        self._forget(now)
        if self._since is None:
            return 0.0
        seconds = min(_WINDOW_SECONDS, max(_SHORTEST_SECONDS, now - self._since))
        return sum(rows for _, rows in list(self._rows)) / seconds

    def _forget(self, now: float) -> None:
        while self._rows and self._rows[0][0] < now - _WINDOW_SECONDS:
            self._rows.popleft()
