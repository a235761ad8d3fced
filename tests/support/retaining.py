"""A relay without a thread that publishes, beats and rotates when it is told to."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import islice

import psycopg
from psycopg import Connection, sql

from relay.metrics import Metrics
from relay.postgres.capture.switching import SwitchingCapture
from relay.postgres.capture.table import TableCapture
from relay.postgres.lease import role_of, try_acquire
from relay.postgres.retention import Retention
from relay.rules.places.progress import Cursor, Place
from tests.support.rows import numbers

LEAF = 6_000
"""The number of rows that are worth a rotation."""


@dataclass
class Shop:
    """An outbox, the events read from it, and a relay's session that makes room in it."""

    dsn: str
    conn: Connection
    capture: SwitchingCapture | TableCapture
    schema: str = "outbox"
    name: str = "shop"
    keep: float = 0.0
    cursor: Place = field(default_factory=Cursor)
    found: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.metrics = Metrics(self.name)
        self.retention = Retention(self.schema, self.name, self.metrics, keep=self.keep, every=0.0)
        self.retention.begin(self.conn, self.cursor)

    def publish(self, batches: int | None = None) -> None:
        """Read everything there is, as if the broker committed each batch."""
        for batch in islice(self.capture.batches(self.cursor), batches):
            self.found += numbers(batch.rows)
            self.cursor = batch.cursor
            self.retention.confirmed(batch.cursor)

    def beat(self, times: int = 1) -> None:
        for _ in range(times):
            self.retention.beat(self.conn)

    def metric(self, name: str, **labels: str) -> float:
        labels = {"outbox": self.name, **labels}
        value = self.metrics.registry.get_sample_value(f"dovecote_relay_{name}", labels)
        assert value is not None, name
        return value

    def delayed(self, cause: str) -> bool:
        return self.metric("rotation_delayed_seconds", cause=cause) > 0


@contextmanager
def shop(
    dsn: str, *, name: str = "shop", schema_name: str = "outbox", keep: float = 0.0
) -> Iterator[Shop]:
    with (
        try_acquire(dsn, [role_of(schema_name, name)], 30) as lease,
        closing(TableCapture(dsn, schema_name, batch_rows=1000, batch_bytes=10**8)) as capture,
    ):
        assert lease is not None
        yield Shop(dsn, lease.conn, capture, schema_name, name, keep)


def append(conn: Connection, first: int, count: int = LEAF, *, name: str = "outbox") -> None:
    query = (
        "SELECT {}.append('t', 'key', lpad(n::text, 20, '0')::bytea, 'T', content_type =>"
        " repeat('x', 200)) FROM generate_series(%s::int, %s::int) AS n"
    )
    conn.execute(
        sql.SQL(query).format(sql.Identifier(name)),
        [first, first + count - 1],
    )


def held(dsn: str, name: str = "outbox") -> dict[int, int]:
    """Return how many rows each leaf has, if it has any."""
    query = sql.SQL("SELECT tableoid::regclass::text, count(*) FROM {}.events GROUP BY 1")
    with psycopg.connect(dsn) as conn:
        rows = conn.execute(query.format(sql.Identifier(name))).fetchall()
    return {int(table.rpartition("_")[2]) if "_" in table else -1: count for table, count in rows}
