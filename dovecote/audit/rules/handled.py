"""Decide whether a record that a group has passed was handled, waits, or is dead."""

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import NamedTuple

from dovecote.audit.rules.matching import Raw

_LONGEST_ID, _LONGEST_SOURCE, _LONGEST_ROUND = 500, 100, 10


class Passed(NamedTuple):
    """A record below its group's committed offset."""

    topic: int
    partition: int
    offset: int
    at: int
    id: str
    """`id@source`, as inboxes have it."""
    round: int
    key: bytes | None


class Aside(NamedTuple):
    """A copy of a record on a retry topic, or a dead letter."""

    id: str
    round: int
    group: str | None
    at: int


def passed(raw: Raw, topic: str) -> Passed | None:
    """Return the event of a record; None: it has no id of its own."""
    named = _first(raw)
    id_ = named.get("ce_id")
    if not id_:
        return None
    source = named.get("ce_source")
    home = _home(named.get("dovecote_origin"), topic) if source is None else _text(source)
    name = stored(_text(id_), home)
    return Passed(*raw[:4], name, _number(named.get("dovecote_round")), raw[4])


def aside(raw: Raw, topic: str) -> Aside | None:
    """Return the event of a copy; None: it has none, or reports what became of a letter."""
    named = _first(raw)
    if "dovecote_resolves" in named:
        return None
    found = passed(raw, topic)
    group = named.get("dovecote_group")
    return found and Aside(found.id, found.round, None if group is None else _text(group), raw[3])


def _first(raw: Raw) -> dict[str, bytes]:
    """Return the headers; an empty one does not count, nor the second of two with one name."""
    return {name: value for name, value in reversed(raw[6]) if value}


def _home(origin: bytes | None, topic: str) -> str:
    """Return the topic that stands for the source of a record without one: that of its origin."""
    home, *numbers = _text(origin or b"").rsplit("/", 2)
    return home if home and len(numbers) == 2 else topic  # noqa: PLR2004  # a place


def stored(id_: str, source: str) -> str:
    """Return the name of an event as inboxes have it."""
    source = source.replace("%", "%25").replace("@", "%40")
    return f"{_fitting(id_, _LONGEST_ID)}@{_fitting(source, _LONGEST_SOURCE)}"


def missing(
    records: Iterable[Passed],
    handled: Iterable[tuple[str, int]],
    put_aside: Mapping[str, Iterable[tuple[int, bool]]],
) -> list[Passed]:
    """
    Return the records that were neither handled nor put aside.

    `put_aside` has rounds of copies by event, and whether each is a dead letter.
    """
    known = set(handled)
    return [
        each
        for each in records
        if (each.id, each.round) not in known
        and not any(dead or round_ > each.round for round_, dead in put_aside.get(each.id, ()))
    ]


def _text(value: bytes) -> str:
    return value.decode(errors="replace")


def _number(value: bytes | None) -> int:
    """Return a round; one that no inbox can have is 0, because stores have a largest number."""
    is_one = value is not None and value.isdigit() and len(value) <= _LONGEST_ROUND
    return int(value or 0) if is_one else 0


def _fitting(text: str, longest: int) -> str:
    if len(text) <= longest and "\0" not in text:
        return text
    return "sha256/" + sha256(text.encode()).hexdigest()
