"""Record what was done and what happened, with times, so that a failure shows its surroundings."""

import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from proof.count import Fault

_MOST = 14
_BEFORE_SECONDS, _AFTER_SECONDS = 8.0, 3.0


class Entry(NamedTuple):
    """Something that was done, or happened."""

    at: float
    """In seconds since 1970."""
    text: str


class Journal:
    """The entries of a run; the ones marked as shown are printed as they come."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._began = time.time()
        self._show = show
        self.entries: list[Entry] = []

    def note(self, text: str, *, shown: bool = False) -> None:
        self.entries.append(Entry(time.time(), text))
        if shown:
            self._show(f"{time.time() - self._began:7.1f} s  {text}")

    def window(self, at: float) -> list[str]:
        """Return the entries nearest to a moment."""
        near = [
            each for each in self.entries if -_BEFORE_SECONDS <= each.at - at <= _AFTER_SECONDS
        ]
        nearest = sorted(near, key=lambda each: abs(each.at - at))[:_MOST]
        return [f"{each.at - self._began:9.2f} s  {each.text}" for each in sorted(nearest)]

    def last(self) -> list[str]:
        """Return the newest entries."""
        return [f"{each.at - self._began:9.2f} s  {each.text}" for each in self.entries[-_MOST:]]

    def explain(self, faults: Iterable[Fault]) -> str:
        """Return the first fault of each kind, with what was done around it."""
        lines: list[str] = []
        known = list(faults)
        for fault in {fault.what: fault for fault in reversed(known)}.values():
            at = fault.at / 1000
            alike = sum(each.what == fault.what for each in known)
            lines.append(
                f"{fault.what}: number {fault.number} of key {fault.key}, at about "
                f"{at - self._began:.2f} s, the first of {alike} or more"
            )
            lines += [f"  {line}" for line in self.window(at)]
        return "\n".join(lines)
