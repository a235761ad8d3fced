"""
Pack what one task reads by bucket before the shuffle, and unpack it after it.

A packet has everything that one task has read for one bucket, as columns of bytes and integers. So
a few large rows are shuffled instead of many small ones, and no record becomes an object of the
JVM or of Pandas on the way. A short packet has the time of the newest record in the input
partition that lags most, if that may mean that the source lags.
"""

import marshal
import struct
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from operator import itemgetter
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from outbox.envelope import Record
from outbox.kafka import headers_of
from spark_jobs.rows.records import (
    NO_IDS,
    PLAIN,
    Message,
    TopicIds,
    blocks,
    packed,
    record_of,
    unpacked,
)

SCHEMA = "bucket int, packet binary"
BUCKET = "bucket"
_TIME = struct.Struct(">q")
_PACKET = pa.schema([(BUCKET, pa.int32()), ("packet", pa.binary())])

Read: TypeAlias = tuple[tuple[str, int, int, int], list[Message], int]
"""A range that was read: its place, its records, and how many offsets had been deleted."""

_Columns: TypeAlias = tuple[list[Any], list[Any], list[Any], list[Any], list[bytes]]
"""Offsets, timestamps, keys, values and packed headers."""

_Chunk: TypeAlias = tuple[str, int, str, int, bytes, bytes, list[Any], list[Any], list[bytes]]
"""Topic, partition, topic id and deleted offsets; then the columns, with the numbers as bytes."""


class Bucketing(Protocol):
    """Decides which records share a bucket: those that may affect each other."""

    def __call__(
        self, partition: int, messages: Sequence[Message], buckets: int
    ) -> int | Sequence[int]:
        """Return the number of each record's bucket, from 0 on; a single number is for all."""


@dataclass(frozen=True, slots=True)
class Pack:
    """Packs what one task reads."""

    buckets: Sequence[int]
    """The names of the buckets."""
    bucketing: Bucketing
    max_lag: int | None = None
    """In milliseconds; None: the source never lags."""

    def __call__(self, found: Iterable[Read], ids: TopicIds = NO_IDS) -> Iterator[pa.RecordBatch]:
        """Yield one batch of packets, if anything was read; the lists of `found` are emptied."""
        chunks: dict[int, list[_Chunk]] = {}
        newest: list[int] = []
        for (topic, partition, _, _), messages, expired in found:
            if not messages and not expired:
                continue
            if messages and self.max_lag is not None:
                newest.append(max(each.timestamp()[1] for each in messages))
            gone = expired  # told once, by any of the buckets
            for number, columns in self._parts(partition, messages).items():
                chunk = _chunk((topic, partition, ids.get(topic, "")), gone, columns)
                chunks.setdefault(self.buckets[number], []).append(chunk)
                gone = 0
        packets = [(bucket, marshal.dumps(of, PLAIN)) for bucket, of in chunks.items()]
        if newest and self._may_lag(least := min(newest)):
            packets += [(bucket, _TIME.pack(least)) for bucket in self.buckets]
        if packets:
            names, data = zip(*packets, strict=True)
            arrays = [pa.array(names, pa.int32()), pa.array(data, pa.binary())]
            yield pa.RecordBatch.from_arrays(arrays, schema=_PACKET)

    def _parts(self, partition: int, messages: list[Message]) -> dict[int, _Columns]:
        """Return what each bucket gets; without any records, one bucket gets no rows."""
        parts: dict[int, _Columns] = {}
        for block in blocks(messages):
            numbers = self.bucketing(partition, block, len(self.buckets))
            if isinstance(numbers, int):
                _extend(parts.setdefault(numbers, _columns()), block)
                continue
            shares: list[list[Message]] = [[] for _ in self.buckets]
            for number, message in zip(numbers, block, strict=True):
                shares[number].append(message)
            for number, share in enumerate(shares):
                if share:
                    _extend(parts.setdefault(number, _columns()), share)
        return parts or {0: _columns()}

    def _may_lag(self, newest: int) -> bool:
        """
        Return whether the partition that lags most may mean that the source does.

        That is decided by the clock of the batch, which is the same when the batch is run again.
        The clock is not known here. This machine's clock is naturally later, and half of `max_lag`
        is a margin for machines whose clocks differ.
        """
        now = time.time_ns() // 1_000_000
        return self.max_lag is not None and newest < now - self.max_lag // 2


def _columns() -> _Columns:
    return [], [], [], [], []


def _extend(columns: _Columns, messages: Sequence[Message]) -> None:
    offsets, times, keys, values, headers = columns
    offsets += [each.offset() for each in messages]
    times += [each.timestamp()[1] for each in messages]
    keys += [each.key() for each in messages]
    values += [each.value() for each in messages]
    headers += [packed(headers_of(each)) for each in messages]


def _chunk(place: tuple[str, int, str], expired: int, columns: _Columns) -> _Chunk:
    offsets, times, *rest = columns
    numbers = [np.array(each, "<i8").tobytes() for each in (offsets, times)]
    return *place, expired, *numbers, *rest  # type: ignore[return-value]  # unpacked lists lose their lengths


@dataclass(frozen=True, slots=True)
class BucketRows:
    """The rows of one bucket, in the order in which its operator takes them."""

    columns: Sequence[Sequence[Any]] = ((),) * len(Record._fields)
    """One for each field of a record. Headers may be packed: `whole` unpacks those of one row."""
    newest: int = 0
    """The greatest timestamp."""
    is_behind: bool = False
    expired: int = 0
    """How many offsets had been deleted before they were read."""
    size: int = 0
    """The bytes of the packets."""
    ids: TopicIds = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.columns[0])

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """Yield the fields of each record; only callers that need records make them."""
        return zip(*self.columns, strict=True)

    def whole(self, row: int) -> Record:
        """Return a record with its headers."""
        found = record_of(tuple(column[row] for column in self.columns), self.ids)
        headers: Any = found.headers
        pairs = unpacked(headers) if isinstance(headers, bytes) else headers
        return found._replace(headers=[*pairs])


def unpack(
    packets: Iterable[bytes], *, recent: int, by_offset: bool, with_headers: bool
) -> BucketRows:
    """
    Return the rows in `packets`.

    They are in the order of timestamp, topic, partition and offset, or `by_offset`, of topic,
    partition and offset only. The source lags if all records of a partition are older than
    `recent`.
    """
    is_behind, size = False, 0
    chunks: list[_Chunk] = []
    for packet in packets:
        size += len(packet)
        if len(packet) == _TIME.size:
            is_behind |= _TIME.unpack(packet)[0] < recent
        else:
            chunks += marshal.loads(packet)  # noqa: S302  # from our own task
    if not chunks:
        return BucketRows(is_behind=is_behind)
    chunks.sort(key=itemgetter(0, 1))  # a partition is read by one task, in the order of offsets
    topics, partitions, ids, expired, offsets, timestamps, keys, values, headers = zip(
        *chunks, strict=True
    )
    sizes = [len(each) for each in keys]
    numbers = [np.frombuffer(b"".join(each), "<i8") for each in (offsets, timestamps)]
    times = numbers[1]
    order: list[int] | None = None
    if not by_offset and (times[1:] < times[:-1]).any():
        places = np.argsort(times, kind="stable")
        order, numbers = places.tolist(), [each[places] for each in numbers]
    own = list(chain.from_iterable(headers))
    return BucketRows(
        [
            _picked(_repeated(topics, sizes), order),
            _picked(_repeated(partitions, sizes), order),
            *(each.tolist() for each in numbers),
            _picked(list(chain.from_iterable(keys)), order),
            _picked(list(chain.from_iterable(values)), order),
            _picked(list(map(unpacked, own)) if with_headers else own, order),
        ],
        max(0, int(times.max(initial=0))),
        is_behind,
        sum(expired),
        size,
        {topic: id_ for topic, id_ in zip(topics, ids, strict=True) if id_},
    )


def _repeated(values: Sequence[Any], sizes: Sequence[int]) -> list[Any]:
    return list(chain.from_iterable(map(repeat, values, sizes)))


def _picked(column: list[Any], order: Sequence[int] | None) -> Sequence[Any]:
    """Return a column in `order`, which names more than one row; None: as it is."""
    return column if order is None else itemgetter(*order)(column)
