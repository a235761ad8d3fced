"""
Measure what an inbox transaction costs before and after callers could wait.

`make bench-inbox_waits`. Four inboxes take turns in one run: one whose `take` knows nothing of
callers, one for which nobody waits, one with a caller that waits for another event, and one that
notifies of each event. Each transaction takes one event and commits.
"""

import argparse
import re
import statistics
import time
from importlib.resources import files
from uuid import uuid4

import psycopg

from benchmarks import harness
from dedup.inbox import schema
from outbox.schema.templates import fill

_ASK = re.compile(r"    SELECT last_value & holding, .*?;\n", re.DOTALL)
_NOTIFY = re.compile(r"    IF waited > 0 .*?    END IF;\n", re.DOTALL)


CALLERS = ("unknown", "none", "of another", "of every")
"""The inboxes by the callers that wait for events, in the order of their turns."""


def before() -> str:
    """Return `take` as it was in version 6."""
    text = (files("dedup.inbox") / "sql" / "functions" / "take.sql").read_text(encoding="utf-8")
    text = _ASK.sub("    SELECT last_value & holding INTO old FROM {schema}.by_id;\n", text)
    return _NOTIFY.sub("", text)


def measured(conn: psycopg.Connection, name: str, count: int) -> float:
    """Return the microseconds of one transaction."""
    query = f"SELECT {name}.take('shipping', %s, 0)".encode()
    ids = [f"{uuid4()}@dovecote" for _ in range(count)]
    began = time.perf_counter()
    for each in ids:
        conn.execute(query, [each])
    return (time.perf_counter() - began) / count * 1e6


def main() -> None:
    """Print one line for each inbox."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1500, help="transactions in a turn")
    parser.add_argument("--rounds", type=int, default=11, help="turns of each inbox")
    parser.add_argument("--no-fsync", action="store_true", help="show the server's work alone")
    parser.add_argument("--dsn", default="", help="a database to use instead of a new server")
    args = parser.parse_args()
    if args.dsn:
        run(args.dsn, args.count, args.rounds, asynchronous=args.no_fsync)
        return
    with harness.servers() as stack:
        run(harness.database(stack), args.count, args.rounds, asynchronous=args.no_fsync)


def run(dsn: str, count: int, rounds: int, *, asynchronous: bool) -> None:
    """Measure in the database of `dsn`, and print what was found."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        for nr in range(len(CALLERS)):
            schema.install(conn, f"bench_{nr}")
        conn.execute(fill(before(), "bench_0").encode())
        if asynchronous:
            conn.execute("SET synchronous_commit = off")
        found: dict[str, list[float]] = {name: [] for name in CALLERS}
        conn.execute("LISTEN dovecote_handled")
        for _ in range(rounds):
            for nr, name in enumerate(CALLERS):
                if name == "of another":
                    waits = "SELECT bench_2.await_events(ARRAY['other'], ARRAY['other'], 60000)"
                    conn.execute(waits)
                if name == "of every":
                    # As if each was registered: the row is found, and the transaction notifies.
                    conn.execute("SELECT bench_3.await_events(ARRAY['x'], ARRAY['x'], 60000)")
                    conn.execute("SET default_transaction_isolation = 'repeatable read'")
                found[name].append(measured(conn, f"bench_{nr}", count))
                conn.execute("SET default_transaction_isolation = 'read committed'")
        for nr in range(len(CALLERS)):
            conn.execute(f"DROP SCHEMA bench_{nr} CASCADE".encode())
    base = found["unknown"]
    for name, times in found.items():
        ratio = statistics.median(now / then for now, then in zip(times, base, strict=True))
        harness.emit(
            "inbox_waits",
            callers=name,
            transactions=count,
            rounds=rounds,
            synchronous_commit=not asynchronous,
            min_us=round(min(times), 1),
            median_us=round(statistics.median(times), 1),
            ratio=round(ratio, 3),
        )


if __name__ == "__main__":
    main()
