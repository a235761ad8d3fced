"""
Pack the rows of a batch by bucket before the shuffle, and unpack them after it.

A packet has everything that one task has read for one bucket, as Arrow. So a few large rows are
shuffled instead of many small ones, and no value becomes an object of Pandas or of the JVM on the
way. A short packet has the time of the newest record in the input partition that lags most, if
that may mean that the source lags.
"""

import struct
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from outbox.envelope import Pair, Record
from spark_jobs.rows.columns import Array, interned, milliseconds
from spark_jobs.rows.garbage import rarely_collecting

SCHEMA = "bucket int, packet binary"
COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
BUCKET = "bucket"
_TIME = struct.Struct(">q")
_PACKET = pa.schema([(BUCKET, pa.int32()), ("packet", pa.binary())])


@dataclass(frozen=True, slots=True)
class Pack:
    """Packs the rows that one task reads."""

    buckets: Sequence[int]
    max_lag: int | None
    """In milliseconds; None: the source never lags."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with rarely_collecting():
            found = [batch for batch in batches if batch.num_rows]
            if not found:
                return
            rows = pa.Table.from_batches(found)
            packets = list(self._packed(rows))
            if (newest := self._newest(rows)) is not None:
                packets += [(bucket, _TIME.pack(newest)) for bucket in self.buckets]
        columns = [pa.array(column) for column in zip(*packets, strict=True)]
        yield pa.RecordBatch.from_arrays(
            [columns[0].cast(pa.int32()), columns[1].cast(pa.binary())], schema=_PACKET
        )

    def _packed(self, rows: pa.Table) -> Iterator[tuple[int, bytes]]:
        of = rows.column(BUCKET).to_numpy()
        order = np.argsort(of, kind="stable")
        rows = rows.select(COLUMNS).take(pa.array(order)).combine_chunks()
        present, starts = np.unique(of[order], return_index=True)
        ends = [*starts[1:].tolist(), rows.num_rows]
        for bucket, start, end in zip(present.tolist(), starts.tolist(), ends, strict=True):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, rows.schema) as writer:
                writer.write_table(rows.slice(start, end - start))
            yield bucket, sink.getvalue().to_pybytes()

    def _newest(self, rows: pa.Table) -> int | None:
        """
        Return the newest timestamp of the partition that lags most, if it may matter.

        Whether it matters is decided by the clock of the batch, which is the same when the batch
        is run again. The clock is no column: Spark would write it into the code that it compiles,
        anew for each batch. This machine's clock is naturally later, and half of `max_lag` is a
        margin for machines whose clocks differ.
        """
        if self.max_lag is None:
            return None
        newest = rows.group_by(["topic", "partition"]).aggregate([("timestamp", "max")])
        least = int(milliseconds(newest.column("timestamp_max")).min())
        now = time.time_ns() // 1_000_000
        return least if least < now - self.max_lag // 2 else None


@dataclass(frozen=True, slots=True)
class BucketRows:
    """The rows of one bucket, in the order in which its operator takes them."""

    columns: Sequence[Sequence[Any]] = ((),) * len(Record._fields)
    """One for each field of a record. Headers may be empty, as few need them: `whole` has them."""
    table: pa.Table | None = None
    newest: int = 0
    """The greatest timestamp."""
    is_behind: bool = False

    def __len__(self) -> int:
        return len(self.columns[0])

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """Yield the fields of each record; only callers that need records make them."""
        return zip(*self.columns, strict=True)

    def whole(self, row: int) -> Record:
        """Return a record with its headers."""
        found = [] if self.table is None else self.table.column("headers")[row]
        pairs: list[Pair] = [(each["key"], each["value"]) for each in _listed(found)]
        return Record(*(column[row] for column in self.columns))._replace(headers=pairs)


def unpack(
    packets: Iterable[bytes], *, recent: int, by_offset: bool, with_headers: bool
) -> BucketRows:
    """
    Return the rows in `packets`.

    They are in the order of timestamp, topic, partition and offset, or `by_offset`, of topic,
    partition and offset only. The source lags if all records of a partition are older than
    `recent`.
    """
    packed = list(packets)
    newest = [_TIME.unpack(packet)[0] for packet in packed if len(packet) == _TIME.size]
    is_behind = any(moment < recent for moment in newest)
    tables = [
        pa.ipc.open_stream(packet).read_all() for packet in packed if len(packet) > _TIME.size
    ]
    if not tables:
        return BucketRows(is_behind=is_behind)
    table = pa.concat_tables(tables)
    table = table.take(pa.array(_order(table, by_offset=by_offset))).combine_chunks()
    timestamps = milliseconds(table.column("timestamp"))
    columns = [
        interned(table.column("topic").combine_chunks()).tolist(),
        table.column("partition").to_pylist(),
        table.column("offset").to_pylist(),
        timestamps.tolist(),
        table.column("key").to_pylist(),
        table.column("value").to_pylist(),
        _headers(table) if with_headers else [()] * table.num_rows,
    ]
    return BucketRows(columns, table, int(timestamps.max()), is_behind)


def _order(table: pa.Table, *, by_offset: bool) -> Array:
    """Return the rows' indices in the order in which an operator takes them."""
    of_topics = table.column("topic").combine_chunks().dictionary_encode()
    ranks = np.argsort(np.argsort(np.asarray(of_topics.dictionary.to_pylist())))
    keys = [
        table.column("offset").to_numpy(),
        table.column("partition").to_numpy(),
        ranks[of_topics.indices.to_numpy()],
    ]
    found: Array = np.lexsort(
        keys if by_offset else [*keys, milliseconds(table.column("timestamp"))]
    )
    return found


def _headers(table: pa.Table) -> list[list[Pair]]:
    """Return the headers of each row; row by row, Arrow takes ten times as long."""
    column = table.column("headers").combine_chunks()
    pairs = column.flatten()
    if not len(pairs):
        return [[] for _ in range(len(column))]
    found = list(zip(*(pairs.field(name).to_pylist() for name in ("key", "value")), strict=True))
    ends = np.cumsum(pc.fill_null(pc.list_value_length(column), 0).to_numpy()).tolist()
    return [found[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def _listed(headers: object) -> list[dict[str, Any]]:
    found = headers.as_py() if isinstance(headers, pa.Scalar) else headers
    return found or []  # type: ignore[return-value]  # null: no headers
