"""
Storage with and without rotation while another transaction stays open: `make bench-storage`.

Writers go on at a steady rate, and a relay publishes. A transaction of the same database, with a
number and a snapshot, is open for four fifths of the time. There are three runs: without rotation
for half the time, with it for all the time, and again without it for half the time. Each has its
own database.
"""

import argparse
import threading
import time
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.sharedctypes import RawArray

import psycopg

from benchmarks import harness
from benchmarks.relay_latency import receive
from benchmarks.writing import APPEND, Run, write_all
from dovecote.devstack import Stack

# Long enough that nothing goes.
KEEP_ALL = "1000h"


@dataclass
class Storage:
    """The largest sizes seen, looking once a second."""

    dead_rows: int = 0
    size: int = 0
    leaves: int = 0
    """Leaves with rows."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=2_000, help="events a second")
    parser.add_argument("--seconds", type=int, default=60, help="with rotation, and without it")
    parser.add_argument("--warm-up", type=int, default=5, help="seconds that are not counted")
    args = parser.parse_args()
    whole, half = (Run(args.rate, n, args.warm_up) for n in (args.seconds, args.seconds // 2))
    with harness.servers() as stack:
        plain = [measure(stack, half, rotation=False)]
        rotating = measure(stack, whole, rotation=True)
        plain.append(measure(stack, half, rotation=False))
    harness.emit(
        "storage",
        writers_p99_ms_more=round(rotating - sum(plain) / len(plain), 2),
        writers_p99_ms_rotating=rotating,
        writers_p99_ms_plain=plain,
    )


def measure(stack: Stack, run: Run, *, rotation: bool) -> float:
    """Print the results of one run, and return its writers' p99 in milliseconds."""
    dsn, topic = harness.database(stack), harness.topic(stack)
    begun, committed = RawArray("d", run.total), RawArray("d", run.total)
    found, done, open_for = Storage(), threading.Event(), (run.warm_up + run.seconds) * 0.8
    watcher = threading.Thread(target=watch, args=(dsn, open_for, found, done))
    with harness.relay(stack, dsn, name=topic, retention="0ms" if rotation else KEEP_ALL) as pid:
        writer = get_context("spawn").Process(
            target=write_all, args=(dsn, topic, run, APPEND, committed, begun)
        )
        writer.start()
        watcher.start()
        try:
            seen = receive(stack.kafka.bootstrap, topic, run.total)
        finally:
            done.set()
            watcher.join()
            writer.join()
        cpu = harness.cpu_seconds(pid)
    if writer.exitcode != 0:
        raise SystemExit(f"the writer ended with {writer.exitcode}")
    counted = range(run.rate * run.warm_up, run.total)
    writers = harness.percentiles(
        [committed[n] - begun[n] for n in counted[:: run.per_transaction]]
    )
    delays = [seen[n] - committed[n] for n in counted]
    harness.emit(
        "storage",
        rotation=rotation,
        rate=run.rate,
        events_per_transaction=run.per_transaction,
        seconds=run.seconds,
        transaction_open_for_s=round(open_for),
        dead_rows_max=found.dead_rows,
        stored_mb_max=round(found.size / 1e6, 1),
        leaves_max=found.leaves,
        writers=writers,
        delivery={**harness.percentiles(delays), "max_ms": round(max(delays) * 1000, 2)},
        relay_cpu_share=round(cpu / (run.seconds + run.warm_up), 3),
    )
    return writers["p99_ms"]


def watch(dsn: str, open_for: float, found: Storage, done: threading.Event) -> None:
    """
    Keep a transaction open for `open_for` seconds, and look at the outbox's tables meanwhile.
    """
    with psycopg.connect(dsn) as elsewhere, psycopg.connect(dsn, autocommit=True) as conn:
        elsewhere.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        elsewhere.execute("CREATE TABLE elsewhere AS SELECT pg_current_xact_id()")
        until = time.monotonic() + open_for
        while not done.wait(1):
            if time.monotonic() > until:
                elsewhere.commit()
            dead, size, leaves = conn.execute(
                "SELECT sum(pg_stat_get_dead_tuples(oid)), sum(pg_total_relation_size(oid)),"
                " count(*) FILTER (WHERE relname LIKE 'events%' AND pg_relation_size(oid) > 0)"
                " FROM pg_class WHERE relnamespace = 'outbox'::regnamespace AND relkind = 'r'"
            ).fetchone() or (0, 0, 0)
            found.dead_rows = max(found.dead_rows, int(dead))
            found.size = max(found.size, int(size))
            found.leaves = max(found.leaves, leaves)


if __name__ == "__main__":
    main()
