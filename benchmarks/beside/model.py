"""The right results of the stateful kinds of work, and how those of a contender differ: pure."""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias, TypeVar

_Place = TypeVar("_Place", bound=Hashable)
_Value = TypeVar("_Value")

Session: TypeAlias = tuple[bytes, int]
"""A session by its key and the number of its first record."""


class Differences(NamedTuple):
    """How what was written differs from what is right."""

    lost: int
    repeated: int
    wrong: int


def sessions(numbers: Mapping[bytes, Sequence[int]], gap: int) -> dict[Session, tuple[int, ...]]:
    """
    Return the numbers of each session, which are also its records' times.

    A record belongs to the session before it if it is at most `gap` later.
    """
    found: dict[Session, tuple[int, ...]] = {}
    for key, its in numbers.items():
        mine: list[int] = []
        for number in sorted(its):
            if mine and number - mine[-1] > gap:
                found[key, mine[0]] = tuple(mine)
                mine = []
            mine.append(number)
        if mine:
            found[key, mine[0]] = tuple(mine)
    return found


def closed(all_: Mapping[Session, tuple[int, ...]], ahead: int) -> dict[Session, tuple[int, ...]]:
    """Return the sessions whose key has a record that is more than `ahead` after their last."""
    newest: dict[bytes, int] = {}
    for (key, _), numbers in all_.items():
        newest[key] = max(newest.get(key, 0), numbers[-1])
    return {
        place: numbers for place, numbers in all_.items() if newest[place[0]] - numbers[-1] > ahead
    }


def firsts(events: Iterable[tuple[bytes, int]], round_: int) -> dict[tuple[bytes, int], int]:
    """Return the first event of each key in each round of `round_` numbers."""
    found: dict[tuple[bytes, int], int] = {}
    for key, event in events:
        found.setdefault((key, event // round_), event)
    return found


def differences(
    right: Mapping[_Place, _Value], written: Iterable[tuple[_Place, _Value]]
) -> Differences:
    """Compare what was written at each place with what should be there, once."""
    seen: Counter[_Place] = Counter()
    wrong = 0
    for place, value in written:
        seen[place] += 1
        wrong += place not in right or right[place] != value
    return Differences(
        lost=sum(1 for place in right if place not in seen),
        repeated=sum(count - 1 for count in seen.values()),
        wrong=wrong,
    )


def overtaken(times: Sequence[float], keys: int) -> int:
    """
    Return how many records came before the one before them of their key.

    `times` has when each number came, 0 if it did not; a number's key is its remainder by `keys`.
    """
    pairs = zip(times, times[keys:], strict=False)
    return sum(1 for before, after in pairs if after and after < before)
