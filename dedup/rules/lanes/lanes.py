"""
Lanes: the records of one key of one partition in sequence; lanes run in parallel.

Not thread-safe: threads that share the lanes take one lock for a batch of records or a turn of
work. A lane is in line, being served, held, or absent: its first record creates it, and it is
forgotten after its last.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from dedup.rules.claim import Claim
from outbox.errors import first_line

R = TypeVar("R")

NullKey: TypeAlias = Literal["apart", "partition"]
"""Records without a key: each in its own lane, or those of a partition in one."""


@dataclass(slots=True, eq=False)
class Stretch(Generic[R]):
    """
    One assignment of a partition: a record belongs to it even if the partition is assigned again.
    """

    topic: str
    partition: int
    epoch: int
    """Number of the assignment, from 1."""

    lanes: "dict[bytes | None, Lane[R]]" = field(repr=False)
    """The lanes of the partition; a lane that is being served outlives the stretch."""

    live: bool = True
    """Whether another record may be handled."""

    counts: bool = True
    """Whether completed records are still committed: until the stretch has been drained."""

    opened: bool = False

    barred: str = ""
    """Why none of its records may be handled; empty: nothing is known to be in the way."""

    at_work: int = 0
    """Lanes that were taken and not given back."""

    unopened: "list[Lane[R]]" = field(default_factory=list, repr=False)

    claim: Claim | None = None
    """The claim under which its records are taken; None: none is needed."""

    read: "Callable[[Sequence[Any]], Sequence[R]] | None" = field(default=None, repr=False)
    """Makes records of what was polled, when they are begun; None: they are records already."""

    waits: dict[int, str] = field(default_factory=dict, repr=False)
    """Why the records wait that were begun and are not completed, by their offsets."""

    due: dict[int, float] = field(default_factory=dict, repr=False)
    """When the time comes that was set for such a record, on the clock that never goes back."""


@dataclass(slots=True, eq=False)
class Run(Generic[R]):
    """The records of one key in one poll batch: a policy decides on them together."""

    stretch: Stretch[R]
    records: Sequence[R]
    """They are as the client polled them until the run is begun, if its stretch has a `read`."""

    number: int
    """Runs are numbered as they come."""

    state: Any = None
    """The worker's progress; None: not begun."""


@dataclass(slots=True, eq=False)
class Lane(Generic[R]):
    """The runs of one key, in order. `current` is the run that was begun, if there is one."""

    key: bytes | None
    runs: deque[Run[R]] = field(default_factory=deque)
    current: Run[R] | None = None
    busy: bool = False
    """In line, being served or held."""

    scheduled: bool = False
    """Whether it is held for a time that was set for its record, if it is held."""

    stretch: Stretch[R] | None = None
    """The stretch that it is served for, while it is taken."""

    home: "dict[bytes | None, Lane[R]] | None" = field(default=None, repr=False)
    """The mapping in which its key is found; None: none."""


class Lanes(Generic[R]):
    """All lanes of a consumer."""

    def __init__(self, null_key: NullKey = "apart") -> None:
        self._apart = null_key == "apart"
        # The line begins with the lane whose next run is oldest: that limits how far apart the
        # records of a partition are. New lanes come in that order by themselves; there is a heap
        # for the others.
        self._ready: deque[Lane[R]] = deque()
        self._back: list[tuple[int, Lane[R]]] = []
        self._held: list[tuple[float, int, Lane[R]]] = []
        self._holds = count()
        self._runs = count()
        self._epochs = count(1)
        self._homes: dict[tuple[str, int], dict[bytes | None, Lane[R]]] = {}

    @property
    def ready(self) -> int:
        """Number of lanes in line."""
        return len(self._ready) + len(self._back)

    @property
    def held(self) -> int:
        """Number of lanes that are held."""
        return len(self._held)

    @property
    def known(self) -> int:
        """Number of lanes, except those of records without a key."""
        return sum(len(home) for home in self._homes.values())

    @property
    def only_scheduled(self) -> bool:
        """Whether every lane is held for a time that was set for its record."""
        return not self.ready and all(lane.scheduled for _, _, lane in self._held)

    def begin(self, topic: str, partition: int) -> Stretch[R]:
        """
        Return a new stretch of a partition; its lanes stay out of the line until it is opened.
        """
        home = self._homes.setdefault((topic, partition), {})
        return Stretch(topic, partition, next(self._epochs), home)

    def open(self, stretch: Stretch[R]) -> None:
        """Put lanes in line that waited for the stretch to be opened."""
        stretch.opened, stretch.barred = True, ""
        waiting, stretch.unopened = stretch.unopened, []
        for lane in waiting:
            self._line_up(lane)

    def offer(
        self,
        stretch: Stretch[R],
        batch: Mapping[bytes | None, Sequence[R]],
    ) -> None:
        """Append a poll batch, grouped by key, to the lanes of its keys."""
        home = stretch.lanes
        line = self._ready if stretch.opened else stretch.unopened
        for key, records in batch.items():
            if key is None and self._apart:
                for record in records:
                    run = Run(stretch, (record,), next(self._runs))
                    line.append(Lane(None, deque((run,)), busy=True))
                continue
            lane = home.get(key)
            if lane is None:
                home[key] = lane = Lane(key, home=home)
            lane.runs.append(Run(stretch, records, next(self._runs)))
            if not lane.busy:
                lane.busy = True
                line.append(lane)

    def take(self, most: int) -> deque[Lane[R]]:
        """Take lanes from the line, until they have `most` records to begin with."""
        taken: deque[Lane[R]] = deque()
        records = 0
        while records < most and (lane := self._first()) is not None:
            run = _next(lane)
            if run is None:
                self._forget(lane)
                continue
            if not run.stretch.opened:
                run.stretch.unopened.append(lane)
                continue
            lane.stretch = run.stretch
            run.stretch.at_work += 1
            records += len(run.records)
            taken.append(lane)
        return taken

    def give_back(self, lanes: Iterable[Lane[R]]) -> None:
        """Take back lanes that were served; those with more records go in line again."""
        for lane in lanes:
            _leave(lane)
            self._line_up(lane)

    def put_back(self, lanes: Iterable[Lane[R]]) -> None:
        """Take back lanes that were not served: at the head of the line, the last one first."""
        for lane in lanes:
            _leave(lane)
            self._ready.appendleft(lane)

    def hold(self, lane: Lane[R], due: float) -> None:
        """
        Take back a lane that continues at `due`, and not before.

        If its stretch has ended since, its key must not wait in the next one.
        """
        _leave(lane)
        if lane.current is not None and not lane.current.stretch.live:
            self._line_up(lane)
        else:
            heappush(self._held, (due, next(self._holds), lane))

    def release(self, now: float) -> float | None:
        """Put lanes in line that are due; return when the next one is due."""
        while self._held and self._held[0][0] <= now:
            self._line_up(heappop(self._held)[2])
        return self._held[0][0] if self._held else None

    def end(self, stretch: Stretch[R]) -> None:
        """End a stretch: no other record of it is begun."""
        stretch.live = False
        # The next worker to take a lane drops the runs that are over. While a lane is being
        # served, nobody else may touch it.
        for lane in stretch.unopened:
            self._line_up(lane)
        stretch.unopened.clear()
        # A held lane would make its key wait in the next stretch, too.
        over = [entry for entry in self._held if _belongs(entry[2], stretch)]
        if over:
            self._held = [entry for entry in self._held if not _belongs(entry[2], stretch)]
            heapify(self._held)
            for _, _, lane in over:
                self._line_up(lane)

    def _first(self) -> Lane[R] | None:
        """Take the lane whose next run is oldest."""
        if not self._back:
            return self._ready.popleft() if self._ready else None
        if self._ready and _number(self._ready[0]) < self._back[0][0]:
            return self._ready.popleft()
        return heappop(self._back)[1]

    def _line_up(self, lane: Lane[R]) -> None:
        number = _number(lane)
        if number < 0:
            self._forget(lane)
        else:
            heappush(self._back, (number, lane))

    def _forget(self, lane: Lane[R]) -> None:
        lane.busy = False
        if lane.home is not None:
            del lane.home[lane.key]


def bar(stretches: Iterable[Stretch[R]], what: str, error: BaseException) -> None:
    """Note why none of the records of these may be handled, until the stretches are opened."""
    for stretch in stretches:
        stretch.barred = f"{what}: {first_line(error)}"


def _leave(lane: Lane[R]) -> None:
    if lane.stretch is not None:
        lane.stretch.at_work -= 1
        lane.stretch = None


def _belongs(lane: Lane[R], stretch: Stretch[R]) -> bool:
    return lane.current is not None and lane.current.stretch is stretch


def _number(lane: Lane[R]) -> int:
    """Return the number of the next run; -1: there is none."""
    run = lane.current or (lane.runs[0] if lane.runs else None)
    return -1 if run is None else run.number


def _next(lane: Lane[R]) -> Run[R] | None:
    """Return the next run, after dropping those whose stretch is over."""
    if lane.current is not None and not lane.current.stretch.live:
        lane.current = None
    if lane.current is not None:
        return lane.current
    runs = lane.runs
    while runs and not runs[0].stretch.live:
        runs.popleft()
    return runs[0] if runs else None
