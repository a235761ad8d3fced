"""
Commit events at a steady rate, four connections in turn: what writes is not what is measured.

It shares the machine with what is, so that its work is done before the clock starts: of each
transaction the arrays of keys, values and ids are made beforehand, as Postgres takes them in.
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
    """So many events a second for so many seconds, the first of which are not counted."""

    rate: int
    seconds: int
    warm_up: int

    @property
    def total(self) -> int:
        return self.rate * (self.seconds + self.warm_up)

    @property
    def per_transaction(self) -> int:
        """A thousand transactions a second at most: one event each, or more."""
        return max(1, self.rate // 1_000)


class Statement(NamedTuple):
    """Writes events in a statement that commits by itself; $1 is where they belong, as text."""

    query: str
    strings: int
    """The type of the arrays that are $2, their keys, and $3, their values; $4 are their ids."""


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
"""For the relay, as a service in any language may."""

INSERT = Statement(
    "INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload)"
    " SELECT unnest($4), $1, unnest($2), 'Benched', unnest($3)",
    _TEXT,
)
"""For Debezium, in a table as its router wants it."""

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
    Write event n at its time; several connections, each with every so-many-th transaction.

    Open loop: each transaction has its time, and is late if the one before it is not done.
    Afterwards `committed` says of each event when its transaction had ended, and `begun` of the
    first of each transaction when that was sent.
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
        list(pool.map(write, lanes))  # raises what one of them raises


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
    # Postgres would plan each statement anew, for as many events as it has.
    options = "-c plan_cache_mode=force_generic_plan"
    with psycopg.connect(dsn, autocommit=True, options=options) as conn:
        arrays = [_ARRAYS[each] for each in (statement.strings, statement.strings, _UUID)]
        prepared = conn.pgconn.prepare(_PREPARED, statement.query.encode(), [_TEXT, *arrays])
        _require(conn.pgconn, prepared.status)
        for numbers, parameters in lane:
            time.sleep(max(0, began + numbers.start / run.rate - time.monotonic()))
            if begun is not None:
                begun[numbers.start] = time.monotonic()
            # libpq's own call: the least of the processor, and other threads go on meanwhile.
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
    """Return an array without NULL and with one dimension, as its type's `recv` takes it."""
    head = pack("!iiIii", 1, 0, of, len(values), 1)
    return head + b"".join(pack("!i", len(value)) + value for value in values)
