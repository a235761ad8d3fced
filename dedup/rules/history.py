"""
Decide whether the history in a record's headers is one that this consumer's group has written.

Anybody can write `dovecote_attempt` on a topic that services write to, and services copy headers
along. Believed, it is an attempt that nobody made.
"""

import re
from collections.abc import Sequence

from outbox.envelope import (
    ATTEMPT,
    DELIVERY,
    HOPS,
    ORIGIN,
    ROUND,
    Pair,
)

_PLACE = re.compile(rb"[a-zA-Z0-9._-]{1,249}/[0-9]{1,10}/[0-9]{1,19}")
_ALWAYS = frozenset({ATTEMPT, ROUND, ORIGIN})
"""Every copy that we make has these."""


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
