"""Divide the API's requests and threads among tokens, so that no tokens together take all."""

from typing import NamedTuple

MOST_AT_ONCE = 8
"""Most requests of a token that are worked on at a time: each may wait long for Kafka."""
MOST_WAITING = 64
"""Most requests of a token that wait for that."""

_REQUESTS, _REQUESTS_KEPT = 200, 40
# The page sends a few requests at a time, so with many tokens there is room for more requests.
_FEW, _MANY_REQUESTS = 8, 400
_THREADS, _THREADS_KEPT = 40, 8


class Share(NamedTuple):
    """The part that one token may take, whatever all others take."""

    at_once: int
    waiting: int


class Room(NamedTuple):
    """The whole, for all tokens and for requests that have none yet or need none."""

    requests: int
    threads: int


def share_of(tokens: int) -> Share:
    """Return the share of each of so many tokens."""
    tokens = max(1, tokens)
    at_once = max(1, min(MOST_AT_ONCE, (_THREADS - _THREADS_KEPT) // tokens))
    under_way = max((_REQUESTS - _REQUESTS_KEPT) // tokens, min(_FEW, _MANY_REQUESTS // tokens))
    return Share(at_once, max(0, min(MOST_WAITING, under_way - at_once)))


def room_for(tokens: int) -> Room:
    """Return the room in which all shares of so many tokens, and a reserve, find place."""
    share = share_of(tokens)
    return Room(
        requests=max(_REQUESTS, tokens * sum(share) + _REQUESTS_KEPT),
        threads=max(_THREADS, tokens * share.at_once + _THREADS_KEPT),
    )
