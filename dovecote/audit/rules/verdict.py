"""Decide what an open row or an open record means."""

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

Missing: TypeAlias = Literal["lost", "dropped", "unjudged", "compacted"]
Surplus: TypeAlias = Literal["again", "new_topic", "doubled", "repeat", "phantom", "unjudged"]

SKEW = 60_000
"""How far the clocks of services, servers and relays may be apart, in milliseconds."""


class Gap(NamedTuple):
    """Offsets of a partition that were deleted before they were looked at."""

    first: int
    end: int
    until: int
    """The time of the first record after them, or of the discovery."""


class Open(NamedTuple):
    """A row without a record, although a relay has passed it and the topic was read to its end."""

    appended: int
    was_parked: bool
    anew_at: int
    gaps: Sequence[Gap]
    kept_for: int | None
    """How long the topic keeps records, in milliseconds; None: by size too, or not known."""
    superseded: bool
    """The topic is compacted, and the key has a later row."""
    now: int


def of_row(row: Open) -> Missing:
    """Return what became of a row."""
    if row.was_parked:
        return "dropped"
    if row.superseded:
        return "compacted"
    if row.appended <= row.anew_at:
        return "unjudged"
    explained = row.kept_for is None or row.now - row.appended >= row.kept_for - SKEW
    if explained and any(row.appended <= gap.until + SKEW for gap in row.gaps):
        return "unjudged"
    return "lost"


class Alone(NamedTuple):
    """A record without a row, although all committed rows were read after it."""

    at: int
    made: int | None
    """The time in its id; None: it holds none."""
    first: tuple[int, int, int] | None
    """Incarnation, partition and offset of the record that was matched with this id."""
    own: tuple[int, int, int]
    has_row: bool
    """Postgres has a row with this id all the same."""
    at_least_once: bool
    blind: Sequence[tuple[int, int, int]]
    """
    For each outbox, times in which rows may have come and gone unseen: from, until, and up to
    when the missing rows were written.
    """


def of_record(record: Alone) -> Surplus:
    """Return what a record without a row of its own is."""
    if record.first == record.own:
        return "again"
    if record.first is not None and record.first[0] != record.own[0]:
        return "new_topic"
    if record.first is not None or record.has_row:
        return "repeat" if record.at_least_once else "doubled"
    for begin, end, written in record.blind:
        is_in = begin - SKEW <= record.at <= end + SKEW
        is_old = record.made is not None and record.made <= written + SKEW
        if (is_old and record.at <= end + SKEW) or (record.made is None and is_in):
            return "unjudged"
    return "phantom"
