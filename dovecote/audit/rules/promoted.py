"""Decide whether a server that was promoted lacks commits that were read from its predecessor."""

from typing import NamedTuple


class Reach(NamedTuple):
    """How far the write-ahead log of a server reaches, in bytes."""

    timeline: int = 0
    """0: the server does not say, or is a standby."""
    end: int = 0
    begun: int | None = None
    """Up to where it had the log of its predecessor; None: it has none, or does not say."""


def lacks_commits(known: Reach, now: Reach) -> bool:
    """Return whether `now` is a successor that has less of the log than was read."""
    is_next = 0 < known.timeline == now.timeline - 1
    return is_next and now.begun is not None and now.begun < known.end
