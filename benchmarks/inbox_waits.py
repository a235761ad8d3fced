"""
Measure what an inbox transaction costs before and after callers could wait.

`make bench-inbox_waits`. Three inboxes take turns in one run: one whose `take` knows nothing of
callers, one for which nobody waits, and one with a caller that waits for another event. Each
transaction takes one event and commits.
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
    """Print a table of medians over the rounds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1500)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--no-fsync", action="store_true", help="show the server's work alone")
    parser.add_argument("--dsn", default="", help="a database to use instead of a new server")
    args = parser.parse_args()
    if args.dsn:
        run(args.dsn, args.count, args.rounds, asynchronous=args.no_fsync)
        return
    with harness.servers() as stack:
        run(harness.database(stack), args.count, args.rounds, asynchronous=args.no_fsync)


def run(dsn: str, count: int, rounds: int, *, asynchronous: bool) -> None:
    """Measure in the database of `dsn`."""
    names = (
        "as in version 6",
        "nobody waits",
        "another event awaited",
        "every event awaited",
    )
    with psycopg.connect(dsn, autocommit=True) as conn:
        for nr in range(len(names)):
            schema.install(conn, f"bench_{nr}")
        conn.execute(fill(before(), "bench_0").encode())
        if asynchronous:
            conn.execute("SET synchronous_commit = off")
        found: dict[str, list[float]] = {name: [] for name in names}
        conn.execute("LISTEN dovecote_handled")
        for _ in range(rounds):
            for nr, name in enumerate(names):
                if nr == 2:  # noqa: PLR2004  # the third of the names
                    waits = "SELECT bench_2.await_events(ARRAY['other'], ARRAY['other'], 60000)"
                    conn.execute(waits)
                if nr == 3:  # noqa: PLR2004  # the fourth of the names
                    # As if each was registered: the row is found, and the transaction notifies.
                    conn.execute("SELECT bench_3.await_events(ARRAY['x'], ARRAY['x'], 60000)")
                    conn.execute("SET default_transaction_isolation = 'repeatable read'")
                found[name].append(measured(conn, f"bench_{nr}", count))
                conn.execute("SET default_transaction_isolation = 'read committed'")
        for nr in range(len(names)):
            conn.execute(f"DROP SCHEMA bench_{nr} CASCADE".encode())
    base = found[names[0]]
    for name, times in found.items():
        ratio = statistics.median(now / then for now, then in zip(times, base, strict=True))
        print(f"{name:30} {statistics.median(times):8.1f} µs  {ratio:.3f} times")


if __name__ == "__main__":
    main()
