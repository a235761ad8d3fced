"""Decide where a group begins, and where a partition goes on whose offset its log lacks."""

from collections.abc import Iterable
from typing import NamedTuple

from dedup.rules.lanes.offset_metadata import topic_of


class Onward(NamedTuple):
    """Where a partition goes on."""

    offset: int

    expired: int = 0
    """Offsets that the log had deleted before they were read."""

    is_other: bool = False
    """Whether the log ends before the offset: its records may be others than before."""


def is_first_start(committed: Iterable[int]) -> bool:
    """
    Return whether a group starts for the first time: it has committed nothing.

    Only then does it begin where `start` says. A partition or topic that comes later begins at its
    beginning: its records were written while the group was there.
    """
    return all(offset < 0 for offset in committed)


def is_of_another(metadata: str | None, topic_id: str | None) -> bool:
    """
    Return whether an offset was committed for an earlier topic of the same name.

    If one of the two ids is not known, the offset is taken for one of this topic.
    """
    said = topic_of(metadata)
    return said is not None and topic_id is not None and said != topic_id


def onward(position: int | None, earliest: int, end: int) -> Onward:
    """
    Return where a partition goes on that cannot be read at `position`.

    None: nothing is known of it. `earliest` and `end` are its log's.
    """
    if position is None:
        return Onward(earliest)
    if position < earliest:
        return Onward(earliest, expired=earliest - position)
    if position > end:
        return Onward(earliest, is_other=True)
    return Onward(position)
