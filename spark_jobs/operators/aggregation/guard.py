"""The operator of a step with scripts, run in a process that may be killed with them."""

from collections.abc import Sequence
from typing import Any

from outbox.envelope import Record
from spark_jobs.operators.aggregation.chunks import Chunks, InMemory
from spark_jobs.operators.aggregation.operator import Aggregation
from spark_jobs.operators.aggregation.scripts.helper import SharedState, Stepped, helper
from spark_jobs.operators.aggregation.scripts.scripts import Scripts
from spark_jobs.operators.aggregation.settings import AggregationSettings
from spark_jobs.operators.aggregation.state import encoded
from spark_jobs.operators.step import Input, StepResult


class Guarded:
    """
    Like `Aggregation`, but in another process: here, a state is bytes.

    Raises:
        BadSettings: a script or a schema is not valid.
    """

    def __init__(self, settings: AggregationSettings) -> None:
        self._settings = settings
        self._chunks: Chunks = InMemory()
        helper(settings)

    def start(self) -> SharedState:
        return SharedState(encoded(Aggregation.start()))

    def keep_in(self, chunks: Chunks) -> None:
        """Keep the events of large windows in `chunks`, which is stored with the state."""
        self._chunks = chunks

    def step(
        self, state: SharedState, records: Sequence[Input], now: int, *, behind: bool = False
    ) -> StepResult[SharedState]:
        return self._asked("step", (records, behind), now, state=state)

    def finish(self, state: SharedState, now: int) -> StepResult[SharedState]:
        """Close what is open: no more records will come."""
        return self._asked("finish", now, state=state)

    def keys(self, records: Sequence[Record]) -> list[bytes | None]:
        """Return the key of each record, None if it has none."""
        found: list[bytes | None] = helper(self._settings).ask("keys", records)
        return found

    def _asked(self, method: str, *arguments: Any, state: SharedState) -> StepResult[SharedState]:  # noqa: ANN401
        asked = helper(self._settings)
        told: Stepped = asked.ask(method, *arguments, state=state, chunks=self._chunks)
        # Only now: a request that ends its process is made again.
        for chunk in told.written:
            self._chunks.write(*chunk)
        for chunks in told.dropped:
            self._chunks.drop(*chunks)
        found = SharedState(told.data, asked.starts, told.number, range(told.keys), told.open)
        return StepResult(found, told.outputs, told.deadline)


def make(settings: AggregationSettings) -> Aggregation | Guarded:
    """
    Return the operator of a step.

    Raises:
        BadSettings: a script or a schema is not valid.
    """
    return Guarded(settings) if settings.has_scripts else Aggregation(settings, Scripts(settings))
