"""The console's own metrics: what it asks, what does not answer, and the states that it shows."""

from collections.abc import Iterator
from typing import get_args

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from dovecote.console.history import History
from dovecote.console.shapes import StateName
from dovecote.console.showing import Showing
from dovecote.console.watching import Watch


class ConsoleNumbers(Collector):
    """All of them, as they are when they are asked for."""

    def __init__(self, watch: Watch, showing: Showing, history: History) -> None:
        self._watch, self._showing, self._history = watch, showing, history

    def collect(self) -> Iterator[Metric]:
        """Yield them."""
        counts = self._showing.told["counts"]
        parts = GaugeMetricFamily(
            "dovecote_console_parts", "Parts in the picture, by `state`.", labels=["state"]
        )
        for state in get_args(StateName):
            parts.add_metric([state], counts.get(state, 0))
        yield parts
        yield GaugeMetricFamily(
            "dovecote_console_troubles",
            "Troubles that it shows.",
            value=len(self._showing.told["troubles"]),
        )
        yield GaugeMetricFamily(
            "dovecote_console_series",
            "Lines that its own history keeps.",
            value=len(self._history),
        )
        asked = CounterMetricFamily(
            "dovecote_console_asked", "Times that a source was asked.", labels=["kind", "source"]
        )
        failed = CounterMetricFamily(
            "dovecote_console_failed",
            "Times that a source did not answer.",
            labels=["kind", "source"],
        )
        seconds = GaugeMetricFamily(
            "dovecote_console_ask_seconds",
            "How long a source took to answer the last time.",
            labels=["kind", "source"],
        )
        for kind, beat in self._watch.beats.all():
            asked.add_metric([kind, beat.name], beat.asked)
            failed.add_metric([kind, beat.name], beat.failed)
            seconds.add_metric([kind, beat.name], beat.took)
        yield from (asked, failed, seconds)


def registry(watch: Watch, showing: Showing, history: History) -> CollectorRegistry:
    """Return a registry with the metrics."""
    made = CollectorRegistry()
    made.register(ConsoleNumbers(watch, showing, history))
    return made
