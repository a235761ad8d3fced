"""Order letters of all parts, and remember where a page ends."""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from datetime import datetime
from typing import NamedTuple, TypeAlias

from dedup.rules.unread import place_of
from dovecote.observe.dead.shapes import Letter
from outbox.errors import BadSettings

Numbers: TypeAlias = tuple[int, int]
"""Partition and offset."""

_BELOW: Numbers = (-1, -1)
_ABOVE: Numbers = (2**31, 2**63)
# Every id lies between these two.
_FIRST_TEXT, _LAST_TEXT = "", "~"


class Before(NamedTuple):
    """The letter that a page ends with."""

    at: datetime
    part: str
    place: str

    def numbers(self, part: str) -> tuple[datetime, Numbers]:
        """Return the bound of a part whose places are those of records."""
        if part != self.part:
            return self.at, _ABOVE if part < self.part else _BELOW
        return self.at, numbers_of(self.place) or _BELOW

    def text(self, part: str) -> tuple[datetime, str]:
        """Return the bound of a part whose places end in ids."""
        if part != self.part:
            return self.at, _LAST_TEXT if part < self.part else _FIRST_TEXT
        return self.at, self.place.rpartition("/")[2]


def order(letter: Letter) -> tuple[datetime, str, Numbers, str]:
    """Return what letters are ordered by: the newest have the greatest."""
    place = letter.place
    return letter.at, letter.part, numbers_of(place) or _BELOW, place.rpartition("/")[2]


def numbers_of(place: str) -> Numbers | None:
    """Return the partition and offset of `topic/partition/offset`; None: it is no place."""
    try:
        return place_of(place)[1:]
    except ValueError:
        return None


def encoded(letter: Letter) -> str:
    """Return the end of a page as text."""
    told = [letter.at.isoformat(), letter.part, letter.place]
    return urlsafe_b64encode(json.dumps(told).encode()).decode()


def decoded(after: str) -> Before:
    """
    Return the end of a page.

    Raises:
        BadSettings: `after` is not what `encoded` returned.
    """
    try:
        at, part, place = json.loads(urlsafe_b64decode(after.encode()))
        found = Before(datetime.fromisoformat(at), str(part), str(place))
    except (ValueError, TypeError, RecursionError) as error:
        msg = "this is not where a page of letters ended: begin again without `after`"
        raise BadSettings(msg) from error
    if found.at.tzinfo is None:
        msg = "this is not where a page of letters ended: begin again without `after`"
        raise BadSettings(msg)
    return found
