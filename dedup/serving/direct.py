"""
Serve lanes on the loop without a task for each: what ends one record begins the next.

A task and its coroutines cost more than all else that a record takes if a handler does little
besides waiting for an answer. So a handler may begin a record at once and call back. A task does
all that is not usual: a record that cannot be begun at once, and every result but `Done`.
"""

import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol, TypeAlias

from dedup.rules.lanes.lanes import Lane, Run
from dedup.rules.policies.results import Result
from dedup.rules.record import Record, size_of
from dedup.serving.awaited import AwaitedServing
from dedup.serving.runs import next_run
from dedup.serving.tasks import Desk

Rest: TypeAlias = Callable[[], Awaitable[Result]]
"""Does what is left to do for a record, once it is awaited; it returns its result."""


class Slot(Protocol):
    """The place of a record that was begun; one of these is called, once."""

    def done(self) -> None:
        """Take that the record is handled, and begin another."""

    def unfinished(self, rest: Rest) -> None:
        """Take what is left to do for the record: a task does it."""


Begin: TypeAlias = Callable[[Record, Slot], bool]
"""
Begins to handle a record, and returns whether it is begun; it calls the slot later, not yet.

False: the record has to wait before it is begun, or is not a usual one. The handler takes it then.
"""


class BeginsRecords(Protocol):
    """Begins to handle records; called on the loop."""

    def begin(self, record: Record, slot: Slot) -> bool:
        """As `Begin`."""

    def raised(self, error: Exception) -> Result:
        """Return the result that stands for an exception of what was left to do."""


class GivesWork(Desk, Protocol):
    """Has lanes to serve, and tasks for those that are not served directly."""

    def next(self, over: int) -> Lane[Record] | None:
        """Return the next lane; if there is none, `over` of those at work are about to end."""

    def hand_in_soon(self) -> None:
        """Report before long what was done."""

    def in_task(
        self, lane: Lane[Record], first: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """Serve a lane in a task, which does `first` before."""

    def failed(self, error: BaseException) -> None:
        """End the consumer with an error."""


class Direct:
    """The lanes that are served directly, one in each slot."""

    def __init__(self, serving: AwaitedServing, handler: BeginsRecords, tasks: GivesWork) -> None:
        self.serving, self.handler, self.tasks = serving, handler, tasks
        self.at_work: set[_Slot] = set()
        self.ended = False

    def takes(self, lane: Lane[Record]) -> bool:
        """Begin to serve a lane; False: a task has to."""
        slot = _Slot(self)
        try:
            if not slot.takes(lane):
                return False
        except Exception as error:  # noqa: BLE001  # the consumer ends with it
            self.tasks.failed(error)
        self.at_work.add(slot)
        return True

    def end(self) -> None:
        """Take no more notice of records at work: they come again."""
        self.ended = True
        self.at_work.clear()

    @property
    def oldest(self) -> float | None:
        """When the lane was begun that is served longest; from any thread."""
        return min((each.began for each in self.at_work.copy()), default=None)


class _Slot:
    """Serves one lane at a time, and one record of it."""

    __slots__ = ("_direct", "_lane", "_number", "_over", "_run", "began")

    def __init__(self, direct: Direct) -> None:
        self._direct = direct
        self._lane: Lane[Record]
        self._run: Run[Record]
        self._number = 0
        """How many records of the run were begun."""
        self.began = self._over = 0.0

    def takes(self, lane: Lane[Record]) -> bool:
        """Begin to serve a lane; False: a task has to."""
        self._lane = lane
        self.began = now = time.monotonic()
        self._over = now + self._direct.serving.slice_seconds
        return self._begins_run(now)

    def done(self) -> None:
        """As `Slot.done`."""
        direct = self._direct
        if direct.ended:
            return
        try:
            record, stretch = self._run.records[self._number - 1], self._run.stretch
            direct.tasks.report.handled.append((stretch, record.offset, size_of(record)))
            if not self._goes_on():
                self._next_lane()
        except BaseException as error:  # noqa: BLE001  # the consumer ends with it
            direct.tasks.failed(error)

    def unfinished(self, rest: Rest) -> None:
        """As `Slot.unfinished`."""
        direct = self._direct
        if not direct.ended:
            direct.at_work.discard(self)
            direct.tasks.in_task(self._lane, partial(self._conclude, rest))

    async def _conclude(self, rest: Rest) -> None:
        direct, run, number = self._direct, self._run, self._number
        try:
            result = await rest()
        except Exception as error:  # noqa: BLE001  # whatever a handler raises is its result
            result = direct.handler.raised(error)
        direct.serving.concluded(run, number, result)

    def _begins_run(self, now: float) -> bool:
        """Begin the lane's next run, if this is the way for it."""
        run, serving = next_run(self._lane), self._direct.serving
        if run is None or run.state is not None or not run.stretch.live:
            return False
        if now > serving.certainty.until or not serving.is_plain(run):
            return False
        self._run, self._number = run, 1
        return self._direct.handler.begin(run.records[0], self)

    def _goes_on(self) -> bool:
        """Begin the next record of the lane; False: the lane is given back."""
        direct, run, lane, number = self._direct, self._run, self._lane, self._number
        if number < len(run.records):
            if self._begins_next(run, number):
                return True
            run.records = run.records[number:]  # it goes on later, or in a task
        else:
            lane.current = None
            if lane.runs and (now := time.monotonic()) <= self._over and self._begins_run(now):
                return True
        direct.tasks.report.served.append(lane)
        return False

    def _begins_next(self, run: Run[Record], number: int) -> bool:
        now, direct = time.monotonic(), self._direct
        if now > self._over or not run.stretch.live or now > direct.serving.certainty.until:
            return False
        self._number += 1
        return direct.handler.begin(run.records[number], self)

    def _next_lane(self) -> None:
        """Take the next lane, or end."""
        direct = self._direct
        tasks = direct.tasks
        tasks.hand_in_soon()
        lane = tasks.next(1)
        if lane is not None:
            if self.takes(lane):
                return
            tasks.in_task(lane)
        direct.at_work.discard(self)
