"""Until when partitions are taken for this consumer's own: by what was heard of the group."""

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from dedup.rules.policies.results import Early
from dovecote.process.rarely import Rarely

_rarely = Rarely(logging.getLogger("dovecote.consumer"))

UNCERTAIN_SECONDS = 0.1
"""For so long a lane is held whose partition may be another member's."""


@dataclass(slots=True, eq=False)
class Certainty:
    """
    What the poll thread says, and whoever is about to begin a record looks at.

    It costs a look at the clock. What was begun is not stopped by it: between the look and the
    effect a process may stand still for as long as it likes.
    """

    until: float = math.inf
    """By the monotonic clock, which goes on while a process is stopped."""

    doubted: Callable[[], None] | None = None
    """Is told of each record or lane that has to wait."""

    def doubt(self) -> Early:
        """Note that a record is not begun; return what that stands for."""
        _rarely.warning(
            "nothing was heard of the group for long: records wait until it says that their "
            "partitions are still this member's"
        )
        if self.doubted is not None:
            self.doubted()
        return Early("not certain to be ours", timedelta(seconds=UNCERTAIN_SECONDS))
