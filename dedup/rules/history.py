"""
Decide whether the history in a record's headers is one that this consumer's group has written.

Anybody can write `dovecote_attempt` on a topic that services write to, and services copy headers
along. Believed, it is an attempt that nobody made.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from outbox.envelope import (
    ATTEMPT,
    CONTENT_TYPE,
    DELIVERY,
    HOPS,
    ID,
    ORIGIN,
    ROUND,
    SOURCE,
    SPECVERSION,
    TIME,
    TYPE,
    Pair,
)

_PLACE = re.compile(rb"[a-zA-Z0-9._-]{1,249}/[0-9]{1,10}/[0-9]{1,19}")
_ALWAYS = frozenset({ATTEMPT, ROUND, ORIGIN})
"""Every copy that we make has these."""

_OF_HEADER = 150
"""About the bytes that Python takes for a header besides its value."""

_SHARED = frozenset({SPECVERSION, TYPE, SOURCE, CONTENT_TYPE})
_MOST_KNOWN = 1_000
_LONGEST_KNOWN = 200
# The named tuple's own constructor takes three times as long.
_make = tuple.__new__


class HeadersRead(NamedTuple):
    """A record's headers, and the facts that one look at them tells."""

    headers: Sequence[Pair]
    """The headers that count; what many records share is one object."""

    id: bytes | None
    """The event's id; None: it has none, or several."""

    size: int
    """About the bytes that Python takes for all of them."""


class HeaderReader:
    """
    Looks at the headers of each record once, as they come from the client.

    The client makes three objects for each header. With thousands of records in memory these fall
    out of the processor's cache, and to read and to free them takes longer than the handler. So
    records of one kind share what they have in common. Not thread-safe.
    """

    def __init__(self) -> None:
        self._known: dict[Pair, Pair] = {}

    def read(self, headers: Sequence[Pair], *, retry: bool) -> HeadersRead:
        """Return what they tell; `retry` has the meaning that it has for `believed`."""
        known, id_ = self._known, None
        kept: list[Pair] = []
        size, is_delivered = len(headers) * _OF_HEADER, False
        for pair in headers:
            if (found := known.get(pair)) is not None:
                kept.append(found)
                size += len(found[1] or b"")
                continue
            name, value = pair
            if name == ID:
                id_ = value if id_ is None else b""
                kept.append((ID, value))
            elif name == TIME:
                kept.append((TIME, value))
            else:
                self._learn(pair)
                kept.append(pair)
                is_delivered = is_delivered or name in DELIVERY
            if value is not None:
                size += len(value)
        counted = believed(kept, retry=retry) if is_delivered else kept
        return _make(HeadersRead, (counted, id_ or None, size))

    def _learn(self, pair: Pair) -> None:
        name, value = pair
        if name in _SHARED and len(value or b"") <= _LONGEST_KNOWN:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[pair] = pair


def believed(headers: Sequence[Pair], *, retry: bool) -> Sequence[Pair]:
    """
    Return `headers` without a history that is not ours.

    `retry`: they are of a record of a retry topic, where a history counts if it is whole. On any
    other topic nothing counts but what a requeued dead letter has: its round and its origin, with
    which it is no duplicate of itself. The rounds of another history count as hops, because a
    service that copies headers in a circle is a storm.
    """
    names = [name for name, _ in headers if name in DELIVERY]
    if not names:
        return headers
    found = dict(headers)
    whole = (
        len(names) == len(set(names))
        and _ALWAYS.issubset(names)
        and _PLACE.fullmatch(found[ORIGIN] or b"") is not None
    )
    if whole and (retry or (len(names) == len(_ALWAYS) and found[ATTEMPT] == b"1")):
        return headers
    kept = [pair for pair in headers if pair[0] not in DELIVERY]
    hops = _number(found.get(ROUND)) + _number(found.get(HOPS))
    if hops == _number(found.get(HOPS)):
        return kept
    return [*(pair for pair in kept if pair[0] != HOPS), (HOPS, str(hops).encode())]


def _number(text: bytes | None) -> int:
    return int(text) if text is not None and re.fullmatch(rb"[0-9]{1,9}", text) else 0
