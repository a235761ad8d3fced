"""Records as the Arrow batches that Spark gives to a task."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

import pyarrow as pa

from outbox.envelope import ID, ROUND, Record
from spark_jobs.rows.columns import COLUMNS
from spark_jobs.rows.records import Shipped

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SCHEMA = pa.schema(
    {
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", "UTC"),
        "key": pa.binary(),
        "value": pa.binary(),
        "headers": pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()})),
    }
)


def record(
    offset: int,
    key: str | None = "k",
    *,
    id_: str | None = None,
    round_: int | None = None,
    value: bytes | None = b"{}",
) -> Record:
    headers = [] if id_ is None else [(ID, id_.encode())]
    if round_ is not None:
        headers.append((ROUND, str(round_).encode()))
    time = 1_700_000_000_000 + offset
    return Record("in", 0, offset, time, None if key is None else key.encode(), value, headers)


def batches(records: Sequence[Record], *, size: int = 1000) -> Iterator[pa.RecordBatch]:
    """Yield `records` in batches of `size`, like Spark: sorted, and cut anywhere."""
    for start in range(0, len(records), size):
        rows = [_row(each) for each in records[start : start + size]]
        yield pa.RecordBatch.from_pylist(rows, schema=_SCHEMA)


def rows(*records: Record) -> Shipped:
    return Shipped([tuple(each) for each in records])


def _row(each: Record) -> dict[str, object]:
    row: dict[str, object] = dict(zip(COLUMNS, each, strict=True))
    row["timestamp"] = _EPOCH + timedelta(milliseconds=each.timestamp)
    row["headers"] = [{"key": name, "value": value} for name, value in each.headers] or None
    return row
