"""Decide which batch of a Spark job took a record."""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeAlias

from dedup.rules.unread import Place
from dovecote.observe.find.rules.facts import Batch
from spark_jobs.sink.markers import Marker

Ends: TypeAlias = Mapping[str, Mapping[int, int]]
"""The next offset to read, by topic and partition."""


def took(place: Place, numbers: Sequence[int], ends: Callable[[int], Ends]) -> int | None:
    """
    Return the batch that read a record; None: none has, or the log no longer tells which.

    `numbers` are the batches whose ends the log has, in order; a batch never reads less far than
    the one before.
    """

    def passes(number: int) -> bool:
        return ends(number).get(place.topic, {}).get(place.partition, -1) > place.offset

    at = bisect_left(numbers, 1, key=lambda each: int(passes(each)))
    if at == len(numbers) or (at == 0 and numbers[0] > 0):
        return None
    return numbers[at]


def in_markers(places: Collection[Place], markers: Iterable[Marker]) -> dict[Place, Batch]:
    """Return the batches of records that are in the newest markers of a job."""
    found: dict[Place, Batch] = {}
    for marker in markers:
        for place in places:
            first, last = marker.ranges.get(place.topic, {}).get(place.partition, (0, -1))
            if first <= place.offset <= last:
                found[place] = Batch(marker.batch, finished=False)
    return found
