"""Servers as they are when they have run for a while."""

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
A broker as it is served, but for its heap: 6 GB, 4 of them for what is new, and not the 1 GB of
Kafka's start script.

To collect stops the broker for 10 to 30 ms: on two cores that may be one record in a hundred,
whoever reads them. Where nobody says how much there is for what is new, Java collects every 3 to
6 s however large the heap is, for it aims at short pauses; so it is about every minute. Until the
first time each page of it is a new one, and a fifth of what the broker does is to clear pages:
they are touched before, as those of a broker that has run for a while.
"""

_TURNS = range(5, 12)
"""How often the broker is kept busy, at least and at most."""
_STILL_COMPILING = 0.9
"""The same work costs the broker less than this of what it did before: it compiles still."""

_SEGMENTS = 40
"""Of 16 MB each: 50,000 events of 200 bytes a second fill some 20 in 15 s."""


def warm(kafka: Kafka, work: Callable[[], object]) -> None:
    """Repeat `work` until the broker, whose compiler takes a core for itself, does it evenly."""
    costs = [float("inf")]
    while len(costs) <= _TURNS.stop and (
        len(costs) <= _TURNS.start or costs[-1] < _STILL_COMPILING * costs[-2]
    ):
        before = harness.cpu_seconds(kafka.pid)
        work()
        costs.append(harness.cpu_seconds(kafka.pid) - before)


def recycle(postgres: Postgres) -> None:
    """
    Have used segments of the write-ahead log ready to be written to again.

    A server makes the next one where it has none, 16 MB of zeros, and all commits wait for it: 56
    to 98 ms here, every 0.7 s at 50,000 events a second. One that has run for a while has what
    its checkpoints no longer need, and takes that.
    """
    with psycopg.connect(postgres.dsn, autocommit=True) as conn:
        conn.execute("CHECKPOINT")
        (ahead,) = conn.execute(
            "SELECT count(*) FROM pg_ls_waldir()"
            " WHERE name ~ '^[0-9A-F]{24}$' AND name > pg_walfile_name(pg_current_wal_lsn())"
        ).fetchone() or (0,)
        if ahead < _SEGMENTS:
            for _ in range(_SEGMENTS):
                # One that nothing was written to is not left for the next.
                conn.execute("SELECT pg_logical_emit_message(false, 'bench', '')")
                conn.execute("SELECT pg_switch_wal()")
            conn.execute("CHECKPOINT")
