"""The health of a process, as it reports it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from dovecote.process.states import State


@dataclass(frozen=True, slots=True)
class HealthReport:
    """One look at a process; `ok` decides between 200 and 503."""

    ok: bool
    role: str
    """The present role of the process, such as `standby` or `active`."""
    reason: str
    state: State
    """How it is, in the word that all of Dovecote has for it; only a green one is well."""


class Ready(Protocol):
    """Reports whether a process does its job."""

    def ready(self) -> HealthReport: ...


class StateNumbers(Collector):
    """The metric of a process's state, after those of `others`."""

    def __init__(
        self, part: str, labels: Mapping[str, str], health: Ready, others: Collector
    ) -> None:
        """`part` is the part's name in its metrics, such as `relay`."""
        self._name, self._labels = f"dovecote_{part}_state", dict(labels)
        self._health, self._others = health, others

    def collect(self) -> Iterator[Metric]:
        """Yield them."""
        yield from self._others.collect()
        found = self._health.ready().state
        told = GaugeMetricFamily(self._name, STATE_HELP, labels=[*self._labels, "state"])
        for each in State:
            told.add_metric([*self._labels.values(), each.value], float(each is found))
        yield told


STATE_HELP = "1 for the state that it is in, 0 for all others, by `state`."
"""The words of metrics about the states."""
