"""The effect of one change of a contract on readers, in each direction."""

from dataclasses import dataclass
from enum import StrEnum

BACKWARD = "new readers of old records"
FORWARD = "old readers of new records"


class Verdict(StrEnum):
    """The effect of a change on readers of one direction."""

    FINE = "fine"
    BREAKS = "breaks"
    NOT_JUDGED = "not judged"
    """Nobody can say; it is treated as a break."""


class Compatibility(StrEnum):
    """The readers that no change may break."""

    BACKWARD = "backward"
    FORWARD = "forward"
    FULL = "full"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Change:
    """A difference between two contracts or schemas."""

    path: str
    """Where: `value.lines[].price`, or `event` for what is not in the value."""
    what: str
    """The difference in words."""
    backward: Verdict
    """For new readers of old records."""
    forward: Verdict
    """For old readers of new records."""
    why: str = ""
    """Why it breaks somebody."""

    def breaks(self, wanted: Compatibility) -> bool:
        """Return whether the change breaks one whom none may break."""
        asked = {
            Compatibility.BACKWARD: (self.backward,),
            Compatibility.FORWARD: (self.forward,),
            Compatibility.FULL: (self.backward, self.forward),
            Compatibility.NONE: (),
        }[wanted]
        return any(each is not Verdict.FINE for each in asked)


def fine(path: str, what: str) -> Change:
    """Return a change that breaks nobody."""
    return Change(path, what, Verdict.FINE, Verdict.FINE)


def narrower(path: str, what: str, why: str = "") -> Change:
    """Return a change after which fewer values are valid."""
    why = why or "old records may have values that are valid no more"
    return Change(path, what, Verdict.BREAKS, Verdict.FINE, why)


def wider(path: str, what: str, why: str = "") -> Change:
    """Return a change after which more values are valid."""
    why = why or "new records may have values that old readers refuse"
    return Change(path, what, Verdict.FINE, Verdict.BREAKS, why)


def both(path: str, what: str, why: str) -> Change:
    """Return a change that breaks both directions."""
    return Change(path, what, Verdict.BREAKS, Verdict.BREAKS, why)


def not_judged(path: str, what: str) -> Change:
    """Return a change of which nobody can say what it does."""
    why = "Dovecote cannot judge it, and treats it as a break"
    return Change(path, what, Verdict.NOT_JUDGED, Verdict.NOT_JUDGED, why)
