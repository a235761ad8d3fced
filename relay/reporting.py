"""Report parked events to operators: the first at once, and the rest of many in sums."""

import logging
from collections.abc import Callable, Sequence

from relay.errors import ADVICE
from relay.rules.parking import BEHIND, EventToPark
from relay.rules.row import ID, KEY, TOPIC

_log = logging.getLogger("dovecote.relay")

# In this many seconds, this many kinds of events (by reason and topic) get a line of their own.
_EVERY, _MOST_LINES = 30.0, 10


class ParkedReports:
    """Parked events that were not reported yet."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until = 0.0
        self._lines: set[tuple[str, str]] = set()
        self._more, self._topics = 0, set[str]()

    def parked(self, events: Sequence[EventToPark]) -> None:
        """Report events that are parked for their own sake, not those that wait for them."""
        kinds: dict[tuple[str, str], list[EventToPark]] = {}
        for each in events:
            if each.reason.code != BEHIND.code and each.replaces is None:
                kinds.setdefault((each.row[TOPIC], each.reason.code), []).append(each)
        for (topic, code), parked in kinds.items():
            self.catch_up()
            if (topic, code) in self._lines or len(self._lines) >= _MOST_LINES:
                self._more += len(parked)
                self._topics.add(topic)
                continue
            self._lines.add((topic, code))
            row, why, holds, _ = parked[0]
            _log.warning(
                "parked event %s for topic %r, key %s%s: %s%s; see `dovecote relay parked list`",
                *(row[ID], topic, shown(row[KEY])),
                f", and {len(parked) - 1} more" if len(parked) > 1 else "",
                f"{why.text} ({ADVICE[why.code]})",
                "; later events of the key wait for it" if holds else "",
            )

    def catch_up(self) -> None:
        """Report the sum of the others, once it is time."""
        if self._clock() < self._until:
            return
        if self._more:
            _log.warning(
                "parked %d more events for similar reasons, for %d topics; "
                "see `dovecote relay parked list`",
                *(self._more, len(self._topics)),
            )
        self._until = self._clock() + _EVERY
        self._lines.clear()
        self._more, self._topics = 0, set()


def shown(key: bytes | None) -> str:
    """Return a key in the form that people read."""
    return "none" if key is None else repr(key.decode(errors="backslashreplace"))
