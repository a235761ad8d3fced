"""Decide what a note of an operator steps over: offsets of a partition that cannot be read."""

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import NamedTuple, Self

_PLACE = re.compile(r"([a-zA-Z0-9._-]{1,249})/(\d{1,9})/(\d{1,18})")


class Place(NamedTuple):
    """One offset of a partition."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"


def place_of(text: str) -> Place:
    """
    Return the place that `orders/0/42` names.

    Raises:
        ValueError: it names none.
    """
    found = _PLACE.fullmatch(text)
    if found is None:
        msg = f"{text!r} is no place of a record: write topic/partition/offset, as in orders/0/42"
        raise ValueError(msg)
    return Place(found[1], int(found[2]), int(found[3]))


@dataclass(frozen=True, slots=True, kw_only=True)
class SkipNote:
    """Offsets of a partition that a group steps over if it cannot read them."""

    group: str
    topic: str
    partition: int
    first: int
    until: int
    """The offset at which the group goes on."""
    topic_id: str | None
    """Kafka's id of the topic: one that was made anew has other records at these offsets."""
    error: str
    """Why the records could not be read."""
    by: str
    at: str
    """The time in UTC, as ISO 8601 has it."""
    why: str

    def encode(self) -> tuple[bytes, bytes]:
        """Return the key and the value of its record; a later note of an offset replaces it."""
        key = json.dumps([self.group, self.topic, self.partition, self.first])
        return key.encode(), json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, value: bytes | None) -> Self | None:
        """Return the note in a record's value; None: there is none."""
        try:
            found = cls(**json.loads(value or b""))
        except (ValueError, TypeError, RecursionError):  # whatever somebody has written there
            return None
        numbers = (found.partition, found.first, found.until)
        topic_id = "" if found.topic_id is None else found.topic_id
        texts = (found.group, found.topic, topic_id, found.error, found.by, found.at, found.why)
        sound = all(type(each) is int for each in numbers) and all(
            type(each) is str for each in texts
        )
        return found if sound and 0 <= found.first < found.until else None

    def covers(self, place: Place, topic_id: str | None) -> bool:
        """Return whether it is of a place; an id that is not known is taken for the same."""
        return (
            (self.topic, self.partition) == place[:2]
            and self.first <= place.offset < self.until
            and (None in {self.topic_id, topic_id} or self.topic_id == topic_id)
        )


def covering(
    notes: Iterable[SkipNote], place: Place, topic_id: str | None = None
) -> SkipNote | None:
    """Return the newest of the notes that cover a place."""
    return max(
        (each for each in notes if each.covers(place, topic_id)),
        key=lambda each: each.at,
        default=None,
    )


class Unread(NamedTuple):
    """The answer to one attempt to read at an offset that failed."""

    offset: int
    """The offset that the client names: the first of the batch, or the one that was asked for."""
    error: str


MOST_TRIED = 200
"""Most offsets that are tried one by one."""


def end_of_unread(read: Callable[[int], Unread | None], at: int, end: int) -> int | None:
    """
    Return the first offset after `at` that is not of the batch that cannot be read there.

    `read` returns None for an offset that can be read, `end` is the end of the log. The client
    names the first offset of a batch that it cannot unpack, so the end of that batch is searched
    for in a few steps. If it names the offset that was asked for, each offset is tried.

    None: more than `MOST_TRIED` in turn cannot be read.
    """
    first = read(at)
    if first is None:
        return at
    if first.offset < at or ((then := read(at + 1)) is not None and then.offset <= at):
        return _end_of_batch(read, first.offset, at, end)
    for offset in range(at + 1, min(end, at + MOST_TRIED)):
        if (found := read(offset)) is None or found.offset != offset:
            return offset
    return end if end <= at + MOST_TRIED else None


def _end_of_batch(read: Callable[[int], Unread | None], base: int, at: int, end: int) -> int:
    def is_of_it(offset: int) -> bool:
        found = read(offset)
        return found is not None and found.offset <= base

    low, step = at, 1
    while (high := min(at + step, end)) < end and is_of_it(high):
        low, step = high, 2 * step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if is_of_it(middle) else (low, middle)
    return high
