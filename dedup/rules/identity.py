"""
The identity of the event in a record, and its round: records with an equal one are duplicates.

`outbox.envelope.identity` says what it is.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple, TypeVar

from outbox import envelope
from outbox.envelope import DELIVERY, ID, SOURCE, Pair, Record
from outbox.errors import InvalidEvent

_R = TypeVar("_R", bound=Record)

# An index entry of Postgres takes at most 2704 bytes, and a character at most four.
_LONGEST_ID, _LONGEST_SOURCE = 500, 100
_BY_TOPIC_ID = re.compile(r"[A-Za-z0-9_-]{22}(/[0-9]+/[0-9]+)")


class Identity(NamedTuple):
    """Records with an equal one are duplicates of each other."""

    source: str
    id: str
    round: int = 0
    """How often the event has come round through a retry topic."""

    @property
    def name(self) -> str:
        """`id@source`, a text that no other event has."""
        return f"{self.id}@{_without_at(self.source)}"


def identity(record: Record) -> Identity:
    """
    Return the identity of the event in `record`.

    A record whose identity cannot be read is a duplicate of nothing: its place stands for it.
    Decoding it reports the fault.
    """
    return own(record.headers, record.topic) or _identity(record)


def own(headers: Sequence[Pair], topic: str) -> Identity | None:
    """
    Return what `identity` returns, if that takes no closer look; None: it does, or it is a place.

    Most records come without a history, and need no more than these headers.
    """
    found = dict(headers)
    id_, source = found.get(ID), found.get(SOURCE)
    # An empty header does not count, nor the second of two with one name.
    if not id_ or len(found) != len(headers) or not DELIVERY.isdisjoint(found):
        return None
    try:
        return _make(Identity, (source.decode() if source else topic, id_.decode(), 0))
    except UnicodeDecodeError:
        return None


def of_topic(record: type[_R], topic_id: str | None) -> type[_R]:
    """Return the class of the records of one topic, which Kafka knows by this id."""
    return record if topic_id is None else _of_topic(record, topic_id)  # type: ignore[arg-type]  # it is hashable


@lru_cache(maxsize=4096)
def _of_topic(record: type[_R], topic_id: str) -> type[_R]:
    # On the class and not on each record: there are hundreds of thousands a second.
    named = {"topic_id": topic_id, "__module__": record.__module__}
    return type(record.__name__, (record,), named)


def are_told_apart(records: Sequence[Record]) -> bool:
    """
    Return whether the first header of each record tells that none is a duplicate of another.

    False: a closer look may find the same. Dovecote writes the id first, and the first of two ids
    is the one that counts.
    """
    ids = set()
    for record in records:
        headers = record.headers
        if not headers:
            return False
        name, id_ = headers[0]
        if name != ID or not id_:
            return False
        ids.add(id_)
    return len(ids) == len(records)


def has_id(headers: Sequence[Pair]) -> bool:
    """Return whether the event has an id of its own: the place of its record is no other's."""
    return any(name == ID and value for name, value in headers)


def stored(identity: Identity) -> str:
    """Return its name as Postgres takes it: what is too long, or not valid text, as a digest."""
    id_ = _fitting(identity.id, _LONGEST_ID)
    return f"{id_}@{_fitting(_without_at(identity.source), _LONGEST_SOURCE)}"


def stored_before(identity: Identity) -> str:
    """Return how earlier versions kept a held event; `id_alone` in the inbox's SQL is alike."""
    found = _BY_TOPIC_ID.fullmatch(identity.id)
    text = identity.id if found is None else f"{identity.source}{found[1]}"
    return text.replace("\0", "")


def _without_at(source: str) -> str:
    if "@" in source or "%" in source:
        return source.replace("%", "%25").replace("@", "%40")
    return source


def _fitting(text: str, longest: int) -> str:
    if len(text) <= longest and "\0" not in text:
        return text
    return "sha256/" + sha256(text.encode()).hexdigest()


def _identity(record: Record) -> Identity:
    if not record.headers:
        return _make(Identity, (record.topic, envelope.place(record), 0))
    try:
        source, id_ = envelope.identity(record)
        round_ = envelope.delivery(record).round if envelope.was_delivered(record) else 0
    except InvalidEvent:
        return Identity(record.topic, envelope.place(record))
    return Identity(source, id_, round_)


# The named tuple's own constructor takes three times as long.
_make = tuple.__new__
