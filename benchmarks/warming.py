"""A broker as it is served, kept busy until its compiler is done with what is measured."""

from collections.abc import Callable

from benchmarks import harness
from devstack.kafka import SERVING_JAVA_OPTIONS, Kafka

KAFKA_JAVA = (*SERVING_JAVA_OPTIONS, "-Xms6g", "-Xmx6g")
"""
A broker as it is served, but for its heap: 6 GB, and not the 1 GB of Kafka's start script.

To collect a smaller one stops the broker for 10 to 30 ms every few seconds: on two cores that may
be one record in a hundred, whoever reads them.
"""

_TURNS = range(5, 12)
"""How often the broker is kept busy, at least and at most."""
_STILL_COMPILING = 0.9
"""The same work costs the broker less than this of what it did before: it compiles still."""


def warm(kafka: Kafka, work: Callable[[], object]) -> None:
    """Repeat `work` until the broker, whose compiler takes a core for itself, does it evenly."""
    costs = [float("inf")]
    while len(costs) <= _TURNS.stop and (
        len(costs) <= _TURNS.start or costs[-1] < _STILL_COMPILING * costs[-2]
    ):
        before = harness.cpu_seconds(kafka.pid)
        work()
        costs.append(harness.cpu_seconds(kafka.pid) - before)
