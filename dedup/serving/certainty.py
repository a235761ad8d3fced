"""Track until when partitions certainly belong to this consumer, as far as the group has said."""

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from dedup.rules.policies.results import Early
from dovecote.process.rarely import Rarely

_rarely = Rarely(logging.getLogger("dovecote.consumer"))

UNCERTAIN_SECONDS = 0.1
"""Seconds for which to hold a lane whose partition may be another member's."""


@dataclass(slots=True, eq=False)
class Certainty:
    """
    Set by the poll thread, and checked before each record is begun.

    A check costs one look at the clock. It does not stop a record that was begun: between the
    check and the effect, a process may stand still for any length of time.
    """

    until: float = math.inf
    """On the monotonic clock, which goes on while a process is stopped."""

    doubted: Callable[[], None] | None = None
    """Called for each record or lane that has to wait."""

    def doubt(self) -> Early:
        """Count a record that is not begun; return the result that stands for it."""
        _rarely.warning(
            "no word from the group for long: records wait until it confirms that their "
            "partitions are still this member's"
        )
        if self.doubted is not None:
            self.doubted()
        return Early("not certain to be ours", timedelta(seconds=UNCERTAIN_SECONDS))
