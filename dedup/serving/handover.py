"""Exchange of records and results between the poll thread and the workers, under one lock."""

import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

from dedup.rules.lanes.lanes import Lane, Lanes, Stretch
from dedup.rules.record import Record

T = TypeVar("T")

FOR_GOOD_SECONDS = 1_000_000.0
"""For so long a lane is held with which this process does not go on."""

Batch: TypeAlias = Mapping[bytes | None, Sequence[Any]]
"""A stretch's records of one poll batch by key, or what its `read` makes the records of."""


class Completed(NamedTuple):
    """A record that is completed."""

    stretch: Stretch[Record]
    record: Record
    outcome: str
    reason: str = ""
    """Why it was skipped, if it was: the kind of reason."""


@dataclass(slots=True)
class HandoverReport:
    """
    The result of a turn of work.

    It has deques because another thread may take from them while a handler does not return: a slow
    record must not delay the ones that were completed before it.
    """

    handled: deque[tuple[Stretch[Record], int, int]] = field(default_factory=deque)
    """
    Offsets and sizes of records that were handled, with nothing else to report.

    The records themselves are freed by the thread that has just read them: another thread would
    have to fetch them into its cache.
    """

    completed: deque[Completed] = field(default_factory=deque)
    """Other records that are completed."""

    served: deque[Lane[Record]] = field(default_factory=deque)
    """Lanes to give back."""

    held: deque[tuple[Lane[Record], float]] = field(default_factory=deque)
    """Lanes to hold, and for how many seconds."""

    def __bool__(self) -> bool:
        return bool(self.handled or self.completed or self.served or self.held)

    @property
    def records(self) -> int:
        """Number of completed records."""
        return len(self.handled) + len(self.completed)

    def taken(self) -> "HandoverReport":
        """Move everything so far into a new report, and return that."""
        taken = HandoverReport()
        # Lanes first: their records were reported before them, and so are taken with them.
        _move(self.served, taken.served)
        _move(self.held, taken.held)
        _move(self.handled, taken.handled)
        _move(self.completed, taken.completed)
        return taken


def first_of(lanes: deque[Lane[Record]], most: int) -> list[Lane[Record]]:
    """
    Take lanes from the left, `most` of them or as many as there are.

    They are taken one by one: another thread takes from the other end meanwhile, and each lane
    must be taken once.
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
    The lanes, and the results of serving them.

    `changed` is the condition on which workers wait for lanes; the poll thread waits for results
    on another one.
    """

    def __init__(self, lanes: Lanes[Record]) -> None:
        self.lanes = lanes
        self.lock = threading.Lock()
        self.changed = threading.Condition(self.lock)
        self._progress = threading.Condition(self.lock)
        self._reports: list[HandoverReport] = []
        self._completed = 0
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
        """Put lanes in line that are due; return the length of the line, and the next due time."""
        with self.lock:
            due = self.lanes.release(time.monotonic())
            return self.lanes.ready, due

    def collect(self) -> list[HandoverReport]:
        """Return the reports that came in since."""
        if not self._reports:
            return []
        with self.lock:
            reports, self._reports = self._reports, []
            self._completed = 0
            return reports

    def wait_for(self, records: int, seconds: float) -> None:
        """Wait until `records` uncollected records are completed, or for at most `seconds`."""
        with self.lock:
            self._awaited = records
            self._progress.wait_for(lambda: self._completed >= records, seconds)
            self._awaited = 0

    def drain(self, stretches: Sequence[Stretch[Record]], seconds: float) -> bool:
        """End stretches, wait for running handlers, and return whether all have returned."""
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

    # Called by workers.

    def settle(self, report: HandoverReport) -> None:
        """Take the result of a turn; the lock is held."""
        lanes = self.lanes
        lanes.give_back(report.served)
        for lane, seconds in report.held:
            lanes.hold(lane, time.monotonic() + seconds)
        self._reports.append(report)
        self._completed += report.records
        if self._draining or (self._awaited and self._completed >= self._awaited):
            self._progress.notify()

    def put_back(self, chunk: deque[Lane[Record]]) -> int:
        """Take back the lanes of a chunk that nobody has begun; the lock is held."""
        back: list[Lane[Record]] = []
        while chunk:
            # The worker takes from the chunk's other end meanwhile, without the lock.
            try:
                back.append(chunk.pop())
            except IndexError:
                break
        self.lanes.put_back(back)
        if self._draining and back:
            self._progress.notify()
        return len(back)


class Workers(Protocol):
    """Handles records: threads, or tasks on a loop."""

    def wake(self, ready: int) -> None: ...
    def reclaim(self, *, everything: bool = False) -> None: ...
    def close(self) -> None: ...

    @property
    def oldest(self) -> float: ...
