"""
The relay compared with Debezium, on the same events and servers: `make bench-peers`.

Drain: a backlog is committed while nobody reads, then each contender drains it. Debezium's workers
are warm (their JVM has drained a backlog before); the relay is started anew each time. Latency: an
open loop of commits. The contenders take turns, so that a noisy machine is noisy for all. The last
lines have the ratios of the medians: above 1 the relay is better.
"""

import argparse
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from statistics import median
from typing import Protocol, TypeAlias

import psycopg

from benchmarks import debezium, draining, harness
from benchmarks.draining import Drained
from benchmarks.relay_drain import PER_TRANSACTION, Backlog, fill
from benchmarks.relay_latency import WARMING, seen_through, through_kafka_alone
from benchmarks.warming import KAFKA_JAVA, warm
from benchmarks.writing import APPEND, INSERT, KEYS, Run
from dovecote.devstack import Stack

_WARM_UP = 100_000


class Contender(Protocol):
    """A program that brings committed events to Kafka."""

    @property
    def name(self) -> str:
        """Its name in the results."""

    @property
    def mode(self) -> str:
        """Its delivery guarantee."""

    def drain(self, stack: Stack, backlog: Backlog) -> Drained:
        """Drain a backlog that was committed before."""

    def latency(self, stack: Stack, run: Run) -> Mapping[str, float]:
        """Return the percentiles from commit to consumer."""


class Relay:
    """Dovecote's relay, started anew each time."""

    mode = "exactly_once"

    def __init__(self, capture: str) -> None:
        self.name = self._capture = capture

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

    name = "debezium"

    def __init__(self, worker: debezium.Worker) -> None:
        self._worker, self.mode = worker, worker.mode

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


Results: TypeAlias = dict[tuple[str, str], list[Mapping[str, float]]]
"""Measurements by contender and mode."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=600_000, help="of each drain; 0: none")
    parser.add_argument("--size", type=int, default=200, help="bytes of each value")
    parser.add_argument("--keys", type=int, default=KEYS)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rates", type=int, nargs="*", default=[5_000], help="of latency")
    parser.add_argument("--seconds", type=int, default=30, help="of each latency run")
    args = parser.parse_args()
    with ExitStack() as ending:
        stack = ending.enter_context(harness.servers(KAFKA_JAVA))
        warm(stack.kafka, lambda: through_kafka_alone(stack, Run(*WARMING, warm_up=0)))
        modes: Sequence[debezium.Mode] = ("exactly_once", "at_least_once")
        peers = [Debezium(ending.enter_context(debezium.worker(stack, mode))) for mode in modes]
        contenders: list[Contender] = [*peers, Relay("table"), Relay("wal")]
        if args.events:
            backlog = Backlog(args.events, args.size, args.keys)
            for peer in peers:
                peer.drain(stack, backlog._replace(total=_WARM_UP))
            _drains(stack, contenders, backlog, args.repeats)
        for rate in args.rates:
            _latencies(stack, contenders, Run(rate, args.seconds, warm_up=10), args.repeats)


def _drains(stack: Stack, contenders: Sequence[Contender], backlog: Backlog, repeats: int) -> None:
    results: Results = {}
    for _ in range(repeats):
        for each in contenders:
            drained = each.drain(stack, backlog).fields()
            results.setdefault((each.name, each.mode), []).append(drained)
            harness.emit(
                "peers_drain", relay=each.name, mode=each.mode, events=backlog.total, **drained
            )
    more_is_better = ("events_per_s", "events_per_cpu_second")
    _ratios("peers_drain_ratios", results, more=more_is_better, less=("peak_mb",))


def _latencies(stack: Stack, contenders: Sequence[Contender], run: Run, repeats: int) -> None:
    results: Results = {}
    for _ in range(repeats):
        for each in contenders:
            percentiles = each.latency(stack, run)
            results.setdefault((each.name, each.mode), []).append(percentiles)
            harness.emit(
                "peers_latency", relay=each.name, mode=each.mode, rate=run.rate, **percentiles
            )
    _ratios(f"peers_latency_ratios_{run.rate}", results, more=(), less=("p50_ms", "p99_ms"))


def _ratios(bench: str, results: Results, *, more: Sequence[str], less: Sequence[str]) -> None:
    """Print how much better each capture is than each mode of Debezium, as ratios of medians."""
    for (name, mode), ours in results.items():
        for (peer, peer_mode), theirs in results.items():
            if name == "debezium" or peer != "debezium":
                continue
            ratios = {
                field: round(_median(ours, field) / _median(theirs, field), 2) for field in more
            } | {field: round(_median(theirs, field) / _median(ours, field), 2) for field in less}
            harness.emit(bench, relay=name, mode=mode, peer=peer, peer_mode=peer_mode, **ratios)


def _median(measurements: Sequence[Mapping[str, float]], field: str) -> float:
    return median(each[field] for each in measurements)


if __name__ == "__main__":
    main()
