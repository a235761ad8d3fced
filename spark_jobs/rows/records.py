"""
The records of a turn, of which only the ones that are needed are made.

Most records of a batch lose: for these, the key and the identity are all that is ever looked at.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from operator import itemgetter
from typing import Any, Protocol

from dedup.rules.policies import decode
from dedup.rules.policies.policies import Identity
from outbox.envelope import DELIVERY, ID, Pair, Record


class Message(Protocol):
    """A record as the client of Kafka has it."""

    def topic(self) -> str | None: ...
    def partition(self) -> int | None: ...
    def offset(self) -> int | None: ...
    def timestamp(self) -> tuple[int, int]: ...
    def key(self) -> Any: ...  # noqa: ANN401  # bytes or None; the client's own types say more
    def value(self) -> Any: ...  # noqa: ANN401  # as above
    def headers(self) -> Any: ...  # noqa: ANN401  # a list of pairs, or None


class Records(Protocol):
    """The records of a turn, in the order of topic, partition and offset."""

    @property
    def keys(self) -> Sequence[bytes | None]: ...
    def identity(self, row: int) -> Identity: ...
    def duplicates(self, rows: Sequence[int], of: Identity) -> int:
        """Return how many of `rows` have the identity `of`."""

    def fingerprint(self, row: int) -> Hashable: ...
    def record(self, row: int) -> Record: ...


def fields(message: Message) -> tuple[Any, ...]:
    """Return the fields of a `Record`, without making one."""
    return (
        message.topic(),
        message.partition(),
        message.offset(),
        message.timestamp()[1],
        message.key(),
        message.value(),
        message.headers() or (),
    )


class Messages:
    """Records as the client of Kafka has them."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = messages
        self.keys: list[bytes | None] = [each.key() for each in messages]

    def identity(self, row: int) -> Identity:
        return _identity(self._messages[row].headers() or (), self.record, row)

    def duplicates(self, rows: Sequence[int], of: Identity) -> int:
        messages = self._messages
        found = (messages[row].headers() or () for row in rows)
        return _duplicates(zip(rows, found, strict=True), of, self.identity)

    def fingerprint(self, row: int) -> Hashable:
        value: bytes | None = self._messages[row].value()
        return value

    def record(self, row: int) -> Record:
        return _record(fields(self._messages[row]))


class Shipped:
    """Records as the fields that came through a shuffle."""

    def __init__(self, rows: Sequence[tuple[Any, ...]]) -> None:
        self._rows = rows
        self.keys: list[bytes | None] = list(map(_KEY, rows))

    def identity(self, row: int) -> Identity:
        return _identity(self._rows[row][6], self.record, row)

    def duplicates(self, rows: Sequence[int], of: Identity) -> int:
        found = self._rows
        return _duplicates(((row, found[row][6]) for row in rows), of, self.identity)

    def fingerprint(self, row: int) -> Hashable:
        value: bytes | None = self._rows[row][5]
        return value

    def record(self, row: int) -> Record:
        return _record(self._rows[row])


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


def _record(found: tuple[Any, ...]) -> Record:
    # The named tuple's own constructor takes three times as long.
    return tuple.__new__(Record, found)


def _identity(headers: Sequence[Pair], record: Callable[[int], Record], row: int) -> Identity:
    """Return what `dedup.rules.policies.decode.identity` says; most records need only their id."""
    found = dict(reversed(headers))  # of several with one name, the first counts
    id_ = found.get(ID)
    if id_ and DELIVERY.isdisjoint(found):
        try:
            return id_.decode(), 0
        except UnicodeDecodeError:
            pass
    return decode.identity(record(row))


def _duplicates(
    rows: Iterable[tuple[int, Sequence[Pair]]],
    of: Identity,
    identity: Callable[[int], Identity],
) -> int:
    """
    Return how many of `rows`, with their headers, have the identity `of`.

    A record without the very header of that id has another identity, unless the id looks like the
    place of a record: a record without an id is known by its place.
    """
    pair = (ID, of[0].encode())
    if "/" in of[0]:
        return sum(identity(row) == of for row, _ in rows)
    return sum(identity(row) == of for row, headers in rows if pair in headers)
