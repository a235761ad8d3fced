"""The disturbances of a group's members and their times, as a sequence that a seed repeats."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class Kind(StrEnum):
    """A kind of disturbance."""

    KILL = "kill"
    """SIGKILL a member, and start another one in its place."""
    PAUSE = "pause"
    """
    SIGSTOP a member for a while, mostly longer than its session, so that it becomes a zombie.
    """
    JOIN = "join"
    """Start one more."""
    LEAVE = "leave"
    """SIGTERM one member: it drains, commits and leaves."""


_SHARES = {Kind.KILL: 40, Kind.PAUSE: 20, Kind.JOIN: 20, Kind.LEAVE: 20}
_LONGEST_WAIT = 4.0
_SHORTEST_PAUSE, _LONGEST_PAUSE = 2.0, 10.0


class Disturbance(NamedTuple):
    """One disturbance."""

    kind: Kind
    wait: float
    """Seconds to wait before it."""
    length: float
    """Its duration in seconds, if it has one."""
    victim: float
    """The member, as a share of all members."""


@dataclass(slots=True)
class Done:
    """The number of disturbances that were done."""

    kills: int = 0
    pauses: int = 0
    joins: int = 0
    leaves: int = 0

    @property
    def has_all(self) -> bool:
        """Whether each kind has come."""
        return min(self.kills, self.pauses, self.joins, self.leaves) > 0


def plan(seed: int) -> Iterator[Disturbance]:
    """Yield disturbances without end; each kind comes once within the first few."""
    chance = random.Random(seed)  # noqa: S311  # to be repeated, no secret
    first = [Kind.KILL, Kind.PAUSE, Kind.JOIN, Kind.LEAVE, Kind.KILL]
    while True:
        kind = first.pop(0) if first else chance.choices([*_SHARES], [*_SHARES.values()])[0]
        yield Disturbance(
            kind,
            chance.random() * _LONGEST_WAIT,
            chance.uniform(_SHORTEST_PAUSE, _LONGEST_PAUSE),
            chance.random(),
        )
