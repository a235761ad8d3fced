"""
The cost of an event in a business transaction: `make bench-outbox_write`.

It times the same transaction (one row updated, one row inserted, COMMIT with fsync) with
`outbox.write` and with a plain INSERT of the same columns, in turn, on one connection.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import psycopg
from uuid_utils.compat import uuid7

from benchmarks import harness
from outbox import Event, write

_COLUMNS = "(time, id, topic, type, source, content_type, key, value)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--transactions", type=int, default=200, help="in each block")
    parser.add_argument("--blocks", type=int, default=40)
    args = parser.parse_args()
    with harness.servers() as stack, psycopg.connect(harness.database(stack)) as conn:
        conn.execute("CREATE TABLE stock (id int PRIMARY KEY, amount int NOT NULL)")
        conn.execute("INSERT INTO stock SELECT n, 0 FROM generate_series(0, 999) AS n")
        conn.execute(
            "CREATE TABLE plain (LIKE outbox.events INCLUDING DEFAULTS INCLUDING IDENTITY,"
            " PRIMARY KEY (position))"
        )
        conn.commit()
        for action in (event_row, plain_row):
            block(conn, action, args.transactions)
        pairs = [
            (block(conn, event_row, args.transactions), block(conn, plain_row, args.transactions))
            for _ in range(args.blocks)
        ]
    ratios = sorted(event / plain for event, plain in pairs)
    harness.emit(
        "outbox_write",
        ratio=round(statistics.median(ratios), 3),
        ratio_quartiles=[round(q, 3) for q in statistics.quantiles(ratios, n=4)],
        event_ms=round(statistics.median(e for e, _ in pairs) * 1000, 3),
        plain_ms=round(statistics.median(p for _, p in pairs) * 1000, 3),
        blocks=args.blocks,
        transactions=args.transactions,
    )


def block(
    conn: psycopg.Connection, action: Callable[[psycopg.Connection, int], None], count: int
) -> float:
    """Return the mean seconds of one business transaction that ends in `action`."""
    began = time.perf_counter()
    for n in range(count):
        conn.execute("UPDATE stock SET amount = amount + 1 WHERE id = %s", [n])
        action(conn, n)
        conn.commit()
    return (time.perf_counter() - began) / count


def event_row(conn: psycopg.Connection, n: int) -> None:
    write(conn, Event(topic="bench", type="Benched", source="/bench", key=f"key-{n}", value=VALUE))


def plain_row(conn: psycopg.Connection, n: int) -> None:
    conn.execute(
        f"INSERT INTO plain {_COLUMNS}"  # noqa: S608  # a constant
        " VALUES (now(), %b, %t, %t, %t, %t, %b, %b)",
        [uuid7(), "bench", "Benched", "/bench", "text/plain", f"key-{n}".encode(), VALUE],
    )


VALUE = b"x" * 200


if __name__ == "__main__":
    main()
