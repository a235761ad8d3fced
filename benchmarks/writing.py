"""
Commit events at a steady rate, on four connections in turn: the writer is not being measured.

It shares the machine with the measured program, so its work is done before the clock starts. The
arrays of keys, values and ids of each transaction are made beforehand, in the form that Postgres
takes.
"""

import os
import time
from array import array
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from struct import pack
from typing import NamedTuple

import psycopg
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGconn

CONNECTIONS = 4
KEYS = 5_000
SIZE = 200
"""Bytes of each value."""

_BYTEA, _UUID = 17, 2950
_TEXT = 25
_BINARY = 1
_PREPARED = b"write"


class Run(NamedTuple):
    """Events a second for a number of seconds; the first seconds are not counted."""

    rate: int
    seconds: int
    warm_up: int

    @property
    def total(self) -> int:
        return self.rate * (self.seconds + self.warm_up)

    @property
    def per_transaction(self) -> int:
        """At most a thousand transactions a second: one event each, or more."""
        return max(1, self.rate // 1_000)


class Statement(NamedTuple):
    """Writes events in a statement that commits by itself; $1 is their destination, as text."""

    query: str
    strings: int
    """The type of the arrays $2, their keys, and $3, their values; $4 holds their ids."""


APPEND = Statement(
    """
    SELECT outbox.append_many(
               topics => array_fill($1, n), keys => $2, "values" => $3,
               types => array_fill('Benched'::text, n), ids => $4,
               sources => array_fill('/bench'::text, n), subjects => array_fill(NULL::text, n),
               times => array_fill(clock_timestamp(), n),
               content_types => array_fill(NULL::text, n))
      FROM (SELECT ARRAY[cardinality($4)] AS n) AS each
    """,
    _BYTEA,
)
"""For the relay, as a service in any language can do it."""

INSERT = Statement(
    "INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload)"
    " SELECT unnest($4), $1, unnest($2), 'Benched', unnest($3)",
    _TEXT,
)
"""For Debezium, in a table in the form that its router requires."""

_ARRAYS = {_BYTEA: 1001, _TEXT: 1009, _UUID: 2951}


def write_all(
    dsn: str,
    topic: str,
    run: Run,
    statement: Statement,
    committed: "array[float]",
    begun: "array[float] | None" = None,
) -> None:
    """
    Write event n at its time; several connections take the transactions in turn.

    Open loop: each transaction has its time, and is late if the one before it is not done.
    Afterwards `committed` has the time at which each event's transaction had ended. `begun` has
    the time at which each transaction was sent, for its first event.
    """
    groups = [
        range(first, min(first + run.per_transaction, run.total))
        for first in range(0, run.total, run.per_transaction)
    ]
    lanes = [
        [
            (numbers, _parameters(topic, numbers, statement.strings))
            for numbers in groups[n::CONNECTIONS]
        ]
        for n in range(CONNECTIONS)
    ]
    began = time.monotonic() + 1
    write = partial(_write, dsn, run, statement, began=began, committed=committed, begun=begun)
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        list(pool.map(write, lanes))  # raises the first error of the writers


def _write(
    dsn: str,
    run: Run,
    statement: Statement,
    lane: Sequence[tuple[range, list[bytes]]],
    *,
    began: float,
    committed: "array[float]",
    begun: "array[float] | None",
) -> None:
    # Otherwise Postgres would plan each statement anew, for as many events as it has.
    options = "-c plan_cache_mode=force_generic_plan"
    with psycopg.connect(dsn, autocommit=True, options=options) as conn:
        arrays = [_ARRAYS[each] for each in (statement.strings, statement.strings, _UUID)]
        prepared = conn.pgconn.prepare(_PREPARED, statement.query.encode(), [_TEXT, *arrays])
        _require(conn.pgconn, prepared.status)
        for numbers, parameters in lane:
            time.sleep(max(0, began + numbers.start / run.rate - time.monotonic()))
            if begun is not None:
                begun[numbers.start] = time.monotonic()
            # libpq's own call: it takes the least processor time, and other threads go on
            # meanwhile.
            done = conn.pgconn.exec_prepared(_PREPARED, parameters, [_BINARY] * len(parameters))
            now = time.monotonic()
            _require(conn.pgconn, done.status)
            for n in numbers:
                committed[n] = now


def _require(conn: PGconn, status: int) -> None:
    if status not in {ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK}:
        raise RuntimeError(conn.get_error_message())


def _parameters(topic: str, numbers: range, strings: int) -> list[bytes]:
    return [
        topic.encode(),
        _array(strings, [f"key-{n % KEYS}".encode() for n in numbers]),
        _array(strings, [str(n).encode().ljust(SIZE) for n in numbers]),
        _array(_UUID, [os.urandom(16) for _ in numbers]),
    ]


def _array(of: int, values: Sequence[bytes]) -> bytes:
    """Return an array without NULL and with one dimension, in the form of its type's `recv`."""
    head = pack("!iiIii", 1, 0, of, len(values), 1)
    return head + b"".join(pack("!i", len(value)) + value for value in values)
