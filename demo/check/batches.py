"""
Which records each micro-batch had as its input, told by two witnesses.

The markers, which the job commits together with its output, and Spark's own log of offsets in
the checkpoint must agree about every record.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

from demo.check.records import Counts, Marker, Record, Spark

Place: TypeAlias = tuple[int, int]
"""Partition and offset."""


class Inputs(NamedTuple):
    """The input of each batch, and what the witnesses do not agree on."""

    records: dict[int, list[Record]]
    """In order within each partition."""

    wrong: int
    notes: tuple[str, ...]


def split(records: Sequence[Record], spark: Spark) -> Inputs:
    """Give each of `records`, in order within a partition, to the batch whose markers have it."""
    planned = _covered(records, _planned(spark))
    inputs: dict[int, list[Record]] = {batch.number: [] for batch in spark.batches}
    notes: list[str] = [*_misplaced_ends(records, spark), *_odd_markers(spark)]
    marked = _covered(records, _marked(spark))
    for record in records:
        place = record.partition, record.offset
        told = marked.get(place, [])
        for batch in told:
            inputs.setdefault(batch, []).append(record)
        if len(told) != 1 or told != planned.get(place):
            notes.append(
                f"{record.place}: in batch {told or None} by the markers, "
                f"{planned.get(place) or None} by Spark's log"
            )
    return Inputs(inputs, len(notes), tuple(notes))


def miscounted(batch: int, markers: Iterable[Marker], counted: Counts) -> list[str]:
    """Return where the markers of `batch` count otherwise than `counted`."""
    told = Counts.total(marker.counts for marker in markers if marker.batch == batch)
    return [
        f"batch {batch}: the markers count {says} {name}, not {is_}"
        for name, says, is_ in zip(Counts._fields, told, counted, strict=True)
        if says != is_
    ]


class _Span(NamedTuple):
    """Offsets of one partition that a witness gives to a batch; both ends belong to it."""

    batch: int
    partition: int
    first: int
    last: int


def _planned(spark: Spark) -> list[_Span]:
    """Return what Spark's log says."""
    return [
        _Span(batch.number, partition, batch.start.get(partition, 0), end - 1)
        for batch in spark.batches
        for partition, end in batch.end.items()
    ]


def _marked(spark: Spark) -> list[_Span]:
    """Return what the markers say: from the lowest offset of any to the highest."""
    spans: dict[tuple[int, int], _Span] = {}
    for marker in spark.markers:
        for partition, (first, last) in marker.ranges.items():
            known = spans.get((marker.batch, partition))
            lowest, highest = (first, last) if known is None else known[2:]
            spans[marker.batch, partition] = _Span(
                marker.batch, partition, min(lowest, first), max(highest, last)
            )
    return list(spans.values())


def _covered(records: Iterable[Record], spans: Iterable[_Span]) -> dict[Place, list[int]]:
    """Return by place the batches that have it: exactly one, if all is well."""
    offsets: dict[int, list[int]] = {}
    for record in records:
        offsets.setdefault(record.partition, []).append(record.offset)
    found: dict[Place, list[int]] = {}
    for span in sorted(spans):
        there = offsets.get(span.partition, [])
        for offset in there[bisect_left(there, span.first) : bisect_right(there, span.last)]:
            found.setdefault((span.partition, offset), []).append(span.batch)
    return found


def _misplaced_ends(records: Iterable[Record], spark: Spark) -> list[str]:
    """Return the ends of ranges at which there is no record."""
    places = {(record.partition, record.offset) for record in records}
    return [
        f"batch {marker.batch}, marker {marker.partition}: no record at {partition}/{offset}"
        for marker in spark.markers
        for partition, ends in marker.ranges.items()
        for offset in sorted(set(ends))
        if (partition, offset) not in places
    ]


def _odd_markers(spark: Spark) -> list[str]:
    """Return what no marker of a finished query of one run can be."""
    committed = {batch.number for batch in spark.batches}
    turns = Counter((marker.batch, marker.partition) for marker in spark.markers)
    counts = {marker.partitions for marker in spark.markers}
    return [
        *(f"batch {batch} was planned and not committed" for batch in spark.uncommitted),
        *(f"marker {turn} is there {times} times" for turn, times in turns.items() if times > 1),
        *(
            f"batch {marker.batch}, marker {marker.partition}: of query {marker.query}, "
            f"not {spark.query}"
            for marker in spark.markers
            if marker.query != spark.query
        ),
        *(
            f"batch {marker.batch}, marker {marker.partition}: no such batch in Spark's log"
            for marker in spark.markers
            if marker.batch not in committed
        ),
        *([f"markers of different shuffles: {sorted(counts)}"] if len(counts) > 1 else []),
    ]
