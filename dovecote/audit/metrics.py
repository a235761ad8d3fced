"""The metrics that an auditor exposes."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Gauge

from dovecote.audit.rules.finding import ADVICE


class Metrics:
    """A registry of its own, so that two auditors in one process (tests) keep apart."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._compared = self._gauge(
            "compared",
            "Counts of a topic since the last statement, by what is counted.",
            "topic",
            "what",
        )
        self._findings = self._gauge(
            "findings", "Findings of this statement and the one before, by kind.", "kind"
        )
        self.open = self._gauge(
            "open", "Rows and records whose counterpart is not seen yet.", "what"
        )
        self._consumers = self._gauge(
            "consumer_records",
            "Records that a consumer's group has passed, by what became of them.",
            "consumer",
            "what",
        )
        self.lag = self._gauge(
            "lag_seconds", "Since when an outbox is not read to its end.", "outbox"
        )
        self.slot_bytes = self._gauge(
            "slot_bytes", "Bytes of the write-ahead log that an auditor's slot holds.", "outbox"
        )
        self.not_audited = self._gauge(
            "not_audited_seconds",
            "Seconds of which nothing is known, since the last statement, by outbox.",
            "outbox",
        )
        self.troubles = self._gauge(
            "troubles", "Troubles that keep the auditor from seeing everything."
        )
        self.state_bytes = self._gauge("state_bytes", "The size of the state file.")
        self.events = self._gauge("events", "Rows and records that this process has read.")
        for kind in ADVICE:
            self._findings.labels(kind).set(0)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"dovecote_audit_{name}", text, labels, registry=self.registry)

    def topic(self, name: str, **counts: int) -> None:
        """Set what was compared of a topic."""
        for what, count in counts.items():
            self._compared.labels(name, what).set(count)

    def consumer(self, name: str, **counts: int) -> None:
        """Set what was seen of a consumer."""
        for what, count in counts.items():
            self._consumers.labels(name, what).set(count)

    def findings(self, kinds: Iterable[str]) -> None:
        """Set the findings that there are."""
        counts = dict.fromkeys(ADVICE, 0)
        for kind in kinds:
            counts[kind] += 1  # type: ignore[index]  # a kind
        for kind, count in counts.items():
            self._findings.labels(kind).set(count)
