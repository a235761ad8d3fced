"""Hold records until their time has come."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Any

from spark_jobs.operators.settings import DelaySettings
from spark_jobs.operators.step import Input, Output, Released, StepResult


@dataclass(slots=True)
class DelayState:
    """The waiting records."""

    waiting: list[tuple[int, int, Any]] = field(default_factory=list)
    """A heap of due time, order of arrival and record."""
    taken: int = 0
    """The number of records so far."""


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
        waiting = state.waiting
        _release(waiting, now, outputs)
        for record in records:
            heappush(waiting, (record.time, state.taken, record.value))
            state.taken += 1
        _release(waiting, now, outputs)
        return StepResult(state, outputs, waiting[0][0] if waiting else None)

    def restore(self, waiting: list[tuple[int, int, Any]], taken: int) -> DelayState:
        """Return the state that is made of these stored parts."""
        heapify(waiting)
        return DelayState(waiting, taken)


def _release(waiting: list[tuple[int, int, Any]], now: int, outputs: list[Output]) -> None:
    while waiting and waiting[0][0] <= now:
        outputs.append(Released(heappop(waiting)[2]))
