"""Name the numbers that a relay exposes."""

import math
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric

from relay.rules.row import Row, topic_of

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


FAILURES = ("outage", "fenced", "lease_lost", "unpublishable")
"""The kinds of failures."""


class HasRegistry(Protocol):
    """The metrics of one kind of process."""

    registry: CollectorRegistry


class Together:
    """The metrics of several shards, exposed as one process's."""

    def __init__(self, shards: Sequence[HasRegistry]) -> None:
        self._shards = shards

    def collect(self) -> Iterable[Metric]:
        """Return each metric once, with the samples of all shards."""
        found: dict[str, Metric] = {}
        for shard in self._shards:
            for metric in shard.registry.collect():
                known = found.setdefault(metric.name, metric)
                if known is not metric:
                    known.samples.extend(metric.samples)
        return found.values()


class Metrics:
    """
    One relay's metrics.

    Each has its own registry, so two relays in one process (tests) keep apart.
    """

    def __init__(self, name: str) -> None:
        self.registry = CollectorRegistry()
        label, values = ["outbox"], [name]
        self._published = Counter(
            "dovecote_relay_events_published_total",
            "Events published and confirmed, by topic.",
            ["outbox", "topic"],
            registry=self.registry,
        )
        self._name = name
        self.batches = Counter(
            "dovecote_relay_batches_total",
            "Batches confirmed with the progress after them.",
            label,
            registry=self.registry,
        ).labels(*values)
        self.failures = Counter(
            "dovecote_relay_failures_total",
            "Failures, by kind.",
            ["outbox", "kind"],
            registry=self.registry,
        )
        # `increase` does not see the first value of a series: it must be there with 0.
        for kind in FAILURES:
            self.failures.labels(name, kind)
        self.publish_seconds = Histogram(
            "dovecote_relay_publish_seconds",
            "From the first produce of a batch to its confirmation.",
            label,
            buckets=_SECONDS,
            registry=self.registry,
        ).labels(*values)
        self.active = Gauge(
            "dovecote_relay_active",
            "1 while this relay has the active role, else 0.",
            label,
            registry=self.registry,
        ).labels(*values)
        self.lag_rows = Gauge(
            "dovecote_relay_lag_rows",
            "Committed events not yet published (counted up to 100,000; NaN in the log).",
            label,
            registry=self.registry,
        ).labels(*values)
        self.lag_seconds = Gauge(
            "dovecote_relay_lag_seconds",
            "Age of the oldest committed event not yet published (NaN in the log).",
            label,
            registry=self.registry,
        ).labels(*values)
        self.lag_bytes = Gauge(
            "dovecote_relay_lag_bytes",
            "Write-ahead log after progress, whoever wrote it (capture from the log).",
            label,
            registry=self.registry,
        ).labels(*values)
        self.slot_retained_bytes = Gauge(
            "dovecote_relay_slot_retained_bytes",
            "Write-ahead log that the server keeps for the slot (capture from the log).",
            label,
            registry=self.registry,
        ).labels(*values)
        self.slot_limit_bytes = Gauge(
            "dovecote_relay_slot_limit_bytes",
            "Write-ahead log at which the slot is lost, by `wal.stop_bytes` or "
            "`max_slot_wal_keep_size` (NaN without a limit).",
            label,
            registry=self.registry,
        ).labels(*values)
        self.parked = Gauge(
            "dovecote_relay_parked",
            "Events that are parked, as the active relay counts them.",
            label,
            registry=self.registry,
        ).labels(*values)
        self.parked_waiting = Gauge(
            "dovecote_relay_parked_waiting",
            "Parked events that only wait for an earlier one of their key, counted now and then.",
            label,
            registry=self.registry,
        ).labels(*values)
        self._crowded = Gauge(
            "dovecote_relay_parked_crowded",
            "Topics and keys (by `kind`) of which more events are parked than `park_most` or "
            "`park_most_of_key` says.",
            ["outbox", "kind"],
            registry=self.registry,
        )
        self._parked_events = Counter(
            "dovecote_relay_events_parked_total",
            "Events that were parked, by `reason`: the code that `dovecote relay parked show` "
            "has.",
            ["outbox", "reason"],
            registry=self.registry,
        )
        self.progress_time = Gauge(
            "dovecote_relay_last_progress_timestamp_seconds",
            "When a batch was last confirmed, or there was nothing to publish.",
            label,
            registry=self.registry,
        ).labels(*values)
        self._leaves = Gauge(
            "dovecote_relay_leaves",
            "Tables of the outbox that hold rows.",
            label,
            registry=self.registry,
        ).labels(*values)
        self._stored_bytes = Gauge(
            "dovecote_relay_stored_bytes",
            "Size of the outbox's tables with their indexes.",
            label,
            registry=self.registry,
        ).labels(*values)
        self._rotations = Counter(
            "dovecote_relay_rotations_total",
            "Tables of the outbox emptied.",
            label,
            registry=self.registry,
        ).labels(*values)
        self._rotated_rows = Counter(
            "dovecote_relay_rotated_rows_total",
            "Published rows that went with them, as the server's statistics count them.",
            label,
            registry=self.registry,
        ).labels(*values)
        self._rotated_bytes = Counter(
            "dovecote_relay_rotated_bytes_total",
            "Bytes that this gave back to the file system.",
            label,
            registry=self.registry,
        ).labels(*values)
        self._last_rotation = Gauge(
            "dovecote_relay_last_rotation_timestamp_seconds",
            "When a table was last emptied.",
            label,
            registry=self.registry,
        ).labels(*values)
        self._rotation_delayed = Gauge(
            "dovecote_relay_rotation_delayed_seconds",
            "For how long the longest waiting table could not be emptied, by cause.",
            ["outbox", "cause"],
            registry=self.registry,
        )
        self.unknown()

    def unknown(self) -> None:
        """Set the values that only the active relay measures to "unknown"."""
        for gauge in (
            *(self.lag_rows, self.lag_seconds, self.lag_bytes),
            *(self.slot_retained_bytes, self.slot_limit_bytes),
            *(self.parked, self.parked_waiting),
        ):
            gauge.set(math.nan)
        self.crowded(math.nan, math.nan)

    def crowded(self, topics: float, keys: float) -> None:
        """Record of how many topics and keys too many events are parked."""
        self._crowded.labels(self._name, "topic").set(topics)
        self._crowded.labels(self._name, "key").set(keys)

    def stored(self, leaves: int, size: int) -> None:
        """Record how much room the outbox takes."""
        self._leaves.set(leaves)
        self._stored_bytes.set(size)

    def rotated(self, rows: int, size: int) -> None:
        """Count a table that was emptied."""
        self._rotations.inc()
        self._rotated_rows.inc(rows)
        self._rotated_bytes.inc(size)
        self._last_rotation.set_to_current_time()

    def rotation_delayed(self, cause: str, seconds: float) -> None:
        self._rotation_delayed.labels(self._name, cause).set(seconds)

    def published(self, rows: Iterable[Row]) -> None:
        """Count confirmed events; neighbours mostly share a topic, so runs are counted."""
        for topic, run in groupby(map(topic_of, rows)):
            self._published.labels(self._name, topic).inc(sum(1 for _ in run))

    def parked_event(self, reason: str) -> None:
        self._parked_events.labels(self._name, reason).inc()

    def failed(self, kind: str) -> None:
        self.failures.labels(self._name, kind).inc()
