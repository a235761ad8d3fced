"""
The records of a turn, of which only the ones that are needed are made.

Most records of a batch lose: for these, the key and the identity are all that is ever looked at.
"""

import marshal
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from types import MappingProxyType
from typing import Any, Protocol, TypeAlias

from dedup.rules import identity as identities
from dedup.rules.history import believed
from dedup.rules.identity import Identity, of_topic
from outbox.envelope import ID, Pair, Record
from outbox.kafka import fields_of, headers_of

_BLOCK = 5_000
NO_IDS: Mapping[str, str] = MappingProxyType({})
PLAIN = 2
"""The version of `marshal`: later ones ask of each object whether it has come before."""


class Message(Protocol):
    """A record as the client of Kafka has it."""

    def topic(self) -> str | None: ...
    def partition(self) -> int | None: ...
    def offset(self) -> int | None: ...
    def timestamp(self) -> tuple[int, int]: ...
    def key(self) -> Any: ...  # noqa: ANN401  # bytes or None; the client's own types say more
    def value(self) -> Any: ...  # noqa: ANN401  # as above
    def headers(self) -> Any: ...  # noqa: ANN401  # a list of pairs, or None


TopicIds: TypeAlias = Mapping[str, str]
"""Kafka's ids of topics, by their names, as far as they are known."""


class Records(Protocol):
    """The records of a turn, in the order of topic, partition and offset."""

    @property
    def keys(self) -> Sequence[bytes | None]: ...
    def identity(self, row: int) -> Identity: ...
    def fingerprint(self, row: int) -> Hashable: ...
    def record(self, row: int) -> Record: ...
    def duplicates(self, rows: Iterable[int], of: Identity) -> int:
        """Return how many of `rows` have the identity `of`, and let go of each."""

    def let_go(self, rows: Iterable[int]) -> None:
        """Free the memory of `rows`, which nothing asks for any more."""


def shipped(message: Message) -> tuple[Any, ...]:
    """Return the fields of a record, as `Shipped` has them."""
    return (
        message.topic(),
        message.partition(),
        message.offset(),
        message.timestamp()[1],
        message.key(),
        message.value(),
        packed(headers_of(message)),
    )


def packed(headers: Sequence[Pair]) -> bytes:
    """Return headers as bytes, which cost little until they are unpacked."""
    return marshal.dumps(list(headers), PLAIN) if headers else b""


def unpacked(headers: bytes) -> Sequence[Pair]:
    """Return what `packed` had."""
    found: Sequence[Pair] = marshal.loads(headers) if headers else ()  # noqa: S302  # from our own task
    return found


def blocks(messages: list[Message]) -> Iterator[list[Message]]:
    """
    Yield `messages` in order, some thousands at a time; the list is empty afterwards.

    Messages keep the headers that they have made, and these soon fill more memory than the values.
    """
    messages.reverse()
    while messages:
        block = messages[-_BLOCK:]
        del messages[-_BLOCK:]
        block.reverse()
        yield block


class Messages:
    """Records as the client of Kafka has them."""

    def __init__(self, messages: list[Message], ids: TopicIds = NO_IDS) -> None:
        """Take `messages` over: the list is emptied while they are decided."""
        self._ids = ids
        self.keys: list[bytes | None] = [each.key() for each in messages]
        self._messages: list[Any] = messages  # None: let go

    def identity(self, row: int) -> Identity:
        message = self._messages[row]
        found = identities.own(headers_of(message), message.topic())
        return found or identities.identity(self.record(row))

    def fingerprint(self, row: int) -> Hashable:
        value: bytes | None = self._messages[row].value()
        return value

    def record(self, row: int) -> Record:
        return _believed(record_of(fields_of(self._messages[row]), self._ids))

    def duplicates(self, rows: Iterable[int], of: Identity) -> int:
        messages, found = self._messages, 0
        pair, by_place = (ID, of.id.encode()), _may_be_place(of)
        for row in rows:
            message = messages[row]
            if (pair in headers_of(message) or by_place) and self.identity(row) == of:
                found += 1
            # A message keeps the headers that it has made. Freed at once, their memory serves the
            # next one, which takes half of the time.
            messages[row] = None
        return found

    def let_go(self, rows: Iterable[int]) -> None:
        for row in rows:
            self._messages[row] = None


class Shipped:
    """Records as the fields that came through a shuffle, with their headers in packed form."""

    def __init__(self, rows: Sequence[tuple[Any, ...]], ids: TopicIds = NO_IDS) -> None:
        self._rows, self._ids = rows, ids
        self.keys: list[bytes | None] = list(map(_KEY, rows))

    def identity(self, row: int) -> Identity:
        of = self._rows[row]
        return identities.own(unpacked(of[6]), of[0]) or identities.identity(self.record(row))

    def fingerprint(self, row: int) -> Hashable:
        value: bytes | None = self._rows[row][5]
        return value

    def record(self, row: int) -> Record:
        *rest, headers = self._rows[row]
        return _believed(record_of((*rest, unpacked(headers)), self._ids))

    def remembered(self, row: int) -> Identity | None:
        """Return its identity; None: it is known by its place, and is a duplicate of nothing."""
        of = self._rows[row]
        headers = unpacked(of[6])
        found = identities.own(headers, of[0])
        if found is None and identities.has_id(headers):
            return identities.identity(self.record(row))
        return found

    def duplicates(self, rows: Iterable[int], of: Identity) -> int:
        # Packed headers contain the very bytes of an id, so most need not be unpacked.
        id_, by_place, found = of.id.encode(), _may_be_place(of), self._rows
        return sum(self.identity(row) == of for row in rows if id_ in found[row][6] or by_place)

    def let_go(self, rows: Iterable[int]) -> None:
        """Do nothing: the headers of these take no memory before they are unpacked."""


def by_key(keys: Iterable[bytes | None]) -> list[tuple[bytes | None, list[int]]]:
    """Return the rows of each key, in the order of their first; a row without a key is alone."""
    found: dict[bytes, list[int]] = {}
    alone: list[tuple[None, list[int]]] = []
    for row, key in enumerate(keys):
        if key is None:
            alone.append((None, [row]))
        elif key in found:
            found[key].append(row)
        else:
            found[key] = [row]
    return [*found.items(), *alone]


_KEY = itemgetter(4)


def record_of(found: tuple[Any, ...], ids: TopicIds) -> Record:
    """Return the record with these fields, which knows the id of its topic."""
    # The named tuple's own constructor takes three times as long.
    made: Record = tuple.__new__(of_topic(Record, ids.get(found[0])), found)
    return made


def _believed(record: Record) -> Record:
    """
    Return a record without a history that is not ours.

    A retried record comes back on the topic that it was read from, so there a whole one counts.
    """
    headers = believed(record.headers, retry=True)
    return record if headers is record.headers else record._replace(headers=headers)


def _may_be_place(of: Identity) -> bool:
    """Return whether a record without an id, which is known by its place, may be this one."""
    return "/" in of.id
