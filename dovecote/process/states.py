"""Name the states that a part can be in, and what each of them means."""

from collections.abc import Iterable
from enum import StrEnum

MINUTE = 60.0
"""How long what worked, and what a server answered, counts, in seconds."""

ASK_SECONDS = 20.0
"""How often a part without work asks its servers: often enough that one lost answer is no news."""


class Colour(StrEnum):
    """A class of states, as a page shows it."""

    GREEN = "green"
    AMBER = "amber"
    RED = "red"
    GREY = "grey"


class State(StrEnum):
    """The state of a part, in one word: the same in `/readyz`, commands, metrics and pages."""

    WORKING = "working"
    IDLE = "idle"
    STANDBY = "standby"
    STARTING = "starting"
    BEHIND = "behind"
    PAUSED = "paused"
    DRAINING = "draining"
    FAILING = "failing"
    STALLED = "stalled"
    UNKNOWN = "unknown"

    @classmethod
    def _missing_(cls, value: object) -> "State":  # noqa: ARG003  # whatever it is
        """Return what counts for a word that is none of ours, as another version may say it."""
        return cls.UNKNOWN

    @property
    def meaning(self) -> str:
        """Its meaning, in one sentence."""
        return _MEANINGS[self][1]

    @property
    def colour(self) -> Colour:
        return _MEANINGS[self][0]

    @property
    def is_green(self) -> bool:
        """Whether what it names worked within the last minute."""
        return self.colour is Colour.GREEN

    @property
    def exit_status(self) -> int:
        """The exit status of a command that shows it: 0 if nobody has to do anything now."""
        return 0 if self in _CALM else 1


_MEANINGS: dict[State, tuple[Colour, str]] = {
    State.WORKING: (Colour.GREEN, "It did what it is for within the last minute."),
    State.IDLE: (
        Colour.GREEN,
        "It has nothing to do, and its servers answered within the last minute.",
    ),
    State.STANDBY: (
        Colour.GREEN,
        "It is ready to take over, and its servers answered within the last minute.",
    ),
    State.STARTING: (Colour.AMBER, "It has begun, and has not worked yet."),
    State.BEHIND: (Colour.AMBER, "It works, and its lag is over its bound."),
    State.PAUSED: (Colour.AMBER, "An operator stopped it."),
    State.DRAINING: (Colour.AMBER, "It is ending, and finishes what it has begun."),
    State.FAILING: (Colour.RED, "It tries, and fails."),
    State.STALLED: (Colour.RED, "It has work, and nothing moves."),
    State.UNKNOWN: (Colour.GREY, "Nothing was heard of it within the last minute."),
}

_CALM = frozenset({State.WORKING, State.IDLE, State.STANDBY, State.BEHIND, State.PAUSED})

_WORST_FIRST = (
    State.STALLED,
    State.FAILING,
    State.UNKNOWN,
    State.BEHIND,
    State.STARTING,
    State.DRAINING,
    State.PAUSED,
    State.WORKING,
    State.IDLE,
    State.STANDBY,
)


def severity(state: State) -> int:
    """Return a number by which states are sorted, the worst first: 0 is the worst."""
    return _WORST_FIRST.index(state)


def worst(states: Iterable[State]) -> State:
    """Return the state of a whole whose members have these; without a member it is unknown."""
    return min(states, key=severity, default=State.UNKNOWN)


def exit_status(states: Iterable[State]) -> int:
    """Return the exit status of a command that shows these: the largest of theirs."""
    return max((each.exit_status for each in states), default=0)
