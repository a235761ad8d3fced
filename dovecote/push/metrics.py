"""The metrics that `push` exposes."""

from bisect import bisect_left
from collections.abc import Iterator
from contextlib import suppress
from itertools import accumulate
from typing import get_args

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.metrics_core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from dovecote.push.rules.sending.ports import Outcome
from outbox.timestamps import milliseconds

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_BOUNDS = [*map(floatToGoString, _SECONDS), "+Inf"]


class Spread:
    """How often durations fell into each bucket; one thread counts, and others may read."""

    __slots__ = ("_counts", "_sum")

    def __init__(self) -> None:
        self._counts = [0] * (len(_SECONDS) + 1)
        self._sum = 0.0

    def observe(self, seconds: float) -> None:
        """Count a duration."""
        self._counts[bisect_left(_SECONDS, seconds)] += 1
        self._sum += seconds

    def buckets(self) -> tuple[list[tuple[str, float]], float]:
        """Return the upper bounds with the counts up to each, and the sum of all durations."""
        total = self._sum
        return list(zip(_BOUNDS, accumulate(self._counts.copy()), strict=True)), total


class _Tally:
    """The counts of one subscription."""

    __slots__ = ("added", "attempts", "seconds")

    def __init__(self) -> None:
        self.attempts: dict[Outcome, int] = dict.fromkeys(get_args(Outcome), 0)
        self.seconds, self.added = Spread(), Spread()


class Tallies(Collector):
    """
    Counts what each request comes to, without the locks of the library's own counters.

    The loop of a subscription is the only one that counts for it. The library's counters took a
    seventh of the time that Python spends on a delivery.
    """

    def __init__(self) -> None:
        self._of: dict[str, _Tally] = {}

    def of(self, subscription: str) -> _Tally:
        """Return the counts of a subscription, which go on after it was read anew."""
        return self._of.setdefault(subscription, _Tally())

    def collect(self) -> Iterator[Metric]:
        attempts = CounterMetricFamily(
            "dovecote_push_attempts_total",
            "Requests, by what became of the record: delivered, retry, limited, dead, disabled.",
            labels=["subscription", "outcome"],
        )
        seconds = HistogramMetricFamily(
            "dovecote_push_request_seconds",
            "From a request to the end of its answer, or to its failure.",
            labels=["subscription"],
        )
        added = HistogramMetricFamily(
            "dovecote_push_added_seconds",
            "From when a record was written to Kafka to its first request.",
            labels=["subscription"],
        )
        for subscription, tally in self._of.copy().items():
            for outcome, count in tally.attempts.items():
                attempts.add_metric([subscription, outcome], count)
            seconds.add_metric([subscription], *tally.seconds.buckets())
            added.add_metric([subscription], *tally.added.buckets())
        yield from (attempts, seconds, added)


class Metrics:
    """A registry of its own, so that two engines in one process (tests) keep apart."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._tallies = Tallies()
        self.registry.register(self._tallies)
        self._in_flight = Gauge(
            "dovecote_push_in_flight",
            "Requests that wait for their answer.",
            ["subscription"],
            registry=self.registry,
        )
        self._open = Gauge(
            "dovecote_push_circuit_open",
            "1 while the endpoint gets nothing but probes, else 0.",
            ["subscription"],
            registry=self.registry,
        )
        self._pace = Gauge(
            "dovecote_push_pace",
            "Requests a second that the endpoint takes, as its answers of 429 show; 0: no limit.",
            ["subscription"],
            registry=self.registry,
        )
        self._expired = Gauge(
            "dovecote_push_expired_offsets",
            "Offsets that topics had deleted before they were delivered, since it began here.",
            ["subscription"],
            registry=self.registry,
        )
        self._stuck = Gauge(
            "dovecote_push_stuck_partitions",
            "Partitions that do not go on, because their next record cannot be read.",
            ["subscription"],
            registry=self.registry,
        )
        self._held_back = Gauge(
            "dovecote_push_held_back_partitions",
            "Partitions whose next records wait for the end of a producer's transaction.",
            ["subscription"],
            registry=self.registry,
        )
        self._lag = Gauge(
            "dovecote_push_lag_rows",
            "Records that are not delivered yet, in the partitions of this process.",
            ["subscription"],
            registry=self.registry,
        )

    def of(self, subscription: str) -> "SubscriptionMetrics":
        """Return the numbers of one subscription."""
        return SubscriptionMetrics(self, subscription)

    def forget(self, subscription: str) -> None:
        """Stop exposing a subscription that was deleted."""
        for gauge in (
            self._in_flight,
            self._open,
            self._pace,
            self._expired,
            self._lag,
            self._stuck,
            self._held_back,
        ):
            with suppress(KeyError):  # older clients raise it for a series that there is not
                gauge.remove(subscription)


class SubscriptionMetrics:
    """
    The metrics of one subscription, looked up once: there are thousands of requests a second.
    """

    def __init__(self, metrics: Metrics, subscription: str) -> None:
        tally = metrics._tallies.of(subscription)  # noqa: SLF001  # its own
        self.attempts, self.seconds, self.added = tally.attempts, tally.seconds, tally.added
        self.in_flight = metrics._in_flight.labels(subscription)  # noqa: SLF001  # its own
        self.open = metrics._open.labels(subscription)  # noqa: SLF001  # its own
        self.pace = metrics._pace.labels(subscription)  # noqa: SLF001  # its own
        self.expired = metrics._expired.labels(subscription)  # noqa: SLF001  # its own
        self.stuck = metrics._stuck.labels(subscription)  # noqa: SLF001  # its own
        self.held_back = metrics._held_back.labels(subscription)  # noqa: SLF001  # its own
        self.lag = metrics._lag.labels(subscription)  # noqa: SLF001  # its own

    def requested(self, timestamp: int, at: float) -> None:
        """Count the first request for a record with this timestamp; `at` is in seconds."""
        written = milliseconds(timestamp)
        if written is not None:
            self.added.observe(max(0.0, at - written / 1000))

    def attempted(self, outcome: Outcome, seconds: float) -> None:
        self.attempts[outcome] += 1
        self.seconds.observe(seconds)
