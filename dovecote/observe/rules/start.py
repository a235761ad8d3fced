"""Where a reader begins: `beginning`, `end`, the last N records of a partition, or a time."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from dovecote.process.settings.durations import duration
from outbox.errors import BadSettings

_LAST = re.compile(r"-(\d{1,9})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Start:
    """A place in each partition of a topic."""

    edge: Literal["beginning", "end"] | None = None
    last: int | None = None
    """So many offsets before the end; transactions take some of them."""
    at: datetime | None = None
    """The first record of this time or later."""


def start_of(text: str, *, now: datetime) -> Start:
    """
    Return the start that a text names.

    Raises:
        BadSettings: it names none.
    """
    if text in {"beginning", "end"}:
        return Start(edge="beginning" if text == "beginning" else "end")
    if found := _LAST.fullmatch(text):
        return Start(last=int(found[1]))
    try:
        return Start(at=now - _ago(text) if text.endswith(" ago") else _time(text, now))
    except (ValueError, OverflowError):
        msg = (
            f"{text!r} is no start: write beginning, end, -20 for the last 20 of each partition, "
            '"15m ago", or a time such as 2026-02-01T09:30+01:00'
        )
        raise BadSettings(msg) from None


def _ago(text: str) -> timedelta:
    found = duration(text.removesuffix(" ago"))
    if not isinstance(found, timedelta):  # it raises ValueError for what is none
        raise TypeError
    return found


def _time(text: str, now: datetime) -> datetime:
    time = datetime.fromisoformat(text)
    return time if time.tzinfo is not None else time.replace(tzinfo=now.tzinfo)


def first_offsets(
    start: Start, ends: Mapping[int, tuple[int, int]], by_time: Mapping[int, int]
) -> dict[int, int]:
    """
    Return the offset at which each partition is begun.

    `ends` has the first offset and the one after the last. `by_time` has the first offset of the
    time that is asked for, or a negative number where there is none.
    """
    found: dict[int, int] = {}
    for partition, (low, high) in ends.items():
        if start.edge == "beginning":
            found[partition] = low
        elif start.last is not None:
            found[partition] = max(low, high - start.last)
        elif start.at is not None and by_time.get(partition, -1) >= 0:
            found[partition] = max(low, by_time[partition])
        else:
            found[partition] = high
    return found
