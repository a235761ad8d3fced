"""The metrics that `push` exposes."""

from contextlib import suppress

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """A registry of its own, so that two engines in one process (tests) keep apart."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._attempts = Counter(
            "dovecote_push_attempts_total",
            "Requests, by what became of the record: delivered, retry, limited, dead, disabled.",
            ["subscription", "outcome"],
            registry=self.registry,
        )
        self._seconds = Histogram(
            "dovecote_push_request_seconds",
            "From a request to the end of its answer, or to its failure.",
            ["subscription"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._added = Histogram(
            "dovecote_push_added_seconds",
            "From when a record was written to Kafka to its first request.",
            ["subscription"],
            buckets=_SECONDS,
            registry=self.registry,
        )
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
        self._attempts = {
            outcome: metrics._attempts.labels(subscription, outcome)  # noqa: SLF001  # its own
            for outcome in ("delivered", "retry", "limited", "dead", "disabled")
        }
        self.seconds = metrics._seconds.labels(subscription)  # noqa: SLF001  # its own
        self.added = metrics._added.labels(subscription)  # noqa: SLF001  # its own
        self.in_flight = metrics._in_flight.labels(subscription)  # noqa: SLF001  # its own
        self.open = metrics._open.labels(subscription)  # noqa: SLF001  # its own
        self.pace = metrics._pace.labels(subscription)  # noqa: SLF001  # its own
        self.expired = metrics._expired.labels(subscription)  # noqa: SLF001  # its own
        self.stuck = metrics._stuck.labels(subscription)  # noqa: SLF001  # its own
        self.held_back = metrics._held_back.labels(subscription)  # noqa: SLF001  # its own
        self.lag = metrics._lag.labels(subscription)  # noqa: SLF001  # its own

    def attempted(self, outcome: str, seconds: float) -> None:
        self._attempts[outcome].inc()
        self.seconds.observe(seconds)
