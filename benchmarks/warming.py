"""Bring servers to the state that they have after running for a while."""

from collections.abc import Callable

import psycopg

from benchmarks import harness
from dovecote.devstack.kafka.kafka import SERVING_JAVA_OPTIONS, Kafka
from dovecote.devstack.postgres.postgres import Postgres

KAFKA_JAVA = (
    *SERVING_JAVA_OPTIONS,
    *("-Xms6g", "-Xmx6g", "-Xmn4g", "-XX:+AlwaysPreTouch"),
)
"""
A broker with production settings except for its heap: 6 GB, 4 of them for new objects, instead of
the 1 GB in Kafka's start script.

A collection stops the broker for 10 to 30 ms: on two cores that may affect one record in a
hundred, for any reader. If the size for new objects is not given, Java collects every 3 to 6 s
however large the heap is, because it aims at short pauses. With it, it collects about every
minute. Until the first collection, each page is a new one, and a fifth of the broker's work is to
clear pages. So they are touched before, like those of a broker that has run for a while.
"""

_TURNS = range(5, 12)
"""Number of times that the broker is kept busy, at least and at most."""
_STILL_COMPILING = 0.9
"""The broker still compiles if the same work costs it less than this share of the last time."""

_SEGMENTS = 40
"""Segments of 16 MB each: 50,000 events of 200 bytes a second fill some 20 in 15 s."""


def warm(kafka: Kafka, work: Callable[[], object]) -> None:
    """Repeat `work` until its cost is even: at first the broker's compiler takes a whole core."""
    costs = [float("inf")]
    while len(costs) <= _TURNS.stop and (
        len(costs) <= _TURNS.start or costs[-1] < _STILL_COMPILING * costs[-2]
    ):
        before = harness.cpu_seconds(kafka.pid)
        work()
        costs.append(harness.cpu_seconds(kafka.pid) - before)


def recycle(postgres: Postgres) -> None:
    """
    Make used segments of the write-ahead log available for reuse.

    A server without one creates the next segment, 16 MB of zeros, and all commits wait for it: 56
    to 98 ms here, every 0.7 s at 50,000 events a second. A server that has run for a while reuses
    segments that its checkpoints no longer need.
    """
    with psycopg.connect(postgres.dsn, autocommit=True) as conn:
        conn.execute("CHECKPOINT")
        (ahead,) = conn.execute(
            "SELECT count(*) FROM pg_ls_waldir()"
            " WHERE name ~ '^[0-9A-F]{24}$' AND name > pg_walfile_name(pg_current_wal_lsn())"
        ).fetchone() or (0,)
        if ahead < _SEGMENTS:
            for _ in range(_SEGMENTS):
                # A segment without any writes is not kept for reuse.
                conn.execute("SELECT pg_logical_emit_message(false, 'bench', '')")
                conn.execute("SELECT pg_switch_wal()")
            conn.execute("CHECKPOINT")
