"""
Pack what one task reads by bucket before the shuffle, and unpack it after it.

A packet has everything that one task has read for one bucket, as columns of bytes and integers. So
a few large rows are shuffled instead of many small ones, and no record becomes an object of the
JVM or of Pandas on the way. A short packet has the gaps between the times of the records that a
task has read, if one of them may mean that the source lags.
"""

import marshal
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
from outbox.timestamps import END_OF_TIME
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
_MOST_GAPS = 1_000
_LATEST = 2**63 - 1
_PACKET = pa.schema([(BUCKET, pa.int32()), ("packet", pa.binary())])

_Gap: TypeAlias = tuple[int, int]
"""The times of two records between which a partition has none."""

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
    max_ahead: int | None = None
    """How far ahead of the clock a record may be, in milliseconds; None: as far as it likes."""
    wakes: bool = False
    """The first batch of a run steps all buckets."""

    def __call__(
        self, found: Iterable[Read], ids: TopicIds = NO_IDS, *, wakes: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """
        Yield one batch of packets, if anything was read; the lists of `found` are emptied.

        `wakes`: every bucket gets a packet, even if nothing was read.
        """
        chunks: dict[int, list[_Chunk]] = {}
        gaps: list[_Gap] = []
        for (topic, partition, _, _), messages, expired in found:
            if not messages and not expired:
                continue
            if messages and self.max_lag is not None:
                gaps += self._gaps(messages)
            gone = expired  # told once, by any of the buckets
            for number, columns in self._parts(partition, messages).items():
                chunk = _chunk((topic, partition, ids.get(topic, "")), gone, columns)
                chunks.setdefault(self.buckets[number], []).append(chunk)
                gone = 0
        packets = [(bucket, marshal.dumps(of, PLAIN)) for bucket, of in chunks.items()]
        if gaps or wakes:
            told = marshal.dumps((wakes, gaps), PLAIN)
            packets += [(bucket, told) for bucket in self.buckets]
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

    def _gaps(self, messages: Sequence[Message]) -> list[_Gap]:
        """
        Return the gaps in a partition's times at which the source may lag: see `_lags`.

        The clock of the batch decides that, which is the same when the batch is run again. It is
        not known here. This machine's clock is naturally later, and half of `max_lag` is a margin
        for machines whose clocks differ.
        """
        lag = self.max_lag or 0
        times = np.unique(
            _milliseconds(np.array([each.timestamp()[1] for each in messages], "<i8"))
        )
        times = times[times >= 0]
        if not times.size:
            return []
        found: list[_Gap] = []
        if self.max_ahead is not None:
            ends = np.flatnonzero(np.diff(times) > lag + self.max_ahead)[-_MOST_GAPS:]
            found = [(int(times[each]), int(times[each + 1])) for each in ends]
        newest = int(times[-1])
        if newest < time.time_ns() // 1_000_000 - lag // 2:
            found.append((newest, _LATEST))
        return found


def _lags(gaps: Iterable[_Gap], recent: int, ahead: int) -> bool:
    """
    Return whether all records of a partition are older than `recent`.

    A record later than `ahead` does not count: its clock was wrong, and it says nothing.
    """
    return any(before < recent and after > ahead for before, after in gaps)


def _milliseconds(times: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    """Return `times` as `outbox.timestamps.milliseconds` does, with -1 where it says None."""
    if not times.size or (times.min() >= 0 and times.max() < END_OF_TIME):
        return times
    found = np.where(times < END_OF_TIME, times, times // 1_000)
    return np.maximum(-1, np.where(times < END_OF_TIME * 1_000, found, times // 1_000_000))


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
    """The latest time of a record that is not ahead of the clock."""
    is_behind: bool = False
    is_woken: bool = False
    """It is to be stepped even without rows."""
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
    packets: Iterable[bytes],
    *,
    recent: int,
    by_offset: bool,
    with_headers: bool,
    ahead: int = _LATEST - 1,
) -> BucketRows:
    """
    Return the rows in `packets`.

    They are in the order of time, topic, partition and offset, or `by_offset`, of topic,
    partition and offset only. The source lags if all records of a partition are older than
    `recent`; records later than `ahead` do not count.
    """
    is_behind, is_woken, size = False, False, 0
    chunks: list[_Chunk] = []
    for packet in packets:
        size += len(packet)
        found = marshal.loads(packet)  # noqa: S302  # from our own task
        if isinstance(found, tuple):
            wakes, gaps = found
            is_woken |= wakes
            is_behind |= _lags(gaps, recent, ahead)
        else:
            chunks += found
    if not chunks:
        return BucketRows(is_behind=is_behind, is_woken=is_woken)
    chunks.sort(key=itemgetter(0, 1))  # a partition is read by one task, in the order of offsets
    topics, partitions, ids, expired, offsets, timestamps, keys, values, headers = zip(
        *chunks, strict=True
    )
    sizes = [len(each) for each in keys]
    numbers = [np.frombuffer(b"".join(each), "<i8") for each in (offsets, timestamps)]
    times = _milliseconds(numbers[1])
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
        max(0, int(times[times <= ahead].max(initial=0))),
        is_behind,
        is_woken,
        sum(expired),
        size,
        {topic: id_ for topic, id_ in zip(topics, ids, strict=True) if id_},
    )


def _repeated(values: Sequence[Any], sizes: Sequence[int]) -> list[Any]:
    return list(chain.from_iterable(map(repeat, values, sizes)))


def _picked(column: list[Any], order: Sequence[int] | None) -> Sequence[Any]:
    """Return a column in `order`, which names more than one row; None: as it is."""
    return column if order is None else itemgetter(*order)(column)
