"""Hold records until their time has come."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Any

from spark_jobs.operators.changes import Changes
from spark_jobs.operators.settings import DelaySettings
from spark_jobs.operators.step import Input, Output, Released, StepResult


@dataclass(slots=True)
class DelayState:
    """The waiting records."""

    waiting: list[tuple[int, int, Any]] = field(default_factory=list)
    """A heap of due time, order of arrival and record."""
    taken: int = 0
    """The number of records so far."""
    changes: Changes = field(default_factory=Changes, compare=False, repr=False)
    """The changes since the state was stored, by the records' numbers."""

    def remove(self, gone: Collection[int]) -> None:
        """Remove the records with these numbers."""
        if gone:
            numbers = set(gone)
            self.waiting = [each for each in self.waiting if each[1] not in numbers]
            heapify(self.waiting)


class Delay:
    """The operator `delay`: the `time` of a record is when it may go on."""

    def __init__(self, _: DelaySettings) -> None:
        pass

    def start(self) -> DelayState:
        return DelayState()

    def step(
        self,
        state: DelayState,
        records: Sequence[Input],
        now: int,
        *,
        behind: bool = False,  # noqa: ARG002  # what is due is due
    ) -> StepResult[DelayState]:
        outputs: list[Output] = []
        waiting, first = state.waiting, state.taken
        _release(state, now, outputs)
        for record in records:
            heappush(waiting, (record.time, state.taken, record.value))
            state.taken += 1
        state.changes.touch(range(first, state.taken))
        _release(state, now, outputs)
        return StepResult(state, outputs, waiting[0][0] if waiting else None)

    def renew(self, state: DelayState, waiting: list[tuple[int, int, Any]], taken: int) -> None:
        """Add what was stored to a state."""
        state.waiting += waiting
        heapify(state.waiting)
        state.taken = taken


def _release(state: DelayState, now: int, outputs: list[Output]) -> None:
    waiting, changes = state.waiting, state.changes
    while waiting and waiting[0][0] <= now:
        _, number, record = heappop(waiting)
        outputs.append(Released(record))
        if number in changes.touched:
            del changes.touched[number]  # it was never stored
        else:
            changes.forget(number)
