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
from dataclasses import dataclass
from itertools import chain, repeat
from operator import itemgetter
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from outbox.envelope import Record
from spark_jobs.rows.records import Message

SCHEMA = "bucket int, packet binary"
BUCKET = "bucket"
_TIME = struct.Struct(">q")
# A later version looks whether each object has come before, which only pays for headers' names.
_PLAIN = 2
_PACKET = pa.schema([(BUCKET, pa.int32()), ("packet", pa.binary())])

Read: TypeAlias = tuple[tuple[str, int, int, int], Sequence[Message], int]
"""A range that was read: its place, its records, and how many offsets had been deleted."""

_Chunk: TypeAlias = tuple[str, int, int, bytes, bytes, list[Any], list[Any], bytes]
"""Topic, partition and deleted offsets; then offsets, timestamps, keys, values and headers."""


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

    def __call__(self, found: Iterable[Read]) -> Iterator[pa.RecordBatch]:
        chunks: dict[int, list[_Chunk]] = {}
        newest: list[int] = []
        for (topic, partition, _, _), messages, expired in found:
            if not messages and not expired:
                continue
            if messages and self.max_lag is not None:
                newest.append(max(each.timestamp()[1] for each in messages))
            gone = expired  # told once, by any of the buckets
            for number, part in self._parts(partition, messages):
                chunk = _chunk(topic, partition, gone, part)
                chunks.setdefault(self.buckets[number], []).append(chunk)
                gone = 0
        packets = [(bucket, marshal.dumps(of, _PLAIN)) for bucket, of in chunks.items()]
        if newest and self._may_lag(least := min(newest)):
            packets += [(bucket, _TIME.pack(least)) for bucket in self.buckets]
        if packets:
            names, data = zip(*packets, strict=True)
            columns = [pa.array(names, pa.int32()), pa.array(data, pa.binary())]
            yield pa.RecordBatch.from_arrays(columns, schema=_PACKET)

    def _parts(
        self, partition: int, messages: Sequence[Message]
    ) -> Iterable[tuple[int, Sequence[Message]]]:
        """Return the records of each bucket that has any, or of one bucket if there are none."""
        numbers = self.bucketing(partition, messages, len(self.buckets)) if messages else 0
        if isinstance(numbers, int):
            return [(numbers, messages)]
        parts: list[list[Message]] = [[] for _ in self.buckets]
        for number, message in zip(numbers, messages, strict=True):
            parts[number].append(message)
        return ((number, part) for number, part in enumerate(parts) if part)

    def _may_lag(self, newest: int) -> bool:
        """
        Return whether the partition that lags most may mean that the source does.

        That is decided by the clock of the batch, which is the same when the batch is run again.
        The clock is not known here. This machine's clock is naturally later, and half of `max_lag`
        is a margin for machines whose clocks differ.
        """
        now = time.time_ns() // 1_000_000
        return self.max_lag is not None and newest < now - self.max_lag // 2


def _chunk(topic: str, partition: int, expired: int, messages: Sequence[Message]) -> _Chunk:
    headers = [each.headers() or () for each in messages]
    return (
        topic,
        partition,
        expired,
        np.array([each.offset() for each in messages], "<i8").tobytes(),
        np.array([each.timestamp()[1] for each in messages], "<i8").tobytes(),
        [each.key() for each in messages],
        [each.value() for each in messages],
        marshal.dumps(headers) if any(headers) else b"",
    )


class Headers:
    """The headers of rows, which are only made if they are asked for."""

    def __init__(self, packed: Sequence[tuple[bytes, int]], order: Sequence[int] | None) -> None:
        """`packed`: those of some rows, and how many rows that are."""
        self._packed, self._order = packed, order
        self._all: Sequence[Any] | None = None

    def all(self) -> Sequence[Any]:
        """Return a list of pairs, or an empty tuple, for each row."""
        if self._all is None:
            self._all = _picked(
                list(chain.from_iterable(_unpacked(*each) for each in self._packed)), self._order
            )
        return self._all


@dataclass(frozen=True, slots=True)
class BucketRows:
    """The rows of one bucket, in the order in which its operator takes them."""

    columns: Sequence[Sequence[Any]] = ((),) * len(Record._fields)
    """One for each field of a record. Headers may be empty, as few need them: `whole` has them."""
    headers: Headers | None = None
    newest: int = 0
    """The greatest timestamp."""
    is_behind: bool = False
    expired: int = 0
    """How many offsets had been deleted before they were read."""

    def __len__(self) -> int:
        return len(self.columns[0])

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """Yield the fields of each record; only callers that need records make them."""
        return zip(*self.columns, strict=True)

    def whole(self, row: int) -> Record:
        """Return a record with its headers."""
        found = Record(*(column[row] for column in self.columns))
        pairs = found.headers if self.headers is None else self.headers.all()[row]
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
    is_behind = False
    chunks: list[_Chunk] = []
    for packet in packets:
        if len(packet) == _TIME.size:
            is_behind |= _TIME.unpack(packet)[0] < recent
        else:
            chunks += marshal.loads(packet)  # noqa: S302  # from our own task
    if not chunks:
        return BucketRows(is_behind=is_behind)
    chunks.sort(key=itemgetter(0, 1))  # a partition is read by one task, in the order of offsets
    topics, partitions, expired, offsets, timestamps, keys, values, headers = zip(
        *chunks, strict=True
    )
    sizes = [len(each) for each in keys]
    numbers = [np.frombuffer(b"".join(each), "<i8") for each in (offsets, timestamps)]
    times = numbers[1]
    order: list[int] | None = None
    if not by_offset and (times[1:] < times[:-1]).any():
        places = np.argsort(times, kind="stable")
        order, numbers = places.tolist(), [each[places] for each in numbers]
    found = Headers([*zip(headers, sizes, strict=True)], order)
    return BucketRows(
        [
            _picked(_repeated(topics, sizes), order),
            _picked(_repeated(partitions, sizes), order),
            *(each.tolist() for each in numbers),
            _picked(list(chain.from_iterable(keys)), order),
            _picked(list(chain.from_iterable(values)), order),
            found.all() if with_headers else [()] * len(times),
        ],
        found,
        max(0, int(times.max(initial=0))),
        is_behind,
        sum(expired),
    )


def _unpacked(packed: bytes, rows: int) -> Iterable[Any]:
    found: Iterable[Any] = marshal.loads(packed) if packed else repeat((), rows)  # noqa: S302  # ours
    return found


def _repeated(values: Sequence[Any], sizes: Sequence[int]) -> list[Any]:
    return list(chain.from_iterable(map(repeat, values, sizes)))


def _picked(column: list[Any], order: Sequence[int] | None) -> Sequence[Any]:
    """Return a column in `order`, which names more than one row; None: as it is."""
    return column if order is None else itemgetter(*order)(column)
