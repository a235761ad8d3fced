"""Decide which events of the log relays have passed, in memory that has a bound."""

from collections.abc import Sequence

_MOST = 1_000

Marks = Sequence[tuple[int, int]]
"""The number of an event and the place of its commit, both rising."""


def passed(marks: Marks, relayed: int | None) -> tuple[list[tuple[int, int]], int | None]:
    """
    Return the marks that stay, and the number up to which relays have passed all.

    They have passed an event once they confirmed a place after its commit; None: nothing new.
    """
    if relayed is None:
        return thinned(marks), None
    stay = [each for each in marks if each[1] >= relayed]
    gone = len(marks) - len(stay)
    return thinned(stay), marks[gone - 1][0] if gone else None


def thinned(marks: Marks) -> list[tuple[int, int]]:
    """
    Return the marks, or every second one of too many.

    An event without a mark of its own counts as passed with a later one: late, and never early.
    """
    if len(marks) <= _MOST:
        return list(marks)
    return [each for n, each in enumerate(marks) if n % 2 or n == len(marks) - 1]
