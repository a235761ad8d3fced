"""The operator of a step with scripts, run in a process that may be killed with them."""

from collections.abc import Sequence

from outbox.envelope import Record
from spark_jobs.operators.aggregation.host import Stepped
from spark_jobs.operators.aggregation.operator import Aggregation
from spark_jobs.operators.aggregation.scripts.helper import SharedState, helper
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
        helper(settings)

    def start(self) -> SharedState:
        return SharedState(encoded(Aggregation.start()))

    def step(
        self, state: SharedState, records: Sequence[Input], now: int, *, behind: bool = False
    ) -> StepResult[SharedState]:
        asked = helper(self._settings)
        return self._result(asked.ask("step", (records, behind), now, state=state), asked.starts)

    def finish(self, state: SharedState, now: int) -> StepResult[SharedState]:
        """Close what is open: no more records will come."""
        asked = helper(self._settings)
        return self._result(asked.ask("finish", now, state=state), asked.starts)

    def keys(self, records: Sequence[Record]) -> list[bytes | None]:
        """Return the key of each record, None if it has none."""
        found: list[bytes | None] = helper(self._settings).ask("keys", records)
        return found

    @staticmethod
    def _result(told: Stepped, start: int) -> StepResult[SharedState]:
        number, data, keys, outputs, deadline = told
        return StepResult(SharedState(data, start, number, range(keys)), outputs, deadline)


def make(settings: AggregationSettings) -> Aggregation | Guarded:
    """
    Return the operator of a step.

    Raises:
        BadSettings: a script or a schema is not valid.
    """
    return Guarded(settings) if settings.has_scripts else Aggregation(settings, Scripts(settings))
