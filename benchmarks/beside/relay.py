"""
The relay beside Debezium, on the same events and servers.

Drain: a backlog is committed while nobody reads, then each contender drains it. Debezium's workers
are warm (their JVM has drained a backlog before); the relay is started anew each time. Latency: an
open loop of commits, whose ratios say how many times the relay's latency Debezium's is.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from statistics import median
from typing import Protocol, TypeAlias

import psycopg

from benchmarks import debezium, draining, harness
from benchmarks.beside.figures import Figures
from benchmarks.beside.tools import fetched
from benchmarks.beside.turns import Contender, Turns, Wanted
from benchmarks.draining import Drained
from benchmarks.relay_drain import PER_TRANSACTION, Backlog, fill
from benchmarks.relay_latency import WARMING, seen_through, through_kafka_alone
from benchmarks.warming import KAFKA_JAVA, warm
from benchmarks.writing import APPEND, INSERT, KEYS, Run
from dovecote.devstack import Stack

EVENTS, SIZE = 600_000, 200
_WARM_UP = 100_000
_LATENCY_SECONDS = 30


class Publisher(Protocol):
    """A program that brings committed events to Kafka."""

    @property
    def name(self) -> str:
        """Its name in the results."""

    @property
    def mode(self) -> str:
        """Its delivery guarantee."""

    def prepare(self) -> None:
        """Start what runs all the time."""

    def drain(self, stack: Stack, backlog: Backlog) -> Drained:
        """Drain a backlog that was committed before."""

    def latency(self, stack: Stack, run: Run) -> Mapping[str, float]:
        """Return the percentiles from commit to consumer."""


class Relay:
    """Dovecote's relay, started anew each time."""

    mode = "exactly_once"

    def __init__(self, capture: str) -> None:
        self.name, self._capture = f"dovecote_{capture}", capture

    def prepare(self) -> None:
        """Do nothing: it starts when it is measured."""

    def drain(self, stack: Stack, backlog: Backlog) -> Drained:
        dsn, topic = harness.database(stack, self._capture), harness.topic(stack)
        fill(dsn, backlog, topic)
        started = time.monotonic()
        with harness.relay(stack, dsn, name=topic, capture=self._capture) as pid:
            return draining.watch(stack, topic, pid, total=backlog.total, started=started)

    def latency(self, stack: Stack, run: Run) -> Mapping[str, float]:
        dsn, topic = harness.database(stack, self._capture), harness.topic(stack)
        with harness.relay(stack, dsn, name=topic, capture=self._capture):
            return seen_through(stack, dsn, topic, run, APPEND)


class Debezium:
    """Debezium in a worker that runs all the time; its connector runs only during its turn."""

    def __init__(self, stack: Stack, mode: debezium.Mode, ending: ExitStack) -> None:
        self.name, self.mode = f"debezium_{mode}", mode
        self._stack, self._mode, self._ending = stack, mode, ending
        self._running: debezium.Worker | None = None

    def prepare(self) -> None:
        fetched(debezium.JARS)
        self._running = self._ending.enter_context(debezium.worker(self._stack, self._mode))
        self.drain(self._stack, Backlog(_WARM_UP, SIZE, KEYS))

    @property
    def _worker(self) -> debezium.Worker:
        if self._running is None:
            raise SystemExit(f"{self.name} has not been prepared")
        return self._running

    def drain(self, stack: Stack, backlog: Backlog) -> Drained:
        worker, topic = self._worker, harness.topic(stack)
        with psycopg.connect(worker.dsn) as conn:
            for first in range(0, backlog.total, PER_TRANSACTION):
                numbers = range(first, min(first + PER_TRANSACTION, backlog.total))
                place = {"topic": topic, "keys": backlog.keys, "size": backlog.size}
                ends = {"first": numbers[0], "last": numbers[-1]}
                conn.execute(debezium.INSERT, {**place, **ends})
                conn.commit()
        harness.settle(worker.dsn, "outbox")
        started = time.monotonic()
        worker.resume()
        drained = draining.watch(stack, topic, worker.pid, total=backlog.total, started=started)
        worker.stop()
        return drained

    def latency(self, stack: Stack, run: Run) -> Mapping[str, float]:
        topic = harness.topic(stack)
        self._worker.run()
        percentiles = seen_through(stack, self._worker.dsn, topic, run, INSERT)
        self._worker.stop()
        return percentiles


_Results: TypeAlias = dict[str, list[Mapping[str, float]]]
"""Measurements by publisher."""


def run(wanted: Wanted) -> bool:
    """Measure them in turn; return whether one has failed."""
    with ExitStack() as ending:
        stack = ending.enter_context(harness.servers(KAFKA_JAVA))
        warm(stack.kafka, lambda: through_kafka_alone(stack, Run(*WARMING, warm_up=0)))
        publishers: list[Publisher] = [
            Relay("table"),
            Relay("wal"),
            Debezium(stack, "exactly_once", ending),
            Debezium(stack, "at_least_once", ending),
        ]
        turns = Turns("relay", [_contender(each, stack) for each in publishers])
        for turn in range(wanted.rounds):
            turns.take(Backlog(wanted.of(EVENTS), SIZE, KEYS), turn)
        left = [each for each in publishers if each.name in turns.names]
        for rate in wanted.rates:
            latencies(stack, left, Run(rate, _LATENCY_SECONDS, warm_up=10), wanted.rounds)
    return turns.failed


def _contender(publisher: Publisher, stack: Stack) -> Contender[Backlog]:
    def measure(backlog: Backlog) -> Figures:
        # It ends the program if the records that are visible are not those of the backlog.
        drained = publisher.drain(stack, backlog)
        return Figures(
            per_s=drained.events_per_s,
            cpu_us=1e6 / drained.events_per_cpu_second,
            peak_mb=drained.peak_mb,
        )

    return Contender(
        publisher.name,
        f"in order per key, {publisher.mode.replace('_', ' ')}",
        measure,
        prepare=publisher.prepare,
        ours=isinstance(publisher, Relay),
        settings={"events": "200 bytes, 100 a transaction, 5,000 keys"},
    )


def latencies(stack: Stack, publishers: Sequence[Publisher], run_: Run, rounds: int) -> None:
    """Measure the time from commit to consumer in turn, and print the ratios of the medians."""
    results: _Results = {}
    for _ in range(rounds):
        for each in publishers:
            percentiles = each.latency(stack, run_)
            results.setdefault(each.name, []).append(percentiles)
            harness.emit(
                "peers_latency", relay=each.name, mode=each.mode, rate=run_.rate, **percentiles
            )
    ours = [each for each in publishers if isinstance(each, Relay)]
    peers = [each for each in publishers if not isinstance(each, Relay)]
    for relay in ours:
        for peer in peers:
            ratios = {
                field: round(
                    _median(results[peer.name], field) / _median(results[relay.name], field), 2
                )
                for field in ("p50_ms", "p99_ms")
            }
            harness.emit(
                "peers_latency_ratios",
                rate=run_.rate,
                relay=relay.name,
                peer=peer.name,
                **ratios,
            )


def _median(measurements: Sequence[Mapping[str, float]], field: str) -> float:
    return median(each[field] for each in measurements)
