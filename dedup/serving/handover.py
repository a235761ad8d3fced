"""What the poll thread and those who handle records pass each other, under one lock."""

import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

from dedup.rules.lanes.lanes import Lane, Lanes, Stretch
from dedup.rules.record import Record

T = TypeVar("T")

Batch: TypeAlias = Mapping[bytes | None, Sequence[Record]]
"""A stretch's records of one poll batch, by key."""


class Concluded(NamedTuple):
    """A record that is concluded."""

    stretch: Stretch[Record]
    record: Record
    outcome: str
    reason: str = ""
    """Why it was skipped, if it was: the kind of reason."""


@dataclass(slots=True)
class Report:
    """
    What a turn of work came to.

    Deques, because another thread may take from them what is there while a handler does not
    return: one slow record must not keep back what was concluded before it.
    """

    handled: deque[tuple[Stretch[Record], Record]] = field(default_factory=deque)
    """Records that were handled, and nothing else was."""

    concluded: deque[Concluded] = field(default_factory=deque)
    """Other records that are concluded."""

    served: deque[Lane[Record]] = field(default_factory=deque)
    """Lanes to give back."""

    held: deque[tuple[Lane[Record], float]] = field(default_factory=deque)
    """Lanes to hold, and for how many seconds."""

    def __bool__(self) -> bool:
        return bool(self.handled or self.concluded or self.served or self.held)

    @property
    def records(self) -> int:
        """How many records are concluded."""
        return len(self.handled) + len(self.concluded)

    def taken(self) -> "Report":
        """Return what is there so far, and no longer here."""
        taken = Report()
        # Lanes first: what they were served with was there before them, and is taken with them.
        _move(self.served, taken.served)
        _move(self.held, taken.held)
        _move(self.handled, taken.handled)
        _move(self.concluded, taken.concluded)
        return taken


def first_of(lanes: deque[Lane[Record]], most: int) -> list[Lane[Record]]:
    """
    Take lanes from the left, `most` of them or as many as there are.

    One by one: another thread takes from the other end meanwhile, and each is taken once.
    """
    taken: list[Lane[Record]] = []
    while len(taken) < most:
        try:
            taken.append(lanes.popleft())
        except IndexError:
            break
    return taken


def _move(source: deque[T], target: deque[T]) -> None:
    while source:
        target.append(source.popleft())


class Handover:
    """
    The lanes, and what came of them.

    `changed` is the condition on which whoever handles records waits for lanes; the poll thread
    waits for results on one of its own.
    """

    def __init__(self, lanes: Lanes[Record]) -> None:
        self.lanes = lanes
        self.lock = threading.Lock()
        self.changed = threading.Condition(self.lock)
        self._progress = threading.Condition(self.lock)
        self._reports: list[Report] = []
        self._concluded = 0
        self._awaited = 0
        self._draining = False

    # Called by the poll thread.

    def offer(self, batches: Iterable[tuple[Stretch[Record], Batch]]) -> int:
        """Put the records of a poll batch in line; return how many lanes are in line."""
        with self.lock:
            for stretch, batch in batches:
                self.lanes.offer(stretch, batch)
            return self.lanes.ready

    def release(self) -> tuple[int, float | None]:
        """Put in line what was held long enough; return the length of the line, and the next."""
        with self.lock:
            due = self.lanes.release(time.monotonic())
            return self.lanes.ready, due

    def collect(self) -> list[Report]:
        """Return the reports that came in since."""
        if not self._reports:
            return []
        with self.lock:
            reports, self._reports = self._reports, []
            self._concluded = 0
            return reports

    def wait_for(self, records: int, seconds: float) -> None:
        """Wait until so many records are concluded that were not collected, or no longer."""
        with self.lock:
            self._awaited = records
            self._progress.wait_for(lambda: self._concluded >= records, seconds)
            self._awaited = 0

    def drain(self, stretches: Sequence[Stretch[Record]], seconds: float) -> bool:
        """End stretches; wait for the handlers at work, and tell whether all have returned."""
        with self.lock:
            for stretch in stretches:
                self.lanes.end(stretch)
            self._draining = True
            done = self._progress.wait_for(
                lambda: not any(stretch.at_work for stretch in stretches), seconds
            )
            self._draining = False
            for stretch in stretches:
                stretch.counts = False
            return done

    # Called by whoever handles records.

    def settle(self, report: Report) -> None:
        """Take what a turn came to; the lock is held."""
        lanes = self.lanes
        lanes.give_back(report.served)
        for lane, seconds in report.held:
            lanes.hold(lane, time.monotonic() + seconds)
        self._reports.append(report)
        self._concluded += report.records
        if self._draining or (self._awaited and self._concluded >= self._awaited):
            self._progress.notify()

    def put_back(self, chunk: deque[Lane[Record]]) -> int:
        """Take back the lanes of a chunk that nobody has begun; the lock is held."""
        back: list[Lane[Record]] = []
        while chunk:
            # Whoever works on the chunk takes from its other end meanwhile, without the lock.
            try:
                back.append(chunk.pop())
            except IndexError:
                break
        self.lanes.put_back(back)
        if self._draining and back:
            self._progress.notify()
        return len(back)


class Workers(Protocol):
    """Whoever handles records: threads, or tasks on a loop."""

    def wake(self, ready: int) -> None: ...
    def reclaim(self, *, everything: bool = False) -> None: ...
    def close(self) -> None: ...

    @property
    def oldest(self) -> float: ...
