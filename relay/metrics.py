"""Name the numbers a relay exposes."""

from collections.abc import Iterable
from itertools import groupby

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from relay.capture.batch import Row

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Metrics:
    """A registry of its own, so that two relays in one process (tests) keep apart."""

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
            "Batches (Kafka transactions) confirmed.",
            label,
            registry=self.registry,
        ).labels(*values)
        self.failures = Counter(
            "dovecote_relay_failures_total",
            "Batches given up and read again, by kind of failure.",
            ["outbox", "kind"],
            registry=self.registry,
        )
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
            "Committed events not yet published (counted up to 100,000).",
            label,
            registry=self.registry,
        ).labels(*values)
        self.lag_seconds = Gauge(
            "dovecote_relay_lag_seconds",
            "Age of the oldest committed event not yet published.",
            label,
            registry=self.registry,
        ).labels(*values)
        self.lag_bytes = Gauge(
            "dovecote_relay_lag_bytes",
            "Write-ahead log behind progress, whoever wrote it (capture from the log).",
            label,
            registry=self.registry,
        ).labels(*values)
        self.slot_retained_bytes = Gauge(
            "dovecote_relay_slot_retained_bytes",
            "Write-ahead log that the server keeps for the slot (capture from the log).",
            label,
            registry=self.registry,
        ).labels(*values)
        self.progress_time = Gauge(
            "dovecote_relay_last_progress_timestamp_seconds",
            "When a batch was last confirmed, or there was nothing to publish.",
            label,
            registry=self.registry,
        ).labels(*values)

    def published(self, rows: Iterable[Row]) -> None:
        """Count confirmed events; neighbours mostly share a topic, so runs are counted."""
        for topic, run in groupby(row[3] for row in rows):
            self._published.labels(self._name, topic).inc(sum(1 for _ in run))

    def failed(self, kind: str) -> None:
        self.failures.labels(self._name, kind).inc()
