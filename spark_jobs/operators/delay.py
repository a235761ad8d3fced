"""Hold records until their time has come."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Any

from spark_jobs.operators.settings import DelaySettings
from spark_jobs.operators.step import Input, Output, Released, Step


@dataclass(slots=True)
class State:
    """The waiting records."""

    waiting: list[tuple[int, int, Any]] = field(default_factory=list)
    """A heap of due time, order of arrival and record."""
    taken: int = 0
    """The number of records so far."""


class Delay:
    """The operator `delay`: the `time` of a record is when it may go on."""

    def __init__(self, _: DelaySettings) -> None:
        pass

    def start(self) -> State:
        return State()

    def step(
        self,
        state: State,
        records: Sequence[Input],
        now: int,
        *,
        behind: bool = False,  # noqa: ARG002  # what is due is due
    ) -> Step[State]:
        outputs: list[Output] = []
        waiting = state.waiting
        _release(waiting, now, outputs)
        for record in records:
            heappush(waiting, (record.time, state.taken, record.value))
            state.taken += 1
        _release(waiting, now, outputs)
        return Step(state, outputs, waiting[0][0] if waiting else None)

    def restore(self, waiting: list[tuple[int, int, Any]], taken: int) -> State:
        """Return the state that is made of these stored parts."""
        heapify(waiting)
        return State(waiting, taken)


def _release(waiting: list[tuple[int, int, Any]], now: int, outputs: list[Output]) -> None:
    while waiting and waiting[0][0] <= now:
        outputs.append(Released(heappop(waiting)[2]))
