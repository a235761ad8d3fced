"""Keep the last hours of each part's numbers in bounded memory."""

import math
import threading
from array import array
from collections.abc import Iterable, Mapping, Sequence

from dovecote.console.shapes import NodeShape, SeriesShape

POINTS = 600
"""The most points of a line."""
MOST_SERIES = 9_000
"""Lines beyond this are not kept; each takes at most 5 KB."""

_UNITS = {"rate": "events/s", "lag_events": "events", "lag_seconds": "s"}
_NAN = math.nan
_NEAR = 1_800.0
"""The finer of the two rings goes back this far, in seconds."""


class _Ring:
    """A fixed number of steps of the same length; the value of a step is the last in it."""

    def __init__(self, span: float) -> None:
        self.step = span / POINTS
        self._now = 0
        self._lines: dict[tuple[str, str], array[float]] = {}

    def __len__(self) -> int:
        return len(self._lines)

    def add(self, at: float, values: Mapping[tuple[str, str], float]) -> None:
        now = int(at / self.step)
        # The clock may have been set back: what comes after this step is none of its line.
        first, last = sorted((now, self._now))
        passed = range(max(first + 1, last - POINTS + 1), last + 1)
        for line in self._lines.values():
            for each in passed:
                line[each % POINTS] = _NAN
        self._now = now
        for key, value in values.items():
            if key not in self._lines and len(self._lines) < MOST_SERIES:
                self._lines[key] = array("f", [_NAN]) * POINTS
            if key in self._lines:
                self._lines[key][now % POINTS] = value

    def forget(self, gone: Iterable[tuple[str, str]]) -> None:
        for each in gone:
            self._lines.pop(each, None)

    def known(self) -> list[tuple[str, str]]:
        return list(self._lines)

    def points(self, key: tuple[str, str], since: float) -> list[tuple[float, float]]:
        line = self._lines.get(key)
        if line is None:
            return []
        steps = range(max(self._now - POINTS + 1, int(since / self.step)), self._now + 1)
        found = [(each * self.step, line[each % POINTS]) for each in steps]
        return [(round(at, 1), round(value, 3)) for at, value in found if not math.isnan(value)]


class History:
    """Lines of rates and lags, by part: half an hour in small steps, and all of it in larger."""

    def __init__(self, seconds: float) -> None:
        self._lock = threading.Lock()
        self._near, self._far = _Ring(min(seconds, _NEAR)), _Ring(seconds)
        self._near_span = min(seconds, _NEAR)

    def __len__(self) -> int:
        return len(self._far)

    def add(self, at: float, nodes: Iterable[NodeShape]) -> None:
        """Take the numbers of all parts at one time, in seconds since 1970."""
        values: dict[tuple[str, str], float] = {}
        for each in nodes:
            if each["rate"] is not None:
                values[each["id"], "rate"] = each["rate"]
            lag = each["lag"]
            if lag is not None:
                if lag["events"] is not None:
                    values[each["id"], "lag_events"] = lag["events"]
                if lag["seconds"] is not None:
                    values[each["id"], "lag_seconds"] = lag["seconds"]
        with self._lock:
            for ring in (self._near, self._far):
                if len(ring) >= MOST_SERIES:
                    # Parts that are gone make room for new ones.
                    ring.forget([key for key in ring.known() if key not in values])
                ring.add(at, values)

    def lines(self, node: str, minutes: int, now: float) -> Sequence[SeriesShape]:
        """Return the lines of one part, of at most `POINTS` points each."""
        since = now - minutes * 60
        with self._lock:
            ring = self._near if minutes * 60 <= self._near_span else self._far
            return [
                SeriesShape(name=name, unit=unit, points=points)
                for name, unit in _UNITS.items()
                if (points := ring.points((node, name), since))
            ]
